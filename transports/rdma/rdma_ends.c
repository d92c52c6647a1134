/*
 * The work of the two ends of an rdma link: who may send, what has come, and what that means.
 * rdma_link.h has the picture.
 *
 * A send is done when it is copied into its slot; one that the device takes from the user's buffer,
 * when the word that followed it is known to have arrived. The device still needs the slot: it is
 * reused when that word is known to have arrived and the receiver has given back its own slot. The
 * receiver gives slots back with chunks that go the other way; alone in steps of half its slots, or
 * at once if the sender may be waiting.
 */
#include "base/clock.h"
#include "base/sizes.h"
#include "transports/agree.h"
#include "transports/check/checksum.h"
#include "transports/rdma/rdma_link.h"
#include <assert.h>
#include <string.h>

#define RDMA_RANGES 2u /* writes before a word: payload, header */

/* After a peer has left, the control plane has this long to find out why. */
#define RDMA_PATIENCE_NS HOOP_NS_PER_S

/* Bytes to be written to the peer's memory. */
struct rdma_range {
    const uint8_t *data;
    size_t bytes;
    uint32_t local_key, remote_key;
    uint64_t address;
};

/* Small payload, where latency dominates, has a check that takes few instructions. The header needs
 * no check, because all of it is compared with what is expected. */
static uint64_t rdma_check(const struct hoop_rdma_link *rdma, const void *payload, size_t bytes)
{
    const enum hoop_check check = (enum hoop_check)rdma->base.params.check;
    return check == HOOP_CHECK_SUM && bytes <= HOOP_LINE_BYTES
               ? hoop_checksum_few(0, payload, bytes)
               : hoop_checksum(check, payload, bytes);
}

/* Fails the link: the peer sent an impossible word. */
__attribute__((cold, noinline)) static void rdma_insane(struct hoop_rdma_link *rdma, uint32_t word)
{
    const struct hoop_link_params *params = &rdma->base.params;
    const uint64_t sent = rdma->head - rdma->tail, next = (rdma->head + 1) & HOOP_RDMA_CHUNK_MASK;
    (void)hoop_failure_set(&rdma->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                           "rank %u sent the word %08x to rank %u (lane %u), expected %s %llu",
                           params->peer, word, params->me, params->lane,
                           params->sending ? "a credit for at most" : "a credited chunk, number",
                           (unsigned long long)(params->sending ? sent : next));
}

static void rdma_peer_left(struct hoop_rdma_link *rdma)
{
    rdma->left_ns = hoop_now_ns();
}

/* ---- Words ----------------------------------------------------------------------------------- */

/* The id of the next word and of all that is written before it: it tells whose failure it is. */
static uint64_t rdma_id(const struct hoop_rdma_link *rdma)
{
    return (uint64_t)rdma->number << 32 | ((uint32_t)(rdma->sent + 1) & ~HOOP_RDMA_RECEIVE);
}

/* The word by itself, as a message: empty if the word is immediate data, unless it is an offer. */
static struct hoop_verbs_work rdma_word_work(struct hoop_rdma_link *rdma, uint32_t word)
{
    struct hoop_verbs_work work = {
        .id = rdma_id(rdma), .word = word, .word_comes = rdma->immediate};
    const bool offers = !rdma->base.params.sending && word >> 30 == HOOP_RDMA_PLACE;
    if (!rdma->immediate || offers) {
        struct hoop_rdma_message *out =
            &rdma->words_out[rdma->sent % hoop_rdma_words(&rdma->base.params)];
        *out = offers ? rdma->offer : (struct hoop_rdma_message){0};
        out->word = word;
        work.data = out;
        work.bytes = sizeof(*out);
        work.local_key = rdma->key.local_key;
        work.is_inline = work.bytes <= rdma->depth.inline_bytes;
    }
    return work;
}

static void rdma_range_work(const struct hoop_rdma_link *rdma, const struct rdma_range *range,
                            struct hoop_verbs_work *ret)
{
    *ret = (struct hoop_verbs_work){
        .id = rdma_id(rdma),
        .data = range->data,
        .bytes = (uint32_t)range->bytes,
        .local_key = range->local_key,
        .remote_address = range->address,
        .remote_key = range->remote_key,
        .write = true,
        .is_inline = range->bytes <= rdma->depth.inline_bytes,
    };
}

static uint32_t rdma_word(enum hoop_rdma_word kind, uint64_t count)
{
    return (uint32_t)kind << 30 | ((uint32_t)count & HOOP_RDMA_COUNT_MASK);
}

/* Gives the works to the device; the last one has the word. Signaled are those that are awaited,
 * and so many others that a sender that waits for room always waits for a signaled one. */
static bool rdma_post(struct hoop_rdma_link *rdma, struct hoop_verbs_work *works, uint32_t count,
                      bool awaited)
{
    const uint32_t turn = rdma->base.params.slots > 1 ? rdma->base.params.slots / 2 : 1;
    struct hoop_verbs_work *last = &works[count - 1];
    last->signaled = awaited || (uint32_t)(rdma->sent + 1) % turn == 0;
    const int err = rdma->context->verbs->send(rdma->queue, works, count);
    if (err != 0) {
        hoop_rdma_fail(rdma, HOOP_SYSTEM_ERROR, hoop_errno_name(err));
        return false;
    }
    rdma->sent++;
    return true;
}

/* May one more word be under way? */
static bool rdma_has_room(const struct hoop_rdma_link *rdma)
{
    return !rdma->broken && rdma->sent - rdma->completed < hoop_rdma_words(&rdma->base.params);
}

bool hoop_rdma_say(struct hoop_rdma_link *rdma, enum hoop_rdma_word kind, uint64_t count)
{
    if (!rdma_has_room(rdma)) {
        return false;
    }
    struct hoop_verbs_work work = rdma_word_work(rdma, rdma_word(kind, count));
    return rdma_post(rdma, &work, 1, kind == HOOP_RDMA_GOODBYE);
}

/* Sends a word after the ranges: with the last write, if the device has immediate data. */
static bool rdma_say_after(struct hoop_rdma_link *rdma, uint32_t word,
                           const struct rdma_range *ranges, uint32_t range_count)
{
    struct hoop_verbs_work works[RDMA_RANGES + 1];
    uint32_t filled = 0;
    assert(range_count <= RDMA_RANGES);
    for (uint32_t i = 0; i < range_count; i++) {
        rdma_range_work(rdma, &ranges[i], &works[filled++]);
    }
    if (rdma->immediate) {
        works[filled - 1].word = word;
        works[filled - 1].word_comes = true;
    } else {
        works[filled++] = rdma_word_work(rdma, word);
    }
    return rdma_post(rdma, works, filled, range_count > 1);
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Copies first, as the peer may still write to the message. */
static bool sender_hears_offer(struct hoop_rdma_link *rdma, uint32_t word,
                               const struct hoop_rdma_message *message)
{
    rdma->offer = *message;
    return rdma->offer.word == word && rdma->offer.bytes > 0;
}

/* The peer has given back `back` more chunks. After its goodbye that is known already. */
static void sender_takes_back(struct hoop_rdma_link *rdma, uint32_t word, uint64_t back)
{
    if (rdma->left_ns != 0) {
        return;
    }
    if (back == 0 || back > rdma->head - rdma->tail) {
        rdma_insane(rdma, word);
        return;
    }
    rdma->tail += back;
}

/* A goodbye has the total that was given back; no separate credit may follow it. */
static void sender_hears_goodbye(struct hoop_rdma_link *rdma, uint32_t word)
{
    const uint64_t back = (word - (uint32_t)rdma->tail) & HOOP_RDMA_COUNT_MASK;
    rdma->tail += back <= rdma->head - rdma->tail ? back : 0;
    rdma_peer_left(rdma);
}

void hoop_rdma_sender_hears(struct hoop_rdma_link *rdma, uint32_t word,
                            const struct hoop_rdma_message *message)
{
    const uint32_t kind = word >> 30;
    if (kind == HOOP_RDMA_CREDIT) {
        sender_takes_back(rdma, word, word & HOOP_RDMA_COUNT_MASK);
    } else if (kind == HOOP_RDMA_GOODBYE) {
        sender_hears_goodbye(rdma, word);
    } else if (kind == HOOP_RDMA_DATA || !sender_hears_offer(rdma, word, message)) {
        rdma_insane(rdma, word);
    }
}

/* Fails the link, once patience is over: the peer has left, but there is more for it. */
static hoop_result_t sender_blame(struct hoop_rdma_link *rdma)
{
    const struct hoop_link_params *params = &rdma->base.params;
    if (hoop_now_ns() - rdma->left_ns < RDMA_PATIENCE_NS) {
        return HOOP_AGAIN;
    }
    return hoop_failure_set(&rdma->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                            "rank %u has left the communicator, but rank %u has more for it (lane "
                            "%u)",
                            params->peer, params->me, params->lane);
}

/* HOOP_OK: there is a free slot at both ends. */
static hoop_result_t sender_make_room(struct hoop_rdma_link *rdma)
{
    const struct hoop_link_params *params = &rdma->base.params;
    if (rdma->left_ns != 0) {
        return sender_blame(rdma);
    }
    if (!rdma->ready) {
        const hoop_result_t result = hoop_rdma_get_ready(rdma);
        if (result != HOOP_OK) {
            return result;
        }
    }
    const bool room =
        rdma->head - rdma->tail < params->slots && rdma->sent - rdma->completed < params->slots;
    return room ? HOOP_OK : HOOP_AGAIN;
}

/* The range of the payload alone: from where it lies if that is registered, else from the slot; to
 * its place if that was offered, else to the peer's slot. */
static enum hoop_rdma_word sender_aim(struct hoop_rdma_link *rdma, const struct hoop_xfer *xfer,
                                      const struct rdma_range *slot, struct rdma_range *ret)
{
    const struct hoop_rdma_message *offer = &rdma->offer;
    struct hoop_verbs_memory key;
    *ret = (struct rdma_range){.data = slot->data + HOOP_RDMA_HEADER_BYTES,
                               .bytes = xfer->bytes,
                               .local_key = slot->local_key,
                               .remote_key = slot->remote_key,
                               .address = slot->address + HOOP_RDMA_HEADER_BYTES};
    if (hoop_rdma_key(rdma, xfer->data, xfer->bytes, &key)) {
        ret->data = xfer->data;
        ret->local_key = key.local_key;
    }
    if (!xfer->has_place || offer->bytes == 0 || offer->op != xfer->op ||
        xfer->place > offer->bytes || xfer->bytes > offer->bytes - xfer->place) {
        return HOOP_RDMA_DATA;
    }
    ret->remote_key = offer->key;
    ret->address = offer->address + xfer->place;
    return HOOP_RDMA_PLACE;
}

/* A range from the beginning of a slot to the same slot of the peer. */
static struct rdma_range sender_slot(const struct hoop_rdma_link *rdma, const uint8_t *slot,
                                     size_t bytes)
{
    return (struct rdma_range){.data = slot,
                               .bytes = bytes,
                               .local_key = rdma->key.local_key,
                               .remote_key = rdma->peer_key,
                               .address = rdma->peer_slots + (uint64_t)(slot - rdma->memory)};
}

/* The word of the next chunk, with as much of the owed credit as fits, which then counts as sent:
 * the caller must have room to send it, or fail the link. */
static uint32_t sender_word(struct hoop_rdma_link *rdma, enum hoop_rdma_word kind)
{
    struct hoop_rdma_link *other = rdma->other;
    uint32_t back = 0;
    if (other != NULL && other->tail != other->credited) {
        const uint64_t owed = other->tail - other->credited;
        back = owed < HOOP_RDMA_BACK_MOST ? (uint32_t)owed : HOOP_RDMA_BACK_MOST;
        other->credited += back;
    }
    return (uint32_t)kind << 30 | back << HOOP_RDMA_BACK_SHIFT |
           ((uint32_t)(rdma->head + 1) & HOOP_RDMA_CHUNK_MASK);
}

static bool sender_post(struct hoop_rdma_link *rdma, struct hoop_xfer *xfer, uint8_t *slot)
{
    const size_t bytes = HOOP_RDMA_HEADER_BYTES + xfer->bytes;
    if (xfer->bytes > 0) {
        memcpy(slot + HOOP_RDMA_HEADER_BYTES, xfer->data, xfer->bytes);
    }
    xfer->position = 0;
    const struct rdma_range range = sender_slot(rdma, slot, bytes);
    if (!rdma->immediate) {
        return rdma_say_after(rdma, sender_word(rdma, HOOP_RDMA_DATA), &range, 1);
    }
    struct hoop_verbs_work work;
    rdma_range_work(rdma, &range, &work);
    work.word = sender_word(rdma, HOOP_RDMA_DATA);
    work.word_comes = true;
    return rdma_post(rdma, &work, 1, false);
}

/* Payload first, because the word comes with the header. */
static bool sender_post_large(struct hoop_rdma_link *rdma, struct hoop_xfer *xfer, uint8_t *slot)
{
    struct rdma_range ranges[RDMA_RANGES];
    ranges[1] = sender_slot(rdma, slot, HOOP_RDMA_HEADER_BYTES);
    const enum hoop_rdma_word kind = sender_aim(rdma, xfer, &ranges[1], &ranges[0]);
    const bool copies = ranges[0].data != xfer->data;
    if (copies) {
        memcpy(slot + HOOP_RDMA_HEADER_BYTES, xfer->data, xfer->bytes);
    }
    xfer->position = copies ? 0 : rdma->head + 1; /* the words until then: one per chunk */
    if (copies && kind == HOOP_RDMA_DATA) {       /* payload and header lie together at both ends */
        ranges[0] = sender_slot(rdma, slot, HOOP_RDMA_HEADER_BYTES + xfer->bytes);
        return rdma_say_after(rdma, sender_word(rdma, kind), ranges, 1);
    }
    return rdma_say_after(rdma, sender_word(rdma, kind), ranges, RDMA_RANGES);
}

hoop_result_t hoop_rdma_send(struct hoop_link *link, struct hoop_xfer *xfer)
{
    struct hoop_rdma_link *rdma = hoop_rdma_from(link);
    const hoop_result_t result = sender_make_room(rdma);
    if (result != HOOP_OK) {
        return result;
    }
    uint8_t *slot = hoop_rdma_slot(rdma, rdma->head);
    struct hoop_rdma_header *header = (void *)slot;
    header->chunk = hoop_chunk_header(link, xfer);
    header->check = rdma_check(rdma, xfer->data, xfer->bytes);
    const bool large = xfer->bytes >= HOOP_RDMA_LARGE_BYTES;
    if (!(large ? sender_post_large : sender_post)(rdma, xfer, slot)) {
        return link->failure.code != HOOP_OK ? link->failure.code : HOOP_AGAIN;
    }
    rdma->head++;
    hoop_xfer_queue_push(&rdma->queued, xfer);
    return HOOP_OK;
}

/* Completes what was queued before the call, as far as the device has read it. True: anything. */
static bool sender_finish(struct hoop_rdma_link *rdma)
{
    const bool taken = rdma->left_ns != 0 && rdma->tail > rdma->completed;
    const uint64_t arrived = taken ? rdma->tail : rdma->completed;
    const struct hoop_xfer *const last = rdma->queued.last;
    bool more = rdma->queued.first != NULL, moved = false;
    while (more && rdma->queued.first->position <= arrived) {
        struct hoop_xfer *xfer = hoop_xfer_queue_pop(&rdma->queued);
        more = xfer != last;
        moved = true;
        xfer->done(xfer, HOOP_OK);
    }
    if (rdma->left_ns != 0 && rdma->queued.first != NULL) {
        (void)sender_blame(rdma);
    }
    return moved;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Tells the sender what was given back, if it is time. */
static void receiver_credit(struct hoop_rdma_link *rdma)
{
    const uint64_t slots = rdma->base.params.slots;
    const uint64_t owed = rdma->tail - rdma->credited;
    if (owed == 0) {
        return;
    }
    const bool waited_for = rdma->head - rdma->credited == slots;
    if ((owed >= slots / 2 || waited_for) && hoop_rdma_say(rdma, HOOP_RDMA_CREDIT, owed)) {
        rdma->credited = rdma->tail;
    }
}

/* Only after a chunk has come: before that the sender's queue may not be connected, and a word to
 * it would be repeated until the link counts as broken. */
static void receiver_tell_offer(struct hoop_rdma_link *rdma)
{
    if (rdma->offer_waits && rdma->head > 0) {
        rdma->offer_waits = !hoop_rdma_say(rdma, HOOP_RDMA_PLACE, rdma->offer.op);
    }
}

void hoop_rdma_offer(struct hoop_link *link, uint32_t op, void *data, uint64_t bytes)
{
    struct hoop_rdma_link *rdma = hoop_rdma_from(link);
    struct hoop_verbs_memory key;
    rdma->offer_waits = hoop_rdma_key(rdma, data, bytes, &key);
    rdma->offer = (struct hoop_rdma_message){.op = op};
    if (rdma->offer_waits) {
        rdma->offer.address = (uintptr_t)data;
        rdma->offer.bytes = bytes;
        rdma->offer.key = key.remote_key;
        receiver_tell_offer(rdma);
    }
}

void hoop_rdma_receiver_hears(struct hoop_rdma_link *rdma, uint32_t word)
{
    const uint64_t arrived = rdma->head + 1;
    const uint32_t slots = rdma->base.params.slots, kind = word >> 30;
    const bool is_next = ((word ^ (uint32_t)arrived) & HOOP_RDMA_CHUNK_MASK) == 0;
    if (kind <= HOOP_RDMA_DATA && is_next && arrived - rdma->credited <= slots) {
        rdma->marks[rdma->head % slots] = kind == HOOP_RDMA_PLACE ? HOOP_RDMA_MARK_PLACED : 0;
        rdma->head = arrived;
        if ((word & HOOP_RDMA_BACK_MOST << HOOP_RDMA_BACK_SHIFT) != 0 && rdma->other != NULL) {
            sender_takes_back(rdma->other, word,
                              word >> HOOP_RDMA_BACK_SHIFT & HOOP_RDMA_BACK_MOST);
        }
    } else if (kind == HOOP_RDMA_GOODBYE) {
        rdma_peer_left(rdma);
    } else {
        rdma_insane(rdma, word);
    }
}

hoop_result_t hoop_rdma_recv(struct hoop_link *link, struct hoop_xfer *xfer)
{
    hoop_xfer_queue_push(&hoop_rdma_from(link)->queued, xfer);
    return HOOP_OK;
}

static void receiver_give_back(struct hoop_rdma_link *rdma, uint64_t chunk)
{
    const uint32_t slots = rdma->base.params.slots;
    assert(chunk - rdma->tail < rdma->next - rdma->tail);
    assert(rdma->marks[chunk % slots] != HOOP_RDMA_MARK_BACK);
    if (chunk != rdma->tail) {
        rdma->marks[chunk % slots] = HOOP_RDMA_MARK_BACK;
        return;
    }
    do {
        rdma->tail++;
    } while (rdma->tail != rdma->next && rdma->marks[rdma->tail % slots] == HOOP_RDMA_MARK_BACK);
    if (rdma->base.failure.code == HOOP_OK) {
        receiver_credit(rdma);
    }
}

void hoop_rdma_release(struct hoop_link *link, struct hoop_xfer *xfer)
{
    receiver_give_back(hoop_rdma_from(link), xfer->position);
}

/* The peer says that the payload is in its place: checks that this place was offered. */
static bool receiver_has_place(struct hoop_rdma_link *rdma, const struct hoop_xfer *xfer)
{
    const struct hoop_link_params *params = &rdma->base.params;
    const struct hoop_rdma_message *offer = &rdma->offer;
    const uint64_t before = (uintptr_t)xfer->data - offer->address;
    const bool offered = xfer->data != NULL && offer->op == xfer->op && before <= offer->bytes &&
                         xfer->bytes <= offer->bytes - before;
    if (!offered) {
        (void)hoop_failure_set(&rdma->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                               "rank %u says that chunk %llu of operation %u is in its place at "
                               "rank %u (lane %u), which was not offered",
                               params->peer, (unsigned long long)xfer->chunk, xfer->op, params->me,
                               params->lane);
    }
    return offered;
}

/* Gives the next chunk to the first xfer. The peer may still write to the slot: so the header is
 * copied before it is checked, and the payload is checked where it was copied to, or is lent. */
static bool receiver_take(struct hoop_rdma_link *rdma)
{
    struct hoop_xfer *xfer = rdma->queued.first;
    const uint64_t at = rdma->next % rdma->base.params.slots;
    uint8_t *slot = rdma->memory + at * rdma->stride;
    struct hoop_rdma_header header;
    memcpy(&header, slot, sizeof(header));
    if (hoop_chunk_header_check(&rdma->base, &header.chunk, xfer) != HOOP_OK) {
        return false;
    }
    uint8_t *payload = slot + HOOP_RDMA_HEADER_BYTES;
    const bool lend = xfer->data == NULL;
    const bool placed = rdma->marks[at] != 0;
    if (placed && !receiver_has_place(rdma, xfer)) {
        return false;
    }
    if (!lend && xfer->bytes > 0) {
        payload = placed ? xfer->data : memcpy(xfer->data, payload, xfer->bytes);
    }
    const uint64_t check = rdma_check(rdma, payload, xfer->bytes);
    if (check != header.check) {
        hoop_chunk_damaged(&rdma->base, xfer, header.check, check);
        return false;
    }
    (void)hoop_xfer_queue_pop(&rdma->queued);
    xfer->position = rdma->next++;
    if (lend) {
        xfer->data = payload;
        xfer->lent = true;
    } else {
        receiver_give_back(rdma, xfer->position);
    }
    xfer->done(xfer, HOOP_OK);
    return true;
}

/* At most one round of slots, so that a fast sender does not keep the thread in here. */
static bool receiver_move(struct hoop_rdma_link *rdma)
{
    const struct hoop_link_params *params = &rdma->base.params;
    uint32_t taken = 0;
    while (taken < params->slots && rdma->queued.first != NULL && rdma->next != rdma->head &&
           rdma->base.failure.code == HOOP_OK && receiver_take(rdma)) {
        taken++;
    }
    const struct hoop_xfer *xfer = rdma->queued.first;
    if (rdma->left_ns != 0 && xfer != NULL && rdma->next == rdma->head) {
        (void)hoop_failure_set(&rdma->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                               "rank %u has left the communicator, but rank %u waits for its chunk "
                               "%llu of operation %u (lane %u)",
                               params->peer, params->me, (unsigned long long)xfer->chunk, xfer->op,
                               params->lane);
    }
    return taken > 0;
}

/* ---- Both ends ------------------------------------------------------------------------------- */

bool hoop_rdma_progress(struct hoop_link *link)
{
    struct hoop_rdma_link *rdma = hoop_rdma_from(link);
    struct hoop_rdma_link *other = rdma->other;
    bool moved = false;
    if (link->failure.code == HOOP_OK) {
        moved = hoop_rdma_poll(rdma);
    }
    /* Credit for a sender arrives at its paired end, whose queue nobody else may be polling. */
    if (link->params.sending && other != NULL && other->context != rdma->context) {
        moved |= hoop_rdma_poll(other);
    }
    if (link->failure.code == HOOP_OK) {
        if (link->params.sending) {
            moved |= sender_finish(rdma);
        } else {
            receiver_tell_offer(rdma); /* an offer for which there was no room before */
            receiver_credit(rdma);
            moved |= receiver_move(rdma);
        }
    }
    if (link->failure.code != HOOP_OK) {
        moved |= hoop_xfer_queue_finish(&rdma->queued, link->failure.code);
    }
    return moved;
}

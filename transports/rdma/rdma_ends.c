/*
 * The two ends of an rdma link at work: who may send, what has come, and what that means.
 * rdma_link.h has the picture.
 *
 * An xfer is done for the sender when it is copied into its slot. The device still needs the slot:
 * it is used again when the word that came after it is known to have arrived and the receiver has
 * given its own slot back. The receiver gives back in steps of half its slots, and at once where
 * the sender may be waiting.
 */
#include "base/clock.h"
#include "base/sizes.h"
#include "transports/agree.h"
#include "transports/check/checksum.h"
#include "transports/rdma/rdma_link.h"
#include <assert.h>
#include <string.h>

#define RDMA_PIECES 32u /* given to the device at a time */

/* A peer that has left: so long the control plane has to find out why. */
#define RDMA_PATIENCE_NS HOOP_NS_PER_S

/* What is latency and little else is checked by few instructions. */
static uint64_t rdma_check(const struct hoop_rdma_link *rdma,
                           const struct hoop_chunk_header *header, const void *payload,
                           size_t bytes)
{
    const enum hoop_check check = (enum hoop_check)rdma->base.params.check;
    const uint64_t state = hoop_checksum_few(0, header, sizeof(*header));
    return check == HOOP_CHECK_SUM && bytes <= HOOP_LINE_BYTES
               ? hoop_checksum_few(state, payload, bytes)
               : state ^ hoop_checksum(check, payload, bytes);
}

/* The peer said what it cannot say. */
static void rdma_insane(struct hoop_rdma_link *rdma, uint32_t word, uint64_t expected)
{
    const struct hoop_link_params *params = &rdma->base.params;
    (void)hoop_failure_set(&rdma->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                           "rank %u sent the word %08x to rank %u (lane %u), expected one of kind "
                           "%u, count %llu",
                           params->peer, word, params->me, params->lane,
                           params->sending ? HOOP_RDMA_CREDIT : HOOP_RDMA_DATA,
                           (unsigned long long)(expected & HOOP_RDMA_COUNT_MASK));
}

static void rdma_peer_left(struct hoop_rdma_link *rdma)
{
    rdma->left_ns = hoop_now_ns();
}

/* ---- Words ----------------------------------------------------------------------------------- */

/* The word by itself: with what it follows, or as a message. */
static struct hoop_verbs_work rdma_word_work(struct hoop_rdma_link *rdma, uint32_t word)
{
    struct hoop_verbs_work work = {.word = word, .word_comes = rdma->immediate};
    if (!rdma->immediate) {
        uint32_t *out = &rdma->words_out[rdma->sent % hoop_rdma_words(&rdma->base.params)];
        *out = word;
        work.data = out;
        work.bytes = sizeof(*out);
        work.local_key = rdma->key.local_key;
        work.is_inline = work.bytes <= rdma->depth.inline_bytes;
    }
    return work;
}

/* The slot's bytes from `at` on, or as many as one write may have. */
static void rdma_piece(const struct hoop_rdma_link *rdma, const uint8_t *slot, size_t bytes,
                       size_t at, struct hoop_verbs_work *ret)
{
    const size_t left = bytes - at;
    const uint32_t piece = left < rdma->cut_bytes ? (uint32_t)left : rdma->cut_bytes;
    *ret = (struct hoop_verbs_work){
        .data = slot + at,
        .bytes = piece,
        .local_key = rdma->key.local_key,
        .remote_address = rdma->peer_slots + (uint64_t)(slot - rdma->memory) + at,
        .remote_key = rdma->peer_key,
        .write = true,
        .is_inline = piece <= rdma->depth.inline_bytes,
    };
}

static bool rdma_flush(struct hoop_rdma_link *rdma, const struct hoop_verbs_work *works,
                       uint32_t count)
{
    const int err = rdma->context->verbs->send(rdma->queue, works, count);
    if (err != 0) {
        hoop_rdma_fail(rdma, HOOP_SYSTEM_ERROR, hoop_errno_name(err));
    }
    return err == 0;
}

bool hoop_rdma_say(struct hoop_rdma_link *rdma, enum hoop_rdma_word kind, uint64_t count,
                   const uint8_t *slot, size_t bytes)
{
    const uint32_t words = hoop_rdma_words(&rdma->base.params);
    const uint32_t word = (uint32_t)kind << 30 | ((uint32_t)count & HOOP_RDMA_COUNT_MASK);
    struct hoop_verbs_work works[RDMA_PIECES];
    uint32_t filled = 0;
    if (rdma->broken || rdma->sent - rdma->completed >= words) {
        return false;
    }
    for (size_t at = 0; at < bytes; at += rdma->cut_bytes) {
        if (filled == RDMA_PIECES - 1) { /* one is kept for the word */
            if (!rdma_flush(rdma, works, filled)) {
                return false;
            }
            filled = 0;
        }
        rdma_piece(rdma, slot, bytes, at, &works[filled++]);
    }
    if (filled > 0 && rdma->immediate) {
        works[filled - 1].word = word;
        works[filled - 1].word_comes = true;
    } else {
        works[filled++] = rdma_word_work(rdma, word);
    }
    /* Every so many are signaled that a sender that waits for room always waits for one. */
    const uint32_t turn = rdma->base.params.slots > 3 ? rdma->base.params.slots / 4 : 1;
    struct hoop_verbs_work *last = &works[filled - 1];
    last->signaled = (rdma->sent + 1) % turn == 0 || kind == HOOP_RDMA_GOODBYE;
    last->id = (uint64_t)rdma->number << 32 | ((uint32_t)(rdma->sent + 1) & ~HOOP_RDMA_RECEIVE);
    if (!rdma_flush(rdma, works, filled)) {
        return false;
    }
    rdma->sent++;
    return true;
}

/* ---- Sending --------------------------------------------------------------------------------- */

void hoop_rdma_sender_hears(struct hoop_rdma_link *rdma, uint32_t word)
{
    const uint32_t kind = word >> 30;
    const uint64_t back = (word - (uint32_t)rdma->tail) & HOOP_RDMA_COUNT_MASK;
    if (kind == HOOP_RDMA_GOODBYE) {
        rdma_peer_left(rdma);
    } else if (kind == HOOP_RDMA_CREDIT && back > 0 && back <= rdma->head - rdma->tail) {
        rdma->tail += back;
    } else {
        rdma_insane(rdma, word, rdma->tail + 1);
    }
}

/* The peer has left, and there is more for it. */
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

/* HOOP_OK: there is a slot here and one there. */
static hoop_result_t sender_make_room(struct hoop_rdma_link *rdma)
{
    const struct hoop_link_params *params = &rdma->base.params;
    if (rdma->left_ns != 0) {
        return sender_blame(rdma);
    }
    if (!rdma->ready) {
        rdma->ready = params->is_bound(params->arg, params->peer, params->lane);
    }
    const bool room = rdma->ready && rdma->head - rdma->tail < params->slots &&
                      rdma->sent - rdma->completed < params->slots;
    return room ? HOOP_OK : HOOP_AGAIN;
}

hoop_result_t hoop_rdma_send(struct hoop_link *link, struct hoop_xfer *xfer)
{
    struct hoop_rdma_link *rdma = hoop_rdma_from(link);
    const hoop_result_t result = sender_make_room(rdma);
    if (result != HOOP_OK) {
        return result;
    }
    uint8_t *slot = hoop_rdma_slot(rdma, rdma->head);
    struct hoop_rdma_header header = {.chunk = hoop_chunk_header(link, xfer)};
    header.check = rdma_check(rdma, &header.chunk, xfer->data, xfer->bytes);
    memcpy(slot, &header, sizeof(header));
    if (xfer->bytes > 0) {
        memcpy(slot + HOOP_RDMA_HEADER_BYTES, xfer->data, xfer->bytes);
    }
    if (!hoop_rdma_say(rdma, HOOP_RDMA_DATA, rdma->head + 1, slot,
                       HOOP_RDMA_HEADER_BYTES + xfer->bytes)) {
        return link->failure.code != HOOP_OK ? link->failure.code : HOOP_AGAIN;
    }
    rdma->head++;
    hoop_xfer_queue_push(&rdma->queued, xfer);
    return HOOP_OK;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Tells what was given back, if it is time. */
static void receiver_credit(struct hoop_rdma_link *rdma)
{
    const uint64_t slots = rdma->base.params.slots;
    const uint64_t owed = rdma->tail - rdma->credited;
    const bool waited_for = rdma->head - rdma->credited == slots;
    if (owed > 0 && (owed >= slots / 2 || waited_for) &&
        hoop_rdma_say(rdma, HOOP_RDMA_CREDIT, rdma->tail, NULL, 0)) {
        rdma->credited = rdma->tail;
    }
}

void hoop_rdma_receiver_hears(struct hoop_rdma_link *rdma, uint32_t word)
{
    const uint64_t arrived = rdma->head + 1;
    const uint32_t expected =
        (uint32_t)HOOP_RDMA_DATA << 30 | ((uint32_t)arrived & HOOP_RDMA_COUNT_MASK);
    if (word >> 30 == HOOP_RDMA_GOODBYE) {
        rdma_peer_left(rdma);
    } else if (word == expected && arrived - rdma->credited <= rdma->base.params.slots) {
        rdma->head = arrived;
        receiver_credit(rdma);
    } else {
        rdma_insane(rdma, word, arrived);
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
    assert(chunk - rdma->tail < rdma->next - rdma->tail && rdma->back[chunk % slots] == 0);
    rdma->back[chunk % slots] = 1;
    while (rdma->tail != rdma->next && rdma->back[rdma->tail % slots] != 0) {
        rdma->back[rdma->tail % slots] = 0;
        rdma->tail++;
    }
    if (rdma->base.failure.code == HOOP_OK) {
        receiver_credit(rdma);
    }
}

void hoop_rdma_release(struct hoop_link *link, struct hoop_xfer *xfer)
{
    receiver_give_back(hoop_rdma_from(link), xfer->position);
}

static void receiver_damaged(struct hoop_rdma_link *rdma, const struct hoop_xfer *xfer,
                             uint64_t said, uint64_t came)
{
    const struct hoop_link_params *params = &rdma->base.params;
    (void)hoop_failure_set(&rdma->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                           "rank %u sent chunk %llu of operation %u to rank %u (lane %u, %zu "
                           "bytes) with the %s %016llx, but what came has %016llx: the data were "
                           "damaged on the way",
                           params->peer, (unsigned long long)xfer->chunk, xfer->op, params->me,
                           params->lane, xfer->bytes, hoop_check_name(params->check),
                           (unsigned long long)said, (unsigned long long)came);
}

/* Hands the next chunk to the first xfer. The peer may still write the slot: its header is copied
 * before it is believed, and the payload checked where it was copied to, or lent. */
static bool receiver_take(struct hoop_rdma_link *rdma)
{
    struct hoop_xfer *xfer = rdma->queued.first;
    uint8_t *slot = hoop_rdma_slot(rdma, rdma->next);
    struct hoop_rdma_header header;
    memcpy(&header, slot, sizeof(header));
    if (hoop_chunk_header_check(&rdma->base, &header.chunk, xfer) != HOOP_OK) {
        return false;
    }
    uint8_t *payload = slot + HOOP_RDMA_HEADER_BYTES;
    const bool lend = xfer->data == NULL;
    if (!lend && xfer->bytes > 0) {
        memcpy(xfer->data, payload, xfer->bytes);
        payload = xfer->data;
    }
    const uint64_t check = rdma_check(rdma, &header.chunk, payload, xfer->bytes);
    if (check != header.check) {
        receiver_damaged(rdma, xfer, header.check, check);
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
    bool moved = false;
    if (link->failure.code == HOOP_OK) {
        moved = hoop_rdma_poll(rdma);
    }
    if (link->failure.code == HOOP_OK) {
        if (link->params.sending) {
            moved |= hoop_xfer_queue_finish(&rdma->queued, HOOP_OK);
        } else {
            receiver_credit(rdma); /* what found no room before */
            moved |= receiver_move(rdma);
        }
    }
    if (link->failure.code != HOOP_OK) {
        moved |= hoop_xfer_queue_finish(&rdma->queued, link->failure.code);
    }
    return moved;
}

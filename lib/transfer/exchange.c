/* Point-to-point (see exchange.h). */
#include "transfer/exchange.h"

#include "base/clock.h"
#include "base/log.h"
#include "exec/gate.h"
#include "memory/region.h"
#include "runtime/process.h"

#include <stdlib.h>

/* Bytes read in one poll. */
#define EXCHANGE_SLICE_BYTES ((size_t)1 << 20)
/* The caches are warm from the third transfer on that is carried in the same way. */
#define EXCHANGE_WARM 3u
/* The first so many bytes, or transfers, find pages and caches cold. */
#define EXCHANGE_COLD_BYTES ((size_t)4 << 20)
#define EXCHANGE_COLD 24u
/* The receiver's word on the board about a transfer that it was to read: the sequence, shifted by
 * one, and this bit if it could not. */
#define EXCHANGE_REFUSED UINT64_C(1)
/* The receiver's time: in ns, below the low bits of the sequence. */
#define EXCHANGE_NS_BITS 40
#define EXCHANGE_NS_MOST ((UINT64_C(1) << EXCHANGE_NS_BITS) - 1)

hoop_result_t hoop_exchange_init(struct hoop_exchange *exchange)
{
    exchange->sequences = calloc(exchange->n, sizeof(*exchange->sequences));
    exchange->last = calloc(exchange->n, sizeof(*exchange->last));
    exchange->links = calloc(exchange->n, sizeof(*exchange->links));
    exchange->ways = calloc(exchange->n, sizeof(struct hoop_exchange_ways *));
    exchange->mappings = calloc(exchange->n, sizeof(*exchange->mappings));
    if (exchange->sequences == NULL || exchange->last == NULL || exchange->links == NULL ||
        exchange->ways == NULL || exchange->mappings == NULL) {
        hoop_exchange_finish(exchange);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for the transfers of %u ranks",
                          exchange->n);
    }
    return HOOP_OK;
}

void hoop_exchange_finish(struct hoop_exchange *exchange)
{
    for (uint32_t peer = 0; exchange->ways != NULL && peer < exchange->n; peer++) {
        free(exchange->ways[peer]);
    }
    for (uint32_t peer = 0; exchange->mappings != NULL && peer < exchange->n; peer++) {
        hoop_mapping_finish(&exchange->mappings[peer]); /* still set if a transfer has failed */
    }
    free(exchange->ways);
    free(exchange->mappings);
    free(exchange->sequences);
    free(exchange->last);
    free(exchange->links);
    *exchange = (struct hoop_exchange){0};
}

/* ---- A rank with itself --------------------------------------------------------------------- */

/* The next transfer of a rank with itself, in one direction. */
static const struct hoop_transfer *exchange_own(const struct hoop_transfer *at, uint32_t me,
                                                bool sending)
{
    while (at != NULL && (at->peer != me || at->sending != sending)) {
        at = at->next;
    }
    return at;
}

hoop_result_t hoop_exchange_check(const struct hoop_transfer *transfers, uint32_t me)
{
    const struct hoop_transfer *out = exchange_own(transfers, me, true);
    const struct hoop_transfer *in = exchange_own(transfers, me, false);
    while (out != NULL && in != NULL && hoop_signature_equal(&out->signature, &in->signature)) {
        out = exchange_own(out->next, me, true);
        in = exchange_own(in->next, me, false);
    }
    if (out == NULL && in == NULL) {
        return HOOP_OK;
    }
    char what[96];
    hoop_signature_describe(out != NULL ? &out->signature : &in->signature, what, sizeof(what));
    return hoop_error(
        HOOP_INVALID_USAGE, "rank %u %s itself: %s; the same group has no %s that matches it", me,
        out != NULL ? "sends to" : "receives from", what, out != NULL ? "receive" : "send");
}

static void exchange_copy_own(const struct hoop_exchange *exchange)
{
    const struct hoop_transfer *out = exchange_own(exchange->transfers, exchange->me, true);
    const struct hoop_transfer *in = exchange_own(exchange->transfers, exchange->me, false);
    while (out != NULL && in != NULL) {
        if (in->bytes > 0) {
            memmove(in->data, out->data, in->bytes);
        }
        out = exchange_own(out->next, exchange->me, true);
        in = exchange_own(in->next, exchange->me, false);
    }
}

/* ---- One transfer --------------------------------------------------------------------------- */

/* Touches nothing but its transfer: a link that is destroyed after a failure calls this, too. */
static void exchange_xfer_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct hoop_transfer *transfer = (void *)((char *)xfer - offsetof(struct hoop_transfer, xfer));
    if (result != HOOP_OK) {
        transfer->failed = true;
        return;
    }
    transfer->posted = false;
    if (transfer->state == HOOP_TRANSFER_NOTICE) {
        transfer->state = transfer->notice.reads != 0 ? HOOP_TRANSFER_READ : HOOP_TRANSFER_CHUNKS;
        return;
    }
    transfer->moved += xfer->bytes;
    transfer->done = transfer->moved == transfer->bytes;
}

static void exchange_fail(const struct hoop_transfer *transfer, hoop_result_t code)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    (void)hoop_link_blame(transfer->link, transfer->sending, exchange->me, transfer->peer, code, "",
                          exchange->failure);
}

/* Posts the next message: a chunk, or the notice, which has the number after the last chunk's. */
static hoop_result_t exchange_post(struct hoop_transfer *transfer)
{
    const bool notice = transfer->state == HOOP_TRANSFER_NOTICE;
    const size_t left = transfer->bytes - transfer->moved;
    const uint64_t chunk = transfer->exchange->chunk_bytes;
    static char nothing; /* NULL would ask the link for its own memory */
    transfer->xfer = (struct hoop_xfer){
        .data = transfer->bytes > 0 ? (char *)transfer->data + transfer->moved : &nothing,
        .bytes = left < chunk ? left : (size_t)chunk,
        .op = (uint32_t)transfer->sequence,
        .chunk = transfer->moved,
        .signature = transfer->signature,
        .done = exchange_xfer_done,
        .past = !notice && transfer->how == HOOP_COPY_NONTEMPORAL,
        .has_place = !notice,
        .place = transfer->moved,
    };
    if (notice) {
        transfer->xfer.data = &transfer->notice;
        transfer->xfer.bytes = sizeof(transfer->notice);
        transfer->xfer.chunk = transfer->bytes;
    }
    return transfer->sending ? hoop_link_send(transfer->link, &transfer->xfer)
                             : hoop_link_recv(transfer->link, &transfer->xfer);
}

/* ---- How it is carried ----------------------------------------------------------------------- */

static bool exchange_is_noticed(const struct hoop_exchange *exchange, const struct hoop_transfer *t)
{
    return t->bytes >= exchange->notice_least_bytes && t->peer != exchange->me &&
           !exchange->board->peers[t->peer].same_process;
}

/* The receiver reports the time of a transfer that is done. */
static void exchange_report_time(const struct hoop_transfer *transfer)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    const uint64_t worked = transfer->worked_ns;
    const uint64_t ns = worked < EXCHANGE_NS_MOST ? worked : EXCHANGE_NS_MOST;
    atomic_store_explicit(hoop_board_took(exchange->board, exchange->me, transfer->peer),
                          transfer->sequence << EXCHANGE_NS_BITS | ns, memory_order_relaxed);
}

/* Learns the time of the last timed transfer, if its receiver has reported. */
static void exchange_collect_time(const struct hoop_exchange *exchange, uint32_t peer)
{
    struct hoop_exchange_ways *ways = exchange->ways[peer];
    const uint64_t word = atomic_load_explicit(hoop_board_took(exchange->board, peer, exchange->me),
                                               memory_order_relaxed);
    if (ways->timed != NULL && (word ^ ways->sequence << EXCHANGE_NS_BITS) <= EXCHANGE_NS_MOST) {
        /* Ranks that send to each other do one after the other, else both work at the same time. */
        const uint64_t mine = ways->ns, other = word & EXCHANGE_NS_MOST;
        const bool both = exchange->links[peer][false] != NULL;
        hoop_copies_add(ways->timed, ways->how, both ? mine + other : mine > other ? mine : other);
        ways->timed = NULL;
    }
}

/* What is known of sends like this one, in either direction; NULL: no memory for it. */
static struct hoop_exchange_way *exchange_way(const struct hoop_transfer *transfer)
{
    struct hoop_exchange_ways **ways = &transfer->exchange->ways[transfer->peer];
    if (*ways == NULL) {
        *ways = calloc(1, sizeof(**ways));
    }
    return *ways == NULL
               ? NULL
               : &(*ways)->ways[transfer->notice.region != 0][hoop_copies_size(transfer->bytes)];
}

/* The sender takes the way, if it is in `may`, that was chosen with the transfer before, and
 * chooses the next one's, so that a peer that follows changes it in the same call. */
static void exchange_choose_way(struct hoop_transfer *transfer, uint32_t may)
{
    struct hoop_exchange_way *way = exchange_way(transfer);
    transfer->how = (enum hoop_copy)__builtin_ctz(may);
    if (way == NULL) {
        return;
    }
    if ((may >> way->next & 1) != 0) {
        transfer->how = (enum hoop_copy)way->next;
        transfer->notice.timed = way->timed;
    }
    if (!way->follows) {
        exchange_collect_time(transfer->exchange, transfer->peer);
        way->row.warm = 1 + (uint32_t)(EXCHANGE_COLD_BYTES / transfer->bytes);
        way->row.warm = way->row.warm < EXCHANGE_COLD ? way->row.warm : EXCHANGE_COLD;
        way->next = (uint8_t)hoop_copies_next(&way->row, EXCHANGE_WARM, may, &way->timed);
    }
    way->follows = false;
    transfer->notice.next = way->next;
}

/* Of two ranks that send to each other the higher one, which has a notice, follows the lower. */
static void exchange_follow(const struct hoop_transfer *transfer)
{
    struct hoop_exchange_way *way = exchange_way(transfer);
    if (transfer->peer < transfer->exchange->me && way != NULL &&
        transfer->notice.next < HOOP_COPY_COUNT) {
        way->next = transfer->notice.next;
        way->timed = false;
        way->follows = true;
    }
}

/* The sender of the first transfer of a link chooses how to carry it, and fills in the notice. */
static void exchange_choose(struct hoop_transfer *transfer)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    struct hoop_region_ref ref;
    if (!transfer->sending || transfer->state != HOOP_TRANSFER_NOTICE) {
        return;
    }
    const bool maps =
        hoop_region_find(transfer->data, transfer->bytes, &ref) && ref.kind == HOOP_MEM_HOST;
    const bool reads = maps || (exchange->learns ? exchange->read_least_bytes != UINT64_MAX
                                                 : transfer->bytes >= exchange->read_least_bytes);
    const uint32_t may =
        (reads ? 1u << HOOP_COPY_READ : 0) | (!reads || exchange->learns ? hoop_copies_may() : 0);
    transfer->notice = (struct hoop_notice){.region = maps ? ref.id : 0,
                                            .at = maps ? ref.offset : (uintptr_t)transfer->data,
                                            .generation = maps ? ref.generation : 0};
    exchange_choose_way(transfer, may);
    transfer->notice.reads = transfer->how == HOOP_COPY_READ;
}

/* The sender remembers a timed transfer that is done, until the receiver reports. */
static void exchange_learn(const struct hoop_transfer *transfer)
{
    struct hoop_exchange_ways *ways = transfer->exchange->ways[transfer->peer];
    ways->timed = &exchange_way(transfer)->row;
    ways->how = transfer->how;
    ways->sequence = transfer->sequence;
    ways->ns = transfer->worked_ns;
}

/* ---- Reading in the sender's process --------------------------------------------------------- */

/* The sender's part. True: the receiver has acknowledged the notice: it read the data, or could
 * not. */
static bool exchange_is_acknowledged(struct hoop_transfer *transfer)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    /* pairs with the release in exchange_acknowledge() */
    const uint64_t word = atomic_load_explicit(
        hoop_board_taken(exchange->board, transfer->peer, exchange->me), memory_order_acquire);
    if (word >> 1 != transfer->sequence) {
        return false;
    }
    if ((word & EXCHANGE_REFUSED) != 0) {
        transfer->state = HOOP_TRANSFER_CHUNKS;
        transfer->notice.timed = 0;
    } else {
        transfer->moved = transfer->bytes;
        transfer->done = true;
    }
    return true;
}

/* The receiver's acknowledgement: whether it read the data. */
static void exchange_acknowledge(const struct hoop_transfer *transfer, uint64_t refused)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    /* pairs with the acquire in exchange_is_acknowledged() */
    atomic_store_explicit(hoop_board_taken(exchange->board, exchange->me, transfer->peer),
                          transfer->sequence << 1 | refused, memory_order_release);
    hoop_board_notify(exchange->board, transfer->peer);
}

/* The receiver maps the sender's region, if there is one. HOOP_AGAIN: not yet mapped. */
static hoop_result_t exchange_map(struct hoop_transfer *transfer)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    const struct hoop_notice *notice = &transfer->notice;
    struct hoop_mapping *mapping = &exchange->mappings[transfer->peer];
    void *base = NULL;
    uint64_t bytes = 0;
    if (notice->region == 0 || transfer->mapped != NULL) {
        return HOOP_OK;
    }
    const hoop_result_t result = hoop_mapping_poll(
        exchange->maps, mapping, transfer->peer, notice->region, notice->generation, &base, &bytes);
    if (result != HOOP_OK) {
        return result;
    }
    if (notice->at > bytes || transfer->bytes > bytes - notice->at ||
        hoop_region_kind(mapping->process, mapping->region, mapping->generation) != HOOP_MEM_HOST) {
        return hoop_error(HOOP_REMOTE_ERROR,
                          "rank %u announced %zu bytes at %llu of a region of %llu", transfer->peer,
                          transfer->bytes, (unsigned long long)notice->at,
                          (unsigned long long)bytes);
    }
    transfer->mapped = (const uint8_t *)base + notice->at;
    return HOOP_OK;
}

/* Reads the next slice. */
static hoop_result_t exchange_take(struct hoop_transfer *transfer, size_t slice)
{
    const struct hoop_peer *peer = &transfer->exchange->board->peers[transfer->peer];
    const struct hoop_process_memory memory = {peer->pid, peer->process, peer->process_at};
    char *to = (char *)transfer->data + transfer->moved;
    if (transfer->mapped == NULL) {
        return hoop_process_read(&memory, to, transfer->notice.at + transfer->moved, slice);
    }
    memcpy(to, transfer->mapped + transfer->moved, slice);
    return HOOP_OK;
}

/* The receiver has finished, or given up, reading, and tells the sender. */
static void exchange_read_done(struct hoop_transfer *transfer, hoop_result_t result)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    hoop_mapping_finish(&exchange->mappings[transfer->peer]);
    transfer->mapped = NULL;
    if (result == HOOP_OK) {
        transfer->done = true;
        exchange_acknowledge(transfer, 0);
        return;
    }
    hoop_log(HOOP_LOG_INFO, HOOP_LOG_MEM, "rank %u: what rank %u sends is copied twice: %s",
             exchange->me, transfer->peer, hoop_thread_error());
    transfer->state = HOOP_TRANSFER_CHUNKS;
    transfer->notice.timed = 0;
    transfer->moved = 0;
    exchange_acknowledge(transfer, EXCHANGE_REFUSED);
}

/* The receiver's part: reads a slice. True: something moved. */
static bool exchange_read(struct hoop_transfer *transfer)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    const size_t left = transfer->bytes - transfer->moved;
    const size_t slice = left < EXCHANGE_SLICE_BYTES ? left : EXCHANGE_SLICE_BYTES;
    hoop_result_t result = exchange_map(transfer);
    if (result == HOOP_AGAIN) {
        return false;
    }
    if (result == HOOP_OK) {
        result = exchange_take(transfer, slice);
    }
    if (hoop_gate_is_closed(exchange->board, transfer->peer)) {
        hoop_failure_set(exchange->failure, HOOP_REMOTE_ERROR, (int)transfer->peer,
                         "rank %u gave up what it sent while rank %u was reading it",
                         transfer->peer, exchange->me);
        return true;
    }
    transfer->moved += result == HOOP_OK ? slice : 0;
    if (result != HOOP_OK || transfer->moved == transfer->bytes) {
        exchange_read_done(transfer, result);
    }
    return true;
}

/* ---- A step ---------------------------------------------------------------------------------- */

/* HOOP_OK: the transfer has its link. */
static hoop_result_t exchange_get_link(struct hoop_transfer *transfer)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    struct hoop_link **both = exchange->links[transfer->peer], **known = &both[transfer->sending];
    hoop_result_t result = HOOP_OK;
    if (*known == NULL) {
        result = exchange->link(exchange->arg, transfer->peer, HOOP_TRANSFER_LANE,
                                transfer->sending, known);
        if (both[false] != NULL && both[true] != NULL) {
            hoop_link_pair(both[true], both[false]);
        }
    }
    if (result == HOOP_OK && !transfer->sending && hoop_link_places(*known, transfer->bytes)) {
        hoop_link_offer(*known, (uint32_t)transfer->sequence, transfer->data, transfer->bytes);
    }
    transfer->link = *known;
    return result;
}

/* Posts a message and makes progress, so that a small one completes here. True: moved. */
static bool exchange_pass(struct hoop_transfer *transfer, hoop_result_t *ret_result)
{
    bool moved = false;
    if (!transfer->posted) {
        *ret_result = exchange_post(transfer);
        moved = transfer->posted = *ret_result == HOOP_OK;
    }
    moved |= hoop_link_progress(transfer->link);
    return moved;
}

/* Carries the data as the notice said. True: something moved. */
static bool exchange_work(struct hoop_transfer *transfer, hoop_result_t *ret_result)
{
    const uint64_t since = transfer->notice.timed != 0 ? hoop_now_ns() : 0;
    const bool moved = transfer->state != HOOP_TRANSFER_READ ? exchange_pass(transfer, ret_result)
                       : transfer->sending                   ? exchange_is_acknowledged(transfer)
                                                             : exchange_read(transfer);
    if (moved && since != 0) {
        transfer->worked_ns += hoop_now_ns() - since;
    }
    return moved;
}

/* True: something moved. */
static bool exchange_move(struct hoop_transfer *transfer, hoop_result_t *ret_result)
{
    bool moved = false;
    if (transfer->state == HOOP_TRANSFER_NOTICE) {
        moved = exchange_pass(transfer, ret_result);
        if (transfer->state != HOOP_TRANSFER_NOTICE && !transfer->sending) {
            exchange_follow(transfer);
        }
    }
    if (transfer->state != HOOP_TRANSFER_NOTICE && *ret_result == HOOP_OK) {
        moved |= exchange_work(transfer, ret_result);
    }
    if (transfer->done && transfer->notice.timed != 0) {
        (transfer->sending ? exchange_learn : exchange_report_time)(transfer);
    }
    return moved;
}

/* True: something moved. A failure is in the exchange's failure. */
static bool exchange_turn(struct hoop_transfer *transfer)
{
    hoop_result_t result = transfer->link == NULL ? exchange_get_link(transfer) : HOOP_OK;
    const bool moved = result == HOOP_OK && exchange_move(transfer, &result);
    const bool failed = transfer->failed || (transfer->link != NULL && !transfer->done &&
                                             transfer->link->failure.code != HOOP_OK);
    if (failed || (result != HOOP_OK && result != HOOP_AGAIN)) {
        exchange_fail(transfer, failed ? HOOP_INTERNAL_ERROR : result);
    }
    return moved;
}

/* ---- The whole ------------------------------------------------------------------------------ */

void hoop_exchange_start(struct hoop_exchange *exchange, struct hoop_transfer *transfers,
                         struct hoop_failure *failure)
{
    exchange->transfers = transfers;
    exchange->failure = failure;
    struct hoop_transfer **first = &exchange->first;
    for (struct hoop_transfer *t = transfers; t != NULL; t = t->next) {
        struct hoop_transfer **last = &exchange->last[t->peer][t->sending];
        t->exchange = exchange;
        t->behind = NULL;
        t->link = NULL;
        t->moved = 0;
        t->notice = (struct hoop_notice){0};
        t->mapped = NULL;
        t->how = HOOP_COPY_ORDINARY;
        t->worked_ns = 0;
        t->posted = t->failed = false;
        t->sequence = ++exchange->sequences[t->peer][t->sending];
        atomic_store_explicit(
            hoop_board_transfer(exchange->board, exchange->me, t->peer, t->sending),
            hoop_board_site(t->site, (uint32_t)t->sequence), memory_order_relaxed);
        t->done = t->peer == exchange->me;
        t->state = exchange_is_noticed(exchange, t) ? HOOP_TRANSFER_NOTICE : HOOP_TRANSFER_CHUNKS;
        if (*last != NULL) {
            (*last)->behind = t;
        } else if (!t->done) {
            *first = t;
            first = &t->beside;
            exchange_choose(t);
        }
        *last = t;
    }
    *first = NULL;
    for (struct hoop_transfer *t = transfers; t != NULL; t = t->next) {
        exchange->last[t->peer][t->sending] = NULL;
    }
    exchange_copy_own(exchange);
}

enum hoop_poll hoop_exchange_poll(struct hoop_exchange *exchange)
{
    bool moved = false;
    struct hoop_transfer **at = &exchange->first;
    while (*at != NULL && exchange->failure->code == HOOP_OK) {
        struct hoop_transfer *t = *at;
        moved = exchange_turn(t) || moved;
        if (!t->done) {
            at = &t->beside;
        } else if (t->behind != NULL) {
            t->behind->beside = t->beside;
            *at = t->behind;
            exchange_choose(t->behind);
        } else {
            *at = t->beside;
        }
    }
    if (exchange->first == NULL || exchange->failure->code != HOOP_OK) {
        return HOOP_POLL_DONE;
    }
    return moved ? HOOP_POLL_BUSY : HOOP_POLL_IDLE;
}

const struct hoop_transfer *hoop_exchange_awaited(const struct hoop_exchange *exchange,
                                                  const struct hoop_transfer *from)
{
    return from != NULL ? from->beside : exchange->first;
}

/*
 * Links through shared memory: a FIFO of slots, and cells for payload that is too large for a slot,
 * in a region that the receiver's end makes and the sender's end maps.
 *
 *   region   | tail, returned | slot 0: header, tag, payload | slot 1 ... | cell 0 | cell 1 ...
 *              ^                by the sender                              by the cell's owner
 *              by the receiver
 *
 * Chunk numbers count up and never wrap. Chunk k, or its header, lies in slot k mod slots; a large
 * payload lies in a cell. The sender copies the payload, and then publishes the chunk by the slot's
 * tag, which is k + 1 and where the payload lies. So the line that the receiver polls has the
 * header, too; a slot begins a pair of lines, of which the second has the first bytes of payload.
 * The receiver copies the payload out, or lends the memory itself. Lent slots are returned in any
 * order; `tail` advances over those that are returned without a gap.
 *
 *   tail <= next <= head <= tail + slots        head, next: the sender's, the receiver's, private
 *
 * A cell belongs to one of the two ranks at a time; at first all are the sender's. A cell passes to
 * the receiver with the chunk that lies in it, and comes back in one of two ways: the receiver
 * names it in `returned`; or, if a rank's two ends with this peer are paired, it sends its next
 * chunk to the peer in it. It has read the cell last and so has it in its cache, and writes there 2
 * to 6 times as fast as the peer, which would have to fetch it back. Where all come back the first
 * way, they are used in turn: when one is written again (params.round_bytes) it has left the cache
 * of its reader.
 *
 * The region stays mapped at least until the link is destroyed (params.import). The peer is not
 * trusted with this process's memory: values from the region are checked against private copies
 * before use, headers are copied first, and an end never reads back its own counters.
 */
#include "base/sizes.h"
#include "memory/region.h"
#include "runtime/copy.h"
#include "transports/agree.h"
#include "transports/table.h"
#include "transports/transport.h"
#include "transports/xfer_queue.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SHM_MAGIC 0x336d6873u /* "shm3" */
/* Cores may fetch lines in pairs. */
#define SHM_PAIR_BYTES (2 * HOOP_LINE_BYTES)
/* The largest payload that lies in its slot. */
#define SHM_SLOT_MOST ((uint64_t)960)
#define SHM_SLOTS_LEAST 32u
#define SHM_CELLS_MOST 32u
/* The number of a cell, from the point of view of a link's sender: first those of its own link,
 * then those of the link in the other direction. A tag has it, or NONE, in its low bits. */
#define SHM_WHERE_BITS 8
#define SHM_NONE UINT8_MAX

struct shm_fifo {
    _Alignas(SHM_PAIR_BYTES) _Atomic uint64_t tail;
    _Atomic uint32_t returns; /* how many cells the receiver has returned so far */
    _Atomic uint32_t paired;  /* 1: the receiver's end is paired, and may be sent its own cells */
    uint8_t returned[2 * SHM_CELLS_MOST]; /* the last of the returned cells, by count */
};
_Static_assert(sizeof(struct shm_fifo) == SHM_PAIR_BYTES, "one pair of lines");

/* Followed by the payload. */
struct shm_slot {
    struct hoop_chunk_header header;
    _Atomic uint64_t tag;
};
_Static_assert(sizeof(struct shm_slot) == HOOP_LINE_BYTES, "what is polled is one line");

/* The receiver's blob names the region; in the sender's these fields are 0. */
struct shm_blob {
    struct hoop_blob_head head;
    uint64_t region;
    uint64_t region_bytes;
    uint32_t generation;
    uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct shm_blob) <= HOOP_BLOB_BYTES, "the blob is too small");

struct shm_link {
    struct hoop_link base;
    struct shm_fifo *fifo; /* NULL: a sender that is not bound */
    uint64_t region_bytes;
    uint64_t stride, cell_stride; /* distance between slots, between cells */
    struct shm_slot *slot;        /* the slot of chunk `next` */
    uint32_t slots, cells;        /* in the region */
    struct shm_link *pair;        /* the rank's other end with this peer; NULL: not paired */
    /* Sender: the cells that this rank has, as a stack and as a set, and how many returns it has
     * seen. Receiver: how many it has returned. */
    uint8_t own[2 * SHM_CELLS_MOST];
    uint32_t owns;
    uint64_t owned;
    uint32_t returns;
    /* Sender: next chunk to publish, and `tail` as last seen. Receiver: next chunk to take, and the
     * number of chunks returned without a gap. */
    uint64_t next, tail;
    struct hoop_xfer_queue queue; /* sender: copied, not yet reported as done; receiver: posted */
    uint8_t back[]; /* receiver: per slot 1 if returned ahead of tail, then each payload's place */
};

static struct shm_link *shm_from(struct hoop_link *link)
{
    return (struct shm_link *)(void *)link;
}

static bool shm_reaches(bool same_process, bool same_machine)
{
    return same_process || same_machine;
}

/* More than there are cells: ranks that share a CPU continue with small chunks as long as there is
 * room, and running out of room costs a context switch each time. */
static uint32_t shm_slots_of(const struct hoop_link_params *params)
{
    return params->slots > SHM_SLOTS_LEAST ? params->slots : SHM_SLOTS_LEAST;
}

/* Computes the link's sizes. False: they overflow. */
static bool shm_measure(struct shm_link *shm)
{
    const struct hoop_link_params *params = &shm->base.params;
    const uint64_t chunk = params->chunk_bytes;
    const uint64_t in_slot = chunk < SHM_SLOT_MOST ? chunk : SHM_SLOT_MOST;
    const uint64_t slot = in_slot + sizeof(struct shm_slot) + SHM_PAIR_BYTES - 1;
    uint64_t cell = 0, bytes = 0, slots = 0;
    shm->slots = shm_slots_of(params);
    shm->stride = slot - slot % SHM_PAIR_BYTES;
    const uint64_t round = chunk > 0 ? params->round_bytes / chunk : 0;
    const uint64_t cells = round > params->slots ? round : params->slots;
    shm->cells = chunk == in_slot ? 0 : cells < SHM_CELLS_MOST ? (uint32_t)cells : SHM_CELLS_MOST;
    if (__builtin_add_overflow(chunk, SHM_PAIR_BYTES - 1, &cell)) {
        return false;
    }
    shm->cell_stride = cell - cell % SHM_PAIR_BYTES;
    if (__builtin_mul_overflow(shm->cell_stride, shm->cells, &bytes) ||
        __builtin_mul_overflow(shm->stride, shm->slots, &slots) ||
        __builtin_add_overflow(bytes, slots, &bytes) ||
        __builtin_add_overflow(bytes, sizeof(struct shm_fifo), &shm->region_bytes)) {
        return false;
    }
    return true;
}

static void shm_wake(const struct shm_link *shm)
{
    const struct hoop_link_params *params = &shm->base.params;
    if (params->wake != NULL) {
        params->wake(params->arg, params->peer);
    }
}

static uint8_t *shm_slots(const struct shm_link *shm)
{
    return (uint8_t *)shm->fifo + sizeof(struct shm_fifo);
}

static uint8_t *shm_slots_end(const struct shm_link *shm)
{
    return shm_slots(shm) + shm->slots * shm->stride;
}

/* Advances to the next chunk, and its slot. */
static void shm_step(struct shm_link *shm)
{
    uint8_t *slot = (uint8_t *)shm->slot + shm->stride;
    shm->next++;
    shm->slot = (struct shm_slot *)(void *)(slot != shm_slots_end(shm) ? slot : shm_slots(shm));
}

static void shm_set_fifo(struct shm_link *shm, void *base)
{
    shm->fifo = base;
    shm->slot = (struct shm_slot *)(void *)shm_slots(shm);
}

/* Where a chunk's payload lies: in its slot, in a cell of its link, or of the opposite link. */
static uint8_t *shm_payload(const struct shm_link *shm, struct shm_slot *slot, uint8_t where)
{
    if (where == SHM_NONE) {
        return (uint8_t *)slot + sizeof(*slot);
    }
    const struct shm_link *home = where < shm->cells ? shm : shm->pair;
    return shm_slots_end(home) +
           (where < shm->cells ? where : where - shm->cells) * home->cell_stride;
}

/* ---- Cells ----------------------------------------------------------------------------------- */

/* How many cells a sender may own: those of the opposite link, too, if there is one. */
static uint32_t shm_cells(const struct shm_link *sender)
{
    return sender->pair != NULL ? 2 * sender->cells : sender->cells;
}

/* Adds a cell to this rank's. False: it was its own already, or does not exist. */
static bool shm_own(struct shm_link *sender, uint8_t cell)
{
    if (cell >= shm_cells(sender) || (sender->owned >> cell & 1) != 0) {
        return false;
    }
    sender->owned |= UINT64_C(1) << cell;
    sender->own[sender->owns++] = cell;
    return true;
}

/* The number of the same cell in the opposite link. */
static uint8_t shm_turned(const struct shm_link *shm, uint8_t cell)
{
    return (uint8_t)(cell < shm->cells ? cell + shm->cells : cell - shm->cells);
}

/* May the receiver's end keep a cell to send in? The other rank must be left with all but one of
 * the cells it made, or its chunks in them, whatever becomes of those under way to it. */
static bool shm_may_keep(const struct shm_link *shm)
{
    const struct shm_link *sender = shm->pair;
    struct shm_fifo *fifo = sender != NULL ? sender->fifo : NULL;
    if (fifo == NULL || atomic_load_explicit(&fifo->paired, memory_order_relaxed) == 0) {
        return false;
    }
    /* Pairs with the release in shm_give_back(): a cell whose chunk has left the slots is in
     * `returns` if it was returned. Else it would count nowhere, and too many would be kept. */
    const uint64_t tail = atomic_load_explicit(&fifo->tail, memory_order_acquire);
    const uint32_t returns = atomic_load_explicit(&fifo->returns, memory_order_relaxed);
    const uint64_t mine = sender->owns + (sender->next - tail) + (returns - sender->returns);
    return mine + (shm->cells > 1 ? shm->cells : 2) <= UINT64_C(2) * shm->cells;
}

/* The receiver's end has finished with a cell. True: it was returned. */
static bool shm_drop_cell(struct shm_link *shm, uint8_t cell)
{
    if (shm_may_keep(shm) && shm_own(shm->pair, shm_turned(shm, cell))) {
        return false;
    }
    shm->fifo->returned[shm->returns++ % sizeof(shm->fifo->returned)] = cell;
    /* pairs with the acquire in shm_take_returned() */
    atomic_store_explicit(&shm->fifo->returns, shm->returns, memory_order_release);
    return true;
}

/* ---- Birth ---------------------------------------------------------------------------------- */

/* Makes the receiver's region. */
static hoop_result_t shm_make_fifo(struct shm_link *shm, uint64_t bytes, struct shm_blob *blob,
                                   struct hoop_failure *failure)
{
    const struct hoop_link_params *params = &shm->base.params;
    void *ptr = NULL;
    const hoop_result_t result = hoop_region_alloc(bytes, HOOP_MEM_HOST, &ptr);
    if (result != HOOP_OK) {
        return hoop_failure_set(failure, result, (int)params->me,
                                "rank %u has no slots for what rank %u sends in lane %u: %s",
                                params->me, params->peer, params->lane, hoop_thread_error());
    }
    struct hoop_region_ref ref;
    const bool found = hoop_region_find(ptr, bytes, &ref);
    assert(found);
    (void)found;
    shm_set_fifo(shm, ptr);
    blob->region = ref.id;
    blob->generation = ref.generation;
    blob->region_bytes = bytes;
    return HOOP_OK;
}

static void shm_destroy(struct hoop_link *link);

static hoop_result_t shm_create(const struct hoop_link_params *params, struct hoop_link **ret_link,
                                struct hoop_blob *ret_blob, struct hoop_failure *failure)
{
    struct shm_link *shm =
        calloc(1, sizeof(*shm) + (params->sending ? 0 : 2 * shm_slots_of(params)));
    if (shm == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, (int)params->me,
                                "rank %u: no memory to reach rank %u", params->me, params->peer);
    }
    shm->base.params = *params;
    if (!shm_measure(shm)) {
        free(shm);
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, (int)params->me,
                                "rank %u: no memory holds %u slots of %llu bytes", params->me,
                                params->slots, (unsigned long long)params->chunk_bytes);
    }
    for (uint32_t i = shm->cells; params->sending && i-- > 0;) {
        (void)shm_own(shm, (uint8_t)i);
    }
    struct shm_blob blob = {.head = hoop_blob_head(params, SHM_MAGIC)};
    if (!params->sending) {
        const hoop_result_t result = shm_make_fifo(shm, shm->region_bytes, &blob, failure);
        if (result != HOOP_OK) {
            shm_destroy(&shm->base);
            return result;
        }
    }
    hoop_blob_fill(ret_blob, &blob, sizeof(blob));
    *ret_link = &shm->base;
    return HOOP_OK;
}

static hoop_result_t shm_import(struct shm_link *shm, const struct shm_blob *blob)
{
    const struct hoop_link_params *params = &shm->base.params;
    void *base = NULL;
    uint64_t bytes = 0;
    assert(params->import != NULL);
    const hoop_result_t result =
        params->import(params->arg, params->peer, blob->region, blob->generation, &base, &bytes);
    if (result == HOOP_AGAIN) {
        return HOOP_AGAIN;
    }
    if (result != HOOP_OK) {
        return hoop_failure_set(&shm->base.failure, result, (int)params->peer,
                                "the slots of rank %u for lane %u cannot be mapped: %s",
                                params->peer, params->lane, hoop_thread_error());
    }
    if (bytes < shm->region_bytes || (uintptr_t)base % SHM_PAIR_BYTES != 0) {
        return hoop_failure_set(&shm->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                                "the slots of rank %u for lane %u have %llu bytes, expected %llu",
                                params->peer, params->lane, (unsigned long long)bytes,
                                (unsigned long long)shm->region_bytes);
    }
    shm_set_fifo(shm, base);
    return HOOP_OK;
}

static hoop_result_t shm_bind(struct hoop_link *link, const struct hoop_blob *peer)
{
    struct shm_link *shm = shm_from(link);
    struct shm_blob blob;
    const hoop_result_t result = hoop_blob_open(link, peer, SHM_MAGIC, &blob, sizeof(blob));
    if (result != HOOP_OK) {
        return result;
    }
    const bool sending = link->params.sending;
    const uint64_t expected = sending ? shm->region_bytes : 0;
    if (blob.region_bytes != expected || (blob.region != 0) != sending || blob.reserved != 0 ||
        (!sending && blob.generation != 0)) {
        return hoop_failure_set(&link->failure, HOOP_REMOTE_ERROR, (int)link->params.peer,
                                "rank %u offers region %llu.%u of %llu bytes for lane %u, expected "
                                "%s region of %llu bytes",
                                link->params.peer, (unsigned long long)blob.region, blob.generation,
                                (unsigned long long)blob.region_bytes, link->params.lane,
                                sending ? "a" : "no", (unsigned long long)expected);
    }
    return sending ? shm_import(shm, &blob) : HOOP_OK;
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Fails the link: the peer moved its counter to an impossible value. */
static hoop_result_t shm_insane(struct shm_link *shm, const char *counter, uint64_t seen,
                                uint64_t least, const char *between, uint64_t most)
{
    const struct hoop_link_params *params = &shm->base.params;
    return hoop_failure_set(
        &shm->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
        "rank %u wrote %llu as %s of lane %u, expected %llu %s %llu: its memory "
        "is damaged",
        params->peer, (unsigned long long)seen, counter, params->lane, (unsigned long long)least,
        between, (unsigned long long)most);
}

/* HOOP_OK: there is a free slot. */
static hoop_result_t shm_make_room(struct shm_link *shm)
{
    const uint64_t slots = shm->slots;
    if (shm->next - shm->tail < slots) {
        return HOOP_OK;
    }
    /* pairs with the release in shm_give_back() */
    const uint64_t seen = atomic_load_explicit(&shm->fifo->tail, memory_order_acquire);
    if (seen - shm->tail > shm->next - shm->tail) {
        return shm_insane(shm, "tail", seen, shm->tail, "to", shm->next);
    }
    shm->tail = seen;
    return shm->next - shm->tail < slots ? HOOP_OK : HOOP_AGAIN;
}

/* Takes cells that were returned. The one that came first will be used first, so that chunks go
 * round in all cells. */
static hoop_result_t shm_take_returned(struct shm_link *shm)
{
    /* pairs with the release in shm_drop_cell() */
    const uint32_t seen = atomic_load_explicit(&shm->fifo->returns, memory_order_acquire);
    for (uint32_t at = seen; at != shm->returns;) {
        const uint8_t cell = shm->fifo->returned[--at % sizeof(shm->fifo->returned)];
        if (!shm_own(shm, cell)) {
            return shm_insane(shm, "a cell given back", cell, 0, "to", shm_cells(shm) - 1);
        }
    }
    shm->returns = seen;
    return HOOP_OK;
}

/* HOOP_OK: there is a slot, and a cell if one is needed. */
static hoop_result_t shm_make_place(struct shm_link *shm, uint64_t bytes, uint8_t *ret_where)
{
    hoop_result_t result = shm_make_room(shm);
    *ret_where = SHM_NONE;
    if (bytes <= SHM_SLOT_MOST || result != HOOP_OK) {
        return result;
    }
    if (shm->owns == 0) {
        result = shm_take_returned(shm);
    }
    if (result != HOOP_OK || shm->owns == 0) {
        return result == HOOP_OK ? HOOP_AGAIN : result;
    }
    *ret_where = shm->own[--shm->owns];
    shm->owned &= ~(UINT64_C(1) << *ret_where);
    return HOOP_OK;
}

static hoop_result_t shm_send(struct hoop_link *link, struct hoop_xfer *xfer)
{
    struct shm_link *shm = shm_from(link);
    uint8_t where = SHM_NONE;
    const hoop_result_t result = shm_make_place(shm, xfer->bytes, &where);
    if (result != HOOP_OK) {
        return result;
    }
    struct shm_slot *slot = shm->slot;
    if (xfer->bytes > 0) {
        hoop_copy(shm_payload(shm, slot, where), xfer->data, xfer->bytes, xfer->past);
    }
    slot->header = hoop_chunk_header(link, xfer); /* last, as the receiver polls this line */
    shm_step(shm);
    /* pairs with the acquire in shm_look() */
    atomic_store_explicit(&slot->tag, shm->next << SHM_WHERE_BITS | where, memory_order_release);
    hoop_xfer_queue_push(&shm->queue, xfer);
    shm_wake(shm);
    return HOOP_OK;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

static hoop_result_t shm_recv(struct hoop_link *link, struct hoop_xfer *xfer)
{
    hoop_xfer_queue_push(&shm_from(link)->queue, xfer);
    return HOOP_OK;
}

/* Is there a chunk to take, and where is its payload? A failure is in the link. */
static bool shm_look(struct shm_link *shm, uint8_t *ret_where)
{
    const uint64_t slots = shm->slots;
    const uint64_t before = shm->next < slots ? 0 : shm->next + 1 - slots;
    /* pairs with the release in shm_send() */
    const uint64_t tag = atomic_load_explicit(&shm->slot->tag, memory_order_acquire);
    const uint64_t seen = tag >> SHM_WHERE_BITS;
    *ret_where = (uint8_t)tag;
    if (seen != before && seen != shm->next + 1) {
        (void)shm_insane(shm, "tag", seen, before, "or", shm->next + 1);
    }
    return seen == shm->next + 1;
}

/* Can a payload of this size lie there: in a cell that exists, and is not this rank's own? */
static bool shm_may_lie(struct shm_link *shm, uint8_t where, uint64_t bytes)
{
    const struct shm_link *sender = shm->pair;
    const uint32_t most = sender != NULL && sender->fifo != NULL ? 2 * shm->cells : shm->cells;
    const bool right = where == SHM_NONE
                           ? bytes <= SHM_SLOT_MOST
                           : where < most && (sender == NULL ||
                                              (sender->owned >> shm_turned(shm, where) & 1) == 0);
    if (!right) {
        (void)shm_insane(shm, "cell", where, 0, "to", most);
    }
    return right;
}

static void shm_give_back(struct shm_link *shm, uint64_t chunk)
{
    const uint32_t slots = shm->slots;
    const uint64_t before = shm->tail;
    const uint8_t where = shm->back[slots + chunk % slots];
    assert(chunk - shm->tail < shm->next - shm->tail);
    const bool returned = where != SHM_NONE && shm_drop_cell(shm, where);
    if (chunk == before && shm->next == before + 1) {
        shm->tail = shm->next; /* it was the only one: nothing to remember */
    } else {
        assert(shm->back[chunk % slots] == 0);
        shm->back[chunk % slots] = 1;
    }
    while (shm->tail != shm->next && shm->back[shm->tail % slots] != 0) {
        shm->back[shm->tail % slots] = 0;
        shm->tail++;
    }
    if (shm->tail != before) {
        /* pairs with the acquire in shm_make_room() */
        atomic_store_explicit(&shm->fifo->tail, shm->tail, memory_order_release);
    }
    if (returned || shm->tail != before) {
        shm_wake(shm);
    }
}

static void shm_release(struct hoop_link *link, struct hoop_xfer *xfer)
{
    shm_give_back(shm_from(link), xfer->position);
}

/* Gives the next chunk to the first xfer. */
static hoop_result_t shm_take(struct shm_link *shm, uint8_t where)
{
    struct shm_slot *slot = shm->slot;
    const struct hoop_chunk_header header = slot->header;
    struct hoop_xfer *xfer = shm->queue.first;
    const hoop_result_t result = hoop_chunk_header_check(&shm->base, &header, xfer);
    if (result != HOOP_OK || !shm_may_lie(shm, where, xfer->bytes)) {
        return result != HOOP_OK ? result : shm->base.failure.code;
    }
    (void)hoop_xfer_queue_pop(&shm->queue);
    xfer->position = shm->next;
    shm->back[shm->slots + shm->next % shm->slots] = where;
    shm_step(shm);
    if (xfer->data == NULL) {
        xfer->data = shm_payload(shm, slot, where);
        xfer->lent = true;
    } else {
        memcpy(xfer->data, shm_payload(shm, slot, where), xfer->bytes);
        shm_give_back(shm, xfer->position);
    }
    xfer->done(xfer, HOOP_OK);
    return HOOP_OK;
}

/* At most one round of slots, so that a fast sender does not keep the thread in here. */
static bool shm_progress_recv(struct shm_link *shm)
{
    uint32_t taken = 0;
    uint8_t where = SHM_NONE;
    while (taken < shm->slots && shm->queue.first != NULL && shm_look(shm, &where) &&
           shm_take(shm, where) == HOOP_OK) {
        taken++;
    }
    return taken > 0;
}

/* ---- Both ends ------------------------------------------------------------------------------- */

static bool shm_progress(struct hoop_link *link)
{
    struct shm_link *shm = shm_from(link);
    bool moved = false;
    if (shm->queue.first == NULL) {
        return false;
    }
    if (link->params.sending) {
        return hoop_xfer_queue_finish(&shm->queue, HOOP_OK); /* they were copied already */
    }
    if (link->failure.code == HOOP_OK) {
        moved = shm_progress_recv(shm);
    }
    if (link->failure.code != HOOP_OK) {
        moved |= hoop_xfer_queue_finish(&shm->queue, link->failure.code);
    }
    return moved;
}

/* From now on the peer may send chunks in this rank's cells. */
static void shm_pair(struct hoop_link *sender, struct hoop_link *receiver)
{
    shm_from(sender)->pair = shm_from(receiver);
    shm_from(receiver)->pair = shm_from(sender);
    atomic_store_explicit(&shm_from(receiver)->fifo->paired, 1, memory_order_relaxed);
}

static uint32_t shm_holds(const struct hoop_link *link)
{
    return shm_slots_of(&link->params) - 1;
}

static void shm_destroy(struct hoop_link *link)
{
    struct shm_link *shm = shm_from(link);
    if (shm->pair != NULL) {
        hoop_link_leave(&shm->pair->base, 0);
        shm->pair->pair = NULL;
    }
    (void)hoop_xfer_queue_finish(&shm->queue, HOOP_ABORTED);
    if (!link->params.sending && shm->fifo != NULL) {
        (void)hoop_region_free(shm->fifo);
    }
    free(shm);
}

const struct hoop_transport hoop_transport_shm = {
    .name = "shm",
    .reaches = shm_reaches,
    .create = shm_create,
    .bind = shm_bind,
    .send = shm_send,
    .recv = shm_recv,
    .release = shm_release,
    .pair = shm_pair,
    .holds = shm_holds,
    .progress = shm_progress,
    .destroy = shm_destroy,
};

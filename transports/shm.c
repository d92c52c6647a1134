/*
 * Links through shared memory: a FIFO of slots in a region that the receiver's end makes and the
 * sender's end maps.
 *
 *   region   | tail | header, tag, payload | header, tag, payload | ...
 *              ^      slot 0                 slot 1
 *              receiver: chunks given back
 *
 * Numbers run freely and never wrap; chunk k lies in slot k mod slots. The sender copies a chunk
 * into its slot and publishes it there, by the tag k + 1: so the line that the receiver polls
 * brings the header along, and a slot begins a pair of lines, of which the second has the first
 * payload. The receiver copies it out, or lends the slot itself. Lent slots come back in any order,
 * `tail` passes those that are back without a gap.
 *
 *   tail <= next <= head <= tail + slots        head, next: the sender's, the receiver's, private
 *
 * The imported region stays mapped as long as the giver of params.import keeps it, which is at
 * least until the link is destroyed.
 *
 * The peer is not trusted with this process's memory: what is read from the region is checked
 * against private copies before it is used, headers are copied first, and no counter of one's own
 * is ever read back.
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

#define SHM_MAGIC 0x326d6873u /* "shm2" */
/* Cores may fetch lines in pairs. */
#define SHM_PAIR_BYTES (2 * HOOP_LINE_BYTES)

struct shm_fifo {
    _Alignas(SHM_PAIR_BYTES) _Atomic uint64_t tail;
};

/* The payload follows. */
struct shm_slot {
    struct hoop_chunk_header header;
    _Atomic uint64_t tag;
};
_Static_assert(sizeof(struct shm_slot) == HOOP_LINE_BYTES, "what is polled is one line");

/* The receiver's names the region; in the sender's these fields are 0. */
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
    struct shm_fifo *fifo; /* NULL: sender not bound */
    uint64_t region_bytes;
    uint64_t stride;       /* from slot to slot */
    struct shm_slot *slot; /* that of `next` */
    /* Sender: next chunk to publish, `tail` as last seen. Receiver: next chunk to take, own count
     * of chunks given back. */
    uint64_t next, tail;
    struct hoop_xfer_queue queue; /* sender: copied, not told yet. Receiver: posted */
    uint8_t back[];               /* receiver, per slot: given back, but `tail` is not there yet */
};

static struct shm_link *shm_from(struct hoop_link *link)
{
    return (struct shm_link *)(void *)link;
}

static bool shm_reaches(bool same_process, bool same_machine)
{
    return same_process || same_machine;
}

/* False: more bytes than there are. */
static bool shm_measure(const struct hoop_link_params *params, uint64_t *ret_stride,
                        uint64_t *ret_bytes)
{
    const uint64_t more = sizeof(struct shm_slot) + SHM_PAIR_BYTES - 1;
    uint64_t stride = 0, bytes = 0;
    if (__builtin_add_overflow(params->chunk_bytes, more, &stride)) {
        return false;
    }
    stride -= stride % SHM_PAIR_BYTES;
    if (__builtin_mul_overflow(stride, params->slots, &bytes) ||
        __builtin_add_overflow(bytes, sizeof(struct shm_fifo), &bytes)) {
        return false;
    }
    *ret_stride = stride;
    *ret_bytes = bytes;
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

/* On to the next chunk, and its slot. */
static void shm_step(struct shm_link *shm)
{
    uint8_t *slot = (uint8_t *)shm->slot + shm->stride;
    shm->next++;
    shm->slot = (struct shm_slot *)(void *)(slot != (uint8_t *)shm->fifo + shm->region_bytes
                                                ? slot
                                                : shm_slots(shm));
}

static void shm_set_fifo(struct shm_link *shm, void *base)
{
    shm->fifo = base;
    shm->slot = (struct shm_slot *)(void *)shm_slots(shm);
}

static uint8_t *shm_payload(struct shm_slot *slot)
{
    return (uint8_t *)slot + sizeof(*slot);
}

/* ---- Birth ---------------------------------------------------------------------------------- */

/* The receiver's region. */
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
    uint64_t stride = 0, bytes = 0;
    if (!shm_measure(params, &stride, &bytes)) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, (int)params->me,
                                "no memory holds %u slots of %llu bytes", params->slots,
                                (unsigned long long)params->chunk_bytes);
    }
    struct shm_link *shm = calloc(1, sizeof(*shm) + (params->sending ? 0 : params->slots));
    if (shm == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, (int)params->me,
                                "no memory for a link with rank %u", params->peer);
    }
    shm->base.params = *params;
    shm->stride = stride;
    shm->region_bytes = bytes;
    struct shm_blob blob = {.head = hoop_blob_head(params, SHM_MAGIC)};
    if (!params->sending) {
        const hoop_result_t result = shm_make_fifo(shm, bytes, &blob, failure);
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

/* The peer moved its counter to where it cannot be. */
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
    const uint64_t slots = shm->base.params.slots;
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

static hoop_result_t shm_send(struct hoop_link *link, struct hoop_xfer *xfer)
{
    struct shm_link *shm = shm_from(link);
    const hoop_result_t result = shm_make_room(shm);
    if (result != HOOP_OK) {
        return result;
    }
    struct shm_slot *slot = shm->slot;
    if (xfer->bytes > 0) {
        hoop_copy(shm_payload(slot), xfer->data, xfer->bytes, xfer->past);
    }
    slot->header = hoop_chunk_header(link, xfer); /* last: the receiver polls that line */
    shm_step(shm);
    /* pairs with the acquire in shm_look() */
    atomic_store_explicit(&slot->tag, shm->next, memory_order_release);
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

/* Is there a chunk to take? A failure is in the link. */
static bool shm_look(struct shm_link *shm)
{
    const uint64_t slots = shm->base.params.slots;
    const uint64_t before = shm->next < slots ? 0 : shm->next + 1 - slots;
    /* pairs with the release in shm_send() */
    const uint64_t seen = atomic_load_explicit(&shm->slot->tag, memory_order_acquire);
    if (seen != before && seen != shm->next + 1) {
        (void)shm_insane(shm, "tag", seen, before, "or", shm->next + 1);
    }
    return seen == shm->next + 1;
}

static void shm_give_back(struct shm_link *shm, uint64_t chunk)
{
    const uint32_t slots = shm->base.params.slots;
    const uint64_t before = shm->tail;
    assert(chunk - shm->tail < shm->next - shm->tail);
    if (chunk == before && shm->next == before + 1) {
        shm->tail = shm->next; /* it was the only one: no need to remember */
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
        shm_wake(shm);
    }
}

static void shm_release(struct hoop_link *link, struct hoop_xfer *xfer)
{
    shm_give_back(shm_from(link), xfer->position);
}

/* Hands the next chunk to the first xfer. */
static hoop_result_t shm_take(struct shm_link *shm)
{
    struct shm_slot *slot = shm->slot;
    const struct hoop_chunk_header header = slot->header;
    struct hoop_xfer *xfer = shm->queue.first;
    const hoop_result_t result = hoop_chunk_header_check(&shm->base, &header, xfer);
    if (result != HOOP_OK) {
        return result;
    }
    (void)hoop_xfer_queue_pop(&shm->queue);
    xfer->position = shm->next;
    shm_step(shm);
    if (xfer->data == NULL) {
        xfer->data = shm_payload(slot);
        xfer->lent = true;
    } else {
        memcpy(xfer->data, shm_payload(slot), xfer->bytes);
        shm_give_back(shm, xfer->position);
    }
    xfer->done(xfer, HOOP_OK);
    return HOOP_OK;
}

/* At most one round of slots, so that a fast sender does not keep the thread in here. */
static bool shm_progress_recv(struct shm_link *shm)
{
    uint32_t taken = 0;
    while (taken < shm->base.params.slots && shm->queue.first != NULL && shm_look(shm) &&
           shm_take(shm) == HOOP_OK) {
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
        return hoop_xfer_queue_finish(&shm->queue, HOOP_OK); /* they were copied, whatever failed */
    }
    if (link->failure.code == HOOP_OK) {
        moved = shm_progress_recv(shm);
    }
    if (link->failure.code != HOOP_OK) {
        moved |= hoop_xfer_queue_finish(&shm->queue, link->failure.code);
    }
    return moved;
}

static void shm_destroy(struct hoop_link *link)
{
    struct shm_link *shm = shm_from(link);
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
    .progress = shm_progress,
    .destroy = shm_destroy,
};

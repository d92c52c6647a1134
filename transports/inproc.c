/*
 * Links inside one process. The sender publishes where its data lie; the receiver copies them
 * straight to the destination, and only then is the send done. There are no slots.
 *
 *      sender                 shared, made by the receiver's end          receiver
 *      send(xfer) -- entry -> | head | tail | entries[16] | -- entry -->  copies, counts in tail
 *      done <---- tail ------ |                           |               done
 *
 * A receive without a destination borrows staging memory of the receiver's end, not the sender's
 * buffer: a sender must be able to leave at once with its memory, and a lent pointer cannot be
 * revoked.
 *
 * The receiver holds `copying` while it reads a sender's memory. The sender holds it once, in
 * destroy, to set `gone`; after that none of its memory is read. So the sender's send and progress
 * need no lock. Both ends hold the shared part, and the last one frees it. Blobs refer to it by a
 * number that is looked up, never by an address.
 */
#include "base/sizes.h"
#include "memory/region.h"
#include "runtime/process.h"
#include "transports/agree.h"
#include "transports/table.h"
#include "transports/transport.h"
#include "transports/xfer_queue.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define INPROC_MAGIC 0x31706e69u /* "inp1" */
#define INPROC_ENTRIES 16        /* sends under way; a further one gets HOOP_AGAIN */

struct inproc_entry {
    struct hoop_chunk_header header;
    const void *data;
};

/* First what the sender writes, last what the receiver writes, and the rest in between. */
struct inproc_shared {
    _Alignas(HOOP_LINE_BYTES) _Atomic uint64_t head; /* entries published */
    struct inproc_entry entries[INPROC_ENTRIES];
    /* Under inproc_registry.lock. */
    struct inproc_shared *next;
    uint64_t cookie;
    uint32_t ends; /* number of ends that hold it */
    bool claimed;  /* a sender's end is bound to it */
    /* Under copying. */
    bool gone;                                       /* the sender has left, with its memory */
    _Alignas(HOOP_LINE_BYTES) _Atomic uint64_t tail; /* entries copied */
    pthread_mutex_t copying;
    struct hoop_link_params made_for;
};

struct inproc_blob {
    struct hoop_blob_head head;
    uint64_t cookie; /* 0 in a sender's blob */
};
_Static_assert(sizeof(struct inproc_blob) <= HOOP_BLOB_BYTES, "the blob is too small");

struct inproc_link {
    struct hoop_link base;
    struct inproc_shared *shared; /* NULL: a sender that is not bound */
    uint64_t head;                /* sender: published. Receiver: as last seen */
    uint64_t tail;                /* sender: reported as done. Receiver: copied */
    struct hoop_xfer_queue queue;
    uint8_t *staging; /* receiver's */
    uint64_t stride;
    uint32_t idle_count; /* receiver: free staging buffers */
    uint32_t idle[];     /* [slots], of which the first idle_count are valid */
};

static struct {
    pthread_mutex_t lock;
    struct inproc_shared *first;
    uint64_t last_cookie;
} inproc_registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct inproc_link *inproc_from(struct hoop_link *link)
{
    return (struct inproc_link *)(void *)link;
}

static bool inproc_reaches(bool same_process, bool same_machine)
{
    (void)same_machine;
    return same_process;
}

static void inproc_wake(const struct inproc_link *inproc)
{
    const struct hoop_link_params *params = &inproc->base.params;
    if (params->wake != NULL) {
        params->wake(params->arg, params->peer);
    }
}

/* ---- The shared part ------------------------------------------------------------------------- */

static struct inproc_shared *inproc_make_shared(const struct hoop_link_params *params)
{
    struct inproc_shared *shared = aligned_alloc(HOOP_LINE_BYTES, sizeof(*shared));
    if (shared == NULL) {
        return NULL;
    }
    memset(shared, 0, sizeof(*shared));
    if (pthread_mutex_init(&shared->copying, NULL) != 0) {
        free(shared);
        return NULL;
    }
    shared->ends = 1;
    shared->made_for = *params;
    pthread_mutex_lock(&inproc_registry.lock);
    shared->cookie = ++inproc_registry.last_cookie;
    shared->next = inproc_registry.first;
    inproc_registry.first = shared;
    pthread_mutex_unlock(&inproc_registry.lock);
    return shared;
}

/* Was it made by the other end of the link that params describe? */
static bool inproc_fits(const struct inproc_shared *shared, const struct hoop_link_params *params)
{
    const struct hoop_link_params *theirs = &shared->made_for;
    return theirs->comm_id == params->comm_id && theirs->me == params->peer &&
           theirs->peer == params->me && theirs->lane == params->lane;
}

/* The sender's hold on the shared part; NULL: none, another link's, or it has a sender. */
static struct inproc_shared *inproc_claim(uint64_t cookie, const struct hoop_link_params *params)
{
    pthread_mutex_lock(&inproc_registry.lock);
    struct inproc_shared *shared = inproc_registry.first;
    while (shared != NULL && shared->cookie != cookie) {
        shared = shared->next;
    }
    if (shared != NULL && (shared->claimed || !inproc_fits(shared, params))) {
        shared = NULL;
    }
    if (shared != NULL) {
        shared->claimed = true;
        shared->ends++;
    }
    pthread_mutex_unlock(&inproc_registry.lock);
    return shared;
}

static void inproc_leave(struct inproc_shared *shared)
{
    pthread_mutex_lock(&inproc_registry.lock);
    const bool last = --shared->ends == 0;
    if (last) {
        struct inproc_shared **at = &inproc_registry.first;
        while (*at != shared) {
            at = &(*at)->next;
        }
        *at = shared->next;
    }
    pthread_mutex_unlock(&inproc_registry.lock);
    if (last) {
        pthread_mutex_destroy(&shared->copying);
        free(shared);
    }
}

/* ---- Birth and death ------------------------------------------------------------------------- */

/* Computes the size of staging for all that can be lent at a time. False: it overflows. */
static bool inproc_measure(const struct hoop_link_params *params, uint64_t *ret_stride,
                           uint64_t *ret_bytes)
{
    uint64_t stride = 0;
    if (__builtin_add_overflow(params->chunk_bytes, HOOP_LINE_BYTES - 1, &stride)) {
        return false;
    }
    stride = stride < HOOP_LINE_BYTES ? HOOP_LINE_BYTES : stride - stride % HOOP_LINE_BYTES;
    *ret_stride = stride;
    return !__builtin_mul_overflow(stride, params->slots, ret_bytes) && *ret_bytes <= PTRDIFF_MAX;
}

/* Makes what only a receiver's end has. Pages of staging appear when they are first used. */
static bool inproc_make_receiver(struct inproc_link *inproc, uint64_t stride, uint64_t bytes)
{
    const struct hoop_link_params *params = &inproc->base.params;
    inproc->shared = inproc_make_shared(params);
    inproc->staging = aligned_alloc(HOOP_LINE_BYTES, bytes);
    inproc->stride = stride;
    for (uint32_t i = 0; i < params->slots; i++) {
        inproc->idle[i] = i;
    }
    inproc->idle_count = params->slots;
    return inproc->shared != NULL && inproc->staging != NULL;
}

static void inproc_destroy(struct hoop_link *link)
{
    struct inproc_link *inproc = inproc_from(link);
    if (inproc == NULL) {
        return;
    }
    if (inproc->shared != NULL && link->params.sending) {
        pthread_mutex_lock(&inproc->shared->copying);
        inproc->shared->gone = true;
        pthread_mutex_unlock(&inproc->shared->copying);
    }
    (void)hoop_xfer_queue_finish(&inproc->queue, HOOP_ABORTED);
    if (inproc->shared != NULL) {
        inproc_leave(inproc->shared);
    }
    free(inproc->staging);
    free(inproc);
}

static hoop_result_t inproc_create(const struct hoop_link_params *params,
                                   struct hoop_link **ret_link, struct hoop_blob *ret_blob,
                                   struct hoop_failure *failure)
{
    uint64_t stride = 0, bytes = 0;
    struct inproc_link *inproc = NULL;
    if (inproc_measure(params, &stride, &bytes)) {
        const size_t slots = params->sending ? 0 : params->slots;
        inproc = calloc(1, sizeof(*inproc) + slots * sizeof(inproc->idle[0]));
    }
    if (inproc != NULL) {
        inproc->base.params = *params;
    }
    if (inproc == NULL || (!params->sending && !inproc_make_receiver(inproc, stride, bytes))) {
        inproc_destroy(inproc != NULL ? &inproc->base : NULL);
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, (int)params->me,
                                "rank %u has no memory for a link with rank %u: %u buffers of %llu "
                                "bytes",
                                params->me, params->peer, params->slots,
                                (unsigned long long)params->chunk_bytes);
    }
    struct inproc_blob blob = {.head = hoop_blob_head(params, INPROC_MAGIC)};
    blob.cookie = inproc->shared != NULL ? inproc->shared->cookie : 0;
    hoop_blob_fill(ret_blob, &blob, sizeof(blob));
    *ret_link = &inproc->base;
    return HOOP_OK;
}

static hoop_result_t inproc_bind(struct hoop_link *link, const struct hoop_blob *peer)
{
    struct inproc_link *inproc = inproc_from(link);
    struct inproc_blob blob;
    const hoop_result_t result = hoop_blob_open(link, peer, INPROC_MAGIC, &blob, sizeof(blob));
    if (result != HOOP_OK) {
        return result;
    }
    bool fits = blob.head.process == hoop_process_id();
    if (fits && link->params.sending) {
        inproc->shared = inproc_claim(blob.cookie, &link->params);
        fits = inproc->shared != NULL;
    } else {
        fits &= blob.cookie == 0;
    }
    return fits ? HOOP_OK
                : hoop_failure_set(&link->failure, HOOP_REMOTE_ERROR, (int)link->params.peer,
                                   "rank %u's end of lane %u, number %llu, is not in this process "
                                   "(any more)",
                                   link->params.peer, link->params.lane,
                                   (unsigned long long)blob.cookie);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static hoop_result_t inproc_send(struct hoop_link *link, struct hoop_xfer *xfer)
{
    struct inproc_link *inproc = inproc_from(link);
    if (inproc->head - inproc->tail == INPROC_ENTRIES) {
        return HOOP_AGAIN; /* until progress has reported what was copied */
    }
    struct inproc_entry *entry = &inproc->shared->entries[inproc->head % INPROC_ENTRIES];
    entry->header = hoop_chunk_header(link, xfer);
    entry->data = xfer->data;
    hoop_xfer_queue_push(&inproc->queue, xfer);
    inproc->head++;
    /* pairs with the acquire in inproc_look() */
    atomic_store_explicit(&inproc->shared->head, inproc->head, memory_order_release);
    inproc_wake(inproc);
    return HOOP_OK;
}

static bool inproc_progress_send(struct inproc_link *inproc)
{
    if (inproc->queue.first == NULL) {
        return false;
    }
    /* pairs with the release in inproc_take() */
    const uint64_t tail = atomic_load_explicit(&inproc->shared->tail, memory_order_acquire);
    const bool moved = tail != inproc->tail;
    while (inproc->tail < tail) {
        struct hoop_xfer *xfer = hoop_xfer_queue_pop(&inproc->queue);
        inproc->tail++;
        xfer->done(xfer, HOOP_OK);
    }
    return moved;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

static hoop_result_t inproc_recv(struct hoop_link *link, struct hoop_xfer *xfer)
{
    hoop_xfer_queue_push(&inproc_from(link)->queue, xfer);
    return HOOP_OK;
}

static void inproc_release(struct hoop_link *link, struct hoop_xfer *xfer)
{
    struct inproc_link *inproc = inproc_from(link);
    assert(xfer->position < link->params.slots && inproc->idle_count < link->params.slots);
    inproc->idle[inproc->idle_count++] = (uint32_t)xfer->position;
}

static bool inproc_look(struct inproc_link *inproc)
{
    if (inproc->head == inproc->tail) {
        /* pairs with the release in inproc_send() */
        inproc->head = atomic_load_explicit(&inproc->shared->head, memory_order_acquire);
    }
    return inproc->head != inproc->tail;
}

/* False: the sender has left with its memory. */
static bool inproc_copy(struct inproc_shared *shared, void *to, const void *from, size_t bytes)
{
    pthread_mutex_lock(&shared->copying);
    const bool there = !shared->gone;
    if (there && bytes > 0) {
        memcpy(to, from, bytes);
    }
    pthread_mutex_unlock(&shared->copying);
    return there;
}

/* Gives the next entry to the first xfer. False: not now, or never (the failure is in the link). */
static bool inproc_take(struct inproc_link *inproc)
{
    const struct inproc_entry *entry = &inproc->shared->entries[inproc->tail % INPROC_ENTRIES];
    struct hoop_xfer *xfer = inproc->queue.first;
    if (hoop_chunk_header_check(&inproc->base, &entry->header, xfer) != HOOP_OK) {
        return false;
    }
    const bool lend = xfer->data == NULL;
    if (lend && inproc->idle_count == 0) {
        return false;
    }
    const uint64_t position = lend ? inproc->idle[inproc->idle_count - 1] : 0;
    void *to = lend ? inproc->staging + position * inproc->stride : xfer->data;
    if (!inproc_copy(inproc->shared, to, entry->data, xfer->bytes)) {
        return false;
    }
    if (lend) {
        inproc->idle_count--;
        xfer->position = position;
        xfer->data = to;
        xfer->lent = true;
    }
    (void)hoop_xfer_queue_pop(&inproc->queue);
    inproc->tail++;
    /* pairs with the acquire in inproc_progress_send() */
    atomic_store_explicit(&inproc->shared->tail, inproc->tail, memory_order_release);
    inproc_wake(inproc);
    xfer->done(xfer, HOOP_OK);
    return true;
}

/* At most one round of entries, so that a fast sender does not keep the thread in here. */
static bool inproc_progress_recv(struct inproc_link *inproc)
{
    uint32_t taken = 0;
    while (taken < INPROC_ENTRIES && inproc->queue.first != NULL && inproc_look(inproc) &&
           inproc_take(inproc)) {
        taken++;
    }
    return taken > 0;
}

static bool inproc_progress(struct hoop_link *link)
{
    struct inproc_link *inproc = inproc_from(link);
    if (link->params.sending) {
        return inproc_progress_send(inproc);
    }
    bool moved = false;
    if (link->failure.code == HOOP_OK) {
        moved = inproc_progress_recv(inproc);
    }
    if (link->failure.code != HOOP_OK) {
        moved |= hoop_xfer_queue_finish(&inproc->queue, link->failure.code);
    }
    return moved;
}

const struct hoop_transport hoop_transport_inproc = {
    .name = "inproc",
    .reaches = inproc_reaches,
    .create = inproc_create,
    .bind = inproc_bind,
    .send = inproc_send,
    .recv = inproc_recv,
    .release = inproc_release,
    .progress = inproc_progress,
    .destroy = inproc_destroy,
};

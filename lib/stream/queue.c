/* The inside of a stream (see queue.h). */
#include "stream/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct hoop_queue *hoop_queue_create(void)
{
    struct hoop_queue *queue = calloc(1, sizeof(*queue));
    if (queue != NULL) {
        queue->fd = -1;
        hoop_list_init(&queue->items);
        hoop_cond_init(&queue->changed);
    }
    return queue;
}

void hoop_queue_destroy(struct hoop_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    assert(hoop_list_is_empty(&queue->items) && queue->pins == 0);
    hoop_tickets_finish(&queue->tickets);
    pthread_cond_destroy(&queue->changed);
    free(queue->why);
    free(queue);
}

/* The batch's comms are stored after the work. */
_Static_assert(sizeof(struct hoop_work) % _Alignof(struct hoop_batch_comm) == 0, "alignment");

/* ---- Pieces --------------------------------------------------------------------------------- */

void hoop_work_finish(const struct hoop_work *work, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t collective = work[i].request.signature.collective;
        if (collective == HOOP_COLL_ALLTOALLV) {
            free(work[i].request.out); /* one allocation */
        }
        struct hoop_transfer *at = collective == HOOP_TRANSFER ? work[i].request.out : NULL;
        while (at != NULL) {
            struct hoop_transfer *next = at->next;
            free(at);
            at = next;
        }
    }
}

/* In one allocation, or each in its own, as hoop_work_finish() frees them. NULL: no memory. */
static struct hoop_transfer *transfers_copy(const struct hoop_transfer *from, bool one_piece)
{
    struct hoop_transfer *first = NULL, **last = &first, *room = NULL;
    size_t count = 0;
    assert(from != NULL);
    for (const struct hoop_transfer *at = from; at != NULL && one_piece; at = at->next) {
        count++;
    }
    if (one_piece && (room = calloc(count, sizeof(*room))) == NULL) {
        return NULL;
    }
    for (const struct hoop_transfer *at = from; at != NULL; at = at->next) {
        struct hoop_transfer *copy = one_piece ? room++ : malloc(sizeof(*copy));
        if (copy == NULL) {
            hoop_work_finish(
                &(struct hoop_work){.request = {.signature = from->signature, .out = first}}, 1);
            return NULL;
        }
        hoop_transfer_copy(copy, at);
        copy->next = NULL;
        *last = copy;
        last = &copy->next;
    }
    return first;
}

bool hoop_work_copy(const struct hoop_work *work, size_t count, struct hoop_work *ret)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t collective = work[i].request.signature.collective;
        const bool vector = collective == HOOP_COLL_ALLTOALLV;
        ret[i] = work[i];
        if (vector || collective == HOOP_TRANSFER) {
            ret[i].request.out = transfers_copy(work[i].request.out, vector);
            if (ret[i].request.out == NULL) {
                hoop_work_finish(ret, i);
                return false;
            }
        }
    }
    return true;
}

struct hoop_piece *hoop_piece_create(const struct hoop_work *work, size_t count, uint32_t streams,
                                     bool kept)
{
    struct hoop_piece *piece = NULL;
    const size_t each = sizeof(*work) + sizeof(struct hoop_batch_comm);
    if (count < (SIZE_MAX - sizeof(*piece)) / each) {
        piece = malloc(sizeof(*piece) + count * each);
    }
    if (piece == NULL) {
        hoop_work_finish(work, count);
        return NULL;
    }
    *piece = (struct hoop_piece){
        .item = {.kind = HOOP_ITEM_WORK, .piece = piece},
        .holders = kept ? 2 : 1,
        .awaited = streams,
    };
    memcpy(piece->work, work, count * sizeof(*work));
    hoop_batch_init(&piece->batch, piece->work, count,
                    (struct hoop_batch_comm *)(piece->work + count));
    return piece;
}

void hoop_piece_release(struct hoop_piece *piece)
{
    if (atomic_fetch_sub(&piece->holders, 1) == 1) {
        hoop_work_finish(piece->work, piece->batch.count);
        hoop_batch_finish(&piece->batch);
        hoop_order_destroy(piece->order);
        free(piece);
    }
}

struct hoop_item *hoop_item_create(struct hoop_piece *piece, uint64_t number)
{
    struct hoop_item *item = calloc(1, sizeof(*item));
    if (item != NULL) {
        item->kind = piece != NULL ? HOOP_ITEM_JOIN : HOOP_ITEM_WAIT;
        item->piece = piece;
        item->number = number;
    }
    return item;
}

/* ---- The queue ------------------------------------------------------------------------------ */

void hoop_queue_push(struct hoop_queue *queue, struct hoop_item *item)
{
    if (item->kind == HOOP_ITEM_JOIN) {
        atomic_fetch_add(&item->piece->holders, 1);
    } else if (item->kind == HOOP_ITEM_WAIT) {
        item->target->pins++;
    }
    hoop_list_push_back(&queue->items, &item->node);
    queue->queued++;
}

static void queue_complete(struct hoop_queue *queue, uint64_t tickets)
{
    hoop_tickets_complete(&queue->tickets, tickets);
    if (tickets > 0 && queue->fd >= 0) {
        hoop_wake(queue->fd);
    }
}

uint64_t hoop_queue_record(struct hoop_queue *queue)
{
    const uint64_t number = ++queue->tickets.given;
    if (hoop_list_is_empty(&queue->items)) {
        queue_complete(queue, 1);
    } else {
        HOOP_CONTAINER_OF(queue->items.prev, struct hoop_item, node)->tickets++;
    }
    return number;
}

bool hoop_queue_advance(struct hoop_queue *queue)
{
    struct hoop_list_node *first = hoop_list_first(&queue->items);
    queue->current = first != NULL ? HOOP_CONTAINER_OF(first, struct hoop_item, node) : NULL;
    struct hoop_piece *piece = first != NULL ? queue->current->piece : NULL;
    if (piece != NULL && --piece->awaited == 0) {
        piece->begun = true;
    }
    return first != NULL;
}

enum hoop_poll hoop_queue_poll(struct hoop_queue *queue, bool look)
{
    const struct hoop_item *item = queue->current;
    switch (item->kind) {
    case HOOP_ITEM_WORK:
        return item->piece->begun ? hoop_batch_poll(&item->piece->batch, look) : HOOP_POLL_IDLE;
    case HOOP_ITEM_JOIN:
        return item->piece->over ? HOOP_POLL_DONE : HOOP_POLL_IDLE;
    default:
        return atomic_load_explicit(&item->target->tickets.done, memory_order_acquire) >=
                       item->number
                   ? HOOP_POLL_DONE
                   : HOOP_POLL_IDLE;
    }
}

/* Every stream that a piece is on reports its failure. */
static void queue_fail(struct hoop_queue *queue, const struct hoop_batch *batch)
{
    if (batch->result == HOOP_OK) {
        return;
    }
    hoop_tickets_fail(&queue->tickets, batch->result);
    queue->failed = queue->failed == HOOP_OK ? batch->result : queue->failed;
    if (queue->why == NULL) {
        queue->why = calloc(1, sizeof(*queue->why));
    }
    if (queue->why != NULL && batch->why != NULL) {
        *queue->why = *batch->why;
    }
}

struct hoop_item *hoop_queue_pop(struct hoop_queue *queue)
{
    struct hoop_item *item = queue->current;
    hoop_list_remove(&item->node);
    if (item->kind == HOOP_ITEM_WAIT) {
        item->target->pins--;
    } else {
        item->piece->over = true;
        if (item->piece->order != NULL) {
            hoop_hold_release(&item->piece->order->hold);
        }
        queue_fail(queue, &item->piece->batch);
    }
    queue_complete(queue, item->tickets);
    const uint64_t done = atomic_load_explicit(&queue->done, memory_order_relaxed);
    atomic_store_explicit(&queue->done, done + 1, memory_order_release);
    if (queue->waiting > 0) {
        pthread_cond_broadcast(&queue->changed);
    }
    return item;
}

void hoop_item_release(struct hoop_item *item)
{
    struct hoop_piece *piece = item->piece;
    if (item->kind != HOOP_ITEM_WORK) {
        free(item);
    } else if (piece->ended != NULL) {
        piece->ended(piece->ended_arg, &piece->batch);
    }
    if (piece != NULL) {
        hoop_piece_release(piece);
    }
}

void hoop_queue_drop(struct hoop_queue *queue, const struct hoop_comm *comm, hoop_result_t code)
{
    HOOP_LIST_EACH(struct hoop_item, item, &queue->items, node) {
        if (item->kind == HOOP_ITEM_WORK && !item->piece->begun) {
            hoop_batch_drop(&item->piece->batch, comm, code);
        }
    }
}

static bool lies_in(const void *ptr, const void *base, uint64_t bytes)
{
    return (uintptr_t)ptr - (uintptr_t)base < bytes;
}

static bool request_uses(const struct hoop_request *request, const void *base, uint64_t bytes)
{
    const uint32_t collective = request->signature.collective;
    if (collective != HOOP_COLL_ALLTOALLV && collective != HOOP_TRANSFER) {
        return lies_in(request->in, base, bytes) || lies_in(request->out, base, bytes);
    }
    const struct hoop_transfer *at = request->out;
    while (at != NULL && !lies_in(at->data, base, bytes)) {
        at = at->next;
    }
    return at != NULL;
}

bool hoop_queue_uses(const struct hoop_queue *queue, const void *base, uint64_t bytes)
{
    HOOP_LIST_EACH(const struct hoop_item, item, &queue->items, node) {
        const size_t count = item->kind == HOOP_ITEM_WORK ? item->piece->batch.count : 0;
        for (size_t i = 0; i < count; i++) {
            if (request_uses(&item->piece->work[i].request, base, bytes)) {
                return true;
            }
        }
    }
    return false;
}

/* Host streams and tickets: checks, and what is done with the queue of a handle (see stream/). */
#include "api/streams.h"

#include "api/device_stream.h"
#include "base/clock.h"
#include "memory/cuda.h"
#include "runtime/wait.h"
#include "stream/handle.h"
#include "stream/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

/* ---- Finding -------------------------------------------------------------------------------- */

static hoop_result_t stream_gone(const char *function, hoop_stream_t stream)
{
    return hoop_error(HOOP_INVALID_ARGUMENT, "%s: stream %p was destroyed", function,
                      (void *)stream);
}

static hoop_result_t stream_foreign(const char *function, hoop_stream_t stream)
{
    return hoop_error(HOOP_UNSUPPORTED, "%s: stream %p was not made by hoop_stream_create()",
                      function, (void *)stream);
}

/* Finds the queue of a handle and returns with the lock held. NULL: the lock is not held, and *ret
 * is the error. */
static struct hoop_queue *stream_lock(const char *function, hoop_stream_t stream,
                                      hoop_result_t *ret)
{
    *ret = HOOP_OK;
    if (hoop_is_forked()) {
        *ret = hoop_forked_error();
    } else if (stream == NULL) {
        *ret = hoop_null_error(function, "stream");
    } else if (!hoop_handle_is_stream(stream)) {
        *ret = stream_foreign(function, stream);
    }
    if (*ret != HOOP_OK) {
        return NULL;
    }
    hoop_progress_lock();
    struct hoop_queue *queue = hoop_handle_find(stream);
    if (queue == NULL) {
        hoop_progress_unlock();
        *ret = stream_gone(function, stream);
    }
    return queue;
}

hoop_result_t hoop_streams_check(const char *function, hoop_stream_t stream)
{
    hoop_result_t result = HOOP_OK;
    if (hoop_streams_of_device(stream) != NULL) {
        return hoop_device_stream_check(function, stream);
    }
    if (stream != NULL && stream_lock(function, stream, &result) != NULL) {
        hoop_progress_unlock();
    }
    return result;
}

hoop_result_t hoop_streams_check_buffer(const char *function, hoop_stream_t stream,
                                        const void *buffer)
{
    hoop_cu_context_t context = NULL;
    return hoop_streams_of_host(stream) != NULL && hoop_cuda_is_loaded() &&
                   hoop_cuda_owns(buffer, &context)
               ? hoop_error(HOOP_INVALID_USAGE,
                            "%s: buffer %p is device memory: expected a CUDA stream, or NULL",
                            function, buffer)
               : HOOP_OK;
}

hoop_stream_t hoop_streams_of_host(hoop_stream_t stream)
{
    return stream != NULL && hoop_handle_is_stream(stream) ? stream : NULL;
}

hoop_stream_t hoop_streams_of_device(hoop_stream_t stream)
{
    return stream != NULL && !hoop_handle_is_stream(stream) ? stream : NULL;
}

/* Makes the queue's failure the calling thread's error text. With the lock. */
static hoop_result_t stream_tell(const struct hoop_queue *queue, hoop_result_t result)
{
    const struct hoop_failure *why = queue->why;
    if (result == HOOP_OK || result == HOOP_IN_PROGRESS) {
        return result;
    }
    return why != NULL && why->code == result
               ? hoop_error(result, "queued work failed: %s", why->text)
               : hoop_error(result, "queued work failed: %s", hoop_get_error_string(result));
}

/* ---- Queueing ------------------------------------------------------------------------------- */

/* One of the streams that a piece is put on. */
struct stream_part {
    hoop_stream_t stream;
    struct hoop_queue *queue;
    struct hoop_item *item;
};

/* The first stream's item is the piece itself; the others get items that refer to it. */
static bool streams_make_items(struct stream_part *parts, size_t count, struct hoop_piece *piece)
{
    parts[0].item = &piece->item;
    for (size_t i = 1; i < count; i++) {
        parts[i].item = hoop_item_create(piece, 0);
        if (parts[i].item == NULL) {
            return false;
        }
    }
    return true;
}

static void streams_free_items(const struct stream_part *parts, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        free(parts[i].item);
    }
}

/* Waits for the piece on its first stream. With the lock. */
static hoop_result_t streams_await(struct hoop_queue *queue, struct hoop_piece *piece)
{
    queue->pins++;
    (void)hoop_progress_wait(queue, &queue->done, queue->queued, HOOP_NEVER);
    queue->pins--;
    return hoop_batch_result(&piece->batch);
}

/* Finds the queues; fails if a stream was destroyed meanwhile. With the lock. */
static hoop_result_t streams_find(struct stream_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        parts[i].queue = hoop_handle_find(parts[i].stream);
        if (parts[i].queue == NULL) {
            return stream_gone("hoop_group_end", parts[i].stream);
        }
    }
    return HOOP_OK;
}

/* Puts the piece on all streams, or on none. Calls on comms that take none fail, like calls that
 * fail later, unless these are all calls. With the lock. */
static hoop_result_t streams_push(struct stream_part *parts, size_t count, struct hoop_piece *piece,
                                  bool blocks)
{
    const hoop_result_t found = streams_find(parts, count);
    const hoop_result_t result = found == HOOP_OK ? hoop_batch_refuse(&piece->batch) : found;
    if (found != HOOP_OK || piece->batch.left == 0) {
        streams_free_items(parts, count);
        hoop_piece_release(piece);
        return result;
    }
    hoop_batch_reserve(&piece->batch, hoop_progress_sleeper());
    for (size_t i = 0; i < count; i++) {
        hoop_queue_push(parts[i].queue, parts[i].item);
        hoop_progress_notify(parts[i].queue);
    }
    return blocks ? streams_await(parts[0].queue, piece) : HOOP_OK;
}

/* NULL: no memory. */
static struct hoop_piece *streams_piece(struct stream_part *parts, size_t count,
                                        const struct hoop_work *work, size_t works, bool blocks)
{
    struct hoop_piece *piece = hoop_piece_create(work, works, (uint32_t)count, blocks);
    if (piece != NULL && !streams_make_items(parts, count, piece)) {
        streams_free_items(parts, count);
        piece->holders = 1;
        hoop_piece_release(piece);
        piece = NULL;
    }
    return piece;
}

static hoop_result_t streams_submit(struct stream_part *parts, const hoop_stream_t *streams,
                                    size_t count, const struct hoop_work *work, size_t works,
                                    bool blocks)
{
    for (size_t i = 0; i < count; i++) {
        parts[i].stream = streams[i];
    }
    struct hoop_piece *piece = streams_piece(parts, count, work, works, blocks);
    if (piece == NULL) {
        return hoop_work_fail(
            work, works,
            hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu calls on %zu streams", works, count));
    }
    hoop_progress_suit(work[0].comm);
    hoop_progress_lock();
    const hoop_result_t result = streams_push(parts, count, piece, blocks);
    hoop_progress_unlock();
    if (blocks) {
        hoop_piece_release(piece);
    }
    return result;
}

hoop_result_t hoop_streams_submit(const hoop_stream_t *streams, size_t count,
                                  const struct hoop_work *work, size_t works, bool blocks)
{
    struct stream_part one = {.stream = NULL};
    struct stream_part *parts = count == 1 ? &one : calloc(count, sizeof(*parts));
    if (parts == NULL) {
        hoop_work_finish(work, works);
        return hoop_work_fail(
            work, works,
            hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a group on %zu streams", count));
    }
    const int before = hoop_cancel_off();
    const hoop_result_t result = streams_submit(parts, streams, count, work, works, blocks);
    hoop_cancel_restore(before);
    if (parts != &one) {
        free(parts);
    }
    return result;
}

/* ---- Streams -------------------------------------------------------------------------------- */

hoop_result_t hoop_stream_create(hoop_stream_t *stream)
{
    if (stream == NULL) {
        return hoop_null_error("hoop_stream_create", "stream");
    }
    const int before = hoop_cancel_off();
    hoop_result_t result = hoop_progress_start();
    if (result == HOOP_OK) {
        hoop_progress_lock();
        result = hoop_handle_create(stream);
        hoop_progress_unlock();
    }
    hoop_cancel_restore(before);
    return result;
}

/* The result of a query. Callers may query in a loop, which must not keep the progress thread, or
 * another rank, from the CPU. */
static hoop_result_t stream_asked(hoop_result_t result)
{
    if (result == HOOP_IN_PROGRESS) {
        hoop_wait_yield();
    }
    return result;
}

/* Waits for all that is queued. With the lock. */
static hoop_result_t stream_drain(struct hoop_queue *queue)
{
    const int before = hoop_cancel_off();
    queue->pins++;
    (void)hoop_progress_wait(queue, &queue->done, queue->queued, HOOP_NEVER);
    queue->pins--;
    hoop_cancel_restore(before);
    const hoop_result_t result = stream_tell(queue, queue->failed);
    queue->failed = HOOP_OK;
    return result;
}

hoop_result_t hoop_stream_destroy(hoop_stream_t stream)
{
    hoop_result_t result = HOOP_OK;
    if (stream == NULL || hoop_is_forked()) {
        return HOOP_OK;
    }
    struct hoop_queue *queue = stream_lock("hoop_stream_destroy", stream, &result);
    if (queue == NULL) {
        return result;
    }
    const int before = hoop_cancel_off();
    queue->closing = true;
    result = stream_drain(queue);
    if (queue->fd >= 0) {
        (void)close(queue->fd);
        queue->fd = -1;
    }
    hoop_handle_retire(queue);
    hoop_progress_unlock();
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_stream_synchronize(hoop_stream_t stream)
{
    hoop_result_t result = HOOP_OK;
    struct hoop_queue *queue = stream_lock("hoop_stream_synchronize", stream, &result);
    if (queue != NULL) {
        result = stream_drain(queue);
        hoop_progress_unlock();
    }
    return result;
}

hoop_result_t hoop_stream_query(hoop_stream_t stream)
{
    hoop_result_t result = HOOP_OK;
    struct hoop_queue *queue = stream_lock("hoop_stream_query", stream, &result);
    if (queue != NULL) {
        result = hoop_list_is_empty(&queue->items) ? HOOP_OK : HOOP_IN_PROGRESS;
        if (result == HOOP_IN_PROGRESS) {
            hoop_progress_hurry();
        }
        hoop_progress_unlock();
    }
    return stream_asked(result);
}

/* With the lock. */
static hoop_result_t stream_open_fd(struct hoop_queue *queue)
{
    if (queue->fd < 0) {
        const bool some = atomic_load_explicit(&queue->tickets.done, memory_order_relaxed) > 0;
        queue->fd = eventfd(some ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    return queue->fd >= 0 ? HOOP_OK : hoop_errno_error(errno, "no descriptor for a stream");
}

hoop_result_t hoop_stream_get_fd(hoop_stream_t stream, int *fd)
{
    hoop_result_t result = HOOP_OK;
    if (fd == NULL) {
        return hoop_null_error("hoop_stream_get_fd", "fd");
    }
    struct hoop_queue *queue = stream_lock("hoop_stream_get_fd", stream, &result);
    if (queue != NULL) {
        result = stream_open_fd(queue);
        *fd = result == HOOP_OK ? queue->fd : *fd;
        hoop_progress_unlock();
    }
    return result;
}

/* ---- Tickets -------------------------------------------------------------------------------- */

hoop_result_t hoop_stream_record(hoop_stream_t stream, hoop_ticket_t *ticket)
{
    hoop_result_t result = HOOP_OK;
    if (ticket == NULL) {
        return hoop_null_error("hoop_stream_record", "ticket");
    }
    struct hoop_queue *queue = stream_lock("hoop_stream_record", stream, &result);
    if (queue != NULL) {
        *ticket = (hoop_ticket_t){.opaque = {queue->uid, hoop_queue_record(queue)}};
        hoop_progress_unlock();
    }
    return result;
}

/* *ret: the queue of a ticket; NULL: its stream was destroyed, and the result is lost. With the
 * lock. */
static hoop_result_t ticket_find(const char *function, const hoop_ticket_t *ticket,
                                 struct hoop_queue **ret)
{
    bool known = false;
    *ret = hoop_handle_find_uid(ticket->opaque[0], &known);
    const uint64_t number = ticket->opaque[1];
    if (known && number > 0 && (*ret == NULL || number <= (*ret)->tickets.given)) {
        return HOOP_OK;
    }
    return hoop_error(HOOP_INVALID_ARGUMENT,
                      "%s: {%llu, %llu} is not a ticket from hoop_stream_record()", function,
                      (unsigned long long)ticket->opaque[0], (unsigned long long)number);
}

/* The same; takes the lock first. On failure the lock is not held. */
static hoop_result_t ticket_lock(const char *function, const hoop_ticket_t *ticket,
                                 struct hoop_queue **ret)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    hoop_progress_lock();
    const hoop_result_t result = ticket_find(function, ticket, ret);
    if (result != HOOP_OK) {
        hoop_progress_unlock();
    }
    return result;
}

hoop_result_t hoop_ticket_query(hoop_ticket_t ticket)
{
    struct hoop_queue *queue = NULL;
    hoop_result_t result = ticket_lock("hoop_ticket_query", &ticket, &queue);
    if (result == HOOP_OK) {
        result = queue == NULL
                     ? HOOP_OK
                     : stream_tell(queue, hoop_tickets_result(&queue->tickets, ticket.opaque[1]));
        hoop_progress_unlock();
    }
    return stream_asked(result);
}

/* With the lock. */
static hoop_result_t ticket_await(struct hoop_queue *queue, uint64_t number, int timeout_ms)
{
    const uint64_t deadline =
        timeout_ms < 0 ? HOOP_NEVER : hoop_now_ns() + (uint64_t)timeout_ms * HOOP_NS_PER_MS;
    const int before = hoop_cancel_off();
    queue->pins++;
    if (timeout_ms == 0) {
        hoop_progress_look_in();
    }
    hoop_result_t result = hoop_progress_wait(queue, &queue->tickets.done, number, deadline);
    queue->pins--;
    hoop_cancel_restore(before);
    if (result == HOOP_OK) {
        result = stream_tell(queue, hoop_tickets_result(&queue->tickets, number));
    }
    return result == HOOP_TIMEOUT &&
                   hoop_tickets_result(&queue->tickets, number) == HOOP_IN_PROGRESS
               ? hoop_error(result, "the ticket is not complete after %d ms", timeout_ms)
               : result;
}

hoop_result_t hoop_ticket_wait(hoop_ticket_t ticket, int timeout_ms)
{
    struct hoop_queue *queue = NULL;
    hoop_result_t result = ticket_lock("hoop_ticket_wait", &ticket, &queue);
    if (result == HOOP_OK) {
        result = queue == NULL ? HOOP_OK : ticket_await(queue, ticket.opaque[1], timeout_ms);
        hoop_progress_unlock();
    }
    return result;
}

/* Makes the queue wait for the ticket, unless that is complete. True: item was queued. With the
 * lock. */
static bool ticket_push(struct hoop_queue *queue, struct hoop_queue *target, struct hoop_item *item)
{
    const bool over = target == NULL || target == queue ||
                      hoop_tickets_result(&target->tickets, item->number) != HOOP_IN_PROGRESS;
    if (!over) {
        item->target = target;
        hoop_queue_push(queue, item);
        hoop_progress_notify(queue);
    }
    return !over;
}

hoop_result_t hoop_stream_wait_ticket(hoop_stream_t stream, hoop_ticket_t ticket)
{
    static const char function[] = "hoop_stream_wait_ticket";
    struct hoop_queue *target = NULL;
    struct hoop_item *item = hoop_item_create(NULL, ticket.opaque[1]);
    if (item == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "%s: no memory", function);
    }
    hoop_result_t result = HOOP_OK;
    struct hoop_queue *queue = stream_lock(function, stream, &result);
    bool pushed = false;
    if (queue != NULL) {
        result = ticket_find(function, &ticket, &target);
        pushed = result == HOOP_OK && ticket_push(queue, target, item);
        hoop_progress_unlock();
    }
    if (!pushed) {
        free(item);
    }
    return result;
}

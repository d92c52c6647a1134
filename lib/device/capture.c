/* Calls that are captured into a graph (see capture.h). */
#include "device/capture.h"

#include "base/log.h"
#include "device/launch.h"
#include "device/pieces.h"
#include "runtime/service.h"
#include "stream/health.h"
#include "stream/progress.h"

#include <pthread.h>
#include <stdlib.h>

/* A room of a graph's calls on one stream; one of them runs at a time. Its word `let` is 0 from
 * before the copies to the host until the graph goes on, otherwise 1. `used` is 1 from before the
 * copies to the host until behind the copies back. */
struct room {
    unsigned long long graph; /* CUDA's number */
    uintptr_t stream;         /* identifies a stream of this graph (hoop_cuda_capturing_stream()) */
    struct hoop_room room;
    /* under the lock */
    size_t users;
    struct capture *inside; /* the last that began */
    bool torn;              /* two captures were in the room at once */
};

/* The captured calls of one piece of work, which runs each time that its graph does. */
struct capture {
    struct capture *next;
    struct room *room;
    struct hoop_pieces pieces;
    struct hoop_told *told; /* [count], if it runs on the device; NULL: through the host */
    const char *closed;     /* why it runs no more; NULL: it does */
    bool gone;              /* the graph no longer exists */
    bool logged;            /* the log has said that it is replayed in vain */
    bool runs, rung, over;  /* begun by the graph; its copies to the host, its piece are complete */
    bool *failed;           /* [count], valid when `over` */
    size_t count;
    struct hoop_work work[]; /* its comm becomes NULL when that ends */
};

static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER; /* CUDA is not called with it */
static struct capture *captures;
static const char captured_half[] = "it could not be captured as a whole"; /* why it is closed */

/* ---- Rooms ---------------------------------------------------------------------------------- */

/* The latest room of the graph and stream, with a user added; NULL: there is none. */
static struct room *room_find(unsigned long long graph, uintptr_t stream)
{
    pthread_mutex_lock(&captures_lock);
    const struct capture *at = captures;
    while (at != NULL && (at->room->graph != graph || at->room->stream != stream)) {
        at = at->next;
    }
    struct room *room = at != NULL ? at->room : NULL;
    if (room != NULL) {
        room->users++;
    }
    pthread_mutex_unlock(&captures_lock);
    return room;
}

/* Removes a user; the last one frees the room, for which it calls CUDA. Accepts NULL. */
static void room_leave(struct room *room)
{
    if (room == NULL) {
        return;
    }
    pthread_mutex_lock(&captures_lock);
    const bool last = --room->users == 0;
    pthread_mutex_unlock(&captures_lock);
    if (last) {
        hoop_room_finish(&room->room);
        free(room);
    }
}

/* With one user. */
static hoop_result_t room_create(hoop_cu_context_t context, unsigned long long graph,
                                 uintptr_t stream, size_t bytes, struct room **ret)
{
    struct room *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for calls of a graph");
    }
    *made = (struct room){.graph = graph, .stream = stream, .users = 1};
    const hoop_result_t result = hoop_room_init(&made->room, context, bytes);
    if (result != HOOP_OK) {
        room_leave(made);
        return result;
    }
    atomic_store_explicit(made->room.let, 1, memory_order_relaxed);
    *ret = made;
    return HOOP_OK;
}

/* A room of at least so many bytes, with a user added. If the latest is too small the new one has
 * at least twice its size. */
static hoop_result_t room_enter(hoop_cu_context_t context, unsigned long long graph,
                                uintptr_t stream, size_t bytes, struct room **ret)
{
    struct room *last = room_find(graph, stream);
    if (last != NULL && hoop_room_fits(&last->room, bytes)) {
        *ret = last;
        return HOOP_OK;
    }
    const size_t least = last != NULL ? 2 * last->room.memory.host_bytes : 0;
    room_leave(last);
    return room_create(context, graph, stream, bytes > least ? bytes : least, ret);
}

/* ---- What is kept --------------------------------------------------------------------------- */

/* Calls CUDA. */
static void capture_free(struct capture *capture)
{
    hoop_pieces_finish(&capture->pieces);
    room_leave(capture->room);
    hoop_work_finish(capture->work, capture->count);
    free(capture->told);
    free(capture->failed);
    free(capture);
}

/* Takes over what the requests own. NULL: no memory; that is freed then. */
static struct capture *capture_create(const struct hoop_work *work, size_t count,
                                      hoop_stream_t stream)
{
    struct capture *made = calloc(1, sizeof(*made) + count * sizeof(*work));
    bool *failed = calloc(count, sizeof(*failed));
    if (made == NULL || failed == NULL) {
        hoop_work_finish(work, count);
        free(made);
        free(failed);
        return NULL;
    }
    made->failed = failed;
    made->count = count;
    for (size_t i = 0; i < count; i++) {
        made->work[i] = work[i];
    }
    if (!hoop_pieces_init(&made->pieces, count, stream)) {
        capture_free(made);
        return NULL;
    }
    return made;
}

/* Adds the capture to the list, and to the counts of its comms. */
static void captures_add(struct capture *capture)
{
    pthread_mutex_lock(&captures_lock);
    capture->next = captures;
    captures = capture;
    for (size_t i = 0; i < capture->count; i++) {
        atomic_fetch_add(&capture->work[i].comm->captured, 1);
    }
    pthread_mutex_unlock(&captures_lock);
}

/* With the lock: is its graph gone, and nothing in its room, as a failed device might have left? */
static bool capture_is_gone(const struct capture *capture)
{
    const struct hoop_room *room = &capture->room->room;
    return capture->gone && atomic_load_explicit(room->let, memory_order_acquire) != 0 &&
           atomic_load_explicit(room->used, memory_order_acquire) == 0;
}

/* Unlinks a capture that is gone, or NULL. */
static struct capture *captures_take_gone(void)
{
    pthread_mutex_lock(&captures_lock);
    struct capture **at = &captures;
    while (*at != NULL && !capture_is_gone(*at)) {
        at = &(*at)->next;
    }
    struct capture *taken = *at;
    *at = taken != NULL ? taken->next : NULL;
    pthread_mutex_unlock(&captures_lock);
    return taken;
}

static void captures_free_gone(void)
{
    struct capture *gone = NULL;
    while ((gone = captures_take_gone()) != NULL) {
        capture_free(gone);
    }
}

void hoop_capture_close(const struct hoop_comm *comm)
{
    if (hoop_is_forked()) {
        return; /* nothing is replayed in a child */
    }
    pthread_mutex_lock(&captures_lock);
    for (struct capture *at = captures; at != NULL; at = at->next) {
        for (size_t i = 0; i < at->count; i++) {
            if (at->work[i].comm == comm) {
                at->work[i].comm = NULL;
                at->closed = "another communicator of the group has ended";
            }
        }
    }
    pthread_mutex_unlock(&captures_lock);
}

void hoop_capture_free_gone(void)
{
    if (!hoop_is_forked() && hoop_pin_try()) {
        const int before = hoop_cancel_off();
        captures_free_gone();
        hoop_pin_end();
        hoop_cancel_restore(before);
    } /* else the next call of this function does it */
}

/* ---- Each time that the graph runs ---------------------------------------------------------- */

/* With the lock: lets the graph go on if its copies to the host and the piece are both over. Then
 * the output is in the room, or is marked as no result. */
static void capture_let_go(struct capture *capture)
{
    if (!capture->runs || !capture->rung || !capture->over) {
        return;
    }
    capture->runs = false;
    for (size_t i = 0; i < capture->count; i++) {
        if (capture->told != NULL) {
            hoop_told_tell_nothing(&capture->told[i]);
        } else if (capture->failed[i]) {
            hoop_pieces_spoil(&capture->pieces, i);
        }
    }
    hoop_room_let_go(&capture->room->room, 1);
}

static void capture_ended(void *arg, const struct hoop_batch *batch)
{
    struct capture *capture = arg;
    pthread_mutex_lock(&captures_lock);
    for (size_t i = 0; i < capture->count; i++) {
        capture->failed[i] = hoop_batch_has_failed(batch, i);
    }
    capture->over = true;
    capture_let_go(capture);
    pthread_mutex_unlock(&captures_lock);
}

/* False: no memory. */
static bool capture_push(struct capture *capture)
{
    struct hoop_work *copy = calloc(capture->count, sizeof(*copy));
    struct hoop_piece *piece = NULL;
    if (copy != NULL && hoop_work_copy(capture->work, capture->count, copy)) {
        piece = hoop_piece_create(copy, capture->count, 1, false);
    }
    free(copy);
    if (piece == NULL) {
        return false;
    }
    piece->ended = capture_ended;
    piece->ended_arg = capture;
    hoop_result_t refused = HOOP_OK; /* its work failed, as capture_ended() will see */
    if (hoop_progress_push(piece, &refused) != HOOP_OK) {
        hoop_piece_release(piece);
        return false;
    }
    return true;
}

/* With the lock, like the next three functions: fails the comms of all calls. */
static void capture_fail(const struct capture *capture, hoop_result_t code, const char *why)
{
    for (size_t i = 0; i < capture->count; i++) {
        struct hoop_comm *comm = capture->work[i].comm;
        if (comm != NULL) {
            hoop_comm_raise(comm, code, (int)comm->rank, "rank %u: %s", comm->rank, why);
        }
    }
}

/* Why a call can't run; NULL: it can. Fails the comm for that on all ranks, unless it has ended. */
static const char *work_refuse(const struct hoop_work *work, const char *closed)
{
    struct hoop_comm *comm = work->comm;
    if (comm == NULL) {
        return "its communicator has ended";
    }
    if (hoop_comm_state(comm, NULL) != HOOP_OK) {
        return "its communicator has failed";
    }
    if (closed == NULL && (atomic_load(&comm->closed) & HOOP_COMM_FINALIZED) != 0) {
        closed = "its communicator was finalized";
    }
    if (closed != NULL) {
        hoop_comm_raise(comm, HOOP_INVALID_USAGE, (int)comm->rank,
                        "rank %u: a captured call was replayed, but %s", comm->rank, closed);
    }
    return closed;
}

/* Why the capture can't run; NULL: all its calls can. */
static const char *capture_refuse(const struct capture *capture)
{
    const char *why = NULL;
    for (size_t i = 0; i < capture->count; i++) {
        const char *refused = work_refuse(&capture->work[i], capture->closed);
        why = refused != NULL ? refused : why;
    }
    return why;
}

/* With the lock, while nothing in the room runs. */
static void capture_run(struct capture *capture)
{
    hoop_pieces_begin(&capture->pieces);
    capture->runs = true;
    capture->over = false;
    /* On the device there is nothing to copy, and half a graph may have no node that rings. */
    capture->rung = capture->told != NULL || capture->closed == captured_half;
    atomic_store_explicit(capture->room->room.came, capture->rung, memory_order_release);
    for (size_t i = 0; i < capture->count && capture->told != NULL; i++) {
        capture->told[i].told = 0;
    }
    const bool pushed = capture->closed == NULL && capture_push(capture);
    if (capture->closed == NULL && !pushed) {
        capture_fail(capture, HOOP_OUT_OF_MEMORY, "no memory for the calls of a graph");
    }
    for (size_t i = 0; i < capture->count && !pushed; i++) {
        capture->failed[i] = capture->over = true;
    }
    capture_let_go(capture);
}

/* On CUDA's thread, before the copies to the host: from here on they write to the room. */
static void capture_begin(void *arg)
{
    static const char torn[] = "two graphs with the same captured calls run at the same time";
    struct capture *capture = arg;
    pthread_mutex_lock(&captures_lock);
    struct room *room = capture->room;
    room->torn |= atomic_exchange_explicit(room->room.used, 1, memory_order_acq_rel) != 0;
    if (room->torn) {
        capture_fail(room->inside, HOOP_INVALID_USAGE, torn);
        capture_fail(capture, HOOP_INVALID_USAGE, torn);
    }
    const char *why = capture_refuse(capture);
    if (!room->torn) {
        room->inside = capture;
        capture_run(capture);
    } /* else both have failed, and the end of the one that runs lets both go on */
    const bool logs = why != NULL && !capture->logged;
    capture->logged |= logs;
    pthread_mutex_unlock(&captures_lock);
    hoop_health_notify();
    if (logs) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_COMM,
                 "a captured call was replayed, but %s: it did nothing, and its output in device "
                 "memory %s",
                 why, capture->told != NULL ? "is as it was" : "is filled with 0xff bytes");
    }
}

/* On CUDA's thread: the copies to the host are done. */
static void capture_ring(void *arg)
{
    struct capture *capture = arg;
    atomic_fetch_add_explicit(capture->room->room.came, 1, memory_order_release);
    hoop_wake(hoop_progress_sleeper()->wake_fd);
    pthread_mutex_lock(&captures_lock);
    capture->rung = true;
    capture_let_go(capture);
    for (size_t i = 0; i < capture->count && capture->room->torn; i++) {
        hoop_staging_spoil(&capture->pieces.stagings[i]);
    }
    pthread_mutex_unlock(&captures_lock);
}

/* On CUDA's thread: the graph and all made of it is gone: the capture will not run again. */
static void capture_end(void *arg)
{
    struct capture *capture = arg;
    pthread_mutex_lock(&captures_lock);
    for (size_t i = 0; i < capture->count && !capture->gone; i++) {
        if (capture->work[i].comm != NULL) {
            atomic_fetch_sub(&capture->work[i].comm->captured, 1);
        }
    }
    capture->gone = true;
    pthread_mutex_unlock(&captures_lock);
}

/* ---- When devices have failed --------------------------------------------------------------- */

/* With the lock: does the driver wait for the device? */
static bool capture_is_awaited(const struct capture *capture)
{
    return capture->runs && (capture->told != NULL || !capture->rung);
}

static hoop_cu_context_t captures_next(hoop_cu_context_t after)
{
    hoop_cu_context_t next = NULL;
    pthread_mutex_lock(&captures_lock);
    for (const struct capture *at = captures; at != NULL; at = at->next) {
        if (capture_is_awaited(at)) {
            next = hoop_health_better(next, after, at->room->room.memory.context);
        }
    }
    pthread_mutex_unlock(&captures_lock);
    return next;
}

static bool captures_wait(hoop_cu_context_t context, uint64_t comm_id)
{
    bool wait = false;
    pthread_mutex_lock(&captures_lock);
    for (const struct capture *at = captures; at != NULL && !wait; at = at->next) {
        const bool waits = capture_is_awaited(at) && at->room->room.memory.context == context;
        for (size_t i = 0; i < at->count && waits; i++) {
            wait |= at->work[i].comm != NULL && at->work[i].comm->id == comm_id;
        }
    }
    pthread_mutex_unlock(&captures_lock);
    return wait;
}

/* Graphs that copy to the host are never let go, and keep their rooms. */
static void captures_break(hoop_cu_context_t context)
{
    pthread_mutex_lock(&captures_lock);
    for (const struct capture *at = captures; at != NULL; at = at->next) {
        if (capture_is_awaited(at) && at->room->room.memory.context == context) {
            hoop_told_break(at->told, at->count);
        }
    }
    pthread_mutex_unlock(&captures_lock);
}

static struct hoop_health_asker captures_asker = {
    .next = captures_next, .waits = captures_wait, .broke = captures_break};

/* ---- Capturing ------------------------------------------------------------------------------ */

/* Enters a room for all calls of the capture. */
static hoop_result_t capture_enter(struct capture *capture, unsigned long long graph,
                                   hoop_stream_t stream)
{
    hoop_cu_context_t context = NULL;
    size_t bytes = 0;
    hoop_result_t result = hoop_room_need(capture->work, capture->count, stream, &bytes);
    if (result == HOOP_OK) {
        result = hoop_cuda_stream_find(stream, &context);
    }
    if (result != HOOP_OK) {
        return result;
    }
    struct hoop_told *told = hoop_launch_tell_later(capture->work, capture->count);
    bytes = told != NULL ? hoop_room_told_bytes(told, capture->work, capture->count) : bytes;
    capture->told = told;
    result = room_enter(context, graph, hoop_cuda_capturing_stream(stream), bytes, &capture->room);
    return told != NULL && result == HOOP_OK
               ? hoop_room_make_told(&capture->room->room, told, capture->work, capture->count)
               : result;
}

static const char capture_calls_host[] = "cuLaunchHostFunc on a stream that captures";

/* In the context: adds the nodes between begin and end to the graph, for calls through the host. */
static hoop_result_t capture_record_copies(struct capture *capture)
{
    const struct hoop_pieces *pieces = &capture->pieces;
    hoop_result_t result = hoop_pieces_fetch(pieces);
    if (result == HOOP_OK) {
        result = hoop_cuda_check(capture_calls_host,
                                 hoop_cuda.host_function(pieces->stream, capture_ring, capture));
    }
    return result == HOOP_OK ? hoop_pieces_deliver(pieces, 1) : result;
}

/* In the context: adds the nodes to the graph. */
static hoop_result_t capture_record(struct capture *capture)
{
    const struct hoop_pieces *pieces = &capture->pieces;
    hoop_stream_t own = NULL; /* made now, for the health thread to query */
    hoop_result_t result = hoop_cuda_stream(capture->room->room.memory.context, &own);
    if (result == HOOP_OK) {
        result = hoop_cuda_check(capture_calls_host,
                                 hoop_cuda.host_function(pieces->stream, capture_begin, capture));
    }
    if (result == HOOP_OK) {
        result = capture->told != NULL
                     ? hoop_room_put_kernels(pieces->room, pieces->stream, capture->told,
                                             capture->work, capture->count, 1)
                     : capture_record_copies(capture);
    }
    return hoop_room_leave_after(pieces->room, pieces->stream, result);
}

/* Adds the capture to the list and to the graph. Takes it over, also on failure. */
static hoop_result_t capture_add(struct capture *capture, hoop_cu_graph_t graph)
{
    hoop_result_t result = hoop_cuda_enter(capture->room->room.memory.context);
    if (result != HOOP_OK) {
        capture_free(capture);
        return result;
    }
    captures_add(capture);
    result = hoop_cuda_watch_graph(graph, capture_end, capture);
    if (result == HOOP_OK) {
        result = capture_record(capture);
    }
    hoop_cuda_leave();
    if (result != HOOP_OK) {
        pthread_mutex_lock(&captures_lock);
        capture->closed = captured_half;
        pthread_mutex_unlock(&captures_lock);
    }
    return result;
}

/* Should not all ranks' buffers be on devices after all, the copies of a call are made on hoop's
 * own stream: by then the one that captured may be gone. */
static hoop_result_t capture_place_there(struct capture *capture)
{
    struct hoop_room *room = &capture->room->room;
    capture->pieces.room = room;
    room->counted = 0;
    for (size_t i = 0; i < capture->count; i++) {
        capture->work[i].request.stream = NULL;
    }
    return hoop_room_tell(room, capture->told, capture->work, capture->count, 0,
                          capture->pieces.flows);
}

/* Gives the calls their places in the room. */
static hoop_result_t capture_place(struct capture *capture)
{
    if (capture->told != NULL) {
        return capture_place_there(capture);
    }
    struct hoop_pieces *pieces = &capture->pieces;
    struct hoop_cuts cuts = {{NULL}};
    pieces->room = &capture->room->room;
    pieces->cuts = &cuts;
    hoop_result_t result = hoop_room_place(pieces->room, capture->work, capture->count,
                                           pieces->stream, pieces->stagings);
    pieces->room->counted = 0;
    if (result == HOOP_OK && !hoop_pieces_cut(pieces, capture->work, 0)) {
        result = hoop_error(HOOP_OUT_OF_MEMORY, "no memory for calls of a graph");
    }
    pieces->cuts = NULL;
    hoop_cuts_finish(&cuts);
    return result;
}

/* Pins memory and frees some, so no stream may be held. */
static hoop_result_t capture_put(struct hoop_work *work, size_t count, hoop_stream_t stream)
{
    captures_free_gone();
    struct capture *capture = capture_create(work, count, stream);
    if (capture == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu calls of a graph", count);
    }
    hoop_cu_graph_t graph = NULL;
    unsigned long long number = 0;
    hoop_result_t result = hoop_progress_start();
    if (result == HOOP_OK && !hoop_health_start(&captures_asker)) {
        result = hoop_error(HOOP_OUT_OF_MEMORY, "no thread that watches devices");
    }
    if (result == HOOP_OK) {
        result = hoop_cuda_find_graph(stream, &graph, &number);
    }
    if (result == HOOP_OK) {
        result = capture_enter(capture, number, stream);
    }
    if (result == HOOP_OK) {
        result = capture_place(capture);
    }
    if (result != HOOP_OK) {
        capture_free(capture);
        return result;
    }
    hoop_progress_suit(work[0].comm);
    return capture_add(capture, graph);
}

hoop_result_t hoop_capture_put(struct hoop_work *work, size_t count, hoop_stream_t stream)
{
    hoop_result_t result = hoop_pin_begin(work[0].comm->op_timeout_ms);
    if (result != HOOP_OK) {
        hoop_work_finish(work, count);
        return result;
    }
    result = capture_put(work, count, stream);
    hoop_pin_end();
    return result;
}

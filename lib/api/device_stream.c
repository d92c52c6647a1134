/* Calls with buffers on devices, or on CUDA streams (see device_stream.h). */
#include "api/device_stream.h"

#include "base/clock.h"
#include "base/collective.h"
#include "device/capture.h"
#include "device/launch.h"
#include "memory/cuda.h"
#include "runtime/process.h"
#include "runtime/service.h"
#include "stream/progress.h"

/* ---- Where buffers lie ----------------------------------------------------------------------- */

static hoop_result_t legacy_captures(const char *function)
{
    return hoop_error(HOOP_UNSUPPORTED,
                      "%s: the legacy default stream (NULL) can't be used while another one "
                      "captures a graph; pass a stream of its own",
                      function);
}

hoop_result_t hoop_device_stream_check(const char *function, hoop_stream_t stream)
{
    int capturing = 0;
    if (!hoop_cuda_load()) {
        return hoop_error(
            HOOP_UNSUPPORTED,
            "%s: stream %p is neither from hoop_stream_create() nor a CUDA stream: %s", function,
            (void *)stream, (hoop_cuda_need(), hoop_thread_error()));
    }
    const int error = hoop_cuda.stream_capturing(stream, &capturing);
    if (error == HOOP_CU_CAPTURE_IMPLICIT) {
        return legacy_captures(function);
    }
    if (error == HOOP_CU_INVALID_HANDLE || error == HOOP_CU_INVALID_VALUE) {
        (void)hoop_cuda_check("cuStreamIsCapturing", error);
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: stream %p is not a CUDA stream: %s", function,
                          (void *)stream, hoop_thread_error());
    }
    /* Other errors come from an earlier kernel. The operation will meet them and tell all ranks. */
    return capturing == 0 || capturing == HOOP_CU_CAPTURE_ACTIVE || error != HOOP_CU_SUCCESS
               ? HOOP_OK
               : hoop_error(HOOP_INVALID_USAGE,
                            "%s: stream %p captures a graph, but the capture has failed", function,
                            (void *)stream);
}

/* Any other error is left to the operation, which tells all ranks. */
static hoop_result_t legacy_check(const char *function, hoop_cu_context_t context)
{
    int capturing = 0, error = HOOP_CU_SUCCESS;
    if (hoop_cuda_enter(context) == HOOP_OK) {
        error = hoop_cuda.stream_capturing(NULL, &capturing);
        hoop_cuda_leave();
    }
    return error == HOOP_CU_CAPTURE_IMPLICIT ? legacy_captures(function) : HOOP_OK;
}

/* CUDA does not know the buffer: it must be host memory, unless it was device memory that has been
 * freed. */
static hoop_result_t host_check(const char *function, const void *buffer, size_t bytes)
{
    return hoop_process_can_read(buffer, bytes)
               ? HOOP_OK
               : hoop_error(HOOP_INVALID_ARGUMENT,
                            "%s: the %zu bytes at %p are neither device memory (any more) nor host "
                            "memory that can be read",
                            function, bytes, buffer);
}

/* host_check() for the buffers of a collective that are not on a device. */
static hoop_result_t request_check_host(const char *function, const struct hoop_device_call *call,
                                        const struct hoop_request *request)
{
    const struct hoop_collective_row *row = &hoop_collectives[request->signature.collective];
    hoop_result_t result = HOOP_OK;
    if (request->look.in == NULL) {
        result = host_check(function, request->in, hoop_device_buffers_bytes(call, row->in));
    }
    if (request->look.out == NULL && result == HOOP_OK) {
        result = host_check(function, request->out, hoop_device_buffers_bytes(call, row->out));
    }
    return result;
}

static hoop_cu_context_t request_context(const struct hoop_request *request)
{
    return request->look.out != NULL ? request->look.out : request->look.in;
}

hoop_result_t hoop_device_look(const char *function, const struct hoop_comm *comm,
                               struct hoop_request *request)
{
    const struct hoop_device_call call = {
        .signature = &request->signature, .me = comm->rank, .n = comm->n};
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    /* If the look-up fails the operation will meet the error, and tell all ranks. */
    const hoop_result_t result =
        hoop_device_buffers_look(&call, request->in, request->out, &request->look) == HOOP_OK
            ? request_check_host(function, &call, request)
            : HOOP_OK;
    if (result != HOOP_OK) {
        return result;
    }
    const hoop_cu_context_t context = request_context(request);
    return request->stream == NULL && context != NULL ? legacy_check(function, context) : HOOP_OK;
}

hoop_result_t hoop_device_look_transfer(const char *function, struct hoop_transfer *transfer,
                                        hoop_stream_t stream)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    if (hoop_device_buffers_look_transfer(transfer) == HOOP_OK && transfer->context == NULL) {
        return host_check(function, transfer->data, transfer->bytes);
    }
    return stream == NULL && transfer->context != NULL ? legacy_check(function, transfer->context)
                                                       : HOOP_OK;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

/* What CUDA must know of a call to order it. Without context and stream it is a host call. */
struct device_call {
    struct hoop_comm *comm;
    hoop_cu_context_t context;
    hoop_stream_t stream;
    size_t bytes;  /* of staging memory, for the call or all transfers that run with it */
    bool may_stay; /* it needs no staging memory if it runs on the device */
};

static bool call_is_of_host(const struct device_call *call)
{
    return call->context == NULL && call->stream == NULL;
}

/* A call with host buffers only is ordered in the context of the comm's earlier calls. */
static hoop_cu_context_t call_context(const struct device_call *call)
{
    return call->context != NULL ? call->context : atomic_load(&call->comm->ahead.context);
}

static hoop_cu_context_t transfers_context(const struct hoop_transfer *first)
{
    const struct hoop_transfer *at = first;
    while (at != NULL && at->context == NULL) {
        at = at->next;
    }
    return at != NULL ? at->context : NULL;
}

/* Calls fn for the work's call, or for each of its transfers, until fn returns false. */
static bool work_each(struct hoop_work *work, bool (*fn)(void *arg, const struct device_call *call),
                      void *arg)
{
    struct hoop_request *request = &work->request;
    const uint32_t collective = request->signature.collective;
    const struct hoop_device_call what = {.signature = &request->signature,
                                          .me = work->comm->rank,
                                          .n = work->comm->n,
                                          .look = &request->look};
    struct device_call call = {
        .comm = work->comm,
        .context = collective == HOOP_COLL_ALLTOALLV ? transfers_context(request->out)
                                                     : request_context(request),
        .stream = request->stream,
        .bytes = hoop_device_buffers_need(&what, request->in, request->out),
        .may_stay = collective < HOOP_COLL_COUNT && collective != HOOP_COLL_ALLTOALLV,
    };
    if (collective != HOOP_TRANSFER) {
        return fn(arg, &call);
    }
    bool goes_on = true;
    for (struct hoop_transfer *at = request->out; at != NULL && goes_on; at = at->next) {
        call.context = at->context;
        call.stream = at->stream;
        goes_on = fn(arg, &call);
    }
    return goes_on;
}

static bool works_each(struct hoop_work *work, size_t count,
                       bool (*fn)(void *arg, const struct device_call *call), void *arg)
{
    bool goes_on = true;
    for (size_t i = 0; i < count && goes_on; i++) {
        goes_on = work_each(&work[i], fn, arg);
    }
    return goes_on;
}

/* ---- Calls that wait for their result -------------------------------------------------------- */

static bool call_learn(void *arg, const struct device_call *call)
{
    (void)arg;
    if (!call_is_of_host(call) && hoop_progress_start() == HOOP_OK) {
        hoop_comm_learn(call->comm, call->stream, call->bytes);
    }
    return true;
}

/* A context in which the call's stream can be named; NULL: there is none. */
static hoop_cu_context_t call_any_context(const struct device_call *call)
{
    hoop_cu_context_t context = call_context(call);
    return context != NULL || hoop_cuda_stream_find(call->stream, &context) == HOOP_OK ? context
                                                                                       : NULL;
}

/* Is work pending on the call's stream? Errors are left to the operation. */
static bool call_is_ahead(const struct device_call *call, hoop_cu_context_t context)
{
    bool busy = false;
    if (hoop_cuda_enter(hoop_cuda_stream_context(call->stream, context)) == HOOP_OK) {
        busy = hoop_cuda.stream_query(call->stream) == HOOP_CU_NOT_READY;
        hoop_cuda_leave();
    }
    return busy;
}

/* A graph on the stream may hold calls on the same comm, which need its turn. So the call takes the
 * turn only when the stream has come to it, or after the time limit of an operation. */
static bool call_let_graphs_by(void *arg, const struct device_call *call)
{
    struct hoop_comm *comm = call->comm;
    struct hoop_bell *bell = NULL;
    const uint64_t deadline_ns = hoop_deadline_ns(comm->op_timeout_ms);
    (void)arg;
    if (atomic_load(&comm->captured) == 0 || call_is_of_host(call)) {
        return true;
    }
    const hoop_cu_context_t context = call_any_context(call);
    if (!call_is_ahead(call, context)) {
        return true;
    }
    const bool hangs = hoop_bell_hang(context, call->stream, -1, &bell) == HOOP_OK;
    while (hangs && !hoop_bell_has_rung(bell) && call_is_ahead(call, context) &&
           hoop_now_ns() < deadline_ns && hoop_comm_state(comm, NULL) == HOOP_OK) {
        hoop_wait_briefly();
    }
    hoop_bell_release(bell);
    return true;
}

/* Counts the calls that wait in line or run, for threads that launch calls behind them. */
static void works_await(const struct hoop_work *work, size_t count, bool awaits)
{
    for (size_t i = 0; i < count; i++) {
        if (!hoop_operation_is_of_host(&work[i].request)) {
            atomic_fetch_add(&work[i].comm->awaited, awaits ? 1u : UINT32_MAX);
        }
    }
}

static hoop_result_t device_run(struct hoop_work *work, size_t count)
{
    (void)works_each(work, count, call_let_graphs_by, NULL);
    works_await(work, count, true);
    const hoop_result_t result =
        count == 1 ? hoop_comm_submit(work[0].comm, &work[0].request) : hoop_batch_run(work, count);
    works_await(work, count, false);
    if (result == HOOP_OK && hoop_hold_is_possible() && hoop_work_is_whole(work, count)) {
        (void)works_each(work, count, call_learn, NULL);
    }
    hoop_work_finish(work, count);
    return result;
}

/* ---- Ahead of their streams ----------------------------------------------------------------- */

static bool call_count(void *arg, const struct device_call *call)
{
    ++*(size_t *)arg;
    return !call_is_of_host(call);
}

/* Adds the call's stream to the order. False: the stream may not be held. */
static bool call_add(void *arg, const struct device_call *call)
{
    const hoop_cu_context_t context = call_context(call);
    const bool may =
        atomic_load(&call->comm->captured) == 0 &&
        hoop_ahead_may(&call->comm->ahead, context, call->stream, call->bytes, call->may_stay);
    if (may) {
        hoop_order_add(arg, context, call->stream);
    }
    return may;
}

/* The order of a call that is queued ahead of its streams; NULL: it can't be. */
static struct hoop_stream_order *device_order(struct hoop_work *work, size_t count)
{
    size_t calls = 0;
    if (!hoop_hold_is_possible() || hoop_is_forked() ||
        !works_each(work, count, call_count, &calls)) {
        return NULL;
    }
    struct hoop_stream_order *order = hoop_order_create(calls);
    if (order != NULL && works_each(work, count, call_add, order) &&
        hoop_work_is_whole(work, count) &&
        hoop_order_begin(order, hoop_progress_sleeper()->wake_fd) == HOOP_OK) {
        return order;
    }
    hoop_order_destroy(order);
    return NULL;
}

/* Queues the work as a piece, and puts the holds on the streams. An error that is returned for a
 * failed comm means that no call runs. The order is moved. */
static hoop_result_t device_push(struct hoop_work *work, size_t count,
                                 struct hoop_stream_order *order)
{
    for (size_t i = 0; i < count; i++) {
        work[i].request.bell = order->bell;
    }
    struct hoop_piece *piece = hoop_piece_create(work, count, 1, true);
    if (piece == NULL) {
        hoop_order_destroy(order);
        return hoop_work_fail(
            work, count,
            hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu calls on a stream", count));
    }
    const struct hoop_hold hold = order->hold;
    piece->order = order;
    piece->batch.unhurried = true;
    hoop_progress_suit(work[0].comm);
    hoop_result_t refused = HOOP_OK;
    hoop_result_t result = hoop_progress_push(piece, &refused);
    if (result == HOOP_OK) {
        result = hoop_order_hold(order, &hold); /* on failure a stream does not wait for it */
    } else {
        hoop_piece_release(piece); /* the reference of its item */
    }
    if (result != HOOP_OK) {
        hoop_work_fail(work, count, result);
    }
    hoop_piece_release(piece);
    return result == HOOP_OK ? refused : result;
}

/* What is known of the streams of the calls. */
struct device_streams {
    hoop_stream_t last;
    bool any, captures, others; /* there are calls; one captures; there are several streams */
    bool failed;                /* a capture has failed, after the call that named its stream */
};

/* ---- Captured into a graph ------------------------------------------------------------------ */

static bool call_look_at_stream(void *arg, const struct device_call *call)
{
    struct device_streams *streams = arg;
    int capturing = 0;
    const bool same = streams->any && call->stream == streams->last;
    if (call->stream != NULL && !same) {
        (void)hoop_cuda.stream_capturing(call->stream, &capturing);
        streams->captures |= capturing != 0;
        streams->failed |= capturing != 0 && capturing != HOOP_CU_CAPTURE_ACTIVE;
    }
    streams->others |= streams->any && !same;
    streams->any = true;
    streams->last = call->stream;
    return true;
}

/* Can calls on comm be captured? HOOP_UNSUPPORTED: no; the error text lacks its beginning. */
static hoop_result_t capture_check_comm(const struct hoop_comm *comm)
{
    const hoop_result_t result = hoop_cuda_need_graphs();
    if (result != HOOP_OK) {
        return result;
    }
    /* Streams of a process may share a queue, where one that is held keeps the others back. */
    return comm->here <= 1
               ? HOOP_OK
               : hoop_error(HOOP_UNSUPPORTED,
                            "calls can't be captured where a process has several ranks of a "
                            "communicator, and this one has %u",
                            comm->here);
}

/* Why the work can't be put into the graph that its stream captures. */
static hoop_result_t capture_check(const struct hoop_work *work, size_t count,
                                   const struct device_streams *streams)
{
    hoop_result_t result = HOOP_OK;
    if (streams->failed) {
        result = hoop_error(HOOP_INVALID_USAGE,
                            "a stream of the group captures a graph, but the capture has failed");
    } else if (streams->others) {
        result = hoop_error(HOOP_INVALID_USAGE, "a stream of the group captures a graph: expected "
                                                "all calls of the group on that stream");
    }
    for (size_t i = 0; i < count && result == HOOP_OK; i++) {
        result = hoop_comm_refuse(work[i].comm);
        result = result == HOOP_OK ? capture_check_comm(work[i].comm) : result;
        result = result == HOOP_OK ? HOOP_OK
                                   : hoop_error(result, "stream %p captures a graph: %s",
                                                (void *)streams->last, hoop_thread_error());
    }
    return result;
}

/* What can't be captured though it is no mistake, because CUDA refuses it, say, fails the comms, as
 * it does for calls that are not captured: replays of other ranks would wait for it. */
static hoop_result_t device_capture(struct hoop_work *work, size_t count,
                                    const struct device_streams *streams)
{
    hoop_result_t result = capture_check(work, count, streams);
    if (result != HOOP_OK) {
        hoop_work_finish(work, count);
        return result;
    }
    result = hoop_capture_put(work, count, streams->last);
    return result == HOOP_OK ? HOOP_OK : hoop_work_fail(work, count, result);
}

hoop_result_t hoop_device_check_group(struct hoop_work *work, size_t count, bool host)
{
    struct device_streams streams = {.last = NULL};
    (void)works_each(work, count, call_look_at_stream, &streams);
    if (streams.captures && host) {
        return hoop_error(HOOP_INVALID_USAGE, "a stream of the group captures a graph, but others "
                                              "are host streams");
    }
    return streams.captures ? capture_check(work, count, &streams) : HOOP_OK;
}

hoop_result_t hoop_device_submit(struct hoop_work *work, size_t count)
{
    const int before = hoop_cancel_off();
    struct device_streams streams = {.last = NULL};
    (void)works_each(work, count, call_look_at_stream, &streams);
    const bool runs = count > 0 && !streams.captures;
    struct hoop_launch *launch = runs ? hoop_launch_create(work, count) : NULL;
    struct hoop_stream_order *order = runs && launch == NULL ? device_order(work, count) : NULL;
    const hoop_result_t result = streams.captures ? device_capture(work, count, &streams)
                                 : launch != NULL ? hoop_launch_run(launch, work, count)
                                 : order != NULL  ? device_push(work, count, order)
                                                  : device_run(work, count);
    hoop_cancel_restore(before);
    return result;
}

/*
 * See perf_run.h. All threads of all processes go through the same cases and sizes; what decides
 * their path is computed from the options or agreed on.
 *
 * In timed iterations the window moves through the buffer, so that small sizes do not profit from
 * data that the iteration before left in caches.
 */
#include "perf/perf_run.h"

#include <stdlib.h>

#include "perf/perf_bound.h"
#include "perf/perf_clock.h"
#include "perf/perf_device.h"
#include "perf/perf_failure.h"
#include "perf/perf_memory.h"
#include "perf/perf_part.h"
#include "perf/perf_times.h"

/* The state of a thread; lives as long as the thread. */
struct sweep {
    struct perf_thread *thread;
    const struct perf_options *options;
    const struct perf_collective *collective;
    struct perf_case data;
    struct perf_part *parts; /* one for each of the thread's ranks */
    size_t room;             /* bytes of a buffer that windows may use */
    size_t stride;           /* bytes from one window to the next */
    size_t windows;          /* how many fit, at least 1 */
    size_t window;           /* the next one to use */
    double *times;           /* of each iteration, with -I */
    double *sorted;
    struct perf_row row;
};

/* ---- Operations ------------------------------------------------------------------------------ */

static void sweep_aim(struct sweep *sweep, size_t window)
{
    for (int i = 0; i < sweep->options->gpus; i++) {
        struct perf_part *part = &sweep->parts[i];
        part->call.send = part->send + window * sweep->stride;
        part->call.recv = part->recv + window * sweep->stride;
    }
}

/* Calls the operation on all of the thread's ranks. */
static hoop_result_t sweep_start(struct sweep *sweep)
{
    hoop_result_t result = HOOP_OK;
    for (int i = 0; i < sweep->options->gpus && result == HOOP_OK; i++) {
        result = sweep->collective->start(&sweep->parts[i].call);
    }
    if (sweep->options->blocking == PERF_BLOCKING_BARRIER) {
        for (int i = 0; i < sweep->options->gpus && result == HOOP_OK; i++) {
            result = hoop_barrier(sweep->parts[i].rank->comm, sweep->parts[i].call.stream);
        }
    }
    return result;
}

static hoop_result_t sweep_grouped(struct sweep *sweep, int operations)
{
    bool group = operations > 1 || sweep->options->gpus > 1 || sweep->collective->grouped;
    hoop_result_t result = group ? hoop_group_start() : HOOP_OK;
    for (int i = 0; i < operations && result == HOOP_OK; i++) {
        if (sweep->windows > 1) {
            sweep_aim(sweep, sweep->window);
            sweep->window = sweep->window + 1 < sweep->windows ? sweep->window + 1 : 0;
        }
        result = sweep_start(sweep);
    }
    hoop_result_t ended = group ? hoop_group_end() : HOOP_OK;
    return result == HOOP_OK ? ended : result;
}

static int sweep_iterate(struct sweep *sweep, int operations)
{
    perf_ranks_enter(sweep->thread);
    hoop_result_t result = sweep_grouped(sweep, operations);
    perf_ranks_leave(sweep->thread);
    if (result == HOOP_UNSUPPORTED) {
        return perf_failure_other(PERF_NOT_IMPLEMENTED, hoop_get_last_error(HOOP_COMM_NULL),
                                  __FILE__, __LINE__);
    }
    PERF_HOOP_TRY(result, sweep->parts[0].rank->comm);
    return PERF_SUCCESS;
}

/* Shows the phase; never called while something is timed. */
static void sweep_show(const struct sweep *sweep, const char *phase)
{
    if (sweep->thread->report) {
        perf_progress_show(&sweep->thread->report->progress, phase);
    }
}

/* ---- Timing ---------------------------------------------------------------------------------- */

/* Writes the inputs of every window that the warm-up and the timed iterations will use. */
static int sweep_fill(struct sweep *sweep)
{
    size_t used = (size_t)sweep->options->iters + (size_t)sweep->options->warmup_iters;
    used = used > sweep->windows / (size_t)sweep->options->agg_iters
               ? sweep->windows
               : used * (size_t)sweep->options->agg_iters;
    for (int i = 0; i < sweep->options->gpus; i++) {
        PERF_TRY(perf_part_fill(&sweep->parts[i], &sweep->data, used, sweep->stride));
    }
    return PERF_SUCCESS;
}

static int sweep_wait(const struct sweep *sweep)
{
    for (int i = 0; i < sweep->options->gpus; i++) {
        const struct perf_call *call = &sweep->parts[i].call;
        hoop_result_t failed = HOOP_OK;
        PERF_TRY(perf_device_use(sweep->parts[i].rank->device));
        PERF_TRY(perf_device_wait(call->stream));
        PERF_HOOP_TRY(hoop_comm_get_async_error(call->comm, &failed), call->comm);
        PERF_HOOP_TRY(failed, call->comm);
    }
    return PERF_SUCCESS;
}

/* Waits for the calls on devices, which may return before they are complete (docs/gpu.md). */
static int sweep_settle(const struct sweep *sweep)
{
    if (sweep->options->place != PERF_PLACE_DEVICE) {
        return PERF_SUCCESS;
    }
    perf_ranks_enter(sweep->thread);
    int code = sweep_wait(sweep);
    perf_ranks_leave(sweep->thread);
    return code;
}

static int sweep_iterate_outer(struct sweep *sweep)
{
    PERF_TRY(sweep_iterate(sweep, sweep->options->agg_iters));
    if (sweep->options->blocking != PERF_BLOCKING_OFF || sweep->options->per_iter) {
        PERF_TRY(sweep_settle(sweep));
    }
    if (sweep->options->blocking == PERF_BLOCKING_OUTER) {
        PERF_TRY(perf_ranks_barrier(sweep->thread));
    }
    return PERF_SUCCESS;
}

/* Captures iterations into a graph, without running them. */
static int sweep_capture(struct sweep *sweep, int iters, int operations, struct perf_graph *ret)
{
    hoop_stream_t stream = sweep->parts[0].call.stream;
    PERF_TRY(perf_graph_begin(stream));
    for (int i = 0; i < iters; i++) {
        PERF_TRY(sweep_iterate(sweep, operations));
    }
    return perf_graph_end(stream, ret);
}

static int sweep_replay(struct sweep *sweep, const struct perf_graph *graph, int times)
{
    perf_ranks_enter(sweep->thread);
    int code = PERF_SUCCESS;
    for (int i = 0; i < times && code == PERF_SUCCESS; i++) {
        code = perf_graph_launch(graph, sweep->parts[0].call.stream);
    }
    perf_ranks_leave(sweep->thread);
    PERF_TRY(code);
    return sweep_settle(sweep);
}

/* Times a graph of all iterations, which runs as often as -G says. */
static int sweep_timed_graph(struct sweep *sweep, struct perf_half *half)
{
    const struct perf_options *options = sweep->options;
    double operations = (double)options->iters * options->agg_iters * options->graph;
    struct perf_graph graph;
    PERF_TRY(sweep_capture(sweep, options->iters, options->agg_iters, &graph));
    PERF_TRY(perf_ranks_barrier(sweep->thread));
    double cpu = perf_clock_cpu_seconds();
    double start = perf_clock_seconds();
    PERF_TRY(sweep_replay(sweep, &graph, options->graph));
    half->seconds = options->iters > 0 ? (perf_clock_seconds() - start) / operations : 0;
    half->cpu_seconds = options->iters > 0 ? (perf_clock_cpu_seconds() - cpu) / operations : 0;
    perf_graph_free(&graph);
    return PERF_SUCCESS;
}

/* Runs one operation; with -G as a graph. */
static int sweep_once(struct sweep *sweep)
{
    if (sweep->options->graph == 0) {
        PERF_TRY(sweep_iterate(sweep, 1));
        return sweep_settle(sweep);
    }
    struct perf_graph graph;
    PERF_TRY(sweep_capture(sweep, 1, 1, &graph));
    PERF_TRY(sweep_replay(sweep, &graph, 1));
    perf_graph_free(&graph);
    return PERF_SUCCESS;
}

static int sweep_timed(struct sweep *sweep, struct perf_half *half)
{
    int iters = sweep->options->iters;
    double operations = (double)iters * sweep->options->agg_iters;
    double cpu = perf_clock_cpu_seconds();
    double start = perf_clock_seconds();
    double before = start;
    for (int i = 0; i < iters; i++) {
        PERF_TRY(sweep_iterate_outer(sweep));
        if (sweep->times) {
            double now = perf_clock_seconds();
            sweep->times[i] = (now - before) / sweep->options->agg_iters;
            before = now;
        }
    }
    PERF_TRY(sweep_settle(sweep));
    half->seconds = iters > 0 ? (perf_clock_seconds() - start) / operations : 0;
    half->cpu_seconds = iters > 0 ? (perf_clock_cpu_seconds() - cpu) / operations : 0;
    return PERF_SUCCESS;
}

static int sweep_time(struct sweep *sweep, struct perf_half *half)
{
    sweep_show(sweep, "warming up");
    PERF_TRY(sweep_fill(sweep));
    sweep->window = 0;
    for (int i = 0; i < sweep->options->warmup_iters; i++) {
        PERF_TRY(sweep_iterate(sweep, sweep->options->agg_iters));
    }
    PERF_TRY(sweep_settle(sweep));
    sweep_show(sweep, "timing");
    PERF_TRY(perf_ranks_barrier(sweep->thread));
    PERF_TRY(sweep->options->graph > 0 ? sweep_timed_graph(sweep, half) : sweep_timed(sweep, half));
    PERF_TRY(perf_times_average(sweep->thread, half));
    PERF_TRY(perf_times_stats(sweep->thread, sweep->times, sweep->sorted, half));
    half->alg = half->seconds > 0 ? (double)sweep->row.bytes / half->seconds / 1e9 : 0;
    half->bus = half->alg * sweep->collective->bus_factor(sweep->data.nranks);
    return PERF_SUCCESS;
}

/* ---- Checking -------------------------------------------------------------------------------- */

/* Runs one operation; adds to ret how many results are wrong, and how many bytes damaged. */
static int sweep_check_once(struct sweep *sweep, const struct perf_case *data, bool in_place,
                            int64_t ret[2])
{
    size_t found[2] = {0, 0};
    for (int i = 0; i < sweep->options->gpus; i++) {
        PERF_TRY(perf_part_prepare(&sweep->parts[i], data, in_place));
    }
    PERF_TRY(sweep_once(sweep));
    for (int i = 0; i < sweep->options->gpus; i++) {
        PERF_TRY(perf_part_wrong(&sweep->parts[i], sweep->collective, data, &found[0]));
        PERF_TRY(perf_part_damage(&sweep->parts[i], data, in_place, &found[1]));
    }
    ret[0] += (int64_t)found[0];
    ret[1] += (int64_t)found[1];
    return PERF_SUCCESS;
}

static int sweep_check(struct sweep *sweep, bool in_place, struct perf_half *half)
{
    int64_t found[2] = {0, 0};
    sweep_show(sweep, "checking");
    for (int check = 0; check < sweep->options->checks; check++) {
        struct perf_case data = sweep->data;
        data.repetition = (uint64_t)check + 1;
        sweep->window = (size_t)check % sweep->windows;
        sweep_aim(sweep, sweep->window);
        PERF_TRY(sweep_check_once(sweep, &data, in_place, found));
    }
    if (sweep->options->checks > 0) {
        PERF_TRY(perf_ranks_agree(sweep->thread, found, 2, HOOP_INT64, HOOP_SUM));
        half->checked = true;
    }
    half->wrong = found[0];
    half->damage = found[1];
    return PERF_SUCCESS;
}

/* ---- Sweep ----------------------------------------------------------------------------------- */

/* Places the first window of a half in each rank's buffers. */
static void sweep_lay(struct sweep *sweep, bool in_place)
{
    size_t type_bytes = perf_type_bytes(sweep->data.type);
    size_t offset = sweep->options->unalign * type_bytes;
    for (int i = 0; i < sweep->options->gpus; i++) {
        struct perf_part *part = &sweep->parts[i];
        part->area = perf_buffer_at(&part->rank->recv, offset);
        part->recv = part->area;
        part->send = perf_buffer_at(&part->rank->send, offset);
        if (in_place) {
            part->recv = part->area + part->shape.in_place_recv_at * type_bytes;
            part->send = part->area + part->shape.in_place_send_at * type_bytes;
        }
    }
    sweep_aim(sweep, 0);
}

static int sweep_measure(struct sweep *sweep, bool in_place, struct perf_half *half)
{
    sweep_lay(sweep, in_place);
    PERF_TRY(sweep_time(sweep, half));
    PERF_TRY(sweep_check(sweep, in_place, half));
    struct perf_tally *tally = &sweep->thread->tally;
    tally->bus_sum += half->bus;
    tally->halves++;
    tally->errors += half->wrong > 0 || half->damage > 0;
    return PERF_SUCCESS;
}

static int sweep_half(struct sweep *sweep, bool in_place)
{
    struct perf_half *half = &sweep->row.half[in_place];
    *half = (struct perf_half){.none = in_place && sweep->collective->not_in_place};
    if (!half->none) {
        PERF_TRY(sweep_measure(sweep, in_place, half));
    }
    if (sweep->thread->report) {
        perf_report_half(sweep->thread->report, &sweep->row, in_place);
    }
    return PERF_SUCCESS;
}

static void sweep_shape(struct sweep *sweep, size_t bytes)
{
    size_t type_bytes = perf_type_bytes(sweep->data.type);
    size_t largest = 0;
    for (int i = 0; i < sweep->options->gpus; i++) {
        struct perf_part *part = &sweep->parts[i];
        part->rank = &sweep->thread->ranks[i];
        sweep->collective->shape(bytes, type_bytes, sweep->data.nranks, part->rank->rank,
                                 sweep->data.root, &part->shape);
        part->call = (struct perf_call){.count = part->shape.count,
                                        .type = sweep->data.type,
                                        .op = part->rank->op,
                                        .root = sweep->data.root,
                                        .comm = part->rank->comm,
                                        .stream = part->rank->stream,
                                        .rank = part->rank->rank,
                                        .nranks = sweep->data.nranks};
        size_t elements = perf_shape_in_place(&part->shape);
        largest = elements * type_bytes > largest ? elements * type_bytes : largest;
    }
    sweep->stride = largest;
    sweep->windows = largest > 0 && sweep->room / largest > 1 ? sweep->room / largest : 1;
}

static int sweep_size(struct sweep *sweep, size_t bytes)
{
    struct perf_report *report = sweep->thread->report;
    sweep_shape(sweep, bytes);
    sweep->row = (struct perf_row){
        .bytes = sweep->parts[0].shape.bytes,
        .count = sweep->parts[0].shape.count,
        .type = perf_type_name(sweep->data.type),
        .op = sweep->collective->has_op ? perf_op_name(sweep->data.op) : "none",
        .root = sweep->collective->has_root ? sweep->data.root : -1,
    };
    if (report) {
        perf_report_row_begin(report, &sweep->row);
    }
    PERF_TRY(sweep_half(sweep, false));
    PERF_TRY(sweep_half(sweep, true));
    if (report) {
        perf_report_row_end(report, &sweep->row);
    }
    return PERF_SUCCESS;
}

static int sweep_sizes(struct sweep *sweep)
{
    size_t bytes = sweep->options->min_bytes;
    do {
        PERF_TRY(sweep_size(sweep, bytes));
    } while (perf_options_next_size(sweep->options, bytes, &bytes));
    return PERF_SUCCESS;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

/* Sets the ranks' operations; for mulsum makes them. *ret_skip: hoop does not support it, and it
 * was only asked for by "all". */
static int sweep_make_ops(struct sweep *sweep, bool *ret_skip)
{
    *ret_skip = false;
    for (int i = 0; i < sweep->options->gpus; i++) {
        struct perf_rank *rank = &sweep->thread->ranks[i];
        rank->op = (hoop_red_op_t)sweep->data.op;
        if (sweep->data.op != PERF_MULSUM) {
            continue;
        }
        char scalar[8];
        perf_data_store(sweep->data.type, perf_mulsum_factor(rank->rank), scalar);
        hoop_result_t result = hoop_red_op_create_pre_mul_sum(
            &rank->op, scalar, sweep->data.type, HOOP_SCALAR_HOST_IMMEDIATE, rank->comm);
        if (result == HOOP_UNSUPPORTED && sweep->options->op == PERF_ALL) {
            *ret_skip = true;
            return PERF_SUCCESS;
        }
        if (result == HOOP_UNSUPPORTED) {
            return perf_failure_other(PERF_NOT_IMPLEMENTED, hoop_get_last_error(HOOP_COMM_NULL),
                                      __FILE__, __LINE__);
        }
        PERF_HOOP_TRY(result, rank->comm);
    }
    return PERF_SUCCESS;
}

static int sweep_free_ops(struct sweep *sweep)
{
    for (int i = 0; sweep->data.op == PERF_MULSUM && i < sweep->options->gpus; i++) {
        struct perf_rank *rank = &sweep->thread->ranks[i];
        PERF_HOOP_TRY(hoop_red_op_destroy(rank->op, rank->comm), rank->comm);
    }
    return PERF_SUCCESS;
}

static int sweep_case(struct sweep *sweep)
{
    bool skip = false;
    PERF_TRY(sweep_make_ops(sweep, &skip));
    if (skip && sweep->thread->report) {
        sweep->thread->report->progress.row += perf_options_sizes(sweep->options);
        fprintf(sweep->thread->report->out, "# %s %s is left out: %s\n",
                perf_type_name(sweep->data.type), perf_op_name(sweep->data.op),
                hoop_get_last_error(HOOP_COMM_NULL));
    }
    if (skip) {
        return PERF_SUCCESS;
    }
    PERF_TRY(sweep_sizes(sweep));
    PERF_TRY(sweep_free_ops(sweep));
    return PERF_SUCCESS;
}

/* The range of values that an option stands for: one, or all n. */
static void sweep_range(int chosen, int n, int *ret_first, int *ret_end)
{
    *ret_first = chosen == PERF_ALL ? 0 : chosen;
    *ret_end = chosen == PERF_ALL ? n : chosen + 1;
}

static int sweep_roots(struct sweep *sweep)
{
    int root;
    int end;
    sweep_range(sweep->collective->has_root ? sweep->options->root : 0, sweep->data.nranks, &root,
                &end);
    for (; root < end; root++) {
        sweep->data.root = root;
        PERF_TRY(sweep_case(sweep));
    }
    return PERF_SUCCESS;
}

static int sweep_ops(struct sweep *sweep)
{
    int op;
    int end;
    /* without an operation any inputs will do, as with max */
    sweep_range(sweep->collective->has_op ? sweep->options->op : HOOP_MAX, PERF_NUM_OPS, &op, &end);
    for (; op < end; op++) {
        sweep->data.op = op;
        PERF_TRY(sweep_roots(sweep));
    }
    return PERF_SUCCESS;
}

static int sweep_types(struct sweep *sweep)
{
    int type;
    int end;
    sweep_range(sweep->options->type, HOOP_NUM_DATATYPES, &type, &end);
    for (; type < end; type++) {
        sweep->data.type = (hoop_datatype_t)type;
        PERF_TRY(sweep_ops(sweep));
    }
    return PERF_SUCCESS;
}

/* ---- The thread ------------------------------------------------------------------------------ */

static int run_allocate_rank(const struct sweep *sweep, struct perf_rank *rank)
{
    const struct perf_options *options = sweep->options;
    const size_t unalign = options->unalign * 8;
    rank->send = rank->recv = (struct perf_buffer){.kind = options->memory, .device = rank->device};
    PERF_TRY(perf_buffer_init(&rank->send, rank->comm, sweep->room, unalign));
    PERF_TRY(perf_buffer_init(&rank->recv, rank->comm, sweep->room, unalign));
    if (options->place == PERF_PLACE_DEVICE && (options->graph > 0 || !options->null_stream)) {
        PERF_TRY(perf_device_use(rank->device));
        PERF_TRY(perf_device_stream(&rank->stream));
    }
    return PERF_SUCCESS;
}

static int run_allocate(struct perf_thread *thread, struct sweep *sweep)
{
    const struct perf_options *options = thread->job->options;
    size_t gpus = (size_t)options->gpus;
    size_t iters = options->iters > 0 ? (size_t)options->iters : 1;
    *sweep = (struct sweep){.thread = thread,
                            .options = options,
                            .collective = thread->job->collective,
                            .room = options->max_bytes,
                            .data = {.nranks = thread->job->nranks}};
    sweep->parts = calloc(gpus, sizeof *sweep->parts);
    sweep->times = options->per_iter ? calloc(iters, sizeof(double)) : NULL;
    sweep->sorted = options->per_iter ? calloc(iters, sizeof(double)) : NULL;
    if (!sweep->parts || (options->per_iter && (!sweep->times || !sweep->sorted))) {
        return perf_failure_other(PERF_INTERNAL, "out of memory", __FILE__, __LINE__);
    }
    for (size_t i = 0; i < gpus; i++) {
        PERF_TRY(run_allocate_rank(sweep, &thread->ranks[i]));
    }
    return PERF_SUCCESS;
}

static void run_free(struct perf_thread *thread, struct sweep *sweep)
{
    for (int i = 0; i < thread->job->options->gpus; i++) {
        struct perf_rank *rank = &thread->ranks[i];
        perf_buffer_finish(&rank->send, rank->comm);
        perf_buffer_finish(&rank->recv, rank->comm);
        if (rank->stream) {
            perf_device_end_stream(rank->stream);
        }
    }
    free(sweep->parts);
    free(sweep->times);
    free(sweep->sorted);
}

/* What rank 0 prints before the table, and needs the other ranks for. */
static int run_introduce(struct perf_thread *thread)
{
    struct perf_place *places = NULL;
    PERF_TRY(perf_ranks_places(thread, &places));
    if (thread->report) {
        perf_report_places(thread->report, places, thread->job->nranks);
    }
    free(places);
    PERF_TRY(perf_memory_report(thread, "with comms"));
    return PERF_SUCCESS;
}

/* How many rows the table will have; 0: unknown. */
static size_t run_rows(const struct perf_job *job)
{
    const struct perf_options *options = job->options;
    const struct perf_collective *collective = job->collective;
    size_t rows = perf_options_sizes(options) * (size_t)options->cycles;
    rows *= options->type == PERF_ALL ? HOOP_NUM_DATATYPES : 1;
    rows *= collective->has_op && options->op == PERF_ALL ? PERF_NUM_OPS : 1;
    return rows * (collective->has_root && options->root == PERF_ALL ? (size_t)job->nranks : 1);
}

static int run_all(struct perf_thread *thread, struct sweep *sweep)
{
    struct perf_bound bound;
    PERF_TRY(run_introduce(thread));
    PERF_TRY(run_allocate(thread, sweep));
    PERF_TRY(perf_bound_measure(thread, &bound));
    PERF_TRY(perf_memory_report(thread, "with buffers"));
    if (thread->report) {
        thread->report->bound = bound;
        perf_progress_init(&thread->report->progress, thread->report->out, stderr,
                           run_rows(thread->job));
        perf_report_head(thread->report);
    }
    int cycles = thread->job->options->cycles;
    for (int cycle = 0; cycles == 0 || cycle < cycles; cycle++) {
        PERF_TRY(sweep_types(sweep));
        if (thread->report) {
            perf_report_bound(thread->report, thread->job->nranks);
        }
    }
    PERF_TRY(perf_memory_report(thread, "at the end"));
    return PERF_SUCCESS;
}

void *perf_run_thread(void *arg)
{
    struct perf_thread *thread = arg;
    struct sweep sweep = {0};
    thread->exit_code = run_all(thread, &sweep);
    if (thread->exit_code != PERF_SUCCESS) {
        perf_ranks_abort(thread);
    } else if (thread->tally.errors > 0 ||
               !perf_report_fast_enough(&thread->tally, thread->job->min_bus)) {
        thread->exit_code = PERF_WRONG;
    }
    run_free(thread, &sweep);
    return NULL;
}

/* See stress_stream.h. */
#include "whole/stress_stream.h"
#include "base/clock.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STREAM_TIMEOUT_MS 60000
#define STREAM_LENIENT_MS 2500
#define STREAM_BIRTH_MS 20000

/* Keeps the first failure. False: the stream is over. All functions go on only if this is true. */
static bool stream_ok(struct stress_stream *stream, hoop_result_t result, const char *what)
{
    if (result == HOOP_OK) {
        return true;
    }
    stream->totals.failures++;
    if (!stream->lenient && stream->wrong[0] == 0) {
        (void)snprintf(stream->wrong, sizeof(stream->wrong),
                       "rank %d, stream %d, step %llu: %s: %s (%s)", stream->rank, stream->stream,
                       (unsigned long long)stream->step, what, hoop_get_error_name(result),
                       hoop_get_last_error(NULL));
    }
    return false;
}

/* ---- Comms -------------------------------------------------------------------------------- */

/* The id of this generation, which the first member makes. */
static bool stream_id(const struct stress_stream *stream, struct stress_birth *birth, bool makes,
                      uint64_t generation, hoop_unique_id_t *ret_id)
{
    const struct timespec nap = {.tv_nsec = 100000};
    const uint64_t deadline =
        hoop_deadline_ns(stream->lenient ? STREAM_LENIENT_MS : STREAM_BIRTH_MS);
    if (makes) {
        if (hoop_get_unique_id(&birth->id) != HOOP_OK) {
            return false;
        }
        /* pairs with the acquire below */
        atomic_store_explicit(&birth->generation, generation, memory_order_release);
    }
    while (atomic_load_explicit(&birth->generation, memory_order_acquire) < generation) {
        if (hoop_now_ns() > deadline) {
            return false;
        }
        nanosleep(&nap, NULL);
    }
    *ret_id = birth->id;
    return true;
}

/* Replaces a handle. Returns the old one. */
static hoop_comm_t stream_put(struct stress_stream *stream, int form, hoop_comm_t comm)
{
    pthread_mutex_lock(&stream->lock);
    hoop_comm_t old = stream->comms[form].comm;
    stream->comms[form].comm = comm;
    pthread_mutex_unlock(&stream->lock);
    return old;
}

static hoop_config_t stream_config(const struct stress_stream *stream)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.op_timeout_ms = stream->lenient ? STREAM_LENIENT_MS : STREAM_TIMEOUT_MS;
    /* If another stream has stopped because of wrong bytes, this ends the job. */
    config.init_timeout_ms = stream->lenient ? STREAM_LENIENT_MS : STREAM_BIRTH_MS;
    return config;
}

/* Shrinks the parent to the ranks of this rank's part. */
static hoop_result_t stream_shrink(struct stress_stream *stream, int form, hoop_comm_t parent,
                                   hoop_comm_t *ret)
{
    const struct stress_program *program = stream->program;
    const hoop_config_t config = stream_config(stream);
    int out[STRESS_MOST_RANKS], count = 0;
    for (int rank = 0; rank < program->ranks; rank++) {
        out[count] = rank;
        count += stress_part(program, form, rank) != stress_part(program, form, stream->rank);
    }
    stream->totals.births++;
    stream->totals.shrinks++;
    return hoop_comm_shrink(parent, out, count, ret, &config, HOOP_SHRINK_DEFAULT);
}

/* Makes a comm: from the comm of all ranks, by split or shrink, or by an id. */
static bool stream_bear(struct stress_stream *stream, int form, enum stress_way way)
{
    struct stress_comm *it = &stream->comms[form];
    const int rank = stream->rank;
    const int part = stress_part(stream->program, form, rank);
    const hoop_config_t config = stream_config(stream);
    int members[STRESS_MOST_RANKS];
    hoop_unique_id_t id;
    hoop_comm_t comm = HOOP_COMM_NULL;
    it->n = stress_members(stream->program, form, rank, members);
    for (int i = 0; i < it->n; i++) {
        it->rank = members[i] == rank ? i : it->rank;
    }
    if (way == STRESS_BY_SHRINK && part == 0) {
        const hoop_result_t result = stream_shrink(stream, form, stream->comms[0].comm, &comm);
        stream_put(stream, form, comm);
        return stream_ok(stream, result, "hoop_comm_shrink");
    }
    stream->totals.births++;
    if (way == STRESS_BY_SPLIT) {
        stream->totals.splits++;
        const hoop_result_t result =
            hoop_comm_split(stream->comms[0].comm, part, form == 1 ? -rank : rank, &comm, &config);
        stream_put(stream, form, comm);
        return stream_ok(stream, result, "hoop_comm_split");
    }
    struct stress_birth *birth = &stream->births->births[stream->stream][form][part];
    if (!stream_id(stream, birth, it->rank == 0, ++it->generation, &id)) {
        return stream_ok(stream, HOOP_TIMEOUT, "no unique id");
    }
    const hoop_result_t result = hoop_comm_init_rank_config(&comm, it->n, id, it->rank, &config);
    stream_put(stream, form, comm);
    return stream_ok(stream, result, "hoop_comm_init_rank_config");
}

static bool stream_settle(struct stress_stream *stream, struct stress_random *random);

/* The goodbye waits for what is queued. */
static bool stream_bury(struct stress_stream *stream, hoop_comm_t comm, bool finalize)
{
    struct stress_random random = stress_random_from(stream->step, (uint64_t)stream->rank, 0, 0);
    const hoop_result_t finalized = finalize ? hoop_comm_finalize(comm) : HOOP_OK;
    (void)stream_settle(stream, &random);
    const hoop_result_t destroyed = hoop_comm_destroy(comm);
    return stream_ok(stream, finalized, "hoop_comm_finalize") &&
           stream_ok(stream, destroyed, "hoop_comm_destroy");
}

/* A comm is destroyed and made anew. For a shrink without exclusions both exist for a while. */
static bool stream_rebirth(struct stress_stream *stream, const struct stress_step *step)
{
    const int form = step->comm;
    hoop_comm_t comm = HOOP_COMM_NULL;
    if (step->way == STRESS_BY_SHRINK && form < 2) {
        const hoop_result_t result = stream_shrink(stream, form, stream->comms[form].comm, &comm);
        return stream_ok(stream, result, "hoop_comm_shrink") &&
               stream_bury(stream, stream_put(stream, form, comm), step->finalize);
    }
    const enum stress_way way = form == 0 ? STRESS_BY_ID : step->way;
    return stream_bury(stream, stream_put(stream, form, HOOP_COMM_NULL), step->finalize) &&
           stream_bear(stream, form, way);
}

/* ---- Calls -------------------------------------------------------------------------------- */

/* What this rank draws for itself in a step. */
static struct stress_random stream_random(const struct stress_stream *stream)
{
    return stress_random_from(stream->program->seed, (uint64_t)stream->stream, stream->step,
                              (uint64_t)stream->rank);
}

static bool stream_prepare(struct stress_stream *stream, const struct stress_call *call,
                           hoop_stream_t queue, struct stress_random *random,
                           struct stress_run *ret)
{
    const struct stress_comm *comm = &stream->comms[call->comm];
    const struct stress_place place = {
        .program = stream->program,
        .comm = comm->comm,
        .n = comm->n,
        .rank = comm->rank,
        .queue = queue,
        .arena = stream->arena,
        .arena_used = &stream->arena_used,
    };
    return stream_ok(stream,
                     stress_run_init(ret, &place, call, random) ? HOOP_OK : HOOP_OUT_OF_MEMORY,
                     "memory for a call");
}

static bool stream_check(struct stress_stream *stream, const struct stress_run *run)
{
    char text[400];
    if (!stress_run_check(run, text, sizeof(text))) {
        (void)snprintf(stream->wrong, sizeof(stream->wrong),
                       "stream %d, step %llu, comm %d: WRONG: %s", stream->stream,
                       (unsigned long long)stream->step, run->call.comm, text);
        return false;
    }
    if (run->recv.kind == AREA_NONE && run->send.kind == AREA_NONE) {
        return true; /* a message between other ranks */
    }
    stream->totals.results++;
    stream->totals.bytes += run->model.count * model_type_bytes(run->model.type);
    return true;
}

/* After a failure nothing may be written to the buffers: late writes are noticed for this long. */
static void stream_claim(struct stress_stream *stream, const struct stress_run *runs, int n)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    for (int i = 0; i < n; i++) {
        stress_run_claim(&runs[i]);
    }
    nanosleep(&nap, NULL);
    for (int i = 0; i < n; i++) {
        (void)stream_check(stream, &runs[i]);
    }
}

/* Starts all runs: those of one comm in order, the comms in a random order. Some groups nest. */
static hoop_result_t stream_start(struct stress_run *runs, int n, struct stress_random *random)
{
    bool started[STRESS_MOST_CALLS] = {false};
    hoop_result_t result = HOOP_OK;
    for (int left = n; left > 0 && result == HOOP_OK; left--) {
        int i = (int)stress_below(random, (uint32_t)n);
        while (started[i]) {
            i = (i + 1) % n;
        }
        for (int j = i; j >= 0; j--) {
            i = !started[j] && runs[j].call.comm == runs[i].call.comm ? j : i;
        }
        started[i] = true;
        const bool nests = stress_below(random, 4) == 0;
        result = nests ? hoop_group_start() : HOOP_OK;
        result = result == HOOP_OK ? stress_run_start(&runs[i]) : result;
        if (nests) {
            const hoop_result_t ended = hoop_group_end();
            result = result == HOOP_OK ? ended : result;
        }
    }
    return result;
}

static hoop_result_t stream_group(struct stress_run *runs, int n, struct stress_random *random)
{
    (void)hoop_group_start();
    const hoop_result_t result = stream_start(runs, n, random);
    const hoop_result_t ended = hoop_group_end();
    return result == HOOP_OK ? ended : result;
}

/* ---- Queues ------------------------------------------------------------------------------- */

/* Waits in one of several ways. Returns the result. */
static hoop_result_t pending_wait(const struct stress_pending *pending, uint32_t way)
{
    struct pollfd poll_fd = {.events = POLLIN};
    switch (way) {
    case 0:
        (void)hoop_stream_synchronize(pending->queue);
        break;
    case 1:
        while (hoop_ticket_query(pending->ticket) == HOOP_IN_PROGRESS) {
            sched_yield();
        }
        break;
    case 2:
        while (hoop_stream_get_fd(pending->queue, &poll_fd.fd) == HOOP_OK &&
               hoop_ticket_query(pending->ticket) == HOOP_IN_PROGRESS) {
            uint64_t count = 0;
            const bool ready = poll(&poll_fd, 1, 10) > 0;
            const ssize_t got = ready ? read(poll_fd.fd, &count, sizeof(count)) : 0;
            (void)got; /* it may have been for another ticket */
        }
        break;
    default:
        break;
    }
    return hoop_ticket_wait(pending->ticket, -1);
}

/* Checks calls that are complete, or have failed, and frees them. */
static bool stream_finish(struct stress_stream *stream, struct stress_pending *pending,
                          hoop_result_t result, const char *what)
{
    bool good = stream_ok(stream, result, what);
    if (!good) {
        stream_claim(stream, pending->runs, pending->n);
    }
    for (int i = 0; i < pending->n; i++) {
        good = good && stream_check(stream, &pending->runs[i]);
        stress_run_finish(&pending->runs[i]);
    }
    return good;
}

/* Waits for all that is queued. */
static bool stream_settle(struct stress_stream *stream, struct stress_random *random)
{
    bool good = true;
    for (int i = 0; i < stream->n_pending; i++) {
        struct stress_pending *pending = &stream->pending[i];
        const hoop_result_t result = pending_wait(pending, stress_below(random, 6));
        good = stream_finish(stream, pending, result, "what was queued") && good;
    }
    stream->n_pending = 0;
    return good;
}

/* Draws where each call goes: all block, or all are queued, on one queue or two; a group may have
 * both. */
static void stream_draw_queues(const struct stress_stream *stream, struct stress_random *random,
                               bool group, hoop_stream_t ret[STRESS_MOST_CALLS])
{
    const uint32_t form = stress_below(random, 8);
    const uint32_t one = stress_below(random, STRESS_QUEUES);
    for (int i = 0; i < STRESS_MOST_CALLS; i++) {
        const uint32_t which = form == 6 ? stress_below(random, STRESS_QUEUES) : one;
        const bool blocks = form < 4 || (form == 7 && group && i % 2 == 0);
        ret[i] = blocks ? NULL : stream->queues[which];
    }
}

/* Records a ticket behind the calls; sometimes the other queue waits for that. */
static bool stream_queue(struct stress_stream *stream, struct stress_pending *pending,
                         struct stress_random *random)
{
    hoop_stream_t other = stream->queues[stress_below(random, STRESS_QUEUES)];
    hoop_result_t result = hoop_stream_record(pending->queue, &pending->ticket);
    if (result == HOOP_OK && stress_below(random, 4) == 0) {
        result = hoop_stream_wait_ticket(other, pending->ticket);
    }
    stream->totals.queued++;
    stream->n_pending++;
    const bool settles = stream->n_pending == STRESS_MOST_PENDING || stress_below(random, 4) == 0;
    return stream_ok(stream, result, "a ticket") && (!settles || stream_settle(stream, random));
}

/* Some calls are queued, and none blocks. A message between other ranks does not count. */
static bool pending_is_queued(struct stress_pending *pending)
{
    bool blocks = false;
    pending->queue = NULL;
    for (int i = 0; i < pending->n; i++) {
        const struct stress_run *run = &pending->runs[i];
        if (!run->call.message || run->sends || run->receives) {
            blocks = blocks || run->place.queue == NULL;
            pending->queue = run->place.queue != NULL ? run->place.queue : pending->queue;
        }
    }
    return !blocks && pending->queue != NULL;
}

static bool stream_calls(struct stress_stream *stream, const struct stress_step *step)
{
    struct stress_pending *pending = &stream->pending[stream->n_pending];
    struct stress_run *runs = pending->runs;
    hoop_stream_t queues[STRESS_MOST_CALLS];
    struct stress_random random = stream_random(stream);
    const bool group = step->n_calls > 1 || step->calls[0].message;
    bool good = true;
    stream_draw_queues(stream, &random, group, queues);
    pending->n = 0;
    while (pending->n < step->n_calls && good) {
        const int i = pending->n++;
        good = stream_prepare(stream, &step->calls[i], queues[i], &random, &runs[i]);
    }
    hoop_result_t result = HOOP_OK;
    if (good) {
        result = group ? stream_group(runs, pending->n, &random) : stress_run_start(&runs[0]);
    }
    stream->totals.groups += group ? 1 : 0;
    if (good && result == HOOP_OK && pending_is_queued(pending)) {
        return stream_queue(stream, pending, &random);
    }
    return stream_finish(stream, pending, result, group ? "a group" : "a call") && good;
}

/* ---- Twins: two threads on one comm ------------------------------------------------------- */

static void *twin_main(void *arg)
{
    const struct stress_run *run = arg;
    return (void *)(intptr_t)stress_run_start(run);
}

/* Both have the same inputs: whichever counts as the first on other ranks, results are the same. */
static bool stream_twins(struct stress_stream *stream, const struct stress_step *step)
{
    /* a thread that is cancelled here would leave the other one without its buffers */
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    struct stress_run runs[2] = {{.send = {.bytes = 0}}};
    struct stress_random random = stream_random(stream);
    pthread_t thread;
    void *second = NULL;
    bool good = stream_prepare(stream, &step->calls[0], NULL, &random, &runs[0]) &&
                stream_prepare(stream, &step->calls[0], NULL, &random, &runs[1]);
    if (good && pthread_create(&thread, NULL, twin_main, &runs[1]) == 0) {
        const hoop_result_t first = stress_run_start(&runs[0]);
        (void)pthread_join(thread, &second);
        good = stream_ok(stream, first, "the first of two calls") &&
               stream_ok(stream, (hoop_result_t)(intptr_t)second, "the second of two calls");
    }
    for (int i = 0; i < 2; i++) {
        good = good && stream_check(stream, &runs[i]);
        stress_run_finish(&runs[i]);
    }
    (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    return good;
}

/* ---- Steps -------------------------------------------------------------------------------- */

static bool stream_step(struct stress_stream *stream)
{
    struct stress_step step;
    stress_program_step(stream->program, stream->stream, stream->step, &step);
    stream->arena_used = stream->n_pending == 0 ? 0 : stream->arena_used;
    switch (step.kind) {
    case STRESS_BARRIER:
        stream->totals.barriers++;
        return stream_ok(stream,
                         hoop_barrier(stream->comms[step.comm].comm,
                                      stream->step % 2 == 0 ? stream->queues[0] : NULL),
                         "hoop_barrier");
    case STRESS_REBIRTH:
        return stream_rebirth(stream, &step);
    case STRESS_TWINS:
        return stream_twins(stream, &step);
    default:
        return stream_calls(stream, &step);
    }
}

/* Is the time over, or enough done? Rank 0's clock and count decide. */
static bool stream_is_over(struct stress_stream *stream)
{
    const uint64_t programs = stream->step / STRESS_PROGRAM_STEPS;
    const bool enough =
        stream->programs > 0 ? programs >= stream->programs : hoop_now_ns() > stream->until_ns;
    int32_t over = stream->rank == 0 && enough ? 1 : 0;
    stream->totals.programs = stream->rank == 0 ? programs : 0;
    const hoop_result_t result =
        hoop_all_reduce(&over, &over, 1, HOOP_INT32, HOOP_SUM, stream->comms[0].comm, NULL);
    return !stream_ok(stream, result, "the look at the clock") || over > 0;
}

static void stream_end_queues(struct stress_stream *stream)
{
    for (int queue = 0; queue < STRESS_QUEUES; queue++) {
        (void)hoop_stream_destroy(stream->queues[queue]); /* tickets have reported failures */
    }
}

void stress_stream_run(struct stress_stream *stream)
{
    void *arena = NULL;
    bool good = stream_ok(stream, hoop_mem_alloc(&arena, STRESS_ARENA_BYTES, HOOP_MEM_HOST),
                          "hoop_mem_alloc");
    stream->arena = arena;
    for (int queue = 0; queue < STRESS_QUEUES && good; queue++) {
        good = stream_ok(stream, hoop_stream_create(&stream->queues[queue]), "hoop_stream_create");
    }
    for (int form = 0; form < STRESS_COMMS && good; form++) {
        good = stream_bear(stream, form, STRESS_BY_ID);
    }
    while (good && (stream->step % STRESS_PROGRAM_STEPS != 0 || !stream_is_over(stream))) {
        good = stream_step(stream);
        stream->step++;
    }
    for (int form = 0; form < STRESS_COMMS; form++) {
        if (stream->comms[form].comm != HOOP_COMM_NULL) {
            (void)stream_bury(stream, stream_put(stream, form, HOOP_COMM_NULL), form % 2 == 0);
        }
    }
    stream_end_queues(stream);
    (void)stream_ok(stream, hoop_mem_free(arena), "hoop_mem_free");
}

void stress_stream_abandon(struct stress_stream *stream)
{
    for (int form = 0; form < STRESS_COMMS; form++) {
        hoop_comm_t comm = stream_put(stream, form, HOOP_COMM_NULL);
        (void)hoop_comm_abort(comm);
        (void)hoop_comm_destroy(comm);
    }
    stream_end_queues(stream);
}

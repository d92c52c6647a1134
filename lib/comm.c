/* Birth and death of a comm, its turn, its operations (see comm.h). Its links: comm_links.c. */
#include "comm.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm_dump.h"
#include "comm_links.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Looks at an announcement in one poll, where there is a CPU for every rank: about 1 us. */
#define COMM_LOOKS 32

static _Atomic uint64_t comm_ids;

/* ---- Failure -------------------------------------------------------------------------------- */

/* For all ranks of this machine, and if nobody was first, of the others. */
static void comm_publish(struct hoop_comm *comm, const struct hoop_failure *failure)
{
    if (hoop_board_fail(&comm->board, failure) && comm->spans) {
        hoop_member_raise(comm->member, failure);
    }
}

/* Keeps a failure for when the board is laid out, if it is not yet (true). */
static bool comm_fails_early(struct hoop_comm *comm, const struct hoop_failure *failure)
{
    pthread_mutex_lock(&comm->inbox_lock);
    const bool ready = comm->board_ready;
    if (!ready && comm->early.code == HOOP_OK) {
        comm->early = *failure;
    }
    pthread_mutex_unlock(&comm->inbox_lock);
    return !ready;
}

void hoop_comm_raise(struct hoop_comm *comm, hoop_result_t code, int rank, const char *format, ...)
{
    struct hoop_failure failure = {.code = code, .rank = rank};
    va_list args;
    va_start(args, format);
    hoop_text_format(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    if (!comm_fails_early(comm, &failure)) {
        comm_publish(comm, &failure);
    }
}

hoop_result_t hoop_comm_state(struct hoop_comm *comm, struct hoop_failure *ret)
{
    const int code = atomic_load_explicit(&comm->failed, memory_order_acquire);
    if (code == HOOP_OK) {
        return hoop_board_failed(&comm->board, ret);
    }
    if (ret != NULL) {
        *ret = comm->failure;
    }
    return (hoop_result_t)code;
}

/* Ends the running operation and the comm, with the first failure of any rank. */
static void comm_fail(struct hoop_comm *comm)
{
    struct hoop_operation *operation = &comm->operation;
    struct hoop_failure cause;
    char what[256];
    hoop_operation_describe(operation, what, sizeof(what));
    if (operation->failure.code != HOOP_OK) {
        comm_publish(comm, &operation->failure);
    }
    hoop_board_failed(&comm->board, &cause);
    if (operation->failure.code == HOOP_MISMATCH || operation->failure.code == HOOP_TIMEOUT) {
        cause = operation->failure; /* my own view says more to my user than another's */
    }
    hoop_comm_links_finish(comm, true);
    hoop_operation_cancel(operation, cause.code == HOOP_REMOTE_ERROR ? cause.rank : -1);
    hoop_failure_set(&comm->failure, cause.code, cause.rank, "rank %u: %s: %s", comm->rank, what,
                     cause.text);
    atomic_store_explicit(&comm->failed, comm->failure.code, memory_order_release);
    hoop_log(HOOP_LOG_ERROR, HOOP_LOG_COMM, "%s", comm->failure.text);
    hoop_comm_dump_all(comm);
}

static hoop_result_t comm_refuse(struct hoop_comm *comm)
{
    struct hoop_failure failure;
    const hoop_result_t state = hoop_comm_state(comm, &failure);
    if (state != HOOP_OK) {
        return hoop_error(state, "the communicator has failed: %s", failure.text);
    }
    if (comm->finalized) {
        return hoop_error(HOOP_INVALID_USAGE, "the communicator was finalized");
    }
    return HOOP_OK;
}

/* ---- Operations ----------------------------------------------------------------------------- */

static bool comm_left(void *arg, uint32_t rank);

/* An awaited rank said goodbye: what it has not delivered will never come. */
static bool comm_awaits_the_left(struct hoop_comm *comm, uint32_t *ret_rank)
{
    return hoop_operation_awaits(&comm->operation, comm_left, comm, ret_rank);
}

/*
 * Moves the running operation. look: and ends it when the comm has failed, or the awaited rank has
 * left, and nothing moves any more.
 */
static enum hoop_poll comm_poll(void *arg, bool look)
{
    struct hoop_comm *comm = arg;
    struct hoop_operation *operation = &comm->operation;
    enum hoop_poll polled = hoop_operation_poll(operation);
    if (polled != HOOP_POLL_IDLE || !look) {
        return polled;
    }
    uint32_t rank = 0;
    hoop_comm_dump_if_asked(comm);
    const bool failed = atomic_load_explicit(&comm->board.head->failed, memory_order_acquire) != 0;
    const bool left = !failed && comm_awaits_the_left(comm, &rank);
    if (!failed && (!left || hoop_comm_link_may_come(comm))) {
        comm->left_ns = left ? comm->left_ns : 0;
        return HOOP_POLL_IDLE;
    }
    /* What was delivered before is here now: use it. */
    polled = hoop_operation_poll(operation);
    if (polled != HOOP_POLL_IDLE) {
        return polled;
    }
    uint32_t still = comm->n;
    if (failed) {
        hoop_board_failed(&comm->board, &operation->failure);
    } else if (comm_awaits_the_left(comm, &still) && still == rank) {
        hoop_failure_set(&operation->failure, HOOP_REMOTE_ERROR, (int)rank,
                         "rank %u has left the communicator", rank);
    } else {
        return HOOP_POLL_IDLE;
    }
    return HOOP_POLL_DONE;
}

static void comm_begin_operation(struct hoop_comm *comm, const struct hoop_request *request)
{
    atomic_store_explicit(&comm->waiting, 1, memory_order_relaxed);
    comm->left_ns = 0;
    hoop_operation_start(&comm->operation, request);
    struct hoop_comm_past *past = &comm->history[comm->board.sequence % HOOP_HISTORY];
    past->sequence = comm->board.sequence;
    past->signature = request->signature;
    past->result = HOOP_IN_PROGRESS;
}

static hoop_result_t comm_end_operation(struct hoop_comm *comm, hoop_result_t waited)
{
    struct hoop_operation *operation = &comm->operation;
    atomic_store_explicit(&comm->waiting, 0, memory_order_relaxed);
    if (waited == HOOP_TIMEOUT) {
        hoop_failure_set(&operation->failure, HOOP_TIMEOUT, -1,
                         "not complete after %llu ms (HOOP_OP_TIMEOUT_MS)",
                         (unsigned long long)comm->op_timeout_ms);
    }
    hoop_result_t result = HOOP_OK;
    if (__builtin_expect(operation->failure.code != HOOP_OK, 0)) {
        comm_fail(comm);
        result = hoop_error(comm->failure.code, "%s", comm->failure.text);
    }
    comm->history[comm->board.sequence % HOOP_HISTORY].result = result;
    return result;
}

hoop_result_t hoop_comm_submit(struct hoop_comm *comm, const struct hoop_request *request)
{
    hoop_comm_enter(comm);
    hoop_result_t result = HOOP_OK;
    if (__builtin_expect(
            comm->finalized || comm->failed != HOOP_OK ||
                atomic_load_explicit(&comm->board.head->failed, memory_order_relaxed) != 0,
            0)) {
        result = comm_refuse(comm);
    } else {
        struct hoop_sleeper *sleeper = &comm->sleeper;
        const struct hoop_wait wait = {
            .poll = comm_poll,
            .arg = comm,
            .sleepers = &sleeper,
            .n_sleepers = 1,
            .spin_ns = comm->spin_ns != 0 ? &comm->spin_ns : NULL,
            .timeout_ms = comm->op_timeout_ms,
        };
        comm_begin_operation(comm, request);
        result = comm_end_operation(comm, hoop_wait(&wait));
    }
    hoop_comm_leave(comm);
    return result;
}

/* ---- Groups: several comms at once ---------------------------------------------------------- */

struct comm_batch {
    struct hoop_comm_work *work;
    size_t count;
    size_t *running; /* [comms] index of the work that runs on each; count: none left */
    struct hoop_comm **comms;
    uint32_t n_comms;
    hoop_result_t result; /* first failure */
};

/* Starts the next piece of work of comm c at or behind index `from`. */
static void batch_next(struct comm_batch *batch, uint32_t c, size_t from)
{
    struct hoop_comm *comm = batch->comms[c];
    size_t i = from;
    while (i < batch->count && batch->work[i].comm != comm) {
        i++;
    }
    if (i < batch->count) {
        const hoop_result_t refused = comm_refuse(comm);
        if (refused == HOOP_OK) {
            comm->deadline_ns = hoop_deadline_ns(comm->op_timeout_ms);
            comm_begin_operation(comm, &batch->work[i].request);
        } else {
            batch->result = batch->result == HOOP_OK ? refused : batch->result;
            i = batch->count;
        }
    }
    batch->running[c] = i;
}

static void batch_finish_one(struct comm_batch *batch, uint32_t c, hoop_result_t waited)
{
    const hoop_result_t result = comm_end_operation(batch->comms[c], waited);
    if (result != HOOP_OK) {
        batch->result = batch->result == HOOP_OK ? result : batch->result;
        batch->running[c] = batch->count;
    } else {
        batch_next(batch, c, batch->running[c] + 1);
    }
}

static enum hoop_poll batch_poll(void *arg, bool look)
{
    struct comm_batch *batch = arg;
    bool busy = false, left = false;
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        if (batch->running[c] == batch->count) {
            continue;
        }
        const enum hoop_poll polled = comm_poll(batch->comms[c], look);
        if (polled == HOOP_POLL_DONE) {
            batch_finish_one(batch, c, HOOP_OK);
        } else if (look && hoop_now_ns() >= batch->comms[c]->deadline_ns) {
            batch_finish_one(batch, c, HOOP_TIMEOUT);
        }
        busy |= polled != HOOP_POLL_IDLE;
        left |= batch->running[c] != batch->count;
    }
    return !left ? HOOP_POLL_DONE : busy ? HOOP_POLL_BUSY : HOOP_POLL_IDLE;
}

static int comm_by_id(const void *a, const void *b)
{
    const struct hoop_comm *left = *(struct hoop_comm *const *)a;
    const struct hoop_comm *right = *(struct hoop_comm *const *)b;
    return (left->id > right->id) - (left->id < right->id);
}

/* The comms of the work, each once, by id. */
static void batch_collect(struct comm_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        batch->comms[i] = batch->work[i].comm;
    }
    qsort(batch->comms, batch->count, sizeof(void *), comm_by_id);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->n_comms == 0 || batch->comms[batch->n_comms - 1] != batch->comms[i]) {
            batch->comms[batch->n_comms++] = batch->comms[i];
        }
    }
}

static void batch_run(struct comm_batch *batch, struct hoop_sleeper **sleepers)
{
    uint64_t spin_ns = UINT64_MAX;
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        struct hoop_comm *comm = batch->comms[c];
        hoop_comm_enter(comm);
        sleepers[c] = &comm->sleeper;
        spin_ns = comm->spin_ns < spin_ns ? comm->spin_ns : spin_ns;
        batch_next(batch, c, 0);
    }
    const struct hoop_wait wait = {
        .poll = batch_poll,
        .arg = batch,
        .sleepers = sleepers,
        .n_sleepers = batch->n_comms,
        .spin_ns = spin_ns != 0 ? &spin_ns : NULL,
    };
    hoop_wait(&wait); /* every piece of work has a deadline of its own */
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        hoop_comm_leave(batch->comms[c]);
    }
}

hoop_result_t hoop_comm_submit_all(struct hoop_comm_work *work, size_t count)
{
    if (count == 0) {
        return HOOP_OK;
    }
    struct comm_batch batch = {.work = work, .count = count};
    batch.comms = calloc(count, sizeof(void *));
    batch.running = calloc(count, sizeof(*batch.running));
    struct hoop_sleeper **sleepers = calloc(count, sizeof(void *));
    if (batch.comms == NULL || batch.running == NULL || sleepers == NULL) {
        batch.result = hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a group of %zu calls", count);
    } else {
        batch_collect(&batch);
        batch_run(&batch, sleepers);
    }
    free(batch.comms);
    free(batch.running);
    free(sleepers);
    return batch.result;
}

/* ---- What the service thread tells ---------------------------------------------------------- */

static bool comm_ready(struct hoop_comm *comm)
{
    pthread_mutex_lock(&comm->inbox_lock);
    const bool ready = comm->board_ready;
    pthread_mutex_unlock(&comm->inbox_lock);
    return ready;
}

static void comm_on_lost(void *arg, uint32_t rank, const char *why)
{
    struct hoop_comm *comm = arg;
    if (comm_ready(comm)) {
        const struct hoop_peer *peer = &comm->board.peers[rank];
        hoop_comm_raise(comm, HOOP_REMOTE_ERROR, (int)rank, "rank %u (pid %d, host %s) %s", rank,
                        peer->pid, peer->host, why);
    } else {
        hoop_comm_raise(comm, HOOP_REMOTE_ERROR, (int)rank, "rank %u %s", rank, why);
    }
}

static void comm_on_beat(void *arg)
{
    struct hoop_comm *comm = arg;
    if (comm_ready(comm)) {
        atomic_fetch_add_explicit(&hoop_board_rank(&comm->board, comm->rank)->pulse, 1,
                                  memory_order_relaxed);
    }
}

static void comm_on_gone(void *arg, uint32_t rank)
{
    struct hoop_comm *comm = arg;
    pthread_mutex_lock(&comm->inbox_lock);
    const bool ready = comm->board_ready;
    comm->early_gone[rank] = 1;
    pthread_mutex_unlock(&comm->inbox_lock);
    if (ready) {
        hoop_board_leave(&comm->board, rank);
    }
}

/* Of another machine: it has told everybody else itself. */
static void comm_on_failed(void *arg, const struct hoop_failure *failure)
{
    struct hoop_comm *comm = arg;
    if (!comm_fails_early(comm, failure)) {
        (void)hoop_board_fail(&comm->board, failure);
    }
}

static uint64_t comm_pulse(void *arg, uint32_t rank)
{
    struct hoop_comm *comm = arg;
    return comm_ready(comm) ? atomic_load_explicit(&hoop_board_rank(&comm->board, rank)->pulse,
                                                   memory_order_relaxed)
                            : 0;
}

static bool comm_left(void *arg, uint32_t rank)
{
    struct hoop_comm *comm = arg;
    return comm_ready(comm) && atomic_load_explicit(&hoop_board_rank(&comm->board, rank)->left,
                                                    memory_order_acquire) != 0;
}

static bool comm_waiting(void *arg)
{
    struct hoop_comm *comm = arg;
    return atomic_load_explicit(&comm->waiting, memory_order_relaxed) != 0;
}

/* ---- Birth ---------------------------------------------------------------------------------- */

static hoop_result_t comm_open_descriptors(struct hoop_comm *comm)
{
    comm->sleeper.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    comm->sleeper.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (comm->sleeper.wake_fd < 0 || comm->sleeper.epoll_fd < 0 ||
        epoll_ctl(comm->sleeper.epoll_fd, EPOLL_CTL_ADD, comm->sleeper.wake_fd, &event) != 0) {
        const int err = errno;
        return hoop_error(hoop_from_errno(err),
                          "cannot open the descriptors of a communicator: %s%s",
                          hoop_errno_name(err), err == EMFILE ? " (raise ulimit -n)" : "");
    }
    return HOOP_OK;
}

/* Ranks on this machine: `here` of this comm, or the launcher's word for more. */
static uint32_t comm_local_ranks(uint32_t here)
{
    const char *text = hoop_settings()->local_size;
    text = text != NULL ? text : getenv("LOCAL_WORLD_SIZE");
    const unsigned long told = text != NULL ? strtoul(text, NULL, 10) : 0;
    return told > here && told <= HOOP_BOARD_MAX_RANKS ? (uint32_t)told : here;
}

hoop_result_t hoop_comm_begin(const struct hoop_comm_options *options, struct hoop_comm **ret)
{
    struct hoop_comm *comm = aligned_alloc(HOOP_LINE_BYTES, (sizeof(*comm) + HOOP_LINE_BYTES - 1) /
                                                                HOOP_LINE_BYTES * HOOP_LINE_BYTES);
    if (comm == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a communicator");
    }
    memset(comm, 0, sizeof(*comm));
    comm->id = atomic_fetch_add(&comm_ids, 1) + 1;
    comm->rank = options->rank;
    comm->n = options->n;
    comm->agreed = options->agreed;
    comm->op_timeout_ms = options->op_timeout_ms;
    comm->init_timeout_ms = options->init_timeout_ms;
    comm->sleeper.wake_fd = comm->sleeper.epoll_fd = -1;
    memcpy(comm->name, options->name, sizeof(comm->name));
    comm->early_gone = calloc(comm->n, sizeof(*comm->early_gone));
    pthread_mutex_init(&comm->inbox_lock, NULL);
    hoop_job_init(&comm->job);
    const struct hoop_member_events events = {
        .lost = comm_on_lost,
        .blob = hoop_comm_on_blob,
        .fetched = hoop_comm_on_fetched,
        .beat = comm_on_beat,
        .pulse = comm_pulse,
        .left = comm_left,
        .gone = comm_on_gone,
        .failed = comm_on_failed,
        .stream = hoop_comm_on_stream,
        .waiting = comm_waiting,
        .arg = comm,
    };
    struct hoop_join join = {
        .meeting = options->meeting,
        .serve = options->serve,
        .n = options->n,
        .rank = options->rank,
        .timeout_ms = options->init_timeout_ms,
        .dead_after_ms = options->dead_after_ms,
        .segment_bytes = hoop_board_bytes(options->n),
        .agreement = options->agreed,
        .crowded = comm_local_ranks(options->n) > hoop_usable_cpus(),
    };
    memcpy(join.comm_name, options->name, sizeof(join.comm_name));
    hoop_result_t result = comm_open_descriptors(comm);
    if (result == HOOP_OK && comm->early_gone == NULL) {
        result = hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %u ranks", comm->n);
    }
    if (result == HOOP_OK) {
        join.wake_fd = comm->sleeper.wake_fd;
        result = hoop_service_start();
    }
    if (result == HOOP_OK) {
        result = hoop_member_create(&join, &events, &comm->job, &comm->member);
    }
    if (result != HOOP_OK) {
        hoop_comm_end(comm);
        return result;
    }
    *ret = comm;
    return HOOP_OK;
}

static hoop_result_t comm_lay_out(struct hoop_comm *comm)
{
    const struct hoop_roster *roster = hoop_member_roster(comm->member);
    hoop_result_t result = hoop_board_init(&comm->board, roster, comm->rank);
    if (result != HOOP_OK) {
        return result;
    }
    /* Where all are on one machine they agree on it: the choice of algorithm follows from it. */
    const bool crowded = roster->machines > 1 ? comm_local_ranks(roster->here) > hoop_usable_cpus()
                                              : roster->crowded;
    comm->spans = roster->machines > 1;
    hoop_comm_dump_init(comm);
    comm->agreed.crowded = crowded;
    comm->spin_ns = crowded ? 0 : hoop_settings()->spin_us * 1000;
    struct hoop_operation_env env = {
        .board = &comm->board,
        .looks = comm->spin_ns != 0 ? COMM_LOOKS : 0,
        .engine = &comm->engine,
        .member = comm->member,
        .agreed = &comm->agreed,
        .one_process = true,
        .over_links = comm->spans || comm->agreed.transport != HOOP_TRANSPORT_AUTO,
        .link = hoop_comm_link,
        .answered = hoop_comm_fetch_answered,
        .arg = comm,
    };
    for (uint32_t rank = 0; rank < comm->n; rank++) {
        env.one_process &= roster->peers[rank].same_process;
    }
    result = hoop_operation_init(&comm->operation, &env);
    if (result != HOOP_OK) {
        return result;
    }
    comm->sleeper.sleeping = &comm->board.head->sleeping[comm->rank];
    pthread_mutex_lock(&comm->inbox_lock);
    comm->board_ready = true;
    atomic_fetch_add_explicit(&hoop_board_rank(&comm->board, comm->rank)->pulse, 1,
                              memory_order_relaxed);
    for (uint32_t rank = 0; rank < comm->n; rank++) {
        if (comm->early_gone[rank] != 0) {
            hoop_board_leave(&comm->board, rank);
        }
    }
    const struct hoop_failure early = comm->early;
    pthread_mutex_unlock(&comm->inbox_lock);
    if (early.code != HOOP_OK) {
        comm_publish(comm, &early);
    }
    return HOOP_OK;
}

hoop_result_t hoop_comm_complete(struct hoop_comm *comm)
{
    struct hoop_failure failure = {.code = HOOP_OK};
    /* The join keeps its own, better informed deadline; this one is for a service thread that
     * does not answer at all. */
    const uint64_t deadline = hoop_deadline_ns(comm->init_timeout_ms + 10000);
    hoop_result_t result = hoop_job_wait(&comm->job, deadline, &failure);
    if (result == HOOP_OK) {
        result = comm_lay_out(comm);
    } else if (failure.code != HOOP_OK) {
        hoop_error(result, "%s", failure.text);
    } else {
        hoop_error(result, "the service thread did not answer within %llu ms",
                   (unsigned long long)comm->init_timeout_ms + 10000);
    }
    if (result != HOOP_OK) {
        hoop_log(HOOP_LOG_ERROR, HOOP_LOG_INIT, "rank %u of %u: %s", comm->rank, comm->n,
                 hoop_thread_error());
        hoop_comm_end(comm);
        return result;
    }
    hoop_log(HOOP_LOG_INFO, HOOP_LOG_INIT, "rank %u of %u is in%s%s; %u usable CPUs, %s",
             comm->rank, comm->n, comm->name[0] != '\0' ? " " : "", comm->name, hoop_usable_cpus(),
             comm->spin_ns != 0 ? "spinning" : "yielding");
    return HOOP_OK;
}

void hoop_comm_end(struct hoop_comm *comm)
{
    if (comm == NULL) {
        return;
    }
    hoop_comm_enter(comm);
    if (comm->board_ready) {
        hoop_board_leave(&comm->board, comm->rank);
    }
    hoop_comm_links_finish(comm, comm->board_ready && hoop_comm_state(comm, NULL) != HOOP_OK);
    hoop_member_destroy(comm->member);
    hoop_operation_finish(&comm->operation);
    hoop_board_finish(&comm->board);
    hoop_comm_inbox_finish(comm);
    if (comm->sleeper.epoll_fd >= 0) {
        close(comm->sleeper.epoll_fd);
    }
    if (comm->sleeper.wake_fd >= 0) {
        close(comm->sleeper.wake_fd);
    }
    free(comm->early_gone);
    hoop_job_finish(&comm->job);
    pthread_mutex_destroy(&comm->inbox_lock);
    free(comm);
}

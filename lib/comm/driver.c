/*
 * Driving a comm (see driver.h). The functions run on the driver, which holds the comm's turn.
 */
#include "comm/driver.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>

/* How long a link with a rank that has left may take to be made. */
#define DRIVER_LEFT_PATIENCE_NS HOOP_NS_PER_S

/* ---- The flight recorder --------------------------------------------------------------------- */

static void driver_write_history(const struct hoop_comm *comm)
{
    char who[HOOP_COMM_NAME_BYTES + 32];
    snprintf(who, sizeof(who), "rank %u%s%s", comm->rank, comm->name[0] != '\0' ? " of " : "",
             comm->name);
    hoop_history_dump(&comm->history, who);
}

/* The comm has failed: logs its last operations, and asks the process's other comms to do so. */
static void driver_report(struct hoop_comm *comm)
{
    if (hoop_log_enabled(HOOP_LOG_INFO, HOOP_LOG_COMM)) {
        hoop_history_ask();
        (void)hoop_history_is_asked(&comm->history);
        driver_write_history(comm);
    }
}

static void driver_report_if_asked(struct hoop_comm *comm)
{
    if (__builtin_expect(hoop_history_is_asked(&comm->history), 0)) {
        char what[256];
        hoop_operation_describe(&comm->operation, what, sizeof(what));
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_COMM, "rank %u: another communicator failed; here: %s",
                 comm->rank, what);
        driver_write_history(comm);
    }
}

/* ---- One operation --------------------------------------------------------------------------- */

/* Ends the running operation and the comm, with the first failure of any rank. */
static void driver_fail(struct hoop_comm *comm)
{
    struct hoop_operation *operation = &comm->operation;
    struct hoop_failure cause;
    char what[256];
    const int before = hoop_cancel_off();
    hoop_turn_move(&comm->turn); /* the fence may take as long as the operation */
    hoop_operation_describe(operation, what, sizeof(what));
    if (operation->failure.code == HOOP_MISMATCH) {
        hoop_board_name_sites(&comm->board, &operation->failure);
    }
    if (operation->failure.code != HOOP_OK) {
        hoop_comm_publish(comm, &operation->failure);
    }
    hoop_board_failed(&comm->board, &cause);
    if (comm->spans) { /* or this process may exit before the first rank tells other machines */
        hoop_member_raise(comm->member, &cause);
    }
    if (operation->failure.code == HOOP_MISMATCH || operation->failure.code == HOOP_TIMEOUT) {
        cause = operation->failure; /* this rank's view tells its user more than another's */
    }
    hoop_links_finish(&comm->links, 0);
    const int culprit = cause.code == HOOP_REMOTE_ERROR ? cause.rank : -1;
    const bool out = hoop_operation_cancel(operation, culprit, comm->op_timeout_ms) == HOOP_OK;
    /* whom it waited for does not explain a mismatch, and the places of the calls need the room */
    const bool waits = cause.code != HOOP_MISMATCH;
    hoop_failure_set(&comm->failure, cause.code, cause.rank, "rank %u: %s%s%s%s%s", comm->rank,
                     waits ? what : "", waits ? ": " : "", cause.text, out ? "" : "; ",
                     out ? "" : hoop_thread_error());
    atomic_store_explicit(&comm->failed, comm->failure.code, memory_order_release);
    hoop_log(HOOP_LOG_ERROR, HOOP_LOG_COMM, "%s%s%s", comm->name, comm->name[0] != '\0' ? ": " : "",
             comm->failure.text);
    driver_report(comm);
    hoop_cancel_restore(before);
}

static hoop_result_t driver_refuse(struct hoop_comm *comm)
{
    struct hoop_failure failure;
    if (comm->failed != HOOP_OK) {
        return hoop_error(comm->failure.code, "the communicator has failed: %s",
                          comm->failure.text);
    }
    if (!hoop_comm_is_ready(comm)) {
        return hoop_error(HOOP_INVALID_USAGE, "the communicator is not complete yet");
    }
    const hoop_result_t state = hoop_board_failed(&comm->board, &failure);
    if (state != HOOP_OK) { /* reported while this rank was in no operation: name this rank */
        return hoop_error(state, "rank %u: the communicator has failed: %s", comm->rank,
                          failure.text);
    }
    if ((comm->closed & HOOP_COMM_FINALIZED) != 0) {
        return hoop_error(HOOP_INVALID_USAGE, "the communicator was finalized");
    }
    return HOOP_OK;
}

/* Has an awaited rank said goodbye? What it has not delivered will never come. */
static bool driver_awaits_the_left(struct hoop_comm *comm, uint32_t *ret_rank)
{
    return hoop_operation_awaits(&comm->operation, hoop_comm_left, comm, ret_rank);
}

/*
 * The driver waits for a rank that has left: may a link that is still being made be all that is
 * missing? A goodbye may arrive before the blob and the connection of a link, though all data were
 * sent before it.
 */
static bool driver_link_may_come(struct hoop_comm *comm)
{
    const uint64_t now = hoop_now_ns();
    comm->left_ns = comm->left_ns != 0 ? comm->left_ns : now;
    return comm->operation.env.over_links && now - comm->left_ns < DRIVER_LEFT_PATIENCE_NS;
}

/* Before the driver sleeps: sends what it has held back from other ranks. */
static void driver_push(struct hoop_comm *comm)
{
    if (comm->sleeper.has_sockets &&
        atomic_load_explicit(comm->sleeper.sleeping, memory_order_relaxed) != 0) {
        hoop_owed_push(&comm->engine->owed);
    }
}

static bool driver_is_stuck(struct hoop_comm *comm)
{
    return comm->sleeper.has_sockets &&
           hoop_links_are_stuck(&comm->links, comm->dead_after_ms, &comm->operation.failure);
}

static bool driver_has_failed(const struct hoop_comm *comm)
{
    return atomic_load_explicit(&comm->board.head->failed, memory_order_acquire) != 0;
}

enum hoop_poll hoop_driver_poll(void *arg, bool look)
{
    struct hoop_comm *comm = arg;
    struct hoop_operation *operation = &comm->operation;
    enum hoop_poll polled = hoop_operation_poll(operation);
    if (polled != HOOP_POLL_IDLE || !look) {
        return polled;
    }
    uint32_t rank = 0;
    driver_report_if_asked(comm);
    driver_push(comm);
    const enum hoop_awaited_what awaited = hoop_operation_awaited(operation, &rank);
    hoop_history_look(&comm->history, awaited, rank);
    const bool failed = driver_has_failed(comm);
    const bool left = !failed && driver_awaits_the_left(comm, &rank);
    if (!failed && (!left || driver_link_may_come(comm))) {
        comm->left_ns = left ? comm->left_ns : 0;
        return driver_is_stuck(comm) ? HOOP_POLL_DONE : HOOP_POLL_IDLE;
    }
    /* What was delivered before the failure, or the goodbye, is visible now: use it. */
    polled = hoop_operation_poll(operation);
    if (polled != HOOP_POLL_IDLE) {
        return polled;
    }
    uint32_t still = comm->n;
    const bool gone = driver_awaits_the_left(comm, &still) && still == rank;
    /* A rank that aborts publishes the failure before it leaves, so the failure is checked after
     * `gone`. */
    if (driver_has_failed(comm)) {
        hoop_board_failed(&comm->board, &operation->failure);
    } else if (gone) {
        hoop_failure_set(&operation->failure, HOOP_REMOTE_ERROR, (int)rank,
                         "rank %u has left the communicator", rank);
    } else {
        return HOOP_POLL_IDLE;
    }
    return HOOP_POLL_DONE;
}

/* Inlined, like driver_end(): they are part of the latency of every small operation. */
static inline __attribute__((always_inline)) void driver_begin(struct hoop_comm *comm,
                                                               const struct hoop_request *request)
{
    atomic_store_explicit(&comm->waiting, 1, memory_order_relaxed);
    comm->left_ns = 0;
    hoop_links_begin_wait(&comm->links);
    hoop_operation_start(&comm->operation, request);
    hoop_history_begin(&comm->history, comm->board.sequence, &request->signature);
}

static inline __attribute__((always_inline)) hoop_result_t driver_end(struct hoop_comm *comm,
                                                                      hoop_result_t waited)
{
    struct hoop_operation *operation = &comm->operation;
    atomic_store_explicit(&comm->waiting, 0, memory_order_relaxed);
    if (waited == HOOP_TIMEOUT) {
        hoop_failure_set(&operation->failure, HOOP_TIMEOUT, -1,
                         "not complete on rank %u after %llu ms (HOOP_OP_TIMEOUT_MS)", comm->rank,
                         (unsigned long long)comm->op_timeout_ms);
    }
    hoop_result_t result = HOOP_OK;
    if (__builtin_expect(operation->failure.code != HOOP_OK, 0)) {
        driver_fail(comm);
        result = hoop_error(comm->failure.code, "%s", comm->failure.text);
    }
    hoop_history_end(&comm->history, result);
    return result;
}

hoop_result_t hoop_driver_end(struct hoop_comm *comm, hoop_result_t waited)
{
    return driver_end(comm, waited);
}

hoop_result_t hoop_driver_begin(struct hoop_comm *comm, const struct hoop_request *request)
{
    const hoop_result_t refused = driver_refuse(comm);
    if (refused == HOOP_OK) {
        comm->deadline_ns = hoop_deadline_ns(comm->op_timeout_ms);
        driver_begin(comm, request);
    }
    return refused;
}

/* Runs an operation with the turn, and gives the turn back. */
static hoop_result_t driver_run(struct hoop_comm *comm, const struct hoop_request *request)
{
    hoop_result_t result = HOOP_OK;
    if (__builtin_expect(
            /* acquires what a birth in the background has made */
            atomic_load_explicit(&comm->closed, memory_order_acquire) != 0 ||
                atomic_load_explicit(&comm->failed, memory_order_relaxed) != HOOP_OK ||
                atomic_load_explicit(&comm->board.head->failed, memory_order_relaxed) != 0,
            0)) {
        result = hoop_comm_check_born(comm);
        result = result == HOOP_OK ? driver_refuse(comm) : result;
    } else {
        struct hoop_sleeper *sleeper = &comm->sleeper;
        const struct hoop_wait wait = {
            .poll = hoop_driver_poll,
            .arg = comm,
            .sleepers = &sleeper,
            .n_sleepers = 1,
            .spin = comm->spin.ns != 0 ? &comm->spin : NULL,
            .timeout_ms = comm->op_timeout_ms,
        };
        driver_begin(comm, request);
        result = driver_end(comm, hoop_wait(&wait));
    }
    hoop_turn_leave(&comm->turn);
    return result;
}

hoop_result_t hoop_driver_miss_turn(struct hoop_comm *comm)
{
    const unsigned long long patience_ms = hoop_comm_patience_ms(comm);
    hoop_comm_raise(comm, HOOP_TIMEOUT, (int)comm->rank,
                    "rank %u: a thread has been inside the communicator for more than %llu ms",
                    comm->rank, patience_ms);
    return hoop_error(HOOP_TIMEOUT,
                      "rank %u: another thread has been inside the communicator for more than %llu "
                      "ms: this call could not begin",
                      comm->rank, patience_ms);
}

/* The slow path, which may make system calls: with cancellation disabled. */
static hoop_result_t driver_submit(struct hoop_comm *comm, const struct hoop_request *request)
{
    const hoop_result_t born = hoop_comm_check_born(comm);
    if (born != HOOP_OK) {
        return born; /* a pending comm: the turn would come only when its birth is over */
    }
    const int before = hoop_cancel_off();
    const hoop_result_t entered = hoop_turn_enter(&comm->turn, hoop_comm_patience_ms(comm));
    const hoop_result_t result =
        entered == HOOP_OK ? driver_run(comm, request) : hoop_driver_miss_turn(comm);
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_comm_submit(struct hoop_comm *comm, const struct hoop_request *request)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    const struct hoop_signature *what = &request->signature;
    const bool small = what->count < comm->small_counts[what->collective];
    return small && hoop_turn_take(&comm->turn) ? driver_run(comm, request)
                                                : driver_submit(comm, request);
}

void hoop_comm_learn(struct hoop_comm *comm, hoop_stream_t stream, size_t bytes)
{
    const int before = hoop_cancel_off();
    if (hoop_turn_enter(&comm->turn, hoop_comm_patience_ms(comm)) == HOOP_OK) {
        struct hoop_operation *operation = &comm->operation;
        if (!comm->over && comm->failed == HOOP_OK) {
            hoop_ahead_learn(&comm->ahead, &operation->staging, stream, bytes,
                             operation->device != 0);
        }
        hoop_turn_leave(&comm->turn);
    }
    hoop_cancel_restore(before);
}

enum hoop_launch_way hoop_comm_launch_way(struct hoop_comm *comm,
                                          const struct hoop_request *request, bool kernels,
                                          struct hoop_told *ret)
{
    pthread_mutex_lock(&comm->look_lock);
    const enum hoop_launch_way way =
        comm->over ? HOOP_LAUNCH_NOT
                   : hoop_operation_launch_way(&comm->operation, request, kernels, ret);
    pthread_mutex_unlock(&comm->look_lock);
    return way;
}

void hoop_comm_cut(struct hoop_comm *comm, const struct hoop_request *request,
                   struct hoop_staging *staging)
{
    pthread_mutex_lock(&comm->look_lock);
    if (!comm->over) {
        hoop_operation_cut(&comm->operation, request, staging);
    }
    pthread_mutex_unlock(&comm->look_lock);
}

/*
 * Driving a comm (see driver.h). Every function here is the driver's: it holds the comm's turn.
 */
#include "comm/driver.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

/* So long a link of a rank that has left may take to show up. */
#define DRIVER_LEFT_PATIENCE_NS HOOP_NS_PER_S

/* ---- The flight recorder --------------------------------------------------------------------- */

static void driver_write_history(const struct hoop_comm *comm)
{
    char who[64];
    snprintf(who, sizeof(who), "rank %u%s%s", comm->rank, comm->name[0] != '\0' ? " of " : "",
             comm->name);
    hoop_history_dump(&comm->history, who);
}

/* The comm has failed: it writes, and so does every other one of the process at its next look. */
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
    if (operation->failure.code != HOOP_OK) {
        hoop_comm_publish(comm, &operation->failure);
    }
    hoop_board_failed(&comm->board, &cause);
    if (operation->failure.code == HOOP_MISMATCH || operation->failure.code == HOOP_TIMEOUT) {
        cause = operation->failure; /* my own view says more to my user than another's */
    }
    hoop_links_finish(&comm->links, true);
    const int culprit = cause.code == HOOP_REMOTE_ERROR ? cause.rank : -1;
    const bool out = hoop_operation_cancel(operation, culprit, comm->op_timeout_ms) == HOOP_OK;
    hoop_failure_set(&comm->failure, cause.code, cause.rank, "rank %u: %s: %s%s%s", comm->rank,
                     what, cause.text, out ? "" : "; ", out ? "" : hoop_thread_error());
    atomic_store_explicit(&comm->failed, comm->failure.code, memory_order_release);
    hoop_log(HOOP_LOG_ERROR, HOOP_LOG_COMM, "%s", comm->failure.text);
    driver_report(comm);
    hoop_cancel_restore(before);
}

static hoop_result_t driver_refuse(struct hoop_comm *comm)
{
    struct hoop_failure failure;
    hoop_result_t state = (hoop_result_t)comm->failed;
    if (state != HOOP_OK) {
        failure = comm->failure;
    } else {
        state = hoop_board_failed(&comm->board, &failure);
    }
    if (state != HOOP_OK) {
        return hoop_error(state, "the communicator has failed: %s", failure.text);
    }
    if (comm->finalized) {
        return hoop_error(HOOP_INVALID_USAGE, "the communicator was finalized");
    }
    return HOOP_OK;
}

/* An awaited rank said goodbye: what it has not delivered will never come. */
static bool driver_awaits_the_left(struct hoop_comm *comm, uint32_t *ret_rank)
{
    return hoop_operation_awaits(&comm->operation, hoop_comm_left, comm, ret_rank);
}

/*
 * The driver waits for a rank that has left: may it be for a link only? A goodbye overtakes the
 * blob and the connection of a link whose data are all sent already.
 */
static bool driver_link_may_come(struct hoop_comm *comm)
{
    const uint64_t now = hoop_now_ns();
    comm->left_ns = comm->left_ns != 0 ? comm->left_ns : now;
    return comm->operation.env.over_links && now - comm->left_ns < DRIVER_LEFT_PATIENCE_NS;
}

static bool driver_is_stuck(struct hoop_comm *comm)
{
    return comm->sleeper.has_sockets &&
           hoop_links_are_stuck(&comm->links, comm->dead_after_ms, &comm->operation.failure);
}

/*
 * Moves the running operation. look: and ends it when the comm has failed, or the awaited rank has
 * left, and nothing moves any more.
 */
static enum hoop_poll driver_poll(void *arg, bool look)
{
    struct hoop_comm *comm = arg;
    struct hoop_operation *operation = &comm->operation;
    enum hoop_poll polled = hoop_operation_poll(operation);
    if (polled != HOOP_POLL_IDLE || !look) {
        return polled;
    }
    uint32_t rank = 0;
    driver_report_if_asked(comm);
    const bool failed = atomic_load_explicit(&comm->board.head->failed, memory_order_acquire) != 0;
    const bool left = !failed && driver_awaits_the_left(comm, &rank);
    if (!failed && (!left || driver_link_may_come(comm))) {
        comm->left_ns = left ? comm->left_ns : 0;
        return driver_is_stuck(comm) ? HOOP_POLL_DONE : HOOP_POLL_IDLE;
    }
    /* What was delivered before is here now: use it. */
    polled = hoop_operation_poll(operation);
    if (polled != HOOP_POLL_IDLE) {
        return polled;
    }
    uint32_t still = comm->n;
    if (failed) {
        hoop_board_failed(&comm->board, &operation->failure);
    } else if (driver_awaits_the_left(comm, &still) && still == rank) {
        hoop_failure_set(&operation->failure, HOOP_REMOTE_ERROR, (int)rank,
                         "rank %u has left the communicator", rank);
    } else {
        return HOOP_POLL_IDLE;
    }
    return HOOP_POLL_DONE;
}

static void driver_begin(struct hoop_comm *comm, const struct hoop_request *request)
{
    atomic_store_explicit(&comm->waiting, 1, memory_order_relaxed);
    comm->left_ns = 0;
    hoop_links_begin_wait(&comm->links);
    hoop_operation_start(&comm->operation, request);
    hoop_history_begin(&comm->history, comm->board.sequence, &request->signature);
}

static hoop_result_t driver_end(struct hoop_comm *comm, hoop_result_t waited)
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
        driver_fail(comm);
        result = hoop_error(comm->failure.code, "%s", comm->failure.text);
    }
    hoop_history_end(&comm->history, result);
    return result;
}

/* With the turn, which it gives back. */
static hoop_result_t driver_run(struct hoop_comm *comm, const struct hoop_request *request)
{
    hoop_result_t result = HOOP_OK;
    if (__builtin_expect(
            comm->finalized || comm->failed != HOOP_OK ||
                atomic_load_explicit(&comm->board.head->failed, memory_order_relaxed) != 0,
            0)) {
        result = driver_refuse(comm);
    } else {
        struct hoop_sleeper *sleeper = &comm->sleeper;
        const struct hoop_wait wait = {
            .poll = driver_poll,
            .arg = comm,
            .sleepers = &sleeper,
            .n_sleepers = 1,
            .spin_ns = comm->spin_ns != 0 ? &comm->spin_ns : NULL,
            .timeout_ms = comm->op_timeout_ms,
        };
        driver_begin(comm, request);
        result = driver_end(comm, hoop_wait(&wait));
    }
    hoop_turn_leave(&comm->turn);
    return result;
}

/* The turn did not come: who has it is stuck, and the order of calls can't be kept any more. */
static hoop_result_t driver_miss_turn(struct hoop_comm *comm)
{
    const unsigned long long patience_ms = hoop_comm_patience_ms(comm);
    hoop_comm_raise(comm, HOOP_TIMEOUT, (int)comm->rank,
                    "rank %u: a thread has been inside the communicator for more than %llu ms",
                    comm->rank, patience_ms);
    return hoop_error(HOOP_TIMEOUT,
                      "rank %u: another thread has been inside the communicator for more than "
                      "%llu ms: this one had no turn",
                      comm->rank, patience_ms);
}

/* What may call the system: not a cancellation point on the way. */
static hoop_result_t driver_submit(struct hoop_comm *comm, const struct hoop_request *request)
{
    const int before = hoop_cancel_off();
    const hoop_result_t entered = hoop_turn_enter(&comm->turn, hoop_comm_patience_ms(comm));
    const hoop_result_t result =
        entered == HOOP_OK ? driver_run(comm, request) : driver_miss_turn(comm);
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

/* ---- Several comms at once ------------------------------------------------------------------ */

/*
 * One comm of a batch. Its turn is asked for when the batch begins and given back when its work is
 * over, whatever the others do: nobody waits for one comm while holding still another.
 */
struct batch_comm {
    struct hoop_comm *comm;
    enum { BATCH_QUEUED, BATCH_RUNNING, BATCH_OVER } state;
    size_t at; /* index of the work that runs, or is to be the first */
    struct hoop_turn_place place;
};

struct batch {
    struct hoop_comm_work *work;
    size_t count;
    struct batch_comm *comms;
    struct hoop_sleeper **sleepers; /* [n_comms]: what each waits for now */
    uint32_t n_comms;
    hoop_result_t result; /* first failure */
};

static void batch_over(struct batch *batch, uint32_t c, hoop_result_t result)
{
    batch->result = batch->result == HOOP_OK ? result : batch->result;
    batch->sleepers[c] = NULL;
    batch->comms[c].state = BATCH_OVER;
}

static void batch_leave(struct batch *batch, uint32_t c, hoop_result_t result)
{
    struct hoop_comm *comm = batch->comms[c].comm;
    if (batch->sleepers[c] != NULL && !comm->over) {
        /* The next one's to say: this thread may be in the middle of going to sleep. */
        atomic_store_explicit(comm->sleeper.sleeping, 0, memory_order_relaxed);
    }
    batch_over(batch, c, result);
    hoop_turn_leave(&comm->turn);
}

/* Begins the comm's first piece of work at or behind `at`; without one it is over. */
static void batch_next(struct batch *batch, uint32_t c)
{
    struct batch_comm *member = &batch->comms[c];
    struct hoop_comm *comm = member->comm;
    while (member->at < batch->count && batch->work[member->at].comm != comm) {
        member->at++;
    }
    const hoop_result_t refused = member->at < batch->count ? driver_refuse(comm) : HOOP_OK;
    if (member->at == batch->count || refused != HOOP_OK) {
        batch_leave(batch, c, refused);
    } else {
        comm->deadline_ns = hoop_deadline_ns(comm->op_timeout_ms);
        driver_begin(comm, &batch->work[member->at].request);
    }
}

static void batch_enter(struct batch *batch, uint32_t c)
{
    batch->comms[c].state = BATCH_RUNNING;
    batch->sleepers[c] = &batch->comms[c].comm->sleeper;
    batch_next(batch, c);
}

static void batch_finish_one(struct batch *batch, uint32_t c, hoop_result_t waited)
{
    struct batch_comm *member = &batch->comms[c];
    const hoop_result_t result = driver_end(member->comm, waited);
    if (result != HOOP_OK) {
        batch_leave(batch, c, result);
    } else {
        member->at++;
        hoop_turn_move(&member->comm->turn);
        batch_next(batch, c);
    }
}

static enum hoop_poll batch_poll_running(struct batch *batch, uint32_t c, bool look)
{
    struct hoop_comm *comm = batch->comms[c].comm;
    enum hoop_poll polled = driver_poll(comm, look);
    const bool late = polled == HOOP_POLL_IDLE && look && hoop_now_ns() >= comm->deadline_ns;
    if (late) {
        polled = hoop_poll_out(driver_poll, comm); /* see hoop_wait() */
    }
    if (polled == HOOP_POLL_DONE || late) {
        batch_finish_one(batch, c, polled == HOOP_POLL_DONE ? HOOP_OK : HOOP_TIMEOUT);
        return HOOP_POLL_BUSY;
    }
    return polled;
}

static enum hoop_poll batch_poll_queued(struct batch *batch, uint32_t c)
{
    const hoop_result_t turn = hoop_turn_poll(&batch->comms[c].place);
    if (turn == HOOP_AGAIN) {
        return HOOP_POLL_IDLE;
    }
    if (turn == HOOP_OK) {
        batch_enter(batch, c);
    } else {
        batch_over(batch, c, driver_miss_turn(batch->comms[c].comm));
    }
    return HOOP_POLL_BUSY;
}

static enum hoop_poll batch_poll(void *arg, bool look)
{
    struct batch *batch = arg;
    bool busy = false, left = false;
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        enum hoop_poll polled = HOOP_POLL_IDLE;
        if (batch->comms[c].state == BATCH_RUNNING) {
            polled = batch_poll_running(batch, c, look);
        } else if (batch->comms[c].state == BATCH_QUEUED) {
            polled = batch_poll_queued(batch, c);
        }
        busy |= polled != HOOP_POLL_IDLE;
        left |= batch->comms[c].state != BATCH_OVER;
    }
    return !left ? HOOP_POLL_DONE : busy ? HOOP_POLL_BUSY : HOOP_POLL_IDLE;
}

static int batch_by_id(const void *a, const void *b)
{
    const struct hoop_comm *left = ((const struct batch_comm *)a)->comm;
    const struct hoop_comm *right = ((const struct batch_comm *)b)->comm;
    return (left->id > right->id) - (left->id < right->id);
}

/* The comms of the work, each once, by id. */
static void batch_collect(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        batch->comms[i].comm = batch->work[i].comm;
    }
    qsort(batch->comms, batch->count, sizeof(*batch->comms), batch_by_id);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->n_comms == 0 || batch->comms[batch->n_comms - 1].comm != batch->comms[i].comm) {
            batch->comms[batch->n_comms++].comm = batch->comms[i].comm;
        }
    }
}

/* Takes a comm's turn, or gets in line for it. */
static void batch_begin(struct batch *batch, uint32_t c)
{
    struct batch_comm *member = &batch->comms[c];
    if (hoop_turn_take(&member->comm->turn)) {
        batch_enter(batch, c);
    } else {
        member->state = BATCH_QUEUED;
        batch->sleepers[c] = &member->place.sleeper;
        hoop_turn_queue(&member->comm->turn, &member->place, hoop_comm_patience_ms(member->comm));
        (void)batch_poll_queued(batch, c);
    }
}

static void batch_run(struct batch *batch)
{
    uint64_t spin_ns = UINT64_MAX;
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        batch_begin(batch, c);
        /* What is in line has no spin to give: it belongs to whose turn it is. */
        const bool mine = batch->comms[c].state == BATCH_RUNNING;
        const uint64_t its_ns = mine ? batch->comms[c].comm->spin_ns : UINT64_MAX;
        spin_ns = its_ns < spin_ns ? its_ns : spin_ns;
    }
    const struct hoop_wait wait = {
        .poll = batch_poll,
        .arg = batch,
        .sleepers = batch->sleepers,
        .n_sleepers = batch->n_comms,
        .spin_ns = spin_ns != 0 && spin_ns != UINT64_MAX ? &spin_ns : NULL,
    };
    hoop_wait(&wait); /* every piece of work has a deadline of its own */
}

hoop_result_t hoop_comm_submit_all(struct hoop_comm_work *work, size_t count)
{
    if (count == 0) {
        return HOOP_OK;
    }
    struct batch batch = {.work = work, .count = count};
    const int before = hoop_cancel_off();
    batch.comms = calloc(count, sizeof(*batch.comms));
    batch.sleepers = calloc(count, sizeof(struct hoop_sleeper *));
    if (batch.comms == NULL || batch.sleepers == NULL) {
        batch.result = hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a group of %zu calls", count);
    } else {
        batch_collect(&batch);
        batch_run(&batch);
    }
    free(batch.comms);
    free(batch.sleepers);
    hoop_cancel_restore(before);
    return batch.result;
}

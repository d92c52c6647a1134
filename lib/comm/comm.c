/* Birth, death and failure of a comm (see comm.h). */
#include "comm/comm.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long a failed operation may take to return: it may have to wait for a peer's thread. */
#define COMM_GRACE_MS 60000u

static _Atomic uint64_t comm_ids;

/* ---- Failure -------------------------------------------------------------------------------- */

void hoop_comm_publish(struct hoop_comm *comm, const struct hoop_failure *failure)
{
    if (hoop_board_fail(&comm->board, failure) && comm->spans) {
        hoop_member_raise(comm->member, failure);
    }
}

bool hoop_comm_is_ready(const struct hoop_comm *comm)
{
    return atomic_load_explicit(&comm->ready, memory_order_acquire);
}

/* Before the comm is ready, under look_lock: ends the join that may be in progress, and keeps the
 * failure for the end of the birth. */
static void comm_fail_early(struct hoop_comm *comm, const struct hoop_failure *failure)
{
    if (comm->early.code == HOOP_OK) {
        comm->early = *failure;
    }
    if (comm->member != NULL) {
        hoop_member_cancel(comm->member);
    }
}

/* Does nothing if comm->closed has any bit of `closed`. */
static void comm_raise(struct hoop_comm *comm, const struct hoop_failure *failure, uint32_t closed)
{
    if (hoop_is_forked()) {
        return;
    }
    pthread_mutex_lock(&comm->look_lock);
    const bool ends = !comm->over && (comm->closed & closed) == 0;
    if (ends && hoop_comm_is_ready(comm)) {
        hoop_comm_publish(comm, failure);
    } else if (ends) {
        comm_fail_early(comm, failure);
    }
    pthread_mutex_unlock(&comm->look_lock);
}

void hoop_comm_raise(struct hoop_comm *comm, hoop_result_t code, int rank, const char *format, ...)
{
    struct hoop_failure failure = {.code = code, .rank = rank};
    va_list args;
    va_start(args, format);
    hoop_text_format(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    comm_raise(comm, &failure, 0);
}

void hoop_comm_give_up(struct hoop_comm *comm, const char *how)
{
    struct hoop_failure failure = {.code = HOOP_OK};
    hoop_failure_set(&failure, HOOP_ABORTED, (int)comm->rank, "rank %u %s the communicator",
                     comm->rank, how);
    comm_raise(comm, &failure, HOOP_COMM_FINALIZED);
}

hoop_result_t hoop_comm_estimate(struct hoop_comm *comm, const struct hoop_request *request,
                                 uint64_t *ret_ns)
{
    pthread_mutex_lock(&comm->look_lock);
    const bool over = comm->over;
    *ret_ns = over ? 0 : hoop_operation_estimate(&comm->operation, request);
    pthread_mutex_unlock(&comm->look_lock);
    return over ? hoop_error(HOOP_INVALID_USAGE,
                             "the communicator was aborted: it has no plans any more")
                : HOOP_OK;
}

hoop_result_t hoop_comm_look_state(const struct hoop_comm *comm, struct hoop_failure *ret)
{
    const int code = atomic_load_explicit(&comm->failed, memory_order_acquire);
    if (code == HOOP_OK) {
        return hoop_comm_is_ready(comm) ? hoop_board_failure(&comm->board, ret) : HOOP_OK;
    }
    if (ret != NULL) {
        *ret = comm->failure;
    }
    return (hoop_result_t)code;
}

hoop_result_t hoop_comm_state(struct hoop_comm *comm, struct hoop_failure *ret)
{
    if (hoop_is_forked()) {
        const hoop_result_t forked = hoop_forked_error();
        struct hoop_failure failure = {.code = HOOP_OK};
        (void)hoop_failure_take(&failure, forked, -1);
        if (ret != NULL) {
            *ret = failure;
        }
        return forked;
    }
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) != HOOP_OK) {
        return hoop_comm_look_state(comm, ret);
    }
    pthread_mutex_lock(&comm->look_lock);
    const hoop_result_t state = hoop_comm_look_state(comm, ret);
    pthread_mutex_unlock(&comm->look_lock);
    return state;
}

uint32_t hoop_comm_how_left(void *arg, uint32_t rank)
{
    const struct hoop_comm *comm = arg;
    return atomic_load_explicit(&hoop_board_rank(&comm->board, rank)->left, memory_order_acquire);
}

bool hoop_comm_left(void *arg, uint32_t rank)
{
    return hoop_comm_how_left(arg, rank) != 0;
}

static void comm_leave(const struct hoop_comm *comm)
{
    hoop_board_leave(&comm->board, comm->rank, comm->successor != 0 ? comm->successor : HOOP_LEFT);
}

/* ---- The handle ------------------------------------------------------------------------------ */

/* All comms, tombstones included, so that a leak checker finds aborted handles reachable. */
static pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoop_list_node comms = HOOP_LIST_EMPTY(comms);

bool hoop_comm_exists(const struct hoop_comm *comm)
{
    bool exists = false;
    pthread_mutex_lock(&comms_lock);
    HOOP_LIST_EACH(const struct hoop_comm, other, &comms, node) {
        exists |= other == comm;
    }
    pthread_mutex_unlock(&comms_lock);
    return exists;
}

void hoop_comm_each(void (*fn)(void *arg, struct hoop_comm *comm), void *arg)
{
    pthread_mutex_lock(&comms_lock);
    HOOP_LIST_EACH(struct hoop_comm, comm, &comms, node) {
        fn(arg, comm);
    }
    pthread_mutex_unlock(&comms_lock);
}

hoop_result_t hoop_comm_create(struct hoop_comm **ret)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    struct hoop_comm *comm = aligned_alloc(HOOP_LINE_BYTES, (sizeof(*comm) + HOOP_LINE_BYTES - 1) /
                                                                HOOP_LINE_BYTES * HOOP_LINE_BYTES);
    struct hoop_engine *engine = calloc(1, sizeof(*engine));
    if (comm == NULL || engine == NULL) {
        free(comm);
        free(engine);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a communicator");
    }
    memset(comm, 0, sizeof(*comm));
    comm->id = atomic_fetch_add(&comm_ids, 1) + 1;
    comm->sleeper.wake_fd = comm->sleeper.poll_fd = -1;
    comm->engine = engine;
    comm->device = hoop_cuda_load() ? hoop_cuda_current_device() : -1;
    hoop_turn_init(&comm->turn);
    hoop_events_init(&comm->events);
    pthread_mutex_init(&comm->look_lock, NULL);
    hoop_job_init(&comm->job);
    pthread_mutex_lock(&comms_lock);
    hoop_list_push_back(&comms, &comm->node);
    pthread_mutex_unlock(&comms_lock);
    *ret = comm;
    return HOOP_OK;
}

void hoop_comm_inherit(const struct hoop_comm *comm, struct hoop_comm_options *ret)
{
    ret->join.agreement = comm->agreed;
    ret->join.agreement.oversubscribed = 0;
    ret->join.agreement.no_cma = 0;
    ret->op_timeout_ms = comm->op_timeout_ms;
    ret->join.timeout_ms = comm->init_timeout_ms;
    ret->join.dead_after_ms = comm->dead_after_ms;
    ret->blocking = comm->blocking;
    memcpy(ret->name, comm->name, sizeof(ret->name));
}

hoop_result_t hoop_comm_check_born(const struct hoop_comm *comm)
{
    if (hoop_comm_is_pending(comm)) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "the communicator is in progress: hoop_comm_get_async_error() says until "
                          "when");
    }
    return HOOP_OK;
}

hoop_result_t hoop_comm_check_open(const struct hoop_comm *comm)
{
    const hoop_result_t born = hoop_comm_check_born(comm);
    return born != HOOP_OK || (atomic_load(&comm->closed) & HOOP_COMM_FINALIZED) == 0
               ? born
               : hoop_error(HOOP_INVALID_USAGE, "the communicator was finalized");
}

hoop_result_t hoop_comm_refuse(struct hoop_comm *comm)
{
    struct hoop_failure failure;
    const hoop_result_t state = hoop_comm_state(comm, &failure);
    return state == HOOP_OK ? hoop_comm_check_open(comm)
                            : hoop_error(state, "the communicator has failed: %s", failure.text);
}

void hoop_comm_pin(struct hoop_comm *comm, bool pin)
{
    atomic_fetch_add(&comm->pins, pin ? 1u : UINT32_MAX);
}

bool hoop_comm_begin_pending(struct hoop_comm *comm)
{
    return (atomic_fetch_or(&comm->closed, HOOP_COMM_PENDING) & HOOP_COMM_PENDING) == 0;
}

void hoop_comm_end_pending(struct hoop_comm *comm)
{
    atomic_fetch_and(&comm->closed, ~(uint32_t)HOOP_COMM_PENDING);
}

bool hoop_comm_is_pending(const struct hoop_comm *comm)
{
    return (atomic_load_explicit(&comm->closed, memory_order_acquire) & HOOP_COMM_PENDING) != 0;
}

/* ---- Death ---------------------------------------------------------------------------------- */

uint64_t hoop_comm_patience_ms(const struct hoop_comm *comm)
{
    return comm->op_timeout_ms == 0 ? 0 : comm->op_timeout_ms + COMM_GRACE_MS;
}

/* From now on code without the turn sees the failure and nothing else of the comm. */
static void comm_make_tombstone(struct hoop_comm *comm)
{
    if (comm->failed == HOOP_OK) {
        struct hoop_failure cause = {.code = HOOP_OK};
        if (hoop_comm_is_ready(comm)) {
            hoop_board_failed(&comm->board, &cause);
        }
        hoop_failure_set(&cause, HOOP_ABORTED, (int)comm->rank, "rank %u left the communicator",
                         comm->rank);
        comm->failure = cause;
        atomic_store_explicit(&comm->failed, cause.code, memory_order_release);
    }
    pthread_mutex_lock(&comm->look_lock);
    comm->over = true;
    pthread_mutex_unlock(&comm->look_lock);
}

/* DONE: no look at a message of another rank is owed (over links), or what is missing will never
 * come. */
static enum hoop_poll comm_poll_owed(void *arg, bool look)
{
    struct hoop_comm *comm = arg;
    struct hoop_owed *owed = &comm->engine->owed;
    struct hoop_failure failure = {.code = HOOP_OK};
    const bool over = look && owed->count > 0 &&
                      (hoop_comm_look_state(comm, NULL) != HOOP_OK ||
                       hoop_comm_left(comm, owed->link->params.peer));
    if (hoop_owed_progress(owed)) {
        return HOOP_POLL_BUSY; /* also with what its sender sent before it left */
    }
    return over || hoop_owed_check(owed, &failure) != HOOP_AGAIN ? HOOP_POLL_DONE : HOOP_POLL_IDLE;
}

/* Waits for messages that others still send and that this rank owes a look: if it left before them
 * their links would break. At most as long as an operation may take. */
static void comm_await_owed(struct hoop_comm *comm)
{
    struct hoop_sleeper *sleeper = &comm->sleeper;
    const struct hoop_wait wait = {.poll = comm_poll_owed,
                                   .arg = comm,
                                   .sleepers = &sleeper,
                                   .n_sleepers = 1,
                                   .timeout_ms = comm->op_timeout_ms};
    hoop_owed_push(&comm->engine->owed);
    if (comm->engine->owed.count > 0) {
        (void)hoop_wait(&wait);
    }
}

/* Compares this rank's last calls with those of ranks that it has not seen yet. At the end of a
 * comm no later operation does that. */
static hoop_result_t comm_look_back(struct hoop_comm *comm, struct hoop_failure *ret)
{
    hoop_result_t result = hoop_owed_settle(&comm->engine->owed, ret);
    if (result == HOOP_OK || result == HOOP_AGAIN) {
        result = hoop_board_look_back(&comm->board, ret);
    }
    if (result != HOOP_OK) {
        hoop_board_name_sites(&comm->board, ret);
        hoop_comm_raise(comm, result, ret->rank, "%s", ret->text);
        hoop_log(HOOP_LOG_ERROR, HOOP_LOG_COMM, "rank %u: %s", comm->rank, ret->text);
    }
    return result;
}

/* patience_ms: see hoop_links_finish(). */
static void comm_finish_links(struct hoop_comm *comm, uint64_t patience_ms)
{
    hoop_links_finish(&comm->links, patience_ms);
    comm->engine->owed = (struct hoop_owed){.count = 0}; /* it refers to links */
}

/* With the turn. The last check of the state and the goodbye are one step under look_lock, so that
 * no abort comes in between. The links end here, because over a network ranks that still wait for
 * this one notice it by them. */
static hoop_result_t comm_say_goodbye(struct hoop_comm *comm, bool waits)
{
    struct hoop_failure failure = {.code = HOOP_OK};
    hoop_result_t result = hoop_comm_state(comm, &failure);
    if (result == HOOP_OK && waits) {
        comm_await_owed(comm);
    }
    if (result == HOOP_OK) {
        result = comm_look_back(comm, &failure);
    }
    if (result == HOOP_OK) {
        pthread_mutex_lock(&comm->look_lock);
        result = hoop_comm_look_state(comm, &failure);
        if (result == HOOP_OK &&
            (atomic_fetch_or(&comm->closed, HOOP_COMM_FINALIZED) & HOOP_COMM_FINALIZED) != 0) {
            hoop_failure_set(&failure, HOOP_INVALID_USAGE, -1,
                             "the communicator was already finalized");
            result = HOOP_INVALID_USAGE;
        } else if (result == HOOP_OK) {
            comm_leave(comm);
        }
        pthread_mutex_unlock(&comm->look_lock);
    }
    if (result != HOOP_OK) {
        return hoop_error(result, "%s", failure.text);
    }
    comm_finish_links(comm, comm->dead_after_ms);
    return HOOP_OK;
}

hoop_result_t hoop_comm_say_goodbye(struct hoop_comm *comm, bool waits)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    if (!waits && !hoop_turn_try(&comm->turn)) {
        return HOOP_AGAIN;
    }
    hoop_result_t result =
        waits ? hoop_turn_enter(&comm->turn, hoop_comm_patience_ms(comm)) : HOOP_OK;
    if (result != HOOP_OK) {
        return hoop_error(result, "rank %u: another thread is inside the communicator", comm->rank);
    }
    const int before = hoop_cancel_off();
    result = comm_say_goodbye(comm, waits);
    hoop_turn_leave(&comm->turn);
    hoop_cancel_restore(before);
    return result;
}

static void comm_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void hoop_comm_close_descriptors(struct hoop_comm *comm)
{
    if (comm->sleeper.has_sockets) {
        comm_close(&comm->sleeper.poll_fd);
    }
    comm_close(&comm->sleeper.wake_fd);
}

/* Frees all but the handle. Accepts comms whose birth is not complete. */
static void comm_give_back(struct hoop_comm *comm)
{
    struct hoop_failure failure = {.code = HOOP_OK};
    bool failed = hoop_comm_is_ready(comm) && hoop_comm_state(comm, NULL) != HOOP_OK;
    if (hoop_comm_is_ready(comm) && !failed) {
        comm_await_owed(comm);
        failed = comm_look_back(comm, &failure) != HOOP_OK;
    }
    comm_make_tombstone(comm);
    if (hoop_comm_is_ready(comm)) {
        comm_leave(comm);
    }
    comm_finish_links(comm, failed ? 0 : comm->dead_after_ms);
    hoop_member_destroy(comm->member);
    comm->member = NULL;
    hoop_operation_finish(&comm->operation);
    hoop_board_finish(&comm->board);
    hoop_events_finish(&comm->events);
    hoop_comm_close_descriptors(comm);
    free(comm->engine);
    hoop_job_finish(&comm->job);
}

/* Takes the turn and makes a tombstone. HOOP_AGAIN: the comm has been pinned meanwhile. */
static hoop_result_t comm_bury(struct hoop_comm *comm, uint64_t patience_ms)
{
    hoop_result_t result = hoop_turn_enter(&comm->turn, patience_ms);
    if (result == HOOP_OK) {
        if (!comm->over && atomic_load(&comm->pins) != 0) {
            result = HOOP_AGAIN;
        } else if (!comm->over) {
            comm_give_back(comm);
        }
        hoop_turn_leave(&comm->turn);
    }
    return result;
}

void hoop_comm_miscarry(struct hoop_comm *comm, hoop_result_t code)
{
    (void)hoop_failure_take(&comm->failure, code, -1);
    atomic_store_explicit(&comm->failed, comm->failure.code, memory_order_release);
    (void)comm_bury(comm, 0);
}

/* Ends the comm's own birth if that is in progress in the background, and waits until the comm is
 * neither pending nor pinned. */
static hoop_result_t comm_settle(struct hoop_comm *comm, uint64_t patience_ms)
{
    const struct hoop_failure left = {.code = HOOP_ABORTED,
                                      .rank = -1,
                                      .text = "the communicator was given up before it was ready"};
    const uint64_t deadline = patience_ms == 0 ? HOOP_NEVER : hoop_deadline_ns(patience_ms);
    pthread_mutex_lock(&comm->look_lock);
    if (!comm->over && !hoop_comm_is_ready(comm)) {
        comm_fail_early(comm, &left);
    }
    pthread_mutex_unlock(&comm->look_lock);
    atomic_store_explicit(&comm->ending, true, memory_order_relaxed);
    while (hoop_comm_is_pending(comm) ||
           atomic_load_explicit(&comm->pins, memory_order_acquire) != 0) {
        if (hoop_now_ns() >= deadline) {
            return HOOP_TIMEOUT;
        }
        hoop_wait_briefly();
    }
    return HOOP_OK;
}

hoop_result_t hoop_comm_release(struct hoop_comm *comm, uint64_t patience_ms)
{
    if (hoop_is_forked()) {
        return HOOP_OK;
    }
    const int before = hoop_cancel_off();
    hoop_result_t entered = HOOP_AGAIN;
    while (entered == HOOP_AGAIN) {
        entered = comm_settle(comm, patience_ms);
        entered = entered == HOOP_OK ? comm_bury(comm, patience_ms) : entered;
    }
    hoop_cancel_restore(before);
    return entered == HOOP_OK ? HOOP_OK
                              : hoop_error(entered,
                                           "rank %u: another thread has been inside the "
                                           "communicator for more than %llu ms: nothing was freed",
                                           comm->rank, (unsigned long long)patience_ms);
}

hoop_result_t hoop_comm_end(struct hoop_comm *comm)
{
    if (comm == NULL || hoop_is_forked()) {
        return HOOP_OK;
    }
    const hoop_result_t result = hoop_comm_release(comm, hoop_comm_patience_ms(comm));
    if (result != HOOP_OK) {
        return result;
    }
    pthread_mutex_lock(&comms_lock);
    hoop_list_remove(&comm->node);
    pthread_mutex_unlock(&comms_lock);
    hoop_turn_finish(&comm->turn);
    pthread_mutex_destroy(&comm->look_lock);
    free(comm->ops);
    free(comm->registered);
    free(comm);
    return HOOP_OK;
}

/* Birth, death and failure of a comm (see comm.h). */
#include "comm/comm.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* An operation that has failed may take this long to be out: a peer's thread may be waited for. */
#define COMM_GRACE_MS 60000u
#define COMM_JOIN_GRACE_MS 10000u /* the last rung of the ladder in tree/leader.h */

/* What the service thread hears before the board is laid out. */
enum { EARLY_LOST = 1, EARLY_GONE = 2 };
struct comm_early {
    struct hoop_failure failure;
    char why[HOOP_FAILURE_TEXT_BYTES]; /* the last loss */
    uint8_t heard[];                   /* [n] bits, of each rank */
};

static _Atomic uint64_t comm_ids;

/* ---- Failure -------------------------------------------------------------------------------- */

/* For all ranks of this machine, and if nobody was first, of the others. */
void hoop_comm_publish(struct hoop_comm *comm, const struct hoop_failure *failure)
{
    if (hoop_board_fail(&comm->board, failure) && comm->spans) {
        hoop_member_raise(comm->member, failure);
    }
}

static bool comm_is_ready(const struct hoop_comm *comm)
{
    return atomic_load_explicit(&comm->ready, memory_order_acquire);
}

/* Keeps a failure for when the board is laid out, if it is not yet (true). */
static bool comm_fails_early(struct hoop_comm *comm, const struct hoop_failure *failure)
{
    if (comm_is_ready(comm)) {
        return false;
    }
    pthread_mutex_lock(&comm->birth_lock);
    const bool early = !comm_is_ready(comm);
    if (early && comm->early->failure.code == HOOP_OK) {
        comm->early->failure = *failure;
    }
    pthread_mutex_unlock(&comm->birth_lock);
    return early;
}

static void comm_raise(struct hoop_comm *comm, const struct hoop_failure *failure)
{
    if (!comm_fails_early(comm, failure)) {
        hoop_comm_publish(comm, failure);
    }
}

void hoop_comm_raise(struct hoop_comm *comm, hoop_result_t code, int rank, const char *format, ...)
{
    struct hoop_failure failure = {.code = code, .rank = rank};
    va_list args;
    va_start(args, format);
    hoop_text_format(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    if (hoop_is_forked()) {
        return;
    }
    pthread_mutex_lock(&comm->look_lock);
    if (!comm->over) {
        comm_raise(comm, &failure);
    }
    pthread_mutex_unlock(&comm->look_lock);
}

hoop_result_t hoop_comm_estimate(struct hoop_comm *comm, const struct hoop_request *request,
                                 uint64_t *ret_ns)
{
    pthread_mutex_lock(&comm->look_lock);
    const bool over = comm->over;
    *ret_ns = over ? 0 : hoop_operation_estimate(&comm->operation, request);
    pthread_mutex_unlock(&comm->look_lock);
    return over ? hoop_error(HOOP_INVALID_USAGE, "the communicator was aborted: it plans nothing")
                : HOOP_OK;
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
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) == HOOP_OK) {
        pthread_mutex_lock(&comm->look_lock);
        const bool over = comm->over;
        const hoop_result_t state = over ? HOOP_OK : hoop_board_failure(&comm->board, ret);
        pthread_mutex_unlock(&comm->look_lock);
        if (!over) {
            return state;
        }
    }
    const int code = atomic_load_explicit(&comm->failed, memory_order_acquire);
    if (ret != NULL) {
        *ret = comm->failure;
    }
    return (hoop_result_t)code;
}

/* ---- What the service thread tells ---------------------------------------------------------- */

/* It may have left in good order: whether it has stands on the board. */
static bool comm_lost_early(struct hoop_comm *comm, uint32_t rank, const char *why)
{
    pthread_mutex_lock(&comm->birth_lock);
    const bool early = !comm_is_ready(comm);
    if (early) {
        comm->early->heard[rank] |= EARLY_LOST;
        snprintf(comm->early->why, sizeof(comm->early->why), "%s", why);
    }
    pthread_mutex_unlock(&comm->birth_lock);
    return early;
}

static void comm_on_lost(void *arg, uint32_t rank, const char *why)
{
    struct hoop_comm *comm = arg;
    struct hoop_failure failure = {.code = HOOP_OK};
    if (!comm_lost_early(comm, rank, why)) {
        const struct hoop_peer *peer = &comm->board.peers[rank];
        hoop_failure_set(&failure, HOOP_REMOTE_ERROR, (int)rank, "rank %u (pid %d, host %s) %s",
                         rank, peer->pid, peer->host, why);
        comm_raise(comm, &failure);
    }
}

static void comm_on_beat(void *arg)
{
    struct hoop_comm *comm = arg;
    if (comm_is_ready(comm)) {
        atomic_fetch_add_explicit(&hoop_board_rank(&comm->board, comm->rank)->pulse, 1,
                                  memory_order_relaxed);
    }
}

static void comm_on_gone(void *arg, uint32_t rank)
{
    struct hoop_comm *comm = arg;
    pthread_mutex_lock(&comm->birth_lock);
    comm->early->heard[rank] |= EARLY_GONE;
    pthread_mutex_unlock(&comm->birth_lock);
    if (comm_is_ready(comm)) {
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
    return comm_is_ready(comm) ? atomic_load_explicit(&hoop_board_rank(&comm->board, rank)->pulse,
                                                      memory_order_relaxed)
                               : 0;
}

bool hoop_comm_left(void *arg, uint32_t rank)
{
    struct hoop_comm *comm = arg;
    return comm_is_ready(comm) && atomic_load_explicit(&hoop_board_rank(&comm->board, rank)->left,
                                                       memory_order_acquire) != 0;
}

static bool comm_waiting(void *arg)
{
    struct hoop_comm *comm = arg;
    return atomic_load_explicit(&comm->waiting, memory_order_relaxed) != 0;
}

/* Without memory for what its links need a comm can't go on. */
static void comm_push(struct hoop_comm *comm, const struct hoop_event *event)
{
    struct hoop_failure failure = {.code = HOOP_OK};
    if (!hoop_events_push(&comm->events, event)) {
        hoop_failure_set(&failure, HOOP_OUT_OF_MEMORY, (int)comm->rank,
                         "rank %u has no memory for what rank %u tells", comm->rank, event->rank);
        comm_raise(comm, &failure);
    }
}

static void comm_on_blob(void *arg, uint32_t from, uint32_t lane, bool from_sends,
                         const struct hoop_blob *blob)
{
    comm_push(
        arg,
        &(struct hoop_event){
            .kind = HOOP_EVENT_BLOB, .rank = from, .id = lane, .part = !from_sends, .blob = *blob});
}

static void comm_on_fetched(void *arg, uint32_t rank, uint64_t region_id, uint32_t generation,
                            const struct hoop_failure *failure)
{
    struct hoop_event event = {
        .kind = HOOP_EVENT_ANSWER, .rank = rank, .id = region_id, .part = generation};
    if (failure != NULL) {
        event.failure = *failure;
    }
    comm_push(arg, &event);
}

static void comm_on_stream(void *arg, uint32_t rank, uint32_t lane, bool sending, int fd,
                           const struct hoop_secret *key, const struct hoop_failure *failure)
{
    struct hoop_event event = {
        .kind = HOOP_EVENT_SOCKET, .rank = rank, .id = lane, .part = sending, .fd = fd};
    if (key != NULL) {
        event.key = *key;
    }
    if (failure != NULL) {
        event.failure = *failure;
    }
    comm_push(arg, &event);
    hoop_secret_wipe(&event.key, sizeof(event.key));
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
    return told > here && told <= HOOP_MAX_RANKS ? (uint32_t)told : here;
}

/* The handle and the objects that need nobody else. NULL: no memory for the handle; else it may be
 * half made, which the join says. */
static struct hoop_comm *comm_create(const struct hoop_comm_options *options)
{
    struct hoop_comm *comm = aligned_alloc(HOOP_LINE_BYTES, (sizeof(*comm) + HOOP_LINE_BYTES - 1) /
                                                                HOOP_LINE_BYTES * HOOP_LINE_BYTES);
    if (comm == NULL) {
        return NULL;
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
    comm->early = calloc(1, sizeof(*comm->early) + comm->n);
    comm->engine = calloc(1, sizeof(*comm->engine));
    hoop_turn_init(&comm->turn);
    hoop_events_init(&comm->events);
    pthread_mutex_init(&comm->look_lock, NULL);
    pthread_mutex_init(&comm->birth_lock, NULL);
    hoop_job_init(&comm->job);
    return comm;
}

static hoop_result_t comm_join(struct hoop_comm *comm, const struct hoop_comm_options *options)
{
    const struct hoop_member_events events = {
        .lost = comm_on_lost,
        .blob = comm_on_blob,
        .fetched = comm_on_fetched,
        .beat = comm_on_beat,
        .pulse = comm_pulse,
        .left = hoop_comm_left,
        .gone = comm_on_gone,
        .failed = comm_on_failed,
        .stream = comm_on_stream,
        .waiting = comm_waiting,
        .arg = comm,
    };
    struct hoop_join join = {
        .rendezvous = options->rendezvous,
        .serve = options->serve,
        .n = options->n,
        .rank = options->rank,
        .timeout_ms = options->init_timeout_ms,
        .dead_after_ms = options->dead_after_ms,
        .segment_bytes = hoop_board_bytes(options->n),
        .agreement = options->agreed,
        .oversubscribed = comm_local_ranks(options->n) > hoop_usable_cpus(),
        .wake_fd = comm->sleeper.wake_fd,
    };
    memcpy(join.comm_name, options->name, sizeof(join.comm_name));
    const hoop_result_t result = hoop_service_start();
    return result == HOOP_OK ? hoop_member_create(&join, &events, &comm->job, &comm->member)
                             : result;
}

hoop_result_t hoop_comm_begin(const struct hoop_comm_options *options, struct hoop_comm **ret)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    struct hoop_comm *comm = comm_create(options);
    if (comm == NULL || comm->early == NULL || comm->engine == NULL) {
        (void)hoop_comm_end(comm);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a communicator of %u ranks",
                          options->n);
    }
    hoop_result_t result = comm_open_descriptors(comm);
    comm->events.wake_fd = comm->sleeper.wake_fd;
    if (result == HOOP_OK) {
        result = comm_join(comm, options);
    }
    if (result != HOOP_OK) {
        (void)hoop_comm_end(comm);
        return result;
    }
    *ret = comm;
    return HOOP_OK;
}

/* What operations and links need of the comm. */
static hoop_result_t comm_prepare(struct hoop_comm *comm, const struct hoop_roster *roster)
{
    struct hoop_operation_env env = {
        .board = &comm->board,
        .engine = comm->engine,
        .maps = {.member = comm->member,
                 .peers = comm->board.peers,
                 .answered = hoop_links_answered,
                 .arg = &comm->events},
        .agreed = &comm->agreed,
        .one_process = true,
        .over_links = comm->spans || comm->agreed.transport != HOOP_TRANSPORT_AUTO,
        .link = hoop_links_get,
        .arg = &comm->links,
    };
    for (uint32_t rank = 0; rank < comm->n; rank++) {
        env.one_process &= roster->peers[rank].same_process;
    }
    const struct hoop_links_env links = {
        .member = comm->member,
        .board = &comm->board,
        .agreed = &comm->agreed,
        .events = &comm->events,
        .sleeper = &comm->sleeper,
        .failure = &comm->operation.failure,
    };
    const hoop_result_t result = hoop_operation_init(&comm->operation, &env);
    for (int i = 0; i < HOOP_COLL_COUNT && !env.over_links; i++) {
        comm->small_counts[i] = comm->operation.oneshot_most[i] / sizeof(uint64_t) + 1;
    }
    return result == HOOP_OK ? hoop_links_init(&comm->links, &links) : result;
}

/* What was heard before counts now, but for the loss of a rank that had left. */
static struct hoop_failure comm_early_failure(struct hoop_comm *comm)
{
    struct hoop_failure failure = comm->early->failure;
    for (uint32_t rank = 0; rank < comm->n; rank++) {
        if ((comm->early->heard[rank] & EARLY_LOST) != 0 && !hoop_comm_left(comm, rank)) {
            hoop_failure_set(&failure, HOOP_REMOTE_ERROR, (int)rank, "rank %u %s", rank,
                             comm->early->why);
        }
    }
    return failure;
}

static hoop_result_t comm_lay_out(struct hoop_comm *comm)
{
    const struct hoop_roster *roster = hoop_member_roster(comm->member);
    hoop_result_t result = hoop_board_init(&comm->board, roster, comm->rank);
    if (result != HOOP_OK) {
        return result;
    }
    /* Where all are on one machine they agree on it: the choice of algorithm follows from it. */
    const bool oversubscribed = roster->machines > 1
                                    ? comm_local_ranks(roster->here) > hoop_usable_cpus()
                                    : roster->oversubscribed;
    comm->dead_after_ms = roster->dead_after_ms;
    comm->spans = roster->machines > 1;
    hoop_history_init(&comm->history);
    comm->agreed.oversubscribed = oversubscribed;
    comm->spin_ns = oversubscribed ? 0 : hoop_settings()->spin_us * 1000;
    comm->roomy = comm->spin_ns != 0 && 2 * comm_local_ranks(roster->here) <= hoop_usable_cpus();
    result = comm_prepare(comm, roster);
    if (result != HOOP_OK) {
        return result;
    }
    comm->sleeper.sleeping = &comm->board.head->sleeping[comm->rank];
    pthread_mutex_lock(&comm->birth_lock);
    atomic_store_explicit(&comm->ready, true, memory_order_release);
    atomic_fetch_add_explicit(&hoop_board_rank(&comm->board, comm->rank)->pulse, 1,
                              memory_order_relaxed);
    for (uint32_t rank = 0; rank < comm->n; rank++) {
        if ((comm->early->heard[rank] & EARLY_GONE) != 0) {
            hoop_board_leave(&comm->board, rank);
        }
    }
    const struct hoop_failure early = comm_early_failure(comm);
    pthread_mutex_unlock(&comm->birth_lock);
    if (early.code != HOOP_OK) {
        hoop_comm_publish(comm, &early);
    }
    return HOOP_OK;
}

hoop_result_t hoop_comm_complete(struct hoop_comm *comm)
{
    struct hoop_failure failure = {.code = HOOP_OK};
    /* The join keeps its own, better informed deadline; this one is for a service thread that
     * does not answer at all. */
    const uint64_t deadline = hoop_deadline_ns(comm->init_timeout_ms + COMM_JOIN_GRACE_MS);
    hoop_result_t result = hoop_job_wait(&comm->job, deadline, &failure);
    if (result == HOOP_OK) {
        result = comm_lay_out(comm);
    } else if (failure.code != HOOP_OK) {
        hoop_error(result, "%s", failure.text);
    } else {
        hoop_error(result, "the service thread did not answer within %llu ms",
                   (unsigned long long)comm->init_timeout_ms + COMM_JOIN_GRACE_MS);
    }
    if (result != HOOP_OK) {
        hoop_log(HOOP_LOG_ERROR, HOOP_LOG_INIT, "rank %u of %u: %s", comm->rank, comm->n,
                 hoop_thread_error());
        (void)hoop_comm_end(comm);
        return result;
    }
    hoop_log(HOOP_LOG_INFO, HOOP_LOG_INIT, "rank %u of %u is in%s%s; %u usable CPUs, %s",
             comm->rank, comm->n, comm->name[0] != '\0' ? " " : "", comm->name, hoop_usable_cpus(),
             comm->spin_ns != 0 ? "spinning" : "yielding");
    return HOOP_OK;
}

/* ---- Death ---------------------------------------------------------------------------------- */

/* Handles that were aborted and not destroyed: so that a search for leaks finds them in use. */
static pthread_mutex_t tombstones_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoop_list_node tombstones = HOOP_LIST_EMPTY(tombstones);

uint64_t hoop_comm_patience_ms(const struct hoop_comm *comm)
{
    return comm->op_timeout_ms == 0 ? 0 : comm->op_timeout_ms + COMM_GRACE_MS;
}

/* Whoever looks in from now on sees a failure and nothing else. */
static void comm_make_tombstone(struct hoop_comm *comm)
{
    if (comm->failed == HOOP_OK) {
        struct hoop_failure cause = {.code = HOOP_OK};
        if (comm_is_ready(comm)) {
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
    pthread_mutex_lock(&tombstones_lock);
    hoop_list_push_back(&tombstones, &comm->tombstone);
    pthread_mutex_unlock(&tombstones_lock);
}

hoop_result_t hoop_comm_say_goodbye(struct hoop_comm *comm)
{
    struct hoop_failure failure;
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    hoop_result_t result = hoop_turn_enter(&comm->turn, hoop_comm_patience_ms(comm));
    if (result != HOOP_OK) {
        return hoop_error(result, "rank %u: another thread is inside the communicator", comm->rank);
    }
    result = hoop_comm_state(comm, &failure);
    if (result != HOOP_OK) {
        result = hoop_error(result, "%s", failure.text);
    } else if (comm->finalized) {
        result = hoop_error(HOOP_INVALID_USAGE, "the communicator was finalized before");
    } else {
        comm->finalized = true;
        hoop_board_leave(&comm->board, comm->rank);
    }
    hoop_turn_leave(&comm->turn);
    return result;
}

static void comm_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* All but the handle. Also of half-born ones. */
static void comm_give_back(struct hoop_comm *comm)
{
    const bool failed = comm_is_ready(comm) && hoop_comm_state(comm, NULL) != HOOP_OK;
    comm_make_tombstone(comm);
    if (comm_is_ready(comm)) {
        hoop_board_leave(&comm->board, comm->rank);
    }
    hoop_links_finish(&comm->links, failed);
    hoop_member_destroy(comm->member);
    comm->member = NULL;
    hoop_operation_finish(&comm->operation);
    hoop_board_finish(&comm->board);
    hoop_events_finish(&comm->events);
    comm_close(comm->sleeper.epoll_fd);
    comm_close(comm->sleeper.wake_fd);
    free(comm->engine);
    free(comm->early);
    hoop_job_finish(&comm->job);
    pthread_mutex_destroy(&comm->birth_lock);
}

hoop_result_t hoop_comm_release(struct hoop_comm *comm, uint64_t patience_ms)
{
    if (hoop_is_forked()) {
        return HOOP_OK;
    }
    const int before = hoop_cancel_off();
    const hoop_result_t entered = hoop_turn_enter(&comm->turn, patience_ms);
    if (entered == HOOP_OK) {
        if (!comm->over) {
            comm_give_back(comm);
        }
        hoop_turn_leave(&comm->turn);
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
    pthread_mutex_lock(&tombstones_lock);
    hoop_list_remove(&comm->tombstone);
    pthread_mutex_unlock(&tombstones_lock);
    hoop_turn_finish(&comm->turn);
    pthread_mutex_destroy(&comm->look_lock);
    free(comm->ops);
    free(comm);
    return HOOP_OK;
}

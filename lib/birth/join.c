/* A rank's part in a birth; see join.h. */
#include "birth/join.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "runtime/process.h"
#include "transports/rdma.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define JOIN_GRACE_MS 10000u /* the last of the deadlines in tree/leader.h */
#define JOIN_LOOK_MS 20u     /* how soon the end of the parent is noticed */
/* How long the join goes on when another rank has made the parent fail. That rank may have joined
 * already, and its program may need the parent no more. */
#define JOIN_PARENT_NS (2 * HOOP_NS_PER_S)

/* ---- Events from the service thread -------------------------------------------------------- */

static void join_on_lost(void *arg, uint32_t rank, const char *why)
{
    struct hoop_comm *comm = arg;
    struct hoop_failure failure = {.code = HOOP_OK};
    char who[160];
    hoop_peer_describe(&comm->board.peers[rank], rank, who, sizeof(who));
    hoop_failure_set(&failure, HOOP_REMOTE_ERROR, (int)rank, "%s %s", who, why);
    hoop_comm_publish(comm, &failure);
}

static void join_on_beat(void *arg)
{
    struct hoop_comm *comm = arg;
    if (hoop_comm_is_ready(comm)) {
        atomic_fetch_add_explicit(&hoop_board_rank(&comm->board, comm->rank)->pulse, 1,
                                  memory_order_relaxed);
    }
}

static void join_on_gone(void *arg, uint32_t rank, uint32_t how)
{
    const struct hoop_comm *comm = arg;
    hoop_board_leave(&comm->board, rank, how);
}

/* A rank of another machine failed; it has told all other machines itself. */
static void join_on_failed(void *arg, const struct hoop_failure *failure)
{
    struct hoop_comm *comm = arg;
    (void)hoop_board_fail(&comm->board, failure);
}

/* Lays out the board, which later events are written to. Asks the kernel whether this rank may read
 * the other ranks' memory, and publishes the answer. */
static hoop_result_t join_on_met(void *arg, const struct hoop_roster *roster)
{
    struct hoop_comm *comm = arg;
    const bool asks = hoop_settings()->cma != 0 && roster->machines == 1;
    hoop_result_t result = comm->unusable.code == HOOP_OK
                               ? hoop_board_init(&comm->board, roster, comm->rank)
                               : hoop_error(comm->unusable.code, "%s", comm->unusable.text);
    comm->spans = roster->machines > 1;
    if (result != HOOP_OK) {
        return result;
    }
    for (uint32_t rank = 0; asks && rank < roster->n && result == HOOP_OK; rank++) {
        const struct hoop_peer *peer = &roster->peers[rank];
        const struct hoop_process_memory memory = {peer->pid, peer->process, peer->process_at};
        if (peer->same_machine && !peer->same_process) {
            result = hoop_process_read(&memory, NULL, 0, 0);
        }
        if (result != HOOP_OK) {
            (void)snprintf(comm->no_cma, sizeof(comm->no_cma),
                           "rank %u cannot read memory of rank %u: %s", comm->rank, rank,
                           hoop_thread_error());
        }
    }
    hoop_board_say(&comm->board, (asks && result == HOOP_OK ? HOOP_BOARD_READS : 0u) |
                                     (hoop_cuda_is_loaded() ? 0u : HOOP_BOARD_ON_HOST));
    return HOOP_OK;
}

static uint64_t join_pulse(void *arg, uint32_t rank)
{
    struct hoop_comm *comm = arg;
    return hoop_comm_is_ready(comm)
               ? atomic_load_explicit(&hoop_board_rank(&comm->board, rank)->pulse,
                                      memory_order_relaxed)
               : 0;
}

static bool join_waiting(void *arg)
{
    struct hoop_comm *comm = arg;
    return atomic_load_explicit(&comm->waiting, memory_order_relaxed) != 0;
}

/* A comm cannot go on without memory for an event of its links. */
static void join_on_event(void *arg, const struct hoop_event *event)
{
    struct hoop_comm *comm = arg;
    struct hoop_failure failure = {.code = HOOP_OK};
    if (!hoop_events_push(&comm->events, event)) {
        hoop_failure_set(&failure, HOOP_OUT_OF_MEMORY, (int)comm->rank,
                         "rank %u has no memory for the news of rank %u", comm->rank, event->rank);
        hoop_comm_publish(comm, &failure);
    }
}

/* ---- Birth ---------------------------------------------------------------------------------- */

static hoop_result_t join_open_descriptor(struct hoop_comm *comm)
{
    hoop_process_hold_streams();
    comm->sleeper.wake_fd = comm->sleeper.poll_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return comm->sleeper.wake_fd >= 0
               ? HOOP_OK
               : hoop_errno_error(errno, "cannot open the descriptor of a communicator");
}

/* The number of ranks on this machine by the launcher's word; 0 if there is none. */
static uint32_t join_local_n(void)
{
    const uint64_t set = hoop_settings()->local_size;
    const char *text = set == 0 ? getenv("LOCAL_WORLD_SIZE") : NULL;
    const uint64_t told = text != NULL ? strtoull(text, NULL, 10) : set;
    struct hoop_launcher launcher;
    if (told > 0) {
        return told <= HOOP_MAX_RANKS ? (uint32_t)told : 0;
    }
    return hoop_launcher_read(&launcher) == HOOP_OK ? launcher.local_n : 0;
}

static hoop_result_t join_begin(struct hoop_comm *comm, const struct hoop_comm_options *options)
{
    const struct hoop_member_events events = {
        .met = join_on_met,
        .lost = join_on_lost,
        .event = join_on_event,
        .beat = join_on_beat,
        .pulse = join_pulse,
        .left = hoop_comm_how_left,
        .gone = join_on_gone,
        .failed = join_on_failed,
        .waiting = join_waiting,
        .arg = comm,
    };
    struct hoop_join join = options->join;
    join.segment_bytes = hoop_board_bytes(join.n);
    join.cpus = hoop_cpus_usable(join_local_n());
    join.agreement.no_rdma = !hoop_rdma_is_usable(&join.agreement);
    join.no_cma = hoop_settings()->cma == 0;
    join.wake_fd = comm->sleeper.wake_fd;
    return hoop_member_create(&join, &events, &comm->job, &comm->member);
}

hoop_result_t hoop_comm_check_wanted(struct hoop_comm *comm)
{
    pthread_mutex_lock(&comm->look_lock);
    const struct hoop_failure failure = comm->early;
    pthread_mutex_unlock(&comm->look_lock);
    return failure.code == HOOP_OK ? HOOP_OK : hoop_error(failure.code, "%s", failure.text);
}

hoop_result_t hoop_comm_begin(struct hoop_comm *comm, const struct hoop_comm_options *options)
{
    comm->rank = options->join.rank;
    comm->n = options->join.n;
    comm->agreed = options->join.agreement;
    if (options->unusable != NULL) {
        comm->unusable = *options->unusable;
    }
    comm->op_timeout_ms = options->op_timeout_ms;
    comm->init_timeout_ms = options->join.timeout_ms;
    comm->blocking = options->blocking;
    memcpy(comm->name, options->name, sizeof(comm->name));
    hoop_result_t result = join_open_descriptor(comm);
    comm->events.wake_fd = comm->sleeper.wake_fd;
    if (result == HOOP_OK) {
        result = join_begin(comm, options);
    }
    return result == HOOP_OK ? hoop_comm_check_wanted(comm) : result;
}

bool hoop_comm_unbegin(struct hoop_comm *comm)
{
    struct hoop_member *member = comm->member;
    if (member != NULL && hoop_member_roster(member)->n != 0) {
        return false;
    }
    pthread_mutex_lock(&comm->look_lock);
    comm->member = NULL;
    pthread_mutex_unlock(&comm->look_lock);
    hoop_member_destroy(member);
    hoop_comm_close_descriptors(comm);
    hoop_board_finish(&comm->board);
    hoop_job_finish(&comm->job);
    hoop_job_init(&comm->job);
    return true;
}

/* Prepares operations and links. */
static hoop_result_t join_prepare(struct hoop_comm *comm, const struct hoop_roster *roster)
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
        .wake_fd = comm->sleeper.wake_fd,
        .naps = &comm->sleeper.naps,
    };
    uint32_t other = 0;
    env.on_host = !env.over_links && hoop_board_all_say(&comm->board, HOOP_BOARD_ON_HOST, &other);
    for (uint32_t rank = 0; rank < comm->n; rank++) {
        env.one_process &= roster->peers[rank].same_process;
        comm->here += roster->peers[rank].same_process;
    }
    comm->job_id = roster->comm_id;
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
    comm->small_counts[HOOP_TRANSFER] = env.over_links ? 0 : UINT64_MAX;
    return result == HOOP_OK ? hoop_links_init(&comm->links, &links) : result;
}

/* Finds out whether ranks read each other's plain memory, which all must be able to do. */
static void join_settle_cma(struct hoop_comm *comm)
{
    uint32_t rank = 0;
    char *why = comm->no_cma;
    comm->agreed.no_cma = comm->spans || !hoop_board_all_say(&comm->board, HOOP_BOARD_READS, &rank);
    if (comm->spans) {
        (void)snprintf(why, sizeof(comm->no_cma), "the ranks are on several machines");
    } else if (comm->agreed.no_cma != 0 && hoop_settings()->cma == 0) {
        (void)snprintf(why, sizeof(comm->no_cma), "HOOP_CMA=0");
    } else if (comm->agreed.no_cma != 0 && why[0] == 0) {
        (void)snprintf(why, sizeof(comm->no_cma), "rank %u cannot read memory of all others", rank);
    }
    if (why[0] != 0) {
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_INIT, "rank %u: plain memory is copied twice: %s",
                 comm->rank, why);
    }
}

static hoop_result_t join_lay_out(struct hoop_comm *comm)
{
    const struct hoop_roster *roster = hoop_member_roster(comm->member);
    comm->dead_after_ms = roster->dead_after_ms;
    hoop_history_init(&comm->history);
    comm->agreed.oversubscribed = roster->oversubscribed;
    comm->agreed.no_rdma = roster->no_rdma;
    join_settle_cma(comm);
    /* How a rank waits may differ between machines. */
    comm->spin.ns = roster->crowded ? 0 : hoop_settings()->spin_us * 1000;
    comm->spins = comm->spin.ns != 0;
    const hoop_result_t result = join_prepare(comm, roster);
    if (result != HOOP_OK) {
        return result;
    }
    comm->sleeper.sleeping = &comm->board.head->sleeping[comm->rank];
    pthread_mutex_lock(&comm->look_lock);
    atomic_store_explicit(&comm->ready, true, memory_order_release);
    atomic_fetch_add_explicit(&hoop_board_rank(&comm->board, comm->rank)->pulse, 1,
                              memory_order_relaxed);
    const struct hoop_failure early = comm->early; /* apply what came before */
    pthread_mutex_unlock(&comm->look_lock);
    if (early.code != HOOP_OK) {
        hoop_comm_publish(comm, &early);
    }
    return HOOP_OK;
}

/* Has the parent been ended, or failed? failed_ns: since when it is known to have failed, or 0. */
static bool join_has_lost_parent(struct hoop_comm *parent, uint64_t *failed_ns,
                                 struct hoop_failure *ret)
{
    *ret = (struct hoop_failure){.code = HOOP_OK};
    if (parent == NULL || hoop_comm_state(parent, ret) == HOOP_OK) {
        hoop_failure_set(ret, HOOP_ABORTED, -1, "the communicator that it is made from was ended");
        return parent != NULL && atomic_load_explicit(&parent->ending, memory_order_relaxed);
    }
    const uint64_t now = hoop_now_ns();
    *failed_ns = *failed_ns != 0 ? *failed_ns : now;
    return ret->rank == (int)parent->rank || now - *failed_ns >= JOIN_PARENT_NS;
}

static hoop_result_t join_await(struct hoop_comm *comm, struct hoop_comm *parent,
                                struct hoop_failure *ret)
{
    /* The join has an earlier deadline, with better reasons. This one is for a service thread that
     * does not answer at all. */
    const uint64_t deadline = hoop_deadline_ns(comm->init_timeout_ms + JOIN_GRACE_MS);
    uint64_t failed_ns = 0;
    struct hoop_failure lost;
    bool given_up = false;
    hoop_result_t result = HOOP_TIMEOUT;
    while (result == HOOP_TIMEOUT && ret->code == HOOP_OK && hoop_now_ns() < deadline) {
        if (!given_up && join_has_lost_parent(parent, &failed_ns, &lost)) {
            given_up = true;
            hoop_member_cancel(comm->member);
        }
        result = hoop_job_wait(&comm->job, hoop_deadline_ns(JOIN_LOOK_MS), ret);
    }
    if (given_up && result != HOOP_OK) {
        *ret = lost;
    }
    return given_up && result != HOOP_OK ? lost.code : result;
}

hoop_result_t hoop_comm_complete(struct hoop_comm *comm, struct hoop_comm *parent)
{
    struct hoop_failure failure = {.code = HOOP_OK};
    hoop_result_t result = join_await(comm, parent, &failure);
    if (result == HOOP_OK) {
        result = join_lay_out(comm);
    } else if (comm->unusable.code != HOOP_OK) { /* it knows better than the others */
        result = hoop_error(comm->unusable.code, "%s", comm->unusable.text);
    } else if (failure.code != HOOP_OK) {
        hoop_error(result, "%s", failure.text);
    } else {
        hoop_error(result, "the service thread did not answer within %llu ms",
                   (unsigned long long)comm->init_timeout_ms + JOIN_GRACE_MS);
    }
    if (result != HOOP_OK) {
        hoop_log(HOOP_LOG_ERROR, HOOP_LOG_INIT, "%s%srank %u of %u: %s", comm->name,
                 comm->name[0] != '\0' ? ": " : "", comm->rank, comm->n, hoop_thread_error());
        return result;
    }
    hoop_log(HOOP_LOG_INFO, HOOP_LOG_INIT, "rank %u of %u has joined%s%s; %u usable CPUs, %s",
             comm->rank, comm->n, comm->name[0] != '\0' ? " " : "", comm->name,
             hoop_cpus_usable(0).count, comm->spins ? "spinning" : "yielding");
    return HOOP_OK;
}

/*
 * A member's way into a comm and out of it; see membership.h. All but the functions of that header
 * runs on the service thread.
 *
 *      SEEKING --proven--> JOINING --roster complete--> READY --GO--> IN
 *         \__________________\___________________________\--> FAILED     (the job has the reason)
 *
 * Usually the leader ends a join that cannot succeed, because it knows who is missing. A member's
 * own deadline is a little later than the one that it told the leader.
 */
#include "membership/membership.h"
#include "base/clock.h"
#include "base/log.h"
#include "control/dialer.h"
#include "membership/membership_inside.h"
#include "net/interface.h"
#include "runtime/process.h"
#include "tree/leader.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hoop_list_node hoop_members = HOOP_LIST_EMPTY(hoop_members);

/* ---- Look-up -------------------------------------------------------------------------------- */

struct hoop_member *hoop_member_find(uint64_t comm_id, uint32_t rank)
{
    HOOP_LIST_EACH(struct hoop_member, member, &hoop_members, node) {
        const bool told = member->state == HOOP_MEMBER_READY || member->state == HOOP_MEMBER_IN;
        if (told && member->roster.comm_id == comm_id && member->join.rank == rank) {
            return member;
        }
    }
    return NULL;
}

/* ---- Ends of a join ----------------------------------------------------------------------- */

/* Releases all that a member holds except its own memory; also if it holds only part of it. */
static void member_release(struct hoop_member *member)
{
    hoop_data_connection_finish(member);
    hoop_peer_finish(member);
    hoop_watcher_finish(&member->watcher);
    hoop_dialer_destroy(member->dialer);
    member->dialer = NULL;
    hoop_connection_destroy(member->connection);
    member->connection = NULL;
    hoop_timer_destroy(member->timer);
    member->timer = NULL;
    hoop_roster_finish(member);
}

HOOP_PRINTF(4, 5)
static void member_fail(struct hoop_member *member, hoop_result_t code, int rank,
                        const char *format, ...)
{
    struct hoop_failure failure = {.code = code, .rank = rank};
    union hoop_frame frame;
    va_list args;
    va_start(args, format);
    (void)hoop_text_format(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    hoop_frame_from_failure(&frame, HOOP_FRAME_REJECT, &failure);
    hoop_connection_say(member->connection, &frame); /* others may be in already */
    member->state = HOOP_MEMBER_FAILED;
    member_release(member);
    hoop_job_complete_once(&member->job, &failure);
}

void hoop_member_enter(struct hoop_member *member)
{
    if (member->state != HOOP_MEMBER_READY) {
        return;
    }
    member->state = HOOP_MEMBER_IN;
    hoop_timer_stop(member->timer);
    if (member->join.serve) {
        /* it is done, or was not needed */
        hoop_leader_retire(member->join.rendezvous.name, true);
    }
    hoop_peer_enter(member);
    hoop_job_complete_once(&member->job, NULL);
    hoop_watcher_start(&member->watcher);
}

/* ---- Messages from the leader --------------------------------------------------------------- */

static void member_refuse(struct hoop_member *member, hoop_result_t code)
{
    member_fail(member, code, -1, "rank %u: %s", member->join.rank, hoop_thread_error());
}

/* There are other machines, and they reach this one at that address. Opens a port there, so that
 * other processes reach this one even after the leader has gone. */
static void member_take_info(struct hoop_member *member, const struct hoop_frame_info *info)
{
    const struct hoop_ports ports = hoop_port_range();
    struct hoop_place place = {.address = info->address};
    union hoop_frame frame;
    place.address.port = 0;
    member->address = place.address;
    const hoop_result_t result = hoop_endpoint_open(&place, &ports, &member->data_endpoint);
    if (result != HOOP_OK) {
        member_refuse(member, result);
        return;
    }
    hoop_frame_init(&frame, HOOP_FRAME_INFO);
    frame.info.address = *hoop_endpoint_address(member->data_endpoint);
    frame.info.process = hoop_process_id();
    frame.info.pid = (int32_t)getpid();
    hoop_connection_say(member->connection, &frame);
}

static void member_take_roster(struct hoop_member *member, const union hoop_frame *frame, int *fds)
{
    hoop_result_t result = frame->header.type == HOOP_FRAME_ROSTER
                               ? hoop_roster_begin(member, &frame->roster, fds)
                               : hoop_roster_add(member, &frame->part, fds);
    const bool complete = result == HOOP_OK && hoop_roster_is_complete(member);
    if (complete) {
        result = hoop_liveness_begin(member);
    }
    if (result == HOOP_OK && complete) {
        result = hoop_peer_begin(member);
    }
    if (result == HOOP_OK && complete && member->events.met != NULL) {
        result = member->events.met(member->events.arg, &member->roster);
    }
    if (result != HOOP_OK) {
        member_refuse(member, result);
    } else if (complete) {
        union hoop_frame ready;
        hoop_frame_init(&ready, HOOP_FRAME_READY);
        member->state = HOOP_MEMBER_READY;
        hoop_connection_say(member->connection, &ready);
    }
}

static bool member_take_fate(struct hoop_member *member, const struct hoop_frame_fate *fate)
{
    const struct hoop_member_events *events = &member->events;
    const uint32_t type = fate->header.type, rank = fate->rank;
    if (rank >= member->roster.n || (type == HOOP_FRAME_LEFT && rank == member->join.rank)) {
        return false;
    }
    if (type == HOOP_FRAME_LEFT) {
        events->gone(events->arg, rank, fate->how);
        hoop_liveness_tell(member, rank, true, "has left");
    } else if (fate->why[0] != 0) {
        hoop_liveness_lose(member, rank, fate->why);
    } else {
        hoop_liveness_closed(member, rank);
    }
    return true;
}

/* Handles messages after the join. Returns false if they are not allowed. */
static bool member_take_late(struct hoop_member *member, const union hoop_frame *frame)
{
    const struct hoop_member_events *events = &member->events;
    struct hoop_failure failure;
    switch (frame->header.type) {
    case HOOP_FRAME_DEAD:
    case HOOP_FRAME_LEFT:
        return member_take_fate(member, &frame->fate);
    case HOOP_FRAME_FAIL:
        failure = hoop_frame_to_failure(&frame->fail);
        failure.rank = failure.rank < (int32_t)member->roster.n ? failure.rank : -1;
        events->failed(events->arg, &failure);
        return true;
    default:
        return frame->header.type == HOOP_FRAME_GO;
    }
}

static bool member_message(void *arg, struct hoop_connection *connection,
                           const union hoop_frame *frame, int *fds)
{
    struct hoop_member *member = arg;
    (void)connection;
    const uint32_t type = frame->header.type;
    const bool joining = member->state == HOOP_MEMBER_JOINING;
    const bool ready = member->state == HOOP_MEMBER_READY;
    if (joining && (type == HOOP_FRAME_ROSTER || type == HOOP_FRAME_ROSTER_PART)) {
        member_take_roster(member, frame, fds);
    } else if (joining && type == HOOP_FRAME_INFO && member->data_endpoint == NULL) {
        member_take_info(member, &frame->info);
    } else if ((joining || ready) && type == HOOP_FRAME_REJECT) {
        member_fail(member, (hoop_result_t)frame->reject.code, frame->reject.rank, "%s",
                    frame->reject.text);
    } else if (ready && type == HOOP_FRAME_GO) {
        hoop_member_enter(member);
    } else {
        return member->state == HOOP_MEMBER_IN && member_take_late(member, frame);
    }
    return true;
}

/* The leader's process has ended, and its ranks with it; if it had none, only its news is lost. */
static void member_lose_server(struct hoop_member *member, int pid)
{
    if (!hoop_liveness_closed_server(member) && member->roster.machines > 1) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_NET,
                 "the process that speaks for this machine's ranks (pid %d) has ended; it had no "
                 "rank, but nothing can be reported to ranks of other machines any more",
                 pid);
    }
}

static void member_closed(void *arg, struct hoop_connection *connection,
                          const struct hoop_failure *why)
{
    struct hoop_member *member = arg;
    const int pid = (int)hoop_connection_about(connection)->pid;
    hoop_connection_destroy(connection);
    member->connection = NULL;
    const bool mine = hoop_result_is_own(why->code);
    if (member->state == HOOP_MEMBER_IN && mine) {
        struct hoop_failure failure = {.code = HOOP_OK};
        (void)hoop_failure_set(&failure, why->code, (int)member->join.rank,
                               "rank %u lost its leader (pid %d): %s", member->join.rank, pid,
                               why->text);
        hoop_member_fail(member, &failure);
    } else if (member->state == HOOP_MEMBER_IN) {
        member_lose_server(member, pid);
    } else {
        member_fail(member, why->code, -1,
                    "the process that serves the leader (pid %d) ended during the join: %s", pid,
                    why->text);
    }
}

static const struct hoop_connection_owner member_owner = {
    .message = member_message,
    .closed = member_closed,
};

/* ---- Seeking the leader --------------------------------------------------------------- */

static void member_say_join(struct hoop_member *member)
{
    const struct hoop_join *join = &member->join;
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_JOIN);
    struct hoop_frame_join *m = &frame.join;
    m->rank = join->rank;
    m->n = join->n;
    m->who.process = hoop_process_id();
    m->who.process_at = join->no_cma ? 0 : hoop_process_id_at();
    m->who.pid = (int32_t)getpid();
    m->who.start_time = hoop_process_own_start_time();
    m->who.cpus = join->cpus;
    m->no_membarrier = hoop_membarrier_ready() ? 0 : 1;
    m->timeout_ms = join->timeout_ms;
    m->left_ms = hoop_left_ms(member->deadline_ns);
    m->dead_after_ms = join->dead_after_ms;
    m->segment_bytes = join->segment_bytes;
    m->agreed = join->agreement;
    hoop_process_host(m->who.host);
    (void)snprintf(m->who.listener, sizeof(m->who.listener), "%s", hoop_peer_listener());
    hoop_connection_send(member->connection, &frame.header, &join->wake_fd, 1);
}

static void member_found(void *arg, struct hoop_connection *connection)
{
    struct hoop_member *member = arg;
    hoop_dialer_destroy(member->dialer);
    member->dialer = NULL;
    hoop_connection_adopt(connection, &member_owner, member);
    member->connection = connection;
    member->state = HOOP_MEMBER_JOINING;
    member->secret = member->join.rendezvous.secret;
    hoop_timer_start(member->timer, hoop_left_ms(member->deadline_ns) + HOOP_RANK_GRACE_MS, 0);
    member_say_join(member);
}

static void member_not_found(void *arg, hoop_result_t code, const char *why)
{
    struct hoop_member *member = arg;
    const char *hint = member->join.rendezvous.hint;
    if (code != HOOP_TIMEOUT) {
        member_fail(member, code, -1, "the leader: %s", why);
        return;
    }
    member_fail(member, HOOP_TIMEOUT, -1, "no leader answers: rank %u of %u %s%s%s",
                member->join.rank, member->join.n, why, hint != NULL ? "; " : "",
                hint != NULL ? hint : "");
}

/* Connects without a socket if the leader is in this process and has the same secret. */
static bool member_reach(struct hoop_member *member)
{
    const struct hoop_join *join = &member->join;
    struct hoop_connection *connection = NULL;
    const bool here = hoop_leader_reach(&join->rendezvous, join->rank, &connection) == HOOP_OK;
    if (here) {
        member_found(member, connection);
    }
    return here;
}

/* Nobody answered a round of dialling. If there may be several machines, the first process on each
 * serves as its leader. If another one was faster it will answer soon. */
static void member_serve(void *arg)
{
    struct hoop_member *member = arg;
    if (member->join.rendezvous.address_count == 0) {
        return;
    }
    const hoop_result_t result = hoop_leader_serve(&member->join.rendezvous);
    if (result == HOOP_OK) {
        (void)member_reach(member);
    } else if (result != HOOP_INVALID_USAGE) {
        member_fail(member, result, -1, "the leader %s: %s", member->place.name,
                    hoop_thread_error());
    }
}

static const struct hoop_dialer_owner member_dialer_owner = {
    .found = member_found,
    .failed = member_not_found,
    .round = member_serve,
};

static hoop_result_t member_seek(struct hoop_member *member)
{
    const struct hoop_rendezvous *rendezvous = &member->join.rendezvous;
    struct hoop_dialer_order order = {
        .places = &member->place,
        .count = 1,
        .hello = {.kind = HOOP_HELLO_RANK, .from = member->join.rank},
        .secret = &rendezvous->secret,
        .deadline_ns = member->deadline_ns,
    };
    memcpy(order.hello.rendezvous, rendezvous->name, sizeof(order.hello.rendezvous));
    return hoop_dialer_create(&order, &member_dialer_owner, member, &member->dialer);
}

/* The leader knows more and fails the join before this deadline, unless it is stuck. */
static void member_due(void *arg)
{
    struct hoop_member *member = arg;
    member_fail(member, HOOP_TIMEOUT, -1,
                "the leader (pid %d) accepted rank %u of %u, but did not complete the join within "
                "%llu ms: is it stopped?",
                (int)hoop_connection_about(member->connection)->pid, member->join.rank,
                member->join.n, (unsigned long long)member->join.timeout_ms);
}

/* ---- Telling the other machines ----------------------------------------------------------- */

struct member_alarm {
    struct hoop_member *member;
    struct hoop_failure failure;
};

static void member_raise(void *arg)
{
    struct member_alarm *alarm = arg;
    struct hoop_member *member = alarm->member;
    const struct hoop_failure *failure = &alarm->failure;
    if (member->state == HOOP_MEMBER_IN && member->roster.machines > 1) {
        union hoop_frame frame;
        hoop_frame_from_failure(&frame, HOOP_FRAME_FAIL, failure);
        hoop_connection_say(member->connection, &frame);
    }
}

void hoop_member_fail(struct hoop_member *member, const struct hoop_failure *failure)
{
    struct member_alarm alarm = {.member = member, .failure = *failure};
    member->events.failed(member->events.arg, failure);
    member_raise(&alarm);
}

void hoop_member_starved(void *arg, uint64_t ms, const struct hoop_failure *why)
{
    struct hoop_member *member = arg;
    const uint64_t patience_ms = member->roster.dead_after_ms / 2;
    const uint64_t now = hoop_now_ns();
    struct hoop_failure failure = {.code = HOOP_OK};
    if (member->state == HOOP_MEMBER_IN && ms >= patience_ms && member->waiting_ns < now &&
        now - member->waiting_ns >= patience_ms * HOOP_NS_PER_MS) {
        (void)hoop_failure_set(&failure, why->code, (int)member->join.rank, "rank %u: %s",
                               member->join.rank, why->text);
        hoop_member_fail(member, &failure);
    }
}

void hoop_member_raise(struct hoop_member *member, const struct hoop_failure *failure)
{
    assert(failure->code != HOOP_OK && failure->code != HOOP_IN_PROGRESS);
    struct member_alarm alarm = {.member = member, .failure = *failure};
    hoop_service_post(member_raise, &alarm, sizeof(alarm));
}

/* ---- Birth and death ---------------------------------------------------------------------- */

/* Does all that can fail before the leader is found. */
static hoop_result_t member_prepare(struct hoop_member *member)
{
    struct hoop_rendezvous *rendezvous = &member->join.rendezvous;
    hoop_result_t result = hoop_peer_listen(member);
    if (result == HOOP_OK && member->join.serve) {
        result = hoop_leader_begin(rendezvous);
    }
    if (result == HOOP_OK) {
        result = hoop_leader_place(rendezvous, &member->place);
    }
    if (result == HOOP_OK) {
        result = hoop_timer_create(member_due, member, &member->timer);
    }
    return result == HOOP_OK && !member_reach(member) ? member_seek(member) : result;
}

struct member_begin {
    struct hoop_member *member;
    _Atomic(struct hoop_member *) *ret;
};

static hoop_result_t member_start(void *arg)
{
    const struct member_begin *begin = arg;
    struct hoop_member *member = begin->member;
    const hoop_result_t result = member_prepare(member);
    member->join.rendezvous.file = NULL; /* owned by the caller */
    if (result != HOOP_OK) {
        member_release(member);
        return result;
    }
    if (member->join.rendezvous.address_count > 0) {
        hoop_member_span();
    }
    hoop_list_push_back(&hoop_members, &member->node);
    atomic_store(begin->ret, member);
    return HOOP_OK;
}

static hoop_result_t member_check(const struct hoop_join *join)
{
    if (join->n == 0 || join->n > HOOP_MAX_RANKS || join->rank >= join->n) {
        return hoop_error(
            HOOP_INVALID_ARGUMENT,
            "rank %u of %u: expected a rank below the number of ranks, which is at most %u",
            join->rank, join->n, HOOP_MAX_RANKS);
    }
    const size_t bytes = strnlen(join->rendezvous.name, sizeof(join->rendezvous.name));
    if (bytes == 0 || bytes == sizeof(join->rendezvous.name)) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "the rendezvous has no name, or one that is too long");
    }
    assert(join->rendezvous.address_count <= HOOP_RENDEZVOUS_ADDRESSES);
    assert(join->timeout_ms > 0 && join->dead_after_ms > 0 && join->segment_bytes > 0);
    assert(join->segment_bytes <= HOOP_FRAME_MAX_SEGMENT_BYTES);
    return HOOP_OK;
}

static void member_free(struct hoop_member *member)
{
    if (member->lineage != NULL) {
        hoop_secret_wipe(&member->lineage->key, sizeof(member->lineage->key));
    }
    free(member->lineage);
    hoop_secret_wipe(member, sizeof(*member)); /* it holds the rendezvous's secret twice */
    free(member);
}

static struct hoop_member *member_alloc(const struct hoop_join *join)
{
    const size_t bytes = sizeof(*join->lineage) + join->n * sizeof(join->lineage->ranks[0]);
    struct hoop_member *member = calloc(1, sizeof(*member));
    if (member != NULL && join->lineage != NULL) {
        member->lineage = malloc(bytes);
        if (member->lineage == NULL) {
            free(member);
            return NULL;
        }
        memcpy(member->lineage, join->lineage, bytes);
    }
    return member;
}

hoop_result_t hoop_member_create(const struct hoop_join *join,
                                 const struct hoop_member_events *events, struct hoop_job *job,
                                 _Atomic(struct hoop_member *) *ret_member)
{
    hoop_result_t result = member_check(join);
    if (result == HOOP_OK) {
        result = hoop_service_start();
    }
    if (result != HOOP_OK) {
        return result;
    }
    struct hoop_member *member = member_alloc(join);
    if (member == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a member");
    }
    hoop_list_init(&member->data_links);
    member->join = *join;
    member->join.timeout_ms = hoop_frame_ms(join->timeout_ms);
    member->join.dead_after_ms = hoop_frame_ms(join->dead_after_ms);
    member->events = *events;
    member->job = job;
    member->deadline_ns = hoop_deadline_ns(member->join.timeout_ms);
    struct member_begin begin = {member, ret_member};
    result = hoop_service_call(member_start, &begin);
    if (result != HOOP_OK) {
        member_free(member);
    }
    return result;
}

void hoop_member_give_up(struct hoop_member *member, hoop_result_t code, const char *why)
{
    if (member->state < HOOP_MEMBER_IN) {
        member_fail(member, code, (int)member->join.rank, "%s", why);
    }
}

static void member_cancel(void *arg)
{
    struct hoop_member *member = *(struct hoop_member **)arg;
    hoop_member_give_up(member, HOOP_ABORTED, "this rank gave up joining");
}

void hoop_member_cancel(struct hoop_member *member)
{
    hoop_service_post(member_cancel, &member, sizeof(struct hoop_member *));
}

/* Says goodbye to other machines; this machine's ranks see it in the segment. */
static void member_say_gone(struct hoop_member *member)
{
    const uint32_t me = member->join.rank;
    union hoop_frame frame;
    if (member->state != HOOP_MEMBER_IN || member->roster.machines == 1) {
        return;
    }
    hoop_frame_init(&frame, HOOP_FRAME_LEFT);
    frame.fate.rank = me;
    frame.fate.how = member->events.left(member->events.arg, me);
    if (frame.fate.how != 0) {
        hoop_connection_say(member->connection, &frame);
    }
}

struct member_end {
    struct hoop_member *member;
    bool spans; /* set by member_stop() */
};

static void member_stop(void *arg)
{
    struct member_end *end = arg;
    struct hoop_member *member = end->member;
    end->spans = member->roster.machines > 1;
    hoop_list_remove(&member->node);
    member_say_gone(member);
    hoop_member_give_up(member, HOOP_ABORTED, "this rank gave up joining");
    member_release(member);
}

void hoop_member_destroy(struct hoop_member *member)
{
    if (member == NULL) {
        return;
    }
    struct member_end end = {.member = member};
    hoop_service_run(member_stop, &end);
    if (end.spans) {
        /* The leader may be in this process, which may end as soon as this returns. It must have
         * read the goodbye before, or other machines do not hear of it. */
        hoop_service_drain();
    }
    member_free(member);
}

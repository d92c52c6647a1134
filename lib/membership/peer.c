/*
 * Peers: the other processes that have ranks in comms of this process. Two processes have one
 * connection for both directions, made when it is first needed. It carries the blobs of links; on
 * one machine it serves all their comms, and also carries descriptors of regions and the news that
 * a region is dead.
 *
 *      request: waits --connection open--> sent --answer--> done       (a blob is done when sent)
 *
 * Of two processes the one with the smaller number dials at once, and the other gives it a moment.
 * If both dial all the same, both connections stay.
 *
 * Trust: a connection is proved with the secret of one comm, by a process whose pid the kernel
 * tells. It serves another comm only if that comm's roster has the same process, by number and pid.
 * A process whose pid cannot be seen, on another machine or in another pid namespace, is a separate
 * peer in every comm.
 */
#include "base/clock.h"
#include "base/log.h"
#include "control/dialer.h"
#include "membership/membership_inside.h"
#include "memory/region.h"
#include "runtime/process.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEER_MOMENT_MS 10u /* for the other process to dial first */

static struct hoop_list_node peer_processes = HOOP_LIST_EMPTY(peer_processes);
static char peer_name[HOOP_NAME_BYTES];
static uint32_t peer_listeners; /* number of members that use it */

/* ---- Look-up -------------------------------------------------------------------------------- */

/* Is this rank of the comm in that process? */
static bool peer_has(const struct hoop_peer_process *process, const struct hoop_member *member,
                     uint32_t rank)
{
    return rank < member->roster.n && member->others[rank].process == process;
}

/* A member here of a comm that has ranks in that process, or NULL. */
static struct hoop_member *peer_member(const struct hoop_peer_process *process, uint64_t comm_id)
{
    HOOP_LIST_EACH(struct hoop_member, member, &hoop_members, node) {
        for (uint32_t rank = 0; member->roster.comm_id == comm_id && rank < member->roster.n;
             rank++) {
            if (peer_has(process, member, rank)) {
                return member;
            }
        }
    }
    return NULL;
}

static bool peer_is_far(const struct hoop_peer_process *process)
{
    return process->place.address.family != 0;
}

/* Is the other end that process, by the kernel's pid? True if its pid cannot be seen. */
static bool peer_is_at(const struct hoop_peer_process *process,
                       const struct hoop_connection *connection)
{
    return process->pid == 0 || process->pid == (int)hoop_connection_about(connection)->pid;
}

/* ---- What a peer wants -------------------------------------------------------------------- */

static hoop_result_t peer_export(const struct hoop_peer_process *process,
                                 const struct hoop_frame_region *question,
                                 struct hoop_frame_region_is *answer, int *ret_fd)
{
    struct hoop_member *member = peer_member(process, question->comm_id);
    if (member == NULL) {
        return hoop_error(HOOP_REMOTE_ERROR, "its ranks have left the communicator");
    }
    hoop_member_enter(member); /* whoever asks is in, so all ranks are ready, and GO will come */
    return hoop_region_export(question->id, question->generation, ret_fd, &answer->bytes,
                              &answer->kind);
}

static void peer_answer(struct hoop_peer_process *process, struct hoop_connection *connection,
                        const struct hoop_frame_region *question)
{
    union hoop_frame answer;
    int fd = -1;
    hoop_frame_init(&answer, HOOP_FRAME_REGION_IS);
    answer.region_is.comm_id = question->comm_id;
    answer.region_is.id = question->id;
    answer.region_is.generation = question->generation;
    const hoop_result_t result = peer_export(process, question, &answer.region_is, &fd);
    answer.region_is.code = (int32_t)result;
    if (result != HOOP_OK) {
        (void)snprintf(answer.region_is.why, sizeof(answer.region_is.why), "%s",
                       hoop_thread_error());
        hoop_text_clean(answer.region_is.why);
    }
    hoop_connection_send(connection, &answer.header, &fd, result == HOOP_OK ? 1 : 0);
    if (fd >= 0) {
        close(fd);
    }
}

static void peer_take_blob(const struct hoop_peer_process *process,
                           const struct hoop_frame_blob *frame)
{
    struct hoop_member *member = hoop_member_find(frame->comm_id, frame->to);
    if (member == NULL || !peer_has(process, member, frame->from)) {
        return; /* the rank here has left, or that process is not in the comm */
    }
    hoop_member_enter(member);
    hoop_request_take_blob(member, frame);
}

static bool peer_message(void *arg, struct hoop_connection *connection,
                         const union hoop_frame *frame, int *fds)
{
    struct hoop_peer_process *process = arg;
    switch (frame->header.type) {
    case HOOP_FRAME_REGION_GET:
        peer_answer(process, connection, &frame->region);
        return true;
    case HOOP_FRAME_REGION_IS:
        hoop_request_answered(process, connection, &frame->region_is, fds);
        return true;
    case HOOP_FRAME_REGION_DEAD:
        hoop_region_forget(process->id, frame->region.id, frame->region.generation);
        return true;
    case HOOP_FRAME_BLOB:
        peer_take_blob(process, &frame->blob);
        return true;
    default:
        return false;
    }
}

/* ---- The connection ----------------------------------------------------------------------- */

static void peer_seek(struct hoop_peer_process *process);

/* Sends what waits. Blobs are then done; requests for regions stay until they are answered. */
void hoop_peer_flush(struct hoop_peer_process *process)
{
    struct hoop_connection *connection =
        process->dialled != NULL ? process->dialled : process->accepted;
    if (connection == NULL) {
        peer_seek(process);
        return;
    }
    HOOP_LIST_EACH(struct hoop_peer_request, request, &process->requests, node) {
        if (request->via != NULL) {
            continue;
        }
        hoop_connection_send(connection, &request->want.header, NULL, 0);
        request->via = connection;
        if (request->want.header.type == HOOP_FRAME_BLOB) {
            hoop_request_destroy(process, request);
        }
    }
}

/* Ends a connection. What was sent on it without an answer waits for another. */
static void peer_hang_up(struct hoop_peer_process *process, struct hoop_connection **connection)
{
    HOOP_LIST_EACH(struct hoop_peer_request, request, &process->requests, node) {
        request->via = request->via == *connection ? NULL : request->via;
    }
    hoop_connection_destroy(*connection);
    *connection = NULL;
    if (process->dialled == NULL && process->accepted == NULL) {
        hoop_region_forget_process(process->id); /* its regions' deaths would not be told */
    }
}

/* For processes without a pidfd on this machine only. A pidfd would know better, since a living
 * process closes the connection when it has left its comms with this one; and for other machines
 * the leader hears of losses, and of goodbyes. */
static void peer_tell_closed(const struct hoop_peer_process *process)
{
    const bool tells = process->pid == 0 && !peer_is_far(process);
    HOOP_LIST_EACH(struct hoop_member, member, &hoop_members, node) {
        for (uint32_t rank = 0; tells && rank < member->roster.n; rank++) {
            if (peer_has(process, member, rank)) {
                hoop_liveness_closed(member, rank);
            }
        }
    }
}

static void peer_closed(void *arg, struct hoop_connection *connection,
                        const struct hoop_failure *why)
{
    struct hoop_peer_process *process = arg;
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "the connection with the process %s has ended: %s",
             hoop_connection_about(connection)->peer, why->text);
    peer_hang_up(process, connection == process->dialled ? &process->dialled : &process->accepted);
    peer_tell_closed(process);
    hoop_peer_flush(process);
}

static const struct hoop_connection_owner peer_owner = {
    .message = peer_message,
    .closed = peer_closed,
};

/* ---- Dialling ----------------------------------------------------------------------------- */

static void peer_stop_dialling(struct hoop_peer_process *process)
{
    hoop_dialer_destroy(process->dialer);
    process->dialer = NULL;
}

static void peer_found(void *arg, struct hoop_connection *connection)
{
    struct hoop_peer_process *process = arg;
    peer_stop_dialling(process);
    if (!peer_is_at(process, connection)) {
        hoop_connection_destroy(connection); /* another process has its name, so it is dead */
        return;
    }
    hoop_connection_adopt(connection, &peer_owner, process);
    process->dialled = connection;
    hoop_peer_flush(process);
}

static void peer_not_found(void *arg, hoop_result_t code, const char *why)
{
    struct hoop_peer_process *process = arg;
    const bool here = hoop_result_is_own(code);
    char text[HOOP_FAILURE_TEXT_BYTES];
    (void)snprintf(text, sizeof(text), "%s%.300s", here ? "" : "cannot be reached: ", why);
    peer_stop_dialling(process);
    while (!hoop_list_is_empty(&process->requests)) {
        struct hoop_peer_request *first =
            HOOP_CONTAINER_OF(process->requests.next, struct hoop_peer_request, node);
        struct hoop_member *member = first->member;
        const uint32_t rank = first->rank;
        if (here) {
            hoop_request_fail_here(first, code, text);
            hoop_request_destroy(process, first);
        } else {
            hoop_liveness_lose(member, rank, text);
            hoop_peer_drop(member, rank, text);
        }
    }
}

/* The request whose comm was least often named in vain: that comm may have failed there before this
 * rank was in, and nobody expects its hello, while others wait. NULL: there is none. */
static const struct hoop_peer_request *peer_next(const struct hoop_peer_process *process)
{
    const struct hoop_peer_request *next = NULL;
    HOOP_LIST_EACH(const struct hoop_peer_request, request, &process->requests, node) {
        const struct hoop_peer_state *others = request->member->others;
        if (next == NULL ||
            others[request->rank].dialled < next->member->others[next->rank].dialled) {
            next = request;
        }
    }
    return next;
}

static struct hoop_frame_hello peer_hello(const struct hoop_peer_request *request)
{
    request->member->others[request->rank].dialled++;
    return (struct hoop_frame_hello){.kind = HOOP_HELLO_PEER,
                                     .comm_id = request->member->roster.comm_id,
                                     .from = request->member->join.rank,
                                     .to = request->rank};
}

static void peer_round(void *arg)
{
    struct hoop_peer_process *process = arg;
    const struct hoop_peer_request *next = peer_next(process);
    if (next == NULL) {
        peer_stop_dialling(process);
    } else if (!peer_is_far(process)) { /* else it serves one comm */
        const struct hoop_frame_hello hello = peer_hello(next);
        hoop_dialer_set_places(process->dialer, &process->place, 1);
        hoop_dialer_say(process->dialer, &hello, &next->member->secret);
    }
}

static const struct hoop_dialer_owner peer_dialer_owner = {
    .found = peer_found,
    .failed = peer_not_found,
    .round = peer_round,
};

/* On this machine the dialer has no deadline: the detector decides whether the process is alive,
 * and drops requests if not. A process on another machine may be alive but unreachable. */
static void peer_dial(void *arg)
{
    struct hoop_peer_process *process = arg;
    const struct hoop_peer_request *next = peer_next(process);
    if (next == NULL || process->dialer != NULL) {
        return;
    }
    const struct hoop_member *member = next->member;
    const bool far = peer_is_far(process);
    const struct hoop_dialer_order order = {
        .places = &process->place,
        .count = 1,
        .from = far ? &member->address : NULL,
        .hello = peer_hello(next),
        .secret = &member->secret,
        .deadline_ns = far ? hoop_deadline_ns(member->roster.dead_after_ms) : HOOP_NEVER};
    const hoop_result_t result =
        hoop_dialer_create(&order, &peer_dialer_owner, process, &process->dialer);
    if (result != HOOP_OK) {
        peer_not_found(process, result, hoop_thread_error());
    }
}

static void peer_seek(struct hoop_peer_process *process)
{
    if (hoop_list_is_empty(&process->requests) || process->dialer != NULL) {
        return;
    }
    if (hoop_process_id() < process->id) {
        peer_dial(process);
    } else {
        hoop_timer_start(process->moment, PEER_MOMENT_MS, 0);
    }
}

/* ---- Being dialled ------------------------------------------------------------------------ */

static void peer_opened(void *arg, struct hoop_connection *connection)
{
    struct hoop_member *member = arg;
    const uint32_t rank = hoop_connection_about(connection)->hello->from;
    struct hoop_peer_process *process =
        rank < member->roster.n ? member->others[rank].process : NULL;
    if (process == NULL || !peer_is_at(process, connection)) {
        hoop_connection_destroy(connection);
        return;
    }
    peer_hang_up(process, &process->accepted); /* it dials one at a time: the old one is stale */
    hoop_connection_adopt(connection, &peer_owner, process);
    process->accepted = connection;
    hoop_timer_stop(process->moment);
    hoop_member_enter(member);
    hoop_peer_flush(process);
}

/* ---- Deaths of own regions ---------------------------------------------------------------- */

struct peer_death {
    uint64_t id;
    uint32_t generation;
};

/* Tells all that may have fetched it; on all connections, so as not to overtake an answer. */
static void peer_tell_death(void *arg)
{
    const struct peer_death *death = arg;
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_REGION_DEAD);
    frame.region.id = death->id;
    frame.region.generation = death->generation;
    HOOP_LIST_EACH(const struct hoop_peer_process, process, &peer_processes, node) {
        if (!peer_is_far(process)) {
            hoop_connection_say(process->dialled, &frame);
            hoop_connection_say(process->accepted, &frame);
        }
    }
}

static void peer_region_died(uint64_t id, uint32_t generation)
{
    struct peer_death death = {.id = id, .generation = generation};
    hoop_service_post(peer_tell_death, &death, sizeof(death));
}

/* ---- Life --------------------------------------------------------------------------------- */

hoop_result_t hoop_peer_listen(struct hoop_member *member)
{
    uint8_t random[HOOP_RENDEZVOUS_NAME_RANDOM];
    struct hoop_place place = {.name = ""};
    hoop_result_t result = peer_listeners == 0 ? hoop_random(random, sizeof(random)) : HOOP_OK;
    if (peer_listeners == 0 && result == HOOP_OK) {
        /* a fresh name: after the last comm ended, a child that was forked meanwhile may hold the
         * old one until its fork handler has run */
        hoop_rendezvous_name("hoop-", random, peer_name);
    }
    hoop_region_on_death(peer_region_died);
    memcpy(place.name, peer_name, sizeof(place.name));
    if (result == HOOP_OK) {
        result = hoop_endpoint_open(&place, NULL, &member->peers_endpoint);
    }
    peer_listeners += result == HOOP_OK ? 1 : 0;
    return result;
}

const char *hoop_peer_listener(void)
{
    return peer_name;
}

static void process_destroy(struct hoop_peer_process *process)
{
    hoop_list_remove(&process->node);
    peer_stop_dialling(process);
    hoop_timer_destroy(process->moment);
    peer_hang_up(process, &process->dialled);
    peer_hang_up(process, &process->accepted);
    free(process);
}

static struct hoop_peer_process *process_find(uint64_t id, int pid, uint64_t comm_id)
{
    HOOP_LIST_EACH(struct hoop_peer_process, process, &peer_processes, node) {
        if (process->id == id && process->pid == pid && process->comm_id == comm_id) {
            return process;
        }
    }
    return NULL;
}

/* Returns NULL if there is no memory. */
static struct hoop_peer_process *process_create(uint64_t id, int pid, uint64_t comm_id)
{
    struct hoop_peer_process *process = calloc(1, sizeof(*process));
    if (process == NULL || hoop_timer_create(peer_dial, process, &process->moment) != HOOP_OK) {
        free(process);
        return NULL;
    }
    process->id = id;
    process->pid = pid;
    process->comm_id = comm_id;
    hoop_list_init(&process->requests);
    hoop_list_push_back(&peer_processes, &process->node);
    return process;
}

static hoop_result_t peer_know(struct hoop_member *member, uint32_t rank)
{
    const struct hoop_peer *peer = &member->roster.peers[rank];
    /* If others can't see this process it is a separate peer for them in every comm: so must they
     * be here, or a connection that serves one comm there would be used for another. */
    const bool seen = peer->same_machine && hoop_process_own_start_time() != 0;
    const int pid = seen ? peer->pid : 0;
    const uint64_t comm_id = pid == 0 ? member->roster.comm_id : 0;
    struct hoop_peer_process *process = process_find(peer->process, pid, comm_id);
    if (process == NULL) {
        process = process_create(peer->process, pid, comm_id);
    }
    if (process == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for another process");
    }
    hoop_peer_place(member, rank, &process->place); /* its latest address */
    process->users++;
    member->others[rank].process = process;
    return HOOP_OK;
}

hoop_result_t hoop_peer_begin(struct hoop_member *member)
{
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        const bool here = member->roster.peers[rank].same_process;
        const hoop_result_t result = here ? HOOP_OK : peer_know(member, rank);
        if (result != HOOP_OK) {
            return result;
        }
    }
    member->near_expected = (struct hoop_expectation){
        .hello = {.kind = HOOP_HELLO_PEER, .comm_id = member->roster.comm_id},
        .secret = &member->secret,
        .opened = peer_opened,
        .starved = hoop_member_starved,
        .arg = member,
    };
    member->far_expected = member->near_expected;
    hoop_endpoint_expect(member->peers_endpoint, &member->near_expected);
    return HOOP_OK;
}

void hoop_peer_enter(struct hoop_member *member)
{
    if (member->data_endpoint != NULL) { /* only with other machines */
        hoop_endpoint_expect(member->data_endpoint, &member->far_expected);
    }
}

/* Drops the member's requests. */
static void peer_leave(struct hoop_member *member, struct hoop_peer_process *process)
{
    HOOP_LIST_EACH(struct hoop_peer_request, request, &process->requests, node) {
        if (request->member == member) {
            hoop_request_destroy(process, request);
        }
    }
    if (--process->users == 0) {
        process_destroy(process);
    }
}

void hoop_peer_finish(struct hoop_member *member)
{
    hoop_endpoint_expect_no_more(&member->near_expected);
    hoop_endpoint_expect_no_more(&member->far_expected);
    for (uint32_t rank = 0; member->others != NULL && rank < member->roster.n; rank++) {
        struct hoop_peer_process *process = member->others[rank].process;
        member->others[rank].process = NULL;
        if (process != NULL) {
            peer_leave(member, process);
        }
    }
    peer_listeners -= member->peers_endpoint != NULL ? 1 : 0;
    hoop_endpoint_close(member->peers_endpoint);
    member->peers_endpoint = NULL;
}

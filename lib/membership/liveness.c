/*
 * Which ranks of the comm are alive. For those of this machine there is evidence of three kinds:
 * the process, the connections (of the rank to its leader, which reports their end, and of this
 * process to it), and the pulse in shared memory. For ranks of other machines only the leader
 * knows; the beat that this rank sends to it is for them.
 */
#include "base/clock.h"
#include "membership/membership_inside.h"
#include "memory/region.h"

static struct hoop_member *liveness_of(struct hoop_watcher *watcher)
{
    return HOOP_CONTAINER_OF(watcher, struct hoop_member, watcher);
}

static struct hoop_peer_state *liveness_other(struct hoop_watched *watched)
{
    return HOOP_CONTAINER_OF(watched, struct hoop_peer_state, watched);
}

/* ---- Losses ------------------------------------------------------------------------------- */

void hoop_liveness_tell(struct hoop_member *member, uint32_t rank, bool left, const char *why)
{
    if (member->witness != NULL) {
        member->witness->lost(member->witness, rank, left, why);
    }
}

void hoop_liveness_lose(struct hoop_member *member, uint32_t rank, const char *why)
{
    struct hoop_peer_state *other = &member->others[rank];
    if (member->state != HOOP_MEMBER_IN || rank == member->join.rank || other->lost) {
        return;
    }
    const bool left = member->events.left(member->events.arg, rank) != 0;
    if (!left) {
        other->lost = true;
        member->events.lost(member->events.arg, rank, why);
    }
    hoop_liveness_tell(member, rank, left, why);
    hoop_peer_drop(member, rank, why);
}

void hoop_liveness_closed(struct hoop_member *member, uint32_t rank)
{
    struct hoop_peer_state *other = &member->others[rank];
    if (other->watched.watcher != NULL) {
        hoop_watched_closed(&other->watched);
    } else {
        hoop_liveness_lose(member, rank, "closed its connection without a goodbye");
    }
}

bool hoop_liveness_closed_server(struct hoop_member *member)
{
    bool any = false;
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        if (member->roster.peers[rank].process == member->server) {
            any = true;
            hoop_liveness_closed(member, rank);
        }
    }
    return any;
}

static void liveness_lost(struct hoop_watched *watched, const char *why)
{
    struct hoop_member *member = liveness_of(watched->watcher);
    const uint32_t rank = (uint32_t)(liveness_other(watched) - member->others);
    if (hoop_watched_is_dead(watched)) {
        hoop_region_forget_process(member->roster.peers[rank].process);
    }
    hoop_liveness_lose(member, rank, why);
}

/* ---- The heartbeat ------------------------------------------------------------------------ */

/* Updates since when an operation of this rank has been waiting without a break. */
static void liveness_look_waiting(struct hoop_member *member)
{
    if (!member->events.waiting(member->events.arg)) {
        member->waiting_ns = HOOP_NEVER;
    } else if (member->waiting_ns == HOOP_NEVER) {
        member->waiting_ns = hoop_now_ns();
    }
}

/* To the leader, for the other machines. */
static void liveness_say_beat(const struct hoop_member *member)
{
    union hoop_frame frame;
    if (member->roster.machines > 1) {
        hoop_frame_make_beat(&frame, member->waiting_ns, hoop_now_ns());
        hoop_connection_say(member->connection, &frame);
    }
}

static void liveness_beat(struct hoop_watcher *watcher)
{
    struct hoop_member *member = liveness_of(watcher);
    member->events.beat(member->events.arg);
    liveness_look_waiting(member);
    liveness_say_beat(member);
}

static uint64_t liveness_waiting_since(struct hoop_watched *watched)
{
    return liveness_of(watched->watcher)->waiting_ns;
}

/* 0 while its process has joined, but its caller does not use the comm yet, for example because it
 * waits in a group for another comm. */
static uint64_t liveness_pulse(struct hoop_watched *watched)
{
    const struct hoop_member *member = liveness_of(watched->watcher);
    return member->events.pulse(member->events.arg,
                                (uint32_t)(liveness_other(watched) - member->others));
}

static const struct hoop_watcher_owner liveness_owner = {
    .beat = liveness_beat,
    .waiting_since = liveness_waiting_since,
    .pulse = liveness_pulse,
    .lost = liveness_lost,
};

/* ---- Life --------------------------------------------------------------------------------- */

hoop_result_t hoop_liveness_begin(struct hoop_member *member)
{
    hoop_result_t result =
        hoop_watcher_init(&member->watcher, &liveness_owner, member->roster.dead_after_ms);
    member->waiting_ns = HOOP_NEVER;
    for (uint32_t rank = 0; result == HOOP_OK && rank < member->roster.n; rank++) {
        struct hoop_peer *peer = &member->roster.peers[rank];
        struct hoop_peer_state *other = &member->others[rank];
        if (!peer->same_machine || peer->same_process) {
            continue;
        }
        hoop_watched_init(&other->watched, &member->watcher);
        result = hoop_watched_process(&other->watched, peer->pid, other->entry.start_time);
        if (other->watched.process == NULL) {
            peer->pid = 0;
        }
    }
    return result;
}

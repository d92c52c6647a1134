/*
 * What travels along a leader's edges once all ranks are in; see leader_inside.h.
 *
 *      DEAD LEFT   to all machines: a leader passes on to its other neighbours only what is new
 *      FAIL        to it, so that nothing circulates. Ranks of a machine hear only what comes from
 *                  other machines: among themselves they share memory and see each other's
 *                  processes
 *      BEAT        travels one edge. It says since when anybody on that side has been waiting,
 *                  which the receiver includes in its own BEATs: the only machine that sees a
 *                  stopped neighbour may have no waiting ranks itself
 *
 * A neighbour is as alive as the process at its other end. When that process ends only its own
 * ranks are lost. Other ranks of that machine, and machines beyond it, may live on, although the
 * tree brings no more news of them.
 */
#include "base/clock.h"
#include "base/log.h"
#include "runtime/process.h"
#include "tree/leader.h"
#include "tree/leader_inside.h"
#include <stdio.h>

static struct hoop_job *flood_idle_job;

/* ---- Who waits for whom ------------------------------------------------------------------- */

static bool flood_spans(const struct hoop_leader *leader)
{
    return leader->tree.machines > 1;
}

/* Does it connect machines, or tell them why a join fails? */
static bool flood_is_needed(const struct hoop_leader *leader)
{
    const struct hoop_tree *tree = &leader->tree;
    switch (leader->state) {
    case HOOP_LEADER_RUNNING:
        return flood_spans(leader) && !tree->comm_failed;
    case HOOP_LEADER_FAILED:
        return hoop_edge_is_open(&tree->root) ||
               (leader->is_root && !hoop_list_is_empty(&leader->children));
    default:
        return tree->feared.code != HOOP_OK;
    }
}

static bool flood_is_any_needed(void)
{
    HOOP_LIST_EACH(const struct hoop_leader, leader, &hoop_leaders, node) {
        if (flood_is_needed(leader)) {
            return true;
        }
    }
    return false;
}

void hoop_flood_tell_idle(void)
{
    if (flood_idle_job != NULL && !flood_is_any_needed()) {
        hoop_job_complete_once(&flood_idle_job, NULL);
    }
}

void hoop_tree_on_idle(struct hoop_job *job)
{
    flood_idle_job = job;
    hoop_flood_tell_idle();
}

bool hoop_flood_is_over(const struct hoop_leader *leader)
{
    const struct hoop_tree *tree = &leader->tree;
    for (uint32_t rank = 0; flood_spans(leader) && rank < leader->n; rank++) {
        if (!hoop_rank_set_has(&tree->left, rank) && !hoop_rank_set_has(&tree->dead, rank)) {
            return false;
        }
    }
    return true;
}

/* ---- To all ------------------------------------------------------------------------------- */

/* Records the news. Returns false if it was known before. */
static bool flood_mark(struct hoop_tree *tree, const union hoop_frame *frame)
{
    const uint32_t type = frame->header.type, rank = frame->fate.rank;
    bool known = tree->raised;
    if (type == HOOP_FRAME_FAIL) {
        tree->raised = true;
    } else { /* a rank that has left cannot be lost any more */
        const bool left = type == HOOP_FRAME_LEFT || hoop_rank_set_has(&tree->left, rank);
        struct hoop_rank_set *set = left ? &tree->left : &tree->dead;
        known = hoop_rank_set_has(set, rank);
        hoop_rank_set_add(set, rank);
    }
    return !known;
}

static void flood_tell_ranks(const struct hoop_leader *leader, const union hoop_frame *frame)
{
    for (uint32_t rank = 0; rank < leader->n; rank++) {
        if (leader->via[rank] != NULL) {
            hoop_edge_send(leader->via[rank], frame);
        }
    }
}

/* Passes news on unless it was known. to_ranks: also to this machine's ranks. */
static void flood(struct hoop_leader *leader, const union hoop_frame *frame,
                  const struct hoop_edge *from, bool to_ranks)
{
    struct hoop_tree *tree = &leader->tree;
    if (!flood_mark(tree, frame)) {
        return;
    }
    hoop_tree_send(tree, frame, from);
    if (to_ranks) {
        flood_tell_ranks(leader, frame);
    }
    if (frame->header.type == HOOP_FRAME_DEAD || frame->header.type == HOOP_FRAME_FAIL) {
        tree->comm_failed = true;
        hoop_flood_tell_idle();
    }
    hoop_leader_settle(leader);
}

static union hoop_frame flood_dead(uint32_t rank, const char *why)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_DEAD);
    frame.fate.rank = rank;
    (void)snprintf(frame.fate.why, sizeof(frame.fate.why), "%s", why);
    return frame;
}

/* ---- Losses ------------------------------------------------------------------------------- */

void hoop_flood_lose_rank(struct hoop_edge *edge)
{
    struct hoop_leader *leader = edge->leader;
    const union hoop_frame frame = flood_dead(edge->number, "");
    if (!edge->failed) {
        flood_tell_ranks(leader, &frame); /* they see its process themselves */
    }
    if (flood_spans(leader) && !edge->left && !edge->failed && !edge->watched.lost) {
        hoop_watched_closed(&edge->watched); /* other machines do not: flood_lost() tells them */
        return;
    }
    hoop_edge_destroy(edge);
    hoop_leader_settle(leader);
}

/* The process at a neighbour's other end is lost, and its ranks with it. */
static void flood_lose_process(struct hoop_edge *edge, const char *why)
{
    struct hoop_leader *leader = edge->leader;
    uint32_t count = 0;
    for (uint32_t rank = 0; leader->state == HOOP_LEADER_RUNNING && rank < leader->n; rank++) {
        const struct hoop_frame_entry *at = &leader->entries[rank];
        if (at->machine == edge->number && at->process == edge->info.process) {
            const union hoop_frame frame = flood_dead(rank, why);
            count++;
            if (!hoop_rank_set_has(&leader->tree.left, rank)) {
                flood(leader, &frame, edge, true);
            }
        }
    }
    if (count == 0) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_NET,
                 "the process that speaks for machine %u (pid %d) %s; it has no rank, but nothing "
                 "can be reported to the ranks beyond it any more",
                 edge->number, edge->info.pid, why);
    }
}

void hoop_flood_lose_neighbour(struct hoop_edge *edge)
{
    struct hoop_leader *leader = edge->leader;
    hoop_watched_finish(&edge->watched);
    if (!edge->watched.lost && !edge->failed) {
        flood_lose_process(edge, "died, or its machine cannot be reached");
    }
    hoop_leader_settle(leader);
}

void hoop_flood_fail_by(struct hoop_edge *edge, hoop_result_t code)
{
    struct hoop_failure failure;
    union hoop_frame fail;
    edge->failed = true; /* its end is no death */
    hoop_leader_blame(edge->leader, code, hoop_thread_error(), &failure);
    hoop_frame_from_failure(&fail, HOOP_FRAME_FAIL, &failure);
    if (flood_spans(edge->leader)) {
        flood(edge->leader, &fail, edge, true);
    } else {
        flood_tell_ranks(edge->leader, &fail);
    }
}

/* ---- Signs of life ------------------------------------------------------------------------ */

static uint64_t flood_earlier(const struct hoop_edge *edge, uint64_t since)
{
    const bool counts = edge != NULL && hoop_edge_is_open(edge) && !edge->left;
    return counts && edge->waiting_ns < since ? edge->waiting_ns : since;
}

/* Since when anybody here, or beyond a neighbour other than `but`, has been waiting. */
static uint64_t flood_waiting_since(const struct hoop_leader *leader, const struct hoop_edge *but)
{
    uint64_t since = HOOP_NEVER;
    for (uint32_t rank = 0; rank < leader->n; rank++) {
        since = flood_earlier(leader->via[rank], since);
    }
    for (uint32_t i = 0; i < HOOP_NEIGHBOURS; i++) {
        const struct hoop_edge *edge = &leader->tree.neighbours[i];
        since = edge != but ? flood_earlier(edge, since) : since;
    }
    return since;
}

static void flood_say_beat(struct hoop_edge *edge)
{
    const uint64_t since = flood_waiting_since(edge->leader, edge);
    union hoop_frame frame;
    hoop_frame_make_beat(&frame, since, hoop_now_ns());
    edge->told_waiting = since != HOOP_NEVER;
    hoop_edge_send(edge, &frame);
}

static void flood_beat(struct hoop_watcher *watcher)
{
    struct hoop_tree *tree = HOOP_CONTAINER_OF(watcher, struct hoop_tree, watcher);
    for (uint32_t i = 0; i < HOOP_NEIGHBOURS; i++) {
        flood_say_beat(&tree->neighbours[i]);
    }
}

/* Passes on at once that somebody waits; otherwise the news would take up to a beat per hop. */
static bool flood_take_beat(struct hoop_edge *edge, const struct hoop_frame_beat *beat)
{
    struct hoop_tree *tree = &edge->leader->tree;
    edge->waiting_ns = hoop_frame_waiting_since(beat, hoop_now_ns());
    for (uint32_t i = 0; i < HOOP_NEIGHBOURS && edge->waiting_ns != HOOP_NEVER; i++) {
        struct hoop_edge *other = &tree->neighbours[i];
        if (other != edge && !other->told_waiting) {
            flood_say_beat(other);
        }
    }
    return true;
}

static uint64_t flood_is_awaited_since(struct hoop_watched *watched)
{
    const struct hoop_edge *edge = HOOP_CONTAINER_OF(watched, struct hoop_edge, watched);
    return edge->left
               ? HOOP_NEVER
               : flood_waiting_since(edge->leader, edge->kind == HOOP_EDGE_RANK ? NULL : edge);
}

static void flood_lost(struct hoop_watched *watched, const char *why)
{
    struct hoop_edge *edge = HOOP_CONTAINER_OF(watched, struct hoop_edge, watched);
    struct hoop_leader *leader = edge->leader;
    if (edge->kind != HOOP_EDGE_RANK) {
        flood_lose_process(edge, why);
        return;
    }
    const union hoop_frame frame = flood_dead(edge->number, why);
    const bool open = hoop_edge_is_open(edge);
    const bool left = edge->left;
    if (!open) {
        hoop_edge_destroy(edge);
    }
    if (!left) {
        flood(leader, &frame, NULL, open);
    }
    hoop_leader_settle(leader);
}

static const struct hoop_watcher_owner flood_watcher_owner = {
    .beat = flood_beat,
    .waiting_since = flood_is_awaited_since,
    .lost = flood_lost,
};

hoop_result_t hoop_flood_prepare(struct hoop_leader *leader)
{
    return hoop_watcher_init(&leader->tree.watcher, &flood_watcher_owner,
                             leader->roster.dead_after_ms);
}

static void flood_watch(struct hoop_leader *leader)
{
    struct hoop_watcher *watcher = &leader->tree.watcher;
    for (uint32_t rank = 0; rank < leader->n; rank++) {
        struct hoop_edge *edge = leader->via[rank];
        if (edge != NULL) {
            const int pid = (int)hoop_connection_about(edge->connection)->pid;
            hoop_watched_init(&edge->watched, watcher);
            /* on failure its connection is still evidence */
            (void)hoop_watched_process(&edge->watched, pid, hoop_process_start_time(pid));
        }
    }
    for (uint32_t i = 0; i < HOOP_NEIGHBOURS; i++) {
        struct hoop_edge *edge = &leader->tree.neighbours[i];
        if (hoop_edge_is_open(edge)) {
            hoop_watched_init(&edge->watched, watcher);
        }
    }
}

void hoop_flood_start(struct hoop_leader *leader)
{
    struct hoop_tree *tree = &leader->tree;
    if (!flood_spans(leader)) {
        return;
    }
    flood_watch(leader);
    for (uint32_t i = 0; i < HOOP_NEIGHBOURS; i++) {
        struct hoop_edge *edge = &tree->neighbours[i];
        if (!hoop_edge_is_open(edge) && edge->info.process != 0) { /* it ended after its READY */
            hoop_flood_lose_neighbour(edge);
        }
    }
    if (leader->state == HOOP_LEADER_RUNNING) {
        hoop_watcher_start(&tree->watcher);
    }
}

/* ---- What comes --------------------------------------------------------------------------- */

/* A rank may report a failure and its own goodbye. News of other ranks may come only from
 * neighbours, which speak for their machines. */
static bool flood_take_event(struct hoop_edge *edge, const union hoop_frame *frame)
{
    const bool rank = edge->kind == HOOP_EDGE_RANK;
    const bool failed = frame->header.type == HOOP_FRAME_FAIL;
    if (!failed && frame->fate.rank >= edge->leader->n) {
        return false;
    }
    if (rank && !failed) {
        if (frame->header.type != HOOP_FRAME_LEFT || frame->fate.rank != edge->number) {
            return false;
        }
        edge->left = true;
    }
    flood(edge->leader, frame, edge, !rank);
    return true;
}

/* A rank that was let in, but joins only when all are in: one too many for this rendezvous. */
static bool flood_refuse(struct hoop_edge *edge, const struct hoop_frame_join *join)
{
    struct hoop_failure failure = {.code = HOOP_OK};
    union hoop_frame frame;
    (void)hoop_failure_set(&failure, HOOP_INVALID_USAGE, (int)join->rank,
                           "all %u ranks have joined, and rank %u came once more: as pid %d on "
                           "host %s",
                           edge->leader->n, join->rank, join->who.pid, join->who.host);
    hoop_frame_from_failure(&frame, HOOP_FRAME_REJECT, &failure);
    hoop_edge_send(edge, &frame);
    hoop_edge_destroy(edge);
    return true;
}

bool hoop_flood_take(struct hoop_edge *edge, const union hoop_frame *frame)
{
    if (edge->number == HOOP_NOBODY && frame->header.type == HOOP_FRAME_JOIN) {
        return flood_refuse(edge, &frame->join);
    }
    if (!flood_spans(edge->leader) || edge->number == HOOP_NOBODY) {
        return false;
    }
    switch (frame->header.type) {
    case HOOP_FRAME_DEAD:
    case HOOP_FRAME_LEFT:
    case HOOP_FRAME_FAIL:
        return flood_take_event(edge, frame);
    case HOOP_FRAME_BEAT:
        return flood_take_beat(edge, &frame->beat);
    default:
        return false;
    }
}

/* The other end's join failed after ours had succeeded, so the comm has failed. A rank that rejects
 * may be in this process, which may then end its edges, too. */
bool hoop_flood_take_reject(struct hoop_edge *edge, const union hoop_frame *frame)
{
    const struct hoop_failure failure = hoop_frame_to_failure(&frame->reject);
    union hoop_frame fail;
    if (edge->number == HOOP_NOBODY) {
        return false;
    }
    hoop_frame_from_failure(&fail, HOOP_FRAME_FAIL, &failure);
    edge->failed = true;
    if (edge->kind == HOOP_EDGE_RANK) {
        hoop_tree_send(&edge->leader->tree, frame, NULL);
    }
    flood(edge->leader, &fail, edge, true);
    return true;
}

/*
 * What goes along the branches of a tree once all are in; see tree_inside.h.
 *
 * LOST, GONE and FAIL go to all machines: each tells its other neighbours what is news to it, so
 * that nothing goes round. A BLOB goes up to where its target lies below, and down from there. A
 * BEAT goes one branch far, and says whether anybody on that side waits: a machine whose own ranks
 * wait for nothing may be the only one that can see a stopped neighbour.
 *
 * A branch is as alive as the process at its other end. When that ends, the ranks in it are lost,
 * and only they: others of that machine may live on, though nobody hears of them any more.
 */
#include "base/clock.h"
#include "base/log.h"
#include "life.h"
#include "tree_inside.h"
#include <stddef.h>
#include <stdio.h>

static struct hoop_branch *route_towards(struct hoop_tree *tree, uint32_t machine)
{
    uint32_t at = machine;
    while (at != 0 && (at - 1) / 2 != tree->machine) {
        at = (at - 1) / 2;
    }
    return &tree->branches[at == 0 ? 0 : 2 - at % 2];
}

/* Is there anything new in it? From now on there is not. */
static bool route_is_news(struct hoop_tree *tree, const union hoop_frame *frame)
{
    bool *known = &tree->raised;
    if (frame->header.type == HOOP_FRAME_LOST) {
        struct hoop_tree_rank *rank = &tree->ranks[frame->lost.rank];
        known = rank->gone ? &rank->gone : &rank->lost; /* after a goodbye it is no loss */
    } else if (frame->header.type == HOOP_FRAME_GONE) {
        known = &tree->ranks[frame->gone.rank].gone;
    }
    const bool news = !*known;
    *known = true;
    return news;
}

/* From a branch, from the owner, or (both false) from this file. */
static void route_flood(struct hoop_tree *tree, const union hoop_frame *frame,
                        const struct hoop_branch *from, bool from_owner)
{
    if (!route_is_news(tree, frame)) {
        return;
    }
    hoop_branch_send_all(tree, frame, from);
    if (frame->header.type != HOOP_FRAME_GONE) {
        tree->comm_failed = true;
        hoop_tree_tell_idle();
    }
    if (!from_owner && tree->owned) {
        tree->owner->message(tree->arg, frame);
    }
    hoop_tree_settle(tree);
}

static void route_lose_rank(struct hoop_tree *tree, uint32_t rank, const struct hoop_branch *from,
                            const char *why)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_LOST);
    frame.lost.rank = rank;
    frame.lost.certain = 1;
    (void)snprintf(frame.lost.why, sizeof(frame.lost.why), "%s", why);
    route_flood(tree, &frame, from, false);
}

static void route_blob(struct hoop_tree *tree, const union hoop_frame *frame,
                       const struct hoop_branch *from)
{
    const uint32_t machine = tree->ranks[frame->blob.to].machine;
    if (machine == tree->machine) {
        if (tree->owned && from != NULL) {
            tree->owner->message(tree->arg, frame);
        }
        return;
    }
    const struct hoop_branch *branch = route_towards(tree, machine);
    if (branch == from) {
        return;
    }
    if (branch->control != NULL) {
        hoop_control_send(branch->control, &frame->header, NULL, 0);
    } else {
        route_lose_rank(tree, frame->blob.to, NULL,
                        "cannot be reached: the process that spoke for its machine has ended");
    }
}

bool hoop_route_is_over(const struct hoop_tree *tree)
{
    for (uint32_t rank = 0; rank < tree->roster.n; rank++) {
        if (!tree->ranks[rank].gone && !tree->ranks[rank].lost) {
            return false;
        }
    }
    return true;
}

void hoop_route_lose(struct hoop_tree *tree, const struct hoop_branch *branch, const char *why)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; tree->state == HOOP_TREE_RUNNING && rank < tree->roster.n; rank++) {
        const struct hoop_tree_rank *at = &tree->ranks[rank];
        if (at->machine == branch->machine && at->process == branch->process) {
            count++;
            if (!at->gone) {
                route_lose_rank(tree, rank, branch, why);
            }
        }
    }
    if (count == 0) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_NET,
                 "the process that speaks for machine %u (pid %d) %s; it has no rank, but the "
                 "ranks beyond it cannot be told anything any more",
                 branch->machine, branch->pid, why);
    }
}

/* ---- Signs of life ------------------------------------------------------------------------ */

static void route_take_beat(struct hoop_branch *branch, const struct hoop_frame_beat *beat)
{
    if (beat->waiting == 0) {
        branch->waiting_ns = HOOP_NEVER;
    } else if (branch->waiting_ns == HOOP_NEVER) {
        branch->waiting_ns = hoop_now_ns();
    }
}

uint64_t hoop_route_waiting_since(const struct hoop_tree *tree, const struct hoop_branch *but)
{
    uint64_t since = HOOP_NEVER;
    for (uint32_t i = 0; i < HOOP_TREE_BRANCHES; i++) {
        const struct hoop_branch *branch = &tree->branches[i];
        if (branch != but && branch->control != NULL && branch->waiting_ns < since) {
            since = branch->waiting_ns;
        }
    }
    return since;
}

static void route_look_at(struct hoop_tree *tree, struct hoop_branch *branch, uint64_t waiting,
                          uint64_t now)
{
    const uint64_t ms =
        hoop_life_silence_ms(branch->heard_ns, waiting, now, tree->roster.dead_after_ms);
    char why[HOOP_FRAME_WHY_BYTES];
    if (ms == 0 || branch->silent) {
        return;
    }
    branch->silent = true;
    (void)snprintf(why, sizeof(why),
                   "gave no sign of life for %llu ms (is it stopped, or cannot its machine be "
                   "reached?)",
                   (unsigned long long)ms);
    hoop_route_lose(tree, branch, why);
}

void hoop_route_beat(struct hoop_tree *tree)
{
    const uint64_t now = hoop_now_ns();
    const bool late = hoop_life_was_late(tree->beat_ns, now, tree->beat_ms);
    const uint64_t here = tree->owned ? tree->owner->waiting_since(tree->arg) : HOOP_NEVER;
    tree->beat_ns = now;
    for (uint32_t i = 0; i < HOOP_TREE_BRANCHES && tree->state == HOOP_TREE_RUNNING; i++) {
        struct hoop_branch *branch = &tree->branches[i];
        const uint64_t others = hoop_route_waiting_since(tree, branch);
        const uint64_t waiting = here < others ? here : others;
        union hoop_frame frame;
        if (branch->control == NULL) {
            continue;
        }
        hoop_frame_init(&frame, HOOP_FRAME_BEAT);
        frame.beat.waiting = waiting != HOOP_NEVER ? 1 : 0;
        hoop_control_send(branch->control, &frame.header, NULL, 0);
        if (late) {
            branch->heard_ns = now;
        } else {
            route_look_at(tree, branch, waiting, now);
        }
    }
}

void hoop_route_start(struct hoop_tree *tree)
{
    const uint64_t now = hoop_now_ns();
    tree->beat_ns = now;
    tree->beat_ms = hoop_life_beat_ms(tree->roster.dead_after_ms);
    hoop_timer_start(tree->timer, tree->beat_ms, tree->beat_ms);
    for (uint32_t i = 0; i < HOOP_TREE_BRANCHES; i++) {
        struct hoop_branch *branch = &tree->branches[i];
        branch->heard_ns = now;
        branch->waiting_ns = HOOP_NEVER;
        if (branch->control == NULL && branch->process != 0) { /* between its READY and GO */
            hoop_route_lose(tree, branch, "died, or its machine cannot be reached");
        }
    }
}

/* ---- What comes --------------------------------------------------------------------------- */

bool hoop_route_take(struct hoop_tree *tree, const union hoop_frame *frame,
                     struct hoop_branch *from)
{
    const uint32_t n = tree->roster.n;
    switch (frame->header.type) {
    case HOOP_FRAME_LOST:
    case HOOP_FRAME_GONE:
    case HOOP_FRAME_FAIL: {
        const bool named = frame->header.type != HOOP_FRAME_FAIL;
        _Static_assert(offsetof(struct hoop_frame_lost, rank) ==
                           offsetof(struct hoop_frame_rank, rank),
                       "both begin with a rank");
        if (named && frame->lost.rank >= n) {
            return false;
        }
        route_flood(tree, frame, from, from == NULL);
        return true;
    }
    case HOOP_FRAME_BLOB:
        if (frame->blob.from >= n || frame->blob.to >= n) {
            return false;
        }
        route_blob(tree, frame, from);
        return true;
    case HOOP_FRAME_REJECT: {
        /* its join failed when ours had succeeded already: so the comm has */
        union hoop_frame fail = *frame;
        fail.header.type = HOOP_FRAME_FAIL;
        route_flood(tree, &fail, from, false);
        return true;
    }
    case HOOP_FRAME_BEAT:
        if (from == NULL) {
            return false;
        }
        route_take_beat(from, &frame->beat);
        return true;
    default:
        return false;
    }
}

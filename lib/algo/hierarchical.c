/*
 * Hierarchical: what is latency, where machines have several ranks, of which those of a machine
 * follow each other. The last rank of each machine gathers what its machine's ranks bring, and
 * sends the sum to the first rank of each, which gathers the sums, and hands their sum to its
 * machine. So each machine sends each other one message, and there are three of them behind each
 * other, of which two stay inside. n = 5 on two machines, contributions a to e:
 *
 *     step   inside 0         inside 1        between
 *      0     1 -b-> 2         3 -d-> 4                      0 -> 1: nothing, which announces
 *      1     0 -a-> 2
 *      2     2: (a+b)+c       4: d+e
 *      3                                      2 -> 3, 4 -> 0
 *      4     2 -> 0           4 -> 3
 *      5     0: ((a+b)+c)+(d+e), as 3 does
 *      6     0 -> 1           3 -> 4
 *      7     0 -> 2
 *
 * all_reduce keeps what its machine's ranks bring in SCRATCH, index by index but for the last one's
 * own, and behind them the sums, machine by machine. all_gather has everything in its place in OUT.
 * With no elements it is a barrier, whatever the collective is: who gets the last message has heard
 * from all, if at third hand.
 *
 * reduce is the first half, with sums sent to the root, and broadcast the second: the root gives to
 * all of its machine, the last one there to the first of each other machine, and these to theirs.
 *
 * Who sends to another machine is not who receives from there: so the first thing that each rank
 * receives is from the rank before it, as it must be (step.h). Where no data go from the last of a
 * machine to the first of the next one, a message of nothing does, in step 0.
 */
#include "algo/parts.h"
#include <assert.h>

/* Where this rank stands: `each` ranks on its machine, of which the lowest is `first`. */
struct hierarchy {
    const struct hoop_plan *plan;
    enum hoop_collective collective; /* a barrier where there are no elements */
    uint32_t machine, first, each, index;
    uint32_t root; /* the root's machine */
};

static struct hierarchy hierarchy_of(const struct hoop_plan *plan)
{
    const struct hoop_grid *grid = plan->grid;
    const uint32_t machine = grid->machine[plan->me], first = grid->first[machine];
    return (struct hierarchy){.plan = plan,
                              .collective = plan->count > 0 ? plan->collective : HOOP_COLL_BARRIER,
                              .machine = machine,
                              .first = first,
                              .each = grid->first[machine + 1] - first,
                              .index = plan->me - first,
                              .root = grid->machine[plan->root]};
}

static bool hierarchy_is_last(const struct hierarchy *at)
{
    return at->index + 1 == at->each;
}

static bool hierarchy_folds(const struct hierarchy *at)
{
    return hoop_collectives[at->collective].folds || at->collective == HOOP_COLL_BARRIER;
}

static struct hoop_ref hierarchy_ref(const struct hierarchy *at, enum hoop_space space,
                                     uint64_t first, uint64_t vectors)
{
    return hoop_ref_of(space, at->plan->me, first * at->plan->count, vectors * at->plan->count);
}

static struct hoop_ref hierarchy_input(const struct hierarchy *at)
{
    return hierarchy_ref(at, HOOP_SPACE_IN, 0, 1);
}

/* What all of all_reduce and all_gather, or of broadcast, have in the end. */
static struct hoop_ref hierarchy_result(const struct hierarchy *at)
{
    return hierarchy_ref(at, HOOP_SPACE_OUT, 0,
                         at->collective == HOOP_COLL_ALL_GATHER ? at->plan->n : 1);
}

/* Where what the rank at an index of this machine brings lies at the last one. */
static struct hoop_ref hierarchy_brought(const struct hierarchy *at, uint32_t index)
{
    return hierarchy_folds(at) ? hierarchy_ref(at, HOOP_SPACE_SCRATCH, index, 1)
                               : hierarchy_ref(at, HOOP_SPACE_OUT, at->first + index, 1);
}

/* What a machine brings. */
static struct hoop_ref hierarchy_share(const struct hierarchy *at, uint32_t machine)
{
    const struct hoop_grid *grid = at->plan->grid;
    const uint32_t first = grid->first[machine];
    return at->collective == HOOP_COLL_BROADCAST ? hierarchy_result(at)
           : hierarchy_folds(at)
               ? hierarchy_ref(at, HOOP_SPACE_SCRATCH, grid->most - UINT64_C(1) + machine, 1)
               : hierarchy_ref(at, HOOP_SPACE_OUT, first, grid->first[machine + 1] - first);
}

/* So many steps make a round: no more than the engine has at once. */
static bool hierarchy_goes_on(uint64_t i, uint64_t steps)
{
    return i + 1 < steps && (i + 1) % (HOOP_RADIX_MOST - 1) != 0;
}

/* ---- Inside, to the last one ---------------------------------------------------------------- */

/* Steps of its second part. */
static uint64_t hierarchy_brings(const struct hierarchy *at)
{
    return at->plan->grid->most - (at->collective == HOOP_COLL_BROADCAST ? 0 : UINT64_C(2));
}

/* Do data go from the last rank of a machine to the first one of the next? */
static bool hierarchy_carries(const struct hierarchy *at, uint32_t machine)
{
    const struct hoop_grid *grid = at->plan->grid;
    return at->collective == HOOP_COLL_BROADCAST ? machine == at->root
           : at->collective == HOOP_COLL_REDUCE  ? (machine + 1) % grid->machines == at->root &&
                                                      at->plan->root == grid->first[at->root]
                                                : true;
}

/* Is what the rank at an index gives to the next one its data? */
static bool hierarchy_gives(const struct hierarchy *at, uint32_t index)
{
    return at->collective == HOOP_COLL_BROADCAST ? at->first + index == at->plan->root
                                                 : index + 2 == at->each;
}

/* Each to the one behind it. */
static void hierarchy_announce(const struct hierarchy *at, struct hoop_step *ret)
{
    const struct hoop_grid *grid = at->plan->grid;
    const uint32_t n = at->plan->n, me = at->plan->me;
    const uint32_t before = (at->machine + grid->machines - 1) % grid->machines;
    const struct hoop_ref nothing = hierarchy_ref(at, HOOP_SPACE_SCRATCH, 0, 0);
    if (!hierarchy_is_last(at)) {
        hoop_step_send(ret, me + 1, hierarchy_gives(at, at->index) ? hierarchy_input(at) : nothing,
                       true);
    } else if (!hierarchy_carries(at, at->machine)) {
        hoop_step_send(ret, (me + 1) % n, nothing, true);
    }
    if (at->index > 0 || !hierarchy_carries(at, before)) {
        const bool given = at->index > 0 && hierarchy_gives(at, at->index - 1);
        hoop_step_recv(ret, (me + n - 1) % n,
                       !given ? nothing
                       : at->collective == HOOP_COLL_BROADCAST
                           ? hierarchy_result(at)
                           : hierarchy_brought(at, at->index - 1),
                       true);
    }
    ret->more = hierarchy_brings(at) > 0;
}

/* What the rank at index i brings, to the last one; or from the root to the rank there. */
static void hierarchy_bring(const struct hierarchy *at, uint32_t i, struct hoop_step *ret)
{
    const struct hoop_plan *plan = at->plan;
    const bool gives = at->collective == HOOP_COLL_BROADCAST;
    const uint32_t other = at->first + i;
    ret->more = hierarchy_goes_on(i, hierarchy_brings(at));
    if (gives && at->machine == at->root && i < at->each && other != plan->root &&
        other != plan->root + 1) {
        if (plan->me == plan->root) {
            hoop_step_send(ret, other, hierarchy_input(at), true);
        } else if (plan->me == other) {
            hoop_step_recv(ret, plan->root, hierarchy_result(at), true);
        }
    } else if (!gives && i + 2 < at->each) {
        if (at->index == i) {
            hoop_step_send(ret, at->first + at->each - 1, hierarchy_input(at), true);
        } else if (hierarchy_is_last(at)) {
            hoop_step_recv(ret, other, hierarchy_brought(at, i), true);
        }
    }
}

static void hierarchy_sum(const struct hierarchy *at, struct hoop_step *ret)
{
    if (at->collective == HOOP_COLL_BROADCAST) {
        if (at->plan->me == at->plan->root && !at->plan->in_place) {
            *ret = hoop_step_local(HOOP_LOCAL_COPY, hierarchy_result(at), hierarchy_input(at));
        }
    } else if (!hierarchy_is_last(at)) {
        return;
    } else if (at->collective == HOOP_COLL_ALL_GATHER) {
        hoop_step_keep(at->plan, ret, at->plan->me, 0);
    } else if (at->each == 1) {
        *ret =
            hoop_step_local(HOOP_LOCAL_COPY, hierarchy_share(at, at->machine), hierarchy_input(at));
    } else {
        *ret = hoop_step_local(HOOP_LOCAL_REDUCE, hierarchy_share(at, at->machine),
                               hierarchy_ref(at, HOOP_SPACE_SCRATCH, 0, at->each - UINT64_C(1)));
        ret->local.own = hierarchy_input(at);
    }
}

/* ---- Between machines ----------------------------------------------------------------------- */

/* Who gets what a machine brings, on another or the same; n: nobody there. */
static uint32_t hierarchy_taker(const struct hierarchy *at, uint32_t from, uint32_t to)
{
    const struct hoop_plan *plan = at->plan;
    const struct hoop_grid *grid = plan->grid;
    const bool reduces = at->collective == HOOP_COLL_REDUCE;
    const bool broadcasts = at->collective == HOOP_COLL_BROADCAST;
    const uint32_t ret = reduces ? plan->root : grid->first[to];
    const bool nobody = (reduces && to != at->root) ||
                        (broadcasts && (from != at->root || to == at->root)) ||
                        ret == grid->first[from + 1] - 1; /* he has it */
    return nobody ? plan->n : ret;
}

/* From the last rank of each machine to the machine so far behind it. */
static void hierarchy_exchange(const struct hierarchy *at, uint32_t far, struct hoop_step *ret)
{
    const struct hoop_grid *grid = at->plan->grid;
    const uint32_t to = (at->machine + far) % grid->machines;
    const uint32_t from = (at->machine + grid->machines - far % grid->machines) % grid->machines;
    const uint32_t taker = hierarchy_taker(at, at->machine, to);
    if (hierarchy_is_last(at) && taker < at->plan->n) {
        hoop_step_send(ret, taker, hierarchy_share(at, at->machine), true);
    }
    if (hierarchy_taker(at, from, at->machine) == at->plan->me) {
        hoop_step_recv(ret, grid->first[from + 1] - 1, hierarchy_share(at, from), true);
    }
    ret->more = hierarchy_goes_on(far - UINT64_C(1), grid->machines);
}

static void hierarchy_fold(const struct hierarchy *at, struct hoop_step *ret)
{
    if (at->collective == HOOP_COLL_REDUCE ? at->plan->me == at->plan->root : at->index == 0) {
        struct hoop_ref sums = hierarchy_share(at, 0);
        sums.count *= at->plan->grid->machines;
        *ret = hoop_step_local(HOOP_LOCAL_REDUCE, hierarchy_result(at), sums);
    }
}

/* ---- And to all ----------------------------------------------------------------------------- */

/* From the first rank of a machine to the one at an index. */
static void hierarchy_hand(const struct hierarchy *at, uint32_t index, struct hoop_step *ret)
{
    const bool has = at->collective == HOOP_COLL_BROADCAST && at->machine == at->root;
    if (index < at->each && at->index == 0 && !has) {
        hoop_step_send(ret, at->first + index, hierarchy_result(at), true);
    } else if (index == at->index && !has) {
        hoop_step_recv(ret, at->first, hierarchy_result(at), true);
    }
    ret->more = hierarchy_goes_on(index - UINT64_C(1), at->plan->grid->most - UINT64_C(1));
}

bool hoop_hierarchical_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                            struct hoop_step *ret)
{
    *ret = hoop_step_none();
    if (plan->n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    assert(plan->grid != NULL && plan->grid->first != NULL && plan->chunk >= plan->count);
    if (lane > 0) {
        return false;
    }
    const struct hierarchy at = hierarchy_of(plan);
    const uint64_t some = plan->count > 0, most = plan->grid->most;
    if (hoop_in_phase(&k, 1)) {
        hierarchy_announce(&at, ret);
    } else if (hoop_in_phase(&k, hierarchy_brings(&at))) {
        hierarchy_bring(&at, (uint32_t)k, ret);
    } else if (hoop_in_phase(&k, some)) {
        hierarchy_sum(&at, ret);
    } else if (hoop_in_phase(&k, plan->grid->machines)) {
        hierarchy_exchange(&at, (uint32_t)k + 1, ret);
    } else if (hoop_in_phase(&k, hierarchy_folds(&at) ? some : 0)) {
        hierarchy_fold(&at, ret);
    } else if (hoop_in_phase(&k, at.collective == HOOP_COLL_REDUCE ? 0 : most - 1)) {
        hierarchy_hand(&at, (uint32_t)k + 1, ret);
    } else {
        return false;
    }
    return true;
}

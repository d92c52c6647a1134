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
 * Who sends to another machine is not who receives from there: so the first thing that each rank
 * receives is from the rank before it, as it must be (step.h).
 */
#include "algo/parts.h"
#include <assert.h>

/* Where this rank stands: `each` ranks on its machine, of which the lowest is `first`. */
struct hierarchy {
    const struct hoop_plan *plan;
    uint32_t machine, first, each, index;
};

static struct hierarchy hierarchy_of(const struct hoop_plan *plan)
{
    const struct hoop_grid *grid = plan->grid;
    const uint32_t machine = grid->machine[plan->me], first = grid->first[machine];
    return (struct hierarchy){.plan = plan,
                              .machine = machine,
                              .first = first,
                              .each = grid->first[machine + 1] - first,
                              .index = plan->me - first};
}

static bool hierarchy_is_last(const struct hierarchy *at)
{
    return at->index + 1 == at->each;
}

static bool hierarchy_folds(const struct hierarchy *at)
{
    return at->plan->collective != HOOP_COLL_ALL_GATHER;
}

static struct hoop_ref hierarchy_ref(const struct hierarchy *at, enum hoop_space space,
                                     uint64_t first, uint64_t vectors)
{
    return hoop_ref_of(space, at->plan->me, first * at->plan->count, vectors * at->plan->count);
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
    return hierarchy_folds(at)
               ? hierarchy_ref(at, HOOP_SPACE_SCRATCH, grid->most - UINT64_C(1) + machine, 1)
               : hierarchy_ref(at, HOOP_SPACE_OUT, first, grid->first[machine + 1] - first);
}

/* So many steps make a round: no more than the engine has at once. */
static bool hierarchy_goes_on(uint64_t i, uint64_t steps)
{
    return i + 1 < steps && (i + 1) % (HOOP_RADIX_MOST - 1) != 0;
}

/* Each to the one behind it, to the last one what it brings. */
static void hierarchy_announce(const struct hierarchy *at, struct hoop_step *ret)
{
    const struct hoop_ref nothing = hierarchy_ref(at, HOOP_SPACE_IN, 0, 0);
    if (at->index + 2 < at->each) {
        hoop_step_send(ret, at->plan->me + 1, nothing, true);
    } else if (!hierarchy_is_last(at)) {
        hoop_step_send(ret, at->plan->me + 1, hierarchy_ref(at, HOOP_SPACE_IN, 0, 1), true);
    }
    if (at->index > 0) {
        struct hoop_ref to = hierarchy_brought(at, at->index - 1);
        to.count = hierarchy_is_last(at) ? to.count : 0;
        hoop_step_recv(ret, at->plan->me - 1, to, true);
    }
    ret->more = at->plan->grid->most > 2;
}

/* What the rank at index i brings, to the last one. */
static void hierarchy_bring(const struct hierarchy *at, uint32_t i, struct hoop_step *ret)
{
    const bool some = i + 2 < at->each;
    if (some && at->index == i) {
        hoop_step_send(ret, at->first + at->each - 1, hierarchy_ref(at, HOOP_SPACE_IN, 0, 1), true);
    } else if (some && hierarchy_is_last(at)) {
        hoop_step_recv(ret, at->first + i, hierarchy_brought(at, i), true);
    }
    ret->more = hierarchy_goes_on(i, at->plan->grid->most - UINT64_C(2));
}

static void hierarchy_sum(const struct hierarchy *at, struct hoop_step *ret)
{
    const struct hoop_ref own = hierarchy_ref(at, HOOP_SPACE_IN, 0, 1);
    if (!hierarchy_is_last(at)) {
        return;
    }
    if (!hierarchy_folds(at)) {
        hoop_step_keep(at->plan, ret, at->plan->me, 0);
    } else if (at->each == 1) {
        *ret = hoop_step_local(HOOP_LOCAL_COPY, hierarchy_share(at, at->machine), own);
    } else {
        *ret = hoop_step_local(HOOP_LOCAL_REDUCE, hierarchy_share(at, at->machine),
                               hierarchy_ref(at, HOOP_SPACE_SCRATCH, 0, at->each - UINT64_C(1)));
        ret->local.own = own;
    }
}

/* From the last rank of each machine to the first one of the machine so far behind it. */
static void hierarchy_exchange(const struct hierarchy *at, uint32_t far, struct hoop_step *ret)
{
    const struct hoop_grid *grid = at->plan->grid;
    const uint32_t to = (at->machine + far) % grid->machines;
    const uint32_t from = (at->machine + grid->machines - far % grid->machines) % grid->machines;
    const bool to_itself = at->each == 1 && to == at->machine;
    if (hierarchy_is_last(at) && !to_itself) {
        hoop_step_send(ret, grid->first[to], hierarchy_share(at, at->machine), true);
    }
    if (at->index == 0 && !to_itself) {
        hoop_step_recv(ret, grid->first[from + 1] - 1, hierarchy_share(at, from), true);
    }
    ret->more = hierarchy_goes_on(far - UINT64_C(1), grid->machines);
}

static void hierarchy_fold(const struct hierarchy *at, struct hoop_step *ret)
{
    if (at->index == 0) {
        struct hoop_ref sums = hierarchy_share(at, 0);
        sums.count *= at->plan->grid->machines;
        *ret = hoop_step_local(HOOP_LOCAL_REDUCE, hierarchy_ref(at, HOOP_SPACE_OUT, 0, 1), sums);
    }
}

/* All of it, from the first rank of a machine to the one at an index. */
static void hierarchy_hand(const struct hierarchy *at, uint32_t index, struct hoop_step *ret)
{
    const struct hoop_ref all =
        hierarchy_ref(at, HOOP_SPACE_OUT, 0, hierarchy_folds(at) ? 1 : at->plan->n);
    if (index < at->each && at->index == 0) {
        hoop_step_send(ret, at->first + index, all, true);
    } else if (index == at->index) {
        hoop_step_recv(ret, at->first, all, true);
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
    } else if (hoop_in_phase(&k, most - 2)) {
        hierarchy_bring(&at, (uint32_t)k, ret);
    } else if (hoop_in_phase(&k, some)) {
        hierarchy_sum(&at, ret);
    } else if (hoop_in_phase(&k, plan->grid->machines)) {
        hierarchy_exchange(&at, (uint32_t)k + 1, ret);
    } else if (hoop_in_phase(&k, hierarchy_folds(&at) ? some : 0)) {
        hierarchy_fold(&at, ret);
    } else if (hoop_in_phase(&k, most - 1)) {
        hierarchy_hand(&at, (uint32_t)k + 1, ret);
    } else {
        return false;
    }
    return true;
}

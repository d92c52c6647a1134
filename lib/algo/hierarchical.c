/*
 * Hierarchical: for what is dominated by latency, where machines have several ranks, with
 * consecutive numbers on each machine. The last rank of each machine gathers and folds what its
 * machine's ranks contribute, and sends the sum to the first rank of each machine, which gathers
 * and folds the sums and hands the result to its machine. So each machine sends each other one
 * message, and three messages follow one another, of which two stay inside. n = 5 on two machines,
 * contributions a to e:
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
 * In all_reduce SCRATCH holds what the machine's ranks contribute, by index, except the last rank's
 * own, followed by the sums, by machine. all_gather has everything at its place in OUT. With no
 * elements it is a barrier, whatever the collective: a rank that gets the last message has heard,
 * at most at third hand, from all.
 *
 * reduce is the first half, with the sums sent to the root, which also gathers from its own
 * machine. broadcast is the second half: the root gives the vector to all of its machine, the last
 * rank there to the first rank of each other machine, and these to their machines. gather is a
 * reduce that places blocks instead of folding. scatter is a broadcast in which each rank gets its
 * block only; the last rank of the root's machine has all blocks in SCRATCH.
 *
 * reduce_scatter folds as all_reduce does, all blocks at the last rank, but sends each machine only
 * its blocks. alltoall does not fold: the last rank has its machine's blocks by contributor, and
 * packs them by machine; the first rank gets them by contributor, and unpacks them for each rank.
 * SCRATCH, in blocks, with e ranks on the largest machine:
 *
 *     SCRATCH of       from 0                from e n               from e n + m e
 *     all_reduce (*)   contributed, sums
 *     gather           contributed
 *     scatter          all, or a machine's
 *     reduce_scatter   contributed, sum      sums from machines     what is handed out
 *     alltoall         contributed, or got   packed, or unpacked
 *
 *     (*) and reduce: contributions from 0 on, sums from e - 1 on, in reduce from e on
 *
 * The rank that sends to other machines is not the one that receives from there, so the first thing
 * that each rank receives is from the rank before it, as required (step.h). If no data go from the
 * last rank of a machine to the first rank of the next, an empty message does, in step 0. A root
 * that collects may hear from its own machine first: if a rank there is in another operation, so
 * are two neighbours.
 */
#include "algo/parts.h"
#include <assert.h>

/* This rank's position: its machine has `each` ranks, the lowest of which is `first`. */
struct hierarchy {
    const struct hoop_plan *plan;
    enum hoop_collective collective; /* a barrier if there are no elements */
    uint32_t machine, first, each, index;
    uint32_t root;           /* the root's machine */
    bool collects, hands_on; /* everything goes to the root; or comes from it */
    bool rooted;             /* one of the two */
};

static struct hierarchy hierarchy_of(const struct hoop_plan *plan)
{
    const struct hoop_grid *grid = plan->grid;
    const uint32_t machine = grid->machine[plan->me], first = grid->first[machine];
    const enum hoop_collective what = plan->count > 0 ? plan->collective : HOOP_COLL_BARRIER;
    const bool collects = what == HOOP_COLL_REDUCE || what == HOOP_COLL_GATHER;
    const bool hands_on = what == HOOP_COLL_BROADCAST || what == HOOP_COLL_SCATTER;
    return (struct hierarchy){
        .plan = plan,
        .collective = what,
        .machine = machine,
        .first = first,
        .each = grid->first[machine + 1] - first,
        .index = plan->me - first,
        .root = grid->machine[plan->root],
        .collects = collects,
        .hands_on = hands_on,
        .rooted = collects || hands_on,
    };
}

static bool hierarchy_is_last(const struct hierarchy *at)
{
    return at->index + 1 == at->each;
}

/* The index of the rank that collects what its machine contributes: the last one, or the root. */
static uint32_t hierarchy_collector(const struct hierarchy *at)
{
    return at->collects && at->machine == at->root ? at->plan->root - at->first : at->each - 1;
}

static bool hierarchy_is_collector(const struct hierarchy *at)
{
    return at->index == hierarchy_collector(at);
}

static bool hierarchy_is_root(const struct hierarchy *at)
{
    return at->plan->me == at->plan->root;
}

static bool hierarchy_folds(const struct hierarchy *at)
{
    return hoop_collectives[at->collective].folds || at->collective == HOOP_COLL_BARRIER;
}

/* Number of ranks of a machine. */
static uint32_t hierarchy_each(const struct hierarchy *at, uint32_t machine)
{
    return at->plan->grid->first[machine + 1] - at->plan->grid->first[machine];
}

static struct hoop_ref hierarchy_ref(const struct hierarchy *at, enum hoop_space space,
                                     uint64_t first, uint64_t blocks)
{
    return hoop_ref_of(space, at->plan->me, first * at->plan->count, blocks * at->plan->count);
}

static struct hoop_ref hierarchy_scratch(const struct hierarchy *at, uint64_t first,
                                         uint64_t blocks)
{
    return hierarchy_ref(at, HOOP_SPACE_SCRATCH, first, blocks);
}

/* The blocks of a machine's ranks in IN or OUT. */
static struct hoop_ref hierarchy_blocks(const struct hierarchy *at, enum hoop_space space,
                                        uint32_t machine)
{
    return hierarchy_ref(at, space, at->plan->grid->first[machine], hierarchy_each(at, machine));
}

/* Number of blocks that a rank, or the root, contributes. */
static uint64_t hierarchy_width(const struct hierarchy *at)
{
    return hoop_extent_blocks(hoop_collectives[at->collective].in, at->plan->n, true);
}

static struct hoop_ref hierarchy_input(const struct hierarchy *at)
{
    return hierarchy_ref(at, HOOP_SPACE_IN, 0, hierarchy_width(at));
}

/* The whole result of a rank, or of the root. */
static struct hoop_ref hierarchy_result(const struct hierarchy *at)
{
    return hierarchy_ref(
        at, HOOP_SPACE_OUT, 0,
        hoop_extent_blocks(hoop_collectives[at->collective].out, at->plan->n, true));
}

/* Where SCRATCH holds what follows the e n blocks; below, what follows the sums of all machines. */
static uint64_t hierarchy_behind(const struct hierarchy *at)
{
    return (uint64_t)at->plan->grid->most * at->plan->n;
}

static uint64_t hierarchy_handed_at(const struct hierarchy *at)
{
    const struct hoop_grid *grid = at->plan->grid;
    return hierarchy_behind(at) + (uint64_t)grid->machines * grid->most;
}

/* Where the collector has the contribution of the rank at an index of its machine. */
static struct hoop_ref hierarchy_brought(const struct hierarchy *at, uint32_t index)
{
    const bool placed = at->collective == HOOP_COLL_ALL_GATHER ||
                        (at->collective == HOOP_COLL_GATHER && hierarchy_is_root(at));
    const uint64_t width = hierarchy_width(at);
    return placed ? hierarchy_ref(at, HOOP_SPACE_OUT, at->first + index, 1)
                  : hierarchy_scratch(at, index * width, width);
}

/* Where a machine's sum lies in all_reduce and reduce. */
static struct hoop_ref hierarchy_total(const struct hierarchy *at, uint32_t machine)
{
    const uint64_t most = at->plan->grid->most;
    return hierarchy_scratch(at, most - (at->collects ? 0 : 1) + machine, 1);
}

/* What the last rank of this machine sends to machine `to`, or has for its own. */
static struct hoop_ref hierarchy_sent(const struct hierarchy *at, uint32_t to)
{
    const struct hoop_grid *grid = at->plan->grid;
    const uint64_t first = grid->first[to], each = hierarchy_each(at, to);
    switch (at->collective) {
    case HOOP_COLL_BROADCAST:
        return hierarchy_result(at);
    case HOOP_COLL_SCATTER:
        return hierarchy_is_root(at) ? hierarchy_blocks(at, HOOP_SPACE_IN, to)
                                     : hierarchy_scratch(at, first, each);
    case HOOP_COLL_ALL_GATHER:
        return hierarchy_blocks(at, HOOP_SPACE_OUT, at->machine);
    case HOOP_COLL_GATHER:
        return at->each == 1 ? hierarchy_input(at) : hierarchy_scratch(at, 0, at->each);
    case HOOP_COLL_REDUCE_SCATTER:
        return at->each == 1
                   ? hierarchy_blocks(at, HOOP_SPACE_IN, to)
                   : hierarchy_scratch(at, (grid->most - UINT64_C(1)) * at->plan->n + first, each);
    case HOOP_COLL_ALLTOALL:
        return at->each == 1 ? hierarchy_blocks(at, HOOP_SPACE_IN, to)
                             : hierarchy_scratch(at, hierarchy_behind(at) + at->each * first,
                                                 at->each * each);
    default:
        return hierarchy_total(at, at->machine);
    }
}

/* Where the receiving rank has what came from machine `from`, or from its own. */
static struct hoop_ref hierarchy_taken(const struct hierarchy *at, uint32_t from)
{
    const uint64_t first = at->plan->grid->first[from], each = hierarchy_each(at, from);
    switch (at->collective) {
    case HOOP_COLL_BROADCAST:
        return hierarchy_result(at);
    case HOOP_COLL_SCATTER:
        return at->each == 1 ? hierarchy_result(at) : hierarchy_scratch(at, 0, at->each);
    case HOOP_COLL_ALL_GATHER:
    case HOOP_COLL_GATHER:
        return hierarchy_blocks(at, HOOP_SPACE_OUT, from);
    case HOOP_COLL_REDUCE_SCATTER:
        return hierarchy_scratch(at, hierarchy_behind(at) + (uint64_t)from * at->each, at->each);
    case HOOP_COLL_ALLTOALL:
        return at->each == 1 ? hierarchy_blocks(at, HOOP_SPACE_OUT, from)
                             : hierarchy_scratch(at, at->each * first, at->each * each);
    default:
        return hierarchy_total(at, from);
    }
}

/* Does the round go on after step i? A round has no more steps than the engine runs at once. */
static bool hierarchy_goes_on(uint64_t i, uint64_t steps)
{
    return i + 1 < steps && (i + 1) % (HOOP_RADIX_MOST - 1) != 0;
}

/* ---- Inside a machine, to its collector ------------------------------------------------------ */

/* Steps of this phase after step 0. */
static uint64_t hierarchy_brings(const struct hierarchy *at)
{
    return at->plan->grid->most - (at->rooted ? 0 : UINT64_C(2));
}

/* Do data go from the last rank of a machine to the first rank of the next? */
static bool hierarchy_carries(const struct hierarchy *at, uint32_t machine)
{
    const struct hoop_grid *grid = at->plan->grid;
    return at->hands_on   ? machine == at->root
           : at->collects ? (machine + 1) % grid->machines == at->root &&
                                at->plan->root == grid->first[at->root]
                          : true;
}

/* Is what the rank at an index sends to the next one in step 0 its data, or empty? */
static bool hierarchy_gives(const struct hierarchy *at, uint32_t index)
{
    return at->hands_on ? at->first + index == at->plan->root
                        : index + 1 == hierarchy_collector(at);
}

/* What this rank sends to the rank at an index of its machine. */
static struct hoop_ref hierarchy_given(const struct hierarchy *at, uint32_t index)
{
    return at->collective == HOOP_COLL_SCATTER && index + 1 < at->each
               ? hierarchy_ref(at, HOOP_SPACE_IN, at->first + index, 1)
               : hierarchy_input(at);
}

/* Where this rank receives that from the rank at an index. */
static struct hoop_ref hierarchy_got(const struct hierarchy *at, uint32_t index)
{
    return at->collective == HOOP_COLL_SCATTER && hierarchy_is_last(at)
               ? hierarchy_scratch(at, 0, at->plan->n)
           : at->hands_on ? hierarchy_result(at)
                          : hierarchy_brought(at, index);
}

/* Step 0: each rank sends to the one after it. */
static void hierarchy_announce(const struct hierarchy *at, struct hoop_step *ret)
{
    const struct hoop_grid *grid = at->plan->grid;
    const uint32_t n = at->plan->n, me = at->plan->me;
    const uint32_t before = (at->machine + grid->machines - 1) % grid->machines;
    const struct hoop_ref nothing = hierarchy_ref(at, HOOP_SPACE_SCRATCH, 0, 0);
    if (!hierarchy_is_last(at)) {
        hoop_step_send(
            ret, me + 1,
            hierarchy_gives(at, at->index) ? hierarchy_given(at, at->index + 1) : nothing, true);
    } else if (!hierarchy_carries(at, at->machine)) {
        hoop_step_send(ret, (me + 1) % n, nothing, true);
    }
    if (at->index > 0 || !hierarchy_carries(at, before)) {
        const bool given = at->index > 0 && hierarchy_gives(at, at->index - 1);
        hoop_step_recv(ret, (me + n - 1) % n, given ? hierarchy_got(at, at->index - 1) : nothing,
                       true);
    }
    ret->more = hierarchy_brings(at) > 0;
}

/* The rank at index i sends its data to the collector; or the root sends to the rank at index i. */
static void hierarchy_bring(const struct hierarchy *at, uint32_t i, struct hoop_step *ret)
{
    const struct hoop_plan *plan = at->plan;
    const bool gives = at->hands_on;
    const uint32_t other = at->first + i, collector = hierarchy_collector(at);
    ret->more = hierarchy_goes_on(i, hierarchy_brings(at));
    if (gives && at->machine == at->root && i < at->each && other != plan->root &&
        other != plan->root + 1) {
        if (plan->me == plan->root) {
            hoop_step_send(ret, other, hierarchy_given(at, i), true);
        } else if (plan->me == other) {
            hoop_step_recv(ret, plan->root, hierarchy_got(at, at->index), true);
        }
    } else if (!gives && i < at->each && i != collector && i + 1 != collector) {
        if (at->index == i) {
            hoop_step_send(ret, at->first + collector, hierarchy_input(at), true);
        } else if (at->index == collector) {
            hoop_step_recv(ret, other, hierarchy_got(at, i), true);
        }
    }
}

/* ---- At the collector, and the root ---------------------------------------------------------- */

/* Is this the root of a reduce, but not its machine's last rank? Then its own vector belongs
 * between the others' in the fold. */
static bool hierarchy_is_between(const struct hierarchy *at)
{
    return at->collective == HOOP_COLL_REDUCE && hierarchy_is_root(at) && !hierarchy_is_last(at);
}

/* Folds what the collector has; if it is alone on its machine, its own input is the sum. */
static void hierarchy_sum(const struct hierarchy *at, struct hoop_step *ret)
{
    const uint64_t width = hierarchy_width(at);
    if (hierarchy_is_between(at)) {
        *ret = hoop_step_local(HOOP_LOCAL_REDUCE, hierarchy_total(at, at->machine),
                               hierarchy_scratch(at, 0, at->each));
        ret->local.undivided = true;
        return;
    }
    if (at->each == 1) {
        const struct hoop_ref mine =
            width == 1 ? hierarchy_input(at) : hierarchy_blocks(at, HOOP_SPACE_IN, at->machine);
        *ret = hoop_step_local(HOOP_LOCAL_COPY, hierarchy_taken(at, at->machine), mine);
        return;
    }
    const uint64_t brought = (at->each - UINT64_C(1)) * width;
    const struct hoop_ref sum =
        width == 1 ? hierarchy_total(at, at->machine)
                   : hierarchy_scratch(at, (at->plan->grid->most - UINT64_C(1)) * width, width);
    *ret = hoop_step_local(HOOP_LOCAL_REDUCE, sum, hierarchy_scratch(at, 0, brought));
    ret->local.own = hierarchy_input(at);
    ret->local.undivided = true;
}

/* Packs what one rank of the machine has for another machine. */
static void hierarchy_pack(const struct hierarchy *at, uint64_t k, struct hoop_step *ret)
{
    const struct hoop_grid *grid = at->plan->grid;
    const uint32_t index = (uint32_t)(k / grid->machines), to = (uint32_t)(k % grid->machines);
    const uint64_t first = grid->first[to], each = hierarchy_each(at, to);
    if (at->each == 1 && k == 0) {
        hoop_step_keep(at->plan, ret, at->plan->me, 0);
    } else if (at->each > 1 && index < at->each) {
        *ret = hoop_step_local(
            HOOP_LOCAL_COPY,
            hierarchy_scratch(at, hierarchy_behind(at) + at->each * first + index * each, each),
            index == at->index
                ? hierarchy_blocks(at, HOOP_SPACE_IN, to)
                : hierarchy_scratch(at, index * (uint64_t)at->plan->n + first, each));
    }
}

/* Steps before anything leaves a machine. */
static uint64_t hierarchy_prepares(const struct hierarchy *at)
{
    const struct hoop_grid *grid = at->plan->grid;
    return at->collective == HOOP_COLL_BARRIER    ? 0
           : at->collective == HOOP_COLL_REDUCE   ? 2
           : at->collective == HOOP_COLL_ALLTOALL ? (uint64_t)grid->most * grid->machines
                                                  : 1;
}

/* Copies the root's own result, and in a scatter that of the last rank of its machine. */
static void hierarchy_give(const struct hierarchy *at, struct hoop_step *ret)
{
    const struct hoop_plan *plan = at->plan;
    const bool scatters = at->collective == HOOP_COLL_SCATTER;
    if (hierarchy_is_root(at) && scatters) {
        hoop_step_keep(plan, ret, plan->me, 0);
    } else if (hierarchy_is_root(at) && !plan->in_place) {
        *ret = hoop_step_local(HOOP_LOCAL_COPY, hierarchy_result(at), hierarchy_input(at));
    } else if (scatters && at->machine == at->root && hierarchy_is_last(at)) {
        *ret = hoop_step_local(HOOP_LOCAL_COPY, hierarchy_result(at),
                               hierarchy_scratch(at, plan->me, 1));
    }
}

static void hierarchy_prepare(const struct hierarchy *at, uint64_t k, struct hoop_step *ret)
{
    const bool placed = at->collective == HOOP_COLL_ALL_GATHER || hierarchy_is_root(at);
    if (at->hands_on) {
        hierarchy_give(at, ret);
    } else if (!hierarchy_is_collector(at)) {
        return;
    } else if (at->collective == HOOP_COLL_REDUCE && k == 0) {
        if (hierarchy_is_between(at)) {
            *ret = hoop_step_local(HOOP_LOCAL_COPY, hierarchy_brought(at, at->index),
                                   hierarchy_input(at));
        }
    } else if (at->collective == HOOP_COLL_ALLTOALL) {
        hierarchy_pack(at, k, ret);
    } else if (hierarchy_folds(at)) {
        hierarchy_sum(at, ret);
    } else if (placed) {
        hoop_step_keep(at->plan, ret, at->plan->me, 0);
    } else if (at->each > 1) {
        *ret =
            hoop_step_local(HOOP_LOCAL_COPY, hierarchy_brought(at, at->index), hierarchy_input(at));
    }
}

/* ---- Between machines ----------------------------------------------------------------------- */

/* The rank that gets machine `from`'s data at machine `to`, which may be the same; n: none. */
static uint32_t hierarchy_taker(const struct hierarchy *at, uint32_t from, uint32_t to)
{
    const struct hoop_plan *plan = at->plan;
    const struct hoop_grid *grid = plan->grid;
    const uint32_t ret = at->collects ? plan->root : grid->first[to];
    const bool nobody = (at->collects && (to != at->root || from == at->root)) ||
                        (at->hands_on && (from != at->root || to == at->root)) ||
                        ret == grid->first[from + 1] - 1; /* it has them already */
    return nobody ? plan->n : ret;
}

/* From the last rank of each machine to the machine `far` machines after it. */
static void hierarchy_exchange(const struct hierarchy *at, uint32_t far, struct hoop_step *ret)
{
    const struct hoop_grid *grid = at->plan->grid;
    const uint32_t to = (at->machine + far) % grid->machines;
    const uint32_t from = (at->machine + grid->machines - far % grid->machines) % grid->machines;
    const uint32_t taker = hierarchy_taker(at, at->machine, to);
    if (hierarchy_is_collector(at) && taker < at->plan->n) {
        hoop_step_send(ret, taker, hierarchy_sent(at, to), true);
    }
    if (hierarchy_taker(at, from, at->machine) == at->plan->me) {
        hoop_step_recv(ret, grid->first[from + 1] - 1, hierarchy_taken(at, from), true);
    }
    ret->more = hierarchy_goes_on(far - UINT64_C(1), grid->machines);
}

/* ---- From the first rank to all of its machine ----------------------------------------------- */

/* What the first rank has for the rank at an index of its machine. */
static struct hoop_ref hierarchy_handed(const struct hierarchy *at, uint32_t index)
{
    const uint64_t n = at->plan->n;
    switch (at->collective) {
    case HOOP_COLL_SCATTER:
        return hierarchy_scratch(at, index, 1);
    case HOOP_COLL_REDUCE_SCATTER:
        return hierarchy_scratch(at, hierarchy_handed_at(at) + index, 1);
    case HOOP_COLL_ALLTOALL:
        return index == 0 ? hierarchy_result(at)
                          : hierarchy_scratch(at, hierarchy_behind(at) + index * n, n);
    default:
        return hierarchy_result(at);
    }
}

static void hierarchy_fold(const struct hierarchy *at, struct hoop_step *ret)
{
    const uint64_t machines = at->plan->grid->machines;
    const bool blocks = at->collective == HOOP_COLL_REDUCE_SCATTER;
    struct hoop_ref sums = hierarchy_taken(at, 0), sum = hierarchy_result(at);
    if (blocks && at->each > 1) {
        sum = hierarchy_scratch(at, hierarchy_handed_at(at), at->each);
    }
    sums.count *= machines;
    *ret = hoop_step_local(HOOP_LOCAL_REDUCE, sum, sums);
}

/* Copies the block of rank k % n to what is handed to the rank at index k / n. */
static void hierarchy_unpack(const struct hierarchy *at, uint64_t k, struct hoop_step *ret)
{
    const uint32_t index = (uint32_t)(k / at->plan->n), from = (uint32_t)(k % at->plan->n);
    if (index < at->each && at->each > 1) {
        struct hoop_ref to = hierarchy_handed(at, index);
        to.off += from * at->plan->count;
        to.count = at->plan->count;
        *ret = hoop_step_local(HOOP_LOCAL_COPY, to,
                               hierarchy_scratch(at, (uint64_t)at->each * from + index, 1));
    }
}

/* Steps that process what came from other machines. */
static uint64_t hierarchy_concludes(const struct hierarchy *at)
{
    switch (at->collective) {
    case HOOP_COLL_ALL_REDUCE:
    case HOOP_COLL_REDUCE:
    case HOOP_COLL_SCATTER:
        return 1;
    case HOOP_COLL_REDUCE_SCATTER:
        return 2;
    case HOOP_COLL_ALLTOALL:
        return hierarchy_behind(at);
    default:
        return 0;
    }
}

static void hierarchy_conclude(const struct hierarchy *at, uint64_t k, struct hoop_step *ret)
{
    const bool folds = hierarchy_folds(at) && k == 0;
    const bool took = at->collects ? hierarchy_is_root(at)
                                   : at->index == 0 && !(at->hands_on && at->machine == at->root);
    if (took && folds) {
        hierarchy_fold(at, ret);
    } else if (took && at->collective == HOOP_COLL_ALLTOALL) {
        hierarchy_unpack(at, k, ret);
    } else if (took && at->each > 1) { /* its own block */
        *ret = hoop_step_local(HOOP_LOCAL_COPY, hierarchy_result(at), hierarchy_handed(at, 0));
    }
}

/* From the first rank of a machine to the rank at an index. */
static void hierarchy_hand(const struct hierarchy *at, uint32_t index, struct hoop_step *ret)
{
    const bool has = at->hands_on && at->machine == at->root;
    if (index < at->each && at->index == 0 && !has) {
        hoop_step_send(ret, at->first + index, hierarchy_handed(at, index), true);
    } else if (index == at->index && !has) {
        hoop_step_recv(ret, at->first, hierarchy_result(at), true);
    }
    ret->more = hierarchy_goes_on(index - UINT64_C(1), at->plan->grid->most - UINT64_C(1));
}

uint64_t hoop_hierarchical_blocks(const struct hoop_plan *plan)
{
    const uint64_t most = plan->grid->most, n = plan->n;
    return plan->collective == HOOP_COLL_ALLTOALL && most * most > n ? most * most
           : hoop_collective_is_blocked(plan->collective)            ? n
                                                                     : 1;
}

bool hoop_hierarchical_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                            struct hoop_step *ret)
{
    hoop_step_clear(ret);
    if (plan->n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    assert(plan->grid != NULL && plan->grid->first != NULL && plan->chunk >= plan->count);
    if (lane > 0) {
        return false;
    }
    const struct hierarchy at = hierarchy_of(plan);
    if (hoop_in_phase(&k, 1)) {
        hierarchy_announce(&at, ret);
    } else if (hoop_in_phase(&k, hierarchy_brings(&at))) {
        hierarchy_bring(&at, (uint32_t)k, ret);
    } else if (hoop_in_phase(&k, hierarchy_prepares(&at))) {
        hierarchy_prepare(&at, k, ret);
    } else if (hoop_in_phase(&k, plan->grid->machines)) {
        hierarchy_exchange(&at, (uint32_t)k + 1, ret);
    } else if (hoop_in_phase(&k, hierarchy_concludes(&at))) {
        hierarchy_conclude(&at, k, ret);
    } else if (hoop_in_phase(&k, at.collects ? 0 : plan->grid->most - UINT64_C(1))) {
        hierarchy_hand(&at, (uint32_t)k + 1, ret);
    } else {
        return false;
    }
    return true;
}

/*
 * The ring over links from rank r to r+1, in two phases of n-1 steps: scatter-reduce, after which
 * rank r has finished part r, and allgather, after which everybody has all parts. all_reduce is
 * both (Patarasuk and Yuan 2009), reduce_scatter the first, all_gather the second.
 *
 * The parts (shards of the vector, or blocks) are cut into chunks; column c is chunk c of every
 * part, and lane l runs columns l, l+lanes, ... one after the other. In step t of a phase rank r
 * sends what it received in the step before. n = 3, contributions a, b, c of ranks 0, 1, 2:
 *
 *     step   rank 0 sends     rank 1 sends     rank 2 sends
 *      0     part 2: a        part 0: b        part 1: c          receivers fold
 *      1     part 1: c+a      part 2: a+b      part 0: b+c        and the last fold divides
 *      2     part 0: b+c+a    part 1: c+a+b    part 2: a+b+c      receivers copy
 *      3     part 2           part 0           part 1
 *
 * So part s is ((x_{s+1} + x_{s+2}) + ...) + x_s, whatever the chunks and lanes are. Where OUT has
 * room for one part only, what is not finished yet waits in SCRATCH, in two chunks in turn.
 *
 * Where a chunk of a part is empty, neither end makes a part for it: both know the cut, so the
 * order of sends and of receives on a link still agrees. Such a step may be wholly empty; step 0 of
 * lane 0 is whole where there are as many elements as ranks, or blocks.
 */
#include "algo/parts.h"
#include <assert.h>

/* Where the sum of a part's chunk lies between two of its folds. */
static struct hoop_ref ring_partial(const struct hoop_plan *plan, uint64_t index, uint64_t column,
                                    uint64_t t)
{
    if (plan->collective == HOOP_COLL_ALL_REDUCE) {
        return hoop_column_chunk(plan, HOOP_SPACE_OUT, index, column);
    }
    const struct hoop_ref own = hoop_column_chunk(plan, HOOP_SPACE_IN, index, column);
    return hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, t % 2 * plan->chunk, own.count);
}

/* Step t of the first phase. */
static void ring_scatter_reduce(const struct hoop_plan *plan, uint64_t column, uint64_t t,
                                struct hoop_step *ret)
{
    const uint32_t sent = hoop_rank_before(plan, 1 + t);
    const uint32_t received = hoop_rank_before(plan, (2 + t) % plan->n);
    const bool last = t + 2 == plan->n;
    const struct hoop_ref own = hoop_column_chunk(plan, HOOP_SPACE_IN, received, column);
    hoop_step_send(ret, hoop_rank_after(plan, 1),
                   t == 0 ? hoop_column_chunk(plan, HOOP_SPACE_IN, sent, column)
                          : ring_partial(plan, sent, column, t - 1),
                   false);
    hoop_step_recv(ret, hoop_rank_before(plan, 1),
                   last ? hoop_column_chunk(plan, HOOP_SPACE_OUT, received, column)
                        : ring_partial(plan, received, column, t),
                   false);
    ret->recv.mode = last ? HOOP_RECV_REDUCE_LAST : HOOP_RECV_REDUCE;
    ret->recv.own_off = own.off;
}

/* Step t of the second. The own part is still in IN if there was no first. */
static void ring_allgather(const struct hoop_plan *plan, uint64_t column, uint64_t t,
                           struct hoop_step *ret)
{
    const bool first = t == 0 && plan->collective == HOOP_COLL_ALL_GATHER;
    const enum hoop_space space = first ? HOOP_SPACE_IN : HOOP_SPACE_OUT;
    hoop_step_send(ret, hoop_rank_after(plan, 1),
                   hoop_column_chunk(plan, space, hoop_rank_before(plan, t), column), false);
    hoop_step_recv(ret, hoop_rank_before(plan, 1),
                   hoop_column_chunk(plan, HOOP_SPACE_OUT, hoop_rank_before(plan, 1 + t), column),
                   false);
    if (first) {
        hoop_step_keep(plan, ret, plan->me, column);
    }
}

bool hoop_ring_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->n > 0 && plan->me < plan->n && plan->lanes > 0 && plan->chunk > 0);
    *ret = hoop_step_none();
    if (plan->n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    const uint64_t phase = plan->n - 1;
    const uint64_t folding = plan->collective == HOOP_COLL_ALL_GATHER ? 0 : phase;
    const uint64_t copying = plan->collective == HOOP_COLL_REDUCE_SCATTER ? 0 : phase;
    uint64_t column = 0;
    if (!hoop_in_column(plan, lane, hoop_columns(plan), folding + copying, &k, &column)) {
        return false;
    }
    if (hoop_in_phase(&k, folding)) {
        ring_scatter_reduce(plan, column, k, ret);
    } else {
        ring_allgather(plan, column, k, ret);
    }
    return true;
}

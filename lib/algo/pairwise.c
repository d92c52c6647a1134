/*
 * Pairwise: every rank exchanges with every other, at the distances 1, 2, ..., n-1.
 *
 * The parts (shards of the vector, or blocks) are cut into chunks; column c is chunk c of every
 * part, and lane l runs columns l, l+lanes, ... one after the other. Blocks take one phase, sums up
 * to three:
 *
 *     blocks   n-1 exchanges   my block for the rank at each distance, straight from IN to its OUT
 *     sums     n-1 exchanges   its part of my input to the rank at each distance, into its SCRATCH
 *              1 fold          of my part, in rank order
 *              n-1 exchanges   my part of the result to the rank at each distance that needs it:
 *                              all for all_reduce, the root for reduce, nobody for reduce_scatter
 *
 * all_reduce, n = 3, inputs a, b, c of ranks 0, 1, 2, the part as index:
 *
 *     step   rank 0 sends   receives   SCRATCH then
 *      0     a1 to 1        c0 from 2  c0
 *      1     a2 to 2        b0 from 1  c0 b0
 *      2                               a0+b0+c0 to OUT: the fold, in rank order, a0 from IN
 *      3     OUT0 to 1      OUT2 from 2
 *      4     OUT0 to 2      OUT1 from 1
 *
 * The exchanges of a phase are one round: they access different memory, and do not wait for each
 * other. So sums cost as many bytes as with the ring but only two waits, and are formed in rank
 * order. In place, a column's chunks of IN are overwritten from the fold on, when all of them that
 * must be sent have been sent; other columns access other elements.
 *
 * If a rank has nothing to send over a distance, neither end makes a part for it: both know the
 * cut. Only the very first step always has both parts, since it announces the operation; so column
 * 0 exists even if it is empty.
 */
#include "algo/parts.h"
#include <assert.h>

/* Does rank need the result of a part? */
static bool pairwise_wants(const struct hoop_plan *plan, uint32_t rank)
{
    return plan->collective != HOOP_COLL_REDUCE || rank == plan->root;
}

static struct hoop_ref pairwise_nothing(const struct hoop_plan *plan, enum hoop_space space)
{
    return hoop_ref_of(space, plan->me, 0, 0);
}

/* ---- Blocks ------------------------------------------------------------------------------- */

/* Sends my block for the rank at this distance there, and receives mine from as far before me. */
static struct hoop_step pairwise_move(const struct hoop_plan *plan, uint64_t column,
                                      uint64_t distance)
{
    const uint32_t next = hoop_rank_after(plan, distance),
                   before = hoop_rank_before(plan, distance);
    const enum hoop_collective what = plan->collective;
    const bool sends = what == HOOP_COLL_GATHER    ? next == plan->root
                       : what == HOOP_COLL_SCATTER ? plan->me == plan->root
                                                   : true;
    const bool receives = what == HOOP_COLL_GATHER    ? plan->me == plan->root
                          : what == HOOP_COLL_SCATTER ? before == plan->root
                                                      : true;
    const bool whole = column == 0 && distance == 1;
    struct hoop_step ret = hoop_step_none();
    hoop_step_send(&ret, next,
                   sends ? hoop_column_chunk(plan, HOOP_SPACE_IN, next, column)
                         : pairwise_nothing(plan, HOOP_SPACE_IN),
                   whole);
    hoop_step_recv(&ret, before,
                   receives ? hoop_column_chunk(plan, HOOP_SPACE_OUT, before, column)
                            : pairwise_nothing(plan, HOOP_SPACE_OUT),
                   whole);
    /* the own block: if this rank both brings one and gets one */
    if (distance == 1 && (!hoop_collective_is_rooted(what) || plan->me == plan->root)) {
        hoop_step_keep(plan, &ret, plan->me, column);
    }
    return ret;
}

/* ---- Sums --------------------------------------------------------------------------------- */

/* Sends its owner's part of my input over this distance, and receives a part of mine. */
static struct hoop_step pairwise_gather(const struct hoop_plan *plan, uint64_t column,
                                        uint64_t distance)
{
    const uint32_t next = hoop_rank_after(plan, distance);
    const struct hoop_ref own = hoop_column_chunk(plan, HOOP_SPACE_IN, plan->me, column);
    const bool whole = column == 0 && distance == 1;
    struct hoop_step ret = hoop_step_none();
    hoop_step_send(&ret, next, hoop_column_chunk(plan, HOOP_SPACE_IN, next, column), whole);
    hoop_step_recv(&ret, hoop_rank_before(plan, distance),
                   hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, distance * own.count, own.count),
                   whole);
    return ret;
}

/* Where this rank's part of the result lies; without OUT in one more chunk of SCRATCH. */
static struct hoop_ref pairwise_result(const struct hoop_plan *plan, uint64_t column)
{
    if (pairwise_wants(plan, plan->me)) {
        return hoop_column_chunk(plan, HOOP_SPACE_OUT, plan->me, column);
    }
    const struct hoop_ref own = hoop_column_chunk(plan, HOOP_SPACE_IN, plan->me, column);
    return hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, plan->n * plan->chunk, own.count);
}

static struct hoop_step pairwise_fold(const struct hoop_plan *plan, uint64_t column)
{
    const struct hoop_ref result = pairwise_result(plan, column);
    return result.count == 0
               ? hoop_step_none()
               : hoop_step_fold(result, hoop_column_chunk(plan, HOOP_SPACE_IN, plan->me, column));
}

/* Sends my result over this distance, and receives that of the rank as far before me. */
static struct hoop_step pairwise_hand_out(const struct hoop_plan *plan, uint64_t column,
                                          uint64_t distance)
{
    const uint32_t next = hoop_rank_after(plan, distance),
                   before = hoop_rank_before(plan, distance);
    struct hoop_step ret = hoop_step_none();
    if (pairwise_wants(plan, next)) {
        hoop_step_send(&ret, next, pairwise_result(plan, column), false);
    }
    if (pairwise_wants(plan, plan->me)) {
        hoop_step_recv(&ret, before, hoop_column_chunk(plan, HOOP_SPACE_OUT, before, column),
                       false);
    }
    return ret;
}

/* ---- The algorithm ------------------------------------------------------------------------- */

bool hoop_pairwise_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                        struct hoop_step *ret)
{
    assert(plan->n > 0 && plan->me < plan->n && plan->lanes > 0 && plan->chunk > 0);
    hoop_step_clear(ret);
    if (plan->n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    const bool folds = hoop_collectives[plan->collective].folds;
    const uint64_t phase = plan->n - 1;
    const uint64_t handing = folds && plan->collective != HOOP_COLL_REDUCE_SCATTER ? phase : 0;
    const uint64_t filled = hoop_columns(plan), columns = filled > 0 ? filled : 1;
    uint64_t column = 0;
    if (!hoop_in_column(plan, lane, columns, phase + folds + handing, &k, &column)) {
        return false;
    }
    if (hoop_in_phase(&k, phase)) {
        *ret = folds ? pairwise_gather(plan, column, k + 1) : pairwise_move(plan, column, k + 1);
        ret->more = k + 1 < phase;
    } else if (hoop_in_phase(&k, 1)) {
        *ret = pairwise_fold(plan, column);
    } else {
        *ret = pairwise_hand_out(plan, column, k + 1);
        ret->more = k + 1 < phase;
    }
    return true;
}

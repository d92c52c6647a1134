/*
 * Pairwise: a scatter-reduce and an allgather in which everybody exchanges with everybody, for the
 * one answer at the ring's cost in bytes.
 *
 * Rank r finishes shard r. The shards are cut into chunks; column c is chunk c of every shard, and
 * lane l runs columns l, l+lanes, ... one after the other. A column takes 2(n-1) exchanges with the
 * ranks at distance 1, 2, ..., n-1 and a fold between. n = 3, inputs a, b, c of ranks 0, 1, 2, the
 * shard as index:
 *
 *     step   rank 0 sends   receives   SCRATCH then
 *      0     a1 to 1        c0 from 2  a0 c0            the own chunk is copied there
 *      1     a2 to 2        b0 from 1  a0 c0 b0
 *      2                               a0+b0+c0 to OUT: the fold, in rank order
 *      3     OUT0 to 1      OUT2 from 2
 *      4     OUT0 to 2      OUT1 from 1
 *
 * In place, a column's chunks of IN are overwritten from step n-1 on, when all that is to be sent
 * of them has been sent; other columns touch other elements.
 *
 * Where a chunk is empty neither end makes a part for it: both know the cut. Only the very first
 * step is always whole, since it announces the operation; so there is a column 0 even of nothing.
 */
#include "algo/local.h"
#include <assert.h>

/* Rank me's part of the chunk to its owner at this distance, and one more of mine. */
static struct hoop_step pairwise_gather(const struct hoop_plan *plan, uint64_t column,
                                        uint64_t distance)
{
    const uint64_t n = plan->n, to = (plan->me + distance) % n;
    const struct hoop_ref own = hoop_column_chunk(plan, HOOP_SPACE_IN, plan->me, column);
    const struct hoop_ref theirs = hoop_column_chunk(plan, HOOP_SPACE_IN, to, column);
    const bool first = column == 0 && distance == 1;
    struct hoop_step ret = hoop_step_none();
    if (distance == 1 && own.count > 0) {
        ret = hoop_step_local(HOOP_LOCAL_COPY,
                              hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, 0, own.count), own);
    }
    if (theirs.count > 0 || first) {
        ret.send.peer = (int32_t)to;
        ret.send.from = theirs;
    }
    if (own.count > 0 || first) {
        ret.recv.peer = (int32_t)((plan->me + n - distance) % n);
        ret.recv.mode = HOOP_RECV_COPY;
        ret.recv.to = hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, distance * own.count, own.count);
    }
    return ret;
}

static struct hoop_step pairwise_fold(const struct hoop_plan *plan, uint64_t column)
{
    const struct hoop_ref own = hoop_column_chunk(plan, HOOP_SPACE_OUT, plan->me, column);
    if (own.count == 0) {
        return hoop_step_none();
    }
    return hoop_step_local(HOOP_LOCAL_REDUCE, own,
                           hoop_ref_of(HOOP_SPACE_SCRATCH, HOOP_EVERY, 0, own.count));
}

/* My result to the rank at this distance, and that of the one as far before me. */
static struct hoop_step pairwise_hand_out(const struct hoop_plan *plan, uint64_t column,
                                          uint64_t distance)
{
    const uint64_t n = plan->n, from = (plan->me + n - distance) % n;
    const struct hoop_ref own = hoop_column_chunk(plan, HOOP_SPACE_OUT, plan->me, column);
    const struct hoop_ref theirs = hoop_column_chunk(plan, HOOP_SPACE_OUT, from, column);
    struct hoop_step ret = hoop_step_none();
    if (own.count > 0) {
        ret.send.peer = (int32_t)((plan->me + distance) % n);
        ret.send.from = own;
    }
    if (theirs.count > 0) {
        ret.recv.peer = (int32_t)from;
        ret.recv.mode = HOOP_RECV_COPY;
        ret.recv.to = theirs;
    }
    return ret;
}

bool hoop_pairwise_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                        struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->lanes > 0 && plan->chunk > 0);
    *ret = hoop_step_none();
    const uint64_t n = plan->n;
    if (n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    const uint64_t filled = hoop_columns(plan), columns = filled > 0 ? filled : 1;
    uint64_t column = 0;
    if (!hoop_in_column(plan, lane, columns, 2 * n - 1, &k, &column)) {
        return false;
    }
    if (hoop_in_phase(&k, n - 1)) {
        *ret = pairwise_gather(plan, column, k + 1);
    } else if (hoop_in_phase(&k, 1)) {
        *ret = pairwise_fold(plan, column);
    } else {
        *ret = pairwise_hand_out(plan, column, k + 1);
    }
    return true;
}

/*
 * The ring: scatter-reduce, then allgather, over links from rank r to r+1.
 *
 * Rank r finishes shard r. The shards are cut into chunks; column c is chunk c of every shard, and
 * lane l runs columns l, l+lanes, ... one after the other. A column takes 2(n-1) steps. In its
 * step t, rank r sends shard r-1-t and receives shard r-2-t (mod n): what it received before is
 * what it sends next. n = 3, contributions a, b, c of ranks 0, 1, 2:
 *
 *     step   rank 0 sends     rank 1 sends     rank 2 sends
 *      0     shard 2: a       shard 0: b       shard 1: c         receivers fold
 *      1     shard 1: c+a     shard 2: a+b     shard 0: b+c       and the last fold divides
 *      2     shard 0: b+c+a   shard 1: c+a+b   shard 2: a+b+c     receivers copy
 *      3     shard 2          shard 0          shard 1
 *
 * So shard s is ((x_{s+1} + x_{s+2}) + ...) + x_s, whatever the chunks and lanes are.
 *
 * Where a chunk of a shard is empty, neither end makes a part for it: both know the cut, so the
 * order of sends and of receives on a link still agrees. Such a step may be wholly empty; step 0 of
 * lane 0 is whole where there are as many elements as ranks.
 */
#include "algo/local.h"
#include <assert.h>

bool hoop_ring_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->lanes > 0 && plan->chunk > 0);
    *ret = hoop_step_none();
    const uint64_t n = plan->n;
    if (n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    uint64_t t = k, column = 0;
    if (!hoop_in_column(plan, lane, hoop_columns(plan), 2 * (n - 1), &t, &column)) {
        return false;
    }
    uint64_t sent = (plan->me + 2 * n - 1 - t) % n;
    uint64_t received = (sent + n - 1) % n;
    enum hoop_space space = t == 0 ? HOOP_SPACE_IN : HOOP_SPACE_OUT;
    struct hoop_ref from = hoop_column_chunk(plan, space, sent, column);
    struct hoop_ref to = hoop_column_chunk(plan, HOOP_SPACE_OUT, received, column);
    if (from.count > 0) {
        ret->send.peer = (int32_t)((plan->me + 1) % n);
        ret->send.from = from;
    }
    if (to.count > 0) {
        ret->recv.peer = (int32_t)((plan->me + n - 1) % n);
        ret->recv.to = to;
        ret->recv.mode = t + 2 < n    ? HOOP_RECV_REDUCE
                         : t + 2 == n ? HOOP_RECV_REDUCE_LAST
                                      : HOOP_RECV_COPY;
    }
    return true;
}

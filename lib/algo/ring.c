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
 * order of sends and of receives on a link still agrees. Such a step may be wholly empty.
 */
#include "algo/local.h"
#include <assert.h>

/* With fewer bytes than this for each rank, a cut at whole lines would be felt as uneven. */
#define RING_EVEN_BYTES 1024

uint64_t hoop_ring_align(const struct hoop_plan *plan)
{
    uint64_t each = plan->count / plan->n;
    bool large = each >= RING_EVEN_BYTES / plan->type_bytes;
    return large ? HOOP_LINE_BYTES / plan->type_bytes : 1;
}

/* The column's chunk of a shard in this rank's memory. */
static struct hoop_ref ring_chunk(const struct hoop_plan *plan, enum hoop_space space,
                                  uint64_t shard, uint64_t column)
{
    struct hoop_range all = hoop_shard(plan->count, plan->n, shard, hoop_ring_align(plan));
    struct hoop_range chunk = hoop_part(all, plan->chunk, column);
    return hoop_ref_of(space, plan->me, chunk.off, chunk.count);
}

/* One rank has nobody to talk to. */
static bool ring_alone(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                       struct hoop_step *ret)
{
    if (lane > 0 || k > 0 || plan->in_place || plan->count == 0) {
        return false;
    }
    *ret = hoop_step_local(HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, plan->count),
                           hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, plan->count));
    return true;
}

bool hoop_ring_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->lanes > 0 && plan->chunk > 0);
    *ret = hoop_step_none();
    const uint64_t n = plan->n;
    if (n == 1) {
        return ring_alone(plan, lane, k, ret);
    }
    /* Shard 0 is the largest. */
    uint64_t largest = hoop_shard(plan->count, n, 0, hoop_ring_align(plan)).count;
    uint64_t columns = hoop_parts(largest, plan->chunk);
    uint64_t round = k / (2 * (n - 1)), t = k % (2 * (n - 1));
    if (lane >= plan->lanes || lane >= columns || round > (columns - 1 - lane) / plan->lanes) {
        return false;
    }
    uint64_t column = lane + round * plan->lanes;

    uint64_t sent = (plan->me + 2 * n - 1 - t) % n;
    uint64_t received = (sent + n - 1) % n;
    struct hoop_ref from = ring_chunk(plan, t == 0 ? HOOP_SPACE_IN : HOOP_SPACE_OUT, sent, column);
    struct hoop_ref to = ring_chunk(plan, HOOP_SPACE_OUT, received, column);
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

/*
 * The chain: a rooted vector goes along all ranks, chunk behind chunk, so that every link is busy
 * with another chunk at the same time.
 *
 *     broadcast   root -> root+1 -> ... -> root-1          receivers copy
 *     reduce      root+1 -> root+2 -> ... -> root          receivers fold; the root's fold divides
 *
 * The rank at position p of the chain sends chunk c of a lane in its step c + p, and received it in
 * step c + p - 1: so the numbers of a step agree at both ends. Lane l has chunks l, l+lanes, ...
 * n = 4, root 0, chunks A, B, C:
 *
 *     step   broadcast                  reduce
 *      0     0 -A-> 1                   1 -A-> 2
 *      1     0 -B-> 1 -A-> 2            1 -B-> 2 -A-> 3
 *      2     0 -C-> 1 -B-> 2 -A-> 3     1 -C-> 2 -B-> 3 -A-> 0
 *
 * So an element of reduce is ((x_{root+1} + x_{root+2}) + ...) + x_root. What a rank of reduce has
 * folded waits in SCRATCH, in two chunks in turn, until the next step sends it.
 *
 * Step 0 of lane 0 is whole: who has nothing for it sends and receives nothing.
 */
#include "algo/parts.h"
#include <assert.h>

static uint64_t chain_position(const struct hoop_plan *plan)
{
    const uint64_t first = plan->collective == HOOP_COLL_REDUCE ? plan->root + 1 : plan->root;
    return (plan->me + plan->n - first % plan->n) % plan->n;
}

/* A lane's chunk c in a buffer that holds the whole vector; nothing if there is none such. */
static struct hoop_ref chain_chunk(const struct hoop_plan *plan, enum hoop_space space,
                                   uint32_t lane, uint64_t c)
{
    const struct hoop_range all = {0, plan->count};
    const uint64_t chunks = hoop_parts(plan->count, plan->chunk);
    const uint64_t index = c < chunks ? lane + c * plan->lanes : chunks;
    const struct hoop_range chunk = hoop_part(all, plan->chunk, index);
    return hoop_ref_of(space, plan->me, chunk.off, chunk.count);
}

/* Where a rank between the ends of a reduce keeps chunk c. */
static struct hoop_ref chain_partial(const struct hoop_plan *plan, uint32_t lane, uint64_t c)
{
    const uint64_t count = chain_chunk(plan, HOOP_SPACE_IN, lane, c).count;
    return hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, c % 2 * plan->chunk, count);
}

static void chain_broadcast(const struct hoop_plan *plan, uint32_t lane, uint64_t k, uint64_t p,
                            struct hoop_step *ret)
{
    const bool whole = lane == 0 && k == 0;
    const struct hoop_ref nothing = hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, 0);
    const bool sends = p + 1 < plan->n && k >= p, receives = p > 0 && k + 1 >= p;
    const enum hoop_space space = p == 0 ? HOOP_SPACE_IN : HOOP_SPACE_OUT;
    const struct hoop_ref from = sends ? chain_chunk(plan, space, lane, k - p) : nothing;
    const struct hoop_ref to =
        receives ? chain_chunk(plan, HOOP_SPACE_OUT, lane, k + 1 - p) : nothing;
    hoop_step_send(ret, hoop_rank_after(plan, 1), from, whole);
    hoop_step_recv(ret, hoop_rank_before(plan, 1), to, whole);
    if (p == 0 && !plan->in_place && from.count > 0) {
        ret->local.op = HOOP_LOCAL_COPY;
        ret->local.dst = hoop_ref_of(HOOP_SPACE_OUT, plan->me, from.off, from.count);
        ret->local.src = from;
    }
}

static void chain_reduce(const struct hoop_plan *plan, uint32_t lane, uint64_t k, uint64_t p,
                         struct hoop_step *ret)
{
    const bool whole = lane == 0 && k == 0, last = p + 1 == plan->n;
    const struct hoop_ref nothing = hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, 0, 0);
    struct hoop_ref from = nothing, to = nothing, own = nothing;
    if (!last && k >= p) {
        from =
            p == 0 ? chain_chunk(plan, HOOP_SPACE_IN, lane, k) : chain_partial(plan, lane, k - p);
    }
    if (p > 0 && k + 1 >= p) {
        const uint64_t c = k + 1 - p;
        to = last ? chain_chunk(plan, HOOP_SPACE_OUT, lane, c) : chain_partial(plan, lane, c);
        own = chain_chunk(plan, HOOP_SPACE_IN, lane, c);
    }
    hoop_step_send(ret, hoop_rank_after(plan, 1), from, whole);
    hoop_step_recv(ret, hoop_rank_before(plan, 1), to, whole);
    if (p > 0) {
        ret->recv.mode = last ? HOOP_RECV_REDUCE_LAST : HOOP_RECV_REDUCE;
        ret->recv.own = own;
    }
}

bool hoop_chain_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->n > 0 && plan->me < plan->n && plan->lanes > 0 && plan->chunk > 0);
    *ret = hoop_step_none();
    if (plan->n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    const uint64_t chunks = hoop_parts(plan->count, plan->chunk);
    const uint64_t mine =
        lane < chunks && lane < plan->lanes ? (chunks - 1 - lane) / plan->lanes + 1 : 0;
    if (mine == 0 || k >= mine + plan->n - 2) {
        return false;
    }
    if (plan->collective == HOOP_COLL_REDUCE) {
        chain_reduce(plan, lane, k, chain_position(plan), ret);
    } else {
        chain_broadcast(plan, lane, k, chain_position(plan), ret);
    }
    return true;
}

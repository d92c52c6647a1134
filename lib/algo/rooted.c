/*
 * Rooted collectives over links: binomial trees in ceil(log2 n) exchanges, for what is dominated by
 * latency.
 *
 *     broadcast    a rank that has the vector passes it on, to distance 1, 2, 4, ... after it
 *     reduce       a rank that has gathered from 2^t - 1 ranks before it passes all on, to 2^t
 *     gather       after it; the root folds in rank order, or puts the blocks in their places
 *     scatter      a rank with blocks for 2^(t+1) ranks passes on the farther half, to 2^t after it
 *
 * With the ranks counted from the root (broadcast, scatter: after it; reduce, gather: before it), n
 * = 6:
 *
 *     broadcast    0 -> 1       0, 1 -> 2, 3         0, 1 -> 4, 5
 *     reduce       1, 3, 5 -> 0, 2, 4                2 -> 0 (2 and 3)     4 -> 0 (4 and 5)
 *     scatter      0 -> 4 (4 and 5)                  0 -> 2 (2 and 3)     0, 2, 4 -> 1, 3, 5
 *
 * Gathered vectors lie in SCRATCH by distance, the rank's own first, then that of the rank before
 * it. Blocks to be scattered lie there in the order of the ranks after it. The root sends from IN,
 * where they may wrap from block n-1 to 0, so an exchange is two steps, the second empty if there
 * is no second piece. A block for a single rank goes straight to that rank's OUT.
 *
 * The first step must announce the operation, with a send and a receive on every rank: so a scatter
 * among more than two ranks begins with an empty exchange.
 *
 * Large vectors use the chain: a vector passes through all ranks, chunk after chunk, so that every
 * link carries a different chunk at the same time.
 *
 *     broadcast   root -> root+1 -> ... -> root-1          receivers copy
 *     reduce      root+1 -> root+2 -> ... -> root          receivers fold; the root's fold divides
 *
 * The rank at position p of the chain receives chunk c of a lane in step c + p - 1 and sends it in
 * step c + p: so the step numbers agree at both ends. Lane l has chunks l, l+lanes, ... n = 4, root
 * 0, chunks A, B, C:
 *
 *     step   broadcast                  reduce
 *      0     0 -A-> 1                   1 -A-> 2
 *      1     0 -B-> 1 -A-> 2            1 -B-> 2 -A-> 3
 *      2     0 -C-> 1 -B-> 2 -A-> 3     1 -C-> 2 -B-> 3 -A-> 0
 *
 * So an element of reduce is ((x_{root+1} + x_{root+2}) + ...) + x_root. In a reduce the folded
 * chunk waits in SCRATCH, in two alternating chunks, until the next step sends it.
 *
 * In step 0 of lane 0 every rank sends and receives, if need be an empty message.
 */
#include "algo/parts.h"
#include <assert.h>

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- Broadcast ---------------------------------------------------------------------------- */

static void binomial_broadcast(const struct hoop_plan *plan, uint64_t t, struct hoop_step *ret)
{
    const uint64_t behind = (plan->me + plan->n - plan->root) % plan->n;
    const uint64_t far = UINT64_C(1) << t;
    const bool sends = behind < far && far < plan->n - behind;
    const bool receives = behind >= far && behind < 2 * far;
    const struct hoop_ref out = hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, plan->count);
    const struct hoop_ref in = hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, plan->count);
    const struct hoop_ref nothing = hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, 0);
    hoop_step_send(ret, hoop_rank_after(plan, far),
                   !sends        ? nothing
                   : behind == 0 ? in
                                 : out,
                   t == 0);
    hoop_step_recv(ret, hoop_rank_before(plan, far), receives ? out : nothing, t == 0);
    if (t == 0 && behind == 0 && !plan->in_place) {
        ret->local.op = HOOP_LOCAL_COPY;
        ret->local.dst = out;
        ret->local.src = in;
    }
}

/* ---- Reduce and gather -------------------------------------------------------------------- */

/* Vectors that the rank at distance `before` before the root passes on in exchange t. */
static uint64_t binomial_passed(const struct hoop_plan *plan, uint64_t before, uint64_t t)
{
    const uint64_t bit = UINT64_C(1) << t;
    return (before & (2 * bit - 1)) == bit ? least(bit, plan->n - before) : 0;
}

static void binomial_collect(const struct hoop_plan *plan, uint64_t t, struct hoop_step *ret)
{
    const uint64_t before = (plan->root + plan->n - plan->me) % plan->n;
    const uint64_t far = UINT64_C(1) << t, count = plan->count;
    const uint64_t sent = binomial_passed(plan, before, t);
    const uint64_t received = far < plan->n - before ? binomial_passed(plan, before + far, t) : 0;
    const struct hoop_ref in = hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, sent * count);
    const struct hoop_ref kept = hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, 0, sent * count);
    hoop_step_send(ret, hoop_rank_after(plan, far), t == 0 ? in : kept, t == 0);
    hoop_step_recv(ret, hoop_rank_before(plan, far),
                   hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, far * count, received * count),
                   t == 0);
    if (t == 0 && before > 0 && before % 2 == 0) { /* it will send its own in front of others' */
        ret->local.op = HOOP_LOCAL_COPY;
        ret->local.dst = hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, 0, count);
        ret->local.src = hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, count);
    }
}

/* At the root, when it has everything. False: nothing is left to do. */
static bool binomial_conclude(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    const uint64_t count = plan->count;
    if (plan->me != plan->root) {
        return false;
    }
    if (plan->collective == HOOP_COLL_REDUCE) {
        *ret = hoop_step_fold(hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, count),
                              hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, count));
        return k == 0;
    }
    if (k >= plan->n) {
        return false;
    }
    if (k == 0) {
        hoop_step_keep(plan, ret, plan->me, 0);
    } else {
        *ret = hoop_step_local(
            HOOP_LOCAL_COPY,
            hoop_ref_of(HOOP_SPACE_OUT, plan->me, hoop_rank_before(plan, k) * count, count),
            hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, k * count, count));
    }
    return true;
}

/* ---- Scatter ------------------------------------------------------------------------------ */

/* Blocks that the rank `behind` ranks after the root passes on to the rank `far` after itself. */
static uint64_t binomial_handed(const struct hoop_plan *plan, uint64_t behind, uint64_t far)
{
    const bool has = behind % (2 * far) == 0 && far < plan->n - behind;
    return has ? least(far, plan->n - behind - far) : 0;
}

/*
 * Piece 0 or 1 of `blocks` blocks from block `first` (mod n) on: those before the end of the root's
 * IN, and those that wrap to its start. *ret_first: the piece's first block. Returns its number of
 * blocks.
 */
static uint64_t binomial_piece(const struct hoop_plan *plan, uint64_t first, uint64_t blocks,
                               uint64_t piece, uint64_t *ret_first)
{
    const uint64_t before_end = least(blocks, plan->n - first);
    *ret_first = piece == 0 ? first : 0;
    return piece == 0 ? before_end : blocks - before_end;
}

/* The blocks that the rank `behind` ranks after the root has for the rank `far` after itself, and
 * where in its memory they lie. Only the root's may have a piece 1. */
static struct hoop_ref binomial_share(const struct hoop_plan *plan, uint64_t behind, uint64_t far,
                                      uint64_t piece)
{
    const uint64_t blocks = binomial_handed(plan, behind, far);
    uint64_t first = far;
    if (behind > 0) {
        return hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, far * plan->count,
                           (piece == 0 ? blocks : 0) * plan->count);
    }
    const uint64_t some = binomial_piece(plan, (plan->root + far) % plan->n, blocks, piece, &first);
    return hoop_ref_of(HOOP_SPACE_IN, plan->me, first * plan->count, some * plan->count);
}

static void binomial_hand(const struct hoop_plan *plan, uint64_t far, uint64_t piece, bool whole,
                          struct hoop_step *ret)
{
    const uint64_t behind = (plan->me + plan->n - plan->root) % plan->n;
    struct hoop_ref to = hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, 0);
    if (behind >= far) {
        const uint64_t blocks = binomial_handed(plan, behind - far, far);
        to.space = blocks > 1 ? HOOP_SPACE_SCRATCH : HOOP_SPACE_OUT;
        to.count = binomial_share(plan, behind - far, far, piece).count;
        to.off = piece == 0 ? 0 : blocks * plan->count - to.count;
    }
    hoop_step_send(ret, hoop_rank_after(plan, far), binomial_share(plan, behind, far, piece),
                   whole);
    hoop_step_recv(ret, hoop_rank_before(plan, far), to, whole);
}

/* Copies the own block to OUT, unless it was received there. */
static void binomial_keep(const struct hoop_plan *plan, struct hoop_step *ret)
{
    const uint64_t behind = (plan->me + plan->n - plan->root) % plan->n;
    if (behind == 0) {
        if (!plan->in_place) {
            *ret = hoop_step_local(
                HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, plan->count),
                hoop_ref_of(HOOP_SPACE_IN, plan->me, plan->me * plan->count, plan->count));
        }
        return;
    }
    const uint64_t far = behind & (~behind + 1); /* the distance to its sender: the lowest bit */
    if (binomial_handed(plan, behind - far, far) > 1) {
        *ret =
            hoop_step_local(HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, plan->count),
                            hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, 0, plan->count));
    }
}

static bool binomial_scatter(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    const uint64_t exchanges = hoop_log2(plan->n);
    const struct hoop_ref nothing = hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, 0);
    if (hoop_in_phase(&k, plan->n > 2)) {
        hoop_step_send(ret, hoop_rank_after(plan, 1), nothing, true);
        hoop_step_recv(ret, hoop_rank_before(plan, 1), nothing, true);
        return true;
    }
    if (hoop_in_phase(&k, 2 * exchanges)) {
        const bool first = plan->n == 2 && k == 0;
        binomial_hand(plan, UINT64_C(1) << (exchanges - 1 - k / 2), k % 2, first, ret);
        return true;
    }
    if (hoop_in_phase(&k, 1)) {
        binomial_keep(plan, ret);
        return true;
    }
    return false;
}

/* ---- All of it ---------------------------------------------------------------------------- */

bool hoop_binomial_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                        struct hoop_step *ret)
{
    assert(plan->n > 0 && plan->me < plan->n && plan->count > 0 && plan->chunk >= plan->count);
    const uint64_t exchanges = hoop_log2(plan->n);
    hoop_step_clear(ret);
    if (plan->n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    if (lane > 0) {
        return false;
    }
    if (plan->collective == HOOP_COLL_SCATTER) {
        return binomial_scatter(plan, k, ret);
    }
    if (!hoop_in_phase(&k, exchanges)) {
        return plan->collective != HOOP_COLL_BROADCAST && binomial_conclude(plan, k, ret);
    }
    if (plan->collective == HOOP_COLL_BROADCAST) {
        binomial_broadcast(plan, k, ret);
    } else {
        binomial_collect(plan, k, ret);
    }
    return true;
}

/* ---- The chain ---------------------------------------------------------------------------- */

static uint64_t chain_position(const struct hoop_plan *plan)
{
    const uint64_t first = plan->collective == HOOP_COLL_REDUCE ? plan->root + 1 : plan->root;
    return (plan->me + plan->n - first % plan->n) % plan->n;
}

/* A lane's chunk c in a buffer that holds the whole vector; empty beyond the last chunk. */
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
    hoop_step_clear(ret);
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

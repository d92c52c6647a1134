/*
 * Bruck's allgather: every rank has every rank's block after ceil(log n) rounds, to the base of the
 * radix. In all_reduce the blocks are whole vectors, and every rank folds them for itself.
 *
 * A rank that has the blocks of the `have` ranks up to itself sends them to the ranks at the
 * distances have, 2 have, ... (radix - 1) have, all at once, as many as each still lacks; then it
 * has radix times as many itself. n = 5, blocks a to e of ranks 0 to 4, radix 2:
 *
 *     step   rank 0 has   sends to   receives from   rank 0 has then
 *      0     a            1          4               a e
 *      1     a e          2          3               a e d c
 *      2     a e d c      4: a       1: b            a e d c b
 *      3                                             folds a + b + c + d + e
 *
 * The bytes are the same with every radix. The larger the radix, the fewer rounds wait for each
 * other, and the more messages there may be; with radix n every rank sends to every other at once.
 *
 * all_reduce keeps the vectors in SCRATCH in the order of distance, its own first, then those of
 * rank me-1, me-2, ... (mod n): so what is sent and what is received is always contiguous. The
 * first round sends the input itself, which nobody writes before the fold, and which the fold
 * reads. If there are more rounds, the first step copies the input to its place in SCRATCH for
 * them.
 *
 * all_gather keeps the blocks at their places in OUT, with radix 2. What is sent may wrap from
 * block n-1 to 0, and then travels in two pieces. So an exchange is two steps, the second of which
 * is empty if there is no second piece; both ends know.
 *
 * With no elements the exchanges are a barrier, whatever the collective: a message of a round that
 * begins with `have` says that its sender has heard, directly or not, from the have - 1 ranks
 * before it.
 */
#include "algo/parts.h"
#include <assert.h>

/* Blocks that a rank which has `have` sends over the distance `far`. */
static uint64_t bruck_moved(const struct hoop_plan *plan, uint64_t have, uint64_t far)
{
    return have < plan->n - far ? have : plan->n - far;
}

/* ---- Vectors, by distance ----------------------------------------------------------------- */

/* Exchanges of the round that begins with `have` vectors. */
static uint64_t bruck_exchanges(const struct hoop_plan *plan, uint64_t have)
{
    const uint64_t missing = (plan->n - 1) / have; /* distances have, 2 have, ... below n */
    return missing < plan->radix - 1 ? missing : plan->radix - 1;
}

/* Is there only one round? Then no rank forwards what it received. */
static bool bruck_at_once(const struct hoop_plan *plan)
{
    return plan->radix >= plan->n;
}

/* Exchange i of the round that begins with `have` vectors. */
static struct hoop_step bruck_by_distance(const struct hoop_plan *plan, uint64_t have, uint64_t i)
{
    const uint64_t count = plan->count, far = (i + 1) * have;
    const uint64_t moved = bruck_moved(plan, have, far) * count;
    const struct hoop_ref input = hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, count);
    struct hoop_step ret = hoop_step_none();
    if (far == 1 && count > 0 && !bruck_at_once(plan)) {
        ret = hoop_step_local(HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, 0, count),
                              input);
    }
    hoop_step_send(&ret, hoop_rank_after(plan, far),
                   have == 1 ? input : hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, 0, moved), true);
    hoop_step_recv(&ret, hoop_rank_before(plan, far),
                   hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, far * count, moved), true);
    ret.more = i + 1 < bruck_exchanges(plan, have);
    return ret;
}

/* ---- Blocks, in their places -------------------------------------------------------------- */

/* Piece 0 or 1, in OUT, of the blocks up to rank `last` that exchange t moves. */
static struct hoop_ref bruck_piece(const struct hoop_plan *plan, uint32_t last, uint64_t t,
                                   uint64_t piece)
{
    const uint64_t have = UINT64_C(1) << t, moved = bruck_moved(plan, have, have);
    const uint64_t wrapped = moved > last + 1u ? moved - (last + 1u) : 0; /* at the end of OUT */
    uint64_t first = last + 1u - (moved - wrapped), blocks = moved - wrapped;
    if (wrapped > 0 && piece == 0) {
        first = plan->n - wrapped;
        blocks = wrapped;
    } else if (wrapped == 0 && piece == 1) {
        blocks = 0;
    }
    return hoop_ref_of(HOOP_SPACE_OUT, plan->me, first * plan->count, blocks * plan->count);
}

/* A piece of exchange t, sent from and received at its place. */
static struct hoop_step bruck_in_place(const struct hoop_plan *plan, uint64_t t, uint64_t piece)
{
    const uint64_t have = UINT64_C(1) << t;
    const uint32_t before = hoop_rank_before(plan, have);
    struct hoop_step ret = hoop_step_none();
    struct hoop_ref from = bruck_piece(plan, plan->me, t, piece);
    if (t == 0 && piece == 0) {
        from = hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, plan->count);
        hoop_step_keep(plan, &ret, plan->me, 0);
    }
    hoop_step_send(&ret, hoop_rank_after(plan, have), from, false);
    hoop_step_recv(&ret, before, bruck_piece(plan, before, t, piece), false);
    return ret;
}

/* ---- The algorithm ------------------------------------------------------------------------- */

bool hoop_bruck_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->n > 0 && plan->me < plan->n && plan->chunk >= plan->count && plan->radix >= 2);
    hoop_step_clear(ret);
    if (plan->n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    if (lane > 0) {
        return false;
    }
    if (plan->collective == HOOP_COLL_ALL_GATHER && plan->count > 0) {
        const bool some = k < 2 * hoop_log2(plan->n);
        if (some) {
            *ret = bruck_in_place(plan, k / 2, k % 2);
        }
        return some;
    }
    for (uint64_t have = 1; have < plan->n; have *= plan->radix) {
        if (hoop_in_phase(&k, bruck_exchanges(plan, have))) {
            *ret = bruck_by_distance(plan, have, k);
            return true;
        }
    }
    if (hoop_in_phase(&k, plan->count > 0)) {
        *ret = hoop_step_fold(hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, plan->count),
                              hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, plan->count));
        return true;
    }
    return false;
}

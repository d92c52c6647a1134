/*
 * Bruck's allgather, then a fold: every rank ends with everybody's vector after ceil(log2 n)
 * exchanges, and folds them for itself.
 *
 * Vectors lie in SCRATCH in the order of distance: the own one, then that of rank me-1, me-2, ...
 * (mod n). Whoever holds the first `have` of them sends them to rank me+have, for which they are
 * vectors have, have+1, ...; so what is sent and what is received never has a gap. n = 5, vectors a
 * to e of ranks 0 to 4:
 *
 *     step   rank 0 has   sends to   receives from   rank 0 has then
 *      0     a            1          4               a e
 *      1     a e          2          3               a e d c
 *      2     a e d c      4: a       1: b            a e d c b
 *      3                                             folds a + b + c + d + e
 *
 * Step 0 sends the input itself, which nobody writes before the fold, and copies it to its place.
 *
 * With no elements the exchanges are a barrier: what comes in step t says that the sender has
 * heard, if at second hand, from the 2^t - 1 ranks before it.
 */
#include "algo/local.h"
#include <assert.h>

/* Exchange t, in which this rank goes from 2^t vectors to at most twice as many. */
static struct hoop_step bruck_exchange(const struct hoop_plan *plan, uint64_t t)
{
    const uint64_t n = plan->n, me = plan->me, count = plan->count;
    const uint64_t have = UINT64_C(1) << t;
    const uint64_t moved = (have < n - have ? have : n - have) * count;
    const struct hoop_ref input = hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, count);
    struct hoop_step ret = hoop_step_none();
    if (t == 0 && count > 0) {
        ret = hoop_step_local(HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, 0, count),
                              input);
    }
    ret.send.peer = (int32_t)((me + have) % n);
    ret.send.from = t == 0 ? input : hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, 0, moved);
    ret.recv.peer = (int32_t)((me + n - have) % n);
    ret.recv.mode = HOOP_RECV_COPY;
    ret.recv.to = hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, have * count, moved);
    return ret;
}

static uint64_t bruck_exchanges(uint64_t n)
{
    uint64_t ret = 0;
    while (UINT64_C(1) << ret < n) {
        ret++;
    }
    return ret;
}

bool hoop_bruck_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->chunk >= plan->count);
    *ret = hoop_step_none();
    if (plan->n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    if (lane > 0) {
        return false;
    }
    if (hoop_in_phase(&k, bruck_exchanges(plan->n))) {
        *ret = bruck_exchange(plan, k);
        return true;
    }
    if (hoop_in_phase(&k, plan->count > 0)) {
        *ret = hoop_step_local(HOOP_LOCAL_REDUCE,
                               hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, plan->count),
                               hoop_ref_of(HOOP_SPACE_SCRATCH, HOOP_EVERY, 0, plan->count));
        return true;
    }
    return false;
}

/*
 * Oneshot: every rank that has something for others publishes it with the announcement, then every
 * rank takes what it needs from others, folding in rank order or copying.
 *
 * A rank waits only for those whose data it needs, and so may be operations ahead of the others: at
 * most one less than there are sets to publish in (step.h).
 */
#include "algo/taking.h"
#include <assert.h>

/* Copies block i of what this rank takes from others, or folds all. */
static struct hoop_step oneshot_take(const struct hoop_plan *plan, uint64_t i)
{
    const uint64_t off = hoop_taken_off(plan), count = plan->count;
    if (!hoop_row_of(plan)->folds) {
        const uint32_t source = hoop_source(plan, i);
        const uint64_t placed = hoop_placed_off(plan, source);
        return hoop_step_local(HOOP_LOCAL_COPY,
                               hoop_ref_of(HOOP_SPACE_OUT, plan->me, placed, count),
                               hoop_ref_of(HOOP_SPACE_ONESHOT, source, off, count));
    }
    struct hoop_step ret =
        hoop_step_local(HOOP_LOCAL_REDUCE, hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, count),
                        hoop_ref_of(HOOP_SPACE_ONESHOT, HOOP_EVERY, off, count));
    ret.local.own = hoop_own_taken(plan, (struct hoop_range){0, count});
    return ret;
}

static bool oneshot_bring(const struct hoop_plan *plan, uint64_t *k, struct hoop_step *ret)
{
    for (uint64_t i = 0; i < HOOP_BROUGHT_PIECES; i++) {
        const struct hoop_range piece = hoop_brought(plan, i);
        if (hoop_in_phase(k, piece.count > 0)) {
            *ret = hoop_step_local(
                HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_ONESHOT, plan->me, piece.off, piece.count),
                hoop_ref_of(HOOP_SPACE_IN, plan->me, piece.off, piece.count));
            return true;
        }
    }
    return false;
}

bool hoop_oneshot_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                       struct hoop_step *ret)
{
    const struct hoop_range whole = {0, plan->count};
    assert(plan->me < plan->n &&
           hoop_in_count(plan, plan->me) <= HOOP_ONESHOT_MAX_BYTES / plan->type_bytes);
    hoop_step_clear(ret);
    if (lane > 0) {
        return false;
    }
    if (oneshot_bring(plan, &k, ret)) {
        return true;
    }
    if (hoop_in_arrival(plan, whole, &k, hoop_needed(plan), ret)) {
        return true;
    }
    if (hoop_in_phase(&k, whole.count > 0 ? hoop_takes(plan) : 0)) {
        *ret = oneshot_take(plan, k);
        return true;
    }
    return false;
}

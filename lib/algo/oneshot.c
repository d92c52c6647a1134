/*
 * One-shot: everyone publishes its input with the announcement, then folds all of them in rank
 * order for itself. One barrier and no closing one: the next operation publishes into another
 * buffer, and before this one is used again every rank has arrived at an operation after this, so
 * it has folded. An operation without a barrier in between does not count for that.
 */
#include "algo/local.h"
#include <assert.h>

bool hoop_oneshot_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                       struct hoop_step *ret)
{
    const uint64_t count = plan->count;
    const uint64_t some = count > 0;
    assert(plan->me < plan->n && count <= HOOP_ONESHOT_MAX_BYTES / plan->type_bytes);
    *ret = hoop_step_none();
    if (lane > 0) {
        return false;
    }
    if (hoop_in_phase(&k, some)) {
        *ret = hoop_step_local(HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_ONESHOT, plan->me, 0, count),
                               hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, count));
        return true;
    }
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    if (hoop_in_phase(&k, some)) {
        *ret = hoop_step_local(HOOP_LOCAL_REDUCE, hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, count),
                               hoop_ref_of(HOOP_SPACE_ONESHOT, HOOP_EVERY, 0, count));
        return true;
    }
    return false;
}

/*
 * One-shot: everyone who brings something publishes it with the announcement, then everyone takes
 * what it needs, folding in rank order or copying.
 *
 * A rank waits only for those whose data it needs, and so may be operations ahead of the others:
 * as many as there are sets to publish in (step.h), less one.
 */
#include "algo/taking.h"
#include <assert.h>

/* Block i of what this rank takes, or the fold. */
static struct hoop_step oneshot_take(const struct hoop_plan *plan, uint64_t i)
{
    const uint64_t off = hoop_taken_off(plan), count = plan->count;
    if (hoop_row_of(plan)->folds) {
        return hoop_step_local(HOOP_LOCAL_REDUCE, hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, count),
                               hoop_ref_of(HOOP_SPACE_ONESHOT, HOOP_EVERY, off, count));
    }
    const uint32_t source = hoop_source(plan, i);
    const uint64_t placed = hoop_placed_off(plan, source);
    return hoop_step_local(HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_OUT, plan->me, placed, count),
                           hoop_ref_of(HOOP_SPACE_ONESHOT, source, off, count));
}

bool hoop_oneshot_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                       struct hoop_step *ret)
{
    const uint64_t brought = hoop_in_count(plan, plan->me);
    const bool folds = hoop_row_of(plan)->folds;
    const uint64_t takes = folds ? hoop_out_count(plan, plan->me) > 0 : hoop_sources(plan);
    assert(plan->me < plan->n && brought <= HOOP_ONESHOT_MAX_BYTES / plan->type_bytes);
    *ret = hoop_step_none();
    if (lane > 0) {
        return false;
    }
    if (hoop_in_phase(&k, brought > 0)) {
        *ret =
            hoop_step_local(HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_ONESHOT, plan->me, 0, brought),
                            hoop_ref_of(HOOP_SPACE_IN, plan->me, 0, brought));
        return true;
    }
    if (hoop_in_phase(&k, 2)) {
        *ret = k == 0 ? hoop_step_barrier(HOOP_LOCAL_ARRIVE) : hoop_step_await(hoop_needed(plan));
        return true;
    }
    if (hoop_in_phase(&k, plan->count > 0 ? takes : 0)) {
        *ret = oneshot_take(plan, k);
        return true;
    }
    return false;
}

/*
 * Over shared memory: what a rank takes of whose input, and where it puts it. Of a collective that
 * folds, the same elements of everybody's; else a block each of its sources, copied. (all_reduce
 * and reduce share the folding instead where the vector is large: direct.c, slab.c.)
 */
#ifndef HOOP_ALGO_TAKING_H
#define HOOP_ALGO_TAKING_H

#include "algo/parts.h"

static inline const struct hoop_collective_row *hoop_row_of(const struct hoop_plan *plan)
{
    return &hoop_collectives[plan->collective];
}

/* From how many members this rank copies blocks; hoop_source() is the i-th of them. */
static inline uint32_t hoop_sources(const struct hoop_plan *plan)
{
    if (hoop_row_of(plan)->in >= HOOP_EXTENT_ROOT_ONE) {
        return 1;
    }
    return hoop_out_count(plan, plan->me) > 0 ? plan->n : 0;
}

/* Each rank begins behind itself, so that not all read the same memory. */
static inline uint32_t hoop_source(const struct hoop_plan *plan, uint64_t i)
{
    const bool root = hoop_row_of(plan)->in >= HOOP_EXTENT_ROOT_ONE;
    return root ? plan->root : (uint32_t)((plan->me + 1 + i) % plan->n);
}

/* Where what this rank takes lies in an input, and where a source's block goes in its output. */
static inline uint64_t hoop_taken_off(const struct hoop_plan *plan)
{
    return hoop_extent_is_each(hoop_row_of(plan)->in) ? plan->me * plan->count : 0;
}

static inline uint64_t hoop_placed_off(const struct hoop_plan *plan, uint32_t source)
{
    return hoop_extent_is_each(hoop_row_of(plan)->out) ? source * plan->count : 0;
}

/* Whose data this rank needs: HOOP_EVERY, the root, or its own only, which stands for nobody. */
static inline uint32_t hoop_needed(const struct hoop_plan *plan)
{
    if (hoop_row_of(plan)->in >= HOOP_EXTENT_ROOT_ONE) {
        return plan->root;
    }
    const bool none = hoop_row_of(plan)->out >= HOOP_EXTENT_ROOT_ONE && plan->me != plan->root;
    return none ? plan->me : HOOP_EVERY;
}

/* Who takes of this rank's input, in the same words. */
static inline uint32_t hoop_needing(const struct hoop_plan *plan)
{
    if (hoop_row_of(plan)->out >= HOOP_EXTENT_ROOT_ONE) {
        return plan->root;
    }
    return hoop_in_count(plan, plan->me) > 0 ? HOOP_EVERY : plan->me;
}

static inline struct hoop_step hoop_step_await(uint32_t member)
{
    struct hoop_step ret = hoop_step_barrier(HOOP_LOCAL_AWAIT);
    ret.local.src.member = member;
    return ret;
}

#endif

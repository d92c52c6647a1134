/*
 * Over shared memory: what a rank takes from whose input, and where it puts it. In a collective
 * that folds it takes the same elements from every rank, otherwise it copies one block from each of
 * its sources. (all_reduce and reduce share the folding instead if the vector is large: direct.c,
 * slab.c.)
 */
#ifndef HOOP_ALGO_TAKING_H
#define HOOP_ALGO_TAKING_H

#include "algo/parts.h"

static inline const struct hoop_collective_row *hoop_row_of(const struct hoop_plan *plan)
{
    return &hoop_collectives[plan->collective];
}

/* The number of members from which this rank copies blocks; hoop_source() is the i-th of them. */
static inline uint32_t hoop_sources(const struct hoop_plan *plan)
{
    if (hoop_row_of(plan)->in >= HOOP_EXTENT_ROOT_ONE) {
        return 1;
    }
    return hoop_out_count(plan, plan->me) > 0 ? plan->n : 0;
}

/* Each rank begins with the next one, so that not all read the same memory at once. */
static inline uint32_t hoop_source(const struct hoop_plan *plan, uint64_t i)
{
    const bool root = hoop_row_of(plan)->in >= HOOP_EXTENT_ROOT_ONE;
    return root ? plan->root : (uint32_t)((plan->me + 1 + i) % plan->n);
}

/* Offset of what this rank takes in an input; offset of a source's block in this rank's output. */
static inline uint64_t hoop_taken_off(const struct hoop_plan *plan)
{
    return hoop_extent_is_each(hoop_row_of(plan)->in) ? plan->me * plan->count : 0;
}

static inline uint64_t hoop_placed_off(const struct hoop_plan *plan, uint32_t source)
{
    return hoop_extent_is_each(hoop_row_of(plan)->out) ? source * plan->count : 0;
}

/* Whose data this rank needs: HOOP_EVERY, the root, or `me`, which stands for nobody. */
static inline uint32_t hoop_needed(const struct hoop_plan *plan)
{
    if (hoop_row_of(plan)->in >= HOOP_EXTENT_ROOT_ONE) {
        return plan->root;
    }
    const bool none = hoop_row_of(plan)->out >= HOOP_EXTENT_ROOT_ONE && plan->me != plan->root;
    return none ? plan->me : HOOP_EVERY;
}

/* Who takes from this rank's input, in the same terms. */
static inline uint32_t hoop_needing(const struct hoop_plan *plan)
{
    if (hoop_row_of(plan)->out >= HOOP_EXTENT_ROOT_ONE) {
        return plan->root;
    }
    return hoop_in_count(plan, plan->me) > 0 ? HOOP_EVERY : plan->me;
}

/* How many of a rank's blocks others need: not the one for itself, and none of a root that is the
 * only one to get a result. */
static inline uint64_t hoop_blocks_for_others(enum hoop_collective collective, uint64_t n,
                                              bool root)
{
    const struct hoop_collective_row *row = &hoop_collectives[collective];
    const uint64_t blocks = hoop_extent_blocks(row->in, n, root);
    if (root && row->out >= HOOP_EXTENT_ROOT_ONE) {
        return 0;
    }
    return blocks > 0 && hoop_extent_is_each(row->in) ? blocks - 1 : blocks;
}

/* In a collective with a root: how many ranks write what others read? */
static inline uint32_t hoop_writers(enum hoop_collective collective, uint32_t n)
{
    return n > 2 && hoop_blocks_for_others(collective, n, false) > 0 ? n - 1 : 1;
}

/* These blocks lie in two pieces of this rank's input: before its own block and after it. If there
 * are no blocks per rank, the first piece is the whole input. */
#define HOOP_BROUGHT_PIECES 2

static inline struct hoop_range hoop_brought(const struct hoop_plan *plan, uint64_t piece)
{
    const uint64_t all =
        plan->count * hoop_blocks_for_others(plan->collective, plan->n, plan->me == plan->root);
    const uint64_t own = hoop_extent_is_each(hoop_row_of(plan)->in) ? plan->count : 0;
    const uint64_t before = all > 0 && own > 0 ? plan->me * own : all;
    return piece == 0 ? (struct hoop_range){0, before}
                      : (struct hoop_range){before + own, all - before};
}

/* Does this rank copy its own block as well (as the last of its sources)? */
static inline bool hoop_keeps(const struct hoop_plan *plan)
{
    const uint32_t sources = hoop_sources(plan);
    return !hoop_row_of(plan)->folds && sources > 0 && hoop_source(plan, sources - 1) == plan->me;
}

/* The number of takes from others: one fold, or one copy per source. */
static inline uint64_t hoop_takes(const struct hoop_plan *plan)
{
    return hoop_row_of(plan)->folds ? hoop_out_count(plan, plan->me) > 0
                                    : hoop_sources(plan) - hoop_keeps(plan);
}

/* A range of what this rank takes from its own input. */
static inline struct hoop_ref hoop_own_taken(const struct hoop_plan *plan, struct hoop_range range)
{
    return hoop_ref_of(HOOP_SPACE_IN, plan->me, hoop_taken_off(plan) + range.off, range.count);
}

static inline struct hoop_step hoop_step_await(uint32_t member)
{
    struct hoop_step ret = hoop_step_barrier(HOOP_LOCAL_AWAIT);
    ret.local.src.member = member;
    return ret;
}

/* The phase in which a rank arrives, copies `range` of its own block while the others come, and
 * awaits all of them, or one. */
static inline bool hoop_in_arrival(const struct hoop_plan *plan, struct hoop_range range,
                                   uint64_t *k, uint32_t awaited, struct hoop_step *ret)
{
    const uint64_t keeps = hoop_keeps(plan) && range.count > 0;
    if (!hoop_in_phase(k, 2 + keeps)) {
        return false;
    }
    if (*k == 0) {
        *ret = hoop_step_barrier(HOOP_LOCAL_ARRIVE);
    } else if (*k == 1 + keeps) {
        *ret = hoop_step_await(awaited);
    } else {
        const uint64_t placed = hoop_placed_off(plan, plan->me) + range.off;
        *ret = hoop_step_local(HOOP_LOCAL_COPY,
                               hoop_ref_of(HOOP_SPACE_OUT, plan->me, placed, range.count),
                               hoop_own_taken(plan, range));
    }
    return true;
}

#endif

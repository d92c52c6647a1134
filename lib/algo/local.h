/*
 * What the algorithms have in common: how a local step is written down, and how the number of a
 * step is turned into its place. The algorithms over shared memory use lane 0 only.
 */
#ifndef HOOP_ALGO_LOCAL_H
#define HOOP_ALGO_LOCAL_H

#include "algo/step.h"
#include "base/sizes.h"

static inline struct hoop_ref hoop_ref_of(enum hoop_space space, uint32_t member, uint64_t off,
                                          uint64_t count)
{
    return (struct hoop_ref){(uint8_t)space, member, off, count};
}

/* A step that is only a local part. Barriers leave dst and src all zero. */
static inline struct hoop_step hoop_step_local(enum hoop_local_op op, struct hoop_ref dst,
                                               struct hoop_ref src)
{
    struct hoop_step ret = hoop_step_none();
    ret.local.op = (uint8_t)op;
    ret.local.dst = dst;
    ret.local.src = src;
    return ret;
}

static inline struct hoop_step hoop_step_barrier(enum hoop_local_op op)
{
    struct hoop_step ret = hoop_step_none();
    ret.local.op = (uint8_t)op;
    return ret;
}

/*
 * An algorithm is a row of phases, each so many steps long. True: step *k is in this phase, and *k
 * is its number there; false: *k is reduced to its number behind the phase.
 */
static inline bool hoop_in_phase(uint64_t *k, uint64_t steps)
{
    if (*k < steps) {
        return true;
    }
    *k -= steps;
    return false;
}

/* The phase that is a barrier: two steps. */
static inline bool hoop_in_barrier(uint64_t *k, struct hoop_step *ret)
{
    bool here = hoop_in_phase(k, 2);
    if (here) {
        *ret = hoop_step_barrier(*k == 0 ? HOOP_LOCAL_ARRIVE : HOOP_LOCAL_AWAIT);
    }
    return here;
}

/* How many parts of at most `part` elements make up count. */
static inline uint64_t hoop_parts(uint64_t count, uint64_t part)
{
    return count / part + (count % part != 0);
}

/* Part i of a range that is cut into parts of at most `part`; empty behind the end. */
static inline struct hoop_range hoop_part(struct hoop_range range, uint64_t part, uint64_t i)
{
    if (i >= hoop_parts(range.count, part)) {
        return (struct hoop_range){range.off + range.count, 0};
    }
    uint64_t rest = range.count - i * part;
    return (struct hoop_range){range.off + i * part, rest < part ? rest : part};
}

/* ---- Over links ---- */

/* One rank has nobody to talk to. */
static inline bool hoop_step_alone(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                   struct hoop_step *ret)
{
    if (lane > 0 || k > 0 || plan->in_place || plan->count == 0) {
        return false;
    }
    *ret = hoop_step_local(HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_OUT, 0, 0, plan->count),
                           hoop_ref_of(HOOP_SPACE_IN, 0, 0, plan->count));
    return true;
}

/* How many columns there are: shard 0 is the largest. */
static inline uint64_t hoop_columns(const struct hoop_plan *plan)
{
    return hoop_parts(hoop_shard_of(plan, 0).count, plan->chunk);
}

/*
 * Lane l runs columns l, l + lanes, ... one after the other, each so many steps long. True: step *k
 * of the lane is in column *ret, and *k is its number there; false: the lane is finished.
 */
static inline bool hoop_in_column(const struct hoop_plan *plan, uint32_t lane, uint64_t columns,
                                  uint64_t steps, uint64_t *k, uint64_t *ret)
{
    uint64_t round = *k / steps;
    if (lane >= plan->lanes || lane >= columns || round > (columns - 1 - lane) / plan->lanes) {
        return false;
    }
    *k %= steps;
    *ret = lane + round * plan->lanes;
    return true;
}

/* The column's chunk of a shard in this rank's memory; may be empty. */
static inline struct hoop_ref hoop_column_chunk(const struct hoop_plan *plan, enum hoop_space space,
                                                uint64_t shard, uint64_t column)
{
    struct hoop_range chunk = hoop_part(hoop_shard_of(plan, shard), plan->chunk, column);
    return hoop_ref_of(space, plan->me, chunk.off, chunk.count);
}

#endif

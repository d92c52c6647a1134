/*
 * What the algorithms over shared memory have in common: how a local step is written down, and how
 * the number of a step is turned into its place. These algorithms use lane 0 only.
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

#endif

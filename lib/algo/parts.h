/* Shared by the algorithms: constructors of steps, and the mapping from a step's number to its
 * position in phases and columns. The algorithms over shared memory use lane 0 only. */
#ifndef HOOP_ALGO_PARTS_H
#define HOOP_ALGO_PARTS_H

#include "algo/step.h"
#include "base/sizes.h"

static inline struct hoop_ref hoop_ref_of(enum hoop_space space, uint32_t member, uint64_t off,
                                          uint64_t count)
{
    return (struct hoop_ref){(uint8_t)space, member, off, count};
}

/* A step that is only a local part. */
static inline struct hoop_step hoop_step_local(enum hoop_local_op op, struct hoop_ref dst,
                                               struct hoop_ref src)
{
    struct hoop_step ret = hoop_step_none();
    ret.local.op = (uint8_t)op;
    ret.local.dst = dst;
    ret.local.src = src;
    return ret;
}

/* Over links: the fold of all ranks' vectors: this rank's is `own`, the others are in SCRATCH. */
static inline struct hoop_step hoop_step_fold(struct hoop_ref dst, struct hoop_ref own)
{
    struct hoop_step ret = hoop_step_local(
        HOOP_LOCAL_REDUCE, dst, hoop_ref_of(HOOP_SPACE_SCRATCH, HOOP_EVERY, 0, dst.count));
    ret.local.own = own;
    return ret;
}

static inline struct hoop_step hoop_step_barrier(enum hoop_local_op op)
{
    struct hoop_step ret = hoop_step_none();
    ret.local.op = (uint8_t)op;
    ret.local.src.member = HOOP_EVERY;
    return ret;
}

/* An algorithm is a sequence of phases with a number of steps each. True: step *k is in this phase,
 * and *k is its number there. False: *k is reduced to its number after the phase. */
static inline bool hoop_in_phase(uint64_t *k, uint64_t steps)
{
    if (*k < steps) {
        return true;
    }
    *k -= steps;
    return false;
}

/* A barrier as a phase of two steps. */
static inline bool hoop_in_barrier(uint64_t *k, struct hoop_step *ret)
{
    bool here = hoop_in_phase(k, 2);
    if (here) {
        *ret = hoop_step_barrier(*k == 0 ? HOOP_LOCAL_ARRIVE : HOOP_LOCAL_AWAIT);
    }
    return here;
}

/* The number of parts of at most `part` elements in count. */
static inline uint64_t hoop_parts(uint64_t count, uint64_t part)
{
    return count / part + (count % part != 0);
}

/* Part i of a range that is cut into parts of at most `part` elements; empty beyond the end. */
static inline struct hoop_range hoop_part(struct hoop_range range, uint64_t part, uint64_t i)
{
    if (i >= hoop_parts(range.count, part)) {
        return (struct hoop_range){range.off + range.count, 0};
    }
    uint64_t rest = range.count - i * part;
    return (struct hoop_range){range.off + i * part, rest < part ? rest : part};
}

/* ---- Over links ---- */

/* A single rank has no peers: it copies its input to its output. */
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

/* The rank at this distance after this one, or before it. */
static inline uint32_t hoop_rank_after(const struct hoop_plan *plan, uint64_t distance)
{
    return (uint32_t)((plan->me + distance) % plan->n);
}

static inline uint32_t hoop_rank_before(const struct hoop_plan *plan, uint64_t distance)
{
    return (uint32_t)((plan->me + plan->n - distance) % plan->n);
}

/* Adds a send to a step, unless it is empty; with even_nothing also then. */
static inline void hoop_step_send(struct hoop_step *step, uint32_t peer, struct hoop_ref from,
                                  bool even_nothing)
{
    if (from.count > 0 || even_nothing) {
        step->send.peer = (int32_t)peer;
        step->send.from = from;
    }
}

/* The same for a receive that copies. */
static inline void hoop_step_recv(struct hoop_step *step, uint32_t peer, struct hoop_ref to,
                                  bool even_nothing)
{
    if (to.count > 0 || even_nothing) {
        step->recv.peer = (int32_t)peer;
        step->recv.mode = HOOP_RECV_COPY;
        step->recv.to = to;
    }
}

/* The number of columns; part 0 is the largest. */
static inline uint64_t hoop_columns(const struct hoop_plan *plan)
{
    const uint64_t part =
        hoop_collective_is_blocked(plan->collective) ? plan->count : hoop_shard_of(plan, 0).count;
    return hoop_parts(part, plan->chunk);
}

/* Lane l runs columns l, l + lanes, ... one after the other, of `steps` steps each. True: step *k
 * of the lane is in column *ret, and *k is its number there. False: the lane is finished. */
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

/* The column's chunk of part `index` in this rank's IN or OUT; may be empty. */
static inline struct hoop_ref hoop_column_chunk(const struct hoop_plan *plan, enum hoop_space space,
                                                uint64_t index, uint64_t column)
{
    const struct hoop_range part =
        space == HOOP_SPACE_IN ? hoop_part_in(plan, index) : hoop_part_out(plan, index);
    const struct hoop_range chunk = hoop_part(part, plan->chunk, column);
    return hoop_ref_of(space, plan->me, chunk.off, chunk.count);
}

/* Adds the copy of a part's chunk from IN to OUT to a step, unless it is in place. */
static inline void hoop_step_keep(const struct hoop_plan *plan, struct hoop_step *step,
                                  uint64_t index, uint64_t column)
{
    const struct hoop_ref from = hoop_column_chunk(plan, HOOP_SPACE_IN, index, column);
    if (!plan->in_place && from.count > 0) {
        step->local.op = HOOP_LOCAL_COPY;
        step->local.dst = hoop_column_chunk(plan, HOOP_SPACE_OUT, index, column);
        step->local.src = from;
    }
}

/* ceil(log2 n) */
static inline uint64_t hoop_log2(uint64_t n)
{
    uint64_t ret = 0;
    while (ret < 64 && UINT64_C(1) << ret < n) {
        ret++;
    }
    return ret;
}

#endif

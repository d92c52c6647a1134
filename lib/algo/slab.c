/*
 * Slab: direct's idea for memory that nobody can map. Inputs go chunk by chunk through staging
 * memory, where rank r folds shard r of the chunk and writes the result to all slabs.
 *
 * Two slabs in turn: chunk c lies in slab c mod 2 of every rank. One barrier per chunk is enough,
 * because copying out and in touches only a rank's own other slab:
 *
 *     round c:  copy in chunk c | ARRIVE AWAIT | spread chunk c | copy out chunk c-1
 *
 * - The spread of c comes after everybody's copy in of c: barrier c lies between.
 * - The copy out of c-1 comes after everybody's spread of c-1, which they did before barrier c.
 * - The copy in of c+1 takes the slab of c-1: its owner has just copied it out, and the others
 *   were done with it at barrier c.
 * - The next operation copies in before its first barrier: all spreads of this one lie before the
 *   last barrier, and what comes after touches only own slabs.
 *
 * The last round only passes its barrier and copies out.
 */
#include "algo/local.h"
#include <assert.h>

enum slab_part { SLAB_IN, SLAB_ARRIVE, SLAB_AWAIT, SLAB_SPREAD, SLAB_OUT, SLAB_PARTS };

static struct hoop_ref slab_ref(const struct hoop_plan *plan, uint32_t member, uint64_t chunk,
                                uint64_t off, uint64_t count)
{
    return hoop_ref_of(HOOP_SPACE_SLAB, member, (chunk & 1) * plan->chunk + off, count);
}

static struct hoop_range slab_chunk(const struct hoop_plan *plan, uint64_t chunk)
{
    return hoop_part((struct hoop_range){0, plan->count}, plan->chunk, chunk);
}

static struct hoop_step slab_copy_in(const struct hoop_plan *plan, uint64_t chunk)
{
    struct hoop_range range = slab_chunk(plan, chunk);
    return hoop_step_local(HOOP_LOCAL_COPY, slab_ref(plan, plan->me, chunk, 0, range.count),
                           hoop_ref_of(HOOP_SPACE_IN, plan->me, range.off, range.count));
}

static struct hoop_step slab_copy_out(const struct hoop_plan *plan, uint64_t chunk)
{
    struct hoop_range range = slab_chunk(plan, chunk);
    return hoop_step_local(HOOP_LOCAL_COPY,
                           hoop_ref_of(HOOP_SPACE_OUT, plan->me, range.off, range.count),
                           slab_ref(plan, plan->me, chunk, 0, range.count));
}

static struct hoop_step slab_spread(const struct hoop_plan *plan, uint64_t chunk)
{
    uint64_t line = HOOP_LINE_BYTES / plan->type_bytes;
    struct hoop_range mine = hoop_shard(slab_chunk(plan, chunk).count, plan->n, plan->me, line);
    struct hoop_ref all = slab_ref(plan, HOOP_EVERY, chunk, mine.off, mine.count);
    return mine.count > 0 ? hoop_step_local(HOOP_LOCAL_SPREAD, all, all) : hoop_step_none();
}

/* Parts that a round has not (the first, the last, a short chunk) stay as empty steps. */
bool hoop_slab_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->chunk > 0);
    *ret = hoop_step_none();
    const uint64_t chunks = hoop_parts(plan->count, plan->chunk);
    const uint64_t round = k / SLAB_PARTS;
    if (lane > 0 || round > chunks) {
        return false;
    }
    enum slab_part part = (enum slab_part)(k % SLAB_PARTS);
    if (part == SLAB_IN && round < chunks) {
        *ret = slab_copy_in(plan, round);
    } else if (part == SLAB_ARRIVE || part == SLAB_AWAIT) {
        *ret = hoop_step_barrier(part == SLAB_ARRIVE ? HOOP_LOCAL_ARRIVE : HOOP_LOCAL_AWAIT);
    } else if (part == SLAB_SPREAD && round < chunks) {
        *ret = slab_spread(plan, round);
    } else if (part == SLAB_OUT && round > 0) {
        *ret = slab_copy_out(plan, round - 1);
    }
    return true;
}

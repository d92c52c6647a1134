/*
 * What all algorithms share: the cut into shards, and the table of step functions.
 */
#include "algo/step.h"
#include "base/sizes.h"
#include <assert.h>

/* With fewer bytes than this for each rank, a cut at whole lines would be felt as uneven. */
#define STEP_EVEN_BYTES 1024

/*
 * Whole units of `align` are dealt out, the first shards taking one more where they do not come out
 * even; only the last unit may be short. Nothing here multiplies before it has divided, so no
 * total overflows.
 */
struct hoop_range hoop_shard(uint64_t total, uint64_t parts, uint64_t index, uint64_t align)
{
    assert(align > 0 && index < parts);
    uint64_t units = total / align + (total % align != 0);
    uint64_t each = units / parts, more = units % parts;
    uint64_t first = index * each + (index < more ? index : more);
    uint64_t last = first + each + (index < more);
    uint64_t off = first < units ? first * align : total;
    uint64_t end = last < units ? last * align : total;
    return (struct hoop_range){off, end - off};
}

struct hoop_range hoop_shard_of(const struct hoop_plan *plan, uint64_t index)
{
    bool large = plan->count / plan->n >= STEP_EVEN_BYTES / plan->type_bytes;
    uint64_t align = large ? HOOP_LINE_BYTES / plan->type_bytes : 1;
    return hoop_shard(plan->count, plan->n, index, align);
}

hoop_step_fn *hoop_algo_steps(enum hoop_algo algo)
{
    static hoop_step_fn *const table[HOOP_ALGO_COUNT] = {
        [HOOP_ALGO_ONESHOT] = hoop_oneshot_step, [HOOP_ALGO_DIRECT] = hoop_direct_step,
        [HOOP_ALGO_SLAB] = hoop_slab_step,       [HOOP_ALGO_RING] = hoop_ring_step,
        [HOOP_ALGO_BRUCK] = hoop_bruck_step,     [HOOP_ALGO_PAIRWISE] = hoop_pairwise_step,
    };
    assert((unsigned)algo < HOOP_ALGO_COUNT);
    return table[algo];
}

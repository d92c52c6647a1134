/* Shared by all algorithms: the cut into shards, and the table of step functions. */
#include "algo/step.h"
#include "base/sizes.h"
#include <assert.h>

/* What every collective with data has where the ranks share memory. */
#define STEP_OVER_MEMORY                                                                           \
    [HOOP_ALGO_ONESHOT] = hoop_oneshot_step, [HOOP_ALGO_DIRECT] = hoop_direct_step,                \
    [HOOP_ALGO_SLAB] = hoop_slab_step, [HOOP_ALGO_CMA] = hoop_cma_step

/* With fewer bytes per rank than this, a cut at whole lines would make the shards uneven. */
#define STEP_EVEN_BYTES 1024

/* Distributes whole units of `align`; the first shards take one more if they do not divide evenly.
 * Only the last unit may be short. It divides before it multiplies, so that no total overflows. */
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

/* The range of part `index` in a buffer of this extent. */
static struct hoop_range step_part(const struct hoop_plan *plan, uint8_t extent, uint64_t index)
{
    if (!hoop_collective_is_blocked(plan->collective)) {
        return hoop_shard_of(plan, index);
    }
    return (struct hoop_range){hoop_extent_is_each(extent) ? index * plan->count : 0, plan->count};
}

struct hoop_range hoop_part_in(const struct hoop_plan *plan, uint64_t index)
{
    return step_part(plan, hoop_collectives[plan->collective].in, index);
}

struct hoop_range hoop_part_out(const struct hoop_plan *plan, uint64_t index)
{
    return step_part(plan, hoop_collectives[plan->collective].out, index);
}

hoop_step_fn *hoop_algo_steps(enum hoop_collective collective, enum hoop_algo algo)
{
    static hoop_step_fn *const table[HOOP_COLL_COUNT][HOOP_ALGO_COUNT] = {
        [HOOP_COLL_ALL_REDUCE] =
            {STEP_OVER_MEMORY, [HOOP_ALGO_RING] = hoop_ring_step,
             [HOOP_ALGO_BRUCK] = hoop_bruck_step, [HOOP_ALGO_PAIRWISE] = hoop_pairwise_step,
             [HOOP_ALGO_TORUS] = hoop_torus_step,
             [HOOP_ALGO_HIERARCHICAL] = hoop_hierarchical_step},
        [HOOP_COLL_BARRIER] = {[HOOP_ALGO_ONESHOT] = hoop_oneshot_step,
                               [HOOP_ALGO_BRUCK] = hoop_bruck_step,
                               [HOOP_ALGO_HIERARCHICAL] = hoop_hierarchical_step},
        [HOOP_COLL_REDUCE_SCATTER] =
            {STEP_OVER_MEMORY, [HOOP_ALGO_RING] = hoop_ring_step,
             [HOOP_ALGO_PAIRWISE] = hoop_pairwise_step, [HOOP_ALGO_TORUS] = hoop_torus_step,
             [HOOP_ALGO_HIERARCHICAL] = hoop_hierarchical_step},
        [HOOP_COLL_ALL_GATHER] =
            {STEP_OVER_MEMORY, [HOOP_ALGO_RING] = hoop_ring_step,
             [HOOP_ALGO_BRUCK] = hoop_bruck_step, [HOOP_ALGO_PAIRWISE] = hoop_pairwise_step,
             [HOOP_ALGO_TORUS] = hoop_torus_step,
             [HOOP_ALGO_HIERARCHICAL] = hoop_hierarchical_step},
        [HOOP_COLL_BROADCAST] = {STEP_OVER_MEMORY, [HOOP_ALGO_CHAIN] = hoop_chain_step,
                                 [HOOP_ALGO_BINOMIAL] = hoop_binomial_step,
                                 [HOOP_ALGO_HIERARCHICAL] = hoop_hierarchical_step},
        [HOOP_COLL_REDUCE] =
            {STEP_OVER_MEMORY, [HOOP_ALGO_PAIRWISE] = hoop_pairwise_step,
             [HOOP_ALGO_CHAIN] = hoop_chain_step, [HOOP_ALGO_BINOMIAL] = hoop_binomial_step,
             [HOOP_ALGO_HIERARCHICAL] = hoop_hierarchical_step},
        [HOOP_COLL_GATHER] = {STEP_OVER_MEMORY, [HOOP_ALGO_PAIRWISE] = hoop_pairwise_step,
                              [HOOP_ALGO_BINOMIAL] = hoop_binomial_step,
                              [HOOP_ALGO_HIERARCHICAL] = hoop_hierarchical_step},
        [HOOP_COLL_SCATTER] = {STEP_OVER_MEMORY, [HOOP_ALGO_PAIRWISE] = hoop_pairwise_step,
                               [HOOP_ALGO_BINOMIAL] = hoop_binomial_step,
                               [HOOP_ALGO_HIERARCHICAL] = hoop_hierarchical_step},
        [HOOP_COLL_ALLTOALL] = {STEP_OVER_MEMORY, [HOOP_ALGO_PAIRWISE] = hoop_pairwise_step,
                                [HOOP_ALGO_HIERARCHICAL] = hoop_hierarchical_step},
    };
    assert((unsigned)collective < HOOP_COLL_COUNT && (unsigned)algo < HOOP_ALGO_COUNT);
    return table[collective][algo];
}

/* The layout is in hierarchical.c. */
static uint64_t step_hierarchical_scratch(const struct hoop_plan *plan)
{
    const uint64_t most = plan->grid->most, machines = plan->grid->machines, n = plan->n;
    switch (plan->collective) {
    case HOOP_COLL_ALL_REDUCE:
        return (most - 1 + machines) * plan->count;
    case HOOP_COLL_REDUCE:
        return (most + machines) * plan->count;
    case HOOP_COLL_REDUCE_SCATTER:
        return (most * n + (machines + 1) * most) * plan->count;
    case HOOP_COLL_GATHER:
        return most * plan->count;
    case HOOP_COLL_SCATTER:
        return n * plan->count;
    case HOOP_COLL_ALLTOALL:
        return 2 * most * n * plan->count;
    default:
        return 0;
    }
}

uint64_t hoop_algo_scratch(const struct hoop_plan *plan)
{
    const uint64_t n = plan->n;
    switch (plan->algo) {
    case HOOP_ALGO_RING:
        return plan->collective == HOOP_COLL_REDUCE_SCATTER ? 2 * plan->chunk : 0;
    case HOOP_ALGO_TORUS:
        return plan->collective == HOOP_COLL_REDUCE_SCATTER
                   ? (plan->grid->machines + UINT64_C(1)) * plan->chunk
                   : 0;
    case HOOP_ALGO_HIERARCHICAL:
        return step_hierarchical_scratch(plan);
    case HOOP_ALGO_CHAIN:
        return plan->collective == HOOP_COLL_REDUCE ? 2 * plan->chunk : 0;
    case HOOP_ALGO_BRUCK:
        return plan->collective == HOOP_COLL_ALL_REDUCE ? n * plan->count : 0;
    case HOOP_ALGO_BINOMIAL:
        return plan->collective == HOOP_COLL_BROADCAST ? 0 : n * plan->count;
    case HOOP_ALGO_PAIRWISE:
        return hoop_collectives[plan->collective].folds
                   ? (n + (plan->collective == HOOP_COLL_REDUCE)) * plan->chunk
                   : 0;
    case HOOP_ALGO_CMA:
        return hoop_collectives[plan->collective].folds ? n * plan->chunk : 0;
    default:
        return 0;
    }
}

/* The choice of algorithm (see plan.h). docs/performance.md has the measurements behind it. */
#include "plan.h"

#include "board.h"

/* Least elements that make a slice or chunk of its own: below, its cost is all overhead. */
#define PLAN_SLICE_BYTES 262144u
#define PLAN_CHUNK_LEAST_BYTES 4096u
/* How many times larger a oneshot may be where ranks outnumber CPUs. */
#define PLAN_CROWDED 16u

bool hoop_plan_is_oneshot(const struct hoop_agreement *agreed, uint32_t n, uint64_t bytes)
{
    if (bytes > HOOP_ONESHOT_MAX_BYTES) {
        return false;
    }
    if (agreed->algo == HOOP_ALGO_ONESHOT || bytes == 0) {
        return true;
    }
    /* Everyone reads everything: what counts is all that a rank reads of the others. Where ranks
     * outnumber CPUs, a barrier more costs changes of context, worth reading a lot more. */
    const uint64_t most = agreed->oneshot_bytes * (agreed->crowded ? PLAN_CROWDED : 1);
    return agreed->algo == HOOP_ALGO_AUTO && bytes * (n - 1) <= most;
}

void hoop_plan_oneshot(uint32_t me, uint32_t n, uint64_t count, uint32_t type_bytes, bool in_place,
                       struct hoop_plan *ret)
{
    *ret = (struct hoop_plan){
        .algo = HOOP_ALGO_ONESHOT,
        .me = me,
        .n = n,
        .lanes = 1,
        .type_bytes = type_bytes,
        .in_place = in_place,
        .count = count,
        .chunk = count,
    };
}

static uint64_t plan_ceil(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static void plan_ring(const struct hoop_agreement *agreed, struct hoop_plan *plan)
{
    const uint64_t most = agreed->chunk_bytes / plan->type_bytes;
    const uint64_t least = PLAN_CHUNK_LEAST_BYTES / plan->type_bytes;
    const uint64_t shard = plan_ceil(plan->count, plan->n);
    /* Enough chunks that every lane has one, none larger than agreed, none senselessly small. */
    uint64_t chunk = plan_ceil(shard, agreed->lanes);
    chunk = chunk < least ? least : chunk;
    plan->chunk = chunk > most ? most : chunk;
    plan->lanes = agreed->lanes;
}

static void plan_direct(const struct hoop_reach *reach, struct hoop_plan *plan)
{
    plan->head = plan_ceil(reach->head_bytes, plan->type_bytes);
    plan->tail = plan_ceil(reach->tail_bytes, plan->type_bytes);
    if (plan->head >= plan->count) {
        plan->head = plan->count;
        plan->tail = 0;
    } else if (plan->tail > plan->count - plan->head) {
        plan->tail = plan->count - plan->head;
    }
    plan->chunk = PLAN_SLICE_BYTES / plan->type_bytes;
}

void hoop_plan_choose(const struct hoop_agreement *agreed, const struct hoop_reach *reach,
                      uint32_t me, uint32_t n, uint64_t count, uint32_t type_bytes, bool in_place,
                      struct hoop_plan *ret)
{
    struct hoop_plan plan = {
        .algo = HOOP_ALGO_SLAB,
        .me = me,
        .n = n,
        .lanes = 1,
        .type_bytes = type_bytes,
        .in_place = in_place,
        .count = count,
        .chunk = HOOP_SLAB_BYTES / type_bytes,
    };
    /* The ring's sums do not follow the rank order, so it never is the one answer. */
    const bool ring = agreed->algo == HOOP_ALGO_RING && agreed->order != HOOP_ORDER_RANK;
    if (ring) {
        plan.algo = HOOP_ALGO_RING;
        plan_ring(agreed, &plan);
    } else if (reach->mapped && agreed->algo != HOOP_ALGO_SLAB) {
        plan.algo = HOOP_ALGO_DIRECT;
        plan_direct(reach, &plan);
    }
    *ret = plan;
}

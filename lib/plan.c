/* The choice of algorithm (see plan.h). docs/performance.md has the measurements behind it. */
#include "plan.h"

#include "board.h"

#include <assert.h>

#define PLAN_SLICE_BYTES 262144u /* direct: what is written at once */
/* Over links: a chunk is cut no smaller only to give every lane one. */
#define PLAN_CHUNK_LEAST_BYTES 65536u
/* pairwise, where its scratch is short: a smaller chunk is all overhead. */
#define PLAN_CHUNK_SCRATCH_LEAST_BYTES 4096u
/* How many times larger a oneshot may be where ranks outnumber CPUs. */
#define PLAN_CROWDED 16u
/* What pairwise may take for its scratch, all lanes together, unless that makes senseless chunks.
 */
#define PLAN_SCRATCH_BYTES 4194304u

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

/* Enough chunks that every lane has one, none larger than most, none senselessly small. */
static void plan_lanes(const struct hoop_agreement *agreed, uint64_t most_bytes,
                       struct hoop_plan *plan)
{
    const uint64_t most = most_bytes / plan->type_bytes;
    const uint64_t least = PLAN_CHUNK_LEAST_BYTES / plan->type_bytes;
    const uint64_t shard = plan_ceil(plan->count, plan->n);
    uint64_t chunk = plan_ceil(shard, agreed->lanes);
    chunk = chunk < least ? least : chunk;
    plan->chunk = chunk > most ? most : chunk;
    plan->lanes = agreed->lanes;
}

static uint64_t plan_pairwise_chunk_bytes(const struct hoop_agreement *agreed, uint32_t n)
{
    assert(n > 0 && agreed->lanes > 0);
    const uint64_t fitting = PLAN_SCRATCH_BYTES / agreed->lanes / n;
    const uint64_t chunk = fitting < PLAN_CHUNK_SCRATCH_LEAST_BYTES ? PLAN_CHUNK_SCRATCH_LEAST_BYTES
                                                                    : fitting / 64 * 64;
    return chunk < agreed->chunk_bytes ? chunk : agreed->chunk_bytes;
}

/* In bruck's last step a rank sends up to half of everybody's vectors at once. */
static bool plan_bruck_fits(const struct hoop_agreement *agreed, uint32_t n, uint64_t bytes)
{
    return bytes <= agreed->chunk_bytes / (n > 1 ? n - n / 2 : 1);
}

/* The ring's sums do not follow the rank order, so it never is the one answer. */
static enum hoop_algo plan_asked(const struct hoop_agreement *agreed)
{
    const enum hoop_algo algo = (enum hoop_algo)agreed->algo;
    const bool refused = algo == HOOP_ALGO_RING && agreed->order == HOOP_ORDER_RANK;
    return refused ? HOOP_ALGO_AUTO : algo;
}

bool hoop_plan_is_over_links(enum hoop_algo algo)
{
    return algo == HOOP_ALGO_RING || algo == HOOP_ALGO_BRUCK || algo == HOOP_ALGO_PAIRWISE;
}

void hoop_plan_links(const struct hoop_agreement *agreed, uint32_t me, uint32_t n, uint64_t count,
                     uint32_t type_bytes, bool in_place, struct hoop_plan *ret)
{
    struct hoop_plan plan = {
        .algo = plan_asked(agreed),
        .me = me,
        .n = n,
        .lanes = 1,
        .type_bytes = type_bytes,
        .in_place = in_place,
        .count = count,
        .chunk = count > 0 ? count : 1,
    };
    const uint64_t bytes = count * type_bytes;
    const bool fits = plan_bruck_fits(agreed, n, bytes);
    if (!hoop_plan_is_over_links(plan.algo)) {
        const bool small = bytes <= agreed->bruck_bytes && fits;
        const bool ordered = agreed->order == HOOP_ORDER_RANK;
        plan.algo = small ? HOOP_ALGO_BRUCK : ordered ? HOOP_ALGO_PAIRWISE : HOOP_ALGO_RING;
    }
    /* With fewer elements than ranks the ring's first step is empty on some: nothing announces the
     * operation. Without any, bruck alone hears of all. */
    if (count == 0 || (plan.algo == HOOP_ALGO_RING && count < n)) {
        plan.algo = HOOP_ALGO_BRUCK;
    }
    if (plan.algo == HOOP_ALGO_BRUCK && !fits) {
        plan.algo = HOOP_ALGO_PAIRWISE;
    }
    if (plan.algo == HOOP_ALGO_RING) {
        plan_lanes(agreed, agreed->chunk_bytes, &plan);
    } else if (plan.algo == HOOP_ALGO_PAIRWISE) {
        plan_lanes(agreed, plan_pairwise_chunk_bytes(agreed, n), &plan);
    }
    *ret = plan;
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
    if (hoop_plan_is_over_links(plan_asked(agreed))) {
        hoop_plan_links(agreed, me, n, count, type_bytes, in_place, &plan);
    } else if (reach->mapped && agreed->algo != HOOP_ALGO_SLAB) {
        plan.algo = HOOP_ALGO_DIRECT;
        plan_direct(reach, &plan);
    }
    *ret = plan;
}

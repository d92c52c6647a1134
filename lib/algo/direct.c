/*
 * Direct: every rank has mapped everybody's buffers. Rank r reads shard r of all inputs once, in
 * rank order, and writes the result to all outputs: no copy, and each byte crosses the memory
 * once in and once out.
 *
 *     elements   0 .. head | shard 0 | shard 1 | ... | shard n-1 | tail
 *                every rank  '------- the interior: whole pages -------'  every rank
 *                for itself            rank r writes shard r               for itself
 *
 * No peer may write to the pages that the user's buffer shares with other data, so head and tail
 * are folded by everyone. The results wait in SCRATCH until the closing barrier: in place,
 * writing them earlier would change what others still read.
 */
#include "algo/local.h"
#include <assert.h>

/* With fewer pages than this for each rank, a cut at whole pages would be felt as uneven. */
#define DIRECT_EVEN_PAGES 16

struct direct_cut {
    uint64_t head, tail;    /* elements */
    struct hoop_range mine; /* my shard of the interior */
};

static struct direct_cut direct_cut(const struct hoop_plan *plan)
{
    struct direct_cut ret = {.head = plan->head, .tail = plan->tail};
    if (ret.head > plan->count || ret.tail > plan->count - ret.head) {
        ret.head = plan->count;
        ret.tail = 0;
    }
    uint64_t interior = plan->count - ret.head - ret.tail;
    uint64_t page = HOOP_PAGE_BYTES / plan->type_bytes, line = HOOP_LINE_BYTES / plan->type_bytes;
    bool large = interior / plan->n / page >= DIRECT_EVEN_PAGES;
    ret.mine = hoop_shard(interior, plan->n, plan->me, large ? page : line);
    ret.mine.off += ret.head;
    return ret;
}

/* Folds [off, +count) of all inputs to SCRATCH, or fetches the result from there. */
static struct hoop_step direct_edge(const struct hoop_plan *plan, bool fetch, uint64_t off,
                                    uint64_t count, uint64_t scratch)
{
    struct hoop_ref kept = hoop_ref_of(HOOP_SPACE_SCRATCH, plan->me, scratch, count);
    if (fetch) {
        return hoop_step_local(HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_OUT, plan->me, off, count),
                               kept);
    }
    return hoop_step_local(HOOP_LOCAL_REDUCE, kept,
                           hoop_ref_of(HOOP_SPACE_IN, HOOP_EVERY, off, count));
}

/* The steps at both ends: head, then tail, each if there is one. */
static bool direct_edges(const struct hoop_plan *plan, const struct direct_cut *cut, bool fetch,
                         uint64_t *k, struct hoop_step *ret)
{
    if (hoop_in_phase(k, cut->head > 0)) {
        *ret = direct_edge(plan, fetch, 0, cut->head, 0);
        return true;
    }
    if (hoop_in_phase(k, cut->tail > 0)) {
        *ret = direct_edge(plan, fetch, plan->count - cut->tail, cut->tail, cut->head);
        return true;
    }
    return false;
}

bool hoop_direct_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                      struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->chunk > 0);
    *ret = hoop_step_none();
    if (lane > 0) {
        return false;
    }
    struct direct_cut cut = direct_cut(plan);
    assert(cut.head + cut.tail <= HOOP_SCRATCH_BYTES / plan->type_bytes);
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    if (direct_edges(plan, &cut, false, &k, ret)) {
        return true;
    }
    if (hoop_in_phase(&k, hoop_parts(cut.mine.count, plan->chunk))) {
        struct hoop_range slice = hoop_part(cut.mine, plan->chunk, k);
        *ret = hoop_step_local(HOOP_LOCAL_SPREAD,
                               hoop_ref_of(HOOP_SPACE_OUT, HOOP_EVERY, slice.off, slice.count),
                               hoop_ref_of(HOOP_SPACE_IN, HOOP_EVERY, slice.off, slice.count));
        return true;
    }
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    return direct_edges(plan, &cut, true, &k, ret);
}

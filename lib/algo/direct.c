/*
 * Direct: every rank has mapped the buffers that it accesses. There is no copy, and each byte
 * crosses the memory once in and once out.
 *
 * Most collectives: a rank takes what it needs from its peers' inputs, slice by slice, and writes
 * only its own output. Then it copies its own block, and waits for those that take from its input.
 *
 * gather, if the root's output is mapped, too: each rank writes its block there, but for what lies
 * at the output's edges, which the root takes.
 *
 * all_reduce and reduce share the folding: rank r reads shard r of all inputs once, in rank order,
 * and writes the result to all outputs, or to the root's.
 *
 *     elements   0 .. head | shard 0 | shard 1 | ... | shard n-1 | tail
 *                every rank  '------- the interior: whole pages -------'  every rank
 *                for itself            rank r writes shard r               for itself
 *
 * On a device that all ranks share, the root, or rank 0, does the work of all: kernels and copies
 * of several processes would take turns of 0.1 ms each. If some ranks are launched and others wait,
 * the first that waits does it, on several devices, too. Where each rank acts, on several devices,
 * all that it does comes before it arrives: a launched kernel is told that at once.
 *
 * No peer may write to the pages that the user's buffer shares with other data, so every rank folds
 * head and tail itself. The results stay in SCRATCH until the closing barrier, because in place an
 * early write would change what others still read.
 *
 * cma is the same for memory that others can read but not write: in reduce the root takes all, and
 * in all_reduce each rank leaves its folded shard in its own output, from where all others copy it.
 *
 *     fold shard r of all inputs | ARRIVE AWAIT | copy shard s of rank s, s = r+1, r+2, ...
 */
#include "algo/taking.h"
#include <assert.h>

/* With fewer pages per rank than this, a cut at whole pages would make the shards uneven. */
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

/* Folds [off, +count) of all inputs to SCRATCH, or copies the result from there to the output. */
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

/* 1 if this rank folds an edge of that size: every rank with an output does, for itself. */
static uint64_t direct_has(const struct hoop_plan *plan, uint64_t edge)
{
    return edge > 0 && hoop_out_count(plan, plan->me) > 0;
}

/* The steps for the edges: head, then tail, each if there is one. */
static bool direct_edges(const struct hoop_plan *plan, const struct direct_cut *cut, bool fetch,
                         uint64_t *k, struct hoop_step *ret)
{
    if (hoop_in_phase(k, direct_has(plan, cut->head))) {
        *ret = direct_edge(plan, fetch, 0, cut->head, 0);
        return true;
    }
    if (hoop_in_phase(k, direct_has(plan, cut->tail))) {
        *ret = direct_edge(plan, fetch, plan->count - cut->tail, cut->tail, cut->head);
        return true;
    }
    return false;
}

/* Folds a slice of this rank's shard to all outputs, or to the root's. */
static struct hoop_step direct_share(const struct hoop_plan *plan, struct hoop_range slice)
{
    const bool rooted = plan->collective == HOOP_COLL_REDUCE;
    return hoop_step_local(
        rooted ? HOOP_LOCAL_REDUCE : HOOP_LOCAL_SPREAD,
        hoop_ref_of(HOOP_SPACE_OUT, rooted ? plan->root : HOOP_EVERY, slice.off, slice.count),
        hoop_ref_of(HOOP_SPACE_IN, HOOP_EVERY, slice.off, slice.count));
}

static bool direct_share_step(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    struct direct_cut cut = direct_cut(plan);
    assert(cut.head + cut.tail <= hoop_scratch_bytes() / plan->type_bytes);
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    if (direct_edges(plan, &cut, false, &k, ret)) {
        return true;
    }
    if (hoop_in_phase(&k, hoop_parts(cut.mine.count, plan->chunk))) {
        *ret = direct_share(plan, hoop_part(cut.mine, plan->chunk, k));
        return true;
    }
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    return direct_edges(plan, &cut, true, &k, ret);
}

/* Takes slice k of what this rank needs, source by source. */
static struct hoop_step direct_take(const struct hoop_plan *plan, uint64_t slices, uint64_t k)
{
    struct hoop_range slice =
        hoop_part((struct hoop_range){0, plan->count}, plan->chunk, k % slices);
    const uint64_t off = hoop_taken_off(plan) + slice.off;
    if (hoop_row_of(plan)->folds) {
        return hoop_step_local(HOOP_LOCAL_REDUCE,
                               hoop_ref_of(HOOP_SPACE_OUT, plan->me, slice.off, slice.count),
                               hoop_ref_of(HOOP_SPACE_IN, HOOP_EVERY, off, slice.count));
    }
    const uint32_t source = hoop_source(plan, k / slices);
    const uint64_t placed = hoop_placed_off(plan, source) + slice.off;
    return hoop_step_local(HOOP_LOCAL_COPY,
                           hoop_ref_of(HOOP_SPACE_OUT, plan->me, placed, slice.count),
                           hoop_ref_of(HOOP_SPACE_IN, source, off, slice.count));
}

static bool direct_take_step(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    const uint64_t slices = hoop_parts(plan->count, plan->chunk);
    const bool keeps = plan->at_once && hoop_keeps(plan);
    const struct hoop_range later = {0, keeps ? 0 : plan->count};
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    if (hoop_in_phase(&k, (hoop_takes(plan) + keeps) * slices)) {
        *ret = direct_take(plan, slices, k);
        return true;
    }
    return hoop_in_arrival(plan, later, &k, hoop_needing(plan), ret);
}

/* A gather's copy of what belongs to elements `range` of the output, all from one rank. */
static struct hoop_step direct_give(const struct hoop_plan *plan, uint32_t source,
                                    struct hoop_range range)
{
    return hoop_step_local(
        HOOP_LOCAL_COPY, hoop_ref_of(HOOP_SPACE_OUT, plan->root, range.off, range.count),
        hoop_ref_of(HOOP_SPACE_IN, source, range.off - source * plan->count, range.count));
}

/* The elements from `from` to `to` that belong to rank. */
static struct hoop_range direct_block(const struct hoop_plan *plan, uint64_t rank, uint64_t from,
                                      uint64_t to)
{
    const uint64_t off = rank * plan->count, end = off + plan->count;
    const uint64_t start = off > from ? off : from, stop = end < to ? end : to;
    return (struct hoop_range){start, stop > start ? stop - start : 0};
}

static bool direct_give_step(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    const bool root = plan->me == plan->root;
    const uint64_t all = plan->n * plan->count, last = all - plan->tail;
    const uint64_t block = plan->count > 0 ? plan->count : 1;
    const struct hoop_range mine = direct_block(plan, plan->me, plan->head, last);
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    if (hoop_in_phase(&k, hoop_parts(mine.count, plan->chunk))) {
        *ret = direct_give(plan, plan->me, hoop_part(mine, plan->chunk, k));
        return true;
    }
    if (hoop_in_phase(&k, root ? hoop_parts(plan->head, block) : 0)) {
        *ret = direct_give(plan, (uint32_t)k, direct_block(plan, k, 0, plan->head));
        return true;
    }
    const uint64_t first = last / block; /* whose block the tail begins in */
    if (hoop_in_phase(&k, root && plan->tail > 0 ? plan->n - first : 0)) {
        *ret = direct_give(plan, (uint32_t)(first + k), direct_block(plan, first + k, last, all));
        return true;
    }
    if (k == 0) {
        *ret = hoop_step_barrier(HOOP_LOCAL_ARRIVE);
    } else {
        *ret = hoop_step_await(root                          ? HOOP_EVERY
                               : plan->head + plan->tail > 0 ? plan->root
                                                             : plan->me);
    }
    return k < 2;
}

/* Piece k of the work of all ranks: one for each block of an input, and of an output. */
static struct hoop_step direct_act(const struct hoop_plan *plan, uint64_t k)
{
    const struct hoop_collective_row *row = hoop_row_of(plan);
    const uint64_t blocks = hoop_extent_is_each(row->in) ? plan->n : 1;
    const uint32_t in = (uint32_t)(k % blocks), out = (uint32_t)(k / blocks);
    const uint32_t to = row->out >= HOOP_EXTENT_ROOT_ONE ? plan->root
                        : blocks > 1                     ? in
                                                         : HOOP_EVERY;
    const uint32_t from = row->folds                        ? HOOP_EVERY
                          : row->in >= HOOP_EXTENT_ROOT_ONE ? plan->root
                                                            : out;
    return hoop_step_local(!row->folds        ? HOOP_LOCAL_COPY
                           : to == HOOP_EVERY ? HOOP_LOCAL_SPREAD
                                              : HOOP_LOCAL_REDUCE,
                           hoop_ref_of(HOOP_SPACE_OUT, to, out * plan->count, plan->count),
                           hoop_ref_of(HOOP_SPACE_IN, from, in * plan->count, plan->count));
}

static bool direct_act_step(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    const uint64_t pieces = hoop_collective_pieces(plan->collective, plan->n);
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    if (hoop_in_phase(&k, plan->me == plan->actor ? pieces : 0)) {
        *ret = direct_act(plan, k);
        return true;
    }
    return hoop_in_barrier(&k, ret);
}

bool hoop_direct_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                      struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->chunk > 0);
    hoop_step_clear(ret);
    if (lane > 0) {
        return false;
    }
    if (plan->one_acts) {
        return direct_act_step(plan, k, ret);
    }
    if (plan->gives) {
        return direct_give_step(plan, k, ret);
    }
    const bool shares = hoop_row_of(plan)->folds && !hoop_collective_is_blocked(plan->collective);
    return shares ? direct_share_step(plan, k, ret) : direct_take_step(plan, k, ret);
}

/* ---- cma: nobody writes to others' memory ---------------------------------------------------- */

/* Copies slice k of the shard that rank `source` has folded, or folds it if that is this rank. */
static struct hoop_step cma_slice(const struct hoop_plan *plan, uint32_t source, uint64_t k)
{
    const struct hoop_range shard =
        hoop_shard(plan->count, plan->n, source, HOOP_LINE_BYTES / plan->type_bytes);
    const struct hoop_range slice = hoop_part(shard, plan->chunk, k);
    const bool mine = source == plan->me;
    if (slice.count == 0) {
        return hoop_step_none();
    }
    return hoop_step_local(mine ? HOOP_LOCAL_REDUCE : HOOP_LOCAL_COPY,
                           hoop_ref_of(HOOP_SPACE_OUT, plan->me, slice.off, slice.count),
                           hoop_ref_of(mine ? HOOP_SPACE_IN : HOOP_SPACE_OUT,
                                       mine ? HOOP_EVERY : source, slice.off, slice.count));
}

static bool cma_share_step(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    const uint64_t largest =
        hoop_shard(plan->count, plan->n, 0, HOOP_LINE_BYTES / plan->type_bytes).count;
    const uint64_t slices = hoop_parts(largest, plan->chunk);
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    if (hoop_in_phase(&k, slices)) {
        *ret = cma_slice(plan, plan->me, k);
        return true;
    }
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    if (hoop_in_phase(&k, (plan->n - 1) * slices)) {
        *ret = cma_slice(plan, hoop_rank_after(plan, 1 + k / slices), k % slices);
        return true;
    }
    return hoop_in_barrier(&k, ret);
}

bool hoop_cma_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->chunk > 0);
    hoop_step_clear(ret);
    if (lane > 0) {
        return false;
    }
    return plan->collective == HOOP_COLL_ALL_REDUCE ? cma_share_step(plan, k, ret)
                                                    : direct_take_step(plan, k, ret);
}

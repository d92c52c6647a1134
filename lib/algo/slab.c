/*
 * Slab: direct's idea for memory that nobody can map. What ranks bring goes chunk by chunk through
 * staging memory, two slabs in turn: chunk c lies in slab c mod 2 of every rank.
 *
 * Most collectives: whoever brings something copies it in, everyone takes what it needs; what a
 * rank brings for itself goes straight to its place.
 *
 *     barrier | round c:  copy in chunk c | ARRIVE AWAIT | take chunk c
 *
 * all_reduce and reduce share the folding: rank r folds shard r of the chunk and writes the result
 * to all slabs, or the root's, and one round later whoever has an output copies it out.
 *
 *     barrier | round c:  copy in chunk c | ARRIVE AWAIT | fold chunk c | copy out chunk c-1
 *
 * One barrier per chunk is enough:
 * - What is done with chunk c behind barrier c comes after everybody's copy in of c.
 * - The copy out of c-1 comes after everybody's fold of c-1, which they did before barrier c.
 * - The copy in of c+1, behind barrier c, takes the slab of c-1: what the others did with it they
 *   did before barrier c, and its owner has copied it out.
 * - The barrier at the beginning is the announcement: whoever has seen it of all knows that nobody
 *   is in the operation before.
 *
 * Where ranks bring a block for each of the others, a chunk is a piece of every block, one behind
 * the other.
 */
#include "algo/taking.h"
#include <assert.h>

/* ---- Taking --------------------------------------------------------------------------------- */

struct slab_cut {
    uint64_t pieces; /* of a chunk: blocks that each rank brings, if it brings any */
    uint64_t piece;  /* elements of a whole one */
    uint64_t chunks;
    uint64_t copies; /* steps of this rank's copy in */
    uint64_t takes;  /* steps of its taking */
    uint64_t skips;  /* pieces that nobody else wants, from piece `me` on: 1 or 0 */
    bool whole;      /* all in one chunk, which lies there as it does in the input */
};

/* Does anybody but this rank want what it brings? Of a block for each, not the own one. */
static bool slab_brings(const struct hoop_plan *plan)
{
    return hoop_in_count(plan, plan->me) > 0 &&
           (hoop_row_of(plan)->folds || hoop_needing(plan) != plan->me);
}

static struct slab_cut slab_cut(const struct hoop_plan *plan)
{
    const struct hoop_collective_row *row = hoop_row_of(plan);
    const uint64_t me = plan->me;
    struct slab_cut ret = {.pieces = hoop_extent_blocks(row->in, plan->n, true)};
    ret.piece = ret.pieces > 0 ? plan->chunk / ret.pieces : plan->chunk;
    ret.skips = hoop_extent_is_each(row->in) && !row->folds;
    ret.whole = ret.piece >= plan->count && plan->count > 0;
    assert(ret.piece > 0);
    if (ret.whole) {
        ret.piece = plan->count;
    }
    if (slab_brings(plan)) {
        ret.copies = !ret.whole  ? ret.pieces - ret.skips
                     : ret.skips ? (uint64_t)(me > 0) + (me + 1 < ret.pieces)
                                 : 1;
    }
    ret.chunks = hoop_parts(plan->count, ret.piece);
    ret.takes = row->folds ? 1 : hoop_sources(plan);
    return ret;
}

static struct hoop_ref slab_ref(const struct hoop_plan *plan, uint32_t member, uint64_t chunk,
                                uint64_t off, uint64_t count)
{
    return hoop_ref_of(HOOP_SPACE_SLAB, member, (chunk & 1) * plan->chunk + off, count);
}

/* Pieces [first, first + pieces) of the chunk. */
static struct hoop_step slab_bring_pieces(const struct hoop_plan *plan, const struct slab_cut *cut,
                                          struct hoop_range range, uint64_t chunk, uint64_t first,
                                          uint64_t pieces)
{
    const uint64_t count = pieces * range.count;
    return hoop_step_local(
        HOOP_LOCAL_COPY, slab_ref(plan, plan->me, chunk, first * cut->piece, count),
        hoop_ref_of(HOOP_SPACE_IN, plan->me, first * plan->count + range.off, count));
}

static struct hoop_step slab_bring(const struct hoop_plan *plan, const struct slab_cut *cut,
                                   struct hoop_range range, uint64_t chunk, uint64_t i)
{
    const uint64_t me = plan->me;
    if (!cut->whole) {
        return slab_bring_pieces(plan, cut, range, chunk, i + (cut->skips && i >= me), 1);
    }
    if (!cut->skips) {
        return slab_bring_pieces(plan, cut, range, chunk, 0, cut->pieces);
    }
    return i == 0 && me > 0
               ? slab_bring_pieces(plan, cut, range, chunk, 0, me)
               : slab_bring_pieces(plan, cut, range, chunk, me + 1, cut->pieces - me - 1);
}

static struct hoop_step slab_take(const struct hoop_plan *plan, const struct slab_cut *cut,
                                  struct hoop_range range, uint64_t chunk, uint64_t i)
{
    const struct hoop_collective_row *row = hoop_row_of(plan);
    const bool each = hoop_extent_is_each(row->in);
    const uint32_t source = row->folds ? HOOP_EVERY : hoop_source(plan, i);
    const uint64_t placed = row->folds ? 0 : hoop_placed_off(plan, source);
    const struct hoop_ref to =
        hoop_ref_of(HOOP_SPACE_OUT, plan->me, placed + range.off, range.count);
    if (source == plan->me) { /* what is its own takes no detour */
        const uint64_t own = hoop_taken_off(plan) + range.off;
        return hoop_step_local(HOOP_LOCAL_COPY, to,
                               hoop_ref_of(HOOP_SPACE_IN, source, own, range.count));
    }
    return hoop_step_local(
        row->folds ? HOOP_LOCAL_REDUCE : HOOP_LOCAL_COPY, to,
        slab_ref(plan, source, chunk, each ? plan->me * cut->piece : 0, range.count));
}

static bool slab_take_step(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    const struct slab_cut cut = slab_cut(plan);
    const uint64_t steps = cut.copies + 2 + cut.takes;
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    const uint64_t chunk = k / steps;
    if (chunk >= cut.chunks) {
        return false;
    }
    k %= steps;
    const struct hoop_range range =
        hoop_part((struct hoop_range){0, plan->count}, cut.piece, chunk);
    if (hoop_in_phase(&k, cut.copies)) {
        *ret = slab_bring(plan, &cut, range, chunk, k);
    } else if (!hoop_in_barrier(&k, ret)) {
        *ret = slab_take(plan, &cut, range, chunk, k);
    }
    return true;
}

/* ---- Sharing the folding -------------------------------------------------------------------- */

enum slab_part { SLAB_IN, SLAB_ARRIVE, SLAB_AWAIT, SLAB_FOLD, SLAB_OUT, SLAB_PARTS };

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

static struct hoop_step slab_fold(const struct hoop_plan *plan, uint64_t chunk)
{
    const bool rooted = plan->collective == HOOP_COLL_REDUCE;
    uint64_t line = HOOP_LINE_BYTES / plan->type_bytes;
    struct hoop_range mine = hoop_shard(slab_chunk(plan, chunk).count, plan->n, plan->me, line);
    if (mine.count == 0) {
        return hoop_step_none();
    }
    struct hoop_ref all = slab_ref(plan, HOOP_EVERY, chunk, mine.off, mine.count);
    struct hoop_ref to = all;
    to.member = rooted ? plan->root : HOOP_EVERY;
    return hoop_step_local(rooted ? HOOP_LOCAL_REDUCE : HOOP_LOCAL_SPREAD, to, all);
}

/*
 * Parts that a round has not (the first, the last, a short chunk) stay as empty steps. The last
 * round has no chunk: only its barrier, which is for whoever copies out.
 */
static bool slab_share_step(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    if (hoop_in_barrier(&k, ret)) {
        return true;
    }
    const uint64_t chunks = hoop_parts(plan->count, plan->chunk);
    const uint64_t round = k / SLAB_PARTS;
    const bool out = hoop_out_count(plan, plan->me) > 0;
    if (round > chunks || chunks == 0) {
        return false;
    }
    enum slab_part part = (enum slab_part)(k % SLAB_PARTS);
    if (part == SLAB_IN && round < chunks) {
        *ret = slab_copy_in(plan, round);
    } else if (part == SLAB_ARRIVE || (part == SLAB_AWAIT && (out || round < chunks))) {
        *ret = hoop_step_barrier(part == SLAB_ARRIVE ? HOOP_LOCAL_ARRIVE : HOOP_LOCAL_AWAIT);
    } else if (part == SLAB_FOLD && round < chunks) {
        *ret = slab_fold(plan, round);
    } else if (part == SLAB_OUT && round > 0 && out) {
        *ret = slab_copy_out(plan, round - 1);
    }
    return true;
}

bool hoop_slab_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->chunk > 0);
    *ret = hoop_step_none();
    if (lane > 0) {
        return false;
    }
    const bool shares = hoop_row_of(plan)->folds && !hoop_collective_is_blocked(plan->collective);
    return shares ? slab_share_step(plan, k, ret) : slab_take_step(plan, k, ret);
}

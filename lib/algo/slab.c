/*
 * Slab: direct's idea for memory that nobody can map. What ranks bring goes chunk by chunk through
 * staging memory, two slabs in turn: chunk c lies in slab c mod 2 of every rank.
 *
 * Most collectives: whoever brings something copies it in, everyone takes what it needs; what a
 * rank brings for itself goes straight to its place while the others come.
 *
 *     barrier | round c:  copy in chunk c | ARRIVE own AWAIT | take chunk c
 *
 * all_reduce and reduce share the folding: rank r brings all of a chunk but shard r, which it folds
 * from the others' slabs and its own input, to its output and all the other slabs, or only to the
 * root's; one round later whoever has an output copies out what the others have folded.
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
 *
 * Where all bring and take some, whoever takes memory in one turn brings there in the next. It has
 * it in its cache then, and writes 2 to 6 times as fast as who wrote it last and would have to
 * fetch it back. A turn is two rounds, one for each slab. In every turn a rank brings what all take
 * to the slab of the rank before the last; and what is for one rank alone in one turn to its own
 * slab, in the next to that rank's, where it takes it. (Where the folding is shared, results come
 * back the same way.)
 */
#include "algo/taking.h"
#include <assert.h>

/* ---- Taking --------------------------------------------------------------------------------- */

struct slab_cut {
    uint64_t pieces; /* of a chunk: blocks that each rank brings, if it brings any */
    uint64_t piece;  /* elements of a whole one */
    uint64_t chunks;
    uint64_t copies; /* steps of this rank's copy in */
    uint64_t skips;  /* pieces that nobody else wants, from piece `me` on: 1 or 0 */
    bool whole;      /* all in one chunk, which lies there as it does in the input */
};

static uint64_t slab_turn(const struct hoop_plan *plan, uint64_t chunk)
{
    return hoop_collective_is_rooted(plan->collective) ? 0 : plan->turn + chunk / 2;
}

/* Does what is for one rank alone lie in that rank's slab, by who brings it? */
static bool slab_is_handed(const struct hoop_plan *plan, uint64_t chunk)
{
    return hoop_extent_is_each(hoop_row_of(plan)->in) && slab_turn(plan, chunk) % 2 == 1;
}

static struct slab_cut slab_cut(const struct hoop_plan *plan)
{
    const struct hoop_collective_row *row = hoop_row_of(plan);
    struct slab_cut ret = {.pieces = hoop_extent_blocks(row->in, plan->n, true)};
    ret.piece = ret.pieces > 0 ? plan->chunk / ret.pieces : plan->chunk;
    ret.skips = hoop_extent_is_each(row->in);
    assert(ret.piece > 0);
    if (ret.piece >= plan->count && plan->count > 0) {
        ret.piece = plan->count;
        ret.whole = !slab_is_handed(plan, 0);
    }
    if (hoop_blocks_for_others(plan->collective, plan->n, plan->me == plan->root) > 0) {
        ret.copies = ret.whole ? HOOP_BROUGHT_PIECES : ret.pieces - ret.skips;
    }
    ret.chunks = hoop_parts(plan->count, ret.piece);
    return ret;
}

static struct hoop_ref slab_ref(const struct hoop_plan *plan, uint32_t member, uint64_t chunk,
                                uint64_t off, uint64_t count)
{
    return hoop_ref_of(HOOP_SPACE_SLAB, member, (chunk & 1) * plan->chunk + off, count);
}

/* Where what `from` brings for `to`, or for all, lies. */
static struct hoop_ref slab_pair_ref(const struct hoop_plan *plan, const struct slab_cut *cut,
                                     uint32_t from, uint32_t to, uint64_t chunk, uint64_t count)
{
    if (slab_is_handed(plan, chunk)) {
        return slab_ref(plan, to, chunk, from * count, count);
    }
    if (hoop_extent_is_each(hoop_row_of(plan)->in)) {
        return slab_ref(plan, from, chunk, to * cut->piece, count);
    }
    const uint64_t back = slab_turn(plan, chunk) % plan->n;
    return slab_ref(plan, (uint32_t)((from + plan->n - back) % plan->n), chunk, 0, count);
}

static struct hoop_step slab_bring(const struct hoop_plan *plan, const struct slab_cut *cut,
                                   struct hoop_range range, uint64_t chunk, uint64_t i)
{
    const uint64_t block = i + (cut->skips && i >= plan->me);
    struct hoop_range from = {block * plan->count + range.off, range.count};
    struct hoop_ref to = slab_pair_ref(plan, cut, plan->me, (uint32_t)block, chunk, from.count);
    if (cut->whole) {
        from = hoop_brought(plan, i);
        to = slab_pair_ref(plan, cut, plan->me, 0, chunk, from.count);
        to.off += from.off;
    }
    return from.count == 0
               ? hoop_step_none()
               : hoop_step_local(HOOP_LOCAL_COPY, to,
                                 hoop_ref_of(HOOP_SPACE_IN, plan->me, from.off, from.count));
}

static struct hoop_step slab_take(const struct hoop_plan *plan, const struct slab_cut *cut,
                                  struct hoop_range range, uint64_t chunk, uint64_t i)
{
    const struct hoop_collective_row *row = hoop_row_of(plan);
    const uint32_t source = row->folds ? 0 : hoop_source(plan, i);
    const uint64_t placed = row->folds ? 0 : hoop_placed_off(plan, source);
    const struct hoop_ref to =
        hoop_ref_of(HOOP_SPACE_OUT, plan->me, placed + range.off, range.count);
    struct hoop_ref from = slab_pair_ref(plan, cut, source, plan->me, chunk, range.count);
    if (!row->folds) {
        return hoop_step_local(HOOP_LOCAL_COPY, to, from);
    }
    from.member = slab_is_handed(plan, chunk) ? plan->me : HOOP_EVERY;
    struct hoop_step ret = hoop_step_local(HOOP_LOCAL_REDUCE, to, from);
    ret.local.own = hoop_own_taken(plan, range);
    return ret;
}

static bool slab_take_step(const struct hoop_plan *plan, uint64_t k, struct hoop_step *ret)
{
    const struct slab_cut cut = slab_cut(plan);
    const uint64_t takes = hoop_takes(plan), steps = cut.copies + 2 + hoop_keeps(plan) + takes;
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
    } else if (!hoop_in_arrival(plan, range, &k, HOOP_EVERY, ret)) {
        *ret = slab_take(plan, &cut, range, chunk, k);
    }
    return true;
}

/* ---- Sharing the folding -------------------------------------------------------------------- */

/* What a rank brings and gets of a chunk: all but its own shard, in two pieces. */
#define SLAB_PIECES 2

struct slab_share {
    struct hoop_range chunk; /* of the vector */
    struct hoop_range mine;  /* of the chunk: what this rank folds */
};

static struct slab_share slab_share(const struct hoop_plan *plan, uint64_t chunk)
{
    struct slab_share ret = {
        .chunk = hoop_part((struct hoop_range){0, plan->count}, plan->chunk, chunk)};
    ret.mine = hoop_shard(ret.chunk.count, plan->n, plan->me, HOOP_LINE_BYTES / plan->type_bytes);
    return ret;
}

/* A range of the chunk, in my input or output. */
static struct hoop_ref slab_of_vector(const struct hoop_plan *plan, const struct slab_share *share,
                                      enum hoop_space space, struct hoop_range range)
{
    return hoop_ref_of(space, plan->me, share->chunk.off + range.off, range.count);
}

/* Piece i of the chunk: from my input to my slab, or from there to my output. */
static struct hoop_step slab_piece(const struct hoop_plan *plan, uint64_t chunk, uint64_t i,
                                   enum hoop_space space)
{
    const struct slab_share share = slab_share(plan, chunk);
    const uint64_t behind = share.mine.off + share.mine.count;
    const struct hoop_range range = i == 0
                                        ? (struct hoop_range){0, share.mine.off}
                                        : (struct hoop_range){behind, share.chunk.count - behind};
    const struct hoop_ref slab = slab_ref(plan, plan->me, chunk, range.off, range.count);
    const struct hoop_ref user = slab_of_vector(plan, &share, space, range);
    if (range.count == 0) {
        return hoop_step_none();
    }
    return space == HOOP_SPACE_IN ? hoop_step_local(HOOP_LOCAL_COPY, slab, user)
                                  : hoop_step_local(HOOP_LOCAL_COPY, user, slab);
}

/* My own shard is folded where I have it, and the result goes where I want it. */
static struct hoop_step slab_fold(const struct hoop_plan *plan, uint64_t chunk)
{
    const struct slab_share share = slab_share(plan, chunk);
    const bool rooted = plan->collective == HOOP_COLL_REDUCE;
    const struct hoop_ref all = slab_ref(plan, HOOP_EVERY, chunk, share.mine.off, share.mine.count);
    const struct hoop_ref out = slab_of_vector(plan, &share, HOOP_SPACE_OUT, share.mine);
    struct hoop_ref to = all;
    if (share.mine.count == 0) {
        return hoop_step_none();
    }
    if (rooted) {
        to.member = plan->root;
        to = plan->me == plan->root ? out : to;
    }
    struct hoop_step ret = hoop_step_local(rooted ? HOOP_LOCAL_REDUCE : HOOP_LOCAL_SPREAD, to, all);
    ret.local.own = slab_of_vector(plan, &share, HOOP_SPACE_IN, share.mine);
    ret.local.kept = rooted ? ret.local.kept : out;
    return ret;
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
    const uint64_t steps = 2 * SLAB_PIECES + 3, round = k / steps;
    const bool out = hoop_out_count(plan, plan->me) > 0;
    if (round > chunks || chunks == 0) {
        return false;
    }
    k %= steps;
    if (hoop_in_phase(&k, SLAB_PIECES)) {
        *ret = slab_piece(plan, round, k, HOOP_SPACE_IN);
    } else if (hoop_in_phase(&k, 2)) {
        if (k == 0 || out || round < chunks) {
            *ret = hoop_step_barrier(k == 0 ? HOOP_LOCAL_ARRIVE : HOOP_LOCAL_AWAIT);
        }
    } else if (hoop_in_phase(&k, 1)) {
        *ret = slab_fold(plan, round);
    } else if (out && round > 0) {
        *ret = slab_piece(plan, round - 1, k, HOOP_SPACE_OUT);
    }
    return true;
}

static bool slab_shares(const struct hoop_plan *plan)
{
    return hoop_row_of(plan)->folds && !hoop_collective_is_blocked(plan->collective);
}

uint32_t hoop_slab_turns(const struct hoop_plan *plan)
{
    return slab_shares(plan) ? 0 : (uint32_t)((slab_cut(plan).chunks + 1) / 2);
}

bool hoop_slab_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->chunk > 0);
    hoop_step_clear(ret);
    if (lane > 0) {
        return false;
    }
    return slab_shares(plan) ? slab_share_step(plan, k, ret) : slab_take_step(plan, k, ret);
}

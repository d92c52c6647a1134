/*
 * Slab: the idea of direct, for memory that cannot be mapped. What ranks contribute goes chunk by
 * chunk through staging memory, in two alternating slabs: chunk c lies in slab c mod 2 of every
 * rank. Collectives with a root may use plan.slabs of them, starting behind the last slab of the
 * previous operation.
 *
 * Most collectives: every rank that contributes copies its data in, and every rank takes what it
 * needs. A rank copies its own block straight to its place while the others come.
 *
 *     barrier | round c:  copy in chunk c | ARRIVE own AWAIT | take chunk c
 *
 * all_reduce and reduce share the folding: rank r copies in all of a chunk except shard r, which it
 * folds from the others' slabs and its own input, to its output and all other slabs, or only to the
 * root's. One round later every rank with an output copies out what the others have folded.
 *
 *     barrier | round c:  copy in chunk c | ARRIVE AWAIT | fold chunk c | copy out chunk c-1
 *
 * One barrier per chunk is enough:
 * - What is done with chunk c after barrier c comes after all ranks have copied c in.
 * - The copy out of c-1 comes after all folds of c-1, which were done before barrier c.
 * - The copy in of c+1, after barrier c, uses the slab of c-1 or an older one: the others finished
 *   with it before barrier c, and its owner has copied it out.
 * - The barrier at the beginning is the announcement: a rank that has seen all ranks announce knows
 *   that nobody is still in the previous operation.
 *
 * If ranks contribute a block for each other rank, a chunk is a piece of every block, one after the
 * other.
 *
 * If all ranks contribute and take, slabs rotate: the rank that takes from memory in one turn
 * writes there in the next. It then has that memory in its cache, and writes 2 to 6 times as fast
 * as the rank that wrote it last, which would have to fetch it back. A turn is two rounds, one for
 * each slab. What all ranks take goes, each turn, to the slab of the rank before the one of the
 * last turn. What is for one rank alone goes alternately to the contributor's own slab and to the
 * slab of the rank that takes it. (Where the folding is shared, results come back the same way.)
 *
 * If there is a root, the rank that writes a slab reads none, and would have to fetch the slab from
 * its reader's cache. So it returns to a slab late, when the slab has left that cache for one that
 * both share.
 */
#include "algo/taking.h"
#include <assert.h>

/* ---- Taking --------------------------------------------------------------------------------- */

struct slab_cut {
    uint64_t pieces; /* of a chunk: the blocks that a contributing rank has */
    uint64_t piece;  /* elements of a full one */
    uint64_t chunks;
    uint64_t copies; /* steps in which this rank copies a chunk in */
    uint64_t skips;  /* pieces, from `me` on, that nobody else needs: 1 or 0 */
    bool whole;      /* one chunk, with the input's layout */
};

static uint64_t slab_turn(const struct hoop_plan *plan, uint64_t chunk)
{
    return hoop_collective_is_rooted(plan->collective) ? 0 : plan->turn + chunk / 2;
}

/* In this turn, do blocks for one rank lie in that rank's slab, ordered by contributor? */
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

/* The slab of a chunk. */
static uint64_t slab_at(const struct hoop_plan *plan, uint64_t chunk)
{
    const bool rooted = hoop_collective_is_rooted(plan->collective);
    return (rooted ? plan->turn + chunk : chunk) % plan->slabs;
}

static struct hoop_ref slab_ref(const struct hoop_plan *plan, uint32_t member, uint64_t chunk,
                                uint64_t off, uint64_t count)
{
    return hoop_ref_of(HOOP_SPACE_SLAB, member, slab_at(plan, chunk) * plan->chunk + off, count);
}

/* Where the data of `from` lie that are for `to`, or for all. */
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

/* A rank copies in and out all of a chunk but its own shard: two pieces. */
#define SLAB_PIECES 2

struct slab_share {
    struct hoop_range chunk; /* of the vector */
    struct hoop_range mine;  /* of the chunk: the shard that this rank folds */
};

static struct slab_share slab_share(const struct hoop_plan *plan, uint64_t chunk)
{
    struct slab_share ret = {
        .chunk = hoop_part((struct hoop_range){0, plan->count}, plan->chunk, chunk)};
    ret.mine = hoop_shard(ret.chunk.count, plan->n, plan->me, HOOP_LINE_BYTES / plan->type_bytes);
    return ret;
}

/* A range of the chunk in this rank's input or output. */
static struct hoop_ref slab_of_vector(const struct hoop_plan *plan, const struct slab_share *share,
                                      enum hoop_space space, struct hoop_range range)
{
    return hoop_ref_of(space, plan->me, share->chunk.off + range.off, range.count);
}

/* Copies piece i of the chunk from this rank's input to its slab, or from there to its output. */
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

/* The own shard is read from the input, and its result written straight to the output. */
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

/* Parts that a round lacks (the first, the last, a short chunk) remain as empty steps. The last
 * round has no chunk, only the barrier before the copy out. */
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
    if (hoop_collective_is_rooted(plan->collective)) {
        return (uint32_t)(slab_shares(plan) ? hoop_parts(plan->count, plan->chunk)
                                            : slab_cut(plan).chunks);
    }
    return slab_shares(plan) ? 0 : (uint32_t)((slab_cut(plan).chunks + 1) / 2);
}

bool hoop_slab_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->me < plan->n && plan->chunk > 0 && plan->slabs > 1);
    hoop_step_clear(ret);
    if (lane > 0) {
        return false;
    }
    return slab_shares(plan) ? slab_share_step(plan, k, ret) : slab_take_step(plan, k, ret);
}

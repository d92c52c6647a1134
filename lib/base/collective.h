/*
 * The one table of collectives: the name of each, how much every rank contributes and receives, and
 * whether it reduces. Argument checks, error messages, plans, the algorithms' partitions and the
 * tests derive from it: a new collective is a line here, its step functions (lib/algo/step.h) and
 * its entry point.
 *
 * Sizes are in blocks of `count` elements, where count is the caller's argument:
 *
 *     NONE       nothing
 *     ONE        one block on every rank
 *     EACH       n blocks on every rank; block r comes from, or goes to, rank r
 *     ROOT_ONE   one block on the root, nothing elsewhere
 *     ROOT_EACH  n blocks on the root, nothing elsewhere
 *
 * alltoallv has no `count`: its sizes are in its transfers (lib/api/alltoallv.c).
 *
 * In place: if input and output have the same number of blocks, both buffers are the same memory.
 * If one is larger, the smaller is its block `rank`. EACH on both sides cannot run in place.
 */
#ifndef HOOP_COLLECTIVE_H
#define HOOP_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, name, in, out, folds) */
#define HOOP_COLLECTIVES(X)                                                                        \
    X(ALL_REDUCE, "all_reduce", ONE, ONE, true)                                                    \
    X(BARRIER, "barrier", NONE, NONE, false)                                                       \
    X(REDUCE_SCATTER, "reduce_scatter", EACH, ONE, true)                                           \
    X(ALL_GATHER, "all_gather", ONE, EACH, false)                                                  \
    X(BROADCAST, "broadcast", ROOT_ONE, ONE, false)                                                \
    X(REDUCE, "reduce", ONE, ROOT_ONE, true)                                                       \
    X(GATHER, "gather", ONE, ROOT_EACH, false)                                                     \
    X(SCATTER, "scatter", ROOT_EACH, ONE, false)                                                   \
    X(ALLTOALL, "alltoall", EACH, EACH, false)                                                     \
    X(ALLTOALLV, "alltoallv", NONE, NONE, false)

/* The numbers are sent to other ranks. */
enum hoop_collective {
#define HOOP_COLLECTIVE_ENUM(NAME, name, in, out, folds) HOOP_COLL_##NAME,
    HOOP_COLLECTIVES(HOOP_COLLECTIVE_ENUM)
#undef HOOP_COLLECTIVE_ENUM
        HOOP_COLL_COUNT,
    HOOP_TRANSFER = HOOP_COLL_COUNT /* not a collective: a transfer from one rank to another */
};

enum hoop_extent {
    HOOP_EXTENT_NONE,
    HOOP_EXTENT_ONE,
    HOOP_EXTENT_EACH,
    HOOP_EXTENT_ROOT_ONE,
    HOOP_EXTENT_ROOT_EACH,
};

struct hoop_collective_row {
    const char *name;
    uint8_t in, out; /* enum hoop_extent */
    bool folds;      /* reduces, so it has an op */
};

static const struct hoop_collective_row hoop_collectives[HOOP_COLL_COUNT] = {
#define HOOP_COLLECTIVE_ROW(NAME, name, in, out, folds)                                            \
    [HOOP_COLL_##NAME] = {name, HOOP_EXTENT_##in, HOOP_EXTENT_##out, folds},
    HOOP_COLLECTIVES(HOOP_COLLECTIVE_ROW)
#undef HOOP_COLLECTIVE_ROW
};

static inline bool hoop_collective_is_rooted(enum hoop_collective collective)
{
    return hoop_collectives[collective].in >= HOOP_EXTENT_ROOT_ONE ||
           hoop_collectives[collective].out >= HOOP_EXTENT_ROOT_ONE;
}

/* Number of blocks of an extent among n ranks, for the root or for another rank. */
static inline uint64_t hoop_extent_blocks(uint8_t extent, uint64_t n, bool root)
{
    switch ((enum hoop_extent)extent) {
    case HOOP_EXTENT_ONE:
        return 1;
    case HOOP_EXTENT_EACH:
        return n;
    case HOOP_EXTENT_ROOT_ONE:
        return root ? 1 : 0;
    case HOOP_EXTENT_ROOT_EACH:
        return root ? n : 0;
    case HOOP_EXTENT_NONE:
        break;
    }
    return 0;
}

static inline bool hoop_extent_is_each(uint8_t extent)
{
    return extent == HOOP_EXTENT_EACH || extent == HOOP_EXTENT_ROOT_EACH;
}

/* If one rank did the work of n: in how many pieces, each a fold or a copy, to one rank or all? */
static inline uint64_t hoop_collective_pieces(enum hoop_collective collective, uint64_t n)
{
    const struct hoop_collective_row *row = &hoop_collectives[collective];
    return (hoop_extent_is_each(row->in) ? n : 1) * (hoop_extent_is_each(row->out) ? n : 1);
}

/*
 * True: the vector consists of one block per rank, and a side with a single block holds the rank's
 * own. False: every rank handles the whole vector of `count` elements, which algorithms cut into
 * shards.
 */
static inline bool hoop_collective_is_blocked(enum hoop_collective collective)
{
    return hoop_extent_is_each(hoop_collectives[collective].in) ||
           hoop_extent_is_each(hoop_collectives[collective].out);
}

#endif

/*
 * Steps: what an algorithm is made of.
 *
 * An algorithm is a pure function (plan, lane, k) -> step. It does no I/O, owns no memory, reads no
 * clock and keeps no state: the same arguments always give the same step. Two executors carry steps
 * out: lib/exec/engine.c over links, lib/exec/board_steps.c over memory that ranks share. A third,
 * in tests/fakes/interpreter.c, checks every algorithm symbolically.
 *
 * Rules
 * - Lanes are independent: they run concurrently and share no link.
 * - Steps of one lane are serial, except in rounds: all parts of step k are posted together, and
 *   step k+1 is asked for only when all of them are done.
 * - The bytes of a send may be read at any time until the step is done.
 * - The k-th send of a lane on a link meets the k-th receive of that lane at the other end. Both
 *   have the same count, which may be 0, and the same step number (so that ranks never wait for
 *   each other in a circle).
 * - No part of a step writes what another part of it reads or writes, because a local part may be
 *   done before the others are posted (as the engine does) or after. So what is received in one
 *   step is folded in another.
 * - Rounds: a step with `more` set need not be done before the next step of its lane is asked for.
 *   A round ends with the first step without `more`. The rule above then holds for the parts of
 *   all its steps, and no two of its steps send to, or receive from, the same rank.
 *
 *            send ----> link to peer
 *   step k   recv <---- link from peer, copied or folded into `to`
 *            local      a part without links: barriers, folds, copies
 *
 * Over shared memory a step is a local part only. Over links there are no barriers, a rank accesses
 * only its own memory, and a local part is COPY, or REDUCE of SCRATCH.
 *
 * The first step. An operation over links announces itself by its first chunks: in lane 0, step 0
 * sends to rank me+1 and receives from me-1 (mod n), even if the chunk is empty. So two neighbours
 * in different operations meet, whatever these are, and the header of the chunk tells each about
 * the other's. With the ring this holds if count >= n.
 *
 * hierarchical differs, and finds a mismatch all the same. There a rank may receive from me-1 in a
 * later step, before which it only sends; the last rank of a machine sends to me+1 when it has
 * heard from all of its machine or, if it is alone there, from me-1; and a root that collects may
 * first receive from others of its machine. But some rank is not the last of its machine, and sends
 * without waiting. From there on each rank hears from the one before it, until two neighbours are
 * in different operations, or a rank waits for one of its machine that is in another operation;
 * then two neighbours on that machine are in different ones.
 *
 * Barriers. An operation on shared memory consists of phases that all ranks pass together: ARRIVE
 * says "I have finished all my steps before this", AWAIT waits until every rank has said so as
 * often as this one. If step 0 is ARRIVE, it and the AWAIT after it are the announcement, which is
 * made and seen before the plan is chosen.
 *
 * Sets. No barrier closes an operation. What operation k announces and publishes lies in set k mod
 * D of D sets, and is not overwritten by operation k + D before all have completed k. So a rank
 * that begins operation k must have seen all ranks arrive in k - D + 1. If an AWAIT waits for fewer
 * than all, the operation is owed: up to hoop_may_owe(D) operations before k may be. The executor
 * chooses D and keeps track of what is owed.
 */
#ifndef HOOP_ALGO_STEP_H
#define HOOP_ALGO_STEP_H

#include "base/collective.h"
#include "base/settings.h"
#include "base/sizes.h"
#include <stdbool.h>
#include <string.h>

/*
 * The space in which the elements of a ref lie; offsets count elements from its start. The table of
 * collectives gives the sizes of IN and OUT: hoop_in_count(), hoop_out_count(). In place, the
 * smaller one is block `rank` of the larger, or both are the same memory.
 */
enum hoop_space {
    HOOP_SPACE_IN,  /* a rank's send buffer; written only as OUT, in place */
    HOOP_SPACE_OUT, /* a rank's receive buffer */
    /* Private to a rank: hoop_scratch_bytes(); over links plan.scratch elements per lane; with cma
     * the executor's own. */
    HOOP_SPACE_SCRATCH,
    HOOP_SPACE_ONESHOT, /* what a rank published, at the offsets of its input */
    HOOP_SPACE_SLAB,    /* a rank's staging memory, which all may read and write: its slabs */
};

#define HOOP_ONESHOT_MAX_BYTES ((size_t)262144)

/* Room for what lies before the first whole page of a buffer and after its last: a plan's head and
 * tail are at most a page each. */
static inline size_t hoop_scratch_bytes(void)
{
    return 2 * hoop_page_bytes();
}

/*
 * member: a rank of the comm, or HOOP_EVERY: one vector of each rank, in rank order. In SCRATCH
 * these vectors of `count` elements are contiguous and ordered by distance, as they arrive over
 * links: this rank's first, then that of the rank before it; rank r's is number (me - r) mod n.
 */
#define HOOP_EVERY UINT32_MAX

static inline uint32_t hoop_may_owe(uint32_t sets)
{
    return sets - 2;
}

/* A round of bruck sends to one rank fewer, so that many steps are under way at once. */
#define HOOP_RADIX_MOST 8u

struct hoop_ref {
    uint8_t space; /* enum hoop_space */
    uint32_t member;
    uint64_t off;   /* elements */
    uint64_t count; /* elements */
};

enum hoop_recv_mode {
    HOOP_RECV_COPY,       /* to := received */
    HOOP_RECV_REDUCE,     /* to := received op own, which is the right operand */
    HOOP_RECV_REDUCE_LAST /* the same, and the last fold of these elements: avg divides here */
};

enum hoop_local_op {
    HOOP_LOCAL_NONE,
    HOOP_LOCAL_ARRIVE,
    HOOP_LOCAL_AWAIT, /* for src.member: HOOP_EVERY, or one rank */
    /* dst (one member's OUT or SLAB, or mine) := src (one member's, mine if dst is not); by a
     * worker also every member's OUT, from any member's */
    HOOP_LOCAL_COPY,
    /*
     * dst (one member's) := the fold of every member's src in rank order, or of n contiguous
     * vectors in my SLAB; avg divides. Over links: of every rank's vector, mine being `own`; or of
     * the contiguous vectors that src holds, followed by `own`.
     */
    HOOP_LOCAL_REDUCE,
    HOOP_LOCAL_SPREAD /* every member's dst := the same fold */
};

struct hoop_step {
    struct {
        int32_t peer; /* < 0: no send */
        struct hoop_ref from;
    } send;
    struct {
        int32_t peer; /* < 0: no receive */
        uint8_t mode; /* enum hoop_recv_mode */
        struct hoop_ref to;
        struct hoop_ref own; /* REDUCE: the right operand: IN, SCRATCH or `to` */
    } recv;
    struct {
        uint8_t op; /* enum hoop_local_op */
        struct hoop_ref dst, src;
        /* Parts of this rank's buffers, unused if count is 0. */
        struct hoop_ref own;  /* REDUCE, SPREAD: my vector, apart from the others' */
        struct hoop_ref kept; /* SPREAD, over memory: my result, apart from the others' */
        bool undivided;       /* REDUCE, over links: not the last fold, so avg does not divide */
    } local;
    bool more; /* the round continues with the next step */
};

/*
 * How ranks are spread over several machines, at least one of which has several ranks. Every rank
 * has a place: places are numbered machine by machine, and by rank within a machine. Links between
 * machines are the scarcest resource of such a comm.
 */
struct hoop_grid {
    uint32_t machines;       /* > 1 */
    uint32_t each;           /* ranks of every machine; 0: the numbers differ */
    uint32_t most;           /* ranks of the largest machine, > 1 */
    const uint32_t *ranks;   /* [n], by place */
    const uint32_t *places;  /* [n], by rank */
    const uint32_t *machine; /* [n], by rank */
    const uint32_t *first;   /* [machines + 1]: lowest rank of each, n; NULL unless place = rank */
};

/* The algorithm chosen for one operation, with its parameters: all that an algorithm may know. The
 * same on all ranks except for `me` and in_place. */
struct hoop_plan {
    enum hoop_collective collective;
    enum hoop_algo algo;
    uint32_t me, n, root; /* root: 0 where there is none */
    uint32_t lanes;       /* >= 1 */
    uint32_t radix;       /* bruck: 2 to HOOP_RADIX_MOST */
    uint32_t type_bytes;  /* 1, 2, 4 or 8 */
    bool in_place;        /* of this rank; no algorithm may depend on the others' */
    uint64_t count;       /* elements of a block (base/collective.h): as the caller passed it */
    /* Elements; ring, chain, pairwise: largest chunk; bruck, binomial: at least count; slab: size
     * of a slab; direct, cma: largest slice. */
    uint64_t chunk;
    /* Elements; over links SCRATCH of a lane, with cma room to fold what is read:
     * hoop_algo_scratch(). */
    uint64_t scratch;
    uint64_t head, tail; /* direct: elements at either end that no peer may write */
    bool at_once;  /* direct: a rank copies its own block with the others, before it arrives */
    bool one_acts; /* direct: `actor` does the work of all ranks */
    bool gives;    /* direct: in a gather each rank writes its block to the root's output */
    uint32_t actor;
    uint32_t slabs; /* slab: how many chunks a rank's staging memory holds */
    /* slab: how many times two slabs have rotated; in a collective with a root how many chunks went
     * before. */
    uint32_t turn;
    const struct hoop_grid *grid; /* torus, hierarchical; NULL: there is none */
};

/* Number of elements of rank's IN and OUT. */
static inline uint64_t hoop_in_count(const struct hoop_plan *plan, uint32_t rank)
{
    const uint8_t extent = hoop_collectives[plan->collective].in;
    return hoop_extent_blocks(extent, plan->n, rank == plan->root) * plan->count;
}

static inline uint64_t hoop_out_count(const struct hoop_plan *plan, uint32_t rank)
{
    const uint8_t extent = hoop_collectives[plan->collective].out;
    return hoop_extent_blocks(extent, plan->n, rank == plan->root) * plan->count;
}

/* Writes step k (0, 1, ...) of a lane to *ret, all of it, and returns true. False: the lane has no
 * step k, nor any later one. */
typedef bool hoop_step_fn(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                          struct hoop_step *ret);

/*
 * ring: scatter-reduce, then allgather, 2(n-1) steps per chunk column (Patarasuk and Yuan 2009).
 * Rank r finishes shard r; shard s is summed in the order s+1, s+2, ..., s (mod n). Over links.
 */
hoop_step_fn hoop_ring_step;

/*
 * torus: rings inside the machines of plan.grid, rings between them, and rings inside again: the
 * steps and bytes of one ring through all ranks, but fewer bytes leave a machine (2D torus: Mikami
 * and others 2018). Over links.
 */
hoop_step_fn hoop_torus_step;

/* oneshot: all ranks publish what others need of their input, and all fold. count*type_bytes <=
 * HOOP_ONESHOT_MAX_BYTES. The announcement carries the data, which saves a phase. */
hoop_step_fn hoop_oneshot_step;

/*
 * direct: all ranks have mapped all buffers. Rank r reads shard r of all inputs once and writes the
 * result to all outputs. Every rank folds the first `head` and last `tail` elements for itself,
 * through SCRATCH, because peers write whole pages only.
 */
hoop_step_fn hoop_direct_step;

/*
 * cma: others can read a buffer, but only its owner writes it: by cross-memory attach a rank reads
 * another's plain memory in one copy. Every rank takes what it needs; in all_reduce rank r folds
 * shard r, and all others copy it from there.
 */
hoop_step_fn hoop_cma_step;

/* slab: the same through staging memory, chunk by chunk in alternating slabs: for plain memory. */
hoop_step_fn hoop_slab_step;

/* What plan.turn must be increased by after this operation by slab. */
uint32_t hoop_slab_turns(const struct hoop_plan *plan);

/*
 * bruck: every rank gathers all vectors in ceil(log n) rounds to the base plan.radix, each of which
 * multiplies the number it has by the radix (Bruck and others 1997), and folds them in rank order;
 * with radix n in one round. Over links, for vectors dominated by latency; with no elements it is a
 * barrier. Lane 0 only; plan.chunk >= count, and a send takes up to n/2 vectors.
 */
hoop_step_fn hoop_bruck_step;

/*
 * hierarchical: the last rank of each machine folds what its machine's ranks contribute, and sends
 * the sum to the first rank of each machine, which folds the sums and hands the result to its
 * machine: one message from each machine to each other. reduce and gather do the first half of
 * this, broadcast and scatter the second. For vectors dominated by latency where machines have
 * several ranks, with consecutive numbers (plan.grid.first). Lane 0 only; plan.chunk >= count, and
 * a send takes up to hoop_hierarchical_blocks(). Over links.
 */
hoop_step_fn hoop_hierarchical_step;

/* Number of blocks in the largest message of hierarchical. */
uint64_t hoop_hierarchical_blocks(const struct hoop_plan *plan);

/*
 * pairwise: rank r gathers the parts of shard r from all ranks, folds them in rank order, and sends
 * the result to all: as many bytes as with the ring, n-1 links each way, and sums in rank order.
 * Columns of at most plan.chunk elements of every shard; lane l runs columns l, l+lanes, ... Over
 * links.
 */
hoop_step_fn hoop_pairwise_step;

/* chain: over links, for large rooted vectors: a pipeline of chunks through rank root, root+1, ...
 * (broadcast), or root+1, root+2, ..., root (reduce, which adds in this order). */
hoop_step_fn hoop_chain_step;

/*
 * binomial: over links, small rooted vectors in ceil(log2 n) steps along a binomial tree; reduce
 * gathers, and the root folds in rank order.
 */
hoop_step_fn hoop_binomial_step;

/*
 * Early: may a sender write what its receiver copies into OUT as soon as the operation has begun at
 * the receiver, long before that step? It may if nobody has the data for a place before the
 * receiver no longer needs that place. In a ring, gathered data are a block that the receiver does
 * not access, or a sum that includes the receiver's own contribution, which it therefore no longer
 * needs there. In a broadcast the receiver accesses nothing.
 */
static inline bool hoop_plan_is_early(const struct hoop_plan *plan)
{
    const bool ring = plan->algo == HOOP_ALGO_RING || plan->algo == HOOP_ALGO_TORUS;
    return (ring && plan->collective != HOOP_COLL_REDUCE_SCATTER) ||
           (plan->algo == HOOP_ALGO_CHAIN && plan->collective == HOOP_COLL_BROADCAST);
}

/*
 * Kept: does a rank receive single vectors into SCRATCH that only the next fold reads, together
 * with all others that were received there? Then each may stay in its link's memory until that
 * fold. Only if they are few.
 */
static inline bool hoop_plan_keeps(const struct hoop_plan *plan)
{
    const struct hoop_grid *grid = plan->grid;
    switch (plan->algo) {
    case HOOP_ALGO_BRUCK:
        return plan->radix >= plan->n;
    case HOOP_ALGO_PAIRWISE:
        return plan->n <= HOOP_RADIX_MOST;
    case HOOP_ALGO_HIERARCHICAL:
        return hoop_collectives[plan->collective].folds && grid->most <= HOOP_RADIX_MOST &&
               grid->machines < HOOP_RADIX_MOST;
    default:
        return false;
    }
}

/*
 * Owed: does an empty message received in step 0 of lane 0 serve only to announce the operation, so
 * that the rank need not wait for it? Without a root all ranks wait for all anyway; and in an
 * operation of no elements every message is needed.
 */
static inline bool hoop_plan_owes(const struct hoop_plan *plan)
{
    return plan->count > 0 && hoop_collective_is_rooted(plan->collective);
}

/* The step function of an algorithm for a collective; NULL: the algorithm cannot do it. */
hoop_step_fn *hoop_algo_steps(enum hoop_collective collective, enum hoop_algo algo);

/* The value of plan.scratch, for a plan that is otherwise complete. */
uint64_t hoop_algo_scratch(const struct hoop_plan *plan);

/* Makes *ret a step that does nothing. In place, because copying a struct that was just written
 * field by field would stall on those stores. */
static inline void hoop_step_clear(struct hoop_step *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->send.peer = ret->recv.peer = -1;
}

static inline struct hoop_step hoop_step_none(void)
{
    struct hoop_step ret;
    hoop_step_clear(&ret);
    return ret;
}

/* The part of `total` elements that belongs to `index` of `parts`, cut at multiples of align. */
struct hoop_range {
    uint64_t off, count;
};
struct hoop_range hoop_shard(uint64_t total, uint64_t parts, uint64_t index, uint64_t align);

/* Shard `index` of a plan's vector for ring and pairwise, cut at multiples of 64 bytes, or of one
 * element where that would make the shards uneven. None is empty if count >= n. */
struct hoop_range hoop_shard_of(const struct hoop_plan *plan, uint64_t index);

/*
 * Rank index's part of the whole vector: a block of a blocked collective, else a shard. Its range
 * in IN and in OUT: the same where the buffer holds all parts; at 0 where it holds one block, the
 * rank's own.
 */
struct hoop_range hoop_part_in(const struct hoop_plan *plan, uint64_t index);
struct hoop_range hoop_part_out(const struct hoop_plan *plan, uint64_t index);

#endif

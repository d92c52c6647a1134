/*
 * Steps: what an algorithm is made of.
 *
 * An algorithm is a pure function (plan, lane, k) -> step. It does no I/O, owns no memory, reads no
 * clock and keeps no state: the same arguments give the same step for ever. Two executors carry
 * steps out: lib/exec/engine.c over links, lib/exec/board_steps.c over memory that ranks share. A
 * third, in tests/fakes/interpreter.c, checks every algorithm by symbols.
 *
 * Rules
 * - Lanes are independent: they run concurrently and share no link.
 * - Steps of one lane are serial, but for rounds: all parts of step k are posted together, the step
 *   is done when all are, only then step k+1 is asked for.
 * - A send's bytes may be read at any time until the step is done.
 * - The k-th send of a lane on a link meets the k-th receive of that lane on its other end; both
 *   have the same count, which may be 0, and the same number of step (so that ranks never wait for
 *   each other in a circle).
 * - No part of a step writes what another part of it reads or writes: a local part may be done
 *   before the others are posted (the engine does so) or behind them. So what was received in a
 *   step is folded in another.
 * - Rounds: a step that says `more` need not be done before the next one of its lane is asked for.
 *   So what is said of the parts of one step holds for all of a round, which ends with the first
 *   step that does not say it; and no two of its steps send to, or receive from, the same rank.
 *
 *            send ----> link to peer
 *   step k   recv <---- link from peer, copied or folded into `to`
 *            local      a part without links: barriers, folds, copies
 *
 * Over shared memory a step is a local part only. Over links there are no barriers, a rank touches
 * no memory but its own, and a local part is COPY, or REDUCE of SCRATCH.
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
 * Barriers. An operation on shared memory consists of phases that all ranks pass together:
 * ARRIVE says "I have finished all my steps before this", AWAIT waits until every rank has said so
 * as often as I have. Where step 0 is ARRIVE, it and the AWAIT behind it are the announcement,
 * which is made and seen before the plan is chosen.
 *
 * Sets. No barrier closes an operation. What operation k announces and publishes lies in set k mod
 * D of D sets, and is not overwritten by operation k + D before all have completed k. So a rank
 * that begins operation k must have seen all ranks arrive in k - D + 1. If an AWAIT waits for fewer
 * than all, the operation is owed: up to D - 1 operations before k may be. The executor chooses D
 * and keeps track of what is owed.
 */
#ifndef HOOP_ALGO_STEP_H
#define HOOP_ALGO_STEP_H

#include "base/collective.h"
#include "base/settings.h"
#include "base/sizes.h"
#include <stdbool.h>
#include <string.h>

/*
 * Where the elements of a ref lie. Offsets are elements from the space's start. How large IN and
 * OUT are says the table of collectives: hoop_in_count(), hoop_out_count(). In place, the smaller
 * is block `rank` of the larger, or both are the same memory.
 */
enum hoop_space {
    HOOP_SPACE_IN,      /* a rank's send buffer; never written but as OUT in place */
    HOOP_SPACE_OUT,     /* a rank's receive buffer */
    HOOP_SPACE_SCRATCH, /* private memory of a rank: hoop_scratch_bytes() of it; over links
                           each lane's own plan.scratch elements. With cma it is the executor's */
    HOOP_SPACE_ONESHOT, /* a rank's published copy of what others need of its input, which keeps its
                           offsets: HOOP_ONESHOT_MAX_BYTES */
    HOOP_SPACE_SLAB,    /* a rank's staging memory that all may read and write: two slabs */
};

#define HOOP_ONESHOT_MAX_BYTES ((size_t)262144)

/* Room for what lies before the first whole page of a buffer and behind its last: head and tail of
 * a plan are a page each, at most. */
static inline size_t hoop_scratch_bytes(void)
{
    return 2 * hoop_page_bytes();
}

/*
 * member: a rank of the comm; HOOP_EVERY: one vector for each rank, in rank order. In SCRATCH these
 * vectors of `count` elements follow each other without a gap, room for mine first, then that of
 * the rank before it: rank r's is number (me - r) mod n, which is how they come in over links.
 */
#define HOOP_EVERY UINT32_MAX

static inline uint32_t hoop_may_owe(uint32_t sets)
{
    return sets - 2;
}

/* A round of bruck sends to one rank fewer: so many steps are on their way at once. */
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
    HOOP_LOCAL_AWAIT,  /* of src.member: HOOP_EVERY, or one rank */
    HOOP_LOCAL_COPY,   /* dst (mine, or a member's SLAB) := src (one member's) */
    HOOP_LOCAL_REDUCE, /* dst (one member's) := fold of every member's src in rank order, or of the
                          n vectors that follow each other in my SLAB; avg divides. Or, over links,
                          of everybody's, mine being `own`; or of the vectors that make up a src of
                          mine, and of `own` behind them */
    HOOP_LOCAL_SPREAD  /* every member's dst := the same fold */
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
        struct hoop_ref own; /* REDUCE: the right operand, of to.count elements: in IN, in
                                SCRATCH, or `to` itself */
    } recv;
    struct {
        uint8_t op; /* enum hoop_local_op */
        struct hoop_ref dst, src;
        /* Mine; without elements there is none. */
        struct hoop_ref own;  /* REDUCE, SPREAD: my vector, which is not with the others' */
        struct hoop_ref kept; /* SPREAD, over memory: my result, which is not with the others' */
        bool undivided;       /* REDUCE, over links: not the last fold, avg divides later */
    } local;
    bool more; /* the round goes on */
};

/*
 * How ranks are spread over machines, of which one has several at least. Each has its place:
 * machine by machine, of a machine rising. The links between machines are what such a comm has
 * least of.
 */
struct hoop_grid {
    uint32_t machines;       /* > 1 */
    uint32_t each;           /* ranks of every machine; 0: they have not equally many */
    uint32_t most;           /* ranks of the machine that has most, > 1 */
    const uint32_t *ranks;   /* [n], by place */
    const uint32_t *places;  /* [n], by rank */
    const uint32_t *machine; /* [n], by rank */
    const uint32_t *first;   /* [machines + 1]: the lowest rank of each, then n, if ranks are their
                                places; NULL: they are not */
};

/*
 * The algorithm chosen for one operation, with its parameters: the same on all ranks but for `me`
 * and in_place. Everything an algorithm may know.
 */
struct hoop_plan {
    enum hoop_collective collective;
    enum hoop_algo algo;
    uint32_t me, n, root; /* root: 0 where there is none */
    uint32_t lanes;       /* >= 1 */
    uint32_t radix;       /* bruck: 2 to HOOP_RADIX_MOST */
    uint32_t type_bytes;  /* 1, 2, 4 or 8 */
    bool in_place;        /* of this rank; no algorithm may need to know the others' */
    uint64_t count;       /* elements of a block (base/collective.h): as the caller says it */
    uint64_t chunk;   /* elements: ring, chain, pairwise: largest chunk; bruck, binomial: at least
                         count; slab: elements of one slab; direct, cma: largest slice at once */
    uint64_t scratch; /* elements of a lane's SCRATCH over links, or with cma of room for what is
                         read of others to be folded: hoop_algo_scratch() */
    uint64_t head, tail; /* direct: elements at either end that no peer may write */
    bool one_folds;      /* direct: not each rank its share, but `folder` all of them */
    uint32_t folder;
    uint32_t turn;                /* slab: so often have the slabs gone round */
    const struct hoop_grid *grid; /* torus, hierarchical; NULL: there is none */
};

/* Elements of rank's IN and OUT. */
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

/*
 * Writes step k (0, 1, ...) of a lane to *ret and returns true; false: the lane is finished.
 * k beyond the end gives false too. *ret is wholly written.
 */
typedef bool hoop_step_fn(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                          struct hoop_step *ret);

/*
 * ring: scatter-reduce, then allgather, 2(n-1) steps per chunk column (Patarasuk and Yuan 2009).
 * Rank r finishes shard r; shard s is summed in the order s+1, s+2, ..., s (mod n). Over links.
 */
hoop_step_fn hoop_ring_step;

/*
 * torus: rings inside the machines of plan.grid, rings between them, and rings inside again: the
 * steps and bytes of one ring through all ranks, of which fewer leave a machine (2D torus: Mikami
 * and others 2018). Over links.
 */
hoop_step_fn hoop_torus_step;

/* oneshot: everyone publishes what others need of its input, everyone folds all. count*type_bytes
 * <= HOOP_ONESHOT_MAX_BYTES. Two phases in one: the announcement carries the data. */
hoop_step_fn hoop_oneshot_step;

/*
 * direct: all buffers are mapped by all. Rank r reads shard r of all inputs once and writes the
 * result to all outputs. The first `head` and last `tail` elements are folded by every rank for
 * itself, through SCRATCH, because peers write whole pages only.
 */
hoop_step_fn hoop_direct_step;

/*
 * cma: buffers that others may read and nobody else writes: cross-memory attach, by which a rank
 * reads another's plain memory in one copy. Every rank takes what it needs; all_reduce folds shard
 * r on rank r, and then everybody takes it from there.
 */
hoop_step_fn hoop_cma_step;

/* slab: the same over staging memory, chunk by chunk, two slabs in turn: for plain memory. */
hoop_step_fn hoop_slab_step;

/* By how much more plan.turn is to be in the next operation by slab. */
uint32_t hoop_slab_turns(const struct hoop_plan *plan);

/*
 * bruck: every rank gathers everybody's vector in ceil(log n) rounds to the base plan.radix,
 * multiplying what it has by that (Bruck and others 1997), and folds them in rank order: with
 * radix n in one round. Over links, for vectors that are latency; with no elements it is a barrier.
 * Lane 0 only; plan.chunk >= count, and a send takes up to n/2 vectors.
 */
hoop_step_fn hoop_bruck_step;

/*
 * hierarchical: the last rank of each machine folds what its machine's ranks bring, and sends that
 * to the first rank of each, which folds the sums and hands the result to its machine: one message
 * from each machine to each other. reduce and gather do the first half of it, broadcast and scatter
 * the second. For vectors that are latency where machines have several ranks, which follow each
 * other (plan.grid.first). Lane 0 only; plan.chunk >= count, and a send takes up to
 * hoop_hierarchical_blocks(). Over links.
 */
hoop_step_fn hoop_hierarchical_step;

/* Blocks of the largest message of it. */
uint64_t hoop_hierarchical_blocks(const struct hoop_plan *plan);

/*
 * pairwise: rank r gathers everybody's part of shard r from its owner, folds them in rank order,
 * and hands the result to everybody: the bytes of the ring, n-1 links each way, and the one answer.
 * Columns of at most plan.chunk elements of every shard, lane l runs columns l, l+lanes, ... Over
 * links.
 */
hoop_step_fn hoop_pairwise_step;

/*
 * chain: over links, large rooted vectors in one direction: rank root, root+1, ... (broadcast), or
 * root+1, root+2, ..., root (reduce, in this order of additions), chunk behind chunk.
 */
hoop_step_fn hoop_chain_step;

/*
 * binomial: over links, small rooted vectors in ceil(log2 n) steps along a binomial tree; reduce
 * gathers, and the root folds in rank order.
 */
hoop_step_fn hoop_binomial_step;

/*
 * Early: what a rank receives by copying into its OUT may be put there by the sender as soon as the
 * operation has begun at the receiver, long before its step. So it is where nobody has what belongs
 * there before the receiver is through with the place: in a ring, what is gathered is a block that
 * the receiver does not touch, or a sum that its own contribution has gone into, and has left it
 * for; in a broadcast the receiver touches nothing.
 */
static inline bool hoop_plan_is_early(const struct hoop_plan *plan)
{
    const bool ring = plan->algo == HOOP_ALGO_RING || plan->algo == HOOP_ALGO_TORUS;
    return (ring && plan->collective != HOOP_COLL_REDUCE_SCATTER) ||
           (plan->algo == HOOP_ALGO_CHAIN && plan->collective == HOOP_COLL_BROADCAST);
}

/*
 * Kept: what a rank receives into SCRATCH is one vector, and read by the next fold only, which
 * takes all that was received there: so it may stay where the link has it until then. There are
 * few.
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
 * Owed: what a rank receives in step 0 of lane 0, if it is nothing, announces the operation and
 * does no more, so the rank need not wait for it. Where there is no root all wait for all anyway;
 * and of no elements every message is one that is waited for.
 */
static inline bool hoop_plan_owes(const struct hoop_plan *plan)
{
    return plan->count > 0 && hoop_collective_is_rooted(plan->collective);
}

/* The function of an algorithm for a collective; NULL: it cannot do it. */
hoop_step_fn *hoop_algo_steps(enum hoop_collective collective, enum hoop_algo algo);

/* plan.scratch, of a plan that is complete but for that. */
uint64_t hoop_algo_scratch(const struct hoop_plan *plan);

/* A step that does nothing, to be filled in; where it lies, as a copy of what was just written in
 * smaller parts would wait for them. */
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

/* The part of total elements that falls to `index` of `parts`, cut at multiples of align. */
struct hoop_range {
    uint64_t off, count;
};
struct hoop_range hoop_shard(uint64_t total, uint64_t parts, uint64_t index, uint64_t align);

/*
 * Where ring and pairwise cut: shard `index` of a plan's vector, at multiples of 64 bytes, or of
 * one element where that would leave the shards uneven. None is empty if count >= n.
 */
struct hoop_range hoop_shard_of(const struct hoop_plan *plan, uint64_t index);

/*
 * The part of the whole vector that is rank index's: a block of a blocked collective, else a shard.
 * In IN and in OUT: the same range where the buffer holds all parts, and at 0 where it holds one
 * block, which is then the rank's own.
 */
struct hoop_range hoop_part_in(const struct hoop_plan *plan, uint64_t index);
struct hoop_range hoop_part_out(const struct hoop_plan *plan, uint64_t index);

#endif

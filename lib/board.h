/*
 * The board: the memory that all ranks of a comm on one machine share, and the executor of steps
 * over it. It has a place for every rank of the comm, also for those of other machines: the failure
 * record and `left` are kept for these by what is heard of them, the rest of their places is
 * unused.
 *
 *   segment (one memfd per comm, mapped by every rank, zero at birth)
 *   +--------------------------------------------------------------------------------------+
 *   | head: failure record | sleeping[n]                                                   |
 *   | rank 0: arrived | pulse, left | current operation | gates[n] | cells 2 x 8           |
 *   | rank 1: ...                                                                          |
 *   | oneshot: n x 2 x 64 KiB   | slabs: n x 2 x 256 KiB          (pages appear when used) |
 *   +--------------------------------------------------------------------------------------+
 *
 * Every line has one writer, the rank it belongs to (the failure record: whoever claims it first),
 * so no atomic read-modify-write is needed but for gates.
 *
 * Cells. A cell is a line: 56 bytes of data, 8 of tag: sequence (32) | signature (32). The data of
 * all cells are stored first, the tag of the first cell last with release; who reads the expected
 * sequence there with acquire has the data. Operation k uses the cells k mod 2. They are free
 * again: a rank that completed operation k-1 has seen everybody's cells of k-1, written after
 * everybody completed k-2. So no closing barrier is needed; the same holds for the oneshot areas.
 *
 * Gates. Before rank w writes a slice to the buffer of rank v it opens gate[w][v]:
 *
 *   state     word           who changes it
 *   OPEN      0              -> WRITING by w, before it writes
 *   WRITING   2 | step << 2  -> OPEN by w, when the slice is written
 *   CLOSED    1              by v, when its operation fails; for ever
 *
 * v finds a gate WRITING that does not open in time: w is stuck there (stopped). It closes the
 * gate and puts fresh pages under the slice: w's stores go to the old ones (hoop_region_fence).
 */
#ifndef HOOP_BOARD_H
#define HOOP_BOARD_H

#include "algo/step.h"
#include "base/clock.h"
#include "base/sizes.h"
#include "bootstrap.h"
#include "engine.h"
#include "memory.h"
#include "reduce.h"
#include "signature.h"
#include <stdatomic.h>

#define HOOP_CELL_DATA_BYTES ((size_t)56)
#define HOOP_BOARD_CELLS 8
#define HOOP_CELLS_MAX_BYTES (HOOP_BOARD_CELLS * HOOP_CELL_DATA_BYTES)
#define HOOP_SLAB_BYTES ((size_t)262144)
#define HOOP_BOARD_MAX_RANKS 1024u

struct hoop_cell {
    _Alignas(HOOP_LINE_BYTES) uint8_t data[HOOP_CELL_DATA_BYTES];
    _Atomic uint64_t tag;
};

/* The announcement: in the first cell of every operation that does not carry its data there. */
struct hoop_announce {
    uint64_t in_region, in_offset; /* region id 0: plain memory; in one process: see base */
    uint64_t out_region, out_offset;
    uint32_t in_generation, out_generation;
    uint64_t reserved[2];
};

/*
 * Two lines apart, as a precaution: cores may fetch lines in pairs, and a peer that polls a cell
 * would then drag along a line that its rank writes in every operation (`now`). No difference was
 * measured on the machine of docs/performance.md.
 */
#define HOOP_APART_BYTES (2 * HOOP_LINE_BYTES)

struct hoop_board_rank {
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t arrived;  /* ARRIVEs of this rank, ever */
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t pulse;    /* heartbeat, by the service thread */
    _Atomic uint32_t left;                                /* said goodbye */
    _Alignas(HOOP_APART_BYTES) struct hoop_signature now; /* valid while its cell is current */
    _Alignas(HOOP_APART_BYTES) struct hoop_cell cells[2][HOOP_BOARD_CELLS];
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t gates[]; /* [n]: to each rank */
};

/* First failure of the comm, seen by all: 0 none, 1 being written, 2 written. */
struct hoop_board_head {
    _Alignas(HOOP_LINE_BYTES) _Atomic uint32_t failed;
    _Alignas(HOOP_LINE_BYTES) struct hoop_failure failure;
    _Alignas(HOOP_LINE_BYTES) _Atomic uint8_t sleeping[HOOP_BOARD_MAX_RANKS];
};

/* A rank's view of the board. Driven by one thread at a time; failing and waking: any thread. */
struct hoop_board {
    uint32_t me, n;
    uint32_t sequence; /* of the operation that runs or ran last */
    uint32_t signature;
    uint64_t arrivals; /* my ARRIVEs, ever */
    bool need_fence;
    const struct hoop_peer *peers;
    struct hoop_board_head *head;
    uint8_t *ranks, *oneshots, *slabs;
    size_t rank_stride;
    uint8_t *scratch; /* HOOP_SCRATCH_BYTES, private */
    const void **src; /* [n], for folds */
    void **dst;       /* [n] */
    uint64_t *stuck;  /* [n] gates that were found closed on a writer */
};

/* Bytes of the segment for n ranks. */
uint64_t hoop_board_bytes(uint32_t n);

/* Lays the view over a mapped segment. The roster is borrowed until finish. */
hoop_result_t hoop_board_init(struct hoop_board *board, const struct hoop_roster *roster,
                              uint32_t me);
void hoop_board_finish(struct hoop_board *board);

static inline struct hoop_board_rank *hoop_board_rank(const struct hoop_board *board, uint32_t rank)
{
    return (struct hoop_board_rank *)(void *)(board->ranks + rank * board->rank_stride);
}

/* ---- Failure and waking: any thread -------------------------------------------------------- */

/* Records the comm's failure for all ranks of this machine, unless there is one (false), and wakes
 * everybody. */
bool hoop_board_fail(struct hoop_board *board, const struct hoop_failure *failure);
/* HOOP_OK, or the comm's failure copied to *ret (may be NULL). */
hoop_result_t hoop_board_failed(const struct hoop_board *board, struct hoop_failure *ret);
void hoop_board_wake(const struct hoop_board *board, uint32_t rank);
/* The same, if the rank sleeps: after something was published for it alone. */
void hoop_board_notify(const struct hoop_board *board, uint32_t rank);
void hoop_board_wake_all(const struct hoop_board *board);
/* rank says goodbye: me, or one of another machine, which said so there. */
void hoop_board_leave(const struct hoop_board *board, uint32_t rank);

/* ---- One operation ------------------------------------------------------------------------- */

/* Begins the next operation: sequence and signature. Nothing is published yet. */
void hoop_board_begin(struct hoop_board *board, const struct hoop_signature *signature);

/* Publishes bytes (at most HOOP_CELLS_MAX_BYTES) in my cells: the announcement. */
void hoop_board_post(struct hoop_board *board, const void *data, size_t bytes);

/*
 * HOOP_OK: rank's announcement of this operation is there, with its data. HOOP_AGAIN: not yet.
 * HOOP_MISMATCH: it announced another operation (the sentence names both).
 */
hoop_result_t hoop_board_seen(const struct hoop_board *board, uint32_t rank,
                              struct hoop_failure *failure);

/*
 * Looks for rank's announcement up to `looks` times. Nothing but loads: a spin that goes through
 * the layers above fills the store buffer with return addresses behind the line that this rank has
 * just published, and the next publication then waits behind them.
 */
static inline void hoop_board_stare(const struct hoop_board *board, uint32_t rank, uint32_t looks)
{
    const _Atomic uint64_t *tag = &hoop_board_rank(board, rank)->cells[board->sequence & 1][0].tag;
    while (looks-- > 0 &&
           atomic_load_explicit(tag, memory_order_relaxed) >> 32 != board->sequence) {
        hoop_cpu_relax();
    }
}

/* Data of rank's c-th cell of this operation, after hoop_board_seen() said HOOP_OK. */
static inline const void *hoop_board_cell(const struct hoop_board *board, uint32_t rank, size_t c)
{
    return hoop_board_rank(board, rank)->cells[board->sequence & 1][c].data;
}

/* Where rank publishes its input in this operation, beyond what fits its cells. */
static inline uint8_t *hoop_board_oneshot(const struct hoop_board *board, uint32_t rank)
{
    return board->oneshots + ((size_t)rank * 2 + (board->sequence & 1)) * HOOP_ONESHOT_MAX_BYTES;
}

/* An operation's steps on the board. */
struct hoop_board_op {
    const struct hoop_plan *plan;
    hoop_step_fn *steps;
    struct hoop_reduction reduction; /* divisor for avg */
    const void *in;                  /* mine */
    void *out;
    const void *const *ins; /* [n] every member's, where the plan touches them; else NULL */
    void *const *outs;
    /* the executor's */
    uint64_t k;
    uint32_t cursor; /* first rank not yet seen by the running AWAIT */
};

/*
 * Moves the operation on: BUSY after each piece of work, IDLE while an AWAIT or a gate waits, DONE
 * at the end or with a failure recorded.
 */
enum hoop_poll hoop_board_poll(struct hoop_board *board, struct hoop_board_op *op,
                               struct hoop_failure *failure);

/*
 * Ends every peer's write access to my buffers, for ever: when it returns no slice will be begun.
 * True: a peer is stuck in one that it had begun; fence next. (A thread of this very process is
 * waited for instead.) culprit: a rank known to be dead or stopped, to be given no time; or -1.
 */
bool hoop_board_close_gates(struct hoop_board *board, int culprit);

/* Puts fresh pages under the slices of op that stuck peers are in. op's plan is chosen, and its
 * output lies in a region. */
void hoop_board_fence(const struct hoop_board *board, const struct hoop_board_op *op);

#endif

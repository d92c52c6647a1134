/*
 * The board: the memory that all ranks of a comm on one machine share. Here are its layout, the
 * failure record, waking, and the cells in which operations are announced; gate.h says who may
 * write to whose buffers, board_steps.h carries out steps. The board has a place for every rank of
 * the comm, also for those of other machines: of these only the failure record and `left` are used,
 * by what is heard of them.
 *
 *   segment (one memfd per comm, mapped by every rank, zero at birth)
 *   +--------------------------------------------------------------------------------------+
 *   | head: failure record | sleeping[n]                                                   |
 *   | rank 0: arrived | pulse, left | last operations | cells 32 x 8 | gates[n], taken[n], |
 *   |         sites[2n], took[n]                                                           |
 *   | rank 1: ...                                                                          |
 *   | areas: n x 2 MiB | slabs: n x 2 MiB                                                  |
 *   |                                                             (pages appear when used) |
 *   +--------------------------------------------------------------------------------------+
 *
 * Every line has one writer, the rank it belongs to (the failure record: whoever claims it first),
 * so atomic read-modify-writes are needed only for gates and to decide who wakes a sleeper.
 *
 * Cells. A cell is a cache line: 56 bytes of data and a tag of 8, which holds the signature of the
 * call and the low bits of the operation's sequence, to tell it from the previous use of the cell.
 * A rank stores the data first, and the tag last, with release. A reader that finds the expected
 * sequence there, with acquire, has the data. Only announcements with a device may take more than
 * the first cell of a set, under its tag.
 *
 * Sets. Operation k uses set k mod D of D = HOOP_BOARD_SETS sets of cells. That set is free then: a
 * rank that publishes in k has seen all ranks arrive in k - D + 1, which each did after completing
 * k - D. So no closing barrier is needed, and a rank that needs no data, or those of one rank, may
 * be several operations ahead of the others.
 *
 * Areas. What is too large for a cell lies in its rank's area. Pieces of all sizes follow each
 * other there. Where the next one lies follows from the calls alone, so that every rank knows it
 * for all ranks and need not wait to be told. It is told in the first cell all the same, so that
 * ranks whose calls have differed find out. A piece is in use until all ranks are seen to have
 * arrived in a later operation. Whenever pieces begin at the start of the areas again, and all
 * ranks contribute and read, each moves on to the area of the rank before it: the rank that read
 * memory last has it in its cache, and writes there 2 to 6 times as fast as the one that wrote it
 * last.
 *
 * Owing. An operation that did not need to see all ranks is owed. Every rank keeps the tags of its
 * last D operations in one row (`called`), where others find out later, and for many operations at
 * once, how far it has come, and that it called the same. Tag k is overwritten there by k + D, when
 * its rank has seen what all others called in k: so of any two ranks one sees the other's tag.
 *
 * Memory order, by C11 alone (gates: gate.h; checked models: tests/models).
 *   tag, called, arrived, taken, left
 *                        stored with release, loaded with acquire: what a rank stored before, in
 *                        cells, areas, slabs and mapped buffers, happens before what others do
 *                        after that load. So do its earlier reads, so that nothing is overwritten
 *                        that somebody still reads.
 *   failed               CLAIMED by compare-and-swap, WRITTEN with release, loaded with acquire
 *                        before the record is read.
 *   sleeping             each side has a fence between its store and its load of the other's, so
 *                        at least one of the two sees the other. The sleeper's membarrier, which
 *                        C11 does not know, stands for the publisher's fence; with need_fence the
 *                        publisher has its own. Of the publishers that see the flag set one clears
 *                        it and wakes the rank. The others need not, because a rank that is awake
 *                        looks again, with a fence, before it sleeps.
 *   pulse                relaxed: only whether it changes matters; it orders nothing.
 */
#ifndef HOOP_BOARD_H
#define HOOP_BOARD_H

#include "algo/step.h"
#include "base/clock.h"
#include "base/sizes.h"
#include "membership/membership.h"
#include "transports/signature.h"
#include <stdatomic.h>
#include <string.h>

#define HOOP_CELL_DATA_BYTES ((size_t)56)
#define HOOP_BOARD_CELLS 8
#define HOOP_BOARD_SETS 32u
#define HOOP_TAG_SEQUENCE_SHIFT 43 /* the sequence starts at this bit of a tag */
#define HOOP_SLAB_BYTES ((size_t)262144)
/* Of a rank, its area, and all of its slabs: twice what cores have for themselves, so that what
 * goes round there has left the cache of who has read it when it is written again. */
#define HOOP_AREA_BYTES UINT32_C(2097152)
#define HOOP_SLABS_BYTES ((size_t)2097152)
/* Where there is a root nobody writes what it has just read, and pieces from this size on go round
 * in all of an area, or those of several writers in as much together. Those from the least on do so
 * only once the comm has made so many operations: it takes 2 ms until pages are there and it is
 * known which stores are fastest. */
#define HOOP_BOARD_FAR_BYTES ((size_t)16384)
#define HOOP_BOARD_FAR_LEAST_BYTES ((size_t)2048)
#define HOOP_BOARD_FAR_AFTER 16384u

struct hoop_cell {
    _Alignas(HOOP_LINE_BYTES) uint8_t data[HOOP_CELL_DATA_BYTES];
    _Atomic uint64_t tag;
};

/* How a call on devices was launched. Its rank then waits for nothing, and calls no CUDA. */
enum hoop_launched {
    HOOP_LAUNCHED_NOT,
    HOOP_LAUNCHED_ONE, /* for one rank that acts for all, on one device */
    HOOP_LAUNCHED_EACH /* for each rank to act for itself, on several */
};

/* The announcement: the first cell of every operation whose data do not travel in the cells. */
struct hoop_announce {
    uint64_t in_region, in_offset; /* region id 0: plain memory, at address in_offset */
    uint64_t out_region, out_offset;
    uint32_t in_generation, out_generation;
    uint64_t count : 58;   /* the operation's; a tag has only the low bits of large counts */
    uint64_t launched : 2; /* enum hoop_launched */
    uint64_t choice : 2;   /* rank 0's, valid for all: cost/learned.h */
    uint64_t grant : 2;    /* likewise */
    uint64_t device;       /* of both buffers, by a number known to all; 0: not on a device */
};
/* After an announcement with a device, in the next cells: the factor of this rank's input in a sum
 * with factors, and the devices that this one reaches, terminated by 0. */
#define HOOP_ANNOUNCE_CELL_WORDS (HOOP_CELL_DATA_BYTES / sizeof(uint64_t))
#define HOOP_ANNOUNCE_WORDS (HOOP_ANNOUNCE_CELL_WORDS * (HOOP_BOARD_CELLS - 1))
#define HOOP_ANNOUNCE_PEERS (HOOP_ANNOUNCE_WORDS - 1)

/*
 * Fields are two lines apart as a precaution: cores may fetch lines in pairs, and a peer that polls
 * a cell would then also fetch a line that its rank writes in every operation (`now`). On the
 * machine of docs/performance.md no difference was measured.
 */
#define HOOP_APART_BYTES (2 * HOOP_LINE_BYTES)

struct hoop_board_rank {
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t arrived; /* ARRIVEs of this rank so far */
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t pulse;   /* heartbeat of the service thread */
    _Atomic uint32_t left;                               /* nonzero: said goodbye, and how */
    _Atomic uint32_t said;                               /* HOOP_BOARD_READS, HOOP_BOARD_ON_HOST */
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t called[HOOP_BOARD_SETS]; /* tags */
    _Alignas(HOOP_APART_BYTES) struct hoop_signature now[HOOP_BOARD_SETS];
    _Atomic uint64_t sites[HOOP_BOARD_SETS]; /* code address of each call: hoop_board_site() */
    _Atomic uint64_t worked; /* an operation's sequence (32 bits) and its ns: cost/copies.h */
    _Atomic uint64_t took;   /* ns of the latest operation that was timed: cost/learned.h */
    _Alignas(HOOP_APART_BYTES) struct hoop_cell cells[HOOP_BOARD_SETS][HOOP_BOARD_CELLS];
    /*
     * [5 n]: gates to each rank; then what this rank took from each (hoop_board_taken()); then the
     * call sites of its last transfers from and to each (hoop_board_transfer()); then how long its
     * last timed transfer from each took (hoop_board_took())
     */
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t gates[];
};

/* Values of hoop_board_head.failed: no failure, being written, written. */
enum { HOOP_FAILED_NOT, HOOP_FAILED_CLAIMED, HOOP_FAILED_WRITTEN };

/* The comm's first failure, and the flags of sleeping ranks; all ranks see both. */
struct hoop_board_head {
    _Alignas(HOOP_LINE_BYTES) _Atomic uint32_t failed; /* HOOP_FAILED_... */
    _Alignas(HOOP_LINE_BYTES) struct hoop_failure failure;
    _Alignas(HOOP_LINE_BYTES) _Atomic uint8_t sleeping[HOOP_MAX_RANKS];
};

/*
 * A rank's view of the board. Used by one thread at a time; any thread may fail the comm and wake.
 */
struct hoop_board {
    uint32_t me, n;
    uint32_t sequence;                /* of the current or latest operation */
    uint32_t owing;                   /* number of operations before it that are owed */
    uint32_t still;                   /* how many stay owed, as far as settling has come */
    uint64_t tag;                     /* of the current operation */
    uint64_t called[HOOP_BOARD_SETS]; /* tags of the last operations, without the sequence */
    uint32_t starts[HOOP_BOARD_SETS]; /* start of the last operations' pieces in every area */
    uint32_t end;                     /* end of the latest piece */
    uint32_t turn;                    /* rank r's pieces lie in the area of rank r + turn */
    uint64_t arrivals;                /* number of this rank's ARRIVEs */
    bool need_fence;
    bool past, timed;   /* of the current operation: non-temporal stores, timed (cost/copies.h) */
    uint64_t worked_ns; /* this rank's own work in it so far, if timed */
    const struct hoop_peer *peers;
    struct hoop_board_head *head;
    uint8_t *ranks, *areas, *slabs;
    size_t rank_stride;
    uint8_t *scratch; /* two pages, private */
    const void **src; /* [n], for folds */
    void **dst;       /* [n] */
    size_t *mapped;   /* [2n] bytes of a rank's slabs, and of its area: hoop_board_map_slabs() */
    uint64_t *stuck;  /* [n] gates that hoop_gates_close() closed on a writer: their words */
};

/* Size of the segment for n ranks. */
uint64_t hoop_board_bytes(uint32_t n);

/* Sets the view up over a mapped segment. The roster is borrowed until finish. */
hoop_result_t hoop_board_init(struct hoop_board *board, const struct hoop_roster *roster,
                              uint32_t me);
void hoop_board_finish(struct hoop_board *board);

/*
 * Bracket the work of this rank in the current operation whose time depends on the kind of stores.
 */
static inline uint64_t hoop_board_begin_work(const struct hoop_board *board)
{
    return __builtin_expect(board->timed, 0) ? hoop_now_ns() : 0;
}

static inline void hoop_board_end_work(struct hoop_board *board, uint64_t since)
{
    if (__builtin_expect(board->timed, 0)) {
        board->worked_ns += hoop_now_ns() - since;
    }
}

static inline struct hoop_board_rank *hoop_board_rank(const struct hoop_board *board, uint32_t rank)
{
    return (struct hoop_board_rank *)(void *)(board->ranks + rank * board->rank_stride);
}

/* What `by` reports about the transfers that it reads from `of`'s memory (exchange.c). */
static inline _Atomic uint64_t *hoop_board_taken(const struct hoop_board *board, uint32_t by,
                                                 uint32_t of)
{
    return &hoop_board_rank(board, by)->gates[board->n + of];
}

/* A call site: the low bits of a code address, and above them the low bits of the call's number,
 * which tell it from later calls: no rank is 65536 calls ahead. */
#define HOOP_SITE_BITS 48

static inline uint64_t hoop_board_site(const void *site, uint64_t number)
{
    return ((uintptr_t)site & ((UINT64_C(1) << HOOP_SITE_BITS) - 1)) | number << HOOP_SITE_BITS;
}

static inline _Atomic uint64_t *hoop_board_transfer(const struct hoop_board *board, uint32_t by,
                                                    uint32_t peer, bool sending)
{
    return &hoop_board_rank(board, by)->gates[2 * (board->n + peer) + sending];
}

static inline _Atomic uint64_t *hoop_board_took(const struct hoop_board *board, uint32_t by,
                                                uint32_t of)
{
    return &hoop_board_rank(board, by)->gates[4 * board->n + of];
}

/* What a rank says of itself: that it can read the memory of all other processes on its machine;
 * that it has no CUDA driver, so that no memory of its process is a device's. */
enum { HOOP_BOARD_READS = 1, HOOP_BOARD_ON_HOST = 2 };

/*
 * say: called by the service thread before the rank's join is complete, when the segment is mapped.
 * all_say: whether all ranks say this, the same answer on all of them; *ret_not: the first that
 * does not.
 */
void hoop_board_say(const struct hoop_board *board, uint32_t what);
bool hoop_board_all_say(const struct hoop_board *board, uint32_t what, uint32_t *ret_not);

/* ---- Failure and waking: any thread -------------------------------------------------------- */

/* Records the comm's failure for all ranks of this machine and wakes them. False: there was one. */
bool hoop_board_fail(struct hoop_board *board, const struct hoop_failure *failure);
/* HOOP_OK, or the comm's failure, if completely written, copied to *ret (may be NULL). */
hoop_result_t hoop_board_failure(const struct hoop_board *board, struct hoop_failure *ret);
/* The same, but waits for a failure that is being written. */
hoop_result_t hoop_board_failed(const struct hoop_board *board, struct hoop_failure *ret);
/* Wakes a rank if it sleeps, after something was published for that rank alone. */
void hoop_board_notify(const struct hoop_board *board, uint32_t rank);
/* Wakes every other rank that sleeps, after something was published for all. */
void hoop_board_wake_sleepers(const struct hoop_board *board);
/* Records that rank has said goodbye: this rank, or one on another machine that was heard to. how:
 * see hoop_member_events. */
void hoop_board_leave(const struct hoop_board *board, uint32_t rank, uint32_t how);

/* ---- One operation ------------------------------------------------------------------------- */

/* Begins the next operation with its signature and its call site, which the sentence of a mismatch
 * names. Publishes nothing yet. */
void hoop_board_begin(struct hoop_board *board, const struct hoop_signature *signature,
                      const void *site);

/* Adds to the sentence of a mismatch where the two ranks made these calls: only for ranks of this
 * machine whose call site is not overwritten yet, and unless the sentence names it already. */
void hoop_board_name_sites(const struct hoop_board *board, struct hoop_failure *failure);

/* Publishes bytes in this rank's cells: the announcement. They fit into its HOOP_BOARD_CELLS. */
void hoop_board_post(struct hoop_board *board, const void *data, size_t bytes);

/* The failure for this rank and another that called different operations; it names both calls. */
hoop_result_t hoop_board_mismatch(struct hoop_board *board, uint32_t rank,
                                  struct hoop_failure *failure);

/* HOOP_OK: rank has announced this operation, and its data are there. HOOP_AGAIN: not yet.
 * HOOP_MISMATCH: it announced another operation (the sentence names both). */
static inline hoop_result_t hoop_board_seen(struct hoop_board *board, uint32_t rank,
                                            struct hoop_failure *failure)
{
    const uint32_t set = board->sequence % HOOP_BOARD_SETS;
    const struct hoop_cell *cell = hoop_board_rank(board, rank)->cells[set];
    const uint64_t tag = atomic_load_explicit(&cell->tag, memory_order_acquire);
    if (tag == board->tag) {
        return HOOP_OK;
    }
    return (tag ^ board->tag) >> HOOP_TAG_SEQUENCE_SHIFT != 0
               ? HOOP_AGAIN
               : hoop_board_mismatch(board, rank, failure);
}

/* Does the current operation have room to publish bytes, while `owing` are owed? With 0 it has. */
bool hoop_board_has_room(const struct hoop_board *board, size_t bytes, uint32_t owing);

/*
 * Compares what the others called in the operations that are owed, starting at rank *ret_rank,
 * which is 0 in the first call. HOOP_OK: at most `most` operations are still owed. HOOP_AGAIN:
 * *ret_rank has not come far enough. HOOP_MISMATCH: it called another operation.
 */
hoop_result_t hoop_board_settle(struct hoop_board *board, uint32_t most, uint32_t *ret_rank,
                                struct hoop_failure *failure);
/* After the last operation: HOOP_MISMATCH if what others have called by now differs in an operation
 * that is owed. Waits for nobody. */
hoop_result_t hoop_board_look_back(struct hoop_board *board, struct hoop_failure *failure);

/* The data in rank's c-th cell of this operation, once hoop_board_seen() has returned HOOP_OK. */
static inline void *hoop_board_cell(const struct hoop_board *board, uint32_t rank, size_t c)
{
    return hoop_board_rank(board, rank)->cells[board->sequence % HOOP_BOARD_SETS][c].data;
}

/* In the operation of this sequence, pieces of this size return to the start of the area after so
 * many bytes; after so many pieces. */
size_t hoop_board_cycle(enum hoop_collective collective, uint32_t n, size_t bytes,
                        uint32_t sequence);
uint32_t hoop_board_around(enum hoop_collective collective, uint32_t n, size_t bytes,
                           uint32_t sequence);

/* Maps the first bytes of a rank's slabs into this process, once, so that no later call is slow
 * because it is the first to touch a page. */
void hoop_board_map_slabs(struct hoop_board *board, uint32_t rank, size_t bytes);
/* The same for the area in which the rank's pieces lie, if pieces of this size go far in it. */
void hoop_board_map_area(struct hoop_board *board, uint32_t rank, size_t bytes);

/* Takes room in all areas for the `bytes` that each contributing rank publishes in this operation,
 * and says in this rank's first cell where. hoop_board_has_room() must have returned true. */
void hoop_board_take_room(struct hoop_board *board, size_t bytes);

/* Whose area that of `rank` is now. */
static inline uint32_t hoop_board_owner(const struct hoop_board *board, uint32_t rank)
{
    const uint32_t owner = rank + board->turn, n = board->n;
    return owner < n ? owner : owner - n;
}

/* After that: where rank publishes in this operation. */
static inline uint8_t *hoop_board_area(const struct hoop_board *board, uint32_t rank)
{
    return board->areas + (size_t)hoop_board_owner(board, rank) * HOOP_AREA_BYTES +
           board->starts[board->sequence % HOOP_BOARD_SETS];
}

/* After hoop_board_seen() returned HOOP_OK: did rank publish at the place where this rank looks? */
static inline bool hoop_board_lies_there(const struct hoop_board *board, uint32_t rank)
{
    uint32_t start = 0;
    memcpy(&start, hoop_board_cell(board, rank, 0), sizeof(start));
    return start == board->starts[board->sequence % HOOP_BOARD_SETS];
}

/* For a rank that did not: it made other calls among those that are owed. HOOP_MISMATCH. */
hoop_result_t hoop_board_apart(struct hoop_board *board, uint32_t rank,
                               struct hoop_failure *failure);

#endif

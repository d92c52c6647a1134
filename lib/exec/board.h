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
 *   | areas: n x 1 MiB | slabs: n x 2 x 256 KiB                                            |
 *   |                                                             (pages appear when used) |
 *   +--------------------------------------------------------------------------------------+
 *
 * Every line has one writer, the rank it belongs to (the failure record: whoever claims it first),
 * so atomic read-modify-writes are needed only for gates and to decide who wakes a sleeper.
 *
 * Cells. A cell is a line: 56 bytes of data, 8 of tag: what is called, and the low bits of the
 * operation's sequence, which tell it from the one before that used the cell. The data of all
 * cells are stored first, the tag of the first cell last with release; who reads the expected
 * sequence there with acquire has the data.
 *
 * Sets. Operation k uses set k mod D of D = HOOP_BOARD_SETS sets of cells. That set is free then: a
 * rank that publishes in k has seen all ranks arrive in k - D + 1, which each did after completing
 * k - D. So no closing barrier is needed, and a rank that needs no data, or those of one rank, may
 * be several operations ahead of the others.
 *
 * Areas. What is too large for cells lies in its rank's area. Pieces of all sizes follow each other
 * there. Where the next one lies follows from the calls alone, so that every rank knows it for all
 * ranks and need not wait to be told. It is told in the first cell all the same, so that ranks
 * whose calls have differed find out. A piece is in use until all ranks are seen to have arrived in
 * a later operation. Whenever pieces begin at the start of the areas again, and all ranks
 * contribute and read, each moves on to the area of the rank before it: the rank that read memory
 * last has it in its cache, and writes there 2 to 6 times as fast as the one that wrote it last.
 *
 * Owing. An operation that did not need to see all ranks is owed. Every rank keeps the tags of its
 * last D operations in one row (`called`), where others find out later, and for many operations at
 * once, how far it has come, and that it called the same. Tag k is overwritten there by k + D, when
 * its rank has seen what all others called in k: so of any two ranks one sees the other's tag.
 *
 * Order of memory, by C11 alone (gates: gate.h; checked models: tests/models).
 *   tag, called, arrived, taken, left
 *                        stored with release, loaded with acquire: what a rank stored before, in
 *                        cells, areas, slabs and mapped buffers, happens before what others do
 *                        behind that load. What it read before does, too, so that nothing is
 *                        overwritten that somebody still reads.
 *   failed               CLAIMED by compare-and-swap, WRITTEN with release, loaded with acquire
 *                        before the record is read.
 *   sleeping             a fence lies between each side's store and its load of the other's, so
 *                        one of the two sees the other. The publisher's is membarrier's, which
 *                        C11 does not know, by the sleeper; with need_fence its own. Of the
 *                        publishers who see it set one clears it, and wakes: the others need not,
 *                        because whoever is awake looks again, with a fence, before it sleeps.
 *   pulse                relaxed: it only changes, and orders nothing.
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
#define HOOP_CELLS_MAX_BYTES (HOOP_BOARD_CELLS * HOOP_CELL_DATA_BYTES)
#define HOOP_BOARD_SETS 32u
#define HOOP_AREA_BYTES UINT32_C(1048576)
#define HOOP_TAG_SEQUENCE_SHIFT 43 /* a cell's tag: from there up, the sequence */
#define HOOP_SLAB_BYTES ((size_t)262144)

struct hoop_cell {
    _Alignas(HOOP_LINE_BYTES) uint8_t data[HOOP_CELL_DATA_BYTES];
    _Atomic uint64_t tag;
};

/* The announcement: in the first cell of every operation that does not carry its data there. */
struct hoop_announce {
    uint64_t in_region, in_offset; /* region id 0: plain memory; in one process: see base */
    uint64_t out_region, out_offset;
    uint32_t in_generation, out_generation;
    uint64_t count : 61;   /* of the operation: its tag has not all of it where it is large */
    uint64_t launched : 1; /* on the device: it waits for nothing, and calls no CUDA */
    uint64_t choice : 2;   /* rank 0's, for all: cost/learned.h */
    uint64_t device;       /* on which both lie, as all of the machine name it; 0: not there */
};
/* In the cells behind it, if it has a device: the others that this one reaches; 0 ends them. */
#define HOOP_ANNOUNCE_CELL_PEERS (HOOP_CELL_DATA_BYTES / sizeof(uint64_t))
#define HOOP_ANNOUNCE_PEERS (HOOP_ANNOUNCE_CELL_PEERS * (HOOP_BOARD_CELLS - 1))

/*
 * Two lines apart, as a precaution: cores may fetch lines in pairs, and a peer that polls a cell
 * would then drag along a line that its rank writes in every operation (`now`). No difference was
 * measured on the machine of docs/performance.md.
 */
#define HOOP_APART_BYTES (2 * HOOP_LINE_BYTES)

struct hoop_board_rank {
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t arrived; /* ARRIVEs of this rank, ever */
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t pulse;   /* heartbeat, by the service thread */
    _Atomic uint32_t left;                               /* said goodbye, and how */
    _Atomic uint32_t reads; /* 1: it can read the memory of all other processes here */
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t called[HOOP_BOARD_SETS]; /* tags */
    _Alignas(HOOP_APART_BYTES) struct hoop_signature now[HOOP_BOARD_SETS];
    _Atomic uint64_t sites[HOOP_BOARD_SETS]; /* where that was called: hoop_board_site() */
    _Atomic uint64_t worked; /* sequence of an operation (32 bits), and its ns (cost/copies.h) */
    _Atomic uint64_t took;   /* ns, of the last one from which is learned (cost/learned.h) */
    _Alignas(HOOP_APART_BYTES) struct hoop_cell cells[HOOP_BOARD_SETS][HOOP_BOARD_CELLS];
    /* [5 n]: gates to each rank; then what this rank took of each (hoop_board_taken()); then where
     * its last transfers from and to each were called (hoop_board_transfer()); then how long the
     * last one from each that was timed took it (hoop_board_took()) */
    _Alignas(HOOP_APART_BYTES) _Atomic uint64_t gates[];
};

/* None, being written, written. */
enum { HOOP_FAILED_NOT, HOOP_FAILED_CLAIMED, HOOP_FAILED_WRITTEN };

/* First failure of the comm, seen by all. */
struct hoop_board_head {
    _Alignas(HOOP_LINE_BYTES) _Atomic uint32_t failed; /* one of these */
    _Alignas(HOOP_LINE_BYTES) struct hoop_failure failure;
    _Alignas(HOOP_LINE_BYTES) _Atomic uint8_t sleeping[HOOP_MAX_RANKS];
};

/* A rank's view of the board. Driven by one thread at a time; failing and waking: any thread. */
struct hoop_board {
    uint32_t me, n;
    uint32_t sequence;                /* of the operation that runs or ran last */
    uint32_t owing;                   /* so many before it were not seen of everybody */
    uint32_t still;                   /* so many will be, as far as settling has come */
    uint64_t tag;                     /* of its first cell */
    uint64_t called[HOOP_BOARD_SETS]; /* that, without the sequence */
    uint32_t starts[HOOP_BOARD_SETS]; /* where the last operations' pieces begin in every area */
    uint32_t end;                     /* of the last of them */
    uint32_t turn;                    /* rank r's pieces lie in the area of rank r + turn */
    uint64_t arrivals;                /* my ARRIVEs, ever */
    bool need_fence;
    bool past, timed;   /* the running operation: cost/copies.h */
    uint64_t worked_ns; /* it, so far, if it is timed */
    const struct hoop_peer *peers;
    struct hoop_board_head *head;
    uint8_t *ranks, *areas, *slabs;
    size_t rank_stride;
    uint8_t *scratch; /* two pages, private */
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

/* Around what the running operation does by itself, as far as that depends on the stores. */
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

/* What `by` says of the transfers from `of`, whose memory it reads (exchange.c). */
static inline _Atomic uint64_t *hoop_board_taken(const struct hoop_board *board, uint32_t by,
                                                 uint32_t of)
{
    return &hoop_board_rank(board, by)->gates[board->n + of];
}

/* Where code is, and above it the low bits of the call's number, by which it is told from later
 * ones: nobody is 65536 ahead. */
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

/*
 * Whether this rank can read the memory of all other processes on its machine, said before its join
 * is complete (the service thread; the segment is mapped); then true: all ranks can, and know it
 * alike.
 */
void hoop_board_say_reads(const struct hoop_board *board, bool reads);
bool hoop_board_all_read(const struct hoop_board *board, uint32_t *ret_not);

/* ---- Failure and waking: any thread -------------------------------------------------------- */

/* Records the comm's failure for all ranks of this machine, unless there is one (false), and wakes
 * everybody. */
bool hoop_board_fail(struct hoop_board *board, const struct hoop_failure *failure);
/* HOOP_OK, or the comm's failure copied to *ret (may be NULL); a moment later than it was claimed.
 */
hoop_result_t hoop_board_failure(const struct hoop_board *board, struct hoop_failure *ret);
/* The same, and waits for one that is being written. */
hoop_result_t hoop_board_failed(const struct hoop_board *board, struct hoop_failure *ret);
/* Wakes a rank, if it sleeps: after something was published for it alone. */
void hoop_board_notify(const struct hoop_board *board, uint32_t rank);
/* The same for every other rank that sleeps: after something was published for all. */
void hoop_board_wake_sleepers(const struct hoop_board *board);
/* rank says goodbye: me, or one of another machine, which said so there. how: see
 * hoop_member_events. */
void hoop_board_leave(const struct hoop_board *board, uint32_t rank, uint32_t how);

/* ---- One operation ------------------------------------------------------------------------- */

/* Begins the next operation: sequence and signature, and where it was called, for the sentence of a
 * mismatch. Nothing is published yet. */
void hoop_board_begin(struct hoop_board *board, const struct hoop_signature *signature,
                      const void *site);

/* Adds to the sentence of a mismatch where the two ranks made those calls, as far as they are of
 * this machine, have not called so much since that it is forgotten, and it does not say so yet. */
void hoop_board_name_sites(const struct hoop_board *board, struct hoop_failure *failure);

/* Publishes bytes (at most HOOP_CELLS_MAX_BYTES) in my cells: the announcement. */
void hoop_board_post(struct hoop_board *board, const void *data, size_t bytes);

/* The failure of two that called different operations in this one, by what each says it called. */
hoop_result_t hoop_board_mismatch(struct hoop_board *board, uint32_t rank,
                                  struct hoop_failure *failure);

/*
 * HOOP_OK: rank's announcement of this operation is there, with its data. HOOP_AGAIN: not yet.
 * HOOP_MISMATCH: it announced another operation (the sentence names both).
 */
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

/* Is there room to publish bytes in the operation that has begun, if so many are owed? There is, if
 * none are. */
bool hoop_board_has_room(const struct hoop_board *board, size_t bytes, uint32_t owing);

/*
 * Looks at what the others called in the operations that are owed, from rank *ret_rank on, which is
 * 0 at first. HOOP_OK: at most `most` of them are owed still. HOOP_AGAIN: *ret_rank has not come so
 * far. HOOP_MISMATCH: it called another one.
 */
hoop_result_t hoop_board_settle(struct hoop_board *board, uint32_t most, uint32_t *ret_rank,
                                struct hoop_failure *failure);
/* Behind the last operation: does what others have called by now differ in what is owed?
 * HOOP_MISMATCH. Waits for nobody. */
hoop_result_t hoop_board_look_back(struct hoop_board *board, struct hoop_failure *failure);

/* Data of rank's c-th cell of this operation, after hoop_board_seen() said HOOP_OK. */
static inline const void *hoop_board_cell(const struct hoop_board *board, uint32_t rank, size_t c)
{
    return hoop_board_rank(board, rank)->cells[board->sequence % HOOP_BOARD_SETS][c].data;
}

/* Pieces of so many bytes begin at the start again when so much of the area has gone by, which is
 * so many of them. */
size_t hoop_board_cycle(size_t bytes);
uint32_t hoop_board_around(size_t bytes);

/* Takes room, which there is, in all areas, and says in my first cell where: so many bytes brings
 * who brings something in this operation. */
void hoop_board_take_room(struct hoop_board *board, size_t bytes);

/* After that: what rank publishes there in this operation. */
static inline uint8_t *hoop_board_area(const struct hoop_board *board, uint32_t rank)
{
    const uint32_t owner = rank + board->turn, n = board->n;
    return board->areas + (size_t)(owner < n ? owner : owner - n) * HOOP_AREA_BYTES +
           board->starts[board->sequence % HOOP_BOARD_SETS];
}

/* After hoop_board_seen() said HOOP_OK: does it lie there? */
static inline bool hoop_board_lies_there(const struct hoop_board *board, uint32_t rank)
{
    uint32_t start = 0;
    memcpy(&start, hoop_board_cell(board, rank, 0), sizeof(start));
    return start == board->starts[board->sequence % HOOP_BOARD_SETS];
}

/* It does not: of what is owed rank called other operations. HOOP_MISMATCH. */
hoop_result_t hoop_board_apart(struct hoop_board *board, uint32_t rank,
                               struct hoop_failure *failure);

#endif

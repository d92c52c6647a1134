/*
 * Private to the interpreter: what its three files share.
 *
 *   world -- ranks -- lanes -- one step each -- three parts: send, recv, local
 *         -- queues: the link (src, dst, lane), with its slots
 *         -- cells: every element of every space of every rank
 */
#ifndef HOOP_TESTS_INTERPRETER_WORLD_H
#define HOOP_TESTS_INTERPRETER_WORLD_H

#include "fakes/interpreter.h"

#define HOOP_NOBODY UINT8_MAX
#define HOOP_UNDEFINED UINT64_C(0xbadbadbadbadbad)

enum hoop_part_state { HOOP_PART_DONE, HOOP_PART_POSTED, HOOP_PART_MOVED };
enum hoop_part_kind { HOOP_PART_SEND, HOOP_PART_RECV, HOOP_PART_LOCAL, HOOP_PART_KINDS };

struct hoop_cell {
    uint64_t value;
    uint32_t *reads;  /* [n]: each reader's clock at its latest read; NULL over links */
    uint32_t readers; /* bits: who has read it since the last write */
    uint32_t write_clock;
    uint8_t writer;
};

struct hoop_slot {
    uint64_t *values;
    uint64_t room, count, k;
    uint32_t op;
    bool placed; /* the values were put in their final place early */
};

struct hoop_queue {
    struct hoop_slot *slots;
    uint32_t first, used;
};

/* The most memory areas that a step reads or writes. */
#define HOOP_STEP_TOUCHES 6

struct hoop_touch {
    const struct hoop_cell *start;
    uint64_t count;
    enum hoop_part_kind part;
    bool written;
};

struct hoop_lane {
    struct hoop_step step;
    uint64_t k, moved[HOOP_PART_KINDS]; /* k: of the next step */
    uint8_t state[HOOP_PART_KINDS];
    bool finished;
    /* What earlier steps of the same round access: complete here, but perhaps not on other
     * ranks. */
    struct hoop_touch before[HOOP_INTERPRETER_MAX_RANKS * HOOP_STEP_TOUCHES];
    uint32_t befores, sent_to, received_from; /* the last two: bits */
    bool heard, said; /* in this operation: received something; sent to the next rank */
};

struct hoop_rank {
    struct hoop_lane *lanes;
    uint32_t op, running; /* running: lanes that are not finished; 0: between two operations */
    bool called;          /* the next operation was called, but has not begun */
    uint32_t arrivals, op_arrivals;
    uint32_t seen[HOOP_INTERPRETER_MAX_RANKS];    /* the arrivals that it knows of */
    uint32_t (*said)[HOOP_INTERPRETER_MAX_RANKS]; /* [arrivals]: `seen` at each of them */
};

struct hoop_action {
    uint64_t key; /* its position in the order */
    uint8_t rank, lane, part;
};

struct hoop_world {
    const struct hoop_interpreter_case *c;
    uint32_t n, lanes, actions;
    uint32_t busy;            /* ranks that still have operations to do */
    uint64_t room, slab_room; /* in elements */
    uint64_t scratch_room;    /* in elements, for one lane */
    uint64_t random;
    bool failed;
    char *text;
    size_t text_bytes;
    struct hoop_rank ranks[HOOP_INTERPRETER_MAX_RANKS];
    struct hoop_queue *links;
    struct hoop_cell *buffers, *others, *slab; /* each one: rank by rank */
    struct hoop_cell *announced, *oneshot;     /* by set, then rank; oneshot: then the large */
    struct hoop_cell *scratch;                 /* rank by rank, lane by lane */
    uint64_t **folds;                          /* [op][element of IN]: the documented results */
    uint32_t *barriers;                        /* [op]: arrivals of the first rank at its end */
    struct hoop_action *order;
};

/* Records the first failure. */
void hoop_world_fail(struct hoop_world *w, const char *format, ...) HOOP_PRINTF(2, 3);
uint64_t hoop_world_draw(struct hoop_world *w, uint64_t below);
/* The operation that a rank is in. */
const struct hoop_interpreter_op *hoop_world_op(const struct hoop_world *w, uint32_t rank);
bool hoop_world_over_links(const struct hoop_world *w, uint32_t rank);

/* Over links: does the step fold vectors that follow each other, and perhaps one that lies
 * apart? */
bool hoop_is_row(const struct hoop_world *w, uint32_t rank, const struct hoop_step *step);

/* Does this rank use one buffer for input and output? An alltoall never does. */
static inline bool hoop_is_in_place(const struct hoop_interpreter_op *op, uint32_t rank)
{
    return (op->in_place >> rank & 1) != 0 && op->plan.collective != HOOP_COLL_ALLTOALL;
}

/* Symbols: hashes of expressions. */
uint64_t hoop_mix(uint64_t x);
uint64_t hoop_symbol_input(uint64_t op, uint64_t rank, uint64_t i);
uint64_t hoop_symbol_fold(uint64_t left, uint64_t right);
uint64_t hoop_symbol_divide(const struct hoop_world *w, uint64_t x);
/* The documented fold of every element of IN, to be freed by the caller. NULL: no memory. */
uint64_t *hoop_folds(const struct hoop_world *w, uint32_t op);
/* What element i of the rank's OUT must be. */
uint64_t hoop_expected(const struct hoop_world *w, uint32_t op, uint32_t rank, uint64_t i);

/* The rank arrives. False: no memory. */
bool hoop_clock_arrive(struct hoop_world *w, uint32_t rank);
/* Has `other` arrived so often? If so `rank` learns all that the other knew then. */
bool hoop_clock_await(struct hoop_world *w, uint32_t rank, uint32_t other, uint32_t arrivals);

/* Cells. `rank`, in one of its lanes, is who asks: the operation it is in says which buffers are
 * meant. */
/* readers: 0, or how many ranks may read. */
struct hoop_cell *hoop_cells_create(uint64_t count, uint32_t readers);
/* Where member announces the operation that `rank` is in. */
struct hoop_cell *hoop_announced(const struct hoop_world *w, uint32_t rank, uint32_t member);
/* The first cell of a ref; `member`: whose vector, for a ref with HOOP_EVERY. */
struct hoop_cell *hoop_ref_start(const struct hoop_world *w, uint32_t rank, uint32_t lane,
                                 const struct hoop_ref *ref, uint32_t member);
/* The size of a member's space; for HOOP_EVERY the smallest of all. */
uint64_t hoop_space_size(const struct hoop_world *w, uint32_t rank, uint8_t space, uint32_t member);
/* How many elements of SCRATCH an operation can need in one lane. */
uint64_t hoop_scratch_size(const struct hoop_plan *plan);
uint64_t hoop_cell_read(struct hoop_world *w, uint32_t rank, struct hoop_cell *cell);
void hoop_cell_write(struct hoop_world *w, uint32_t rank, struct hoop_cell *cell, uint64_t value);
/* The user of a rank fills both buffers, with the next input or with undefined values. */
void hoop_user_writes(struct hoop_world *w, uint32_t rank);

/* Asks for step k twice, with another question in between. False: the lane is finished. */
bool hoop_world_ask(struct hoop_world *w, uint32_t rank, uint32_t lane, uint64_t k,
                    struct hoop_step *ret);
/* What one step may say, and what parts, steps of a round, and lanes may do at the same time. The
 * round: before the next step is asked for. */
void hoop_check_round(struct hoop_world *w, uint32_t rank, uint32_t index);
void hoop_check_first(struct hoop_world *w, uint32_t rank, uint64_t k,
                      const struct hoop_step *step);
void hoop_check_links(struct hoop_world *w, uint32_t rank, const struct hoop_step *step);
void hoop_check_local(struct hoop_world *w, uint32_t rank, const struct hoop_step *step);
void hoop_check_overlap(struct hoop_world *w, uint32_t rank, uint32_t index);

#endif

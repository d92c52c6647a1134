/*
 * The program that stress.c's ranks run: an endless row of steps for each stream of operations,
 * drawn from a seed alike on all ranks. Pure.
 *
 * A stream has STRESS_COMMS comms over overlapping sets of ranks; each rank is in one comm of each
 * form:
 *
 *      0  all ranks        2  odd ranks, even ranks
 *      1  all, reversed    3  lower half, upper half
 *
 * A step is a barrier, the death of a comm and its birth (by an id, as a split of the first, or by
 * a shrink), one call, or a group of several, of collectives and messages on several comms, which
 * each rank starts in an order of its own.
 */
#ifndef HOOP_TESTS_STRESS_PROGRAM_H
#define HOOP_TESTS_STRESS_PROGRAM_H

#include "fakes/model.h"
#include <stdint.h>

#define STRESS_MOST_RANKS 16
#define STRESS_COMMS 4
#define STRESS_MOST_CALLS 6
#define STRESS_PROGRAM_STEPS 16 /* what counts as one program; a look at the clock follows */

/* Draws: the same from the same beginnings. */
struct stress_random {
    uint64_t state;
};
struct stress_random stress_random_from(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
uint64_t stress_draw(struct stress_random *random);
uint32_t stress_below(struct stress_random *random, uint32_t end);

struct stress_program {
    uint64_t seed;
    int ranks;
    bool special;      /* any values: the order of additions is the ranks' */
    bool sums;         /* of integers, and no other reductions: no flipped bit hides in one */
    size_t most_bytes; /* of a buffer */
};

enum stress_kind { STRESS_CALLS, STRESS_TWINS, STRESS_BARRIER, STRESS_REBIRTH };

/* As all ranks have it; roots, peers and counts become real in a comm of n ranks. */
struct stress_call {
    int comm;
    bool message;
    enum model_kind kind;
    hoop_datatype_t type;
    hoop_red_op_t op;
    uint32_t root; /* of a message: who sends */
    uint32_t peer; /* who receives it */
    size_t bytes;
    uint64_t seed; /* of its inputs */
};

/* SHRINK: what all ranks are in, of itself; another's first part, of the first comm without the
 * other ranks, and its second by an id. */
enum stress_way { STRESS_BY_ID, STRESS_BY_SPLIT, STRESS_BY_SHRINK, STRESS_WAYS };

struct stress_step {
    enum stress_kind kind;
    int n_calls; /* CALLS; TWINS: one, which two threads make at once with the same inputs */
    struct stress_call calls[STRESS_MOST_CALLS];
    int comm;            /* BARRIER, REBIRTH */
    bool finalize;       /* REBIRTH */
    enum stress_way way; /* REBIRTH */
};

void stress_program_step(const struct stress_program *program, int stream, uint64_t number,
                         struct stress_step *ret);

/* The call as a comm of n ranks makes it; of a message only type and count count. */
struct model_call stress_call_in(const struct stress_call *call, int n);

/* Which of the comms of this form a rank is in. */
int stress_part(const struct stress_program *program, int comm, int rank);

/* The ranks of the comm of this form that a rank is in, in order. */
int stress_members(const struct stress_program *program, int comm, int rank,
                   int ret_ranks[STRESS_MOST_RANKS]);

#endif

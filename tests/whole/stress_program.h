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
#define STRESS_PROGRAM_STEPS 16 /* how many count as one program; then the clock is read */

/* The same start gives the same numbers. */
struct stress_random {
    uint64_t state;
};
struct stress_random stress_random_from(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
uint64_t stress_draw(struct stress_random *random);
uint32_t stress_below(struct stress_random *random, uint32_t end);

struct stress_program {
    uint64_t seed;
    int ranks;
    bool special;      /* arbitrary values: sums are made in rank order */
    bool sums;         /* only sums of integers, because other reductions may hide a flipped bit */
    size_t most_bytes; /* of a buffer */
};

enum stress_kind { STRESS_CALLS, STRESS_TWINS, STRESS_BARRIER, STRESS_REBIRTH };

/* The call as all ranks know it; roots, peers and counts are adapted to a comm of n ranks. */
struct stress_call {
    int comm;
    bool message;
    enum model_kind kind;
    hoop_datatype_t type;
    hoop_red_op_t op;
    uint32_t root; /* of a message: the sender */
    uint32_t peer; /* of a message: the receiver */
    size_t bytes;
    uint64_t seed; /* determines its inputs */
};

/* SHRINK: the comm of all ranks is shrunk from itself; of other forms, the first part is the first
 * comm without the other ranks, and the second is made by an id. */
enum stress_way { STRESS_BY_ID, STRESS_BY_SPLIT, STRESS_BY_SHRINK, STRESS_WAYS };

struct stress_step {
    enum stress_kind kind;
    int n_calls; /* CALLS; TWINS: one, made by two threads at once with the same inputs */
    struct stress_call calls[STRESS_MOST_CALLS];
    int comm;            /* BARRIER, REBIRTH */
    bool finalize;       /* REBIRTH */
    enum stress_way way; /* REBIRTH */
};

void stress_program_step(const struct stress_program *program, int stream, uint64_t number,
                         struct stress_step *ret);

/* The call as made in a comm of n ranks; for a message only type and count are used. */
struct model_call stress_call_in(const struct stress_call *call, int n);

/* In which of the comms of this form a rank is. */
int stress_part(const struct stress_program *program, int comm, int rank);

/* The ranks of a rank's comm of this form, in order. */
int stress_members(const struct stress_program *program, int comm, int rank,
                   int ret_ranks[STRESS_MOST_RANKS]);

#endif

/*
 * The interpreter: carries out the steps of an algorithm on symbols, for all ranks at once, and
 * says what is wrong with them. It is the third executor of lib/algo/step.h and knows nothing of
 * the other two.
 *
 * Not a simulator: there is no time. What runs next is drawn from a seed, sometimes evenly,
 * sometimes so that ranks, lanes or kinds of part starve until nothing else can move.
 *
 * What it proves of one case
 * - Every element of every rank ends as the documented fold: each contribution once, in order, and
 *   one division at the very end. Values are hashes of expressions, so the order counts.
 * - No deadlock; sends and receives of a link pair off, of the same step and with equal counts,
 * none is left over. The first step is the one that announces the operation (lib/algo/step.h).
 * - A send's elements are read piece by piece, as late as the seed likes; two parts of one rank
 *   that run at the same time, local parts among them, never overlap where one of them writes.
 *   Steps of a round run one after the other here; but as none of them touches what another
 *   writes, and none meets the same rank twice, their order is of no account.
 * - Early plans (hoop_plan_is_early()): a send over links with slots may be put in its place at
 * once, whatever the receiver is doing in the operation.
 * - Shared memory: two accesses to an element from different ranks, one a write, always have a
 *   barrier between them, whether or not this seed made them meet. A rank's user writes its
 *   buffers as soon as an operation returned, and counts as an access of that rank. An announcement
 *   is memory, too: the first ARRIVE of an operation writes it, the AWAIT behind that reads it.
 * - All ranks pass the same barriers; memory algorithms have at least one (the announcement).
 * - Nothing outside its space is touched, nothing is written to IN, with cma nothing to another
 *   rank; over links nothing of another is touched.
 * - The step function is pure and stays finished.
 *
 * The operations of a case follow each other without a barrier in between, on the same user
 * buffers. Algorithms over links and over memory cannot be mixed in one case: the detector knows
 * barriers, not messages.
 */
#ifndef HOOP_TESTS_INTERPRETER_H
#define HOOP_TESTS_INTERPRETER_H

#include "algo/step.h"

#define HOOP_INTERPRETER_MAX_RANKS 32

struct hoop_interpreter_op {
    struct hoop_plan plan; /* `me` and `in_place` are filled in for each rank */
    hoop_step_fn *steps;
    uint32_t in_place; /* bit r: rank r uses one buffer for input and output */
    bool large;        /* what is published is too large for the sets: it has two places */
};

struct hoop_interpreter_case {
    const struct hoop_interpreter_op *ops; /* all of the same n and type_bytes */
    uint32_t op_count;
    uint32_t slots; /* of a link; 0: a send meets its receive (leader) */
    /* Over shared memory: operation i announces and publishes in set i modulo `sets`, the large
     * ones in place i modulo 2. Before that all others have arrived in operation i - owes - 1; of a
     * large one in i - 1. */
    uint32_t sets, owes;
    uint64_t seed;
};

/* True: right. False: ret_text is a sentence about the first thing that was wrong. */
bool hoop_interpret(const struct hoop_interpreter_case *c, char *ret_text, size_t text_bytes);

#endif

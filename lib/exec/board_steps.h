/*
 * The executor of steps over the memory that the ranks of a machine share: the board, and buffers
 * that are mapped by all. The executor over links is engine.h.
 *
 * It never waits and reads no clock. One thread at a time, the one that drives the comm.
 */
#ifndef HOOP_BOARD_STEPS_H
#define HOOP_BOARD_STEPS_H

#include "exec/board.h"
#include "reduce/reduce.h"
#include "runtime/wait.h"

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
 * Moves the operation on: BUSY after each piece of work, IDLE while an AWAIT waits, DONE at the end
 * or with a failure recorded.
 */
enum hoop_poll hoop_board_poll(struct hoop_board *board, struct hoop_board_op *op,
                               struct hoop_failure *failure);

#endif

/*
 * The executor of steps over the memory that the ranks of a machine share: the board, and buffers
 * that are mapped by all, or read from their processes. The executor over links is engine.h.
 *
 * It never waits and reads no clock. One thread at a time, the one that drives the comm.
 */
#ifndef HOOP_BOARD_STEPS_H
#define HOOP_BOARD_STEPS_H

#include "exec/board.h"
#include "reduce/reduce.h"
#include "runtime/wait.h"

/*
 * Who copies and folds where it is not this CPU: what is launched is done when over() says so.
 * Steps that work are launched one behind the other, under the gates of everybody, and awaited
 * before the next ARRIVE or AWAIT. What goes wrong is the thread's sentence.
 */
struct hoop_board_worker {
    hoop_result_t (*copy)(void *arg, void *to, const void *from, size_t bytes);
    hoop_result_t (*fold)(void *arg, const struct hoop_reduction *reduction, void *const *dst,
                          unsigned n_dst, const void *const *src, unsigned n_src, size_t count);
    /* Nothing more is launched for now. */
    hoop_result_t (*end)(void *arg);
    /* HOOP_OK: all of it is over; HOOP_AGAIN; or why it never will be. */
    hoop_result_t (*over)(void *arg);
    void *arg;
};

enum hoop_board_work { HOOP_BOARD_IDLE, HOOP_BOARD_LAUNCHING, HOOP_BOARD_LAUNCHED };

/* Of a member's buffers: it lies in memory of its process, which is read there. */
enum { HOOP_FAR_IN = 1, HOOP_FAR_OUT = 2 };

/* An operation's steps on the board. */
struct hoop_board_op {
    const struct hoop_plan *plan;
    hoop_step_fn *steps;
    struct hoop_reduction reduction; /* divisor for avg */
    const void *in;                  /* mine */
    void *out;
    const void *const *ins; /* [n] every member's, where the plan touches them; else NULL */
    void *const *outs;
    const uint8_t *far; /* [n] bits: which of them are addresses in another process */
    /* For what is read of other processes to be folded: plan->scratch elements. NULL: nothing is.
     */
    void *scratch;
    const struct hoop_board_worker *worker; /* NULL: this CPU */
    /* the executor's */
    enum hoop_board_work work; /* of the worker; not IDLE: I hold the gates, as of step held */
    uint64_t held;
    uint64_t k;
    uint32_t cursor; /* first rank not yet seen by the running AWAIT */
};

/*
 * Moves the operation on: BUSY after each piece of work, IDLE while an AWAIT waits or the worker
 * works, DONE at the end or with a failure recorded.
 */
enum hoop_poll hoop_board_poll(struct hoop_board *board, struct hoop_board_op *op,
                               struct hoop_failure *failure);

/*
 * Gives back the gates that are held for a worker, if what it does is over by now or will never be
 * done. False: it is not. Of an operation that has not failed it is what the next barrier does; its
 * failure is recorded, and found by the next poll.
 */
bool hoop_board_give_back(struct hoop_board *board, struct hoop_board_op *op,
                          struct hoop_failure *failure);

#endif

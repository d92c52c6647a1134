/*
 * Executes steps over memory that the ranks of a machine share: the board, and buffers that are
 * mapped by all or read from their processes. The executor over links is engine.h.
 *
 * It never waits and reads no clock. Used by one thread at a time, the one that drives the comm.
 */
#ifndef HOOP_BOARD_STEPS_H
#define HOOP_BOARD_STEPS_H

#include "exec/board.h"
#include "reduce/reduce.h"
#include "runtime/wait.h"

/*
 * A worker copies and folds in place of this CPU, asynchronously: over() reports when all that was
 * launched is done. Consecutive copies and folds are launched one after the other while this rank
 * holds the gates of all others, and are awaited before the next ARRIVE or AWAIT. The message of an
 * error is the thread's (hoop_thread_error()).
 */
struct hoop_board_worker {
    hoop_result_t (*copy)(void *arg, void *const *to, unsigned n_to, const void *from,
                          size_t bytes);
    /* factors: [n_src], by which sources are multiplied first; or NULL */
    hoop_result_t (*fold)(void *arg, const struct hoop_reduction *reduction, void *const *dst,
                          unsigned n_dst, const void *const *src, unsigned n_src,
                          const uint64_t *factors, size_t count);
    /* Called when nothing more is launched for now. */
    hoop_result_t (*end)(void *arg);
    /* HOOP_OK: all of it is done. HOOP_AGAIN: not yet. Otherwise: why it never will be. */
    hoop_result_t (*over)(void *arg);
    /* All that this rank has to do, maybe nothing, was launched. NULL: it need not know. */
    void (*pass)(void *arg);
    void *arg;
};

enum hoop_board_work { HOOP_BOARD_IDLE, HOOP_BOARD_LAUNCHING, HOOP_BOARD_LAUNCHED };

/* Bits per member: this buffer lies in its process, and is read from there. */
enum { HOOP_FAR_IN = 1, HOOP_FAR_OUT = 2 };

/* The execution of one operation's steps on the board. */
struct hoop_board_op {
    const struct hoop_plan *plan;
    hoop_step_fn *steps;
    struct hoop_reduction reduction; /* its divisor is for averages */
    const void *in;                  /* this rank's */
    void *out;
    const void *const *ins; /* [n] every member's, where the plan touches them; else NULL */
    void *const *outs;
    const uint8_t *far;      /* [n] HOOP_FAR_ bits: which are addresses in another process */
    const uint64_t *factors; /* [n] of every member's input, for a worker; or NULL */
    /* plan->scratch elements, for what is read from other processes to be folded; or NULL. */
    void *scratch;
    const struct hoop_board_worker *worker; /* NULL: this CPU does the work */
    /* from here on the executor's own */
    enum hoop_board_work work; /* unless IDLE this rank holds the gates, taken in step `held` */
    uint64_t held;
    uint64_t k;
    uint32_t cursor; /* the first rank that the current AWAIT has not seen arrive */
};

/* Advances the operation: BUSY after each step, IDLE while an AWAIT or the worker is outstanding,
 * DONE at the end or once a failure is recorded. */
enum hoop_poll hoop_board_poll(struct hoop_board *board, struct hoop_board_op *op,
                               struct hoop_failure *failure);

/*
 * Returns the gates that are held for a worker, if its work is over or will never complete. False:
 * it is still at work. In an operation that has not failed this only does the work of the next
 * barrier earlier; an error of the worker is recorded, and the next poll finds it.
 */
bool hoop_board_give_back(struct hoop_board *board, struct hoop_board_op *op,
                          struct hoop_failure *failure);

#endif

/*
 * A batch: operations on one comm or many that one thread moves together: different comms at the
 * same time, each comm's operations in order. A blocking group is a batch, and so is every piece of
 * work on a stream.
 *
 * When a batch begins it asks for the turn of each comm, or its places in line were reserved
 * before. It gives each turn back when that comm's work is over, whatever the others do: nobody
 * waits for one comm while holding the turn of a comm that it no longer needs. It does not touch a
 * comm whose work is over, because the comm may be gone.
 *
 * Used by one thread at a time, the one that moves the batch. Only hoop_batch_run() waits.
 */
#ifndef HOOP_BATCH_H
#define HOOP_BATCH_H

#include "comm/driver.h"

struct hoop_work {
    struct hoop_comm *comm;
    struct hoop_request request;
};

/* One comm of a batch. */
struct hoop_batch_comm {
    struct hoop_comm *comm;
    enum { HOOP_BATCH_QUEUED, HOOP_BATCH_RUNNING, HOOP_BATCH_OVER } state;
    size_t at;                    /* index of the current work, or of where to look for the first */
    bool failed;                  /* OVER: the work at index `at` failed, or did not begin */
    struct hoop_sleeper *sleeper; /* what this member waits for now; NULL: nothing */
    struct hoop_turn_place place;
};

struct hoop_batch {
    struct hoop_work *work;
    size_t count;
    struct hoop_batch_comm *comms;
    uint32_t n_comms, left;   /* left: members that are not over */
    hoop_result_t result;     /* the first failure */
    struct hoop_failure *why; /* its message, unless there was no memory for it */
    bool unhurried;           /* its CUDA streams may take as long as they like */
};

/* work is borrowed until finish; comms has room for count members. */
void hoop_batch_init(struct hoop_batch *batch, struct hoop_work *work, size_t count,
                     struct hoop_batch_comm *comms);
void hoop_batch_finish(struct hoop_batch *batch);

/* Fails the work on comms that have failed or were aborted, and returns the first such failure. The
 * rest is still to be run: other ranks wait for it. With the lock of progress.h. */
hoop_result_t hoop_batch_refuse(struct hoop_batch *batch);

/* Reserves places in line, for a later hoop_batch_poll(). sleeper: of the polling thread. */
void hoop_batch_reserve(struct hoop_batch *batch, struct hoop_sleeper *sleeper);

/* DONE: everything is complete, or has failed. */
enum hoop_poll hoop_batch_poll(struct hoop_batch *batch, bool look);

/* Before the first poll: removes comm's work from the batch, which fails with code and the thread's
 * error. */
void hoop_batch_drop(struct hoop_batch *batch, const struct hoop_comm *comm, hoop_result_t code);

/* The batch's result, and its message as the thread's error. */
hoop_result_t hoop_batch_result(const struct hoop_batch *batch);

/* In a batch that is over: has work i failed, or did it not begin? */
bool hoop_batch_has_failed(const struct hoop_batch *batch, size_t i);

/* Lists what the batch waits for in ret, of room `most`. Returns how many there are, maybe more. */
uint32_t hoop_batch_sleepers(const struct hoop_batch *batch, struct hoop_sleeper **ret,
                             uint32_t most);

/* Runs a whole batch; blocks. Returns the first failure, with its message. */
hoop_result_t hoop_batch_run(struct hoop_work *work, size_t count);

/* Makes their comms fail with code and the thread's error: so nobody takes for a result what a
 * stream continues with, or waits for operations that will not be called. Returns code. */
hoop_result_t hoop_work_fail(const struct hoop_work *work, size_t count, hoop_result_t code);

/*
 * For each communicator with several ranks in this process: does the work have calls of all of
 * them? If not no CUDA stream may be held: streams of one process may share a queue of the device,
 * where a held stream keeps back what the other ranks launch later.
 */
bool hoop_work_is_whole(const struct hoop_work *work, size_t count);

/* Is all work of each comm in one part? part[i]: of work[i]. Then no comm's order is lost if each
 * part keeps its own. Touches no comm. False also without memory. */
bool hoop_work_keeps_order(const struct hoop_work *work, const size_t *part, size_t count);

#endif

/*
 * A batch: operations on one comm or many, moved together; comms at the same time, each comm's
 * operations in order. Blocking groups are one, and so is every piece of work on a stream.
 *
 * Each comm's turn is asked for when the batch begins, or a place for it is taken before, and given
 * back when that comm's work is over, whatever the others do: nobody waits for one comm while
 * holding still another. A comm that is over is not touched any more: it may be gone.
 *
 * One thread at a time: who moves it. Nothing here waits but hoop_batch_run().
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
    size_t at;                    /* index of the work that runs, or is to be the first */
    bool failed;                  /* OVER: at that one; or it did not begin */
    struct hoop_sleeper *sleeper; /* what it waits for now; NULL: nothing */
    struct hoop_turn_place place;
};

struct hoop_batch {
    struct hoop_work *work;
    size_t count;
    struct hoop_batch_comm *comms;
    uint32_t n_comms, left;   /* that are not over */
    hoop_result_t result;     /* first failure */
    struct hoop_failure *why; /* its sentence, if there was memory for it */
    bool unhurried;           /* its streams of CUDA may take as long as they like */
};

/* work is borrowed until finish; comms is room for count of them. */
void hoop_batch_init(struct hoop_batch *batch, struct hoop_work *work, size_t count,
                     struct hoop_batch_comm *comms);
void hoop_batch_finish(struct hoop_batch *batch);

/* Takes places for later; hoop_batch_poll() may follow later. sleeper is whose who will poll. */
void hoop_batch_reserve(struct hoop_batch *batch, struct hoop_sleeper *sleeper);

/* DONE: everything is complete, or has failed. */
enum hoop_poll hoop_batch_poll(struct hoop_batch *batch, bool look);

/* Before the first poll: takes comm out of it, which is `code`. */
void hoop_batch_drop(struct hoop_batch *batch, const struct hoop_comm *comm, hoop_result_t code);

/* Of what is over: has work i failed, or did it not begin? */
bool hoop_batch_has_failed(const struct hoop_batch *batch, size_t i);

/* Writes what it waits for into ret, of room `most`; returns how many there are. */
uint32_t hoop_batch_sleepers(const struct hoop_batch *batch, struct hoop_sleeper **ret,
                             uint32_t most);

/* The whole of it. Blocks. The first failure, with its sentence. */
hoop_result_t hoop_batch_run(struct hoop_work *work, size_t count);

#endif

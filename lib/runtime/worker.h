/*
 * A worker: a thread of its own for what may block for any time, such as a file system or a
 * resolver. The service thread never waits for one; a caller waits until its deadline. The struct
 * is embedded in what the worker works on, which the last holder frees.
 *
 * Any thread; but those that wait (pause, wait, await) not on the service thread.
 */
#ifndef HOOP_RUNTIME_WORKER_H
#define HOOP_RUNTIME_WORKER_H

#include "runtime/service.h"
#include <stdatomic.h>

struct hoop_worker {
    hoop_result_t (*run)(struct hoop_worker *worker);
    void (*destroy)(struct hoop_worker *worker); /* frees the enclosing object */
    struct hoop_job stop;                        /* complete: nobody needs the worker any more */
    struct hoop_job done;                        /* complete: it has ended, with run's result */
    atomic_uint holders;
};

/* Starts it with two holders, its thread and the caller. On failure it has none. */
hoop_result_t hoop_worker_start(struct hoop_worker *worker,
                                hoop_result_t (*run)(struct hoop_worker *worker),
                                void (*destroy)(struct hoop_worker *worker));
void hoop_worker_hold(struct hoop_worker *worker);
void hoop_worker_release(struct hoop_worker *worker);

/* For the worker's thread: waits; false: it is to stop. */
bool hoop_worker_pause(struct hoop_worker *worker, uint64_t ms);

/* Once: tells its thread to stop, and drops the caller's hold. */
void hoop_worker_stop(struct hoop_worker *worker);

/* Its result, with its message; HOOP_TIMEOUT: it has not ended by then. */
hoop_result_t hoop_worker_wait(struct hoop_worker *worker, uint64_t deadline_ns);

/* The same, once; but after timeout_ms tells its thread to stop, and gives it grace_ms to say what
 * it has found so far. The caller's hold stays. */
hoop_result_t hoop_worker_await(struct hoop_worker *worker, uint64_t timeout_ms, uint64_t grace_ms);

#endif

/*
 * A worker: a thread of its own for what may take any time, like a file system or a resolver. The
 * service thread never waits for one, a caller until its deadline. What it works on embeds it, and
 * is freed by whoever lets go last.
 *
 * Any thread, but for the ways to wait: not the service thread.
 */
#ifndef HOOP_RUNTIME_WORKER_H
#define HOOP_RUNTIME_WORKER_H

#include "runtime/service.h"
#include <stdatomic.h>

struct hoop_worker {
    hoop_result_t (*run)(struct hoop_worker *worker);
    void (*destroy)(struct hoop_worker *worker); /* frees what it is embedded in */
    struct hoop_job stop;                        /* complete: nobody needs it any more */
    struct hoop_job done;                        /* complete: it has ended, with run's result */
    atomic_uint holders;
};

/* Starts it, held by its thread and by the caller. On failure nobody holds it. */
hoop_result_t hoop_worker_start(struct hoop_worker *worker,
                                hoop_result_t (*run)(struct hoop_worker *worker),
                                void (*destroy)(struct hoop_worker *worker));
void hoop_worker_hold(struct hoop_worker *worker);
void hoop_worker_release(struct hoop_worker *worker);

/* For its thread: lets a time pass; false: it is to stop. */
bool hoop_worker_pause(struct hoop_worker *worker, uint64_t ms);

/* Once: tells its thread to end, and lets go. */
void hoop_worker_stop(struct hoop_worker *worker);

/* Its result, with its sentence; HOOP_TIMEOUT: it has not ended by then. */
hoop_result_t hoop_worker_wait(struct hoop_worker *worker, uint64_t deadline_ns);

#endif

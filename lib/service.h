/*
 * The service thread: one per process, the home of libuv and of everything that happens beside the
 * operations: listeners, authentication, control connections, heartbeats, watching processes,
 * passing descriptors, exchanging blobs. It never touches payload and never takes a comm's lock.
 *
 *      caller's thread                         service thread (owns loop, sockets, rendezvous,
 *      hoop_service_run(fn, arg)  ---->         members, timers; nobody else touches them)
 *      waits on a job (lib/wait.c) <----        hoop_job_complete()
 *
 * It starts with the first thing that needs it and ends with the process. In a forked child its
 * descriptors are closed (or a live child would hide its parent's death) and hoop is unusable.
 */
#ifndef HOOP_SERVICE_H
#define HOOP_SERVICE_H

#include "base/error.h"
#include <pthread.h>
#include <stdbool.h>

/* A result that one thread waits for and another delivers, once. */
struct hoop_job {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    bool complete;
    struct hoop_failure failure; /* code HOOP_OK: it worked */
};
void hoop_job_init(struct hoop_job *job);
void hoop_job_finish(struct hoop_job *job);
/* failure NULL: it worked. Copied. The job may be gone when this returns. */
void hoop_job_complete(struct hoop_job *job, const struct hoop_failure *failure);

/*
 * Starts the service thread if it does not run. HOOP_INVALID_USAGE in a forked child;
 * HOOP_SYSTEM_ERROR with a sentence when descriptors or threads are short.
 */
hoop_result_t hoop_service_start(void);

/*
 * Runs fn(arg) on the service thread as soon as possible, after everything posted before; does
 * not wait for it. The service must have been started. Any thread.
 */
void hoop_service_post(void (*fn)(void *arg), void *arg);

/* The same, and returns when fn has returned. Not from the service thread. */
void hoop_service_run(void (*fn)(void *arg), void *arg);

#endif

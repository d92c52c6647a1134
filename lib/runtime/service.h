/*
 * The service thread: one per process, the home of libuv and of everything that happens beside the
 * operations: listeners, authentication, control connections, heartbeats, watching processes,
 * passing descriptors, exchanging blobs. It never touches payload and never takes a comm's lock.
 *
 *      caller's thread                         service thread (owns loop, sockets, leader,
 *      hoop_service_run(fn, arg)  ---->         members, timers; nobody else touches them)
 *      waits on a job (lib/runtime/wait.c) <----        hoop_job_complete()
 *
 * It starts with the first thing that needs it and ends with the process. In a forked child its
 * descriptors are closed (or a live child would hide its parent's death) and hoop is unusable.
 */
#ifndef HOOP_SERVICE_H
#define HOOP_SERVICE_H

#include "base/error.h"
#include "runtime/wait.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* In a child that was forked while the service ran, where hoop is unusable. Any thread. */
extern _Atomic bool hoop_service_forked;
static inline bool hoop_is_forked(void)
{
    return __builtin_expect(atomic_load_explicit(&hoop_service_forked, memory_order_relaxed), 0);
}
/* HOOP_INVALID_USAGE, with the sentence about that. */
hoop_result_t hoop_forked_error(void);

/*
 * Starts the service thread if it does not run. HOOP_INVALID_USAGE in a forked child;
 * HOOP_SYSTEM_ERROR with a sentence when descriptors or threads are short.
 */
hoop_result_t hoop_service_start(void);

/*
 * Runs fn on the service thread as soon as possible, after everything posted before, with a copy of
 * arg, which ends when fn returns; does not wait for it, unless there is no memory for the copy.
 * The service must have been started. Any thread.
 */
void hoop_service_post(void (*fn)(void *arg), void *arg, size_t bytes);

/* The same with arg itself, and returns when fn has returned. */
void hoop_service_run(void (*fn)(void *arg), void *arg);
/* The same for what can fail: its result, and its sentence for the calling thread. */
hoop_result_t hoop_service_call(hoop_result_t (*fn)(void *arg), void *arg);

/*
 * Returns when the loop has come to rest: all that had arrived has been read. A loop that is never
 * at rest is given up after a few turns. Not from the service thread.
 */
void hoop_service_drain(void);

/* Is the caller the service thread? */
bool hoop_service_is_me(void);

#endif

/*
 * The service thread: one per process, home of libuv and of everything that goes on beside the
 * operations: listening, authentication, control connections, heartbeats, watching processes,
 * passing descriptors, exchanging blobs. It never touches payload and never takes a comm's lock.
 *
 *      caller's thread                         service thread (owns loop, sockets, leader,
 *      hoop_service_run(fn, arg)  ---->         members, timers; nobody else touches them)
 *      waits on a job (lib/runtime/wait.c) <----        hoop_job_complete()
 *
 * It starts with the first use and ends with the process. In a forked child its descriptors are
 * closed (otherwise a live child would hide its parent's death), and hoop cannot be used.
 */
#ifndef HOOP_SERVICE_H
#define HOOP_SERVICE_H

#include "base/error.h"
#include "runtime/wait.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* True in a child that was forked while the service ran: hoop cannot be used. Any thread. */
extern _Atomic bool hoop_service_forked;
static inline bool hoop_is_forked(void)
{
    return __builtin_expect(atomic_load_explicit(&hoop_service_forked, memory_order_relaxed), 0);
}
/* HOOP_INVALID_USAGE, with a message about that. */
hoop_result_t hoop_forked_error(void);

/* Starts the service thread if it is not running. HOOP_INVALID_USAGE in a forked child;
 * HOOP_SYSTEM_ERROR with a message if descriptors or threads are short. */
hoop_result_t hoop_service_start(void);

/*
 * Runs fn on the service thread as soon as possible, after all earlier posts, with a copy of arg
 * that lives until fn returns. Does not wait for that, unless there is no memory for the copy. The
 * service must have been started. Any thread.
 */
void hoop_service_post(void (*fn)(void *arg), void *arg, size_t bytes);

/* The same with arg itself; returns when fn has returned. */
void hoop_service_run(void (*fn)(void *arg), void *arg);
/* The same for a function that can fail: its result, and its message as this thread's error. */
hoop_result_t hoop_service_call(hoop_result_t (*fn)(void *arg), void *arg);

/* Returns when the loop has become idle: all that had arrived has been read. Gives up after some
 * turns if the loop never becomes idle. Not from the service thread. */
void hoop_service_drain(void);

/* Is the caller the service thread? */
bool hoop_service_is_me(void);

#endif

/*
 * The watchdog of -T: when a thread has been inside one operation for that many seconds it prints a
 * message, aborts the thread's comms, so that all other ranks learn of it, and ends the process
 * with PERF_TIMED_OUT.
 */
#ifndef PERF_WATCH_H
#define PERF_WATCH_H

#include "perf/perf_ranks.h"

struct perf_watch;

/* *ret_watch is NULL if there is no timeout. The job must outlive the watch. */
int perf_watch_create(struct perf_job *job, struct perf_watch **ret_watch);

/* NULL is allowed. */
void perf_watch_destroy(struct perf_watch *watch);

#endif

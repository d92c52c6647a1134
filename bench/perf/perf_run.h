/* One thread's part of the run: buffers, the sweep over cases and sizes, timing and checking. */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "perf/perf_ranks.h"

/*
 * The thread's life; arg is its struct perf_thread. Leaves its exit code there, and after a
 * failure has aborted the thread's comms. Returns NULL.
 */
void *perf_run_thread(void *arg);

#endif

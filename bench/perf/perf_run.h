/* One thread's part of the run: buffers, the sweep over cases and sizes, timing and checking. */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "perf/perf_ranks.h"

/*
 * The main function of a thread; arg is its struct perf_thread, where it stores its exit code.
 * After a failure the thread's comms have been aborted. Returns NULL.
 */
void *perf_run_thread(void *arg);

#endif

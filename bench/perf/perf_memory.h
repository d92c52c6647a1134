/* How much memory the processes of the benchmark use: -M. */
#ifndef PERF_MEMORY_H
#define PERF_MEMORY_H

#include "perf/perf_ranks.h"

/* Called by all threads. With -M global rank 0 prints a # line with the sums over all processes. */
int perf_memory_report(struct perf_thread *thread, const char *moment);

#endif

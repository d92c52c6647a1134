/* How much memory the processes of the benchmark use: -M. */
#ifndef PERF_MEMORY_H
#define PERF_MEMORY_H

#include "perf/perf_ranks.h"

/* Collective; global rank 0 prints a # line about all processes together, if -M asks for it. */
int perf_memory_report(struct perf_thread *thread, const char *moment);

#endif

/* Combines the times of the threads. All threads call these functions, which return exit codes. */
#ifndef PERF_TIMES_H
#define PERF_TIMES_H

#include "perf/perf_ranks.h"
#include "perf/perf_report.h"

/* Combines the times of all ranks as -a says. */
int perf_times_average(struct perf_thread *thread, struct perf_half *half);

/* Statistics of single iterations, each by its slowest rank. times NULL: there are none. sorted has
 * room for as many. */
int perf_times_stats(struct perf_thread *thread, double *times, double *sorted,
                     struct perf_half *half);

#endif

/* What becomes of the times that each thread has taken. All threads call these; exit codes. */
#ifndef PERF_TIMES_H
#define PERF_TIMES_H

#include "perf/perf_ranks.h"
#include "perf/perf_report.h"

/* One time for all ranks, as -a says. */
int perf_times_average(struct perf_thread *thread, struct perf_half *half);

/* Of single iterations, the slowest rank's; times NULL: they were not taken. sorted is room for as
 * many. */
int perf_times_stats(struct perf_thread *thread, double *times, double *sorted,
                     struct perf_half *half);

#endif

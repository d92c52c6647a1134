/* The two clocks of the benchmarks, in seconds. */
#ifndef PERF_CLOCK_H
#define PERF_CLOCK_H

#include <time.h>

static inline double perf_clock_read(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline double perf_clock_seconds(void)
{
    return perf_clock_read(CLOCK_MONOTONIC);
}

/* Processor time of the calling thread. */
static inline double perf_clock_cpu_seconds(void)
{
    return perf_clock_read(CLOCK_THREAD_CPUTIME_ID);
}

#endif

/* See perf_times.h. */
#include "perf/perf_times.h"

#include <string.h>

#include "perf/perf_failure.h"

int perf_times_average(struct perf_thread *thread, struct perf_half *half)
{
    const struct perf_options *options = thread->job->options;
    double share = (double)options->gpus / thread->job->nranks;
    double seconds[2] = {half->seconds, half->cpu_seconds};
    hoop_red_op_t op = HOOP_SUM;
    switch (options->average) {
    case PERF_AVERAGE_RANK0:
        share = thread->ranks[0].rank == 0 ? 1 : 0;
        break;
    case PERF_AVERAGE_MIN:
        share = 1;
        op = HOOP_MIN;
        break;
    case PERF_AVERAGE_MAX:
        share = 1;
        op = HOOP_MAX;
        break;
    default:
        break;
    }
    seconds[0] *= share;
    seconds[1] *= share;
    PERF_TRY(perf_ranks_agree(thread, seconds, 2, HOOP_FLOAT64, op));
    half->seconds = seconds[0];
    half->cpu_seconds = seconds[1];
    return PERF_SUCCESS;
}

int perf_times_stats(struct perf_thread *thread, double *times, double *sorted,
                     struct perf_half *half)
{
    const struct perf_options *options = thread->job->options;
    size_t n = (size_t)options->iters;
    if (!times || n == 0) {
        return PERF_SUCCESS;
    }
    PERF_TRY(perf_ranks_agree(thread, times, n, HOOP_FLOAT64, HOOP_MAX));
    size_t skip = (size_t)options->per_iter_skip;
    skip = skip < n ? skip : n - 1; /* at least one must remain */
    memcpy(sorted, times + skip, (n - skip) * sizeof(double));
    perf_report_stats(sorted, n - skip, &half->stats);
    half->times = times;
    half->n_times = n;
    return PERF_SUCCESS;
}

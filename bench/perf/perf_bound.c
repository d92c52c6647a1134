/* See perf_bound.h. */
#include "perf/perf_bound.h"

#include "perf/perf_clock.h"
#include "perf/perf_failure.h"

#define MEASURE_SECONDS 0.15
#define MOST_BYTES ((size_t)256 << 20)
#define PIECE_BYTES ((size_t)1 << 20) /* between two looks at the clock */

/* Explicit vectors, since at -O2 not every compiler vectorizes a scalar loop. */
typedef float bound_vector __attribute__((vector_size(32), may_alias));

static void bound_add(char *a, const char *b, size_t bytes)
{
    bound_vector *to = (bound_vector *)(void *)a;
    const bound_vector *from = (const bound_vector *)(const void *)b;
    for (size_t i = 0; i < bytes / sizeof *to; i++) {
        to[i] += from[i];
    }
}

/* Bytes read and written per second by this thread, over the buffers of all its ranks in turn. */
static double bound_run(struct perf_thread *thread, size_t bytes)
{
    double moved = 0;
    double start = perf_clock_seconds();
    double elapsed = 0;
    for (size_t at = 0, i = 0; elapsed < MEASURE_SECONDS;) {
        struct perf_rank *rank = &thread->ranks[i];
        size_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        bound_add(perf_buffer_at(&rank->recv, at), perf_buffer_at(&rank->send, at), piece);
        moved += 3.0 * (double)piece; /* a and b are read, a is written */
        at += piece;
        if (at == bytes) {
            at = 0;
            i = (i + 1) % (size_t)thread->job->options->gpus;
        }
        elapsed = perf_clock_seconds() - start;
    }
    return moved / elapsed;
}

int perf_bound_measure(struct perf_thread *thread, struct perf_bound *ret_bound)
{
    const struct perf_job *job = thread->job;
    size_t bytes = job->options->max_bytes < MOST_BYTES ? job->options->max_bytes : MOST_BYTES;
    *ret_bound = (struct perf_bound){0};
    if (!job->options->bound || job->nranks < 2 ||
        job->options->max_bytes < PERF_BOUND_FROM_BYTES) {
        return PERF_SUCCESS;
    }
    bytes &= ~(size_t)4095; /* whole pages: the vectors need alignment */
    PERF_TRY(perf_ranks_barrier(thread));
    double speed = bound_run(thread, bytes);
    PERF_TRY(perf_ranks_agree(thread, &speed, 1, HOOP_FLOAT64, HOOP_SUM));
    *ret_bound = (struct perf_bound){
        .bytes_per_second = speed,
        .bytes = bytes,
        .alg = speed / job->collective->traffic(job->nranks) / 1e9,
    };
    return PERF_SUCCESS;
}

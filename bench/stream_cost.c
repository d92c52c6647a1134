/*
 * What a host stream costs, and how much of communication it hides behind computing.
 *
 *     hooprun -n 2 stream_cost [rounds]
 *
 * Started as one rank it makes two in the process, which one thread calls: then on two CPUs one is
 * free beside the caller.
 *
 * Small: an all_reduce of 8 bytes, blocking, and on a stream with a ticket that is awaited at once.
 * Large: 20 all_reduces of 1 MiB, blocking; computing for about as long; and both at the same time,
 * with the all_reduces on a stream. "Hidden" is the time that this saves, as a share of the
 * blocking time. Rank 0 prints medians of interleaved rounds.
 */
#include <hoop.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALLS 500
#define LARGE 20
#define LARGE_COUNT ((size_t)262144)

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const hoop_result_t result_ = (call);                                                      \
        if (result_ != HOOP_OK) {                                                                  \
            fprintf(stderr, "stream_cost: %s: %s\n", #call, hoop_get_last_error(NULL));            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The ranks of this process. Blocking calls have comms of their own, because they are a little
 * slower on a comm that streams use. */
#define MOST 2
struct ranks {
    int n;
    hoop_comm_t blocks[MOST], queues[MOST];
    hoop_stream_t streams[MOST];
    float *data[MOST]; /* LARGE times LARGE_COUNT */
};

enum { SMALL_BLOCKS, SMALL_QUEUES, LARGE_BLOCKS, LARGE_COMPUTES, LARGE_BOTH, KINDS };

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* One blocking all_reduce of all ranks of the process. */
static void blocking(const struct ranks *ranks, size_t offset, size_t count)
{
    CHECK(hoop_group_start());
    for (int r = 0; r < ranks->n; r++) {
        float *data = ranks->data[r] + offset;
        CHECK(hoop_all_reduce(data, data, count, HOOP_FLOAT32, HOOP_MAX, ranks->blocks[r], NULL));
    }
    CHECK(hoop_group_end());
}

static void queued(const struct ranks *ranks, size_t offset, size_t count)
{
    for (int r = 0; r < ranks->n; r++) {
        float *data = ranks->data[r] + offset;
        CHECK(hoop_all_reduce(data, data, count, HOOP_FLOAT32, HOOP_MAX, ranks->queues[r],
                              ranks->streams[r]));
    }
}

static void small(const struct ranks *ranks)
{
    if (ranks->n == 1) {
        CHECK(hoop_all_reduce(ranks->data[0], ranks->data[0], 2, HOOP_FLOAT32, HOOP_MAX,
                              ranks->blocks[0], NULL));
    } else {
        blocking(ranks, 0, 2);
    }
}

static void small_queued(const struct ranks *ranks)
{
    hoop_ticket_t tickets[MOST];
    queued(ranks, 0, 2);
    for (int r = 0; r < ranks->n; r++) {
        CHECK(hoop_stream_record(ranks->streams[r], &tickets[r]));
    }
    for (int r = 0; r < ranks->n; r++) {
        CHECK(hoop_ticket_wait(tickets[r], -1));
    }
}

static double time_calls(void (*call)(const struct ranks *ranks), const struct ranks *ranks)
{
    const double start = now_us();
    for (int i = 0; i < CALLS; i++) {
        call(ranks);
    }
    return (now_us() - start) / CALLS;
}

static void large(const struct ranks *ranks,
                  void (*call)(const struct ranks *ranks, size_t offset, size_t count))
{
    for (size_t i = 0; i < LARGE; i++) {
        call(ranks, i * LARGE_COUNT, LARGE_COUNT);
    }
}

/* Computes without touching memory. */
static void compute(uint64_t steps)
{
    volatile double result = 1;
    double x = result;
    for (uint64_t i = 0; i < steps; i++) {
        x = x * 1.0000001 + 1e-9;
    }
    result = x;
}

/* A barrier, so that all ranks begin together. */
static double start_us(const struct ranks *ranks)
{
    blocking(ranks, 0, 0);
    return now_us();
}

static void measure(const struct ranks *ranks, uint64_t steps, double *ret)
{
    (void)start_us(ranks);
    ret[SMALL_BLOCKS] = time_calls(small, ranks);
    ret[SMALL_QUEUES] = time_calls(small_queued, ranks);
    double start = start_us(ranks);
    large(ranks, blocking);
    ret[LARGE_BLOCKS] = now_us() - start;
    start = start_us(ranks);
    compute(steps);
    ret[LARGE_COMPUTES] = now_us() - start;
    start = start_us(ranks);
    large(ranks, queued);
    compute(steps);
    for (int r = 0; r < ranks->n; r++) {
        CHECK(hoop_stream_synchronize(ranks->streams[r]));
    }
    ret[LARGE_BOTH] = now_us() - start;
}

static int by_size(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void report(double (*rounds)[KINDS], int n)
{
    double medians[KINDS];
    double *sorted = calloc((size_t)n, sizeof(*sorted));
    for (int kind = 0; kind < KINDS && sorted != NULL; kind++) {
        for (int i = 0; i < n; i++) {
            sorted[i] = rounds[i][kind];
        }
        qsort(sorted, (size_t)n, sizeof(*sorted), by_size);
        medians[kind] = sorted[n / 2];
    }
    if (sorted != NULL) {
        const double saved = medians[LARGE_BLOCKS] + medians[LARGE_COMPUTES] - medians[LARGE_BOTH];
        printf("8 bytes: %.2f us blocking, %.2f us on a stream\n", medians[SMALL_BLOCKS],
               medians[SMALL_QUEUES]);
        printf("%d times 1 MiB: %.0f us blocking, %.0f us computing, %.0f us together: %.0f %% "
               "hidden\n",
               LARGE, medians[LARGE_BLOCKS], medians[LARGE_COMPUTES], medians[LARGE_BOTH],
               100 * saved / medians[LARGE_BLOCKS]);
    }
    free(sorted);
}

/* Makes the comms of the job, or of two ranks in the process if the job has one. *ret_rank: the
 * rank in the job. */
static struct ranks make(int *ret_rank)
{
    struct ranks ranks = {.n = 1};
    int world = 0;
    CHECK(hoop_comm_init_env(&ranks.blocks[0], NULL));
    CHECK(hoop_comm_count(ranks.blocks[0], &world));
    CHECK(hoop_comm_user_rank(ranks.blocks[0], ret_rank));
    if (world == 1) {
        CHECK(hoop_comm_destroy(ranks.blocks[0]));
        ranks.n = MOST;
        CHECK(hoop_comm_init_all(ranks.blocks, MOST, NULL));
        CHECK(hoop_comm_init_all(ranks.queues, MOST, NULL));
    } else {
        CHECK(hoop_comm_init_env(&ranks.queues[0], NULL));
    }
    for (int r = 0; r < ranks.n; r++) {
        CHECK(hoop_stream_create(&ranks.streams[r]));
        CHECK(hoop_mem_alloc((void **)&ranks.data[r], LARGE * LARGE_COUNT * sizeof(float),
                             HOOP_MEM_HOST));
    }
    return ranks;
}

static void end(const struct ranks *ranks)
{
    for (int r = 0; r < ranks->n; r++) {
        CHECK(hoop_stream_destroy(ranks->streams[r]));
        CHECK(hoop_comm_destroy(ranks->queues[r]));
        CHECK(hoop_comm_destroy(ranks->blocks[r]));
        CHECK(hoop_mem_free(ranks->data[r]));
    }
}

int main(int argc, char **argv)
{
    const int n = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 30;
    double(*rounds)[KINDS] = calloc((size_t)n, sizeof(*rounds));
    int rank = 0;
    uint64_t steps = 1000000;
    const struct ranks ranks = make(&rank);
    if (rounds == NULL) {
        fprintf(stderr, "stream_cost: no memory for %d rounds\n", n);
        return 1;
    }
    for (int i = 0; i < 3; i++) { /* warms up, and makes computing as long as the blocking calls */
        measure(&ranks, steps, rounds[0]);
        steps = (uint64_t)((double)steps * rounds[0][LARGE_BLOCKS] / rounds[0][LARGE_COMPUTES]);
    }
    for (int i = 0; i < n; i++) {
        measure(&ranks, steps, rounds[i]);
    }
    if (rank == 0) {
        report(rounds, n);
    }
    end(&ranks);
    free(rounds);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("standard output");
        return 1;
    }
    return 0;
}

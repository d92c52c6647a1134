/*
 * The measurements of the benchmarks with MPI's collectives, for comparison by compare.sh, which
 * builds this if there is an MPI. Floats, out of place and in place; rows have the columns of the
 * benchmarks (but times with three decimals); results are not checked.
 *
 *     mpi_perf [-c collective] [-b min] [-e max] [-f factor] [-n iterations] [-w warm-up]
 *
 * Sizes are in bytes, with K, M or G, and mean the same as in the benchmarks: if each rank has a
 * part, the total of all parts. As there, buffers have the largest size, and iterations of a
 * smaller one go through them part by part.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORLD MPI_COMM_WORLD

struct call {
    float *send, *recv; /* in place: send is NULL and recv the one buffer */
    int count;          /* elements of each rank's part if it has one, else of the vector */
    int rank, ranks;
};

struct collective {
    const char *name;
    void (*start)(const struct call *call);
    bool parts;        /* the size is that of all ranks' parts together */
    bool reduces;      /* the column says sum */
    bool not_in_place; /* hoop can't do it in place */
    int bus_numerator; /* bus factor: this times (n-1)/n; 0: the factor is 1 */
};

struct setup {
    const struct collective *collective;
    size_t min_bytes;
    size_t max_bytes;
    size_t factor;
    size_t iters;
    size_t warmup;
};

/* ---- Collectives ----------------------------------------------------------------------------- */

static const void *send_of(const struct call *call)
{
    return call->send ? call->send : MPI_IN_PLACE;
}

static void all_reduce(const struct call *call)
{
    MPI_Allreduce(send_of(call), call->recv, call->count, MPI_FLOAT, MPI_SUM, WORLD);
}

/* In place the root has one buffer, and the others only send. */
static void reduce(const struct call *call)
{
    const void *send = call->rank > 0 && !call->send ? call->recv : send_of(call);
    MPI_Reduce(send, call->recv, call->count, MPI_FLOAT, MPI_SUM, 0, WORLD);
}

static void reduce_scatter(const struct call *call)
{
    MPI_Reduce_scatter_block(send_of(call), call->recv, call->count, MPI_FLOAT, MPI_SUM, WORLD);
}

static void all_gather(const struct call *call)
{
    MPI_Allgather(send_of(call), call->count, MPI_FLOAT, call->recv, call->count, MPI_FLOAT, WORLD);
}

/* MPI_Bcast is always in place: out of place the root copies its input to its output. */
static void broadcast(const struct call *call)
{
    if (call->rank == 0 && call->send) {
        memcpy(call->recv, call->send, (size_t)call->count * sizeof(float));
    }
    MPI_Bcast(call->recv, call->count, MPI_FLOAT, 0, WORLD);
}

static void alltoall(const struct call *call)
{
    MPI_Alltoall(call->send, call->count, MPI_FLOAT, call->recv, call->count, MPI_FLOAT, WORLD);
}

static void gather(const struct call *call)
{
    const void *send = call->rank > 0 && !call->send ? call->recv : send_of(call);
    MPI_Gather(send, call->count, MPI_FLOAT, call->recv, call->count, MPI_FLOAT, 0, WORLD);
}

static void scatter(const struct call *call)
{
    const void *send = call->send ? call->send : call->recv;
    void *recv = call->rank == 0 && !call->send ? MPI_IN_PLACE : call->recv;
    MPI_Scatter(send, call->count, MPI_FLOAT, recv, call->count, MPI_FLOAT, 0, WORLD);
}

static void sendrecv(const struct call *call)
{
    const int next = (call->rank + 1) % call->ranks;
    const int before = (call->rank + call->ranks - 1) % call->ranks;
    MPI_Sendrecv(call->send, call->count, MPI_FLOAT, next, 0, call->recv, call->count, MPI_FLOAT,
                 before, 0, WORLD, MPI_STATUS_IGNORE);
}

static const struct collective collectives[] = {
    {"all_reduce", all_reduce, .reduces = true, .bus_numerator = 2},
    {"all_gather", all_gather, .parts = true, .bus_numerator = 1},
    {"alltoall", alltoall, .parts = true, .not_in_place = true, .bus_numerator = 1},
    {"broadcast", broadcast},
    {"gather", gather, .parts = true, .bus_numerator = 1},
    {"reduce", reduce, .reduces = true},
    {"reduce_scatter", reduce_scatter, .parts = true, .reduces = true, .bus_numerator = 1},
    {"scatter", scatter, .parts = true, .bus_numerator = 1},
    {"sendrecv", sendrecv, .not_in_place = true},
};
#define N_COLLECTIVES (sizeof collectives / sizeof collectives[0])

static const struct collective *find_collective(const char *name)
{
    for (size_t i = 0; i < N_COLLECTIVES; i++) {
        if (strcmp(collectives[i].name, name) == 0) {
            return &collectives[i];
        }
    }
    return NULL;
}

/* ---- Options --------------------------------------------------------------------------------- */

static bool read_size(const char *text, size_t *ret)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    end += shift > 0;
    if (end == text || *end != '\0' || value > (SIZE_MAX >> shift)) {
        return false;
    }
    *ret = (size_t)value << shift;
    return true;
}

static bool read_options(int argc, char **argv, struct setup *setup)
{
    for (int letter; (letter = getopt(argc, argv, "b:c:e:f:n:w:")) != -1;) {
        if (letter == 'c') {
            setup->collective = find_collective(optarg);
            continue;
        }
        size_t *field = letter == 'b'   ? &setup->min_bytes
                        : letter == 'e' ? &setup->max_bytes
                        : letter == 'f' ? &setup->factor
                        : letter == 'n' ? &setup->iters
                        : letter == 'w' ? &setup->warmup
                                        : NULL;
        if (!field || !read_size(optarg, field)) {
            return false;
        }
    }
    return setup->collective && setup->iters > 0 && setup->min_bytes <= setup->max_bytes &&
           setup->max_bytes / sizeof(float) <= INT32_MAX;
}

/* ---- Measuring ------------------------------------------------------------------------------- */

/* Starts the collective in part i of the buffers, cyclically. */
static void start(const struct setup *setup, struct call call, size_t bytes, size_t i)
{
    size_t parts = bytes > 0 ? setup->max_bytes / bytes : 1;
    size_t at = parts > 1 ? i % parts * (bytes / sizeof(float)) : 0;
    call.recv += at;
    call.send = call.send ? call.send + at : NULL;
    setup->collective->start(&call);
}

/* Seconds per operation of `bytes` bytes, as the mean of all ranks. */
static double measure(const struct setup *setup, const struct call *call, size_t bytes)
{
    for (size_t i = 0; i < setup->warmup; i++) {
        start(setup, *call, bytes, i);
    }
    MPI_Barrier(WORLD);
    double begun = MPI_Wtime();
    for (size_t i = 0; i < setup->iters; i++) {
        start(setup, *call, bytes, setup->warmup + i);
    }
    double seconds = (MPI_Wtime() - begun) / (double)setup->iters;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_SUM, WORLD);
    return seconds / call->ranks;
}

static void print_half(const struct collective *collective, size_t bytes, int ranks, double seconds)
{
    double alg = (double)bytes / seconds / 1e9;
    double factor =
        collective->bus_numerator > 0 ? (double)collective->bus_numerator * (ranks - 1) / ranks : 1;
    printf("  %9.3f  %6.2f  %6.2f     N/A", seconds * 1e6, alg, alg * factor);
}

/* The benchmarks' counts: parts are whole units of 16 bytes. */
static int count_of(const struct collective *collective, size_t bytes, int ranks)
{
    size_t count = bytes / sizeof(float);
    return (int)(collective->parts ? count / (size_t)ranks & ~(size_t)3 : count);
}

static void run_size(const struct setup *setup, struct call call, size_t bytes)
{
    const struct collective *collective = setup->collective;
    float *send = call.send;
    call.count = count_of(collective, bytes, call.ranks);
    bytes = (size_t)call.count * sizeof(float) * (collective->parts ? (size_t)call.ranks : 1);
    double apart = measure(setup, &call, bytes);
    double in_place = 0;
    if (!collective->not_in_place) {
        call.send = NULL;
        /* zeros stay finite, however often they are summed */
        memset(call.recv, 0, setup->max_bytes);
        in_place = measure(setup, &call, bytes);
        call.send = send;
    }
    if (call.rank > 0) {
        return;
    }
    printf("%12zu  %12d  %8s  %6s  %6d", bytes, call.count, "float",
           collective->reduces ? "sum" : "none", -1);
    print_half(collective, bytes, call.ranks, apart);
    if (collective->not_in_place) {
        printf("  %9s  %6s  %6s     N/A", "N/A", "N/A", "N/A");
    } else {
        print_half(collective, bytes, call.ranks, in_place);
    }
    printf("\n");
    fflush(stdout);
}

static void run_sizes(const struct setup *setup, const struct call *call)
{
    for (size_t bytes = setup->min_bytes; bytes <= setup->max_bytes; bytes *= setup->factor) {
        run_size(setup, *call, bytes);
        if (setup->factor < 2 || bytes == 0) {
            break;
        }
    }
}

static float *allocate(size_t bytes)
{
    void *buffer = NULL;
    if (posix_memalign(&buffer, 4096, bytes + 64) != 0) {
        fprintf(stderr, "mpi_perf: out of memory for two buffers of %zu bytes\n", bytes);
        MPI_Abort(WORLD, 1);
        exit(1);
    }
    return buffer;
}

int main(int argc, char **argv)
{
    struct setup setup = {&collectives[0], (size_t)32 << 20, (size_t)32 << 20, 2, 20, 1};
    struct call call = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(WORLD, &call.rank);
    MPI_Comm_size(WORLD, &call.ranks);
    if (!read_options(argc, argv, &setup)) {
        if (call.rank == 0) {
            fprintf(stderr,
                    "usage: %s [-c collective] [-b min] [-e max] [-f factor] [-n iterations] "
                    "[-w warm-up]\n",
                    argv[0]);
        }
        MPI_Finalize();
        return 255;
    }
    call.send = allocate(setup.max_bytes);
    call.recv = allocate(setup.max_bytes);
    for (size_t i = 0; i < setup.max_bytes / sizeof(float); i++) {
        call.send[i] = (float)(i % 17);
        call.recv[i] = 0;
    }
    run_sizes(&setup, &call);
    free(call.send);
    free(call.recv);
    MPI_Finalize();
    return 0;
}

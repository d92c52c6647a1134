/*
 * The same measurement with MPI_Allreduce: what all_reduce_perf is compared with by
 * compare.sh, which builds it where there is an MPI. Float sums, out of place and in place,
 * rows in the columns of all_reduce_perf (but times with three decimals), nothing checked.
 *
 *     mpi_allreduce [-b min] [-e max] [-f factor] [-n iterations] [-w warm-up]
 *
 * Sizes are in bytes, with K, M or G.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct setup {
    size_t min_bytes;
    size_t max_bytes;
    size_t factor;
    size_t iters;
    size_t warmup;
};

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
    for (int letter; (letter = getopt(argc, argv, "b:e:f:n:w:")) != -1;) {
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
    return setup->iters > 0 && setup->min_bytes <= setup->max_bytes &&
           setup->max_bytes / sizeof(float) <= INT32_MAX;
}

/* Seconds per operation, the mean of all ranks. */
static double measure(const struct setup *setup, const void *send, float *recv, int count)
{
    for (size_t i = 0; i < setup->warmup; i++) {
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (size_t i = 0; i < setup->iters; i++) {
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    double seconds = (MPI_Wtime() - start) / (double)setup->iters;
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return seconds / ranks;
}

static void print_half(size_t bytes, int ranks, double seconds)
{
    double alg = (double)bytes / seconds / 1e9;
    printf("  %9.3f  %6.2f  %6.2f     N/A", seconds * 1e6, alg, alg * 2 * (ranks - 1) / ranks);
}

static void run_sizes(const struct setup *setup, float *send, float *recv)
{
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (size_t bytes = setup->min_bytes; bytes <= setup->max_bytes; bytes *= setup->factor) {
        int count = (int)(bytes / sizeof(float));
        double apart = measure(setup, send, recv, count);
        memset(recv, 0, bytes); /* zeros stay finite however often they are summed */
        double in_place = measure(setup, MPI_IN_PLACE, recv, count);
        if (rank == 0) {
            printf("%12zu  %12d  %8s  %6s  %6d", bytes, count, "float", "sum", -1);
            print_half(bytes, ranks, apart);
            print_half(bytes, ranks, in_place);
            printf("\n");
            fflush(stdout);
        }
        if (setup->factor < 2 || bytes == 0) {
            break;
        }
    }
}

int main(int argc, char **argv)
{
    struct setup setup = {(size_t)32 << 20, (size_t)32 << 20, 2, 20, 1};
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!read_options(argc, argv, &setup)) {
        if (rank == 0) {
            fprintf(stderr,
                    "usage: %s [-b min] [-e max] [-f factor] [-n iterations] [-w warm-up]\n",
                    argv[0]);
        }
        MPI_Finalize();
        return 255;
    }
    void *send = NULL;
    void *recv = NULL;
    if (posix_memalign(&send, 4096, setup.max_bytes + 64) != 0 ||
        posix_memalign(&recv, 4096, setup.max_bytes + 64) != 0) {
        fprintf(stderr, "mpi_allreduce: out of memory for two buffers of %zu bytes\n",
                setup.max_bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    for (size_t i = 0; i < setup.max_bytes / sizeof(float); i++) {
        ((float *)send)[i] = (float)(i % 17);
        ((float *)recv)[i] = 0;
    }
    run_sizes(&setup, send, recv);
    free(send);
    free(recv);
    MPI_Finalize();
    return 0;
}

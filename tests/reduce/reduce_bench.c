/* See reduce_bench.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reduce/reduce_bench.h"
#include "reduce/reduce_cpu.h"

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds per fold in place of n vectors of so many bytes, the best of several rounds. With isa
 * HOOP_ISA_COUNT: of memcpy. */
static double bench_fold(enum hoop_isa isa, hoop_datatype_t type, unsigned n, size_t bytes)
{
    static unsigned char *vectors[8];
    const struct hoop_reduction reduction = {type, HOOP_SUM, 0};
    const size_t count = bytes / hoop_datatype_bytes(type);
    const unsigned calls = 1 + (unsigned)(((size_t)8 << 20) / (bytes * n + 400));
    double best = 1e9;
    for (unsigned v = 0; v < n; v++) {
        vectors[v] = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (vectors[v] == NULL) {
            return best;
        }
        memset(vectors[v], 0, bytes);
    }
    for (unsigned round = 0; round < 5; round++) {
        const double start = seconds();
        for (unsigned c = 0; c < calls; c++) {
            if (isa == HOOP_ISA_COUNT) {
                memcpy(vectors[0], vectors[1], bytes);
            } else {
                hoop_fold_isa(isa, &reduction, (void *const *)vectors, n,
                              (const void *const *)vectors, n, count);
            }
        }
        const double took = (seconds() - start) / calls;
        best = took < best ? took : best;
    }
    for (unsigned v = 0; v < n; v++) {
        free(vectors[v]);
    }
    return best;
}

/*
 * Sums in place, with n vectors in and n out. All bytes count that are read or written (2 n times
 * the size), beside memcpy (2 times the size); then the time of the smallest call.
 */
int reduce_bench(void)
{
    static const hoop_datatype_t which[] = {HOOP_FLOAT32, HOOP_BFLOAT16, HOOP_FLOAT16,
                                            HOOP_FLOAT8E4M3};
    static const size_t sizes[] = {(size_t)96 << 10, (size_t)64 << 20};
    printf("# %-9s %-9s %8s %10s %8s\n", "isa", "type", "vectors", "bytes", "GB/s");
    for (size_t b = 0; b < 2; b++) {
        const double copy = bench_fold(HOOP_ISA_COUNT, HOOP_INT8, 2, sizes[b]);
        printf("  %-9s %-9s %8d %10zu %8.1f\n", "memcpy", "-", 2, sizes[b],
               2e-9 * (double)sizes[b] / copy);
        for (unsigned i = 0; i < HOOP_ISA_COUNT * 8; i++) {
            const enum hoop_isa isa = (enum hoop_isa)(i / 8);
            const hoop_datatype_t type = which[i / 2 % 4];
            const unsigned n = i % 2 == 0 ? 2 : 8;
            if (hoop_isa_supported(isa)) {
                const double took = bench_fold(isa, type, n, sizes[b]);
                printf("  %-9s %-9s %8u %10zu %8.1f\n", hoop_isa_name(isa),
                       hoop_datatype_name(type), n, sizes[b], 2e-9 * n * (double)sizes[b] / took);
            }
        }
    }
    for (unsigned i = 0; i < HOOP_ISA_COUNT; i++) {
        if (hoop_isa_supported((enum hoop_isa)i)) {
            printf("# %s: 2 floats, 2 sources: %.1f ns; 100 bytes: %.1f ns\n",
                   hoop_isa_name((enum hoop_isa)i),
                   1e9 * bench_fold((enum hoop_isa)i, HOOP_FLOAT32, 2, 8),
                   1e9 * bench_fold((enum hoop_isa)i, HOOP_FLOAT32, 2, 100));
        }
    }
    return 0;
}

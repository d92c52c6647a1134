/*
 * The peak of one core in fp32, in GFLOP/s: chains of fused multiply-adds in registers, with the
 * widest vectors of the processor. The trainer's speed is reported as a share of it.
 */
#include <stdio.h>
#include <time.h>

#define CHAINS 10 /* independent: two units with a latency of 4 cycles need at least 8 */
#define STEPS 4000000L
#define ROUNDS 9

/* Defines a function for vectors of that many bytes. Chains begin with different values, or the
 * compiler would compute only one. */
#define CHAINS_FUNCTION(name, attribute, bytes)                                                    \
    attribute static float name(long steps)                                                        \
    {                                                                                              \
        typedef float wide __attribute__((vector_size(bytes)));                                    \
        wide chain[CHAINS];                                                                        \
        for (int i = 0; i < CHAINS; i++) {                                                         \
            chain[i] = (wide){(float)i};                                                           \
        }                                                                                          \
        for (long step = 0; step < steps; step++) {                                                \
            for (int i = 0; i < CHAINS; i++) {                                                     \
                chain[i] = chain[i] * 0.5F + 1.0F;                                                 \
            }                                                                                      \
        }                                                                                          \
        float sum = 0;                                                                             \
        for (int i = 0; i < CHAINS; i++) {                                                         \
            sum += chain[i][0];                                                                    \
        }                                                                                          \
        return sum;                                                                                \
    }

CHAINS_FUNCTION(chains_16, , 16)
#if defined(__x86_64__)
CHAINS_FUNCTION(chains_32, __attribute__((target("avx2,fma"))), 32)
CHAINS_FUNCTION(chains_64, __attribute__((target("avx512f"))), 64)
#endif

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(void)
{
    float (*chains)(long) = chains_16;
    int bytes = 16;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        chains = chains_64;
        bytes = 64;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        chains = chains_32;
        bytes = 32;
    }
#endif
    const double flop = 2.0 * CHAINS * STEPS * bytes / (double)sizeof(float);
    double best = 0;
    float sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const double began = seconds();
        sum += chains(STEPS);
        const double rate = flop / (seconds() - began) / 1e9;
        best = rate > best ? rate : best;
    }
    printf("%.1f\n", best);
    return sum > 0 ? 0 : 1; /* used, so that the compiler does not drop the computation */
}

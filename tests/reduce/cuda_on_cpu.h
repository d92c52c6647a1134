/*
 * The parts of CUDA that lib/reduce/reduce_cuda.cu and bench/perf/perf_kernels.cu use, in C11. The
 * kernels become functions of one thread, which are called for every thread of a grid in turn. A
 * unit that includes one must be built with -ffp-contract=off.
 *
 * Not included: the device's own conversions of fp16, bf16 and fp8. The kernels do them on bits
 * instead.
 */
#ifndef HOOP_TESTS_CUDA_ON_CPU_H
#define HOOP_TESTS_CUDA_ON_CPU_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline
#define KERNEL static
#define BOUNDS(type, bytes, op, scaled, told)
#define ARGUMENT(type) const type
#define HEAR(ret, told) const struct hoop_cuda_fold ret = *(told)
#define UNROLL

/* Few, so that short vectors have whole tiles, too. */
#define THREADS 8
#define THREAD on_cpu_place()->thread
#define BLOCK on_cpu_place()->block
#define BLOCKS on_cpu_place()->blocks

struct on_cpu_place {
    uint32_t thread;
    uint32_t block;
    uint32_t blocks;
};

/* The place in the grid of the running thread. */
INLINE struct on_cpu_place *on_cpu_place(void)
{
    static _Thread_local struct on_cpu_place place;
    return &place;
}

INLINE float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

INLINE uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

INLINE double __longlong_as_double(long long bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

INLINE long long __double_as_longlong(double x)
{
    long long bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

INLINE float __fadd_rn(float a, float b)
{
    return a + b;
}

INLINE float __fmul_rn(float a, float b)
{
    return a * b;
}

INLINE double __dadd_rn(double a, double b)
{
    return a + b;
}

INLINE double __dmul_rn(double a, double b)
{
    return a * b;
}

INLINE void atomicAdd(unsigned long long *to, unsigned long long value)
{
    (void)__atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

/* A device faults at a wrong alignment, which on a CPU nobody would notice. */
INLINE void on_cpu_load_16(void *to, const unsigned char *from)
{
    assert((uintptr_t)from % 16 == 0);
    memcpy(to, from, 16);
}

INLINE void on_cpu_store_16(unsigned char *to, const void *from)
{
    assert((uintptr_t)to % 16 == 0);
    memcpy(to, from, 16);
}

#endif

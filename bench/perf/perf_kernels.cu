/*
 * The kernels of perf_kernels.h: they apply the rules of perf_rules.h, one element per thread at a
 * time.
 *
 * Written in the common subset of C11 and CUDA C++, like lib/reduce/reduce_cuda.cu;
 * tests/reduce/cuda_on_cpu.h makes plain C of it.
 */
#include "perf/perf_kernels.h"

#ifdef __CUDACC__
#define INLINE static __device__ __forceinline__
#define KERNEL extern "C" __global__ __launch_bounds__(PERF_KERNEL_THREADS)
#define ARGUMENT(type) const __grid_constant__ type
#define THREADS PERF_KERNEL_THREADS
#define THREAD threadIdx.x
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#endif

#define RULE INLINE
#define RULE_BLOCK 1
#include "perf/perf_rules.h"

INLINE uint64_t element_made(const struct perf_span *span, uint64_t i)
{
    uint64_t element;
    if (span->rank == PERF_REDUCED) {
        rule_results(&span->rules, span->first + i, 1, &element);
    } else {
        rule_inputs(&span->rules, span->rank, span->first + i, 1, &element);
    }
    return element;
}

/* An element of `bytes` bytes, aligned or not. */
INLINE uint64_t element_load(const unsigned char *at, uint32_t bytes)
{
    if ((uintptr_t)at % bytes == 0 && bytes > 1) {
        return bytes == 8   ? *(const uint64_t *)at
               : bytes == 4 ? *(const uint32_t *)at
                            : *(const uint16_t *)at;
    }
    uint64_t element = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        element |= (uint64_t)at[i] << (i * 8);
    }
    return element;
}

INLINE void element_store(unsigned char *at, uint32_t bytes, uint64_t element)
{
    const bool whole = (uintptr_t)at % bytes == 0;
    if (whole && bytes == 8) {
        *(uint64_t *)at = element;
    } else if (whole && bytes == 4) {
        *(uint32_t *)at = (uint32_t)element;
    } else if (whole && bytes == 2) {
        *(uint16_t *)at = (uint16_t)element;
    } else {
        for (uint32_t i = 0; i < bytes; i++) {
            at[i] = (unsigned char)(element >> (i * 8));
        }
    }
}

INLINE uint32_t bytes_that_differ(uint64_t a, uint64_t b)
{
    uint32_t count = 0;
    for (uint64_t rest = a ^ b; rest != 0; rest >>= 8) {
        count += (rest & 0xff) != 0;
    }
    return count;
}

KERNEL void perf_write(ARGUMENT(struct perf_work) work)
{
    const uint32_t bytes = (uint32_t)work.span.rules.bits / 8;
    const uint64_t threads = (uint64_t)BLOCKS * THREADS;
    for (uint64_t i = (uint64_t)BLOCK * THREADS + THREAD; i < work.span.count; i += threads) {
        element_store((unsigned char *)work.at + i * bytes, bytes, element_made(&work.span, i));
    }
}

KERNEL void perf_compare(ARGUMENT(struct perf_work) work)
{
    const uint32_t bytes = (uint32_t)work.span.rules.bits / 8;
    const uint64_t threads = (uint64_t)BLOCKS * THREADS;
    uint64_t found = 0;
    for (uint64_t i = (uint64_t)BLOCK * THREADS + THREAD; i < work.span.count; i += threads) {
        const uint64_t got = element_load((const unsigned char *)work.at + i * bytes, bytes);
        const uint64_t want = element_made(&work.span, i);
        found += work.bytes ? bytes_that_differ(got, want)
                            : (uint32_t)rule_is_wrong(&work.span.rules, got, want);
    }
    if (found != 0) {
        atomicAdd((unsigned long long *)work.found, (unsigned long long)found);
    }
}

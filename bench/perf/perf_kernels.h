/*
 * The kernels that make and compare elements on a device (perf_kernels.cu), and their argument.
 * perf_elements.c launches them. Nothing here needs a CUDA header.
 */
#ifndef PERF_KERNELS_H
#define PERF_KERNELS_H

#include "perf/perf_data.h"

/* Threads of a block; the number of blocks is free. */
#define PERF_KERNEL_THREADS 256

/* The one argument of both. */
struct perf_work {
    struct perf_span span;
    void *at;    /* where the span lies; needs no alignment */
    void *found; /* a uint64_t, to which compare adds */
    bool bytes;  /* compare counts bytes that differ, instead of wrong elements */
};

#define PERF_KERNEL_WRITE "perf_write"
#define PERF_KERNEL_COMPARE "perf_compare"

/* The device code, as the driver loads it. */
extern const unsigned char perf_kernels_image[];

#endif

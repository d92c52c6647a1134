/*
 * A CUDA driver for tests, as a library of its own that HOOP_CUDA names: one device of 256 MiB,
 * whose memory the host can't touch at its addresses, streams with a thread each and random delays
 * in them. It refuses what a real one may let pass: copies that leave an allocation, and host
 * memory that is not pinned. What is freed, and what is fresh, holds garbage.
 *
 * These are what a test asks of it besides; from dlsym(), by their names.
 */
#ifndef HOOP_TESTS_FAKE_CUDA_H
#define HOOP_TESTS_FAKE_CUDA_H

#include "hoop.h"

/* A device address plus this is where a test may look at the memory. */
typedef ptrdiff_t fake_cuda_view_t(void);
/* A kernel: after delay_us fills [at, at + bytes) of the device. */
typedef void fake_cuda_fill_t(hoop_stream_t stream, void *at, int byte, size_t bytes,
                              unsigned delay_us);
/* Whether the stream records a graph instead of running. */
typedef void fake_cuda_capture_t(hoop_stream_t stream, int on);
/* From the n-th copy on, counted from now, all fails as after a kernel's bad access; 0: it works.
 */
typedef void fake_cuda_break_t(unsigned n);
/* Bytes that are allocated, and ranges of the host that are pinned. */
typedef void fake_cuda_use_t(size_t *ret_bytes, size_t *ret_pinned);

#endif

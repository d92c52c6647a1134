/*
 * Makes and compares elements of a buffer: in host memory by the host; on a device by kernels, or,
 * if there are none, by the host, which copies them piece by piece.
 *
 * Work on a device is ordered by its default stream. The functions return exit codes.
 */
#ifndef PERF_ELEMENTS_H
#define PERF_ELEMENTS_H

#include "perf/perf_buffer.h"
#include "perf/perf_data.h"

/* Are there kernels for the device? The first call loads them. */
bool perf_elements_have_kernels(int device);

/* Writes the elements of a span. */
int perf_elements_make(const struct perf_buffer *buffer, const struct perf_span *span, char *at);

/* Adds to *found how many elements are wrong; or how many bytes differ from those of the span. */
int perf_elements_wrong(const struct perf_buffer *buffer, const struct perf_span *span,
                        const char *at, size_t *found);
int perf_elements_changed(const struct perf_buffer *buffer, const struct perf_span *span,
                          const char *at, size_t *found);

#endif

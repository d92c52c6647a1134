/*
 * Elements of a buffer, where they lie: made and compared by the host in its own memory, on a
 * device by kernels; where there are none, by the host, which copies them piece by piece.
 *
 * What is done on a device is in the order of its default stream. Returned are exit codes.
 */
#ifndef PERF_ELEMENTS_H
#define PERF_ELEMENTS_H

#include "perf/perf_buffer.h"
#include "perf/perf_data.h"

/* Are there kernels for the device? Looks for them when it is asked first. */
bool perf_elements_have_kernels(int device);

/* Writes a span. */
int perf_elements_make(const struct perf_buffer *buffer, const struct perf_span *span, char *at);

/* Adds how many elements are wrong, or how many of their bytes are not those of the span. */
int perf_elements_wrong(const struct perf_buffer *buffer, const struct perf_span *span,
                        const char *at, size_t *found);
int perf_elements_changed(const struct perf_buffer *buffer, const struct perf_span *span,
                          const char *at, size_t *found);

#endif

/*
 * A buffer of the benchmark: memory of one kind with room to spare on both sides, so that an
 * operation that writes next to its window is found out.
 *
 *     | margin, one page | unalign | window of at most max bytes ... | margin, one page |
 */
#ifndef PERF_BUFFER_H
#define PERF_BUFFER_H

#include <stddef.h>

#include "hoop.h"

struct perf_buffer {
    char *base; /* NULL: none */
    size_t bytes;
    int kind;     /* enum perf_memory */
    void *handle; /* of the registration */
};

/* Allocates room for windows of bytes at an offset of at most unalign_bytes, and touches it. */
hoop_result_t perf_buffer_init(struct perf_buffer *buffer, hoop_comm_t comm, int kind, size_t bytes,
                               size_t unalign_bytes);

/* comm NULL: it is gone, and the registration with it. A zeroed buffer is fine. */
void perf_buffer_finish(struct perf_buffer *buffer, hoop_comm_t comm);

/* Where windows begin when they are moved by offset bytes. */
char *perf_buffer_at(const struct perf_buffer *buffer, size_t offset);

/* Paints both sides of a window; how many of those bytes have changed since. */
void perf_buffer_guard(char *window, size_t bytes);
size_t perf_buffer_damage(const char *window, size_t bytes);

#endif

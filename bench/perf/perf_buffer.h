/*
 * A buffer of the benchmark: memory of one kind with room to spare on both sides, so that an
 * operation that writes next to its window is found out.
 *
 *     | margin, one page | unalign | window of at most max bytes ... | margin, one page |
 *
 * One on a device has addresses of the device.
 */
#ifndef PERF_BUFFER_H
#define PERF_BUFFER_H

#include <stddef.h>

#include "hoop.h"

struct perf_buffer {
    char *base; /* NULL: none */
    size_t bytes;
    int device;   /* -1: on none */
    int kind;     /* enum perf_memory */
    void *handle; /* of the registration */
};

/* Allocates room for windows of bytes at an offset of at most unalign_bytes, and touches it. kind
 * and device are filled in. PERF_SUCCESS, or an exit code after a message, here and below. */
int perf_buffer_init(struct perf_buffer *buffer, hoop_comm_t comm, size_t bytes,
                     size_t unalign_bytes);

/* comm NULL: it is gone, and the registration with it. A zeroed buffer is fine. */
void perf_buffer_finish(struct perf_buffer *buffer, hoop_comm_t comm);

/* Where windows begin when they are moved by offset bytes. */
char *perf_buffer_at(const struct perf_buffer *buffer, size_t offset);

/* Some bytes of the first margin, for who wants to count something there. */
char *perf_buffer_spare(const struct perf_buffer *buffer);

/* Sets bytes; copies some, from and to wherever buffers of this kind are, or to the host. On a
 * device, which is the current one, both are in the order of its default stream. */
int perf_buffer_fill(const struct perf_buffer *buffer, char *at, int byte, size_t bytes);
int perf_buffer_copy(const struct perf_buffer *buffer, char *to, const char *from, size_t bytes);

/* Paints both sides of a window; adds how many of those bytes have changed since. */
int perf_buffer_guard(const struct perf_buffer *buffer, char *window, size_t bytes);
int perf_buffer_damage(const struct perf_buffer *buffer, const char *window, size_t bytes,
                       size_t *found);

#endif

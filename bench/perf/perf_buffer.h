/*
 * A buffer of the benchmark: memory of one kind with margins on both sides, so that an operation
 * that writes next to its window is detected.
 *
 *     | margin, one page | unalign | window of at most max bytes ... | margin, one page |
 *
 * The addresses of a buffer on a device are the device's.
 */
#ifndef PERF_BUFFER_H
#define PERF_BUFFER_H

#include <stddef.h>

#include "hoop.h"

struct perf_buffer {
    char *base; /* NULL: none */
    size_t bytes;
    int device;   /* -1: host memory */
    int kind;     /* enum perf_memory */
    void *handle; /* of its registration; NULL: none */
};

/* Allocates room for windows of together `bytes` bytes, at an offset of at most unalign_bytes, and
 * touches it. The caller has filled in kind and device. Returns PERF_SUCCESS, or an exit code after
 * a message, as do the functions below. */
int perf_buffer_init(struct perf_buffer *buffer, hoop_comm_t comm, size_t bytes,
                     size_t unalign_bytes);

/* comm NULL: the comm, and the registration with it, is gone. Accepts a zeroed buffer. */
void perf_buffer_finish(struct perf_buffer *buffer, hoop_comm_t comm);

/* The address `offset` bytes into the room for windows. */
char *perf_buffer_at(const struct perf_buffer *buffer, size_t offset);

/* Some bytes of the first margin, in which kernels count. */
char *perf_buffer_spare(const struct perf_buffer *buffer);

/* Sets bytes; copies bytes within the buffer's kind of memory, or from there to the host. The
 * device must be current; both are ordered by its default stream. */
int perf_buffer_fill(const struct perf_buffer *buffer, char *at, int byte, size_t bytes);
int perf_buffer_copy(const struct perf_buffer *buffer, char *to, const char *from, size_t bytes);

/* Guard paints bytes on both sides of a window; damage adds to *found how many of them have
 * changed. */
int perf_buffer_guard(const struct perf_buffer *buffer, char *window, size_t bytes);
int perf_buffer_damage(const struct perf_buffer *buffer, const char *window, size_t bytes,
                       size_t *found);

#endif

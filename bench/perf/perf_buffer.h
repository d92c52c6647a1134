/*
 * A buffer of the benchmark: memory of one kind with room to spare on both sides, so that an
 * operation that writes next to its window is found out.
 *
 *     | margin, one page | unalign | window of at most max bytes ... | margin, one page |
 *
 * One on a device has a double in the host's memory, where inputs are made and results looked at;
 * all addresses here are of that.
 */
#ifndef PERF_BUFFER_H
#define PERF_BUFFER_H

#include <stddef.h>

#include "hoop.h"

struct perf_buffer {
    char *base;   /* NULL: none */
    char *memory; /* where it is: base, or on the device */
    size_t bytes;
    int device;   /* -1: on none */
    int kind;     /* enum perf_memory */
    void *handle; /* of the registration */
};

/* Allocates room for windows of bytes at an offset of at most unalign_bytes, and touches it. kind
 * and device are filled in. PERF_SUCCESS, or an exit code after a message. */
int perf_buffer_init(struct perf_buffer *buffer, hoop_comm_t comm, size_t bytes,
                     size_t unalign_bytes);

/* comm NULL: it is gone, and the registration with it. A zeroed buffer is fine. */
void perf_buffer_finish(struct perf_buffer *buffer, hoop_comm_t comm);

/* Where windows begin when they are moved by offset bytes. */
char *perf_buffer_at(const struct perf_buffer *buffer, size_t offset);

/* Where operations find what lies at `at`; NULL: it lies in another buffer. */
char *perf_buffer_there(const struct perf_buffer *buffer, const char *at);

/* Of one on a device: brings a window and what is painted around it there, or back. An exit code.
 */
int perf_buffer_put(const struct perf_buffer *buffer, const char *window, size_t bytes);
int perf_buffer_get(const struct perf_buffer *buffer, char *window, size_t bytes);

/* Paints both sides of a window; how many of those bytes have changed since. */
void perf_buffer_guard(char *window, size_t bytes);
size_t perf_buffer_damage(const char *window, size_t bytes);

#endif

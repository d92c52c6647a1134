/*
 * Devices, for buffers on them: CUDA's driver, found at run time as the library finds it
 * (HOOP_CUDA). Nothing of CUDA is needed to build or to run without. Any thread; calls of CUDA are
 * PERF_SUCCESS, or an exit code, after a message.
 */
#ifndef PERF_DEVICE_H
#define PERF_DEVICE_H

#include <stddef.h>

#include "hoop.h"

/* How many this process sees. 0: none; *ret_why, if it is not NULL, says why. */
int perf_device_count(const char **ret_why);

/* Makes a device the calling thread's current one. */
int perf_device_use(int device);

/* As nccl-tests lists it: its place on the bus, and its name. */
void perf_device_describe(int device, char ret_bus[16], char *ret_name, size_t name_bytes);

/* Plain memory of the current device, and its end. */
int perf_device_alloc(size_t bytes, char **ret);
void perf_device_free(char *memory);

/* Between host and device, at once, and behind what is on the default stream. */
int perf_device_copy(char *to, const char *from, size_t bytes);

/* On the default stream of the current device: sets all bytes. */
int perf_device_fill(char *at, int byte, size_t bytes);

/* Device code for the current device, and a kernel of it; NULL: it does not run there. */
void *perf_device_module(const void *image);
void *perf_device_kernel(void *module, const char *name);

/* On the default stream of the current device: a kernel with one argument, which is copied. */
int perf_device_launch(void *kernel, unsigned blocks, unsigned threads, void *argument);

/* Waits for all that the current device does. */
int perf_device_settle(void);

/* A stream of the current device, and its end. */
int perf_device_stream(hoop_stream_t *ret);
void perf_device_end_stream(hoop_stream_t stream);

/* Waits for all that is on a stream. */
int perf_device_wait(hoop_stream_t stream);

/* What was put on a stream between begin and end, which did not run. */
struct perf_graph {
    void *graph, *exec;
};
int perf_graph_begin(hoop_stream_t stream);
int perf_graph_end(hoop_stream_t stream, struct perf_graph *ret);
/* Runs it on the stream. */
int perf_graph_launch(const struct perf_graph *graph, hoop_stream_t stream);
void perf_graph_free(struct perf_graph *graph);

#endif

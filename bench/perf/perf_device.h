/*
 * CUDA's driver, for buffers on devices. It is loaded at run time from where the library loads it
 * (HOOP_CUDA): nothing of CUDA is needed to build, or to run without devices. Any thread. Functions
 * that return int return PERF_SUCCESS, or an exit code after a message.
 */
#ifndef PERF_DEVICE_H
#define PERF_DEVICE_H

#include <stddef.h>

#include "hoop.h"

/* How many devices this process sees. 0: none; *ret_why (which may be NULL) says why. */
int perf_device_count(const char **ret_why);

/* Makes a device the calling thread's current one. */
int perf_device_use(int device);

/* A device as nccl-tests lists it: its PCI bus id and its name. */
void perf_device_describe(int device, char ret_bus[16], char *ret_name, size_t name_bytes);

/* Allocates and frees plain memory of the current device. */
int perf_device_alloc(size_t bytes, char **ret);
void perf_device_free(char *memory);

/* Copies between host and device, behind what is on the default stream, and waits for it. */
int perf_device_copy(char *to, const char *from, size_t bytes);

/* Sets bytes, on the default stream of the current device. */
int perf_device_fill(char *at, int byte, size_t bytes);

/* Loads device code to the current device; finds a kernel of it. NULL: it does not run there. */
void *perf_device_module(const void *image);
void *perf_device_kernel(void *module, const char *name);

/* Launches a kernel with one argument, which is copied, on the current device's default stream. */
int perf_device_launch(void *kernel, unsigned blocks, unsigned threads, void *argument);

/* Makes and destroys a stream of the current device. */
int perf_device_stream(hoop_stream_t *ret);
void perf_device_end_stream(hoop_stream_t stream);

/* Waits for everything on a stream. */
int perf_device_wait(hoop_stream_t stream);

/* What was captured on a stream between begin and end; nothing of it has run. */
struct perf_graph {
    void *graph, *exec;
};
int perf_graph_begin(hoop_stream_t stream);
int perf_graph_end(hoop_stream_t stream, struct perf_graph *ret);
/* Runs the graph on the stream. */
int perf_graph_launch(const struct perf_graph *graph, hoop_stream_t stream);
void perf_graph_free(struct perf_graph *graph);

#endif

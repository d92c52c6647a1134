/*
 * What the tests of graphs and launches have in each rank: a comm, a stream, memory of the device
 * (device_ranks.h).
 */
#ifndef HOOP_TESTS_GRAPH_SCENE_H
#define HOOP_TESTS_GRAPH_SCENE_H

#include "whole/device_ranks.h"

#define BYTES ((size_t)40001)
#define ROUNDS 12

/* What a rank has. */
struct scene {
    const struct family_self *self;
    hoop_comm_t comm;
    hoop_stream_t stream;
    unsigned char *in, *out, *log; /* of the device */
};

/* Where the host sees memory of the device. */
unsigned char *at_host(const unsigned char *device);

struct scene scene_make(const struct family_self *self);
/* All that was put on the stream is over. */
void scene_settle(const struct scene *scene);
/* Destroys the comm, and tells that all is well. */
void scene_end(const struct scene *scene);

/* On the stream. */
void copy(const struct scene *scene, void *to, const void *from, size_t bytes);
void fill_in(const struct scene *scene, int value, unsigned delay_us); /* value + rank */
hoop_result_t reduce(const struct scene *scene, const void *in, void *out, size_t bytes);
void replay(const struct scene *scene, hoop_cu_graph_t graph);

/* One reduce() as a graph. */
hoop_cu_graph_t capture_sum(const struct scene *scene, const void *in, void *out, size_t bytes);

/* The sum of value + rank over all ranks, as a byte. */
unsigned char sum_of(const struct scene *scene, int value);

/* So long it takes that a call which returns before is seen to. */
#define SLOW_US 200000

/* Is anything on it? */
bool is_busy(hoop_stream_t stream);
bool are_all(const unsigned char *device, int value, size_t bytes);
/* cudaMalloc() */
unsigned char *plain(const struct family_self *self, size_t bytes);

/* What `out` has is no result. */
void assert_spoilt(const struct scene *scene);
/* What the comm fails with, soon. */
hoop_result_t scene_failure(const struct scene *scene);

#endif

/*
 * What each rank has in the tests of graphs and launches: a comm, a stream, and device memory
 * (device_ranks.h).
 */
#ifndef HOOP_TESTS_GRAPH_SCENE_H
#define HOOP_TESTS_GRAPH_SCENE_H

#include "whole/device_ranks.h"

#define BYTES ((size_t)40001)
#define ROUNDS 12

/* One rank's scene. */
struct scene {
    const struct family_self *self;
    hoop_comm_t comm;
    hoop_stream_t stream;
    unsigned char *in, *out, *log; /* device memory */
};

/* Where the host can access device memory. */
unsigned char *at_host(const unsigned char *device);

struct scene scene_make(const struct family_self *self);
/* The same on one of three devices, which the ranks see in different orders, if `apart`. */
extern bool apart;
struct scene scene_make_there(const struct family_self *self);
/* Waits for some calls, so that later ones with the scene's buffers can run on devices without any
 * call to CUDA. */
void scene_make_known(const struct scene *scene);
/* Both. */
struct scene scene_known(const struct family_self *self);
/* Waits for all that was put on the stream. */
void scene_settle(const struct scene *scene);
/* Destroys the comm, and reports that all is well. */
void scene_end(const struct scene *scene);

/* Puts a copy on the stream. */
void copy(const struct scene *scene, void *to, const void *from, size_t bytes);
void fill_in(const struct scene *scene, int value, unsigned delay_us); /* value + rank */
hoop_result_t reduce(const struct scene *scene, const void *in, void *out, size_t bytes);
void replay(const struct scene *scene, hoop_cu_graph_t graph);

/* Captures one reduce() as a graph. */
hoop_cu_graph_t capture_sum(const struct scene *scene, const void *in, void *out, size_t bytes);

/* The sum of value + rank over all ranks, as a byte. */
unsigned char sum_of(const struct scene *scene, int value);

/* In each round the log has the byte that the sum of that round's input must have. */
void assert_log(const struct scene *scene);
/* Replays a sum in ROUNDS without waiting in between. What is on the stream before each is its
 * input, and what comes behind sees its result. */
void scene_replay_often(const struct scene *scene, size_t bytes, bool in_place);
/* Captured and plain calls on one stream and comm, without waiting for earlier graphs. */
void scene_replay_among_calls(const struct scene *scene);

/* How long the input takes: a call that returns earlier is noticed. */
#define SLOW_US 200000

/* The scene's stream stops here, until scene_go(). A call that waited for it would fail. */
void scene_stop(const struct scene *scene);
void scene_go(void);

/* Is anything on the stream? */
bool is_busy(hoop_stream_t stream);
/* Is what was put on the scene's stream at start_ns, and takes so long, still there? If not the
 * time must be over: where a test stood still that says nothing. */
bool is_busy_since(const struct scene *scene, uint64_t start_ns, unsigned us);
bool are_all(const unsigned char *device, int value, size_t bytes);
/* Memory from cudaMalloc(). */
unsigned char *plain(const struct family_self *self, size_t bytes);

/* The output is marked as no result. */
void assert_spoilt(const struct scene *scene);
/* Waits until the comm fails. Returns how. */
hoop_result_t scene_failure(const struct scene *scene);

#endif

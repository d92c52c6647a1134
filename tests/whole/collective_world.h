/*
 * Ranks of one process that call collectives through the public API, in buffers of any kind, place
 * and alignment with guards around them. The expected results are those of a serial loop in the
 * documented order, compared bit by bit. The functions assert: on the main thread only.
 */
#ifndef COLLECTIVE_WORLD_H
#define COLLECTIVE_WORLD_H

#include "base/collective.h"
#include "hoop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORLD_MOST_RANKS 8

struct world_buffer {
    uint8_t *block, *data; /* addresses for this test */
    size_t bytes;
    bool mapped, borrowed; /* borrowed: part of another buffer */
    bool plain;            /* on a device: from CUDA, not from hoop_mem_alloc() */
    ptrdiff_t view;        /* device memory: from its address to where the test sees it */
};

struct world_rank {
    hoop_comm_t comm;
    struct world_buffer in, out;
    hoop_stream_t stream; /* for some calls of a rank with a device */
};

struct world {
    int n;
    struct world_rank ranks[WORLD_MOST_RANKS];
};

struct world_shape {
    enum hoop_collective collective;
    hoop_datatype_t type;
    hoop_red_op_t op;
    size_t count;
    int root;
    bool in_place, mapped;
    unsigned misalign; /* bytes */
};

/* Counts at which algorithms change their behaviour. */
#define WORLD_COUNTS 20
extern const size_t world_counts[WORLD_COUNTS];

/* for all worlds; set by world_options() */
extern const char *world_algo;
extern uint64_t world_seed; /* determines world_random() */

/* Reads `group|threads ALGO [seed]`: does a thread drive each rank, or one thread all of them? */
bool world_options(int argc, char **argv, bool *ret_threads);
uint64_t world_random(void);
/* With HOOP_TEST_SAMPLE=k in the environment: true for all but one in k, at random. */
bool world_leaves_out(void);

/* With device memory and streams, if HOOP_CUDA names a fake driver. */
void world_make(struct world *world, int n);
void world_end(struct world *world);

/* Makes one rank's call. */
hoop_result_t world_call(const struct world_rank *rank, const struct world_shape *shape);

/*
 * Runs a shape in new buffers, by a group or a thread for each rank, and compares all outputs, and
 * the inputs that are not also outputs. Does nothing if the world's algorithm can't do the shape.
 */
void world_run(struct world *world, const struct world_shape *shape, bool threads);

/* Random shapes of a collective (HOOP_COLL_COUNT: of any) on 2, 3, 5 and 8 ranks. */
void world_sample(enum hoop_collective collective, unsigned samples, bool threads,
                  size_t most_bytes);

#endif

/*
 * Ranks of one process that call collectives through the public API, in buffers of any kind, place
 * and alignment with guards around them, and what each must get: a serial loop in the documented
 * order, compared bit for bit. The functions assert: on the main thread only.
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
    uint8_t *block, *data; /* as this test sees them */
    size_t bytes;
    bool mapped, borrowed; /* borrowed: part of another buffer */
    bool plain;            /* of a device: from CUDA, and not from hoop_mem_alloc() */
    ptrdiff_t view;        /* of memory of a device: from its address to where it is seen */
};

struct world_rank {
    hoop_comm_t comm;
    struct world_buffer in, out;
    hoop_stream_t stream; /* some calls of a device's */
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

/* Counts around which algorithms change their ways. */
#define WORLD_COUNTS 20
extern const size_t world_counts[WORLD_COUNTS];

/* Of all worlds; world_options() sets them. */
extern const char *world_algo;
extern uint64_t world_seed; /* world_random() follows from it */

/* Reads `group|threads ALGO [seed]`: whether a thread drives each rank, or one all of them. */
bool world_options(int argc, char **argv, bool *ret_threads);
uint64_t world_random(void);
/* With HOOP_TEST_SAMPLE=k in the environment: true of all but one of k, drawn. */
bool world_leaves_out(void);

/* With memory and streams of a device, if HOOP_CUDA names a fake one. */
void world_make(struct world *world, int n);
void world_end(struct world *world);

/* The call of one rank. */
hoop_result_t world_call(const struct world_rank *rank, const struct world_shape *shape);

/*
 * Runs a shape on fresh buffers, by a group or a thread for each rank, and compares everybody's
 * output, and the inputs that are not also outputs. Nothing, where the algorithm of the world
 * cannot do it.
 */
void world_run(struct world *world, const struct world_shape *shape, bool threads);

/* Drawn shapes of a collective, HOOP_COLL_COUNT for any, on 2, 3, 5 and 8 ranks. */
void world_sample(enum hoop_collective collective, unsigned samples, bool threads,
                  size_t most_bytes);

#endif

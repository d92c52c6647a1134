/*
 * What a communicator has learned of its machine: whether plain memory is faster read from its
 * process (cma) or copied through shared memory (slab), by collective and size. No constants fit
 * all CPUs and kernels; but both fold in rank order and give the same bits, so the choice may
 * depend on the clock. Every rank times an operation, from when all ranks have announced it to its
 * end. Rank 0 reads the time of the slowest rank, and announces with its buffers which one is used
 * next: all ranks see that, and do the same.
 *
 *     First the model's choice is used three times, then the other one three times, then the faster
 *     one. Now and then the slower one is tried again, more rarely the slower it is, so that trying
 *     costs a percent; again three times, since the first finds nothing of its data in the caches.
 */
#ifndef HOOP_LEARNED_H
#define HOOP_LEARNED_H

#include "base/collective.h"
#include <stdbool.h>
#include <stdint.h>

#define HOOP_LEARNED_TRIES 3u
#define HOOP_LEARNED_SIZES 32u /* of a block, each twice the one before, from 1 KiB */

/* Index 0: slab, 1: cma. */
struct hoop_learned_row {
    uint64_t ns[2]; /* per MiB; 0: never tried */
    uint64_t least; /* the least time of the current tries */
    uint32_t tried[2];
    uint32_t since; /* consecutive uses of the faster one */
};

/* Zeroed: nothing is known. */
struct hoop_learned {
    struct hoop_learned_row rows[HOOP_COLL_COUNT][HOOP_LEARNED_SIZES];
};

/* A choice as it is announced; NONE: the model's. */
enum hoop_choice { HOOP_CHOICE_NONE, HOOP_CHOICE_READ, HOOP_CHOICE_COPY };

/* Does the next operation read (cma)? model: what the cost model would choose. */
bool hoop_learned_reads(const struct hoop_learned *learned, enum hoop_collective collective,
                        uint64_t block_bytes, bool model);

/* Adds the time of an operation that read, or did not. */
void hoop_learned_add(struct hoop_learned *learned, enum hoop_collective collective,
                      uint64_t block_bytes, bool read, uint64_t ns);

#endif

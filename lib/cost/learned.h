/*
 * What a communicator has learned of its machine: whether plain memory is faster read from its
 * process (cma) or copied through shared memory (slab), for each collective and size. No constant
 * fits all CPUs and kernels, both fold in rank order and give the same bits, and so the choice may
 * follow the clock. Every rank takes the time of an operation, from when all have come to its
 * end; rank 0 reads what it was on the slowest, and announces with its buffers what is done next:
 * all see it, and so all do the same.
 *
 *     the model's choice, three times; the other, three times; then the faster one. Now and then
 *     the slower one again, the more rarely the slower it is, so that trying costs a percent; three
 *     times, too, because the first finds nothing in the caches of what it uses.
 */
#ifndef HOOP_LEARNED_H
#define HOOP_LEARNED_H

#include "base/collective.h"
#include <stdbool.h>
#include <stdint.h>

#define HOOP_LEARNED_TRIES 3u
#define HOOP_LEARNED_SIZES 32u /* of a block: doublings of 1 KiB */

/* [0] of slab, [1] of cma. */
struct hoop_learned_row {
    uint64_t ns[2]; /* for 1 MiB; 0: never tried */
    uint64_t least; /* of the tries that go on */
    uint32_t tried[2];
    uint32_t since; /* so often in a row the faster one */
};

/* All 0: nothing. */
struct hoop_learned {
    struct hoop_learned_row rows[HOOP_COLL_COUNT][HOOP_LEARNED_SIZES];
};

/* As it is announced; NONE: the model's. */
enum hoop_choice { HOOP_CHOICE_NONE, HOOP_CHOICE_READ, HOOP_CHOICE_COPY };

/* Is the next one to be read? model: what the cost model would do. */
bool hoop_learned_reads(const struct hoop_learned *learned, enum hoop_collective collective,
                        uint64_t block_bytes, bool model);

/* It was, or was not, and took so long. */
void hoop_learned_add(struct hoop_learned *learned, enum hoop_collective collective,
                      uint64_t block_bytes, bool read, uint64_t ns);

#endif

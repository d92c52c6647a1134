/* Shared by the files that implement buffers.h. */
#ifndef HOOP_BUFFERS_INSIDE_H
#define HOOP_BUFFERS_INSIDE_H

#include "plan/buffers.h"

/* Generations of plain memory. */
#define HOOP_BUFFERS_READABLE 0u
#define HOOP_BUFFERS_UNREADABLE 1u
#define HOOP_BUFFERS_FRESH 0x80000000u /* a bit of the generation: memory from CUDA */

/* Do others read rank's input? */
bool hoop_buffers_reads(const struct hoop_plan *plan, uint32_t rank);
/* Do others write rank's output? Where one rank may act for all, it depends on that. */
bool hoop_buffers_writes(const struct hoop_plan *plan, uint32_t rank);

/* Can the others write all outputs, of buffers on devices? */
bool hoop_buffers_outs_are_reached(const struct hoop_buffers *buffers,
                                   const struct hoop_plan *plan);

/* One buffer of one peer as it was announced, and how much of it is accessed. */
struct hoop_buffers_place {
    uint64_t region, offset, bytes;
    uint32_t generation;
    uint8_t far; /* its HOOP_FAR_ bit, if it need not have a region: it is read in its process */
};

static inline const struct hoop_announce *hoop_buffers_announced(const struct hoop_buffers *buffers,
                                                                 uint32_t rank)
{
    return hoop_board_cell(buffers->board, rank, 0);
}

/* The i-th word after rank's announcement, which has a device. */
static inline uint64_t hoop_buffers_word(const struct hoop_buffers *buffers, uint32_t rank,
                                         size_t i)
{
    const uint64_t *cell = hoop_board_cell(buffers->board, rank, 1 + i / HOOP_ANNOUNCE_CELL_WORDS);
    return cell[i % HOOP_ANNOUNCE_CELL_WORDS];
}

/* Opens a buffer for this rank's steps; *ret is its address here. HOOP_AGAIN: being requested. */
hoop_result_t hoop_buffers_use(struct hoop_buffers *buffers, uint32_t rank,
                               const struct hoop_buffers_place *place, struct hoop_mapping *use,
                               void **ret, struct hoop_failure *failure);

#endif

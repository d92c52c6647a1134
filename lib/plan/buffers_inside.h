/* What the files that make buffers.h share. */
#ifndef HOOP_BUFFERS_INSIDE_H
#define HOOP_BUFFERS_INSIDE_H

#include "plan/buffers.h"

#define HOOP_BUFFERS_FRESH 0x80000000u /* a bit of the generation of what CUDA itself gave */

/* One buffer of one peer, as it was announced, and how much of it is touched. */
struct hoop_buffers_place {
    uint64_t region, offset, bytes;
    uint32_t generation;
    uint8_t far; /* its bit, if it has no region */
};

static inline const struct hoop_announce *hoop_buffers_announced(const struct hoop_buffers *buffers,
                                                                 uint32_t rank)
{
    return hoop_board_cell(buffers->board, rank, 0);
}

/* Opens one for this rank's steps: where it begins here. HOOP_AGAIN: it is being asked for. */
hoop_result_t hoop_buffers_use(struct hoop_buffers *buffers, uint32_t rank,
                               const struct hoop_buffers_place *place, struct hoop_mapping *use,
                               void **ret, struct hoop_failure *failure);

#endif

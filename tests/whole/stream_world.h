/*
 * Comms of one process with a stream for each rank, all driven by one thread: the common part of
 * the tests of streams. The functions assert: on the main thread only, except stream_sum().
 */
#ifndef STREAM_WORLD_H
#define STREAM_WORLD_H

#include "hoop.h"

#include <stdint.h>

#define RANKS 3
#define MINUTE_MS 60000

struct world {
    hoop_comm_t comms[RANKS];
    hoop_stream_t streams[RANKS];
};

void world_make(struct world *world);
void world_synchronize(const struct world *world);
void world_end(struct world *world);

/* Sums one number over the ranks, in place. */
hoop_result_t stream_sum(int64_t *x, hoop_comm_t comm, hoop_stream_t stream);

/* Records a ticket behind all that is queued. */
hoop_ticket_t stream_record(hoop_stream_t stream);

#endif

/* Shared by the files that implement launch.h: launch.c puts launches on their streams, launched.c
 * has those that are there. */
#ifndef HOOP_LAUNCH_INSIDE_H
#define HOOP_LAUNCH_INSIDE_H

#include "base/list.h"
#include "device/launch.h"
#include "device/rooms.h"
#include "stream/queue.h"

struct hoop_launch {
    struct hoop_list_node node;
    struct hoop_stream_room *room;
    struct hoop_pieces pieces;
    struct hoop_told *told; /* [count], if it runs on the device; NULL: through the host */
    uint32_t number;
    /* under the lock */
    uint64_t place;      /* its number in the order in which launches join lines; 0: not yet */
    uint32_t bell;       /* the count at which its bell has rung */
    bool put, over, let; /* what has happened (launch.h) */
    unsigned holders;    /* 2: the thread that puts it on the stream, and the one that lets it go */
    struct launch_part {
        uint64_t comm_id;
        bool failed; /* written before `over` */
    } parts[];       /* [count], one for each work */
};

/* Calls no CUDA. */
void hoop_launch_free(struct hoop_launch *launch);

/* ---- launched.c ------------------------------------------------------------------------------ */

/* Starts the bells thread and the health thread, once. False: one could not be started. */
bool hoop_launched_start(void);

/* The launch is about to hold its stream. comm_id: of one of its comms. */
void hoop_launched_add(struct hoop_launch *launch, uint64_t comm_id);
/* For a launch that was added, but not queued: it is freed. */
void hoop_launched_drop(struct hoop_launch *launch);
/* Its bell will have rung when the stream has counted so far. */
void hoop_launched_set_bell(struct hoop_launch *launch, uint32_t bell);
/* Queues its piece, so that the launch has its places in the comms' lines. */
hoop_result_t hoop_launched_queue(struct hoop_launch *launch, struct hoop_piece *piece);
/* All of it is on the stream. over: no piece was queued. It may be gone afterwards. */
void hoop_launched_put(struct hoop_launch *launch, bool over);

/* The stream will write no word behind its kernels any more. */
void hoop_launched_break(const struct hoop_launch *launch);
/* Is its piece complete? */
bool hoop_launched_is_over(const struct hoop_launch *launch);
/* Is there an earlier launch on one of its comms whose kernels are not yet on their stream? */
bool hoop_launched_is_behind(const struct hoop_launch *launch);

#endif

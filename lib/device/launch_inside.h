/* Shared by the files that implement launch.h: launch.c finds out what can be launched, launched.c
 * puts it on streams, and lets it go. */
#ifndef HOOP_LAUNCH_INSIDE_H
#define HOOP_LAUNCH_INSIDE_H

#include "base/list.h"
#include "device/launch.h"
#include "device/rooms.h"
#include "stream/queue.h"

struct hoop_launch {
    struct hoop_list_node node;
    struct hoop_launch *next; /* of the same group, on another stream; the group is one piece */
    size_t first;             /* its first work in the group's */
    struct hoop_stream_room *room;
    struct hoop_pieces pieces;
    struct hoop_told *told; /* [count], if it runs on the device; NULL: through the host */
    uint32_t number;
    hoop_result_t put_result; /* of the thread that puts it on the stream */
    /* under the lock */
    uint64_t place;      /* its number in the order in which launches join lines; 0: not yet */
    uint32_t bell;       /* the count at which its bell has rung */
    bool put, over, let; /* what has happened (launch.h) */
    bool broken;         /* the device has failed: the bell may never ring */
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

#endif

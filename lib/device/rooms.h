/*
 * The rooms of streams whose calls are launched (launch.h): one for each stream, which is replaced
 * when a call needs a larger one, and given back when nothing on the stream uses it any more. All
 * together pin HOOP_CUDA_ROOM_BYTES at most.
 *
 * Any thread.
 */
#ifndef HOOP_ROOMS_H
#define HOOP_ROOMS_H

#include "device/pieces.h"

#include <pthread.h>

/* A stream's room. hold and `used`: the number of the call. */
struct hoop_stream_room {
    struct hoop_stream_room *next;
    hoop_cu_context_t context;
    unsigned long long stream; /* by CUDA's number: a handle is used again */
    struct hoop_room room;
    pthread_mutex_t launching; /* over this, and what is put on the stream; calls CUDA */
    uint32_t launched;         /* calls */
    struct hoop_cuts cuts;
    /* under the lock of all */
    uint32_t users;   /* who is about to launch */
    uint64_t comm_id; /* whose call was the last */
    bool outgrown;    /* or its comm has ended: no more calls */
    bool torn;        /* not all of a call could be launched: nobody knows when it is idle */
};

/* One for so many bytes, with a user more; by CUDA's number of the stream. May pin memory, or let
 * go of some. NULL: there is none. */
struct hoop_stream_room *hoop_rooms_enter(hoop_cu_context_t context, unsigned long long stream,
                                          size_t bytes);
/* Of who is its user: its kernels have a place on the device where they are told. False: there is
 * no memory for that. */
bool hoop_rooms_make_told(struct hoop_stream_room *room);
/* A user less. torn: not all that was to be was put on the stream. */
void hoop_rooms_leave(struct hoop_stream_room *room, bool torn);

/* A call of the comm is about to hold its stream; and one does no more. */
void hoop_rooms_hold(struct hoop_stream_room *room, uint64_t comm_id);
void hoop_rooms_let_go(void);

/* comm, or NULL, is about to end, and has ended: what streams keep for its calls is given back when
 * they are through with it, here or later. */
void hoop_rooms_close(const struct hoop_comm *comm);
void hoop_rooms_free_idle(void);

#endif

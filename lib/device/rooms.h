/*
 * The rooms of streams whose calls are launched (launch.h). Each stream has one. When a call needs
 * a larger room it gets a new one, and the old one is freed once nothing on the stream uses it.
 * All rooms together pin at most HOOP_CUDA_ROOM_BYTES.
 *
 * Any thread.
 */
#ifndef HOOP_ROOMS_H
#define HOOP_ROOMS_H

#include "device/pieces.h"

#include <pthread.h>

/* A stream's room. Its words `let` and `used` take the number of the launch. */
struct hoop_stream_room {
    struct hoop_stream_room *next;
    hoop_cu_context_t context;
    unsigned long long stream; /* CUDA's number for it, since handles are reused */
    struct hoop_room room;
    /* guards room, launched and cuts while a launch is put on the stream; CUDA is called with it */
    pthread_mutex_t launching;
    uint32_t launched; /* number of the last launch */
    struct hoop_cuts cuts;
    /* under the lock of all rooms */
    uint32_t users;   /* threads that are about to launch */
    uint64_t comm_id; /* of the last call */
    bool outgrown;    /* gets no more calls: too small, no longer needed, its comm has ended, or a
                       * launch failed half way */
    bool torn;        /* `used` can't tell when the room is idle */
};

/* Finds or makes a room of so many bytes, and adds a user, who has a call of the comm. stream:
 * CUDA's number for it. May pin memory, or free some. NULL: no room can be had. */
struct hoop_stream_room *hoop_rooms_enter(hoop_cu_context_t context, unsigned long long stream,
                                          size_t bytes, uint64_t comm_id);
/* For a user of the room: hoop_room_make_told(). False: there is no memory. */
bool hoop_rooms_make_told(struct hoop_stream_room *room, const struct hoop_told *told,
                          const struct hoop_work *work, size_t count);
/* Removes a user. */
void hoop_rooms_leave(struct hoop_stream_room *room);
/* For a user whose launch could not be put on the stream completely. torn: nor could the word
 * behind it. */
void hoop_rooms_give_up(struct hoop_stream_room *room, bool torn);

/* A launch is about to hold its stream; a launch no longer does. */
void hoop_rooms_hold(void);
void hoop_rooms_let_go(void);

/* comm (may be NULL) is about to end: rooms whose last call was one of its calls get no more. */
void hoop_rooms_close(const struct hoop_comm *comm);
/* Frees such rooms when their streams no longer use them, unless a stream is held. */
void hoop_rooms_free_idle(void);

#endif

/*
 * Rooms: pinned host memory on which launched and captured calls work in place of device memory.
 * The calling thread puts the copies on the call's stream itself:
 *
 *     caller's stream   ... copies to the room | (ring) | hold | copies from the room | ...
 *
 * so nothing has to be launched for the hold to end. The calls of one stream share a room, since
 * they run one after the other. A room begins with words that host and stream both access.
 *
 * One thread at a time, except for the words.
 */
#ifndef HOOP_ROOM_H
#define HOOP_ROOM_H

#include "staging/device_worker.h"
#include "stream/batch.h"

#define HOOP_ROOM_GO 12u

struct hoop_room {
    struct hoop_staging memory;
    hoop_cu_address_t words; /* where devices find them */
    _Atomic uint32_t *let;   /* the stream goes on when this has reached the hold's value */
    _Atomic uint32_t *used;  /* written by the stream behind all copies of a launch */
    _Atomic uint32_t *came;  /* bells and pieces (pieces.h) counted by the stream; wakes nobody */
    _Atomic uint32_t *go;    /* [HOOP_ROOM_GO], like `let`, each for one call in pieces */
    uint32_t counted;        /* `came` when the stream has passed all that was put on it */
    hoop_cu_address_t told;  /* device memory that tells kernels what to fold (launch.h), or 0 */
};

/* bytes: hoop_room_need() of all that is to be in it at once. Pins memory. All words become 0. */
hoop_result_t hoop_room_init(struct hoop_room *room, hoop_cu_context_t context, size_t bytes);
/* Accepts a room whose hoop_room_init() failed. Calls CUDA. */
void hoop_room_finish(struct hoop_room *room);
bool hoop_room_fits(const struct hoop_room *room, size_t bytes);

/* How many bytes work takes whose calls are all on this stream. Finds out where buffers lie, if
 * that is not known yet. */
hoop_result_t hoop_room_need(struct hoop_work *work, size_t count, hoop_stream_t stream,
                             size_t *ret);

/* Gives each work's buffers a place in the room and redirects its request there: host memory, on no
 * stream. stagings: [count], zeroed; they keep where the buffers on the device are. */
hoop_result_t hoop_room_place(const struct hoop_room *room, struct hoop_work *work, size_t count,
                              hoop_stream_t stream, struct hoop_staging *stagings);
/* Frees what the stagings have, but not the room's memory. */
void hoop_room_forget(struct hoop_staging *stagings, size_t count);

/* ---- Calls that run on the device ----------------------------------------------------------- */

/* They copy nothing, and tell their kernels what to do: the bytes of that. */
size_t hoop_room_told_bytes(const struct hoop_told *told, const struct hoop_work *work,
                            size_t count);
/* Allocates the device memory from which kernels read what to fold, if this rank has kernels for
 * such calls, and there is none yet. */
hoop_result_t hoop_room_make_told(struct hoop_room *room, const struct hoop_told *told,
                                  const struct hoop_work *work, size_t count);
/* Counts a bell, and a word behind each kernel; sets the words of each call, and the place for what
 * its kernel is told, if it has one; and gives each request a flow, which flows[count] keep.
 * number: of the launch. */
hoop_result_t hoop_room_tell(struct hoop_room *room, struct hoop_told *told, struct hoop_work *work,
                             size_t count, uint32_t number, struct hoop_flow **flows);
/* In the context: puts a hold, and behind it the copy of what the kernel is told, the kernel, and
 * the word. */
hoop_result_t hoop_room_put_kernel(const struct hoop_room *room, hoop_stream_t stream,
                                   struct hoop_told *told, const struct hoop_work *work);
/* Those of all calls, one after the other, and a last hold, which ends when `let` has reached the
 * number. */
hoop_result_t hoop_room_put_kernels(const struct hoop_room *room, hoop_stream_t stream,
                                    struct hoop_told *told, const struct hoop_work *work,
                                    size_t count, uint32_t number);

/* ---- Words ---------------------------------------------------------------------------------- */

/* In the context: holds the stream until a word has reached `value`. */
hoop_result_t hoop_room_wait(const struct hoop_room *room, hoop_stream_t stream,
                             const _Atomic uint32_t *word, uint32_t value);
/* Behind all that is on the stream: sets `came` to value. */
hoop_result_t hoop_room_count(const struct hoop_room *room, hoop_stream_t stream, uint32_t value);
/* Likewise sets `used` to value: the room is free for the next launch. */
hoop_result_t hoop_room_leave(const struct hoop_room *room, hoop_stream_t stream, uint32_t value);
/* For a graph, after its other nodes were put with that result: sets `used` to 0, also behind what
 * is there after a failure, since a replay of that would otherwise keep the room. Returns the
 * result, with its sentence. */
hoop_result_t hoop_room_leave_after(const struct hoop_room *room, hoop_stream_t stream,
                                    hoop_result_t result);

/* Ends all holds of launch `number`. For a graph hoop_room_hold_all() first makes all its holds
 * hold again: its calls are launch 0 each time, and are let go by number 1. */
void hoop_room_let_go(const struct hoop_room *room, uint32_t number);
void hoop_room_hold_all(const struct hoop_room *room);

#endif

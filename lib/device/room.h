/*
 * Work on host memory in place of that of devices, where who calls puts the copies on the caller's
 * stream himself:
 *
 *     caller's stream   ... copies to the room | (ring) | hold | copies from the room | ...
 *
 * so that nothing has to be launched for the hold to end. A room is pinned memory that the calls of
 * one stream share, since they run one after the other; it begins with some words.
 *
 * One thread at a time, but for the words.
 */
#ifndef HOOP_ROOM_H
#define HOOP_ROOM_H

#include "stream/batch.h"

#define HOOP_ROOM_GO 12u

struct hoop_room {
    struct hoop_staging memory;
    hoop_cu_address_t words; /* where devices find them */
    _Atomic uint32_t *let;   /* the stream goes on when it has reached the hold's value */
    _Atomic uint32_t *used;  /* which the stream writes behind the copies */
    /* of what is launched in pieces (pieces.h) */
    _Atomic uint32_t *came; /* what the stream has counted; nobody is woken by that */
    _Atomic uint32_t *go;   /* [HOOP_ROOM_GO], as `let`, of a work each */
    uint32_t counted;       /* what it has when it has come to all that is put on it */
    hoop_cu_address_t told; /* where kernels find what they are told (launch.h); 0: nowhere yet */
};

/* bytes: hoop_room_need() of all that is to be in it at once. Pins memory. All words are 0. */
hoop_result_t hoop_room_init(struct hoop_room *room, hoop_cu_context_t context, size_t bytes);
/* Takes one that init has refused. Calls CUDA. */
void hoop_room_finish(struct hoop_room *room);
bool hoop_room_fits(const struct hoop_room *room, size_t bytes);

/* Bytes for work whose calls are all on this stream; looks where buffers lie, if that is not known.
 */
hoop_result_t hoop_room_need(struct hoop_work *work, size_t count, hoop_stream_t stream,
                             size_t *ret);

/* A place for each work's buffers, which are there then, of the host, and on no stream. stagings:
 * [count], zero; they keep where these were. */
hoop_result_t hoop_room_place(const struct hoop_room *room, struct hoop_work *work, size_t count,
                              hoop_stream_t stream, struct hoop_staging *stagings);
void hoop_room_forget(struct hoop_staging *stagings, size_t count);

/* In the context: what kernels on the stream are told has a place on the device; at `i` of the
 * host's memory. */
hoop_result_t hoop_room_make_told(struct hoop_room *room);
struct hoop_cuda_fold *hoop_room_told(const struct hoop_room *room, size_t i);
#define HOOP_ROOM_TOLD_BYTES ((HOOP_CUDA_TOLD_BYTES + 63) / 64 * 64)

/* In the context: a hold, until a word is `value`. */
hoop_result_t hoop_room_wait(const struct hoop_room *room, hoop_stream_t stream,
                             const _Atomic uint32_t *word, uint32_t value);
/* Behind all that is on the stream: `came` is `value`. */
hoop_result_t hoop_room_count(const struct hoop_room *room, hoop_stream_t stream, uint32_t value);
/* And behind all: `used` is `value`. */
hoop_result_t hoop_room_leave(const struct hoop_room *room, hoop_stream_t stream, uint32_t value);

/* All holds of launch `number` end. Of a graph, whose calls are launch 0 each time, and let go by
 * 1: all are to hold again. */
void hoop_room_let_go(const struct hoop_room *room, uint32_t number);
void hoop_room_hold_all(const struct hoop_room *room);

#endif

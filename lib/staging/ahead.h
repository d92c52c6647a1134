/*
 * Which calls may return before their stream has come to them (order.h). Two things have to happen
 * first, once each:
 *
 *   - An operation of the comm that was waited for. It makes what CUDA may wait for all streams to
 *     make, such as the staging's stream and its memory; that must not happen while one is held.
 *   - A look at the call's stream: hoop's own stream must get past a hold in it. If there are more
 *     streams than queues of the device (CUDA_DEVICE_MAX_CONNECTIONS) they share queues, and a held
 *     stream then keeps back everything launched behind it in its queue, on whatever stream.
 *
 * So what a hold waits for is always on its way: it was launched before; or it is hoop's, which has
 * been seen to get past; or it is another process's, or the host's.
 */
#ifndef HOOP_AHEAD_H
#define HOOP_AHEAD_H

#include "staging/staging.h"

/* What all threads know of a comm's staging; written by who has the turn. */
struct hoop_ahead {
    _Atomic(hoop_cu_context_t) context; /* of its stream; NULL: there is none yet */
    _Atomic size_t host_bytes;          /* of staging memory */
    _Atomic size_t device_bytes;        /* so many and more ran on the device; 0: none */
};

/* With the turn, nothing is launched: remembers how an operation of so many bytes ended, and looks
 * at the stream if it is new. Waits, for some milliseconds at most where it is held by nobody. */
void hoop_ahead_learn(struct hoop_ahead *ahead, struct hoop_staging *staging, hoop_stream_t stream,
                      size_t bytes, bool on_device);

/* Any thread: may a call on this stream, of so many bytes, return at once? may_stay: it may run on
 * the device. */
bool hoop_ahead_may(const struct hoop_ahead *ahead, hoop_cu_context_t context, hoop_stream_t stream,
                    size_t bytes, bool may_stay);

#endif

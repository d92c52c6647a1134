/*
 * Which calls may return before their stream has come to them, and hold it instead (order.h). Two
 * things must have happened before, once each:
 *
 *   - The comm has waited for an operation. That creates what CUDA may wait for all streams to
 *     create, such as the staging's stream and memory, which must not happen while one is held.
 *   - The call's stream was tested: hoop's own stream must get past a hold on it. If there are more
 *     streams than queues of the device (CUDA_DEVICE_MAX_CONNECTIONS) they share queues. Then a
 *     held stream keeps back everything that is launched behind it in its queue, on any stream.
 *
 * So nothing that a hold waits for is stuck behind a hold: it was launched earlier, or it is on
 * hoop's stream, which was seen to get past, or another process or the host does it.
 */
#ifndef HOOP_AHEAD_H
#define HOOP_AHEAD_H

#include "staging/staging.h"

/* What all threads may read about a comm's staging. Written by the thread that has the turn. */
struct hoop_ahead {
    _Atomic(hoop_cu_context_t) context; /* of the staging; NULL: it was not opened yet */
    _Atomic size_t host_bytes;          /* size of its host memory */
    _Atomic size_t device_bytes;        /* the smallest operation on the device; 0: none yet */
};

/* With the turn, while nothing is launched: remembers where an operation of so many bytes ran, and
 * tests its stream if that is new. Waits, for 50 ms at most if no other call holds the stream. */
void hoop_ahead_learn(struct hoop_ahead *ahead, struct hoop_staging *staging, hoop_stream_t stream,
                      size_t bytes, bool on_device);

/* Any thread: may a call of so many bytes on this stream return at once? may_stay: the call may run
 * on the device, without host memory. */
bool hoop_ahead_may(const struct hoop_ahead *ahead, hoop_cu_context_t context, hoop_stream_t stream,
                    size_t bytes, bool may_stay);

#endif

/*
 * Handles of host streams, and lookup of the streams that tickets belong to. A handle is an address
 * within one reservation that nobody can read or write: a range check tells it from any other
 * pointer, and it is never dereferenced.
 *
 *      uid      generation x HOOP_HANDLES + slot     never reused
 *      handle   first + (uid mod a million) x 8      reused after a million streams
 *      ticket   { uid, number }
 *
 * Slots of destroyed streams are reused oldest first, so that the results of recent ones remain.
 * All functions need the lock of progress.h, except hoop_handle_is_stream().
 */
#ifndef HOOP_HANDLE_H
#define HOOP_HANDLE_H

#include "stream/queue.h"

#define HOOP_HANDLES 4096u    /* streams at the same time */
#define HOOP_HANDLES_DEAD 64u /* destroyed streams that are remembered */

/* Is this a handle of a host stream, living or not? Any thread, without the lock. */
bool hoop_handle_is_stream(hoop_stream_t stream);

hoop_result_t hoop_handle_create(hoop_stream_t *ret);

/* The handle of the stream with this uid. */
hoop_stream_t hoop_handle_of(uint64_t uid);

/* NULL: no living stream has this handle. */
struct hoop_queue *hoop_handle_find(hoop_stream_t stream);

/* The stream of a ticket, even if destroyed. NULL: forgotten (*ret_known), or there never was
 * one. */
struct hoop_queue *hoop_handle_find_uid(uint64_t uid, bool *ret_known);

/* The stream was destroyed: nothing is queued, but a thread may still wait for its last ticket. */
void hoop_handle_retire(struct hoop_queue *queue);

/* Iterates over the streams with a slot: begin with NULL; NULL: that was the last. */
struct hoop_queue *hoop_handle_next(const struct hoop_queue *queue);

#endif

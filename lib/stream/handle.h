/*
 * Handles of host streams, and the streams that tickets are of. A handle is an address inside one
 * reservation that nobody can read or write: told from any other pointer by a range compare, and
 * never followed.
 *
 *      uid      generation x HOOP_HANDLES + slot     never used twice
 *      handle   first + (uid mod a million) x 8      used again after a million streams
 *      ticket   { uid, number }
 *
 * The slots of streams that were destroyed are used again oldest first, so that the results of the
 * last ones stay. All with the lock of progress.h, but for hoop_handle_is_stream().
 */
#ifndef HOOP_HANDLE_H
#define HOOP_HANDLE_H

#include "stream/queue.h"

#define HOOP_HANDLES 4096u    /* at the same time */
#define HOOP_HANDLES_DEAD 64u /* that were destroyed and are remembered */

/* Is it a handle of a host stream, living or not? Any thread, without the lock. */
bool hoop_handle_is_stream(hoop_stream_t stream);

hoop_result_t hoop_handle_create(hoop_stream_t *ret);

/* The handle of a stream by its uid. */
hoop_stream_t hoop_handle_of(uint64_t uid);

/* NULL: there is no such stream any more. */
struct hoop_queue *hoop_handle_find(hoop_stream_t stream);

/* The stream of a ticket, also one that was destroyed; NULL: forgotten, with *ret_known, or there
 * never was such a one. */
struct hoop_queue *hoop_handle_find_uid(uint64_t uid, bool *ret_known);

/* It was destroyed: nothing is queued, but somebody may wait for its last ticket yet. */
void hoop_handle_retire(struct hoop_queue *queue);

/* Walks over the living: begin with NULL; NULL: that was the last. */
struct hoop_queue *hoop_handle_next(const struct hoop_queue *queue);

#endif

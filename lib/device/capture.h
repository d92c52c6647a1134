/*
 * Calls on a stream of CUDA that captures a graph. They run each time that the graph does:
 *
 *     graph          ... begin | copies to the host | ring | hold ....... | copies back, end | ...
 *     who drives             '-> a piece of work, as they come ..... -> let go
 *
 * The copies are the graph's own, to and from the room of its calls on that stream, in pieces or as
 * a whole (pieces.h). The piece of work is like any other that is queued. It has its place in the
 * comm's line from when the graph comes to it, not from when it is launched. The graph goes on when
 * that is over and the copies to the host are, behind which what failed is marked.
 *
 *     of a call    kept until the graph and all that was made of it is gone, as CUDA says; freed by
 *                  the next call that captures, or that ends a comm
 *     of a comm    closed: what is replayed afterwards goes on at once, and its result is none
 *
 * Begin and end say that the memory is in use: a second one of the same call in between is an
 * error.
 *
 * Any thread; begin and ring are CUDA's own, which may not call CUDA.
 */
#ifndef HOOP_CAPTURE_H
#define HOOP_CAPTURE_H

#include "stream/batch.h"

/* Can calls on comm be captured? HOOP_UNSUPPORTED: the sentence, without its beginning. */
hoop_result_t hoop_capture_check(const struct hoop_comm *comm);

/* Puts work, whose calls are all on this stream, into its graph. What its requests own is moved,
 * also on failure: then the graph is not to be used. */
hoop_result_t hoop_capture_put(struct hoop_work *work, size_t count, hoop_stream_t stream);

/* comm is about to end: none of its calls runs any more. */
void hoop_capture_close(const struct hoop_comm *comm);
/* Gives back the memory of graphs that are gone, unless streams are held: the driver may wait for
 * them. */
void hoop_capture_free_gone(void);

#endif

/*
 * Calls on a CUDA stream that captures a graph. They run each time that the graph runs:
 *
 *     graph          ... begin | copies to the host | ring | hold ....... | copies back, end | ...
 *     driver                 '-> a piece of work, queued then ...... -> let go
 *
 * A call that could be launched on the device (launch.h) runs there; who works has its kernel, as
 * launched, in place of the copies, and begin is its bell:
 *
 *     graph          ... begin | hold | told | kernel | word | hold ............ | end | ...
 *
 * The copies of others are nodes of the graph, to and from the room that its calls on that stream
 * share, in pieces or as a whole (pieces.h). The piece of work is queued like any other. It takes
 * its place in the comm's line when the graph comes to it, not when the graph is launched. The
 * graph goes on when both the piece and the copies to the host are over: only then can the output
 * of a failed call be marked, or these copies would overwrite the mark.
 *
 * A captured call is kept until CUDA says that the graph and all that was made of it is gone. Then
 * the next call that captures, or that ends a comm, frees it. When a comm ends its captured calls
 * are closed: if they are replayed later the graph goes on at once, without a result.
 *
 * Between begin and end the memory is in use: it is an error if the same call begins again there.
 * On the device the second one's kernel, too, may then do what the first one's was told.
 *
 * While a call copies to the host, or its kernel runs, the health thread (stream/health.h) asks
 * whether the device has failed. Then nothing ends there any more: the comms fail, nobody waits for
 * kernels, and the memory is kept.
 *
 * Any thread. Begin and ring run on CUDA's thread, which may not call CUDA.
 */
#ifndef HOOP_CAPTURE_H
#define HOOP_CAPTURE_H

#include "stream/batch.h"

/* Puts work, whose calls are all on this stream, into the graph that the stream captures. Takes
 * over what the requests own, also on failure, after which the graph must not be used. Fails no
 * comm. */
hoop_result_t hoop_capture_put(struct hoop_work *work, size_t count, hoop_stream_t stream);

/* comm is about to end: from now on replays do not run its calls. */
void hoop_capture_close(const struct hoop_comm *comm);
/* Frees the memory of graphs that are gone. Does nothing while streams are held, because the CUDA
 * driver may wait for all streams before it frees memory. */
void hoop_capture_free_gone(void);

#endif

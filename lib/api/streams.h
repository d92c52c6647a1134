/* Checks of stream arguments, and the queueing of calls and groups on host streams. */
#ifndef HOOP_STREAMS_H
#define HOOP_STREAMS_H

#include "stream/batch.h"

/* HOOP_OK: stream is NULL, a living host stream, or a usable CUDA stream. Otherwise the error text
 * begins with function. */
hoop_result_t hoop_streams_check(const char *function, hoop_stream_t stream);

/* Refuses device memory on a host stream. */
hoop_result_t hoop_streams_check_buffer(const char *function, hoop_stream_t stream,
                                        const void *buffer);

/* stream, if it is a host stream, on which calls queue, or a CUDA stream, which orders them; else
 * NULL. */
hoop_stream_t hoop_streams_of_host(hoop_stream_t stream);
hoop_stream_t hoop_streams_of_device(hoop_stream_t stream);

/*
 * Queues work as one piece on count streams at once; each of them goes on when the piece is
 * complete. What its requests own is moved, also on failure. blocks: waits for the piece and
 * returns its result.
 */
hoop_result_t hoop_streams_submit(const hoop_stream_t *streams, size_t count,
                                  const struct hoop_work *work, size_t works, bool blocks);

#endif

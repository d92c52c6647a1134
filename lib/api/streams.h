/* Calls that are given a host stream: what a call or a group has collected is queued. */
#ifndef HOOP_STREAMS_H
#define HOOP_STREAMS_H

#include "stream/batch.h"

/* HOOP_OK: NULL, a host stream that lives, or one of CUDA that can be used. Else the sentence,
 * which begins with function. */
hoop_result_t hoop_streams_check(const char *function, hoop_stream_t stream);

/* The same also for the buffers: host streams are for memory of the host. */
hoop_result_t hoop_streams_check_buffer(const char *function, hoop_stream_t stream,
                                        const void *buffer);

/* A host stream, on which calls queue, or one of CUDA, which they follow: that, or NULL. */
hoop_stream_t hoop_streams_of_host(hoop_stream_t stream);
hoop_stream_t hoop_streams_of_device(hoop_stream_t stream);

/*
 * Queues work as one piece on count streams at once, which go on when it is over. What its requests
 * own is moved, also on failure. blocks: and waits for it, with its result.
 */
hoop_result_t hoop_streams_submit(const hoop_stream_t *streams, size_t count,
                                  const struct hoop_work *work, size_t works, bool blocks);

#endif

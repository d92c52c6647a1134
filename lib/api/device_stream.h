/*
 * Calls with buffers on devices, or on CUDA streams.
 *
 * A call on a stream that captures becomes part of the graph (device/capture.h). A call that can be
 * launched is launched (device/launch.h). With HOOP_CUDA_AHEAD=1 a call returns when it is queued,
 * if its streams can be held until its result is there (staging/ahead.h):
 *
 *     caller              bell on each stream | place in each comm's line | hold on each stream
 *     driver              the comms' turns; operations, once the bell has rung | release
 *
 * Bells are put on the streams before the call takes its places in line, and holds after that. So
 * whatever is ahead of a bell on its stream also has an earlier place in line, and no circle of
 * waits can arise. If a stream cannot be held, as at its first calls, the call waits for its
 * result, like any other call.
 */
#ifndef HOOP_DEVICE_STREAM_H
#define HOOP_DEVICE_STREAM_H

#include "stream/batch.h"

/* HOOP_OK: stream, which is neither NULL nor a host stream, is a CUDA stream that can order the
 * call. */
hoop_result_t hoop_device_stream_check(const char *function, hoop_stream_t stream);

/*
 * Finds out where the buffers of a request lie, and stores it there. HOOP_INVALID_ARGUMENT: a
 * buffer is neither device memory nor readable host memory. HOOP_UNSUPPORTED: the call is ordered
 * on the legacy default stream (NULL), which can't be used while another stream captures. The
 * driver must be loaded.
 */
hoop_result_t hoop_device_look(const char *function, const struct hoop_comm *comm,
                               struct hoop_request *request);
/* The same for a transfer; stream: the stream of its call. */
hoop_result_t hoop_device_look_transfer(const char *function, struct hoop_transfer *transfer,
                                        hoop_stream_t stream);

/* The calls of a group: HOOP_OK, unless one of its streams captures and the group can't be put into
 * the graph as a whole. host: it names host streams, too. The driver must be loaded. */
hoop_result_t hoop_device_check_group(struct hoop_work *work, size_t count, bool host);

/*
 * Runs work that names no host stream: launches it, queues it ahead of its streams, waits for its
 * result, or puts it into the graph that its stream captures (device/capture.h). What its requests
 * own is moved, also on failure. The driver must be loaded, and the buffers looked up.
 */
hoop_result_t hoop_device_submit(struct hoop_work *work, size_t count);

#endif

/*
 * Calls with buffers on devices, and on CUDA streams.
 *
 * They return when they are queued, if their streams can be held until the result is there
 * (staging/ahead.h):
 *
 *     caller              bell on each stream | place in each comm's line | hold on each stream
 *     who drives          the comms' turns; operations, once the bell has rung | release
 *
 * The bells come before the place in line and the holds after it, so whatever is ahead of a bell on
 * its stream has an earlier place, and nothing waits in a circle. If a stream cannot be held, and
 * always the first time, calls wait for the result.
 */
#ifndef HOOP_DEVICE_STREAM_H
#define HOOP_DEVICE_STREAM_H

#include "stream/batch.h"

/* HOOP_OK: stream, not NULL and not hoop's own, is one of CUDA on which the call can be ordered. */
hoop_result_t hoop_device_stream_check(const char *function, hoop_stream_t stream);

/*
 * Where the buffers lie, for as long as the call takes. HOOP_INVALID_ARGUMENT: nowhere that can be
 * read. HOOP_UNSUPPORTED: on a device, and the
 * legacy default stream, which the call is to be ordered on, can't be used now. The driver is
 * loaded.
 */
hoop_result_t hoop_device_look(const char *function, const struct hoop_comm *comm,
                               struct hoop_request *request);
/* The same for a transfer of its own; stream: of the call that it is part of. */
hoop_result_t hoop_device_look_transfer(const char *function, struct hoop_transfer *transfer,
                                        hoop_stream_t stream);

/* Of a group that has host streams, too: HOOP_INVALID_USAGE: one of CUDA captures. */
hoop_result_t hoop_device_check_host_group(struct hoop_work *work, size_t count);

/*
 * Runs work without a host stream: ahead of its streams, or waits for it; or puts it into the graph
 * that its stream captures (device/capture.h). What its requests own is
 * moved, also on failure. The driver is loaded, and it has been looked where buffers lie.
 */
hoop_result_t hoop_device_submit(struct hoop_work *work, size_t count);

#endif

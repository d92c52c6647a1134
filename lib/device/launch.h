/*
 * Calls on CUDA streams that return when they are launched:
 *
 *     caller's stream   ... copies to the host | bell | hold ....... | copies back | ...
 *     driver                                      '-> the operation -> let go
 *
 * All CUDA work of a call is put on the stream within the call; large calls over links are put
 * there in pieces (pieces.h), and begin before the bell has rung. A hold then waits only for its
 * bell, for the operation, which works on host memory alone, and for earlier calls. None of these
 * calls CUDA, so the stream goes on even if the program blocks CUDA for other threads. A call takes
 * its place in the comm's line after its bell is put (api/device_stream.h). It puts its hold when
 * no thread waits any more for an earlier call of the comm that may use the device.
 *
 * The room (rooms.h) belongs to the stream, and is replaced by a larger one as its calls need it.
 * Each call's hold has a value of its own. A call that fails fills its output in the room with
 * 0xff. It does so, and lets the stream go on, only when the stream has come to the bell: otherwise
 * the copies to the host would overwrite the mark.
 *
 *     a launch is    put     when all of it is on the stream
 *                    over    when its piece is complete
 *                    let     when it is over, and the stream has rung its bell, a word, or cannot
 *
 * On one device one rank works for all, on several each does its part, and nothing goes to the
 * host. Who works puts a kernel behind its hold, which is told late what to fold
 * (staging/device_worker.h). On one device:
 *
 *     the root's stream ... bell | hold | told | kernel | word | hold | ...
 *     the others'       ... bell | hold ................................ | ...
 *
 * All memory must have been opened before by those who work (plan/buffers.h), so that no rank calls
 * CUDA during the operation. If another rank's call waits for its result, that rank takes part as
 * usual, and acts for all. If its buffers are not on a device all ranks go through the host:
 * launched ranks copy theirs on hoop's own stream, as with HOOP_CUDA_AHEAD=1, and the comm's next
 * calls wait. The output of a failed call is not marked, since it is on the device; it is left as
 * it is.
 *
 * A group may be on several streams, those of several ranks in this process, say, each with its
 * device. Then all bells come before the first hold; then the kernels, each comm's first call
 * before its second, on all streams; and then the holds for which nothing has to be put on any
 * stream. So whatever a stream waits for is before it in any queue that they share, and no hold
 * waits for a thread that CUDA may have blocked, as the program waits for that stream.
 *
 *     stream 0   bell 0 ........ | hold, kernel 0 ................. | hold ...
 *     stream 1   ...... | bell 1 | .............. | hold, kernel 1  | .... | hold ...
 *
 * If its device has failed a stream never comes to its bell. The driver may not ask CUDA about
 * that, so the health thread does (health.h), and the launch is let go when it is over. The bells
 * thread waits for the bells of launches that were over before their bell rang.
 */
#ifndef HOOP_LAUNCH_H
#define HOOP_LAUNCH_H

#include "stream/batch.h"

struct hoop_launch;

/*
 * Prepares the launch of all of the work, which it sorts by streams. All buffers must lie on their
 * stream's device, each comm's calls be on one stream, and of a communicator with several ranks in
 * this process all must have calls in it. NULL: the work can't be launched; nothing has happened
 * then. May pin memory, and allocate device memory.
 */
struct hoop_launch *hoop_launch_create(struct hoop_work *work, size_t count);

/* For work that is captured, on one stream: how it runs on the device whenever the graph does
 * ([count], to be freed by the caller). NULL: it goes through the host. */
struct hoop_told *hoop_launch_tell_later(struct hoop_work *work, size_t count);

/* Launches the work. Takes over the launch and what the requests own, also on failure. */
hoop_result_t hoop_launch_run(struct hoop_launch *launch, struct hoop_work *work, size_t count);

#endif

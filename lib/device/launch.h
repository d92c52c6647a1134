/*
 * Calls on a stream of CUDA that return when they are launched, as those do that a graph captures:
 *
 *     caller's stream   ... copies to the host | bell | hold ....... | copies back | ...
 *     who drives                                  '-> the operation -> let go
 *
 * All that CUDA does for a call is put on the stream in the call; of large ones over links in
 * pieces (pieces.h), which begin before the bell has rung. What a hold waits for is then the bell
 * before it, the operation, which works on the host's memory alone, and the calls before it:
 * nothing calls CUDA for it, so whatever CUDA keeps others from meanwhile, the stream goes on. A
 * call has its place in the comm's line between bell and hold (api/device_stream.h), and puts the
 * hold there when no thread waits any more for a call before it that may use the device.
 *
 * The room (rooms.h) is the stream's, and grows with its calls; each call's hold has a value of its
 * own. What fails leaves 0xff where its output was to be, and lets the stream go on, when that has
 * come to it: else the copies to the host would come behind that, into the same place.
 *
 *     a launch is    put     all of it is on the stream
 *                    over    its piece is
 *                    let     that, and the stream has come to its bell, a word that it writes
 *
 * One that runs on a device that all ranks share, where one of them folds for all, has no copies.
 * Who folds has a kernel behind his hold, which is told what (staging/device_worker.h):
 *
 *     the root's stream ... bell | hold | told | kernel | word | hold | ...
 *     the others'       ... bell | hold ................................ | ...
 *
 * That takes memory that the root has opened already (plan/buffers.h): nobody calls CUDA then. A
 * rank whose call waits takes part as it always does, and folds. If what it has is not on the
 * device, all go through the host: who is launched copies his from hoop's own stream, as with
 * HOOP_CUDA_AHEAD=1, and the comm's next calls wait. What fails is not marked: its output is the
 * device's, and is left as it is.
 *
 * A stream whose device has failed never comes. Nobody who drives may ask CUDA about that: a thread
 * does (health.h). Another one looks for the bells of what was over before they rang.
 */
#ifndef HOOP_LAUNCH_H
#define HOOP_LAUNCH_H

#include "stream/batch.h"

struct hoop_launch;

/* For work whose calls are all on this stream of the context, and whose buffers lie there, if they
 * have any; all know where. told: [count], moved also on failure, where their own memory is: it
 * runs on the device; NULL: through the host. NULL: it can't be launched, and nothing has happened.
 * May pin memory, and allocate some of the device. */
struct hoop_launch *hoop_launch_create(struct hoop_work *work, size_t count,
                                       hoop_cu_context_t context, hoop_stream_t stream,
                                       struct hoop_told *told);

/* Launches it. What the requests own is moved, also on failure, as the launch is. */
hoop_result_t hoop_launch_run(struct hoop_launch *launch, struct hoop_work *work);

#endif

/*
 * Driving a comm: operations from the call to the result. One at a time on the calling thread, or
 * in parts, for who moves several comms (stream/batch.h).
 */
#ifndef HOOP_DRIVER_H
#define HOOP_DRIVER_H

#include "comm/comm.h"

/* One operation. Blocks. */
hoop_result_t hoop_comm_submit(struct hoop_comm *comm, const struct hoop_request *request);

/*
 * After an operation that was waited for, with a buffer on a device or a stream of CUDA, and so
 * many bytes of staging memory: what follows from it for those to come (staging/ahead.h). Blocks.
 */
void hoop_comm_learn(struct hoop_comm *comm, hoop_stream_t stream, size_t bytes);

/* hoop_operation_launch_way() of a call on it; NOT, too: it has ended. Any thread. */
enum hoop_launch_way hoop_comm_launch_way(struct hoop_comm *comm,
                                          const struct hoop_request *request, bool can,
                                          struct hoop_told *ret);
/* hoop_operation_cut() of one; not if it has ended. Any thread. */
void hoop_comm_cut(struct hoop_comm *comm, const struct hoop_request *request,
                   struct hoop_staging *staging);

/* The rest only with the comm's turn, but for the last. */

/* Begins an operation, with its deadline in the comm; or refuses, because the comm has failed or
 * was finalized. request is copied. */
hoop_result_t hoop_driver_begin(struct hoop_comm *comm, const struct hoop_request *request);

/*
 * Moves it; arg is the comm. look: and ends it when the comm has failed, or the awaited rank has
 * left, and nothing moves any more.
 */
enum hoop_poll hoop_driver_poll(void *arg, bool look);

/* Its result, after DONE; waited is HOOP_TIMEOUT: it is given up. */
hoop_result_t hoop_driver_end(struct hoop_comm *comm, hoop_result_t waited);

/* The turn did not come: who has it is stuck, and the order of calls can't be kept any more. */
hoop_result_t hoop_driver_miss_turn(struct hoop_comm *comm);

#endif

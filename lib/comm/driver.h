/*
 * Driving a comm: moving an operation from the call to its result. Either as a whole on the calling
 * thread, or step by step, for a thread that moves several comms (stream/batch.h).
 */
#ifndef HOOP_DRIVER_H
#define HOOP_DRIVER_H

#include "comm/comm.h"

/* Runs one operation and waits for its result. */
hoop_result_t hoop_comm_submit(struct hoop_comm *comm, const struct hoop_request *request);

/*
 * To be called after an operation with device buffers or a CUDA stream whose result was waited for;
 * bytes: the staging memory that it used. Lets later calls go ahead of their streams, if that is
 * possible (staging/ahead.h). Waits for the turn.
 */
void hoop_comm_learn(struct hoop_comm *comm, hoop_stream_t stream, size_t bytes);

/* hoop_operation_launch_way() for a call on the comm; NOT, too, if that has ended. Any thread. */
enum hoop_launch_way hoop_comm_launch_way(struct hoop_comm *comm,
                                          const struct hoop_request *request, bool kernels,
                                          struct hoop_told *ret);
/* hoop_operation_cut() for a call on the comm; does nothing if that has ended. Any thread. */
void hoop_comm_cut(struct hoop_comm *comm, const struct hoop_request *request,
                   struct hoop_staging *staging);

/* All functions below, except the last, need the comm's turn. */

/* Begins an operation, whose deadline it stores in the comm; or refuses, if the comm has failed or
 * was finalized. request is copied. */
hoop_result_t hoop_driver_begin(struct hoop_comm *comm, const struct hoop_request *request);

/*
 * Moves the operation; arg is the comm. With look it also ends the operation, if nothing moves any
 * more and the comm has failed or the awaited rank has left.
 */
enum hoop_poll hoop_driver_poll(void *arg, bool look);

/* The result of the operation, after DONE. waited HOOP_TIMEOUT: gives the operation up. */
hoop_result_t hoop_driver_end(struct hoop_comm *comm, hoop_result_t waited);

/* Fails the comm after a timeout of the wait for its turn: the thread that has it is stuck, so the
 * order of calls can't be kept. Returns HOOP_TIMEOUT. */
hoop_result_t hoop_driver_miss_turn(struct hoop_comm *comm);

#endif

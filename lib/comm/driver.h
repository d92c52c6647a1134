/*
 * Driving a comm: operations from the call to the result, on the calling thread; one, or several of
 * many comms at once.
 */
#ifndef HOOP_DRIVER_H
#define HOOP_DRIVER_H

#include "comm/comm.h"

/* One operation. Blocks. */
hoop_result_t hoop_comm_submit(struct hoop_comm *comm, const struct hoop_request *request);

/* Several, on one comm or many, comms at the same time, each comm's in order. Blocks. */
struct hoop_comm_work {
    struct hoop_comm *comm;
    struct hoop_request request;
};
hoop_result_t hoop_comm_submit_all(struct hoop_comm_work *work, size_t count);

#endif

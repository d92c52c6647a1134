/* Groups: the calls that a thread collects between hoop_group_start() and hoop_group_end(). */
#ifndef HOOP_GROUP_H
#define HOOP_GROUP_H

#include "birth/birth.h"
#include "stream/batch.h"

/* True between start and end in the calling thread. */
bool hoop_group_open(void);

/*
 * Adds a call to the calling thread's group; a birth (moved) is run before all calls at its end.
 * A failure spoils the group: its end returns it and runs nothing.
 */
hoop_result_t hoop_group_add(struct hoop_comm *comm, const struct hoop_request *request,
                             hoop_stream_t stream);
/* Memory for a send or receive, to be freed with free(); NULL: there is none. */
struct hoop_transfer *hoop_group_new_transfer(void);
/* A send or receive, of that and moved. Those of one comm run together, before its collectives. */
hoop_result_t hoop_group_add_transfer(struct hoop_comm *comm, struct hoop_transfer *transfer,
                                      hoop_stream_t stream);
hoop_result_t hoop_group_add_birth(struct hoop_birth *birth);

/* Does the calling thread's open group hold a call on this comm? */
bool hoop_group_holds(const struct hoop_comm *comm);

/*
 * Remembers a caller's mistake inside a group, with its sentence, the calling thread's. Its end
 * fails the comms that it has calls on, and the comm of the call. Returns code.
 */
hoop_result_t hoop_group_spoil(hoop_result_t code);
hoop_result_t hoop_group_spoil_by(struct hoop_comm *comm, hoop_result_t code);

#endif

/* Groups: the calls that a thread collects between hoop_group_start() and hoop_group_end(). */
#ifndef HOOP_GROUP_H
#define HOOP_GROUP_H

#include "birth/birth.h"
#include "stream/batch.h"

/* True between start and end in the calling thread. */
bool hoop_group_open(void);

/*
 * Adds a call to the calling thread's group. A birth (moved) runs before all calls of the group. A
 * failure spoils the group: hoop_group_end() then returns it and runs nothing.
 */
hoop_result_t hoop_group_add(struct hoop_comm *comm, const struct hoop_request *request,
                             hoop_stream_t stream);
/* Uninitialized memory for a transfer, from malloc() or an earlier group; NULL: no memory. */
struct hoop_transfer *hoop_group_new_transfer(void);
/* Adds a transfer from hoop_group_new_transfer(), which is moved. The transfers of one comm run
 * together, before its collectives. */
hoop_result_t hoop_group_add_transfer(struct hoop_comm *comm, struct hoop_transfer *transfer,
                                      hoop_stream_t stream);
hoop_result_t hoop_group_add_birth(struct hoop_birth *birth);

/* Does the calling thread's open group hold a call on this comm? */
bool hoop_group_holds(const struct hoop_comm *comm);

/*
 * Spoils the open group, if there is one, by a mistake of the caller, whose sentence is the calling
 * thread's error text. The first mistake counts. The end of the group fails all comms that it has
 * calls on, and comm, the one of the failed call. Returns code.
 */
hoop_result_t hoop_group_spoil(hoop_result_t code);
hoop_result_t hoop_group_spoil_by(struct hoop_comm *comm, hoop_result_t code);

#endif

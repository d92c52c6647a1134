/* What comms and streams are at, as JSON. Nothing here waits for a comm's turn. */
#ifndef HOOP_LOOK_H
#define HOOP_LOOK_H

#include "comm/comm.h"
#include "inspect/json.h"

/* Which hoop this is, and in which process. Any thread. */
void hoop_look_process(struct hoop_json *json);

/* The members of a comm's object; of one that is being made the first few, with the state
 * HOOP_IN_PROGRESS. The caller has its look_lock. Any thread. */
void hoop_look_comm(struct hoop_json *json, struct hoop_comm *comm);

/* "streams": the queues of the process, how long they are, and what the first thing in each does or
 * waits for; as many of them as end before the text has this length. Returns how many do not. Any
 * thread. */
uint32_t hoop_look_streams(struct hoop_json *json, size_t most_length);

#endif

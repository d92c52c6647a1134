/* The state of comms and streams as JSON. Nothing here waits for a comm's turn. */
#ifndef HOOP_LOOK_H
#define HOOP_LOOK_H

#include "comm/comm.h"
#include "inspect/json.h"

/* The version of hoop, and the process. Any thread. */
void hoop_look_process(struct hoop_json *json);

/* The members of a comm's object. If it is still being made only the first few, with state
 * HOOP_IN_PROGRESS. The caller holds its look_lock. Any thread. */
void hoop_look_comm(struct hoop_json *json, struct hoop_comm *comm);

/* "streams": the queues of the process, their lengths, and what the first item of each does. Stops
 * before the text exceeds most_length, and returns how many were left out. Any thread. */
uint32_t hoop_look_streams(struct hoop_json *json, size_t most_length);

#endif

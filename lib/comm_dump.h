/*
 * The flight recorder: when a comm fails, every comm of the process that is waiting writes down its
 * last operations and what it waits for, at HOOP_DEBUG=info. Each is written by its own driver, who
 * alone may read it: the one that fails at once, the others at their next look.
 */
#ifndef HOOP_COMM_DUMP_H
#define HOOP_COMM_DUMP_H

#include "comm.h"

/* A comm is born: what others asked for before does not concern it. */
void hoop_comm_dump_init(struct hoop_comm *comm);

/* comm has failed: it writes, and asks the others to. Driver only. */
void hoop_comm_dump_all(struct hoop_comm *comm);

/* Writes if another comm has asked since the last time. Driver only. */
void hoop_comm_dump_if_asked(struct hoop_comm *comm);

#endif

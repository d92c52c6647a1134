/*
 * RDMA devices that exist in this process only: what is sent arrives at once. They are as strict as
 * real devices: a write needs a key and must stay inside its memory, immediate data need a receive,
 * outstanding work and events have limits, and a queue that failed can't be used any more. Thread-
 * safe.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include "transports/rdma/verbs.h"

extern const struct hoop_verbs fake_verbs;

/* Two devices, "fake0" and "fake1", with one active port each. Tests may change them before their
 * first use. */
#define FAKE_PORTS 2u
extern struct hoop_verbs_port fake_ports[FAKE_PORTS];

/* Counts since the start; tests may reset them. */
struct fake_counts {
    unsigned opened, open; /* how often devices were opened; how many still are */
    unsigned queues;
    unsigned memories; /* registered; and their size */
    size_t memory_bytes;
    unsigned writes, words, sends; /* works posted, those with immediate data, and calls */
    unsigned signaled;
};
extern struct fake_counts fake_counts;
extern struct hoop_verbs_route fake_route; /* the route of the last queue */

/* Faults that tests can set. */
extern bool fake_refuses_memory; /* registration fails, as if too little memory may be locked */
extern size_t fake_most_bytes;   /* how much memory may be locked; 0: any amount */
extern int fake_fails_in;        /* calls until one fails for lack of memory; 0: none does */
extern bool fake_keeps;          /* destroying anything fails */
extern bool fake_dies;           /* the devices stop working, and report that */
extern int fake_break_next;      /* the status of the next work; 0: success */
extern bool fake_holds;          /* nothing arrives */

/* Drops the process's capability to ignore the limit on locked memory. */
void fake_drop_ipc_lock(void);

#endif

/*
 * RDMA devices that exist in this process only: what is sent arrives at once. They are as strict as
 * devices are: a write needs a key and stays inside its memory, a word needs a receive, outstanding
 * work and events have limits, a queue that failed is of no more use. Thread-safe.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include "transports/rdma/verbs.h"

extern const struct hoop_verbs fake_verbs;

/* Two of them, "fake0" and "fake1", with one active port each; the tests may change them before
 * their first use. */
#define FAKE_PORTS 2u
extern struct hoop_verbs_port fake_ports[FAKE_PORTS];

/* What was done since the start; reset by the test. */
struct fake_counts {
    unsigned opened, open; /* devices; still open */
    unsigned queues;
    unsigned memories; /* registered; and their bytes */
    size_t memory_bytes;
    unsigned writes, words, sends; /* works given, of them those with immediate data, and calls */
    unsigned signaled;
};
extern struct fake_counts fake_counts;
extern struct hoop_verbs_route fake_route; /* the last that was taken */

/* Faults. */
extern bool fake_refuses_memory; /* as where too little may be locked */
extern size_t fake_most_bytes;   /* that may be locked; 0: any number */
extern int fake_fails_in;        /* calls; that one fails for want of memory. 0: none does */
extern bool fake_keeps;          /* nothing is destroyed as it should be */
extern bool fake_dies;           /* the devices do nothing any more, and say so */
extern int fake_break_next;      /* the status of the next work; 0: well */
extern bool fake_holds;          /* nothing arrives */

/* Of the process, whom the limit on locked memory would not bind else. */
void fake_drop_ipc_lock(void);

#endif

/*
 * A gather: the joins of a comm's ranks as they come in, and whether they agree. Used by the leader
 * of a machine, and by the root if there are several. It has no sockets and no timers. Any
 * contradiction (two values of n or of a setting, a rank that comes twice) fails the join on all
 * ranks, since only the user can know which side is right.
 */
#ifndef HOOP_GATHER_H
#define HOOP_GATHER_H

#include "control/frame.h"
#include <stdbool.h>

struct hoop_gather {
    uint32_t n, arrived;              /* n is 0 before the first join */
    struct hoop_frame_join **joins;   /* [n], by rank; NULL: not joined yet; owned */
    uint64_t timeout_ms, deadline_ns; /* of the join with the earliest deadline */
};

void hoop_gather_finish(struct hoop_gather *gather); /* may be all zero */

/*
 * Adds a copy of a checked join, which may bring the deadline forward. If it contradicts an earlier
 * join *failure names ranks, pids, hosts and both values. Also HOOP_OUT_OF_MEMORY. A join that was
 * refused has changed nothing.
 */
hoop_result_t hoop_gather_add(struct hoop_gather *gather, const struct hoop_frame_join *join,
                              struct hoop_failure *failure);

bool hoop_gather_is_complete(const struct hoop_gather *gather);

/* "ranks 2, 5 of 12 did not arrive within 60000 ms, the others are on hosts a, b" */
void hoop_gather_describe_missing(const struct hoop_gather *gather, char *ret_text, size_t bytes);

/* "rank 2", "ranks 2, 5" or "ranks 1, 2, ... and 9 more": those below n for which is() is true. */
void hoop_gather_list(uint32_t n, bool (*is)(const void *arg, uint32_t rank), const void *arg,
                      char *ret_text, size_t bytes);

/*
 * The head of the roster of a complete gather: a new comm id, the flags that one rank sets for all
 * (need_fence, no_rdma), the smallest dead_after_ms; server is 0. Fails with the thread's sentence.
 */
hoop_result_t hoop_gather_roster(const struct hoop_gather *gather, uint32_t machines,
                                 struct hoop_frame_roster *ret);

#endif

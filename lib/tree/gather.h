/*
 * A gather: the joins of the ranks of one comm as they come in, and whether they agree. Used by
 * the leader of a machine, and by the root where there are several. Memory only: no sockets, no
 * timers. Whatever contradicts (two values of n, of a setting; a rank that comes twice) fails the
 * join of all: whom to believe is the user's to say.
 */
#ifndef HOOP_GATHER_H
#define HOOP_GATHER_H

#include "control/frame.h"
#include <stdbool.h>

struct hoop_gather {
    uint32_t n, arrived;              /* n: 0 before the first join */
    struct hoop_frame_join **joins;   /* [n], by rank; NULL: not there yet; owned */
    uint64_t timeout_ms, deadline_ns; /* of the first to lose patience */
};

void hoop_gather_finish(struct hoop_gather *gather); /* of all zero, too */

/*
 * Takes a checked join in (copied); it may bring the deadline forward. HOOP_OK; or it contradicts,
 * and *failure says what, naming ranks, pids, hosts and both values; HOOP_OUT_OF_MEMORY. A join
 * that was not taken in has changed nothing.
 */
hoop_result_t hoop_gather_add(struct hoop_gather *gather, const struct hoop_frame_join *join,
                              struct hoop_failure *failure);

bool hoop_gather_is_complete(const struct hoop_gather *gather);

/* "ranks 2, 5 of 12 did not arrive within 60000 ms, the others are on hosts a, b" */
void hoop_gather_describe_missing(const struct hoop_gather *gather, char *ret_text, size_t bytes);

/* "rank 2", "ranks 2, 5" or "ranks 1, 2, ... and 9 more": those of the n ranks that `is` is true
 * of. */
void hoop_gather_list(uint32_t n, bool (*is)(const void *arg, uint32_t rank), const void *arg,
                      char *ret_text, size_t bytes);

/*
 * The head of the roster of a complete gather: a fresh comm id, what holds if it holds
 * for one (need_fence, no_rdma), the smallest dead_after_ms. server is left 0. A
 * failure's sentence is the thread's.
 */
hoop_result_t hoop_gather_roster(const struct hoop_gather *gather, uint32_t machines,
                                 struct hoop_frame_roster *ret);

#endif

/* The links of a comm: made at first use, kept until the comm ends or fails. */
#ifndef HOOP_COMM_LINKS_H
#define HOOP_COMM_LINKS_H

#include "comm.h"

/* The engine's link function (engine.h); arg is the comm. Driver only. */
hoop_result_t hoop_comm_link(void *arg, uint32_t peer, uint32_t lane, bool sending,
                             struct hoop_link **ret_link);

/*
 * The driver waits for a rank that has left: may it be for a link only? A goodbye overtakes the
 * blob and the connection of a link whose data are all sent already. Driver only.
 */
bool hoop_comm_link_may_come(struct hoop_comm *comm);

/* A peer's blob arrived; arg is the comm. Service thread. */
void hoop_comm_on_blob(void *arg, uint32_t from, uint32_t lane, bool from_sends,
                       const struct hoop_blob *blob);

/* A data connection is there, or can't be had; arg is the comm. Service thread. */
void hoop_comm_on_stream(void *arg, uint32_t rank, uint32_t lane, bool sending, int fd,
                         const struct hoop_failure *failure);

/* A region that was asked for is here, or can't be had; arg is the comm. Service thread. */
void hoop_comm_on_fetched(void *arg, uint32_t rank, uint64_t region_id, uint32_t generation,
                          const struct hoop_failure *failure);

/* hoop_operation_env.answered; arg is the comm. Driver only. */
bool hoop_comm_fetch_answered(void *arg, uint32_t peer, uint64_t region, uint32_t generation,
                              struct hoop_failure *ret);

/* Destroys all links, with a goodbye unless the comm has failed: no peer touches a buffer through
 * them afterwards. Driver only. */
void hoop_comm_links_finish(struct hoop_comm *comm, bool failed);

/* Frees blobs, answers and connections that nobody asked for. */
void hoop_comm_inbox_finish(struct hoop_comm *comm);

#endif

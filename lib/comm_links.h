/* The links of a comm: made at first use, kept until the comm ends or fails. */
#ifndef HOOP_COMM_LINKS_H
#define HOOP_COMM_LINKS_H

#include "comm.h"

/* The engine's link function (engine.h); arg is the comm. Driver only. */
hoop_result_t hoop_comm_link(void *arg, uint32_t peer, uint32_t lane, bool sending,
                             struct hoop_link **ret_link);

/* A peer's blob arrived; arg is the comm. Service thread. */
void hoop_comm_on_blob(void *arg, uint32_t from, uint32_t lane, bool from_sends,
                       const struct hoop_blob *blob);

/* Destroys all links: no peer touches a buffer through them afterwards. Driver only. */
void hoop_comm_links_finish(struct hoop_comm *comm);

/* Frees blobs that nobody asked for. */
void hoop_comm_inbox_finish(struct hoop_comm *comm);

#endif

/*
 * The links of a comm: made at first use, kept until the comm ends or fails. They do not know the
 * comm: what they need of it is in their env. Driver only.
 */
#ifndef HOOP_LINKS_H
#define HOOP_LINKS_H

#include "comm/events.h"
#include "exec/board.h"
#include "runtime/wait.h"
#include "transfer/exchange.h"
#include "transfer/mapping.h"
#include "transports/transport.h"

/* What links need of their comm. */
struct hoop_links_env {
    struct hoop_member *member;
    struct hoop_board *board; /* says who the peers are, and wakes them */
    const struct hoop_agreement *agreed;
    struct hoop_events *events;
    struct hoop_sleeper *sleeper; /* the driver's; gets the links' sockets */
    struct hoop_failure *failure; /* of the running operation: first error wins */
};

struct hoop_links {
    struct hoop_links_env env;
    struct links_row **rows; /* [n], by peer; NULL: no link with it yet */
    uint64_t looked_ns;      /* hoop_links_are_stuck(): its last look; 0: none in this wait */
    uint64_t waited_ns;      /* its first look in this wait, or since this process was stopped */
};

hoop_result_t hoop_links_init(struct hoop_links *links, const struct hoop_links_env *env);

/*
 * Destroys all links. patience_ms: how long their goodbyes may take, all together; 0: the comm has
 * failed, and none are said. Afterwards no peer touches a buffer through them. Accepts a zeroed
 * struct; may be called again.
 */
void hoop_links_finish(struct hoop_links *links, uint64_t patience_ms);

/* The engine's link function (exec/engine.h); arg is the struct hoop_links. */
hoop_result_t hoop_links_get(void *arg, uint32_t peer, uint32_t lane, bool sending,
                             struct hoop_link **ret_link);

/* To be called when an operation begins: hoop_links_are_stuck() measures each wait by itself. */
static inline void hoop_links_begin_wait(struct hoop_links *links)
{
    links->looked_ns = 0;
}

/*
 * To be called while an operation waits. Has a link failed after it had reported what was sent as
 * done? Or has a peer acknowledged nothing of what a link sent it for more than dead_after_ms? Then
 * the network loses packets, which possibly only data can show: heartbeats are small, and take
 * other paths. Looks ten times in dead_after_ms. *ret says which peer, and how much is missing.
 */
bool hoop_links_are_stuck(struct hoop_links *links, uint64_t dead_after_ms,
                          struct hoop_failure *ret);

/* hoop_mapping_env.answered; arg is the struct hoop_events. */
bool hoop_links_answered(void *arg, uint32_t rank, uint64_t region, uint32_t generation,
                         struct hoop_failure *ret);

#endif

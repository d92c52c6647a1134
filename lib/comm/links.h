/*
 * The links of a comm: made at first use, kept until the comm ends or fails. An object of its own:
 * what it needs of the comm is in its env. Driver only.
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
    struct hoop_board *board; /* who the peers are; wakes them */
    const struct hoop_agreement *agreed;
    struct hoop_events *events;
    struct hoop_sleeper *sleeper; /* gets their sockets */
    struct hoop_failure *failure; /* of the running operation: first error wins */
};

struct hoop_links {
    struct hoop_links_env env;
    struct links_row **rows; /* [n], by peer; NULL: no link with it yet */
    uint64_t looked_ns;      /* hoop_links_are_stuck(): the last look, the first of the wait */
    uint64_t waited_ns;
};

hoop_result_t hoop_links_init(struct hoop_links *links, const struct hoop_links_env *env);

/*
 * Destroys all, with goodbyes, which may take so long in all; 0: with none, the comm has failed. No
 * peer touches a buffer through them afterwards. Takes a zeroed one; may be repeated.
 */
void hoop_links_finish(struct hoop_links *links, uint64_t patience_ms);

/* The engine's link function (exec/engine.h); arg is the struct hoop_links. */
hoop_result_t hoop_links_get(void *arg, uint32_t peer, uint32_t lane, bool sending,
                             struct hoop_link **ret_link);

/* An operation begins: what follows is another wait. */
static inline void hoop_links_begin_wait(struct hoop_links *links)
{
    links->looked_ns = 0;
}

/*
 * While it waits: has a link failed after what was sent had been reported as done? Or has a peer
 * acknowledged nothing of what a link sent it, for longer than dead_after_ms? That is a network
 * that loses packets, and only data may show it: heartbeats are small, and go other ways. Looks ten
 * times in dead_after_ms; *ret says who and how much.
 */
bool hoop_links_are_stuck(struct hoop_links *links, uint64_t dead_after_ms,
                          struct hoop_failure *ret);

/* hoop_mapping_env.answered; arg is the struct hoop_events. */
bool hoop_links_answered(void *arg, uint32_t rank, uint64_t region, uint32_t generation,
                         struct hoop_failure *ret);

#endif

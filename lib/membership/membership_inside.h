/*
 * What a membership consists of; private to the files that make it up.
 *
 *      membership.c   joins and leaves; messages from the leader
 *      roster.c       what the leader told: segment, wake descriptors, processes
 *      liveness.c     which ranks are alive
 *      peer.c         the other processes
 *      request.c      requests to other ranks: for regions, and to pass on blobs of links
 *      data_connection.c  the data connections of links
 *      linger.c       the end of the process
 *      serve.c        new rendezvous
 *
 * All of it belongs to the service thread, except `roster`, which any thread may read from the
 * join's completion until hoop_member_destroy().
 */
#ifndef HOOP_MEMBER_H
#define HOOP_MEMBER_H

#include "control/endpoint.h"
#include "membership/membership.h"
#include "runtime/watch.h"
#include "tree/detector.h"
#include <string.h>

enum hoop_member_state {
    HOOP_MEMBER_SEEKING, /* no proven connection to the leader yet */
    HOOP_MEMBER_JOINING, /* connected to the leader; waits for the roster */
    HOOP_MEMBER_READY,   /* has the roster and said READY */
    HOOP_MEMBER_IN,
    HOOP_MEMBER_FAILED
};

/* What the ranks of one process share for a comm: its segment, and the wake descriptors. */
struct hoop_shared {
    struct hoop_list_node node; /* of all in this process */
    uint64_t comm_id;
    void *segment;
    uint64_t segment_bytes;
    uint32_t refs, n;
    int fds[]; /* [n]; -1 if not received yet */
};

/* Embedded in whoever, besides the comm, hears of losses: lib/survivors/. */
struct hoop_member_witness {
    /* rank is lost, or has left */
    void (*lost)(struct hoop_member_witness *witness, uint32_t rank, bool left, const char *why);
};

/* What is known of a rank beyond struct hoop_peer. */
struct hoop_peer_state {
    struct hoop_watched watched;       /* zeroed for ranks of this process or of other machines */
    struct hoop_frame_entry entry;     /* the roster's */
    bool lost;                         /* and reported */
    uint32_t dialled;                  /* how often its process was dialled for this comm */
    struct hoop_peer_process *process; /* NULL if it is this process */
};

/* A request to another rank. */
union hoop_peer_want {
    struct hoop_frame_header header;
    struct hoop_frame_region region; /* REGION_GET */
    struct hoop_frame_blob blob;
};

struct hoop_peer_request {
    struct hoop_list_node node;
    struct hoop_member *member;
    uint32_t rank;
    const struct hoop_connection *via; /* where it was sent; NULL: not yet */
    union hoop_peer_want want;
};

/* Another process, shared by all members that have ranks there; see peer.c. */
struct hoop_peer_process {
    struct hoop_list_node node;
    uint64_t id;             /* hoop_process_id() there */
    int pid;                 /* as the kernel reports it; 0 if it cannot be seen from here */
    uint64_t comm_id;        /* the only comm that it serves; 0: any */
    struct hoop_place place; /* where it listens */
    uint32_t users;          /* number of members' ranks in it */
    struct hoop_connection *dialled, *accepted; /* open, or NULL */
    struct hoop_dialer *dialer;
    struct hoop_timer *moment;
    struct hoop_list_node requests;
    uint32_t request_count;
};

struct hoop_member {
    struct hoop_list_node node; /* of all in this process */
    struct hoop_join join;
    struct hoop_member_events events;
    struct hoop_job *job; /* until it is complete */
    enum hoop_member_state state;
    struct hoop_place place;            /* of the leader */
    struct hoop_dialer *dialer;         /* for the leader */
    struct hoop_connection *connection; /* to the leader */
    struct hoop_timer *timer;           /* deadline of the join, once the leader is found */
    uint64_t deadline_ns;
    struct hoop_secret secret; /* the comm's: from the rendezvous, or on one machine the roster */

    struct hoop_roster roster;
    struct hoop_address address; /* of this machine, port 0; family 0: only one machine */
    uint64_t server;             /* the leader's process */
    uint32_t told;               /* entries of the roster received so far */
    struct hoop_shared *shared;
    struct hoop_peer_state *others; /* [n] */

    struct hoop_watcher watcher;
    uint64_t waiting_ns;                  /* since when an operation here waits, or HOOP_NEVER */
    struct hoop_endpoint *peers_endpoint; /* this process's, for peers on this machine */
    struct hoop_expectation near_expected, far_expected; /* peers on this machine, on others */
    struct hoop_endpoint *data_endpoint; /* for other machines; else opened at first use */
    struct hoop_list_node data_links;    /* links that have no connection yet */

    struct hoop_lineage *lineage;        /* NULL if it begins here; owned */
    struct hoop_member_witness *witness; /* also hears of losses; may be NULL */
};

extern struct hoop_list_node hoop_members;

/* ---- membership.c -------------------------------------------------------------------------- */

/* The join is complete. Does nothing if it was already. */
void hoop_member_enter(struct hoop_member *member);
/* Fails the join for this reason if it is under way. */
void hoop_member_give_up(struct hoop_member *member, hoop_result_t code, const char *why);
/* The comm fails because of this rank. */
void hoop_member_fail(struct hoop_member *member, const struct hoop_failure *failure);
/* For expectations; arg is the member. Whoever cannot be let in may be awaited: if an operation
 * here waits, too, the comm fails in half the time after which others would take this process for
 * dead.
 */
void hoop_member_starved(void *arg, uint64_t ms, const struct hoop_failure *why);
/* This process's member with that rank in that comm, if it has its roster; else NULL. */
struct hoop_member *hoop_member_find(uint64_t comm_id, uint32_t rank);
/* Like hoop_peer_describe(), but also before the roster is complete. */
void hoop_member_describe(const struct hoop_member *member, uint32_t rank, char *ret_text,
                          size_t bytes);

/* ---- roster.c ----------------------------------------------------------------------------- */

/* Take the roster's head and its parts. A descriptor that was taken becomes -1 in fds. */
hoop_result_t hoop_roster_begin(struct hoop_member *member, const struct hoop_frame_roster *frame,
                                int *fds);
hoop_result_t hoop_roster_add(struct hoop_member *member, const struct hoop_frame_roster_part *part,
                              int *fds);
bool hoop_roster_is_complete(const struct hoop_member *member);
/* Also frees an incomplete roster. */
void hoop_roster_finish(struct hoop_member *member);

/* ---- liveness.c --------------------------------------------------------------------------- */

/* Watches the processes of the roster. Losses and beats begin when the watcher is started. */
hoop_result_t hoop_liveness_begin(struct hoop_member *member);
/* Tells the witness. */
void hoop_liveness_tell(struct hoop_member *member, uint32_t rank, bool left, const char *why);
/* Reports a loss, unless it is this rank, has said goodbye, or was reported before. */
void hoop_liveness_lose(struct hoop_member *member, uint32_t rank, const char *why);
/* The same after its connection ended. Waits a moment if its process can be seen and is alive. */
void hoop_liveness_closed(struct hoop_member *member, uint32_t rank);
/* The leader's process is gone, and its ranks with it. Returns false if it had none. */
bool hoop_liveness_closed_server(struct hoop_member *member);

/* ---- peer.c ------------------------------------------------------------------------------- */

/* Opens this process's endpoint for peers; its name is part of the JOIN. */
hoop_result_t hoop_peer_listen(struct hoop_member *member);
const char *hoop_peer_listener(void);

/* The roster is complete: registers the member's peers, and accepts those of this machine. */
hoop_result_t hoop_peer_begin(struct hoop_member *member);
/* The join is complete: accepts peers on other machines. Their GO may come before ours, when this
 * machine's leader would not have heard of this process yet. */
void hoop_peer_enter(struct hoop_member *member);
/* Nothing is reported to the member any more. Also undoes an incomplete hoop_peer_begin(). */
void hoop_peer_finish(struct hoop_member *member);

/* Where a rank's process listens for peers. */
static inline void hoop_peer_place(const struct hoop_member *member, uint32_t rank,
                                   struct hoop_place *ret)
{
    const struct hoop_peer_state *other = &member->others[rank];
    *ret = (struct hoop_place){.name = ""};
    if (member->roster.peers[rank].same_machine) {
        memcpy(ret->name, other->entry.listener, sizeof(ret->name));
    } else {
        ret->address = other->entry.address;
        hoop_address_rescope(&ret->address, &member->address);
    }
}

/* Sends the requests that wait, or if there is no connection looks for one. */
void hoop_peer_flush(struct hoop_peer_process *process);

/* ---- request.c ---------------------------------------------------------------------------- */

/* A link's blob has come from a rank of the comm. */
void hoop_request_take_blob(const struct hoop_member *member, const struct hoop_frame_blob *frame);
/* The rank is lost or has left: fails what was asked of it. */
void hoop_peer_drop(struct hoop_member *member, uint32_t rank, const char *why);
/* This process lacks a resource: the request fails, and no other rank is at fault. */
void hoop_request_fail_here(const struct hoop_peer_request *request, hoop_result_t code,
                            const char *why);
/* A region has come, or the reason why not. A descriptor that was taken becomes -1 in fds. */
void hoop_request_answered(struct hoop_peer_process *process, struct hoop_connection *connection,
                           const struct hoop_frame_region_is *answer, int *fds);
void hoop_request_destroy(struct hoop_peer_process *process, struct hoop_peer_request *request);

/* ---- linger.c ----------------------------------------------------------------------------- */

/* This process joins a comm that may be of several machines, so hoop_member_linger() has to wait.
 */
void hoop_member_span(void);

/* ---- data_connection.c -------------------------------------------------------------------- */

/* Ends dialling and expecting, without events. */
void hoop_data_connection_finish(struct hoop_member *member);

#endif

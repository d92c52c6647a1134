/*
 * What a membership consists of; shared by the seven files that make it, and private to them.
 *
 *      membership.c   joins and leaves; what comes from the leader
 *      roster.c       what the leader told: segment, wake descriptors, processes
 *      liveness.c     which ranks are alive
 *      peer.c         the other processes
 *      request.c      what I want of other ranks: regions, and that they know my links' blobs
 *      data_connection.c  the data connections of my links
 *      linger.c       the end of the process
 *
 * Everything here belongs to the service thread. Exception: `roster`, which anybody may read from
 * the join's completion until hoop_member_destroy().
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
    HOOP_MEMBER_JOINING, /* it knows me; I wait for the roster */
    HOOP_MEMBER_READY,   /* I have the roster and said so */
    HOOP_MEMBER_IN,
    HOOP_MEMBER_FAILED
};

/* What the ranks of one process share of a comm: its segment, and the wake descriptors. */
struct hoop_shared {
    struct hoop_list_node node; /* of all in this process */
    uint64_t comm_id;
    void *segment;
    uint64_t segment_bytes;
    uint32_t refs, n;
    int fds[]; /* [n], -1: not told yet */
};

/* Embedded by who hears of losses, beside the comm: lib/survivors/. */
struct hoop_member_witness {
    /* rank is lost, or has said goodbye */
    void (*lost)(struct hoop_member_witness *witness, uint32_t rank, bool left, const char *why);
};

/* What I know of a rank beyond struct hoop_peer. */
struct hoop_peer_state {
    struct hoop_watched watched;       /* zeroed: this process, or another machine's */
    struct hoop_frame_entry entry;     /* as the roster has it */
    bool lost;                         /* and said so */
    struct hoop_peer_process *process; /* NULL: this one */
};

/* What a rank can want of another. */
union hoop_peer_want {
    struct hoop_frame_header header;
    struct hoop_frame_region region; /* REGION_GET */
    struct hoop_frame_blob blob;
};

struct hoop_peer_request {
    struct hoop_list_node node;
    struct hoop_member *member;
    uint32_t rank;
    const struct hoop_connection *via; /* NULL: not sent yet */
    union hoop_peer_want want;
};

/* Another process, shared by all members that have ranks there; see peer.c. */
struct hoop_peer_process {
    struct hoop_list_node node;
    uint64_t id;             /* hoop_process_id() there */
    int pid;                 /* as the kernel has it; 0: cannot be seen from here */
    uint64_t comm_id;        /* of the only comm that it serves; 0: of any */
    struct hoop_place place; /* where it listens */
    uint32_t users;          /* ranks of members */
    struct hoop_connection *dialled, *accepted; /* NULL, or open */
    struct hoop_dialer *dialer;
    const struct hoop_member *dials_for; /* whose hello and secret the dialer has */
    struct hoop_timer *moment;
    struct hoop_list_node requests;
    uint32_t request_count;
};

struct hoop_member {
    struct hoop_list_node node; /* of all in this process */
    struct hoop_join join;
    struct hoop_member_events events;
    struct hoop_job *job; /* until complete */
    enum hoop_member_state state;
    struct hoop_place place;            /* of the leader */
    struct hoop_dialer *dialer;         /* for the leader */
    struct hoop_connection *connection; /* to it */
    struct hoop_timer *timer;           /* deadline of the join, once it is found */
    uint64_t deadline_ns;
    struct hoop_secret secret; /* the comm's: its rendezvous's, or on one machine the roster's */

    struct hoop_roster roster;
    struct hoop_address address; /* of this machine, port 0; family 0: there is no other */
    uint64_t server;             /* the process of the leader */
    uint32_t told;               /* entries of the roster so far */
    struct hoop_shared *shared;
    struct hoop_peer_state *others; /* [n] */

    struct hoop_watcher watcher;
    uint64_t waiting_ns; /* since when an operation of mine waits; HOOP_NEVER: none does */
    struct hoop_endpoint *peers_endpoint; /* the process's, for peers of this machine */
    struct hoop_expectation near_expected, far_expected; /* peers */
    struct hoop_endpoint *data_endpoint; /* for other machines; else opened at first use */
    struct hoop_list_node data_links;    /* those that have no connection yet */

    struct hoop_lineage *lineage;        /* NULL: it begins here; owned */
    struct hoop_member_witness *witness; /* who else hears of losses; NULL: nobody */
};

extern struct hoop_list_node hoop_members;

/* ---- membership.c -------------------------------------------------------------------------- */

/* The join is complete. Nothing if it was already. */
void hoop_member_enter(struct hoop_member *member);
/* Its join, if it is under way, fails for this reason. */
void hoop_member_give_up(struct hoop_member *member, hoop_result_t code, const char *why);
/* The member of this process in that comm with that rank that has its roster; NULL: none. */
struct hoop_member *hoop_member_find(uint64_t comm_id, uint32_t rank);
/* As hoop_peer_describe(), before all is known of it too. */
void hoop_member_describe(const struct hoop_member *member, uint32_t rank, char *ret_text,
                          size_t bytes);

/* ---- roster.c ----------------------------------------------------------------------------- */

/* Takes the roster's head and its parts. A moved descriptor's place becomes -1. */
hoop_result_t hoop_roster_begin(struct hoop_member *member, const struct hoop_frame_roster *frame,
                                int *fds);
hoop_result_t hoop_roster_add(struct hoop_member *member, const struct hoop_frame_roster_part *part,
                              int *fds);
bool hoop_roster_is_complete(const struct hoop_member *member);
/* Half of one is allowed. */
void hoop_roster_finish(struct hoop_member *member);

/* ---- liveness.c --------------------------------------------------------------------------- */

/* Watches the processes of the roster. Losses and the heartbeat begin with the watcher. */
hoop_result_t hoop_liveness_begin(struct hoop_member *member);
/* The witness hears of it. */
void hoop_liveness_tell(struct hoop_member *member, uint32_t rank, bool left, const char *why);
/* Reports a loss, unless the rank is me, said goodbye, or was reported before. */
void hoop_liveness_lose(struct hoop_member *member, uint32_t rank, const char *why);
/* The same, when its connection ended: in a moment, if it takes one to see that it is dead. */
void hoop_liveness_closed(struct hoop_member *member, uint32_t rank);
/* The process of the leader is gone, with its ranks. False: it had none. */
bool hoop_liveness_closed_server(struct hoop_member *member);

/* ---- peer.c ------------------------------------------------------------------------------- */

/* This process's endpoint for its peers, and its name for the JOIN. */
hoop_result_t hoop_peer_listen(struct hoop_member *member);
const char *hoop_peer_listener(void);

/* The roster is complete: knows the member's peers, and lets those of this machine in. */
hoop_result_t hoop_peer_begin(struct hoop_member *member);
/* The join is complete: lets in those of others, whose GO may have come before mine: this machine's
 * leader would not hear of me yet. */
void hoop_peer_enter(struct hoop_member *member);
/* Nothing is told to the member any more. Half a begin is allowed. */
void hoop_peer_finish(struct hoop_member *member);

/* Where the process of a rank listens for peers. */
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

/* Sends what waits, or looks for a connection. */
void hoop_peer_flush(struct hoop_peer_process *process);

/* ---- request.c ---------------------------------------------------------------------------- */

/* A link's blob is here, from a rank that is in the comm. */
void hoop_request_take_blob(const struct hoop_member *member, const struct hoop_frame_blob *frame);
/* The rank is lost or gone: what was asked of it fails. */
void hoop_peer_drop(struct hoop_member *member, uint32_t rank, const char *why);
/* This process has not enough of something: the request fails, and that is nobody else's fault. */
void hoop_request_fail_here(struct hoop_peer_process *process, struct hoop_peer_request *request,
                            hoop_result_t code, const char *why);
/* A region came, or why it does not; a moved descriptor's place becomes -1. */
void hoop_request_answered(struct hoop_peer_process *process, struct hoop_connection *connection,
                           const struct hoop_frame_region_is *answer, int *fds);
void hoop_request_destroy(struct hoop_peer_process *process, struct hoop_peer_request *request);

/* ---- linger.c ----------------------------------------------------------------------------- */

/* This process is in a comm of several machines: hoop_member_linger() has something to do. */
void hoop_member_span(void);

/* ---- data_connection.c -------------------------------------------------------------------- */

/* Ends what is dialled and expected, without an event. */
void hoop_data_connection_finish(struct hoop_member *member);

#endif

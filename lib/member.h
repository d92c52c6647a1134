/*
 * What a membership consists of; shared by the six files that make it, and private to them.
 *
 *      bootstrap.c   joins and leaves; what comes from the rendezvous
 *      roster.c      what the rendezvous told: segment, wake descriptors, processes
 *      vigil.c       who is alive
 *      contact.c     what I want of other ranks: regions, and that they know my links' blobs
 *      visitor.c     what other ranks of this machine want of me
 *      dock.c        the data connections of my links
 *
 * Everything here belongs to the service thread. Exception: `roster`, which anybody may read from
 * the join's completion until hoop_member_destroy().
 */
#ifndef HOOP_MEMBER_H
#define HOOP_MEMBER_H

#include "bootstrap.h"
#include "control.h"
#include "watch.h"

enum hoop_member_state {
    HOOP_MEMBER_SEEKING, /* no proven connection to the rendezvous yet */
    HOOP_MEMBER_JOINING, /* it knows me; I wait for the roster */
    HOOP_MEMBER_READY,   /* I have the roster and said so */
    HOOP_MEMBER_IN,
    HOOP_MEMBER_FAILED
};

/* What the ranks of one process share of a comm: its segment, and the wake descriptors. */
struct hoop_commons {
    struct hoop_commons *next;
    uint64_t comm_id;
    void *segment;
    uint64_t segment_bytes;
    uint32_t refs, n;
    int fds[]; /* [n], -1: not told yet */
};

/* A process of this machine with ranks of this comm; never this one. */
struct hoop_neighbour {
    struct hoop_member *member;
    uint64_t process;
    uint64_t start_time;
    int pid_fd; /* -1: its pid is not visible here */
    struct hoop_watch *watch;
    bool dead;
};

/* What I know of a rank beyond struct hoop_peer. */
struct hoop_fellow {
    struct hoop_neighbour *neighbour; /* NULL: this process, or another machine's */
    char listener[HOOP_FRAME_NAME_BYTES];
    bool suspect; /* a connection of its ended; is it dead? */
    bool lost;    /* and said so */
    uint64_t pulse, changed_ns;
    struct hoop_contact *contact; /* made at first use */
};

struct hoop_member {
    struct hoop_member *next;
    struct hoop_join join;
    struct hoop_member_events events;
    struct hoop_job *job; /* until complete */
    enum hoop_member_state state;
    struct hoop_place place;      /* of the rendezvous */
    bool listening;               /* holds the process's listener */
    struct hoop_control *control; /* to the rendezvous */
    struct hoop_timer *timer;     /* retry and deadline of the join */
    struct hoop_timer *heartbeat;
    struct hoop_timer *verdict; /* on suspects */
    uint64_t deadline_ns;
    uint64_t backoff_ms;
    struct hoop_secret secret; /* proved to and by the rendezvous */

    struct hoop_roster roster;
    struct hoop_address address; /* of this machine, port 0; family 0: there is no other */
    uint64_t server;             /* the process of the rendezvous */
    uint32_t told;               /* entries of the roster so far */
    uint64_t beat_ms;            /* how often */
    struct hoop_commons *commons;
    struct hoop_fellow *fellows;       /* [n] */
    struct hoop_neighbour *neighbours; /* [neighbour_count], room for n */
    uint32_t neighbour_count;

    uint64_t beat_ns, waiting_ns; /* last beat; since when I wait, HOOP_NEVER: I don't */
    bool raised;                  /* hoop_member_raise() was here */
    struct hoop_visitor *visitors;
    struct hoop_dock *dock; /* made at first use */
};

extern struct hoop_member *hoop_members; /* all of this process */

/* ---- bootstrap.c -------------------------------------------------------------------------- */

/* The join is complete. Nothing if it was already. */
void hoop_member_enter(struct hoop_member *member);
/* The member of this process in that comm with that rank that has its roster; NULL: none. */
struct hoop_member *hoop_member_find(uint64_t comm_id, uint32_t rank);
/* "rank 3 (pid 7, host h)" */
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

/* This process's start time in ticks since boot; 0: unknown. Of another: by its pid. */
uint64_t hoop_process_start_time(int pid);

/* ---- vigil.c ------------------------------------------------------------------------------ */

/* Watches the processes of the roster. */
hoop_result_t hoop_vigil_begin(struct hoop_member *member);
/* From the join's completion on: losses, and the heartbeat. */
void hoop_vigil_start(struct hoop_member *member);
void hoop_vigil_finish(struct hoop_member *member);
/* Reports a loss, unless the rank is me, said goodbye, or was reported before. */
void hoop_vigil_lose(struct hoop_member *member, uint32_t rank, const char *why);
/* The same, when its connection ended: in a moment, if it takes one to see that it is dead. */
void hoop_vigil_lose_connection(struct hoop_member *member, uint32_t rank);
/* The process of the rendezvous is gone, with its ranks. False: it had none. */
bool hoop_vigil_lose_server(struct hoop_member *member);

/* ---- contact.c: what I want of others ----------------------------------------------------- */

/* The rank is lost or gone: what was asked of it fails. */
void hoop_contact_drop(struct hoop_member *member, uint32_t rank, const char *why);
void hoop_contact_finish(struct hoop_member *member);

/* ---- visitor.c: what others want of me ---------------------------------------------------- */

/* The process's listener for ranks of its comms: made with the first hold, gone with the last. */
hoop_result_t hoop_visitor_listen(struct hoop_failure *failure);
void hoop_visitor_unlisten(void);
const char *hoop_visitor_listener(void);
void hoop_visitor_finish(struct hoop_member *member);

#endif

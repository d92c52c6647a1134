/*
 * A rendezvous and its guests; shared by the three files that make it, and private to them.
 *
 *      rendezvous.c   life and failure; the joins
 *      binding.c      the roster: to those who joined, until all are ready
 *      relay.c        then: what guests of this machine and the others have to hear of each other
 *
 * Everything here belongs to the service thread.
 */
#ifndef HOOP_GUEST_H
#define HOOP_GUEST_H

#include "gathering.h"
#include "rendezvous.h"
#include "tree.h"
#include "watch.h"

#define HOOP_GUEST_NOBODY UINT32_MAX

/* One proven connection. */
struct hoop_guest {
    struct hoop_guest *next;
    struct hoop_rendezvous *rendezvous;
    struct hoop_control *control;
    uint32_t rank; /* HOOP_GUEST_NOBODY before its JOIN */
    int wake_fd;
    bool bound, ready;             /* was told the roster; can use it */
    bool gone;                     /* said goodbye */
    bool silent;                   /* for too long, which was said */
    uint64_t heard_ns, waiting_ns; /* HOOP_NEVER: its rank does not wait */
    struct hoop_frame_join join;
};

/* A rank whose connection has ended without a word: is its process dead, or does it live on? */
struct hoop_suspect {
    struct hoop_suspect *next;
    struct hoop_rendezvous *rendezvous;
    uint32_t rank;
    int pid_fd;
    struct hoop_watch *watch;
    struct hoop_timer *timer;
};

enum hoop_rendezvous_state {
    HOOP_RENDEZVOUS_GATHERING,
    HOOP_RENDEZVOUS_BINDING,
    HOOP_RENDEZVOUS_RUNNING,
    HOOP_RENDEZVOUS_FAILED
};

struct hoop_rendezvous {
    struct hoop_rendezvous *next;
    struct hoop_meeting meeting; /* without its file */
    struct hoop_place place;
    struct hoop_secret secret; /* the meeting's, or one made here and handed out */
    struct hoop_listener *listener;
    struct hoop_timer *timer; /* of the join; RUNNING with a tree: beats */
    enum hoop_rendezvous_state state;
    struct hoop_gathering gathering; /* of the ranks here; until GO */
    struct hoop_tree *tree;          /* NULL: all ranks are here */
    struct hoop_guest *guests;
    uint32_t guest_count;
    struct hoop_guest **ranks; /* [n], from the first JOIN on; NULL: not here; borrowed of guests */
    uint32_t n;
    struct hoop_frame_roster roster;  /* n 0: not known yet */
    struct hoop_frame_entry *entries; /* [n], `known` of them are; until GO */
    uint32_t known;
    uint32_t here, next_rank, bound, ready; /* ranks: all here; to be told next; told; ready */
    int segment;                            /* while it has to be sent */
    uint32_t expected, told;                /* failed: how many ranks may come, and how many know */
    uint8_t told_bits[HOOP_FRAME_MAX_RANKS / 8];
    struct hoop_failure failure;
    struct hoop_suspect *suspects;
    uint64_t beat_ms, beat_ns;
};

/* ---- rendezvous.c ------------------------------------------------------------------------- */

/* Fails the join of all; it may be gone afterwards. Nothing if it has failed already. */
void hoop_rendezvous_fail(struct hoop_rendezvous *rendezvous, const struct hoop_failure *failure);
void hoop_rendezvous_fail_with(struct hoop_rendezvous *rendezvous, hoop_result_t code, int rank,
                               const char *text);
/* The last guest has gone, and nothing is left to find out: ends it. */
void hoop_rendezvous_settle(struct hoop_rendezvous *rendezvous);

/* Closes it and makes it -1; nothing if it is. */
void hoop_guest_close_fd(int *fd);

/* ---- binding.c: BINDING ------------------------------------------------------------------- */

extern const struct hoop_tree_owner hoop_binding_tree_owner; /* arg: the rendezvous */
/* All ranks are on this machine: no others have to be asked. */
void hoop_binding_alone(struct hoop_rendezvous *rendezvous);
/* This rank is ready. */
void hoop_binding_ready(struct hoop_guest *guest);

/* ---- relay.c: RUNNING --------------------------------------------------------------------- */

/* Only with a tree. */
void hoop_relay_start(struct hoop_rendezvous *rendezvous);
void hoop_relay_beat(struct hoop_rendezvous *rendezvous);
/* False: it does not belong here. */
bool hoop_relay_from_guest(struct hoop_guest *guest, const union hoop_frame *frame);
void hoop_relay_from_tree(struct hoop_rendezvous *rendezvous, const union hoop_frame *frame);
uint64_t hoop_relay_waiting_since(const struct hoop_rendezvous *rendezvous);
/* This rank's connection has ended; pid: its process as seen here, 0: not. */
void hoop_relay_lose(struct hoop_rendezvous *rendezvous, uint32_t rank, bool gone, int pid);
/* Drops what is to be found out. */
void hoop_relay_finish(struct hoop_rendezvous *rendezvous);

#endif

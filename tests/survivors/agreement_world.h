/*
 * A world in which ranks shrink a comm: the real code of lib/survivors/ over connections, timers,
 * joins and deaths that happen when the test says so, one at a time. All that changes is in one
 * struct, so that a state can be kept, restored and compared.
 *
 * Modelled after lib/birth/shrink.c: a rank whose join has failed agrees again, and one whose new
 * comm has failed shrinks that. Simplified: a handshake is one event; a join is READY from all, and
 * then GO to each; a rank that has shrunk a comm leaves it at once; a rank that fails ends. A rank
 * is ready as soon as it has decided. If it were later, others would only get GO later, which
 * happens anyway, because a GO may be delivered at any time.
 */
#ifndef AGREEMENT_WORLD_H
#define AGREEMENT_WORLD_H

#include "survivors/survivors_inside.h"

#define WORLD_RANKS 5
#define WORLD_CALLS 32
#define WORLD_LETTERS 12
#define WORLD_COMMS 128 /* by nonce; 0 is the first comm */

enum world_phase {
    WORLD_IDLE,     /* its comm works, or has failed without its knowledge */
    WORLD_AGREEING, /* in hoop_comm_shrink(), in the agreement */
    WORLD_JOINING,  /* in hoop_comm_shrink(), in the join */
    WORLD_FAILED    /* hoop_comm_shrink() has failed, and the process ends */
};

enum world_letter_kind { LETTER_WELCOME, LETTER_VIEW, LETTER_REJECT, LETTER_CLOSED };

struct world_letter {
    uint8_t kind, phase, out, nonce, code;
};

/* One end of a call, which a rank made to another. */
struct hoop_connection {
    bool open, established, eof; /* eof: the other end is closed, once the letters are read */
    uint8_t call, side;          /* side 0: the client's */
    uint8_t count;
    struct world_letter letters[WORLD_LETTERS]; /* on the way to this end */
    const struct hoop_connection_owner *owner;
    void *arg;
};

struct world_call {
    bool used, accepted;
    uint8_t client, server;
    struct hoop_connection ends[2];
};

struct hoop_timer {
    hoop_timer_fn *fn;
    void *arg;
    bool exists, runs;
};

struct world_rank {
    bool dead, stopped;
    bool blamed;  /* it was falsely accused, or once stopped */
    bool dropped; /* another rank left it out while it lived */
    enum world_phase phase;
    uint8_t comm;    /* the comm that it is in, or shrinks */
    uint8_t joins;   /* the comm that it joins */
    uint8_t decided; /* how often it has decided */
    bool cancelled, done;
    uint8_t again;   /* how often the same was agreed on */
    uint8_t out;     /* what was last agreed on: ranks of the comm */
    uint32_t number; /* likewise: its number */
    uint8_t lost;    /* lost ranks of the comm, in a kept state; otherwise see others[].lost */
    hoop_result_t result;
    struct hoop_timer timer;
    struct hoop_expectation *near, *far;
    struct hoop_survivors *survivors;
};

/* What a rank has that never changes, or follows from the rest; not kept with a state. */
struct world_furniture {
    struct hoop_job job;
    struct hoop_member member, joining;
    struct hoop_peer peers[WORLD_RANKS];
    struct hoop_peer_state others[WORLD_RANKS];
    struct hoop_address address;
    _Alignas(8) uint8_t lineage[sizeof(struct hoop_lineage) + WORLD_RANKS * sizeof(uint32_t)];
};

/* The budget: what may still go wrong. */
struct world_harm {
    uint8_t deaths, stops, accusations;
    uint8_t resets; /* of connections whose other end lives; a dying rank's may lose what it sent */
};

struct world {
    uint8_t n, current;
    bool far;     /* every rank is on a machine of its own; otherwise all are on one */
    bool expired; /* the deadline of a rank has passed, which others that wait for it are told */
    struct world_harm left;
    uint64_t now_ns;
    struct world_rank ranks[WORLD_RANKS];
    struct world_call calls[WORLD_CALLS];
    uint8_t members[WORLD_COMMS];           /* bits of ranks of the first comm, as below */
    uint8_t readies[WORLD_COMMS];           /* which have ever said READY */
    uint8_t gone[WORLD_COMMS];              /* which have said goodbye, */
    uint32_t how[WORLD_COMMS][WORLD_RANKS]; /* and in which way */
    uint8_t given_up[WORLD_COMMS];          /* whose join has failed */
    /* What the ranks allocate. Only the parts that are in use are kept with a state. */
    bool big_used[WORLD_RANKS], small_used[2 * WORLD_RANKS];
    _Alignas(64) uint8_t big[WORLD_RANKS][8192];
    _Alignas(64) uint8_t small[2 * WORLD_RANKS][256];
};
extern struct world world;
extern struct world_furniture world_furniture[WORLD_RANKS];

static inline struct world_furniture *world_furniture_of(const struct world_rank *rank)
{
    return &world_furniture[rank - world.ranks];
}

enum world_kind {
    /* the world goes on */
    EVENT_TICK,     /* a's timer */
    EVENT_ACCEPT,   /* call a */
    EVENT_DELIVER,  /* to end b of call a */
    EVENT_DETECT,   /* a's failure detector notices that b is dead */
    EVENT_SILENCE,  /* b, which is stopped, has been silent towards a for too long */
    EVENT_CALL,     /* a calls hoop_comm_shrink() */
    EVENT_GO,       /* a is in its new comm */
    EVENT_JOINFAIL, /* a's join has failed */
    EVENT_RESUME,   /* a, which was stopped, goes on */
    EVENT_DEADLINE, /* a, which was stopped or taken for lost, has waited for too long */
    /* harm is done to a rank */
    EVENT_RESET, /* to end b of call a: what was on the way to it is lost */
    EVENT_DIE,
    EVENT_STOP,
    EVENT_ACCUSE, /* a takes b for lost, though it lives */
    EVENT_KINDS
};

struct world_event {
    uint8_t kind, a, b;
};
#define WORLD_EVENTS 256

static inline bool world_has(uint8_t set, uint32_t rank)
{
    return (set >> rank & 1u) != 0;
}

/* n ranks of a comm that has failed because of rank `first`, which is dead, or else stopped and
 * taken for lost. */
void world_begin(uint8_t n, bool far, uint8_t first, bool dead, struct world_harm harm);
/* All that can happen now. */
size_t world_events(struct world_event events[WORLD_EVENTS]);
bool world_lives(const struct world_rank *rank);
bool world_has_failed(uint8_t comm);
void world_apply(const struct world_event *event);
/* Copies the state, to be restored later. Returns its size, at most sizeof(world). */
size_t world_keep(uint8_t *ret_state);
void world_come_back(uint8_t *state); /* restores it; `state` is unchanged */
/* The same number for states that behave alike. */
uint64_t world_hash(void);
/* Are all ranks through? *ret_wrong: what is wrong with the outcome, or NULL. */
bool world_is_over(const char **ret_wrong);
/* What is wrong with the state, whatever happens next; NULL: nothing. */
const char *world_wrong(void);
void world_event_format(const struct world_event *event, char *ret_text, size_t bytes);
void world_print(void);

#endif

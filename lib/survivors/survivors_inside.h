/*
 * What an agreement on who is left consists of; shared by the files that make it, and private to
 * them.
 *
 *      survivors.c        life, deadlines
 *      survivors_view.c   views, and what comes of them: the decision
 *      survivors_calls.c  connections between survivors
 *
 * Everything here belongs to the service thread, but what is done before and after the job: that is
 * the caller's.
 */
#ifndef HOOP_SURVIVORS_INSIDE_H
#define HOOP_SURVIVORS_INSIDE_H

#include "membership/membership_inside.h"
#include "survivors/survivors.h"

#define HOOP_SURVIVORS_NOBODY UINT32_MAX

enum hoop_survivors_state { HOOP_SURVIVORS_GATHERING, HOOP_SURVIVORS_AGREED, HOOP_SURVIVORS_OVER };

/* A rank of the lineage, as I know it. */
struct hoop_survivor {
    struct hoop_survivors *all;
    uint32_t at;                     /* its rank in my comm; NOBODY: it is not in there */
    struct hoop_connection *dialled; /* mine to it, */
    struct hoop_connection *caller;  /* its to me */
    uint64_t since_ns;               /* dialled */
    uint32_t misses;                 /* nobody was there, in so many ticks in a row */
    bool missed;                     /* in this one */
    bool greeted, said;              /* its view has come: along dialled; along caller */
    bool elsewhere;                  /* exact: it is in an agreement that leaves me out, or was */
    bool done;
};

struct hoop_survivors {
    struct hoop_member *member;
    struct hoop_member_witness witness;
    struct hoop_member *joining; /* NULL: not yet */
    struct hoop_job *job;        /* until complete */
    enum hoop_survivors_state state;
    bool exact, broken;
    uint32_t n, me, next_call, before;
    uint64_t begin_ns, deadline_ns, timeout_ms, pause_ms;
    struct hoop_secret key;
    struct hoop_rank_set out; /* ranks of the lineage */
    uint8_t nonce[HOOP_NONCE_BYTES];
    struct hoop_expectation near, far;
    struct hoop_timer *timer;
    struct hoop_survival survival;
    struct hoop_survivor others[]; /* [n] */
};

/* ---- survivors.c --------------------------------------------------------------------------- */

/* Sees who has left the comm, and how; while they gather. */
void hoop_survivors_look_for_left(struct hoop_survivors *all);

/* ---- survivors_view.c ---------------------------------------------------------------------- */

bool hoop_survivors_has(const struct hoop_survivors *all, uint32_t rank);
/* The lowest that is left, as far as I know. */
uint32_t hoop_survivors_leader(const struct hoop_survivors *all);
/* A rank of my comm, in the lineage; the other way. */
uint32_t hoop_survivors_rank_of(const struct hoop_survivors *all, uint32_t at);
uint32_t hoop_survivor_rank(const struct hoop_survivor *other);

void hoop_survivors_fail(struct hoop_survivors *all, const struct hoop_failure *failure);
/* The same for all who have told me their view: I lead them, or they believe it. */
void hoop_survivors_fail_all(struct hoop_survivors *all, hoop_result_t code, const char *format,
                             ...) HOOP_PRINTF(3, 4);
/* One of those that were left is lost: the joins can't succeed, or have. */
void hoop_survivors_break(struct hoop_survivors *all);
void hoop_survivor_lose(struct hoop_survivor *other, const char *why);
/* Goes on with what is at hand. */
void hoop_survivors_look(struct hoop_survivors *all);
/* While they gather: */
void hoop_survivors_take_view(struct hoop_survivor *other, struct hoop_connection *connection,
                              const struct hoop_frame_view *view);
/* False: it does not fit what this rank knows. */
bool hoop_survivors_take_decision(struct hoop_survivor *leader, const struct hoop_frame_view *view);

/* ---- survivors_calls.c --------------------------------------------------------------------- */

/* From now on they may call. */
hoop_result_t hoop_survivors_expect(struct hoop_survivors *all);
void hoop_survivors_expect_no_more(struct hoop_survivors *all);
/* connection NULL: nothing. */
void hoop_survivors_say(const struct hoop_survivors *all, struct hoop_connection *connection,
                        enum hoop_view_phase phase);
void hoop_survivor_end(struct hoop_survivor *other);
void hoop_survivors_close(struct hoop_survivors *all);
/* Connects to a rank's process; nobody there: later again. */
hoop_result_t hoop_survivor_dial(struct hoop_survivor *other);
/* The leader: who has not come is called, to see whether it is still there. */
void hoop_survivors_call(struct hoop_survivors *all);
/* Who takes the connection and says nothing is stopped. */
void hoop_survivors_drop_silent(struct hoop_survivors *all);

#endif

/*
 * What an agreement of survivors consists of; private to the files that make it up.
 *
 *      survivors.c        life, deadlines
 *      survivors_view.c   views, and the decision that comes of them
 *      survivors_calls.c  connections between survivors
 *
 * All of it belongs to the service thread, except before the agreement is started and after its job
 * is complete; then it is the caller's.
 */
#ifndef HOOP_SURVIVORS_INSIDE_H
#define HOOP_SURVIVORS_INSIDE_H

#include "membership/membership_inside.h"
#include "survivors/survivors.h"

#define HOOP_SURVIVORS_NOBODY UINT32_MAX

enum hoop_survivors_state { HOOP_SURVIVORS_GATHERING, HOOP_SURVIVORS_AGREED, HOOP_SURVIVORS_OVER };

/* What is known of a rank of the lineage. */
struct hoop_survivor {
    struct hoop_survivors *all;
    uint32_t at;                     /* its rank in this comm, or NOBODY */
    struct hoop_connection *dialled; /* made by this rank */
    struct hoop_connection *caller;  /* made by the other rank */
    uint64_t since_ns;               /* when it was dialled */
    uint32_t misses;                 /* number of ticks in a row in which nobody listened */
    bool missed;                     /* nobody listened in this tick */
    bool opened;                     /* dialled is open */
    bool greeted, said;              /* its view has come over dialled; over caller */
    bool elsewhere;                  /* exact: its agreement leaves this rank out */
    bool done;
};

struct hoop_survivors {
    struct hoop_member *member;
    struct hoop_member_witness witness;
    struct hoop_member *joining; /* NULL: not yet */
    struct hoop_job *job;        /* until it is complete */
    enum hoop_survivors_state state;
    bool exact, broken;
    uint32_t n, me, next_call, before;
    uint64_t begin_ns, deadline_ns, timeout_ms, pause_ms;
    uint64_t starved_ns; /* since when this process cannot call or lead others; 0: it can */
    struct hoop_secret key;
    struct hoop_rank_set out; /* ranks of the lineage that are left out */
    uint8_t nonce[HOOP_NONCE_BYTES];
    struct hoop_expectation near, far;
    struct hoop_timer *timer;
    struct hoop_survival survival;
    struct hoop_survivor others[]; /* [n] */
};

/* ---- survivors.c --------------------------------------------------------------------------- */

/* During the agreement: handles ranks that have left the comm. */
void hoop_survivors_look_for_left(struct hoop_survivors *all);

/* ---- survivors_view.c ---------------------------------------------------------------------- */

bool hoop_survivors_has(const struct hoop_survivors *all, uint32_t rank);
/* The lowest rank that is left, as far as this rank knows. */
uint32_t hoop_survivors_leader(const struct hoop_survivors *all);
/* Converts a rank of this comm to the lineage's; gives a survivor's rank in the lineage. */
uint32_t hoop_survivors_rank_of(const struct hoop_survivors *all, uint32_t at);
uint32_t hoop_survivor_rank(const struct hoop_survivor *other);

void hoop_survivors_fail(struct hoop_survivors *all, const struct hoop_failure *failure);
/* The same for all that have told this rank their views: they take it for their leader. */
void hoop_survivors_fail_all(struct hoop_survivors *all, hoop_result_t code, const char *format,
                             ...) HOOP_PRINTF(3, 4);
/* A survivor is lost after the decision: no join can succeed any more, or it already has. */
void hoop_survivors_break(struct hoop_survivors *all);
void hoop_survivor_lose(struct hoop_survivor *other, const char *why);
/* Takes the next step that is possible now. */
void hoop_survivors_look(struct hoop_survivors *all);
/* Forgets the decision. */
void hoop_survivors_forget(struct hoop_survivors *all);
/* During the agreement: */
void hoop_survivors_take_view(struct hoop_survivor *other, struct hoop_connection *connection,
                              const struct hoop_frame_view *view);
/* Returns false if the decision contradicts what this rank knows. */
bool hoop_survivors_take_decision(struct hoop_survivor *leader, const struct hoop_frame_view *view);

/* ---- survivors_calls.c --------------------------------------------------------------------- */

/* From now on other survivors may call. */
hoop_result_t hoop_survivors_expect(struct hoop_survivors *all);
void hoop_survivors_expect_no_more(struct hoop_survivors *all);
/* Does nothing if connection is NULL. */
void hoop_survivors_say(const struct hoop_survivors *all, struct hoop_connection *connection,
                        enum hoop_view_phase phase);
void hoop_survivor_end(struct hoop_survivor *other);
void hoop_survivors_close(struct hoop_survivors *all);
/* Connects to the rank's process. If nobody listens a later tick tries again. */
hoop_result_t hoop_survivor_dial(struct hoop_survivor *other);
/* A call, or the decision, was possible or not, with the thread's sentence. For want of descriptors
 * or memory a later tick tries again, for a while. */
void hoop_survivors_note(struct hoop_survivors *all, hoop_result_t result);
/* As leader, calls those that have not come, to see whether they are still there. */
void hoop_survivors_call(struct hoop_survivors *all);
/* Takes for lost whoever accepts a connection but says nothing for dead_after. */
void hoop_survivors_drop_silent(struct hoop_survivors *all);

#endif

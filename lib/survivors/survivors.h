/*
 * Which ranks of a comm are left: those that call agree on it, and on a place where they meet.
 *
 * All tell the lowest rank that they take for alive whom they take for dead (their view). Views
 * only grow, and are merged where they meet. Who learns that nobody below is left is the leader;
 * when all that are left have told it, it decides:
 *
 *      rank                            leader
 *      connects; VIEW {mine}  ---->    merges, in any order, also before it knows that it leads
 *                             <----    VIEW {mine}
 *      VIEW {more}            ---->    whenever a view has grown
 *                             <----    VIEW {AGREED, who is left out, nonce}
 *      joins                           serves the rendezvous whose secret the nonce gives
 *      VIEW {DONE}            <--->    joined: my end of this connection means nothing
 *
 * It is a connection to where a process of the comm listens anyway: on one machine its name for
 * peers, between machines the port that it opened at the join. So nobody needs to have been told
 * anything after a death, and a place where nobody listens any more is a rank that is lost; nobody
 * needs to be told of that either. The leader calls those who have not come, to see just that.
 *
 * A loss while they agree: a larger view, and perhaps another leader. After that: the end of a
 * connection cancels the joins on either side, and all agree again.
 *
 * Who is in the new comm when others still agree again, because the leader has died between two
 * GOs, finds that comm failed, and shrinks it. So that they meet, shrinking goes on under one name:
 * a comm that was made of a failed one keeps its lineage, the key and the ranks of the first one in
 * the row, in which all views are told. No rank needs to know how often another has agreed before.
 *
 * A rank that lives and is taken for dead (stopped for too long, cut off) is told so and fails. Who
 * has shrunk a comm leaves it, and says in its goodbye in which one it goes on: a rank that did not
 * agree on that one is out, and one that did, and could not join, waits for it to come back.
 *
 * Functions may be called from any thread but the service thread.
 */
#ifndef HOOP_SURVIVORS_H
#define HOOP_SURVIVORS_H

#include "control/frame.h"
#include "membership/membership.h"

/* A join that fails may have succeeded elsewhere, or been ended by a connection that broke: so the
 * same may be agreed on again, but so often nobody has died, and there is a reason to be told. */
#define HOOP_SHRINK_SAME 3u

/* What was agreed on. */
struct hoop_survival {
    struct hoop_rank_set out;          /* ranks of the old comm */
    uint32_t n, rank;                  /* of the new comm; mine there */
    struct hoop_rendezvous rendezvous; /* served already */
    struct hoop_lineage *lineage;      /* of the new comm; NULL: exact. Owned by the agreement */
    uint32_t number;                   /* of the new comm, in goodbyes; neither 0 nor HOOP_LEFT */
};

/* A rank's part in one agreement. */
struct hoop_survivors;

/*
 * Begins one; a member has one at a time, and is not to be destroyed before it. out: which of its
 * ranks are left out from the beginning. exact: nobody else may be; all must name the same, and a
 * loss is a failure; a rank that leaves me out is in another one, and may come to mine behind it.
 * before: the number of the comm that this rank agreed on last, of this one; 0: none. job:
 * completed with the decision; HOOP_TIMEOUT names who has not called. HOOP_REMOTE_ERROR: the others
 * have gone on without this rank. HOOP_INVALID_USAGE: the member has one already.
 */
hoop_result_t hoop_survivors_create(struct hoop_member *member, const struct hoop_rank_set *out,
                                    bool exact, uint32_t before, uint64_t timeout_ms,
                                    struct hoop_job *job, struct hoop_survivors **ret);
/* After the job completed well. Owned by the agreement. */
const struct hoop_survival *hoop_survivors_decision(const struct hoop_survivors *survivors);
/* This member joins the new comm: its join is cancelled if one of the others is lost. It is not to
 * be destroyed before the agreement. */
void hoop_survivors_join(struct hoop_survivors *survivors, struct hoop_member *joining);
/* The job, if it is not complete, completes with HOOP_ABORTED. */
void hoop_survivors_cancel(struct hoop_survivors *survivors);
/* joined: the others are told that I need them no more; else, that they can't do without me. NULL
 * is allowed. */
void hoop_survivors_destroy(struct hoop_survivors *survivors, bool joined);

#endif

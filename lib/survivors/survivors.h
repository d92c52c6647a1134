/*
 * Which ranks of a comm survive: the ranks that call this agree on that, and on a place to meet.
 *
 * All tell the lowest rank that they take for alive which ranks they take for lost (their view).
 * Views only grow, and are merged wherever they meet. A rank that finds that nobody below it is
 * left is the leader. When all that are left have told it their views, it decides:
 *
 *      rank                            leader
 *      connects; VIEW {MINE}  ---->    merges, in any order, even before it knows that it leads
 *                             <----    VIEW {MINE}
 *      VIEW {more}            ---->    whenever a view has grown
 *                             <----    VIEW {AGREED, who is left out, nonce}
 *      joins                           serves the rendezvous whose secret derives from the nonce
 *      VIEW {DONE}            <--->    joined: the end of this connection is no loss any more
 *
 * The connection goes to where a process of the comm listens anyway: on one machine to its name for
 * peers, between machines to the port that it opened at the join. So no message is needed after a
 * death: where nobody listens any more, the rank is lost. To find that out the leader calls those
 * who have not come.
 *
 * A loss during the agreement makes a larger view, and perhaps another leader. After it, the end of
 * a connection cancels the joins on both sides, and all agree again.
 *
 * If the leader dies between two GOs, some ranks may be in the new comm while others agree again.
 * Those find the new comm failed, and shrink it. So that all meet, they do so under one name: a
 * comm that was made from a failed one keeps its lineage, the key and the ranks of the first comm
 * of the series, and all views use those rank numbers. No rank needs to know how often others have
 * agreed.
 *
 * A rank that lives but is taken for lost (stopped for too long, cut off) is told so and fails. A
 * rank that has shrunk a comm leaves it, and its goodbye says in which comm it goes on. A rank that
 * did not agree on that comm is out; one that did, but could not join, waits for the other to come
 * back.
 *
 * Functions may be called from any thread but the service thread.
 */
#ifndef HOOP_SURVIVORS_H
#define HOOP_SURVIVORS_H

#include "control/frame.h"
#include "membership/membership.h"

/* A join that failed may have succeeded elsewhere, or a broken connection may have cancelled it, so
 * the same set may be agreed on again. After so many times nobody has died: report the reason. */
#define HOOP_SHRINK_SAME 3u

/* The decision. */
struct hoop_survival {
    struct hoop_rank_set out;          /* ranks of the old comm that are left out */
    uint32_t n, rank;                  /* of the new comm; this rank's number there */
    struct hoop_rendezvous rendezvous; /* served already */
    struct hoop_lineage *lineage;      /* of the new comm; NULL if exact. The agreement owns it */
    uint32_t number;                   /* of the new comm, for goodbyes; neither 0 nor HOOP_LEFT */
};

/* A rank's part in one agreement. */
struct hoop_survivors;

/*
 * Begins an agreement. A member has at most one, and must outlive it. out: ranks of the member that
 * are left out from the beginning. exact: no other rank may be left out: all must name the same
 * ranks, and a loss is a failure. A rank that leaves this one out is in another agreement, and may
 * come to this one afterwards. before: number of the comm that this rank last agreed on, shrinking
 * this comm; 0: none. job: completes with the decision; HOOP_TIMEOUT names ranks that have not
 * called; HOOP_REMOTE_ERROR: the others have gone on without this rank. HOOP_INVALID_USAGE: the
 * member has an agreement already.
 */
hoop_result_t hoop_survivors_create(struct hoop_member *member, const struct hoop_rank_set *out,
                                    bool exact, uint32_t before, uint64_t timeout_ms,
                                    struct hoop_job *job, struct hoop_survivors **ret);
/* Valid once the job has succeeded. The agreement owns it. */
const struct hoop_survival *hoop_survivors_decision(const struct hoop_survivors *survivors);
/* This member joins the new comm until a further loss cancels it. It must outlive the agreement. */
void hoop_survivors_join(struct hoop_survivors *survivors, struct hoop_member *joining);
/* Completes the job with HOOP_ABORTED if it is not complete. */
void hoop_survivors_cancel(struct hoop_survivors *survivors);
/* joined: tells the others that this rank needs them no more; else that it is lost to them. */
void hoop_survivors_destroy(struct hoop_survivors *survivors, bool joined);

#endif

/*
 * Owing over links: announcements of the previous rank that this rank has not received yet, for
 * operations that it has already completed.
 *
 * In a collective with a root some ranks, such as a broadcast's root or a gather's leaves, are done
 * before others have begun. What such a rank receives from the previous one in step 0 may be a mere
 * announcement, which serves to detect calls that differ. The rank does not wait for it but owes
 * the look. It looks while it is idle. It waits for what it owes when the link may hold no more;
 * before an operation in which all wait for all, because a rank that completes such an operation
 * relies on the calls before it; and before it leaves the comm.
 *
 *     operation   7        8        9          10
 *     posted      7        7 8      7 8 9      8 9 10      7 has come
 *
 * Nobody waits for a rank that owes: the link holds what the rank has not taken, and no more may be
 * owed than the link holds (hoop_link_holds()). So a rank that has completed an operation has sent
 * what others are owed for it, and is not needed any more. Announcements carry no data, so they
 * touch no buffer, and they precede everything of later operations on the same link.
 *
 * At the sending end, the link may hold back what this rank announces to the next one, if that rank
 * may owe it, to send it with later data (may_wait). It is pushed before this rank waits for what
 * it owes itself, before it sleeps, and before it leaves.
 *
 * Used by one thread at a time, the one that drives the comm.
 */
#ifndef HOOP_OWED_H
#define HOOP_OWED_H

#include "algo/step.h"
#include "transports/transport.h"

#define HOOP_OWED_MOST 64u

struct hoop_owed_entry {
    struct hoop_owed *owed;
    struct hoop_xfer xfer;
};

/* Zeroed: nothing is owed. */
struct hoop_owed {
    struct hoop_link *link; /* from the previous rank, in lane 0; NULL: nothing was ever owed */
    struct hoop_link *held; /* to the next rank; NULL: nothing is held back */
    uint32_t first, count;  /* of entries, a ring buffer: posted, and not done */
    bool waits;             /* too many were owed: waits until half of them have come */
    bool failed;            /* the reason is in the link's failure */
    struct hoop_owed_entry entries[HOOP_OWED_MOST];
};

/* May the rank owe what xfer is to receive from this link of lane 0? */
static inline bool hoop_owed_may(const struct hoop_plan *plan, const struct hoop_link *link,
                                 const struct hoop_xfer *xfer)
{
    return xfer->bytes == 0 && xfer->chunk == 0 && hoop_plan_owes(plan) &&
           hoop_link_holds(link) > 0;
}

/* Before a send: marks whether the link may hold it back, which it may if the receiver may owe it.
 */
static inline void hoop_owed_mark(struct hoop_owed *owed, const struct hoop_plan *plan,
                                  struct hoop_link *link, struct hoop_xfer *xfer)
{
    xfer->may_wait =
        xfer->bytes == 0 && xfer->chunk == 0 && link->params.lane == 0 && hoop_plan_owes(plan);
    owed->held = xfer->may_wait ? link : owed->held;
}

/* Sends what was held back. */
static inline void hoop_owed_push(struct hoop_owed *owed)
{
    if (owed->held != NULL) {
        hoop_link_push(owed->held);
        owed->held = NULL;
    }
}

/* Posts a copy of xfer as owed. HOOP_AGAIN: too many are owed. */
hoop_result_t hoop_owed_post(struct hoop_owed *owed, struct hoop_link *link,
                             const struct hoop_xfer *xfer);

/* Makes progress on what is owed. True: something moved. */
bool hoop_owed_progress(struct hoop_owed *owed);

/* HOOP_OK: nothing is owed. HOOP_AGAIN: something is. Otherwise *failure says what came instead of
 * an announcement, or why nothing will come. */
hoop_result_t hoop_owed_check(const struct hoop_owed *owed, struct hoop_failure *failure);

/* Makes progress, then checks. */
static inline hoop_result_t hoop_owed_settle(struct hoop_owed *owed, struct hoop_failure *failure)
{
    (void)hoop_owed_progress(owed);
    return hoop_owed_check(owed, failure);
}

#endif

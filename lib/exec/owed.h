/*
 * What is owed to the rank before: its announcements of operations that are over here.
 *
 * In a collective with a root some ranks are through before others have begun: a root that has
 * sent, a leaf. What such a rank receives from the one before it in step 0 may be an announcement
 * and nothing else, by which calls that differ are found out. It is not waited for: it is owed. It
 * is looked at while the rank is idle, and waited for when so many are owed that there may be no
 * room for more; before an operation in which all wait for all, because who comes out of such a one
 * relies on the calls before it; and before the rank leaves the comm.
 *
 *     operation   7        8        9          10
 *     posted      7        7 8      7 8 9      8 9 10      7 has come
 *
 * Nobody waits for a rank that owes: the link holds what it has not taken, and as many may be owed
 * as it holds (hoop_link_holds()). So a rank that has come out of an operation has sent what others
 * owe it, and is needed no more. Announcements carry no data, so they touch no buffer, and they
 * come before anything else of a later operation on the same link.
 *
 * The other end of it: what this rank announces to the one behind it, who may owe the look, may be
 * kept back by the link, to go with what is sent next (may_wait). It is pushed before this rank
 * waits for what it owes itself, before it sleeps, and before it leaves.
 *
 * One thread at a time, the one that drives the comm.
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
    struct hoop_link *link; /* from the rank before, in lane 0; NULL: nothing ever was */
    struct hoop_link *said; /* to the one behind; NULL: nothing is kept back */
    uint32_t first, count;  /* of entries, a ring: posted, and not done */
    bool waits;             /* there were too many: until half of them have come */
    bool failed;            /* why is in the link's failure */
    struct hoop_owed_entry entries[HOOP_OWED_MOST];
};

/* May what xfer is to receive from the link, which is of lane 0, be owed? */
static inline bool hoop_owed_may(const struct hoop_plan *plan, const struct hoop_link *link,
                                 const struct hoop_xfer *xfer)
{
    return xfer->bytes == 0 && xfer->chunk == 0 && hoop_plan_owes(plan) &&
           hoop_link_holds(link) > 0;
}

/* What is about to be sent: may it be kept back? It may where the receiver may owe it. */
static inline void hoop_owed_say(struct hoop_owed *owed, const struct hoop_plan *plan,
                                 struct hoop_link *link, struct hoop_xfer *xfer)
{
    xfer->may_wait =
        xfer->bytes == 0 && xfer->chunk == 0 && link->params.lane == 0 && hoop_plan_owes(plan);
    owed->said = xfer->may_wait ? link : owed->said;
}

/* What was kept back goes. */
static inline void hoop_owed_push(struct hoop_owed *owed)
{
    if (owed->said != NULL) {
        hoop_link_push(owed->said);
        owed->said = NULL;
    }
}

/* Owes that; xfer is copied. HOOP_AGAIN: too many are owed. */
hoop_result_t hoop_owed_post(struct hoop_owed *owed, struct hoop_link *link,
                             const struct hoop_xfer *xfer);

/* Looks whether some have come. True: something moved. */
bool hoop_owed_progress(struct hoop_owed *owed);

/* HOOP_OK: nothing is owed. HOOP_AGAIN: something is. Else *failure says what came in its place, or
 * why nothing will. */
hoop_result_t hoop_owed_check(const struct hoop_owed *owed, struct hoop_failure *failure);

/* Looks, then checks. */
static inline hoop_result_t hoop_owed_settle(struct hoop_owed *owed, struct hoop_failure *failure)
{
    (void)hoop_owed_progress(owed);
    return hoop_owed_check(owed, failure);
}

#endif

/*
 * One birth, and a rank's part in it from where it is known where to meet: the join, what it hears
 * from its membership, and how it lays the comm out when all are in.
 */
#ifndef HOOP_JOIN_H
#define HOOP_JOIN_H

#include "comm/comm.h"

struct hoop_birth {
    struct hoop_comm *comm;           /* the handle; NULL: this rank gets none */
    hoop_comm_t *ret;                 /* the caller's variable */
    struct hoop_comm_options options; /* of a join only whether it blocks: it has begun */
    struct hoop_comm *parent;         /* of a split, a growth or a shrink; NULL: a join */
    int color, key;                   /* a split's */
    uint32_t grown;                   /* how many ranks it grows to; 0: it is a split */
    uint32_t invitation;              /* the number of mine; 0: another rank has made it */
    struct hoop_address address;      /* of that */
    struct hoop_split *split;
    struct hoop_shrink *shrink; /* NULL: it is none */
};

/* Begins its birth: the rank joins in the background. Fails where somebody has aborted it. */
hoop_result_t hoop_comm_begin(struct hoop_comm *comm, const struct hoop_comm_options *options);
/* Waits until all ranks are in. */
hoop_result_t hoop_comm_complete(struct hoop_comm *comm);
/* Takes back a birth that came to nothing, so that another may begin. False: all were in, and this
 * rank could not go on. */
bool hoop_comm_unbegin(struct hoop_comm *comm);
/* Somebody who has the handle does not wait for its birth. */
bool hoop_comm_is_given_up(struct hoop_comm *comm);

#endif

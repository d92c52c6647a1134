/*
 * One birth, and a rank's part in it from where it is known where to meet: the join, what it hears
 * from its membership, and how it lays the comm out when all are in.
 */
#ifndef HOOP_JOIN_H
#define HOOP_JOIN_H

#include "comm/comm.h"

struct hoop_birth {
    struct hoop_comm *comm; /* the handle; NULL: this rank gets none */
    hoop_comm_t *ret;       /* the caller's variable */
    struct hoop_comm_options options;
    bool blocking;
    /* a split */
    struct hoop_comm *parent; /* NULL: a join */
    int color, key;
    struct hoop_split *split;
};

/* Begins its birth: the rank joins in the background. Fails where somebody has aborted it. */
hoop_result_t hoop_comm_begin(struct hoop_comm *comm, const struct hoop_comm_options *options);
/* Waits until all ranks are in. */
hoop_result_t hoop_comm_complete(struct hoop_comm *comm);

#endif

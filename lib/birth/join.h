/*
 * One birth, and a rank's part in it once the rendezvous is known: the join, the events of its
 * membership, and the layout of the comm when all are in.
 */
#ifndef HOOP_JOIN_H
#define HOOP_JOIN_H

#include "comm/comm.h"

struct hoop_birth {
    struct hoop_comm *comm;           /* NULL: this rank gets none */
    hoop_comm_t *ret;                 /* the caller's variable */
    hoop_comm_t before;               /* what it held before the new comm */
    struct hoop_comm_options options; /* of a join, which has begun, only `blocking` */
    struct hoop_comm *parent;         /* of a split, growth or shrink; NULL: a join */
    int color, key;                   /* of a split */
    uint32_t grown;                   /* the new size of a growth; 0: a split */
    uint32_t invitation;              /* number of this rank's invitation; 0: it has none */
    struct hoop_address address;      /* of the invitation */
    struct hoop_split *split;
    struct hoop_shrink *shrink; /* NULL unless it is a shrink */
};

/* Begins to join in the background. Fails if the comm was aborted by its handle. */
hoop_result_t hoop_comm_begin(struct hoop_comm *comm, const struct hoop_comm_options *options);
/* Waits until all ranks are in, or the parent has failed or is ended. NULL: there is none. */
hoop_result_t hoop_comm_complete(struct hoop_comm *comm, struct hoop_comm *parent);
/* Undoes a join that failed, so that another may begin. Returns false if all ranks were in, and
 * this rank could not go on. */
bool hoop_comm_unbegin(struct hoop_comm *comm);
/* Fails if another thread has aborted the comm by its handle during its birth. */
hoop_result_t hoop_comm_check_wanted(struct hoop_comm *comm);

#endif

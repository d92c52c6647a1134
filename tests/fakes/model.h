/*
 * What every collective must give, computed serially from what all ranks send: the one table that
 * says who receives what. Reductions are reference.c's, in rank order.
 */
#ifndef HOOP_TESTS_MODEL_H
#define HOOP_TESTS_MODEL_H

#include "hoop.h"
#include <stdbool.h>

#define MODEL_MOST_RANKS 64

enum model_kind {
    MODEL_ALL_REDUCE,
    MODEL_REDUCE,
    MODEL_REDUCE_SCATTER,
    MODEL_ALL_GATHER,
    MODEL_BROADCAST,
    MODEL_ALLTOALL,
    MODEL_GATHER,
    MODEL_SCATTER,
    MODEL_ALLTOALLV, /* blocks of at most count, wherever their order is drawn to put them */
    MODEL_KINDS
};

struct model_call {
    enum model_kind kind;
    int n;
    size_t count; /* the argument of the call */
    hoop_datatype_t type;
    hoop_red_op_t op; /* where there is one */
    int root;         /* where there is one */
    uint64_t seed;    /* ALLTOALLV: its sizes and places follow from it */
};

const char *model_name(enum model_kind kind);
bool model_has_op(enum model_kind kind);
bool model_has_root(enum model_kind kind);
bool model_has_place(enum model_kind kind); /* has a form in place */
size_t model_type_bytes(hoop_datatype_t type);

/* Elements that a rank sends and receives; in place, where they begin in the one buffer. */
size_t model_send_count(const struct model_call *call, int rank);
size_t model_recv_count(const struct model_call *call, int rank);
size_t model_send_at(const struct model_call *call, int rank);
size_t model_recv_at(const struct model_call *call, int rank);

/* ALLTOALLV: elements from one rank to another; where a rank's block is in a buffer. */
size_t model_pair_count(const struct model_call *call, int from, int to);
size_t model_pair_at(const struct model_call *call, int rank);

/*
 * What a rank receives, given what all send; those who send nothing may be NULL. What it receives
 * nothing for stays as it is in dst.
 */
void model_result(const struct model_call *call, const void *const *sends, int rank, void *dst);

#endif

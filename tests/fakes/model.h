/*
 * The result that every collective must have, computed serially from what all ranks send. This is
 * the one table of who receives what. Reductions are those of reference.c, in rank order.
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
    MODEL_ALLTOALLV, /* blocks of at most count elements, in random order */
    MODEL_KINDS
};

struct model_call {
    enum model_kind kind;
    int n;
    size_t count; /* the argument of the call */
    hoop_datatype_t type;
    hoop_red_op_t op; /* if the collective has one */
    int root;         /* if the collective has one */
    uint64_t seed;    /* ALLTOALLV: determines sizes and places */
};

const char *model_name(enum model_kind kind);
bool model_has_op(enum model_kind kind);
bool model_has_root(enum model_kind kind);
bool model_has_place(enum model_kind kind); /* can it be called in place? */
size_t model_type_bytes(hoop_datatype_t type);

/* How many elements a rank sends and receives and, in place, where they begin in the buffer. */
size_t model_send_count(const struct model_call *call, int rank);
size_t model_recv_count(const struct model_call *call, int rank);
size_t model_send_at(const struct model_call *call, int rank);
size_t model_recv_at(const struct model_call *call, int rank);

/* ALLTOALLV: how many elements one rank sends to another, and where a rank's block is in a
 * buffer. */
size_t model_pair_count(const struct model_call *call, int from, int to);
size_t model_pair_at(const struct model_call *call, int rank);

/*
 * Computes what a rank receives, given what all send; entries of ranks that send nothing may be
 * NULL. Where a rank receives nothing dst is unchanged.
 */
void model_result(const struct model_call *call, const void *const *sends, int rank, void *dst);

#endif

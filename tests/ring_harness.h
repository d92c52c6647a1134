/*
 * A world of ranks that run the ring by the engine over any transport, in one process: buffers,
 * links and the serial answer. There is no comm: blobs go from end to end directly.
 *
 * One thread polls all ranks in an order that the seed gives, so that a run can be repeated and a
 * hang is seen as too many polls without effect. Or a thread per rank, with a deadline.
 */
#ifndef HOOP_TESTS_RING_HARNESS_H
#define HOOP_TESTS_RING_HARNESS_H

#include "engine.h"

#define RING_MAX_RANKS 8

/* One allreduce. */
struct ring_case {
    hoop_datatype_t type;
    hoop_red_op_t op;
    uint64_t count, chunk; /* elements */
    uint32_t lanes;
    uint32_t in_place; /* a bit per rank */
    unsigned skew;     /* bytes: in addresses modulo 64; another for each rank and buffer */
    uint64_t seed;     /* of the data */
};

/* The world in which cases run, one after the other over the same links. */
struct ring_setup {
    const struct hoop_transport *transport;
    uint32_t n, slots;
    uint64_t seed; /* of the order of polls */
    bool threads;
    /* How the engine asks for links: */
    unsigned no_link_percent; /* so many times it gets HOOP_AGAIN */
    uint32_t bad_link_rank;   /* at this rank ... */
    uint64_t bad_link_call;   /* ... this call, from 1, gives HOOP_SYSTEM_ERROR; 0: none */
    uint32_t stranger;        /* a bit per rank: runs other operations than the others, by number */
};

struct ring_outcome {
    bool hung;
    const char *wrong; /* what is wrong with the results or the engine; NULL: nothing */
    bool bad_link_happened;
    uint32_t first;                              /* the rank that failed first */
    struct hoop_failure failure[RING_MAX_RANKS]; /* of each rank */
};

/*
 * Runs n_cases. A rank that fails is rid of its links and buffers at once; a little later all
 * others are told, as a comm does, and must end as well.
 */
void ring_run(const struct ring_setup *setup, const struct ring_case *cases, unsigned n_cases,
              struct ring_outcome *ret);

/* A case by chance. */
struct ring_case ring_case_random(uint64_t *random, uint32_t n);

/* The next number below limit. */
uint64_t ring_random(uint64_t *random, uint64_t limit);

#endif

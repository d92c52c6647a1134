/*
 * A world of ranks that run algorithms by the engine over any transport, in one process: buffers,
 * links and the serial answer. There is no comm: blobs go from end to end directly.
 *
 * One thread polls all ranks in an order that the seed gives, so that a run can be repeated and a
 * hang is seen as too many polls without effect. Or a thread per rank, with a deadline.
 */
#ifndef HOOP_TESTS_ENGINE_WORLD_H
#define HOOP_TESTS_ENGINE_WORLD_H

#include "exec/engine.h"
#include "fakes/engine_case.h"

/* The world in which cases run, one after the other over the same links. */
struct world_setup {
    const struct hoop_transport *transport;
    uint32_t n, slots;
    uint64_t seed; /* of the order of polls */
    bool threads;
    uint32_t late; /* a bit per rank: polled only where all others get nowhere; not with threads */
    /* How the engine asks for links: */
    unsigned no_link_percent; /* so many times it gets HOOP_AGAIN */
    uint32_t bad_link_rank;   /* at this rank ... */
    uint64_t bad_link_call;   /* ... this call, from 1, gives HOOP_SYSTEM_ERROR; 0: none */
    uint32_t stranger; /* a bit per rank: runs other operations than the others, namely ... */
    /* ... this one each time, or, if it is NULL, the same ones under other numbers */
    const struct engine_case *strange;
};

struct world_outcome {
    bool hung;
    const char *wrong; /* what is wrong with the results or the engine; NULL: nothing */
    bool bad_link_happened;
    uint32_t first;                                /* the rank that failed first */
    struct hoop_failure failure[ENGINE_MAX_RANKS]; /* of each rank */
};

/*
 * Runs n_cases. Nobody may end one before everybody has begun it. A rank that fails is rid of its
 * links and buffers at once; a little later all others are told, as a comm does, and must end as
 * well.
 */
void world_run(const struct world_setup *setup, const struct engine_case *cases, unsigned n_cases,
               struct world_outcome *ret);

#endif

/*
 * A world of ranks that run algorithms by the engine over any transport, in one process: buffers,
 * links, and the serial result. There is no comm: blobs are handed from one end to the other.
 *
 * Either one thread polls all ranks, in an order that follows from the seed, so that a run can be
 * repeated and a hang shows as too many polls without effect. Or each rank has a thread, with a
 * deadline.
 */
#ifndef HOOP_TESTS_ENGINE_WORLD_H
#define HOOP_TESTS_ENGINE_WORLD_H

#include "exec/engine.h"
#include "fakes/engine_case.h"

/* A world in which cases run one after the other over the same links. */
struct world_setup {
    const struct hoop_transport *transport;
    uint32_t n, slots;
    uint64_t seed; /* for the order of polls */
    bool threads;
    uint32_t late; /* a bit per rank: polled only when no other rank moves; not with threads */
    /* How the engine asks for links: */
    unsigned no_link_percent; /* how often it gets HOOP_AGAIN */
    uint32_t bad_link_rank;   /* at this rank ... */
    uint64_t bad_link_call;   /* ... this call, from 1, gives HOOP_SYSTEM_ERROR; 0: none */
    uint32_t stranger;        /* a bit per rank: runs another operation than the others: */
    /* this one each time or, if NULL, the same ones under other numbers */
    const struct engine_case *strange;
};

struct world_outcome {
    bool hung;
    const char *wrong; /* what is wrong with results or engine; NULL: nothing */
    bool bad_link_happened;
    uint32_t first;                                /* the rank that failed first */
    struct hoop_failure failure[ENGINE_MAX_RANKS]; /* of each rank */
};

/*
 * Runs n_cases. No rank may end one before all have begun it. A rank that fails loses its links and
 * buffers at once; a little later all others are told, as by a comm, and must end as well.
 */
void world_run(const struct world_setup *setup, const struct engine_case *cases, unsigned n_cases,
               struct world_outcome *ret);

#endif

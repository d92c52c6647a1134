/*
 * The cost model: what an algorithm would take for a plan, from rounds, bytes and the constants of
 * a class of connections. Whole numbers only, so that all ranks and all builds agree.
 *
 *     time = rounds * latency + bytes sent / rate + bytes folded or copied / rate
 */
#ifndef HOOP_COST_H
#define HOOP_COST_H

#include "algo/step.h"

enum hoop_cost_class {
    HOOP_COST_MEMORY,         /* shared memory, a CPU for every rank */
    HOOP_COST_OVERSUBSCRIBED, /* shared memory, ranks that outnumber CPUs */
    HOOP_COST_LINKS,          /* links over TCP, or as if */
    HOOP_COST_CLASSES
};

/* ns that plan->algo would take for the plan's collective, n and count. */
uint64_t hoop_cost(enum hoop_cost_class class, const struct hoop_plan *plan, uint64_t chunk_bytes);

/* ns of a message over a link of this class; through memory it is copied twice. */
uint64_t hoop_cost_transfer(enum hoop_cost_class class, uint64_t bytes);

#endif

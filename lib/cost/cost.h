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
    HOOP_COST_LINKS,          /* links over TCP, or as if; so are all behind it */
    HOOP_COST_LINKS_OVERSUBSCRIBED,
    HOOP_COST_LINKS_RDMA,
    HOOP_COST_CLASSES
};
#define HOOP_COST_MEMORIES HOOP_COST_LINKS

/* Of a class, in ns; rates as ns for 1024 bytes. "per": and for each rank beyond two. */
struct hoop_cost_constants {
    uint64_t sync, sync_per;       /* until what all have published is seen, or one message */
    uint64_t barrier, barrier_per; /* memory: until all have passed */
    uint64_t message;              /* one more at the same time */
    uint64_t moved;  /* a byte sent, or copied from or to memory that others have touched */
    uint64_t folded; /* a byte read to be folded */
    uint64_t call;   /* memory: of the kernel, to read of another process; links: a copy of a
                      block among many; not a rate */
    uint64_t read;   /* memory: a byte that it reads there */
};

/* ns that plan->algo would take for the plan's collective, n and count. chunk_bytes: over links,
 * the largest chunk; for pairwise, of all lanes together. */
uint64_t hoop_cost(enum hoop_cost_class class, const struct hoop_plan *plan, uint64_t chunk_bytes);

/* The radix with which bruck takes least among n ranks: its bytes are the same with all. */
uint32_t hoop_cost_radix(enum hoop_cost_class class, uint32_t n);

/* From how many bytes on a message between processes that may read each other's memory is read by
 * its receiver: memory. */
uint64_t hoop_cost_read_least(enum hoop_cost_class class);

/* ns of a message over a link of this class; through memory it is copied twice, unless it is read.
 */
uint64_t hoop_cost_transfer(enum hoop_cost_class class, uint64_t bytes, bool read);

/*
 * The constants of the classes of memory. Those of links are not for setting: they choose between
 * algorithms whose bits differ. Set by one thread, while no communicator is alive.
 */
void hoop_cost_get_memory(struct hoop_cost_constants ret[HOOP_COST_MEMORIES]);
void hoop_cost_set_memory(const struct hoop_cost_constants constants[HOOP_COST_MEMORIES]);

#endif

/*
 * The cost model: the time that an algorithm would take for a plan, from rounds, bytes and the
 * constants of a class of connections. It uses integers only, so that all ranks and all builds
 * agree.
 *
 *     time = rounds * latency + bytes sent / rate + bytes folded or copied / rate
 */
#ifndef HOOP_COST_H
#define HOOP_COST_H

#include "algo/step.h"

enum hoop_cost_class {
    HOOP_COST_MEMORY,         /* shared memory, a CPU for every rank */
    HOOP_COST_OVERSUBSCRIBED, /* shared memory, ranks outnumber CPUs */
    HOOP_COST_LINKS,          /* TCP, or treated as such; from here on links */
    HOOP_COST_LINKS_OVERSUBSCRIBED,
    HOOP_COST_LINKS_RDMA,
    HOOP_COST_CLASSES
};
#define HOOP_COST_MEMORIES HOOP_COST_LINKS

/* Constants of a class, in ns; rates in ns per 1024 bytes. "per": for each rank beyond two. */
struct hoop_cost_constants {
    uint64_t sync, sync_per;       /* until all that was published is seen; or one message */
    uint64_t barrier, barrier_per; /* memory: until all have passed a barrier */
    uint64_t message;              /* one more message at the same time */
    uint64_t moved;  /* rate of bytes sent, or copied from or to memory that others use */
    uint64_t folded; /* rate of bytes read to be folded */
    /* Memory: one system call that reads another process; links: copying one block among many. */
    uint64_t call;
    uint64_t read; /* memory: rate of bytes read from another process */
};

/* The time in ns that plan->algo would take for the plan's collective, n and count. shared_by: in
 * memory, how many ranks share a CPU, if more than 2 do. chunk_bytes: over links, the largest
 * chunk; for pairwise, the chunks of all lanes together. */
uint64_t hoop_cost(enum hoop_cost_class class, uint64_t shared_by, const struct hoop_plan *plan,
                   uint64_t chunk_bytes);

/* The radix with which bruck is fastest among n ranks; its bytes are the same with every radix. */
uint32_t hoop_cost_radix(enum hoop_cost_class class, uint32_t n);

/* Memory: from this size on the receiver of a message reads it from the sender's process. */
uint64_t hoop_cost_read_least(enum hoop_cost_class class);

/* The time in ns of a message over a link of this class; in memory it is copied twice, or read. */
uint64_t hoop_cost_transfer(enum hoop_cost_class class, uint64_t bytes, bool read);

/*
 * The constants of the memory classes. Those of links cannot be set, because they choose between
 * algorithms whose results may differ in their bits. Set by one thread, while no communicator
 * exists.
 */
void hoop_cost_get_memory(struct hoop_cost_constants ret[HOOP_COST_MEMORIES]);
void hoop_cost_set_memory(const struct hoop_cost_constants constants[HOOP_COST_MEMORIES]);

#endif

/*
 * The sweep that kill_fuzz's ranks run: an endless row of operations whose results are known to the
 * last bit. Operation i of a seed is the same on all ranks: a collective or a round of messages,
 * root, type, op, count. Each rank chooses for itself in which memory its vectors lie and whether
 * they are one.
 *
 * Blocks are a tile of SWEEP_TILE small integers over and over, different in every operation, rank
 * and block, so that a stale, torn or displaced result shows. Sums and products stay exact in all
 * types.
 */
#ifndef HOOP_TESTS_KILL_SWEEP_H
#define HOOP_TESTS_KILL_SWEEP_H

#include "hoop.h"
#include <stdbool.h>
#include <stdint.h>

#define SWEEP_BYTES ((size_t)4 << 20) /* largest vector, all its blocks */
#define SWEEP_MAX_RANKS 6

struct sweep {
    uint64_t seed;
    uint32_t rank, n;
    uint64_t next; /* number of the next operation */
    /* [kind of memory]: plain, from hoop_mem_alloc() */
    unsigned char *send[2], *receive[2];
    char wrong[200]; /* what was found, if anything */
};

/* 64 bits that follow from these, and look drawn. */
uint64_t sweep_draw(uint64_t seed, uint64_t a, uint64_t b);

/* False: no memory. sweep_finish() frees what there is. */
bool sweep_init(struct sweep *sweep, uint64_t seed, uint32_t rank, uint32_t n);
hoop_result_t sweep_finish(struct sweep *sweep);

/*
 * The next operation, and a look at what it left if it returned HOOP_OK: then sweep->wrong[0] is
 * not 0 if anything is not as it must be.
 */
hoop_result_t sweep_step(struct sweep *sweep, hoop_comm_t comm);

/* Fills all that a peer may have written to with a pattern; is it still there? */
void sweep_claim(struct sweep *sweep);
bool sweep_is_claimed(const struct sweep *sweep);

#endif

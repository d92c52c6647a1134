/*
 * The sweep that kill_fuzz's ranks run: an endless series of operations whose results are known
 * exactly. Operation i of a seed is the same on all ranks: a collective or a round of messages,
 * root, type, op, count. Each rank chooses in which memory its vectors lie, and whether it calls in
 * place.
 *
 * Blocks are a tile of SWEEP_TILE small integers that repeats, and that differs in every operation,
 * rank and block, so that a stale, torn or displaced result is noticed. Sums and products are exact
 * in all types.
 */
#ifndef HOOP_TESTS_KILL_SWEEP_H
#define HOOP_TESTS_KILL_SWEEP_H

#include "hoop.h"
#include <stdbool.h>
#include <stdint.h>

#define SWEEP_BYTES ((size_t)4 << 20) /* the largest vector, with all its blocks */
#define SWEEP_MAX_RANKS 6

struct sweep {
    uint64_t seed;
    uint32_t rank, n;
    uint64_t next; /* number of the next operation */
    /* [kind of memory]: plain, from hoop_mem_alloc() */
    unsigned char *send[2], *receive[2];
    char wrong[200]; /* what was found to be wrong, if anything */
};

/* 64 bits that follow from these numbers and look random. */
uint64_t sweep_draw(uint64_t seed, uint64_t a, uint64_t b);

/* False: no memory. sweep_finish() frees what there is. */
bool sweep_init(struct sweep *sweep, uint64_t seed, uint32_t rank, uint32_t n);
hoop_result_t sweep_finish(struct sweep *sweep);

/*
 * Runs the next operation, and checks the memory if it returned HOOP_OK: sweep->wrong[0] is not 0
 * if something is wrong.
 */
hoop_result_t sweep_step(struct sweep *sweep, hoop_comm_t comm);

/* Fills all memory that a peer might write to with a pattern; is the pattern intact? */
void sweep_claim(struct sweep *sweep);
bool sweep_is_claimed(const struct sweep *sweep);

#endif

/*
 * What a communicator has learned of its machine: whether plain memory is faster read from its
 * process (cma) or copied through shared memory (slab), by collective and size. No constants fit
 * all CPUs and kernels; but all fold in rank order and give the same bits, so the choice may depend
 * on the clock. Every rank times an operation, from when all ranks have announced it to its
 * end. Rank 0 reads the time of the slowest rank, and announces with its buffers which one is used
 * next: all ranks see that, and do the same.
 *
 *     First the model's choice is used three times, then the other one three times, then the faster
 *     one. Now and then the slower one is tried again, more rarely the slower it is, so that trying
 *     costs a percent; again three times, since the first finds nothing of its data in the caches.
 *
 * Where there is a root, oneshot may be faster still: the root and the others work at the same
 * time, and in successive calls nobody waits for a barrier. But it has to be chosen before anything
 * is known of the others' memory, where what is mapped needs one copy only. So an announcement of
 * plain memory may grant the next calls of its collective and size: these are oneshots (a larger
 * broadcast or reduce is several, one behind the other, each with an operation's number), and the
 * call after them is announced again. The last of them is timed: the work of the rank that works
 * longest.
 *
 *     Once cma and slab are known, a few calls are granted three times; then many if oneshot is
 *     the fastest, else a few now and then.
 */
#ifndef HOOP_LEARNED_H
#define HOOP_LEARNED_H

#include "base/collective.h"
#include <stdbool.h>
#include <stdint.h>

#define HOOP_LEARNED_TRIES 3u
#define HOOP_LEARNED_SIZES 32u /* of a block, each twice the one before, from 1 KiB */

enum { HOOP_LEARNED_SLAB, HOOP_LEARNED_CMA, HOOP_LEARNED_ONESHOT, HOOP_LEARNED_WAYS };

struct hoop_learned_time {
    uint64_t ns;    /* per MiB; 0: never tried */
    uint64_t least; /* the least time of the current tries */
    uint32_t tried;
};

struct hoop_learned_row {
    struct hoop_learned_time of[HOOP_LEARNED_WAYS];
    uint32_t since;   /* consecutive uses of the faster one of slab and cma */
    uint32_t without; /* uses of these since oneshot was timed */
};

/* Zeroed: nothing is known. */
struct hoop_learned {
    struct hoop_learned_row rows[HOOP_COLL_COUNT][HOOP_LEARNED_SIZES];
};

/* A choice as it is announced; NONE: the model's. */
enum hoop_choice { HOOP_CHOICE_NONE, HOOP_CHOICE_READ, HOOP_CHOICE_COPY };

/* How many calls are granted at once: none, a few to try, or many. */
enum hoop_grant { HOOP_GRANT_NONE, HOOP_GRANT_TRY, HOOP_GRANT_MANY };
#define HOOP_GRANT_TRY_CALLS 4u
#define HOOP_GRANT_MANY_CALLS 63u

/* What is announced for this call, and the next ones. */
struct hoop_learned_say {
    enum hoop_choice choice;
    enum hoop_grant grant;
};

/* Does the next operation read (cma)? model: what the cost model would choose. */
bool hoop_learned_reads(const struct hoop_learned *learned, enum hoop_collective collective,
                        uint64_t block_bytes, bool model);

/* Adds the time of an operation that read, or did not. */
void hoop_learned_add(struct hoop_learned *learned, enum hoop_collective collective,
                      uint64_t block_bytes, bool read, uint64_t ns);

/* The row of this size. */
uint32_t hoop_learned_size(uint64_t block_bytes);

/* What to grant with the next announcement. both: cma and slab can both be chosen. */
enum hoop_grant hoop_learned_grants(const struct hoop_learned *learned,
                                    enum hoop_collective collective, uint64_t block_bytes,
                                    bool both);

/* Adds the time of the last call of a grant. */
void hoop_learned_add_oneshot(struct hoop_learned *learned, enum hoop_collective collective,
                              uint64_t block_bytes, uint64_t ns);

#endif

/*
 * From measured times to the constants of the cost model. A line is fitted through each algorithm's
 * times. For n ranks and S KiB the model says
 *
 *      oneshot = sync + (moved + n folded) S                           of all_reduce
 *      slab    = 3 barrier + (2 (n - 1) / n moved + folded) S          of all_reduce
 *      cma     = 2 barrier + (n - 1) call + (moved + (n - 1) read) S   of all_gather, S per rank
 *
 * So the first two lines give four constants, and where they cross the model switches from one
 * algorithm to the other; the third line gives the last two. A second n shows how sync and barrier
 * grow with n.
 */
#ifndef HOOPINFO_FIT_H
#define HOOPINFO_FIT_H

#include <stdbool.h>
#include <stddef.h>

enum { FIT_ONESHOT, FIT_SLAB, FIT_CMA, FIT_ALGOS };
#define FIT_SIZES 4

extern const size_t fit_kib[FIT_SIZES];

/* For one number of ranks, in ns and ns per KiB. */
struct fit {
    int ranks; /* 0: could not be measured */
    double sync, barrier, moved, folded;
    double call, read; /* 0: memory of others cannot be read */
};

/* For one class of a profile. */
struct constants {
    bool measured;
    double sync, sync_per, barrier, barrier_per, moved, folded;
    double call, read; /* 0: not measured */
};

/* From the times of the algorithms at fit_kib, all > 0; those of cma are all 0 if it is not
 * available. Returns false if they are implausible, because the machine is busy. crowded: ranks
 * outnumber CPUs. */
bool fit_solve(double ns[FIT_ALGOS][FIT_SIZES], int ranks, bool crowded, struct fit *ret);

/* From a fit for few ranks and, unless many->ranks is 0, one for more. */
struct constants fit_constants(const struct fit *few, const struct fit *many);

#endif

/*
 * From times to the constants of the cost model. Through the times of each algorithm a line is
 * fitted; the model says of n ranks and S KiB
 *
 *      oneshot = sync + (moved + n folded) S                           of all_reduce
 *      slab    = 3 barrier + (2 (n - 1) / n moved + folded) S          of all_reduce
 *      cma     = 2 barrier + (n - 1) call + (moved + (n - 1) read) S   of all_gather, S of a rank
 *
 * so the ends of the first two lines are four constants, and where these meet, the model goes over
 * from one to the other; the third gives the last two. How sync and barrier grow with n is taken
 * from a second n.
 */
#ifndef HOOPINFO_FIT_H
#define HOOPINFO_FIT_H

#include <stdbool.h>
#include <stddef.h>

enum { FIT_ONESHOT, FIT_SLAB, FIT_CMA, FIT_ALGOS };
#define FIT_SIZES 4

extern const size_t fit_kib[FIT_SIZES];

/* Of one number of ranks; ns, and ns a KiB. */
struct fit {
    int ranks; /* 0: it could not be measured */
    double sync, barrier, moved, folded;
    double call, read; /* 0: nothing can be read of others */
};

/* Of a class, as in a profile. */
struct constants {
    bool measured;
    double sync, sync_per, barrier, barrier_per, moved, folded;
    double call, read; /* 0: these are not */
};

/* From the times of the algorithms at fit_kib, all above 0; those of cma all 0: there are none.
 * False: they can't be this machine's, which is busy. crowded: the ranks outnumber the CPUs. */
bool fit_solve(double ns[FIT_ALGOS][FIT_SIZES], int ranks, bool crowded, struct fit *ret);

/* few and, if it was measured, many: more ranks. */
struct constants fit_constants(const struct fit *few, const struct fit *many);

#endif

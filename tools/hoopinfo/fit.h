/*
 * From times to the constants of the cost model. Through the times of each algorithm a line is
 * fitted; the model says of n ranks and S KiB
 *
 *      oneshot = sync + (moved + n folded) S
 *      slab    = 3 barrier + (3 moved + folded) S
 *
 * so the four ends of the two lines are the four constants, and where the lines meet, the model
 * goes over from one to the other. How sync and barrier grow with n is taken from a second n.
 */
#ifndef HOOPINFO_FIT_H
#define HOOPINFO_FIT_H

#include <stdbool.h>
#include <stddef.h>

#define FIT_ALGOS 2 /* oneshot, slab */
#define FIT_SIZES 4

extern const size_t fit_kib[FIT_SIZES];

/* Of one number of ranks; ns, and ns a KiB. */
struct fit {
    int ranks; /* 0: it could not be measured */
    double sync, barrier, moved, folded;
};

/* Of a class, as in a profile. */
struct constants {
    bool measured;
    double sync, sync_per, barrier, barrier_per, moved, folded;
};

/* From the times of both algorithms at fit_kib, all above 0. False: they can't be this machine's,
 * which is busy. crowded: the ranks outnumber the CPUs. */
bool fit_solve(double ns[FIT_ALGOS][FIT_SIZES], int ranks, bool crowded, struct fit *ret);

/* few and, if it was measured, many: more ranks. */
struct constants fit_constants(const struct fit *few, const struct fit *many);

#endif

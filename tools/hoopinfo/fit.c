/* See fit.h. Pure. */
#include "hoopinfo/fit.h"

/* Beyond that it is others that were measured, or ranks that shared a CPU. A profile may hold ten
 * times that. */
#define NS_MOST 20000.0
#define NS_MOST_CROWDED 1000000.0
#define NS_PER_KIB_MOST 1000.0

const size_t fit_kib[FIT_SIZES] = {1, 4, 16, 64};

/* ---- Lines ---------------------------------------------------------------------------------- */

static double at_least(double number, double least)
{
    return number >= least ? number : least;
}

/* The line through times at sizes, each as important as it is in proportion. */
static void line_fit(const double ns[FIT_SIZES], double *ret_start, double *ret_slope)
{
    double w = 0.0, x = 0.0, y = 0.0, xx = 0.0, xy = 0.0;
    for (size_t i = 0; i < FIT_SIZES; i++) {
        const double kib = (double)fit_kib[i], weight = 1.0 / (ns[i] * ns[i]);
        w += weight;
        x += weight * kib;
        y += weight * ns[i];
        xx += weight * kib * kib;
        xy += weight * kib * ns[i];
    }
    *ret_slope = at_least((w * xy - x * y) / (w * xx - x * x), 0.0);
    *ret_start = (y - *ret_slope * x) / w;
}

bool fit_solve(double ns[FIT_ALGOS][FIT_SIZES], int ranks, bool crowded, struct fit *ret)
{
    const double most_ns = crowded ? NS_MOST_CROWDED : NS_MOST;
    double start[FIT_ALGOS], slope[FIT_ALGOS];
    for (size_t i = 0; i < FIT_ALGOS; i++) {
        line_fit(ns[i], &start[i], &slope[i]);
    }
    const double n = ranks, one = slope[0], slab = slope[1];
    double moved = (n * slab - one) / (3.0 * n - 1.0);
    double folded = (3.0 * one - slab) / (3.0 * n - 1.0);
    if (moved < 1.0) {
        moved = 1.0;
        folded = (one - moved) / n;
    } else if (folded < 1.0) {
        folded = 1.0;
        moved = (slab - folded) / 3.0;
    }
    *ret = (struct fit){.ranks = ranks,
                        .sync = at_least(start[0], 1.0),
                        .barrier = at_least(start[1] / 3.0, 1.0),
                        .moved = at_least(moved, 1.0),
                        .folded = at_least(folded, 1.0)};
    return ret->sync < most_ns && ret->barrier < most_ns && ret->moved < NS_PER_KIB_MOST &&
           ret->folded < NS_PER_KIB_MOST;
}

/* A latency for two ranks and its growth, from one or two numbers of ranks. */
static void grow(const struct fit *few, const struct fit *many, double at_few, double at_many,
                 double *ret, double *ret_per)
{
    const double beyond = few->ranks - 2;
    double per = at_few / (few->ranks - 1); /* as if each of the others cost the same */
    if (many->ranks > 0) {
        per = at_least((at_many - at_few) / (many->ranks - few->ranks), 0.0);
    }
    if (at_few - per * beyond < 1.0) {
        per = (at_few - 1.0) / beyond;
    }
    *ret = at_few - per * beyond;
    *ret_per = per;
}

struct constants fit_constants(const struct fit *few, const struct fit *many)
{
    struct constants ret = {.measured = few->ranks > 0, .moved = few->moved, .folded = few->folded};
    if (ret.measured) {
        grow(few, many, few->sync, many->sync, &ret.sync, &ret.sync_per);
        grow(few, many, few->barrier, many->barrier, &ret.barrier, &ret.barrier_per);
    }
    return ret;
}

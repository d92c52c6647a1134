/* See fit.h. Only arithmetic. */
#include "hoopinfo/fit.h"

/* Beyond these other work was measured, or ranks shared a CPU. A profile accepts ten times that. */
#define NS_MOST 20000.0
#define NS_MOST_CROWDED 1000000.0
#define NS_PER_KIB_MOST 1000.0

const size_t fit_kib[FIT_SIZES] = {1, 4, 16, 64};

/* ---- Lines ---------------------------------------------------------------------------------- */

static double at_least(double number, double least)
{
    return number >= least ? number : least;
}

/* Fits a line through the times. Relative errors count, so that all sizes matter equally. */
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

/* The costs per byte, from the slopes of oneshot and slab. */
static void fit_bytes(double one, double slab, double n, struct fit *ret)
{
    const double parts = 2.0 * (n - 1.0) / n; /* the part of the vector that slab moves */
    ret->moved = (n * slab - one) / (2.0 * n - 3.0);
    ret->folded = (parts * one - slab) / (2.0 * n - 3.0);
    if (ret->moved < 1.0) {
        ret->moved = 1.0;
        ret->folded = (one - ret->moved) / n;
    } else if (ret->folded < 1.0) {
        ret->folded = 1.0;
        ret->moved = (slab - ret->folded) / parts;
    }
    ret->moved = at_least(ret->moved, 1.0);
    ret->folded = at_least(ret->folded, 1.0);
}

bool fit_solve(double ns[FIT_ALGOS][FIT_SIZES], int ranks, bool crowded, struct fit *ret)
{
    const double most_ns = crowded ? NS_MOST_CROWDED : NS_MOST, others = ranks - 1;
    const bool reads = ns[FIT_CMA][0] > 0.0;
    double start[FIT_ALGOS], slope[FIT_ALGOS];
    for (size_t i = 0; i < FIT_ALGOS && (i != FIT_CMA || reads); i++) {
        line_fit(ns[i], &start[i], &slope[i]);
    }
    *ret = (struct fit){.ranks = ranks,
                        .sync = at_least(start[FIT_ONESHOT], 1.0),
                        .barrier = at_least(start[FIT_SLAB] / 3.0, 1.0)};
    fit_bytes(slope[FIT_ONESHOT], slope[FIT_SLAB], ranks, ret);
    if (reads) {
        ret->call = at_least((start[FIT_CMA] - 2.0 * ret->barrier) / others, 1.0);
        ret->read = at_least((slope[FIT_CMA] - ret->moved) / others, 1.0);
    }
    return ret->sync < most_ns && ret->barrier < most_ns && ret->call < most_ns &&
           ret->moved < NS_PER_KIB_MOST && ret->folded < NS_PER_KIB_MOST &&
           ret->read < NS_PER_KIB_MOST;
}

/* A latency at two ranks and its growth per rank, from one or two numbers of ranks. */
static void grow(const struct fit *few, const struct fit *many, double at_few, double at_many,
                 double *ret, double *ret_per)
{
    const double beyond = few->ranks - 2;
    double per = at_few / (few->ranks - 1); /* assumes that each of the others costs the same */
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
    struct constants ret = {.measured = few->ranks > 0,
                            .moved = few->moved,
                            .folded = few->folded,
                            .call = few->call,
                            .read = few->read};
    if (ret.measured) {
        grow(few, many, few->sync, many->sync, &ret.sync, &ret.sync_per);
        grow(few, many, few->barrier, many->barrier, &ret.barrier, &ret.barrier_per);
    }
    return ret;
}

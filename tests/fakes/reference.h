/*
 * What the reductions must give, computed one element at a time and straight from the definitions
 * in docs/numbers.md, without any of the kernels' tricks; and test data. Link reference.c with -lm.
 */
#ifndef HOOP_TESTS_REFERENCE_H
#define HOOP_TESTS_REFERENCE_H

#include "hoop.h"

/*
 * dst = fold of src[0..n_src) in this order, as hoop_fold() promises: divisor 0 for none, avg
 * folds as sum, a single source without divisor is copied. dst may be one of the sources. Expects
 * the default floating-point environment.
 */
void reference_fold(hoop_datatype_t type, hoop_red_op_t op, uint32_t divisor,
                    const void *const *src, unsigned n_src, size_t count, void *dst);

/* Any values: ordinary ones, and often enough NaN, infinity, -0, subnormals, the largest. */
void reference_fill(hoop_datatype_t type, void *buf, size_t count, uint64_t seed);

/*
 * The contribution of rank, one of n, such that op over all ranks gives the same bits in every
 * order of additions and with any rounding in between: small integers whose partial results are
 * exact in type.
 */
void reference_fill_exact(hoop_datatype_t type, hoop_red_op_t op, void *buf, size_t count, int rank,
                          int n, uint64_t seed);

#endif

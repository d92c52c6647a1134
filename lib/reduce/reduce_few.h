/*
 * Folds of a few elements, by scalar code. With so few a vector kernel spends its time on loading
 * and storing part of a vector register, and calls this small (a loss, a counter, a flag) are
 * dominated by latency.
 */
#ifndef HOOP_REDUCE_FEW_H
#define HOOP_REDUCE_FEW_H

#include "reduce/reduce.h"

/* The most elements; with more the vector kernels are faster. */
#define HOOP_FOLD_FEW 4

/* Like hoop_fold_kernel_t, with one destination and no divisor. NULL: not for this type. */
typedef void hoop_fold_few_t(void *dst, const void *const *src, unsigned n_src, size_t count);
extern hoop_fold_few_t *const hoop_fold_few[HOOP_NUM_DATATYPES][HOOP_FOLD_OPS];

#endif

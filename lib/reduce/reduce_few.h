/*
 * Folds of a few elements, one by one. A vector kernel spends its time on getting part of a vector
 * in and out; calls this small are all latency (a loss, a counter, a flag).
 */
#ifndef HOOP_REDUCE_FEW_H
#define HOOP_REDUCE_FEW_H

#include "reduce/reduce.h"

/* Most elements; with more the vectors win. */
#define HOOP_FOLD_FEW 4

/* As hoop_fold_kernel_t with one destination and no divisor. NULL: this type has none. */
typedef void hoop_fold_few_t(void *dst, const void *const *src, unsigned n_src, size_t count);
extern hoop_fold_few_t *const hoop_fold_few[HOOP_NUM_DATATYPES][HOOP_FOLD_OPS];

#endif

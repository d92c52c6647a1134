/*
 * Inputs and expected results of the benchmarks: pure functions.
 *
 * Every input is a small whole number made from (index, rank, repetition), chosen so that any
 * order of reduction is exact in every datatype. With p the bits of a type's significand, whole
 * numbers up to 2^p are exact in it, therefore:
 *
 *     sum, avg, mulsum   magnitudes of all ranks together stay within 2^p; with more ranks than
 *                        that, only a window of 2^p ranks, different for each element, is not zero
 *     prod               mostly ones; per element one rank holds 3 and up to four hold 2
 *     min, max           anything up to 2^p
 *     integers           all bits are used: sums and products wrap in any order alike
 *
 * So results are compared as bits. The one exception is avg of a floating point type by a number
 * of ranks that is no power of two: it may be computed as a division or as a product with 1/n.
 */
#ifndef PERF_DATA_H
#define PERF_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "hoop.h"

/* Operations by number: hoop's own, then the sum with a factor per rank. */
#define PERF_MULSUM HOOP_NUM_OPS
#define PERF_NUM_OPS (HOOP_NUM_OPS + 1)

struct perf_case {
    hoop_datatype_t type;
    int op; /* hoop_red_op_t or PERF_MULSUM */
    int root;
    int nranks;
    uint64_t repetition; /* another one gives other inputs */
};

/* Where a block of a result comes from. */
struct perf_origin {
    int rank;  /* whose input; of no meaning for a reduction */
    size_t at; /* its first element */
};

size_t perf_type_bytes(hoop_datatype_t type);
const char *perf_type_name(hoop_datatype_t type);
const char *perf_op_name(int op);

/* The factor that mulsum gives to a rank's input. */
int perf_mulsum_factor(int rank);

/* Writes count whole numbers as elements of type; each must be exact in it. */
void perf_data_store(hoop_datatype_t type, const int64_t *values, size_t count, void *dst);

/* The input elements first to first + count of rank. dst needs no alignment, here and below. */
void perf_data_input(const struct perf_case *data, int rank, size_t first, size_t count, void *dst);

/* The same elements of all ranks, reduced. */
void perf_data_reduced(const struct perf_case *data, size_t first, size_t count, void *dst);

/* Units in the last place by which a right result may differ from perf_data_reduced(). */
unsigned perf_data_tolerance(const struct perf_case *data);

/* How many elements are wrong. */
size_t perf_data_wrong(const struct perf_case *data, const void *got, const void *want,
                       size_t count);

#endif

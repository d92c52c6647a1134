/*
 * Inputs and expected results of the benchmarks: pure functions, based on the rules in
 * perf_rules.h, which the kernels use, too.
 *
 * Every input is a small whole number made from (index, rank, repetition), chosen so that any order
 * of reduction is exact in every datatype. A type with p bits of significand holds whole numbers up
 * to 2^p exactly. Therefore:
 *
 *     sum, avg, mulsum   the magnitudes of all ranks together stay within 2^p; with more ranks than
 *                        that only those in a window of 2^p ranks, which depends on the element,
 *                        have inputs other than zero
 *     prod               mostly ones; per element one rank holds 3 and up to four hold 2
 *     min, max           anything up to 2^p
 *     integers           all bits are used: sums and products wrap alike in any order
 *
 * So results are compared as bits. The one exception is avg of a floating-point type over a number
 * of ranks that is no power of two: it may be computed as a division or as a product with 1/n.
 */
#ifndef PERF_DATA_H
#define PERF_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hoop.h"

/* Operations by number: hoop's own, then the sum with a factor for each rank. */
#define PERF_MULSUM HOOP_NUM_OPS
#define PERF_NUM_OPS (HOOP_NUM_OPS + 1)

struct perf_case {
    hoop_datatype_t type;
    int op; /* hoop_red_op_t or PERF_MULSUM */
    int root;
    int nranks;
    uint64_t repetition; /* each has other inputs */
};

/* Where a block of a result comes from. */
struct perf_origin {
    int rank;  /* from whose input; not used for a reduction */
    size_t at; /* its first element */
};

/* What all elements of a case have in common; derived from a struct perf_case. */
struct perf_rules {
    uint64_t base; /* an element's key is made of this plus its index */
    uint64_t odd;  /* bits that are set in every integer */
    int64_t window;
    int32_t inputs; /* enum perf_inputs */
    int32_t width;  /* bits of the numbers of PERF_INPUTS_NUMBERS */
    int32_t op;
    int32_t nranks;
    int32_t bits;     /* of an element */
    int32_t mantissa; /* stored bits of the significand; 0: an integer type */
    int32_t bias;     /* of the exponent */
    uint32_t tolerance;
    bool is_signed;
};
enum perf_inputs {
    PERF_INPUTS_NUMBERS, /* whole numbers of `width` bits */
    PERF_INPUTS_WINDOW,  /* 1 and -1 in the window of ranks, else 0 */
    PERF_INPUTS_FACTORS, /* 1, 2 and 3, and their negatives */
    PERF_INPUTS_BITS     /* integers of which all bits are used */
};

/* Consecutive elements, wherever they are stored. */
struct perf_span {
    struct perf_rules rules;
    int32_t rank;   /* of this rank's input; PERF_REDUCED: of the reduction of all inputs */
    uint64_t first; /* index of the first element */
    uint64_t count;
};
#define PERF_REDUCED (-1)

size_t perf_type_bytes(hoop_datatype_t type);
const char *perf_type_name(hoop_datatype_t type);
const char *perf_op_name(int op);

struct perf_rules perf_data_rules(const struct perf_case *data);

/* The factor that mulsum gives to a rank's input. */
int perf_mulsum_factor(int rank);

/* Writes a whole number, which the type must hold exactly, as an element. */
void perf_data_store(hoop_datatype_t type, int64_t value, void *dst);

/* Writes the elements of a span. Pointers need no alignment, here and below. */
void perf_data_make(const struct perf_span *span, void *dst);

/* By how many units in the last place a right result may differ from perf_data_make()'s. */
unsigned perf_data_tolerance(const struct perf_case *data);

/* How many of count elements are wrong. */
size_t perf_data_wrong(const struct perf_rules *rules, const void *got, const void *want,
                       size_t count);

#endif

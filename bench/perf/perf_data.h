/*
 * Inputs and expected results of the benchmarks: pure functions. The rules themselves stand once,
 * in perf_rules.h, from which devices have them, too.
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

#include <stdbool.h>
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

/* A case, as its elements follow from it: what is the same for all of them. */
struct perf_rules {
    uint64_t base; /* of the elements' keys */
    uint64_t odd;  /* bits that every integer has */
    int64_t window;
    int32_t inputs; /* enum perf_inputs */
    int32_t width;  /* of PERF_INPUTS_NUMBERS: in bits */
    int32_t op;
    int32_t nranks;
    int32_t bits;     /* of an element */
    int32_t mantissa; /* the bits stored of it; 0: an integer */
    int32_t bias;     /* of the exponent */
    uint32_t tolerance;
    bool is_signed;
};
enum perf_inputs {
    PERF_INPUTS_NUMBERS, /* whole ones of so many bits */
    PERF_INPUTS_WINDOW,  /* 1 and -1, and zeros outside the window */
    PERF_INPUTS_FACTORS, /* 1 to 3, and negative */
    PERF_INPUTS_BITS     /* of an integer type, all */
};

/* Some elements that follow each other, wherever they are. */
struct perf_span {
    struct perf_rules rules;
    int32_t rank;   /* whose input; PERF_REDUCED: that of all ranks, reduced */
    uint64_t first; /* the number of the first */
    uint64_t count;
};
#define PERF_REDUCED (-1)

size_t perf_type_bytes(hoop_datatype_t type);
const char *perf_type_name(hoop_datatype_t type);
const char *perf_op_name(int op);

struct perf_rules perf_data_rules(const struct perf_case *data);

/* The factor that mulsum gives to a rank's input. */
int perf_mulsum_factor(int rank);

/* Writes a whole number as an element of type; it must be exact in it. */
void perf_data_store(hoop_datatype_t type, int64_t value, void *dst);

/* Writes them. dst needs no alignment, here and below. */
void perf_data_make(const struct perf_span *span, void *dst);

/* Units in the last place by which a right result may differ from what perf_data_make() writes. */
unsigned perf_data_tolerance(const struct perf_case *data);

/* How many elements are wrong. */
size_t perf_data_wrong(const struct perf_rules *rules, const void *got, const void *want,
                       size_t count);

#endif

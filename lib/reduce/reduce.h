/*
 * Reductions: table[type][op] -> kernel. This is the only arithmetic of the library.
 *
 * A kernel folds n_src vectors element by element, src[0] left-most, and stores the result into
 * n_dst vectors:
 *
 *     x = src[0][i] op src[1][i] op ... ;  if (divisor) x = x / divisor;  dst[*][i] = round(x)
 *
 * fp16, bf16 and fp8 are widened to fp32 first and rounded once at the end (nearest, ties to
 * even). The meaning of every type and op, NaN, overflow and rounding is docs/numbers.md; the same
 * bits come from every instruction set, count, alignment and cut of the vectors.
 *
 * Aliasing: any dst may be the very same vector as any src (in place, exactly the same start);
 * vectors that overlap with an offset are not allowed. No alignment is needed. Nobody may write the
 * sources during the call, unless the result will be discarded.
 *
 * Pure: no allocation, no I/O, thread-safe. The floating-point environment of the caller (rounding
 * mode, flush to zero) neither matters nor changes; exception flags may be left raised.
 */
#ifndef HOOP_REDUCE_H
#define HOOP_REDUCE_H

#include "hoop.h"

/* sum, prod, max, min, as numbered by hoop_red_op_t; avg is sum with a divisor */
#define HOOP_FOLD_OPS 4

struct hoop_reduction {
    hoop_datatype_t type;
    hoop_red_op_t op; /* HOOP_AVG folds as HOOP_SUM */
    uint32_t divisor; /* 0: none. avg: number of ranks, in the last fold of a result */
};

/*
 * dst[0..n_dst) = fold of src[0..n_src), count elements each. n_src >= 1, n_dst >= 1. With n_src
 * 1 and no divisor it is a copy that keeps all bits, also of NaNs.
 */
void hoop_fold(const struct hoop_reduction *reduction, void *const *dst, unsigned n_dst,
               const void *const *src, unsigned n_src, size_t count);

/* dst = src, each of count elements multiplied by the element at *factor, rounded to the type. */
void hoop_scale(hoop_datatype_t type, const void *factor, const void *src, void *dst, size_t count);

/* Bytes per element; 0 if type is no datatype. Inline, since every API call uses it. */
static inline size_t hoop_datatype_bytes(hoop_datatype_t type)
{
    static const uint8_t sizes[] = {
#define HOOP_DATATYPE_SIZE(name, value, bytes, text) [value] = (bytes),
        HOOP_DATATYPES(HOOP_DATATYPE_SIZE)
#undef HOOP_DATATYPE_SIZE
    };
    return (unsigned)type < sizeof(sizes) ? sizes[type] : 0;
}
/* "float", "sum", ...; "unknown" for other numbers. Static strings. */
const char *hoop_datatype_name(hoop_datatype_t type);
const char *hoop_op_name(hoop_red_op_t op);

/* "avx512", "avx2", "neon" or "baseline": the instruction set of the kernels in use. */
const char *hoop_reduce_isa(void);

#endif

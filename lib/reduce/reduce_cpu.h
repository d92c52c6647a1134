/*
 * The CPU kernels behind hoop_fold(), one set per instruction set. Only for reduce_cpu*.c, and for
 * the test and the benchmark, which run every set that the CPU has; everything else uses reduce.h.
 *
 * reduce_cpu_tmpl.c is compiled once per set, with HOOP_REDUCE_SUFFIX as the end of the name of
 * the table it defines.
 */
#ifndef HOOP_REDUCE_CPU_H
#define HOOP_REDUCE_CPU_H

#include <stdbool.h>

#include "reduce/reduce.h"

enum hoop_isa { HOOP_ISA_BASELINE, HOOP_ISA_AVX2, HOOP_ISA_AVX512, HOOP_ISA_COUNT };

/* hoop_fold() without the copy. The caller provides the default floating-point environment. */
typedef void hoop_fold_kernel_t(void *const *dst, unsigned n_dst, const void *const *src,
                                unsigned n_src, size_t count, uint32_t divisor);

struct hoop_fold_kernels {
    hoop_fold_kernel_t *of[HOOP_NUM_DATATYPES][HOOP_FOLD_OPS];
};

extern const struct hoop_fold_kernels hoop_fold_kernels_baseline;
#if defined(__x86_64__)
extern const struct hoop_fold_kernels hoop_fold_kernels_avx2;
extern const struct hoop_fold_kernels hoop_fold_kernels_avx512;
#endif

/* Do this build and this CPU have the instruction set? They always have the baseline. */
bool hoop_isa_supported(enum hoop_isa isa);
const char *hoop_isa_name(enum hoop_isa isa);

/* hoop_fold() with the kernels of isa, which must be supported. */
void hoop_fold_isa(enum hoop_isa isa, const struct hoop_reduction *reduction, void *const *dst,
                   unsigned n_dst, const void *const *src, unsigned n_src, size_t count);

#endif

/*
 * The CUDA kernels, compiled for this CPU, against the plain loop of reference.c, bit by bit: every
 * kernel, type, op, and alignment. test_reduce.c compares the CPU's kernels with the same loop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#undef NDEBUG /* for the checks of alignment */
#include "reduce/cuda_on_cpu.h"
#include "reduce/reduce_cuda.cu"

#include "fakes/reference.h"
#include "reduce/reduce_trial.h"

/* ---- Launch ---- */

typedef void kernel_t(const struct hoop_cuda_fold fold);

#define KERNELS(type, value, bytes, text)                                                          \
    [type] = {hoop_fold_sum_##type, hoop_fold_prod_##type, hoop_fold_max_##type,                   \
              hoop_fold_min_##type, hoop_fold_scaled_##type},
static kernel_t *const kernels[HOOP_NUM_DATATYPES][HOOP_CUDA_FOLD_OPS] = {HOOP_DATATYPES(KERNELS)};
#undef KERNELS
#define KERNELS(type, value, bytes, text)                                                          \
    [type] = {hoop_told_sum_##type, hoop_told_prod_##type, hoop_told_max_##type,                   \
              hoop_told_min_##type},
static void (*const told[HOOP_NUM_DATATYPES][HOOP_CUDA_TOLD_OPS])(const struct hoop_cuda_fold *) = {
    HOOP_DATATYPES(KERNELS)};
#undef KERNELS

/* For every second number of blocks launches the kernel that is told later, if there is one. */
static void launch(const struct hoop_cuda_launch *which, uint32_t blocks)
{
    const bool tells = blocks % 2 == 0 && which->op < HOOP_CUDA_TOLD_OPS;
    BLOCKS = blocks;
    for (BLOCK = 0; BLOCK < blocks; BLOCK++) {
        for (THREAD = 0; THREAD < THREADS; THREAD++) {
            if (tells) {
                told[which->type][which->op](&which->fold);
            } else {
                kernels[which->type][which->op](which->fold);
            }
        }
    }
}

static const uint64_t *factors; /* one for each source; NULL: none */

static void fold_on_cpu(const struct trial *trial, void *const *dst, unsigned n_dst,
                        const void *const *src)
{
    struct hoop_cuda_launch which;
    hoop_cuda_fold_make(&trial->reduction, dst, n_dst, src, trial->n_src, factors, trial->count,
                        &which);
    launch(&which, 1 + trial->round % 3);
}

/* ---- Everything by everything ---- */

static const hoop_datatype_t types[] = {
#define TYPE(name, value, bytes, text) name,
    HOOP_DATATYPES(TYPE)
#undef TYPE
};

static void run_counts(struct trial trial)
{
    static const size_t counts[] = {0,  1,  2,  3,  7,   15,  16,   17,
                                    31, 33, 63, 65, 127, 256, 1003, TRIAL_MAX_COUNT};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        trial.count = counts[c];
        for (unsigned pattern = 0; pattern < TRIAL_PATTERNS; pattern++) {
            trial.pattern = (enum trial_pattern)pattern;
            trial.round++;
            trial.together = trial.round % 4 != 0;
            trial_run(&trial);
        }
    }
}

static void run_fold(hoop_datatype_t type, hoop_red_op_t op, uint32_t divisor, unsigned n_src,
                     unsigned round)
{
    reference_fold(type, op, divisor, (const void *const *)trial_originals, n_src, TRIAL_MAX_COUNT,
                   trial_expected);
    run_counts((struct trial){
        .reduction = {type, op, divisor}, .n_src = n_src, .round = round, .fold = fold_on_cpu});
}

static void fill(hoop_datatype_t type)
{
    for (unsigned s = 0; s < TRIAL_MAX_SRC; s++) {
        reference_fill(type, trial_originals[s], TRIAL_MAX_COUNT, s);
    }
}

static void test_matrix(void **state)
{
    static const unsigned n_srcs[] = {1, 2, 3, 8, 17};
    const hoop_datatype_t type = *(const hoop_datatype_t *)*state;
    fill(type);
    for (int op = 0; op < HOOP_NUM_OPS; op++) {
        for (size_t n = 0; n < sizeof(n_srcs) / sizeof(n_srcs[0]); n++) {
            run_fold(type, (hoop_red_op_t)op, op == HOOP_AVG ? n_srcs[n] : 0, n_srcs[n],
                     (unsigned)n);
        }
    }
}

static void test_divisors(void **state)
{
    static const uint32_t divisors[] = {1, 3, 7, 128, 1000, 0x80000000, 0xffffffff};
    (void)state;
    for (size_t t = 0; t < HOOP_NUM_DATATYPES; t++) {
        fill(types[t]);
        for (size_t d = 0; d < sizeof(divisors) / sizeof(divisors[0]); d++) {
            run_fold(types[t], HOOP_AVG, divisors[d], 1 + d % 3, (unsigned)d);
        }
    }
}

/* ---- Factors ---- */

/* The meaning of pre_mul_sum: every product is rounded to the type before it is folded. */
static void scale_all(hoop_datatype_t type, const uint64_t *by, unsigned n_src)
{
    static unsigned char scaled[TRIAL_MAX_SRC][(size_t)TRIAL_MAX_COUNT * 8];
    static unsigned char factor[(size_t)TRIAL_MAX_COUNT * 8];
    const void *sum[TRIAL_MAX_SRC];
    const size_t size = hoop_datatype_bytes(type);
    for (unsigned s = 0; s < n_src; s++) {
        for (size_t i = 0; i < TRIAL_MAX_COUNT; i++) {
            memcpy(factor + i * size, &by[s], size);
        }
        const void *src[2] = {trial_originals[s], factor};
        reference_fold(type, HOOP_PROD, 0, src, 2, TRIAL_MAX_COUNT, scaled[s]);
        sum[s] = scaled[s];
    }
    reference_fold(type, HOOP_SUM, 0, sum, n_src, TRIAL_MAX_COUNT, trial_expected);
}

static void test_factors(void **state)
{
    uint64_t by[TRIAL_MAX_SRC];
    (void)state;
    for (size_t t = 0; t < HOOP_NUM_DATATYPES; t++) {
        fill(types[t]);
        for (unsigned n_src = 1; n_src <= 5; n_src += 2) {
            for (unsigned s = 0; s < n_src; s++) {
                by[s] = 0;
                reference_fill(types[t], &by[s], 1, 70 + s + n_src);
            }
            scale_all(types[t], by, n_src);
            factors = by;
            run_counts((struct trial){
                .reduction = {types[t], HOOP_SUM, 0}, .n_src = n_src, .fold = fold_on_cpu});
            factors = NULL;
        }
    }
}

/* ---- Every value of the small types ---- */

static void test_pairs_of_quarters(void **state)
{
    (void)state;
    for (int op = 0; op < HOOP_NUM_OPS; op++) {
        for (unsigned first = 0; first < 256; first += 16) {
            for (unsigned i = 0; i < 4096; i++) {
                trial_originals[0][i] = (unsigned char)i;
                trial_originals[1][i] = (unsigned char)(first + i / 256);
            }
            for (int e5m2 = 0; e5m2 < 2; e5m2++) {
                struct trial trial = {.reduction = {e5m2 ? HOOP_FLOAT8E5M2 : HOOP_FLOAT8E4M3,
                                                    (hoop_red_op_t)op, op == HOOP_AVG ? 2 : 0},
                                      .n_src = 2,
                                      .count = 4096,
                                      .together = 1,
                                      .fold = fold_on_cpu};
                reference_fold(trial.reduction.type, trial.reduction.op, trial.reduction.divisor,
                               (const void *const *)trial_originals, 2, 4096, trial_expected);
                trial_run(&trial);
            }
        }
    }
}

/* All values of fp16 and bf16, times 1; and values half-way between two, or nearly so. */
static void test_halves(void **state)
{
    (void)state;
    for (unsigned first = 0; first < 0x10000; first += 4096) {
        for (unsigned s = 0; s < 3; s++) {
            for (unsigned i = 0; i < 4096; i++) {
                const uint16_t code = (uint16_t)(first + i + (s == 2 ? 0x5400 : s));
                memcpy(trial_originals[s] + (size_t)2 * i, &code, 2);
            }
        }
        for (unsigned n_src = 1; n_src <= 3; n_src++) {
            for (int bf16 = 0; bf16 < 2; bf16++) {
                struct trial trial = {.reduction = {bf16 ? HOOP_BFLOAT16 : HOOP_FLOAT16, HOOP_AVG,
                                                    n_src == 1 ? 1 : 2},
                                      .n_src = n_src,
                                      .count = 4096,
                                      .together = 1,
                                      .fold = fold_on_cpu};
                reference_fold(trial.reduction.type, HOOP_AVG, trial.reduction.divisor,
                               (const void *const *)trial_originals, n_src, 4096, trial_expected);
                trial_run(&trial);
            }
        }
    }
}

/* ---- How a fold is cut ---- */

static void test_cut(void **state)
{
    (void)state;
    unsigned char *const base = trial_originals[0] + (0 - (uintptr_t)trial_originals[0]) % 16;
    struct hoop_cuda_launch which;
    const struct hoop_reduction sum = {HOOP_FLOAT32, HOOP_SUM, 0};
    void *dst = base + 4;
    const void *src[2] = {base + 20, base + 36};
    hoop_cuda_fold_make(&sum, &dst, 1, src, 2, NULL, 1000, &which);
    assert_int_equal(which.fold.head, 3);
    assert_int_equal(which.fold.packs, 249);
    assert_int_equal(which.fold.loose, 4);
    assert_int_equal(which.blocks, 1);
    src[1] = base + 40; /* 8 bytes off the others' alignment */
    hoop_cuda_fold_make(&sum, &dst, 1, src, 2, NULL, 1000, &which);
    assert_int_equal(which.fold.packs, 0);
    assert_int_equal(which.fold.loose, 1000);
    assert_true(which.fold.natural);
    assert_int_equal(which.blocks, 4);
    src[1] = base + 37;
    hoop_cuda_fold_make(&sum, &dst, 1, src, 2, NULL, 1000, &which);
    assert_false(which.fold.natural);
    assert_string_equal(hoop_cuda_kernel_names[which.type][which.op], "hoop_fold_sum_HOOP_FLOAT32");
    assert_string_equal(hoop_cuda_told_names[which.type][which.op], "hoop_told_sum_HOOP_FLOAT32");
    assert_int_equal(hoop_cuda_fold_blocks(HOOP_FLOAT32, 1000), 1);
    assert_int_equal(hoop_cuda_fold_blocks(HOOP_FLOAT32, 2056), 2);
    assert_int_equal(hoop_cuda_fold_blocks(HOOP_FLOAT32, 1), 1);
}

/* As many vectors as one launch can have. */
static void test_most(void **state)
{
    (void)state;
    enum { COUNT = 37 };
    static float vectors[HOOP_CUDA_FOLD_MOST][COUNT];
    static float sum[COUNT];
    const void *src[HOOP_CUDA_FOLD_MOST];
    void *dst[HOOP_CUDA_FOLD_MOST];
    struct hoop_cuda_launch which;
    const struct hoop_reduction reduction = {HOOP_FLOAT32, HOOP_SUM, 0};
    for (int r = 0; r < HOOP_CUDA_FOLD_MOST; r++) {
        reference_fill(HOOP_FLOAT32, vectors[r], COUNT, (uint64_t)r);
        src[r] = vectors[r];
        dst[r] = vectors[r];
    }
    reference_fold(HOOP_FLOAT32, HOOP_SUM, 0, src, HOOP_CUDA_FOLD_MOST, COUNT, sum);
    hoop_cuda_fold_make(&reduction, dst, HOOP_CUDA_FOLD_MOST, src, HOOP_CUDA_FOLD_MOST, NULL, COUNT,
                        &which);
    launch(&which, 2);
    for (int r = 0; r < HOOP_CUDA_FOLD_MOST; r++) {
        assert_memory_equal(vectors[r], sum, sizeof(sum));
    }
    /* The driver passes no more than this. */
    assert_true(sizeof(which.fold) <= 4096);
}

int main(void)
{
    static struct CMUnitTest matrix[HOOP_NUM_DATATYPES];
    for (size_t t = 0; t < HOOP_NUM_DATATYPES; t++) {
        matrix[t] = (struct CMUnitTest){hoop_datatype_name(types[t]), test_matrix, NULL, NULL,
                                        (void *)&types[t]};
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),      cmocka_unit_test(test_most),
        cmocka_unit_test(test_divisors), cmocka_unit_test(test_factors),
        cmocka_unit_test(test_halves),   cmocka_unit_test(test_pairs_of_quarters),
    };
    const int failed =
        cmocka_run_group_tests_name("reduce_cuda", tests, trial_setup, trial_teardown);
    return failed +
           cmocka_run_group_tests_name("reduce_cuda matrix", matrix, trial_setup, trial_teardown);
}

/*
 * The reductions against the plain loop of reference.c, bit by bit, with the kernels of every
 * instruction set that this CPU has. With --bench: their speed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <pthread.h>
#include <string.h>

#include "fakes/reference.h"
#include "reduce/reduce_bench.h"
#include "reduce/reduce_trial.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static const hoop_datatype_t types[] = {
#define TYPE(name, value, bytes, text) name,
    HOOP_DATATYPES(TYPE)
#undef TYPE
};
static const hoop_red_op_t ops[] = {HOOP_SUM, HOOP_PROD, HOOP_MAX, HOOP_MIN, HOOP_AVG};
#define N_OPS (sizeof(ops) / sizeof(ops[0]))

/* ---- Everything by everything ---- */

static void run_counts(struct trial trial)
{
    static const size_t counts[] = {
        0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1000, TRIAL_MAX_COUNT};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        trial.count = counts[c];
        for (unsigned pattern = 0; pattern < TRIAL_PATTERNS; pattern++) {
            trial.pattern = (enum trial_pattern)pattern;
            trial.round++;
            trial_run(&trial);
        }
    }
}

static void run_isas(hoop_datatype_t type, hoop_red_op_t op, unsigned n_src)
{
    const uint32_t divisor = op == HOOP_AVG ? n_src : 0;
    struct trial trial = {.reduction = {type, op, divisor}, .n_src = n_src};
    reference_fold(type, op, divisor, (const void *const *)trial_originals, n_src, TRIAL_MAX_COUNT,
                   trial_expected);
    for (unsigned isa = 0; isa < HOOP_ISA_COUNT; isa++) {
        trial.isa = (enum hoop_isa)isa;
        trial.round = isa;
        if (hoop_isa_supported(trial.isa)) {
            run_counts(trial);
        }
    }
}

static void test_matrix(void **state)
{
    static const unsigned n_srcs[] = {1, 2, 3, 4, 5, 8, 17};
    const hoop_datatype_t type = *(const hoop_datatype_t *)*state;
    for (unsigned s = 0; s < TRIAL_MAX_SRC; s++) {
        reference_fill(type, trial_originals[s], TRIAL_MAX_COUNT, s);
    }
    for (size_t o = 0; o < N_OPS; o++) {
        for (size_t n = 0; n < sizeof(n_srcs) / sizeof(n_srcs[0]); n++) {
            run_isas(type, ops[o], n_srcs[n]);
        }
    }
}

static void test_divisors(void **state)
{
    (void)state;
    static const uint32_t divisors[] = {
        1, 2, 3, 7, 64, 127, 128, 255, 256, 1000, 0xffffff, 0x7fffffff, 0x80000000, 0xffffffff};
    for (size_t t = 0; t < HOOP_NUM_DATATYPES; t++) {
        for (size_t d = 0; d < sizeof(divisors) / sizeof(divisors[0]); d++) {
            reference_fill(types[t], trial_originals[0], 1000, d);
            reference_fill(types[t], trial_originals[1], 1000, d + 100);
            trial_run_all(types[t], HOOP_AVG, divisors[d], 2, 1000);
            trial_run_all(types[t], HOOP_SUM, divisors[d], 1, 1000);
        }
    }
}

/* Every 8-bit number divided by every divisor, against C's division. */
static void test_small_division(void **state)
{
    (void)state;
    for (uint32_t divisor = 1; divisor <= 300; divisor++) {
        for (unsigned i = 0; i < 256; i++) {
            trial_originals[0][i] = (unsigned char)i;
        }
        trial_run_all(HOOP_INT8, HOOP_AVG, divisor, 1, 256);
        trial_run_all(HOOP_UINT8, HOOP_AVG, divisor, 1, 256);
    }
}

/* ---- Every value of the small types ---- */

static const hoop_datatype_t halves[] = {HOOP_FLOAT16, HOOP_BFLOAT16};
#define HALF_PART 4096u

/* Fills source s with consecutive codes from first + offset on. */
static void fill_halves(unsigned s, unsigned first, unsigned offset)
{
    for (unsigned i = 0; i < HALF_PART; i++) {
        const uint16_t code = (uint16_t)(first + i + offset);
        memcpy(trial_originals[s] + (size_t)2 * i, &code, 2);
    }
}

/* A value times 1 is that value, except for NaN: the two conversions are inverse to each other. */
static void test_halves_round_trip(void **state)
{
    (void)state;
    for (size_t h = 0; h < 2; h++) {
        const unsigned inf = halves[h] == HOOP_FLOAT16 ? 0x7c00 : 0x7f80;
        const unsigned nan = halves[h] == HOOP_FLOAT16 ? 0x7e00 : 0x7fc0;
        for (unsigned first = 0; first < 0x10000; first += HALF_PART) {
            fill_halves(0, first, 0);
            trial_run_all(halves[h], HOOP_SUM, 1, 1, HALF_PART);
            for (unsigned i = 0; i < HALF_PART; i++) {
                uint16_t code;
                memcpy(&code, trial_expected + (size_t)2 * i, 2);
                assert_int_equal(code, ((first + i) & 0x7fff) > inf ? nan : first + i);
            }
        }
    }
}

/* The average of neighbours lies half-way between them; a third value moves it to either side. */
static void test_halves_midpoints(void **state)
{
    (void)state;
    for (size_t h = 0; h < 2; h++) {
        for (unsigned first = 0; first < 0x10000; first += HALF_PART) {
            fill_halves(0, first, 0);
            fill_halves(1, first, 1);
            trial_run_all(halves[h], HOOP_AVG, 2, 2, HALF_PART);
            fill_halves(2, first, 0u - 0x2c00);
            trial_run_all(halves[h], HOOP_AVG, 2, 3, HALF_PART);
            fill_halves(2, first, 0x8000u - 0x2c00);
            trial_run_all(halves[h], HOOP_AVG, 2, 3, HALF_PART);
        }
    }
}

/* Products reach every exponent, also above and below those of the type. */
static void test_halves_products(void **state)
{
    (void)state;
    for (size_t h = 0; h < 2; h++) {
        for (unsigned first = 0; first < 0x10000; first += HALF_PART) {
            fill_halves(0, first, 0);
            for (unsigned offset = 1; offset < 0x10000; offset = offset * 5 + 2) {
                fill_halves(1, 7 * first, offset);
                trial_run_all(halves[h], HOOP_PROD, 0, 2, HALF_PART);
            }
        }
    }
}

static void check_pairs(hoop_datatype_t type, hoop_red_op_t op)
{
    for (unsigned first = 0; first < 256; first += 16) {
        for (unsigned i = 0; i < 4096; i++) {
            trial_originals[0][i] = (unsigned char)i;
            trial_originals[1][i] = (unsigned char)(first + i / 256);
        }
        trial_run_all(type, op, op == HOOP_AVG ? 2 : 0, 2, 4096);
    }
}

static void test_quarters_pairs(void **state)
{
    (void)state;
    for (size_t o = 0; o < N_OPS; o++) {
        check_pairs(HOOP_FLOAT8E4M3, ops[o]);
        check_pairs(HOOP_FLOAT8E5M2, ops[o]);
    }
}

/* The special cases of docs/numbers.md. */
struct corner {
    hoop_datatype_t type;
    hoop_red_op_t op;
    uint64_t a;
    uint64_t b;
    uint64_t result;
};

static const struct corner corners[] = {
    {HOOP_FLOAT8E4M3, HOOP_SUM, 0x7e, 0x7e, 0x7e}, /* 448 + 448: saturates */
    {HOOP_FLOAT8E4M3, HOOP_SUM, 0xfe, 0xfe, 0xfe},
    {HOOP_FLOAT8E4M3, HOOP_SUM, 0xff, 0x00, 0x7f}, /* -NaN becomes the one NaN */
    {HOOP_FLOAT8E4M3, HOOP_SUM, 0x01, 0x01, 0x02}, /* subnormals */
    {HOOP_FLOAT8E5M2, HOOP_SUM, 0x7b, 0x7b, 0x7b}, /* 57344 + 57344: saturates */
    {HOOP_FLOAT8E5M2, HOOP_MAX, 0x7c, 0x00, 0x7b}, /* infinity saturates, too */
    {HOOP_FLOAT8E5M2, HOOP_SUM, 0x7c, 0xfc, 0x7f}, /* inf - inf */
    {HOOP_FLOAT16, HOOP_SUM, 0x7bff, 0x7bff, 0x7c00},
    {HOOP_FLOAT16, HOOP_MIN, 0x0000, 0x8000, 0x8000}, /* -0 < +0 */
    {HOOP_FLOAT16, HOOP_MAX, 0x8000, 0x0000, 0x0000},
    {HOOP_BFLOAT16, HOOP_SUM, 0x7f7f, 0x7f7f, 0x7f80},
    {HOOP_BFLOAT16, HOOP_SUM, 0x3f80, 0x3b80, 0x3f80}, /* 1 + 2^-8: tie to even */
    {HOOP_BFLOAT16, HOOP_SUM, 0x3f81, 0x3b80, 0x3f82},
    {HOOP_FLOAT32, HOOP_MIN, 0x80000000, 0, 0x80000000},
    {HOOP_FLOAT32, HOOP_MAX, 0x80000000, 0, 0},
    {HOOP_FLOAT32, HOOP_MAX, 0xff800001, 0x7f800000, 0x7fc00000},
    {HOOP_FLOAT32, HOOP_SUM, 0x00000001, 0x00000001, 0x00000002},
    {HOOP_FLOAT64, HOOP_MIN, UINT64_C(0x7ff0000000000001), 0, UINT64_C(0x7ff8000000000000)},
    {HOOP_FLOAT64, HOOP_SUM, 1, 1, 2},
    {HOOP_INT8, HOOP_SUM, 0x7f, 0x01, 0x80},
    {HOOP_INT32, HOOP_PROD, 0x80000000, 0xffffffff, 0x80000000},
    {HOOP_UINT64, HOOP_MAX, UINT64_MAX, 1, UINT64_MAX},
    {HOOP_INT64, HOOP_MAX, UINT64_MAX, 1, 1},
    {HOOP_INT8, HOOP_AVG, 0xfd, 0x00, 0xff}, /* -3 / 2 = -1 */
};

/* Little-endian, like all machines that hoop runs on. */
static uint64_t corner_element(hoop_datatype_t type, const void *p)
{
    uint64_t element = 0;
    memcpy(&element, p, hoop_datatype_bytes(type));
    return element;
}

static void corner_fill(const struct corner *corner)
{
    memcpy(trial_originals[0], &corner->a, hoop_datatype_bytes(corner->type));
    memcpy(trial_originals[1], &corner->b, hoop_datatype_bytes(corner->type));
}

static void test_corners(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(corners) / sizeof(corners[0]); c++) {
        const struct corner *corner = &corners[c];
        corner_fill(corner);
        trial_run_all(corner->type, corner->op, corner->op == HOOP_AVG ? 2 : 0, 2, 1);
        assert_int_equal(corner_element(corner->type, trial_expected), corner->result);
    }
}

/* ---- Contract ---- */

/* A copy keeps what arithmetic would change: every NaN, and infinity in fp8. */
static void test_copy_keeps_bits(void **state)
{
    (void)state;
    for (size_t t = 0; t < HOOP_NUM_DATATYPES; t++) {
        const size_t bytes = TRIAL_MAX_COUNT * hoop_datatype_bytes(types[t]);
        for (size_t i = 0; i < bytes; i++) {
            trial_originals[0][i] = (unsigned char)(i * 37 + i / 256);
        }
        trial_run_all(types[t], HOOP_SUM, 0, 1, TRIAL_MAX_COUNT);
        assert_memory_equal(trial_expected, trial_originals[0], bytes);
    }
}

/* Whatever the caller's floating-point settings are, the bits are the same, and the settings are
 * kept. */
static void env_check(hoop_datatype_t type, hoop_red_op_t op)
{
    const uint32_t divisor = op == HOOP_AVG ? 3 : 0;
    for (unsigned s = 0; s < 3; s++) {
        reference_fill(type, trial_originals[s], 1000, 50 + s);
    }
    reference_fold(type, op, divisor, (const void *const *)trial_originals, 3, 1000,
                   trial_expected);
    struct trial trial = {.reduction = {type, op, divisor}, .n_src = 3, .count = 1000};
    for (unsigned setting = 0; setting < 16; setting++) {
        trial.isa = (enum hoop_isa)(setting / 4 % HOOP_ISA_COUNT);
        if (!hoop_isa_supported(trial.isa)) {
            continue;
        }
#if defined(__x86_64__)
        const unsigned saved = _mm_getcsr();
        /* flush to zero, denormals are zero, a rounding mode, one raised exception flag */
        const unsigned mxcsr = 0x1f80 | 0x8000 | 0x0040 | setting % 4 << 13 | 1u << setting % 6;
        _mm_setcsr(mxcsr);
        trial_run(&trial);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(saved);
        assert_int_equal(after, mxcsr);
#else
        static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
        fesetround(modes[setting % 4]);
        trial_run(&trial);
        const int after = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(after, modes[setting % 4]);
#endif
    }
}

static void test_environment(void **state)
{
    (void)state;
    for (size_t t = 0; t < HOOP_NUM_DATATYPES; t++) {
        for (size_t o = 0; o < N_OPS; o++) {
            env_check(types[t], ops[o]);
        }
    }
}

/* As many sources and destinations as a large machine can have ranks. */
static void test_many_ranks(void **state)
{
    (void)state;
    enum { RANKS = 200, COUNT = 67 };
    static float vectors[RANKS][COUNT];
    static float sum[COUNT];
    const void *src[RANKS];
    void *dst[RANKS];
    for (int r = 0; r < RANKS; r++) {
        reference_fill_exact(HOOP_FLOAT32, HOOP_SUM, vectors[r], COUNT, r, RANKS, 1);
        src[r] = vectors[r];
        dst[r] = vectors[r];
    }
    reference_fold(HOOP_FLOAT32, HOOP_SUM, 0, src, RANKS, COUNT, sum);
    const struct hoop_reduction reduction = {HOOP_FLOAT32, HOOP_SUM, 0};
    hoop_fold(&reduction, dst, RANKS, src, RANKS, COUNT);
    for (int r = 0; r < RANKS; r++) {
        assert_memory_equal(vectors[r], sum, sizeof(sum));
    }
}

/* The exact data of reference.h: the bits are the same in any order, even if partial results are
 * rounded. */
static void exact_check(hoop_datatype_t type, hoop_red_op_t op, int n)
{
    enum { COUNT = 97 };
    unsigned char forward[COUNT * 8];
    unsigned char backward[COUNT * 8];
    unsigned char next[COUNT * 8];
    const size_t bytes = COUNT * hoop_datatype_bytes(type);
    const void *up[2] = {forward, next};
    const void *down[2] = {next, backward};
    reference_fill_exact(type, op, forward, COUNT, 0, n, 9);
    reference_fill_exact(type, op, backward, COUNT, n - 1, n, 9);
    for (int r = 1; r < n; r++) {
        reference_fill_exact(type, op, next, COUNT, r, n, 9);
        reference_fold(type, op, r == n - 1 && op == HOOP_AVG ? (uint32_t)n : 0, up, 2, COUNT,
                       forward);
        reference_fill_exact(type, op, next, COUNT, n - 1 - r, n, 9);
        reference_fold(type, op, r == n - 1 && op == HOOP_AVG ? (uint32_t)n : 0, down, 2, COUNT,
                       backward);
    }
    assert_memory_equal(forward, backward, bytes);
}

static void test_exact_data(void **state)
{
    (void)state;
    static const int ns[] = {2, 3, 4, 7, 8, 17, 33, 64};
    for (size_t t = 0; t < HOOP_NUM_DATATYPES; t++) {
        for (size_t o = 0; o < N_OPS; o++) {
            for (size_t n = 0; n < sizeof(ns) / sizeof(ns[0]); n++) {
                exact_check(types[t], ops[o], ns[n]);
            }
        }
    }
}

/* For a few elements hoop_fold() works in another way: the bits are the same. */
static void few_check(hoop_datatype_t type, hoop_red_op_t op, unsigned n_src, uint64_t seed)
{
    enum { MOST = 6, SOURCES = 5 };
    unsigned char data[SOURCES][MOST * 8], want[MOST * 8];
    const void *src[SOURCES];
    const struct hoop_reduction reduction = {type, op, 0};
    for (unsigned s = 0; s < n_src; s++) {
        reference_fill(type, data[s], MOST, seed + s);
        src[s] = data[s];
    }
    for (size_t count = 0; count <= MOST; count++) {
        unsigned char got[MOST * 8];
        void *dst = got;
        memset(got, 0x5a, sizeof(got));
        memset(want, 0x5a, sizeof(want));
        reference_fold(type, op, 0, src, n_src, count, want);
        hoop_fold(&reduction, &dst, 1, src, n_src, count);
        assert_memory_equal(got, want, sizeof(got));
    }
}

static void test_few(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HOOP_NUM_DATATYPES * HOOP_NUM_OPS; i++) {
        for (uint64_t seed = 0; seed < 200; seed++) {
            few_check(types[i / HOOP_NUM_OPS], ops[i % HOOP_NUM_OPS], 2 + (unsigned)seed % 4,
                      seed * 10);
        }
    }
}

static void *fold_in_thread(void *arg)
{
    const float *one = arg;
    float sum = 0;
    void *dst[1] = {&sum};
    const void *src[2] = {one, one};
    const struct hoop_reduction reduction = {HOOP_FLOAT32, HOOP_SUM, 0};
    hoop_fold(&reduction, dst, 1, src, 2, 1);
    return sum == 2.0F ? NULL : arg;
}

/* Comes first, so that several threads choose the kernels at the same time. */
static void test_first_use_by_threads(void **state)
{
    (void)state;
    float one = 1.0F;
    pthread_t threads[4];
    for (unsigned t = 0; t < 4; t++) {
        assert_int_equal(pthread_create(&threads[t], NULL, fold_in_thread, &one), 0);
    }
    for (unsigned t = 0; t < 4; t++) {
        void *failed;
        assert_int_equal(pthread_join(threads[t], &failed), 0);
        assert_null(failed);
    }
}

/* The bits are the same on every kind of CPU, and so is this number. */
static void test_digest(void **state)
{
    (void)state;
    uint64_t digest = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < HOOP_NUM_DATATYPES * N_OPS; i++) {
        const hoop_datatype_t type = types[i / N_OPS];
        const hoop_red_op_t op = ops[i % N_OPS];
        const struct hoop_reduction reduction = {type, op, op == HOOP_AVG ? 5 : 0};
        for (unsigned s = 0; s < 5; s++) {
            reference_fill(type, trial_originals[s], TRIAL_MAX_COUNT, s);
        }
        void *dst = trial_expected;
        hoop_fold(&reduction, &dst, 1, (const void *const *)trial_originals, 5, TRIAL_MAX_COUNT);
        for (size_t at = 0; at < TRIAL_MAX_COUNT * hoop_datatype_bytes(type); at++) {
            digest = (digest ^ trial_expected[at]) * 0x100000001b3ull; /* FNV-1a */
        }
    }
    assert_int_equal(digest, 0xa13a0c756226ec55ull);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(hoop_datatype_name(HOOP_FLOAT32), "float");
    assert_string_equal(hoop_datatype_name((hoop_datatype_t)12), "unknown");
    assert_string_equal(hoop_op_name(HOOP_AVG), "avg");
    assert_string_equal(hoop_op_name(HOOP_RED_OP_LIMIT), "unknown");
    assert_int_equal(hoop_datatype_bytes(HOOP_BFLOAT16), 2);
    assert_int_equal(hoop_datatype_bytes((hoop_datatype_t)-1), 0);
    assert_true(hoop_isa_supported(HOOP_ISA_BASELINE));
    assert_string_not_equal(hoop_reduce_isa(), "unknown");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        return reduce_bench();
    }
    static struct CMUnitTest matrix[HOOP_NUM_DATATYPES];
    for (size_t t = 0; t < HOOP_NUM_DATATYPES; t++) {
        matrix[t] = (struct CMUnitTest){hoop_datatype_name(types[t]), test_matrix, NULL, NULL,
                                        (void *)&types[t]};
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_use_by_threads),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_corners),
        cmocka_unit_test(test_divisors),
        cmocka_unit_test(test_small_division),
        cmocka_unit_test(test_halves_round_trip),
        cmocka_unit_test(test_halves_midpoints),
        cmocka_unit_test(test_halves_products),
        cmocka_unit_test(test_quarters_pairs),
        cmocka_unit_test(test_copy_keeps_bits),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_exact_data),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_few),
    };
    const int failed = cmocka_run_group_tests_name("reduce", tests, trial_setup, trial_teardown);
    return failed +
           cmocka_run_group_tests_name("reduce matrix", matrix, trial_setup, trial_teardown);
}

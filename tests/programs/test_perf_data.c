/*
 * The data of the benchmarks: inputs are exact in any order of reduction, expected results are
 * right, and wrong results are found. This test decodes and reduces elements in another way than
 * the benchmarks.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "perf/perf.h"
#include "perf/perf_buffer.h"
#include "perf/perf_data.h"
#include "perf/perf_options.h"

struct format {
    int mantissa, bias;
};

/* mantissa 0: an integer type. */
static struct format format_of(hoop_datatype_t type)
{
    static const struct format formats[HOOP_NUM_DATATYPES] = {
        [HOOP_FLOAT16] = {10, 15},  [HOOP_FLOAT32] = {23, 127}, [HOOP_FLOAT64] = {52, 1023},
        [HOOP_BFLOAT16] = {7, 127}, [HOOP_FLOAT8E4M3] = {3, 7}, [HOOP_FLOAT8E5M2] = {2, 15},
    };
    return formats[type];
}

/* The number that an element's bits mean, computed step by step. */
static double decode(hoop_datatype_t type, const char *element)
{
    struct format format = format_of(type);
    int bits = (int)perf_type_bytes(type) * 8;
    uint64_t raw = 0;
    memcpy(&raw, element, (size_t)bits / 8);
    uint64_t fraction = raw & (((uint64_t)1 << format.mantissa) - 1);
    int exponent = (int)((raw >> format.mantissa) & ((1u << (bits - 1 - format.mantissa)) - 1));
    double value = exponent == 0 ? ldexp((double)fraction, 1 - format.bias - format.mantissa)
                                 : ldexp((double)(fraction + ((uint64_t)1 << format.mantissa)),
                                         exponent - format.bias - format.mantissa);
    return (raw >> (bits - 1)) ? -value : value;
}

/* Is value, an integer within 2^15, a number of this type? */
static bool representable(hoop_datatype_t type, double value)
{
    int exponent;
    double fraction = ldexp(frexp(value, &exponent), format_of(type).mantissa + 1);
    bool small = type != HOOP_FLOAT8E4M3 || fabs(value) <= 448;
    return small && fraction == floor(fraction);
}

static double combine(int op, double a, double b)
{
    switch (op) {
    case HOOP_PROD:
        return a * b;
    case HOOP_MIN:
        return fmin(a, b);
    case HOOP_MAX:
        return fmax(a, b);
    default:
        return a + b;
    }
}

#define ELEMENTS 70
#define MOST_RANKS 300

/* The inputs of all ranks, and the expected results, for one case. */
struct inputs {
    struct perf_case data;
    char input[MOST_RANKS][ELEMENTS * 8];
    char want[ELEMENTS * 8];
};

/* Makes count elements from `first` on, of a rank's input or of the result. */
static void make(const struct perf_case *data, int rank, size_t first, size_t count, void *dst)
{
    const struct perf_span span = {perf_data_rules(data), rank, first, count};
    perf_data_make(&span, dst);
}

static size_t wrong(const struct perf_case *data, const void *got, const void *want, size_t count)
{
    const struct perf_rules rules = perf_data_rules(data);
    return perf_data_wrong(&rules, got, want, count);
}

static void make_inputs(struct inputs *inputs, hoop_datatype_t type, int op, int nranks)
{
    inputs->data = (struct perf_case){.type = type, .op = op, .nranks = nranks, .repetition = 3};
    for (int rank = 0; rank < nranks; rank++) {
        make(&inputs->data, rank, 1000, ELEMENTS, inputs->input[rank]);
    }
    make(&inputs->data, PERF_REDUCED, 1000, ELEMENTS, inputs->want);
}

/* Folds element i over all ranks, beginning with `first`; every partial result must be exact. */
static double fold_exactly(const struct inputs *inputs, size_t i, int first, int step)
{
    size_t bytes = perf_type_bytes(inputs->data.type);
    double total = 0;
    for (int k = 0; k < inputs->data.nranks; k++) {
        int rank = (first + k * step + inputs->data.nranks) % inputs->data.nranks;
        double value = decode(inputs->data.type, inputs->input[rank] + i * bytes);
        if (inputs->data.op == PERF_MULSUM) {
            value *= perf_mulsum_factor(rank);
        }
        total = k == 0 ? value : combine(inputs->data.op, total, value);
        assert_true(representable(inputs->data.type, total));
    }
    return total;
}

static void check_floats(const struct inputs *inputs)
{
    const struct perf_case *data = &inputs->data;
    size_t bytes = perf_type_bytes(data->type);
    for (size_t i = 0; i < ELEMENTS; i++) {
        double total = fold_exactly(inputs, i, 0, 1);
        assert_true(total == fold_exactly(inputs, i, data->nranks - 1, -1));
        assert_true(total == fold_exactly(inputs, i, data->nranks / 2, 1));
        double want = decode(data->type, inputs->want + i * bytes);
        if (data->op != HOOP_AVG) {
            assert_true(total == want);
            continue;
        }
        double lowest = ldexp(1, 1 - format_of(data->type).bias - format_of(data->type).mantissa);
        double unit = fabs(total / data->nranks) * ldexp(1, -format_of(data->type).mantissa);
        assert_true(fabs(want - total / data->nranks) <= fmax(unit, lowest) / 2);
    }
}

/* The element as an integer; sign-extended if its type has a sign. */
static int64_t integer(hoop_datatype_t type, const char *element)
{
    uint64_t raw = 0;
    size_t bytes = perf_type_bytes(type);
    memcpy(&raw, element, bytes);
    bool is_signed = type == HOOP_INT8 || type == HOOP_INT32 || type == HOOP_INT64;
    if (is_signed && bytes < 8 && (raw >> (bytes * 8 - 1))) {
        raw |= ~(uint64_t)0 << (bytes * 8);
    }
    return (int64_t)raw;
}

static uint64_t fold_integers(const struct inputs *inputs, size_t i)
{
    const struct perf_case *data = &inputs->data;
    size_t bytes = perf_type_bytes(data->type);
    bool wide = data->type == HOOP_UINT64;
    uint64_t total = (uint64_t)integer(data->type, inputs->input[0] + i * bytes);
    for (int rank = 1; rank < data->nranks; rank++) {
        int64_t value = integer(data->type, inputs->input[rank] + i * bytes);
        bool less = wide ? (uint64_t)value < total : value < (int64_t)total;
        switch (data->op) {
        case HOOP_PROD:
            total *= (uint64_t)value;
            break;
        case HOOP_MIN:
            total = less ? (uint64_t)value : total;
            break;
        case HOOP_MAX:
            total = less ? total : (uint64_t)value;
            break;
        default:
            total += (uint64_t)value * (data->op == PERF_MULSUM ? 1 + (unsigned)rank % 2 : 1);
            break;
        }
    }
    return total;
}

static void check_integers(const struct inputs *inputs)
{
    const struct perf_case *data = &inputs->data;
    size_t bytes = perf_type_bytes(data->type);
    for (size_t i = 0; i < ELEMENTS; i++) {
        uint64_t total = fold_integers(inputs, i);
        int64_t want = integer(data->type, inputs->want + i * bytes);
        int64_t wrapped = integer(data->type, (const char *)&total);
        if (data->op == HOOP_AVG && data->type == HOOP_UINT64) {
            assert_true((uint64_t)want == total / (uint64_t)data->nranks);
        } else if (data->op == HOOP_AVG) {
            assert_true(want == wrapped / data->nranks);
        } else {
            assert_true(want == wrapped);
        }
    }
}

static void check_inputs(struct inputs *inputs, hoop_datatype_t type, int op, int nranks)
{
    make_inputs(inputs, type, op, nranks);
    if (format_of(type).mantissa > 0) {
        check_floats(inputs);
    } else {
        check_integers(inputs);
    }
}

static void test_inputs_are_exact(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 5, 8, 9, 16, 17, 64, MOST_RANKS};
    struct inputs *inputs = malloc(sizeof *inputs);
    assert_non_null(inputs);
    for (size_t n = 0; n < sizeof ranks / sizeof ranks[0]; n++) {
        for (int type = 0; type < HOOP_NUM_DATATYPES; type++) {
            for (int op = 0; op < PERF_NUM_OPS; op++) {
                check_inputs(inputs, (hoop_datatype_t)type, op, ranks[n]);
            }
        }
    }
    free(inputs);
}

/* Inputs differ between ranks, elements and repetitions; where a run begins does not matter. */
static void test_inputs_differ(void **state)
{
    (void)state;
    char a[4 * 2000];
    char b[4 * 2000];
    struct perf_case data = {.type = HOOP_FLOAT32, .op = HOOP_SUM, .nranks = 4};
    make(&data, 0, 0, 2000, a);
    make(&data, 1, 0, 2000, b);
    assert_memory_not_equal(a, b, sizeof a);
    assert_int_equal(wrong(&data, a, b, 2000), 2000);
    make(&data, 0, 1, 2000, b);
    assert_memory_equal(a + 4, b, sizeof a - 4);
    assert_int_equal(wrong(&data, a, b, 2000), 2000);
    data.repetition = 1;
    make(&data, 0, 0, 2000, b);
    assert_int_equal(wrong(&data, a, b, 2000), 2000);
}

static void test_wrong_elements_are_counted(void **state)
{
    (void)state;
    char want[8 * 100];
    char got[8 * 100];
    for (int type = 0; type < HOOP_NUM_DATATYPES; type++) {
        struct perf_case data = {.type = (hoop_datatype_t)type, .op = HOOP_SUM, .nranks = 3};
        size_t bytes = perf_type_bytes(data.type);
        make(&data, PERF_REDUCED, 0, 100, want);
        memcpy(got, want, sizeof got);
        assert_int_equal(wrong(&data, got, want, 100), 0);
        got[0] ^= 1;
        got[57 * bytes] ^= 1;
        got[57 * bytes + bytes - 1] ^= 2;
        got[99 * bytes + bytes - 1] ^= (char)0x80;
        assert_int_equal(wrong(&data, got, want, 100), 3);
    }
}

static void test_tolerance(void **state)
{
    (void)state;
    struct perf_case data = {.type = HOOP_FLOAT32, .op = HOOP_AVG, .nranks = 3};
    assert_int_equal(perf_data_tolerance(&data), 2);
    float want = 1, got = nextafterf(nextafterf(1, 2), 2);
    assert_int_equal(wrong(&data, &got, &want, 1), 0);
    got = nextafterf(got, 2);
    assert_int_equal(wrong(&data, &got, &want, 1), 1);
    want = 0;
    got = -nextafterf(0, 1);
    assert_int_equal(wrong(&data, &got, &want, 1), 0);
    got = NAN;
    assert_int_equal(wrong(&data, &got, &want, 1), 1);
    data.nranks = 4;
    assert_int_equal(perf_data_tolerance(&data), 0);
    data.op = HOOP_SUM;
    data.nranks = 3;
    assert_int_equal(perf_data_tolerance(&data), 0);
    data.op = HOOP_AVG;
    data.type = HOOP_INT32;
    assert_int_equal(perf_data_tolerance(&data), 0);
}

static void test_guards(void **state)
{
    (void)state;
    struct perf_buffer buffer = {.kind = PERF_MEMORY_PLAIN, .device = -1};
    assert_int_equal(perf_buffer_init(&buffer, HOOP_COMM_NULL, 1000, 8), PERF_SUCCESS);
    char *window = perf_buffer_at(&buffer, 8);
    size_t found = 0;
    assert_int_equal(perf_buffer_guard(&buffer, window, 100), PERF_SUCCESS);
    memset(window, 1, 100);
    assert_int_equal(perf_buffer_damage(&buffer, window, 100, &found), PERF_SUCCESS);
    assert_int_equal(found, 0);
    window[-1] = 0;
    window[100] = 0;
    window[101] = 0;
    assert_int_equal(perf_buffer_damage(&buffer, window, 100, &found), PERF_SUCCESS);
    assert_int_equal(found, 3);
    perf_buffer_finish(&buffer, HOOP_COMM_NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs_are_exact),
        cmocka_unit_test(test_inputs_differ),
        cmocka_unit_test(test_wrong_elements_are_counted),
        cmocka_unit_test(test_tolerance),
        cmocka_unit_test(test_guards),
    };
    return cmocka_run_group_tests_name("perf_data", tests, NULL, NULL);
}

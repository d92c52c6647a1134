/* See perf_data.h. Work goes in blocks that fit the first-level cache. */
#include "perf/perf_data.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define BLOCK 512

enum number_kind { NUMBER_SIGNED, NUMBER_UNSIGNED, NUMBER_FLOAT };

struct number_format {
    enum number_kind kind;
    int mantissa; /* bits stored, for floating point types */
    int bias;     /* of the exponent */
};

static const struct number_format formats[HOOP_NUM_DATATYPES] = {
    [HOOP_INT8] = {NUMBER_SIGNED, 0, 0},       [HOOP_UINT8] = {NUMBER_UNSIGNED, 0, 0},
    [HOOP_INT32] = {NUMBER_SIGNED, 0, 0},      [HOOP_UINT32] = {NUMBER_UNSIGNED, 0, 0},
    [HOOP_INT64] = {NUMBER_SIGNED, 0, 0},      [HOOP_UINT64] = {NUMBER_UNSIGNED, 0, 0},
    [HOOP_FLOAT16] = {NUMBER_FLOAT, 10, 15},   [HOOP_FLOAT32] = {NUMBER_FLOAT, 23, 127},
    [HOOP_FLOAT64] = {NUMBER_FLOAT, 52, 1023}, [HOOP_BFLOAT16] = {NUMBER_FLOAT, 7, 127},
    [HOOP_FLOAT8E4M3] = {NUMBER_FLOAT, 3, 7},  [HOOP_FLOAT8E5M2] = {NUMBER_FLOAT, 2, 15},
};

static const size_t type_bytes[HOOP_NUM_DATATYPES] = {
#define TYPE_BYTES(name, value, bytes, text) [value] = (bytes),
    HOOP_DATATYPES(TYPE_BYTES)
#undef TYPE_BYTES
};

static const char *const type_names[HOOP_NUM_DATATYPES] = {
#define TYPE_NAME(name, value, bytes, text) [value] = (text),
    HOOP_DATATYPES(TYPE_NAME)
#undef TYPE_NAME
};

static const char *const op_names[PERF_NUM_OPS] = {
    [HOOP_SUM] = "sum", [HOOP_PROD] = "prod", [HOOP_MAX] = "max",
    [HOOP_MIN] = "min", [HOOP_AVG] = "avg",   [PERF_MULSUM] = "mulsum",
};

size_t perf_type_bytes(hoop_datatype_t type)
{
    return type_bytes[type];
}

const char *perf_type_name(hoop_datatype_t type)
{
    return type_names[type];
}

const char *perf_op_name(int op)
{
    return op_names[op];
}

int perf_mulsum_factor(int rank)
{
    return 1 + rank % 2;
}

/* ---- Inputs ------------------------------------------------------------------------------- */

static uint64_t data_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* What the ranks have in common about an element. */
static void data_keys(const struct perf_case *data, size_t first, size_t count, uint64_t *keys)
{
    uint64_t base = data_mix(data->repetition + 1);
    for (size_t i = 0; i < count; i++) {
        keys[i] = data_mix(base + first + i);
    }
}

/* The common key is well mixed already, so a cheap step makes a rank's own bits from it. */
static uint64_t data_rank_bits(uint64_t key, uint64_t rank_key)
{
    uint64_t x = (key + rank_key) * 0x9e3779b97f4a7c15u;
    return (x ^ (x >> 29)) * 0xd6e8feb86659fd93u;
}

/* A rank's place in the order that element's key gives to the ranks. */
static int data_place(uint64_t key, int rank, int nranks)
{
    int start = (int)(((key >> 32) * (uint64_t)nranks) >> 32);
    return rank >= start ? rank - start : rank - start + nranks;
}

static int64_t data_wrap(hoop_datatype_t type, uint64_t bits)
{
    switch (type) {
    case HOOP_INT8:
        return (int8_t)bits;
    case HOOP_UINT8:
        return (uint8_t)bits;
    case HOOP_INT32:
        return (int32_t)bits;
    case HOOP_UINT32:
        return (uint32_t)bits;
    default:
        return (int64_t)bits;
    }
}

static int64_t data_factor(uint64_t key, uint64_t bits, int rank, int nranks)
{
    int place = data_place(key, rank, nranks);
    int64_t magnitude = place == 0 ? 3 : place <= 4 ? 2 : 1;
    return (bits >> 63) ? -magnitude : magnitude;
}

/* Whole numbers of at most width bits, sign included. */
static int64_t data_signed(uint64_t bits, int width)
{
    return (int64_t)(bits >> (64 - width)) - ((int64_t)1 << (width - 1));
}

/* Bits (sign included) that each rank may use so that all together stay exact; 0: see the window */
static int data_sum_width(const struct perf_case *data, int64_t *ret_window)
{
    int64_t budget = (int64_t)1 << (formats[data->type].mantissa + 1);
    if (data->op == PERF_MULSUM) {
        budget /= 2;
    }
    *ret_window = budget;
    int width = 0;
    while (((int64_t)1 << width) <= budget / data->nranks) {
        width++;
    }
    return width;
}

static void data_integers(const struct perf_case *data, int rank, const uint64_t *keys,
                          size_t count, int64_t *values)
{
    uint64_t rank_key = data_mix((uint64_t)rank + 1);
    uint64_t odd = data->op == HOOP_PROD; /* products of even numbers would soon be all zero */
    int shift = perf_type_bytes(data->type) == 8 ? 0 : 32; /* the upper bits are mixed best */
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = data_rank_bits(keys[i], rank_key) >> shift;
        values[i] = data_wrap(data->type, bits | odd);
    }
}

static void data_sum_floats(const struct perf_case *data, int rank, const uint64_t *keys,
                            size_t count, int64_t *values)
{
    uint64_t rank_key = data_mix((uint64_t)rank + 1);
    int64_t window = 0;
    int width = data_sum_width(data, &window);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = data_rank_bits(keys[i], rank_key);
        if (width > 0) {
            values[i] = data_signed(bits, width);
        } else if (data_place(keys[i], rank, data->nranks) < window) {
            values[i] = (bits >> 63) ? -1 : 1;
        } else {
            values[i] = 0;
        }
    }
}

static void data_values(const struct perf_case *data, int rank, const uint64_t *keys, size_t count,
                        int64_t *values)
{
    if (formats[data->type].kind != NUMBER_FLOAT) {
        data_integers(data, rank, keys, count, values);
        return;
    }
    if (data->op != HOOP_PROD && data->op != HOOP_MIN && data->op != HOOP_MAX) {
        data_sum_floats(data, rank, keys, count, values);
        return;
    }
    uint64_t rank_key = data_mix((uint64_t)rank + 1);
    int width = formats[data->type].mantissa + 2;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = data_rank_bits(keys[i], rank_key);
        values[i] = data->op == HOOP_PROD ? data_factor(keys[i], bits, rank, data->nranks)
                                          : data_signed(bits, width);
    }
}

/* ---- Elements ----------------------------------------------------------------------------- */

#define STORE_AS(ctype)                                                                            \
    do {                                                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            ctype element = (ctype)values[i];                                                      \
            memcpy((char *)dst + i * sizeof element, &element, sizeof element);                    \
        }                                                                                          \
    } while (0)

/* The bits of an exact number in a type with fewer of them than float: no rounding is needed. */
static uint16_t data_encode_exact(const struct number_format *format, int width, int64_t value)
{
    if (value == 0) {
        return 0;
    }
    float wide = (float)value;
    uint32_t bits;
    memcpy(&bits, &wide, sizeof bits);
    uint32_t exponent = ((bits >> 23) & 0xff) - 127 + (uint32_t)format->bias;
    uint32_t mantissa = (bits & 0x7fffff) >> (23 - format->mantissa);
    return (uint16_t)((bits >> 31) << (width - 1) | exponent << format->mantissa | mantissa);
}

/* The same with rounding to nearest, ties to even; for numbers that do not overflow. */
static uint16_t data_encode(const struct number_format *format, int width, double value)
{
    if (value == 0) {
        return 0;
    }
    int lowest = 1 - format->bias;
    int exponent = ilogb(value);
    if (exponent < lowest) {
        exponent = lowest; /* subnormal: the same spacing as the lowest normal binade */
    }
    uint32_t steps = (uint32_t)lrint(ldexp(fabs(value), format->mantissa - exponent));
    uint32_t binade = (uint32_t)(exponent - lowest) << format->mantissa;
    uint32_t sign = value < 0 ? 1u << (width - 1) : 0;
    return (uint16_t)(sign | (binade + steps));
}

static void data_store_narrow(hoop_datatype_t type, const int64_t *values, size_t count, void *dst)
{
    const struct number_format *format = &formats[type];
    int width = (int)perf_type_bytes(type) * 8;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits = data_encode_exact(format, width, values[i]);
        if (width == 8) {
            ((uint8_t *)dst)[i] = (uint8_t)bits;
        } else {
            memcpy((char *)dst + i * sizeof bits, &bits, sizeof bits);
        }
    }
}

void perf_data_store(hoop_datatype_t type, const int64_t *values, size_t count, void *dst)
{
    switch (type) {
    case HOOP_FLOAT32:
        STORE_AS(float);
        break;
    case HOOP_FLOAT64:
        STORE_AS(double);
        break;
    case HOOP_INT8:
    case HOOP_UINT8:
        STORE_AS(uint8_t);
        break;
    case HOOP_INT32:
    case HOOP_UINT32:
        STORE_AS(uint32_t);
        break;
    case HOOP_INT64:
    case HOOP_UINT64:
        STORE_AS(int64_t);
        break;
    default:
        data_store_narrow(type, values, count, dst);
        break;
    }
}

static void data_store_averages(const struct perf_case *data, const int64_t *sums, size_t count,
                                void *dst)
{
    int width = (int)perf_type_bytes(data->type) * 8;
    for (size_t i = 0; i < count; i++) {
        double average = (double)sums[i] / data->nranks;
        float single = (float)average;
        uint16_t half = width <= 16 ? data_encode(&formats[data->type], width, average) : 0;
        uint8_t quarter = (uint8_t)half;
        const void *bits = width == 64   ? (const void *)&average
                           : width == 32 ? (const void *)&single
                           : width == 16 ? (const void *)&half
                                         : (const void *)&quarter;
        memcpy((char *)dst + i * (size_t)(width / 8), bits, (size_t)(width / 8));
    }
}

void perf_data_input(const struct perf_case *data, int rank, size_t first, size_t count, void *dst)
{
    uint64_t keys[BLOCK];
    int64_t values[BLOCK];
    for (size_t done = 0; done < count;) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        data_keys(data, first + done, n, keys);
        data_values(data, rank, keys, n, values);
        perf_data_store(data->type, values, n, (char *)dst + done * perf_type_bytes(data->type));
        done += n;
    }
}

/* ---- Expected results --------------------------------------------------------------------- */

/* a < b as the type orders them; only uint64 needs the whole width without a sign. */
static bool data_less(hoop_datatype_t type, int64_t a, int64_t b)
{
    return type == HOOP_UINT64 ? (uint64_t)a < (uint64_t)b : a < b;
}

static void data_fold(const struct perf_case *data, int rank, int64_t *total, const int64_t *values,
                      size_t count)
{
    uint64_t factor = data->op == PERF_MULSUM ? (uint64_t)perf_mulsum_factor(rank) : 1;
    for (size_t i = 0; i < count; i++) {
        switch (data->op) {
        case HOOP_PROD:
            total[i] = (int64_t)((uint64_t)total[i] * (uint64_t)values[i]);
            break;
        case HOOP_MIN:
            total[i] = data_less(data->type, values[i], total[i]) ? values[i] : total[i];
            break;
        case HOOP_MAX:
            total[i] = data_less(data->type, total[i], values[i]) ? values[i] : total[i];
            break;
        default:
            total[i] = (int64_t)((uint64_t)total[i] + (uint64_t)values[i] * factor);
            break;
        }
    }
}

/* Rank 0's operand, to which the others are folded. */
static void data_first_operand(const struct perf_case *data, const int64_t *values, size_t count,
                               int64_t *total)
{
    int64_t factor = data->op == PERF_MULSUM ? perf_mulsum_factor(0) : 1;
    for (size_t i = 0; i < count; i++) {
        total[i] = (int64_t)((uint64_t)values[i] * (uint64_t)factor);
    }
}

static void data_finish(const struct perf_case *data, int64_t *total, size_t count, void *dst)
{
    bool real = formats[data->type].kind == NUMBER_FLOAT;
    if (data->op == HOOP_AVG && real) {
        data_store_averages(data, total, count, dst);
        return;
    }
    for (size_t i = 0; data->op == HOOP_AVG && i < count; i++) {
        int64_t sum = data_wrap(data->type, (uint64_t)total[i]);
        total[i] = data->type == HOOP_UINT64 ? (int64_t)((uint64_t)sum / (uint64_t)data->nranks)
                                             : sum / data->nranks;
    }
    perf_data_store(data->type, total, count, dst);
}

void perf_data_reduced(const struct perf_case *data, size_t first, size_t count, void *dst)
{
    uint64_t keys[BLOCK];
    int64_t values[BLOCK];
    int64_t total[BLOCK];
    for (size_t done = 0; done < count;) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        data_keys(data, first + done, n, keys);
        data_values(data, 0, keys, n, values);
        data_first_operand(data, values, n, total);
        for (int rank = 1; rank < data->nranks; rank++) {
            data_values(data, rank, keys, n, values);
            data_fold(data, rank, total, values, n);
        }
        data_finish(data, total, n, (char *)dst + done * perf_type_bytes(data->type));
        done += n;
    }
}

/* ---- Comparing ---------------------------------------------------------------------------- */

/*
 * A product with the rounded 1/n is at most two units away from the division. The narrow types are
 * averaged in fp32 and rounded once more, where that can only tip a tie.
 */
unsigned perf_data_tolerance(const struct perf_case *data)
{
    bool power_of_two = (data->nranks & (data->nranks - 1)) == 0;
    if (data->op != HOOP_AVG || formats[data->type].kind != NUMBER_FLOAT || power_of_two) {
        return 0;
    }
    return perf_type_bytes(data->type) >= 4 ? 2 : 1;
}

/* Floating point bits as a number line: neighbours differ by one, -0 and +0 are the same point. */
static uint64_t data_line(const char *element, size_t bytes)
{
    const uint64_t middle = (uint64_t)1 << 63;
    uint64_t bits = 0;
    memcpy(&bits, element, bytes); /* little endian, as every machine that hoop runs on */
    uint64_t sign = (uint64_t)1 << (bytes * 8 - 1);
    return (bits & sign) ? middle - (bits & ~sign) : middle + bits;
}

size_t perf_data_wrong(const struct perf_case *data, const void *got, const void *want,
                       size_t count)
{
    size_t bytes = perf_type_bytes(data->type);
    if (memcmp(got, want, count * bytes) == 0) {
        return 0;
    }
    unsigned tolerance = perf_data_tolerance(data);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        const char *a = (const char *)got + i * bytes;
        const char *b = (const char *)want + i * bytes;
        if (memcmp(a, b, bytes) == 0) {
            continue;
        }
        uint64_t at = data_line(a, bytes);
        uint64_t goal = data_line(b, bytes);
        uint64_t distance = at > goal ? at - goal : goal - at;
        wrong += tolerance == 0 || distance > tolerance;
    }
    return wrong;
}

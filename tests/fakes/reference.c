/*
 * See reference.h. Floats are decoded to double, and encoded by scaling with powers of two, which
 * is exact, and rounding to an integer. Additions and multiplications are the compiler's, on float
 * (fp64: on double). Build with -ffp-contract=off.
 */
#include "fakes/reference.h"
#include "harness/splitmix.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* ---- Elements in memory ---- */

struct ref_type {
    uint64_t nan;
    uint64_t exact; /* integers up to here are exact; tests need no larger ones */
    unsigned bytes;
    unsigned mantissa; /* bits; 0: an integer type */
    unsigned exponent; /* bits */
    bool is_signed;
    bool has_inf;   /* otherwise the code with all ones is NaN, and there is no infinity */
    bool saturates; /* too large values become the largest finite number */
};

static const struct ref_type ref_types[HOOP_NUM_DATATYPES] = {
    [HOOP_INT8] = {.bytes = 1, .is_signed = true, .exact = 127},
    [HOOP_UINT8] = {.bytes = 1, .exact = 255},
    [HOOP_INT32] = {.bytes = 4, .is_signed = true, .exact = 1 << 24},
    [HOOP_UINT32] = {.bytes = 4, .exact = 1 << 24},
    [HOOP_INT64] = {.bytes = 8, .is_signed = true, .exact = 1 << 24},
    [HOOP_UINT64] = {.bytes = 8, .exact = 1 << 24},
    [HOOP_FLOAT16] = {0x7e00, 2048, 2, 10, 5, true, true, false},
    [HOOP_FLOAT32] = {0x7fc00000, 1 << 24, 4, 23, 8, true, true, false},
    [HOOP_FLOAT64] = {0x7ff8000000000000, 1 << 24, 8, 52, 11, true, true, false},
    [HOOP_BFLOAT16] = {0x7fc0, 256, 2, 7, 8, true, true, false},
    [HOOP_FLOAT8E4M3] = {0x7f, 16, 1, 3, 4, true, false, true},
    [HOOP_FLOAT8E5M2] = {0x7f, 8, 1, 2, 5, true, true, true},
};

static bool is_float(const struct ref_type *t)
{
    return t->mantissa != 0;
}

/* An element's bits. All machines that hoop runs on are little-endian. */
static uint64_t get_code(const struct ref_type *t, const void *buf, size_t i)
{
    uint64_t code = 0;
    memcpy(&code, (const unsigned char *)buf + i * t->bytes, t->bytes);
    return code;
}

static void put_code(const struct ref_type *t, void *buf, size_t i, uint64_t code)
{
    memcpy((unsigned char *)buf + i * t->bytes, &code, t->bytes);
}

/* ---- Floats: code to number and back ---- */

static uint64_t sign_code(const struct ref_type *t)
{
    return UINT64_C(1) << (t->mantissa + t->exponent);
}

/* The code of infinity, for types that have it: exponent all ones, mantissa zero. */
static uint64_t inf_code(const struct ref_type *t)
{
    return ((UINT64_C(1) << t->exponent) - 1) << t->mantissa;
}

static uint64_t largest_code(const struct ref_type *t)
{
    return t->has_inf ? inf_code(t) - 1 : sign_code(t) - 2;
}

static int bias(const struct ref_type *t)
{
    return (1 << (t->exponent - 1)) - 1;
}

static double decode(const struct ref_type *t, uint64_t code)
{
    const double sign = (code & sign_code(t)) != 0 ? -1.0 : 1.0;
    const uint64_t magnitude = code & (sign_code(t) - 1);
    const uint64_t one = UINT64_C(1) << t->mantissa;
    const uint64_t fraction = magnitude & (one - 1);
    const int exponent = (int)(magnitude >> t->mantissa);
    if (magnitude > largest_code(t)) {
        return t->has_inf && fraction == 0 ? sign * (double)INFINITY : (double)NAN;
    }
    if (exponent == 0) {
        return sign * ldexp((double)fraction, 1 - bias(t) - (int)t->mantissa);
    }
    return sign * ldexp((double)(one + fraction), exponent - bias(t) - (int)t->mantissa);
}

/* The nearest integer to x >= 0; of two, the even one. */
static double round_even(double x)
{
    const double below = floor(x);
    const double rest = x - below;
    if (rest > 0.5 || (rest == 0.5 && fmod(below, 2) != 0)) {
        return below + 1;
    }
    return below;
}

/* x is measured in units of the last place of its exponent (of the lowest one, for subnormals);
 * codes count these units through all exponents. */
static uint64_t encode(const struct ref_type *t, double x)
{
    if (isnan(x)) {
        return t->nan;
    }
    const uint64_t sign = signbit(x) ? sign_code(t) : 0;
    const uint64_t overflow = t->saturates ? largest_code(t) : inf_code(t);
    if (isinf(x)) {
        return sign | overflow;
    }
    int exponent;
    frexp(x, &exponent);
    exponent -= 1; /* frexp's fraction is below 1 */
    const int lowest = 1 - bias(t);
    if (exponent < lowest || x == 0) {
        exponent = lowest;
    }
    const uint64_t units = (uint64_t)round_even(ldexp(fabs(x), (int)t->mantissa - exponent));
    const uint64_t code = ((uint64_t)(exponent - lowest) << t->mantissa) + units;
    return sign | (code > largest_code(t) ? overflow : code);
}

/* ---- The operations ---- */

static double minimum(double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return (double)NAN;
    }
    if (a == b) {
        return signbit(a) ? a : b;
    }
    return a < b ? a : b;
}

static double fold_doubles(hoop_red_op_t op, double a, double b)
{
    switch (op) {
    case HOOP_PROD:
        return a * b;
    case HOOP_MAX:
        return -minimum(-a, -b);
    case HOOP_MIN:
        return minimum(a, b);
    default:
        return a + b;
    }
}

static float fold_floats(hoop_red_op_t op, float a, float b)
{
    switch (op) {
    case HOOP_PROD:
        return a * b;
    case HOOP_MAX:
    case HOOP_MIN:
        return (float)fold_doubles(op, (double)a, (double)b);
    default:
        return a + b;
    }
}

/* The number in the low bits of code, sign-extended to 64 bits. */
static uint64_t extend(const struct ref_type *t, uint64_t code)
{
    const unsigned bits = 8 * t->bytes;
    if (bits == 64) {
        return code;
    }
    const uint64_t range = UINT64_C(1) << bits;
    const uint64_t value = code % range;
    return t->is_signed && value >= range / 2 ? value - range : value;
}

static uint64_t fold_integers(const struct ref_type *t, hoop_red_op_t op, uint64_t a, uint64_t b)
{
    const bool less = t->is_signed ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case HOOP_PROD:
        return a * b;
    case HOOP_MAX:
        return less ? b : a;
    case HOOP_MIN:
        return less ? a : b;
    default:
        return a + b;
    }
}

static uint64_t fold_integer_element(const struct ref_type *t, hoop_red_op_t op, uint32_t divisor,
                                     const void *const *src, unsigned n_src, size_t i)
{
    uint64_t x = extend(t, get_code(t, src[0], i));
    for (unsigned s = 1; s < n_src; s++) {
        x = extend(t, fold_integers(t, op, x, extend(t, get_code(t, src[s], i))));
    }
    if (divisor == 0) {
        return x;
    }
    return t->is_signed ? (uint64_t)((int64_t)x / (int64_t)divisor) : x / divisor;
}

static uint64_t fold_float_element(const struct ref_type *t, hoop_red_op_t op, uint32_t divisor,
                                   const void *const *src, unsigned n_src, size_t i)
{
    float x = (float)decode(t, get_code(t, src[0], i));
    for (unsigned s = 1; s < n_src; s++) {
        x = fold_floats(op, x, (float)decode(t, get_code(t, src[s], i)));
    }
    if (divisor != 0) {
        const float reciprocal = 1.0F / (float)divisor;
        x = x * reciprocal;
    }
    return encode(t, (double)x);
}

static uint64_t fold_double_element(const struct ref_type *t, hoop_red_op_t op, uint32_t divisor,
                                    const void *const *src, unsigned n_src, size_t i)
{
    double x = decode(t, get_code(t, src[0], i));
    for (unsigned s = 1; s < n_src; s++) {
        x = fold_doubles(op, x, decode(t, get_code(t, src[s], i)));
    }
    if (divisor != 0) {
        const double reciprocal = 1.0 / (double)divisor;
        x = x * reciprocal;
    }
    return encode(t, x);
}

void reference_fold(hoop_datatype_t type, hoop_red_op_t op, uint32_t divisor,
                    const void *const *src, unsigned n_src, size_t count, void *dst)
{
    const struct ref_type *t = &ref_types[type];
    for (size_t i = 0; i < count; i++) {
        uint64_t code;
        if (n_src == 1 && divisor == 0) {
            code = get_code(t, src[0], i);
        } else if (!is_float(t)) {
            code = fold_integer_element(t, op, divisor, src, n_src, i);
        } else if (type == HOOP_FLOAT64) {
            code = fold_double_element(t, op, divisor, src, n_src, i);
        } else {
            code = fold_float_element(t, op, divisor, src, n_src, i);
        }
        put_code(t, dst, i, code);
    }
}

/* ---- Test data ---- */

static uint64_t mix(uint64_t x)
{
    return splitmix(&x);
}

static uint64_t special_float(const struct ref_type *t, uint64_t random)
{
    const uint64_t one = UINT64_C(1) << t->mantissa;
    const uint64_t codes[] = {
        0,
        1,                       /* the smallest subnormal */
        one - 1,                 /* the largest one */
        one,                     /* the smallest normal */
        largest_code(t),         /**/
        largest_code(t) - 1,     /**/
        largest_code(t) + 1,     /* infinity or NaN */
        t->nan,                  /**/
        sign_code(t) - 1,        /* NaN, all ones */
        largest_code(t) / 2 + 1, /* near 1 */
    };
    const uint64_t sign = (random >> 8) % 2 == 0 ? 0 : sign_code(t);
    return sign | codes[random % (sizeof(codes) / sizeof(codes[0]))];
}

static uint64_t special_integer(const struct ref_type *t, uint64_t random)
{
    const uint64_t top = UINT64_C(1) << (8 * t->bytes - 1);
    const uint64_t codes[] = {0, 1, top, top - 1, top + 1, UINT64_MAX, UINT64_MAX - 1};
    return codes[random % (sizeof(codes) / sizeof(codes[0]))];
}

static uint64_t any_code(const struct ref_type *t, uint64_t random)
{
    const unsigned kind = (unsigned)(random >> 60);
    const int small = (int)(random % 17) - 8;
    if (kind < 1) {
        return is_float(t) ? special_float(t, random) : special_integer(t, random);
    }
    if (kind < 3) {
        return random; /* arbitrary bits */
    }
    if (!is_float(t)) {
        return kind < 9 ? random : (uint64_t)(int64_t)small;
    }
    if (kind < 9) {
        return encode(t, small);
    }
    const double around_one = ldexp((double)(random >> 12 & 0xffffffff), -32) * 4 - 2;
    return encode(t, around_one);
}

void reference_fill(hoop_datatype_t type, void *buf, size_t count, uint64_t seed)
{
    const struct ref_type *t = &ref_types[type];
    for (size_t i = 0; i < count; i++) {
        put_code(t, buf, i, any_code(t, mix(mix(seed) + i)));
    }
}

/*
 * Sums: if n is small every rank contributes up to exact / n. Otherwise one in each of `exact`
 * ranks contributes 1, which differs for every element. Products: two ranks contribute 2, the
 * others a sign.
 */
static int64_t exact_value(const struct ref_type *t, hoop_red_op_t op, int rank, int n,
                           uint64_t common, uint64_t random)
{
    const int64_t exact = (int64_t)t->exact;
    const int64_t turn = (int64_t)(((uint64_t)rank + common % (uint64_t)n) % (uint64_t)n);
    const int64_t sign = t->is_signed && (random & 1) != 0 ? -1 : 1;
    int64_t most = exact;
    if (op == HOOP_PROD) {
        return turn < 2 ? 2 * sign : sign;
    }
    if (op == HOOP_SUM || op == HOOP_AVG) {
        most = exact / n > 1 ? exact / n : 1;
        if (turn >= exact) {
            return 0;
        }
    }
    if (most > 100) {
        most = 100;
    }
    return sign * (int64_t)((random >> 8) % (uint64_t)(most + 1));
}

void reference_fill_exact(hoop_datatype_t type, hoop_red_op_t op, void *buf, size_t count, int rank,
                          int n, uint64_t seed)
{
    const struct ref_type *t = &ref_types[type];
    for (size_t i = 0; i < count; i++) {
        const uint64_t common = mix(mix(seed) + i);
        const uint64_t random = mix(common + (uint64_t)rank);
        const int64_t value = exact_value(t, op, rank, n, common, random);
        /* no -0, because the sign of a zero may depend on the order */
        put_code(t, buf, i, is_float(t) ? encode(t, (double)value) : (uint64_t)value);
    }
}

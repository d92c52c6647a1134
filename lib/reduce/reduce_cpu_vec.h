/*
 * One vector register of the reduction kernels: its width, what lies in its lanes, and all
 * arithmetic on it, written once in GCC's vector extension and with intrinsics only where they
 * matter. Included by reduce_cpu_tmpl.c alone, in each of its compilations.
 *
 * A vector (vec) holds elements in the form in which they are computed: integers and fp64 as in
 * memory, the other floats widened to fp32, one per 32-bit lane. So a vec of fp16 or bf16 takes
 * half of VEC_BYTES in memory, and a vec of fp8 a quarter: that is the step of the type.
 *
 * The type and op of every function are constants after inlining: the switches disappear.
 */
#ifndef HOOP_REDUCE_CPU_VEC_H
#define HOOP_REDUCE_CPU_VEC_H

#include <string.h>

#include "hoop.h"

/* Is there a vector instruction that converts fp16? */
#if defined(__F16C__)
#include <immintrin.h>
#define CONVERTS_F16 1
#elif defined(__aarch64__)
#include <arm_neon.h>
#define CONVERTS_F16 1
#else
#define CONVERTS_F16 0
#endif

#if defined(__FAST_MATH__)
#error "the reductions promise exact bits: build without -ffast-math"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "the reductions need float arithmetic without excess precision (x86: -mfpmath=sse)"
#endif

#if defined(__AVX512F__)
#define VEC_BYTES 64
#elif defined(__AVX2__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif
#define LANES (VEC_BYTES / 4)
#define INLINE inline __attribute__((always_inline))
#define VECTOR(bytes) __attribute__((vector_size(bytes)))
#define UNALIGNED __attribute__((aligned(1), may_alias))

typedef uint32_t vec VECTOR(VEC_BYTES);
typedef int8_t vec_i8 VECTOR(VEC_BYTES);
typedef uint8_t vec_u8 VECTOR(VEC_BYTES);
typedef int32_t vec_i32 VECTOR(VEC_BYTES);
typedef int64_t vec_i64 VECTOR(VEC_BYTES);
typedef uint64_t vec_u64 VECTOR(VEC_BYTES);
typedef float vec_f32 VECTOR(VEC_BYTES);
typedef double vec_f64 VECTOR(VEC_BYTES);

typedef vec vec_mem UNALIGNED;

static INLINE vec select_bits(vec mask, vec yes, vec no)
{
    return (mask & yes) | (~mask & no);
}

/* ---- Formats narrower than fp32 ---- */

#define F32_ABS 0x7fffffffu
#define F32_INF 0x7f800000u
#define F32_NAN 0x7fc00000u
#define F32_MANTISSA 23
#define F32_BIAS 127

/* A format of sign, exponent and mantissa. The codes in it are without the sign. */
struct format {
    unsigned bits;
    unsigned mantissa;
    unsigned bias;
    uint32_t special;  /* codes from here up are infinity or NaN */
    uint32_t largest;  /* the code of the largest finite number */
    uint32_t overflow; /* the code for anything larger */
    uint32_t nan;
};

#if !CONVERTS_F16
static const struct format format_f16 = {16, 10, 15, 0x7c00, 0x7bff, 0x7c00, 0x7e00};
#endif
static const struct format format_e4m3 = {8, 3, 7, 0x7f, 0x7e, 0x7e, 0x7f};
static const struct format format_e5m2 = {8, 2, 15, 0x7c, 0x7b, 0x7b, 0x7f};

static INLINE vec_f32 splat_f32(uint32_t bits)
{
    return (vec_f32)((vec){0} + bits);
}

/* Moves mantissa and exponent to their places and corrects the bias. A subnormal is computed as the
 * normal number with the same mantissa and the lowest exponent, minus its implicit one: exact. */
static INLINE vec widen(vec code, const struct format *f)
{
    const unsigned shift = F32_MANTISSA - f->mantissa;
    const uint32_t lowest = (F32_BIAS - f->bias + 1) << F32_MANTISSA;
    const vec magnitude = code & ((1u << (f->bits - 1)) - 1);
    const vec sign = (code ^ magnitude) << (32 - f->bits);
    const vec moved = magnitude << shift;
    const vec normal = moved + ((F32_BIAS - f->bias) << F32_MANTISSA);
    const vec subnormal = (vec)((vec_f32)(moved + lowest) - splat_f32(lowest));
    const vec is_subnormal = (vec)((vec_i32)magnitude < (int32_t)(1u << f->mantissa));
    const vec is_special = (vec)((vec_i32)magnitude >= (int32_t)f->special);
    return select_bits(is_subnormal, subnormal, normal) | (is_special & F32_INF) | sign;
}

/* Rounds to nearest, ties to even. Normal numbers: adds just under half of the last place (half, if
 * that is odd); a carry into the exponent is right. Subnormals: adds the power of two whose last
 * place is that of the subnormals, so that the FPU rounds there. */
static INLINE vec narrow(vec x, const struct format *f)
{
    const unsigned shift = F32_MANTISSA - f->mantissa;
    const uint32_t lowest = (F32_BIAS - f->bias + 1) << F32_MANTISSA;
    const uint32_t rounder = lowest + ((F32_MANTISSA - f->mantissa) << F32_MANTISSA);
    const vec magnitude = x & F32_ABS;
    const vec sign = (x ^ magnitude) >> (32 - f->bits);
    const vec odd = (magnitude >> shift) & 1;
    const vec rounded = (magnitude + ((1u << (shift - 1)) - 1) + odd) >> shift;
    const vec normal = rounded - ((F32_BIAS - f->bias) << f->mantissa);
    const vec subnormal = (vec)((vec_f32)magnitude + splat_f32(rounder)) - rounder;
    const vec is_subnormal = (vec)((vec_i32)magnitude < (int32_t)lowest);
    const vec is_nan = (vec)((vec_i32)magnitude > (int32_t)F32_INF);
    vec code = select_bits(is_subnormal, subnormal, normal);
    const vec is_over = (vec)((vec_i32)code > (int32_t)f->largest);
    code = select_bits(is_over, (vec){0} + f->overflow, code) | sign;
    return select_bits(is_nan, (vec){0} + f->nan, code);
}

static INLINE vec narrow_bf16(vec x)
{
    const vec is_nan = (vec)((vec_i32)(x & F32_ABS) > (int32_t)F32_INF);
    const vec rounded = (x + 0x7fffu + ((x >> 16) & 1)) >> 16;
    return select_bits(is_nan, (vec){0} + (F32_NAN >> 16), rounded);
}

/* ---- Lanes to and from memory ---- */

/* store_16 and store_8: the lanes hold no more than fits. */
#if defined(__AVX512F__)
static INLINE vec load_16(const unsigned char *p)
{
    return (vec)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)p));
}

static INLINE vec load_8(const unsigned char *p)
{
    return (vec)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)p));
}

static INLINE void store_16(unsigned char *p, vec x)
{
    _mm256_storeu_si256((__m256i_u *)p, _mm512_cvtepi32_epi16((__m512i)x));
}

static INLINE void store_8(unsigned char *p, vec x)
{
    _mm_storeu_si128((__m128i_u *)p, _mm512_cvtepi32_epi8((__m512i)x));
}

static INLINE vec load_f16(const unsigned char *p)
{
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)p));
}

static INLINE void store_f16(unsigned char *p, vec x)
{
    _mm256_storeu_si256((__m256i_u *)p, _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__AVX2__)
static INLINE vec load_16(const unsigned char *p)
{
    return (vec)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)p));
}

static INLINE vec load_8(const unsigned char *p)
{
    return (vec)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i_u *)p));
}

static INLINE void store_16(unsigned char *p, vec x)
{
    const __m128i low = _mm256_castsi256_si128((__m256i)x);
    const __m128i high = _mm256_extracti128_si256((__m256i)x, 1);
    _mm_storeu_si128((__m128i_u *)p, _mm_packus_epi32(low, high));
}

static INLINE void store_8(unsigned char *p, vec x)
{
    const __m128i low = _mm256_castsi256_si128((__m256i)x);
    const __m128i high = _mm256_extracti128_si256((__m256i)x, 1);
    const __m128i words = _mm_packus_epi32(low, high);
    _mm_storel_epi64((__m128i_u *)p, _mm_packus_epi16(words, words));
}

static INLINE vec load_f16(const unsigned char *p)
{
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)p));
}

static INLINE void store_f16(unsigned char *p, vec x)
{
    _mm_storeu_si128((__m128i_u *)p, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__aarch64__)
static INLINE vec load_16(const unsigned char *p)
{
    return (vec)vmovl_u16(vreinterpret_u16_u8(vld1_u8(p)));
}

static INLINE vec load_8(const unsigned char *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof(four));
    return (vec)vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)))));
}

static INLINE void store_16(unsigned char *p, vec x)
{
    vst1_u8(p, vreinterpret_u8_u16(vmovn_u32((uint32x4_t)x)));
}

static INLINE void store_8(unsigned char *p, vec x)
{
    const uint16x4_t words = vmovn_u32((uint32x4_t)x);
    const uint32_t four =
        vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(words, words))), 0);
    memcpy(p, &four, sizeof(four));
}

static INLINE vec load_f16(const unsigned char *p)
{
    return (vec)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

static INLINE void store_f16(unsigned char *p, vec x)
{
    vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32((float32x4_t)x)));
}
#else
typedef uint16_t narrow16 VECTOR(LANES * 2);
typedef uint8_t narrow8 VECTOR(LANES);
typedef narrow16 narrow16_mem UNALIGNED;
typedef narrow8 narrow8_mem UNALIGNED;

static INLINE vec load_16(const unsigned char *p)
{
    return __builtin_convertvector(*(const narrow16_mem *)p, vec);
}

static INLINE vec load_8(const unsigned char *p)
{
    return __builtin_convertvector(*(const narrow8_mem *)p, vec);
}

static INLINE void store_16(unsigned char *p, vec x)
{
    *(narrow16_mem *)p = __builtin_convertvector(x, narrow16);
}

static INLINE void store_8(unsigned char *p, vec x)
{
    *(narrow8_mem *)p = __builtin_convertvector(x, narrow8);
}
#endif

/* ---- One vec: load, fold, finish, store ---- */

static INLINE size_t type_step(hoop_datatype_t type)
{
    switch (type) {
    case HOOP_FLOAT8E4M3:
    case HOOP_FLOAT8E5M2:
        return VEC_BYTES / 4;
    case HOOP_FLOAT16:
    case HOOP_BFLOAT16:
        return VEC_BYTES / 2;
    default:
        return VEC_BYTES;
    }
}

static INLINE vec load(hoop_datatype_t type, const unsigned char *p)
{
    switch (type) {
    case HOOP_FLOAT16:
#if CONVERTS_F16
        return load_f16(p);
#else
        return widen(load_16(p), &format_f16);
#endif
    case HOOP_BFLOAT16:
        return load_16(p) << 16;
    case HOOP_FLOAT8E4M3:
        return widen(load_8(p), &format_e4m3);
    case HOOP_FLOAT8E5M2:
        return widen(load_8(p), &format_e5m2);
    default:
        return *(const vec_mem *)p;
    }
}

static INLINE vec add(hoop_datatype_t type, vec a, vec b)
{
    switch (type) {
    case HOOP_INT8:
    case HOOP_UINT8:
        return (vec)((vec_u8)a + (vec_u8)b);
    case HOOP_INT32:
    case HOOP_UINT32:
        return a + b;
    case HOOP_INT64:
    case HOOP_UINT64:
        return (vec)((vec_u64)a + (vec_u64)b);
    case HOOP_FLOAT64:
        return (vec)((vec_f64)a + (vec_f64)b);
    default:
        return (vec)((vec_f32)a + (vec_f32)b);
    }
}

static INLINE vec multiply(hoop_datatype_t type, vec a, vec b)
{
    switch (type) {
    case HOOP_INT8:
    case HOOP_UINT8:
        return (vec)((vec_u8)a * (vec_u8)b);
    case HOOP_INT32:
    case HOOP_UINT32:
        return a * b;
    case HOOP_INT64:
    case HOOP_UINT64:
        return (vec)((vec_u64)a * (vec_u64)b);
    case HOOP_FLOAT64:
        return (vec)((vec_f64)a * (vec_f64)b);
    default:
        return (vec)((vec_f32)a * (vec_f32)b);
    }
}

/* All ones in the lanes where a < b. */
static INLINE vec less(hoop_datatype_t type, vec a, vec b)
{
    switch (type) {
    case HOOP_INT8:
        return (vec)((vec_i8)a < (vec_i8)b);
    case HOOP_UINT8:
        return (vec)((vec_u8)a < (vec_u8)b);
    case HOOP_INT32:
        return (vec)((vec_i32)a < (vec_i32)b);
    case HOOP_UINT32:
        return (vec)(a < b);
    case HOOP_INT64:
        return (vec)((vec_i64)a < (vec_i64)b);
    case HOOP_UINT64:
        return (vec)((vec_u64)a < (vec_u64)b);
    case HOOP_FLOAT64:
        return (vec)((vec_f64)a < (vec_f64)b);
    default:
        return (vec)((vec_f32)a < (vec_f32)b);
    }
}

static INLINE vec equal(hoop_datatype_t type, vec a, vec b)
{
    if (type == HOOP_FLOAT64) {
        return (vec)((vec_f64)a == (vec_f64)b);
    }
    return (vec)((vec_f32)a == (vec_f32)b);
}

/* Floats: if neither is less they are equal, or one is NaN. a | b is NaN if one of them is, and -0
 * for zeros of both signs; a & b is +0 for those. */
static INLINE vec minimum(hoop_datatype_t type, vec a, vec b)
{
    if (type < HOOP_FLOAT16) {
        return select_bits(less(type, a, b), a, b);
    }
    return select_bits(less(type, a, b), a, select_bits(less(type, b, a), b, a | b));
}

static INLINE vec maximum(hoop_datatype_t type, vec a, vec b)
{
    if (type < HOOP_FLOAT16) {
        return select_bits(less(type, a, b), b, a);
    }
    const vec neither = select_bits(equal(type, a, b), a & b, a | b);
    return select_bits(less(type, a, b), b, select_bits(less(type, b, a), a, neither));
}

static INLINE vec fold_pair(hoop_datatype_t type, hoop_red_op_t op, vec a, vec b)
{
    switch (op) {
    case HOOP_PROD:
        return multiply(type, a, b);
    case HOOP_MAX:
        return maximum(type, a, b);
    case HOOP_MIN:
        return minimum(type, a, b);
    default:
        return add(type, a, b);
    }
}

/* Makes NaNs canonical and rounds to a narrower type; the result still has one element per lane. */
static INLINE vec finish(hoop_datatype_t type, vec x)
{
    switch (type) {
    case HOOP_FLOAT16: /* if an instruction converts it the store rounds */
#if !CONVERTS_F16
        return narrow(x, &format_f16);
#endif
    case HOOP_FLOAT32:
        return select_bits(equal(type, x, x), x, (vec){0} + F32_NAN);
    case HOOP_FLOAT64:
        return select_bits(equal(type, x, x), x, (vec)((vec_u64){0} + ((uint64_t)0x7ff8 << 48)));
    case HOOP_BFLOAT16:
        return narrow_bf16(x);
    case HOOP_FLOAT8E4M3:
        return narrow(x, &format_e4m3);
    case HOOP_FLOAT8E5M2:
        return narrow(x, &format_e5m2);
    default:
        return x;
    }
}

static INLINE void store(hoop_datatype_t type, unsigned char *p, vec x)
{
    switch (type) {
    case HOOP_FLOAT16:
#if CONVERTS_F16
        store_f16(p, x);
        break;
#endif
    case HOOP_BFLOAT16:
        store_16(p, x);
        break;
    case HOOP_FLOAT8E4M3:
    case HOOP_FLOAT8E5M2:
        store_8(p, x);
        break;
    default:
        *(vec_mem *)p = x;
        break;
    }
}

/* ---- Less than a vec ---- */

#if defined(__AVX512BW__)
static INLINE vec bytes_in(const unsigned char *p, size_t bytes)
{
    return (vec)_mm512_maskz_loadu_epi8(((__mmask64)1 << bytes) - 1, p);
}
#elif defined(__x86_64__) || (defined(__aarch64__) && defined(__AARCH64EL__))
/* The 8 bytes at offset `at` of p, which has `bytes` bytes; zeros beyond those. Uses two loads that
 * may overlap. */
static INLINE uint64_t word_in(const unsigned char *p, size_t bytes, size_t at)
{
    const size_t left = bytes > at ? bytes - at : 0;
    uint64_t word = 0;
    uint32_t half[2];
    uint16_t quarter[2];
    if (left >= 8) {
        memcpy(&word, p + at, 8);
    } else if (left >= 4) {
        memcpy(&half[0], p + at, 4);
        memcpy(&half[1], p + bytes - 4, 4);
        word = half[0] | (uint64_t)half[1] << (8 * (left - 4));
    } else if (left >= 2) {
        memcpy(&quarter[0], p + at, 2);
        memcpy(&quarter[1], p + bytes - 2, 2);
        word = quarter[0] | (uint64_t)quarter[1] << (8 * (left - 2));
    } else if (left == 1) {
        word = p[at];
    }
    return word;
}

/* Built in registers: a vector load from memory that was just written in words would have to wait
 * for these stores. Not inlined, because that would only make every kernel longer. */
static __attribute__((noinline)) vec bytes_in(const unsigned char *p, size_t bytes)
{
    const vec_u64 words = {
        word_in(p, bytes, 0),
        word_in(p, bytes, 8),
#if VEC_BYTES > 16
        word_in(p, bytes, 16),
        word_in(p, bytes, 24),
#endif
    };
    return (vec)words;
}
#else
static INLINE vec bytes_in(const unsigned char *p, size_t bytes)
{
    vec x = {0};
    memcpy(&x, p, bytes);
    return x;
}
#endif

static INLINE vec load_part(hoop_datatype_t type, const unsigned char *p, size_t bytes)
{
    const vec padded = bytes_in(p, bytes);
    return load(type, (const unsigned char *)&padded);
}

/* A memcpy of a constant size is a move; a memcpy of `bytes` would be a call. */
static INLINE void bytes_out(unsigned char *p, const unsigned char *from, size_t bytes)
{
#if VEC_BYTES > 32
    if (bytes & 32) {
        memcpy(p, from, 32);
        p += 32;
        from += 32;
    }
#endif
    if (bytes & 16) {
        memcpy(p, from, 16);
        p += 16;
        from += 16;
    }
    if (bytes & 8) {
        memcpy(p, from, 8);
        p += 8;
        from += 8;
    }
    if (bytes & 4) {
        memcpy(p, from, 4);
        p += 4;
        from += 4;
    }
    if (bytes & 2) {
        memcpy(p, from, 2);
        p += 2;
        from += 2;
    }
    if (bytes & 1) {
        *p = *from;
    }
}

#endif

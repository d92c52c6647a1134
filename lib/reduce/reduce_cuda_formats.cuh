/*
 * How the kernels of reduce_cuda.cu load, store and convert: packs of 16 bytes, and formats
 * narrower than fp32, by bit operations or by the device's own instructions. Only reduce_cuda.cu
 * includes it: it defines INLINE before, and cuda_on_cpu.h defines replacements for a CPU.
 */
#ifndef HOOP_REDUCE_CUDA_FORMATS_CUH
#define HOOP_REDUCE_CUDA_FORMATS_CUH

#include "reduce/reduce_cuda.h"

/* What a thread loads and stores at once. */
struct pack {
    uint32_t w[4];
};

#define PACK_BYTES 16

/* ---- Formats narrower than fp32, by bits: see widen() and narrow() in reduce_cpu_vec.h ---- */

#define F32_ABS 0x7fffffffu
#define F32_INF 0x7f800000u
#define F32_NAN 0x7fc00000u
#define F32_MANTISSA 23
#define F32_BIAS 127

struct format {
    uint32_t bits;
    uint32_t mantissa;
    uint32_t bias;
    uint32_t special;  /* codes from here up are infinity or NaN */
    uint32_t largest;  /* the code of the largest finite number */
    uint32_t overflow; /* the code for anything larger */
    uint32_t nan;
};

INLINE struct format format_of(hoop_datatype_t type)
{
    const struct format f16 = {16, 10, 15, 0x7c00, 0x7bff, 0x7c00, 0x7e00};
    const struct format e4m3 = {8, 3, 7, 0x7f, 0x7e, 0x7e, 0x7f};
    const struct format e5m2 = {8, 2, 15, 0x7c, 0x7b, 0x7b, 0x7f};
    return type == HOOP_FLOAT16 ? f16 : type == HOOP_FLOAT8E4M3 ? e4m3 : e5m2;
}

INLINE uint32_t widen_bits(hoop_datatype_t type, uint32_t code)
{
    const struct format f = format_of(type);
    const uint32_t shift = F32_MANTISSA - f.mantissa;
    const uint32_t lowest = (F32_BIAS - f.bias + 1) << F32_MANTISSA;
    const uint32_t magnitude = code & ((1u << (f.bits - 1)) - 1);
    const uint32_t sign = (code ^ magnitude) << (32 - f.bits);
    const uint32_t moved = magnitude << shift;
    const float subnormal = __fadd_rn(__uint_as_float(moved + lowest), -__uint_as_float(lowest));
    uint32_t x = moved + ((F32_BIAS - f.bias) << F32_MANTISSA);
    x = magnitude < 1u << f.mantissa ? __float_as_uint(subnormal) : x;
    x = magnitude >= f.special ? x | F32_INF : x;
    return x | sign;
}

/* x must not be a NaN. */
INLINE uint32_t narrow_bits(hoop_datatype_t type, uint32_t x)
{
    const struct format f = format_of(type);
    const uint32_t shift = F32_MANTISSA - f.mantissa;
    const uint32_t lowest = (F32_BIAS - f.bias + 1) << F32_MANTISSA;
    const uint32_t rounder = lowest + ((F32_MANTISSA - f.mantissa) << F32_MANTISSA);
    const uint32_t magnitude = x & F32_ABS;
    const uint32_t sign = (x ^ magnitude) >> (32 - f.bits);
    const uint32_t odd = magnitude >> shift & 1;
    const uint32_t rounded = (magnitude + ((1u << (shift - 1)) - 1) + odd) >> shift;
    const float subnormal = __fadd_rn(__uint_as_float(magnitude), __uint_as_float(rounder));
    uint32_t code = rounded - ((F32_BIAS - f.bias) << f.mantissa);
    code = magnitude < lowest ? __float_as_uint(subnormal) - rounder : code;
    code = code > f.largest ? f.overflow : code;
    return code | sign;
}

/* ---- Conversions for which the device has instructions ---- */

/* pair_of_*: two floats to two codes in one word, `low` in the lower half. They must not be NaNs,
 * except for pair_of_f8() with F8_HAS_NAN. f16_wide() is exact. */
#ifdef __CUDACC__
INLINE uint32_t pair_of_f16(uint32_t low, uint32_t high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;"
        : "=r"(pair)
        : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
    return pair;
}

INLINE uint32_t pair_of_bf16(uint32_t low, uint32_t high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
        : "=r"(pair)
        : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
    return pair;
}

INLINE uint32_t f16_wide(uint32_t code)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)code));
    return __float_as_uint(x);
}

/* Plain accesses: with hints that each byte is used once, an H200 moves a tenth less. The
 * assumption is for kernels that are told addresses, which the compiler would not know to be global
 * memory. */
INLINE struct pack pack_load(const unsigned char *p)
{
    __builtin_assume(__isGlobal(p));
    const uint4 v = *(const uint4 *)p;
    const struct pack x = {{v.x, v.y, v.z, v.w}};
    return x;
}

INLINE void pack_store(unsigned char *p, struct pack x)
{
    __builtin_assume(__isGlobal(p));
    *(uint4 *)p = make_uint4(x.w[0], x.w[1], x.w[2], x.w[3]);
}
#else
INLINE uint32_t pair_of_f16(uint32_t low, uint32_t high)
{
    return narrow_bits(HOOP_FLOAT16, low) | narrow_bits(HOOP_FLOAT16, high) << 16;
}

INLINE uint32_t pair_of_bf16(uint32_t low, uint32_t high)
{
    return (low + 0x7fffu + (low >> 16 & 1)) >> 16 |
           ((high + 0x7fffu + (high >> 16 & 1)) & 0xffff0000u);
}

INLINE uint32_t f16_wide(uint32_t code)
{
    return widen_bits(HOOP_FLOAT16, code);
}

INLINE struct pack pack_load(const unsigned char *p)
{
    struct pack x;
    on_cpu_load_16(&x, p);
    return x;
}

INLINE void pack_store(unsigned char *p, struct pack x)
{
    on_cpu_store_16(p, &x);
}
#endif

/* ---- Sums of two words of several numbers each ---- */

/*
 * The sum of two numbers of p bits, rounded to at least 2 p + 2 bits and then to p bits, equals the
 * sum rounded to p bits at once (Figueroa, When is double rounding innocuous?, 1995). So the
 * device's own additions give the same bits as additions in fp32: those of fp16 and bf16, and those
 * of fp16 for both formats of fp8. Only their NaN differs: it is 0x7fff.
 */
#ifdef __CUDA_ARCH__
INLINE bool has_narrow_sum(hoop_datatype_t type)
{
    return type == HOOP_FLOAT16 || type == HOOP_BFLOAT16 ||
           (__CUDA_ARCH__ >= 890 && (type == HOOP_FLOAT8E4M3 || type == HOOP_FLOAT8E5M2));
}

/* Replaces NaNs of 0x7fff in a pair by the type's NaN, which is smaller by `below`. */
INLINE uint32_t halves_with_nan(uint32_t pair, uint32_t below)
{
    const uint32_t nans = (pair & 0x7fff7fffu) + 0x00010001u & 0x80008000u;
    return nans == 0 ? pair : pair - (nans >> 15) * below;
}

INLINE uint32_t sum_of_f16(uint32_t a, uint32_t b)
{
    uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return halves_with_nan(sum, 0x1ff);
}

INLINE uint32_t sum_of_bf16(uint32_t a, uint32_t b)
{
    uint32_t sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b));
    return halves_with_nan(sum, 0x3f);
}

#if __CUDA_ARCH__ >= 890
INLINE uint32_t sum_of_f8_pair(hoop_datatype_t type, uint32_t a, uint32_t b)
{
    unsigned short sum;
    if (type == HOOP_FLOAT8E4M3) {
        asm("{ .reg .b32 x, y; cvt.rn.f16x2.e4m3x2 x, %1; cvt.rn.f16x2.e4m3x2 y, %2; "
            "add.rn.f16x2 x, x, y; cvt.rn.satfinite.e4m3x2.f16x2 %0, x; }"
            : "=h"(sum)
            : "h"((unsigned short)a), "h"((unsigned short)b));
    } else {
        asm("{ .reg .b32 x, y; cvt.rn.f16x2.e5m2x2 x, %1; cvt.rn.f16x2.e5m2x2 y, %2; "
            "add.rn.f16x2 x, x, y; cvt.rn.satfinite.e5m2x2.f16x2 %0, x; }"
            : "=h"(sum)
            : "h"((unsigned short)a), "h"((unsigned short)b));
    }
    return sum;
}
#else
INLINE uint32_t sum_of_f8_pair(hoop_datatype_t type, uint32_t a, uint32_t b)
{
    return 0; /* never called: see has_narrow_sum() */
}
#endif

INLINE uint32_t narrow_sum(hoop_datatype_t type, uint32_t a, uint32_t b)
{
    return type == HOOP_FLOAT16    ? sum_of_f16(a, b)
           : type == HOOP_BFLOAT16 ? sum_of_bf16(a, b)
                                   : sum_of_f8_pair(type, a & 0xffff, b & 0xffff) |
                                         sum_of_f8_pair(type, a >> 16, b >> 16) << 16;
}
#else
INLINE bool has_narrow_sum(hoop_datatype_t type)
{
    (void)type;
    return false;
}

INLINE uint32_t narrow_sum(hoop_datatype_t type, uint32_t a, uint32_t b)
{
    (void)type;
    return a + b; /* never called: see has_narrow_sum() */
}
#endif

/* Widening goes through fp16, which holds both formats of fp8 exactly. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define F8_HAS_NAN true
INLINE uint32_t pair_of_f8(hoop_datatype_t type, uint32_t low, uint32_t high)
{
    unsigned short pair;
    if (type == HOOP_FLOAT8E4M3) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
            : "=h"(pair)
            : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
    } else {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;"
            : "=h"(pair)
            : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
    }
    return pair;
}

INLINE void f8_pair_wide(hoop_datatype_t type, uint32_t pair, uint32_t *low, uint32_t *high)
{
    uint32_t halves;
    if (type == HOOP_FLOAT8E4M3) {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)pair));
    } else {
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)pair));
    }
    *low = f16_wide(halves & 0xffff);
    *high = f16_wide(halves >> 16);
}
#else
#define F8_HAS_NAN false
INLINE uint32_t pair_of_f8(hoop_datatype_t type, uint32_t low, uint32_t high)
{
    return narrow_bits(type, low) | narrow_bits(type, high) << 8;
}

INLINE void f8_pair_wide(hoop_datatype_t type, uint32_t pair, uint32_t *low, uint32_t *high)
{
    *low = widen_bits(type, pair & 0xff);
    *high = widen_bits(type, pair >> 8 & 0xff);
}
#endif

#endif

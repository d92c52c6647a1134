/*
 * The reduction kernels for CUDA devices: type x op -> kernel, n_src vectors into n_dst vectors in
 * one pass. A thread folds in registers:
 *
 *     tiles  HOOP_CUDA_FOLD_PACKS packs of 16 bytes for each thread of a block. A thread's packs
 * are as many packs apart as the block has threads, so that a warp's accesses are adjacent packs
 * what is left after the last whole tile, one for each thread loose  the elements before the first
 * pack and behind the last; or all elements, if no head brings every vector to a boundary of 16
 * bytes
 *
 * The code is written in the common subset of C11 and CUDA C++. tests/reduce/cuda_on_cpu.h makes
 * plain C of it, and the test compares every kernel with the CPU's, bit for bit. That does not
 * cover the parts of reduce_cuda_formats.cuh for __CUDACC__ and __CUDA_ARCH__.
 *
 * Invariants: no thread reads what another writes, so blocks and threads may run in any order; a
 * thread's loads precede its stores at the same place, so a dst may be a src; no shared memory is
 * used, except for what a kernel is told (HEAR); no kernel waits for anything. Additions and
 * products are never contracted.
 *
 * The type and op of every function are constants after inlining, and so are counts of lanes.
 */
#include "reduce/reduce_cuda.h"

#ifdef __CUDACC__
#define INLINE static __device__ __forceinline__
#define KERNEL extern "C" __global__
/* As many blocks on a multiprocessor as possible without spilling registers. Kernels for types of
 * one byte need most registers; for sm_80 also told sums of 4-byte types. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define TOLD_SUMS 3
#else
#define TOLD_SUMS 4
#endif
#define BOUNDS(type, bytes, op, scaled, told)                                                      \
    __launch_bounds__(HOOP_CUDA_FOLD_THREADS,                                                      \
                      (told) && (bytes) == 4 && (op) == HOOP_SUM ? TOLD_SUMS                       \
                      : (bytes) > 1                              ? 4                               \
                      : F8_HAS_NAN && (type) >= HOOP_FLOAT8E4M3 && (op) < HOOP_MAX && !(scaled)    \
                          ? 3                                                                      \
                          : 2)
#define ARGUMENT(type) const __grid_constant__ type
/* Copies what the blocks of this row are told to shared memory, once for each block: read from
 * global memory it would take registers for its addresses. */
#define HEAR(ret, told)                                                                            \
    __shared__ struct hoop_cuda_fold ret;                                                          \
    if (THREAD < HOOP_CUDA_TOLD_BYTES / sizeof(uint64_t)) {                                        \
        ((uint64_t *)&(ret))[THREAD] =                                                             \
            ((const uint64_t *)(told))[blockIdx.y * (HOOP_CUDA_TOLD_APART / sizeof(uint64_t)) +    \
                                       THREAD];                                                    \
    }                                                                                              \
    __syncthreads()
#define UNROLL _Pragma("unroll")
#define THREADS HOOP_CUDA_FOLD_THREADS
#define THREAD threadIdx.x
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#endif

#include "reduce/reduce_cuda_formats.cuh"

/* ---- A pack as lanes: a 32-bit word for each element, two for an element of 8 bytes ---- */

#define MOST_LANES 16

INLINE uint32_t type_bytes(hoop_datatype_t type)
{
    switch (type) {
    case HOOP_INT8:
    case HOOP_UINT8:
    case HOOP_FLOAT8E4M3:
    case HOOP_FLOAT8E5M2:
        return 1;
    case HOOP_FLOAT16:
    case HOOP_BFLOAT16:
        return 2;
    case HOOP_INT64:
    case HOOP_UINT64:
    case HOOP_FLOAT64:
        return 8;
    default:
        return 4;
    }
}

INLINE uint32_t type_lanes(hoop_datatype_t type)
{
    return type_bytes(type) < 4 ? PACK_BYTES / type_bytes(type) : 4;
}

INLINE uint32_t type_lanes_of_one(hoop_datatype_t type)
{
    return type_bytes(type) == 8 ? 2 : 1;
}

INLINE uint32_t byte_of(const struct pack *from, uint32_t i)
{
    return from->w[i / 4] >> (i % 4 * 8) & 0xff;
}

INLINE uint32_t half_of(const struct pack *from, uint32_t i)
{
    return from->w[i / 2] >> (i % 2 * 16) & 0xffff;
}

/* Elements of a pack to lanes. n: the lanes of the whole pack, or of its first element only. fp8 is
 * converted in pairs, so x must have room for an even number. */
INLINE void widen(hoop_datatype_t type, const struct pack *from, uint32_t *x, uint32_t n)
{
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        switch (type) {
        case HOOP_INT8:
            x[i] = (uint32_t)(int32_t)(int8_t)byte_of(from, i);
            break;
        case HOOP_UINT8:
            x[i] = byte_of(from, i);
            break;
        case HOOP_FLOAT8E4M3:
        case HOOP_FLOAT8E5M2:
            if (i % 2 == 0) {
                f8_pair_wide(type, half_of(from, i / 2), &x[i], &x[i + 1]);
            }
            break;
        case HOOP_FLOAT16:
            x[i] = f16_wide(half_of(from, i));
            break;
        case HOOP_BFLOAT16:
            x[i] = half_of(from, i) << 16;
            break;
        default:
            x[i] = from->w[i];
            break;
        }
    }
}

INLINE bool is_nan(uint32_t x)
{
    return (x & F32_ABS) > F32_INF;
}

/* Two floats as a pair of codes of 8 or 16 bits each; any NaN becomes the type's canonical one. */
INLINE uint32_t pair_of(hoop_datatype_t type, uint32_t low, uint32_t high)
{
    const uint32_t bits = type_bytes(type) * 8;
    const uint32_t mask = (1u << bits) - 1;
    const uint32_t nan = type == HOOP_BFLOAT16 ? F32_NAN >> 16 : format_of(type).nan;
    uint32_t pair = type == HOOP_FLOAT16    ? pair_of_f16(low, high)
                    : type == HOOP_BFLOAT16 ? pair_of_bf16(low, high)
                                            : pair_of_f8(type, low, high);
    if (F8_HAS_NAN && bits == 8) {
        return pair;
    }
    pair = is_nan(low) ? (pair & ~mask) | nan : pair;
    return is_nan(high) ? (pair & mask) | nan << bits : pair;
}

INLINE uint64_t word_of(const uint32_t *x)
{
    return x[0] | (uint64_t)x[1] << 32;
}

INLINE void word_to(uint32_t *x, uint64_t word)
{
    x[0] = (uint32_t)word;
    x[1] = (uint32_t)(word >> 32);
}

/* Lanes to elements: rounds, and makes NaNs canonical. Lanes of floats below 4 bytes are read in
 * pairs. */
INLINE struct pack narrow(hoop_datatype_t type, const uint32_t *x, uint32_t n)
{
    struct pack to = {{0, 0, 0, 0}};
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        switch (type) {
        case HOOP_INT8:
        case HOOP_UINT8:
            to.w[i / 4] |= (x[i] & 0xff) << (i % 4 * 8);
            break;
        case HOOP_FLOAT8E4M3:
        case HOOP_FLOAT8E5M2:
            to.w[i / 4] |= i % 2 == 0 ? pair_of(type, x[i], x[i + 1]) << (i % 4 * 8) : 0;
            break;
        case HOOP_FLOAT16:
        case HOOP_BFLOAT16:
            to.w[i / 2] |= i % 2 == 0 ? pair_of(type, x[i], x[i + 1]) : 0;
            break;
        case HOOP_FLOAT32:
            to.w[i] = is_nan(x[i]) ? F32_NAN : x[i];
            break;
        case HOOP_FLOAT64:
            if (i % 2 == 0) {
                const double wide = __longlong_as_double((long long)word_of(x + i));
                to.w[i] = wide == wide ? x[i] : 0;
                to.w[i + 1] = wide == wide ? x[i + 1] : 0x7ff80000u;
            }
            break;
        default:
            to.w[i] = x[i];
            break;
        }
    }
    return to;
}

/* ---- Arithmetic ---- */

/* IEEE 754-2019 maximum and minimum: if neither is less they are equal and differ at most in the
 * sign, or one is a NaN, and then a | b is a NaN, too. */
INLINE uint32_t extreme_f32(hoop_red_op_t op, uint32_t a, uint32_t b)
{
    const float x = __uint_as_float(a);
    const float y = __uint_as_float(b);
    const uint32_t neither = op == HOOP_MAX && x == y ? a & b : a | b;
    return op == HOOP_MAX ? (x < y ? b : y < x ? a : neither) : (x < y ? a : y < x ? b : neither);
}

INLINE uint64_t extreme_f64(hoop_red_op_t op, uint64_t a, uint64_t b)
{
    const double x = __longlong_as_double((long long)a);
    const double y = __longlong_as_double((long long)b);
    const uint64_t neither = op == HOOP_MAX && x == y ? a & b : a | b;
    return op == HOOP_MAX ? (x < y ? b : y < x ? a : neither) : (x < y ? a : y < x ? b : neither);
}

INLINE uint64_t fold_64(hoop_datatype_t type, hoop_red_op_t op, uint64_t a, uint64_t b)
{
    const double x = __longlong_as_double((long long)a);
    const double y = __longlong_as_double((long long)b);
    const bool is_float = type == HOOP_FLOAT64;
    const bool is_less = type == HOOP_INT64 ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case HOOP_PROD:
        return is_float ? (uint64_t)__double_as_longlong(__dmul_rn(x, y)) : a * b;
    case HOOP_MAX:
        return is_float ? extreme_f64(op, a, b) : is_less ? b : a;
    case HOOP_MIN:
        return is_float ? extreme_f64(op, a, b) : is_less ? a : b;
    default:
        return is_float ? (uint64_t)__double_as_longlong(__dadd_rn(x, y)) : a + b;
    }
}

/* Bytes are computed in 32 bits. Sums and products may set bits above the byte, which narrow()
 * drops; max and min compare all bits, but set none. */
INLINE uint32_t fold_32(hoop_datatype_t type, hoop_red_op_t op, uint32_t a, uint32_t b)
{
    const float x = __uint_as_float(a);
    const float y = __uint_as_float(b);
    const bool is_float = type >= HOOP_FLOAT16;
    const bool is_signed = type == HOOP_INT8 || type == HOOP_INT32;
    const bool is_less = is_signed ? (int32_t)a < (int32_t)b : a < b;
    switch (op) {
    case HOOP_PROD:
        return is_float ? __float_as_uint(__fmul_rn(x, y)) : a * b;
    case HOOP_MAX:
        return is_float ? extreme_f32(op, a, b) : is_less ? b : a;
    case HOOP_MIN:
        return is_float ? extreme_f32(op, a, b) : is_less ? a : b;
    default:
        return is_float ? __float_as_uint(__fadd_rn(x, y)) : a + b;
    }
}

INLINE void fold_lanes(hoop_datatype_t type, hoop_red_op_t op, uint32_t *x, const uint32_t *y,
                       uint32_t n)
{
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        if (type_bytes(type) < 8) {
            x[i] = fold_32(type, op, x[i], y[i]);
        } else if (i % 2 == 0) {
            word_to(x + i, fold_64(type, op, word_of(x + i), word_of(y + i)));
        }
    }
}

INLINE uint64_t divide_64(hoop_datatype_t type, const struct hoop_cuda_fold *fold, uint64_t x)
{
    if (type == HOOP_FLOAT64) {
        const double wide = __longlong_as_double((long long)x);
        return (uint64_t)__double_as_longlong(__dmul_rn(wide, fold->reciprocal_f64));
    }
    return type == HOOP_INT64 ? (uint64_t)((int64_t)x / (int64_t)fold->divisor) : x / fold->divisor;
}

INLINE uint32_t divide_32(hoop_datatype_t type, const struct hoop_cuda_fold *fold, uint32_t x)
{
    switch (type) {
    case HOOP_INT8:
        return (uint32_t)((int64_t)(int8_t)x / (int64_t)fold->divisor);
    case HOOP_UINT8:
        return (x & 0xff) / fold->divisor;
    case HOOP_INT32:
        return (uint32_t)((int64_t)(int32_t)x / (int64_t)fold->divisor);
    case HOOP_UINT32:
        return x / fold->divisor;
    default:
        return __float_as_uint(__fmul_rn(__uint_as_float(x), fold->reciprocal_f32));
    }
}

INLINE void divide_lanes(hoop_datatype_t type, const struct hoop_cuda_fold *fold, uint32_t *x,
                         uint32_t n)
{
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        if (type_bytes(type) < 8) {
            x[i] = divide_32(type, fold, x[i]);
        } else if (i % 2 == 0) {
            word_to(x + i, divide_64(type, fold, word_of(x + i)));
        }
    }
}

/* The lanes of source s; scaled: each element multiplied by the source's factor, and rounded. */
INLINE void source_lanes(hoop_datatype_t type, bool scaled, const struct hoop_cuda_fold *fold,
                         uint32_t s, const struct pack *from, uint32_t *x, uint32_t n)
{
    widen(type, from, x, n);
    if (scaled) {
        const uint32_t one = type_lanes_of_one(type);
        uint32_t factor[MOST_LANES];
        struct pack bits = {{0, 0, 0, 0}};
        word_to(bits.w, fold->factor[s]);
        widen(type, &bits, factor, one);
        UNROLL
        for (uint32_t i = 0; i < n; i += one) {
            fold_lanes(type, HOOP_PROD, x + i, factor, one);
        }
        bits = narrow(type, x, n);
        widen(type, &bits, x, n);
    }
}

/* ---- Packs ---- */

INLINE void store_packs(const struct hoop_cuda_fold *fold, uint64_t at, uint32_t apart, uint32_t n,
                        const struct pack *packs)
{
    for (uint32_t d = 0; d < fold->n_dst; d++) {
        UNROLL
        for (uint32_t v = 0; v < n; v++) {
            pack_store((unsigned char *)fold->dst[d] + at + v * apart, packs[v]);
        }
    }
}

/* Can two vectors of the type be added by 32-bit words, without widening to lanes? */
INLINE bool has_word_sum(hoop_datatype_t type)
{
    return type == HOOP_FLOAT32 || type == HOOP_INT32 || type == HOOP_UINT32 ||
           has_narrow_sum(type);
}

INLINE uint32_t word_sum(hoop_datatype_t type, uint32_t a, uint32_t b)
{
    if (type_bytes(type) < 4) {
        return narrow_sum(type, a, b);
    }
    const uint32_t sum = fold_32(type, HOOP_SUM, a, b);
    return type == HOOP_FLOAT32 && is_nan(sum) ? F32_NAN : sum;
}

/* fold_packs() for the sum of two vectors by words: has_word_sum(), two sources, no divisor. */
INLINE void sum_two_packs(hoop_datatype_t type, const struct hoop_cuda_fold *fold, uint64_t at,
                          uint32_t apart, uint32_t n)
{
    struct pack x[2][HOOP_CUDA_FOLD_PACKS];
    UNROLL
    for (uint32_t s = 0; s < 2; s++) {
        UNROLL
        for (uint32_t v = 0; v < n; v++) {
            x[s][v] = pack_load((const unsigned char *)fold->src[s] + at + v * apart);
        }
    }
    UNROLL
    for (uint32_t v = 0; v < n; v++) {
        UNROLL
        for (uint32_t w = 0; w < 4; w++) {
            x[0][v].w[w] = word_sum(type, x[0][v].w[w], x[1][v].w[w]);
        }
    }
    store_packs(fold, at, apart, n, x[0]);
}

/* Folds n packs that lie `apart` bytes from each other, from offset `at` on. Each source is loaded
 * before the one before it is folded. */
INLINE void fold_packs(hoop_datatype_t type, hoop_red_op_t op, bool scaled,
                       const struct hoop_cuda_fold *fold, uint64_t at, uint32_t apart, uint32_t n)
{
    const uint32_t lanes = type_lanes(type);
    struct pack next[HOOP_CUDA_FOLD_PACKS];
    uint32_t x[HOOP_CUDA_FOLD_PACKS][MOST_LANES];
    if (has_word_sum(type) && op == HOOP_SUM && !scaled && fold->n_src == 2 && fold->divisor == 0) {
        sum_two_packs(type, fold, at, apart, n);
        return;
    }
    UNROLL
    for (uint32_t v = 0; v < n; v++) {
        next[v] = pack_load((const unsigned char *)fold->src[0] + at + v * apart);
    }
    for (uint32_t s = 0; s < fold->n_src; s++) {
        struct pack now[HOOP_CUDA_FOLD_PACKS];
        UNROLL
        for (uint32_t v = 0; v < n; v++) {
            now[v] = next[v];
        }
        if (s + 1 < fold->n_src) {
            UNROLL
            for (uint32_t v = 0; v < n; v++) {
                next[v] = pack_load((const unsigned char *)fold->src[s + 1] + at + v * apart);
            }
        }
        UNROLL
        for (uint32_t v = 0; v < n; v++) {
            uint32_t y[MOST_LANES];
            source_lanes(type, scaled, fold, s, &now[v], y, lanes);
            if (s > 0) {
                fold_lanes(type, op, x[v], y, lanes);
            } else {
                UNROLL
                for (uint32_t i = 0; i < lanes; i++) {
                    x[v][i] = y[i];
                }
            }
        }
    }
    UNROLL
    for (uint32_t v = 0; v < n; v++) {
        if (fold->divisor != 0) {
            divide_lanes(type, fold, x[v], lanes);
        }
        next[v] = narrow(type, x[v], lanes);
    }
    store_packs(fold, at, apart, n, next);
}

/* ---- Loose elements ---- */

INLINE struct pack loose_load(hoop_datatype_t type, bool natural, const unsigned char *p)
{
    struct pack x = {{0, 0, 0, 0}};
    const uint32_t bytes = type_bytes(type);
    if (natural && bytes == 8) {
        word_to(x.w, *(const uint64_t *)p);
    } else if (natural && bytes == 4) {
        x.w[0] = *(const uint32_t *)p;
    } else if (natural && bytes == 2) {
        x.w[0] = *(const uint16_t *)p;
    } else {
        UNROLL
        for (uint32_t i = 0; i < bytes; i++) {
            x.w[i / 4] |= (uint32_t)p[i] << (i % 4 * 8);
        }
    }
    return x;
}

INLINE void loose_store(hoop_datatype_t type, bool natural, unsigned char *p, struct pack x)
{
    const uint32_t bytes = type_bytes(type);
    if (natural && bytes == 8) {
        *(uint64_t *)p = word_of(x.w);
    } else if (natural && bytes == 4) {
        *(uint32_t *)p = x.w[0];
    } else if (natural && bytes == 2) {
        *(uint16_t *)p = (uint16_t)x.w[0];
    } else {
        UNROLL
        for (uint32_t i = 0; i < bytes; i++) {
            p[i] = (unsigned char)(x.w[i / 4] >> (i % 4 * 8));
        }
    }
}

/* Folds the element at offset `at`. */
INLINE void fold_loose(hoop_datatype_t type, hoop_red_op_t op, bool scaled,
                       const struct hoop_cuda_fold *fold, uint64_t at)
{
    const uint32_t lanes = type_lanes_of_one(type);
    uint32_t x[2] = {0, 0};
    for (uint32_t s = 0; s < fold->n_src; s++) {
        uint32_t y[2] = {0, 0};
        const struct pack now =
            loose_load(type, fold->natural, (const unsigned char *)fold->src[s] + at);
        source_lanes(type, scaled, fold, s, &now, y, lanes);
        if (s > 0) {
            fold_lanes(type, op, x, y, lanes);
        } else {
            x[0] = y[0];
            x[1] = y[1];
        }
    }
    if (fold->divisor != 0) {
        divide_lanes(type, fold, x, lanes);
    }
    const struct pack result = narrow(type, x, lanes);
    for (uint32_t d = 0; d < fold->n_dst; d++) {
        loose_store(type, fold->natural, (unsigned char *)fold->dst[d] + at, result);
    }
}

/* ---- Kernels ---- */

INLINE void fold_all(hoop_datatype_t type, hoop_red_op_t op, bool scaled,
                     const struct hoop_cuda_fold *fold)
{
    const uint64_t bytes = type_bytes(type);
    const uint64_t start = fold->head * bytes;
    const uint64_t threads = (uint64_t)BLOCKS * THREADS;
    const uint64_t me = (uint64_t)BLOCK * THREADS + THREAD;
    const uint32_t tile = HOOP_CUDA_FOLD_PACKS * THREADS;
    const uint64_t tiles = fold->packs / tile;
    for (uint64_t t = BLOCK; t < tiles; t += BLOCKS) {
        fold_packs(type, op, scaled, fold, start + (t * tile + THREAD) * PACK_BYTES,
                   THREADS * PACK_BYTES, HOOP_CUDA_FOLD_PACKS);
    }
    for (uint64_t p = tiles * tile + me; p < fold->packs; p += threads) {
        fold_packs(type, op, scaled, fold, start + p * PACK_BYTES, 0, 1);
    }
    for (uint64_t e = me; e < fold->loose; e += threads) {
        const uint64_t skip = e < fold->head ? 0 : fold->packs * PACK_BYTES;
        fold_loose(type, op, scaled, fold, e * bytes + skip);
    }
}

#define FOLD(name, type, bytes, op, scaled)                                                        \
    KERNEL BOUNDS(type, bytes, op, scaled,                                                         \
                  false) void hoop_fold_##name##_##type(ARGUMENT(struct hoop_cuda_fold) fold)      \
    {                                                                                              \
        fold_all(type, op, scaled, &fold);                                                         \
    }
#define TOLD(name, type, bytes, op)                                                                \
    KERNEL BOUNDS(type, bytes, op, false,                                                          \
                  true) void hoop_told_##name##_##type(const struct hoop_cuda_fold *told)          \
    {                                                                                              \
        HEAR(fold, told);                                                                          \
        fold_all(type, op, false, &fold);                                                          \
    }
#define FOLDS(type, value, bytes, text)                                                            \
    FOLD(sum, type, bytes, HOOP_SUM, false)                                                        \
    FOLD(prod, type, bytes, HOOP_PROD, false)                                                      \
    FOLD(max, type, bytes, HOOP_MAX, false)                                                        \
    FOLD(min, type, bytes, HOOP_MIN, false)                                                        \
    FOLD(scaled, type, bytes, HOOP_SUM, true)                                                      \
    TOLD(sum, type, bytes, HOOP_SUM)                                                               \
    TOLD(prod, type, bytes, HOOP_PROD)                                                             \
    TOLD(max, type, bytes, HOOP_MAX)                                                               \
    TOLD(min, type, bytes, HOOP_MIN)
HOOP_DATATYPES(FOLDS)

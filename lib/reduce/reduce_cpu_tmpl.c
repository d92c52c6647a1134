/*
 * The reduction kernels, compiled once per instruction set with
 *
 *     -DHOOP_REDUCE_SUFFIX=baseline|avx2|avx512  and that set's compiler flags,
 *     -ffp-contract=off: the bits must not depend on whether the CPU has a fused multiply-add.
 *
 * Each of the 12 x 4 kernels is fold() below with a constant type and op. It goes through the
 * vectors in
 *
 *     blocks  of 4 vecs (reduce_cpu_vec.h): load them from src[0], fold those of src[1] ..
 *             src[n-1] into them, finish, store to every dst
 *     vecs    the same with one vec, for what is left after the last block
 *     a part  the same with one zero-padded vec, for what is left after the last whole vec
 *
 * Invariants: elements are independent, so none of these cuts can change a bit; all loads of a
 * block precede its stores, so that a dst may be a src; nothing is accessed past the end.
 */
#include "reduce/reduce_cpu.h"
#include "reduce/reduce_cpu_vec.h"

/* Four: enough independent loads in flight; more only spills registers. */
#define BLOCK_VECS 4
/*
 * How far ahead of the loads to prefetch. Without it types with much arithmetic per byte (bf16,
 * fp8) are a third as fast in memory as in cache: the CPU's window of instructions is full of
 * arithmetic before it reaches the next loads. 512 to 2048 measured much the same.
 */
#define PREFETCH_BYTES 1024
/* At -O2 the loops over the vecs of a block stay loops, and would keep the vecs in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif

/* ---- Vectors of any length ---- */

struct job {
    void *const *dst;
    const void *const *src;
    unsigned n_dst;
    unsigned n_src;
    uint32_t divisor;
    float reciprocal_f32;
    double reciprocal_f64;
};

static INLINE const unsigned char *job_src(const struct job *job, unsigned s, size_t at)
{
    return (const unsigned char *)job->src[s] + at;
}

static INLINE unsigned char *job_dst(const struct job *job, unsigned d, size_t at)
{
    return (unsigned char *)job->dst[d] + at;
}

/*
 * Integer division, which is rare (the last fold of an integer avg) and therefore not inlined. For
 * 8 and 32 bits it is done in float and double, for which there are vector instructions. Truncating
 * the rounded quotient is exact: a quotient that is no integer lies at least 1 / divisor below the
 * next integer, which is more than the rounding error.
 */
#define DIVIDE(name, integer, via)                                                                 \
    static __attribute__((noinline)) vec name(vec x, uint32_t divisor)                             \
    {                                                                                              \
        integer element[sizeof(vec) / sizeof(integer)];                                            \
        memcpy(element, &x, sizeof(x));                                                            \
        for (size_t i = 0; i < sizeof(vec) / sizeof(integer); i++) {                               \
            element[i] = (integer)((via)element[i] / (via)divisor);                                \
        }                                                                                          \
        memcpy(&x, element, sizeof(x));                                                            \
        return x;                                                                                  \
    }
DIVIDE(divide_i8, int8_t, float)
DIVIDE(divide_u8, uint8_t, float)
DIVIDE(divide_i32, int32_t, double)
DIVIDE(divide_u32, uint32_t, double)
DIVIDE(divide_i64, int64_t, int64_t)
DIVIDE(divide_u64, uint64_t, uint64_t)
#undef DIVIDE

static INLINE vec divide(hoop_datatype_t type, const struct job *job, vec x)
{
    const uint32_t divisor = job->divisor;
    switch (type) {
    case HOOP_INT8:
        return divide_i8(x, divisor);
    case HOOP_UINT8:
        return divide_u8(x, divisor);
    case HOOP_INT32:
        return divide_i32(x, divisor);
    case HOOP_UINT32:
        return divide_u32(x, divisor);
    case HOOP_INT64:
        return divide_i64(x, divisor);
    case HOOP_UINT64:
        return divide_u64(x, divisor);
    case HOOP_FLOAT64:
        return (vec)((vec_f64)x * job->reciprocal_f64);
    default:
        return (vec)((vec_f32)x * job->reciprocal_f32);
    }
}

/* Prefetches the block that lies PREFETCH_BYTES ahead, unless it ends past the end of the vector:
 * another rank may be writing there. */
static INLINE void prefetch_block(const unsigned char *p, size_t left, size_t block)
{
    if (left < PREFETCH_BYTES + block) {
        return;
    }
    __builtin_prefetch(p + PREFETCH_BYTES);
    if (block > 64) {
        __builtin_prefetch(p + PREFETCH_BYTES + 64);
    }
    if (block > 128) {
        __builtin_prefetch(p + PREFETCH_BYTES + 128);
        __builtin_prefetch(p + PREFETCH_BYTES + 192);
    }
}
_Static_assert(BLOCK_VECS *VEC_BYTES <= 256, "prefetch_block() covers a block");

/* n is BLOCK_VECS or 1; left: bytes from at to the end, for the prefetch. */
static INLINE void fold_vecs(hoop_datatype_t type, hoop_red_op_t op, const struct job *job,
                             size_t at, size_t left, unsigned n)
{
    const size_t step = type_step(type);
    vec x[BLOCK_VECS];
    if (n == BLOCK_VECS) {
        prefetch_block(job_src(job, 0, at), left, n * step);
    }
    UNROLL
    for (unsigned v = 0; v < n; v++) {
        x[v] = load(type, job_src(job, 0, at) + v * step);
    }
    for (unsigned s = 1; s < job->n_src; s++) {
        if (n == BLOCK_VECS) {
            prefetch_block(job_src(job, s, at), left, n * step);
        }
        UNROLL
        for (unsigned v = 0; v < n; v++) {
            x[v] = fold_pair(type, op, x[v], load(type, job_src(job, s, at) + v * step));
        }
    }
    if (job->divisor != 0) {
        UNROLL
        for (unsigned v = 0; v < n; v++) {
            x[v] = divide(type, job, x[v]);
        }
    }
    UNROLL
    for (unsigned v = 0; v < n; v++) {
        x[v] = finish(type, x[v]);
    }
    for (unsigned d = 0; d < job->n_dst; d++) {
        UNROLL
        for (unsigned v = 0; v < n; v++) {
            store(type, job_dst(job, d, at) + v * step, x[v]);
        }
    }
}

static INLINE void fold_part(hoop_datatype_t type, hoop_red_op_t op, const struct job *job,
                             size_t at, size_t bytes)
{
    unsigned char rounded[VEC_BYTES] = {0};
    vec x = load_part(type, job_src(job, 0, at), bytes);
    for (unsigned s = 1; s < job->n_src; s++) {
        x = fold_pair(type, op, x, load_part(type, job_src(job, s, at), bytes));
    }
    if (job->divisor != 0) {
        x = divide(type, job, x);
    }
    store(type, rounded, finish(type, x));
    for (unsigned d = 0; d < job->n_dst; d++) {
        bytes_out(job_dst(job, d, at), rounded, bytes);
    }
}

/* Without a divisor the reciprocals are not used; they are computed from 1, so that no exception
 * flag is raised by a division by 0. */
static INLINE struct job job_make(void *const *dst, unsigned n_dst, const void *const *src,
                                  unsigned n_src, uint32_t divisor)
{
    const uint32_t by = divisor == 0 ? 1 : divisor;
    return (struct job){dst, src, n_dst, n_src, divisor, 1.0f / (float)by, 1.0 / (double)by};
}

static INLINE void fold(hoop_datatype_t type, hoop_red_op_t op, const struct job *job, size_t end)
{
    const size_t step = type_step(type);
    const size_t block = BLOCK_VECS * step;
    size_t at = 0;
    for (; end - at >= block; at += block) {
        fold_vecs(type, op, job, at, end - at, BLOCK_VECS);
    }
    for (; end - at >= step; at += step) {
        fold_vecs(type, op, job, at, end - at, 1);
    }
    if (at < end) {
        fold_part(type, op, job, at, end - at);
    }
}

/* ---- The table ---- */

#define KERNEL(name, type, op, bytes)                                                              \
    static void name(void *const *dst, unsigned n_dst, const void *const *src, unsigned n_src,     \
                     size_t count, uint32_t divisor)                                               \
    {                                                                                              \
        const struct job job = job_make(dst, n_dst, src, n_src, divisor);                          \
        fold(type, op, &job, count *(bytes));                                                      \
    }
#define KERNELS(type, value, bytes, text)                                                          \
    KERNEL(fold_sum_##type, type, HOOP_SUM, bytes)                                                 \
    KERNEL(fold_prod_##type, type, HOOP_PROD, bytes)                                               \
    KERNEL(fold_max_##type, type, HOOP_MAX, bytes)                                                 \
    KERNEL(fold_min_##type, type, HOOP_MIN, bytes)
HOOP_DATATYPES(KERNELS)
#undef KERNELS
#undef KERNEL

#define PASTE(a, b) a##b
#define TABLE_NAME(suffix) PASTE(hoop_fold_kernels_, suffix)
#define ROW(type, value, bytes, text)                                                              \
    [type] = {                                                                                     \
        [HOOP_SUM] = fold_sum_##type,                                                              \
        [HOOP_PROD] = fold_prod_##type,                                                            \
        [HOOP_MAX] = fold_max_##type,                                                              \
        [HOOP_MIN] = fold_min_##type,                                                              \
    },
const struct hoop_fold_kernels TABLE_NAME(HOOP_REDUCE_SUFFIX) = {.of = {HOOP_DATATYPES(ROW)}};

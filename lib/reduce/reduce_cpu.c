/*
 * hoop_fold() on CPUs: picks the kernels for this CPU once, runs them in the default floating-point
 * environment, and copies where there is nothing to fold. The arithmetic is in reduce_cpu_tmpl.c.
 */
#include "reduce/reduce_cpu.h"

#include "reduce/reduce_few.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

/* ---- Names ---- */

const char *hoop_datatype_name(hoop_datatype_t type)
{
#define DATATYPE_NAME(name, value, bytes, text) [name] = (text),
    static const char *const names[HOOP_NUM_DATATYPES] = {HOOP_DATATYPES(DATATYPE_NAME)};
#undef DATATYPE_NAME
    return (unsigned)type < HOOP_NUM_DATATYPES ? names[type] : "unknown";
}

const char *hoop_op_name(hoop_red_op_t op)
{
    static const char *const names[] = {"sum", "prod", "max", "min", "avg", "pre_mul_sum"};
    const unsigned index = (unsigned)op;
    return index < sizeof(names) / sizeof(names[0]) ? names[index] : "unknown";
}

/* ---- Instruction sets ---- */

const char *hoop_isa_name(enum hoop_isa isa)
{
#if defined(__aarch64__)
    static const char *const names[HOOP_ISA_COUNT] = {"neon"}; /* every such CPU has it */
#else
    static const char *const names[HOOP_ISA_COUNT] = {"baseline", "avx2", "avx512"};
#endif
    return (unsigned)isa < HOOP_ISA_COUNT && names[isa] != NULL ? names[isa] : "unknown";
}

#if defined(__x86_64__)
/* Asks the CPU directly because clang 14 does not know "f16c" in __builtin_cpu_supports(). That the
 * operating system saves the registers is checked by that builtin for AVX2. */
static bool isa_has_f16c(void)
{
    unsigned eax;
    unsigned ebx;
    unsigned ecx;
    unsigned edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/* A bit for each enum hoop_isa. */
static unsigned isa_detect(void)
{
    __builtin_cpu_init();
    unsigned isas = 1u << HOOP_ISA_BASELINE;
    if (__builtin_cpu_supports("avx2") && isa_has_f16c()) {
        isas |= 1u << HOOP_ISA_AVX2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
            isas |= 1u << HOOP_ISA_AVX512;
        }
    }
    return isas;
}

static const struct hoop_fold_kernels *isa_kernels(enum hoop_isa isa)
{
    switch (isa) {
    case HOOP_ISA_AVX512:
        return &hoop_fold_kernels_avx512;
    case HOOP_ISA_AVX2:
        return &hoop_fold_kernels_avx2;
    default:
        return &hoop_fold_kernels_baseline;
    }
}
#else
static unsigned isa_detect(void)
{
    return 1u << HOOP_ISA_BASELINE;
}

static const struct hoop_fold_kernels *isa_kernels(enum hoop_isa isa)
{
    (void)isa;
    return &hoop_fold_kernels_baseline;
}
#endif

/* Cached, because in a virtual machine it takes microseconds to ask the CPU. 0 until known. Relaxed
 * is enough: every thread that finds 0 stores the same value. */
bool hoop_isa_supported(enum hoop_isa isa)
{
    static _Atomic unsigned known;
    unsigned isas = atomic_load_explicit(&known, memory_order_relaxed);
    if (isas == 0) {
        isas = isa_detect();
        atomic_store_explicit(&known, isas, memory_order_relaxed);
    }
    return (unsigned)isa < HOOP_ISA_COUNT && (isas >> isa & 1) != 0;
}

static enum hoop_isa isa_best(void)
{
    for (unsigned isa = HOOP_ISA_COUNT - 1; isa > HOOP_ISA_BASELINE; isa--) {
        if (hoop_isa_supported((enum hoop_isa)isa)) {
            return (enum hoop_isa)isa;
        }
    }
    return HOOP_ISA_BASELINE;
}

/* NULL until the first use. Relaxed is enough: every thread that finds NULL stores the same
 * address, of constant data. */
static _Atomic(const struct hoop_fold_kernels *) kernels_in_use;

static const struct hoop_fold_kernels *isa_kernels_in_use(void)
{
    const struct hoop_fold_kernels *kernels =
        atomic_load_explicit(&kernels_in_use, memory_order_relaxed);
    if (kernels == NULL) {
        kernels = isa_kernels(isa_best());
        atomic_store_explicit(&kernels_in_use, kernels, memory_order_relaxed);
    }
    return kernels;
}

const char *hoop_reduce_isa(void)
{
    return hoop_isa_name(isa_best());
}

/* ---- The floating-point environment ---- */

#if defined(__x86_64__)
/* Round to nearest even, all exceptions masked, subnormals kept. */
#define FOLD_MXCSR 0x1f80u
#define FOLD_MXCSR_FLAGS 0x3fu

typedef unsigned fold_env_t;

/* Writes the register only if it does not hold the default, which it nearly always does. Exception
 * flags stay raised, as after any arithmetic: to clear them would cost the next call tens of
 * nanoseconds to raise them again. */
static inline fold_env_t env_enter(void)
{
    const unsigned saved = _mm_getcsr();
    if ((saved & ~FOLD_MXCSR_FLAGS) != FOLD_MXCSR) {
        _mm_setcsr(FOLD_MXCSR);
    }
    return saved;
}

static inline void env_leave(fold_env_t saved)
{
    if ((saved & ~FOLD_MXCSR_FLAGS) != FOLD_MXCSR) {
        _mm_setcsr(saved);
    }
}
#else
typedef fenv_t fold_env_t;

static inline fold_env_t env_enter(void)
{
    fold_env_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}

static inline void env_leave(fold_env_t saved)
{
    fesetenv(&saved);
}
#endif

/* ---- Fold ---- */

static bool fold_uses_floats(const struct hoop_reduction *reduction)
{
    /* Some integers are divided in floating point (see DIVIDE in reduce_cpu_tmpl.c). */
    return reduction->type >= HOOP_FLOAT16 || reduction->divisor != 0;
}

static void fold_copy(void *const *dst, unsigned n_dst, const void *src, size_t bytes)
{
    for (unsigned d = 0; d < n_dst; d++) {
        if (dst[d] != src) {
            memcpy(dst[d], src, bytes);
        }
    }
}

static inline void fold_with(const struct hoop_fold_kernels *kernels,
                             const struct hoop_reduction *reduction, void *const *dst,
                             unsigned n_dst, const void *const *src, unsigned n_src, size_t count)
{
    assert((unsigned)reduction->type < HOOP_NUM_DATATYPES);
    assert((unsigned)reduction->op <= HOOP_AVG);
    assert(n_src >= 1 && n_dst >= 1);
    if (count == 0) {
        return;
    }
    if (n_src == 1 && reduction->divisor == 0) {
        fold_copy(dst, n_dst, src[0], count * hoop_datatype_bytes(reduction->type));
        return;
    }
    const hoop_red_op_t op = reduction->op == HOOP_AVG ? HOOP_SUM : reduction->op;
    hoop_fold_kernel_t *const kernel = kernels->of[reduction->type][op];
    if (!fold_uses_floats(reduction)) {
        kernel(dst, n_dst, src, n_src, count, 0);
        return;
    }
    const fold_env_t saved = env_enter();
    kernel(dst, n_dst, src, n_src, count, reduction->divisor);
    env_leave(saved);
}

static bool fold_is_few(const struct hoop_reduction *reduction, unsigned n_dst, unsigned n_src,
                        size_t count)
{
    return count <= HOOP_FOLD_FEW && n_dst == 1 && n_src > 1 && reduction->op < HOOP_FOLD_OPS &&
           reduction->divisor == 0 && hoop_fold_few[reduction->type][reduction->op] != NULL;
}

void hoop_fold(const struct hoop_reduction *reduction, void *const *dst, unsigned n_dst,
               const void *const *src, unsigned n_src, size_t count)
{
    if (fold_is_few(reduction, n_dst, n_src, count)) {
        const fold_env_t saved = env_enter();
        hoop_fold_few[reduction->type][reduction->op](dst[0], src, n_src, count);
        env_leave(saved);
        return;
    }
    fold_with(isa_kernels_in_use(), reduction, dst, n_dst, src, n_src, count);
}

void hoop_fold_isa(enum hoop_isa isa, const struct hoop_reduction *reduction, void *const *dst,
                   unsigned n_dst, const void *const *src, unsigned n_src, size_t count)
{
    assert(hoop_isa_supported(isa));
    fold_with(isa_kernels(isa), reduction, dst, n_dst, src, n_src, count);
}

void hoop_scale(hoop_datatype_t type, const void *factor, const void *src, void *dst, size_t count)
{
    enum { PART = 64 };
    const struct hoop_reduction times = {.type = type, .op = HOOP_PROD};
    const size_t size = hoop_datatype_bytes(type);
    uint64_t factors[PART];
    for (size_t i = 0; i < PART; i++) {
        memcpy((char *)factors + i * size, factor, size);
    }
    for (size_t done = 0; done < count; done += PART) {
        const void *both[] = {(const char *)src + done * size, factors};
        void *to = (char *)dst + done * size;
        hoop_fold(&times, &to, 1, both, 2, count - done < PART ? count - done : PART);
    }
}

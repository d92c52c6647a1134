/* Folds of a few elements (see reduce_few.h), for the types of counters, flags and losses. */
#include "reduce/reduce_few.h"

#include <string.h>

#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

/* Elements are loaded and stored by memcpy: no alignment is promised. */
#define FEW(name, type, combine, finish)                                                           \
    static void name(void *dst, const void *const *src, unsigned n_src, size_t count)              \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            type x;                                                                                \
            memcpy(&x, (const char *)src[0] + i * sizeof(x), sizeof(x));                           \
            for (unsigned s = 1; s < n_src; s++) {                                                 \
                type y;                                                                            \
                memcpy(&y, (const char *)src[s] + i * sizeof(y), sizeof(y));                       \
                x = combine(x, y);                                                                 \
            }                                                                                      \
            x = finish(x);                                                                         \
            memcpy((char *)dst + i * sizeof(x), &x, sizeof(x));                                    \
        }                                                                                          \
    }

#define AS_IT_IS(x) (x)

/* Sums and products are computed in the unsigned type, where overflow wraps. */
#define FEW_INTEGER(name, type, wrapping)                                                          \
    FEW(name##_sum, wrapping, ADD, AS_IT_IS)                                                       \
    FEW(name##_prod, wrapping, MULTIPLY, AS_IT_IS)                                                 \
    FEW(name##_max, type, LARGER, AS_IT_IS)                                                        \
    FEW(name##_min, type, SMALLER, AS_IT_IS)

FEW_INTEGER(i32, int32_t, uint32_t)
FEW_INTEGER(u32, uint32_t, uint32_t)
FEW_INTEGER(i64, int64_t, uint64_t)
FEW_INTEGER(u64, uint64_t, uint64_t)

/* IEEE 754-2019 maximum and minimum: NaN if an operand is NaN, and -0 < +0. Equal numbers differ at
 * most in the sign bit, so AND yields the larger and OR the smaller zero. */
#define FEW_FLOAT(name, type, word, nan_word)                                                      \
    static inline type name##_of(word bits)                                                        \
    {                                                                                              \
        type x;                                                                                    \
        memcpy(&x, &bits, sizeof(x));                                                              \
        return x;                                                                                  \
    }                                                                                              \
    static inline word name##_bits(type x)                                                         \
    {                                                                                              \
        word bits;                                                                                 \
        memcpy(&bits, &x, sizeof(bits));                                                           \
        return bits;                                                                               \
    }                                                                                              \
    static inline type name##_canonical(type x)                                                    \
    {                                                                                              \
        return x != x ? name##_of(nan_word) : x;                                                   \
    }                                                                                              \
    static inline type name##_maximum(type a, type b)                                              \
    {                                                                                              \
        if (a != a || b != b) {                                                                    \
            return name##_of(nan_word);                                                            \
        }                                                                                          \
        return a == b ? name##_of(name##_bits(a) & name##_bits(b)) : a > b ? a : b;                \
    }                                                                                              \
    static inline type name##_minimum(type a, type b)                                              \
    {                                                                                              \
        if (a != a || b != b) {                                                                    \
            return name##_of(nan_word);                                                            \
        }                                                                                          \
        return a == b ? name##_of(name##_bits(a) | name##_bits(b)) : a < b ? a : b;                \
    }                                                                                              \
    FEW(name##_sum, type, ADD, name##_canonical)                                                   \
    FEW(name##_prod, type, MULTIPLY, name##_canonical)                                             \
    FEW(name##_max, type, name##_maximum, AS_IT_IS)                                                \
    FEW(name##_min, type, name##_minimum, AS_IT_IS)

FEW_FLOAT(f32, float, uint32_t, 0x7fc00000u)
FEW_FLOAT(f64, double, uint64_t, 0x7ff8000000000000u)

#define ROW(name)                                                                                  \
    {                                                                                              \
        name##_sum, name##_prod, name##_max, name##_min                                            \
    }

hoop_fold_few_t *const hoop_fold_few[HOOP_NUM_DATATYPES][HOOP_FOLD_OPS] = {
    [HOOP_INT32] = ROW(i32),  [HOOP_UINT32] = ROW(u32),  [HOOP_INT64] = ROW(i64),
    [HOOP_UINT64] = ROW(u64), [HOOP_FLOAT32] = ROW(f32), [HOOP_FLOAT64] = ROW(f64),
};

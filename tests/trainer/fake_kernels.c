/* The trainer's kernels on the streams of fake_streams.h, as loops. */
#include "fake_streams.h"

/* The functions of kernels.cu, executed at once. */
#define NOW(name) now_##name
#define kernels_add_bias NOW(add_bias)
#define kernels_relu NOW(relu)
#define kernels_relu_backward NOW(relu_backward)
#define kernels_pool_relu NOW(pool_relu)
#define kernels_pool_backward NOW(pool_backward)
#define kernels_sum_bias NOW(sum_bias)
#define kernels_norm_measure NOW(norm_measure)
#define kernels_norm_recall NOW(norm_recall)
#define kernels_norm_forward NOW(norm_forward)
#define kernels_norm_gradients NOW(norm_gradients)
#define kernels_norm_backward NOW(norm_backward)
#define kernels_loss NOW(loss)
#define kernels_loss_backward NOW(loss_backward)
#define kernels_divide NOW(divide)
#define kernels_sgd NOW(sgd)
#define kernels_adam NOW(adam)
#define kernels_to_bf16 NOW(to_bf16)
#define kernels_from_bf16 NOW(from_bf16)
#include "nn/cuda/kernels.cu"
#undef kernels_add_bias
#undef kernels_relu
#undef kernels_relu_backward
#undef kernels_pool_relu
#undef kernels_pool_backward
#undef kernels_sum_bias
#undef kernels_norm_measure
#undef kernels_norm_recall
#undef kernels_norm_forward
#undef kernels_norm_gradients
#undef kernels_norm_backward
#undef kernels_loss
#undef kernels_loss_backward
#undef kernels_divide
#undef kernels_sgd
#undef kernels_adam
#undef kernels_to_bf16
#undef kernels_from_bf16

/* kernels_NAME(stream, ...): keeps its arguments, and calls now_NAME() when its turn comes.
 * kernels.h was included with the other names. */
#define DEFER3(name, t1, t2, t3)                                                                   \
    struct name##_call {                                                                           \
        t1 a1;                                                                                     \
        t2 a2;                                                                                     \
        t3 a3;                                                                                     \
    };                                                                                             \
    static void name##_run(void *args)                                                             \
    {                                                                                              \
        const struct name##_call *c = args;                                                        \
        now_##name(NULL, c->a1, c->a2, c->a3);                                                     \
    }                                                                                              \
    void kernels_##name(kernels_stream stream, t1 a1, t2 a2, t3 a3);                               \
    void kernels_##name(kernels_stream stream, t1 a1, t2 a2, t3 a3)                                \
    {                                                                                              \
        const struct name##_call call = {a1, a2, a3};                                              \
        fake_put(stream, name##_run, &call, sizeof(call));                                         \
    }
#define DEFER4(name, t1, t2, t3, t4)                                                               \
    struct name##_call {                                                                           \
        t1 a1;                                                                                     \
        t2 a2;                                                                                     \
        t3 a3;                                                                                     \
        t4 a4;                                                                                     \
    };                                                                                             \
    static void name##_run(void *args)                                                             \
    {                                                                                              \
        const struct name##_call *c = args;                                                        \
        now_##name(NULL, c->a1, c->a2, c->a3, c->a4);                                              \
    }                                                                                              \
    void kernels_##name(kernels_stream stream, t1 a1, t2 a2, t3 a3, t4 a4);                        \
    void kernels_##name(kernels_stream stream, t1 a1, t2 a2, t3 a3, t4 a4)                         \
    {                                                                                              \
        const struct name##_call call = {a1, a2, a3, a4};                                          \
        fake_put(stream, name##_run, &call, sizeof(call));                                         \
    }
#define DEFER5(name, t1, t2, t3, t4, t5)                                                           \
    struct name##_call {                                                                           \
        t1 a1;                                                                                     \
        t2 a2;                                                                                     \
        t3 a3;                                                                                     \
        t4 a4;                                                                                     \
        t5 a5;                                                                                     \
    };                                                                                             \
    static void name##_run(void *args)                                                             \
    {                                                                                              \
        const struct name##_call *c = args;                                                        \
        now_##name(NULL, c->a1, c->a2, c->a3, c->a4, c->a5);                                       \
    }                                                                                              \
    void kernels_##name(kernels_stream stream, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5);                 \
    void kernels_##name(kernels_stream stream, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5)                  \
    {                                                                                              \
        const struct name##_call call = {a1, a2, a3, a4, a5};                                      \
        fake_put(stream, name##_run, &call, sizeof(call));                                         \
    }
#define DEFER6(name, t1, t2, t3, t4, t5, t6)                                                       \
    struct name##_call {                                                                           \
        t1 a1;                                                                                     \
        t2 a2;                                                                                     \
        t3 a3;                                                                                     \
        t4 a4;                                                                                     \
        t5 a5;                                                                                     \
        t6 a6;                                                                                     \
    };                                                                                             \
    static void name##_run(void *args)                                                             \
    {                                                                                              \
        const struct name##_call *c = args;                                                        \
        now_##name(NULL, c->a1, c->a2, c->a3, c->a4, c->a5, c->a6);                                \
    }                                                                                              \
    void kernels_##name(kernels_stream stream, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6);          \
    void kernels_##name(kernels_stream stream, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6)           \
    {                                                                                              \
        const struct name##_call call = {a1, a2, a3, a4, a5, a6};                                  \
        fake_put(stream, name##_run, &call, sizeof(call));                                         \
    }

/* clang-format off */
DEFER4(add_bias, float *, const float *, size_t, size_t)
DEFER3(relu, const float *, float *, size_t)
DEFER4(relu_backward, const float *, const float *, float *, size_t)
DEFER5(pool_relu, struct kernels_pool, size_t, const float *, float *, uint8_t *)
DEFER6(pool_backward, struct kernels_pool, size_t, size_t, const float *, const uint8_t *, float *)
DEFER5(loss, const float *, const uint8_t *, int, int, double *)
DEFER6(loss_backward, const float *, const uint8_t *, int, int, int, float *)
DEFER3(divide, float *, size_t, float)
DEFER5(sgd, float *, const float *, float *, size_t, struct sgd_step)
DEFER3(to_bf16, const float *, uint16_t *, size_t)
DEFER3(from_bf16, const uint16_t *, float *, size_t)
/* clang-format on */

/* Arguments that are pointers to structs are kept by value. */
#define DEFER_SUMS(name)                                                                           \
    static void name##_run(void *args)                                                             \
    {                                                                                              \
        now_##name(NULL, args);                                                                    \
    }                                                                                              \
    void kernels_##name(kernels_stream stream, const struct kernels_sums *s);                      \
    void kernels_##name(kernels_stream stream, const struct kernels_sums *s)                       \
    {                                                                                              \
        fake_put(stream, name##_run, s, sizeof(*s));                                               \
    }
/* clang-format off */
DEFER_SUMS(sum_bias)
DEFER_SUMS(norm_measure)
DEFER_SUMS(norm_recall)
DEFER_SUMS(norm_gradients)
/* clang-format on */

struct norm_call {
    struct kernels_sums sums;
    const float *weight, *bias;
    float *to;
    size_t rows;
};

static void norm_forward_run(void *args)
{
    const struct norm_call *c = args;
    now_norm_forward(NULL, &c->sums, c->weight, c->bias, c->to);
}

void kernels_norm_forward(kernels_stream stream, const struct kernels_sums *s, const float *weight,
                          const float *bias, float *out);
void kernels_norm_forward(kernels_stream stream, const struct kernels_sums *s, const float *weight,
                          const float *bias, float *out)
{
    const struct norm_call call = {*s, weight, bias, out, 0};
    fake_put(stream, norm_forward_run, &call, sizeof(call));
}

static void norm_backward_run(void *args)
{
    const struct norm_call *c = args;
    now_norm_backward(NULL, &c->sums, c->weight, c->to, c->rows);
}

void kernels_norm_backward(kernels_stream stream, const struct kernels_sums *s, const float *weight,
                           float *to, size_t all_rows);
void kernels_norm_backward(kernels_stream stream, const struct kernels_sums *s, const float *weight,
                           float *to, size_t all_rows)
{
    const struct norm_call call = {*s, weight, NULL, to, all_rows};
    fake_put(stream, norm_backward_run, &call, sizeof(call));
}

struct adam_call {
    float *value, *mean, *square;
    const float *gradient;
    size_t count;
    struct adam_step step;
};

static void adam_run(void *args)
{
    const struct adam_call *c = args;
    now_adam(NULL, c->value, c->gradient, c->mean, c->square, c->count, &c->step);
}

void kernels_adam(kernels_stream stream, float *value, const float *gradient, float *mean,
                  float *square, size_t count, const struct adam_step *step);
void kernels_adam(kernels_stream stream, float *value, const float *gradient, float *mean,
                  float *square, size_t count, const struct adam_step *step)
{
    const struct adam_call call = {value, mean, square, gradient, count, *step};
    fake_put(stream, adam_run, &call, sizeof(call));
}

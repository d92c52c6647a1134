/*
 * The maximum of each 2 x 2, then ReLU; and ReLU alone. Forward stores in a byte which of the four
 * inputs is the largest, or NONE if ReLU gives 0: backward needs nothing else.
 *
 * Branches on the largest input could not be predicted, so there are none: eight channels at a time
 * are compared, and masks choose. This is written with vectors because compilers would make
 * branches of scalar code.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/cpu/cpu.h"

#define NONE 4

#define ALWAYS_INLINE                                                                              \
    static inline __attribute__((always_inline)) /* to use the vector width of the caller */
#define EIGHT 8
typedef float eight __attribute__((vector_size(EIGHT * sizeof(float))));
typedef int32_t eight_int __attribute__((vector_size(EIGHT * sizeof(int32_t))));
typedef uint8_t eight_byte __attribute__((vector_size(EIGHT)));

static bool pool_create(struct layer *layer, struct problem *problem)
{
    layer->own = calloc((size_t)layer->out->batch * shape_count(&layer->out->shape) + EIGHT, 1);
    return layer->own != NULL || problem_say(problem, "no memory for a pooling layer");
}

/*
 * Eight channels of an output from its four inputs. If there are fewer channels this also writes
 * some of the next output, which is computed later, or of the slack.
 */
ALWAYS_INLINE void pool_eight(const float *in, size_t right, size_t below, float *out,
                              uint8_t *places)
{
    const size_t four[4] = {0, right, below, below + right};
    eight most = {0};
    eight_int place = (eight_int){0} + NONE;
    for (int i = 0; i < 4; i++) {
        eight one;
        memcpy(&one, in + four[i], sizeof(one));
        const eight_int more = one > most;
        most = (eight)(((eight_int)one & more) | ((eight_int)most & ~more));
        place = (more & i) | (place & ~more);
    }
    const eight_byte bytes = __builtin_convertvector(place, eight_byte);
    memcpy(out, &most, sizeof(most));
    memcpy(places, &bytes, sizeof(bytes));
}

/* The gradient of eight channels of the input at `place` (of the four). */
ALWAYS_INLINE void unpool_eight(const float *out, const uint8_t *places, int place, float *in)
{
    eight one;
    eight_byte bytes;
    memcpy(&one, out, sizeof(one));
    memcpy(&bytes, places, sizeof(bytes));
    one = (eight)((eight_int)one & (__builtin_convertvector(bytes, eight_int) == place));
    memcpy(in, &one, sizeof(one));
}

/* from, to: where a pixel's channels begin in the input and the output. */
ALWAYS_INLINE void pool_pixel(const struct layer *layer, size_t from, size_t to, int place,
                              bool forward)
{
    const size_t channels = (size_t)layer->in->shape.channels;
    const size_t below = channels * (size_t)layer->in->shape.width;
    uint8_t *places = (uint8_t *)layer->own + to;
    for (size_t c = 0; c < channels; c += EIGHT) {
        if (forward) {
            pool_eight(layer->in->data + from + c, channels, below, layer->out->data + to + c,
                       places + c);
        } else {
            unpool_eight(layer->out->gradient + to + c, places + c, place,
                         layer->in->gradient + from + c);
        }
    }
}

/* All images; forward goes through the output, backward through the input. */
ALWAYS_INLINE void pool_images(const struct layer *layer, int n, bool forward)
{
    const size_t height = (size_t)n * (size_t)layer->in->shape.height;
    const size_t width = (size_t)layer->in->shape.width;
    const size_t channels = (size_t)layer->in->shape.channels;
    const size_t step = forward ? 2 : 1; /* in the input */
    for (size_t y = 0; y < height; y += step) {
        for (size_t x = 0; x < width; x += step) {
            pool_pixel(layer, (y * width + x) * channels, (y / 2 * (width / 2) + x / 2) * channels,
                       (int)(y % 2 * 2 + x % 2), forward);
        }
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void pool_wide(const struct layer *layer, int n,
                                                      bool forward)
{
    pool_images(layer, n, forward);
}
#endif

static void pool_run(const struct layer *layer, int n, bool forward)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        pool_wide(layer, n, forward);
        return;
    }
#endif
    pool_images(layer, n, forward);
}

static void pool_forward(struct layer *layer, int n, bool training)
{
    (void)training;
    pool_run(layer, n, true);
}

/* Images beyond n get zeros, since the convolution before computes all of the batch. */
static void pool_backward(struct layer *layer, int n)
{
    const struct activation *in = layer->in;
    pool_run(layer, n, false);
    memset(in->gradient + (size_t)n * shape_count(&in->shape), 0,
           (size_t)(in->batch - n) * shape_count(&in->shape) * sizeof(float));
}

static void pool_destroy(struct layer *layer)
{
    free(layer->own);
}

const struct layer_kind_impl cpu_pool_relu = {
    .create = pool_create,
    .forward = pool_forward,
    .backward = pool_backward,
    .destroy = pool_destroy,
};

static void relu_forward(struct layer *layer, int n, bool training)
{
    (void)training;
    const size_t count = (size_t)n * shape_count(&layer->in->shape);
    const float *restrict in = layer->in->data;
    float *restrict out = layer->out->data;
    for (size_t i = 0; i < count; i++) {
        out[i] = in[i] > 0 ? in[i] : 0;
    }
}

/* For the whole batch: gradients of images beyond n are zero already. */
static void relu_backward(struct layer *layer, int n)
{
    (void)n;
    const size_t count = (size_t)layer->in->batch * shape_count(&layer->in->shape);
    const float *restrict in = layer->in->data, *restrict out = layer->out->gradient;
    float *restrict to = layer->in->gradient;
    for (size_t i = 0; i < count; i++) {
        const float gradient = out[i];
        to[i] = in[i] > 0 ? gradient : 0;
    }
}

const struct layer_kind_impl cpu_relu = {
    .forward = relu_forward,
    .backward = relu_backward,
};

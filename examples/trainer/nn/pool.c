/*
 * The maximum of each 2 x 2, then ReLU; and ReLU alone. The largest input keeps its place in a
 * byte, or none where ReLU lets nothing through: that is all that backward needs.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/layer.h"

#define NONE 4

static bool pool_shape(struct layer *layer, struct problem *problem)
{
    const struct image_shape *in = &layer->in->shape;
    if (in->height % 2 != 0 || in->width % 2 != 0) {
        return problem_say(problem, "pooling of 2 x 2 over %d x %d", in->height, in->width);
    }
    layer->out->shape = (struct image_shape){in->channels, in->height / 2, in->width / 2};
    layer->out->block = in->channels;
    return true;
}

static bool pool_create(struct layer *layer, struct problem *problem)
{
    layer->own = calloc((size_t)layer->out->batch * activation_image(layer->out), 1);
    return layer->own != NULL || problem_say(problem, "no memory for a pooling layer");
}

/* count channels of one output from its four inputs, which lie at 0, right, below, below + right.
 */
static void pool_four(const float *restrict in, size_t right, size_t below, int count,
                      float *restrict out, uint8_t *restrict place)
{
    for (int c = 0; c < count; c++) {
        float most = in[c];
        int at = 0;
        at = in[right + c] > most ? 1 : at;
        most = in[right + c] > most ? in[right + c] : most;
        at = in[below + c] > most ? 2 : at;
        most = in[below + c] > most ? in[below + c] : most;
        at = in[below + right + c] > most ? 3 : at;
        most = in[below + right + c] > most ? in[below + right + c] : most;
        place[c] = (uint8_t)(most > 0 ? at : NONE);
        out[c] = most > 0 ? most : 0;
    }
}

static void unpool_four(const float *restrict out, const uint8_t *restrict place, int count,
                        float *restrict in, size_t right, size_t below)
{
    for (int c = 0; c < count; c++) {
        const float gradient = out[c];
        const int at = place[c];
        in[c] = at == 0 ? gradient : 0;
        in[right + c] = at == 1 ? gradient : 0;
        in[below + c] = at == 2 ? gradient : 0;
        in[below + right + c] = at == 3 ? gradient : 0;
    }
}

/* A row of outputs: in has blocks of channels, out has all of them side by side. */
struct pool_row {
    size_t in, out; /* where the row begins */
    int block, count;
};

static struct pool_row pool_row(const struct layer *layer, int image, int first_channel, int y)
{
    const struct activation *in = layer->in, *out = layer->out;
    const int left = out->shape.channels - first_channel;
    const size_t in_row = (size_t)in->shape.width * (size_t)in->block;
    const size_t blocks_before = (size_t)(first_channel / in->block) * (size_t)in->shape.height;
    return (struct pool_row){
        .in = (size_t)image * activation_image(in) + (blocks_before + 2 * (size_t)y) * in_row,
        .out = ((size_t)image * (size_t)out->shape.height + (size_t)y) * (size_t)out->shape.width *
                   (size_t)out->shape.channels +
               (size_t)first_channel,
        .block = in->block,
        .count = left < in->block ? left : in->block,
    };
}

static void pool_run(struct layer *layer, int n, bool forward)
{
    const struct activation *in = layer->in, *out = layer->out;
    uint8_t *places = layer->own;
    const size_t right = (size_t)in->block, below = right * (size_t)in->shape.width;
    const int rows_of_block = out->shape.height;
    const int blocks = (in->shape.channels + in->block - 1) / in->block;
    for (int at = 0; at < n * blocks * rows_of_block; at++) {
        const struct pool_row row =
            pool_row(layer, at / (blocks * rows_of_block), at / rows_of_block % blocks * in->block,
                     at % rows_of_block);
        for (int x = 0; x < out->shape.width; x++) {
            const size_t from = row.in + 2 * (size_t)x * right;
            const size_t to = row.out + (size_t)x * (size_t)out->shape.channels;
            if (forward) {
                pool_four(in->data + from, right, below, row.count, out->data + to, places + to);
            } else {
                unpool_four(out->gradient + to, places + to, row.count, in->gradient + from, right,
                            below);
            }
        }
    }
}

static void pool_forward(struct layer *layer, int n, bool training)
{
    (void)training;
    pool_run(layer, n, true);
}

/* Of images that do not count the convolution before must get zeros. */
static void pool_backward(struct layer *layer, int n)
{
    const struct activation *in = layer->in;
    pool_run(layer, n, false);
    memset(in->gradient + (size_t)n * activation_image(in), 0,
           (size_t)(in->batch - n) * activation_image(in) * sizeof(float));
}

static void pool_destroy(struct layer *layer)
{
    free(layer->own);
}

const struct layer_kind_impl layer_pool_relu = {
    .shape = pool_shape,
    .create = pool_create,
    .forward = pool_forward,
    .backward = pool_backward,
    .destroy = pool_destroy,
};

static bool relu_shape(struct layer *layer, struct problem *problem)
{
    (void)problem;
    layer->out->shape = layer->in->shape;
    layer->out->block = layer->in->block;
    return true;
}

static void relu_forward(struct layer *layer, int n, bool training)
{
    (void)training;
    const size_t count = (size_t)n * activation_image(layer->in);
    for (size_t i = 0; i < count; i++) {
        layer->out->data[i] = layer->in->data[i] > 0 ? layer->in->data[i] : 0;
    }
}

/* Of all images: gradients of those that do not count are zero already. */
static void relu_backward(struct layer *layer, int n)
{
    (void)n;
    const size_t count = (size_t)layer->in->batch * activation_image(layer->in);
    for (size_t i = 0; i < count; i++) {
        layer->in->gradient[i] = layer->in->data[i] > 0 ? layer->out->gradient[i] : 0;
    }
}

const struct layer_kind_impl layer_relu = {
    .shape = relu_shape,
    .forward = relu_forward,
    .backward = relu_backward,
};

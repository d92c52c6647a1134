/*
 * Batch normalization: out = weight * (in - mean) / sqrt(variance + epsilon) + bias, for each
 * channel. Mean and variance are the batch's in training, and the running averages otherwise;
 * averages keep 0.9 of themselves and take 0.1 of the batch's (its unbiased variance), as in
 * PyTorch.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/layer.h"

#define EPSILON 1e-5
#define MOMENTUM 0.1

/* One value for each channel. */
struct batch_norm {
    double *mean, *rstd;           /* of the last forward; rstd: 1 / sqrt(variance + epsilon) */
    double *bias_sum, *weight_sum; /* of the gradients, of the last backward */
    double memory[];
};

static bool norm_shape(struct layer *layer, struct problem *problem)
{
    const struct image_shape *in = &layer->in->shape;
    if (layer->in->block != in->channels) {
        return problem_say(problem, "%s: blocks of %d channels", layer->row->name,
                           layer->in->block);
    }
    layer->out->shape = *in;
    layer->out->block = in->channels;
    layer_describe(layer, "weight", 1, in->channels, (struct image_shape){1, 1, 1}, 0);
    layer_describe(layer, "bias", 1, in->channels, (struct image_shape){1, 1, 1}, 0);
    layer_describe_average(layer, "running_mean", in->channels);
    layer_describe_average(layer, "running_var", in->channels);
    return true;
}

static bool norm_create(struct layer *layer, struct problem *problem)
{
    const size_t channels = (size_t)layer->in->shape.channels;
    struct batch_norm *norm = calloc(1, sizeof(*norm) + 4 * channels * sizeof(double));
    layer->own = norm;
    if (norm == NULL) {
        return problem_say(problem, "no memory for the layer %s", layer->row->name);
    }
    norm->mean = norm->memory;
    norm->rstd = norm->mean + channels;
    norm->bias_sum = norm->rstd + channels;
    norm->weight_sum = norm->bias_sum + channels;
    return true;
}

static size_t norm_pixels(const struct layer *layer, int n)
{
    return (size_t)n * (size_t)layer->in->shape.height * (size_t)layer->in->shape.width;
}

/* The batch's mean, and into rstd its variance; two passes, because one would cancel. */
static void norm_measure(struct layer *layer, size_t pixels)
{
    struct batch_norm *norm = layer->own;
    const size_t channels = (size_t)layer->in->shape.channels;
    memset(norm->mean, 0, 2 * channels * sizeof(double));
    for (size_t i = 0; i < pixels; i++) {
        for (size_t c = 0; c < channels; c++) {
            norm->mean[c] += layer->in->data[i * channels + c];
        }
    }
    for (size_t c = 0; c < channels; c++) {
        norm->mean[c] /= (double)pixels;
    }
    for (size_t i = 0; i < pixels; i++) {
        for (size_t c = 0; c < channels; c++) {
            const double off = layer->in->data[i * channels + c] - norm->mean[c];
            norm->rstd[c] += off * off;
        }
    }
    for (size_t c = 0; c < channels; c++) {
        norm->rstd[c] /= (double)pixels;
    }
}

static void norm_follow(struct layer *layer, size_t pixels)
{
    const struct batch_norm *norm = layer->own;
    const double unbiased = pixels > 1 ? (double)pixels / (double)(pixels - 1) : 1;
    float *mean = layer->averages[0].value, *variance = layer->averages[1].value;
    for (int c = 0; c < layer->in->shape.channels; c++) {
        mean[c] = (float)((1 - MOMENTUM) * mean[c] + MOMENTUM * norm->mean[c]);
        variance[c] = (float)((1 - MOMENTUM) * variance[c] + MOMENTUM * norm->rstd[c] * unbiased);
    }
}

static void norm_forward(struct layer *layer, int n, bool training)
{
    struct batch_norm *norm = layer->own;
    const size_t pixels = norm_pixels(layer, n), channels = (size_t)layer->in->shape.channels;
    if (training) {
        norm_measure(layer, pixels);
        norm_follow(layer, pixels);
    }
    for (size_t c = 0; c < channels; c++) {
        norm->mean[c] = training ? norm->mean[c] : layer->averages[0].value[c];
        const double variance = training ? norm->rstd[c] : layer->averages[1].value[c];
        norm->rstd[c] = 1 / sqrt(variance + EPSILON);
    }
    const float *weight = layer->tensors[0].value, *bias = layer->tensors[1].value;
    for (size_t i = 0; i < pixels; i++) {
        for (size_t c = 0; c < channels; c++) {
            const double normal =
                (layer->in->data[i * channels + c] - norm->mean[c]) * norm->rstd[c];
            layer->out->data[i * channels + c] = (float)(weight[c] * normal + bias[c]);
        }
    }
}

static void norm_gradients(struct layer *layer, int n, bool accumulate)
{
    struct batch_norm *norm = layer->own;
    const size_t pixels = norm_pixels(layer, n), channels = (size_t)layer->in->shape.channels;
    memset(norm->bias_sum, 0, 2 * channels * sizeof(double));
    for (size_t i = 0; i < pixels; i++) {
        for (size_t c = 0; c < channels; c++) {
            const double gradient = layer->out->gradient[i * channels + c];
            const double off = layer->in->data[i * channels + c] - norm->mean[c];
            norm->bias_sum[c] += gradient;
            norm->weight_sum[c] += gradient * off * norm->rstd[c];
        }
    }
    float *weight = layer->tensors[0].gradient, *bias = layer->tensors[1].gradient;
    for (size_t c = 0; c < channels; c++) {
        weight[c] = (float)((accumulate ? weight[c] : 0) + norm->weight_sum[c]);
        bias[c] = (float)((accumulate ? bias[c] : 0) + norm->bias_sum[c]);
    }
}

/* The mean and the variance depend on every input: what of the gradient goes along them is taken
 * out. */
static void norm_backward(struct layer *layer, int n)
{
    const struct batch_norm *norm = layer->own;
    const size_t pixels = norm_pixels(layer, n), channels = (size_t)layer->in->shape.channels;
    const float *weight = layer->tensors[0].value;
    for (size_t i = 0; i < pixels; i++) {
        for (size_t c = 0; c < channels; c++) {
            const size_t at = i * channels + c;
            const double normal = (layer->in->data[at] - norm->mean[c]) * norm->rstd[c];
            const double along =
                (norm->bias_sum[c] + normal * norm->weight_sum[c]) / (double)pixels;
            layer->in->gradient[at] =
                (float)(weight[c] * norm->rstd[c] * (layer->out->gradient[at] - along));
        }
    }
    memset(layer->in->gradient + pixels * channels, 0,
           (norm_pixels(layer, layer->in->batch) - pixels) * channels * sizeof(float));
}

static void norm_destroy(struct layer *layer)
{
    free(layer->own);
}

const struct layer_kind_impl layer_batch_norm = {
    .shape = norm_shape,
    .create = norm_create,
    .forward = norm_forward,
    .gradients = norm_gradients,
    .backward = norm_backward,
    .destroy = norm_destroy,
};

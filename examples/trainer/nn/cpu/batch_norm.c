/*
 * Batch normalization: out = weight * (in - mean) / sqrt(variance + epsilon) + bias, for each
 * channel. In training mean and variance are the batch's, otherwise the running averages, which are
 * updated by 0.9 * average + 0.1 * the batch's value (with the unbiased variance), as in PyTorch.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/cpu/cpu.h"

/* Arrays of one value for each channel, so that the compiler vectorizes loops over channels. */
struct batch_norm {
    float *mean, *variance, *rstd; /* of the last forward; rstd: 1 / sqrt(variance + epsilon) */
    float *bias_sum, *weight_sum;  /* of the gradients, of the last backward */
    float *part[2];                /* sums over an image, which are added up in `sum` */
    double *sum[2];
};

static bool norm_create(struct layer *layer, struct problem *problem)
{
    const size_t channels = (size_t)layer->in->shape.channels;
    const size_t bytes = channels * (2 * sizeof(double) + 7 * sizeof(float));
    struct batch_norm *norm = calloc(1, sizeof(*norm) + bytes);
    layer->own = norm;
    if (norm == NULL) {
        return problem_say(problem, "no memory for the layer %s", layer->row->name);
    }
    norm->sum[0] = (double *)(norm + 1);
    norm->sum[1] = norm->sum[0] + channels;
    float **const floats[] = {&norm->mean,       &norm->variance, &norm->rstd,   &norm->bias_sum,
                              &norm->weight_sum, &norm->part[0],  &norm->part[1]};
    for (size_t i = 0; i < 7; i++) {
        *floats[i] = (float *)(norm->sum[1] + channels) + i * channels;
    }
    return true;
}

static size_t norm_pixels(const struct layer *layer, int n)
{
    return (size_t)n * (size_t)layer->in->shape.height * (size_t)layer->in->shape.width;
}

/* Adds up two sums over the pixels of an image, in norm->part. */
typedef void norm_part(const struct layer *layer, size_t first, size_t pixels);

/* The sums over all images of what `part` adds up for each. */
static void norm_sum(struct layer *layer, int n, norm_part *part)
{
    struct batch_norm *norm = layer->own;
    const size_t channels = (size_t)layer->in->shape.channels, pixels = norm_pixels(layer, 1);
    memset(norm->sum[0], 0, 2 * channels * sizeof(double));
    for (size_t i = 0; i < (size_t)n; i++) {
        memset(norm->part[0], 0, 2 * channels * sizeof(float));
        part(layer, i * pixels, pixels);
        for (size_t c = 0; c < channels; c++) {
            norm->sum[0][c] += norm->part[0][c];
            norm->sum[1][c] += norm->part[1][c];
        }
    }
}

static void part_mean(const struct layer *layer, size_t first, size_t pixels)
{
    const size_t channels = (size_t)layer->in->shape.channels;
    float *restrict part = ((struct batch_norm *)layer->own)->part[0];
    const float *restrict in = layer->in->data + first * channels;
    for (size_t i = 0; i < pixels; i++, in += channels) {
        for (size_t c = 0; c < channels; c++) {
            part[c] += in[c];
        }
    }
}

static void part_variance(const struct layer *layer, size_t first, size_t pixels)
{
    const struct batch_norm *norm = layer->own;
    const size_t channels = (size_t)layer->in->shape.channels;
    float *restrict part = norm->part[0];
    const float *restrict in = layer->in->data + first * channels, *restrict mean = norm->mean;
    for (size_t i = 0; i < pixels; i++, in += channels) {
        for (size_t c = 0; c < channels; c++) {
            part[c] += (in[c] - mean[c]) * (in[c] - mean[c]);
        }
    }
}

/* The batch's mean and variance, in two passes: the formula for one pass loses digits. */
static void norm_measure(struct layer *layer, int n)
{
    struct batch_norm *norm = layer->own;
    const double pixels = (double)norm_pixels(layer, n);
    norm_sum(layer, n, part_mean);
    for (int c = 0; c < layer->in->shape.channels; c++) {
        norm->mean[c] = (float)(norm->sum[0][c] / pixels);
    }
    norm_sum(layer, n, part_variance);
    const double unbiased = pixels > 1 ? pixels / (pixels - 1) : 1;
    float *mean = layer->averages[0].value, *variance = layer->averages[1].value;
    for (int c = 0; c < layer->in->shape.channels; c++) {
        norm->variance[c] = (float)(norm->sum[0][c] / pixels);
        mean[c] = (float)((1 - NORM_MOMENTUM) * mean[c] + NORM_MOMENTUM * norm->mean[c]);
        variance[c] = (float)((1 - NORM_MOMENTUM) * variance[c] +
                              NORM_MOMENTUM * norm->variance[c] * unbiased);
    }
}

static void norm_forward(struct layer *layer, int n, bool training)
{
    struct batch_norm *norm = layer->own;
    const size_t pixels = norm_pixels(layer, n), channels = (size_t)layer->in->shape.channels;
    if (training) {
        norm_measure(layer, n);
    } else {
        memcpy(norm->mean, layer->averages[0].value, channels * sizeof(float));
        memcpy(norm->variance, layer->averages[1].value, channels * sizeof(float));
    }
    for (size_t c = 0; c < channels; c++) {
        norm->rstd[c] = (float)(1 / sqrt(norm->variance[c] + NORM_EPSILON));
    }
    const float *restrict weight = layer->tensors[0].value, *restrict bias =
                                                                layer->tensors[1].value;
    const float *restrict mean = norm->mean, *restrict rstd = norm->rstd;
    const float *restrict in = layer->in->data;
    float *restrict out = layer->out->data;
    for (size_t i = 0; i < pixels; i++, in += channels, out += channels) {
        for (size_t c = 0; c < channels; c++) {
            out[c] = weight[c] * ((in[c] - mean[c]) * rstd[c]) + bias[c];
        }
    }
}

static void part_gradients(const struct layer *layer, size_t first, size_t pixels)
{
    const struct batch_norm *norm = layer->own;
    const size_t channels = (size_t)layer->in->shape.channels;
    float *restrict bias = norm->part[0], *restrict weight = norm->part[1];
    const float *restrict in = layer->in->data + first * channels;
    const float *restrict out = layer->out->gradient + first * channels;
    const float *restrict mean = norm->mean, *restrict rstd = norm->rstd;
    for (size_t i = 0; i < pixels; i++, in += channels, out += channels) {
        for (size_t c = 0; c < channels; c++) {
            bias[c] += out[c];
            weight[c] += out[c] * ((in[c] - mean[c]) * rstd[c]);
        }
    }
}

static void norm_gradients(struct layer *layer, int n, bool accumulate)
{
    struct batch_norm *norm = layer->own;
    norm_sum(layer, n, part_gradients);
    float *weight = layer->tensors[0].gradient, *bias = layer->tensors[1].gradient;
    for (int c = 0; c < layer->in->shape.channels; c++) {
        norm->bias_sum[c] = (float)norm->sum[0][c];
        norm->weight_sum[c] = (float)norm->sum[1][c];
        bias[c] = (accumulate ? bias[c] : 0) + norm->bias_sum[c];
        weight[c] = (accumulate ? weight[c] : 0) + norm->weight_sum[c];
    }
}

/* Mean and variance depend on every input: the parts of the gradient along them are subtracted. */
static void norm_backward(struct layer *layer, int n)
{
    const struct batch_norm *norm = layer->own;
    const size_t pixels = norm_pixels(layer, n), channels = (size_t)layer->in->shape.channels;
    const float *restrict weight = layer->tensors[0].value;
    const float *restrict mean = norm->mean, *restrict rstd = norm->rstd;
    const float *restrict bias_sum = norm->bias_sum, *restrict weight_sum = norm->weight_sum;
    const float *restrict in = layer->in->data, *restrict out = layer->out->gradient;
    float *restrict to = layer->in->gradient;
    const float share = 1 / (float)pixels;
    for (size_t i = 0; i < pixels; i++, in += channels, out += channels, to += channels) {
        for (size_t c = 0; c < channels; c++) {
            const float normal = (in[c] - mean[c]) * rstd[c];
            const float along = (bias_sum[c] + normal * weight_sum[c]) * share;
            to[c] = weight[c] * rstd[c] * (out[c] - along);
        }
    }
    memset(to, 0, (norm_pixels(layer, layer->in->batch) - pixels) * channels * sizeof(float));
}

static void norm_destroy(struct layer *layer)
{
    free(layer->own);
}

const struct layer_kind_impl cpu_batch_norm = {
    .create = norm_create,
    .forward = norm_forward,
    .gradients = norm_gradients,
    .backward = norm_backward,
    .destroy = norm_destroy,
};

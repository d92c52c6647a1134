/* The backend of the host: its memory, its loops over tensors, and its table. */
#include "nn/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT ((size_t)64) /* in bytes; also the size of the slack */

static float *floats_new(size_t count)
{
    const size_t bytes = (count * sizeof(float) + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    float *floats = aligned_alloc(ALIGNMENT, bytes);
    if (floats != NULL) {
        memset(floats, 0, bytes);
    }
    return floats;
}

static void floats_free(float *floats)
{
    free(floats);
}

static void copy_in(float *to, const float *host, size_t count)
{
    memcpy(to, host, count * sizeof(float));
}

static void copy_out(const float *from, float *host, size_t count)
{
    memcpy(host, from, count * sizeof(float));
}

static void input_take(struct input *input, const float *images, const uint8_t *labels, int n)
{
    input->labels = labels;
    memcpy(input->to->data, images, (size_t)n * shape_count(&input->to->shape) * sizeof(float));
}

static void divide(float *data, size_t count, float by)
{
    for (size_t i = 0; i < count; i++) {
        data[i] /= by;
    }
}

static void sgd_plain(const struct tensor *tensor, float decay, float lr)
{
    float *restrict value = tensor->value;
    const float *restrict gradient = tensor->gradient;
    for (size_t i = 0; i < tensor->count; i++) {
        value[i] -= lr * (gradient[i] + decay * value[i]);
    }
}

/* The momentum begins with 0, so after the first step it is the gradient, as in PyTorch. */
static void sgd(const struct tensor *tensor, float *restrict momentum, float keep, float decay,
                float lr)
{
    if (momentum == NULL) {
        sgd_plain(tensor, decay, lr);
        return;
    }
    float *restrict value = tensor->value;
    const float *restrict gradient = tensor->gradient;
    for (size_t i = 0; i < tensor->count; i++) {
        momentum[i] = keep * momentum[i] + (gradient[i] + decay * value[i]);
        value[i] -= lr * momentum[i];
    }
}

static void adam(const struct tensor *tensor, float *restrict mean, float *restrict square,
                 const struct adam_step *step)
{
    const struct adam_step s = *step;
    float *restrict value = tensor->value;
    const float *restrict gradient = tensor->gradient;
    for (size_t i = 0; i < tensor->count; i++) {
        const float g = gradient[i] + s.decay * value[i];
        mean[i] = s.keep1 * mean[i] + s.take1 * g;
        square[i] = s.keep2 * square[i] + s.take2 * g * g;
        value[i] -= s.step * mean[i] / (sqrtf(square[i]) / s.root + s.epsilon);
    }
}

const struct backend backend_cpu = {
    .name = "the host",
    .layers = {[LAYER_CONV] = &cpu_conv,
               [LAYER_BATCH_NORM] = &cpu_batch_norm,
               [LAYER_POOL_RELU] = &cpu_pool_relu,
               [LAYER_FC] = &cpu_fc,
               [LAYER_RELU] = &cpu_relu},
    .floats_new = floats_new,
    .floats_free = floats_free,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .input_take = input_take,
    .loss_forward = cpu_loss_forward,
    .loss_backward = cpu_loss_backward,
    .divide = divide,
    .sgd = sgd,
    .adam = adam,
};

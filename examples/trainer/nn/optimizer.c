#include "nn/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct optimizer_options optimizer_defaults = {
    .kind = OPTIMIZER_SGD,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .epsilon = 1e-8,
};

const char *optimizer_state_name(const struct optimizer *optimizer, int k)
{
    static const char *const adam[OPTIMIZER_STATES] = {"exp_avg", "exp_avg_sq"};
    if (optimizer->options.kind == OPTIMIZER_ADAM) {
        return adam[k];
    }
    return k == 0 && optimizer->options.momentum != 0 ? "momentum_buffer" : NULL;
}

bool optimizer_init(struct optimizer *optimizer, const struct optimizer_options *options,
                    struct tensor *tensors, int count)
{
    *optimizer = (struct optimizer){.options = *options, .tensors = tensors, .count = count};
    for (int k = 0; k < OPTIMIZER_STATES && optimizer_state_name(optimizer, k) != NULL; k++) {
        optimizer->states[k] = calloc((size_t)count, sizeof(float *));
        for (int i = 0; optimizer->states[k] != NULL && i < count; i++) {
            optimizer->states[k][i] = calloc(tensors[i].count, sizeof(float));
            if (optimizer->states[k][i] == NULL) {
                return false;
            }
        }
        if (optimizer->states[k] == NULL) {
            return false;
        }
    }
    return true;
}

void optimizer_finish(struct optimizer *optimizer)
{
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        for (int i = 0; optimizer->states[k] != NULL && i < optimizer->count; i++) {
            free(optimizer->states[k][i]);
        }
        free(optimizer->states[k]);
    }
    memset(optimizer, 0, sizeof(*optimizer));
}

static void sgd_plain(const struct tensor *tensor, float decay, float lr)
{
    float *restrict value = tensor->value;
    const float *restrict gradient = tensor->gradient;
    for (size_t i = 0; i < tensor->count; i++) {
        value[i] -= lr * (gradient[i] + decay * value[i]);
    }
}

/* The buffer begins with 0, so that after the first step it is the gradient, as in PyTorch. */
static void sgd_momentum(const struct tensor *tensor, float *restrict buffer, float momentum,
                         float decay, float lr)
{
    float *restrict value = tensor->value;
    const float *restrict gradient = tensor->gradient;
    for (size_t i = 0; i < tensor->count; i++) {
        buffer[i] = momentum * buffer[i] + (gradient[i] + decay * value[i]);
        value[i] -= lr * buffer[i];
    }
}

static void adam(const struct optimizer *optimizer, int t, float lr)
{
    const struct optimizer_options *o = &optimizer->options;
    const double steps = (double)optimizer->steps;
    const float step = (float)(lr / (1 - pow(o->beta1, steps)));
    const float root = (float)sqrt(1 - pow(o->beta2, steps));
    const float keep1 = (float)o->beta1, take1 = (float)(1 - o->beta1);
    const float keep2 = (float)o->beta2, take2 = (float)(1 - o->beta2);
    const float epsilon = (float)o->epsilon;
    float *restrict value = optimizer->tensors[t].value;
    const float *restrict gradient = optimizer->tensors[t].gradient;
    float *restrict mean = optimizer->states[0][t];
    float *restrict square = optimizer->states[1][t];
    for (size_t i = 0; i < optimizer->tensors[t].count; i++) {
        const float g = gradient[i] + o->weight_decay * value[i];
        mean[i] = keep1 * mean[i] + take1 * g;
        square[i] = keep2 * square[i] + take2 * g * g;
        value[i] -= step * mean[i] / (sqrtf(square[i]) / root + epsilon);
    }
}

void optimizer_step(struct optimizer *optimizer, float lr)
{
    const struct optimizer_options *o = &optimizer->options;
    optimizer->steps++;
    for (int i = 0; i < optimizer->count; i++) {
        if (o->kind == OPTIMIZER_ADAM) {
            adam(optimizer, i, lr);
        } else if (optimizer->states[0] != NULL) {
            sgd_momentum(&optimizer->tensors[i], optimizer->states[0][i], o->momentum,
                         o->weight_decay, lr);
        } else {
            sgd_plain(&optimizer->tensors[i], o->weight_decay, lr);
        }
    }
}

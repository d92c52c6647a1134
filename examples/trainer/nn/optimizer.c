#include "nn/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/backend.h"

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
            optimizer->states[k][i] = tensors[i].backend->floats_new(tensors[i].count);
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
            if (optimizer->states[k][i] != NULL) {
                optimizer->tensors[i].backend->floats_free(optimizer->states[k][i]);
            }
        }
        free(optimizer->states[k]);
    }
    memset(optimizer, 0, sizeof(*optimizer));
}

static struct adam_step adam_step(const struct optimizer *optimizer, float lr)
{
    const struct optimizer_options *o = &optimizer->options;
    const double steps = (double)optimizer->steps + 1;
    return (struct adam_step){
        .step = (float)(lr / (1 - pow(o->beta1, steps))),
        .root = (float)sqrt(1 - pow(o->beta2, steps)),
        .keep1 = (float)o->beta1,
        .take1 = (float)(1 - o->beta1),
        .keep2 = (float)o->beta2,
        .take2 = (float)(1 - o->beta2),
        .epsilon = (float)o->epsilon,
        .decay = o->weight_decay,
    };
}

void optimizer_update(const struct optimizer *optimizer, int i, float lr)
{
    const struct optimizer_options *o = &optimizer->options;
    const struct tensor *tensor = &optimizer->tensors[i];
    float **const *states = optimizer->states;
    if (o->kind == OPTIMIZER_ADAM) {
        const struct adam_step adam = adam_step(optimizer, lr);
        tensor->backend->adam(tensor, states[0][i], states[1][i], &adam);
    } else {
        tensor->backend->sgd(tensor, states[0] == NULL ? NULL : states[0][i], o->momentum,
                             o->weight_decay, lr);
    }
}

void optimizer_end_step(struct optimizer *optimizer)
{
    optimizer->steps++;
}

void optimizer_step(struct optimizer *optimizer, float lr)
{
    for (int i = 0; i < optimizer->count; i++) {
        optimizer_update(optimizer, i, lr);
    }
    optimizer_end_step(optimizer);
}

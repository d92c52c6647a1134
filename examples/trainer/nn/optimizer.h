/* SGD with momentum and weight decay, and Adam, with PyTorch's formulas. */
#ifndef TRAINER_OPTIMIZER_H
#define TRAINER_OPTIMIZER_H

#include "nn/net.h"

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADAM };

struct optimizer_options {
    enum optimizer_kind kind;
    float momentum, weight_decay; /* weight decay, for both kinds, is added to the gradient */
    double beta1, beta2, epsilon; /* Adam's */
};

/* As in PyTorch: SGD without momentum, betas 0.9 and 0.999, epsilon 1e-8. */
extern const struct optimizer_options optimizer_defaults;

/* states[k][i]: state k of tensor i, in the tensor's layout; states[k] NULL: no such state. */
#define OPTIMIZER_STATES 2
struct optimizer {
    struct optimizer_options options;
    struct tensor *tensors; /* borrowed */
    int count;
    int64_t steps;                    /* complete steps */
    float **states[OPTIMIZER_STATES]; /* SGD: momentum. Adam: averages of gradient and its square */
};

/* PyTorch's name of state k; NULL: the optimizer has no such state. */
const char *optimizer_state_name(const struct optimizer *optimizer, int k);

/* False: no memory. Call finish in any case. */
bool optimizer_init(struct optimizer *optimizer, const struct optimizer_options *options,
                    struct tensor *tensors, int count);
void optimizer_finish(struct optimizer *optimizer);

/* Updates all tensors by their gradients. */
void optimizer_step(struct optimizer *optimizer, float lr);

/* The same in parts, in any order: each tensor once, then the end. */
void optimizer_update(const struct optimizer *optimizer, int i, float lr);
void optimizer_end_step(struct optimizer *optimizer);

#endif

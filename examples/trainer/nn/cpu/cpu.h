/* The backend of the host: the functions of its files, for its table. */
#ifndef TRAINER_CPU_H
#define TRAINER_CPU_H

#include "nn/backend.h"

extern const struct layer_kind_impl cpu_conv, cpu_fc, cpu_batch_norm, cpu_pool_relu, cpu_relu;

struct net_result cpu_loss_forward(const struct activation *out, const struct input *input, int n);
void cpu_loss_backward(const struct activation *out, const struct input *input, int n);

#endif

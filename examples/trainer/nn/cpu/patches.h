/*
 * The gradients of a convolution as products of matrices, one row for each output pixel: the
 * patch of the input under the kernel. For numbers of channels that vectors do not divide, of
 * which a convolution's own kernels compute the rest in vain; a patch has many columns.
 */
#ifndef TRAINER_PATCHES_H
#define TRAINER_PATCHES_H

#include "nn/layer.h"

struct patches;

/* Whether a convolution is faster so. */
bool patches_suit(const struct layer *layer);

/* NULL: no memory. */
struct patches *patches_create(const struct layer *layer);
void patches_destroy(struct patches *patches);

/* From the layer's input and the gradient of its output; weight and bias are written. */
void patches_gradients(const struct patches *patches, const struct layer *layer, float *weight,
                       float *bias);
/* The gradient of the layer's input. */
void patches_backward(const struct patches *patches, const struct layer *layer);

#endif

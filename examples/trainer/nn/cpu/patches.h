/*
 * The gradients of a convolution as products of matrices, with a row for each output pixel: the
 * patch of the input under the kernel. For numbers of channels that are no multiple of a vector: a
 * convolution's own kernels waste the rest of the last vector of each pixel, while a patch has many
 * columns.
 */
#ifndef TRAINER_PATCHES_H
#define TRAINER_PATCHES_H

#include "nn/layer.h"

struct patches;

/* Is a convolution faster this way? */
bool patches_suit(const struct layer *layer);

/* NULL: no memory. */
struct patches *patches_create(const struct layer *layer);
void patches_destroy(struct patches *patches);

/* Writes the gradients of weight and bias, from the layer's input and its output's gradient. */
void patches_gradients(const struct patches *patches, const struct layer *layer, float *weight,
                       float *bias);
/* Writes the gradient of the layer's input. */
void patches_backward(const struct patches *patches, const struct layer *layer);

#endif

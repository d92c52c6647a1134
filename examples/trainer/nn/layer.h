/*
 * The interface between a net and its kinds of layers, and of whoever computes: a backend is one
 * struct layer_kind_impl for each kind. This one computes on the CPU; one by cuDNN would be another
 * set.
 */
#ifndef TRAINER_LAYER_H
#define TRAINER_LAYER_H

#include "nn/net.h"

/*
 * What lies between two layers: batch x height x width x channels. Behind the last there is slack,
 * so that loops over channels may take whole vectors.
 */
struct activation {
    struct image_shape shape;
    int batch;
    float *data, *gradient;
};

#define TENSORS_MOST (2 * MODEL_LAYERS_MOST)
struct tensor_set {
    int trained_count, average_count;
    struct tensor trained[TENSORS_MOST], averages[TENSORS_MOST];
};

struct layer {
    const struct layer_kind_impl *impl;
    const struct layer_row *row;
    struct activation *in, *out;
    struct tensor_set *set;
    struct tensor *tensors, *averages; /* the first of this layer in the set */
    int tensor_count;
    bool first;  /* nobody wants the gradient of its input */
    double flop; /* of one forward pass for a batch */
    void *own;   /* the kind's */
};

struct layer_kind_impl {
    /* Says shapes: out->shape from row and in, and describes the tensors. */
    bool (*shape)(struct layer *layer, struct problem *problem);
    /* (optional) Makes what it needs; all buffers are there. */
    bool (*create)(struct layer *layer, struct problem *problem);
    /* n: the images that count */
    void (*forward)(struct layer *layer, int n, bool training);
    /* (optional) out->gradient to the tensors' gradients. */
    void (*gradients)(struct layer *layer, int n, bool accumulate);
    /* out->gradient to in->gradient; after gradients. */
    void (*backward)(struct layer *layer, int n);
    /* (optional) */
    void (*destroy)(struct layer *layer);
};

/*
 * Adds a tensor of the layer to the set, NAME.suffix: out x columns, of which PyTorch shows dims.
 * fan_in: how many inputs an output has; 0: the tensor begins with ones or zeros.
 */
void layer_describe(struct layer *layer, const char *suffix, int dims, int out,
                    struct image_shape columns, size_t fan_in);
/* Adds a running average, of one value for each channel. */
void layer_describe_average(struct layer *layer, const char *suffix, int channels);

static inline size_t shape_count(const struct image_shape *shape)
{
    return (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
}

extern const struct layer_kind_impl layer_conv, layer_fc, layer_batch_norm, layer_pool_relu,
    layer_relu;

/* The loss, from the net's outputs: n x classes. */
struct net_result loss_forward(const struct activation *out, const uint8_t *labels, int n);
/* The gradient of its mean, zero for images that do not count. */
void loss_backward(const struct activation *out, const uint8_t *labels, int n);

#endif

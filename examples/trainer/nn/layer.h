/*
 * The interface between a net, its kinds of layers and a backend (nn/backend.h), which has one
 * struct layer_kind_impl for each kind.
 */
#ifndef TRAINER_LAYER_H
#define TRAINER_LAYER_H

#include "nn/net.h"

/*
 * The values between two layers: batch x height x width x channels. There is slack behind them, so
 * that loops over channels may use whole vectors.
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
    bool first;  /* the gradient of its input is not needed */
    double flop; /* operations of a forward pass over a batch */
    void *own;   /* data of the layer's kind */
};

struct layer_kind_impl {
    /* (optional) Makes what the layer needs; called when all buffers exist. */
    bool (*create)(struct layer *layer, struct problem *problem);
    /* n: how many images of the batch are used */
    void (*forward)(struct layer *layer, int n, bool training);
    /* (optional) Computes the tensors' gradients from out->gradient. */
    void (*gradients)(struct layer *layer, int n, bool accumulate);
    /* Computes in->gradient from out->gradient; called after gradients. */
    void (*backward)(struct layer *layer, int n);
    /* (optional) */
    void (*destroy)(struct layer *layer);
};

/* Sets out->shape by the row and the input's shape, and describes the layer's tensors. */
bool layer_shape(struct layer *layer, struct problem *problem);

/* Constants of batch normalization. */
#define NORM_EPSILON 1e-5
#define NORM_MOMENTUM 0.1

static inline size_t shape_count(const struct image_shape *shape)
{
    return (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
}

#endif

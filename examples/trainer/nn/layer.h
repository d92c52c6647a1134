/*
 * The interface between a net, its kinds of layers, and whoever computes: a backend (nn/backend.h)
 * has one struct layer_kind_impl for each kind.
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

/* Says shapes: out->shape from row and in, and describes the tensors. */
bool layer_shape(struct layer *layer, struct problem *problem);

/* Of batch normalization. */
#define NORM_EPSILON 1e-5
#define NORM_MOMENTUM 0.1

static inline size_t shape_count(const struct image_shape *shape)
{
    return (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
}

#endif

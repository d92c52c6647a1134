/*
 * Models as tables. A layer takes the output of the one above it; its shapes follow from that. To
 * add a model, add a table to models.c; to add a kind of layer, its shapes in shapes.c and what it
 * does in a file of each backend, cpu/pool.c for one.
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "data/dataset.h"

enum layer_kind {
    LAYER_END,
    LAYER_CONV,       /* out channels, kernel x kernel, stride 1, zero padding */
    LAYER_BATCH_NORM, /* over batch, height and width; running averages for evaluation */
    LAYER_POOL_RELU,  /* maximum of 2 x 2, then ReLU: they commute, and a quarter is left to mask */
    LAYER_FC,         /* out = weight * (all of the input) + bias */
    LAYER_RELU,
    LAYER_KINDS
};

struct layer_row {
    enum layer_kind kind;
    const char *name; /* of its tensors, as in PyTorch: NAME.weight, NAME.bias; NULL: has none */
    int out, kernel, padding;
};

#define MODEL_LAYERS_MOST 16
struct model {
    const char *name, *about;
    struct image_shape input;
    struct layer_row layers[MODEL_LAYERS_MOST];
};

/* The models that there are, ended by one without a name. */
extern const struct model models[];
/* NULL: there is none of that name. */
const struct model *model_find(const char *name);

#endif

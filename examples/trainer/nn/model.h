/*
 * Models as tables. A layer takes the output of the one above it, from which its shapes follow. A
 * new model is a table in models.c. A new kind of layer needs its shapes in shapes.c, and its
 * functions in each backend (such as cpu/pool.c).
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "data/dataset.h"

enum layer_kind {
    LAYER_END,
    LAYER_CONV,       /* out channels, kernel x kernel, stride 1, zero padding */
    LAYER_BATCH_NORM, /* over batch, height and width; running averages for evaluation */
    LAYER_POOL_RELU,  /* maximum of 2 x 2, then ReLU, which commute: so ReLU has less to do */
    LAYER_FC,         /* fully connected: out = weight * (all inputs) + bias */
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

/* All models; the last entry has no name. */
extern const struct model models[];
/* NULL: there is no such model. */
const struct model *model_find(const char *name);

#endif

/*
 * Who computes: what a layer of each kind does, and what else touches memory that the host may not
 * reach. There are two, a table each: nn/cpu (oneDNN and own loops) and nn/cuda (cuDNN, cuBLAS and
 * own kernels), a module of its own that is loaded when it is asked for. Shapes, layouts, the walk
 * through the layers and the optimizers' formulas are the same.
 *
 * On a device calls launch; only copy_in, copy_out, loss_forward and the device's join wait.
 */
#ifndef TRAINER_BACKEND_H
#define TRAINER_BACKEND_H

#include "device.h"
#include "nn/layer.h"

/* A batch on its way into a net. */
struct input {
    struct activation *to; /* the net's first */
    const uint8_t *labels; /* where the loss finds them; NULL: there are none */
    void *own;             /* the backend's */
};

/* Adam's numbers of a step, for all tensors. */
struct adam_step {
    float step, root, keep1, take1, keep2, take2, epsilon, decay;
};

struct backend {
    const char *name;                                  /* where it computes, for sentences */
    const struct layer_kind_impl *layers[LAYER_KINDS]; /* by enum layer_kind */
    const struct device *device;                       /* NULL: the host reaches the memory */

    /* Zeroed, so that what no image fills is a number; and the slack. NULL: no memory. */
    float *(*floats_new)(size_t count);
    void (*floats_free)(float *floats);
    void (*copy_in)(float *to, const float *host, size_t count);
    void (*copy_out)(const float *from, float *host, size_t count);

    /* (optional, both) */
    bool (*input_create)(struct input *input, struct problem *problem);
    void (*input_destroy)(struct input *input);
    /* (optional) Begins to fetch what the next input_take will get; borrowed until then. */
    void (*input_ahead)(struct input *input, const float *images, const uint8_t *labels, int n);
    /* labels: NULL or n, borrowed until backward */
    void (*input_take)(struct input *input, const float *images, const uint8_t *labels, int n);

    /* The loss, from the net's outputs: n x classes. */
    struct net_result (*loss_forward)(const struct activation *out, const struct input *input,
                                      int n);
    /* The gradient of its mean, zero for images that do not count. */
    void (*loss_backward)(const struct activation *out, const struct input *input, int n);

    void (*divide)(float *data, size_t count, float by);
    /* momentum NULL: without */
    void (*sgd)(const struct tensor *tensor, float *momentum, float keep, float decay, float lr);
    void (*adam)(const struct tensor *tensor, float *mean, float *square,
                 const struct adam_step *step);
};

/* The host's. */
extern const struct backend backend_cpu;

/* What the module of nn/cuda has under the name "backend_cuda_open". device -1: rank, the
 * number among those of this machine, takes one after the other, and again from the first. */
typedef const struct backend *backend_open(int device, int rank, struct problem *problem);

#endif

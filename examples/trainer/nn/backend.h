/*
 * A backend: a table of functions that compute the layers of each kind, and that access memory
 * which the host may not reach. There are two: nn/cpu (oneDNN and own loops), and nn/cuda (cuDNN,
 * cuBLAS and own kernels), a module that is loaded when it is needed. Shapes, layouts, the walk
 * through the layers and the optimizers' formulas are the same for both.
 *
 * On a device the functions launch work and return; only copy_in, copy_out, loss_forward and the
 * device's join wait.
 */
#ifndef TRAINER_BACKEND_H
#define TRAINER_BACKEND_H

#include "device.h"
#include "nn/layer.h"

/* The input of a net. */
struct input {
    struct activation *to; /* the net's first activation */
    const uint8_t *labels; /* for the loss; NULL: none */
    void *own;             /* the backend's data */
};

/* Adam's coefficients of a step, the same for all tensors. */
struct adam_step {
    float step, root, keep1, take1, keep2, take2, epsilon, decay;
};

struct backend {
    const char *name;                                  /* where it computes, for messages */
    const struct layer_kind_impl *layers[LAYER_KINDS]; /* by enum layer_kind */
    const struct device *device;                       /* NULL: the host reaches the memory */

    /* Allocates count floats and slack, zeroed: unused images must be numbers. NULL: no memory. */
    float *(*floats_new)(size_t count);
    void (*floats_free)(float *floats);
    void (*copy_in)(float *to, const float *host, size_t count);
    void (*copy_out)(const float *from, float *host, size_t count);

    /* (optional, both) */
    bool (*input_create)(struct input *input, struct problem *problem);
    void (*input_destroy)(struct input *input);
    /* (optional) Begins to copy the batch of the next input_take; borrowed until then. */
    void (*input_ahead)(struct input *input, const float *images, const uint8_t *labels, int n);
    /* Takes a batch of n images. labels: n or NULL, borrowed until backward. */
    void (*input_take)(struct input *input, const float *images, const uint8_t *labels, int n);

    /* The loss of the net's outputs, n x classes. */
    struct net_result (*loss_forward)(const struct activation *out, const struct input *input,
                                      int n);
    /* The gradient of the mean loss; zero for images beyond n. */
    void (*loss_backward)(const struct activation *out, const struct input *input, int n);

    void (*divide)(float *data, size_t count, float by);
    /* momentum NULL: without momentum */
    void (*sgd)(const struct tensor *tensor, float *momentum, float keep, float decay, float lr);
    void (*adam)(const struct tensor *tensor, float *mean, float *square,
                 const struct adam_step *step);
};

/* The host's backend. */
extern const struct backend backend_cpu;

/* The type of backend_cuda_open() in the module of nn/cuda. device -1: the ranks of a machine,
 * numbered by `rank`, take devices in turn. */
typedef const struct backend *backend_open(int device, int rank, struct problem *problem);

#endif

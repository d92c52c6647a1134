/*
 * A net in memory: its tensors, and a step forward and backward. Everything is made once, for one
 * size of batch; a step is a walk through a fixed list of layers. A batch may have fewer images;
 * then the rest is computed, but not used.
 *
 * Inside, activations and weights have the channels last (nhwc, ohwi), with which oneDNN is
 * fastest. Outside (checkpoints, comparisons) tensors have PyTorch's order; tensor_import() and
 * tensor_export() convert.
 */
#ifndef TRAINER_NET_H
#define TRAINER_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/model.h"
#include "problem.h"

struct backend;

struct tensor {
    char name[32];              /* as PyTorch names it: conv1.weight */
    int dims, shape[4];         /* as PyTorch shapes it: out, in, height, width */
    int out;                    /* inside: out x (height x width x channels) */
    struct image_shape columns; /* outside: out x (channels x height x width) */
    size_t fan_in; /* inputs of one output, which bound the first values; 0: ones or zeros */
    size_t count;  /* of floats */
    const struct backend *backend; /* in whose memory value and gradient are */
    float *value;
    float *gradient; /* count floats, borrowed: the caller sets it before backward */
};

/* Copy count floats; outside: in PyTorch's order, in host memory; inside: in the backend's memory.
 * False: no host memory to reorder them in. */
bool tensor_import(const struct tensor *tensor, const float *outside, float *inside);
bool tensor_export(const struct tensor *tensor, const float *inside, float *outside);

struct net;
struct net_result {
    double loss; /* negative log-likelihood, summed over the images */
    int correct; /* how many images' labels had the largest output */
};

/* Called in backward as soon as tensors[i].gradient is complete. */
typedef void net_ready(void *arg, int i);

/*
 * With shared: a net over the same tensors, for another size of batch, and for forward only; shared
 * must outlive it. NULL, with the problem: the model is impossible, or there is no memory.
 */
struct net *net_create(const struct model *model, int batch, struct net *shared,
                       struct problem *problem);
/* The same with another backend than the host's (nn/backend.h). A net that shares uses the backend
 * of shared. */
struct net *net_create_on(const struct backend *backend, const struct model *model, int batch,
                          struct problem *problem);
/*
 * One of several parts of a model, each for another rank: the layers with weights are divided
 * evenly, each together with what follows it. NULL, too: there are fewer of them than parts. First
 * values are those of the whole model. Only the last part has labels and a loss; in the others the
 * caller puts the gradient of the outputs into net_outputs().
 */
struct net *net_create_part(const struct model *model, int part, int parts, int batch,
                            struct problem *problem);
void net_destroy(struct net *net);

/* The inputs or outputs of a part; the first part has no gradient of its inputs. */
struct net_edge {
    float *data, *gradient;
    size_t image; /* floats for each image */
};
struct net_edge net_inputs(const struct net *net);
struct net_edge net_outputs(const struct net *net);

/* The tensors that are trained, in PyTorch's order of registration. */
struct tensor *net_tensors(struct net *net, int *ret_count);
/* The running averages, which belong to the model but are not trained: they have no gradient. */
struct tensor *net_averages(struct net *net, int *ret_count);

/* Draws the first values, the same as PyTorch's after torch.manual_seed(seed). False: no host
 * memory to draw them in. */
bool net_draw(struct net *net, uint32_t seed);

/* Announces the batch of the next net_forward(), so that a device can begin to copy it; it must not
 * change until then. */
void net_ahead(struct net *net, const float *images, const uint8_t *labels, int n);

/*
 * images: n x height x width x channels. labels are borrowed until backward. training: batch
 * normalization uses the batch's mean and variance, and updates the running averages.
 */
struct net_result net_forward(struct net *net, const float *images, const uint8_t *labels, int n,
                              bool training);

/*
 * Writes (accumulate: adds) the gradient of the last forward's mean loss to the tensors' gradients,
 * from the last tensor to the first. ready may be NULL.
 */
void net_backward(struct net *net, bool accumulate, net_ready *ready, void *arg);

/* Divides the gradient of tensor i, the sum over several batches, by their number. */
void net_divide_gradient(struct net *net, int i, int batches);

/* Multiplications and additions of a step, forward and backward, with a whole batch. */
double net_step_flop(const struct net *net);

#endif

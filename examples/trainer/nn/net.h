/*
 * A net in memory: its tensors, and one step forward and backward. Everything is made once for one
 * size of batch, then a step is a walk through a fixed list of layers. A batch may have fewer
 * images than that; the rest of the work is done in vain.
 *
 * Inside, activations and weights lie with the channels last (nhwc, ohwi): that is what oneDNN is
 * fastest with. What is outside (checkpoints, comparisons) has PyTorch's order, so the elements of
 * a tensor go in and out by tensor_import() and tensor_export().
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
    size_t fan_in; /* inputs of one output: bounds the first values; 0: they are ones or zeros */
    size_t count;  /* of floats */
    const struct backend *backend; /* in whose memory value and gradient are */
    float *value;
    float *gradient; /* the caller's: to be pointed at count floats before backward */
};

/* Copy count floats, in PyTorch's order outside; inside: in the backend's memory. False: the host
 * has none to sort them in. */
bool tensor_import(const struct tensor *tensor, const float *outside, float *inside);
bool tensor_export(const struct tensor *tensor, const float *inside, float *outside);

struct net;
struct net_result {
    double loss; /* the sum over the images, negative log-likelihood */
    int correct; /* images whose label had the largest output */
};

/* Called in backward as soon as tensors[i].gradient is complete. */
typedef void net_ready(void *arg, int i);

/*
 * With shared: a net over the same tensors, for another size of batch, which goes forward only;
 * shared must outlive it. NULL, and the problem, when the model can't be, or there is no memory.
 */
struct net *net_create(const struct model *model, int batch, struct net *shared,
                       struct problem *problem);
/* The same by another backend than the host's, nn/backend.h; a net that shares has its own. */
struct net *net_create_on(const struct backend *backend, const struct model *model, int batch,
                          struct problem *problem);
/*
 * One of several parts into which a model is cut, each for another rank: the layers with weights
 * are dealt out evenly, with what follows each. NULL also when there are fewer of them than parts.
 * Values are drawn as those of the whole. labels are NULL but in the last part: there is no loss,
 * and the gradient of the outputs is put into net_outputs() by the caller.
 */
struct net *net_create_part(const struct model *model, int part, int parts, int batch,
                            struct problem *problem);
void net_destroy(struct net *net);

/* Where a part meets its neighbours; the first part has no gradient of its inputs. */
struct net_edge {
    float *data, *gradient;
    size_t image; /* floats for each image */
};
struct net_edge net_inputs(const struct net *net);
struct net_edge net_outputs(const struct net *net);

/* What is trained, in PyTorch's order of registration. */
struct tensor *net_tensors(struct net *net, int *ret_count);
/* What is not trained but belongs to the model: running averages. They have no gradient. */
struct tensor *net_averages(struct net *net, int *ret_count);

/* The first values: those that PyTorch draws after torch.manual_seed(seed). False: the host has no
 * memory to draw them in. */
bool net_draw(struct net *net, uint32_t seed);

/* The next net_forward() gets this batch, unchanged until then: a device begins to fetch it. */
void net_ahead(struct net *net, const float *images, const uint8_t *labels, int n);

/*
 * images: n x height x width x channels. labels are borrowed until backward. Training: batch
 * normalization uses and follows the batch.
 */
struct net_result net_forward(struct net *net, const float *images, const uint8_t *labels, int n,
                              bool training);

/*
 * The gradient of the mean loss of the last forward, into (accumulate: added to) the gradients,
 * from the last tensor to the first. ready may be NULL.
 */
void net_backward(struct net *net, bool accumulate, net_ready *ready, void *arg);

/* After several batches, whose gradients were added: of tensor i their mean is wanted. */
void net_divide_gradient(struct net *net, int i, int batches);

/* Multiplications and additions of one step, forward and backward, for a whole batch. */
double net_step_flop(const struct net *net);

#endif

/*
 * Convolution and fully connected layers, by oneDNN on the CPU.
 *
 * All primitives and memories are made once; a step executes a fixed list of them. Layouts, and why
 * (one core with AVX-512, batch 64):
 *  - activations are nhwc. oneDNN would choose nChw16c, which is 1.5 times slower for 20 -> 50
 *    channels;
 *  - a convolution's weights have the layout that oneDNN prefers for each of the three passes, by
 *    reorders from and to the tensor, which is small. A fully connected layer's have one plain
 *    layout: to reorder its large matrix would cost as much as to use it.
 */
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "nn/cpu/cpu.h"
#include "nn/cpu/patches.h"

/* An operation of the list: a primitive and its arguments. primitive NULL: nothing to do. */
struct op {
    dnnl_primitive_t primitive;
    int count;
    dnnl_exec_arg_t args[5];
};

enum {
    IN,
    OUT,
    IN_GRADIENT,
    OUT_GRADIENT,
    WEIGHT,
    BIAS,
    WEIGHT_GRADIENT,
    BIAS_GRADIENT,
    FORWARD_WEIGHT,
    BACKWARD_WEIGHT,
    FRESH_WEIGHT,
    MEMORIES
};

struct affine {
    dnnl_memory_t
        memories[MEMORIES]; /* the last three NULL where the tensor's own layout is used */
    struct op to_forward, forward;
    struct op gradients, from_gradients;
    struct op to_backward, backward;
    struct patches *patches; /* not NULL: they do the work of gradients and backward */
    float *accumulated[2];   /* of weight and bias: a gradient before it is added to the tensor's */
};

/* The descriptors of a layer's memories, with oneDNN's order of dimensions. */
struct affine_shape {
    dnnl_memory_desc_t in, out, weight, bias;
    dnnl_memory_desc_t any_weight; /* only of a convolution: oneDNN may choose the layout */
};

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static bool dnnl_good(dnnl_status_t status, const char *name, struct problem *problem)
{
    return status == dnnl_success ||
           problem_say(problem, "oneDNN cannot make the layer %s: status %d", name, (int)status);
}

/* An error in a step ends the process: there is no way to go on. */
static void op_run(const struct op *op)
{
    if (op->primitive == NULL) {
        return;
    }
    const dnnl_status_t status = dnnl_primitive_execute(op->primitive, stream, op->count, op->args);
    if (status != dnnl_success) {
        fprintf(stderr, "train: oneDNN failed: status %d\n", (int)status);
        exit(1);
    }
}

static void op_take(struct op *op, int arg, dnnl_memory_t memory)
{
    op->args[op->count++] = (dnnl_exec_arg_t){arg, memory};
}

static dnnl_memory_desc_t desc_4d(int n, int c, int h, int w, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc;
    dnnl_memory_desc_init_by_tag(&desc, 4, (const dnnl_dims_t){n, c, h, w}, dnnl_f32, tag);
    return desc;
}

static dnnl_memory_desc_t desc_2d(int rows, size_t columns)
{
    dnnl_memory_desc_t desc;
    dnnl_memory_desc_init_by_tag(&desc, 2, (const dnnl_dims_t){rows, (dnnl_dim_t)columns}, dnnl_f32,
                                 dnnl_ab);
    return desc;
}

static dnnl_memory_desc_t desc_1d(int count)
{
    dnnl_memory_desc_t desc;
    dnnl_memory_desc_init_by_tag(&desc, 1, (const dnnl_dims_t){count}, dnnl_f32, dnnl_a);
    return desc;
}

static dnnl_memory_desc_t desc_activation(const struct activation *a)
{
    return desc_4d(a->batch, a->shape.channels, a->shape.height, a->shape.width, dnnl_nhwc);
}

/* ---- Descriptors --------------------------------------------------------------------------- */

static bool engine_open(struct problem *problem)
{
    return engine != NULL ||
           (dnnl_good(dnnl_engine_create(&engine, dnnl_cpu, 0), "(any)", problem) &&
            dnnl_good(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "(any)",
                      problem));
}

static struct affine_shape conv_descs(const struct layer *layer)
{
    const struct image_shape *in = &layer->in->shape, *out = &layer->out->shape;
    const int kernel = layer->row->kernel;
    return (struct affine_shape){
        .in = desc_activation(layer->in),
        .out = desc_activation(layer->out),
        .weight = desc_4d(out->channels, in->channels, kernel, kernel, dnnl_acdb),
        .bias = desc_1d(out->channels),
        .any_weight = desc_4d(out->channels, in->channels, kernel, kernel, dnnl_format_tag_any),
    };
}

static dnnl_primitive_desc_t conv_forward(const struct layer *layer, const struct affine_shape *s)
{
    const int p = layer->row->padding;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t made = NULL;
    if (dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                           &s->in, &s->any_weight, &s->bias, &s->out,
                                           (const dnnl_dims_t){1, 1}, (const dnnl_dims_t){p, p},
                                           (const dnnl_dims_t){p, p}) != dnnl_success ||
        dnnl_primitive_desc_create(&made, &desc, NULL, engine, NULL) != dnnl_success) {
        return NULL;
    }
    return made;
}

/* ---- Primitives ---------------------------------------------------------------------------- */

static bool memory_create(struct affine *a, int which, const dnnl_memory_desc_t *desc, void *data)
{
    return dnnl_memory_create(&a->memories[which], desc, engine, data) == dnnl_success;
}

static bool op_create(struct op *op, dnnl_primitive_desc_t desc)
{
    return desc != NULL && dnnl_primitive_create(&op->primitive, desc) == dnnl_success;
}

/* If the primitive wants another layout than the tensor's: makes a memory in it, and a reorder. */
static bool reorder_create(struct affine *a, struct op *op, int from, int to,
                           const dnnl_memory_desc_t *from_desc, const dnnl_memory_desc_t *to_desc)
{
    if (dnnl_memory_desc_equal(from_desc, to_desc)) {
        return true;
    }
    const bool fresh = from == FRESH_WEIGHT;
    dnnl_primitive_desc_t desc = NULL;
    const bool good =
        memory_create(a, fresh ? from : to, fresh ? from_desc : to_desc, DNNL_MEMORY_ALLOCATE) &&
        dnnl_reorder_primitive_desc_create(&desc, from_desc, engine, to_desc, engine, NULL) ==
            dnnl_success &&
        op_create(op, desc);
    op_take(op, DNNL_ARG_FROM, a->memories[from]);
    op_take(op, DNNL_ARG_TO, a->memories[to]);
    dnnl_primitive_desc_destroy(desc);
    return good;
}

/* Memory `which`; or the tensor's if there is none, because the layouts are the same. */
static dnnl_memory_t either(const struct affine *a, int which, int tensors)
{
    return a->memories[which] != NULL ? a->memories[which] : a->memories[tensors];
}

static bool forward_create(struct affine *a, const struct affine_shape *s,
                           dnnl_primitive_desc_t desc)
{
    if (!op_create(&a->forward, desc) ||
        !reorder_create(a, &a->to_forward, WEIGHT, FORWARD_WEIGHT, &s->weight,
                        dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0))) {
        return false;
    }
    op_take(&a->forward, DNNL_ARG_SRC, a->memories[IN]);
    op_take(&a->forward, DNNL_ARG_WEIGHTS, either(a, FORWARD_WEIGHT, WEIGHT));
    op_take(&a->forward, DNNL_ARG_BIAS, a->memories[BIAS]);
    op_take(&a->forward, DNNL_ARG_DST, a->memories[OUT]);
    return true;
}

static bool gradients_create(struct affine *a, const struct affine_shape *s,
                             dnnl_primitive_desc_t desc)
{
    if (!op_create(&a->gradients, desc) ||
        !reorder_create(a, &a->from_gradients, FRESH_WEIGHT, WEIGHT_GRADIENT,
                        dnnl_primitive_desc_query_md(desc, dnnl_query_diff_weights_md, 0),
                        &s->weight)) {
        return false;
    }
    op_take(&a->gradients, DNNL_ARG_SRC, a->memories[IN]);
    op_take(&a->gradients, DNNL_ARG_DIFF_DST, a->memories[OUT_GRADIENT]);
    op_take(&a->gradients, DNNL_ARG_DIFF_WEIGHTS, either(a, FRESH_WEIGHT, WEIGHT_GRADIENT));
    op_take(&a->gradients, DNNL_ARG_DIFF_BIAS, a->memories[BIAS_GRADIENT]);
    return true;
}

static bool backward_create(struct affine *a, const struct affine_shape *s,
                            dnnl_primitive_desc_t desc)
{
    if (!op_create(&a->backward, desc) ||
        !reorder_create(a, &a->to_backward, WEIGHT, BACKWARD_WEIGHT, &s->weight,
                        dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0))) {
        return false;
    }
    op_take(&a->backward, DNNL_ARG_DIFF_DST, a->memories[OUT_GRADIENT]);
    op_take(&a->backward, DNNL_ARG_WEIGHTS, either(a, BACKWARD_WEIGHT, WEIGHT));
    op_take(&a->backward, DNNL_ARG_DIFF_SRC, a->memories[IN_GRADIENT]);
    return true;
}

static bool memories_create(struct affine *a, const struct layer *layer,
                            const struct affine_shape *s)
{
    const size_t bytes = layer->tensors[0].count * sizeof(float);
    a->accumulated[0] = malloc(bytes);
    a->accumulated[1] = malloc(layer->tensors[1].count * sizeof(float));
    return a->accumulated[0] != NULL && a->accumulated[1] != NULL &&
           memory_create(a, IN, &s->in, layer->in->data) &&
           memory_create(a, OUT, &s->out, layer->out->data) &&
           (layer->first || memory_create(a, IN_GRADIENT, &s->in, layer->in->gradient)) &&
           memory_create(a, OUT_GRADIENT, &s->out, layer->out->gradient) &&
           memory_create(a, WEIGHT, &s->weight, layer->tensors[0].value) &&
           memory_create(a, BIAS, &s->bias, layer->tensors[1].value) &&
           memory_create(a, WEIGHT_GRADIENT, &s->weight, DNNL_MEMORY_NONE) &&
           memory_create(a, BIAS_GRADIENT, &s->bias, DNNL_MEMORY_NONE);
}

/* A primitive's descriptor. op: a dnnl_*_desc_t; forward: the hint that oneDNN needs for backward
 * passes. */
static dnnl_primitive_desc_t behind(const void *op, dnnl_primitive_desc_t forward)
{
    dnnl_primitive_desc_t desc = NULL;
    return dnnl_primitive_desc_create(&desc, op, NULL, engine, forward) == dnnl_success ? desc
                                                                                        : NULL;
}

/* The three descriptors are moved. */
static bool affine_create(struct layer *layer, const struct affine_shape *s,
                          dnnl_primitive_desc_t forward, dnnl_primitive_desc_t gradients,
                          dnnl_primitive_desc_t backward, struct problem *problem)
{
    struct affine *a = calloc(1, sizeof(*a));
    layer->own = a;
    const bool good = a != NULL && memories_create(a, layer, s) && forward_create(a, s, forward) &&
                      gradients_create(a, s, gradients) &&
                      (layer->first || backward_create(a, s, backward));
    dnnl_primitive_desc_destroy(forward);
    dnnl_primitive_desc_destroy(gradients);
    dnnl_primitive_desc_destroy(backward);
    return good || problem_say(problem, "oneDNN cannot make the layer %s", layer->row->name);
}

static bool conv_patches(struct layer *layer, struct problem *problem)
{
    struct affine *a = layer->own;
    a->patches = patches_create(layer);
    return a->patches != NULL ||
           problem_say(problem, "no memory for the layer %s", layer->row->name);
}

static bool conv_create(struct layer *layer, struct problem *problem)
{
    if (!engine_open(problem)) {
        return false;
    }
    const int p = layer->row->padding;
    const dnnl_dims_t strides = {1, 1}, padding = {p, p};
    const struct affine_shape s = conv_descs(layer);
    const dnnl_primitive_desc_t forward = conv_forward(layer, &s);
    dnnl_convolution_desc_t weights, data;
    if (!dnnl_good(dnnl_convolution_backward_weights_desc_init(&weights, dnnl_convolution_direct,
                                                               &s.in, &s.any_weight, &s.bias,
                                                               &s.out, strides, padding, padding),
                   layer->row->name, problem) ||
        !dnnl_good(dnnl_convolution_backward_data_desc_init(&data, dnnl_convolution_direct, &s.in,
                                                            &s.any_weight, &s.out, strides, padding,
                                                            padding),
                   layer->row->name, problem)) {
        dnnl_primitive_desc_destroy(forward);
        return false;
    }
    return affine_create(layer, &s, forward, behind(&weights, forward),
                         layer->first ? NULL : behind(&data, forward), problem) &&
           (!patches_suit(layer) || conv_patches(layer, problem));
}

static bool fc_create(struct layer *layer, struct problem *problem)
{
    if (!engine_open(problem)) {
        return false;
    }
    const size_t columns = shape_count(&layer->in->shape);
    const struct affine_shape s = {
        .in = desc_2d(layer->in->batch, columns),
        .out = desc_2d(layer->in->batch, (size_t)layer->row->out),
        .weight = desc_2d(layer->row->out, columns),
        .bias = desc_1d(layer->row->out),
    };
    dnnl_inner_product_desc_t forward, weights, data;
    if (!dnnl_good(dnnl_inner_product_forward_desc_init(&forward, dnnl_forward_training, &s.in,
                                                        &s.weight, &s.bias, &s.out),
                   layer->row->name, problem) ||
        !dnnl_good(dnnl_inner_product_backward_weights_desc_init(&weights, &s.in, &s.weight,
                                                                 &s.bias, &s.out),
                   layer->row->name, problem) ||
        !dnnl_good(dnnl_inner_product_backward_data_desc_init(&data, &s.in, &s.weight, &s.out),
                   layer->row->name, problem)) {
        return false;
    }
    const dnnl_primitive_desc_t made = behind(&forward, NULL);
    return affine_create(layer, &s, made, behind(&weights, made),
                         layer->first ? NULL : behind(&data, made), problem);
}

/* ---- A step -------------------------------------------------------------------------------- */

static void affine_forward(struct layer *layer, int n, bool training)
{
    (void)n;
    (void)training;
    const struct affine *a = layer->own;
    op_run(&a->to_forward);
    op_run(&a->forward);
}

static void affine_gradients(struct layer *layer, int n, bool accumulate)
{
    (void)n;
    struct affine *a = layer->own;
    float *to[2];
    for (int i = 0; i < 2; i++) {
        to[i] = accumulate ? a->accumulated[i] : layer->tensors[i].gradient;
        dnnl_memory_set_data_handle(a->memories[WEIGHT_GRADIENT + i], to[i]);
    }
    if (a->patches != NULL) {
        patches_gradients(a->patches, layer, to[0], to[1]);
    } else {
        op_run(&a->gradients);
        op_run(&a->from_gradients);
    }
    for (int i = 0; accumulate && i < 2; i++) {
        for (size_t at = 0; at < layer->tensors[i].count; at++) {
            layer->tensors[i].gradient[at] += a->accumulated[i][at];
        }
    }
}

static void affine_backward(struct layer *layer, int n)
{
    (void)n;
    const struct affine *a = layer->own;
    if (a->patches != NULL) {
        patches_backward(a->patches, layer);
        return;
    }
    op_run(&a->to_backward);
    op_run(&a->backward);
}

static void affine_destroy(struct layer *layer)
{
    struct affine *a = layer->own;
    if (a == NULL) {
        return;
    }
    struct op *ops[] = {&a->to_forward,     &a->forward,     &a->gradients,
                        &a->from_gradients, &a->to_backward, &a->backward};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        dnnl_primitive_destroy(ops[i]->primitive);
    }
    for (int i = 0; i < MEMORIES; i++) {
        dnnl_memory_destroy(a->memories[i]);
    }
    patches_destroy(a->patches);
    free(a->accumulated[0]);
    free(a->accumulated[1]);
    free(a);
}

const struct layer_kind_impl cpu_conv = {
    .create = conv_create,
    .forward = affine_forward,
    .gradients = affine_gradients,
    .backward = affine_backward,
    .destroy = affine_destroy,
};

const struct layer_kind_impl cpu_fc = {
    .create = fc_create,
    .forward = affine_forward,
    .gradients = affine_gradients,
    .backward = affine_backward,
    .destroy = affine_destroy,
};

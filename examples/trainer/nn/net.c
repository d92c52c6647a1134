/* The walk through the layers, and what a net owns (see net.h). */
#include "nn/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/random.h"
#include "nn/backend.h"

struct net {
    const struct backend *backend;
    int layer_count, batch, n; /* n: images of the last forward */
    struct input input;
    struct layer layers[MODEL_LAYERS_MOST];
    struct activation activations[MODEL_LAYERS_MOST + 1]; /* the images, then each layer's output */
    struct tensor_set own, *set;                          /* set: own, or another net's */
    const struct layer_row *begin, *end;                  /* its part of the model's rows */
    size_t drawn; /* how many random values are drawn before its own: those of earlier parts */
};

/* The index inside of the element with index `outside`: rows are (height x width) x channels
 * inside, and channels x (height x width) outside. */
static size_t tensor_inside(const struct tensor *tensor, size_t outside)
{
    const size_t channels = (size_t)tensor->columns.channels;
    const size_t area = (size_t)tensor->columns.height * (size_t)tensor->columns.width;
    const size_t column = outside % (channels * area);
    return outside - column + column % area * channels + column / area;
}

static float *tensor_room(const struct tensor *tensor)
{
    return malloc(tensor->count * sizeof(float));
}

bool tensor_import(const struct tensor *tensor, const float *outside, float *inside)
{
    float *room = tensor_room(tensor);
    for (size_t i = 0; room != NULL && i < tensor->count; i++) {
        room[tensor_inside(tensor, i)] = outside[i];
    }
    if (room != NULL) {
        tensor->backend->copy_in(inside, room, tensor->count);
    }
    free(room);
    return room != NULL;
}

bool tensor_export(const struct tensor *tensor, const float *inside, float *outside)
{
    float *room = tensor_room(tensor);
    if (room != NULL) {
        tensor->backend->copy_out(inside, room, tensor->count);
    }
    for (size_t i = 0; room != NULL && i < tensor->count; i++) {
        outside[i] = room[tensor_inside(tensor, i)];
    }
    free(room);
    return room != NULL;
}

static bool net_shape_layer(struct net *net, const struct layer_row *row, bool first,
                            struct problem *problem)
{
    struct activation *in = &net->activations[net->layer_count];
    struct layer *layer = &net->layers[net->layer_count++];
    *layer = (struct layer){.impl = net->backend->layers[row->kind],
                            .row = row,
                            .in = in,
                            .out = in + 1,
                            .set = &net->own,
                            .tensors = &net->own.trained[net->own.trained_count],
                            .averages = &net->own.averages[net->own.average_count],
                            .first = first};
    in[1].batch = net->batch;
    return layer_shape(layer, problem);
}

/* The layers so far belong to earlier parts: keeps only the last one's output as the input. */
static void net_forget(struct net *net)
{
    for (int i = 0; i < net->own.trained_count; i++) {
        net->drawn += net->own.trained[i].fan_in > 0 ? net->own.trained[i].count : 0;
    }
    net->activations[0] = net->activations[net->layer_count];
    net->layer_count = net->own.trained_count = net->own.average_count = 0;
}

/* Sets the shapes of all layers, from the first to the last. */
static bool net_shape(struct net *net, const struct model *model, struct problem *problem)
{
    net->activations[0] = (struct activation){model->input, net->batch, NULL, NULL};
    for (const struct layer_row *row = model->layers; row != net->end; row++) {
        if (row == net->begin) {
            net_forget(net);
        }
        if (!net_shape_layer(net, row, row == model->layers, problem)) {
            return false;
        }
    }
    return true;
}

static bool tensors_create(const struct backend *backend, struct tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        tensors[i].backend = backend;
        tensors[i].value = backend->floats_new(tensors[i].count);
        if (tensors[i].value == NULL) {
            return false;
        }
    }
    return true;
}

static void tensors_destroy(const struct backend *backend, struct tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        backend->floats_free(tensors[i].value);
    }
}

/* Makes the layers use the tensors of another net of the same model. */
static void net_share(struct net *net, struct net *shared)
{
    for (int i = 0; i < net->layer_count; i++) {
        net->layers[i].tensors = shared->layers[i].tensors;
        net->layers[i].averages = shared->layers[i].averages;
    }
    net->set = shared->set;
}

static bool net_buffers(struct net *net, struct problem *problem)
{
    const struct backend *backend = net->backend;
    for (int i = 0; i <= net->layer_count; i++) {
        struct activation *a = &net->activations[i];
        const size_t count = (size_t)net->batch * shape_count(&a->shape);
        a->data = backend->floats_new(count);
        const bool trained = !(i == 0 && net->layers[0].first) && net->set == &net->own;
        a->gradient = trained ? backend->floats_new(count) : NULL;
        if (a->data == NULL || (trained && a->gradient == NULL)) {
            return problem_say(problem, "no memory on %s for a batch of %d images", backend->name,
                               net->batch);
        }
    }
    if (net->set == &net->own &&
        !(tensors_create(backend, net->own.trained, net->own.trained_count) &&
          tensors_create(backend, net->own.averages, net->own.average_count))) {
        return problem_say(problem, "no memory on %s for the model", backend->name);
    }
    net->input.to = &net->activations[0];
    return backend->input_create == NULL || backend->input_create(&net->input, problem);
}

static bool net_fill(struct net *net, const struct model *model, struct net *shared,
                     struct problem *problem)
{
    net->set = &net->own;
    if (!net_shape(net, model, problem)) {
        return false;
    }
    if (shared != NULL) {
        net_share(net, shared);
    }
    if (!net_buffers(net, problem)) {
        return false;
    }
    for (int i = 0; i < net->layer_count; i++) {
        const struct layer_kind_impl *impl = net->layers[i].impl;
        if (impl->create != NULL && !impl->create(&net->layers[i], problem)) {
            return false;
        }
    }
    return true;
}

static struct net *net_create_rows(const struct backend *backend, const struct model *model,
                                   const struct layer_row *begin, const struct layer_row *end,
                                   int batch, struct net *shared, struct problem *problem)
{
    struct net *net = calloc(1, sizeof(*net));
    if (net == NULL) {
        problem_say(problem, "no memory for a net");
        return NULL;
    }
    net->backend = backend;
    net->batch = batch;
    net->begin = begin;
    net->end = end;
    if (!net_fill(net, model, shared, problem)) {
        net_destroy(net);
        return NULL;
    }
    return net;
}

/* The row of the n-th layer with weights, or the end: a model can be cut there. */
static const struct layer_row *model_cut(const struct model *model, int n)
{
    const struct layer_row *row = model->layers;
    while (row->kind != LAYER_END && (row->out == 0 || n-- > 0)) {
        row++;
    }
    return row;
}

struct net *net_create(const struct model *model, int batch, struct net *shared,
                       struct problem *problem)
{
    return net_create_rows(shared == NULL ? &backend_cpu : shared->backend, model, model->layers,
                           model_cut(model, MODEL_LAYERS_MOST), batch, shared, problem);
}

struct net *net_create_on(const struct backend *backend, const struct model *model, int batch,
                          struct problem *problem)
{
    return net_create_rows(backend, model, model->layers, model_cut(model, MODEL_LAYERS_MOST),
                           batch, NULL, problem);
}

struct net *net_create_part(const struct model *model, int part, int parts, int batch,
                            struct problem *problem)
{
    int layers = 0;
    while (model_cut(model, layers)->kind != LAYER_END) {
        layers++;
    }
    if (parts > layers) {
        problem_say(problem,
                    "the model %s cannot be cut into %d parts: it has %d layers with weights",
                    model->name, parts, layers);
        return NULL;
    }
    const struct layer_row *begin =
        part == 0 ? model->layers : model_cut(model, layers * part / parts);
    return net_create_rows(&backend_cpu, model, begin,
                           model_cut(model, layers * (part + 1) / parts), batch, NULL, problem);
}

void net_destroy(struct net *net)
{
    if (net == NULL) {
        return;
    }
    for (int i = 0; i < net->layer_count; i++) {
        if (net->layers[i].impl->destroy != NULL) {
            net->layers[i].impl->destroy(&net->layers[i]);
        }
    }
    const struct backend *backend = net->backend;
    if (backend->input_destroy != NULL) {
        backend->input_destroy(&net->input);
    }
    for (int i = 0; i <= net->layer_count; i++) {
        backend->floats_free(net->activations[i].data);
        backend->floats_free(net->activations[i].gradient);
    }
    if (net->set == &net->own) {
        tensors_destroy(backend, net->own.trained, net->own.trained_count);
        tensors_destroy(backend, net->own.averages, net->own.average_count);
    }
    free(net);
}

static struct net_edge net_edge(const struct activation *a)
{
    return (struct net_edge){a->data, a->gradient, shape_count(&a->shape)};
}

struct net_edge net_inputs(const struct net *net)
{
    return net_edge(&net->activations[0]);
}

struct net_edge net_outputs(const struct net *net)
{
    return net_edge(&net->activations[net->layer_count]);
}

struct tensor *net_tensors(struct net *net, int *ret_count)
{
    *ret_count = net->set->trained_count;
    return net->set->trained;
}

struct tensor *net_averages(struct net *net, int *ret_count)
{
    *ret_count = net->set->average_count;
    return net->set->averages;
}

static bool tensor_draw(const struct tensor *tensor, struct random *random)
{
    const char *suffix = strrchr(tensor->name, '.');
    const bool one = strcmp(suffix, ".weight") == 0 || strcmp(suffix, ".running_var") == 0;
    const float bound = tensor->fan_in == 0 ? 0 : (float)(1 / sqrt((double)tensor->fan_in));
    float *room = tensor_room(tensor);
    for (size_t i = 0; room != NULL && i < tensor->count; i++) {
        room[i] = tensor->fan_in == 0 ? (float)one : fmaf(random_unit(random), 2 * bound, -bound);
    }
    const bool good = room != NULL && tensor_import(tensor, room, tensor->value);
    free(room);
    return good;
}

bool net_draw(struct net *net, uint32_t seed)
{
    struct random random;
    bool good = true;
    random_seed(&random, seed);
    for (size_t i = 0; i < net->drawn; i++) {
        random_unit(&random);
    }
    for (int i = 0; good && i < net->set->trained_count; i++) {
        good = tensor_draw(&net->set->trained[i], &random);
    }
    for (int i = 0; good && i < net->set->average_count; i++) {
        good = tensor_draw(&net->set->averages[i], &random);
    }
    return good;
}

void net_ahead(struct net *net, const float *images, const uint8_t *labels, int n)
{
    if (net->backend->input_ahead != NULL) {
        net->backend->input_ahead(&net->input, images, labels, n);
    }
}

struct net_result net_forward(struct net *net, const float *images, const uint8_t *labels, int n,
                              bool training)
{
    net->n = n;
    net->backend->input_take(&net->input, images, labels, n);
    for (int i = 0; i < net->layer_count; i++) {
        net->layers[i].impl->forward(&net->layers[i], n, training);
    }
    return labels == NULL
               ? (struct net_result){0, 0}
               : net->backend->loss_forward(&net->activations[net->layer_count], &net->input, n);
}

void net_backward(struct net *net, bool accumulate, net_ready *ready, void *arg)
{
    if (net->input.labels != NULL) {
        net->backend->loss_backward(&net->activations[net->layer_count], &net->input, net->n);
    }
    for (int i = net->layer_count - 1; i >= 0; i--) {
        struct layer *layer = &net->layers[i];
        if (layer->impl->gradients != NULL) {
            layer->impl->gradients(layer, net->n, accumulate);
        }
        for (int t = layer->tensor_count - 1; ready != NULL && t >= 0; t--) {
            ready(arg, (int)(layer->tensors - net->set->trained) + t);
        }
        if (!layer->first) {
            layer->impl->backward(layer, net->n);
        }
    }
}

void net_divide_gradient(struct net *net, int i, int batches)
{
    if (batches > 1) {
        const struct tensor *tensor = &net->set->trained[i];
        net->backend->divide(tensor->gradient, tensor->count, (float)batches);
    }
}

double net_step_flop(const struct net *net)
{
    double flop = 0;
    for (int i = 0; i < net->layer_count; i++) {
        flop += net->layers[i].flop * (net->layers[i].first ? 2 : 3);
    }
    return flop;
}

/* The output shape and the tensors of each kind of layer. */
#include <stdio.h>
#include <string.h>

#include "nn/layer.h"

static void tensor_describe(struct tensor *tensor, const struct layer *layer, const char *suffix,
                            int out, struct image_shape columns)
{
    *tensor = (struct tensor){.out = out, .columns = columns};
    snprintf(tensor->name, sizeof(tensor->name), "%s.%s", layer->row->name, suffix);
    tensor->count = (size_t)out * shape_count(&columns);
}

/*
 * Adds a tensor NAME.suffix of the layer to the set: out x columns, which PyTorch shows as dims
 * dimensions. fan_in: see struct tensor.
 */
static void layer_describe(struct layer *layer, const char *suffix, int dims, int out,
                           struct image_shape columns, size_t fan_in)
{
    struct tensor *tensor = &layer->set->trained[layer->set->trained_count++];
    tensor_describe(tensor, layer, suffix, out, columns);
    const int four[4] = {out, columns.channels, columns.height, columns.width};
    const int two[2] = {out, (int)shape_count(&columns)};
    tensor->dims = dims;
    tensor->fan_in = fan_in;
    memcpy(tensor->shape, dims == 4 ? four : two, (size_t)dims * sizeof(int));
    layer->tensor_count++;
}

/* Adds a running average, with one value for each channel. */
static void layer_describe_average(struct layer *layer, const char *suffix)
{
    const int channels = layer->in->shape.channels;
    struct tensor *tensor = &layer->set->averages[layer->set->average_count++];
    tensor_describe(tensor, layer, suffix, channels, (struct image_shape){1, 1, 1});
    tensor->dims = 1;
    tensor->shape[0] = channels;
}

static void affine_describe(struct layer *layer, int dims, struct image_shape columns)
{
    const size_t fan_in = shape_count(&columns);
    const struct image_shape *out = &layer->out->shape;
    layer_describe(layer, "weight", dims, out->channels, columns, fan_in);
    layer_describe(layer, "bias", 1, out->channels, (struct image_shape){1, 1, 1}, fan_in);
    layer->flop = 2.0 * (double)fan_in * (double)shape_count(out) * layer->in->batch;
}

static bool conv_shape(struct layer *layer, struct problem *problem)
{
    const struct layer_row *row = layer->row;
    const struct image_shape *in = &layer->in->shape;
    const int height = in->height + 2 * row->padding - row->kernel + 1;
    const int width = in->width + 2 * row->padding - row->kernel + 1;
    if (height < 1 || width < 1) {
        return problem_say(problem, "%s: a %d x %d kernel does not fit into %d x %d", row->name,
                           row->kernel, row->kernel, in->height, in->width);
    }
    layer->out->shape = (struct image_shape){row->out, height, width};
    affine_describe(layer, 4, (struct image_shape){in->channels, row->kernel, row->kernel});
    return true;
}

static bool pool_shape(struct layer *layer, struct problem *problem)
{
    const struct image_shape *in = &layer->in->shape;
    if (in->height % 2 != 0 || in->width % 2 != 0) {
        return problem_say(problem, "pooling of 2 x 2 over %d x %d", in->height, in->width);
    }
    layer->out->shape = (struct image_shape){in->channels, in->height / 2, in->width / 2};
    return true;
}

static void norm_describe(struct layer *layer)
{
    const struct image_shape one = {1, 1, 1};
    layer_describe(layer, "weight", 1, layer->in->shape.channels, one, 0);
    layer_describe(layer, "bias", 1, layer->in->shape.channels, one, 0);
    layer_describe_average(layer, "running_mean");
    layer_describe_average(layer, "running_var");
}

bool layer_shape(struct layer *layer, struct problem *problem)
{
    layer->out->shape = layer->in->shape;
    switch (layer->row->kind) {
    case LAYER_CONV:
        return conv_shape(layer, problem);
    case LAYER_POOL_RELU:
        return pool_shape(layer, problem);
    case LAYER_FC:
        layer->out->shape = (struct image_shape){layer->row->out, 1, 1};
        affine_describe(layer, 2, layer->in->shape);
        return true;
    case LAYER_BATCH_NORM:
        norm_describe(layer);
        return true;
    case LAYER_RELU:
    case LAYER_END:
    case LAYER_KINDS:
        break;
    }
    return true;
}

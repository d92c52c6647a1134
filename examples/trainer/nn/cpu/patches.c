#include "nn/cpu/patches.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES                                                                                \
    ((size_t)1 << 19) /* of patches at once: they are used while they are cached                   \
                       */
#define VECTOR 16     /* floats of the widest vector */

struct patches {
    int images;    /* images of a block */
    float *matrix; /* images x out height x out width rows of kernel x kernel x in channels */
    float *sums;   /* out channels */
};

static size_t patch_pixels(const struct layer *layer)
{
    return (size_t)layer->out->shape.height * (size_t)layer->out->shape.width;
}

static size_t patch_columns(const struct layer *layer)
{
    const size_t kernel = (size_t)layer->row->kernel;
    return kernel * kernel * (size_t)layer->in->shape.channels;
}

/*
 * On one core with AVX-512, 20 -> 50 channels, 5 x 5, batch 64: 2.1 and 1.9 ms for the gradients of
 * weights and input, and 2.6 and 3.0 ms with oneDNN's convolution. Only with one thread, as each of
 * several ranks has: oneDNN divides a convolution better among threads.
 */
bool patches_suit(const struct layer *layer)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    const int channels = layer->in->shape.channels;
    return threads != NULL && strcmp(threads, "1") == 0 && channels > VECTOR &&
           channels % VECTOR != 0;
}

struct patches *patches_create(const struct layer *layer)
{
    const size_t image = patch_pixels(layer) * patch_columns(layer) * sizeof(float);
    const size_t most = BLOCK_BYTES / image, batch = (size_t)layer->in->batch;
    const size_t images = most < 1 ? 1 : most < batch ? most : batch;
    struct patches *patches = malloc(sizeof(*patches));
    if (patches == NULL) {
        return NULL;
    }
    patches->images = (int)images;
    patches->matrix = malloc(images * image);
    patches->sums = malloc((size_t)layer->out->shape.channels * sizeof(float));
    if (patches->matrix == NULL || patches->sums == NULL) {
        patches_destroy(patches);
        return NULL;
    }
    return patches;
}

void patches_destroy(struct patches *patches)
{
    if (patches != NULL) {
        free(patches->matrix);
        free(patches->sums);
        free(patches);
    }
}

static void floats_add(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

/* The part of a kernel row that is inside the image, in floats. */
struct span {
    size_t image, patch; /* where it begins in the image, and in the patch */
    size_t count;        /* 0: nothing is inside */
};

/* Row ky of the kernel at the output pixel (y, x). */
static struct span span_of(const struct layer *layer, int image, int y, int x, int ky)
{
    const struct image_shape *in = &layer->in->shape;
    const int kernel = layer->row->kernel, padding = layer->row->padding;
    const int top = y + ky - padding, left = x - padding;
    const int first = left < 0 ? -left : 0;
    const int end = left + kernel > in->width ? in->width - left : kernel;
    if (top < 0 || top >= in->height || first >= end) {
        return (struct span){0, 0, 0};
    }
    const size_t channels = (size_t)in->channels;
    const size_t row = (size_t)image * (size_t)in->height + (size_t)top;
    return (struct span){(row * (size_t)in->width + (size_t)(left + first)) * channels,
                         (size_t)(ky * kernel + first) * channels,
                         (size_t)(end - first) * channels};
}

/* Copies the patch of an output pixel from the input; add: adds it to the input's gradient. */
static void patch_move(const struct layer *layer, int image, int y, int x, float *patch, bool add)
{
    for (int ky = 0; ky < layer->row->kernel; ky++) {
        const struct span span = span_of(layer, image, y, x, ky);
        if (add) {
            floats_add(layer->in->gradient + span.image, patch + span.patch, span.count);
        } else {
            memcpy(patch + span.patch, layer->in->data + span.image, span.count * sizeof(float));
        }
    }
}

/* The same for all patches of the images from `first` to `end`. */
static void patches_move(const struct patches *patches, const struct layer *layer, int first,
                         int end, bool add)
{
    const struct image_shape *out = &layer->out->shape;
    float *patch = patches->matrix;
    for (int row = first * out->height; row < end * out->height; row++) {
        for (int x = 0; x < out->width; x++, patch += patch_columns(layer)) {
            patch_move(layer, row / out->height, row % out->height, x, patch, add);
        }
    }
}

/* to = left (rows x inner) * right (inner x columns); add: to += that. turned 'T': left is given
 * transposed. Can't fail with right arguments. */
static void multiply(char turned, size_t rows, size_t columns, size_t inner, const float *left,
                     const float *right, bool add, float *to)
{
    const dnnl_dim_t m = (dnnl_dim_t)rows, n = (dnnl_dim_t)columns, k = (dnnl_dim_t)inner;
    dnnl_sgemm(turned, 'N', m, n, k, 1, left, turned == 'T' ? m : k, right, n, add ? 1 : 0, to, n);
}

/* Sums over the pixels of an image first, then over images: so sums of many small numbers lose
 * fewer digits. */
static void bias_gradient(const struct patches *patches, const struct layer *layer, float *bias)
{
    const size_t outs = (size_t)layer->out->shape.channels;
    const float *gradient = layer->out->gradient;
    memset(bias, 0, outs * sizeof(float));
    for (int image = 0; image < layer->in->batch; image++) {
        memset(patches->sums, 0, outs * sizeof(float));
        for (size_t at = 0; at < patch_pixels(layer); at++, gradient += outs) {
            floats_add(patches->sums, gradient, outs);
        }
        floats_add(bias, patches->sums, outs);
    }
}

void patches_gradients(const struct patches *patches, const struct layer *layer, float *weight,
                       float *bias)
{
    const size_t outs = (size_t)layer->out->shape.channels, columns = patch_columns(layer);
    const size_t pixels = patch_pixels(layer);
    const int batch = layer->in->batch;
    bias_gradient(patches, layer, bias);
    if (layer->row->padding > 0) { /* what is outside the image is zero */
        memset(patches->matrix, 0, (size_t)patches->images * pixels * columns * sizeof(float));
    }
    for (int first = 0; first < batch; first += patches->images) {
        const int end = first + patches->images < batch ? first + patches->images : batch;
        patches_move(patches, layer, first, end, false);
        multiply('T', outs, columns, (size_t)(end - first) * pixels,
                 layer->out->gradient + (size_t)first * pixels * outs, patches->matrix, first > 0,
                 weight);
    }
}

void patches_backward(const struct patches *patches, const struct layer *layer)
{
    const size_t outs = (size_t)layer->out->shape.channels, columns = patch_columns(layer);
    const size_t pixels = patch_pixels(layer);
    const int batch = layer->in->batch;
    memset(layer->in->gradient, 0, (size_t)batch * shape_count(&layer->in->shape) * sizeof(float));
    for (int first = 0; first < batch; first += patches->images) {
        const int end = first + patches->images < batch ? first + patches->images : batch;
        multiply('N', (size_t)(end - first) * pixels, columns, outs,
                 layer->out->gradient + (size_t)first * pixels * outs, layer->tensors[0].value,
                 false, patches->matrix);
        patches_move(patches, layer, first, end, true);
    }
}

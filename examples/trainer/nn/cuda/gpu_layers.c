/*
 * The layers on a device: convolutions by cuDNN, fully connected layers by cuBLAS, the rest by
 * kernels.h. Layouts (nhwc, ohwi) and sizes are the same as on the host: the whole batch is
 * computed, and images beyond n have gradients of zero.
 *
 * All in fp32, not TF32, and with deterministic algorithms, so that a resumed training has the same
 * bits as one that was not interrupted.
 */
#include <stdlib.h>

#include "nn/cuda/gpu.h"
#include "nn/cuda/kernels.h"

#define WORKSPACE_MUCH ((size_t)256 << 20)
#define ALGORITHMS 32 /* more than cuDNN has for any pass */

static const float one = 1, zero = 0;

static size_t rows_of(const struct activation *a)
{
    return (size_t)a->batch * (size_t)a->shape.height * (size_t)a->shape.width;
}

static bool room_for_sums(const struct layer *layer, struct problem *problem)
{
    return gpu_workspace(KERNELS_PARTS_BYTES((size_t)layer->out->shape.channels), problem);
}

static void bias_gradient(const struct layer *layer, bool accumulate)
{
    const struct kernels_sums sums = {
        .rows = rows_of(layer->out),
        .channels = (size_t)layer->out->shape.channels,
        .parts = gpu.workspace,
        .gradient = layer->out->gradient,
        .bias_gradient = layer->tensors[1].gradient,
        .accumulate = accumulate,
    };
    kernels_sum_bias(gpu.compute, &sums);
}

/* ---- Convolution --------------------------------------------------------------------------- */

struct conv {
    cudnnTensorDescriptor_t in, out;
    cudnnFilterDescriptor_t weight;
    cudnnConvolutionDescriptor_t conv;
    cudnnConvolutionFwdAlgo_t forward;
    cudnnConvolutionBwdFilterAlgo_t gradients;
    cudnnConvolutionBwdDataAlgo_t backward;
};

static bool conv_describe(struct conv *c, const struct layer *layer, struct problem *problem)
{
    const struct image_shape *in = &layer->in->shape, *out = &layer->out->shape;
    const struct layer_row *row = layer->row;
    const int batch = layer->in->batch, p = row->padding;
    const cudnnStatus_t made[] = {
        cudnnCreateTensorDescriptor(&c->in),
        cudnnCreateTensorDescriptor(&c->out),
        cudnnCreateFilterDescriptor(&c->weight),
        cudnnCreateConvolutionDescriptor(&c->conv),
    };
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        if (!gpu_cudnn_good(made[i], row->name, problem)) {
            return false;
        }
    }
    return gpu_cudnn_good(cudnnSetTensor4dDescriptor(c->in, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT,
                                                     batch, in->channels, in->height, in->width),
                          row->name, problem) &&
           gpu_cudnn_good(cudnnSetTensor4dDescriptor(c->out, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT,
                                                     batch, out->channels, out->height, out->width),
                          row->name, problem) &&
           gpu_cudnn_good(cudnnSetFilter4dDescriptor(c->weight, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC,
                                                     out->channels, in->channels, row->kernel,
                                                     row->kernel),
                          row->name, problem) &&
           gpu_cudnn_good(cudnnSetConvolution2dDescriptor(
                              c->conv, p, p, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                          row->name, problem) &&
           gpu_cudnn_good(cudnnSetConvolutionMathType(c->conv, CUDNN_FMA_MATH), row->name, problem);
}

/* The choice among the algorithms that cuDNN proposes for a pass, fastest first. */
struct pick {
    int count, at; /* how many there are; which is chosen, -1: none */
    size_t bytes;  /* of workspace that it needs */
};

/* Chooses the first usable one that needs no more than WORKSPACE_MUCH; if all need more, the one
 * that needs least. */
static void weigh(struct pick *pick, int i, bool will_do, size_t bytes)
{
    const bool taken = pick->at >= 0;
    if (will_do && (!taken || (pick->bytes > WORKSPACE_MUCH && bytes < pick->bytes))) {
        pick->at = i;
        pick->bytes = bytes;
    }
}

static bool use(const struct pick *pick, const char *pass, const struct layer *layer,
                struct problem *problem)
{
    return pick->at >= 0
               ? gpu_workspace(pick->bytes, problem)
               : problem_say(problem,
                             "%s on %s: of the %d algorithms that cuDNN proposes for its %s with a "
                             "batch of %d none works in fp32 and gives the same bits each time",
                             layer->row->name, gpu.name, pick->count, pass, layer->in->batch);
}

static bool conv_forward_choose(struct conv *c, const struct layer *layer, struct problem *problem)
{
    cudnnConvolutionFwdAlgoPerf_t list[ALGORITHMS];
    struct pick pick = {.at = -1};
    if (!gpu_cudnn_good(cudnnGetConvolutionForwardAlgorithm_v7(gpu.cudnn, c->in, c->weight, c->conv,
                                                               c->out, ALGORITHMS, &pick.count,
                                                               list),
                        layer->row->name, problem)) {
        return false;
    }
    for (int i = 0; i < pick.count; i++) {
        size_t bytes = 0;
        const cudnnStatus_t asked = cudnnGetConvolutionForwardWorkspaceSize(
            gpu.cudnn, c->in, c->weight, c->conv, c->out, list[i].algo, &bytes);
        weigh(&pick, i,
              list[i].status == CUDNN_STATUS_SUCCESS && asked == CUDNN_STATUS_SUCCESS &&
                  list[i].determinism == CUDNN_DETERMINISTIC,
              bytes);
    }
    c->forward = pick.at >= 0 ? list[pick.at].algo : c->forward;
    return use(&pick, "forward pass", layer, problem);
}

static bool conv_gradients_choose(struct conv *c, const struct layer *layer,
                                  struct problem *problem)
{
    cudnnConvolutionBwdFilterAlgoPerf_t list[ALGORITHMS];
    struct pick pick = {.at = -1};
    if (!gpu_cudnn_good(
            cudnnGetConvolutionBackwardFilterAlgorithm_v7(gpu.cudnn, c->in, c->out, c->conv,
                                                          c->weight, ALGORITHMS, &pick.count, list),
            layer->row->name, problem)) {
        return false;
    }
    for (int i = 0; i < pick.count; i++) {
        size_t bytes = 0;
        const cudnnStatus_t asked = cudnnGetConvolutionBackwardFilterWorkspaceSize(
            gpu.cudnn, c->in, c->out, c->conv, c->weight, list[i].algo, &bytes);
        weigh(&pick, i,
              list[i].status == CUDNN_STATUS_SUCCESS && asked == CUDNN_STATUS_SUCCESS &&
                  list[i].determinism == CUDNN_DETERMINISTIC,
              bytes);
    }
    c->gradients = pick.at >= 0 ? list[pick.at].algo : c->gradients;
    return use(&pick, "weights' gradient", layer, problem);
}

static bool conv_backward_choose(struct conv *c, const struct layer *layer, struct problem *problem)
{
    cudnnConvolutionBwdDataAlgoPerf_t list[ALGORITHMS];
    struct pick pick = {.at = -1};
    if (!gpu_cudnn_good(cudnnGetConvolutionBackwardDataAlgorithm_v7(gpu.cudnn, c->weight, c->out,
                                                                    c->conv, c->in, ALGORITHMS,
                                                                    &pick.count, list),
                        layer->row->name, problem)) {
        return false;
    }
    for (int i = 0; i < pick.count; i++) {
        size_t bytes = 0;
        const cudnnStatus_t asked = cudnnGetConvolutionBackwardDataWorkspaceSize(
            gpu.cudnn, c->weight, c->out, c->conv, c->in, list[i].algo, &bytes);
        weigh(&pick, i,
              list[i].status == CUDNN_STATUS_SUCCESS && asked == CUDNN_STATUS_SUCCESS &&
                  list[i].determinism == CUDNN_DETERMINISTIC,
              bytes);
    }
    c->backward = pick.at >= 0 ? list[pick.at].algo : c->backward;
    return use(&pick, "input's gradient", layer, problem);
}

static bool conv_create(struct layer *layer, struct problem *problem)
{
    struct conv *c = calloc(1, sizeof(*c));
    layer->own = c;
    if (c == NULL) {
        return problem_say(problem, "no memory for the layer %s", layer->row->name);
    }
    if (!conv_describe(c, layer, problem) || !conv_forward_choose(c, layer, problem)) {
        return false;
    }
    return layer->out->gradient == NULL || /* of a net that only goes forward */
           (conv_gradients_choose(c, layer, problem) &&
            (layer->first || conv_backward_choose(c, layer, problem)) &&
            room_for_sums(layer, problem));
}

static void conv_destroy(struct layer *layer)
{
    const struct conv *c = layer->own;
    if (c == NULL) {
        return;
    }
    if (c->conv != NULL) {
        cudnnDestroyConvolutionDescriptor(c->conv);
    }
    if (c->weight != NULL) {
        cudnnDestroyFilterDescriptor(c->weight);
    }
    if (c->out != NULL) {
        cudnnDestroyTensorDescriptor(c->out);
    }
    if (c->in != NULL) {
        cudnnDestroyTensorDescriptor(c->in);
    }
    free(layer->own);
}

static void conv_forward(struct layer *layer, int n, bool training)
{
    (void)n;
    (void)training;
    const struct conv *c = layer->own;
    gpu_cudnn_must(cudnnConvolutionForward(gpu.cudnn, &one, c->in, layer->in->data, c->weight,
                                           layer->tensors[0].value, c->conv, c->forward,
                                           gpu.workspace, gpu.workspace_bytes, &zero, c->out,
                                           layer->out->data),
                   layer->row->name);
    kernels_add_bias(gpu.compute, layer->out->data, layer->tensors[1].value, rows_of(layer->out),
                     (size_t)layer->out->shape.channels);
}

static void conv_gradients(struct layer *layer, int n, bool accumulate)
{
    (void)n;
    const struct conv *c = layer->own;
    gpu_cudnn_must(cudnnConvolutionBackwardFilter(
                       gpu.cudnn, &one, c->in, layer->in->data, c->out, layer->out->gradient,
                       c->conv, c->gradients, gpu.workspace, gpu.workspace_bytes,
                       accumulate ? &one : &zero, c->weight, layer->tensors[0].gradient),
                   layer->row->name);
    bias_gradient(layer, accumulate);
}

static void conv_backward(struct layer *layer, int n)
{
    (void)n;
    const struct conv *c = layer->own;
    gpu_cudnn_must(cudnnConvolutionBackwardData(gpu.cudnn, &one, c->weight, layer->tensors[0].value,
                                                c->out, layer->out->gradient, c->conv, c->backward,
                                                gpu.workspace, gpu.workspace_bytes, &zero, c->in,
                                                layer->in->gradient),
                   layer->row->name);
}

const struct layer_kind_impl gpu_conv = {
    .create = conv_create,
    .forward = conv_forward,
    .gradients = conv_gradients,
    .backward = conv_backward,
    .destroy = conv_destroy,
};

/* ---- Fully connected ----------------------------------------------------------------------- */

static bool fc_create(struct layer *layer, struct problem *problem)
{
    return room_for_sums(layer, problem);
}

/* c (m x n) = a (m x k) * b (k x n); turned: a matrix is given transposed. */
struct product {
    bool a_turned, b_turned;
    int m, n, k;
};

/* cuBLAS takes matrices by columns, to which ours by rows are transposed: so it computes c' = b'
 * a'. */
static void multiply(const struct layer *layer, struct product p, const float *a, const float *b,
                     const float *beta, float *c)
{
    gpu_cublas_must(cublasSgemm(gpu.cublas, p.b_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
                                p.a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, p.n, p.m, p.k, &one, b,
                                p.b_turned ? p.k : p.n, a, p.a_turned ? p.m : p.k, beta, c, p.n),
                    layer->row->name);
}

/* in: batch x columns, weight: out x columns, out: batch x out */
static void fc_forward(struct layer *layer, int n, bool training)
{
    (void)n;
    (void)training;
    const int columns = (int)shape_count(&layer->in->shape), out = layer->row->out;
    multiply(layer, (struct product){false, true, layer->in->batch, out, columns}, layer->in->data,
             layer->tensors[0].value, &zero, layer->out->data);
    kernels_add_bias(gpu.compute, layer->out->data, layer->tensors[1].value,
                     (size_t)layer->out->batch, (size_t)out);
}

static void fc_gradients(struct layer *layer, int n, bool accumulate)
{
    (void)n;
    const int columns = (int)shape_count(&layer->in->shape), out = layer->row->out;
    multiply(layer, (struct product){true, false, out, columns, layer->in->batch},
             layer->out->gradient, layer->in->data, accumulate ? &one : &zero,
             layer->tensors[0].gradient);
    bias_gradient(layer, accumulate);
}

static void fc_backward(struct layer *layer, int n)
{
    (void)n;
    const int columns = (int)shape_count(&layer->in->shape), out = layer->row->out;
    multiply(layer, (struct product){false, false, layer->in->batch, columns, out},
             layer->out->gradient, layer->tensors[0].value, &zero, layer->in->gradient);
}

const struct layer_kind_impl gpu_fc = {
    .create = fc_create,
    .forward = fc_forward,
    .gradients = fc_gradients,
    .backward = fc_backward,
};

/* ---- Pooling and ReLU ---------------------------------------------------------------------- */

static struct kernels_pool pool_of(const struct layer *layer)
{
    const struct image_shape *in = &layer->in->shape;
    return (struct kernels_pool){(size_t)in->height, (size_t)in->width, (size_t)in->channels};
}

static bool pool_create(struct layer *layer, struct problem *problem)
{
    const size_t bytes = (size_t)layer->out->batch * shape_count(&layer->out->shape);
    return gpu_good(cudaMalloc(&layer->own, bytes), "memory for a pooling layer", problem) &&
           gpu_good(cudaMemset(layer->own, 0, bytes), "clearing memory", problem);
}

static void pool_destroy(struct layer *layer)
{
    cudaFree(layer->own);
}

static void pool_forward(struct layer *layer, int n, bool training)
{
    (void)training;
    kernels_pool_relu(gpu.compute, pool_of(layer), (size_t)n, layer->in->data, layer->out->data,
                      layer->own);
}

static void pool_backward(struct layer *layer, int n)
{
    kernels_pool_backward(gpu.compute, pool_of(layer), (size_t)n, (size_t)layer->in->batch,
                          layer->out->gradient, layer->own, layer->in->gradient);
}

const struct layer_kind_impl gpu_pool_relu = {
    .create = pool_create,
    .forward = pool_forward,
    .backward = pool_backward,
    .destroy = pool_destroy,
};

static void relu_forward(struct layer *layer, int n, bool training)
{
    (void)training;
    kernels_relu(gpu.compute, layer->in->data, layer->out->data,
                 (size_t)n * shape_count(&layer->in->shape));
}

static void relu_backward(struct layer *layer, int n)
{
    (void)n;
    kernels_relu_backward(gpu.compute, layer->in->data, layer->out->gradient, layer->in->gradient,
                          (size_t)layer->in->batch * shape_count(&layer->in->shape));
}

const struct layer_kind_impl gpu_relu = {
    .forward = relu_forward,
    .backward = relu_backward,
};

/* ---- Batch normalization ------------------------------------------------------------------- */

/* layer->own: four values for each channel, which forward stores for backward. */
static struct kernels_sums norm_sums(const struct layer *layer, int n)
{
    float *own = layer->own;
    const size_t channels = (size_t)layer->in->shape.channels;
    return (struct kernels_sums){
        .rows = (size_t)n * (size_t)layer->in->shape.height * (size_t)layer->in->shape.width,
        .channels = channels,
        .parts = gpu.workspace,
        .in = layer->in->data,
        .gradient = layer->out->gradient,
        .mean = own,
        .rstd = own + channels,
        .running_mean = layer->averages[0].value,
        .running_var = layer->averages[1].value,
        .bias_sum = own + 2 * channels,
        .weight_sum = own + 3 * channels,
        .weight_gradient = layer->tensors[0].gradient,
        .bias_gradient = layer->tensors[1].gradient,
    };
}

static bool norm_create(struct layer *layer, struct problem *problem)
{
    layer->own = gpu_floats_new(4 * (size_t)layer->in->shape.channels);
    return layer->own != NULL ? room_for_sums(layer, problem)
                              : problem_say(problem, "no memory on %s for the layer %s", gpu.name,
                                            layer->row->name);
}

static void norm_destroy(struct layer *layer)
{
    cudaFree(layer->own);
}

static void norm_forward(struct layer *layer, int n, bool training)
{
    const struct kernels_sums sums = norm_sums(layer, n);
    if (training) {
        kernels_norm_measure(gpu.compute, &sums);
    } else {
        kernels_norm_recall(gpu.compute, &sums);
    }
    kernels_norm_forward(gpu.compute, &sums, layer->tensors[0].value, layer->tensors[1].value,
                         layer->out->data);
}

static void norm_gradients(struct layer *layer, int n, bool accumulate)
{
    struct kernels_sums sums = norm_sums(layer, n);
    sums.accumulate = accumulate;
    kernels_norm_gradients(gpu.compute, &sums);
}

static void norm_backward(struct layer *layer, int n)
{
    const struct kernels_sums sums = norm_sums(layer, n);
    kernels_norm_backward(gpu.compute, &sums, layer->tensors[0].value, layer->in->gradient,
                          rows_of(layer->in));
}

const struct layer_kind_impl gpu_batch_norm = {
    .create = norm_create,
    .forward = norm_forward,
    .gradients = norm_gradients,
    .backward = norm_backward,
    .destroy = norm_destroy,
};

/* Opening the device, its memory, errors, and the backend's table. */
#include "nn/cuda/gpu.h"

#include <stdlib.h>

#include "nn/cuda/kernels.h"

#define LEAST_MAJOR 8 /* the lowest compute capability */

struct gpu gpu;

/* ---- Errors -------------------------------------------------------------------------------- */

bool gpu_good(cudaError_t error, const char *what, struct problem *problem)
{
    return error == cudaSuccess || problem_say(problem, "%s on %s: %s (%s)", what, gpu.name,
                                               cudaGetErrorName(error), cudaGetErrorString(error));
}

bool gpu_cudnn_good(cudnnStatus_t status, const char *what, struct problem *problem)
{
    return status == CUDNN_STATUS_SUCCESS || problem_say(problem, "%s on %s: cuDNN says %s", what,
                                                         gpu.name, cudnnGetErrorString(status));
}

bool gpu_cublas_good(cublasStatus_t status, const char *what, struct problem *problem)
{
    return status == CUBLAS_STATUS_SUCCESS || problem_say(problem, "%s on %s: cuBLAS says %s", what,
                                                          gpu.name, cublasGetStatusName(status));
}

static void must(bool good, const struct problem *problem)
{
    if (!good) {
        fprintf(stderr, "train: %s\n", problem->text);
        exit(1);
    }
}

void gpu_must(cudaError_t error, const char *what)
{
    struct problem problem;
    must(gpu_good(error, what, &problem), &problem);
}

void gpu_cudnn_must(cudnnStatus_t status, const char *what)
{
    struct problem problem;
    must(gpu_cudnn_good(status, what, &problem), &problem);
}

void gpu_cublas_must(cublasStatus_t status, const char *what)
{
    struct problem problem;
    must(gpu_cublas_good(status, what, &problem), &problem);
}

/* ---- Memory -------------------------------------------------------------------------------- */

float *gpu_floats_new(size_t count)
{
    void *floats = NULL;
    const size_t bytes = (count + 1) * sizeof(float); /* for 0 bytes CUDA would return NULL */
    if (cudaMalloc(&floats, bytes) != cudaSuccess) {
        cudaGetLastError(); /* clears the error, which the caller reports, for later calls */
        return NULL;
    }
    gpu_must(cudaMemset(floats, 0, bytes), "clearing memory");
    return floats;
}

static void floats_free(float *floats)
{
    cudaFree(floats);
}

static void copy_in(float *to, const float *host, size_t count)
{
    gpu_must(cudaMemcpy(to, host, count * sizeof(float), cudaMemcpyHostToDevice), "copying");
}

static void copy_out(const float *from, float *host, size_t count)
{
    gpu_must(cudaMemcpy(host, from, count * sizeof(float), cudaMemcpyDeviceToHost), "copying");
}

bool gpu_workspace(size_t bytes, struct problem *problem)
{
    if (bytes <= gpu.workspace_bytes) {
        return true;
    }
    cudaFree(gpu.workspace); /* waits until it is not used */
    gpu.workspace = NULL;
    gpu.workspace_bytes = 0;
    if (!gpu_good(cudaMalloc(&gpu.workspace, bytes), "memory for the layers' work", problem)) {
        cudaGetLastError();
        return false;
    }
    gpu.workspace_bytes = bytes;
    return true;
}

/* ---- Updates ------------------------------------------------------------------------------- */

static void divide(float *data, size_t count, float by)
{
    kernels_divide(gpu.compute, data, count, by);
}

static void sgd(const struct tensor *tensor, float *momentum, float keep, float decay, float lr)
{
    const struct sgd_step step = {keep, decay, lr};
    kernels_sgd(gpu.compute, tensor->value, tensor->gradient, momentum, tensor->count, step);
}

static void adam(const struct tensor *tensor, float *mean, float *square,
                 const struct adam_step *step)
{
    kernels_adam(gpu.compute, tensor->value, tensor->gradient, mean, square, tensor->count, step);
}

/* ---- The stream of gradients --------------------------------------------------------------- */

static void device_mark(int i)
{
    gpu_must(cudaEventRecord(gpu.marks[i], gpu.compute), "marking a gradient");
}

static void device_follow(int i)
{
    gpu_must(cudaStreamWaitEvent(gpu.travel, gpu.marks[i], 0), "waiting for a gradient");
}

static void device_clear(float *data, size_t count)
{
    gpu_must(cudaMemsetAsync(data, 0, count * sizeof(float), gpu.compute), "clearing a gradient");
}

static void device_compress(const float *from, uint16_t *to, size_t count)
{
    kernels_to_bf16(gpu.travel, from, to, count);
}

static void device_expand(const uint16_t *from, float *to, size_t count)
{
    kernels_from_bf16(gpu.travel, from, to, count);
}

static void device_end(void)
{
    gpu_must(cudaEventRecord(gpu.computed, gpu.compute), "the end of backward");
}

static double device_join(void)
{
    float ms = 0;
    gpu_must(cudaEventRecord(gpu.traveled, gpu.travel), "the end of the gradients");
    gpu_must(cudaStreamWaitEvent(gpu.compute, gpu.traveled, 0), "waiting for the gradients");
    gpu_must(cudaEventSynchronize(gpu.computed), "backward");
    gpu_must(cudaEventSynchronize(gpu.traveled), "the gradients");
    gpu_must(cudaGetLastError(), "backward");
    gpu_must(cudaEventElapsedTime(&ms, gpu.computed, gpu.traveled), "the time of the gradients");
    return ms > 0 ? (double)ms / 1000 : 0;
}

static struct device device = {
    .mark = device_mark,
    .follow = device_follow,
    .clear = device_clear,
    .compress = device_compress,
    .expand = device_expand,
    .end = device_end,
    .join = device_join,
};

/* ---- Opening ------------------------------------------------------------------------------- */

static struct backend backend = {
    .name = gpu.name,
    .layers = {[LAYER_CONV] = &gpu_conv,
               [LAYER_BATCH_NORM] = &gpu_batch_norm,
               [LAYER_POOL_RELU] = &gpu_pool_relu,
               [LAYER_FC] = &gpu_fc,
               [LAYER_RELU] = &gpu_relu},
    .device = &device,
    .floats_new = gpu_floats_new,
    .floats_free = floats_free,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .input_create = gpu_input_create,
    .input_destroy = gpu_input_destroy,
    .input_ahead = gpu_input_ahead,
    .input_take = gpu_input_take,
    .loss_forward = gpu_loss_forward,
    .loss_backward = gpu_loss_backward,
    .divide = divide,
    .sgd = sgd,
    .adam = adam,
};

/* The number of the device to use. */
static bool choose(int wanted, int rank, int *ret, struct problem *problem)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        return problem_say(problem, "--device cuda: CUDA finds no device here: %s (%s)",
                           cudaGetErrorName(error), cudaGetErrorString(error));
    }
    if (wanted >= count) {
        return problem_say(problem, "--device cuda:%d: expected a device from 0 to %d", wanted,
                           count - 1);
    }
    *ret = wanted >= 0 ? wanted : rank % count;
    return true;
}

/* The kernels are not built for older devices (meson.build). */
static bool is_able(int number, struct problem *problem)
{
    int major = 0;
    return gpu_good(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number),
                    "its compute capability", problem) &&
           (major >= LEAST_MAJOR ||
            problem_say(
                problem,
                "--device cuda: %s has compute capability %d, expected %d (Ampere) or later",
                gpu.name, major, LEAST_MAJOR));
}

static bool streams_open(struct problem *problem)
{
    for (int i = 0; i < DEVICE_MARKS; i++) {
        if (!gpu_good(cudaEventCreateWithFlags(&gpu.marks[i], cudaEventDisableTiming), "an event",
                      problem)) {
            return false;
        }
    }
    return gpu_good(cudaEventCreate(&gpu.computed), "an event", problem) &&
           gpu_good(cudaEventCreate(&gpu.traveled), "an event", problem) &&
           gpu_good(cudaStreamCreate(&gpu.compute), "a stream", problem) &&
           gpu_good(cudaStreamCreate(&gpu.copy), "a stream", problem) &&
           gpu_good(cudaStreamCreate(&gpu.travel), "a stream", problem);
}

static bool libraries_open(struct problem *problem)
{
    return gpu_cublas_good(cublasCreate(&gpu.cublas), "cublasCreate", problem) &&
           gpu_cublas_good(cublasSetStream(gpu.cublas, gpu.compute), "cublasSetStream", problem) &&
           gpu_cudnn_good(cudnnCreate(&gpu.cudnn), "cudnnCreate", problem) &&
           gpu_cudnn_good(cudnnSetStream(gpu.cudnn, gpu.compute), "cudnnSetStream", problem);
}

/* Called once; the device stays open until the process ends. */
__attribute__((visibility("default"))) backend_open backend_cuda_open;
const struct backend *backend_cuda_open(int wanted, int rank, struct problem *problem)
{
    int number = 0;
    if (!choose(wanted, rank, &number, problem)) {
        return NULL;
    }
    snprintf(gpu.name, sizeof(gpu.name), "cuda:%d", number);
    if (!is_able(number, problem) || !gpu_good(cudaSetDevice(number), "cudaSetDevice", problem) ||
        !gpu_good(cudaFree(NULL), "its context", problem) || !streams_open(problem) ||
        !libraries_open(problem)) {
        return NULL;
    }
    device.stream = gpu.travel;
    return &backend;
}

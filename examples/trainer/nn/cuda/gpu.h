/*
 * Shared by the files of the CUDA backend. A process has one device and one thread. Work is
 * launched on the stream `compute`; other streams are for copies of batches to the device (`copy`),
 * and for gradients (`travel`, see device.h).
 *
 * These are blocking streams: cudaMemcpy(), and what hoop does on the default stream, run behind
 * what is on all of them, and before what is put there later.
 */
#ifndef TRAINER_GPU_H
#define TRAINER_GPU_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "nn/backend.h"

struct gpu {
    char name[32]; /* cuda:0 */
    cudaStream_t compute, copy, travel;
    cublasHandle_t cublas;
    cudnnHandle_t cudnn;
    void *workspace; /* for whatever runs on compute */
    size_t workspace_bytes;
    cudaEvent_t marks[DEVICE_MARKS], computed, traveled; /* the last two measure time */
};
extern struct gpu gpu;

extern const struct layer_kind_impl gpu_conv, gpu_fc, gpu_batch_norm, gpu_pool_relu, gpu_relu;

/* False, with the problem, including the library's name of the error. what: what has failed. */
bool gpu_good(cudaError_t error, const char *what, struct problem *problem);
bool gpu_cudnn_good(cudnnStatus_t status, const char *what, struct problem *problem);
bool gpu_cublas_good(cublasStatus_t status, const char *what, struct problem *problem);
/* For errors in a step, after which there is no way to go on: the process prints the problem and
 * exits. */
void gpu_must(cudaError_t error, const char *what);
void gpu_cudnn_must(cudnnStatus_t status, const char *what);
void gpu_cublas_must(cublasStatus_t status, const char *what);

float *gpu_floats_new(size_t count);
/* Makes the workspace at least that large; only before the first step. */
bool gpu_workspace(size_t bytes, struct problem *problem);

bool gpu_input_create(struct input *input, struct problem *problem);
void gpu_input_destroy(struct input *input);
void gpu_input_ahead(struct input *input, const float *images, const uint8_t *labels, int n);
void gpu_input_take(struct input *input, const float *images, const uint8_t *labels, int n);
struct net_result gpu_loss_forward(const struct activation *out, const struct input *input, int n);
void gpu_loss_backward(const struct activation *out, const struct input *input, int n);

#endif

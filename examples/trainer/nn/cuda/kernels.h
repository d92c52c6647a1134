/*
 * The trainer's own kernels, for what cuDNN and cuBLAS are not used for. Each function launches one
 * or two kernels on the stream, and computes the same as its counterpart in nn/cpu, in the same
 * order where that matters.
 */
#ifndef TRAINER_KERNELS_H
#define TRAINER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *kernels_stream; /* a cudaStream_t */

void kernels_add_bias(kernels_stream stream, float *out, const float *bias, size_t rows,
                      size_t channels);
void kernels_relu(kernels_stream stream, const float *in, float *out, size_t count);
void kernels_relu_backward(kernels_stream stream, const float *in, const float *gradient, float *to,
                           size_t count);

/* n images of height x width x channels; places: which of four inputs is the largest, or none. */
struct kernels_pool {
    size_t height, width, channels;
};
void kernels_pool_relu(kernels_stream stream, struct kernels_pool pool, size_t n, const float *in,
                       float *out, uint8_t *places);
/* For the whole batch; images from n on get zeros. */
void kernels_pool_backward(kernels_stream stream, struct kernels_pool pool, size_t n, size_t batch,
                           const float *gradient, const uint8_t *places, float *to);

/* Sums over rows for each channel, in double, as KERNELS_PARTS partial sums that are added in
 * order. */
#define KERNELS_PARTS ((size_t)128)
#define KERNELS_PARTS_BYTES(channels) (2 * KERNELS_PARTS * (channels) * sizeof(double))
struct kernels_sums {
    size_t rows, channels;
    double *parts; /* KERNELS_PARTS_BYTES */
    const float *in, *gradient;
    /* Results, of batch normalization: of the batch, with rstd = 1 / sqrt(variance + e). */
    float *mean, *rstd, *running_mean, *running_var;
    /* The sums of the gradient, and of the gradient times the normalized input; and the tensors'
     * gradients, to which they are written (accumulate: added). */
    float *bias_sum, *weight_sum, *bias_gradient, *weight_gradient;
    bool accumulate;
};
/* Computes bias_gradient. */
void kernels_sum_bias(kernels_stream stream, const struct kernels_sums *sums);
/* Computes mean and rstd of the batch, and updates the running averages. */
void kernels_norm_measure(kernels_stream stream, const struct kernels_sums *sums);
/* Sets mean and rstd by the running averages. */
void kernels_norm_recall(kernels_stream stream, const struct kernels_sums *sums);
void kernels_norm_forward(kernels_stream stream, const struct kernels_sums *sums,
                          const float *weight, const float *bias, float *out);
/* Computes the four results of the gradient. */
void kernels_norm_gradients(kernels_stream stream, const struct kernels_sums *sums);
/* all_rows: rows of the whole batch, of which those beyond sums->rows get zeros. */
void kernels_norm_backward(kernels_stream stream, const struct kernels_sums *sums,
                           const float *weight, float *to, size_t all_rows);

/* results: for each of n images its loss, and 1 if its label has the largest output, else 0. */
void kernels_loss(kernels_stream stream, const float *out, const uint8_t *labels, int n,
                  int classes, double *results);
void kernels_loss_backward(kernels_stream stream, const float *out, const uint8_t *labels, int n,
                           int batch, int classes, float *gradient);

void kernels_divide(kernels_stream stream, float *data, size_t count, float by);
struct sgd_step {
    float keep, decay, lr;
};
void kernels_sgd(kernels_stream stream, float *value, const float *gradient, float *momentum,
                 size_t count, struct sgd_step step);
struct adam_step; /* nn/backend.h */
void kernels_adam(kernels_stream stream, float *value, const float *gradient, float *mean,
                  float *square, size_t count, const struct adam_step *step);

void kernels_to_bf16(kernels_stream stream, const float *from, uint16_t *to, size_t count);
void kernels_from_bf16(kernels_stream stream, const uint16_t *from, float *to, size_t count);

#ifdef __cplusplus
}
#endif

#endif

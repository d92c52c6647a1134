/*
 * The kernels of the trainer, in the common subset of C11 and CUDA C++: without nvcc each becomes a
 * loop, so tests/trainer compares them with the layers of nn/cpu on any machine. Built with
 * -fmad=false, so that products are rounded before they are added, as on the host.
 *
 * A kernel is a loop over elements, which any number of threads share. No thread reads what another
 * thread of the same launch writes.
 */
#include "nn/cuda/kernels.h"

#include <math.h>
#include <string.h>

#include "nn/backend.h"

#ifdef __CUDACC__
#define KERNEL static __global__ void
#define INLINE static __device__ __forceinline__
#define EACH(i, count)                                                                             \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count);                    \
         i += (size_t)gridDim.x * blockDim.x)
#define THREADS 256
#define BLOCKS_MOST 65535
static unsigned blocks(size_t count)
{
    const size_t most = (count + THREADS - 1) / THREADS;
    return most == 0 ? 1 : most < BLOCKS_MOST ? (unsigned)most : BLOCKS_MOST;
}
#define LAUNCH(kernel, stream, count, ...)                                                         \
    kernel<<<blocks(count), THREADS, 0, stream>>>(__VA_ARGS__)
#else
#define KERNEL static void
#define INLINE static inline
#define EACH(i, count) for (size_t i = 0; i < (count); i++)
#define LAUNCH(kernel, stream, count, ...) ((void)(stream), (void)(count), kernel(__VA_ARGS__))
#endif

/* ---- Bias, ReLU, pooling ------------------------------------------------------------------- */

KERNEL add_bias(float *out, const float *bias, size_t count, size_t channels)
{
    EACH (i, count) {
        out[i] += bias[i % channels];
    }
}

void kernels_add_bias(kernels_stream stream, float *out, const float *bias, size_t rows,
                      size_t channels)
{
    LAUNCH(add_bias, stream, rows * channels, out, bias, rows * channels, channels);
}

KERNEL relu(const float *in, float *out, size_t count)
{
    EACH (i, count) {
        out[i] = in[i] > 0 ? in[i] : 0;
    }
}

void kernels_relu(kernels_stream stream, const float *in, float *out, size_t count)
{
    LAUNCH(relu, stream, count, in, out, count);
}

KERNEL relu_backward(const float *in, const float *gradient, float *to, size_t count)
{
    EACH (i, count) {
        to[i] = in[i] > 0 ? gradient[i] : 0;
    }
}

void kernels_relu_backward(kernels_stream stream, const float *in, const float *gradient, float *to,
                           size_t count)
{
    LAUNCH(relu_backward, stream, count, in, gradient, to, count);
}

#define NONE 4

/* The first of the largest of four inputs, if it is above 0, as in nn/cpu/pool.c. */
KERNEL pool_relu(struct kernels_pool pool, size_t count, const float *in, float *out,
                 uint8_t *places)
{
    const size_t c = pool.channels, half = pool.width / 2;
    EACH (i, count) {
        const size_t x = i / c % half, y = i / c / half; /* y counts through all images */
        const size_t first = (y * 2 * pool.width + x * 2) * c + i % c;
        float most = 0;
        uint8_t place = NONE;
        for (uint8_t k = 0; k < 4; k++) {
            const float one = in[first + (k & 1) * c + (size_t)(k >> 1) * pool.width * c];
            place = one > most ? k : place;
            most = one > most ? one : most;
        }
        out[i] = most;
        places[i] = place;
    }
}

void kernels_pool_relu(kernels_stream stream, struct kernels_pool pool, size_t n, const float *in,
                       float *out, uint8_t *places)
{
    const size_t count = n * (pool.height / 2) * (pool.width / 2) * pool.channels;
    LAUNCH(pool_relu, stream, count, pool, count, in, out, places);
}

KERNEL pool_backward(struct kernels_pool pool, size_t count, size_t all, const float *gradient,
                     const uint8_t *places, float *to)
{
    const size_t c = pool.channels;
    EACH (i, all) {
        const size_t x = i / c % pool.width, y = i / c / pool.width;
        const size_t from = (y / 2 * (pool.width / 2) + x / 2) * c + i % c;
        to[i] = i < count && places[from] == y % 2 * 2 + x % 2 ? gradient[from] : 0;
    }
}

void kernels_pool_backward(kernels_stream stream, struct kernels_pool pool, size_t n, size_t batch,
                           const float *gradient, const uint8_t *places, float *to)
{
    const size_t image = pool.height * pool.width * pool.channels;
    LAUNCH(pool_backward, stream, batch * image, pool, n * image, batch * image, gradient, places,
           to);
}

/* ---- Sums over rows, and batch normalization ----------------------------------------------- */

enum sums_of { SUMS_BIAS, SUMS_MEAN, SUMS_VARIANCE, SUMS_GRADIENTS };

INLINE float normal(const struct kernels_sums *s, size_t at, size_t c)
{
    return (s->in[at] - s->mean[c]) * s->rstd[c];
}

/* Part p sums the rows p, p + parts, ... */
KERNEL sums_part(enum sums_of what, struct kernels_sums s, size_t parts)
{
    EACH (i, parts * s.channels) {
        const size_t c = i % s.channels;
        double first = 0, second = 0;
        for (size_t at = i; at < s.rows * s.channels; at += parts * s.channels) {
            if (what == SUMS_MEAN) {
                first += s.in[at];
            } else if (what == SUMS_VARIANCE) {
                first += (s.in[at] - s.mean[c]) * (s.in[at] - s.mean[c]);
            } else {
                first += s.gradient[at];
                second += what == SUMS_BIAS ? 0 : s.gradient[at] * normal(&s, at, c);
            }
        }
        s.parts[i] = first;
        s.parts[parts * s.channels + i] = second;
    }
}

INLINE void variance_use(const struct kernels_sums *s, size_t c, double sum)
{
    const double rows = (double)s->rows, unbiased = rows > 1 ? rows / (rows - 1) : 1;
    const float variance = (float)(sum / rows);
    s->rstd[c] = (float)(1 / sqrt((double)variance + NORM_EPSILON));
    s->running_mean[c] =
        (float)((1 - NORM_MOMENTUM) * s->running_mean[c] + NORM_MOMENTUM * s->mean[c]);
    s->running_var[c] =
        (float)((1 - NORM_MOMENTUM) * s->running_var[c] + NORM_MOMENTUM * variance * unbiased);
}

INLINE void gradient_use(float *gradient, size_t c, float sum, bool accumulate)
{
    gradient[c] = (accumulate ? gradient[c] : 0) + sum;
}

KERNEL sums_use(enum sums_of what, struct kernels_sums s, size_t parts)
{
    EACH (c, s.channels) {
        double first = 0, second = 0;
        for (size_t p = 0; p < parts; p++) {
            first += s.parts[p * s.channels + c];
            second += s.parts[(parts + p) * s.channels + c];
        }
        if (what == SUMS_MEAN) {
            s.mean[c] = (float)(first / (double)s.rows);
        } else if (what == SUMS_VARIANCE) {
            variance_use(&s, c, first);
        } else {
            gradient_use(s.bias_gradient, c, (float)first, s.accumulate);
        }
        if (what == SUMS_GRADIENTS) {
            s.bias_sum[c] = (float)first;
            s.weight_sum[c] = (float)second;
            gradient_use(s.weight_gradient, c, (float)second, s.accumulate);
        }
    }
}

static void sums(kernels_stream stream, enum sums_of what, const struct kernels_sums *s)
{
    const size_t parts = s->rows < KERNELS_PARTS ? s->rows : KERNELS_PARTS;
    LAUNCH(sums_part, stream, parts * s->channels, what, *s, parts);
    LAUNCH(sums_use, stream, s->channels, what, *s, parts);
}

void kernels_sum_bias(kernels_stream stream, const struct kernels_sums *s)
{
    sums(stream, SUMS_BIAS, s);
}

/* Two passes: the formula for one pass loses digits. */
void kernels_norm_measure(kernels_stream stream, const struct kernels_sums *s)
{
    sums(stream, SUMS_MEAN, s);
    sums(stream, SUMS_VARIANCE, s);
}

KERNEL norm_recall(struct kernels_sums s)
{
    EACH (c, s.channels) {
        s.mean[c] = s.running_mean[c];
        s.rstd[c] = (float)(1 / sqrt((double)s.running_var[c] + NORM_EPSILON));
    }
}

void kernels_norm_recall(kernels_stream stream, const struct kernels_sums *s)
{
    LAUNCH(norm_recall, stream, s->channels, *s);
}

KERNEL norm_forward(struct kernels_sums s, const float *weight, const float *bias, float *out)
{
    EACH (i, s.rows * s.channels) {
        const size_t c = i % s.channels;
        out[i] = weight[c] * normal(&s, i, c) + bias[c];
    }
}

void kernels_norm_forward(kernels_stream stream, const struct kernels_sums *s, const float *weight,
                          const float *bias, float *out)
{
    LAUNCH(norm_forward, stream, s->rows * s->channels, *s, weight, bias, out);
}

void kernels_norm_gradients(kernels_stream stream, const struct kernels_sums *s)
{
    sums(stream, SUMS_GRADIENTS, s);
}

/* As in nn/cpu/batch_norm.c. */
KERNEL norm_backward(struct kernels_sums s, const float *weight, float *to, size_t all)
{
    const float share = 1 / (float)s.rows;
    EACH (i, all) {
        const size_t c = i % s.channels;
        if (i < s.rows * s.channels) {
            const float along = (s.bias_sum[c] + normal(&s, i, c) * s.weight_sum[c]) * share;
            to[i] = weight[c] * s.rstd[c] * (s.gradient[i] - along);
        } else {
            to[i] = 0;
        }
    }
}

void kernels_norm_backward(kernels_stream stream, const struct kernels_sums *s, const float *weight,
                           float *to, size_t all_rows)
{
    const size_t all = all_rows * s->channels;
    LAUNCH(norm_backward, stream, all, *s, weight, to, all);
}

/* ---- Loss: as in nn/cpu/loss.c ------------------------------------------------------------- */

INLINE int softmax(const float *row, int classes, double *ret_sum)
{
    int most = 0;
    double sum = 0;
    for (int c = 1; c < classes; c++) {
        most = row[c] > row[most] ? c : most;
    }
    for (int c = 0; c < classes; c++) {
        sum += exp((double)row[c] - row[most]);
    }
    *ret_sum = sum;
    return most;
}

KERNEL loss(const float *out, const uint8_t *labels, int n, int classes, double *results)
{
    EACH (i, (size_t)n) {
        const float *row = out + i * (size_t)classes;
        double sum = 0;
        const int most = softmax(row, classes, &sum);
        results[2 * i] = log(sum) - ((double)row[labels[i]] - row[most]);
        results[2 * i + 1] = most == labels[i];
    }
}

void kernels_loss(kernels_stream stream, const float *out, const uint8_t *labels, int n,
                  int classes, double *results)
{
    LAUNCH(loss, stream, (size_t)n, out, labels, n, classes, results);
}

KERNEL loss_backward(const float *out, const uint8_t *labels, int n, int batch, int classes,
                     float *gradient)
{
    EACH (i, (size_t)batch) {
        const float *row = out + i * (size_t)classes;
        float *to = gradient + i * (size_t)classes;
        double sum = 0;
        const int most = softmax(row, classes, &sum);
        const bool counts = i < (size_t)n;
        for (int c = 0; c < classes; c++) {
            const double share = exp((double)row[c] - row[most]) / sum;
            to[c] = counts ? (float)((share - (c == labels[i])) / n) : 0;
        }
    }
}

void kernels_loss_backward(kernels_stream stream, const float *out, const uint8_t *labels, int n,
                           int batch, int classes, float *gradient)
{
    LAUNCH(loss_backward, stream, (size_t)batch, out, labels, n, batch, classes, gradient);
}

/* ---- Updates: as in nn/cpu/cpu.c ----------------------------------------------------------- */

KERNEL divide(float *data, size_t count, float by)
{
    EACH (i, count) {
        data[i] /= by;
    }
}

void kernels_divide(kernels_stream stream, float *data, size_t count, float by)
{
    LAUNCH(divide, stream, count, data, count, by);
}

KERNEL sgd(float *value, const float *gradient, float *momentum, size_t count, struct sgd_step s)
{
    EACH (i, count) {
        float step = gradient[i] + s.decay * value[i];
        if (momentum != NULL) {
            step = s.keep * momentum[i] + step;
            momentum[i] = step;
        }
        value[i] -= s.lr * step;
    }
}

void kernels_sgd(kernels_stream stream, float *value, const float *gradient, float *momentum,
                 size_t count, struct sgd_step step)
{
    LAUNCH(sgd, stream, count, value, gradient, momentum, count, step);
}

KERNEL adam(float *value, const float *gradient, float *mean, float *square, size_t count,
            struct adam_step s)
{
    EACH (i, count) {
        const float g = gradient[i] + s.decay * value[i];
        mean[i] = s.keep1 * mean[i] + s.take1 * g;
        square[i] = s.keep2 * square[i] + s.take2 * g * g;
        value[i] -= s.step * mean[i] / (sqrtf(square[i]) / s.root + s.epsilon);
    }
}

void kernels_adam(kernels_stream stream, float *value, const float *gradient, float *mean,
                  float *square, size_t count, const struct adam_step *step)
{
    LAUNCH(adam, stream, count, value, gradient, mean, square, count, *step);
}

/* ---- bf16: as in bf16.h -------------------------------------------------------------------- */

INLINE uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return (uint16_t)(nan ? bits >> 16 | 0x40U : (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

INLINE float bf16_float(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

KERNEL to_bf16(const float *from, uint16_t *to, size_t count)
{
    EACH (i, count) {
        to[i] = bf16_of(from[i]);
    }
}

void kernels_to_bf16(kernels_stream stream, const float *from, uint16_t *to, size_t count)
{
    LAUNCH(to_bf16, stream, count, from, to, count);
}

KERNEL from_bf16(const uint16_t *from, float *to, size_t count)
{
    EACH (i, count) {
        to[i] = bf16_float(from[i]);
    }
}

void kernels_from_bf16(kernels_stream stream, const uint16_t *from, float *to, size_t count)
{
    LAUNCH(from_bf16, stream, count, from, to, count);
}

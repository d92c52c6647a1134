/* Log-softmax and negative log-likelihood: loss = -log(exp(out[label]) / sum of exp(out)). */
#include <math.h>
#include <string.h>

#include "nn/cpu/cpu.h"

/* Returns the class with the largest output; *ret_sum: the sum of exp(out - largest), which can't
 * overflow. */
static int softmax(const float *row, int classes, double *ret_sum)
{
    int most = 0;
    for (int c = 1; c < classes; c++) {
        most = row[c] > row[most] ? c : most;
    }
    *ret_sum = 0;
    for (int c = 0; c < classes; c++) {
        *ret_sum += exp((double)row[c] - row[most]);
    }
    return most;
}

struct net_result cpu_loss_forward(const struct activation *out, const struct input *input, int n)
{
    const uint8_t *labels = input->labels;
    const int classes = out->shape.channels;
    struct net_result result = {0, 0};
    for (int i = 0; i < n; i++) {
        const float *row = out->data + (size_t)i * (size_t)classes;
        double sum = 0;
        const int most = softmax(row, classes, &sum);
        result.loss += log(sum) - ((double)row[labels[i]] - row[most]);
        result.correct += most == labels[i];
    }
    return result;
}

void cpu_loss_backward(const struct activation *out, const struct input *input, int n)
{
    const uint8_t *labels = input->labels;
    const int classes = out->shape.channels;
    memset(out->gradient, 0, (size_t)out->batch * (size_t)classes * sizeof(float));
    for (int i = 0; i < n; i++) {
        const float *row = out->data + (size_t)i * (size_t)classes;
        float *gradient = out->gradient + (size_t)i * (size_t)classes;
        double sum = 0;
        const int most = softmax(row, classes, &sum);
        for (int c = 0; c < classes; c++) {
            const double share = exp((double)row[c] - row[most]) / sum;
            gradient[c] = (float)((share - (c == labels[i])) / n);
        }
    }
}

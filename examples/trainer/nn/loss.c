/* Log-softmax and negative log-likelihood: loss = -log(exp(out[label]) / sum of exp(out)). */
#include <math.h>
#include <string.h>

#include "nn/layer.h"

struct net_result loss_forward(const struct activation *out, const uint8_t *labels, int n)
{
    const int classes = out->shape.channels;
    struct net_result result = {0, 0};
    for (int i = 0; i < n; i++) {
        const float *row = out->data + (size_t)i * (size_t)classes;
        float *gradient = out->gradient + (size_t)i * (size_t)classes;
        int most = 0;
        for (int c = 1; c < classes; c++) {
            most = row[c] > row[most] ? c : most;
        }
        /* Less the largest, so that nothing overflows. */
        double sum = 0;
        for (int c = 0; c < classes; c++) {
            sum += exp((double)row[c] - row[most]);
        }
        for (int c = 0; c < classes; c++) {
            const double share = exp((double)row[c] - row[most]) / sum;
            gradient[c] = (float)((share - (c == labels[i])) / n);
        }
        result.loss -= row[labels[i]] - row[most] - log(sum);
        result.correct += most == labels[i];
    }
    memset(out->gradient + (size_t)n * (size_t)classes, 0,
           (size_t)(out->batch - n) * (size_t)classes * sizeof(float));
    return result;
}

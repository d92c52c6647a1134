/*
 * Both ends of a net on a device: copying batches to it, and the loss back.
 *
 *     loader -> pinned memory 0, 1 -(stream copy)-> images 0, 1 -> first layer
 *
 * A batch that is announced ahead is copied while the one before is computed.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/cuda/gpu.h"
#include "nn/cuda/kernels.h"

struct slot {
    float *pinned, *images; /* in pinned host memory; on the device */
    uint8_t *pinned_labels, *labels;
    cudaEvent_t there, used; /* the batch is on the device; it is not needed any more */
};

struct batches {
    struct slot slots[2];
    int next;                         /* the slot of the next batch */
    const float *ahead;               /* the batch that was copied to it ahead; NULL: none */
    double *results, *pinned_results; /* two for each image, by kernels_loss() */
};

static bool slot_open(struct slot *slot, const struct activation *to, struct problem *problem)
{
    const size_t batch = (size_t)to->batch, bytes = batch * shape_count(&to->shape) * sizeof(float);
    return gpu_good(cudaMallocHost((void **)&slot->pinned, bytes), "pinned memory", problem) &&
           gpu_good(cudaMallocHost((void **)&slot->pinned_labels, batch), "pinned memory",
                    problem) &&
           gpu_good(cudaMalloc((void **)&slot->labels, batch), "memory for labels", problem) &&
           gpu_good(cudaEventCreateWithFlags(&slot->there, cudaEventDisableTiming), "an event",
                    problem) &&
           gpu_good(cudaEventCreateWithFlags(&slot->used, cudaEventDisableTiming), "an event",
                    problem);
}

bool gpu_input_create(struct input *input, struct problem *problem)
{
    struct batches *batches = calloc(1, sizeof(*batches));
    if (batches == NULL) {
        return problem_say(problem, "no memory for batches");
    }
    input->own = batches;
    const struct activation *to = input->to;
    const size_t bytes = 2 * (size_t)to->batch * sizeof(double);
    batches->slots[0].images = to->data;
    batches->slots[1].images = gpu_floats_new((size_t)to->batch * shape_count(&to->shape));
    if (batches->slots[1].images == NULL) {
        return problem_say(problem, "no memory on %s for a batch of %d images", gpu.name,
                           to->batch);
    }
    return slot_open(&batches->slots[0], to, problem) &&
           slot_open(&batches->slots[1], to, problem) &&
           gpu_good(cudaMalloc((void **)&batches->results, bytes), "memory for the loss",
                    problem) &&
           gpu_good(cudaMallocHost((void **)&batches->pinned_results, bytes), "pinned memory",
                    problem);
}

void gpu_input_destroy(struct input *input)
{
    struct batches *batches = input->own;
    if (batches == NULL) {
        return;
    }
    input->to->data = batches->slots[0].images; /* the net owns it */
    cudaFree(batches->slots[1].images);
    for (int i = 0; i < 2; i++) {
        const struct slot *slot = &batches->slots[i];
        cudaFreeHost(slot->pinned);
        cudaFreeHost(slot->pinned_labels);
        cudaFree(slot->labels);
        if (slot->there != NULL) {
            cudaEventDestroy(slot->there);
        }
        if (slot->used != NULL) {
            cudaEventDestroy(slot->used);
        }
    }
    cudaFree(batches->results);
    cudaFreeHost(batches->pinned_results);
    free(batches);
}

void gpu_input_ahead(struct input *input, const float *images, const uint8_t *labels, int n)
{
    struct batches *batches = input->own;
    const struct slot *slot = &batches->slots[batches->next];
    const size_t bytes = (size_t)n * shape_count(&input->to->shape) * sizeof(float);
    gpu_must(cudaEventSynchronize(slot->there), "copying a batch");
    memcpy(slot->pinned, images, bytes);
    gpu_must(cudaStreamWaitEvent(gpu.copy, slot->used, 0), "copying a batch");
    gpu_must(cudaMemcpyAsync(slot->images, slot->pinned, bytes, cudaMemcpyHostToDevice, gpu.copy),
             "copying a batch");
    if (labels != NULL) {
        memcpy(slot->pinned_labels, labels, (size_t)n);
        gpu_must(cudaMemcpyAsync(slot->labels, slot->pinned_labels, (size_t)n,
                                 cudaMemcpyHostToDevice, gpu.copy),
                 "copying labels");
    }
    gpu_must(cudaEventRecord(slot->there, gpu.copy), "copying a batch");
    batches->ahead = images;
}

void gpu_input_take(struct input *input, const float *images, const uint8_t *labels, int n)
{
    struct batches *batches = input->own;
    if (batches->ahead != images) {
        gpu_input_ahead(input, images, labels, n);
    }
    const struct slot *slot = &batches->slots[batches->next];
    batches->next ^= 1;
    batches->ahead = NULL;
    /* Everything that uses the batch before has been launched by now. */
    gpu_must(cudaEventRecord(batches->slots[batches->next].used, gpu.compute), "a batch");
    gpu_must(cudaStreamWaitEvent(gpu.compute, slot->there, 0), "a batch");
    input->to->data = slot->images;
    input->labels = labels == NULL ? NULL : slot->labels;
}

/* Waits, so errors of earlier launches show up here. */
struct net_result gpu_loss_forward(const struct activation *out, const struct input *input, int n)
{
    const struct batches *batches = input->own;
    struct net_result result = {0, 0};
    kernels_loss(gpu.compute, out->data, input->labels, n, out->shape.channels, batches->results);
    gpu_must(cudaGetLastError(), "forward");
    gpu_must(cudaMemcpyAsync(batches->pinned_results, batches->results,
                             2 * (size_t)n * sizeof(double), cudaMemcpyDeviceToHost, gpu.compute),
             "forward");
    gpu_must(cudaStreamSynchronize(gpu.compute), "forward");
    for (int i = 0; i < n; i++) {
        result.loss += batches->pinned_results[2 * (size_t)i];
        result.correct += batches->pinned_results[2 * (size_t)i + 1] != 0;
    }
    return result;
}

void gpu_loss_backward(const struct activation *out, const struct input *input, int n)
{
    kernels_loss_backward(gpu.compute, out->data, input->labels, n, out->batch, out->shape.channels,
                          out->gradient);
}

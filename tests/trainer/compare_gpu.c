/*
 * Compares the trainer on a device with the trainer on the host: each kind of layer forward and
 * backward, the optimizers, and the losses of some training steps. Exits with 77 without a device.
 *
 *     compare_gpu [MODULE]      default: the module beside train; else that of fake_gpu.c
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"
#include "nn/optimizer.h"

#define BATCH 8
#define STEPS 20

/* Every kind of layer before and after another kind, with odd sizes. */
static const struct model small[] = {
    {"conv", "", {3, 9, 7}, {{LAYER_CONV, "a", .out = 5, .kernel = 3}, {LAYER_FC, "z", .out = 4}}},
    {"conv conv",
     "",
     {1, 6, 5},
     {{LAYER_CONV, "a", .out = 20, .kernel = 3},
      {LAYER_CONV, "b", .out = 7, .kernel = 2, .padding = 2},
      {LAYER_FC, "z", .out = 10}}},
    {"conv pool",
     "",
     {2, 6, 10},
     {{LAYER_CONV, "a", .out = 3, .kernel = 3, .padding = 1},
      {.kind = LAYER_POOL_RELU},
      {LAYER_FC, "z", .out = 3}}},
    {"conv norm",
     "",
     {3, 5, 6},
     {{LAYER_CONV, "a", .out = 9, .kernel = 2},
      {LAYER_BATCH_NORM, .name = "n"},
      {.kind = LAYER_RELU},
      {LAYER_FC, "z", .out = 4}}},
    {"norm first", "", {3, 4, 4}, {{LAYER_BATCH_NORM, .name = "n"}, {LAYER_FC, "z", .out = 4}}},
    {"fc fc",
     "",
     {3, 4, 5},
     {{LAYER_FC, "a", .out = 13}, {.kind = LAYER_RELU}, {LAYER_FC, "z", .out = 2}}},
};

static const struct backend *device;

/* The same net on the host and on the device. */
struct pair {
    const struct model *model;
    struct net *net[2];
    struct tensor *tensors[2], *averages[2];
    int count, average_count;
};

static void check(bool good, const struct model *model, const char *what)
{
    if (!good) {
        fprintf(stderr, "compare_gpu: %s: %s\n", model->name, what);
        exit(1);
    }
}

static const struct backend *backend_of(int side)
{
    return side == 0 ? &backend_cpu : device;
}

/* Compares a, on the host, with b, on the device. They may differ by `close` times the largest
 * value. */
static void compare(const struct model *model, const char *what, const float *a, const float *b,
                    size_t count, double close)
{
    float *copy = malloc((count + 1) * sizeof(float));
    double largest = 0.02; /* values that should be 0 are not exactly */
    check(copy != NULL, model, "no memory");
    device->copy_out(b, copy, count);
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)a[i]));
    }
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)a[i] - copy[i]) <= close * largest)) {
            fprintf(stderr, "compare_gpu: %s: %s[%zu] is %.9g on the host, %.9g on %s\n",
                    model->name, what, i, a[i], copy[i], device->name);
            exit(1);
        }
    }
    free(copy);
}

static void pair_open(struct pair *pair, const struct model *model, int batch)
{
    struct problem problem = {""};
    *pair = (struct pair){.model = model};
    for (int side = 0; side < 2; side++) {
        pair->net[side] = net_create_on(backend_of(side), model, batch, &problem);
        check(pair->net[side] != NULL, model, problem.text);
        check(net_draw(pair->net[side], 7), model, "no memory");
        pair->tensors[side] = net_tensors(pair->net[side], &pair->count);
        pair->averages[side] = net_averages(pair->net[side], &pair->average_count);
        for (int i = 0; i < pair->count; i++) {
            struct tensor *tensor = &pair->tensors[side][i];
            tensor->gradient = tensor->backend->floats_new(tensor->count);
            check(tensor->gradient != NULL, model, "no memory");
        }
    }
}

static void pair_close(struct pair *pair)
{
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < pair->count; i++) {
            backend_of(side)->floats_free(pair->tensors[side][i].gradient);
        }
        net_destroy(pair->net[side]);
    }
}

static void compare_gradients(const struct pair *pair, double close)
{
    for (int i = 0; i < pair->count; i++) {
        compare(pair->model, pair->tensors[0][i].name, pair->tensors[0][i].gradient,
                pair->tensors[1][i].gradient, pair->tensors[0][i].count, close);
    }
}

static void compare_values(const struct pair *pair, double close)
{
    for (int i = 0; i < pair->count; i++) {
        compare(pair->model, pair->tensors[0][i].name, pair->tensors[0][i].value,
                pair->tensors[1][i].value, pair->tensors[0][i].count, close);
    }
    for (int i = 0; i < pair->average_count; i++) {
        compare(pair->model, pair->averages[0][i].name, pair->averages[0][i].value,
                pair->averages[1][i].value, pair->averages[0][i].count, close);
    }
}

/* Images that differ between classes, plus noise. */
static void draw_batch(const struct model *model, int classes, unsigned *seed, float *images,
                       uint8_t *labels, int batch)
{
    const size_t size = shape_count(&model->input);
    for (int n = 0; n < batch; n++) {
        labels[n] = (uint8_t)(rand_r(seed) % classes);
        for (size_t i = 0; i < size; i++) {
            images[(size_t)n * size + i] =
                (float)(rand_r(seed) % 1000) / 1000 - 0.5F + (i % (labels[n] + 2U) == 0 ? 0.7F : 0);
        }
    }
}

/* One batch forward and its gradients; then those of another batch, added to the first. */
static void check_layers(const struct model *model, int classes)
{
    const size_t size = shape_count(&model->input);
    const int counts[2] = {BATCH, BATCH - 3}; /* how many images of a batch are used */
    float *images = malloc(BATCH * size * sizeof(float));
    uint8_t labels[BATCH];
    unsigned seed = 5;
    struct pair pair;
    pair_open(&pair, model, BATCH);
    compare_values(&pair, 0);
    check(images != NULL, model, "no memory");
    for (int k = 0; k < 2; k++) {
        struct net_result results[2];
        draw_batch(model, classes, &seed, images, labels, BATCH);
        for (int side = 0; side < 2; side++) {
            results[side] = net_forward(pair.net[side], images, labels, counts[k], true);
            net_backward(pair.net[side], k > 0, NULL, NULL);
        }
        check(fabs(results[0].loss - results[1].loss) <= 1e-5 * results[0].loss, model, "loss");
        check(results[0].correct == results[1].correct, model, "correct");
        const struct net_edge a = net_outputs(pair.net[0]), b = net_outputs(pair.net[1]);
        compare(model, "outputs", a.data, b.data, a.image * (size_t)counts[k], 1e-5);
        compare(model, "gradient of outputs", a.gradient, b.gradient, a.image * BATCH, 1e-5);
        compare_gradients(&pair, 2e-5);
        compare_values(&pair, 1e-5);
    }
    /* In evaluation: a net of another size that shares the tensors and uses the running
     * averages. */
    double loss[2];
    for (int side = 0; side < 2; side++) {
        struct problem problem = {""};
        struct net *shared = net_create(model, 3, pair.net[side], &problem);
        check(shared != NULL, model, problem.text);
        loss[side] = net_forward(shared, images, labels, 3, false).loss;
        for (int i = 0; i < pair.count; i++) {
            net_divide_gradient(pair.net[side], i, 3);
        }
        net_destroy(shared);
    }
    check(fabs(loss[0] - loss[1]) <= 1e-5 * loss[0], model, "loss in evaluation");
    compare_gradients(&pair, 2e-5);
    free(images);
    pair_close(&pair);
}

static void optimizers_open(struct optimizer *optimizer, const struct pair *pair,
                            struct optimizer_options options)
{
    for (int side = 0; side < 2; side++) {
        check(optimizer_init(&optimizer[side], &options, pair->tensors[side], pair->count),
              pair->model, "no memory");
    }
}

/* Updates with equal gradients: only the optimizer can make a difference. */
static void check_optimizer(struct optimizer_options options)
{
    struct pair pair;
    struct optimizer optimizer[2];
    unsigned seed = 9;
    options.weight_decay = 1e-3F;
    pair_open(&pair, model_find("linear"), 1);
    optimizers_open(optimizer, &pair, options);
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < pair.count; i++) {
            float *gradient = pair.tensors[0][i].gradient;
            for (size_t at = 0; at < pair.tensors[0][i].count; at++) {
                gradient[at] = (float)(rand_r(&seed) % 2001) / 1000 - 1;
            }
            device->copy_in(pair.tensors[1][i].gradient, gradient, pair.tensors[0][i].count);
        }
        optimizer_step(&optimizer[0], 0.01F);
        optimizer_step(&optimizer[1], 0.01F);
        compare_values(&pair, 1e-6);
    }
    optimizer_finish(&optimizer[0]);
    optimizer_finish(&optimizer[1]);
    pair_close(&pair);
}

/* In training the losses stay together. On the device every other batch is fetched ahead. */
static void check_training(const struct model *model, int batch, int steps)
{
    const size_t size = shape_count(&model->input);
    float *images[2];
    uint8_t labels[2][BATCH];
    unsigned seed = 11;
    double first = 0, last = 0;
    struct pair pair;
    struct optimizer optimizer[2];
    struct optimizer_options options = optimizer_defaults;
    options.momentum = 0.5F;
    pair_open(&pair, model, batch);
    optimizers_open(optimizer, &pair, options);
    for (int k = 0; k < 2; k++) {
        images[k] = malloc((size_t)batch * size * sizeof(float));
        check(images[k] != NULL, model, "no memory");
    }
    draw_batch(model, 10, &seed, images[0], labels[0], batch);
    for (int k = 0; k < steps; k++) {
        double loss[2];
        draw_batch(model, 10, &seed, images[1 - k % 2], labels[1 - k % 2], batch);
        for (int side = 0; side < 2; side++) {
            loss[side] =
                net_forward(pair.net[side], images[k % 2], labels[k % 2], batch, true).loss / batch;
            net_backward(pair.net[side], false, NULL, NULL);
            if (k % 3 > 0) {
                net_ahead(pair.net[side], images[1 - k % 2], labels[1 - k % 2], batch);
            }
            optimizer_step(&optimizer[side], 0.01F);
        }
        first = k == 0 ? loss[0] : first;
        last = loss[0];
        if (!(fabs(loss[0] - loss[1]) <= 1e-4)) {
            fprintf(stderr, "compare_gpu: %s: step %d: the loss is %.7f, and %.7f on %s\n",
                    model->name, k, loss[0], loss[1], device->name);
            exit(1);
        }
    }
    check(isfinite(last) && last != first, model, "nothing was trained");
    for (int k = 0; k < 2; k++) {
        optimizer_finish(&optimizer[k]);
        free(images[k]);
    }
    pair_close(&pair);
    printf("%s: %d steps, the loss went from %.4f to %.4f on both\n", model->name, steps, first,
           last);
}

int main(int argc, char **argv)
{
    struct problem problem = {""};
    if (argc > 1) {
        setenv("TRAIN_CUDA", argv[1], 1);
    }
    device = module_open(-1, 0, &problem);
    if (device == NULL) {
        const bool none = strstr(problem.text, "finds no device") != NULL;
        fprintf(stderr, "%s%s\n", none ? "skipped: " : "compare_gpu: ", problem.text);
        return none ? 77 : 1;
    }
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
        const struct layer_row *row = small[i].layers;
        while (row[1].kind != LAYER_END) {
            row++;
        }
        check_layers(&small[i], row->out);
    }
    struct optimizer_options options = optimizer_defaults;
    check_optimizer(options);
    options.momentum = 0.9F;
    check_optimizer(options);
    options.kind = OPTIMIZER_ADAM;
    check_optimizer(options);
    for (const struct model *model = models; model->name != NULL; model++) {
        const bool slow = argc > 1; /* the fakes are slow */
        check_training(model, slow ? 2 : BATCH, slow ? 5 : STEPS);
    }
    printf("right on %s\n", device->name);
    return 0;
}

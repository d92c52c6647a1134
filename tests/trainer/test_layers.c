/*
 * Layers, loss and optimizers against numbers that PyTorch computed (tests/data/make_torch.py), and
 * gradients against finite differences.
 *
 *     test_layers tests/data/trainer_torch.safetensors
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "nn/layer.h"
#include "nn/net.h"
#include "nn/optimizer.h"

#define IMAGES 6
/* More than there are images: the rest must not matter. */
#define BATCH 8

static const struct model plain = {
    .name = "plain",
    .input = {1, 12, 12},
    .layers = {{LAYER_CONV, "conv1", .out = 20, .kernel = 3},
               {.kind = LAYER_POOL_RELU},
               {LAYER_CONV, "conv2", .out = 5, .kernel = 2, .padding = 1},
               {.kind = LAYER_POOL_RELU},
               {LAYER_FC, "fc1", .out = 7},
               {.kind = LAYER_RELU},
               {LAYER_FC, "fc2", .out = 4}},
};
static const struct model norm = {
    .name = "norm",
    .input = {3, 6, 8},
    .layers = {{LAYER_CONV, "conv1", .out = 6, .kernel = 3, .padding = 1},
               {LAYER_BATCH_NORM, .name = "bn1"},
               {.kind = LAYER_POOL_RELU},
               {LAYER_FC, "fc", .out = 4}},
};

static struct safetensors torch;

/* A net with gradients of its own, and a batch. */
struct bench {
    const struct model *model;
    struct net *net;
    struct tensor *tensors;
    int count;
    float *images;
    const uint8_t *labels;
};

static const void *numbers(const struct model *model, const char *what, const char *type,
                           size_t count)
{
    char name[96];
    struct problem problem;
    snprintf(name, sizeof(name), "%s.%s", model->name, what);
    const void *found = safetensors_find(&torch, name, type, count, &problem);
    if (found == NULL) {
        fail_msg("%s", problem.text);
    }
    return found;
}

static void bench_open(struct bench *bench, const struct model *model, int batch)
{
    struct problem problem;
    const int pixels = model->input.height * model->input.width, channels = model->input.channels;
    bench->model = model;
    bench->net = net_create(model, batch, NULL, &problem);
    if (bench->net == NULL) {
        fail_msg("%s", problem.text);
    }
    net_draw(bench->net, 7);
    bench->tensors = net_tensors(bench->net, &bench->count);
    for (int i = 0; i < bench->count; i++) {
        bench->tensors[i].gradient = calloc(bench->tensors[i].count, sizeof(float));
        assert_non_null(bench->tensors[i].gradient);
    }
    const size_t size = (size_t)channels * (size_t)pixels;
    const float *images = numbers(model, "image", "F32", IMAGES * size);
    bench->labels = numbers(model, "label", "U8", IMAGES);
    bench->images = malloc(IMAGES * size * sizeof(float));
    assert_non_null(bench->images);
    for (size_t i = 0; i < IMAGES * size; i++) { /* n c (hw) to n (hw) c */
        const size_t n = i / size, c = i % size / (size_t)pixels, at = i % (size_t)pixels;
        bench->images[n * size + at * (size_t)channels + c] = images[i];
    }
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; i < bench->count; i++) {
        free(bench->tensors[i].gradient);
    }
    free(bench->images);
    net_destroy(bench->net);
}

/* Compares values of the trainer's with PyTorch's: they may differ by `close` times the largest. */
static void compare(const struct model *model, const char *prefix, const struct tensor *tensor,
                    const float *inside, double close)
{
    char what[64];
    snprintf(what, sizeof(what), "%s%s", prefix, tensor->name);
    const float *expected = numbers(model, what, "F32", tensor->count);
    float *outside = malloc(tensor->count * sizeof(float));
    assert_non_null(outside);
    tensor_export(tensor, inside, outside);
    double largest = 0.05; /* values that should be 0 are not exactly */
    for (size_t i = 0; i < tensor->count; i++) {
        largest = fmax(largest, fabs((double)expected[i]));
    }
    for (size_t i = 0; i < tensor->count; i++) {
        if (!(fabs((double)outside[i] - expected[i]) <= close * largest)) {
            fail_msg("%s %s[%zu] is %.9g, PyTorch has %.9g", model->name, what, i, outside[i],
                     expected[i]);
        }
    }
    free(outside);
}

static double step(struct bench *bench)
{
    const struct net_result result =
        net_forward(bench->net, bench->images, bench->labels, IMAGES, true);
    net_backward(bench->net, false, NULL, NULL);
    return result.loss / IMAGES;
}

static void check_against_torch(const struct model *model)
{
    struct bench bench;
    bench_open(&bench, model, BATCH);
    for (int i = 0; i < bench.count; i++) {
        compare(model, "", &bench.tensors[i], bench.tensors[i].value, 0); /* the same bits */
    }
    const float *loss = numbers(model, "loss", "F32", 2);
    assert_true(fabs(step(&bench) - loss[0]) < 1e-6);
    for (int i = 0; i < bench.count; i++) {
        compare(model, "grad.", &bench.tensors[i], bench.tensors[i].gradient, 3e-6);
    }
    int averages = 0;
    struct tensor *average = net_averages(bench.net, &averages);
    for (int i = 0; i < averages; i++) {
        compare(model, "", &average[i], average[i].value, 1e-6);
    }
    bench_close(&bench);
}

static void torch_plain(void **state)
{
    (void)state;
    check_against_torch(&plain);
}

static void torch_norm(void **state)
{
    (void)state;
    check_against_torch(&norm);
}

static void check_optimizer(const struct model *model, struct optimizer_options options, float lr,
                            const char *prefix)
{
    struct bench bench;
    struct optimizer optimizer;
    bench_open(&bench, model, IMAGES);
    options.weight_decay = 1e-3F;
    assert_true(optimizer_init(&optimizer, &options, bench.tensors, bench.count));
    for (int k = 0; k < 3; k++) {
        step(&bench);
        optimizer_step(&optimizer, lr);
    }
    for (int i = 0; i < bench.count; i++) {
        compare(model, prefix, &bench.tensors[i], bench.tensors[i].value, 2e-5);
    }
    if (options.kind == OPTIMIZER_SGD) {
        const float *loss = numbers(model, "loss", "F32", 2);
        const struct net_result after =
            net_forward(bench.net, bench.images, bench.labels, IMAGES, false);
        assert_true(fabs(after.loss / IMAGES - loss[1]) < 1e-5);
    }
    optimizer_finish(&optimizer);
    bench_close(&bench);
}

static void torch_sgd(void **state)
{
    (void)state;
    struct optimizer_options options = optimizer_defaults;
    options.momentum = 0.9F;
    check_optimizer(&plain, options, 0.1F, "sgd.");
    check_optimizer(&norm, options, 0.1F, "sgd.");
}

static void torch_adam(void **state)
{
    (void)state;
    struct optimizer_options options = optimizer_defaults;
    options.kind = OPTIMIZER_ADAM;
    check_optimizer(&plain, options, 0.01F, "adam.");
    check_optimizer(&norm, options, 0.01F, "adam.");
}

/*
 * The slope of the loss in one element. If a maximum or a ReLU switches between the two points
 * there is no slope: then those on both sides differ, and the element is skipped.
 */
static bool slope_is(struct bench *bench, float *value, double expected)
{
    const float kept = *value, h = 2e-3F;
    double loss[3];
    for (int i = 0; i < 3; i++) {
        *value = kept + (float)(i - 1) * h;
        loss[i] = net_forward(bench->net, bench->images, bench->labels, IMAGES, true).loss / IMAGES;
    }
    *value = kept;
    const double left = (loss[1] - loss[0]) / h, right = (loss[2] - loss[1]) / h;
    if (fabs(left - right) > 0.02 * fmax(0.05, fabs(left))) {
        return false;
    }
    if (fabs((left + right) / 2 - expected) > 0.02 * fmax(0.05, fabs(expected))) {
        fail_msg("the slope is %g, the gradient %g", (left + right) / 2, expected);
    }
    return true;
}

static void check_differences(const struct model *model)
{
    struct bench bench;
    bench_open(&bench, model, BATCH);
    step(&bench);
    for (int i = 0; i < bench.count; i++) {
        struct tensor *tensor = &bench.tensors[i];
        const size_t stride = tensor->count > 60 ? tensor->count / 40 : 1;
        int good = 0, tried = 0;
        for (size_t at = 0; at < tensor->count; at += stride, tried++) {
            good += slope_is(&bench, &tensor->value[at], tensor->gradient[at]);
        }
        assert_true(2 * good > tried);
    }
    bench_close(&bench);
}

static void finite_differences(void **state)
{
    (void)state;
    check_differences(&plain);
    check_differences(&norm);
    for (const struct model *model = models; model->name != NULL; model++) {
        assert_ptr_equal(model_find(model->name), model);
    }
    assert_null(model_find("mnis"));
}

/* Two backward passes over halves of the batch add up to the gradient of the whole. */
static void accumulate(void **state)
{
    (void)state;
    const size_t half_images = (size_t)3 * 12 * 12;
    struct bench bench;
    bench_open(&bench, &plain, IMAGES);
    for (int half = 0; half < 2; half++) {
        net_forward(bench.net, bench.images + (size_t)half * half_images,
                    bench.labels + (size_t)half * 3, 3, true);
        net_backward(bench.net, half == 1, NULL, NULL);
    }
    for (int i = 0; i < bench.count; i++) {
        for (size_t at = 0; at < bench.tensors[i].count; at++) {
            bench.tensors[i].gradient[at] /= 2;
        }
        compare(&plain, "grad.", &bench.tensors[i], bench.tensors[i].gradient, 3e-6);
    }
    bench_close(&bench);
}

/* The gradients of one step of a new model, one after the other, computed with so many threads. */
static size_t gradients_by(const char *threads, const struct model *model, int batch, float *ret,
                           double *ret_largest)
{
    struct problem problem;
    setenv("OMP_NUM_THREADS", threads, 1);
    struct net *net = net_create(model, batch, NULL, &problem);
    setenv("OMP_NUM_THREADS", "1", 1);
    assert_non_null(net);
    net_draw(net, 3);
    int count = 0;
    size_t used = 0;
    struct tensor *tensors = net_tensors(net, &count);
    for (int i = 0; i < count; used += tensors[i++].count) {
        tensors[i].gradient = ret + used;
    }
    float *images = malloc((size_t)batch * shape_count(&model->input) * sizeof(float));
    uint8_t labels[16] = {0};
    assert_non_null(images);
    for (size_t i = 0; i < (size_t)batch * shape_count(&model->input); i++) {
        images[i] = (float)(i * 7919 % 1009) / 1009 - 0.4F;
    }
    net_forward(net, images, labels, batch, true);
    net_backward(net, false, NULL, NULL);
    for (size_t i = 0; i < used; i++) {
        *ret_largest = fmax(*ret_largest, fabs((double)ret[i]));
    }
    free(images);
    net_destroy(net);
    return used;
}

static void check_threads(const struct model *model, int batch)
{
    static float one[500000], two[500000];
    double largest = 0;
    const size_t count = gradients_by("1", model, batch, one, &largest);
    assert_int_equal(gradients_by("2", model, batch, two, &largest), count);
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)one[i] - two[i]) <= 3e-6 * largest)) {
            fail_msg("%s: gradient %zu is %.9g, and %.9g by two threads", model->name, i, one[i],
                     two[i]);
        }
    }
}

/* With one thread the gradients of some convolutions are computed by patches, with more by
 * oneDNN. */
static void patches(void **state)
{
    (void)state;
    static const struct model padded = {
        .name = "padded",
        .input = {3, 20, 24},
        .layers = {{LAYER_CONV, "conv1", .out = 20, .kernel = 5, .padding = 2},
                   {.kind = LAYER_RELU},
                   {LAYER_CONV, "conv2", .out = 7, .kernel = 3, .padding = 2},
                   {LAYER_FC, "fc", .out = 10}},
    };
    static const int batches[] = {1, 5, 11}; /* less than a block, several blocks, and a rest */
    for (size_t i = 0; i < 3; i++) {
        check_threads(&padded, batches[i]);
        check_threads(model_find("mnist"), batches[i]);
    }
}

struct order {
    int next;
};

static void order_next(void *arg, int i)
{
    struct order *order = arg;
    order->next = i == order->next ? i - 1 : -100;
}

/* Gradients get ready from the last tensor to the first; a net for another batch size uses the same
 * tensors. */
static void ready_and_shared(void **state)
{
    (void)state;
    struct bench bench;
    struct problem problem;
    bench_open(&bench, &norm, BATCH);
    struct order order = {bench.count - 1};
    const double loss = net_forward(bench.net, bench.images, bench.labels, IMAGES, true).loss;
    net_backward(bench.net, false, order_next, &order);
    assert_int_equal(order.next, -1);

    struct net *other = net_create(&norm, 1 + IMAGES, bench.net, &problem);
    assert_non_null(other);
    assert_true(fabs(net_forward(other, bench.images, bench.labels, IMAGES, true).loss - loss) <
                1e-5);
    net_destroy(other);
    bench_close(&bench);
}

/* The gradients of all parts, in the order of the whole net. */
static size_t parts_gradients(const struct model *model, int parts, const float *images,
                              const uint8_t *labels, float *ret)
{
    struct net *nets[4] = {NULL};
    struct problem problem;
    size_t used = 0;
    const float *in = images;
    for (int k = 0; k < parts; k++) {
        nets[k] = net_create_part(model, k, parts, BATCH, &problem);
        assert_non_null(nets[k]);
        net_draw(nets[k], 7);
        int count = 0;
        struct tensor *tensors = net_tensors(nets[k], &count);
        for (int i = 0; i < count; used += tensors[i++].count) {
            tensors[i].gradient = ret + used;
        }
        net_forward(nets[k], in, k == parts - 1 ? labels : NULL, IMAGES, true);
        in = net_outputs(nets[k]).data;
    }
    for (int k = parts - 1; k >= 0; k--) {
        net_backward(nets[k], false, NULL, NULL);
        if (k > 0) {
            const struct net_edge from = net_inputs(nets[k]), to = net_outputs(nets[k - 1]);
            assert_int_equal(from.image, to.image);
            memcpy(to.gradient, from.gradient, BATCH * to.image * sizeof(float));
        }
    }
    for (int k = 0; k < parts; k++) {
        net_destroy(nets[k]);
    }
    return used;
}

/* A net that is cut into parts has the same bits as the whole: initial values and gradients. */
static void parts(void **state)
{
    (void)state;
    static float images[IMAGES * 3 * 12 * 12], whole[20000], cut[20000];
    static const uint8_t labels[IMAGES] = {0, 1, 2, 3, 0, 1};
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
        images[i] = (float)(i * 7 % 31) / 31 - 0.4F;
    }
    for (int m = 0; m < 2; m++) {
        const struct model *model = m == 0 ? &plain : &norm;
        const int layers = m == 0 ? 4 : 2;
        const size_t count = parts_gradients(model, 1, images, labels, whole);
        for (int n = 2; n <= layers; n++) {
            assert_int_equal(parts_gradients(model, n, images, labels, cut), count);
            assert_memory_equal(cut, whole, count * sizeof(float));
        }
        struct problem problem;
        assert_null(net_create_part(model, 0, layers + 1, BATCH, &problem));
        assert_non_null(strstr(problem.text, "layers with weights"));
    }
}

static void bad_models(void **state)
{
    (void)state;
    struct problem problem;
    const struct model large = {.input = {1, 4, 4},
                                .layers = {{LAYER_CONV, "conv1", .out = 2, .kernel = 5}}};
    assert_null(net_create(&large, 1, NULL, &problem));
    assert_string_equal(problem.text, "conv1: a 5 x 5 kernel does not fit into 4 x 4");
    const struct model odd = {.input = {1, 5, 4}, .layers = {{.kind = LAYER_POOL_RELU}}};
    assert_null(net_create(&odd, 1, NULL, &problem));
    assert_string_equal(problem.text, "pooling of 2 x 2 over 5 x 4");
}

int main(int argc, char **argv)
{
    struct problem problem;
    if (argc != 2 || !safetensors_read(&torch, argv[1], &problem)) {
        fprintf(stderr, "%s\n", argc == 2 ? problem.text : "usage: test_layers FILE");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_plain),        cmocka_unit_test(torch_norm),
        cmocka_unit_test(torch_sgd),          cmocka_unit_test(torch_adam),
        cmocka_unit_test(finite_differences), cmocka_unit_test(accumulate),
        cmocka_unit_test(ready_and_shared),   cmocka_unit_test(parts),
        cmocka_unit_test(bad_models),         cmocka_unit_test(patches),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    safetensors_free(&torch);
    return failed;
}

#include "study.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEST_BATCH 250

/* ---- Options ------------------------------------------------------------------------------- */

enum kind { WHOLE, NUMBER, TEXT, FLAG, MODEL };
#define AT(field) offsetof(struct study_options, field)
static const struct row {
    const char *name;
    enum kind kind;
    size_t field;
    double least, most;
    const char *text;
} rows[] = {
    {"model", MODEL, AT(model), 0, 0, "NAME  of the trainer's (mnist)"},
    {"data", TEXT, AT(data), 0, 0, "DIR   as the trainer's (the built-in digits)"},
    {"train-samples", WHOLE, AT(train_samples), 1, INT_MAX, "N     only the first (all)"},
    {"test-samples", WHOLE, AT(test_samples), 1, INT_MAX, "N     only the first (2000)"},
    {"steps", WHOLE, AT(steps), 1, 500000, "N     batches for each worker (100)"},
    {"batch-size", WHOLE, AT(batch), 1, 65536, "N     images of a worker's batch (32)"},
    {"test-every", WHOLE, AT(test_every), 1, 500000, "N     steps (only at the end)"},
    {"lr", NUMBER, AT(lr), 0, 1e9, "X     learning rate (0.01)"},
    {"momentum", NUMBER, AT(momentum), 0, 1, "X     (0.5)"},
    {"seed", WHOLE, AT(seed), 0, UINT_MAX, "N     (1)"},
    {"metrics", TEXT, AT(metrics), 0, 0, "FILE  as the trainer's"},
    {"threads", WHOLE, AT(threads), 1, 1024, "N     by_threads: workers (2)"},
    {"async", FLAG, AT(async), 0, 0, "      by_server: nobody waits for other workers"},
    {"slow-ms", WHOLE, AT(slow_ms), 0, 60000,
     "N     not by_model: what the last worker needs more for a step (0)"},
    {"exchange", FLAG, AT(exchange), 0, 0, "      exchange as in training, but compute nothing"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static bool option_set(struct study_options *options, const struct row *row, const char *value,
                       struct problem *problem)
{
    void *field = (char *)options + row->field;
    char *end = NULL;
    const double number = row->kind == WHOLE || row->kind == NUMBER ? strtod(value, &end) : 0;
    if (end != NULL &&
        (end == value || *end != '\0' || !(number >= row->least && number <= row->most) ||
         (row->kind == WHOLE && number != (double)(int64_t)number))) {
        return problem_say(problem, "--%s %s: expected a %snumber from %.0f to %.0f", row->name,
                           value, row->kind == WHOLE ? "whole " : "", row->least, row->most);
    }
    if (row->kind == FLAG) {
        *(bool *)field = true;
    } else if (row->kind == TEXT) {
        *(const char **)field = value;
    } else if (row->kind == NUMBER) {
        *(double *)field = number;
    } else if (row->kind == WHOLE && row->field == AT(seed)) {
        options->seed = (int64_t)number;
    } else if (row->kind == WHOLE) {
        *(int *)field = (int)number;
    } else {
        options->model = model_find(value);
    }
    return options->model != NULL ||
           problem_say(problem, "--model %s: there is no such model", value);
}

/* False: the problem; if that is empty --help was given, and the help was printed. */
static bool options_read(struct study_options *ret, int argc, char **argv, const char *about,
                         struct problem *problem)
{
    struct option known[ROWS + 2] = {{0}};
    for (size_t i = 0; i < ROWS; i++) {
        const int takes = rows[i].kind == FLAG ? no_argument : required_argument;
        known[i] = (struct option){rows[i].name, takes, NULL, (int)i};
    }
    known[ROWS] = (struct option){"help", no_argument, NULL, (int)ROWS};
    *ret = (struct study_options){.model = model_find("mnist"),
                                  .test_samples = 2000,
                                  .steps = 100,
                                  .batch = 32,
                                  .threads = 2,
                                  .lr = 0.01,
                                  .momentum = 0.5,
                                  .seed = 1};
    problem->text[0] = '\0';
    opterr = 0;
    int at = 1; /* of the option that is read, which optind is behind, or not yet */
    for (int got = 0; (got = getopt_long(argc, argv, "+", known, NULL)) != -1; at = optind) {
        if (got == (int)ROWS) {
            printf("%s\n\n", about);
            for (size_t i = 0; i < ROWS; i++) {
                printf("  --%-14s %s\n", rows[i].name, rows[i].text);
            }
            return false;
        }
        if (got == '?') {
            return problem_say(problem, "%s: no such option, or its value is missing (--help)",
                               argv[at]);
        }
        if (!option_set(ret, &rows[got], optarg, problem)) {
            return false;
        }
    }
    return optind == argc || problem_say(problem, "%s: no argument was expected", argv[optind]);
}

/* ---- A worker -------------------------------------------------------------------------------- */

static bool data_open(struct study_data *data, const struct study_options *options,
                      struct problem *problem)
{
    const struct image_shape *input = &options->model->input;
    return dataset_open(&data->train, options->data, true, options->train_samples, problem) &&
           dataset_open(&data->test, options->data, false, options->test_samples, problem) &&
           ((memcmp(&data->train.shape, input, sizeof(*input)) == 0 &&
             memcmp(&data->test.shape, input, sizeof(*input)) == 0) ||
            problem_say(problem,
                        "the model %s takes images of %d x %d x %d, the data has another size",
                        options->model->name, input->channels, input->height, input->width));
}

int study_main(int argc, char **argv, const char *about, study_run *run)
{
    struct study_options options;
    struct study_data data;
    struct problem problem;
    memset(&data, 0, sizeof(data));
    if (!options_read(&options, argc, argv, about, &problem)) {
        const bool helped = problem.text[0] == '\0';
        if (helped && report_said(&problem)) {
            return 0;
        }
        fprintf(stderr, "%s: %s\n", argv[0], problem.text);
        return helped ? 1 : 2;
    }
    const bool done = data_open(&data, &options, &problem) && run(&options, &data, &problem) &&
                      report_said(&problem);
    if (!done) {
        fprintf(stderr, "%s: %s\n", argv[0], problem.text);
    }
    dataset_close(&data.train);
    dataset_close(&data.test);
    return done ? 0 : 1;
}

void study_place(struct study *study, float *gradients)
{
    study->gradients = gradients;
    for (int i = 0; i < study->tensor_count; i++) {
        study->tensors[i].gradient = gradients;
        gradients += study->tensors[i].count;
    }
}

static bool tensors_open(struct study *study, struct problem *problem)
{
    const struct study_options *o = study->options;
    struct optimizer_options how = optimizer_defaults;
    int averages = 0;
    net_averages(study->net, &averages);
    if (averages > 0) {
        return problem_say(problem, "--model %s: running averages are not shared here",
                           o->model->name);
    }
    how.momentum = (float)o->momentum;
    study->tensors = net_tensors(study->net, &study->tensor_count);
    for (int i = 0; i < study->tensor_count; i++) {
        study->count += study->tensors[i].count;
    }
    study->own = calloc(study->count, sizeof(float));
    if (study->own == NULL ||
        !optimizer_init(&study->optimizer, &how, study->tensors, study->tensor_count)) {
        return problem_say(problem, "no memory for the gradients");
    }
    study_place(study, study->own);
    net_draw(study->net, (uint32_t)o->seed);
    return true;
}

bool study_open(struct study *study, const struct study_options *options,
                const struct study_data *data, int worker, int workers, bool speaks,
                struct net *net, struct problem *problem)
{
    *study = (struct study){.options = options,
                            .data = data,
                            .worker = worker,
                            .workers = workers,
                            .updates_of_step = 1,
                            .net = net};
    if (!sampler_init(&study->sampler, data->train.count, workers, worker, true, false,
                      (uint32_t)options->seed)) {
        return problem_say(problem, "no memory for the order of the images");
    }
    study->loader = loader_create(&data->train, options->batch, 0, problem);
    if (study->loader == NULL) {
        return false;
    }
    loader_start(study->loader, study->sampler.mine, study->sampler.count, 0);
    if (net == NULL) {
        study->net = net_create(options->model, options->batch, NULL, problem);
        study->test_net =
            study->net == NULL ? NULL : net_create(options->model, TEST_BATCH, study->net, problem);
        if (study->test_net == NULL) {
            return false;
        }
    }
    return tensors_open(study, problem) &&
           report_open(&study->report, speaks, 1, options->metrics, 0, 0, problem);
}

void study_close(struct study *study)
{
    report_close(&study->report);
    optimizer_finish(&study->optimizer);
    free(study->own);
    net_destroy(study->test_net);
    net_destroy(study->net);
    loader_destroy(study->loader);
    sampler_finish(&study->sampler);
}

/* ---- Training ------------------------------------------------------------------------------ */

const struct batch *study_batch(struct study *study)
{
    const struct batch *batch = loader_next(study->loader);
    if (batch == NULL) {
        sampler_set_epoch(&study->sampler, ++study->epoch);
        loader_start(study->loader, study->sampler.mine, study->sampler.count, 0);
        batch = loader_next(study->loader);
    }
    return batch;
}

void study_compute(struct study *study)
{
    const struct study_options *o = study->options;
    if (study->began_s == 0) {
        study->began_s = report_now();
    }
    if (o->exchange) {
        return;
    }
    if (o->slow_ms > 0 && study->worker == study->workers - 1) {
        const struct timespec more = {o->slow_ms / 1000, o->slow_ms % 1000 * 1000000L};
        nanosleep(&more, NULL);
    }
    const struct batch *batch = study_batch(study);
    const struct net_result got =
        net_forward(study->net, batch->images, batch->labels, batch->n, true);
    study->loss = got.loss / batch->n;
    net_backward(study->net, false, NULL, NULL);
}

void study_pack(const struct study *study, float *values)
{
    for (int i = 0; i < study->tensor_count; i++) {
        const struct tensor *tensor = &study->tensors[i];
        memcpy(values, tensor->value, tensor->count * sizeof(float));
        values += tensor->count;
    }
}

void study_unpack(struct study *study, const float *values)
{
    for (int i = 0; i < study->tensor_count; i++) {
        const struct tensor *tensor = &study->tensors[i];
        memcpy(tensor->value, values, tensor->count * sizeof(float));
        values += tensor->count;
    }
}

static int steps_timed(const struct study_options *o)
{
    return o->exchange && o->steps > 1 ? o->steps - 1 : o->steps;
}

void study_update(struct study *study)
{
    if (!study->options->exchange) {
        optimizer_step(&study->optimizer, (float)study->options->lr);
    }
    study->updates++;
    /* With --exchange the first step is not timed: links are made in it. */
    if (study->options->exchange && steps_timed(study->options) < study->options->steps &&
        study->updates == study->updates_of_step) {
        study->began_s = report_now();
    }
}

bool study_due(const struct study *study)
{
    const struct study_options *o = study->options;
    const bool last = study->updates == o->steps * study->updates_of_step;
    const int every = o->test_every * study->updates_of_step;
    return !o->exchange && (last || (every > 0 && study->updates % every == 0));
}

void study_tell(struct study *study, double loss, int correct, int images, double began_s)
{
    const double took = report_now() - began_s;
    study->report.began_s += took;
    study->began_s += took;
    report_test(&study->report, 1, study->updates, loss / images, correct, images);
}

void study_test(struct study *study)
{
    const double began = report_now();
    const struct dataset *test = &study->data->test;
    struct problem problem;
    struct loader *loader = loader_create(test, TEST_BATCH, 0, &problem);
    struct sampler all;
    if (loader == NULL || !sampler_init_once(&all, test->count, 1, 0)) {
        fprintf(stderr, "no memory for a test\n");
        exit(1);
    }
    loader_start(loader, all.mine, all.count, 0);
    double loss = 0;
    int correct = 0;
    for (const struct batch *batch; (batch = loader_next(loader)) != NULL;) {
        const struct net_result got =
            net_forward(study->test_net, batch->images, batch->labels, batch->n, false);
        loss += got.loss;
        correct += got.correct;
    }
    sampler_finish(&all);
    loader_destroy(loader);
    study_tell(study, loss, correct, test->count, began);
}

void study_over(const struct study *study, const char *name, int ranks)
{
    if (study->report.speaks) {
        printf("%s: %d ranks, %d steps, %.3f ms a step\n", name, ranks, study->options->steps,
               1e3 * (report_now() - study->began_s) / steps_timed(study->options));
    }
}

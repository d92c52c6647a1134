/*
 * The program: reads the data, makes the net, and trains it on all ranks. README.md follows a batch
 * through it.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "ddp.h"
#include "module.h"
#include "options.h"
#include "report.h"

/* The state of one rank. trainer_open() fills it from top to bottom, trainer_close() closes it in
 * reverse. */
struct trainer {
    struct options options;
    struct ddp_job *job;
    struct dataset train_data, test_data;
    struct sampler train_sampler, test_sampler;
    struct loader *train_loader, *test_loader;
    const struct model *model;
    const struct backend *backend;
    struct net *net, *test_net;
    struct ddp_tensor *tensors;
    struct ddp *ddp;
    struct optimizer optimizer;
    struct report report;
    struct progress progress;
    bool warned; /* about tensors without a gradient */
};

/* ---- Making everything --------------------------------------------------------------------- */

static bool data_open(struct trainer *t, struct problem *problem)
{
    const struct options *o = &t->options;
    const int rank = ddp_rank(t->job), ranks = ddp_ranks(t->job);
    if (!dataset_open(&t->train_data, o->data, true, o->train_samples, problem) ||
        !dataset_open(&t->test_data, o->data, false, 0, problem)) {
        return false;
    }
    if (o->drop_last && t->train_data.count < ranks) {
        return problem_say(problem, "%d images are less than one for each of %d ranks",
                           t->train_data.count, ranks);
    }
    if (!sampler_init(&t->train_sampler, t->train_data.count, ranks, rank, true, o->drop_last,
                      (uint32_t)o->seed) ||
        !sampler_init_once(&t->test_sampler, t->test_data.count, ranks, rank)) {
        return problem_say(problem, "no memory for the order of the images");
    }
    t->train_loader = loader_create(&t->train_data, o->batch, o->workers, problem);
    t->test_loader = t->train_loader == NULL
                         ? NULL
                         : loader_create(&t->test_data, o->test_batch, o->workers, problem);
    return t->test_loader != NULL;
}

static bool model_takes(const struct model *model, const struct dataset *data, const char *which,
                        struct problem *problem)
{
    const struct image_shape *shape = &data->shape, *input = &model->input;
    return memcmp(shape, input, sizeof(*shape)) == 0 ||
           problem_say(problem,
                       "the model %s takes images of %d x %d x %d, the %s has %d x %d x %d",
                       model->name, input->channels, input->height, input->width, which,
                       shape->channels, shape->height, shape->width);
}

static bool model_choose(struct trainer *t, struct problem *problem)
{
    t->model = t->options.model != NULL
                   ? t->options.model
                   : model_find(t->train_data.shape.channels == 3 ? "cifar" : "mnist");
    return model_takes(t->model, &t->train_data, "data", problem) &&
           model_takes(t->model, &t->test_data, "data for the test", problem);
}

/* Chooses where the net is: on the host, or on this rank's device. */
static bool backend_choose(struct trainer *t, struct problem *problem)
{
    int rank = 0;
    if (t->options.device == DEVICE_HOST) {
        t->backend = &backend_cpu;
        return true;
    }
    t->backend = ddp_local_rank(t->job, &rank, problem)
                     ? module_open(t->options.device, rank, problem)
                     : NULL;
    return t->backend != NULL;
}

static bool model_open(struct trainer *t, struct problem *problem)
{
    struct options *o = &t->options;
    if (!model_choose(t, problem) || !backend_choose(t, problem)) {
        return false;
    }
    o->ddp.device = t->backend->device;
    t->net = net_create_on(t->backend, t->model, o->batch, problem);
    t->test_net = t->net == NULL ? NULL : net_create(t->model, o->test_batch, t->net, problem);
    if (t->test_net == NULL) {
        return false;
    }
    if (!net_draw(t->net, (uint32_t)o->seed)) {
        return problem_say(problem, "no memory to draw the first values in");
    }

    int count = 0;
    struct tensor *tensors = net_tensors(t->net, &count);
    t->tensors = calloc((size_t)count, sizeof(*t->tensors));
    if (t->tensors == NULL || !optimizer_init(&t->optimizer, &o->optimizer, tensors, count)) {
        return problem_say(problem, "no memory for the optimizer");
    }
    for (int i = 0; i < count; i++) {
        t->tensors[i] = (struct ddp_tensor){tensors[i].name, tensors[i].count, tensors[i].value,
                                            &tensors[i].gradient};
    }
    t->ddp = ddp_create(t->job, t->tensors, count, &o->ddp, problem);
    return t->ddp != NULL;
}

/* Broadcasts parameters and optimizer state that rank 0 has read from the checkpoint. */
static bool resume_share(struct trainer *t, struct problem *problem)
{
    int count = 0;
    const struct tensor *tensors = net_tensors(t->net, &count);
    for (int i = 0; i < count; i++) {
        const size_t bytes = tensors[i].count * sizeof(float);
        if (!ddp_broadcast(t->job, tensors[i].value, bytes, problem)) {
            return false;
        }
        for (int k = 0; k < OPTIMIZER_STATES && t->optimizer.states[k] != NULL; k++) {
            if (!ddp_broadcast(t->job, t->optimizer.states[k][i], bytes, problem)) {
                return false;
            }
        }
    }
    return ddp_broadcast(t->job, &t->optimizer.steps, sizeof(t->optimizer.steps), problem);
}

/* Rank 0 reads the checkpoint; the others need not see the file. */
static bool resume(struct trainer *t, struct problem *problem)
{
    const struct options *o = &t->options;
    const bool automatic =
        o->resume != NULL && o->checkpoint != NULL && strcmp(o->resume, "auto") == 0;
    const char *path = automatic ? o->checkpoint : o->resume;
    const int global_batch = o->batch * ddp_ranks(t->job);
    t->progress.seed = o->seed;
    t->progress.global_batch = global_batch;
    if (o->resume == NULL) {
        return true;
    }
    const struct training training = {t->model, t->net, &t->optimizer};
    enum { NOTHING, READ, REFUSED } what = NOTHING;
    struct problem why = {""};
    if (ddp_rank(t->job) == 0 && !(automatic && access(path, F_OK) != 0 && errno == ENOENT)) {
        what = checkpoint_read(path, &training, &t->progress, &why) ? READ : REFUSED;
    }
    if (!ddp_broadcast(t->job, &what, sizeof(what), problem) ||
        !ddp_broadcast(t->job, &t->progress, sizeof(t->progress), problem)) {
        return false;
    }
    if (what == REFUSED) {
        return problem_say(problem, "%s", why.text[0] != '\0' ? why.text : "rank 0 cannot resume");
    }
    t->train_sampler.seed = (uint32_t)t->progress.seed;
    /* With another number of ranks or size of batches: continue at about the same image. */
    const int64_t batches = (int64_t)t->progress.batches * t->progress.global_batch / global_batch;
    t->progress.batches = batches < INT_MAX ? (int)batches : INT_MAX;
    t->progress.global_batch = global_batch;
    return what == NOTHING || resume_share(t, problem);
}

static bool trainer_open(struct trainer *t, struct problem *problem)
{
    const struct options *o = &t->options;
    t->job = ddp_job_open(o->init_method, o->rank, o->world_size, problem);
    return t->job != NULL && data_open(t, problem) && model_open(t, problem) &&
           (o->checkpoint == NULL || ddp_rank(t->job) != 0 ||
            safetensors_writable(o->checkpoint, problem)) &&
           resume(t, problem) &&
           report_open(&t->report, ddp_rank(t->job) == 0, o->epochs, o->metrics, t->progress.epoch,
                       t->progress.updates, problem);
}

static void trainer_close(struct trainer *t)
{
    report_close(&t->report);
    ddp_destroy(t->ddp);
    optimizer_finish(&t->optimizer);
    free(t->tensors);
    net_destroy(t->test_net);
    net_destroy(t->net);
    loader_destroy(t->test_loader);
    loader_destroy(t->train_loader);
    sampler_finish(&t->test_sampler);
    sampler_finish(&t->train_sampler);
    dataset_close(&t->test_data);
    dataset_close(&t->train_data);
    ddp_job_close(t->job);
}

/* ---- Training ------------------------------------------------------------------------------ */

static int batches_of_epoch(const struct trainer *t)
{
    return (t->train_sampler.count + t->options.batch - 1) / t->options.batch;
}

/*
 * With --scale-lr the given rate is for one rank's batch, and grows with the total batch. During
 * the warm-up it rises linearly, from the rate for one rank or from nothing.
 */
static double learning_rate(const struct trainer *t)
{
    const struct options *o = &t->options;
    const int updates_of_epoch = (batches_of_epoch(t) + o->accumulate - 1) / o->accumulate;
    const double full = o->lr * (o->scale_lr ? ddp_ranks(t->job) * o->accumulate : 1);
    const double first = o->scale_lr ? o->lr : 0;
    const double warm = (double)(t->progress.updates + 1) / (o->warmup * updates_of_epoch + 1e-9);
    return warm < 1 ? first + (full - first) * warm : full;
}

/* An update in progress. */
struct update {
    struct trainer *t;
    float lr;
};

static void update_tensor(void *arg, int i)
{
    const struct update *update = arg;
    optimizer_update(&update->t->optimizer, i, update->lr);
}

static void update_over(struct trainer *t, const struct ddp_step *step)
{
    optimizer_end_step(&t->optimizer);
    t->progress.updates++;
    if (step->unused > 0 && !t->warned) {
        fprintf(stderr, "train: rank %d: %d tensors got no gradient, for example %s\n",
                ddp_rank(t->job), step->unused, step->a_name);
        t->warned = true;
    }
}

static bool checkpoint_save(struct trainer *t, struct problem *problem)
{
    const struct training training = {t->model, t->net, &t->optimizer};
    const double began = report_now();
    const bool good = t->options.checkpoint == NULL || ddp_rank(t->job) != 0 ||
                      checkpoint_write(t->options.checkpoint, &training, &t->progress, problem);
    t->report.share_s[SHARE_OTHER] += report_now() - began;
    return good;
}

static void tell(struct trainer *t, const struct ddp_step *step, double lr)
{
    const int batches = batches_of_epoch(t), ranks = ddp_ranks(t->job);
    const int64_t images = (int64_t)t->progress.batches * t->options.batch * ranks;
    const struct report_line line = {
        .epoch = t->progress.epoch + 1,
        .images = images < t->train_data.count ? (int)images : t->train_data.count,
        .all_images = t->train_data.count,
        .batch = t->progress.batches,
        .batches = batches,
        .updates = t->progress.updates,
        .lr = lr,
        .loss = step->loss,
    };
    report_train(&t->report, &line);
}

/* The batches that a rank adds up for an update. */
struct batches {
    struct trainer *t;
    int added;
    bool last; /* no more are added */
};

/* The mean of the rank's batches travels: their number may differ between ranks. */
static void backward_ready(void *arg, int i)
{
    const struct batches *batches = arg;
    if (batches->last) {
        net_divide_gradient(batches->t->net, i, batches->added);
    }
    ddp_ready(batches->t->ddp, i);
}

/* One update, by up to --accumulate batches of this rank from *next on. */
static bool train_update(struct trainer *t, const struct batch **next, struct problem *problem)
{
    const struct batch *batch = *next;
    const int batches = batches_of_epoch(t);
    const double began = report_now();
    double *share = t->report.share_s;
    double data_s = 0, loss = 0;
    struct batches all = {.t = t};
    while (!all.last && batch != NULL) {
        loss += net_forward(t->net, batch->images, batch->labels, batch->n, true).loss / batch->n;
        t->progress.batches++;
        all.last = ++all.added == t->options.accumulate || t->progress.batches == batches;
        ddp_begin(t->ddp, all.last, loss / all.added);
        net_backward(t->net, all.added > 1, backward_ready, &all);
        t->report.images += (double)batch->n * ddp_ranks(t->job);
        t->report.flop += net_step_flop(t->net);
        const double asked = report_now();
        batch = loader_next(t->train_loader);
        data_s += report_now() - asked;
        if (batch != NULL) {
            net_ahead(t->net, batch->images, batch->labels, batch->n);
        }
    }
    *next = batch;
    struct ddp_step step;
    const double lr = learning_rate(t);
    if (!ddp_finish(t->ddp, update_tensor, &(struct update){t, (float)lr}, &step, problem)) {
        return false;
    }
    update_over(t, &step);
    share[SHARE_DATA] += data_s;
    share[SHARE_COMMUNICATION] += step.call_s;
    share[SHARE_WAIT] += step.wait_s;
    share[SHARE_COMPUTE] += report_now() - began - data_s - step.call_s - step.wait_s;
    const int interval = t->options.log_interval;
    if (t->progress.updates == 1 ||
        t->progress.batches / interval != (t->progress.batches - all.added) / interval) {
        tell(t, &step, lr);
    }
    return t->options.checkpoint_every == 0 ||
           t->progress.updates % t->options.checkpoint_every != 0 || checkpoint_save(t, problem);
}

/* Takes part in the updates of ranks that have more batches. */
static bool train_follow(struct trainer *t, struct problem *problem)
{
    struct ddp_step step;
    struct update update = {t, (float)learning_rate(t)};
    while (ddp_follow(t->ddp, update_tensor, &update, &step, problem)) {
        update_over(t, &step);
        update.lr = (float)learning_rate(t);
    }
    return problem->text[0] == '\0';
}

static bool train_epoch(struct trainer *t, struct problem *problem)
{
    sampler_set_epoch(&t->train_sampler, t->progress.epoch);
    loader_start(t->train_loader, t->train_sampler.mine, t->train_sampler.count,
                 t->progress.batches);
    const double asked = report_now();
    const struct batch *batch = loader_next(t->train_loader);
    t->report.share_s[SHARE_DATA] += report_now() - asked;
    while (batch != NULL) {
        if (!train_update(t, &batch, problem)) {
            return false;
        }
        if (t->options.dry_run) {
            break;
        }
    }
    return train_follow(t, problem);
}

/* Tests on all images, each once. All ranks use rank 0's running averages. */
static bool test(struct trainer *t, struct problem *problem)
{
    const double began = report_now();
    int count = 0;
    const struct tensor *averages = net_averages(t->net, &count);
    for (int i = 0; i < count; i++) {
        if (!ddp_broadcast(t->job, averages[i].value, averages[i].count * sizeof(float), problem)) {
            return false;
        }
    }
    double sums[3] = {0};
    loader_start(t->test_loader, t->test_sampler.mine, t->test_sampler.count, 0);
    for (const struct batch *batch; (batch = loader_next(t->test_loader)) != NULL;) {
        const struct net_result result =
            net_forward(t->test_net, batch->images, batch->labels, batch->n, false);
        sums[0] += result.loss;
        sums[1] += result.correct;
        sums[2] += batch->n;
        if (t->options.dry_run) {
            break;
        }
    }
    if (!ddp_sum(t->job, sums, 3, problem)) {
        return false;
    }
    t->report.share_s[SHARE_OTHER] += report_now() - began;
    report_test(&t->report, t->progress.epoch + 1, t->progress.updates, sums[0] / sums[2],
                (int)sums[1], (int)sums[2]);
    return true;
}

static bool train(struct trainer *t, struct problem *problem)
{
    if (t->progress.epoch >= t->options.epochs) {
        report_nothing(&t->report, t->progress.epoch);
        return report_kept(&t->report, problem);
    }
    while (t->progress.epoch < t->options.epochs) {
        report_epoch(&t->report);
        if (!train_epoch(t, problem) || !test(t, problem)) {
            return false;
        }
        t->progress.epoch++;
        t->progress.batches = 0;
        report_epoch_over(&t->report, t->progress.epoch);
        if (t->options.dry_run) {
            break;
        }
        if (!checkpoint_save(t, problem)) {
            return false;
        }
    }
    report_over(&t->report);
    return report_kept(&t->report, problem);
}

int main(int argc, char **argv)
{
    struct trainer trainer = {0};
    struct problem problem = {""};
    switch (options_parse(&trainer.options, argc, argv, &problem)) {
    case OPTIONS_HELP:
        options_help(stdout);
        if (report_said(&problem)) {
            return 0;
        }
        fprintf(stderr, "train: %s\n", problem.text);
        return 1;
    case OPTIONS_BAD:
        fprintf(stderr, "train: %s\n", problem.text);
        return 2;
    case OPTIONS_GOOD:
        break;
    }
    const bool good = trainer_open(&trainer, &problem) && train(&trainer, &problem);
    if (!good && trainer.job == NULL) {
        fprintf(stderr, "train: %s\n", problem.text);
    } else if (!good) {
        fprintf(stderr, "train: rank %d: %s\n", ddp_rank(trainer.job), problem.text);
    }
    trainer_close(&trainer);
    return good ? 0 : 1;
}

#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"

/* A tensor of the model or of the optimizer. */
struct item {
    char name[80];
    const struct tensor *shape;
    float *inside;
};

#define ITEMS_MOST 256

/* Lists all tensors of a checkpoint, in a fixed order. Returns how many. */
static int items_list(const struct training *training, struct item items[ITEMS_MOST])
{
    int count = 0, trained = 0, averages = 0;
    const struct tensor *tensors = net_tensors(training->net, &trained);
    const struct tensor *average = net_averages(training->net, &averages);
    for (int i = 0; i < trained + averages; i++) {
        const struct tensor *tensor = i < trained ? &tensors[i] : &average[i - trained];
        items[count] = (struct item){.shape = tensor, .inside = tensor->value};
        snprintf(items[count++].name, sizeof(items->name), "%s", tensor->name);
    }
    const struct optimizer *optimizer = training->optimizer;
    for (int k = 0; k < OPTIMIZER_STATES && optimizer_state_name(optimizer, k) != NULL; k++) {
        for (int i = 0; i < trained; i++) {
            items[count] = (struct item){.shape = &tensors[i], .inside = optimizer->states[k][i]};
            snprintf(items[count++].name, sizeof(items->name), "optimizer.%s.%s", tensors[i].name,
                     optimizer_state_name(optimizer, k));
        }
    }
    return count;
}

static void note_text(struct safetensors_note *note, const char *key, const char *value)
{
    snprintf(note->key, sizeof(note->key), "%s", key);
    snprintf(note->value, sizeof(note->value), "%s", value);
}

static void note_number(struct safetensors_note *note, const char *key, int64_t value)
{
    snprintf(note->key, sizeof(note->key), "%s", key);
    snprintf(note->value, sizeof(note->value), "%" PRId64, value);
}

static const char *optimizer_name(const struct optimizer *optimizer)
{
    return optimizer->options.kind == OPTIMIZER_ADAM ? "adam" : "sgd";
}

bool checkpoint_write(const char *path, const struct training *training,
                      const struct progress *progress, struct problem *problem)
{
    struct item items[ITEMS_MOST];
    struct safetensor tensors[ITEMS_MOST];
    struct safetensors_note notes[7];
    const int count = items_list(training, items);
    size_t floats = 1; /* at least one, since malloc(0) may return NULL */
    for (int i = 0; i < count; i++) {
        floats += items[i].shape->count;
    }
    float *outside = malloc(floats * sizeof(float));
    if (outside == NULL) {
        return problem_say(problem, "%s: no memory for %zu numbers", path, floats);
    }
    float *to = outside;
    for (int i = 0; i < count; i++) {
        tensors[i] = (struct safetensor){.type = "F32", .dims = items[i].shape->dims, .data = to};
        memcpy(tensors[i].name, items[i].name, sizeof(tensors[i].name));
        memcpy(tensors[i].shape, items[i].shape->shape, sizeof(tensors[i].shape));
        if (!tensor_export(items[i].shape, items[i].inside, to)) {
            free(outside);
            return problem_say(problem, "%s: no memory for %s", path, items[i].name);
        }
        to += items[i].shape->count;
    }
    note_text(&notes[0], "model", training->model->name);
    note_text(&notes[1], "optimizer", optimizer_name(training->optimizer));
    note_number(&notes[2], "seed", progress->seed);
    note_number(&notes[3], "epoch", progress->epoch);
    note_number(&notes[4], "batches", progress->batches);
    note_number(&notes[5], "updates", progress->updates);
    note_number(&notes[6], "global_batch", progress->global_batch);
    const bool good = safetensors_write(path, tensors, count, notes, 7, problem);
    free(outside);
    return good;
}

static bool expect_text(const struct safetensors *file, const char *key, const char *expected,
                        struct problem *problem)
{
    char found[64] = "";
    safetensors_note(file, key, found, sizeof(found));
    return strcmp(found, expected) == 0 ||
           problem_say(problem, "%s: the %s is \"%s\", this training's is \"%s\"", file->path, key,
                       found, expected);
}

static bool read_number(const struct safetensors *file, const char *key, int64_t most, int64_t *ret,
                        struct problem *problem)
{
    char found[64] = "";
    char *end = found;
    if (safetensors_note(file, key, found, sizeof(found))) {
        *ret = strtoll(found, &end, 10);
    }
    return (end != found && *end == '\0' && *ret >= 0 && *ret <= most) ||
           problem_say(problem, "%s: %s is \"%s\", expected 0 to %" PRId64, file->path, key, found,
                       most);
}

static bool read_progress(const struct safetensors *file, const struct training *training,
                          struct progress *ret, struct problem *problem)
{
    int64_t epoch = 0, batches = 0, global_batch = ret->global_batch;
    char note[64];
    const bool good =
        expect_text(file, "model", training->model->name, problem) &&
        expect_text(file, "optimizer", optimizer_name(training->optimizer), problem) &&
        read_number(file, "seed", UINT32_MAX, &ret->seed, problem) &&
        read_number(file, "epoch", INT32_MAX, &epoch, problem) &&
        read_number(file, "batches", INT32_MAX, &batches, problem) &&
        read_number(file, "updates", INT64_MAX / 2, &ret->updates, problem) &&
        (!safetensors_note(file, "global_batch", note, sizeof(note)) || /* of an older version */
         read_number(file, "global_batch", INT32_MAX, &global_batch, problem));
    ret->epoch = (int)epoch;
    ret->batches = (int)batches;
    ret->global_batch = (int)global_batch;
    return good;
}

bool checkpoint_read(const char *path, const struct training *training, struct progress *ret,
                     struct problem *problem)
{
    struct item items[ITEMS_MOST];
    const int count = items_list(training, items);
    struct safetensors file;
    bool good =
        safetensors_read(&file, path, problem) && read_progress(&file, training, ret, problem);
    for (int i = 0; good && i < count; i++) {
        const float *outside =
            safetensors_find(&file, items[i].name, "F32", items[i].shape->count, problem);
        good = outside != NULL;
        if (good && !safetensors_has_shape(&file, items[i].name, items[i].shape->dims,
                                           items[i].shape->shape)) {
            good = problem_say(problem, "%s: %s has another shape than the model's", path,
                               items[i].name);
        }
        if (good && !tensor_import(items[i].shape, outside, items[i].inside)) {
            good = problem_say(problem, "%s: no memory for %s", path, items[i].name);
        }
    }
    training->optimizer->steps = good ? ret->updates : 0;
    safetensors_free(&file);
    return good;
}

/*
 * A ring of batches. Batch k is in slot k modulo slots. Under the lock this holds:
 *
 *     given - 1 <= loaded <= claimed < given + slots     (batch given - 1 is in use)
 */
#include "data/loader.h"

#include <pthread.h>
#include <stdlib.h>

struct slot {
    struct batch batch;
    int ready; /* the number of the batch in it; -1: none */
};

struct loader {
    const struct dataset *dataset;
    int batch, workers, slots;
    struct slot *ring;
    pthread_t *threads;
    int started; /* threads that run */

    pthread_mutex_t lock; /* guards the rest, and `ready` of the slots */
    pthread_cond_t changed;
    bool over;
    const int *indices;
    int count, batches;
    int claimed, given, busy; /* next batch to load; next to give; threads that are loading */
};

static void loader_fill(const struct loader *loader, struct batch *batch, int number)
{
    const struct dataset *dataset = loader->dataset;
    const int channels = dataset->shape.channels;
    const size_t pixels = (size_t)dataset->shape.height * (size_t)dataset->shape.width;
    const int first = number * loader->batch;
    batch->n = loader->count - first < loader->batch ? loader->count - first : loader->batch;
    float *to = batch->images;
    for (int i = 0; i < batch->n; i++) {
        const size_t image = (size_t)loader->indices[first + i];
        const uint8_t *from = dataset->pixels + image * pixels * (size_t)channels;
        batch->labels[i] = dataset->labels[image];
        for (size_t at = 0; at < pixels; at++) {
            for (int c = 0; c < channels; c++) {
                *to++ = dataset->normal[c][*from++];
            }
        }
    }
}

static bool loader_has_work(const struct loader *loader)
{
    return loader->claimed < loader->batches && loader->claimed < loader->given - 1 + loader->slots;
}

static void *loader_work(void *arg)
{
    struct loader *loader = arg;
    pthread_mutex_lock(&loader->lock);
    while (!loader->over) {
        if (!loader_has_work(loader)) {
            pthread_cond_wait(&loader->changed, &loader->lock);
            continue;
        }
        const int number = loader->claimed++;
        struct slot *slot = &loader->ring[number % loader->slots];
        loader->busy++;
        pthread_mutex_unlock(&loader->lock);
        loader_fill(loader, &slot->batch, number);
        pthread_mutex_lock(&loader->lock);
        loader->busy--;
        slot->ready = number;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static bool loader_allocate(struct loader *loader)
{
    const struct image_shape *shape = &loader->dataset->shape;
    const size_t image = (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels;
    loader->ring = calloc((size_t)loader->slots, sizeof(*loader->ring));
    loader->threads = calloc((size_t)loader->workers + 1, sizeof(*loader->threads));
    bool good = loader->ring != NULL && loader->threads != NULL;
    for (int i = 0; good && i < loader->slots; i++) {
        struct batch *batch = &loader->ring[i].batch;
        batch->images = malloc((size_t)loader->batch * image * sizeof(float));
        batch->labels = malloc((size_t)loader->batch);
        good = batch->images != NULL && batch->labels != NULL;
    }
    return good;
}

struct loader *loader_create(const struct dataset *dataset, int batch, int workers,
                             struct problem *problem)
{
    struct loader *loader = calloc(1, sizeof(*loader));
    if (loader == NULL) {
        problem_say(problem, "no memory for a loader");
        return NULL;
    }
    loader->dataset = dataset;
    loader->batch = batch;
    loader->workers = workers;
    loader->slots = workers + 2; /* one in use, one ready, one for each worker */
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    if (!loader_allocate(loader)) {
        problem_say(problem, "no memory for batches of %d images", batch);
        loader_destroy(loader);
        return NULL;
    }
    while (loader->started < workers) {
        if (pthread_create(&loader->threads[loader->started], NULL, loader_work, loader) != 0) {
            problem_say(problem, "thread %d of %d for loading cannot be started", loader->started,
                        workers);
            loader_destroy(loader);
            return NULL;
        }
        loader->started++;
    }
    return loader;
}

void loader_destroy(struct loader *loader)
{
    if (loader == NULL) {
        return;
    }
    pthread_mutex_lock(&loader->lock);
    loader->over = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->started; i++) {
        pthread_join(loader->threads[i], NULL);
    }
    for (int i = 0; loader->ring != NULL && i < loader->slots; i++) {
        free(loader->ring[i].batch.images);
        free(loader->ring[i].batch.labels);
    }
    pthread_mutex_destroy(&loader->lock);
    pthread_cond_destroy(&loader->changed);
    free(loader->ring);
    free(loader->threads);
    free(loader);
}

void loader_start(struct loader *loader, const int *indices, int count, int first)
{
    pthread_mutex_lock(&loader->lock);
    loader->batches = 0; /* no thread begins another batch */
    while (loader->busy > 0) {
        pthread_cond_wait(&loader->changed, &loader->lock);
    }
    for (int i = 0; i < loader->slots; i++) {
        loader->ring[i].ready = -1;
    }
    loader->indices = indices;
    loader->count = count;
    loader->batches = (count + loader->batch - 1) / loader->batch;
    loader->claimed = loader->given = first;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

const struct batch *loader_next(struct loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    const int number = loader->given;
    struct slot *slot = &loader->ring[number % loader->slots];
    const bool more = number < loader->batches;
    if (more) {
        loader->given++;
        pthread_cond_broadcast(&loader->changed);
    }
    if (more && loader->workers == 0) {
        loader_fill(loader, &slot->batch, number);
        slot->ready = number;
    }
    while (more && slot->ready != number) {
        pthread_cond_wait(&loader->changed, &loader->lock);
    }
    pthread_mutex_unlock(&loader->lock);
    return more ? &slot->batch : NULL;
}

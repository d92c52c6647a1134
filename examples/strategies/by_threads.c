/*
 * Data parallelism in one process: every thread has a net and a part of each batch. The master,
 * thread 0, adds up all gradients and updates its parameters, which the others copy. That needs no
 * library, but works on one machine only, and the master's work grows with the number of threads.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "study.h"

struct crew {
    const struct study_options *options;
    const struct study_data *data;
    struct study
        *studies; /* by thread; each is used by its thread, and by the master between barriers */
    pthread_barrier_t together;
    pthread_mutex_t lock; /* guards the rest */
    struct problem problem;
    bool failed;
};

struct worker {
    struct crew *crew;
    int number;
    pthread_t thread;
};

/* Each thread makes its own net, one thread at a time: oneDNN requires that. */
static bool worker_open(struct worker *worker)
{
    struct crew *crew = worker->crew;
    struct problem problem;
    pthread_mutex_lock(&crew->lock);
    const bool good =
        study_open(&crew->studies[worker->number], crew->options, crew->data, worker->number,
                   crew->options->threads, worker->number == 0, NULL, &problem);
    if (!good) {
        crew->failed = true;
        crew->problem = problem;
    }
    pthread_mutex_unlock(&crew->lock);
    pthread_barrier_wait(&crew->together);
    return !crew->failed; /* not written any more after the barrier */
}

/* Called between two barriers, while all other threads wait. */
static void master_update(struct crew *crew)
{
    struct study *master = &crew->studies[0];
    const int threads = crew->options->threads;
    for (int t = 1; t < threads; t++) {
        for (size_t i = 0; i < master->count; i++) {
            master->gradients[i] += crew->studies[t].gradients[i];
        }
    }
    for (size_t i = 0; threads > 1 && i < master->count; i++) {
        master->gradients[i] /= (float)threads;
    }
    study_update(master);
    if (study_due(master)) {
        study_test(master);
    }
}

static void copy_master(struct study *study, const struct study *master)
{
    for (int i = 0; i < study->tensor_count; i++) {
        memcpy(study->tensors[i].value, master->tensors[i].value,
               study->tensors[i].count * sizeof(float));
    }
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct crew *crew = worker->crew;
    struct study *study = &crew->studies[worker->number];
    const bool good = worker_open(worker);
    for (int step = 0; good && step < crew->options->steps; step++) {
        study_compute(study);
        pthread_barrier_wait(&crew->together);
        if (worker->number == 0) {
            master_update(crew);
        }
        pthread_barrier_wait(&crew->together);
        if (worker->number != 0) {
            copy_master(study, &crew->studies[0]);
        }
    }
    if (good) {
        study_over(study, "by_threads", crew->options->threads);
    }
    pthread_barrier_wait(&crew->together); /* all threads have copied the parameters */
    if (good && worker->number == 0 && !report_kept(&study->report, &crew->problem)) {
        crew->failed = true; /* read when this thread has ended */
    }
    study_close(study);
    return NULL;
}

static bool run(const struct study_options *options, const struct study_data *data,
                struct problem *problem)
{
    const size_t threads = (size_t)options->threads;
    struct crew crew = {.options = options, .data = data};
    struct worker *workers = calloc(threads, sizeof(*workers));
    crew.studies = calloc(threads, sizeof(*crew.studies));
    if (workers == NULL || crew.studies == NULL) {
        free(workers);
        free(crew.studies);
        return problem_say(problem, "no memory for %d threads", options->threads);
    }
    pthread_barrier_init(&crew.together, NULL, (unsigned)threads);
    pthread_mutex_init(&crew.lock, NULL);
    for (size_t t = 0; t < threads; t++) {
        workers[t].crew = &crew;
        workers[t].number = (int)t;
        if (pthread_create(&workers[t].thread, NULL, work, &workers[t]) != 0) {
            /* The threads that run wait in a barrier for this one, so there is no way to go on. */
            fprintf(stderr, "by_threads: thread %zu of %zu cannot be started\n", t, threads);
            exit(1);
        }
    }
    for (size_t t = 0; t < threads; t++) {
        pthread_join(workers[t].thread, NULL);
    }
    pthread_mutex_destroy(&crew.lock);
    pthread_barrier_destroy(&crew.together);
    free(workers);
    free(crew.studies);
    *problem = crew.problem;
    return !crew.failed;
}

int main(int argc, char **argv)
{
    return study_main(argc, argv,
                      "by_threads [options]: data parallel in one process, with a master", run);
}

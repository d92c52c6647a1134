/* See perf_watch.h. */
#include "perf/perf_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "perf/perf_clock.h"
#include "perf/perf_failure.h"

#define LOOK_NS 20000000L

struct perf_watch {
    struct perf_job *job;
    pthread_t pthread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool finished; /* under mutex */
    struct sighting {
        uint64_t inside;
        double since;
    } * sightings; /* one per thread; only for the watchdog thread */
};

static _Noreturn void watch_expire(struct perf_thread *thread)
{
    char text[160];
    hoop_result_t state = HOOP_OK;
    hoop_comm_get_async_error(thread->ranks[0].comm, &state);
    snprintf(text, sizeof text, "rank %d made no progress for %d s (-T); its comm says: %s",
             thread->ranks[0].rank, thread->job->options->timeout_s, hoop_get_error_string(state));
    perf_failure_other(PERF_TIMED_OUT, text, __FILE__, __LINE__);
    perf_ranks_abort(thread);
    _exit(PERF_TIMED_OUT); /* rows are written at once; a thread may hang in writing one */
}

static void watch_look(struct perf_watch *watch, double now)
{
    const struct perf_options *options = watch->job->options;
    for (int i = 0; i < options->threads; i++) {
        struct perf_thread *thread = &watch->job->threads[i];
        struct sighting *seen = &watch->sightings[i];
        uint64_t inside = atomic_load_explicit(&thread->inside, memory_order_acquire);
        if (inside == 0 || inside != seen->inside) {
            *seen = (struct sighting){inside, now};
        } else if (now - seen->since >= options->timeout_s &&
                   atomic_compare_exchange_strong(&thread->inside, &inside, PERF_CLAIMED)) {
            watch_expire(thread);
        }
    }
}

static void *watch_main(void *arg)
{
    struct perf_watch *watch = arg;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->finished) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_nsec -= 1000000000L;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&watch->changed, &watch->mutex, &until);
        watch_look(watch, perf_clock_seconds());
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

int perf_watch_create(struct perf_job *job, struct perf_watch **ret_watch)
{
    *ret_watch = NULL;
    if (job->options->timeout_s == 0) {
        return PERF_SUCCESS;
    }
    struct perf_watch *watch = calloc(1, sizeof *watch);
    struct sighting *sightings = calloc((size_t)job->options->threads, sizeof *sightings);
    if (!watch || !sightings) {
        free(watch);
        free(sightings);
        return perf_failure_other(PERF_INTERNAL, "out of memory", __FILE__, __LINE__);
    }
    watch->job = job;
    watch->sightings = sightings;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&watch->mutex, NULL);
    if (pthread_create(&watch->pthread, NULL, watch_main, watch) != 0) {
        free(sightings);
        free(watch);
        return perf_failure_other(PERF_INTERNAL, "no thread for -T", __FILE__, __LINE__);
    }
    *ret_watch = watch;
    return PERF_SUCCESS;
}

void perf_watch_destroy(struct perf_watch *watch)
{
    if (!watch) {
        return;
    }
    pthread_mutex_lock(&watch->mutex);
    watch->finished = true;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->pthread, NULL);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->mutex);
    free(watch->sightings);
    free(watch);
}

/* The measuring ranks of hoopinfo --calibrate. */
#include "hoop.h"
#include "hoopinfo/calibrate.h"
#include "hoopinfo/fit.h"
#include "hoopinfo/json.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 60
#define BATCH_SECONDS 2e-3
#define TURNS_LEAST 8
#define TURNS_MOST 5000
#define MEASURE_SECONDS 4.0 /* no round begins after this */

const char *const calibrate_algos[FIT_ALGOS] = {"oneshot", "slab", "cma"};

/* One size with one algorithm. */
struct point {
    hoop_comm_t comm;
    size_t count;
    bool gathers;           /* all_gather; else all_reduce */
    bool none;              /* the algorithm is not available */
    unsigned turns;         /* per batch */
    double seconds[ROUNDS]; /* per turn */
};

struct measure {
    int rank;
    float *in, *out;
    struct point points[FIT_ALGOS * FIT_SIZES];
};
#define POINTS ((size_t)FIT_ALGOS * FIT_SIZES)

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Measures the seconds per turn. */
static hoop_result_t point_time(const struct measure *m, const struct point *point, unsigned turns,
                                double *ret)
{
    hoop_result_t result = hoop_barrier(point->comm, NULL);
    const double start = seconds_now();
    for (unsigned i = 0; i < turns && result == HOOP_OK; i++) {
        result = point->gathers
                     ? hoop_all_gather(m->in, m->out, point->count, HOOP_FLOAT, point->comm, NULL)
                     : hoop_all_reduce(m->in, m->out, point->count, HOOP_FLOAT, HOOP_SUM,
                                       point->comm, NULL);
    }
    *ret = (seconds_now() - start) / turns;
    return result;
}

/* Chooses how many turns take BATCH_SECONDS on rank 0; all ranks use that number. */
static hoop_result_t point_size(const struct measure *m, struct point *point)
{
    double seconds = 0.0;
    int turns = 0;
    hoop_result_t result = point_time(m, point, TURNS_LEAST, &seconds);
    result = result == HOOP_OK ? point_time(m, point, TURNS_LEAST, &seconds) : result;
    turns = seconds * TURNS_MOST > BATCH_SECONDS ? (int)(BATCH_SECONDS / seconds) : TURNS_MOST;
    turns = turns < TURNS_LEAST ? TURNS_LEAST : turns;
    if (result == HOOP_OK) {
        result = hoop_broadcast(&turns, &turns, 1, HOOP_INT, 0, point->comm, NULL);
    }
    point->turns = (unsigned)turns;
    return result;
}

/* Each round measures all points once, so that passing disturbances affect all alike. */
static hoop_result_t measure_rounds(struct measure *m, int *ret_rounds)
{
    const double until = seconds_now() + MEASURE_SECONDS;
    hoop_result_t result = HOOP_OK;
    int on = 1;
    for (size_t i = 0; i < POINTS && result == HOOP_OK; i++) {
        result = m->points[i].none ? HOOP_OK : point_size(m, &m->points[i]);
    }
    *ret_rounds = 0;
    while (result == HOOP_OK && on != 0 && *ret_rounds < ROUNDS) {
        for (size_t i = 0; i < POINTS && result == HOOP_OK; i++) {
            struct point *point = &m->points[i];
            result = point->none ? HOOP_OK
                                 : point_time(m, point, point->turns, &point->seconds[*ret_rounds]);
        }
        on = seconds_now() < until;
        if (result == HOOP_OK) {
            result = hoop_broadcast(&on, &on, 1, HOOP_INT, 0, m->points[0].comm, NULL);
        }
        ++*ret_rounds;
    }
    return result;
}

static int seconds_compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Prints each point's minimum, since other work only adds time. 0: not available. */
static void measure_print(struct measure *m, int rounds)
{
    for (size_t i = 0; i < POINTS; i++) {
        struct point *point = &m->points[i];
        qsort(point->seconds, (size_t)rounds, sizeof(double), seconds_compare);
        printf("%s %zu %.1f\n", calibrate_algos[i / FIT_SIZES], fit_kib[i % FIT_SIZES],
               point->seconds[0] * 1e9);
    }
}

/* May ranks read each other's memory here? The answer is the same on all ranks. */
static hoop_result_t look_for_cma(hoop_comm_t comm, bool *ret)
{
    size_t needed = 0;
    char word[8];
    (void)hoop_info_json(comm, NULL, 0, &needed);
    const size_t bytes = needed + 4096; /* it may grow in between */
    char *text = malloc(bytes);
    const hoop_result_t result =
        text != NULL ? hoop_info_json(comm, text, bytes, &needed) : HOOP_OUT_OF_MEMORY;
    if (result == HOOP_OK) {
        *ret = strcmp(json_text(json_member(text, "cma"), word, sizeof(word)), "true") == 0;
    }
    free(text);
    return result;
}

static hoop_result_t measure_init(struct measure *m, hoop_comm_t comms[FIT_ALGOS])
{
    const size_t most = fit_kib[FIT_SIZES - 1] * 1024;
    hoop_result_t result = HOOP_OK;
    int n = 1;
    bool reads = false;
    for (size_t i = 0; i < FIT_ALGOS && result == HOOP_OK; i++) {
        hoop_config_t config = HOOP_CONFIG_INITIALIZER;
        config.algo = calibrate_algos[i];
        result = hoop_comm_init_env(&comms[i], &config);
    }
    result = result == HOOP_OK ? hoop_comm_user_rank(comms[0], &m->rank) : result;
    result = result == HOOP_OK ? hoop_comm_count(comms[0], &n) : result;
    result = result == HOOP_OK ? look_for_cma(comms[FIT_CMA], &reads) : result;
    for (size_t i = 0; i < POINTS; i++) {
        const bool cma = i / FIT_SIZES == FIT_CMA;
        m->points[i].comm = comms[i / FIT_SIZES];
        m->points[i].count = fit_kib[i % FIT_SIZES] * 1024 / sizeof(float);
        m->points[i].gathers = cma;
        m->points[i].none = cma && !reads;
    }
    m->in = malloc(most);
    m->out = malloc((size_t)n * most);
    if (result == HOOP_OK && (m->in == NULL || m->out == NULL)) {
        return HOOP_OUT_OF_MEMORY;
    }
    if (result == HOOP_OK) { /* else all reads would hit the kernel's zero page */
        memset(m->in, 1, most);
        memset(m->out, 1, (size_t)n * most);
    }
    return result;
}

int calibrate_rank(void)
{
    static struct measure m;
    hoop_comm_t comms[FIT_ALGOS] = {HOOP_COMM_NULL, HOOP_COMM_NULL, HOOP_COMM_NULL};
    int rounds = 0;
    hoop_result_t result = measure_init(&m, comms);
    if (result == HOOP_OK) {
        result = measure_rounds(&m, &rounds);
    }
    if (result == HOOP_OK && m.rank == 0) {
        measure_print(&m, rounds);
    } else if (result != HOOP_OK) {
        fprintf(stderr, "hoopinfo: cannot measure: %s: %s\n", hoop_get_error_string(result),
                hoop_get_last_error(NULL));
    }
    for (size_t i = 0; i < FIT_ALGOS; i++) {
        (void)(result == HOOP_OK ? hoop_comm_destroy : hoop_comm_abort)(comms[i]);
    }
    free(m.in);
    free(m.out);
    return result == HOOP_OK ? 0 : 1;
}

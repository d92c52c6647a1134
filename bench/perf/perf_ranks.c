/* See perf_ranks.h. */
#include "perf/perf_ranks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/perf_device.h"
#include "perf/perf_failure.h"

/* ---- Birth ----------------------------------------------------------------------------------- */

static bool ranks_number(const char *name, const char *text, int low, int high, int *ret)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < low || value > high) {
        fprintf(stderr, "%s is '%s': a whole number from %d to %d is expected\n", name, text, low,
                high);
        return false;
    }
    *ret = (int)value;
    return true;
}

/* The variables of the launchers that hoop_comm_init_env() understands. */
static const struct {
    const char *processes, *process, *only_with;
} ranks_launchers[] = {
    {"WORLD_SIZE", "RANK", NULL},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", NULL},
    {"PMI_SIZE", "PMI_RANK", NULL},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_ID"},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_ID"},
};

/* As hoop_comm_init_env() takes it: an empty value counts as unset. */
static const char *ranks_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

bool perf_ranks_environment(int *ret_process, int *ret_processes)
{
    *ret_process = 0;
    *ret_processes = 1;
    for (size_t i = 0; i < sizeof ranks_launchers / sizeof ranks_launchers[0]; i++) {
        const char *only_with = ranks_launchers[i].only_with;
        const char *processes = ranks_variable(ranks_launchers[i].processes);
        const char *process = ranks_variable(ranks_launchers[i].process);
        if (processes && process && (!only_with || ranks_variable(only_with))) {
            return ranks_number(ranks_launchers[i].processes, processes, 1, 1 << 20,
                                ret_processes) &&
                   ranks_number(ranks_launchers[i].process, process, 0, *ret_processes - 1,
                                ret_process);
        }
    }
    return true;
}

/* A thread that joins for one rank: init blocks, so each rank of the process needs one. */
struct joiner {
    pthread_t pthread;
    bool started;
    hoop_comm_t *comm;
    hoop_unique_id_t id;
    int nranks;
    int rank;
    hoop_result_t result;
    char text[512]; /* hoop's last error, which is thread-local */
};

static void *joiner_main(void *arg)
{
    struct joiner *joiner = arg;
    joiner->result = hoop_comm_init_rank(joiner->comm, joiner->nranks, joiner->id, joiner->rank);
    if (joiner->result != HOOP_OK) {
        snprintf(joiner->text, sizeof joiner->text, "%s", hoop_get_last_error(HOOP_COMM_NULL));
    }
    return NULL;
}

/* Reports one failure, preferably one that is not only the consequence of another rank's. */
static int joiners_result(const struct joiner *joiners, int count)
{
    const struct joiner *worst = NULL;
    for (int i = 0; i < count; i++) {
        const struct joiner *joiner = &joiners[i];
        if (!joiner->started) {
            return perf_failure_other(PERF_INTERNAL, "no thread for a rank", __FILE__, __LINE__);
        }
        bool echo = joiner->result == HOOP_REMOTE_ERROR;
        if (joiner->result != HOOP_OK &&
            (!worst || (worst->result == HOOP_REMOTE_ERROR && !echo))) {
            worst = joiner;
        }
    }
    if (!worst) {
        return PERF_SUCCESS;
    }
    return perf_failure_hoop(worst->result, HOOP_COMM_NULL, worst->text, __FILE__, __LINE__);
}

static int ranks_join(struct perf_job *job, hoop_unique_id_t id)
{
    int local = job->options->threads * job->options->gpus;
    struct joiner *joiners = calloc((size_t)local, sizeof *joiners);
    if (!joiners) {
        return perf_failure_other(PERF_INTERNAL, "out of memory", __FILE__, __LINE__);
    }
    for (int i = 0; i < local; i++) {
        joiners[i] = (struct joiner){.comm = &job->ranks[i].comm,
                                     .id = id,
                                     .nranks = job->nranks,
                                     .rank = job->ranks[i].rank};
        joiners[i].started =
            pthread_create(&joiners[i].pthread, NULL, joiner_main, &joiners[i]) == 0;
    }
    for (int i = 0; i < local; i++) {
        if (joiners[i].started) {
            pthread_join(joiners[i].pthread, NULL);
        }
    }
    int code = joiners_result(joiners, local);
    free(joiners);
    return code;
}

/* The id travels as a sum to which all processes except the first contribute zeros. */
static int ranks_spread_id(const struct perf_job *job, hoop_unique_id_t *ret_id)
{
    hoop_comm_t comm = HOOP_COMM_NULL;
    hoop_unique_id_t id;
    memset(&id, 0, sizeof id);
    PERF_HOOP_TRY(hoop_comm_init_env(&comm, NULL), HOOP_COMM_NULL);
    hoop_result_t result = job->process == 0 ? hoop_get_unique_id(&id) : HOOP_OK;
    if (result == HOOP_OK) {
        result = hoop_all_reduce(&id, &id, sizeof id, HOOP_UINT8, HOOP_SUM, comm, NULL);
    }
    if (result != HOOP_OK) {
        int code = perf_failure_hoop(result, comm, NULL, __FILE__, __LINE__);
        hoop_comm_abort(comm);
        return code;
    }
    PERF_HOOP_TRY(hoop_comm_destroy(comm), HOOP_COMM_NULL);
    *ret_id = id;
    return PERF_SUCCESS;
}

static int ranks_init_all(struct perf_job *job)
{
    hoop_comm_t *comms = calloc((size_t)job->nranks, sizeof(hoop_comm_t));
    if (!comms) {
        return perf_failure_other(PERF_INTERNAL, "out of memory", __FILE__, __LINE__);
    }
    hoop_result_t result = hoop_comm_init_all(comms, job->nranks, NULL);
    for (int i = 0; result == HOOP_OK && i < job->nranks; i++) {
        job->ranks[i].comm = comms[i];
    }
    free(comms);
    PERF_HOOP_TRY(result, HOOP_COMM_NULL);
    return PERF_SUCCESS;
}

static int ranks_connect(struct perf_job *job)
{
    hoop_unique_id_t id;
    int local = job->options->threads * job->options->gpus;
    if (local == 1) {
        PERF_HOOP_TRY(hoop_comm_init_env(&job->ranks[0].comm, NULL), HOOP_COMM_NULL);
    } else if (job->processes > 1) {
        PERF_TRY(ranks_spread_id(job, &id));
        PERF_TRY(ranks_join(job, id));
    } else if (job->options->parallel_init) {
        PERF_HOOP_TRY(hoop_get_unique_id(&id), HOOP_COMM_NULL);
        PERF_TRY(ranks_join(job, id));
    } else {
        PERF_TRY(ranks_init_all(job));
    }
    return PERF_SUCCESS;
}

/* The device of the i-th rank here: ranks of a machine take devices in turn, or each process those
 * from NCCL_TESTS_DEVICE on. */
static int ranks_device(const struct perf_job *job, int local, int i)
{
    const char *text = getenv("LOCAL_RANK");
    const long long process = text ? strtol(text, NULL, 10) : job->process;
    const long long first = job->first_device >= 0 ? job->first_device : process * local;
    return job->options->place == PERF_PLACE_DEVICE ? (int)((first + i) % perf_device_count(NULL))
                                                    : -1;
}

int perf_ranks_create(struct perf_job *job)
{
    int gpus = job->options->gpus;
    int local = job->options->threads * gpus;
    job->nranks = job->processes * local;
    job->ranks = calloc((size_t)local, sizeof *job->ranks);
    size_t threads_bytes = (size_t)job->options->threads * sizeof *job->threads;
    job->threads = aligned_alloc(alignof(struct perf_thread), threads_bytes);
    if (!job->ranks || !job->threads) {
        return perf_failure_other(PERF_INTERNAL, "out of memory", __FILE__, __LINE__);
    }
    memset(job->threads, 0, threads_bytes);
    for (int i = 0; i < job->options->threads; i++) {
        job->threads[i].job = job;
        job->threads[i].ranks = job->ranks + (size_t)i * (size_t)gpus;
    }
    for (int i = 0; i < local; i++) {
        job->ranks[i].rank = job->process * local + i;
        job->ranks[i].device = ranks_device(job, local, i);
    }
    int code = ranks_connect(job);
    if (code != PERF_SUCCESS) {
        for (int i = 0; i < job->options->threads; i++) {
            perf_ranks_abort(&job->threads[i]);
        }
    }
    return code;
}

/* ---- Death ----------------------------------------------------------------------------------- */

void perf_ranks_abort(struct perf_thread *thread)
{
    for (int i = 0; i < thread->job->options->gpus; i++) {
        hoop_comm_abort(thread->ranks[i].comm);
        thread->ranks[i].comm = HOOP_COMM_NULL;
    }
}

void perf_ranks_destroy(struct perf_job *job, int code)
{
    bool failed = code != PERF_SUCCESS && code != PERF_WRONG;
    for (int i = 0; job->ranks && i < job->options->threads * job->options->gpus; i++) {
        if (failed) {
            hoop_comm_abort(job->ranks[i].comm);
        } else {
            hoop_comm_destroy(job->ranks[i].comm);
        }
    }
    free(job->ranks);
    free(job->threads);
    job->ranks = NULL;
    job->threads = NULL;
}

/* ---- Together -------------------------------------------------------------------------------- */

void perf_ranks_enter(struct perf_thread *thread)
{
    if (thread->job->options->timeout_s > 0) {
        thread->entered++;
        atomic_store_explicit(&thread->inside, thread->entered, memory_order_release);
    }
}

/*
 * The watchdog claims a thread before it aborts the thread's comms. A comm may be freed as soon as
 * its operation has returned, so a claimed thread must not touch it again; it waits until the
 * watchdog ends the process.
 */
void perf_ranks_leave(struct perf_thread *thread)
{
    if (thread->job->options->timeout_s > 0 &&
        atomic_exchange_explicit(&thread->inside, 0, memory_order_acq_rel) == PERF_CLAIMED) {
        for (;;) {
            pause();
        }
    }
}

static hoop_result_t ranks_grouped_barrier(struct perf_thread *thread)
{
    int gpus = thread->job->options->gpus;
    if (gpus == 1) {
        return hoop_barrier(thread->ranks[0].comm, NULL);
    }
    hoop_result_t result = hoop_group_start();
    for (int i = 0; i < gpus && result == HOOP_OK; i++) {
        result = hoop_barrier(thread->ranks[i].comm, NULL);
    }
    hoop_result_t ended = hoop_group_end();
    return result == HOOP_OK ? ended : result;
}

int perf_ranks_barrier(struct perf_thread *thread)
{
    perf_ranks_enter(thread);
    hoop_result_t result = ranks_grouped_barrier(thread);
    perf_ranks_leave(thread);
    PERF_HOOP_TRY(result, thread->ranks[0].comm);
    return PERF_SUCCESS;
}

/* `all` has a vector of `bytes` bytes for each rank of the thread, which the results replace. */
static hoop_result_t ranks_reduce_vectors(struct perf_thread *thread, char *all, size_t bytes,
                                          hoop_datatype_t type, hoop_red_op_t op)
{
    int gpus = thread->job->options->gpus;
    size_t count = bytes / perf_type_bytes(type);
    hoop_result_t result = gpus > 1 ? hoop_group_start() : HOOP_OK;
    for (int i = 0; i < gpus && result == HOOP_OK; i++) {
        char *vector = all + (size_t)i * bytes;
        result = hoop_all_reduce(vector, vector, count, type, op, thread->ranks[i].comm, NULL);
    }
    hoop_result_t ended = gpus > 1 ? hoop_group_end() : HOOP_OK;
    return result == HOOP_OK ? ended : result;
}

/* Gives the vector to the thread's first rank; the other ranks get vectors that do not change the
 * result: zeros for a sum, else the same vector. */
static int ranks_combine(struct perf_thread *thread, void *values, size_t bytes,
                         hoop_datatype_t type, hoop_red_op_t op)
{
    size_t gpus = (size_t)thread->job->options->gpus;
    char *all = calloc(gpus, bytes > 0 ? bytes : 1);
    if (!all) {
        return perf_failure_other(PERF_INTERNAL, "out of memory", __FILE__, __LINE__);
    }
    size_t copies = op == HOOP_SUM ? 1 : gpus;
    for (size_t i = 0; i < copies; i++) {
        memcpy(all + i * bytes, values, bytes);
    }
    perf_ranks_enter(thread);
    hoop_result_t result = ranks_reduce_vectors(thread, all, bytes, type, op);
    perf_ranks_leave(thread);
    memcpy(values, all, bytes);
    free(all);
    PERF_HOOP_TRY(result, thread->ranks[0].comm);
    return PERF_SUCCESS;
}

int perf_ranks_agree(struct perf_thread *thread, void *values, size_t count, hoop_datatype_t type,
                     hoop_red_op_t op)
{
    PERF_TRY(ranks_combine(thread, values, count * perf_type_bytes(type), type, op));
    return PERF_SUCCESS;
}

/* ---- Places ---------------------------------------------------------------------------------- */

static void place_cpus(char *text, size_t bytes)
{
    cpu_set_t set[16]; /* one ends at 1024 CPUs, and is refused where there may be more */
    const int most = (int)(8 * sizeof set);
    text[0] = '\0';
    if (sched_getaffinity(0, sizeof set, set) != 0) {
        return;
    }
    size_t at = 0;
    for (int first = 0; first < most; first++) {
        if (!CPU_ISSET_S(first, sizeof set, set)) {
            continue;
        }
        int last = first;
        while (last + 1 < most && CPU_ISSET_S(last + 1, sizeof set, set)) {
            last++;
        }
        const char *comma = at > 0 ? "," : "";
        int n = first == last ? snprintf(text + at, bytes - at, "%s%d", comma, first)
                              : snprintf(text + at, bytes - at, "%s%d-%d", comma, first, last);
        if (n < 0 || (size_t)n >= bytes - at) {
            snprintf(text + bytes - 4, 4, "..."); /* no room for all: show that there are more */
            return;
        }
        at += (size_t)n;
        first = last;
    }
}

int perf_ranks_places(struct perf_thread *thread, struct perf_place **ret_places)
{
    struct perf_job *job = thread->job;
    size_t bytes = (size_t)job->nranks * sizeof(struct perf_place);
    struct perf_place *places = calloc(1, bytes);
    if (!places) {
        return perf_failure_other(PERF_INTERNAL, "out of memory", __FILE__, __LINE__);
    }
    for (int i = 0; i < job->options->gpus; i++) {
        struct perf_place *place = &places[thread->ranks[i].rank];
        place->pid = (int32_t)getpid();
        if (gethostname(place->host, sizeof place->host - 1) != 0) {
            snprintf(place->host, sizeof place->host, "unknown");
        }
        place->device = thread->ranks[i].device;
        if (place->device < 0) {
            place_cpus(place->cpus, sizeof place->cpus);
        } else {
            perf_device_describe(place->device, place->bus, place->cpus, sizeof place->cpus);
        }
    }
    int code = ranks_combine(thread, places, bytes, HOOP_UINT8, HOOP_SUM);
    if (code != PERF_SUCCESS) {
        free(places);
        return perf_failure_frame(code, __FILE__, __LINE__);
    }
    *ret_places = places;
    return PERF_SUCCESS;
}

/* The only file of the trainer that uses hoop. */
#include "ddp.h"

#include <hoop.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bf16.h"

#define PAGE_FLOATS ((size_t)1024) /* buckets begin on pages: peers write whole pages */
#define DEVICE_FLOATS ((size_t)64) /* alignment of tensors that the device's libraries expect */
#define HOST_NAME_BYTES 256

struct ddp_job {
    hoop_comm_t comm;
    hoop_stream_t stream;
    int rank, ranks;
};

/* Consecutive tensors of ddp.order, side by side in memory. */
struct bucket {
    size_t offset, count; /* floats */
    int tensors, missing; /* tensors that it has; those without a gradient yet */
    hoop_ticket_t ticket;
};

struct ddp {
    struct ddp_job *job;
    const struct ddp_tensor *tensors;
    int count;
    struct ddp_options options;
    bool beside; /* buckets travel while backward runs; else one by one after it */

    int *order;      /* the tensors in the order of assignment */
    int *observed;   /* the tensors in the order in which they got ready in the first step */
    int *bucket_of;  /* for each tensor */
    bool *got;       /* for each tensor: it has got a gradient since the last finish */
    int ready_count; /* how many have */
    struct bucket *buckets;
    int bucket_count, queued; /* buckets are queued in their order on all ranks */
    float *memory;            /* of all buckets, shared */
    uint16_t *wire;           /* with bf16: the same buckets as bf16, shared */

    double *header; /* shared: {1 if it has a batch, its loss}, summed over the ranks */
    hoop_ticket_t header_ticket;

    enum { FIRST, OBSERVED, SETTLED } stage; /* of the assignment to buckets */
    bool sync;                               /* of this batch, like loss */
    double loss;
    hoop_result_t failure; /* the first of the step; finish returns it */
    double call_s;
};

const struct ddp_options ddp_defaults = {
    .first_bucket_bytes = (size_t)1 << 20,
    .bucket_bytes = (size_t)25 << 20,
    .threads = 1,
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* True: no error. False: the problem, in hoop's words. */
static bool good(hoop_result_t result, hoop_comm_t comm, struct problem *problem)
{
    if (result == HOOP_OK) {
        return true;
    }
    const char *sentence = hoop_get_last_error(comm);
    return problem_say(problem, "%s: %s", hoop_get_error_string(result), sentence);
}

/* ---- The ranks ----------------------------------------------------------------------------- */

static bool job_join(struct ddp_job *job, const char *url, int rank, int ranks,
                     struct problem *problem)
{
    return good(url == NULL ? hoop_comm_init_env(&job->comm, NULL)
                            : hoop_comm_init_url(&job->comm, url, ranks, rank, NULL),
                HOOP_COMM_NULL, problem) &&
           good(hoop_comm_user_rank(job->comm, &job->rank), job->comm, problem) &&
           good(hoop_comm_count(job->comm, &job->ranks), job->comm, problem) &&
           good(hoop_stream_create(&job->stream), HOOP_COMM_NULL, problem);
}

struct ddp_job *ddp_job_open(const char *url, int rank, int ranks, struct problem *problem)
{
    struct ddp_job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        problem_say(problem, "no memory for a job");
        return NULL;
    }
    if (!job_join(job, url, rank, ranks, problem)) {
        ddp_job_close(job);
        return NULL;
    }
    return job;
}

void ddp_job_close(struct ddp_job *job)
{
    if (job != NULL) {
        hoop_stream_destroy(job->stream);
        hoop_comm_destroy(job->comm);
        free(job);
    }
}

int ddp_rank(const struct ddp_job *job)
{
    return job->rank;
}

int ddp_ranks(const struct ddp_job *job)
{
    return job->ranks;
}

/* This rank's number among the ranks on hosts of the same name, and how many there are. */
static bool job_place(struct ddp_job *job, int *ret_rank, int *ret_ranks, struct problem *problem)
{
    char mine[HOST_NAME_BYTES] = "";
    char(*all)[HOST_NAME_BYTES] = malloc((size_t)job->ranks * sizeof(mine));
    if (all == NULL) {
        return problem_say(problem, "no memory for the host names of %d ranks", job->ranks);
    }
    gethostname(mine, sizeof(mine) - 1);
    const bool told = good(hoop_all_gather(mine, all, sizeof(mine), HOOP_UINT8, job->comm, NULL),
                           job->comm, problem);
    *ret_rank = *ret_ranks = 0;
    for (int i = 0; told && i < job->ranks; i++) {
        const bool here = memcmp(all[i], mine, sizeof(mine)) == 0;
        *ret_rank += here && i < job->rank;
        *ret_ranks += here;
    }
    free(all);
    return told;
}

bool ddp_local_rank(struct ddp_job *job, int *ret, struct problem *problem)
{
    int ranks = 0;
    return job_place(job, ret, &ranks, problem);
}

bool ddp_sum(struct ddp_job *job, double *values, int count, struct problem *problem)
{
    return good(
        hoop_all_reduce(values, values, (size_t)count, HOOP_FLOAT64, HOOP_SUM, job->comm, NULL),
        job->comm, problem);
}

bool ddp_broadcast(struct ddp_job *job, void *data, size_t bytes, struct problem *problem)
{
    return good(hoop_bcast(data, bytes, HOOP_UINT8, 0, job->comm, NULL), job->comm, problem);
}

/* ---- Buckets ------------------------------------------------------------------------------- */

static size_t round_up(size_t floats, size_t unit)
{
    return (floats + unit - 1) / unit * unit;
}

static size_t whole_pages(size_t floats)
{
    return round_up(floats, PAGE_FLOATS);
}

/* Assigns the tensors to buckets, in ddp->order. */
static void buckets_assign(struct ddp *ddp)
{
    struct bucket *bucket = NULL;
    size_t most = ddp->options.first_bucket_bytes;
    ddp->bucket_count = 0;
    for (int i = 0; i < ddp->count; i++) {
        const struct ddp_tensor *tensor = &ddp->tensors[ddp->order[i]];
        if (bucket == NULL || bucket->count * sizeof(float) >= most) {
            const size_t end = bucket == NULL ? 0 : bucket->offset + whole_pages(bucket->count);
            most = bucket == NULL ? most : ddp->options.bucket_bytes;
            bucket = &ddp->buckets[ddp->bucket_count++];
            *bucket = (struct bucket){.offset = end};
        }
        bucket->count = round_up(bucket->count, ddp->options.device == NULL ? 1 : DEVICE_FLOATS);
        *tensor->gradient = ddp->memory + bucket->offset + bucket->count;
        ddp->bucket_of[ddp->order[i]] = ddp->bucket_count - 1;
        bucket->count += tensor->count;
        bucket->tensors++;
    }
}

/* After the first step: assigns once more, in the order that rank 0 has observed. */
static hoop_result_t buckets_assign_again(struct ddp *ddp)
{
    if (ddp->stage != OBSERVED) {
        return HOOP_OK;
    }
    ddp->stage = SETTLED;
    const hoop_result_t result =
        hoop_bcast(ddp->observed, (size_t)ddp->count, HOOP_INT32, 0, ddp->job->comm, NULL);
    if (result == HOOP_OK) {
        memcpy(ddp->order, ddp->observed, (size_t)ddp->count * sizeof(int));
        buckets_assign(ddp);
    }
    return result;
}

int ddp_buckets(const struct ddp *ddp, int *ret_bucket_of)
{
    memcpy(ret_bucket_of, ddp->bucket_of, (size_t)ddp->count * sizeof(int));
    return ddp->bucket_count;
}

/* ---- Exchange -------------------------------------------------------------------------------- */

/* Keeps the first failure of a step. */
static void ddp_note(struct ddp *ddp, hoop_result_t result)
{
    ddp->failure = ddp->failure == HOOP_OK ? result : ddp->failure;
}

/* An all_reduce in place, queued with a ticket or done at once; nothing with one rank. */
static void ddp_queue(struct ddp *ddp, void *data, size_t count, hoop_datatype_t type,
                      hoop_red_op_t op, hoop_ticket_t *ticket)
{
    const struct ddp_job *job = ddp->job;
    if (job->ranks == 1) {
        return;
    }
    const hoop_stream_t stream = ddp->beside ? job->stream : NULL;
    ddp_note(ddp, hoop_all_reduce(data, data, count, type, op, job->comm, stream));
    if (ddp->beside) {
        ddp_note(ddp, hoop_stream_record(stream, ticket));
    }
}

/* Waits for what was queued. */
static void ddp_await(struct ddp *ddp, hoop_ticket_t ticket)
{
    if (ddp->beside && ddp->job->ranks > 1) {
        ddp_note(ddp, hoop_ticket_wait(ticket, -1));
    }
}

/* Begins a step on all ranks: sums how many have a batch, and their losses. */
static void ddp_open_step(struct ddp *ddp, bool active)
{
    ddp->header[0] = active;
    ddp->header[1] = active ? ddp->loss : 0;
    ddp->queued = 0;
    for (int i = 0; i < ddp->bucket_count; i++) {
        ddp->buckets[i].missing = ddp->buckets[i].tensors;
    }
    ddp_queue(ddp, ddp->header, 2, HOOP_FLOAT64, HOOP_SUM, &ddp->header_ticket);
}

static void ddp_queue_bucket(struct ddp *ddp, struct bucket *bucket)
{
    if (ddp->options.device != NULL) {
        ddp->options.device->mark((int)(bucket - ddp->buckets));
        return;
    }
    float *data = ddp->memory + bucket->offset;
    if (ddp->options.bf16) {
        bf16_compress(data, ddp->wire + bucket->offset, bucket->count);
        ddp_queue(ddp, ddp->wire + bucket->offset, bucket->count, HOOP_BFLOAT16, HOOP_AVG,
                  &bucket->ticket);
    } else {
        ddp_queue(ddp, data, bucket->count, HOOP_FLOAT32, HOOP_AVG, &bucket->ticket);
    }
}

/* Queues complete buckets up to the first incomplete one: all ranks queue in the same order. */
static void ddp_queue_complete(struct ddp *ddp)
{
    while (ddp->beside && ddp->queued < ddp->bucket_count &&
           ddp->buckets[ddp->queued].missing == 0) {
        ddp_queue_bucket(ddp, &ddp->buckets[ddp->queued++]);
    }
}

/* Lets a marked bucket travel, on the device's stream. May return before that is complete. */
static void ddp_travel(struct ddp *ddp, int i)
{
    const struct device *device = ddp->options.device;
    const struct bucket *bucket = &ddp->buckets[i];
    const bool bf16 = ddp->options.bf16;
    float *data = ddp->memory + bucket->offset;
    uint16_t *wire = bf16 ? ddp->wire + bucket->offset : NULL;
    void *what = bf16 ? (void *)wire : data;
    device->follow(i);
    if (bf16) {
        device->compress(data, wire, bucket->count);
    }
    if (ddp->job->ranks > 1) {
        ddp_note(ddp,
                 hoop_all_reduce(what, what, bucket->count, bf16 ? HOOP_BFLOAT16 : HOOP_FLOAT32,
                                 HOOP_AVG, ddp->job->comm, device->stream));
    }
    if (bf16) {
        device->expand(wire, data, bucket->count);
    }
}

/* The program's callback for averages. */
struct listener {
    ddp_averaged *averaged; /* or NULL */
    void *arg;
};

/* Tells the program that the tensors of a bucket have their averages. */
static void ddp_tell(const struct ddp *ddp, int bucket, const struct listener *listener)
{
    for (int i = 0; listener->averaged != NULL && i < ddp->count; i++) {
        if (ddp->bucket_of[i] == bucket) {
            listener->averaged(listener->arg, i);
        }
    }
}

/* Lets all buckets on a device travel. Returns for how long the device only waited for them. */
static double ddp_travel_all(struct ddp *ddp, const struct listener *listener)
{
    const struct device *device = ddp->options.device;
    hoop_result_t later = HOOP_OK;
    device->end();
    for (int i = 0; ddp->failure == HOOP_OK && i < ddp->bucket_count; i++) {
        ddp_travel(ddp, i);
    }
    if (ddp->failure == HOOP_OK) {
        ddp_await(ddp, ddp->header_ticket);
    }
    const double wait_s = device->join();
    ddp_note(ddp, hoop_comm_get_async_error(ddp->job->comm, &later));
    ddp_note(ddp, later);
    for (int i = 0; ddp->failure == HOOP_OK && i < ddp->bucket_count; i++) {
        ddp_tell(ddp, i, listener);
    }
    return wait_s;
}

/* Waits for a queued bucket, or lets it travel now. */
static void ddp_wait(struct ddp *ddp, struct bucket *bucket)
{
    if (!ddp->beside) {
        ddp_queue_bucket(ddp, bucket);
    }
    ddp_await(ddp, bucket->ticket);
    if (ddp->options.bf16) {
        bf16_expand(ddp->wire + bucket->offset, ddp->memory + bucket->offset, bucket->count);
    }
}

/* Waits for all buckets, in order. Returns for how long. */
static double ddp_wait_all(struct ddp *ddp, const struct listener *listener)
{
    double wait_s = 0;
    for (int i = 0; ddp->failure == HOOP_OK && i < ddp->bucket_count; i++) {
        const double begin = seconds();
        ddp_wait(ddp, &ddp->buckets[i]);
        wait_s += seconds() - begin;
        if (ddp->failure == HOOP_OK) {
            ddp_tell(ddp, i, listener);
        }
    }
    return wait_s;
}

/* ---- A step -------------------------------------------------------------------------------- */

void ddp_begin(struct ddp *ddp, bool sync, double loss)
{
    const double begin = seconds();
    ddp->call_s = 0;
    ddp->sync = sync;
    ddp->loss = loss;
    ddp_note(ddp, buckets_assign_again(ddp));
    if (sync && ddp->beside && ddp->failure == HOOP_OK) {
        ddp_open_step(ddp, true);
    }
    ddp->call_s += seconds() - begin;
}

void ddp_ready(struct ddp *ddp, int i)
{
    if (!ddp->got[i] && ddp->stage == FIRST) {
        ddp->observed[ddp->ready_count] = i;
    }
    ddp->ready_count += !ddp->got[i];
    ddp->got[i] = true;
    if (!ddp->sync || ddp->failure != HOOP_OK) {
        return;
    }
    const double begin = seconds();
    ddp->buckets[ddp->bucket_of[i]].missing--;
    ddp_queue_complete(ddp);
    ddp->call_s += seconds() - begin;
}

static void ddp_clear(const struct ddp *ddp, float *data, size_t count)
{
    if (ddp->options.device != NULL) {
        ddp->options.device->clear(data, count);
    } else {
        memset(data, 0, count * sizeof(float));
    }
}

/*
 * Tensors that got no gradient since the last step count as zeros, and in the first step as the
 * last to get ready. Gradients that were accumulated without sync stay.
 */
static void ddp_fill_in(struct ddp *ddp, struct ddp_step *ret)
{
    for (int i = ddp->count - 1; i >= 0; i--) {
        if (!ddp->got[i]) {
            ddp_clear(ddp, *ddp->tensors[i].gradient, ddp->tensors[i].count);
            ret->unused++;
            ret->a_name = ddp->tensors[i].name;
            if (ddp->stage == FIRST) {
                ddp->observed[ddp->ready_count++] = i;
            }
        }
    }
    for (int i = 0; i < ddp->bucket_count; i++) {
        ddp->buckets[i].missing = 0;
    }
    ddp_queue_complete(ddp);
}

/* Completes a step after ddp_open_step(): exchanges all buckets, and fills in *ret. */
static bool ddp_close_step(struct ddp *ddp, const struct listener *listener, struct ddp_step *ret,
                           struct problem *problem)
{
    double wait_s = 0;
    if (ddp->failure == HOOP_OK) {
        const double begin = seconds();
        ddp_fill_in(ddp, ret);
        ddp->call_s += seconds() - begin;
        wait_s = ddp->options.device != NULL ? ddp_travel_all(ddp, listener)
                                             : ddp_wait_all(ddp, listener);
    }
    memset(ddp->got, 0, (size_t)ddp->count * sizeof(bool));
    ddp->ready_count = 0;
    ddp->stage = ddp->stage == FIRST ? OBSERVED : ddp->stage;
    ret->active = (int)ddp->header[0];
    ret->loss = ddp->header[1] / ddp->header[0];
    ret->call_s = ddp->call_s;
    ret->wait_s = wait_s;
    return good(ddp->failure, ddp->job->comm, problem);
}

bool ddp_finish(struct ddp *ddp, ddp_averaged *averaged, void *arg, struct ddp_step *ret,
                struct problem *problem)
{
    *ret = (struct ddp_step){0};
    const double begin = seconds();
    if (!ddp->beside && ddp->failure == HOOP_OK) {
        ddp_open_step(ddp, true);
    }
    ddp->call_s += seconds() - begin;
    return ddp_close_step(ddp, &(struct listener){averaged, arg}, ret, problem);
}

bool ddp_follow(struct ddp *ddp, ddp_averaged *averaged, void *arg, struct ddp_step *ret,
                struct problem *problem)
{
    *ret = (struct ddp_step){0};
    problem->text[0] = '\0';
    ddp->call_s = 0;
    ddp_note(ddp, buckets_assign_again(ddp));
    if (ddp->failure == HOOP_OK) {
        ddp_open_step(ddp, false);
        ddp_await(ddp, ddp->header_ticket);
    }
    if (ddp->failure == HOOP_OK && ddp->header[0] == 0) {
        return false; /* no rank has a batch, so none has queued buckets */
    }
    const bool done = ddp_close_step(ddp, &(struct listener){averaged, arg}, ret, problem);
    ret->unused = 0; /* no gradients were expected here */
    return done;
}

/* ---- Birth and death ----------------------------------------------------------------------- */

static bool ddp_allocate(struct ddp *ddp, struct problem *problem)
{
    /* Enough for any assignment: as if each tensor had a bucket of its own. */
    size_t floats = 0;
    for (int i = 0; i < ddp->count; i++) {
        floats += whole_pages(ddp->tensors[i].count);
    }
    const size_t count = (size_t)ddp->count;
    ddp->order = malloc(count * sizeof(int));
    ddp->observed = malloc(count * sizeof(int));
    ddp->bucket_of = malloc(count * sizeof(int));
    ddp->got = calloc(count, sizeof(bool));
    ddp->buckets = calloc(count, sizeof(struct bucket));
    if (ddp->order == NULL || ddp->observed == NULL || ddp->bucket_of == NULL || ddp->got == NULL ||
        ddp->buckets == NULL) {
        return problem_say(problem, "no memory for %d tensors", ddp->count);
    }
    const hoop_mem_kind_t kind = ddp->options.device == NULL ? HOOP_MEM_HOST : HOOP_MEM_DEVICE;
    void *memory = NULL, *wire = NULL, *header = NULL;
    const bool made =
        good(hoop_mem_alloc(&memory, floats * sizeof(float), kind), NULL, problem) &&
        (!ddp->options.bf16 ||
         good(hoop_mem_alloc(&wire, floats * sizeof(uint16_t), kind), NULL, problem)) &&
        good(hoop_mem_alloc(&header, 2 * sizeof(double), HOOP_MEM_HOST), NULL, problem);
    ddp->memory = memory;
    ddp->wire = wire;
    ddp->header = header;
    return made;
}

static bool ddp_fill(struct ddp *ddp, struct problem *problem)
{
    if (ddp->options.device != NULL && ddp->count > DEVICE_MARKS) {
        return problem_say(problem, "%d tensors on a device: expected at most %d", ddp->count,
                           DEVICE_MARKS);
    }
    if (!ddp_allocate(ddp, problem)) {
        return false;
    }
    for (int i = 0; i < ddp->count; i++) {
        ddp->order[i] = ddp->count - 1 - i;
    }
    buckets_assign(ddp);
    for (int i = 0; i < ddp->count; i++) {
        const struct ddp_tensor *tensor = &ddp->tensors[i];
        if (!ddp_broadcast(ddp->job, tensor->value, tensor->count * sizeof(float), problem)) {
            return false;
        }
    }
    /* The sender of a broadcast may be ahead: after this all have agreed, or know of a mismatch. */
    return good(hoop_barrier(ddp->job->comm, NULL), ddp->job->comm, problem);
}

/* Decides whether to overlap. Without a free CPU nothing can be hidden: communication would take
 * the CPU from backward, and add thread switches and waits for late ranks. Each rank decides for
 * itself. */
static bool ddp_decide(struct ddp *ddp, struct problem *problem)
{
    const struct ddp_options *o = &ddp->options;
    int rank = 0, ranks = 0;
    cpu_set_t set[16]; /* one ends at 1024 CPUs, and is refused where there may be more */
    if (!job_place(ddp->job, &rank, &ranks, problem)) {
        return false;
    }
    const int cpus =
        sched_getaffinity(0, sizeof(set), set) == 0 ? (int)CPU_COUNT_S(sizeof(set), set) : 0;
    const bool helps = ranks < ddp->job->ranks || (int64_t)ranks * o->threads < cpus;
    ddp->beside = o->device != NULL || o->overlap == DDP_OVERLAP_ALWAYS ||
                  (o->overlap == DDP_OVERLAP_AUTO && helps);
    return true;
}

struct ddp *ddp_create(struct ddp_job *job, const struct ddp_tensor *tensors, int count,
                       const struct ddp_options *options, struct problem *problem)
{
    struct ddp *ddp = calloc(1, sizeof(*ddp));
    if (ddp == NULL) {
        problem_say(problem, "no memory for %d tensors", count);
        return NULL;
    }
    ddp->job = job;
    ddp->tensors = tensors;
    ddp->count = count;
    ddp->options = *options;
    if (!ddp_decide(ddp, problem) || !ddp_fill(ddp, problem)) {
        ddp_destroy(ddp);
        return NULL;
    }
    return ddp;
}

/* Waits first: after a failure queued operations may still use the memory. */
void ddp_destroy(struct ddp *ddp)
{
    if (ddp == NULL) {
        return;
    }
    hoop_stream_synchronize(ddp->job->stream);
    hoop_mem_free(ddp->memory);
    hoop_mem_free(ddp->wire);
    hoop_mem_free(ddp->header);
    free(ddp->order);
    free(ddp->observed);
    free(ddp->bucket_of);
    free(ddp->got);
    free(ddp->buckets);
    free(ddp);
}

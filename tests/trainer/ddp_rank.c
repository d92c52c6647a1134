/*
 * One of several ranks that use ddp.h without a net: every gradient is a small integer, so that
 * averages are exact. Started by hooprun with 1, 2, 3 and 5 ranks; exits with 0 if all is right.
 *
 *     ddp_rank [device]     with gradients on a device of the fake driver that HOOP_CUDA names
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ddp.h"
#include "fake_device.h"

#define TENSORS 5

static const size_t counts[TENSORS] = {3, 1000, 1, 5000, 77};
static struct ddp_job *job;
static int rank, ranks;
static struct ddp_options defaults; /* ddp_defaults, with the device */

/* A program that trains: its tensors, and their gradients. */
struct world {
    float *values[TENSORS];
    float *gradients[TENSORS];
    struct ddp_tensor tensors[TENSORS];
    struct ddp *ddp;
    int told[TENSORS];      /* how often, in a step, it was reported that the average is there */
    float average[TENSORS]; /* its first element at that time */
};

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "ddp_rank: rank %d of %d: %s\n", rank, ranks, what);
        exit(1);
    }
}

/* Where the host can access memory that belongs to the tensors. */
static float *seen(float *data)
{
    return defaults.device == NULL ? data : fake_device_seen(data);
}

static float *values_new(size_t count)
{
    float *values = defaults.device == NULL ? malloc(count * sizeof(float))
                                            : fake_device_memory(count * sizeof(float));
    check(values != NULL, "no memory");
    return values;
}

static void world_open(struct world *world, const struct ddp_options *options)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d", "e"};
    struct problem problem;
    for (int i = 0; i < TENSORS; i++) {
        world->values[i] = values_new(counts[i]);
        for (size_t at = 0; at < counts[i]; at++) {
            seen(world->values[i])[at] = (float)(rank + 1) * (float)(at % 10);
        }
        world->tensors[i] =
            (struct ddp_tensor){names[i], counts[i], world->values[i], &world->gradients[i]};
    }
    world->ddp = ddp_create(job, world->tensors, TENSORS, options, &problem);
    check(world->ddp != NULL, problem.text);
    for (int i = 0; defaults.device != NULL && i < TENSORS; i++) {
        check((uintptr_t)world->gradients[i] % 256 == 0, "cuDNN may want it on a boundary");
    }
    for (int i = 0; i < TENSORS; i++) {
        for (size_t at = 0; at < counts[i]; at++) {
            check(seen(world->values[i])[at] == (float)(at % 10), "the values are not rank 0's");
        }
    }
}

static void world_close(struct world *world)
{
    ddp_destroy(world->ddp);
    for (int i = 0; i < TENSORS; i++) {
        if (defaults.device == NULL) {
            free(world->values[i]);
        } else {
            fake_device_free(world->values[i]);
        }
    }
}

/* Rank r's gradient in a step. */
static float gradient(int r, int i, size_t at, int step)
{
    return (float)((r + 1) * (i + 1) + (int)(at % 7) * step);
}

/* The backward pass of a tensor; on a device it is done later. */
struct filling {
    float *to;
    int i, step;
    bool add;
};

static void filling_run(void *arg)
{
    const struct filling *filling = arg;
    for (size_t at = 0; at < counts[filling->i]; at++) {
        const float before = filling->add ? filling->to[at] : 0;
        filling->to[at] = before + gradient(rank, filling->i, at, filling->step);
    }
    free(arg);
}

static void fill_or_add(struct world *world, int i, int step, bool add)
{
    struct filling *filling = malloc(sizeof(*filling));
    check(filling != NULL, "no memory");
    *filling = (struct filling){seen(world->gradients[i]), i, step, add};
    if (defaults.device == NULL) {
        filling_run(filling);
    } else {
        fake_device_compute(filling_run, filling);
    }
}

static void fill(struct world *world, int i, int step)
{
    fill_or_add(world, i, step, false);
}

/* Expects the average over all ranks of the gradients of those from `first` on, times `times`. */
static void check_average(const struct world *world, int i, int step, int first, float times,
                          double close)
{
    for (size_t at = 0; at < counts[i]; at++) {
        double expected = 0;
        for (int r = first; r < ranks; r++) {
            expected += (double)times * gradient(r, i, at, step) / ranks;
        }
        check(fabs(seen(world->gradients[i])[at] - expected) <= close * expected,
              "a wrong average");
    }
}

static void averaged(void *arg, int i)
{
    struct world *world = arg;
    world->told[i]++;
    world->average[i] = seen(world->gradients[i])[0];
}

/* Every tensor was reported once, when its average was there. */
static void check_told(struct world *world)
{
    for (int i = 0; i < TENSORS; i++) {
        check(world->told[i] == 1, "an average is not told of once");
        check(world->average[i] == seen(world->gradients[i])[0], "told before it was there");
        world->told[i] = 0;
    }
}

/* A step in which tensors get ready in this order. */
static void run_step(struct world *world, const int order[TENSORS], int step, struct ddp_step *ret)
{
    struct problem problem;
    ddp_begin(world->ddp, true, rank + step);
    for (int i = 0; i < TENSORS; i++) {
        fill(world, order[i], step);
        ddp_ready(world->ddp, order[i]);
    }
    check(ddp_finish(world->ddp, averaged, world, ret, &problem), problem.text);
    check_told(world);
}

static void averages(struct ddp_options options, int expected_buckets)
{
    static const int order[TENSORS] = {1, 4, 0, 3, 2};
    struct world world = {0};
    struct ddp_step step;
    int bucket_of[TENSORS];
    world_open(&world, &options);
    check(ddp_buckets(world.ddp, bucket_of) == expected_buckets, "another number of buckets");
    check(bucket_of[TENSORS - 1] == 0, "the last tensor is not in the first bucket");
    for (int k = 1; k < 5; k++) {
        run_step(&world, order, k, &step);
        check(step.active == ranks && step.unused == 0, "not all took part");
        check(fabs(step.loss - (k + (ranks - 1) / 2.0)) < 1e-12, "a wrong mean loss");
        for (int i = 0; i < TENSORS; i++) {
            check_average(&world, i, k, 0, 1, options.bf16 ? 1.0 / 100 : 1e-6);
        }
    }
    ddp_buckets(world.ddp, bucket_of);
    for (int i = 1; i < TENSORS; i++) {
        check(bucket_of[order[i]] >= bucket_of[order[i - 1]], "buckets do not follow the order");
    }
    world_close(&world);
}

/* Sets the gradients of a batch, or adds them to the earlier ones; they get ready from the last to
 * the first. */
static void accumulate(struct world *world, bool add)
{
    for (int i = TENSORS - 1; i >= 0; i--) {
        fill_or_add(world, i, 1, add);
        ddp_ready(world->ddp, i);
    }
}

/* Two batches without sync and one with it. */
static void accumulation(void)
{
    struct world world = {0};
    struct ddp_step step;
    struct problem problem;
    world_open(&world, &defaults);
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < 3; k++) {
            ddp_begin(world.ddp, k == 2, 0);
            accumulate(&world, k > 0);
        }
        check(ddp_finish(world.ddp, NULL, NULL, &step, &problem), problem.text);
        for (int i = 0; i < TENSORS; i++) {
            check_average(&world, i, 1, 0, 3, 1e-6);
        }
    }
    world_close(&world);
}

/* Rank 0 has no gradient for one tensor in any step; in the last step no rank has. */
static void unused(void)
{
    struct world world = {0};
    struct ddp_step step;
    struct problem problem;
    world_open(&world, &defaults);
    for (int k = 0; k < 3; k++) {
        const bool has = k < 2 && rank > 0;
        ddp_begin(world.ddp, true, 0);
        for (int i = 0; i < TENSORS; i++) {
            fill(&world, i, 1);
            if (i != 3 || has) {
                ddp_ready(world.ddp, i);
            }
        }
        check(ddp_finish(world.ddp, NULL, NULL, &step, &problem), problem.text);
        check(step.unused == (has ? 0 : 1), "unused is miscounted");
        check(has || strcmp(step.a_name, "d") == 0, "another one is named");
        check_average(&world, 2, 1, 0, 1, 1e-6);
        check_average(&world, 3, 1, k < 2 ? 1 : ranks, 1, 1e-6);
    }
    world_close(&world);
}

/* Rank r has r batches, so rank 0 has none: all end with the same values, and no rank waits for
 * ever. */
static void unequal_steps(void)
{
    static const int order[TENSORS] = {4, 3, 2, 1, 0};
    struct world world = {0};
    struct ddp_step step;
    struct problem problem;
    world_open(&world, &defaults);
    int k = 1;
    for (; k <= rank; k++) {
        run_step(&world, order, k, &step);
        check(step.active == ranks - k, "another number of ranks is active");
        check_average(&world, 3, k, k, 1, 1e-6);
    }
    for (; ddp_follow(world.ddp, averaged, &world, &step, &problem); k++) {
        check_told(&world);
        check(step.active == ranks - k, "another number of ranks is active");
        check_average(&world, 3, k, k, 1, 1e-6);
    }
    check(problem.text[0] == '\0', problem.text);
    check(k == ranks, "not every step of the others was followed");
    world_close(&world);
}

/* Ranks have different tensors: that is an error at once, and nothing hangs. */
static void other_tensors(void)
{
    struct world world = {0};
    struct problem problem = {""};
    world_open(&world, &defaults);
    world.tensors[2].count = rank == ranks - 1 ? 2 : 1;
    float two[2] = {0};
    world.tensors[2].value = two;
    struct ddp *ddp = ddp_create(job, world.tensors, TENSORS, &defaults, &problem);
    check((ddp == NULL) == (ranks > 1), "other tensors were not noticed");
    check(ranks == 1 || strstr(problem.text, "different operations") != NULL, problem.text);
    ddp_destroy(ddp);
    world_close(&world);
}

/* Values of enum ddp_overlap, and one for ranks that use different ones. */
enum { OVERLAP_MIXED = DDP_OVERLAP_NEVER + 1, OVERLAPS };

static void every_case(void)
{
    struct ddp_options options = defaults;
    averages(options, 1);
    options.first_bucket_bytes = 4;
    averages(options, 2);
    options.bucket_bytes = 4;
    averages(options, TENSORS);
    options.bf16 = true;
    averages(options, TENSORS);
    accumulation();
    unused();
    unequal_steps();
}

int main(int argc, char **argv)
{
    struct problem problem;
    defaults = ddp_defaults;
    defaults.device = argc > 1 && strcmp(argv[1], "device") == 0 ? fake_device_open() : NULL;
    job = ddp_job_open(NULL, -1, 0, &problem);
    check(job != NULL, problem.text);
    rank = ddp_rank(job);
    ranks = ddp_ranks(job);
    for (int overlap = 0; overlap < OVERLAPS; overlap++) {
        static const enum ddp_overlap own[2] = {DDP_OVERLAP_ALWAYS, DDP_OVERLAP_NEVER};
        defaults.overlap = overlap < OVERLAP_MIXED ? (enum ddp_overlap)overlap : own[rank % 2];
        every_case();
    }
    other_tensors(); /* ends the job's comm */
    ddp_job_close(job);
    return 0;
}

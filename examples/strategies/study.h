/*
 * Shared by all strategies: the options, and for each worker a net, its share of the data, an
 * optimizer and a report. Layers, data and report are the trainer's.
 */
#ifndef STRATEGIES_STUDY_H
#define STRATEGIES_STUDY_H

#include "data/loader.h"
#include "data/sampler.h"
#include "nn/optimizer.h"
#include "report.h"

struct study_options {
    const struct model *model;
    const char *data, *metrics; /* NULL: the built-in digits; none */
    int train_samples, test_samples;
    int steps;      /* batches for each worker */
    int batch;      /* images of a worker; in by_model of all ranks */
    int test_every; /* steps; 0: only at the end */
    int threads;    /* of by_threads */
    int slow_ms;    /* how much longer each step of the last worker takes */
    bool exchange;  /* only exchange numbers, and do not compute */
    bool async;
    double lr, momentum;
    int64_t seed;
};

struct study_data {
    struct dataset train, test;
};

/* Runs a strategy. False: the problem. */
typedef bool study_run(const struct study_options *options, const struct study_data *data,
                       struct problem *problem);
/* Reads the options and the data, and runs the strategy. Returns what main() must return. */
int study_main(int argc, char **argv, const char *about, study_run *run);

/* The state of one worker; filled from top to bottom. */
struct study {
    const struct study_options *options; /* borrowed, like data */
    const struct study_data *data;
    int worker, workers;
    struct sampler sampler;
    struct loader *loader;
    int epoch;
    struct net *net, *test_net; /* test_net: NULL if net is only a part of the model */
    struct tensor *tensors;
    int tensor_count;
    size_t count;           /* floats of all tensors */
    float *gradients, *own; /* of all tensors, contiguous; own: the first memory, owned */
    struct optimizer optimizer;
    struct report report;
    int updates;
    int updates_of_step; /* 1, or more if workers do not wait for each other */
    double loss;         /* of the last batch */
    double began_s;      /* when training began, plus the time spent in tests */
};

/*
 * Makes the state of one of `workers` workers, of which one speaks (prints). net is moved, also on
 * failure; NULL: the whole model is made, so that study_test() can be called.
 */
bool study_open(struct study *study, const struct study_options *options,
                const struct study_data *data, int worker, int workers, bool speaks,
                struct net *net, struct problem *problem);
void study_close(struct study *study);

/* Puts the gradients into this memory for count floats, borrowed until close. */
void study_place(struct study *study, float *gradients);
/* The next batch; after the last one a new epoch begins. */
const struct batch *study_batch(struct study *study);
/* Computes gradients and loss of the next batch. With --exchange it does nothing. */
void study_compute(struct study *study);
/* Copy all parameters to, and from, a vector of count floats. */
void study_pack(const struct study *study, float *values);
void study_unpack(struct study *study, const float *values);
/* One update by the gradients. */
void study_update(struct study *study);
bool study_due(const struct study *study); /* is it time for a test? */
/* Tests the net on the test images; the time that this takes is not counted. */
void study_test(struct study *study);
/* Reports the result of a test that the caller has made itself. began_s: when it began. */
void study_tell(struct study *study, double loss, int correct, int images, double began_s);
/* Prints the last line: NAME: RANKS ranks, STEPS steps, X ms a step. With --exchange the first step
 * is not counted. */
void study_over(const struct study *study, const char *name, int ranks);

#endif

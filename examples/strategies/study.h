/*
 * What all strategies share: the options, and for each worker a net, its share of the data, an
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
    int batch;      /* of a worker; where a net is cut: of all */
    int test_every; /* steps; 0: only at the end */
    int threads;    /* of a program that has no ranks */
    int slow_ms;    /* that the last worker needs more for a step */
    bool exchange;  /* leave the computing out: only what is exchanged remains */
    bool async;
    double lr, momentum;
    int64_t seed;
};

struct study_data {
    struct dataset train, test;
};

/* A strategy. False: the problem. */
typedef bool study_run(const struct study_options *options, const struct study_data *data,
                       struct problem *problem);
/* What main() returns: reads the options and the data, runs. */
int study_main(int argc, char **argv, const char *about, study_run *run);

/* One worker's. Filled from top to bottom. */
struct study {
    const struct study_options *options; /* borrowed, as data */
    const struct study_data *data;
    int worker, workers;
    struct sampler sampler;
    struct loader *loader;
    int epoch;
    struct net *net, *test_net; /* test_net: NULL without whole */
    struct tensor *tensors;
    int tensor_count;
    size_t count;           /* floats of all tensors */
    float *gradients, *own; /* of all tensors, side by side; own: where they are at first */
    struct optimizer optimizer;
    struct report report;
    int updates;
    int updates_of_step; /* 1, or more where workers do not wait for each other */
    double loss;         /* of the last update, if anybody says it */
    double began_s;      /* when training began, less the time of tests */
};

/*
 * As worker of workers, of which one speaks. net is moved here, also if this fails; NULL: the whole
 * model is made, so that study_test() can be called.
 */
bool study_open(struct study *study, const struct study_options *options,
                const struct study_data *data, int worker, int workers, bool speaks,
                struct net *net, struct problem *problem);
void study_close(struct study *study);

/* Gradients are to lie in this memory for count floats from now on, borrowed until close. */
void study_place(struct study *study, float *gradients);
/* The next batch; epochs follow each other. */
const struct batch *study_batch(struct study *study);
/* Forward and backward over the next batch: gradients and loss. Nothing with --exchange. */
void study_compute(struct study *study);
/* All parameters to, and from, one vector of count floats. */
void study_pack(const struct study *study, float *values);
void study_unpack(struct study *study, const float *values);
/* One update by the gradients. */
void study_update(struct study *study);
bool study_due(const struct study *study); /* a test */
/* The accuracy on the test images; the time that it takes is not counted. */
void study_test(struct study *study);
/* What a test found: who has no whole net finds it another way. began_s: when the test began. */
void study_tell(struct study *study, double loss, int correct, int images, double began_s);
/* The last line: NAME: RANKS ranks, STEPS steps, X ms a step; of an exchange without the first one.
 */
void study_over(const struct study *study, const char *name, int ranks);

#endif

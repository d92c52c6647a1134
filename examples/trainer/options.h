/* The command line of train. Names and defaults are those of PyTorch's MNIST example if it has the
 * option. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include "ddp.h"
#include "nn/optimizer.h"

/* Values of options.device that are no number of a device. */
enum { DEVICE_HOST = -2, DEVICE_ANY = -1 };

struct options {
    const struct model *model; /* NULL: the one for the data */
    int device;                /* a number of CUDA's, or one of the two above */
    const char *data;          /* NULL: the built-in digits */
    int train_samples;         /* 0: all */
    int workers;
    bool drop_last;

    int epochs, batch, test_batch;
    int accumulate; /* batches of an update */
    struct optimizer_options optimizer;
    double lr, warmup; /* warmup: epochs */
    bool scale_lr;
    int64_t seed;

    struct ddp_options ddp;
    const char *init_method;
    int rank, world_size;

    int log_interval; /* batches */
    bool dry_run;
    const char *metrics;
    const char *checkpoint, *resume;
    int checkpoint_every; /* updates; 0: only after an epoch */
};

enum options_found { OPTIONS_GOOD, OPTIONS_HELP, OPTIONS_BAD };

/* Strings are borrowed from argv. */
enum options_found options_parse(struct options *options, int argc, char **argv,
                                 struct problem *problem);
void options_help(FILE *to);

#endif

/*
 * A checkpoint of a training: parameters and running averages with PyTorch's names and order of
 * elements, the optimizer's state as optimizer.TENSOR.STATE, and progress in the notes. All random
 * draws follow from the seed and the epoch, so these two are the whole random state.
 */
#ifndef TRAINER_CHECKPOINT_H
#define TRAINER_CHECKPOINT_H

#include "nn/net.h"
#include "nn/optimizer.h"

struct progress {
    int64_t seed;
    int epoch;   /* complete epochs */
    int batches; /* batches of each rank in the epoch after them */
    int64_t updates;
    int global_batch; /* images of a batch of all ranks */
};

/* What a checkpoint is made of, and read into. */
struct training {
    const struct model *model;
    struct net *net;
    struct optimizer *optimizer;
};

bool checkpoint_write(const char *path, const struct training *training,
                      const struct progress *progress, struct problem *problem);
/* False: nothing that was read may be used. */
bool checkpoint_read(const char *path, const struct training *training, struct progress *ret,
                     struct problem *problem);

#endif

/*
 * What is kept of a training: parameters and running averages under PyTorch's names and in its
 * order of elements, the optimizer's state as optimizer.TENSOR.STATE, and in the notes how far it
 * got. All random draws come from the seed and the epoch, so these two are the whole random state.
 */
#ifndef TRAINER_CHECKPOINT_H
#define TRAINER_CHECKPOINT_H

#include "nn/net.h"
#include "nn/optimizer.h"

struct progress {
    int64_t seed;
    int epoch;   /* epochs that are over */
    int batches; /* of each rank, in the one after them */
    int64_t updates;
    int global_batch; /* images of a batch of all ranks */
};

/* Where it lives. */
struct training {
    const struct model *model;
    struct net *net;
    struct optimizer *optimizer;
};

bool checkpoint_write(const char *path, const struct training *training,
                      const struct progress *progress, struct problem *problem);
/* False: nothing of it may be used. */
bool checkpoint_read(const char *path, const struct training *training, struct progress *ret,
                     struct problem *problem);

#endif

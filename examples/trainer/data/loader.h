/*
 * Batches of images in the net's format, prepared ahead by threads. Their order is that of the
 * indices, whatever the number of threads.
 */
#ifndef TRAINER_LOADER_H
#define TRAINER_LOADER_H

#include "data/dataset.h"

struct loader;
struct batch {
    int n;
    float *images;   /* n x height x width x channels, normalized */
    uint8_t *labels; /* n */
};

/* workers 0: loader_next() prepares the batches itself. dataset is borrowed until destroy. */
struct loader *loader_create(const struct dataset *dataset, int batch, int workers,
                             struct problem *problem);
void loader_destroy(struct loader *loader);

/* Starts with batch number `first` of these images. indices are borrowed until the last batch. */
void loader_start(struct loader *loader, const int *indices, int count, int first);

/* The next batch, valid until the next call; NULL: there are no more. The last may be smaller. */
const struct batch *loader_next(struct loader *loader);

#endif

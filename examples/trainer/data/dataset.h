/*
 * Labelled images in memory, from the files as they are published: MNIST and Fashion-MNIST (IDX,
 * plain or by gzip), CIFAR-10 (its binary version). Without a folder: the built-in digits, which
 * are drawn once, kept as IDX files in the user's cache folder, and read back like any other.
 */
#ifndef TRAINER_DATASET_H
#define TRAINER_DATASET_H

#include <stdint.h>

#include "problem.h"

struct image_shape {
    int channels, height, width;
};

#define DATASET_CLASSES 10
#define DATASET_CHANNELS_MOST 3

struct dataset {
    int count;
    struct image_shape shape;
    uint8_t *pixels; /* count x height x width x channels */
    uint8_t *labels; /* below DATASET_CLASSES */
    /* What the net gets for a pixel: less the data's mean, by its standard deviation. */
    float normal[DATASET_CHANNELS_MOST][256];
};

/* folder NULL: the digits. most > 0: only the first so many. False: the problem; close in any case.
 */
bool dataset_open(struct dataset *dataset, const char *folder, bool train, int most,
                  struct problem *problem);
void dataset_close(struct dataset *dataset);

#endif

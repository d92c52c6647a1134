/*
 * Labelled images in memory, from the published files of MNIST and Fashion-MNIST (IDX, plain or
 * compressed by gzip) and CIFAR-10 (binary version). Without a folder: the built-in digits, which
 * are drawn once, kept as IDX files in the user's cache folder, and read like any others.
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
    /* The input of the net for each value of a pixel: minus the mean, divided by the deviation. */
    float normal[DATASET_CHANNELS_MOST][256];
};

/* folder NULL: the digits. most > 0: at most that many images. False: the problem. Call close in
 * any case. */
bool dataset_open(struct dataset *dataset, const char *folder, bool train, int most,
                  struct problem *problem);
void dataset_close(struct dataset *dataset);

#endif

/* Readers of file formats for dataset.c: each fills in count, shape, pixels and labels, and refuses
 * damaged files. */
#ifndef TRAINER_FORMATS_H
#define TRAINER_FORMATS_H

#include "data/dataset.h"

/* More images than this are taken for a damaged file. */
#define IMAGES_MOST 10000000

/* A pair of IDX files in folder. */
bool idx_read(struct dataset *dataset, const char *folder, bool train, struct problem *problem);
/* Writes an IDX file atomically: count x height x width bytes, or count labels if height is 0. */
bool idx_write(const char *path, const uint8_t *data, int count, int height, int width,
               struct problem *problem);

bool cifar_present(const char *folder);
bool cifar_read(struct dataset *dataset, const char *folder, bool train, struct problem *problem);

/*
 * The folder with the digits, which are drawn now if they are missing. If several processes need
 * them one draws, and the others wait.
 */
bool digits_folder(char *ret, size_t bytes, struct problem *problem);
/* Draws a digit of 28 x 28 pixels and returns its label. A number always gives the same digit. */
#define DIGITS_TRAIN 60000
#define DIGITS_TEST 10000
int digits_draw(uint32_t number, uint8_t *ret_pixels);

#endif

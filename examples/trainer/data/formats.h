/* What dataset.c reads by: each fills count, shape, pixels and labels. Damaged files are refused.
 */
#ifndef TRAINER_FORMATS_H
#define TRAINER_FORMATS_H

#include "data/dataset.h"

/* Files larger than this are none of ours. */
#define IMAGES_MOST 10000000

/* A pair of IDX files in folder. */
bool idx_read(struct dataset *dataset, const char *folder, bool train, struct problem *problem);
/* Writes an IDX file at once or not at all: count x height x width, or count if height is 0. */
bool idx_write(const char *path, const uint8_t *data, int count, int height, int width,
               struct problem *problem);

bool cifar_present(const char *folder);
bool cifar_read(struct dataset *dataset, const char *folder, bool train, struct problem *problem);

/*
 * The folder with the digits, drawn now if they are not there. Of several processes one draws and
 * the others wait.
 */
bool digits_folder(char *ret, size_t bytes, struct problem *problem);
/* One of them, 28 x 28; returns its label. The same number draws the same digit. */
#define DIGITS_TRAIN 60000
#define DIGITS_TEST 10000
int digits_draw(uint32_t number, uint8_t *ret_pixels);

#endif

/*
 * make_digits FOLDER TRAIN TEST: writes so many of the built-in digits as IDX files, for tests that
 * have no time for all of them.
 */
#include <stdlib.h>
#include <string.h>

#include "data/formats.h"

#define PIXELS ((size_t)28 * 28)

static bool write_digits(const char *folder, const char *name, uint32_t first, int count,
                         struct problem *problem)
{
    char path[4096];
    uint8_t *pixels = calloc((size_t)count, PIXELS), *labels = calloc((size_t)count, 1);
    bool good = pixels != NULL && labels != NULL;
    for (int i = 0; good && i < count; i++) {
        labels[i] = (uint8_t)digits_draw(first + (uint32_t)i, pixels + (size_t)i * PIXELS);
    }
    snprintf(path, sizeof(path), "%s/%s-images-idx3-ubyte", folder, name);
    good = good && idx_write(path, pixels, count, 28, 28, problem);
    snprintf(path, sizeof(path), "%s/%s-labels-idx1-ubyte", folder, name);
    good = good && idx_write(path, labels, count, 0, 0, problem);
    free(pixels);
    free(labels);
    return good;
}

int main(int argc, char **argv)
{
    struct problem problem = {"usage: make_digits FOLDER TRAIN TEST"};
    if (argc != 4 || !write_digits(argv[1], "train", 0, (int)strtol(argv[2], NULL, 10), &problem) ||
        !write_digits(argv[1], "t10k", DIGITS_TRAIN, (int)strtol(argv[3], NULL, 10), &problem)) {
        fprintf(stderr, "%s\n", problem.text);
        return 1;
    }
    return 0;
}

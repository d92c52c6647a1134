/* CIFAR-10, binary version: records of a label and three planes (red, green, blue) of 32 x 32. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/formats.h"

#define SIDE 32
#define PLANE ((size_t)SIDE * SIDE)
#define RECORD (1 + 3 * PLANE)
#define FILE_MOST 10000 /* records in a file, as published */
#define FILES 5

static void cifar_path(char *ret, size_t bytes, const char *folder, bool inside, int part)
{
    const char *below = inside ? "cifar-10-batches-bin/" : "";
    if (part == 0) {
        snprintf(ret, bytes, "%s/%stest_batch.bin", folder, below);
    } else {
        snprintf(ret, bytes, "%s/%sdata_batch_%d.bin", folder, below, part);
    }
}

/* Are the files not in `folder` itself, but in the archive's folder inside it? */
static bool cifar_inside(const char *folder)
{
    char path[4096];
    cifar_path(path, sizeof(path), folder, true, 1);
    return access(path, F_OK) == 0;
}

bool cifar_present(const char *folder)
{
    char path[4096];
    cifar_path(path, sizeof(path), folder, false, 1);
    return access(path, F_OK) == 0 || cifar_inside(folder);
}

static bool cifar_record(struct dataset *dataset, const uint8_t *record, const char *path,
                         struct problem *problem)
{
    if (record[0] >= DATASET_CLASSES) {
        return problem_say(problem, "%s: label %d of image %d, expected 0 to %d", path, record[0],
                           dataset->count % FILE_MOST, DATASET_CLASSES - 1);
    }
    uint8_t *pixels = dataset->pixels + (size_t)dataset->count * 3 * PLANE;
    for (size_t at = 0; at < 3 * PLANE; at++) {
        pixels[at] = record[1 + at % 3 * PLANE + at / 3];
    }
    dataset->labels[dataset->count++] = record[0];
    return true;
}

static bool cifar_file(struct dataset *dataset, const char *path, struct problem *problem)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return problem_say(problem, "%s: %s", path, strerror(errno));
    }
    uint8_t record[RECORD];
    size_t got = 0;
    int records = 0;
    bool good = true;
    while (good && (got = fread(record, 1, RECORD, file)) == RECORD) {
        good = records++ < FILE_MOST
                   ? cifar_record(dataset, record, path, problem)
                   : problem_say(problem, "%s: oversized: more than %d images", path, FILE_MOST);
    }
    if (good && ferror(file)) {
        good = problem_say(problem, "%s: %s", path, strerror(errno));
    } else if (good && (got > 0 || records == 0)) {
        good = problem_say(problem, "%s: truncated: %zu bytes of image %d, which has %zu", path,
                           got, records, RECORD);
    }
    fclose(file);
    return good;
}

bool cifar_read(struct dataset *dataset, const char *folder, bool train, struct problem *problem)
{
    const size_t most = (size_t)FILE_MOST * (train ? FILES : 1);
    dataset->shape = (struct image_shape){3, SIDE, SIDE};
    dataset->pixels = malloc(most * 3 * PLANE);
    dataset->labels = malloc(most);
    if (dataset->pixels == NULL || dataset->labels == NULL) {
        return problem_say(problem, "%s: no memory for %zu images", folder, most);
    }
    char path[4096];
    int first = 0; /* how many images the first file has */
    const bool inside = cifar_inside(folder);
    for (int part = train ? 1 : 0; part <= (train ? FILES : 0); part++) {
        cifar_path(path, sizeof(path), folder, inside, part);
        const int before = dataset->count;
        if (!cifar_file(dataset, path, problem)) {
            return false;
        }
        const int images = dataset->count - before; /* as many in each: else one is incomplete */
        first = before == 0 ? images : first;
        if (images != first) {
            return problem_say(problem, "%s: %d images, in the files before %d each", path, images,
                               first);
        }
    }
    return true;
}

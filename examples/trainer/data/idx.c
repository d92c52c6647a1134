/*
 * IDX files: a number whose last two bytes are the type of the elements and the count of
 * dimensions; the dimensions; the elements. All numbers are big-endian. zlib reads uncompressed
 * files, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data/formats.h"

#define IDX_LABELS 0x0801U
#define IDX_IMAGES 0x0803U

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Opens a file of the pair under any of its usual names, and stores its path. */
static gzFile idx_open(const char *folder, const char *name, const char *kind, char *path,
                       size_t bytes, struct problem *problem)
{
    static const char *const below[] = {"", "MNIST/raw/", "FashionMNIST/raw/"};
    static const char *const ends[] = {"-%s-ubyte", "-%s-ubyte.gz", ".%s-ubyte", ".%s-ubyte.gz"};
    for (size_t i = 0; i < (size_t)3 * 4; i++) {
        char end[32];
        const char *kinds = strcmp(kind, "images") == 0 ? "idx3" : "idx1";
        snprintf(end, sizeof(end), ends[i % 4], kinds);
        snprintf(path, bytes, "%s/%s%s-%s%s", folder, below[i / 4], name, kind, end);
        gzFile file = gzopen(path, "rbe");
        if (file != NULL) {
            gzbuffer(file, 1U << 17);
            return file;
        }
        if (errno != ENOENT && errno != ENOTDIR) {
            problem_say(problem, "%s: %s", path, strerror(errno));
            return NULL;
        }
    }
    problem_say(
        problem,
        "%s: no %s-%s-idx%d-ubyte in it, plain or .gz (MNIST), and no data_batch_1.bin (CIFAR-10)",
        folder, name, kind, strcmp(kind, "images") == 0 ? 3 : 1);
    return NULL;
}

static bool idx_bytes(gzFile file, const char *path, uint8_t *to, size_t bytes,
                      struct problem *problem)
{
    size_t got = 0;
    while (got < bytes) {
        const unsigned part = bytes - got < 1U << 30 ? (unsigned)(bytes - got) : 1U << 30;
        const int now = gzread(file, to + got, part);
        if (now <= 0) {
            int code = Z_OK;
            const char *why = gzerror(file, &code);
            return code == Z_OK || code == Z_BUF_ERROR
                       ? problem_say(problem, "%s: truncated: it ends %zu bytes too early", path,
                                     bytes - got)
                       : problem_say(problem, "%s: damaged: %s", path, why);
        }
        got += (size_t)now;
    }
    return true;
}

/* The file must end here, and a gzip checksum must be right. */
static bool idx_end(gzFile file, const char *path, struct problem *problem)
{
    uint8_t more = 0;
    const int got = gzread(file, &more, 1);
    int code = Z_OK;
    const char *why = gzerror(file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        return problem_say(problem, "%s: damaged: %s", path, why);
    }
    return got == 0 || problem_say(problem, "%s: oversized: it goes on where it should end", path);
}

/* Reads header, elements and end. sizes: the dimensions, of which the kind has up to three. */
static bool idx_content(gzFile file, const char *path, uint32_t kind, uint32_t sizes[3],
                        uint8_t **ret, struct problem *problem)
{
    uint8_t header[16];
    const size_t dims = kind & 0xff;
    if (!idx_bytes(file, path, header, 4 + 4 * dims, problem)) {
        return false;
    }
    if (big_endian(header) != kind) {
        return problem_say(problem, "%s: begins with 0x%08x, %s in IDX with 0x%08x", path,
                           big_endian(header), kind == IDX_IMAGES ? "images" : "labels", kind);
    }
    size_t bytes = 1;
    for (size_t i = 0; i < dims; i++) {
        sizes[i] = big_endian(header + 4 + 4 * i);
        const uint32_t most = i == 0 ? IMAGES_MOST : 4096;
        if (sizes[i] < 1 || sizes[i] > most) {
            return problem_say(problem, "%s: dimension %zu is %u, expected 1 to %u", path, i,
                               sizes[i], most);
        }
        bytes *= sizes[i];
    }
    *ret = malloc(bytes);
    return *ret == NULL
               ? problem_say(problem, "%s: no memory for %zu bytes", path, bytes)
               : idx_bytes(file, path, *ret, bytes, problem) && idx_end(file, path, problem);
}

bool idx_read(struct dataset *dataset, const char *folder, bool train, struct problem *problem)
{
    const char *name = train ? "train" : "t10k";
    char images[4096], labels[4096];
    uint32_t sizes[3] = {0}, counts[3] = {0};
    gzFile file = idx_open(folder, name, "images", images, sizeof(images), problem);
    bool good =
        file != NULL && idx_content(file, images, IDX_IMAGES, sizes, &dataset->pixels, problem);
    gzclose(file);
    if (!good) {
        return false;
    }
    file = idx_open(folder, name, "labels", labels, sizeof(labels), problem);
    good = file != NULL && idx_content(file, labels, IDX_LABELS, counts, &dataset->labels, problem);
    gzclose(file);
    if (!good) {
        return false;
    }
    const uint32_t count = counts[0];
    if (count != sizes[0]) {
        return problem_say(problem, "%s: %u labels, but %s has %u images", labels, count, images,
                           sizes[0]);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (dataset->labels[i] >= DATASET_CLASSES) {
            return problem_say(problem, "%s: label %d of image %u, expected 0 to %d", labels,
                               dataset->labels[i], i, DATASET_CLASSES - 1);
        }
    }
    dataset->count = (int)count;
    dataset->shape = (struct image_shape){1, (int)sizes[1], (int)sizes[2]};
    return true;
}

bool idx_write(const char *path, const uint8_t *data, int count, int height, int width,
               struct problem *problem)
{
    const uint32_t numbers[4] = {height > 0 ? IDX_IMAGES : IDX_LABELS, (uint32_t)count,
                                 (uint32_t)height, (uint32_t)width};
    const size_t dims = height > 0 ? 3 : 1;
    const size_t bytes = (size_t)count * (height > 0 ? (size_t)height * (size_t)width : 1);
    char beside[4096];
    snprintf(beside, sizeof(beside), "%s.tmp", path);
    FILE *file = fopen(beside, "wbe");
    bool good = file != NULL;
    for (size_t i = 0; good && i < 4 * (1 + dims); i++) {
        good = putc((int)(numbers[i / 4] >> (24 - 8 * (i % 4)) & 0xff), file) != EOF;
    }
    good = good && fwrite(data, 1, bytes, file) == bytes;
    /* Else the name could be on disk and the data not, after a loss of power. */
    good = good && fflush(file) == 0 && fsync(fileno(file)) == 0;
    good = (file == NULL || fclose(file) == 0) && good;
    return (good && rename(beside, path) == 0) ||
           problem_say(problem, "%s cannot be written: %s", path, strerror(errno));
}

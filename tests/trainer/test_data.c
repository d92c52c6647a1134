/*
 * The data: what is read is what was written, damaged files are refused with an error text, ranks
 * share an epoch in the same way as with PyTorch's DistributedSampler, and batches come in order.
 *
 *     test_data tests/data/trainer_torch.safetensors
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "data/formats.h"
#include "data/loader.h"
#include "data/random.h"
#include "data/sampler.h"

#define COUNT 5
#define IMAGE_BYTES 6 /* 2 x 3 pixels */
#define RECORD 3073

static struct safetensors torch;
static char folder[] = "/tmp/test_data_XXXXXX";

static const uint8_t idx_images[16 + COUNT * IMAGE_BYTES] = {
    0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 2, 0, 0, 0, 3, 10, 11, 12, 13, 14, 15, 20, 21,
};
static const uint8_t idx_labels[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT, 3, 1, 4, 1, 9};

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void put_gzip(const char *name, const void *data, size_t bytes)
{
    gzFile file = gzopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)bytes), bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

static int clear(void **state)
{
    (void)state;
    static const char *const names[] = {
        "train-images-idx3-ubyte",    "train-labels-idx1-ubyte", "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte",  "t10k-labels-idx1-ubyte",
        "data_batch_1.bin",           "data_batch_2.bin",        "data_batch_3.bin",
        "data_batch_4.bin",           "data_batch_5.bin",        "test_batch.bin",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unlink(in_folder(names[i]));
    }
    return 0;
}

/* Opens the data in the folder, which must be refused with a text that contains these words. */
static void refused(bool train, const char *words)
{
    struct dataset dataset;
    struct problem problem = {""};
    const bool opened = dataset_open(&dataset, folder, train, 0, &problem);
    dataset_close(&dataset);
    assert_false(opened);
    if (strstr(problem.text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", problem.text, words);
    }
}

static void check_small(int most)
{
    struct dataset dataset;
    struct problem problem = {""};
    if (!dataset_open(&dataset, folder, true, most, &problem)) {
        fail_msg("%s", problem.text);
    }
    assert_int_equal(dataset.count, most > 0 ? most : COUNT);
    assert_int_equal(dataset.shape.channels, 1);
    assert_int_equal(dataset.shape.height, 2);
    assert_int_equal(dataset.shape.width, 3);
    assert_memory_equal(dataset.pixels, idx_images + 16, (size_t)COUNT * IMAGE_BYTES);
    assert_memory_equal(dataset.labels, idx_labels + 8, COUNT);
    assert_true(dataset.normal[0][0] < -0.42F && dataset.normal[0][255] > 2.8F);
    dataset_close(&dataset);
}

static void idx_plain_and_gzip(void **state)
{
    put("train-images-idx3-ubyte", idx_images, sizeof(idx_images));
    put("train-labels-idx1-ubyte", idx_labels, sizeof(idx_labels));
    check_small(0);
    check_small(2);
    clear(state);
    put_gzip("train-images-idx3-ubyte.gz", idx_images, sizeof(idx_images));
    put_gzip("train-labels-idx1-ubyte.gz", idx_labels, sizeof(idx_labels));
    check_small(0);
}

static void idx_damaged(void **state)
{
    uint8_t bad[sizeof(idx_images) + 1] = {0};
    refused(true, "no train-images-idx3-ubyte in it, plain or .gz");
    put("train-images-idx3-ubyte", idx_images, sizeof(idx_images) - 4);
    refused(true, "truncated: it ends 4 bytes too early");
    put("train-images-idx3-ubyte", idx_images, 7);
    refused(true, "truncated: it ends 9 bytes too early");
    memcpy(bad, idx_images, sizeof(idx_images));
    put("train-images-idx3-ubyte", bad, sizeof(bad));
    refused(true, "oversized");
    put("train-images-idx3-ubyte", idx_labels, sizeof(idx_labels));
    refused(true, "truncated");
    bad[3] = 1;
    put("train-images-idx3-ubyte", bad, sizeof(idx_images));
    refused(true, "begins with 0x00000801, images in IDX with 0x00000803");
    memcpy(bad, idx_images, sizeof(idx_images));
    bad[4] = 0x7f;
    put("train-images-idx3-ubyte", bad, sizeof(idx_images));
    refused(true, "dimension 0 is 2130706437, expected 1 to 10000000");

    put("train-images-idx3-ubyte", idx_images, sizeof(idx_images));
    refused(true, "no train-labels-idx1-ubyte");
    memcpy(bad, idx_labels, sizeof(idx_labels));
    bad[8 + 2] = 10;
    put("train-labels-idx1-ubyte", bad, sizeof(idx_labels));
    refused(true, "label 10 of image 2, expected 0 to 9");
    bad[7] = COUNT - 1;
    put("train-labels-idx1-ubyte", bad, sizeof(idx_labels) - 1);
    refused(true, "4 labels, but");

    clear(state);
    put_gzip("train-images-idx3-ubyte.gz", idx_images, sizeof(idx_images));
    FILE *file = fopen(in_folder("train-images-idx3-ubyte.gz"), "r+b");
    assert_non_null(file);
    fseek(file, -6, SEEK_END); /* in the checksum */
    putc(0x55, file);
    fclose(file);
    refused(true, "damaged: ");
    assert_int_equal(truncate(in_folder("train-images-idx3-ubyte.gz"), 30), 0);
    refused(true, "truncated");
}

static void cifar(void **state)
{
    (void)state;
    static uint8_t records[2 * RECORD];
    for (size_t i = 0; i < sizeof(records); i++) {
        records[i] = (uint8_t)(i * 7 % 251);
    }
    records[0] = 9;
    records[RECORD] = 0;
    for (int part = 1; part <= 5; part++) {
        char name[32];
        snprintf(name, sizeof(name), "data_batch_%d.bin", part);
        put(name, records, sizeof(records));
    }
    struct dataset dataset;
    struct problem problem;
    assert_true(dataset_open(&dataset, folder, true, 0, &problem));
    assert_int_equal(dataset.count, 10);
    assert_int_equal(dataset.shape.channels, 3);
    assert_int_equal(dataset.labels[2], 9);
    for (size_t at = 0; at < 3072; at++) {
        assert_int_equal(dataset.pixels[3072 + at], records[RECORD + 1 + at % 3 * 1024 + at / 3]);
    }
    dataset_close(&dataset);
    put("data_batch_4.bin", records, RECORD);
    refused(true, "data_batch_4.bin: 1 images, in the files before 2 each");
    put("data_batch_4.bin", records, sizeof(records));
    refused(false, "test_batch.bin: No such file");
    assert_int_equal(mkdir(in_folder("test_batch.bin"), 0700), 0);
    refused(false, "test_batch.bin: Is a directory");
    assert_int_equal(rmdir(in_folder("test_batch.bin")), 0);
    put("test_batch.bin", records, RECORD + 100);
    refused(false, "truncated: 100 bytes of image 1, which has 3073");
    put("test_batch.bin", records, 0);
    refused(false, "truncated");
    records[RECORD] = 77;
    put("test_batch.bin", records, sizeof(records));
    refused(false, "label 77 of image 1, expected 0 to 9");
}

static int synced; /* how many files */

int fsync(int fd)
{
    synced++;
    return (int)syscall(SYS_fsync, fd);
}

/* Files in which the digits are written, and the digits themselves. */
static void digits(void **state)
{
    (void)state;
    uint8_t pixels[4][784], labels[4], again[784];
    int seen[DATASET_CLASSES] = {0};
    struct problem problem = {""};
    struct dataset dataset;
    for (uint32_t i = 0; i < 4; i++) {
        labels[i] = (uint8_t)digits_draw(DIGITS_TRAIN - 2 + i, pixels[i]);
    }
    assert_int_equal(digits_draw(DIGITS_TRAIN + 1, again), labels[3]);
    assert_memory_equal(again, pixels[3], sizeof(again));
    assert_memory_not_equal(pixels[1], pixels[2], sizeof(again));
    for (uint32_t i = 0; i < 1000; i++) {
        seen[digits_draw(i, again)]++;
    }
    for (int digit = 0; digit < DATASET_CLASSES; digit++) {
        assert_in_range(seen[digit], 70, 130);
    }
    char path[256];
    snprintf(path, sizeof(path), "%s", in_folder("t10k-images-idx3-ubyte"));
    assert_true(idx_write(path, pixels[0], 4, 28, 28, &problem));
    snprintf(path, sizeof(path), "%s", in_folder("t10k-labels-idx1-ubyte"));
    assert_true(idx_write(path, labels, 4, 0, 0, &problem));
    assert_int_equal(synced, 2); /* before they get their names */
    assert_true(dataset_open(&dataset, folder, false, 0, &problem));
    assert_memory_equal(dataset.pixels, pixels, sizeof(pixels));
    assert_memory_equal(dataset.labels, labels, sizeof(labels));
    dataset_close(&dataset);
    assert_false(idx_write("/nonexistent/x", labels, 4, 0, 0, &problem));
    assert_non_null(strstr(problem.text, "/nonexistent/x cannot be written: No such file"));
}

static void permutation(void **state)
{
    (void)state;
    struct problem problem;
    for (int n = 1; n <= 1000; n *= n == 1 ? 10 : 100) {
        char name[32];
        struct random random;
        int order[1000];
        snprintf(name, sizeof(name), "perm.%d", n);
        const int64_t *expected = safetensors_find(&torch, name, "I64", (size_t)n, &problem);
        assert_non_null(expected);
        random_seed(&random, (uint32_t)n + 5);
        random_permutation(&random, order, n);
        for (int i = 0; i < n; i++) {
            assert_int_equal(order[i], expected[i]);
        }
    }
}

/* PyTorch's formulas, for all small sizes and numbers of ranks. */
static void check_sampler(int images, int ranks, bool drop_last)
{
    struct sampler one;
    const int count = drop_last ? images / ranks : (images + ranks - 1) / ranks;
    assert_true(sampler_init(&one, images, 1, 0, true, false, 3));
    sampler_set_epoch(&one, 2);
    for (int rank = 0; rank < ranks; rank++) {
        struct sampler sampler;
        assert_true(sampler_init(&sampler, images, ranks, rank, true, drop_last, 3));
        sampler_set_epoch(&sampler, 2);
        assert_int_equal(sampler.count, count);
        for (int i = 0; i < count; i++) {
            assert_int_equal(sampler.mine[i], one.mine[(i * ranks + rank) % images]);
        }
        sampler_finish(&sampler);
    }
    sampler_finish(&one);
}

/* In evaluation every image belongs to one rank. */
static void check_once(int images, int ranks)
{
    int seen[20] = {0}, total = 0;
    for (int rank = 0; rank < ranks; rank++) {
        struct sampler once;
        assert_true(sampler_init_once(&once, images, ranks, rank));
        for (int i = 0; i < once.count; i++) {
            seen[once.mine[i]]++;
        }
        total += once.count;
        sampler_finish(&once);
    }
    assert_int_equal(total, images);
    for (int i = 0; i < images; i++) {
        assert_int_equal(seen[i], 1);
    }
}

static void sampler_shares(void **state)
{
    (void)state;
    for (int images = 1; images < 20; images++) {
        for (int ranks = 1; ranks < 8; ranks++) {
            check_sampler(images, ranks, false);
            check_sampler(images, ranks, true);
            check_once(images, ranks);
        }
    }
}

static void check_loader(const struct dataset *dataset, const struct sampler *sampler, int batch,
                         int workers)
{
    struct problem problem;
    struct loader *loader = loader_create(dataset, batch, workers, &problem);
    assert_non_null(loader);
    for (int epoch = 0; epoch < 3; epoch++) {
        int at = epoch == 2 ? batch : 0; /* the last epoch begins behind its first batch, ... */
        loader_start(loader, sampler->mine, sampler->count, at / batch);
        for (const struct batch *got; (got = loader_next(loader)) != NULL;) {
            assert_int_equal(got->n, sampler->count - at < batch ? sampler->count - at : batch);
            for (int i = 0; i < got->n; i++, at++) {
                const int image = sampler->mine[at];
                assert_int_equal(got->labels[i], dataset->labels[image]);
                assert_true(got->images[(size_t)i * 784 + 300] ==
                            dataset->normal[0][dataset->pixels[(size_t)image * 784 + 300]]);
            }
            if (epoch == 1) {
                break; /* ... and the one before it ends early */
            }
        }
        assert_true(epoch == 1 || at >= sampler->count);
    }
    loader_destroy(loader);
}

static void loader_order(void **state)
{
    (void)state;
    struct dataset dataset = {.count = 50, .shape = {1, 28, 28}};
    struct sampler sampler;
    static uint8_t pixels[50 * 784], labels[50];
    dataset.pixels = pixels;
    dataset.labels = labels;
    for (uint32_t i = 0; i < 50; i++) {
        dataset.labels[i] = (uint8_t)digits_draw(i, dataset.pixels + (size_t)i * 784);
    }
    for (int pixel = 0; pixel < 256; pixel++) {
        dataset.normal[0][pixel] = (float)pixel;
    }
    assert_true(sampler_init(&sampler, 50, 1, 0, true, false, 1));
    for (int workers = 0; workers < 4; workers++) {
        check_loader(&dataset, &sampler, 1, workers);
        check_loader(&dataset, &sampler, 7, workers);
        check_loader(&dataset, &sampler, 50, workers);
        check_loader(&dataset, &sampler, 64, workers);
    }
    sampler_finish(&sampler);
}

int main(int argc, char **argv)
{
    struct problem problem;
    if (argc != 2 || !safetensors_read(&torch, argv[1], &problem)) {
        fprintf(stderr, "%s\n", argc == 2 ? problem.text : "usage: test_data FILE");
        return 1;
    }
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(idx_plain_and_gzip, clear),
        cmocka_unit_test_teardown(idx_damaged, clear),
        cmocka_unit_test_teardown(cifar, clear),
        cmocka_unit_test_teardown(digits, clear),
        cmocka_unit_test(permutation),
        cmocka_unit_test(sampler_shares),
        cmocka_unit_test(loader_order),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    safetensors_free(&torch);
    rmdir(folder);
    return failed;
}

/*
 * Checkpoints: what is read is what was written, damaged files are refused, and a writer that is
 * interrupted at any place leaves a complete file. To interrupt it, the process ends inside of
 * write(), fsync() and rename(), which the linker redirects to this file (--wrap).
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

static const struct model small = {
    .name = "small",
    .input = {1, 6, 6},
    .layers = {{LAYER_CONV, "conv1", .out = 3, .kernel = 3},
               {LAYER_BATCH_NORM, .name = "bn1"},
               {.kind = LAYER_POOL_RELU},
               {LAYER_FC, "fc", .out = 4}},
};

static char folder[] = "/tmp/test_checkpoint_XXXXXX";
static char path[64], beside[72];

/* ---- Cuts ---------------------------------------------------------------------------------- */

static int calls_left = -1; /* how many calls succeed before one ends the process; -1: all */
static bool halves;         /* an interrupted write() has written half of its bytes */

ssize_t __real_write(int fd, const void *data, size_t bytes);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);

static bool cut_now(void)
{
    return calls_left >= 0 && calls_left-- == 0;
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    if (cut_now()) {
        if (halves) {
            (void)!__real_write(fd, data, bytes / 2);
        }
        _exit(3);
    }
    return __real_write(fd, data, bytes);
}

int __wrap_fsync(int fd)
{
    if (cut_now()) {
        _exit(3);
    }
    return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    if (cut_now()) {
        _exit(3);
    }
    return __real_rename(from, to);
}

/* ---- A training ---------------------------------------------------------------------------- */

struct bench {
    struct net *net;
    struct optimizer optimizer;
    struct training training;
    struct progress progress;
};

static void bench_open(struct bench *bench, enum optimizer_kind kind, uint32_t seed)
{
    struct problem problem;
    struct optimizer_options options = optimizer_defaults;
    int count = 0;
    options.kind = kind;
    options.momentum = 0.9F;
    bench->net = net_create(&small, 2, NULL, &problem);
    assert_non_null(bench->net);
    net_draw(bench->net, seed);
    struct tensor *tensors = net_tensors(bench->net, &count);
    assert_true(optimizer_init(&bench->optimizer, &options, tensors, count));
    for (int k = 0; k < OPTIMIZER_STATES && bench->optimizer.states[k] != NULL; k++) {
        for (int i = 0; i < count; i++) {
            for (size_t at = 0; at < tensors[i].count; at++) {
                bench->optimizer.states[k][i][at] = (float)(seed + at * (size_t)(k + 1));
            }
        }
    }
    bench->training = (struct training){&small, bench->net, &bench->optimizer};
    bench->progress = (struct progress){seed, 2, 5, 17, 128};
}

static void bench_close(struct bench *bench)
{
    optimizer_finish(&bench->optimizer);
    net_destroy(bench->net);
}

static void save(const struct bench *bench)
{
    struct problem problem;
    if (!checkpoint_write(path, &bench->training, &bench->progress, &problem)) {
        fail_msg("%s", problem.text);
    }
}

/* The first weight in the file, which must be complete: from a bench that was drawn with
 * this seed. */
static int64_t load(enum optimizer_kind kind)
{
    struct bench bench;
    struct problem problem;
    bench_open(&bench, kind, 99);
    if (!checkpoint_read(path, &bench.training, &bench.progress, &problem)) {
        fail_msg("%s", problem.text);
    }
    struct bench same;
    bench_open(&same, kind, (uint32_t)bench.progress.seed);
    int count = 0;
    const struct tensor *got = net_tensors(bench.net, &count);
    const struct tensor *expected = net_tensors(same.net, &count);
    for (int i = 0; i < count; i++) {
        const size_t bytes = got[i].count * sizeof(float);
        assert_memory_equal(got[i].value, expected[i].value, bytes);
        for (int k = 0; k < OPTIMIZER_STATES && same.optimizer.states[k] != NULL; k++) {
            assert_memory_equal(bench.optimizer.states[k][i], same.optimizer.states[k][i], bytes);
        }
    }
    assert_int_equal(bench.progress.epoch, 2);
    assert_int_equal(bench.progress.batches, 5);
    assert_int_equal(bench.progress.global_batch, 128);
    assert_int_equal(bench.optimizer.steps, 17);
    bench_close(&same);
    bench_close(&bench);
    return bench.progress.seed;
}

static void comes_back(void **state)
{
    (void)state;
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_ADAM; kind++) {
        struct bench bench;
        bench_open(&bench, (enum optimizer_kind)kind, 4);
        save(&bench);
        assert_int_equal(load((enum optimizer_kind)kind), 4);
        bench_close(&bench);
    }
}

/* In a child: writes the second checkpoint over the first one, and ends at call `cut`. Returns its
 * exit status. */
static int write_cut(const struct bench *bench, int cut, bool half)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct problem problem;
        calls_left = cut;
        halves = half;
        _exit(checkpoint_write(path, &bench->training, &bench->progress, &problem) ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void cut_anywhere(void **state)
{
    (void)state;
    struct bench first, second;
    bench_open(&first, OPTIMIZER_SGD, 1);
    bench_open(&second, OPTIMIZER_SGD, 2);
    int cut = 0, renewed = 0;
    for (int status = 3; status == 3; cut++) {
        save(&first);
        write_cut(&second, cut, true);
        const int64_t half = load(OPTIMIZER_SGD);
        assert_true(half == 1 || half == 2);
        save(&first);
        status = write_cut(&second, cut, false);
        const int64_t seed = load(OPTIMIZER_SGD);
        assert_true(status == 3 ? seed == 1 || seed == 2 : seed == 2);
        renewed += seed == 2;
    }
    assert_true(cut > 10);     /* header, tensors, fsync, rename, the folder's fsync */
    assert_true(renewed <= 2); /* only after the rename */
    bench_close(&first);
    bench_close(&second);
}

static void refuse(const char *words)
{
    struct bench bench;
    struct problem problem = {""};
    bench_open(&bench, OPTIMIZER_SGD, 1);
    assert_false(checkpoint_read(path, &bench.training, &bench.progress, &problem));
    bench_close(&bench);
    if (strstr(problem.text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", problem.text, words);
    }
}

static void overwrite(long at, const char *bytes)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_true(fputs(bytes, file) >= 0);
    fclose(file);
}

/* Makes the header shorter than it is: all numbers would be read from wrong places. */
static void shorten_header(const struct bench *bench, uint64_t less)
{
    uint64_t length = 0;
    save(bench);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fread(&length, sizeof(length), 1, file), 1);
    length -= less;
    rewind(file);
    assert_int_equal(fwrite(&length, sizeof(length), 1, file), 1);
    fclose(file);
    refuse("damaged");
}

/* Where the header says that a tensor lies: a pointer into `header`. */
static char *offsets_of(char *header, const char *name)
{
    char *at = strstr(header, name);
    at = at == NULL ? NULL : strstr(at, "data_offsets");
    assert_non_null(at);
    return at + strlen("data_offsets\":");
}

/* One tensor lies at the place of another. */
static void overlap(const struct bench *bench)
{
    char header[4096] = "";
    save(bench);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_true(fread(header, 1, sizeof(header) - 1, file) > 8);
    fclose(file);
    char *weight = offsets_of(header + 8, "\"bn1.weight\""), *bias = strchr(weight, '}');
    bias = offsets_of(bias, "\"bn1.bias\"");
    const size_t length = strcspn(weight, "]") + 1;
    assert_int_equal(strcspn(bias, "]") + 1, length);
    weight[length] = '\0';
    overwrite(bias - header, weight);
    refuse("damaged: its tensors do not fill its");
}

/* A tensor with its dimensions in another order, as of another layout. */
static void other_shape(const struct bench *bench)
{
    char header[4096] = "";
    int rows = 0, columns = 0, end = 0;
    save(bench);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_true(fread(header, 1, sizeof(header) - 1, file) > 8);
    fclose(file);
    char *shape = strstr(header + 8, "\"fc.weight\"");
    shape = shape == NULL ? NULL : strstr(shape, "[");
    assert_non_null(shape);
    assert_int_equal(sscanf(shape, "[%d,%d]%n", &rows, &columns, &end), 2);
    assert_true(end > 0 && rows != columns);
    (void)snprintf(shape, (size_t)end + 1, "[%d,%d]", columns, rows);
    overwrite(shape - header, shape);
    refuse("fc.weight has another shape than the model's");
}

/* Tensors with a missing value: a reader that skips it leaves their object, and takes the members
 * behind it for theirs, so that all have the same place. */
static void without_values(int tensors)
{
    char header[1024] = "{";
    uint64_t length = 1;
    struct safetensors file;
    struct problem problem = {""};
    for (int i = 0; i < tensors; i++) {
        length += (uint64_t)snprintf(header + length, sizeof(header) - length, "\"\":{\"\":},");
    }
    length += (uint64_t)snprintf(header + length, sizeof(header) - length,
                                 "\"dtype\":\"F32\",\"data_offsets\":[0,4]}");
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(&length, sizeof(length), 1, to), 1);
    assert_int_equal(fwrite(header, length, 1, to), 1);
    assert_int_equal(fwrite("data", 4, 1, to), 1);
    fclose(to);
    assert_false(safetensors_read(&file, path, &problem));
    safetensors_free(&file);
    assert_non_null(strstr(problem.text, "damaged: its tensors do not fill its 4 bytes"));
}

static void damaged(void **state)
{
    (void)state;
    struct bench bench;
    struct stat status;
    bench_open(&bench, OPTIMIZER_ADAM, 1);
    save(&bench);
    refuse("the optimizer is \"adam\", this training's is \"sgd\"");
    bench_close(&bench);
    bench_open(&bench, OPTIMIZER_SGD, 1);
    save(&bench);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size - 1), 0);
    refuse("damaged: its tensors do not fill its");
    for (off_t length = status.st_size - 200; length > 0; length -= 61) {
        assert_int_equal(truncate(path, length), 0);
        refuse("");
    }
    assert_int_equal(truncate(path, 5), 0);
    refuse("not a safetensors file, or a damaged one");
    save(&bench);
    overwrite(0, "\xff\xff\xff\xff");
    refuse("not a safetensors file, or a damaged one");
    save(&bench);
    overwrite(8, "[");
    refuse("not a safetensors file, or a damaged one");
    save(&bench);
    shorten_header(&bench, 1); /* a blank, or the bracket */
    shorten_header(&bench, 8);
    overlap(&bench);
    other_shape(&bench);
    without_values(1);
    without_values(64);
    unlink(path);
    refuse("No such file");
    bench_close(&bench);
}

/* Files of older versions lack this note: then the batches count as those of this training. */
static void without_global_batch(void **state)
{
    (void)state;
    struct bench bench;
    char header[4096] = "";
    bench_open(&bench, OPTIMIZER_SGD, 1);
    save(&bench);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_true(fread(header, 1, sizeof(header) - 1, file) > 8);
    fclose(file);
    const char *note = strstr(header + 8, "global_batch");
    assert_non_null(note);
    overwrite(note - header, "G");
    assert_int_equal(load(OPTIMIZER_SGD), 1);
    bench_close(&bench);
}

/* Another process writes the same checkpoint: the file of either is complete. */
static void two_writers(void **state)
{
    (void)state;
    struct bench first, second;
    struct problem problem = {""};
    struct stat status;
    bench_open(&first, OPTIMIZER_SGD, 1);
    bench_open(&second, OPTIMIZER_SGD, 2);
    save(&first);
    const int other = open(beside, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(other >= 0 && flock(other, LOCK_EX) == 0 && write(other, "half", 4) == 4);
    assert_false(checkpoint_write(path, &second.training, &second.progress, &problem));
    assert_non_null(strstr(problem.text, "another process is writing it"));
    assert_false(safetensors_writable(path, &problem));
    assert_true(stat(beside, &status) == 0 && status.st_size == 4);
    assert_int_equal(load(OPTIMIZER_SGD), 1);
    close(other);
    assert_true(safetensors_writable(path, &problem));
    save(&second);
    assert_int_equal(load(OPTIMIZER_SGD), 2);
    bench_close(&first);
    bench_close(&second);
}

/* A name may be a link to another file, also on another file system: it stays a link. */
static void linked(void **state)
{
    (void)state;
    struct bench first, second;
    struct problem problem = {""};
    struct stat status;
    char name[sizeof(path) + 8];
    bench_open(&first, OPTIMIZER_SGD, 1);
    bench_open(&second, OPTIMIZER_SGD, 2);
    save(&first);
    snprintf(name, sizeof(name), "%s.latest", path);
    assert_int_equal(symlink(path, name), 0);
    assert_true(checkpoint_write(name, &second.training, &second.progress, &problem));
    assert_true(lstat(name, &status) == 0 && S_ISLNK(status.st_mode));
    assert_int_equal(load(OPTIMIZER_SGD), 2);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(symlink("nowhere", name), 0);
    assert_false(checkpoint_write(name, &second.training, &second.progress, &problem));
    assert_non_null(strstr(problem.text, "a link that leads to no file"));
    assert_int_equal(unlink(name), 0);
    bench_close(&first);
    bench_close(&second);
}

static void no_file(void **state)
{
    (void)state;
    struct safetensors file;
    struct problem problem = {""};
    assert_false(safetensors_read(&file, folder, &problem));
    safetensors_free(&file);
    assert_non_null(strstr(problem.text, "it exists, but is not a regular file"));
}

static void unwritable(void **state)
{
    (void)state;
    struct bench bench;
    struct problem problem;
    bench_open(&bench, OPTIMIZER_SGD, 1);
    assert_false(checkpoint_write("/nonexistent/x", &bench.training, &bench.progress, &problem));
    assert_string_equal(problem.text,
                        "/nonexistent/x cannot be written: No such file or directory");
    bench_close(&bench);
}

int main(void)
{
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    snprintf(path, sizeof(path), "%s/checkpoint", folder);
    snprintf(beside, sizeof(beside), "%s.tmp", path);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),  cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(damaged),     cmocka_unit_test(without_global_batch),
        cmocka_unit_test(two_writers), cmocka_unit_test(linked),
        cmocka_unit_test(no_file),     cmocka_unit_test(unwritable),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(beside);
    unlink(path);
    rmdir(folder);
    return failed;
}

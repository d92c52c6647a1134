/*
 * The built-in data: digits as if written by hand. Each consists of a few strokes (quadratic curves
 * in a unit square, y down), which are randomly distorted, bent, rotated, slanted, scaled and
 * moved, and drawn with a pen of random width, with noise. Every digit has a number, which is its
 * seed: below DIGITS_TRAIN for training, from there on for the test, so none is in both.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/formats.h"
#include "data/random.h"

#define SIDE 28
#define SEGMENTS 10 /* of a curve */
#define STROKES_MOST 5
#define TURN 6.2831853F
#define VERSION 1 /* of the pictures; part of the folder's name */

struct point {
    float x, y;
};
struct curve {
    struct point from, control, to;
};

static const struct {
    int count;
    struct curve curves[STROKES_MOST];
} shapes[DATASET_CLASSES] = {
    {4,
     {{{.50F, .08F}, {.84F, .08F}, {.82F, .50F}},
      {{.82F, .50F}, {.80F, .92F}, {.50F, .92F}},
      {{.50F, .92F}, {.18F, .92F}, {.18F, .50F}},
      {{.18F, .50F}, {.18F, .08F}, {.50F, .08F}}}},
    {2, {{{.36F, .26F}, {.46F, .20F}, {.53F, .08F}}, {{.53F, .08F}, {.52F, .50F}, {.50F, .92F}}}},
    {4,
     {{{.20F, .30F}, {.25F, .05F}, {.52F, .08F}},
      {{.52F, .08F}, {.88F, .12F}, {.70F, .42F}},
      {{.70F, .42F}, {.55F, .65F}, {.20F, .90F}},
      {{.20F, .90F}, {.50F, .86F}, {.82F, .90F}}}},
    {4,
     {{{.22F, .16F}, {.50F, -.02F}, {.70F, .20F}},
      {{.70F, .20F}, {.75F, .44F}, {.42F, .47F}},
      {{.42F, .47F}, {.88F, .50F}, {.76F, .76F}},
      {{.76F, .76F}, {.60F, 1.02F}, {.20F, .85F}}}},
    {3,
     {{{.58F, .08F}, {.38F, .36F}, {.18F, .62F}},
      {{.18F, .62F}, {.50F, .62F}, {.85F, .60F}},
      {{.65F, .30F}, {.64F, .60F}, {.62F, .93F}}}},
    {4,
     {{{.76F, .10F}, {.50F, .10F}, {.31F, .10F}},
      {{.31F, .10F}, {.28F, .30F}, {.25F, .45F}},
      {{.25F, .45F}, {.76F, .30F}, {.77F, .65F}},
      {{.77F, .65F}, {.70F, .97F}, {.20F, .88F}}}},
    {4,
     {{{.68F, .08F}, {.30F, .25F}, {.25F, .65F}},
      {{.25F, .65F}, {.25F, .93F}, {.50F, .92F}},
      {{.50F, .92F}, {.80F, .90F}, {.75F, .65F}},
      {{.75F, .65F}, {.65F, .42F}, {.27F, .64F}}}},
    {2, {{{.20F, .12F}, {.50F, .12F}, {.80F, .10F}}, {{.80F, .10F}, {.54F, .45F}, {.42F, .93F}}}},
    {4,
     {{{.50F, .46F}, {.04F, .27F}, {.50F, .08F}},
      {{.50F, .08F}, {.96F, .27F}, {.50F, .46F}},
      {{.50F, .46F}, {-.12F, .69F}, {.50F, .92F}},
      {{.50F, .92F}, {1.12F, .69F}, {.50F, .46F}}}},
    {4,
     {{{.74F, .33F}, {.70F, .05F}, {.46F, .09F}},
      {{.46F, .09F}, {.20F, .14F}, {.24F, .35F}},
      {{.24F, .35F}, {.42F, .60F}, {.74F, .33F}},
      {{.74F, .33F}, {.74F, .60F}, {.62F, .93F}}}},
};

/* How one digit is written: the unit square to pixels, and the pen. */
struct hand {
    float matrix[4];
    struct point middle;
    float bend[2], phase[2]; /* of a wave along the other coordinate */
    float radius, ink, noise;
};

static float between(struct random *random, float low, float high)
{
    return low + (high - low) * random_unit(random);
}

static struct hand hand_draw(struct random *random)
{
    const float angle = between(random, -0.32F, 0.32F), slant = between(random, -0.30F, 0.30F);
    const float wide = between(random, 13, 21), high = between(random, 16, 22);
    const float c = cosf(angle), s = sinf(angle);
    return (struct hand){
        .matrix = {c * wide, (c * slant - s) * high, s * wide, (s * slant + c) * high},
        .middle = {between(random, 11, 17), between(random, 11.5F, 16.5F)},
        .bend = {between(random, 0, 0.07F), between(random, 0, 0.07F)},
        .phase = {between(random, 0, TURN), between(random, 0, TURN)},
        .radius = between(random, 0.7F, 1.6F),
        .ink = between(random, 0.65F, 1),
        .noise = between(random, 0, 0.12F),
    };
}

static struct point hand_place(const struct hand *hand, struct point p)
{
    const float x = p.x - 0.5F + hand->bend[0] * sinf(TURN * p.y + hand->phase[0]);
    const float y = p.y - 0.5F + hand->bend[1] * sinf(TURN * p.x + hand->phase[1]);
    return (struct point){hand->middle.x + hand->matrix[0] * x + hand->matrix[1] * y,
                          hand->middle.y + hand->matrix[2] * x + hand->matrix[3] * y};
}

static struct point curve_at(const struct curve *curve, float t)
{
    const float a = (1 - t) * (1 - t), b = 2 * t * (1 - t), c = t * t;
    return (struct point){a * curve->from.x + b * curve->control.x + c * curve->to.x,
                          a * curve->from.y + b * curve->control.y + c * curve->to.y};
}

static int pixel_in(float at)
{
    return at < 0 ? 0 : at > SIDE - 1 ? SIDE - 1 : (int)at;
}

/* Draws a straight segment: each pixel gets the share that the pen covers, unless it has more. */
static void ink_segment(float *ink, struct point a, struct point b, float radius)
{
    const float dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy + 1e-6F;
    const float reach = radius + 1;
    const int left = pixel_in(fminf(a.x, b.x) - reach), right = pixel_in(fmaxf(a.x, b.x) + reach);
    const int top = pixel_in(fminf(a.y, b.y) - reach), bottom = pixel_in(fmaxf(a.y, b.y) + reach);
    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            const float px = (float)x - a.x, py = (float)y - a.y;
            const float along = fminf(fmaxf((px * dx + py * dy) / square, 0), 1);
            const float ox = px - along * dx, oy = py - along * dy;
            const float cover = fminf(fmaxf(radius + 0.5F - sqrtf(ox * ox + oy * oy), 0), 1);
            ink[y * SIDE + x] = fmaxf(ink[y * SIDE + x], cover);
        }
    }
}

/* Moves a point of a stroke at random; strokes that share a point still meet there. */
static struct point shake(struct random *random, struct point p)
{
    return (struct point){p.x + between(random, -0.06F, 0.06F),
                          p.y + between(random, -0.06F, 0.06F)};
}

static void ink_digit(float *ink, int digit, const struct hand *hand, struct random *random)
{
    struct point end = {0, 0};
    for (int i = 0; i < shapes[digit].count; i++) {
        struct curve curve = shapes[digit].curves[i];
        const struct curve *before = i > 0 ? &shapes[digit].curves[i - 1] : NULL;
        const bool meets =
            before != NULL && before->to.x == curve.from.x && before->to.y == curve.from.y;
        curve = (struct curve){meets ? end : shake(random, curve.from),
                               shake(random, curve.control), shake(random, curve.to)};
        end = curve.to;
        struct point last = hand_place(hand, curve.from);
        for (int k = 1; k <= SEGMENTS; k++) {
            const struct point next = hand_place(hand, curve_at(&curve, (float)k / SEGMENTS));
            ink_segment(ink, last, next, hand->radius);
            last = next;
        }
    }
}

int digits_draw(uint32_t number, uint8_t *ret_pixels)
{
    struct random random;
    float ink[SIDE * SIDE] = {0};
    random_seed(&random, number);
    const int digit = (int)(random_u32(&random) % DATASET_CLASSES);
    const struct hand hand = hand_draw(&random);
    ink_digit(ink, digit, &hand, &random);
    for (int i = 0; i < SIDE * SIDE; i++) {
        const float noise = hand.noise * (random_unit(&random) - 0.5F) * 2;
        const float value = fminf(fmaxf(hand.ink * ink[i] + noise, 0), 1);
        ret_pixels[i] = (uint8_t)(255 * value + 0.5F);
    }
    return digit;
}

/* ---- The files ----------------------------------------------------------------------------- */

static bool digits_write(const char *folder, const char *name, uint32_t first, int count,
                         struct problem *problem)
{
    char path[4096];
    uint8_t *pixels = malloc((size_t)count * SIDE * SIDE), *labels = malloc((size_t)count);
    bool good = pixels != NULL && labels != NULL;
    if (!good) {
        problem_say(problem, "no memory for %d digits", count);
    }
    for (int i = 0; good && i < count; i++) {
        labels[i] = (uint8_t)digits_draw(first + (uint32_t)i, pixels + (size_t)i * SIDE * SIDE);
    }
    if (good) {
        snprintf(path, sizeof(path), "%s/%s-images-idx3-ubyte", folder, name);
        good = idx_write(path, pixels, count, SIDE, SIDE, problem);
    }
    if (good) {
        snprintf(path, sizeof(path), "%s/%s-labels-idx1-ubyte", folder, name);
        good = idx_write(path, labels, count, 0, 0, problem);
    }
    free(pixels);
    free(labels);
    return good;
}

/* $XDG_CACHE_HOME/hoop/digits-N, with the folders above it. */
static bool folder_make(char *ret, size_t bytes, struct problem *problem)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL && cache[0] == '/') {
        snprintf(ret, bytes, "%s/hoop/digits-%d", cache, VERSION);
    } else if (home != NULL && home[0] == '/') {
        snprintf(ret, bytes, "%s/.cache/hoop/digits-%d", home, VERSION);
    } else {
        return problem_say(problem,
                           "neither XDG_CACHE_HOME nor HOME is set: no folder for the digits");
    }
    int why = 0; /* of the first folder that cannot be made: below it all is just missing */
    for (char *slash = strchr(ret + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        why = mkdir(ret, 0777) == 0 || errno == EEXIST || why != 0 ? why : errno;
        *slash = '/';
    }
    return mkdir(ret, 0777) == 0 || errno == EEXIST ||
           problem_say(problem, "%s: %s (XDG_CACHE_HOME may name another place)", ret,
                       strerror(why != 0 ? why : errno));
}

bool digits_folder(char *ret, size_t bytes, struct problem *problem)
{
    char path[4096];
    if (!folder_make(ret, bytes, problem)) {
        return false;
    }
    /* This file is written last: if it exists, all do. */
    snprintf(path, sizeof(path), "%s/t10k-labels-idx1-ubyte", ret);
    if (access(path, R_OK) == 0) {
        return true;
    }
    char lock[4096];
    snprintf(lock, sizeof(lock), "%s/lock", ret);
    const int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX) != 0) {
        problem_say(problem, "%s: %s", lock, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    const bool good =
        access(path, R_OK) == 0 || (digits_write(ret, "train", 0, DIGITS_TRAIN, problem) &&
                                    digits_write(ret, "t10k", DIGITS_TRAIN, DIGITS_TEST, problem));
    close(fd);
    return good;
}

/*
 * The kernels of the benchmarks, compiled for this CPU, against what the host computes and finds:
 * every type and operation, any alignment, any number of blocks, more than 4 Gi elements.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "reduce/cuda_on_cpu.h"

#include "perf/perf_kernels.cu"

#define MOST 700
#define AROUND 16

typedef void kernel_t(const struct perf_work work);

static void launch(kernel_t *kernel, const struct perf_work *work, uint32_t blocks)
{
    BLOCKS = blocks;
    for (BLOCK = 0; BLOCK < blocks; BLOCK++) {
        for (THREAD = 0; THREAD < THREADS; THREAD++) {
            kernel(*work);
        }
    }
}

/* Elements at some offset from an 8-byte boundary, and what the host makes of them. */
struct scene {
    struct perf_work work;
    size_t bytes;
    uint32_t blocks;
    uint64_t found;
    unsigned char *at;
    _Alignas(8) unsigned char memory[MOST * 8 + 2 * AROUND];
    unsigned char want[MOST * 8];
};

static void scene_init(struct scene *scene, const struct perf_case *data, int rank, size_t count,
                       size_t unaligned)
{
    const size_t type_bytes = perf_type_bytes(data->type);
    memset(scene->memory, 0x5c, sizeof scene->memory);
    scene->at = scene->memory + AROUND + unaligned;
    scene->bytes = count * type_bytes;
    scene->blocks = 1 + (uint32_t)(count + unaligned) % 3;
    scene->found = 0;
    scene->work = (struct perf_work){
        .span = {perf_data_rules(data), rank, (uint64_t)1 << 33, count},
        .at = scene->at,
        .found = &scene->found,
    };
    perf_data_make(&scene->work.span, scene->want);
}

static uint64_t found(struct scene *scene, bool bytes)
{
    scene->found = 0;
    scene->work.bytes = bytes;
    launch(perf_compare, &scene->work, scene->blocks);
    return scene->found;
}

/* The kernel writes the host's bits, and nothing around them. */
static void check_write(struct scene *scene)
{
    launch(perf_write, &scene->work, scene->blocks);
    assert_memory_equal(scene->at, scene->want, scene->bytes);
    for (unsigned char *p = scene->memory; p < scene->memory + sizeof scene->memory; p++) {
        assert_true((p >= scene->at && p < scene->at + scene->bytes) || *p == 0x5c);
    }
}

/* Damage that must be found: none; the highest bit of the last element; all elements. */
static void check_compare(struct scene *scene)
{
    const size_t type_bytes = (size_t)scene->work.span.rules.bits / 8;
    assert_int_equal(found(scene, false), 0);
    assert_int_equal(found(scene, true), 0);
    if (scene->bytes == 0) {
        return;
    }
    scene->at[scene->bytes - 1] ^= 0x40;
    assert_int_equal(found(scene, false), 1);
    assert_int_equal(found(scene, true), 1);
    scene->at[scene->bytes - 1] ^= 0x40;
    for (size_t i = 0; i < scene->bytes; i++) {
        scene->at[i] ^= 0x55;
    }
    assert_int_equal(found(scene, false), perf_data_wrong(&scene->work.span.rules, scene->at,
                                                          scene->want, scene->bytes / type_bytes));
    assert_int_equal(found(scene, true), scene->bytes);
}

static void check_case(struct scene *scene, const struct perf_case *data)
{
    static const size_t counts[] = {0, 1, 9, MOST - 1};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (size_t unaligned = 0; unaligned < 8; unaligned += i == 3 ? 1 : 3) {
            scene_init(scene, data, (int)i % 2 == 0 ? data->nranks - 1 : PERF_REDUCED, counts[i],
                       unaligned);
            check_write(scene);
            check_compare(scene);
        }
    }
}

static void test_every_case(void **state)
{
    (void)state;
    static const int ranks[] = {1, 3, 8, 40};
    static struct scene scene;
    for (int type = 0; type < HOOP_NUM_DATATYPES; type++) {
        for (int op = 0; op < PERF_NUM_OPS; op++) {
            for (size_t n = 0; n < sizeof ranks / sizeof ranks[0]; n++) {
                const struct perf_case data = {
                    .type = (hoop_datatype_t)type, .op = op, .nranks = ranks[n], .repetition = 5};
                check_case(&scene, &data);
            }
        }
    }
}

/* An average may differ from the division by two units, not more. */
static void test_tolerance(void **state)
{
    (void)state;
    static struct scene scene;
    const struct perf_case data = {.type = HOOP_FLOAT32, .op = HOOP_AVG, .nranks = 3};
    for (uint32_t away = 0; away < 5; away++) {
        scene_init(&scene, &data, PERF_REDUCED, 9, 0);
        launch(perf_write, &scene.work, 2);
        for (size_t i = 0; i < 9; i++) {
            *(uint32_t *)(void *)(scene.at + i * 4) += away;
        }
        assert_int_equal(found(&scene, false), away > 2 ? 9 : 0);
    }
}

/* The last threads of a large grid each have their own element, however far away it is. */
static void test_beyond_4_gi(void **state)
{
    (void)state;
    static struct scene scene;
    const uint64_t far = ((uint64_t)1 << 31) * THREADS;
    const struct perf_case data = {.type = HOOP_FLOAT32, .op = HOOP_SUM, .nranks = 2};
    scene_init(&scene, &data, PERF_REDUCED, THREADS, 0);
    scene.work.span.first -= far;
    scene.work.span.count = far + THREADS;
    scene.work.at = (void *)((uintptr_t)scene.at - far * 4);
    BLOCKS = ((uint32_t)1 << 31) + 1;
    BLOCK = BLOCKS - 1;
    for (THREAD = 0; THREAD < THREADS; THREAD++) {
        perf_write(scene.work);
    }
    assert_memory_equal(scene.at, scene.want, scene.bytes);
    scene.at[5] ^= 1;
    for (THREAD = 0; THREAD < THREADS; THREAD++) {
        perf_compare(scene.work);
    }
    assert_int_equal(scene.found, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_case),
        cmocka_unit_test(test_tolerance),
        cmocka_unit_test(test_beyond_4_gi),
    };
    return cmocka_run_group_tests_name("perf_kernels", tests, NULL, NULL);
}

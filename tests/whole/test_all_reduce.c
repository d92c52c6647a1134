/*
 * all_reduce through the public API, ranks in one process, compared bit for bit with a serial loop
 * in the documented order: types x operations x ranks x awkward counts x in place x alignment x
 * kind of memory, for every algorithm.
 *
 *     test_all_reduce group ALGO     one thread drives all ranks by groups: the full matrix
 *     test_all_reduce threads ALGO   a thread per rank: a seeded sample, for the sanitizers
 *     ... [seed]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "algo/step.h"
#include "fakes/reference.h"
#include "hoop.h"
#include "reduce/reduce.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 8
#define GUARD_BYTES ((size_t)64)
#define GUARD 0xa5

static const char *algo = "auto";
static uint64_t seed = 1;

/* One rank's buffers: guard | data | guard, in memory of either kind, off by some bytes. */
struct buffer {
    uint8_t *block, *data;
    size_t bytes;
    bool mapped;
};

struct rank {
    hoop_comm_t comm;
    struct buffer in, out;
};

struct world {
    int n;
    struct rank ranks[MAX_RANKS];
};

struct shape {
    hoop_datatype_t type;
    hoop_red_op_t op;
    size_t count;
    bool in_place, mapped;
    unsigned misalign; /* bytes */
};

static uint64_t next_random(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return seed >> 33;
}

static struct buffer buffer_make(size_t bytes, bool mapped, unsigned misalign)
{
    struct buffer b = {.bytes = bytes, .mapped = mapped};
    const size_t all = bytes + 2 * GUARD_BYTES + 64;
    void *block = NULL;
    if (mapped) {
        assert_int_equal(hoop_mem_alloc(&block, all, HOOP_MEM_HOST), HOOP_OK);
    } else {
        block = malloc(all);
        assert_non_null(block);
    }
    memset(block, GUARD, all);
    b.block = block;
    b.data = b.block + GUARD_BYTES + misalign;
    return b;
}

static void buffer_check_and_free(struct buffer *b)
{
    for (int i = 0; i < (int)GUARD_BYTES; i++) {
        assert_int_equal(b->data[-1 - i], GUARD);
        assert_int_equal(b->data[b->bytes + (size_t)i], GUARD);
    }
    if (b->mapped) {
        assert_int_equal(hoop_mem_free(b->block), HOOP_OK);
    } else {
        free(b->block);
    }
    *b = (struct buffer){0};
}

static int world_make(struct world *world, int n)
{
    hoop_unique_id_t id;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.algo = algo;
    config.op_timeout_ms = 60000;
    *world = (struct world){.n = n};
    int result = hoop_get_unique_id(&id);
    hoop_group_start();
    for (int r = 0; r < n && result == HOOP_OK; r++) {
        result = hoop_comm_init_rank_config(&world->ranks[r].comm, n, id, r, &config);
    }
    const int ended = hoop_group_end();
    return result == HOOP_OK ? ended : result;
}

static void world_end(struct world *world)
{
    for (int r = 0; r < world->n; r++) {
        assert_int_equal(hoop_comm_destroy(world->ranks[r].comm), HOOP_OK);
    }
}

/* Fills the buffers; the expected result in the documented order goes to `expected`. */
static void prepare(struct world *world, const struct shape *shape, bool ring, void *expected)
{
    const size_t size = hoop_datatype_bytes(shape->type);
    const void *src[2 * MAX_RANKS];
    const uint32_t n = (uint32_t)world->n;
    for (uint32_t r = 0; r < n; r++) {
        struct rank *rank = &world->ranks[r];
        rank->in = buffer_make(shape->count * size, shape->mapped, shape->misalign);
        reference_fill(shape->type, rank->in.data, shape->count, next_random());
        if (!shape->in_place) {
            rank->out = buffer_make(shape->count * size, shape->mapped, shape->misalign);
        }
        src[r] = rank->in.data;
        src[r + n] = rank->in.data;
    }
    const uint32_t divisor = shape->op == HOOP_AVG ? n : 0;
    if (!ring) {
        reference_fold(shape->type, shape->op, divisor, src, n, shape->count, expected);
        return;
    }
    struct hoop_plan plan = {.n = n, .count = shape->count, .type_bytes = (uint32_t)size};
    for (uint32_t s = 0; s < n; s++) {
        const struct hoop_range shard = hoop_shard_of(&plan, s);
        uint8_t *sum = (uint8_t *)expected + shard.off * size;
        memcpy(sum, (const uint8_t *)src[s + 1] + shard.off * size, shard.count * size);
        for (uint32_t hop = 2; hop <= n; hop++) {
            const void *pair[] = {sum, (const uint8_t *)src[s + hop] + shard.off * size};
            reference_fold(shape->type, shape->op, hop == n ? divisor : 0, pair, 2, shard.count,
                           sum);
        }
    }
}

static hoop_result_t call(struct rank *rank, const struct shape *shape)
{
    void *out = shape->in_place ? rank->in.data : rank->out.data;
    return hoop_all_reduce(rank->in.data, out, shape->count, shape->type, shape->op, rank->comm,
                           NULL);
}

struct thread_call {
    pthread_t thread;
    struct rank *rank;
    const struct shape *shape;
    hoop_result_t result;
};

static void *thread_main(void *arg)
{
    struct thread_call *c = arg;
    c->result = call(c->rank, c->shape);
    return NULL;
}

static void run(struct world *world, const struct shape *shape, bool threads)
{
    if (!threads) {
        assert_int_equal(hoop_group_start(), HOOP_OK);
        for (int r = 0; r < world->n; r++) {
            assert_int_equal(call(&world->ranks[r], shape), HOOP_OK);
        }
        const hoop_result_t result = hoop_group_end();
        if (result != HOOP_OK) {
            fail_msg("group: %s", hoop_get_last_error(NULL));
        }
        return;
    }
    struct thread_call calls[MAX_RANKS];
    for (int r = 0; r < world->n; r++) {
        calls[r] = (struct thread_call){.rank = &world->ranks[r], .shape = shape};
        assert_int_equal(pthread_create(&calls[r].thread, NULL, thread_main, &calls[r]), 0);
    }
    for (int r = 0; r < world->n; r++) {
        pthread_join(calls[r].thread, NULL);
        assert_int_equal(calls[r].result, HOOP_OK);
    }
}

/* Is the sum in the order of the ring, and not of the ranks? */
static bool in_ring_order(struct world *world, const struct shape *shape)
{
    char json[2048];
    size_t needed = 0;
    assert_int_equal(hoop_explain_json(world->ranks[0].comm, "all_reduce", shape->count,
                                       shape->type, shape->op, json, sizeof(json), &needed),
                     HOOP_OK);
    return world->n > 1 && strstr(json, "\"order\":\"ring\"") != NULL;
}

static void one(struct world *world, const struct shape *shape, bool threads)
{
    const size_t bytes = shape->count * hoop_datatype_bytes(shape->type);
    const bool ring = in_ring_order(world, shape);
    void *expected = malloc(bytes + 1);
    assert_non_null(expected);
    prepare(world, shape, ring, expected);
    run(world, shape, threads);
    for (int r = 0; r < world->n; r++) {
        struct rank *rank = &world->ranks[r];
        const void *got = shape->in_place ? rank->in.data : rank->out.data;
        if (memcmp(got, expected, bytes) != 0) {
            fail_msg("%s, rank %d of %d: %zu %s %s, in place %d, mapped %d, misaligned by %u", algo,
                     r, world->n, shape->count, hoop_datatype_name(shape->type),
                     hoop_op_name(shape->op), shape->in_place, shape->mapped, shape->misalign);
        }
        buffer_check_and_free(&rank->in);
        if (!shape->in_place) {
            buffer_check_and_free(&rank->out);
        }
    }
    free(expected);
}

static const size_t counts[] = {0,  1,  2,  3,  5,   7,   8,   9,    13,   14,
                                15, 63, 64, 65, 112, 113, 449, 1000, 4096, 9001};
#define N_COUNTS (sizeof(counts) / sizeof(counts[0]))

static bool skip_size(const struct shape *shape)
{
    return strcmp(algo, "oneshot") == 0 &&
           shape->count * hoop_datatype_bytes(shape->type) > HOOP_ONESHOT_MAX_BYTES;
}

/* Every type, op and count for n ranks; place, memory and alignment take turns. */
static void matrix(int n)
{
    struct world world;
    assert_int_equal(world_make(&world, n), HOOP_OK);
    unsigned turn = (unsigned)n;
    for (size_t i = 0; i < N_COUNTS * HOOP_NUM_OPS * HOOP_NUM_DATATYPES; i++, turn++) {
        const hoop_datatype_t type = (hoop_datatype_t)(i / N_COUNTS / HOOP_NUM_OPS);
        const unsigned size = (unsigned)hoop_datatype_bytes(type);
        const struct shape shape = {
            .type = type,
            .op = (hoop_red_op_t)(i / N_COUNTS % HOOP_NUM_OPS),
            .count = counts[i % N_COUNTS],
            .in_place = turn & 1,
            .mapped = turn & 2,
            .misalign = turn % 3 == 0   ? size % 64
                        : turn % 5 == 0 ? 1
                                        : 0,
        };
        if (!skip_size(&shape)) {
            one(&world, &shape, false);
        }
    }
    world_end(&world);
}

static void test_matrix(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++) {
        matrix(n);
    }
}

/* Sizes of several chunks and slices, a seeded sample of everything else. */
static void sample(unsigned samples, bool threads, size_t most_bytes)
{
    static const int sizes[] = {2, 3, 5, 8};
    for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct world world;
        assert_int_equal(world_make(&world, sizes[s]), HOOP_OK);
        for (unsigned i = 0; i < samples; i++) {
            const hoop_datatype_t type = (hoop_datatype_t)(next_random() % HOOP_NUM_DATATYPES);
            const size_t most = most_bytes / hoop_datatype_bytes(type);
            const struct shape shape = {
                .type = type,
                .op = (hoop_red_op_t)(next_random() % HOOP_NUM_OPS),
                .count = (size_t)next_random() % (i % 2 == 0 ? most : 2000),
                .in_place = next_random() & 1,
                .mapped = next_random() & 1,
                .misalign = (unsigned)(next_random() % 4 == 0 ? next_random() % 64 : 0),
            };
            if (!skip_size(&shape)) {
                one(&world, &shape, threads);
            }
        }
        world_end(&world);
    }
}

static void test_large(void **state)
{
    (void)state;
    sample(6, false, (size_t)5 << 20);
}

static void test_threads(void **state)
{
    (void)state;
    sample(12, true, (size_t)600 << 10);
}

/* Several operations on each comm in one group; they run in order. */
static void test_several_in_a_group(void **state)
{
    (void)state;
    struct world world;
    int64_t values[3][5];
    assert_int_equal(world_make(&world, 3), HOOP_OK);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 5; i++) {
            values[r][i] = r + i;
            assert_int_equal(hoop_all_reduce(&values[r][i], &values[r][i], 1, HOOP_INT64, HOOP_SUM,
                                             world.ranks[r].comm, NULL),
                             HOOP_OK);
        }
        assert_int_equal(hoop_barrier(world.ranks[r].comm, NULL), HOOP_OK);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 5; i++) {
            assert_int_equal(values[r][i], 3 + 3 * i);
        }
    }
    world_end(&world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_several_in_a_group),
    };
    const struct CMUnitTest threads[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_several_in_a_group),
    };
    if (argc < 3) {
        fprintf(stderr, "usage: %s group|threads ALGO [seed]\n", argv[0]);
        return 2;
    }
    algo = argv[2];
    seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    return strcmp(argv[1], "group") == 0 ? cmocka_run_group_tests(group, NULL, NULL)
                                         : cmocka_run_group_tests(threads, NULL, NULL);
}

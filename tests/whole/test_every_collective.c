/*
 * Every collective but all_reduce (test_all_reduce.c) through the public API, ranks in one process,
 * compared bit for bit with a serial loop in the documented order: collectives x roots x types x
 * operations x awkward counts x in place x alignment x kind of memory, with guards around buffers.
 *
 *     test_every_collective group ALGO     one thread drives all ranks by groups
 *     test_every_collective threads ALGO   a thread per rank: a seeded sample, for the sanitizers
 *     ... [seed] [operations]
 */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "algo/step.h"
#include "fakes/fake_cuda.h"
#include "fakes/reference.h"
#include "hoop.h"
#include "memory/cuda.h"
#include "reduce/reduce.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 8
#define GUARD_BYTES ((size_t)64)
#define GUARD 0xa5

static const char *algo = "auto";
static uint64_t seed = 1;
static unsigned long operations = 20000;

struct buffer {
    uint8_t *block, *data; /* as this test sees them */
    size_t bytes;
    bool mapped, borrowed; /* borrowed: part of another buffer */
    ptrdiff_t view;        /* of memory of a device: from its address to where it is seen */
};

struct rank {
    hoop_comm_t comm;
    struct buffer in, out;
    hoop_stream_t stream; /* some calls of a device's */
};

struct world {
    int n;
    struct rank ranks[MAX_RANKS];
};

struct shape {
    enum hoop_collective collective;
    hoop_datatype_t type;
    hoop_red_op_t op;
    size_t count;
    int root;
    bool in_place, mapped;
    unsigned misalign; /* bytes */
};

static uint64_t next_random(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return seed >> 33;
}

/* ---- A device, if HOOP_CUDA names a fake one ---------------------------------------------------
 */

static ptrdiff_t device_view;           /* 0: there is none */
static hoop_stream_t device_streams[3]; /* the first is the default one */

static void device_open(void)
{
    const char *path = getenv("HOOP_CUDA");
    void *library = path != NULL && device_view == 0 ? dlopen(path, RTLD_NOW) : NULL;
    fake_cuda_view_t *view = NULL;
    hoop_cu_context_t context = NULL;
    if (library == NULL) {
        return;
    }
    *(void **)&view = dlsym(library, "fake_cuda_view");
    assert_non_null(view);
    device_view = view();
    assert_int_equal(hoop_cuda_context(&context), HOOP_OK);
    assert_int_equal(hoop_cuda.context_push(context), 0);
    assert_int_equal(hoop_cuda.stream_create(&device_streams[1], 0), 0);
    assert_int_equal(hoop_cuda.stream_create(&device_streams[2], 0), 0);
}

/* ---- Buffers -------------------------------------------------------------------------------- */

static struct buffer buffer_make(size_t bytes, bool mapped, unsigned misalign)
{
    struct buffer b = {.bytes = bytes, .mapped = mapped};
    const size_t all = bytes + 2 * GUARD_BYTES + 64;
    void *block = NULL;
    if (device_view != 0 && next_random() % 4 != 0) {
        assert_int_equal(hoop_mem_alloc(&block, all, HOOP_MEM_DEVICE), HOOP_OK);
        b.view = device_view;
        block = (uint8_t *)block + b.view;
    } else if (mapped) {
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
    for (int i = 0; i < (int)GUARD_BYTES && !b->borrowed; i++) {
        assert_int_equal(b->data[-1 - i], GUARD);
        assert_int_equal(b->data[b->bytes + (size_t)i], GUARD);
    }
    if (b->view != 0 && !b->borrowed) {
        assert_int_equal(hoop_mem_free(b->block - b->view), HOOP_OK);
    } else if (b->mapped && !b->borrowed) {
        assert_int_equal(hoop_mem_free(b->block), HOOP_OK);
    } else if (!b->borrowed) {
        free(b->block);
    }
    *b = (struct buffer){0};
}

static size_t extent_bytes(const struct world *world, const struct shape *shape, uint8_t extent,
                           int rank)
{
    return hoop_extent_blocks(extent, (uint64_t)world->n, rank == shape->root) * shape->count *
           hoop_datatype_bytes(shape->type);
}

static const struct hoop_collective_row *row_of(const struct shape *shape)
{
    return &hoop_collectives[shape->collective];
}

/* Both buffers of a rank; in place one is part of the other, as NCCL has it. */
static void rank_prepare(const struct world *world, const struct shape *shape, struct rank *rank,
                         int r)
{
    const size_t block = shape->count * hoop_datatype_bytes(shape->type);
    const size_t in = extent_bytes(world, shape, row_of(shape)->in, r);
    const size_t out = extent_bytes(world, shape, row_of(shape)->out, r);
    if (!shape->in_place || in == 0 || out == 0) {
        rank->in = buffer_make(in, shape->mapped, shape->misalign);
        rank->out = buffer_make(out, shape->mapped, shape->misalign);
    } else if (in >= out) {
        const size_t off = in > out ? (size_t)r * block : 0;
        rank->in = buffer_make(in, shape->mapped, shape->misalign);
        rank->out = (struct buffer){
            .data = rank->in.data + off, .bytes = out, .borrowed = true, .view = rank->in.view};
    } else {
        rank->out = buffer_make(out, shape->mapped, shape->misalign);
        rank->in = (struct buffer){.data = rank->out.data + (size_t)r * block,
                                   .bytes = in,
                                   .borrowed = true,
                                   .view = rank->out.view};
    }
    reference_fill(shape->type, rank->in.data, in / hoop_datatype_bytes(shape->type),
                   next_random());
    rank->stream = device_streams[next_random() % 3];
}

/* ---- What is expected ----------------------------------------------------------------------- */

/* The fold of a range of everybody's copied input, lower rank first, from `first` round. */
static void fold_from(const struct world *world, const struct shape *shape, uint8_t **ins,
                      int first, size_t off, size_t count, uint8_t *ret)
{
    const size_t size = hoop_datatype_bytes(shape->type);
    const uint32_t n = (uint32_t)world->n, divisor = shape->op == HOOP_AVG ? n : 0;
    const void *src[MAX_RANKS];
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *in = ins[((uint32_t)first + i) % n];
        assert(in != NULL);
        src[i] = in + off * size;
    }
    reference_fold(shape->type, shape->op, divisor, src, n, count, ret);
}

/* The same, rounded at each hop: ring and chain. */
static void fold_hops(const struct world *world, const struct shape *shape, uint8_t **ins,
                      int first, size_t off, size_t count, uint8_t *ret)
{
    const size_t size = hoop_datatype_bytes(shape->type);
    const int n = world->n;
    assert(ins[first % n] != NULL);
    memcpy(ret, ins[first % n] + off * size, count * size);
    for (int hop = 1; hop < n; hop++) {
        const void *pair[] = {ret, ins[(first + hop) % n] + off * size};
        const bool last = hop == n - 1 && shape->op == HOOP_AVG;
        reference_fold(shape->type, shape->op, last ? (uint32_t)n : 0, pair, 2, count, ret);
    }
}

/* Which order the plan has: that of the ranks, or round the ring. */
static bool goes_round(const struct world *world, const struct shape *shape)
{
    char json[2048];
    size_t needed = 0;
    if (!row_of(shape)->folds) {
        return false;
    }
    assert_int_equal(hoop_explain_json(world->ranks[0].comm, row_of(shape)->name, shape->count,
                                       shape->type, shape->op, json, sizeof(json), &needed),
                     HOOP_OK);
    return world->n > 1 && strstr(json, "\"order\":\"ring\"") != NULL;
}

static void expect(const struct world *world, const struct shape *shape, bool round, uint8_t **ins,
                   int r, uint8_t *ret)
{
    const size_t count = shape->count, block = count * hoop_datatype_bytes(shape->type);
    const struct hoop_collective_row *row = row_of(shape);
    const size_t off = hoop_extent_is_each(row->in) ? (size_t)r * count : 0;
    if (row->folds) {
        /* reduce_scatter's shard is the rank's own, reduce's chain ends at the root: after r+1. */
        (round ? fold_hops : fold_from)(world, shape, ins, round ? r + 1 : 0, off, count, ret);
        return;
    }
    const bool root_only = row->in >= HOOP_EXTENT_ROOT_ONE;
    for (int q = 0; q < world->n; q++) {
        const int source = root_only ? shape->root : q;
        const size_t size = hoop_datatype_bytes(shape->type);
        const size_t to = hoop_extent_is_each(row->out) ? (size_t)q * block : 0;
        if (hoop_extent_is_each(row->out) || root_only || q == r) {
            assert(ins[source] != NULL);
            memcpy(ret + to, ins[source] + off * size, block);
        }
    }
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static hoop_result_t call(const struct rank *rank, const struct shape *s)
{
    const void *in = rank->in.data - rank->in.view;
    void *out = rank->out.data - rank->out.view;
    switch (s->collective) {
    case HOOP_COLL_ALL_REDUCE:
        return hoop_all_reduce(in, out, s->count, s->type, s->op, rank->comm, rank->stream);
    case HOOP_COLL_REDUCE_SCATTER:
        return hoop_reduce_scatter(in, out, s->count, s->type, s->op, rank->comm, rank->stream);
    case HOOP_COLL_ALL_GATHER:
        return hoop_all_gather(in, out, s->count, s->type, rank->comm, rank->stream);
    case HOOP_COLL_BROADCAST:
        return hoop_broadcast(in, out, s->count, s->type, s->root, rank->comm, rank->stream);
    case HOOP_COLL_REDUCE:
        return hoop_reduce(in, out, s->count, s->type, s->op, s->root, rank->comm, rank->stream);
    case HOOP_COLL_GATHER:
        return hoop_gather(in, out, s->count, s->type, s->root, rank->comm, rank->stream);
    case HOOP_COLL_SCATTER:
        return hoop_scatter(in, out, s->count, s->type, s->root, rank->comm, rank->stream);
    case HOOP_COLL_ALLTOALL:
        return hoop_alltoall(in, out, s->count, s->type, rank->comm, rank->stream);
    case HOOP_COLL_ALLTOALLV: { /* of nothing: what there is more of, test_transfers.c has */
        static const size_t none[MAX_RANKS] = {0};
        return hoop_alltoallv(in, none, none, out, none, none, s->type, rank->comm, rank->stream);
    }
    default:
        return hoop_barrier(rank->comm, rank->stream);
    }
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

static void run_grouped(struct world *world, const struct shape *shape)
{
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < world->n; r++) {
        if (call(&world->ranks[r], shape) != HOOP_OK) {
            fail_msg("%s, rank %d: %s", row_of(shape)->name, r, hoop_get_last_error(NULL));
        }
    }
    if (hoop_group_end() != HOOP_OK) {
        fail_msg("group: %s", hoop_get_last_error(NULL));
    }
}

static void run_threads(struct world *world, const struct shape *shape)
{
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

/* Runs one shape and compares everybody's output, and the inputs that are not also outputs. */
static void one(struct world *world, const struct shape *shape, bool threads)
{
    uint8_t *ins[MAX_RANKS] = {NULL};
    uint8_t *expected =
        calloc((size_t)world->n * shape->count + 1, hoop_datatype_bytes(shape->type));
    const bool round = goes_round(world, shape);
    assert_non_null(expected);
    for (int r = 0; r < world->n; r++) {
        rank_prepare(world, shape, &world->ranks[r], r);
        ins[r] = malloc(world->ranks[r].in.bytes + 1);
        assert_non_null(ins[r]);
        memcpy(ins[r], world->ranks[r].in.data, world->ranks[r].in.bytes);
    }
    (threads ? run_threads : run_grouped)(world, shape);
    for (int r = 0; r < world->n; r++) {
        struct rank *rank = &world->ranks[r];
        const bool apart = !rank->in.borrowed && !rank->out.borrowed;
        assert(ins[r] != NULL);
        if (rank->out.bytes > 0) {
            expect(world, shape, round, ins, r, expected);
        }
        if (memcmp(rank->out.data, expected, rank->out.bytes) != 0 ||
            (apart && memcmp(rank->in.data, ins[r], rank->in.bytes) != 0)) {
            fail_msg("%s by %s, rank %d of %d, root %d: %zu %s %s, in place %d, mapped %d, "
                     "misaligned by %u",
                     row_of(shape)->name, algo, r, world->n, shape->root, shape->count,
                     hoop_datatype_name(shape->type), hoop_op_name(shape->op), shape->in_place,
                     shape->mapped, shape->misalign);
        }
    }
    for (int r = 0; r < world->n; r++) {
        buffer_check_and_free(&world->ranks[r].in);
        buffer_check_and_free(&world->ranks[r].out);
        free(ins[r]);
    }
    free(expected); /* NOLINT(clang-analyzer-unix.Malloc): every rank's copy was freed */
}

/* ---- Worlds --------------------------------------------------------------------------------- */

static void world_make(struct world *world, int n)
{
    hoop_unique_id_t id;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.algo = algo;
    config.op_timeout_ms = 60000;
    device_open();
    *world = (struct world){.n = n};
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    hoop_group_start();
    for (int r = 0; r < n; r++) {
        hoop_comm_init_rank_config(&world->ranks[r].comm, n, id, r, &config);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
}

static void world_end(struct world *world)
{
    for (int r = 0; r < world->n; r++) {
        assert_int_equal(hoop_comm_destroy(world->ranks[r].comm), HOOP_OK);
    }
}

static bool too_large(const struct world *world, const struct shape *shape)
{
    const uint64_t blocks = hoop_extent_blocks(row_of(shape)->in, (uint64_t)world->n, true);
    return strcmp(algo, "oneshot") == 0 &&
           blocks * shape->count * hoop_datatype_bytes(shape->type) > HOOP_ONESHOT_MAX_BYTES;
}

static bool in_place_exists(enum hoop_collective collective)
{
    return collective != HOOP_COLL_ALLTOALL;
}

static struct shape any_shape(const struct world *world, size_t most_bytes)
{
    static const size_t counts[] = {0,  1,  2,  3,  5,   7,   8,   9,    13,   14,
                                    15, 63, 64, 65, 112, 113, 449, 1000, 4096, 9001};
    const hoop_datatype_t type = (hoop_datatype_t)(next_random() % HOOP_NUM_DATATYPES);
    const size_t most = most_bytes / hoop_datatype_bytes(type);
    struct shape ret = {
        .collective = (enum hoop_collective)(next_random() % HOOP_COLL_COUNT),
        .type = type,
        .op = (hoop_red_op_t)(next_random() % HOOP_NUM_OPS),
        .count = counts[next_random() % (sizeof(counts) / sizeof(counts[0]))],
        .root = (int)(next_random() % (uint64_t)world->n),
        .in_place = next_random() & 1,
        .mapped = next_random() & 1,
        .misalign = (unsigned)(next_random() % 3 == 0 ? next_random() % 64 : 0),
    };
    ret.in_place = ret.in_place && in_place_exists(ret.collective);
    if (next_random() % 4 == 0) {
        ret.count = next_random() % most;
    }
    if (!row_of(&ret)->folds) {
        ret.op = HOOP_SUM;
    }
    /* all_reduce has a test of its own; here it is in between, where the order does not count. */
    if (ret.collective == HOOP_COLL_ALL_REDUCE) {
        ret.op = HOOP_MAX;
    }
    return ret;
}

/* A collective of a count, from every root; the rest takes turns. */
static void every_root(struct world *world, struct shape shape, unsigned *turn)
{
    static const hoop_datatype_t types[] = {HOOP_FLOAT32, HOOP_FLOAT16, HOOP_INT64, HOOP_UINT8};
    const int roots = hoop_collective_is_rooted(shape.collective) ? world->n : 1;
    for (shape.root = 0; shape.root < roots; shape.root++, (*turn)++) {
        shape.type = types[*turn % 4];
        shape.op = (hoop_red_op_t)(row_of(&shape)->folds ? *turn % HOOP_NUM_OPS : 0);
        shape.in_place = (*turn & 1) != 0 && in_place_exists(shape.collective);
        shape.mapped = *turn & 2;
        shape.misalign = *turn % 3 == 0 ? 1 : 0;
        if (!too_large(world, &shape)) {
            one(world, &shape, false);
        }
    }
}

/* Every collective, every root, in place and not, of a few awkward counts. */
static void test_all(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 3, 17, 1000};
    unsigned turn = 0;
    for (int n = 1; n <= MAX_RANKS; n++) {
        struct world world;
        world_make(&world, n);
        for (unsigned i = 0; i < (unsigned)HOOP_COLL_COUNT * 5; i++) {
            const struct shape shape = {.collective = (enum hoop_collective)(i / 5),
                                        .count = counts[i % 5]};
            if (shape.collective != HOOP_COLL_ALL_REDUCE) {
                every_root(&world, shape, &turn);
            }
        }
        world_end(&world);
    }
}

static void sample(unsigned samples, bool threads, size_t most_bytes)
{
    static const int sizes[] = {2, 3, 5, 8};
    for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct world world;
        world_make(&world, sizes[s]);
        for (unsigned i = 0; i < samples; i++) {
            const struct shape shape = any_shape(&world, most_bytes);
            if (!too_large(&world, &shape)) {
                one(&world, &shape, threads);
            }
        }
        world_end(&world);
    }
}

static void test_sample(void **state)
{
    (void)state;
    sample(50, false, (size_t)100 << 10);
    sample(3, false, (size_t)2 << 20);
}

static void test_threads(void **state)
{
    (void)state;
    sample(60, true, (size_t)200 << 10);
}

/* ---- Small operations, as fast as they go --------------------------------------------------- */

/* Rank `slow` dawdles now and then, which is when others could run ahead of it. */
struct racer {
    pthread_t thread;
    hoop_comm_t comm;
    int rank, n, slow;
    unsigned long count, wrong;
    hoop_result_t result;
};

static uint64_t race_input(unsigned long i, int rank, int block)
{
    return i * 1000003u + (uint64_t)rank * 101 + (uint64_t)block;
}

static bool race_is(const struct racer *racer, enum hoop_collective collective, unsigned long i,
                    int root, const uint64_t *out)
{
    const int n = racer->n, me = racer->rank;
    const bool each = hoop_extent_is_each(hoop_collectives[collective].in);
    const int block = each ? me : 0;
    uint64_t sum = 0;
    bool right = true;
    for (int q = 0; q < n; q++) {
        sum += race_input(i, q, block);
        if (hoop_extent_is_each(hoop_collectives[collective].out)) {
            right &= out[q] == race_input(i, q, block);
        }
    }
    if (hoop_collectives[collective].folds) {
        right = out[0] == sum;
    } else if (hoop_collectives[collective].in >= HOOP_EXTENT_ROOT_ONE) {
        right = out[0] == race_input(i, root, block);
    }
    return right;
}

static void *race(void *arg)
{
    struct racer *racer = arg;
    uint64_t in[MAX_RANKS] = {0}, out[MAX_RANKS] = {0},
             random = seed; /* the same calls on all ranks */
    for (unsigned long i = 0; i < racer->count && racer->result == HOOP_OK; i++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        const struct shape shape = {.collective =
                                        (enum hoop_collective)((random >> 40) % HOOP_COLL_COUNT),
                                    .type = HOOP_UINT64,
                                    .count = 1,
                                    .root = (int)((random >> 50) % (unsigned)racer->n)};
        const struct rank rank = {
            .comm = racer->comm, .in.data = (uint8_t *)in, .out.data = (uint8_t *)out};
        for (int b = 0; b < racer->n; b++) {
            in[b] = race_input(i, racer->rank, b);
        }
        racer->result = call(&rank, &shape);
        const uint8_t extent = row_of(&shape)->out;
        if (hoop_extent_blocks(extent, 1, racer->rank == shape.root) > 0 &&
            !race_is(racer, shape.collective, i, shape.root, out)) {
            racer->wrong++;
        }
        for (volatile int spin = 0; racer->rank == racer->slow && i % 64 == 0 && spin < 3000;) {
            spin = spin + 1;
        }
    }
    return NULL;
}

/* Rooted and unrooted mixed: nobody's cells are overwritten before all have taken from them. */
static void test_race(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3};
    for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct world world;
        struct racer racers[MAX_RANKS];
        world_make(&world, sizes[s]);
        for (int r = 0; r < world.n; r++) {
            racers[r] = (struct racer){.comm = world.ranks[r].comm,
                                       .rank = r,
                                       .n = world.n,
                                       .slow = (int)(seed % (unsigned)world.n),
                                       .count = operations};
            assert_int_equal(pthread_create(&racers[r].thread, NULL, race, &racers[r]), 0);
        }
        for (int r = 0; r < world.n; r++) {
            pthread_join(racers[r].thread, NULL);
        }
        for (int r = 0; r < world.n; r++) {
            assert_int_equal(racers[r].result, HOOP_OK);
            assert_int_equal(racers[r].wrong, 0);
        }
        world_end(&world);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_sample),
    };
    const struct CMUnitTest threads[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_race),
    };
    if (argc < 3) {
        fprintf(stderr, "usage: %s group|threads ALGO [seed] [operations]\n", argv[0]);
        return 2;
    }
    algo = argv[2];
    seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    operations = argc > 4 ? strtoul(argv[4], NULL, 10) : operations;
    return strcmp(argv[1], "group") == 0 ? cmocka_run_group_tests(group, NULL, NULL)
                                         : cmocka_run_group_tests(threads, NULL, NULL);
}

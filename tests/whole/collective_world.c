/* See collective_world.h. */
#include "whole/collective_world.h"

#include "algo/step.h"
#include "fakes/fake_cuda.h"
#include "fakes/reference.h"
#include "memory/cuda.h"
#include "reduce/reduce.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GUARD_BYTES ((size_t)64)
#define GUARD 0xa5

const char *world_algo = "auto";
uint64_t world_seed = 1;
const size_t world_counts[WORLD_COUNTS] = {0,  1,  2,  3,  5,   7,   8,   9,    13,   14,
                                           15, 63, 64, 65, 112, 113, 449, 1000, 4096, 9001};

bool world_options(int argc, char **argv, bool *ret_threads)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s group|threads ALGO [seed]\n", argv[0]);
        return false;
    }
    *ret_threads = strcmp(argv[1], "threads") == 0;
    world_algo = argv[2];
    world_seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    return true;
}

uint64_t world_random(void)
{
    world_seed = world_seed * 6364136223846793005ull + 1442695040888963407ull;
    return world_seed >> 33;
}

bool world_leaves_out(void)
{
    const char *every = getenv("HOOP_TEST_SAMPLE");
    const uint64_t k = every != NULL ? strtoull(every, NULL, 10) : 0;
    return k > 1 && world_random() % k != 0;
}

static const struct hoop_collective_row *row_of(const struct world_shape *shape)
{
    return &hoop_collectives[shape->collective];
}

/* ---- A device, if HOOP_CUDA names a fake one ------------------------------------------------ */

static ptrdiff_t device_view; /* 0: no device */
static bool device_mixed;     /* some buffers are host memory */
static fake_cuda_launches_t *device_launches;
static int devices; /* rank r's device is r modulo this */
static hoop_cu_context_t device_contexts[8];
static hoop_stream_t device_streams[8][3]; /* the first one is the default stream */

static void device_open(void)
{
    const char *path = getenv("HOOP_CUDA");
    void *library = NULL;
    fake_cuda_view_t *view = NULL;
    if (path == NULL || device_view != 0) {
        return;
    }
    library = dlopen(path, RTLD_NOW);
    assert_non_null(library);
    *(void **)&view = dlsym(library, "fake_cuda_view");
    *(void **)&device_launches = dlsym(library, "fake_cuda_launches");
    assert_non_null(view);
    device_view = view();
    assert_true(hoop_cuda_load());
    assert_int_equal(hoop_cuda.device_count(&devices), 0);
    for (int i = devices - 1; i >= 0; i--) { /* the last one that is made current stays so */
        assert_int_equal(hoop_cuda.primary_retain(&device_contexts[i], i), 0);
        assert_int_equal(hoop_cuda.context_push(device_contexts[i]), 0);
        assert_int_equal(hoop_cuda.stream_create(&device_streams[i][1], 0), 0);
        assert_int_equal(hoop_cuda.stream_create(&device_streams[i][2], 0), 0);
    }
}

static void device_settle(void)
{
    for (int i = 0; i < devices; i++) {
        hoop_cu_context_t popped = NULL;
        assert_int_equal(hoop_cuda.context_push(device_contexts[i]), 0);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(hoop_cuda.stream_synchronize(device_streams[i][k]), 0);
        }
        assert_int_equal(hoop_cuda.context_pop(&popped), 0);
    }
}

/* Checks whether kernels folded on the device if, and only if, they may. */
static void device_check(void)
{
    const char *transport = getenv("HOOP_TRANSPORT");
    const bool direct = (strcmp(world_algo, "auto") == 0 || strcmp(world_algo, "direct") == 0) &&
                        (transport == NULL || strcmp(transport, "tcp") != 0);
    if (device_view != 0) {
        assert_int_equal(device_launches() > 0, direct && getenv("FAKE_CUDA_NO_KERNELS") == NULL);
    }
}

static void *device_alloc(size_t bytes, bool plain, int rank)
{
    hoop_cu_context_t popped = NULL;
    hoop_cu_address_t at = 0;
    void *block = NULL;
    assert_int_equal(hoop_cuda.context_push(device_contexts[rank % devices]), 0);
    if (plain) {
        assert_int_equal(hoop_cuda.alloc(&at, bytes), 0);
        block = (void *)(uintptr_t)at;
    } else {
        assert_int_equal(hoop_mem_alloc(&block, bytes, HOOP_MEM_DEVICE), HOOP_OK);
    }
    assert_int_equal(hoop_cuda.context_pop(&popped), 0);
    return block;
}

/* ---- Buffers -------------------------------------------------------------------------------- */

static struct world_buffer buffer_make(int rank, size_t bytes, bool mapped, unsigned misalign)
{
    struct world_buffer b = {.bytes = bytes, .mapped = mapped};
    const size_t all = bytes + 2 * GUARD_BYTES + 64;
    void *block = NULL;
    if (device_view != 0 && (!device_mixed || world_random() % 4 != 0)) {
        b.plain = world_random() & 1;
        b.view = device_view;
        block = (uint8_t *)device_alloc(all, b.plain, rank) + b.view;
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

static void buffer_check_and_free(struct world_buffer *b)
{
    if (b->borrowed) {
        return;
    }
    for (int i = 0; i < (int)GUARD_BYTES; i++) {
        assert_int_equal(b->data[-1 - i], GUARD);
        assert_int_equal(b->data[b->bytes + (size_t)i], GUARD);
    }
    if (b->plain) {
        assert_int_equal(hoop_cuda.free((uintptr_t)(b->block - b->view)), 0);
    } else if (b->view != 0 || b->mapped) {
        assert_int_equal(hoop_mem_free(b->block - b->view), HOOP_OK);
    } else {
        free(b->block);
    }
    *b = (struct world_buffer){0};
}

static size_t extent_bytes(const struct world *world, const struct world_shape *shape,
                           uint8_t extent, int rank)
{
    return hoop_extent_blocks(extent, (uint64_t)world->n, rank == shape->root) * shape->count *
           hoop_datatype_bytes(shape->type);
}

/* Makes both buffers of a rank; in place one is a part of the other, as with NCCL. */
static void rank_prepare(const struct world *world, const struct world_shape *shape,
                         struct world_rank *rank, int r)
{
    const size_t block = shape->count * hoop_datatype_bytes(shape->type);
    const size_t in = extent_bytes(world, shape, row_of(shape)->in, r);
    const size_t out = extent_bytes(world, shape, row_of(shape)->out, r);
    if (!shape->in_place || in == 0 || out == 0) {
        rank->in = buffer_make(r, in, shape->mapped, shape->misalign);
        rank->out = buffer_make(r, out, shape->mapped, shape->misalign);
    } else if (in >= out) {
        const size_t off = in > out ? (size_t)r * block : 0;
        rank->in = buffer_make(r, in, shape->mapped, shape->misalign);
        rank->out = (struct world_buffer){
            .data = rank->in.data + off, .bytes = out, .borrowed = true, .view = rank->in.view};
    } else {
        rank->out = buffer_make(r, out, shape->mapped, shape->misalign);
        rank->in = (struct world_buffer){.data = rank->out.data + (size_t)r * block,
                                         .bytes = in,
                                         .borrowed = true,
                                         .view = rank->out.view};
    }
    reference_fill(shape->type, rank->in.data, in / hoop_datatype_bytes(shape->type),
                   world_random());
    rank->stream = device_streams[devices > 0 ? r % devices : 0][world_random() % 3];
}

/* ---- What is expected ----------------------------------------------------------------------- */

/* Folds a range of all ranks' copied inputs: lower ranks first, or beginning with `first`. */
static void fold_from(const struct world *world, const struct world_shape *shape, uint8_t **ins,
                      int first, size_t off, size_t count, uint8_t *ret)
{
    const size_t size = hoop_datatype_bytes(shape->type);
    const uint32_t n = (uint32_t)world->n, divisor = shape->op == HOOP_AVG ? n : 0;
    const void *src[WORLD_MOST_RANKS];
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *in = ins[((uint32_t)first + i) % n];
        assert(in != NULL);
        src[i] = in + off * size;
    }
    reference_fold(shape->type, shape->op, divisor, src, n, count, ret);
}

/* The same, rounded after every addition, as ring and chain do. */
static void fold_hops(const struct world *world, const struct world_shape *shape, uint8_t **ins,
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

/* Does the plan fold round the ring, and not in rank order? */
static bool goes_round(const struct world *world, const struct world_shape *shape)
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

/* Each shard goes round the ring. */
static void fold_shards(const struct world *world, const struct world_shape *shape, uint8_t **ins,
                        uint8_t *ret)
{
    const struct hoop_plan plan = {.n = (uint32_t)world->n,
                                   .count = shape->count,
                                   .type_bytes = (uint32_t)hoop_datatype_bytes(shape->type)};
    for (int s = 0; s < world->n; s++) {
        const struct hoop_range shard = hoop_shard_of(&plan, (uint64_t)s);
        fold_hops(world, shape, ins, s + 1, shard.off, shard.count,
                  ret + shard.off * plan.type_bytes);
    }
}

static void expect(const struct world *world, const struct world_shape *shape, bool round,
                   uint8_t **ins, int r, uint8_t *ret)
{
    const size_t count = shape->count, block = count * hoop_datatype_bytes(shape->type);
    const struct hoop_collective_row *row = row_of(shape);
    const size_t off = hoop_extent_is_each(row->in) ? (size_t)r * count : 0;
    if (round && shape->collective == HOOP_COLL_ALL_REDUCE) {
        fold_shards(world, shape, ins, ret);
        return;
    }
    if (row->folds) {
        /* reduce_scatter's shard is the rank's own, and reduce's chain ends at the root: both begin
         * at r+1 */
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

hoop_result_t world_call(const struct world_rank *rank, const struct world_shape *s)
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
    case HOOP_COLL_ALLTOALLV: { /* with one count for all; test_transfers.c has the others */
        static const size_t none[WORLD_MOST_RANKS] = {0};
        return hoop_alltoallv(in, none, none, out, none, none, s->type, rank->comm, rank->stream);
    }
    default:
        return hoop_barrier(rank->comm, rank->stream);
    }
}

struct thread_call {
    pthread_t thread;
    struct world_rank *rank;
    const struct world_shape *shape;
    hoop_result_t result;
};

static void *thread_main(void *arg)
{
    struct thread_call *c = arg;
    c->result = world_call(c->rank, c->shape);
    return NULL;
}

static void run_grouped(struct world *world, const struct world_shape *shape)
{
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < world->n; r++) {
        if (world_call(&world->ranks[r], shape) != HOOP_OK) {
            fail_msg("%s, rank %d: %s", row_of(shape)->name, r, hoop_get_last_error(NULL));
        }
    }
    if (hoop_group_end() != HOOP_OK) {
        fail_msg("group: %s", hoop_get_last_error(NULL));
    }
    device_settle();
}

static void run_threads(struct world *world, const struct world_shape *shape)
{
    struct thread_call calls[WORLD_MOST_RANKS];
    for (int r = 0; r < world->n; r++) {
        calls[r] = (struct thread_call){.rank = &world->ranks[r], .shape = shape};
        assert_int_equal(pthread_create(&calls[r].thread, NULL, thread_main, &calls[r]), 0);
    }
    for (int r = 0; r < world->n; r++) {
        pthread_join(calls[r].thread, NULL);
        assert_int_equal(calls[r].result, HOOP_OK);
    }
}

/* Does a shape need more than the algorithm can do? */
static bool too_large(const struct world *world, const struct world_shape *shape)
{
    const uint64_t blocks = hoop_extent_blocks(row_of(shape)->in, (uint64_t)world->n, true);
    return strcmp(world_algo, "oneshot") == 0 &&
           blocks * shape->count * hoop_datatype_bytes(shape->type) > HOOP_ONESHOT_MAX_BYTES;
}

void world_run(struct world *world, const struct world_shape *shape, bool threads)
{
    uint8_t *ins[WORLD_MOST_RANKS] = {NULL};
    if (too_large(world, shape)) {
        return;
    }
    uint8_t *expected =
        calloc((size_t)world->n * shape->count + 1, hoop_datatype_bytes(shape->type));
    const bool round = goes_round(world, shape);
    assert_non_null(expected);
    device_mixed = device_view != 0 && world_random() % 3 == 0;
    for (int r = 0; r < world->n; r++) {
        rank_prepare(world, shape, &world->ranks[r], r);
        ins[r] = malloc(world->ranks[r].in.bytes + 1);
        assert_non_null(ins[r]);
        memcpy(ins[r], world->ranks[r].in.data, world->ranks[r].in.bytes);
    }
    (threads ? run_threads : run_grouped)(world, shape);
    for (int r = 0; r < world->n; r++) {
        struct world_rank *rank = &world->ranks[r];
        const bool apart = !rank->in.borrowed && !rank->out.borrowed;
        assert(ins[r] != NULL);
        const bool alike = shape->collective == HOOP_COLL_ALL_REDUCE && r > 0;
        if (rank->out.bytes > 0 && !alike) {
            expect(world, shape, round, ins, r, expected);
        }
        if (memcmp(rank->out.data, expected, rank->out.bytes) != 0 ||
            (apart && memcmp(rank->in.data, ins[r], rank->in.bytes) != 0)) {
            fail_msg("%s by %s, rank %d of %d, root %d: %zu %s %s, in place %d, mapped %d, "
                     "misaligned by %u",
                     row_of(shape)->name, world_algo, r, world->n, shape->root, shape->count,
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

void world_make(struct world *world, int n)
{
    hoop_unique_id_t id;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.algo = world_algo;
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

void world_end(struct world *world)
{
    for (int r = 0; r < world->n; r++) {
        assert_int_equal(hoop_comm_destroy(world->ranks[r].comm), HOOP_OK);
    }
}

/* ---- Samples -------------------------------------------------------------------------------- */

/* Draws a shape of this collective, or of any. */
static struct world_shape any_shape(const struct world *world, enum hoop_collective collective,
                                    size_t most_bytes)
{
    const hoop_datatype_t type = (hoop_datatype_t)(world_random() % HOOP_NUM_DATATYPES);
    const size_t most = most_bytes / hoop_datatype_bytes(type);
    struct world_shape ret = {
        .collective = collective < HOOP_COLL_COUNT
                          ? collective
                          : (enum hoop_collective)(world_random() % HOOP_COLL_COUNT),
        .type = type,
        .op = (hoop_red_op_t)(world_random() % HOOP_NUM_OPS),
        .count = world_counts[world_random() % WORLD_COUNTS],
        .root = (int)(world_random() % (uint64_t)world->n),
        .in_place = world_random() & 1,
        .mapped = world_random() & 1,
        .misalign = (unsigned)(world_random() % 3 == 0 ? world_random() % 64 : 0),
    };
    ret.in_place = ret.in_place && ret.collective != HOOP_COLL_ALLTOALL;
    if (world_random() % 4 == 0) {
        ret.count = world_random() % most;
    }
    if (!row_of(&ret)->folds) {
        ret.op = HOOP_SUM;
    }
    return ret;
}

void world_sample(enum hoop_collective collective, unsigned samples, bool threads,
                  size_t most_bytes)
{
    static const int sizes[] = {2, 3, 5, 8};
    for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct world world;
        world_make(&world, sizes[s]);
        for (unsigned i = 0; i < samples; i++) {
            const struct world_shape shape = any_shape(&world, collective, most_bytes);
            if (threads || !world_leaves_out()) {
                world_run(&world, &shape, threads);
            }
        }
        world_end(&world);
    }
    device_check();
}

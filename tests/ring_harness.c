/* See ring_harness.h. Out of memory ends the program: a test can do nothing else. */
#include "ring_harness.h"

#include "base/clock.h"
#include "memory.h"
#include "reference.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_GUARD_BYTES 64
#define RING_GUARD 0xa5
#define RING_COMM_ID 0x1122334455667788u
/* A fake link may do nothing many times in a row by chance, but never so often. */
#define RING_IDLE_POLLS 2000
#define RING_THREAD_TIMEOUT_MS 60000

/* guard | skew | data | guard */
struct ring_buffer {
    uint8_t *block, *data;
    size_t bytes;
};

/* What one rank has of one case. */
struct ring_data {
    struct ring_buffer in, out;
    void *pristine; /* its contribution, aligned */
};

struct ring_import {
    uint64_t region_id;
    uint32_t generation;
};

struct ring_rank {
    struct ring_world *world;
    uint32_t me;
    bool started, ended;
    unsigned current; /* case */
    uint64_t random, link_calls;
    const char *wrong;
    struct ring_data *data;                     /* per case */
    struct hoop_link *links[HOOP_MAX_LANES][2]; /* [lane][sending] */
    struct ring_import imports[HOOP_MAX_LANES]; /* in use until the links are gone */
    uint32_t n_imports;
    struct hoop_plan plan;
    struct hoop_engine engine;
    struct hoop_failure failure;
};

struct ring_world {
    const struct ring_setup *setup;
    const struct ring_case *cases;
    unsigned n_cases;
    uint32_t lanes;
    uint64_t chunk_bytes;
    bool bad_link_happened;
    uint64_t deadline_ns;
    struct ring_rank ranks[RING_MAX_RANKS];
};

uint64_t ring_random(uint64_t *random, uint64_t limit)
{
    *random += 0x9e3779b97f4a7c15u;
    uint64_t z = *random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % limit;
}

static void *ring_alloc(size_t bytes)
{
    void *p = calloc(1, bytes > 0 ? bytes : 1);
    if (p == NULL) {
        perror("ring_harness");
        exit(1);
    }
    return p;
}

/* ---- Buffers ---- */

/* With no elements there is sometimes no buffer either. */
static void ring_buffer_init(struct ring_buffer *buffer, size_t bytes, unsigned skew)
{
    if (bytes == 0 && skew % 2 == 0) {
        return;
    }
    const size_t all = RING_GUARD_BYTES + skew + bytes + RING_GUARD_BYTES;
    buffer->block = ring_alloc(all);
    buffer->data = buffer->block + RING_GUARD_BYTES + skew;
    buffer->bytes = bytes;
    memset(buffer->block, RING_GUARD, all);
}

static void ring_buffer_finish(struct ring_buffer *buffer)
{
    free(buffer->block);
    *buffer = (struct ring_buffer){0};
}

static bool ring_buffer_guarded(const struct ring_buffer *buffer)
{
    bool whole = true;
    for (const uint8_t *p = buffer->block; p < buffer->data; p++) {
        whole = whole && *p == RING_GUARD;
    }
    for (size_t i = 0; buffer->data != NULL && i < RING_GUARD_BYTES; i++) {
        whole = whole && buffer->data[buffer->bytes + i] == RING_GUARD;
    }
    return whole;
}

static bool ring_in_place(const struct ring_case *c, uint32_t rank)
{
    return (c->in_place >> rank & 1) != 0;
}

static void ring_data_init(struct ring_data *data, const struct ring_case *c, uint32_t rank)
{
    const size_t bytes = c->count * hoop_datatype_bytes(c->type);
    data->pristine = ring_alloc(bytes);
    reference_fill(c->type, data->pristine, c->count, c->seed * RING_MAX_RANKS + rank);
    ring_buffer_init(&data->out, bytes, c->skew * (rank + 1) % 64);
    struct ring_buffer *in = &data->out;
    if (!ring_in_place(c, rank)) {
        in = &data->in;
        ring_buffer_init(in, bytes, c->skew * (rank + 5) % 64);
    }
    if (bytes > 0) {
        memcpy(in->data, data->pristine, bytes);
    }
}

static void ring_data_finish(struct ring_data *data)
{
    ring_buffer_finish(&data->in);
    ring_buffer_finish(&data->out);
}

/* ((x_{s+1} + x_{s+2}) + ...) + x_s, rounded at every hop; the last fold divides. */
static void ring_expect(struct ring_world *world, unsigned i, uint8_t *ret)
{
    const struct ring_case *c = &world->cases[i];
    const uint32_t n = world->setup->n;
    const size_t type_bytes = hoop_datatype_bytes(c->type);
    const struct hoop_plan *plan = &world->ranks[0].plan;
    if (n == 1) {
        memcpy(ret, world->ranks[0].data[i].pristine, c->count * type_bytes);
        return;
    }
    for (uint32_t s = 0; s < n; s++) {
        const struct hoop_range shard = hoop_shard(c->count, n, s, hoop_ring_align(plan));
        const size_t at = shard.off * type_bytes;
        const uint8_t *left = world->ranks[(s + 1) % n].data[i].pristine;
        left += at;
        for (uint32_t j = 2; j <= n; j++) {
            const uint8_t *own = world->ranks[(s + j) % n].data[i].pristine;
            const void *src[] = {left, own + at};
            reference_fold(c->type, c->op, c->op == HOOP_AVG && j == n ? n : 0, src, 2, shard.count,
                           ret + at);
            left = ret + at;
        }
    }
}

/* ---- Links ---- */

/* All ranks are in this process, and so are their regions. */
static hoop_result_t ring_import(void *arg, uint32_t peer, uint64_t region_id, uint32_t generation,
                                 void **ret_base, uint64_t *ret_bytes)
{
    struct ring_rank *rank = arg;
    (void)peer;
    assert(rank->n_imports < HOOP_MAX_LANES);
    const hoop_result_t result =
        hoop_region_use(hoop_process_id(), region_id, generation, ret_base, ret_bytes);
    if (result == HOOP_OK) {
        rank->imports[rank->n_imports++] = (struct ring_import){region_id, generation};
    }
    return result;
}

static void ring_links_create(struct ring_rank *rank, struct hoop_blob blobs[HOOP_MAX_LANES][2])
{
    const struct ring_setup *setup = rank->world->setup;
    for (uint32_t i = 0; i < 2 * rank->world->lanes; i++) {
        const bool sending = i % 2 != 0;
        const struct hoop_link_params params = {
            .comm_id = RING_COMM_ID,
            .me = rank->me,
            .peer = (rank->me + (sending ? 1 : setup->n - 1)) % setup->n,
            .lane = i / 2,
            .sending = sending,
            .slots = setup->slots,
            .chunk_bytes = rank->world->chunk_bytes,
            .import = ring_import,
            .arg = rank,
        };
        if (hoop_link_create(setup->transport, &params, &rank->links[i / 2][sending],
                             &blobs[i / 2][sending], &rank->failure) != HOOP_OK) {
            rank->wrong = "a link cannot be created";
        }
    }
}

static void ring_link_bind(struct ring_rank *rank, struct hoop_link *link,
                           const struct hoop_blob *blob)
{
    hoop_result_t result = HOOP_AGAIN;
    for (unsigned i = 0; i < RING_IDLE_POLLS && result == HOOP_AGAIN; i++) {
        result = hoop_link_bind(link, blob);
    }
    if (result != HOOP_OK) {
        rank->wrong = "a link cannot be bound";
    }
}

static void ring_links_open(struct ring_world *world)
{
    static const struct hoop_blob none;
    struct hoop_blob blobs[RING_MAX_RANKS][HOOP_MAX_LANES][2] = {{{none}}};
    const uint32_t n = world->setup->n;
    for (uint32_t r = 0; r < n && n > 1; r++) {
        ring_links_create(&world->ranks[r], blobs[r]);
    }
    for (uint32_t r = 0; r < n && n > 1; r++) {
        struct ring_rank *rank = &world->ranks[r];
        for (uint32_t i = 0; i < 2 * world->lanes && rank->wrong == NULL; i++) {
            const bool sending = i % 2 != 0;
            const uint32_t peer = (r + (sending ? 1 : n - 1)) % n;
            ring_link_bind(rank, rank->links[i / 2][sending], &blobs[peer][i / 2][!sending]);
        }
    }
}

static void ring_links_close(struct ring_rank *rank)
{
    for (uint32_t i = 0; i < 2 * HOOP_MAX_LANES; i++) {
        hoop_link_destroy(rank->links[i / 2][i % 2]);
        rank->links[i / 2][i % 2] = NULL;
    }
    while (rank->n_imports > 0) {
        const struct ring_import *import = &rank->imports[--rank->n_imports];
        hoop_region_unuse(hoop_process_id(), import->region_id, import->generation);
    }
}

static hoop_result_t ring_link(void *arg, uint32_t peer, uint32_t lane, bool sending,
                               struct hoop_link **ret_link)
{
    struct ring_rank *rank = arg;
    const struct ring_setup *setup = rank->world->setup;
    if (ring_random(&rank->random, 100) < setup->no_link_percent) {
        return HOOP_AGAIN;
    }
    if (rank->me == setup->bad_link_rank && ++rank->link_calls == setup->bad_link_call) {
        rank->world->bad_link_happened = true;
        return HOOP_SYSTEM_ERROR;
    }
    if (lane >= rank->plan.lanes || rank->links[lane][sending]->params.peer != peer) {
        rank->wrong = "the engine asked for a link that is not on the ring";
        return HOOP_INTERNAL_ERROR;
    }
    *ret_link = rank->links[lane][sending];
    return HOOP_OK;
}

/* ---- One rank ---- */

static void ring_plan(struct ring_rank *rank, const struct ring_case *c)
{
    rank->plan = (struct hoop_plan){
        .algo = HOOP_ALGO_RING,
        .me = rank->me,
        .n = rank->world->setup->n,
        .lanes = c->lanes,
        .type_bytes = (uint32_t)hoop_datatype_bytes(c->type),
        .in_place = ring_in_place(c, rank->me),
        .count = c->count,
        .chunk = c->chunk,
    };
}

static void ring_rank_start(struct ring_rank *rank)
{
    const struct ring_case *c = &rank->world->cases[rank->current];
    const struct ring_data *data = &rank->data[rank->current];
    const struct ring_setup *setup = rank->world->setup;
    ring_plan(rank, c);
    const struct hoop_engine_op op = {
        .plan = &rank->plan,
        .steps = hoop_ring_step,
        .reduction = {c->type, c->op, c->op == HOOP_AVG ? setup->n : 0},
        .in = ring_in_place(c, rank->me) ? data->out.data : data->in.data,
        .out = data->out.data,
        .sequence = rank->current + 1000 * (setup->stranger >> rank->me & 1),
        .link = ring_link,
        .arg = rank,
    };
    hoop_engine_start(&rank->engine, &op, &rank->failure);
    rank->started = true;
}

/* One poll, and the next case after the last has ended. */
static enum hoop_poll ring_rank_poll(struct ring_rank *rank)
{
    uint64_t before[HOOP_MAX_LANES];
    if (!rank->started) {
        ring_rank_start(rank);
    }
    const uint32_t lanes = rank->plan.lanes;
    for (uint32_t i = 0; i < lanes; i++) {
        before[i] = rank->engine.lanes[i].k;
    }
    const enum hoop_poll polled = hoop_engine_poll(&rank->engine);
    for (uint32_t i = 0; i < lanes; i++) {
        if (rank->engine.lanes[i].k > before[i] + 1) {
            rank->wrong = "a poll did several steps of a lane";
        }
    }
    if (polled != HOOP_POLL_DONE) {
        return polled;
    }
    if (hoop_engine_poll(&rank->engine) != HOOP_POLL_DONE) {
        rank->wrong = "a poll after the end did not say done";
    }
    rank->started = false;
    rank->current++;
    rank->ended = rank->failure.code != HOOP_OK || rank->current == rank->world->n_cases;
    return HOOP_POLL_BUSY;
}

/* ---- All ranks ---- */

/* Whoever failed has no links any more and its buffers are gone. */
static void ring_rank_bury(struct ring_rank *rank)
{
    ring_links_close(rank);
    for (unsigned i = 0; i < rank->world->n_cases; i++) {
        ring_data_finish(&rank->data[i]);
    }
}

static void ring_tell(struct ring_world *world, uint32_t culprit)
{
    for (uint32_t r = 0; r < world->setup->n; r++) {
        if (!world->ranks[r].ended) {
            hoop_failure_set(&world->ranks[r].failure, HOOP_REMOTE_ERROR, (int)culprit,
                             "rank %u failed", culprit);
        }
    }
}

/* All ranks by one thread. Ranks whose polls all do nothing, one after the other, hang. */
static void ring_run_serial(struct ring_world *world, struct ring_outcome *ret)
{
    const uint32_t n = world->setup->n;
    uint64_t random = world->setup->seed;
    unsigned idle = 0, running = n;
    unsigned news = 0; /* polls until the others hear of a failure; 0: there is none */
    while (running > 0 && !ret->hung) {
        struct ring_rank *rank = &world->ranks[ring_random(&random, n)];
        if (rank->ended) {
            continue;
        }
        idle = ring_rank_poll(rank) == HOOP_POLL_IDLE ? idle + 1 : 0;
        ret->hung = idle > RING_IDLE_POLLS * n;
        if (rank->ended) {
            running--;
            if (rank->failure.code != HOOP_OK) {
                ret->first = news == 0 ? rank->me : ret->first;
                news = news == 0 ? 1 + (unsigned)ring_random(&random, 64) : news;
                ring_rank_bury(rank);
            }
        }
        if (news > 0 && --news == 0) {
            ring_tell(world, ret->first);
            news = UINT32_MAX;
        }
    }
}

static void *ring_thread(void *arg)
{
    struct ring_rank *rank = arg;
    while (!rank->ended) {
        if (ring_rank_poll(rank) == HOOP_POLL_IDLE) {
            if (hoop_now_ns() > rank->world->deadline_ns) {
                return rank; /* hung */
            }
            sched_yield();
        }
    }
    return NULL;
}

static void ring_run_threads(struct ring_world *world, struct ring_outcome *ret)
{
    pthread_t threads[RING_MAX_RANKS];
    world->deadline_ns = hoop_deadline_ns(RING_THREAD_TIMEOUT_MS);
    for (uint32_t r = 0; r < world->setup->n; r++) {
        if (pthread_create(&threads[r], NULL, ring_thread, &world->ranks[r]) != 0) {
            perror("ring_harness");
            exit(1);
        }
    }
    for (uint32_t r = 0; r < world->setup->n; r++) {
        void *hung = NULL;
        pthread_join(threads[r], &hung);
        ret->hung = ret->hung || hung != NULL;
    }
}

/* ---- Birth, check and death of a world ---- */

static void ring_open(struct ring_world *world)
{
    for (unsigned i = 0; i < world->n_cases; i++) {
        const struct ring_case *c = &world->cases[i];
        const uint64_t longest = c->chunk < c->count ? c->chunk : c->count;
        const uint64_t bytes = longest * hoop_datatype_bytes(c->type);
        world->lanes = c->lanes > world->lanes ? c->lanes : world->lanes;
        world->chunk_bytes = bytes > world->chunk_bytes ? bytes : world->chunk_bytes;
    }
    for (uint32_t r = 0; r < world->setup->n; r++) {
        struct ring_rank *rank = &world->ranks[r];
        rank->world = world;
        rank->me = r;
        rank->random = world->setup->seed + r;
        rank->data = ring_alloc(world->n_cases * sizeof(*rank->data));
        for (unsigned i = 0; i < world->n_cases; i++) {
            ring_data_init(&rank->data[i], &world->cases[i], r);
        }
    }
    ring_links_open(world);
}

static const char *ring_check_rank(const struct ring_rank *rank, unsigned i, const void *expected)
{
    const struct ring_data *data = &rank->data[i];
    const bool apart = !ring_in_place(&rank->world->cases[i], rank->me);
    if (!ring_buffer_guarded(&data->in) || !ring_buffer_guarded(&data->out)) {
        return "written outside of a buffer";
    }
    if (data->out.bytes > 0 && memcmp(data->out.data, expected, data->out.bytes) != 0) {
        return "a result differs from the serial loop";
    }
    if (apart && data->in.bytes > 0 && memcmp(data->in.data, data->pristine, data->in.bytes) != 0) {
        return "an input was written";
    }
    return NULL;
}

static const char *ring_check(struct ring_world *world)
{
    const char *wrong = NULL;
    for (unsigned i = 0; i < world->n_cases && wrong == NULL; i++) {
        const struct ring_case *c = &world->cases[i];
        uint8_t *expected = ring_alloc(c->count * hoop_datatype_bytes(c->type));
        ring_plan(&world->ranks[0], c);
        ring_expect(world, i, expected);
        for (uint32_t r = 0; r < world->setup->n && wrong == NULL; r++) {
            wrong = ring_check_rank(&world->ranks[r], i, expected);
        }
        free(expected);
    }
    return wrong;
}

static void ring_close(struct ring_world *world)
{
    for (uint32_t r = 0; r < world->setup->n; r++) {
        struct ring_rank *rank = &world->ranks[r];
        ring_rank_bury(rank);
        for (unsigned i = 0; i < world->n_cases; i++) {
            free(rank->data[i].pristine);
        }
        free(rank->data);
    }
}

void ring_run(const struct ring_setup *setup, const struct ring_case *cases, unsigned n_cases,
              struct ring_outcome *ret)
{
    assert(setup->n >= 1 && setup->n <= RING_MAX_RANKS);
    struct ring_world *world = ring_alloc(sizeof(*world));
    *ret = (struct ring_outcome){0};
    *world = (struct ring_world){.setup = setup, .cases = cases, .n_cases = n_cases};
    ring_open(world);
    bool well = true;
    for (uint32_t r = 0; r < setup->n; r++) {
        well = well && world->ranks[r].wrong == NULL;
    }
    if (well && setup->threads) {
        ring_run_threads(world, ret);
    } else if (well) {
        ring_run_serial(world, ret);
    }
    for (uint32_t r = 0; r < setup->n; r++) {
        const struct ring_rank *rank = &world->ranks[r];
        ret->failure[r] = rank->failure;
        ret->wrong = ret->wrong == NULL ? rank->wrong : ret->wrong;
        well = well && rank->failure.code == HOOP_OK;
    }
    ret->bad_link_happened = world->bad_link_happened;
    if (well && !ret->hung && ret->wrong == NULL) {
        ret->wrong = ring_check(world);
    }
    ring_close(world);
    free(world);
}

/* ---- Cases by chance ---- */

struct ring_case ring_case_random(uint64_t *random, uint32_t n)
{
    const uint64_t counts[] = {0, 1, 2, n - 1, n, n + 1, 2 * n + 1, 63, 64, 65, 255, 1000, 4099};
    const uint64_t count = counts[ring_random(random, sizeof(counts) / sizeof(counts[0]))];
    /* Chunks of one element are many steps. */
    const uint64_t chunks[] = {count / 64 + 1, count / 16 + 7, 64, count / n + 1, 100000};
    return (struct ring_case){
        .type = (hoop_datatype_t)ring_random(random, HOOP_NUM_DATATYPES),
        .op = (hoop_red_op_t)ring_random(random, HOOP_NUM_OPS),
        .count = count,
        .chunk = chunks[ring_random(random, sizeof(chunks) / sizeof(chunks[0]))],
        .lanes = 1 + (uint32_t)ring_random(random, 4),
        .in_place = (uint32_t)ring_random(random, 1u << RING_MAX_RANKS),
        .skew = (unsigned)ring_random(random, 2) * (unsigned)ring_random(random, 64),
        .seed = ring_random(random, UINT32_MAX),
    };
}

/* See engine_case.h. Out of memory ends the program: a test can do nothing else. */
#include "fakes/engine_case.h"

#include "fakes/reference.h"
#include "harness/splitmix.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASE_GUARD_BYTES 64
#define CASE_GUARD 0xa5

uint64_t engine_random(uint64_t *random, uint64_t limit)
{
    return splitmix(random) % limit;
}

void *engine_alloc(size_t bytes)
{
    void *p = calloc(1, bytes > 0 ? bytes : 1);
    if (p == NULL) {
        perror("engine_case");
        exit(1);
    }
    return p;
}

/* ---- The operation ---- */

/* Valid for the calling thread. Rank r is on machine r modulo the number of machines, which is one
 * of two divisors of n. NULL: n has none. */
static const struct hoop_grid *case_grid(uint32_t n, uint64_t seed)
{
    static _Thread_local uint32_t ranks[ENGINE_MAX_RANKS + 1][2][ENGINE_MAX_RANKS];
    static _Thread_local uint32_t places[ENGINE_MAX_RANKS + 1][2][ENGINE_MAX_RANKS];
    static _Thread_local struct hoop_grid grids[ENGINE_MAX_RANKS + 1][2];
    const uint32_t least = n % 2 == 0 ? 2 : 3;
    if (n < 4 || n % least != 0) {
        return NULL;
    }
    const uint32_t machines = seed % 2 == 0 ? least : n / least, each = n / machines;
    for (uint32_t rank = 0; rank < n; rank++) {
        const uint32_t place = rank % machines * each + rank / machines;
        places[n][seed % 2][rank] = place;
        ranks[n][seed % 2][place] = rank;
    }
    struct hoop_grid *ret = &grids[n][seed % 2];
    *ret = (struct hoop_grid){.machines = machines,
                              .each = each,
                              .most = each,
                              .ranks = ranks[n][seed % 2],
                              .places = places[n][seed % 2]};
    return ret;
}

/* Two machines, the first with a random number of ranks; or three, the second with one rank. */
static const struct hoop_grid *case_machines(uint32_t n, uint64_t seed)
{
    static _Thread_local struct hoop_grid grids[ENGINE_MAX_RANKS + 1][ENGINE_MAX_RANKS][2];
    static _Thread_local uint32_t machine[ENGINE_MAX_RANKS + 1][ENGINE_MAX_RANKS][2]
                                         [ENGINE_MAX_RANKS];
    static _Thread_local uint32_t first[ENGINE_MAX_RANKS + 1][ENGINE_MAX_RANKS][2][4];
    if (n < 3) {
        return NULL;
    }
    const uint32_t some = 1 + (uint32_t)(seed % (n - 1));
    const uint32_t one = n > 3 && some + 1 < n && seed / 64 % 2 == 1;
    uint32_t *begins = first[n][some][one], *on = machine[n][some][one];
    struct hoop_grid *ret = &grids[n][some][one];
    *ret = (struct hoop_grid){.machines = 2 + one, .machine = on, .first = begins};
    begins[1] = some;
    begins[1 + one] = some + one;
    begins[2 + one] = n;
    for (uint32_t m = 0; m < ret->machines; m++) {
        const uint32_t each = begins[m + 1] - begins[m];
        ret->most = each > ret->most ? each : ret->most;
        for (uint32_t rank = begins[m]; rank < begins[m + 1]; rank++) {
            on[rank] = m;
        }
    }
    return ret;
}

/* Does the algorithm not cut vectors into chunks? */
static bool case_is_whole(enum hoop_algo algo)
{
    return algo == HOOP_ALGO_BRUCK || algo == HOOP_ALGO_HIERARCHICAL;
}

struct hoop_plan engine_case_plan(const struct engine_case *c, uint32_t n, uint32_t me)
{
    struct hoop_plan plan = {
        .algo = c->algo,
        .me = me,
        .n = n,
        .lanes = c->lanes,
        .radix = (uint32_t)(2 + c->seed % (HOOP_RADIX_MOST - 1)),
        .type_bytes = (uint32_t)hoop_datatype_bytes(c->type),
        .in_place = (c->in_place >> me & 1) != 0,
        .count = c->count,
        .chunk = case_is_whole(c->algo) ? c->count : c->chunk,
        .grid = c->algo == HOOP_ALGO_TORUS          ? case_grid(n, c->seed)
                : c->algo == HOOP_ALGO_HIERARCHICAL ? case_machines(n, c->seed)
                                                    : NULL,
    };
    plan.scratch = hoop_algo_scratch(&plan);
    return plan;
}

struct hoop_signature engine_case_signature(const struct engine_case *c)
{
    if (case_is_whole(c->algo) && c->count == 0) {
        return (struct hoop_signature){.collective = HOOP_COLL_BARRIER, .root = -1};
    }
    return (struct hoop_signature){.collective = HOOP_COLL_ALL_REDUCE,
                                   .type = (uint32_t)c->type,
                                   .op = (uint32_t)c->op,
                                   .root = -1,
                                   .count = c->count};
}

uint64_t engine_case_chunk_bytes(const struct engine_case *c, uint32_t n)
{
    const struct hoop_plan plan = engine_case_plan(c, n, 0);
    const uint64_t longest = plan.chunk < plan.count ? plan.chunk : plan.count;
    const uint64_t vectors = plan.algo == HOOP_ALGO_BRUCK && n > 1 ? n / 2 : 1;
    return vectors * longest * plan.type_bytes;
}

/* ---- Buffers ---- */

/* Without elements there is sometimes no buffer either. */
static void case_buffer_init(struct case_buffer *buffer, size_t bytes, unsigned skew)
{
    if (bytes == 0 && skew % 2 == 0) {
        return;
    }
    const size_t all = CASE_GUARD_BYTES + skew + bytes + CASE_GUARD_BYTES;
    buffer->block = engine_alloc(all);
    buffer->data = buffer->block + CASE_GUARD_BYTES + skew;
    buffer->bytes = bytes;
    memset(buffer->block, CASE_GUARD, all);
}

static void case_buffer_finish(struct case_buffer *buffer)
{
    free(buffer->block);
    *buffer = (struct case_buffer){0};
}

static bool case_buffer_guarded(const struct case_buffer *buffer)
{
    bool whole = true;
    for (const uint8_t *p = buffer->block; p < buffer->data; p++) {
        whole = whole && *p == CASE_GUARD;
    }
    for (size_t i = 0; buffer->data != NULL && i < CASE_GUARD_BYTES; i++) {
        whole = whole && buffer->data[buffer->bytes + i] == CASE_GUARD;
    }
    return whole;
}

void case_data_init(struct case_data *data, const struct engine_case *c, uint32_t n, uint32_t me)
{
    const struct hoop_plan plan = engine_case_plan(c, n, me);
    const size_t bytes = plan.count * plan.type_bytes;
    const size_t scratch_bytes = plan.scratch * plan.lanes * plan.type_bytes;
    if (scratch_bytes > 0) {
        data->scratch = engine_alloc(scratch_bytes);
        memset(data->scratch, CASE_GUARD, scratch_bytes);
    }
    data->pristine = engine_alloc(bytes);
    reference_fill(c->type, data->pristine, c->count, c->seed * ENGINE_MAX_RANKS + me);
    case_buffer_init(&data->out, bytes, c->skew * (me + 1) % 64);
    if (!plan.in_place) {
        case_buffer_init(&data->apart, bytes, c->skew * (me + 5) % 64);
    }
    data->in = plan.in_place ? data->out.data : data->apart.data;
    if (bytes > 0) {
        memcpy(data->in, data->pristine, bytes);
    }
}

void case_data_bury(struct case_data *data)
{
    case_buffer_finish(&data->apart);
    case_buffer_finish(&data->out);
    free(data->scratch);
    data->in = NULL;
    data->scratch = NULL;
}

void case_data_finish(struct case_data *data)
{
    case_data_bury(data);
    free(data->pristine);
    data->pristine = NULL;
}

const char *case_data_check(const struct case_data *data, const void *expected)
{
    const struct case_buffer *out = &data->out, *apart = &data->apart;
    if (!case_buffer_guarded(apart) || !case_buffer_guarded(out)) {
        return "written outside of a buffer";
    }
    if (out->bytes > 0 && memcmp(out->data, expected, out->bytes) != 0) {
        return "a result differs from the serial loop";
    }
    if (apart->bytes > 0 && memcmp(apart->data, data->pristine, apart->bytes) != 0) {
        return "an input was written";
    }
    return NULL;
}

/* ---- What is expected ---- */

/* ((x_{s+1} + x_{s+2}) + ...) + x_s, rounded after every addition; the last fold divides. */
static void case_expect_ring(const struct engine_case *c, uint32_t n, const void *const *inputs,
                             uint8_t *ret)
{
    const struct hoop_plan plan = engine_case_plan(c, n, 0);
    for (uint32_t s = 0; s < n; s++) {
        const struct hoop_range shard = hoop_shard_of(&plan, s);
        const size_t at = shard.off * plan.type_bytes;
        const uint8_t *left = (const uint8_t *)inputs[(s + 1) % n] + at;
        for (uint32_t j = 2; j <= n; j++) {
            const void *src[] = {left, (const uint8_t *)inputs[(s + j) % n] + at};
            reference_fold(c->type, c->op, c->op == HOOP_AVG && j == n ? n : 0, src, 2, shard.count,
                           ret + at);
            left = ret + at;
        }
    }
}

/* Each rank's shard is summed inside each machine, and then over the machines. */
static void case_expect_torus(const struct engine_case *c, uint32_t n, const void *const *inputs,
                              uint8_t *ret)
{
    const struct hoop_plan plan = engine_case_plan(c, n, 0);
    const struct hoop_grid *grid = plan.grid;
    uint8_t *sum = engine_alloc(plan.count * plan.type_bytes);
    for (uint32_t owner = 0; owner < n; owner++) {
        const struct hoop_range shard = hoop_shard_of(&plan, owner);
        const uint32_t place = grid->places[owner];
        const size_t at = shard.off * plan.type_bytes, bytes = shard.count * plan.type_bytes;
        for (uint32_t m = 1; m <= grid->machines; m++) {
            const uint32_t machine = (place / grid->each + m) % grid->machines;
            for (uint32_t e = 1; e <= grid->each; e++) {
                const uint32_t from = machine * grid->each + (place + e) % grid->each;
                const void *src[] = {sum, (const uint8_t *)inputs[grid->ranks[from]] + at};
                reference_fold(c->type, c->op, 0, e == 1 ? src + 1 : src, e == 1 ? 1 : 2,
                               shard.count, sum);
            }
            const bool last = m == grid->machines;
            const void *src[] = {ret + at, sum};
            if (m == 1) {
                memcpy(ret + at, sum, bytes);
            } else {
                reference_fold(c->type, c->op, c->op == HOOP_AVG && last ? n : 0, src, 2,
                               shard.count, ret + at);
            }
        }
    }
    free(sum);
}

/* The sum of each machine, and then of all machines. */
static void case_expect_hierarchical(const struct engine_case *c, uint32_t n,
                                     const void *const *inputs, uint8_t *ret)
{
    const struct hoop_plan plan = engine_case_plan(c, n, 0);
    const struct hoop_grid *grid = plan.grid;
    assert(grid != NULL);
    const size_t bytes = plan.count * plan.type_bytes;
    uint8_t *sums = engine_alloc(grid->machines * bytes);
    const void *all[ENGINE_MAX_RANKS];
    for (uint32_t m = 0; m < grid->machines; m++) {
        const uint32_t first = grid->first[m];
        all[m] = sums + m * bytes;
        reference_fold(c->type, c->op, 0, inputs + first, grid->first[m + 1] - first, plan.count,
                       sums + m * bytes);
    }
    reference_fold(c->type, c->op, c->op == HOOP_AVG ? n : 0, all, grid->machines, plan.count, ret);
    free(sums);
}

void engine_case_expect(const struct engine_case *c, uint32_t n, const void *const *inputs,
                        void *ret)
{
    if (n == 1) {
        memcpy(ret, inputs[0], c->count * hoop_datatype_bytes(c->type));
    } else if (c->algo == HOOP_ALGO_RING) {
        case_expect_ring(c, n, inputs, ret);
    } else if (c->algo == HOOP_ALGO_TORUS) {
        case_expect_torus(c, n, inputs, ret);
    } else if (c->algo == HOOP_ALGO_HIERARCHICAL) {
        case_expect_hierarchical(c, n, inputs, ret);
    } else {
        reference_fold(c->type, c->op, c->op == HOOP_AVG ? n : 0, inputs, n, c->count, ret);
    }
}

/* ---- Cases by chance ---- */

struct engine_case engine_case_random(uint64_t *random, uint32_t n)
{
    static const enum hoop_algo algos[] = {HOOP_ALGO_RING, HOOP_ALGO_BRUCK, HOOP_ALGO_PAIRWISE,
                                           HOOP_ALGO_HIERARCHICAL, HOOP_ALGO_TORUS};
    const uint64_t algo = engine_random(random, case_grid(n, 0) != NULL ? 5 : n > 2 ? 4 : 3);
    const uint64_t counts[] = {0, 1, 2, n - 1, n, n + 1, 2 * n + 1, 63, 64, 65, 255, 1000, 4099};
    const uint64_t count = counts[engine_random(random, sizeof(counts) / sizeof(counts[0]))];
    /* With chunks of one element there would be too many steps. */
    const uint64_t chunks[] = {count / 64 + 1, count / 16 + 7, 64, count / n + 1, 2 * count + 5};
    return (struct engine_case){
        .algo = algos[algo],
        .type = (hoop_datatype_t)engine_random(random, HOOP_NUM_DATATYPES),
        .op = (hoop_red_op_t)engine_random(random, HOOP_NUM_OPS),
        .count = count,
        .chunk = chunks[engine_random(random, sizeof(chunks) / sizeof(chunks[0]))],
        .lanes = 1 + (uint32_t)engine_random(random, 4),
        .in_place = (uint32_t)engine_random(random, 1u << ENGINE_MAX_RANKS),
        .skew = (unsigned)engine_random(random, 2) * (unsigned)engine_random(random, 64),
        .seed = engine_random(random, UINT32_MAX),
    };
}

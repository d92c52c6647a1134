/* See kill_sweep.h. */
#include "whole/kill_sweep.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SWEEP_TILE ((size_t)251) /* elements; prime: no chunk is a multiple of it */
#define SWEEP_TILE_BYTES (SWEEP_TILE * sizeof(double))
#define SWEEP_GUARD ((size_t)64) /* bytes at either end, which nobody may touch */
#define SWEEP_SHIFT ((size_t)16) /* elements by which a vector may be displaced */
#define SWEEP_ROOM (SWEEP_BYTES + SWEEP_SHIFT * sizeof(double) + 2 * SWEEP_GUARD)
#define SWEEP_GUARD_BYTE 0xa5

static const struct sweep_type {
    hoop_datatype_t type;
    size_t bytes;
} sweep_types[] = {
    {HOOP_FLOAT32, 4}, {HOOP_INT8, 1},  {HOOP_INT32, 4},
    {HOOP_FLOAT64, 8}, {HOOP_INT64, 8}, {HOOP_BFLOAT16, 2},
};
#define SWEEP_TYPES (sizeof(sweep_types) / sizeof(sweep_types[0]))

/* One operation, as one rank calls it. */
struct sweep_call {
    uint64_t number;
    bool barrier, in_place;
    const struct sweep_type *type;
    hoop_red_op_t op;
    size_t count, bytes;
    unsigned char *from, *to; /* where the vectors begin */
    unsigned char *from_room, *to_room;
};

uint64_t sweep_draw(uint64_t seed, uint64_t a, uint64_t b)
{
    /* splitmix64's finish over a sum that keeps the three apart */
    uint64_t x = seed + 0x9e3779b97f4a7c15u * (a + 1) + 0xd1b54a32d192ed03u * (b + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- Values ------------------------------------------------------------------------------- */

static uint16_t sweep_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static void sweep_store(unsigned char *tile, size_t j, hoop_datatype_t type, double value)
{
    const int8_t i8 = (int8_t)value;
    const int32_t i32 = (int32_t)value;
    const int64_t i64 = (int64_t)value;
    const float f32 = (float)value;
    const uint16_t bf16 = sweep_bfloat16(f32);
    switch (type) {
    case HOOP_INT8:
        memcpy(tile + j, &i8, sizeof(i8));
        break;
    case HOOP_INT32:
        memcpy(tile + 4 * j, &i32, sizeof(i32));
        break;
    case HOOP_INT64:
        memcpy(tile + 8 * j, &i64, sizeof(i64));
        break;
    case HOOP_FLOAT32:
        memcpy(tile + 4 * j, &f32, sizeof(f32));
        break;
    case HOOP_FLOAT64:
        memcpy(tile + 8 * j, &value, sizeof(value));
        break;
    default:
        memcpy(tile + 2 * j, &bf16, sizeof(bf16));
        break;
    }
}

/* Element j of a rank's vector: 1 to 7, or for products 1 or 2, so that all of them fit an int8. */
static int sweep_value(const struct sweep_call *call, size_t j, uint32_t rank)
{
    const uint64_t drawn = sweep_draw(call->number, j, 0) + (uint64_t)3 * rank;
    return 1 + (int)(drawn % (call->op == HOOP_PROD ? 2 : 7));
}

static double sweep_result(const struct sweep_call *call, size_t j, uint32_t n)
{
    const int ranks = n > 0 ? (int)n : 1;
    int sum = 0;
    int product = 1;
    int most = INT16_MIN;
    int least = INT16_MAX;
    for (uint32_t rank = 0; rank < n; rank++) {
        const int value = sweep_value(call, j, rank);
        sum += value;
        product *= call->op == HOOP_PROD ? value : 1;
        most = value > most ? value : most;
        least = value < least ? value : least;
    }
    switch (call->op) {
    case HOOP_SUM:
        return sum;
    case HOOP_PROD:
        return product;
    case HOOP_MAX:
        return most;
    case HOOP_MIN:
        return least;
    default:
        break;
    }
    const int truncated = sum / ranks;
    switch (call->type->type) {
    case HOOP_FLOAT64:
        return sum * (1.0 / ranks);
    case HOOP_FLOAT32:
    case HOOP_BFLOAT16:
        return (float)sum * (1.0f / (float)ranks);
    default:
        return truncated;
    }
}

static void sweep_tile(const struct sweep *sweep, const struct sweep_call *call, bool result,
                       unsigned char tile[SWEEP_TILE_BYTES])
{
    for (size_t j = 0; j < SWEEP_TILE; j++) {
        const double value =
            result ? sweep_result(call, j, sweep->n) : sweep_value(call, j, sweep->rank);
        sweep_store(tile, j, call->type->type, value);
    }
}

static void sweep_lay(unsigned char *at, size_t bytes, const unsigned char *tile, size_t tile_bytes)
{
    size_t laid = tile_bytes < bytes ? tile_bytes : bytes;
    memcpy(at, tile, laid);
    while (laid < bytes) {
        const size_t more = laid < bytes - laid ? laid : bytes - laid;
        memcpy(at + laid, at, more);
        laid += more;
    }
}

/* A tile at the beginning, and from there on every byte as the one a tile before it. */
static bool sweep_is_laid(const unsigned char *at, size_t bytes, const unsigned char *tile,
                          size_t tile_bytes)
{
    if (bytes <= tile_bytes) {
        return memcmp(at, tile, bytes) == 0;
    }
    return memcmp(at, tile, tile_bytes) == 0 &&
           memcmp(at + tile_bytes, at, bytes - tile_bytes) == 0;
}

/* ---- One operation ------------------------------------------------------------------------ */

static struct sweep_call sweep_call(const struct sweep *sweep, uint64_t number)
{
    const uint64_t all = sweep_draw(sweep->seed, number, 0);
    const uint64_t mine = sweep_draw(sweep->seed, number, 1 + sweep->rank);
    struct sweep_call call = {.number = number};
    call.barrier = all % 6 == 0;
    call.type = &sweep_types[(all >> 8) % SWEEP_TYPES];
    call.op = (hoop_red_op_t)((all >> 16) % HOOP_NUM_OPS);
    const unsigned doublings = (unsigned)((all >> 24) % 21); /* 4 bytes to 4 MiB */
    size_t bytes = (size_t)4 << doublings;
    bytes -= (all >> 60) % 2 == 0 ? (size_t)(all >> 32) % bytes : 0;
    call.count = bytes / call.type->bytes > 0 ? bytes / call.type->bytes : 1;
    call.bytes = call.count * call.type->bytes;
    call.in_place = (mine & 1) != 0;
    /* mostly shared memory, and mostly everybody: only then may peers write into it */
    const int memory = (all >> 62) != 0 || (mine & 2) != 0 ? 1 : 0;
    const size_t shift = ((mine >> 8) & 1) != 0 ? (size_t)(mine >> 16) % SWEEP_SHIFT : 0;
    call.to_room = sweep->receive[memory];
    call.from_room =
        call.in_place ? call.to_room : sweep->send[((mine >> 2) & 1) != 0 ? memory : 0];
    call.to = call.to_room + SWEEP_GUARD + shift * call.type->bytes;
    call.from = call.in_place ? call.to : call.from_room + SWEEP_GUARD;
    return call;
}

/* Now and then one rank is late, so that the others sleep in the kernel. */
static void sweep_dawdle(const struct sweep *sweep, uint64_t number)
{
    const uint64_t drawn = sweep_draw(~sweep->seed, number, 0);
    if (drawn % 16 == 0 && (drawn >> 8) % sweep->n == sweep->rank) {
        const struct timespec t = {.tv_nsec = 200000 + (long)((drawn >> 16) % 3000000)};
        nanosleep(&t, NULL);
    }
}

static bool sweep_is_guarded(const unsigned char *at)
{
    bool good = true;
    for (size_t i = 0; i < SWEEP_GUARD; i++) {
        good = good && at[i] == SWEEP_GUARD_BYTE;
    }
    return good;
}

static const char *sweep_judge(const struct sweep *sweep, const struct sweep_call *call,
                               const unsigned char *sent, size_t tile_bytes)
{
    unsigned char tile[SWEEP_TILE_BYTES];
    sweep_tile(sweep, call, true, tile);
    if (!sweep_is_laid(call->to, call->bytes, tile, tile_bytes)) {
        return "a wrong result";
    }
    if (!sweep_is_guarded(call->to - SWEEP_GUARD) || !sweep_is_guarded(call->to + call->bytes)) {
        return "bytes beside the result that changed";
    }
    if (!call->in_place && !sweep_is_laid(call->from, call->bytes, sent, tile_bytes)) {
        return "a send buffer that changed";
    }
    return NULL;
}

static hoop_result_t sweep_reduce(struct sweep *sweep, const struct sweep_call *call,
                                  hoop_comm_t comm)
{
    unsigned char sent[SWEEP_TILE_BYTES];
    const size_t tile_bytes = SWEEP_TILE * call->type->bytes;
    sweep_tile(sweep, call, false, sent);
    memset(call->to - SWEEP_GUARD, SWEEP_GUARD_BYTE, SWEEP_GUARD);
    memset(call->to + call->bytes, SWEEP_GUARD_BYTE, SWEEP_GUARD);
    sweep_lay(call->from, call->bytes, sent, tile_bytes);
    const hoop_result_t result =
        hoop_all_reduce(call->from, call->to, call->count, call->type->type, call->op, comm, NULL);
    const char *wrong = result == HOOP_OK ? sweep_judge(sweep, call, sent, tile_bytes) : NULL;
    if (wrong != NULL) {
        (void)snprintf(sweep->wrong, sizeof(sweep->wrong),
                       "operation %" PRIu64 " (%zu elements of type %d, op %d, %s, %s memory) left "
                       "%s",
                       call->number, call->count, (int)call->type->type, (int)call->op,
                       call->in_place ? "in place" : "out of place",
                       call->to_room == sweep->receive[1] ? "shared" : "plain", wrong);
    }
    return result;
}

hoop_result_t sweep_step(struct sweep *sweep, hoop_comm_t comm)
{
    const uint64_t number = sweep->next++;
    const struct sweep_call call = sweep_call(sweep, number);
    sweep_dawdle(sweep, number);
    return call.barrier ? hoop_barrier(comm, NULL) : sweep_reduce(sweep, &call, comm);
}

/* ---- Memory ------------------------------------------------------------------------------- */

bool sweep_init(struct sweep *sweep, uint64_t seed, uint32_t rank, uint32_t n)
{
    *sweep = (struct sweep){.seed = seed, .rank = rank, .n = n};
    sweep->send[0] = malloc(SWEEP_ROOM);
    sweep->receive[0] = malloc(SWEEP_ROOM);
    return sweep->send[0] != NULL && sweep->receive[0] != NULL &&
           hoop_mem_alloc((void **)&sweep->send[1], SWEEP_ROOM, HOOP_MEM_HOST) == HOOP_OK &&
           hoop_mem_alloc((void **)&sweep->receive[1], SWEEP_ROOM, HOOP_MEM_HOST) == HOOP_OK;
}

hoop_result_t sweep_finish(struct sweep *sweep)
{
    free(sweep->send[0]);
    free(sweep->receive[0]);
    const hoop_result_t first = hoop_mem_free(sweep->send[1]);
    const hoop_result_t second = hoop_mem_free(sweep->receive[1]);
    return first != HOOP_OK ? first : second;
}

static uint64_t sweep_word(const struct sweep *sweep, int memory, size_t i)
{
    return (i + 1) * 0x9e3779b97f4a7c15u ^ sweep->seed ^ (uint64_t)memory;
}

void sweep_claim(struct sweep *sweep)
{
    for (int memory = 0; memory < 2; memory++) {
        for (size_t i = 0; i < SWEEP_ROOM / sizeof(uint64_t); i++) {
            const uint64_t word = sweep_word(sweep, memory, i);
            memcpy(sweep->receive[memory] + i * sizeof(word), &word, sizeof(word));
        }
    }
}

bool sweep_is_claimed(const struct sweep *sweep)
{
    size_t wrong = 0;
    for (int memory = 0; memory < 2; memory++) {
        for (size_t i = 0; i < SWEEP_ROOM / sizeof(uint64_t); i++) {
            const uint64_t word = sweep_word(sweep, memory, i);
            wrong +=
                memcmp(sweep->receive[memory] + i * sizeof(word), &word, sizeof(word)) != 0 ? 1 : 0;
        }
    }
    return wrong == 0;
}

/* See kill_sweep.h. */
#include "whole/kill_sweep.h"
#include "base/collective.h"
#include "harness/splitmix.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SWEEP_TILE ((size_t)251) /* elements; a prime, so that no chunk is a multiple of it */
#define SWEEP_TILE_BYTES (SWEEP_TILE * sizeof(double))
#define SWEEP_GUARD ((size_t)64) /* bytes at both ends, which must not change */
#define SWEEP_SHIFT ((size_t)16) /* elements by which a vector may be shifted */
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

/* One operation as called by one rank. */
struct sweep_call {
    uint64_t number;
    enum hoop_collective collective; /* HOOP_TRANSFER: a message to the next rank */
    int root;
    bool in_place, shared; /* shared: in memory that peers may map */
    const struct sweep_type *type;
    hoop_red_op_t op;
    size_t count, bytes;          /* of one block */
    uint32_t in, out;             /* how many blocks */
    unsigned char *from, *to;     /* where the vectors begin */
    unsigned char *room, *behind; /* guards end and begin here */
};

uint64_t sweep_draw(uint64_t seed, uint64_t a, uint64_t b)
{
    /* a sum in which a and b have different factors */
    uint64_t x = seed + 0x9e3779b97f4a7c15u * a + 0xd1b54a32d192ed03u * (b + 1);
    return splitmix(&x);
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

/* Element j of a rank's block: 1 to 7 or, for products, 1 or 2, so that results fit an int8. */
static int sweep_value(const struct sweep_call *call, size_t j, uint32_t rank, uint32_t block)
{
    const uint64_t drawn = sweep_draw(call->number, j, block) + (uint64_t)3 * rank;
    return 1 + (int)(drawn % (call->op == HOOP_PROD ? 2 : 7));
}

/* Element j, reduced over all ranks. */
static double sweep_reduced(const struct sweep_call *call, size_t j, uint32_t n, uint32_t block)
{
    const int ranks = n > 0 ? (int)n : 1;
    int sum = 0;
    int product = 1;
    int most = INT16_MIN;
    int least = INT16_MAX;
    for (uint32_t rank = 0; rank < n; rank++) {
        const int value = sweep_value(call, j, rank, block);
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

static bool sweep_is_each(const struct sweep_call *call, bool in)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->collective];
    return call->collective == HOOP_COLL_ALLTOALLV ||
           (call->collective < HOOP_COLL_COUNT && hoop_extent_is_each(in ? row->in : row->out));
}

static bool sweep_folds(const struct sweep_call *call)
{
    return call->collective < HOOP_COLL_COUNT && hoop_collectives[call->collective].folds;
}

/* Whose block a rank receives as its block `block`. */
static uint32_t sweep_source(const struct sweep *sweep, const struct sweep_call *call,
                             uint32_t block)
{
    if (call->collective == HOOP_TRANSFER) {
        return (sweep->rank + sweep->n - 1) % sweep->n;
    }
    const bool root = hoop_collectives[call->collective].in >= HOOP_EXTENT_ROOT_ONE;
    return root ? (uint32_t)call->root : block;
}

/* Makes the first tile of a block that this rank sends, or receives. */
static void sweep_tile(const struct sweep *sweep, const struct sweep_call *call, bool result,
                       uint32_t block, unsigned char tile[SWEEP_TILE_BYTES])
{
    const uint32_t part = sweep_is_each(call, true) ? sweep->rank : 0;
    for (size_t j = 0; j < SWEEP_TILE; j++) {
        double value = 0;
        if (!result) {
            value = sweep_value(call, j, sweep->rank, block);
        } else if (sweep_folds(call)) {
            value = sweep_reduced(call, j, sweep->n, part);
        } else {
            value = sweep_value(call, j, sweep_source(sweep, call, block), part);
        }
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

/* Is the tile at the beginning, and does every later byte equal the one a tile before it? */
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

static void sweep_count(const struct sweep *sweep, uint64_t all, struct sweep_call *call)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->collective];
    const bool root = (int)sweep->rank == call->root;
    const uint64_t n = sweep->n;
    const unsigned doublings = (unsigned)((all >> 24) % 21); /* 4 bytes to 4 MiB, for all blocks */
    size_t bytes = (size_t)4 << doublings;
    bytes -= (all >> 60) % 2 == 0 ? (size_t)(all >> 32) % bytes : 0;
    call->in = call->out = 1;
    if (call->collective == HOOP_COLL_ALLTOALLV) {
        call->in = call->out = sweep->n;
    } else if (call->collective < HOOP_COLL_COUNT) {
        call->in = (uint32_t)hoop_extent_blocks(row->in, n, root);
        call->out = (uint32_t)hoop_extent_blocks(row->out, n, root);
    }
    const bool blocked = sweep_is_each(call, true) || sweep_is_each(call, false);
    const size_t count = bytes / call->type->bytes / (blocked ? n : 1);
    call->count = count > 0 ? count : 1;
    call->bytes = call->count * call->type->bytes;
}

/* Chooses where this rank's vectors lie; in place one is the other, or a block of it. */
static void sweep_place(const struct sweep *sweep, uint64_t all, struct sweep_call *call)
{
    const uint64_t mine = sweep_draw(sweep->seed, call->number, 1 + sweep->rank);
    /* mostly shared memory, and mostly on all ranks: only then may peers write to it */
    call->shared = (all >> 62) != 0 || (mine & 2) != 0;
    const size_t shift = ((mine >> 8) & 1) != 0 ? (size_t)(mine >> 16) % SWEEP_SHIFT : 0;
    const bool possible = call->in > 0 && call->out > 0 && call->collective != HOOP_TRANSFER &&
                          !(sweep_is_each(call, true) && sweep_is_each(call, false));
    call->in_place = possible && (mine & 1) != 0;
    call->room = sweep->receive[call->shared] + SWEEP_GUARD + shift * call->type->bytes;
    call->to = call->room;
    call->from = sweep->send[((mine >> 2) & 1) != 0 && call->shared] + SWEEP_GUARD;
    size_t blocks = call->out;
    if (call->in_place) {
        const size_t own = (size_t)sweep->rank * call->bytes;
        blocks = call->in > call->out ? call->in : call->out;
        call->from = call->room + (call->in < call->out ? own : 0);
        call->to = call->room + (call->out < call->in ? own : 0);
    }
    call->behind = call->room + blocks * call->bytes;
}

static struct sweep_call sweep_call(const struct sweep *sweep, uint64_t number)
{
    const uint64_t all = sweep_draw(sweep->seed, number, 0);
    const uint64_t which = sweep_draw(sweep->seed, ~number, 0);
    struct sweep_call call = {.number = number};
    /* HOOP_TRANSFER is the last; half of the operations are all_reduce, as in most programs */
    call.collective = which % 2 == 0 ? HOOP_COLL_ALL_REDUCE
                                     : (enum hoop_collective)((which >> 8) % (HOOP_TRANSFER + 1));
    call.root = (int)((which >> 16) % sweep->n);
    call.type = &sweep_types[(all >> 8) % SWEEP_TYPES];
    call.op = (hoop_red_op_t)((all >> 16) % HOOP_NUM_OPS);
    sweep_count(sweep, all, &call);
    sweep_place(sweep, all, &call);
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

/* Writes all blocks that are sent (lay), or checks all that were sent or received. */
static bool sweep_blocks(const struct sweep *sweep, const struct sweep_call *call, bool result,
                         bool lay)
{
    const size_t tile_bytes = SWEEP_TILE * call->type->bytes;
    unsigned char *at = result ? call->to : call->from;
    bool good = true;
    for (uint32_t block = 0; block < (result ? call->out : call->in); block++) {
        unsigned char tile[SWEEP_TILE_BYTES];
        sweep_tile(sweep, call, result, block, tile);
        if (lay) {
            sweep_lay(at + block * call->bytes, call->bytes, tile, tile_bytes);
        } else {
            good = good && sweep_is_laid(at + block * call->bytes, call->bytes, tile, tile_bytes);
        }
    }
    return good;
}

static const char *sweep_judge(const struct sweep *sweep, const struct sweep_call *call)
{
    if (!sweep_blocks(sweep, call, true, false)) {
        return "a wrong result";
    }
    if (!sweep_is_guarded(call->room - SWEEP_GUARD) || !sweep_is_guarded(call->behind)) {
        return "bytes beside the result that changed";
    }
    if (!call->in_place && !sweep_blocks(sweep, call, false, false)) {
        return "a send buffer that changed";
    }
    return NULL;
}

/* Blocks of one size, one after the other. */
static hoop_result_t sweep_alltoallv(const struct sweep *sweep, const struct sweep_call *c,
                                     hoop_comm_t comm)
{
    size_t counts[SWEEP_MAX_RANKS], at[SWEEP_MAX_RANKS];
    for (uint32_t r = 0; r < sweep->n; r++) {
        counts[r] = c->count;
        at[r] = r * c->count;
    }
    return hoop_alltoallv(c->from, counts, at, c->to, counts, at, c->type->type, comm, NULL);
}

static hoop_result_t sweep_message(const struct sweep *sweep, const struct sweep_call *c,
                                   hoop_comm_t comm)
{
    const int next = (int)((sweep->rank + 1) % sweep->n);
    const int before = (int)((sweep->rank + sweep->n - 1) % sweep->n);
    (void)hoop_group_start();
    hoop_result_t result = hoop_send(c->from, c->count, c->type->type, next, comm, NULL);
    result =
        result == HOOP_OK ? hoop_recv(c->to, c->count, c->type->type, before, comm, NULL) : result;
    const hoop_result_t ended = hoop_group_end();
    return result == HOOP_OK ? ended : result;
}

static hoop_result_t sweep_start(const struct sweep *sweep, const struct sweep_call *c,
                                 hoop_comm_t comm)
{
    const hoop_datatype_t type = c->type->type;
    switch (c->collective) {
    case HOOP_COLL_ALL_REDUCE:
        return hoop_all_reduce(c->from, c->to, c->count, type, c->op, comm, NULL);
    case HOOP_COLL_REDUCE_SCATTER:
        return hoop_reduce_scatter(c->from, c->to, c->count, type, c->op, comm, NULL);
    case HOOP_COLL_ALL_GATHER:
        return hoop_all_gather(c->from, c->to, c->count, type, comm, NULL);
    case HOOP_COLL_BROADCAST:
        return hoop_broadcast(c->from, c->to, c->count, type, c->root, comm, NULL);
    case HOOP_COLL_REDUCE:
        return hoop_reduce(c->from, c->to, c->count, type, c->op, c->root, comm, NULL);
    case HOOP_COLL_GATHER:
        return hoop_gather(c->from, c->to, c->count, type, c->root, comm, NULL);
    case HOOP_COLL_SCATTER:
        return hoop_scatter(c->from, c->to, c->count, type, c->root, comm, NULL);
    case HOOP_COLL_ALLTOALL:
        return hoop_alltoall(c->from, c->to, c->count, type, comm, NULL);
    case HOOP_COLL_ALLTOALLV:
        return sweep_alltoallv(sweep, c, comm);
    case HOOP_TRANSFER:
        return sweep_message(sweep, c, comm);
    default:
        return hoop_barrier(comm, NULL);
    }
}

hoop_result_t sweep_step(struct sweep *sweep, hoop_comm_t comm)
{
    const struct sweep_call call = sweep_call(sweep, sweep->next++);
    sweep_dawdle(sweep, call.number);
    memset(call.room - SWEEP_GUARD, SWEEP_GUARD_BYTE, SWEEP_GUARD);
    memset(call.behind, SWEEP_GUARD_BYTE, SWEEP_GUARD);
    (void)sweep_blocks(sweep, &call, false, true);
    const hoop_result_t result = sweep_start(sweep, &call, comm);
    const char *wrong = result == HOOP_OK ? sweep_judge(sweep, &call) : NULL;
    if (wrong != NULL) {
        (void)snprintf(sweep->wrong, sizeof(sweep->wrong),
                       "operation %" PRIu64 " (%s of %zu elements of type %d, op %d, root %d, %s, "
                       "%s memory) left %s",
                       call.number,
                       call.collective < HOOP_COLL_COUNT ? hoop_collectives[call.collective].name
                                                         : "a message",
                       call.count, (int)call.type->type, (int)call.op, call.root,
                       call.in_place ? "in place" : "out of place",
                       call.shared ? "shared" : "plain", wrong);
    }
    return result;
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

/* See model.h. */
#include "fakes/model.h"
#include "fakes/reference.h"
#include <string.h>

/* How many elements, as multiples of count: none, one block, or one block for every rank. */
enum extent { NONE, ONE, ALL };

static const struct row {
    const char *name;
    bool has_op, has_root, no_place;
    enum extent send, recv;           /* of a rank; with a root: of any but the root */
    enum extent root_send, root_recv; /* for the root */
} rows[MODEL_KINDS] = {
    [MODEL_ALL_REDUCE] = {"all_reduce", true, false, false, ONE, ONE, ONE, ONE},
    [MODEL_REDUCE] = {"reduce", true, true, false, ONE, NONE, ONE, ONE},
    [MODEL_REDUCE_SCATTER] = {"reduce_scatter", true, false, false, ALL, ONE, ALL, ONE},
    [MODEL_ALL_GATHER] = {"all_gather", false, false, false, ONE, ALL, ONE, ALL},
    [MODEL_BROADCAST] = {"broadcast", false, true, false, NONE, ONE, ONE, ONE},
    [MODEL_ALLTOALL] = {"alltoall", false, false, true, ALL, ALL, ALL, ALL},
    [MODEL_GATHER] = {"gather", false, true, false, ONE, NONE, ONE, ALL},
    [MODEL_SCATTER] = {"scatter", false, true, false, NONE, ONE, ALL, ONE},
    [MODEL_ALLTOALLV] = {"alltoallv", false, false, true, ALL, ALL, ALL, ALL},
};

static const size_t type_bytes[HOOP_NUM_DATATYPES] = {
#define TYPE_BYTES(name, value, bytes, text) [value] = (bytes),
    HOOP_DATATYPES(TYPE_BYTES)
#undef TYPE_BYTES
};

const char *model_name(enum model_kind kind)
{
    return rows[kind].name;
}

bool model_has_op(enum model_kind kind)
{
    return rows[kind].has_op;
}

bool model_has_root(enum model_kind kind)
{
    return rows[kind].has_root;
}

bool model_has_place(enum model_kind kind)
{
    return !rows[kind].no_place;
}

size_t model_type_bytes(hoop_datatype_t type)
{
    return type_bytes[type];
}

static enum extent extent_of(const struct model_call *call, int rank, bool send)
{
    const struct row *row = &rows[call->kind];
    if (row->has_root && rank == call->root) {
        return send ? row->root_send : row->root_recv;
    }
    return send ? row->send : row->recv;
}

static size_t extent_count(const struct model_call *call, enum extent extent)
{
    return extent == ALL ? call->count * (size_t)call->n : extent == ONE ? call->count : 0;
}

size_t model_send_count(const struct model_call *call, int rank)
{
    return extent_count(call, extent_of(call, rank, true));
}

size_t model_recv_count(const struct model_call *call, int rank)
{
    return extent_count(call, extent_of(call, rank, false));
}

/* In place, a rank's one block lies at its place in the large buffer. */
size_t model_send_at(const struct model_call *call, int rank)
{
    const bool within = extent_of(call, rank, true) == ONE && extent_of(call, rank, false) == ALL;
    return within ? call->count * (size_t)rank : 0;
}

size_t model_recv_at(const struct model_call *call, int rank)
{
    const bool within = extent_of(call, rank, true) == ALL && extent_of(call, rank, false) == ONE;
    return within ? call->count * (size_t)rank : 0;
}

/* A third of the blocks are empty. */
size_t model_pair_count(const struct model_call *call, int from, int to)
{
    const uint64_t drawn =
        (call->seed + (uint64_t)from * 1000003 + (uint64_t)to + 1) * 0x9e3779b97f4a7c15u >> 24;
    return drawn % 3 == 0 ? 0 : (size_t)(drawn / 3) % (call->count + 1);
}

size_t model_pair_at(const struct model_call *call, int rank)
{
    return (size_t)(call->seed % 2 == 0 ? rank : call->n - 1 - rank) * call->count;
}

static void exchange_blocks(const struct model_call *call, const void *const *sends, int rank,
                            void *dst)
{
    const size_t element = type_bytes[call->type];
    for (int from = 0; from < call->n; from++) {
        memcpy((char *)dst + model_pair_at(call, from) * element,
               (const char *)sends[from] + model_pair_at(call, rank) * element,
               model_pair_count(call, from, rank) * element);
    }
}

/* Block number `block` of what a rank sends. */
static const void *block_of(const struct model_call *call, const void *send, int block)
{
    return (const char *)send + (size_t)block * call->count * type_bytes[call->type];
}

static void reduce_blocks(const struct model_call *call, const void *const *sends, int block,
                          void *dst)
{
    const void *from[MODEL_MOST_RANKS];
    for (int r = 0; r < call->n; r++) {
        from[r] = block_of(call, sends[r], block);
    }
    reference_fold(call->type, call->op, call->op == HOOP_AVG ? (uint32_t)call->n : 0, from,
                   (unsigned)call->n, call->count, dst);
}

void model_result(const struct model_call *call, const void *const *sends, int rank, void *dst)
{
    const size_t block_bytes = call->count * type_bytes[call->type];
    const int blocks = call->count > 0 ? (int)(model_recv_count(call, rank) / call->count) : 0;
    if (blocks > 0 && rows[call->kind].has_op) {
        reduce_blocks(call, sends, call->kind == MODEL_REDUCE_SCATTER ? rank : 0, dst);
        return;
    }
    if (call->kind == MODEL_ALLTOALLV) {
        exchange_blocks(call, sends, rank, dst);
        return;
    }
    for (int block = 0; block < blocks; block++) {
        const int from = rows[call->kind].has_root && blocks == 1 ? call->root : block;
        const bool apart = extent_of(call, from, true) == ALL;
        memmove((char *)dst + (size_t)block * block_bytes,
                block_of(call, sends[from], apart ? rank : 0), block_bytes);
    }
}

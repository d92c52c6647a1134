/*
 * The collectives: each call is checked by the table (base/collective.h), becomes a request, and
 * goes to the comm. Nearly every call is correct and plain. That is established by code which is
 * inlined into each function, where the collective is a constant: the smallest operations consist
 * of nothing but latency.
 */
#include "api/device_stream.h"
#include "api/group.h"
#include "api/streams.h"
#include "base/collective.h"
#include "comm/comm.h"
#include "comm/ops.h"
#include "memory/cuda.h"
#include <assert.h>

#include <string.h>

/* A call with its arguments. */
struct collective_call {
    const char *function;
    enum hoop_collective collective;
    const void *in;
    void *out;
    size_t count;
    hoop_datatype_t type;
    hoop_red_op_t op;
    int root;
    struct hoop_comm *comm;
    hoop_stream_t stream;
    const void *site; /* the caller's return address, for reports of a mismatch */
};

#define CALLER __builtin_return_address(0)

/* Looks up where the buffers lie before the call is queued: the program may free them on its stream
 * right after the call. */
static hoop_result_t collective_submit_on_device(const char *function, struct hoop_comm *comm,
                                                 const struct hoop_request *request)
{
    struct hoop_work work = {.comm = comm, .request = *request};
    const hoop_result_t result = hoop_device_look(function, comm, &work.request);
    if (result != HOOP_OK) {
        return hoop_group_spoil_by(comm, result);
    }
    return hoop_group_open() ? hoop_group_add(comm, &work.request, NULL)
                             : hoop_device_submit(&work, 1);
}

static hoop_result_t collective_submit(const char *function, struct hoop_comm *comm,
                                       const struct hoop_request *request, hoop_stream_t stream)
{
    if (__builtin_expect(stream == NULL && hoop_cuda_is_loaded(), 0)) {
        return collective_submit_on_device(function, comm, request);
    }
    if (__builtin_expect(hoop_group_open(), 0)) {
        return hoop_group_add(comm, request, stream);
    }
    if (__builtin_expect(stream == NULL, 1)) {
        return hoop_comm_submit(comm, request);
    }
    const struct hoop_work work = {.comm = comm, .request = *request};
    return hoop_streams_submit(&stream, 1, &work, 1, false);
}

/* ---- Checks --------------------------------------------------------------------------------- */

/* Everything but the buffers. */
static hoop_result_t collective_check(const struct collective_call *call)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->collective];
    const char *function = call->function;
    const size_t type_bytes = hoop_datatype_bytes(call->type);
    if (call->comm == NULL) {
        return hoop_null_error(function, "comm");
    }
    hoop_result_t result = hoop_comm_check_sized(call->comm);
    if (result != HOOP_OK) {
        return result;
    }
    if (type_bytes == 0) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: datatype is %d, expected 0 to %d", function,
                          (int)call->type, HOOP_NUM_DATATYPES - 1);
    }
    if (row->folds && (int)call->op < 0) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: op is %d, expected 0 to %d", function,
                          (int)call->op, HOOP_NUM_OPS - 1);
    }
    if (hoop_collective_is_rooted(call->collective) &&
        (call->root < 0 || (uint32_t)call->root >= call->comm->n)) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: root is %d, expected 0 to %u", function,
                          call->root, call->comm->n - 1);
    }
    if (call->count > SIZE_MAX / 2 / type_bytes / call->comm->n) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "%s: count is %zu, more than the address space holds", function,
                          call->count);
    }
    result = hoop_streams_check(function, call->stream);
    if (result == HOOP_OK) {
        result = hoop_streams_check_buffer(function, call->stream, call->in);
    }
    return result == HOOP_OK ? hoop_streams_check_buffer(function, call->stream, call->out)
                             : result;
}

/* Sizes in bytes of one block, and of this rank's input and output. */
struct collective_sizes {
    size_t block, in, out;
};

static inline __attribute__((always_inline)) struct collective_sizes
collective_sizes(const struct collective_call *call)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->collective];
    const bool root = (uint32_t)call->root == call->comm->rank;
    const size_t block = call->count * hoop_datatype_bytes(call->type);
    return (struct collective_sizes){
        .block = block,
        .in = hoop_extent_blocks(row->in, call->comm->n, root) * block,
        .out = hoop_extent_blocks(row->out, call->comm->n, root) * block,
    };
}

static inline __attribute__((always_inline)) struct hoop_request
collective_request(const struct collective_call *call, const struct collective_sizes *bytes)
{
    const bool rooted = hoop_collective_is_rooted(call->collective);
    return (struct hoop_request){
        .signature = {.collective = call->collective,
                      .type = (uint32_t)call->type,
                      .op = hoop_collectives[call->collective].folds ? (uint32_t)call->op : 0,
                      .root = rooted ? call->root : -1,
                      .count = call->count},
        .in = bytes->in > 0 ? call->in : NULL,
        .out = bytes->out > 0 ? call->out : NULL,
        .site = call->site,
    };
}

/* Where recvbuff must be for the call to be in place; NULL: this collective cannot be in place. */
static inline __attribute__((always_inline)) const void *
collective_place(const struct collective_call *call, size_t block)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->collective];
    const bool in_each = hoop_extent_is_each(row->in), out_each = hoop_extent_is_each(row->out);
    const size_t off = call->comm->rank * block;
    const uintptr_t in = (uintptr_t)call->in;
    if (in_each && out_each) {
        return NULL;
    }
    return (const void *)(in_each ? in + off : out_each ? in - off : in);
}

/* No buffer is missing, and the two are apart or in place. */
static inline __attribute__((always_inline)) bool
collective_buffers_are_right(const struct collective_call *call,
                             const struct collective_sizes *bytes)
{
    const uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    const void *place = collective_place(call, bytes->block);
    return (call->in != NULL || bytes->in == 0) && (call->out != NULL || bytes->out == 0) &&
           ((in <= out ? out - in >= bytes->in : in - out >= bytes->out) || bytes->in == 0 ||
            bytes->out == 0 || (place != NULL && call->out == place));
}

static hoop_result_t collective_check_buffers(const struct collective_call *call,
                                              const struct collective_sizes *bytes)
{
    const void *place = collective_place(call, bytes->block);
    if (collective_buffers_are_right(call, bytes)) {
        return HOOP_OK;
    }
    if ((call->in == NULL && bytes->in > 0) || (call->out == NULL && bytes->out > 0)) {
        return hoop_null_error(call->function,
                               call->in == NULL && bytes->in > 0 ? "sendbuff" : "recvbuff");
    }
    if (place == NULL) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "%s: sendbuff %p and recvbuff %p overlap; it cannot be done in place",
                          call->function, call->in, call->out);
    }
    return hoop_error(HOOP_INVALID_ARGUMENT,
                      "%s: sendbuff %p and recvbuff %p overlap in part; expected separate buffers, "
                      "or recvbuff at %p",
                      call->function, call->in, call->out, place);
}

/* The slow path: a call with something wrong, or special, about it. */
static __attribute__((noinline)) hoop_result_t
collective_call_checked(const struct collective_call *call)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->collective];
    hoop_result_t result = collective_check(call);
    if (result != HOOP_OK) {
        return hoop_group_spoil_by(call->comm, result);
    }
    const bool made = row->folds && (int)call->op >= HOOP_NUM_OPS;
    uint64_t scalar = 0;
    if (made) {
        result = hoop_ops_find(call->comm, call->op, call->type, &scalar);
    }
    if (result != HOOP_OK) {
        return hoop_group_spoil_by(
            call->comm, hoop_error(result, "%s: %s", call->function, hoop_thread_error()));
    }
    assert(call->comm != NULL);
    const struct collective_sizes bytes = collective_sizes(call);
    result = collective_check_buffers(call, &bytes);
    if (result != HOOP_OK) {
        return hoop_group_spoil_by(call->comm, result);
    }
    struct hoop_request request = collective_request(call, &bytes);
    request.signature.op = made ? HOOP_OP_PRE_MUL_SUM : request.signature.op;
    request.scalar = scalar;
    request.stream = hoop_streams_of_device(call->stream);
    return collective_submit(call->function, call->comm, &request,
                             hoop_streams_of_host(call->stream));
}

/* The call needs no slow path: the arguments are valid, buffers aside, and none is special. */
static inline __attribute__((always_inline)) bool
collective_is_plain(const struct collective_call *call)
{
    const bool folds = hoop_collectives[call->collective].folds;
    return call->comm != NULL && call->comm->n != 0 && call->stream == NULL &&
           hoop_datatype_bytes(call->type) != 0 &&
           call->count <= SIZE_MAX / 2 / HOOP_MAX_RANKS / 8 &&
           (!folds || ((int)call->op >= 0 && (int)call->op < HOOP_NUM_OPS)) &&
           (!hoop_collective_is_rooted(call->collective) || (uint32_t)call->root < call->comm->n);
}

static inline __attribute__((always_inline)) hoop_result_t
collective_call(struct collective_call call)
{
    if (__builtin_expect(collective_is_plain(&call), 1)) {
        const struct collective_sizes bytes = collective_sizes(&call);
        if (__builtin_expect(collective_buffers_are_right(&call, &bytes), 1)) {
            const struct hoop_request request = collective_request(&call, &bytes);
            return collective_submit(call.function, call.comm, &request, NULL);
        }
    }
    const struct collective_call checked = call; /* a copy: so `call` can stay in registers */
    return collective_call_checked(&checked);
}

/* ---- The functions -------------------------------------------------------------------------- */

hoop_result_t hoop_all_reduce(const void *sendbuff, void *recvbuff, size_t count,
                              hoop_datatype_t datatype, hoop_red_op_t op, hoop_comm_t comm,
                              hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_all_reduce", HOOP_COLL_ALL_REDUCE,
                                                    sendbuff, recvbuff, count, datatype, op, 0,
                                                    comm, stream, CALLER});
}

hoop_result_t hoop_barrier(hoop_comm_t comm, hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_barrier", HOOP_COLL_BARRIER, NULL, NULL,
                                                    0, HOOP_UINT8, HOOP_SUM, 0, comm, stream,
                                                    CALLER});
}

hoop_result_t hoop_reduce(const void *sendbuff, void *recvbuff, size_t count,
                          hoop_datatype_t datatype, hoop_red_op_t op, int root, hoop_comm_t comm,
                          hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_reduce", HOOP_COLL_REDUCE, sendbuff,
                                                    recvbuff, count, datatype, op, root, comm,
                                                    stream, CALLER});
}

hoop_result_t hoop_reduce_scatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                  hoop_datatype_t datatype, hoop_red_op_t op, hoop_comm_t comm,
                                  hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_reduce_scatter", HOOP_COLL_REDUCE_SCATTER,
                                                    sendbuff, recvbuff, recvcount, datatype, op, 0,
                                                    comm, stream, CALLER});
}

hoop_result_t hoop_all_gather(const void *sendbuff, void *recvbuff, size_t sendcount,
                              hoop_datatype_t datatype, hoop_comm_t comm, hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_all_gather", HOOP_COLL_ALL_GATHER,
                                                    sendbuff, recvbuff, sendcount, datatype,
                                                    HOOP_SUM, 0, comm, stream, CALLER});
}

hoop_result_t hoop_broadcast(const void *sendbuff, void *recvbuff, size_t count,
                             hoop_datatype_t datatype, int root, hoop_comm_t comm,
                             hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_broadcast", HOOP_COLL_BROADCAST, sendbuff,
                                                    recvbuff, count, datatype, HOOP_SUM, root, comm,
                                                    stream, CALLER});
}

hoop_result_t hoop_bcast(void *buff, size_t count, hoop_datatype_t datatype, int root,
                         hoop_comm_t comm, hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_bcast", HOOP_COLL_BROADCAST, buff, buff,
                                                    count, datatype, HOOP_SUM, root, comm, stream,
                                                    CALLER});
}

hoop_result_t hoop_alltoall(const void *sendbuff, void *recvbuff, size_t count,
                            hoop_datatype_t datatype, hoop_comm_t comm, hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_alltoall", HOOP_COLL_ALLTOALL, sendbuff,
                                                    recvbuff, count, datatype, HOOP_SUM, 0, comm,
                                                    stream, CALLER});
}

hoop_result_t hoop_gather(const void *sendbuff, void *recvbuff, size_t count,
                          hoop_datatype_t datatype, int root, hoop_comm_t comm,
                          hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_gather", HOOP_COLL_GATHER, sendbuff,
                                                    recvbuff, count, datatype, HOOP_SUM, root, comm,
                                                    stream, CALLER});
}

hoop_result_t hoop_scatter(const void *sendbuff, void *recvbuff, size_t count,
                           hoop_datatype_t datatype, int root, hoop_comm_t comm,
                           hoop_stream_t stream)
{
    return collective_call((struct collective_call){"hoop_scatter", HOOP_COLL_SCATTER, sendbuff,
                                                    recvbuff, count, datatype, HOOP_SUM, root, comm,
                                                    stream, CALLER});
}

/* ---- Operations with a scalar --------------------------------------------------------------- */

hoop_result_t hoop_red_op_create_pre_mul_sum(hoop_red_op_t *op, void *scalar,
                                             hoop_datatype_t datatype,
                                             hoop_scalar_residence_t residence, hoop_comm_t comm)
{
    static const char function[] = "hoop_red_op_create_pre_mul_sum";
    if (op == NULL || scalar == NULL || comm == NULL) {
        return hoop_null_error(function, op == NULL ? "op" : scalar == NULL ? "scalar" : "comm");
    }
    if (hoop_datatype_bytes(datatype) == 0) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: datatype is %d, expected 0 to %d", function,
                          (int)datatype, HOOP_NUM_DATATYPES - 1);
    }
    if (residence != HOOP_SCALAR_DEVICE && residence != HOOP_SCALAR_HOST_IMMEDIATE) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: residence is %d, expected 0 or 1", function,
                          (int)residence);
    }
    uint64_t element = 0;
    const size_t bytes = hoop_datatype_bytes(datatype);
    hoop_cu_context_t context = NULL;
    if (residence == HOOP_SCALAR_HOST_IMMEDIATE) {
        memcpy(&element, scalar, bytes);
    } else {
        hoop_result_t result = hoop_cuda_load() ? hoop_cuda_find(scalar, &context) : HOOP_OK;
        if (result == HOOP_OK && context == NULL) {
            return hoop_error(HOOP_INVALID_ARGUMENT, "%s: the scalar %p is not device memory",
                              function, scalar);
        }
        result = result == HOOP_OK ? hoop_cuda_read(context, &element, scalar, bytes) : result;
        if (result != HOOP_OK) {
            return hoop_error(result, "%s: %s", function, hoop_thread_error());
        }
    }
    return hoop_ops_add(comm, datatype, &element, op);
}

hoop_result_t hoop_red_op_destroy(hoop_red_op_t op, hoop_comm_t comm)
{
    return comm != NULL ? hoop_ops_remove(comm, op)
                        : hoop_null_error("hoop_red_op_destroy", "comm");
}

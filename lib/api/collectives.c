/*
 * The collectives: checks by the table (base/collective.h), a request, the comm. all_reduce has its
 * checks in line, since its smallest calls are nothing but latency.
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

/* A call as it was made. */
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
    const void *site; /* where it was made */
};

#define CALLER __builtin_return_address(0)

/* Where its buffers lie is looked at now: it may be queued. */
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
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: comm is NULL", function);
    }
    if (call->comm->n == 0) {
        return hoop_comm_check_born(call->comm);
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
    hoop_result_t result = hoop_streams_check(function, call->stream);
    if (result == HOOP_OK) {
        result = hoop_streams_check_buffer(function, call->stream, call->in);
    }
    return result == HOOP_OK ? hoop_streams_check_buffer(function, call->stream, call->out)
                             : result;
}

/* Where the output lies if it is the input's memory, as the table says; NULL: nowhere. */
static const void *collective_place(const struct collective_call *call, size_t block)
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

static hoop_result_t collective_check_buffers(const struct collective_call *call, size_t in_bytes,
                                              size_t out_bytes, size_t block)
{
    const uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    if ((call->in == NULL && in_bytes > 0) || (call->out == NULL && out_bytes > 0)) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: %s is NULL", call->function,
                          call->in == NULL && in_bytes > 0 ? "sendbuff" : "recvbuff");
    }
    const bool apart = in <= out ? out - in >= in_bytes : in - out >= out_bytes;
    const void *place = collective_place(call, block);
    if (in_bytes == 0 || out_bytes == 0 || apart || (place != NULL && call->out == place)) {
        return HOOP_OK;
    }
    if (place == NULL) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "%s: sendbuff %p and recvbuff %p overlap; it cannot be done in place",
                          call->function, call->in, call->out);
    }
    return hoop_error(HOOP_INVALID_ARGUMENT,
                      "%s: sendbuff %p and recvbuff %p overlap in part; expected to be apart, or "
                      "recvbuff at %p",
                      call->function, call->in, call->out, place);
}

static hoop_result_t collective_call(const struct collective_call *call)
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
    const bool rooted = hoop_collective_is_rooted(call->collective);
    const bool root = rooted && (uint32_t)call->root == call->comm->rank;
    const size_t block = call->count * hoop_datatype_bytes(call->type);
    const size_t in_bytes = hoop_extent_blocks(row->in, call->comm->n, root) * block;
    const size_t out_bytes = hoop_extent_blocks(row->out, call->comm->n, root) * block;
    result = collective_check_buffers(call, in_bytes, out_bytes, block);
    if (result != HOOP_OK) {
        return hoop_group_spoil_by(call->comm, result);
    }
    const struct hoop_request request = {
        .signature = {.collective = call->collective,
                      .type = (uint32_t)call->type,
                      .op = made         ? HOOP_OP_PRE_MUL_SUM
                            : row->folds ? (uint32_t)call->op
                                         : 0,
                      .root = rooted ? call->root : -1,
                      .count = call->count},
        .in = in_bytes > 0 ? call->in : NULL,
        .out = out_bytes > 0 ? call->out : NULL,
        .scalar = scalar,
        .site = call->site,
        .stream = hoop_streams_of_device(call->stream),
    };
    return collective_submit(call->function, call->comm, &request,
                             hoop_streams_of_host(call->stream));
}

/* ---- The functions -------------------------------------------------------------------------- */

static bool collective_overlap(const void *in, const void *out, size_t bytes)
{
    const uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;
    return a != b && (a < b ? b - a : a - b) < bytes;
}

hoop_result_t hoop_all_reduce(const void *sendbuff, void *recvbuff, size_t count,
                              hoop_datatype_t datatype, hoop_red_op_t op, hoop_comm_t comm,
                              hoop_stream_t stream)
{
    const size_t type_bytes = hoop_datatype_bytes(datatype);
    if (__builtin_expect(comm == NULL || stream != NULL || type_bytes == 0 || (int)op < 0 ||
                             (int)op >= HOOP_NUM_OPS || count > SIZE_MAX / 2 / HOOP_MAX_RANKS / 8 ||
                             sendbuff == NULL || recvbuff == NULL ||
                             collective_overlap(sendbuff, recvbuff, count * type_bytes),
                         0)) {
        return collective_call(&(struct collective_call){"hoop_all_reduce", HOOP_COLL_ALL_REDUCE,
                                                         sendbuff, recvbuff, count, datatype, op, 0,
                                                         comm, stream, CALLER});
    }
    const struct hoop_request request = {
        .signature = {.collective = HOOP_COLL_ALL_REDUCE,
                      .type = (uint32_t)datatype,
                      .op = (uint32_t)op,
                      .root = -1,
                      .count = count},
        .in = sendbuff,
        .out = recvbuff,
        .site = CALLER,
    };
    return collective_submit("hoop_all_reduce", comm, &request, NULL);
}

hoop_result_t hoop_barrier(hoop_comm_t comm, hoop_stream_t stream)
{
    return collective_call(&(struct collective_call){"hoop_barrier", HOOP_COLL_BARRIER, NULL, NULL,
                                                     0, HOOP_UINT8, HOOP_SUM, 0, comm, stream,
                                                     CALLER});
}

hoop_result_t hoop_reduce(const void *sendbuff, void *recvbuff, size_t count,
                          hoop_datatype_t datatype, hoop_red_op_t op, int root, hoop_comm_t comm,
                          hoop_stream_t stream)
{
    return collective_call(&(struct collective_call){"hoop_reduce", HOOP_COLL_REDUCE, sendbuff,
                                                     recvbuff, count, datatype, op, root, comm,
                                                     stream, CALLER});
}

hoop_result_t hoop_reduce_scatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                  hoop_datatype_t datatype, hoop_red_op_t op, hoop_comm_t comm,
                                  hoop_stream_t stream)
{
    return collective_call(
        &(struct collective_call){"hoop_reduce_scatter", HOOP_COLL_REDUCE_SCATTER, sendbuff,
                                  recvbuff, recvcount, datatype, op, 0, comm, stream, CALLER});
}

hoop_result_t hoop_all_gather(const void *sendbuff, void *recvbuff, size_t sendcount,
                              hoop_datatype_t datatype, hoop_comm_t comm, hoop_stream_t stream)
{
    return collective_call(&(struct collective_call){"hoop_all_gather", HOOP_COLL_ALL_GATHER,
                                                     sendbuff, recvbuff, sendcount, datatype,
                                                     HOOP_SUM, 0, comm, stream, CALLER});
}

hoop_result_t hoop_broadcast(const void *sendbuff, void *recvbuff, size_t count,
                             hoop_datatype_t datatype, int root, hoop_comm_t comm,
                             hoop_stream_t stream)
{
    return collective_call(&(struct collective_call){"hoop_broadcast", HOOP_COLL_BROADCAST,
                                                     sendbuff, recvbuff, count, datatype, HOOP_SUM,
                                                     root, comm, stream, CALLER});
}

hoop_result_t hoop_bcast(void *buff, size_t count, hoop_datatype_t datatype, int root,
                         hoop_comm_t comm, hoop_stream_t stream)
{
    return collective_call(&(struct collective_call){"hoop_bcast", HOOP_COLL_BROADCAST, buff, buff,
                                                     count, datatype, HOOP_SUM, root, comm, stream,
                                                     CALLER});
}

hoop_result_t hoop_alltoall(const void *sendbuff, void *recvbuff, size_t count,
                            hoop_datatype_t datatype, hoop_comm_t comm, hoop_stream_t stream)
{
    return collective_call(&(struct collective_call){"hoop_alltoall", HOOP_COLL_ALLTOALL, sendbuff,
                                                     recvbuff, count, datatype, HOOP_SUM, 0, comm,
                                                     stream, CALLER});
}

hoop_result_t hoop_gather(const void *sendbuff, void *recvbuff, size_t count,
                          hoop_datatype_t datatype, int root, hoop_comm_t comm,
                          hoop_stream_t stream)
{
    return collective_call(&(struct collective_call){"hoop_gather", HOOP_COLL_GATHER, sendbuff,
                                                     recvbuff, count, datatype, HOOP_SUM, root,
                                                     comm, stream, CALLER});
}

hoop_result_t hoop_scatter(const void *sendbuff, void *recvbuff, size_t count,
                           hoop_datatype_t datatype, int root, hoop_comm_t comm,
                           hoop_stream_t stream)
{
    return collective_call(&(struct collective_call){"hoop_scatter", HOOP_COLL_SCATTER, sendbuff,
                                                     recvbuff, count, datatype, HOOP_SUM, root,
                                                     comm, stream, CALLER});
}

/* ---- Operations with a scalar --------------------------------------------------------------- */

hoop_result_t hoop_red_op_create_pre_mul_sum(hoop_red_op_t *op, void *scalar,
                                             hoop_datatype_t datatype,
                                             hoop_scalar_residence_t residence, hoop_comm_t comm)
{
    static const char function[] = "hoop_red_op_create_pre_mul_sum";
    if (op == NULL || scalar == NULL || comm == NULL) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: %s is NULL", function,
                          op == NULL       ? "op"
                          : scalar == NULL ? "scalar"
                                           : "comm");
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
            return hoop_error(HOOP_INVALID_ARGUMENT, "%s: the scalar %p is not memory of a device",
                              function, scalar);
        }
        result = result == HOOP_OK ? hoop_cuda_read(&element, scalar, bytes) : result;
        if (result != HOOP_OK) {
            return hoop_error(result, "%s: %s", function, hoop_thread_error());
        }
    }
    return hoop_ops_add(comm, datatype, &element, op);
}

hoop_result_t hoop_red_op_destroy(hoop_red_op_t op, hoop_comm_t comm)
{
    return comm != NULL ? hoop_ops_remove(comm, op)
                        : hoop_error(HOOP_INVALID_ARGUMENT, "hoop_red_op_destroy: comm is NULL");
}

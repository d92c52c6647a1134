/* Point-to-point: a call is checked, becomes a transfer, and goes to the comm. */
#include "api/device_stream.h"
#include "api/group.h"
#include "api/streams.h"
#include "comm/comm.h"
#include "comm/driver.h"
#include "memory/cuda.h"
#include <stdlib.h>

static hoop_result_t transfer_check(const char *function, const void *buffer, size_t count,
                                    hoop_datatype_t type, int peer, struct hoop_comm *comm,
                                    hoop_stream_t stream)
{
    const size_t type_bytes = hoop_datatype_bytes(type);
    if (comm == NULL) {
        return hoop_null_error(function, "comm");
    }
    const hoop_result_t sized = hoop_comm_check_sized(comm);
    if (sized != HOOP_OK) {
        return sized;
    }
    if (type_bytes == 0) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: datatype is %d, expected 0 to %d", function,
                          (int)type, HOOP_NUM_DATATYPES - 1);
    }
    if (peer < 0 || (uint32_t)peer >= comm->n) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: peer is %d, expected 0 to %u", function, peer,
                          comm->n - 1);
    }
    size_t bytes = 0; /* no division: it would take as long as all other checks */
    if (__builtin_mul_overflow(count, type_bytes, &bytes) || bytes > SIZE_MAX / 2) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "%s: count is %zu, more than the address space holds", function, count);
    }
    if (buffer == NULL && count > 0) {
        return hoop_null_error(function, "the buffer");
    }
    if ((uint32_t)peer == comm->rank && !hoop_group_open()) {
        return hoop_error(
            HOOP_INVALID_USAGE,
            "%s: peer %d is this rank itself: expected a send and a receive in one group", function,
            peer);
    }
    if (stream == NULL) {
        return HOOP_OK;
    }
    const hoop_result_t result = hoop_streams_check(function, stream);
    return result == HOOP_OK ? hoop_streams_check_buffer(function, stream, buffer) : result;
}

/* Queues it on the host stream `queue`, or on its CUDA stream; the transfer is moved. */
static hoop_result_t transfer_queue(struct hoop_transfer *transfer, struct hoop_comm *comm,
                                    hoop_stream_t queue)
{
    struct hoop_work work = {.comm = comm,
                             .request = {.signature = transfer->signature, .out = transfer}};
    return queue != NULL ? hoop_streams_submit(&queue, 1, &work, 1, false)
                         : hoop_device_submit(&work, 1);
}

/* For a transfer that outlives the call, because it is in a group or is queued; it is moved. */
static hoop_result_t transfer_keep(const char *function, struct hoop_transfer *transfer,
                                   struct hoop_comm *comm, hoop_stream_t stream,
                                   hoop_stream_t queue)
{
    if (queue == NULL && hoop_cuda_is_loaded()) {
        const hoop_result_t looked = hoop_device_look_transfer(function, transfer, stream);
        if (looked != HOOP_OK) {
            free(transfer);
            return hoop_group_spoil_by(comm, looked);
        }
    }
    return hoop_group_open() ? hoop_group_add_transfer(comm, transfer, queue)
                             : transfer_queue(transfer, comm, queue);
}

/* site: the caller's return address. */
static hoop_result_t transfer_call(void *buffer, size_t count, hoop_datatype_t type, int peer,
                                   bool sending, struct hoop_comm *comm, hoop_stream_t stream,
                                   const void *site)
{
    const char *function = sending ? "hoop_send" : "hoop_recv";
    const hoop_result_t checked = transfer_check(function, buffer, count, type, peer, comm, stream);
    if (checked != HOOP_OK) {
        return hoop_group_spoil_by(comm, checked);
    }
    const hoop_stream_t queue = hoop_streams_of_host(stream);
    const bool outlives = hoop_group_open() || queue != NULL || hoop_cuda_is_loaded();
    struct hoop_transfer own, *transfer = outlives ? hoop_group_new_transfer() : &own;
    if (transfer == NULL) {
        return hoop_group_spoil_by(
            comm, hoop_error(HOOP_OUT_OF_MEMORY, "%s: no memory for a transfer", function));
    }
    /* Field by field: to clear the whole struct would write three times as much in every call. */
    transfer->next = NULL;
    transfer->data = buffer;
    transfer->bytes = count * hoop_datatype_bytes(type);
    transfer->peer = (uint32_t)peer;
    transfer->sending = sending;
    transfer->stream = hoop_streams_of_device(stream);
    transfer->signature = (struct hoop_signature){
        .collective = HOOP_TRANSFER, .type = (uint32_t)type, .root = -1, .count = count};
    transfer->site = site;
    transfer->looked = transfer->staged = false;
    transfer->context = NULL;
    if (outlives) {
        return transfer_keep(function, transfer, comm, stream, queue);
    }
    const struct hoop_request request = {.signature = transfer->signature, .out = transfer};
    return hoop_comm_submit(comm, &request);
}

hoop_result_t hoop_send(const void *sendbuff, size_t count, hoop_datatype_t datatype, int peer,
                        hoop_comm_t comm, hoop_stream_t stream)
{
    return transfer_call((void *)(uintptr_t)sendbuff, count, datatype, peer, true, comm, stream,
                         __builtin_return_address(0));
}

hoop_result_t hoop_recv(void *recvbuff, size_t count, hoop_datatype_t datatype, int peer,
                        hoop_comm_t comm, hoop_stream_t stream)
{
    return transfer_call(recvbuff, count, datatype, peer, false, comm, stream,
                         __builtin_return_address(0));
}

/*
 * alltoallv: all ranks announce it like a barrier; then every ordered pair of ranks exchanges its
 * block by a transfer (transfer/exchange.h). Empty blocks are exchanged too, so that counts on
 * which two ranks disagree are found and reported.
 */
#include "api/device_stream.h"
#include "api/group.h"
#include "api/streams.h"
#include "comm/comm.h"
#include "comm/driver.h"
#include "memory/cuda.h"

#include <stdlib.h>

static const char function[] = "hoop_alltoallv";

/* One side of the call: all that it sends, or all that it receives. */
struct vector {
    const char *buffer_name, *counts_name, *displs_name;
    uintptr_t buffer;
    const size_t *counts, *displs;
    bool sending;
};

/* The memory of the block for, or from, one rank. */
struct span {
    uintptr_t start, end;
    uint32_t rank;
    const struct vector *vector;
};

static hoop_result_t vector_check(const struct vector *vector, uint32_t n, size_t type_bytes)
{
    const size_t most = SIZE_MAX / 2 / type_bytes;
    if (vector->counts == NULL || vector->displs == NULL) {
        return hoop_null_error(function,
                               vector->counts == NULL ? vector->counts_name : vector->displs_name);
    }
    for (uint32_t rank = 0; rank < n; rank++) {
        const size_t count = vector->counts[rank], displ = vector->displs[rank];
        if (count > most || (count > 0 && displ > most - count)) {
            return hoop_error(HOOP_INVALID_ARGUMENT,
                              "%s: %s[%u] is %zu and %s[%u] is %zu, more than the address space "
                              "holds",
                              function, vector->counts_name, rank, count, vector->displs_name, rank,
                              displ);
        }
        if (count > 0 && vector->buffer == 0) {
            return hoop_error(HOOP_INVALID_ARGUMENT, "%s: %s is NULL, and %s[%u] is %zu", function,
                              vector->buffer_name, vector->counts_name, rank, count);
        }
    }
    return HOOP_OK;
}

static hoop_result_t vectors_check(const struct vector vectors[2], hoop_datatype_t type,
                                   struct hoop_comm *comm, hoop_stream_t stream)
{
    const size_t type_bytes = hoop_datatype_bytes(type);
    if (comm == NULL) {
        return hoop_null_error(function, "comm");
    }
    if (type_bytes == 0) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: datatype is %d, expected 0 to %d", function,
                          (int)type, HOOP_NUM_DATATYPES - 1);
    }
    hoop_result_t result = hoop_comm_check_sized(comm);
    for (int side = 0; side < 2 && result == HOOP_OK; side++) {
        result = vector_check(&vectors[side], comm->n, type_bytes);
    }
    if (result == HOOP_OK && vectors[0].counts[comm->rank] != vectors[1].counts[comm->rank]) {
        result = hoop_error(HOOP_INVALID_ARGUMENT,
                            "%s: sendcounts[%u] is %zu and recvcounts[%u] is %zu, expected the "
                            "same: that is what rank %u sends itself",
                            function, comm->rank, vectors[0].counts[comm->rank], comm->rank,
                            vectors[1].counts[comm->rank], comm->rank);
    }
    if (result == HOOP_OK) {
        result = hoop_streams_check(function, stream);
    }
    for (int side = 0; side < 2 && result == HOOP_OK; side++) {
        result = hoop_streams_check_buffer(function, stream, (const void *)vectors[side].buffer);
    }
    return result;
}

/* ---- Overlaps ------------------------------------------------------------------------------- */

static int span_order(const void *a, const void *b)
{
    const struct span *left = a, *right = b;
    return (left->start > right->start) - (left->start < right->start);
}

static hoop_result_t span_overlap(const struct span *a, const struct span *b)
{
    return hoop_error(HOOP_INVALID_ARGUMENT,
                      "%s: the blocks %s[%u] and %s[%u] overlap: [%p, %p) and [%p, %p)", function,
                      a->vector->buffer_name, a->rank, b->vector->buffer_name, b->rank,
                      (void *)a->start, (void *)a->end, (void *)b->start, (void *)b->end);
}

/* A received block may overlap no other block; blocks that are sent may overlap each other. Sorts
 * spans by their start. */
static hoop_result_t spans_check(struct span *spans, size_t count)
{
    const struct span *furthest[2] = {NULL, NULL}; /* sent, received: the span that ends last */
    qsort(spans, count, sizeof(*spans), span_order);
    for (size_t i = 0; i < count; i++) {
        const struct span *span = &spans[i];
        for (int side = span->vector->sending ? 1 : 0; side < 2; side++) {
            if (furthest[side] != NULL && furthest[side]->end > span->start) {
                return span_overlap(furthest[side], span);
            }
        }
        const struct span **far = &furthest[span->vector->sending ? 0 : 1];
        *far = *far == NULL || (*far)->end < span->end ? span : *far;
    }
    return HOOP_OK;
}

static hoop_result_t vectors_check_overlaps(const struct vector vectors[2], size_t type_bytes,
                                            uint32_t n)
{
    struct span *spans = calloc((size_t)n * 2, sizeof(*spans));
    size_t count = 0;
    if (spans == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "%s: no memory for %u ranks", function, n);
    }
    for (uint32_t i = 0; i < n * 2; i++) {
        const struct vector *vector = &vectors[i % 2];
        const uint32_t rank = i / 2;
        const uintptr_t start = vector->buffer + vector->displs[rank] * type_bytes;
        if (vector->counts[rank] > 0) {
            spans[count++] = (struct span){.start = start,
                                           .end = start + vector->counts[rank] * type_bytes,
                                           .rank = rank,
                                           .vector = vector};
        }
    }
    const hoop_result_t result = spans_check(spans, count);
    free(spans);
    return result;
}

/* ---- The call ------------------------------------------------------------------------------- */

static struct hoop_transfer vector_transfer(const struct vector *vector, uint32_t rank,
                                            const struct hoop_signature *signature)
{
    const size_t type_bytes = hoop_datatype_bytes((hoop_datatype_t)signature->type);
    struct hoop_transfer ret = {
        .data = (void *)(vector->buffer + vector->displs[rank] * type_bytes),
        .bytes = vector->counts[rank] * type_bytes,
        .peer = rank,
        .sending = vector->sending,
        .signature = *signature,
    };
    ret.data = ret.bytes > 0 ? ret.data : NULL;
    ret.signature.op = HOOP_ALLTOALLV_BLOCK;
    ret.signature.count = vector->counts[rank];
    return ret;
}

/* All transfers of the call as a list in one allocation: a send and a receive for each rank,
 * beginning with the next rank. NULL: no memory. */
static struct hoop_transfer *vectors_transfers(const struct vector vectors[2],
                                               const struct hoop_signature *signature,
                                               const struct hoop_comm *comm, const void *site)
{
    const uint32_t count = comm->n * 2;
    struct hoop_transfer *transfers = calloc(count, sizeof(*transfers));
    for (uint32_t i = 0; transfers != NULL && i < count; i++) {
        const uint32_t rank = (comm->rank + 1 + i / 2) % comm->n;
        transfers[i] = vector_transfer(&vectors[i % 2], rank, signature);
        transfers[i].site = site;
        transfers[i].next = i + 1 < count ? &transfers[i + 1] : NULL;
    }
    return transfers;
}

/* Finds out for each transfer on which device its buffer lies. */
static hoop_result_t vectors_look(struct hoop_transfer *transfers, hoop_stream_t stream)
{
    hoop_result_t result = HOOP_OK;
    for (struct hoop_transfer *at = transfers; at != NULL && result == HOOP_OK; at = at->next) {
        result = hoop_device_look_transfer(function, at, stream);
    }
    return result;
}

static hoop_result_t vectors_submit(const struct vector vectors[2], hoop_datatype_t type,
                                    struct hoop_comm *comm, hoop_stream_t stream, const void *site)
{
    const struct hoop_signature signature = {
        .collective = HOOP_COLL_ALLTOALLV, .type = (uint32_t)type, .root = -1};
    struct hoop_transfer *transfers = vectors_transfers(vectors, &signature, comm, site);
    if (transfers == NULL) {
        return hoop_group_spoil_by(
            comm, hoop_error(HOOP_OUT_OF_MEMORY, "%s: no memory for %u ranks", function, comm->n));
    }
    const struct hoop_request request = {.signature = signature,
                                         .out = transfers,
                                         .site = site,
                                         .stream = hoop_streams_of_device(stream)};
    const hoop_stream_t queue = hoop_streams_of_host(stream);
    const bool on_device = queue == NULL && hoop_cuda_is_loaded();
    struct hoop_work work = {.comm = comm, .request = request};
    hoop_result_t result = on_device ? vectors_look(transfers, stream) : HOOP_OK;
    if (result != HOOP_OK) {
        (void)hoop_group_spoil_by(comm, result);
    } else if (hoop_group_open()) {
        result = hoop_group_add(comm, &request, queue);
        transfers = result == HOOP_OK ? NULL : transfers; /* the group owns them now */
    } else if (queue != NULL || on_device) {
        return queue != NULL ? hoop_streams_submit(&queue, 1, &work, 1, false)
                             : hoop_device_submit(&work, 1);
    } else {
        result = hoop_comm_submit(comm, &request);
    }
    free(transfers);
    return result;
}

/* The arguments are RCCL's and MPI's. NOLINTNEXTLINE(readability-function-size) */
hoop_result_t hoop_alltoallv(const void *sendbuff, const size_t *sendcounts, const size_t *sdispls,
                             void *recvbuff, const size_t *recvcounts, const size_t *rdispls,
                             hoop_datatype_t datatype, hoop_comm_t comm, hoop_stream_t stream)
{
    const struct vector vectors[2] = {
        {"sendbuff", "sendcounts", "sdispls", (uintptr_t)sendbuff, sendcounts, sdispls, true},
        {"recvbuff", "recvcounts", "rdispls", (uintptr_t)recvbuff, recvcounts, rdispls, false},
    };
    hoop_result_t result = vectors_check(vectors, datatype, comm, stream);
    if (result == HOOP_OK) {
        result = vectors_check_overlaps(vectors, hoop_datatype_bytes(datatype), comm->n);
    }
    return result == HOOP_OK
               ? vectors_submit(vectors, datatype, comm, stream, __builtin_return_address(0))
               : hoop_group_spoil_by(comm, result);
}

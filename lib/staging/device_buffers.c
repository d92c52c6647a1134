/* Buffers on devices (see device_buffers.h). */
#include "staging/device_buffers.h"

#include "base/collective.h"
#include "reduce/reduce.h"

/* Where a buffer lies, and its place in the staging memory. */
struct device_buffer {
    void *at;
    size_t bytes, offset;
    bool on_device;
};

/* *context: its, where it lies on a device. */
static hoop_result_t buffer_look(const void *at, size_t bytes, hoop_cu_context_t *context,
                                 struct device_buffer *ret)
{
    hoop_cu_context_t its = NULL;
    const hoop_result_t result = bytes > 0 ? hoop_cuda_find(at, &its) : HOOP_OK;
    *ret = (struct device_buffer){.at = (void *)(uintptr_t)at, .bytes = bytes};
    ret->on_device = result == HOOP_OK && its != NULL;
    *context = ret->on_device ? its : *context;
    return result;
}

static void *buffer_place(const struct hoop_staging *staging, const struct device_buffer *buffer)
{
    return buffer->on_device ? staging->host + buffer->offset : buffer->at;
}

/* In place the smaller lies inside the larger, and so do their places. */
static bool buffers_nest(struct hoop_staging *staging, struct device_buffer *a,
                         struct device_buffer *b)
{
    struct device_buffer *large = a->bytes >= b->bytes ? a : b, *small = large == a ? b : a;
    const uintptr_t offset = (uintptr_t)small->at - (uintptr_t)large->at;
    if (!a->on_device || !b->on_device || offset >= large->bytes) {
        return false;
    }
    large->offset = hoop_staging_room(staging, large->bytes);
    small->offset = large->offset + offset;
    return true;
}

static hoop_result_t devices_open(struct hoop_staging *staging, hoop_cu_context_t context)
{
    const hoop_result_t result = context != NULL ? HOOP_OK : hoop_cuda_context(&context);
    return result == HOOP_OK ? hoop_staging_open(staging, context) : result;
}

/* Bytes of this rank's side of a collective. */
static size_t devices_bytes(const struct hoop_device_call *call, uint8_t extent)
{
    const struct hoop_signature *s = call->signature;
    const bool root = s->root == (int32_t)call->me;
    return hoop_extent_blocks(extent, call->n, root) * s->count *
           hoop_datatype_bytes((hoop_datatype_t)s->type);
}

static hoop_result_t devices_fetch_buffers(struct hoop_staging *staging,
                                           const struct hoop_device_call *call, const void **ret_in,
                                           void **ret_out)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->signature->collective];
    hoop_cu_context_t context = NULL;
    struct device_buffer in, out;
    hoop_result_t result = buffer_look(*ret_in, devices_bytes(call, row->in), &context, &in);
    if (result == HOOP_OK) {
        result = buffer_look(*ret_out, devices_bytes(call, row->out), &context, &out);
    }
    if (result != HOOP_OK) {
        return result;
    }
    if (!in.on_device && !out.on_device && call->stream == NULL) {
        return HOOP_OK;
    }
    if (!buffers_nest(staging, &in, &out)) {
        in.offset = in.on_device ? hoop_staging_room(staging, in.bytes) : 0;
        out.offset = out.on_device ? hoop_staging_room(staging, out.bytes) : 0;
    }
    if (in.on_device) {
        result = hoop_staging_add(staging, in.at, in.offset, in.bytes, false);
    }
    if (out.on_device && result == HOOP_OK) {
        result = hoop_staging_add(staging, out.at, out.offset, out.bytes, true);
    }
    if (result == HOOP_OK) {
        result = devices_open(staging, context);
    }
    if (result == HOOP_OK) {
        result = hoop_staging_follow(staging, call->stream);
    }
    if (result == HOOP_OK) {
        *ret_in = buffer_place(staging, &in);
        *ret_out = buffer_place(staging, &out);
        result = HOOP_AGAIN;
    }
    return result;
}

/* Its place is kept in `moved`, which is the exchange's later, until the host memory is there. */
static hoop_result_t devices_add_transfer(struct hoop_staging *staging,
                                          struct hoop_transfer *transfer,
                                          hoop_cu_context_t *context)
{
    struct device_buffer buffer;
    const hoop_result_t result = buffer_look(transfer->data, transfer->bytes, context, &buffer);
    transfer->staged = buffer.on_device;
    if (!buffer.on_device) {
        return result;
    }
    transfer->moved = hoop_staging_room(staging, buffer.bytes);
    return hoop_staging_add(staging, buffer.at, transfer->moved, buffer.bytes, !transfer->sending);
}

static hoop_result_t devices_fetch_transfers(struct hoop_staging *staging,
                                             struct hoop_transfer *first, hoop_stream_t stream)
{
    hoop_cu_context_t context = NULL;
    hoop_result_t result = HOOP_OK;
    bool any = stream != NULL;
    for (struct hoop_transfer *at = first; at != NULL && result == HOOP_OK; at = at->next) {
        result = devices_add_transfer(staging, at, &context);
        any |= at->staged || at->stream != NULL;
    }
    if (result != HOOP_OK || !any) {
        return result;
    }
    result = devices_open(staging, context);
    if (stream != NULL && result == HOOP_OK) {
        result = hoop_staging_follow(staging, stream);
    }
    for (struct hoop_transfer *at = first; at != NULL && result == HOOP_OK; at = at->next) {
        if (at->stream != NULL || (at->staged && stream == NULL)) {
            result = hoop_staging_follow(staging, at->stream);
        }
        if (at->staged) {
            at->data = staging->host + at->moved;
            at->moved = 0;
        }
    }
    return result == HOOP_OK ? HOOP_AGAIN : result;
}

hoop_result_t hoop_device_buffers_fetch(struct hoop_staging *staging,
                                        const struct hoop_device_call *call, const void **in,
                                        void **out)
{
    const uint32_t collective = call->signature->collective;
    const int before = hoop_cancel_off();
    hoop_staging_reset(staging);
    hoop_result_t result = collective == HOOP_TRANSFER || collective == HOOP_COLL_ALLTOALLV
                               ? devices_fetch_transfers(staging, *out, call->stream)
                               : devices_fetch_buffers(staging, call, in, out);
    if (result == HOOP_AGAIN) {
        result = hoop_staging_copy(staging, false);
        result = result == HOOP_OK ? HOOP_AGAIN : result;
    }
    staging->delivers &= result == HOOP_AGAIN;
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_device_buffers_follow(struct hoop_staging *staging,
                                         const struct hoop_device_call *call, const void *in,
                                         const void *out)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->signature->collective];
    const size_t in_bytes = devices_bytes(call, row->in), out_bytes = devices_bytes(call, row->out);
    hoop_cu_context_t in_context = NULL, out_context = NULL;
    hoop_result_t result = in_bytes > 0 ? hoop_cuda_find(in, &in_context) : HOOP_OK;
    if (result == HOOP_OK && out_bytes > 0) {
        result = hoop_cuda_find(out, &out_context);
    }
    if (result != HOOP_OK || (in_bytes == 0 && out_bytes == 0) ||
        (in_bytes > 0 && in_context == NULL) || (out_bytes > 0 && out_context == NULL) ||
        (in_bytes > 0 && out_bytes > 0 && in_context != out_context)) {
        return result;
    }
    const int before = hoop_cancel_off();
    hoop_staging_reset(staging);
    result = hoop_staging_open(staging, in_bytes > 0 ? in_context : out_context);
    const bool can = staging->device != 0 && (!row->folds || staging->kernels != NULL);
    if (result == HOOP_OK && !can) {
        hoop_cancel_restore(before);
        return HOOP_OK;
    }
    if (result == HOOP_OK) {
        result = hoop_staging_follow(staging, call->stream);
    }
    if (result == HOOP_OK) {
        result = hoop_staging_mark(staging);
    }
    hoop_cancel_restore(before);
    return result == HOOP_OK ? HOOP_AGAIN : result;
}

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

size_t hoop_device_buffers_bytes(const struct hoop_device_call *call, uint8_t extent)
{
    const struct hoop_signature *s = call->signature;
    const bool root = s->root == (int32_t)call->me;
    return hoop_extent_blocks(extent, call->n, root) * s->count *
           hoop_datatype_bytes((hoop_datatype_t)s->type);
}

static hoop_result_t buffer_look(const void *at, size_t bytes, hoop_cu_context_t *ret)
{
    *ret = NULL;
    return bytes > 0 ? hoop_cuda_find(at, ret) : HOOP_OK;
}

hoop_result_t hoop_device_buffers_look(const struct hoop_device_call *call, const void *in,
                                       const void *out, struct hoop_device_look *ret)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->signature->collective];
    hoop_result_t result = buffer_look(in, hoop_device_buffers_bytes(call, row->in), &ret->in);
    if (result == HOOP_OK) {
        result = buffer_look(out, hoop_device_buffers_bytes(call, row->out), &ret->out);
    }
    ret->known = result == HOOP_OK;
    return result;
}

hoop_result_t hoop_device_buffers_look_transfer(struct hoop_transfer *transfer)
{
    const hoop_result_t result =
        transfer->looked ? HOOP_OK
                         : buffer_look(transfer->data, transfer->bytes, &transfer->context);
    transfer->looked = result == HOOP_OK;
    return result;
}

/* For a call in place: if one buffer lies inside the other, so do their places. False: neither
 * does, or they are not both on a device. */
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

/* Gives a place to each buffer that lies on the device. */
static void buffers_place(struct hoop_staging *staging, struct device_buffer *in,
                          struct device_buffer *out)
{
    if (!buffers_nest(staging, in, out)) {
        in->offset = in->on_device ? hoop_staging_room(staging, in->bytes) : 0;
        out->offset = out->on_device ? hoop_staging_room(staging, out->bytes) : 0;
    }
}

static void buffers_describe(const struct hoop_device_call *call,
                             const struct hoop_device_look *look, const void *in, void *out,
                             struct device_buffer *ret_in, struct device_buffer *ret_out)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->signature->collective];
    *ret_in = (struct device_buffer){.at = (void *)(uintptr_t)in,
                                     .bytes = hoop_device_buffers_bytes(call, row->in),
                                     .on_device = look->in != NULL};
    *ret_out = (struct device_buffer){.at = out,
                                      .bytes = hoop_device_buffers_bytes(call, row->out),
                                      .on_device = look->out != NULL};
}

size_t hoop_device_buffers_need(const struct hoop_device_call *call, const void *in,
                                const void *out)
{
    const uint32_t collective = call->signature->collective;
    struct hoop_staging sizes = {.bytes = 0};
    if (collective == HOOP_TRANSFER || collective == HOOP_COLL_ALLTOALLV) {
        for (const struct hoop_transfer *at = out; at != NULL; at = at->next) {
            (void)(at->context != NULL && hoop_staging_room(&sizes, at->bytes));
        }
        return sizes.bytes;
    }
    struct device_buffer first, second;
    buffers_describe(call, call->look, in, (void *)(uintptr_t)out, &first, &second);
    buffers_place(&sizes, &first, &second);
    return sizes.bytes;
}

/* Where the buffers lie, as was found out at the call, or is found out now. */
static hoop_result_t devices_look(const struct hoop_device_call *call, const void *in,
                                  const void *out, struct hoop_device_look *ret)
{
    *ret = *call->look;
    return ret->known ? HOOP_OK : hoop_device_buffers_look(call, in, out, ret);
}

static void *buffer_place(const struct hoop_staging *staging, const struct device_buffer *buffer)
{
    return buffer->on_device ? staging->host + buffer->offset : buffer->at;
}

/* Its stream has come to it already when the bell rings; else it is to come to here. */
static hoop_result_t devices_follow(struct hoop_staging *staging,
                                    const struct hoop_device_call *call)
{
    if (call->captured || call->arrived) {
        return HOOP_OK; /* the copies are put on the stream, or the stream has come already */
    }
    if (call->bell != NULL) {
        hoop_staging_await(staging, call->bell);
        return HOOP_OK;
    }
    return hoop_staging_follow(staging, call->stream);
}

/* context: of the buffers. NULL: none lies on a device, so any context will do, and no other need
 * be made for that. */
static hoop_result_t devices_open(struct hoop_staging *staging, hoop_cu_context_t context,
                                  hoop_stream_t stream, bool captured)
{
    context = context != NULL ? context : staging->context;
    const hoop_result_t result =
        context != NULL ? HOOP_OK : hoop_cuda_stream_find(stream, &context);
    if (result == HOOP_OK && captured) {
        staging->context = context;
        return HOOP_OK;
    }
    return result == HOOP_OK ? hoop_staging_open(staging, context) : result;
}

static hoop_result_t devices_fetch_buffers(struct hoop_staging *staging,
                                           const struct hoop_device_call *call, const void **ret_in,
                                           void **ret_out)
{
    struct hoop_device_look look;
    struct device_buffer in, out;
    hoop_result_t result = devices_look(call, *ret_in, *ret_out, &look);
    if (result != HOOP_OK) {
        return result;
    }
    buffers_describe(call, &look, *ret_in, *ret_out, &in, &out);
    if (!in.on_device && !out.on_device && call->stream == NULL) {
        return HOOP_OK;
    }
    buffers_place(staging, &in, &out);
    if (in.on_device) {
        result = hoop_staging_add(staging, in.at, in.offset, in.bytes, false);
    }
    if (out.on_device && result == HOOP_OK) {
        result = hoop_staging_add(staging, out.at, out.offset, out.bytes, true);
    }
    if (result == HOOP_OK) {
        result = devices_open(staging, look.out != NULL ? look.out : look.in, call->stream,
                              call->captured);
    }
    if (result == HOOP_OK && call->bell == NULL && !call->captured && !call->arrived) {
        result = hoop_staging_fetch_behind(staging, call->stream);
    } else if (result == HOOP_OK) {
        hoop_staging_fetch(staging);
        result = devices_follow(staging, call);
    }
    if (result == HOOP_OK) {
        *ret_in = buffer_place(staging, &in);
        *ret_out = buffer_place(staging, &out);
        result = HOOP_AGAIN;
    }
    return result;
}

/* Adds the transfer to the staging, if its data lie on a device. The offset of its place is kept in
 * `moved`, which the exchange uses later, until the host memory exists. */
static hoop_result_t devices_add_transfer(struct hoop_staging *staging,
                                          struct hoop_transfer *transfer,
                                          hoop_cu_context_t *context)
{
    const hoop_result_t result = hoop_device_buffers_look_transfer(transfer);
    transfer->staged = result == HOOP_OK && transfer->context != NULL;
    if (!transfer->staged) {
        return result;
    }
    *context = transfer->context;
    transfer->moved = hoop_staging_room(staging, transfer->bytes);
    return hoop_staging_add(staging, transfer->data, transfer->moved, transfer->bytes,
                            !transfer->sending);
}

static hoop_result_t devices_fetch_transfers(struct hoop_staging *staging,
                                             struct hoop_transfer *first,
                                             const struct hoop_device_call *call)
{
    const hoop_stream_t stream = call->stream;
    const bool all_behind_it = stream != NULL || call->bell != NULL;
    hoop_stream_t last = stream;
    hoop_cu_context_t context = NULL;
    hoop_result_t result = HOOP_OK;
    bool any = all_behind_it;
    for (struct hoop_transfer *at = first; at != NULL && result == HOOP_OK; at = at->next) {
        result = devices_add_transfer(staging, at, &context);
        any |= at->staged || at->stream != NULL;
        last = at->stream != NULL ? at->stream : last;
    }
    if (result != HOOP_OK || !any) {
        return result;
    }
    result = devices_open(staging, context, last, call->captured);
    if (all_behind_it && result == HOOP_OK) {
        result = devices_follow(staging, call);
    }
    for (struct hoop_transfer *at = first; at != NULL && result == HOOP_OK; at = at->next) {
        if (call->bell == NULL && !call->captured &&
            (at->stream != NULL || (at->staged && !all_behind_it))) {
            result = hoop_staging_follow(staging, at->stream);
        }
        if (at->staged) {
            at->data = staging->host + at->moved;
            at->moved = 0;
        }
    }
    hoop_staging_fetch(staging);
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
                               ? devices_fetch_transfers(staging, *out, call)
                               : devices_fetch_buffers(staging, call, in, out);
    staging->fetches &= result == HOOP_AGAIN;
    staging->delivers &= result == HOOP_AGAIN;
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_device_buffers_follow(struct hoop_staging *staging,
                                         const struct hoop_device_call *call, const void *in,
                                         const void *out)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->signature->collective];
    const size_t in_bytes = hoop_device_buffers_bytes(call, row->in);
    const size_t out_bytes = hoop_device_buffers_bytes(call, row->out);
    struct hoop_device_look look;
    hoop_result_t result = devices_look(call, in, out, &look);
    if (result != HOOP_OK || (in_bytes == 0 && out_bytes == 0) ||
        (in_bytes > 0 && look.in == NULL) || (out_bytes > 0 && look.out == NULL) ||
        (in_bytes > 0 && out_bytes > 0 && look.in != look.out)) {
        return result;
    }
    const int before = hoop_cancel_off();
    hoop_staging_reset(staging);
    result = hoop_staging_open(staging, in_bytes > 0 ? look.in : look.out);
    const bool can = staging->device != 0 && (!row->folds || staging->kernels != NULL);
    if (result == HOOP_OK && !can) {
        hoop_cancel_restore(before);
        return HOOP_OK;
    }
    if (result == HOOP_OK) {
        result = devices_follow(staging, call);
    }
    hoop_cancel_restore(before);
    return result == HOOP_OK ? HOOP_AGAIN : result;
}

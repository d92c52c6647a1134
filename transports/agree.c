/* See agree.h. */
#include "transports/agree.h"
#include "memory/region.h"
#include "runtime/process.h"
#include "transports/check/checksum.h"
#include <assert.h>
#include <string.h>

void hoop_blob_fill(struct hoop_blob *ret_blob, const void *data, size_t bytes)
{
    assert(bytes <= HOOP_BLOB_BYTES);
    *ret_blob = (struct hoop_blob){.bytes = (uint32_t)bytes};
    memcpy(ret_blob->data, data, bytes);
}

struct hoop_blob_head hoop_blob_head(const struct hoop_link_params *params, uint32_t magic)
{
    return (struct hoop_blob_head){
        .magic = magic,
        .process = hoop_process_id(),
        .comm_id = params->comm_id,
        .me = params->me,
        .peer = params->peer,
        .lane = params->lane,
        .sending = params->sending,
        .slots = params->slots,
        .chunk_bytes = params->chunk_bytes,
    };
}

hoop_result_t hoop_blob_open(struct hoop_link *link, const struct hoop_blob *blob, uint32_t magic,
                             void *ret_data, size_t bytes)
{
    const struct hoop_link_params *mine = &link->params;
    struct hoop_blob_head head = {0};
    if (blob->bytes == bytes) {
        memcpy(&head, blob->data, sizeof(head));
    }
    if (head.magic != magic) {
        return hoop_failure_set(&link->failure, HOOP_INVALID_ARGUMENT, (int)mine->peer,
                                "rank %u sent a blob of %u bytes that is not one of %s (%zu bytes)",
                                mine->peer, blob->bytes, link->transport->name, bytes);
    }
    if (head.comm_id != mine->comm_id || head.me != mine->peer || head.peer != mine->me ||
        head.lane != mine->lane || head.sending != !mine->sending || head.process == 0) {
        return hoop_failure_set(
            &link->failure, HOOP_REMOTE_ERROR, (int)mine->peer,
            "rank %u sent the blob of another link: its rank %u %s rank %u in lane %u; expected "
            "rank %u, rank %u, lane %u of the same comm",
            mine->peer, head.me, head.sending != 0 ? "to" : "from", head.peer, head.lane,
            mine->peer, mine->me, mine->lane);
    }
    if (head.chunk_bytes != mine->chunk_bytes || head.slots != mine->slots) {
        return hoop_failure_set(&link->failure, HOOP_MISMATCH, (int)mine->peer,
                                "rank %u made a link of %u slots of %llu bytes, rank %u one of %u "
                                "slots of %llu bytes",
                                mine->peer, head.slots, (unsigned long long)head.chunk_bytes,
                                mine->me, mine->slots, (unsigned long long)mine->chunk_bytes);
    }
    memcpy(ret_data, blob->data, bytes);
    return HOOP_OK;
}

void hoop_chunk_damaged(struct hoop_link *link, const struct hoop_xfer *xfer, uint64_t said,
                        uint64_t came)
{
    const struct hoop_link_params *mine = &link->params;
    (void)hoop_failure_set(&link->failure, HOOP_REMOTE_ERROR, (int)mine->peer,
                           "rank %u sent chunk %llu of operation %u to rank %u (lane %u, %zu "
                           "bytes) with the %s %016llx, but what came has %016llx: the data were "
                           "damaged on the way",
                           mine->peer, (unsigned long long)xfer->chunk, xfer->op, mine->me,
                           mine->lane, xfer->bytes, hoop_check_name(mine->check),
                           (unsigned long long)said, (unsigned long long)came);
}

/* Of this link, but not the posted xfer's: another call, or another part of the same. */
static hoop_result_t agree_fail_differing(struct hoop_link *link,
                                          const struct hoop_chunk_header *header,
                                          const struct hoop_xfer *xfer)
{
    const struct hoop_link_params *mine = &link->params;
    char ours[96];
    if (!hoop_signature_equal(&header->signature, &xfer->signature)) {
        const struct hoop_called my = {
            .rank = mine->me, .op = xfer->op, .signature = xfer->signature};
        const struct hoop_called their = {
            .rank = mine->peer, .op = header->op, .signature = header->signature};
        return hoop_called_fail(&my, &their, &link->failure);
    }
    hoop_signature_describe(&xfer->signature, ours, sizeof(ours));
    return hoop_failure_set(&link->failure, HOOP_MISMATCH, (int)mine->peer,
                            "rank %u sent chunk %llu of operation %u, %llu bytes, but rank %u "
                            "expected chunk %llu of operation %u, %zu bytes (lane %u); both called "
                            "%s",
                            mine->peer, (unsigned long long)header->chunk, header->op,
                            (unsigned long long)header->bytes, mine->me,
                            (unsigned long long)xfer->chunk, xfer->op, xfer->bytes, mine->lane,
                            ours);
}

hoop_result_t hoop_chunk_header_refuse(struct hoop_link *link,
                                       const struct hoop_chunk_header *header,
                                       const struct hoop_xfer *xfer)
{
    const struct hoop_link_params *mine = &link->params;
    if (header->comm_id != mine->comm_id || header->lane != mine->lane) {
        return hoop_failure_set(&link->failure, HOOP_REMOTE_ERROR, (int)mine->peer,
                                "rank %u sent a chunk of another link: comm %llx, lane %u; rank %u "
                                "expected comm %llx, lane %u",
                                mine->peer, (unsigned long long)header->comm_id, header->lane,
                                mine->me, (unsigned long long)mine->comm_id, mine->lane);
    }
    return agree_fail_differing(link, header, xfer);
}

/*
 * What the two ends of a link must agree on, the same for every transport: which link it is (the
 * head of every blob) and which chunk comes next (the header of every payload). Both come from the
 * peer, and are checked as hostile input.
 */
#ifndef HOOP_AGREE_H
#define HOOP_AGREE_H

#include "transports/transport.h"
#include <string.h>

/* The first bytes of every transport's blob. */
struct hoop_blob_head {
    uint32_t magic; /* identifies the transport */
    uint32_t lane;
    uint64_t process;
    uint64_t comm_id;
    uint32_t me, peer; /* as the blob's maker sees them */
    uint32_t sending;
    uint32_t slots;
    uint64_t chunk_bytes;
};

/* Makes a blob of `bytes` bytes (at most HOOP_BLOB_BYTES) of data, which must begin with a head. */
void hoop_blob_fill(struct hoop_blob *ret_blob, const void *data, size_t bytes);
struct hoop_blob_head hoop_blob_head(const struct hoop_link_params *params, uint32_t magic);

/*
 * Copies a peer's blob of exactly `bytes` bytes to ret_data, if its head belongs to the other end
 * of this link. HOOP_INVALID_ARGUMENT: of another transport. HOOP_REMOTE_ERROR: of another link.
 * HOOP_MISMATCH: other chunks or slots.
 */
hoop_result_t hoop_blob_open(struct hoop_link *link, const struct hoop_blob *blob, uint32_t magic,
                             void *ret_data, size_t bytes);

/* Fails the link: what came for xfer has another check than the peer said. */
void hoop_chunk_damaged(struct hoop_link *link, const struct hoop_xfer *xfer, uint64_t said,
                        uint64_t came);

static inline struct hoop_chunk_header hoop_chunk_header(const struct hoop_link *link,
                                                         const struct hoop_xfer *xfer)
{
    return (struct hoop_chunk_header){
        .comm_id = link->params.comm_id,
        .op = xfer->op,
        .lane = link->params.lane,
        .chunk = xfer->chunk,
        .bytes = xfer->bytes,
        .signature = xfer->signature,
    };
}

/* Fails the link with the reason why the header does not belong to xfer. */
hoop_result_t hoop_chunk_header_refuse(struct hoop_link *link,
                                       const struct hoop_chunk_header *header,
                                       const struct hoop_xfer *xfer);

/*
 * Does the received header belong to the posted xfer? HOOP_MISMATCH: another operation, chunk or
 * size; HOOP_REMOTE_ERROR: of another link. header is private memory that the peer cannot change.
 */
static inline hoop_result_t hoop_chunk_header_check(struct hoop_link *link,
                                                    const struct hoop_chunk_header *header,
                                                    const struct hoop_xfer *xfer)
{
    const struct hoop_link_params *mine = &link->params;
    uint64_t came[3], posted[3]; /* no branches, because every chunk comes here */
    memcpy(came, &header->signature, sizeof(came));
    memcpy(posted, &xfer->signature, sizeof(posted));
    const uint64_t differ = (header->comm_id ^ mine->comm_id) | (header->op ^ xfer->op) |
                            (header->lane ^ mine->lane) | (header->chunk ^ xfer->chunk) |
                            (header->bytes ^ xfer->bytes) | (came[0] ^ posted[0]) |
                            (came[1] ^ posted[1]) | (came[2] ^ posted[2]);
    return differ == 0 ? HOOP_OK : hoop_chunk_header_refuse(link, header, xfer);
}

#endif

/*
 * What the files of the tcp transport share: what travels, and what both ends of a link have.
 * docs/inside/tcp.md describes the whole.
 */
#ifndef HOOP_TCP_WIRE_H
#define HOOP_TCP_WIRE_H

#include "base/clock.h"
#include "base/crypto.h"
#include "transports/transport.h"
#include "transports/xfer_queue.h"

#define HOOP_TCP_DATA 0x617461642d706f68ull    /* "hop-data": payload follows */
#define HOOP_TCP_GOODBYE 0x2d6579622d706f68ull /* "hop-bye-": nothing does, ever */

/* Before every payload. Little-endian. */
struct hoop_tcp_header {
    uint64_t kind;
    struct hoop_chunk_header chunk;
    uint64_t payload_check; /* by the check that the link has */
    uint64_t header_check;  /* of all before it; always the sum, but for HOOP_CHECK=mac */
};
#define HOOP_TCP_HEADER_BYTES ((size_t)80)
_Static_assert(sizeof(struct hoop_tcp_header) == 80, "what travels has no padding");

/* A connection that ended without a goodbye: so long the control plane has to find out whose fault
 * it was, before the link blames its peer. Two of the longest beats (tree/detector.c): others may
 * see a silent rank one beat earlier than who shares a machine with it, and fail. */
#define HOOP_TCP_PATIENCE_NS (2 * HOOP_NS_PER_S)

/* Embedded first in either end. Touched by the thread that uses the end. */
struct hoop_tcp_link {
    struct hoop_link base;
    int fd;                       /* -1: not bound */
    uint32_t peer_holds;          /* a receiver's (hoop_link_holds()) */
    uint64_t lost_ns;             /* since when the connection is over; 0: it is not */
    int lost_errno;               /* 0: at the end of the stream */
    struct hoop_secret key;       /* of this connection; for HOOP_CHECK=mac */
    uint64_t number;              /* of the next header; the other end counts alike */
    struct hoop_xfer_queue queue; /* posted, and not all sent or received */
};

static inline struct hoop_tcp_link *hoop_tcp_from(struct hoop_link *link)
{
    return (struct hoop_tcp_link *)(void *)link;
}

/* The next header, which says goodbye, or precedes the data of xfer. */
struct hoop_tcp_header hoop_tcp_header(struct hoop_tcp_link *tcp, uint64_t kind,
                                       const struct hoop_xfer *xfer);

/* What the next header's two checks must be. A MAC that cannot be computed fails the link. */
uint64_t hoop_tcp_header_check(struct hoop_tcp_link *tcp, const struct hoop_tcp_header *header);
uint64_t hoop_tcp_payload_check(struct hoop_tcp_link *tcp, const void *data, size_t bytes);

/*
 * A system call on the socket moved nothing: err, or 0 at the end of the stream. What the network
 * explains starts the patience; what passes is ignored; anything else fails the link at once.
 */
void hoop_tcp_stopped(struct hoop_tcp_link *tcp, int err);

/* Fails the link if its connection is lost and patience is over. */
void hoop_tcp_blame(struct hoop_tcp_link *tcp);

#endif

/* Shared by the files of the tcp transport: what travels, and what both ends of a link have.
 * docs/inside/tcp.md describes the whole. */
#ifndef HOOP_TCP_WIRE_H
#define HOOP_TCP_WIRE_H

#include "base/clock.h"
#include "net/encrypt.h"
#include "transports/transport.h"
#include "transports/xfer_queue.h"

#define HOOP_TCP_DATA 0x617461642d706f68ull    /* "hop-data": payload follows */
#define HOOP_TCP_GOODBYE 0x2d6579622d706f68ull /* "hop-bye-": nothing follows, ever */

/* A sum in the first word, or the 16 bytes of a tag. */
struct hoop_tcp_check {
    uint64_t words[2];
};
_Static_assert(sizeof(struct hoop_tcp_check) == HOOP_AEAD_TAG_BYTES, "it holds a tag");

/* Precedes every payload. Little-endian. With HOOP_CHECK=aead all before its own check is
 * encrypted. */
struct hoop_tcp_header {
    uint64_t kind;
    struct hoop_chunk_header chunk;
    struct hoop_tcp_check payload; /* by the link's kind of check */
    struct hoop_tcp_check header;  /* of all before it: `sum`, except with HOOP_CHECK=aead */
};
#define HOOP_TCP_HEADER_BYTES ((size_t)96)
_Static_assert(sizeof(struct hoop_tcp_header) == 96, "what travels has no padding");

/*
 * After a connection has ended without a goodbye, the control plane has this long to find out whose
 * fault it was, before the link blames its peer. Twice the longest heartbeat (tree/detector.c),
 * since others may notice a silent rank, and fail, one beat earlier than a rank on its machine
 * does.
 */
#define HOOP_TCP_PATIENCE_NS (2 * HOOP_NS_PER_S)

/* After this long without memory or the like in this machine's kernel, a link blames its own rank.
 */
#define HOOP_TCP_STARVED_NS (5 * HOOP_NS_PER_S)

/* First member of either end. Touched only by the thread that uses the end. */
struct hoop_tcp_link {
    struct hoop_link base;
    int fd;                       /* -1: not bound */
    uint32_t peer_holds;          /* hoop_link_holds() of the receiver */
    uint64_t lost_ns;             /* when the connection was lost; 0: it was not */
    int lost_errno;               /* 0: end of stream */
    int starved_errno;            /* what the kernel lacked last */
    uint64_t starved_ns;          /* since when it has lacked that; 0: it does not */
    struct hoop_aead *aead;       /* of this connection; NULL: nothing is encrypted */
    uint64_t number;              /* of the next header; both ends count */
    struct hoop_xfer_queue queue; /* posted, and not completely sent or received */
};

static inline struct hoop_tcp_link *hoop_tcp_from(struct hoop_link *link)
{
    return (struct hoop_tcp_link *)(void *)link;
}

/*
 * The next header: a goodbye, or that of the data of xfer. With HOOP_CHECK=aead what travels goes
 * to `sealed`, which has room for xfer->bytes; else the data themselves do. If it cannot be made
 * the link fails.
 */
struct hoop_tcp_header hoop_tcp_header(struct hoop_tcp_link *tcp, uint64_t kind,
                                       const struct hoop_xfer *xfer, void *sealed);

/* Checks, and decrypts, a header that came, and then the payload at data of the one that it
 * announced. False: it is damaged, and the link has failed. */
bool hoop_tcp_header_open(struct hoop_tcp_link *tcp, struct hoop_tcp_header *header);
bool hoop_tcp_payload_open(struct hoop_tcp_link *tcp, const struct hoop_xfer *xfer, void *data,
                           const struct hoop_tcp_check *said);

/*
 * Call this when a system call on the socket moved nothing: err, or 0 at the end of the stream.
 * Of temporary errors only the time is noted, those that the network explains start the patience,
 * others fail the link at once.
 */
void hoop_tcp_stopped(struct hoop_tcp_link *tcp, int err);

/* Fails the link if its connection is lost, or its kernel has lacked memory, for too long. */
void hoop_tcp_blame(struct hoop_tcp_link *tcp);

#endif

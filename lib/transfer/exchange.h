/*
 * Point-to-point: carries out sends and receives over links of their own, in the lane behind the
 * collectives'.
 *
 * Each ordered pair of ranks has its own sequence: its k-th send meets its k-th receive, in the
 * order of the calls. Transfers of different pairs, and of the two directions of one, run at the
 * same time, so that sends and receives of one exchange never wait for each other. What a rank
 * sends to itself is copied.
 *
 * A transfer goes in chunks over the link. From notice_least_bytes on, between processes that share
 * memory, the sender says first how: it may be read where it lies, by a receiver that may, and is
 * copied once then. What lies in a region the receiver maps (mapping.h); other memory the kernel
 * copies for it.
 *
 *      state    sender                                    receiver
 *      NOTICE   sends where its data lie, or that         receives that
 *               chunks follow
 *      READ     waits for the receiver's word on the      reads all of it, slice by slice, and says
 *               board: all was read, it is done; or       so: it is done; or it could not, and says
 *               it could not be: CHUNKS                   that: CHUNKS
 *      CHUNKS   sends chunks                              receives chunks
 *
 * Both ends know from the bytes, which the signature has, whether a notice comes. Memory that only
 * its own process can read (a device's, secret memory), a region that cannot be mapped, a process
 * that has ended, a kernel that has changed its mind: the receiver finds out by trying, and what
 * follows is as if it had never tried. Who fails closes the gates to its memory (gate.h): what is
 * read of it from then on is no result.
 *
 * How it is faster the sender learns for each receiver and size (cost/copies.h): now and then both
 * take the time of their work, and the receiver says its own on the board. Nothing but time depends
 * on it.
 *
 * Like the engine it never waits, and reads no clock but for that. One thread at a time, the one
 * that drives the comm.
 */
#ifndef HOOP_EXCHANGE_H
#define HOOP_EXCHANGE_H

#include "cost/copies.h"
#include "exec/board.h"
#include "exec/engine.h"
#include "memory/cuda.h"
#include "transfer/mapping.h"
#include <stddef.h>
#include <string.h>

/* The lane of its links. */
#define HOOP_TRANSFER_LANE HOOP_MAX_LANES
/* From here on it is worth to say how: a notice takes a tenth of a microsecond. */
#define HOOP_EXCHANGE_NOTICE_LEAST 8192u

enum hoop_transfer_state { HOOP_TRANSFER_CHUNKS, HOOP_TRANSFER_NOTICE, HOOP_TRANSFER_READ };

/* What a sender says first. */
struct hoop_notice {
    uint64_t region; /* in which its data lie; 0: in none */
    uint64_t at;     /* where: bytes from its start, or the address */
    uint32_t generation;
    uint8_t reads; /* 1: they may be read there; 0: chunks follow */
    uint8_t timed; /* 1: how long it took the receiver is to be told */
};

/* How what is sent to one receiver was carried. */
struct hoop_exchange_ways {
    struct hoop_copies_row rows[2][HOOP_COPIES_SIZES]; /* in no region, in one */
    struct hoop_copies_row *timed; /* the last one's, until the receiver is heard of it; or NULL */
    enum hoop_copy how;            /* it was carried */
    uint64_t sequence;
    uint64_t ns; /* for which the sender worked */
};

/* One send or receive. The caller's until it is started, then the exchange's until done. */
struct hoop_transfer {
    struct hoop_transfer *next; /* of one exchange, in the order of the calls */
    void *data;                 /* never written where it is sent */
    size_t bytes;
    uint32_t peer;
    bool sending;
    hoop_stream_t stream;            /* of CUDA, or NULL */
    struct hoop_signature signature; /* the same at both ends */
    const void *site;                /* where it was called */
    /* on devices: see staging/device_buffers.h */
    bool looked, staged;
    hoop_cu_context_t context; /* once looked; NULL: memory of the host */
    /* the exchange's, who needs nothing here before */
    struct hoop_transfer *before; /* the one before on the same link */
    struct hoop_exchange *exchange;
    struct hoop_link *link;
    enum hoop_transfer_state state;
    size_t moved;
    struct hoop_notice notice;
    const uint8_t *mapped; /* by the receiver, while it reads; NULL: not yet, or in no region */
    enum hoop_copy how;
    uint64_t worked_ns; /* by this rank, if it is timed */
    uint64_t sequence;  /* the header has its low half */
    bool posted, failed, done;
    struct hoop_xfer xfer;
};

/* A copy, of one that is not started. */
static inline void hoop_transfer_copy(struct hoop_transfer *to, const struct hoop_transfer *from)
{
    memcpy(to, from, offsetof(struct hoop_transfer, before));
}

struct hoop_exchange {
    uint32_t me, n;
    uint64_t chunk_bytes;
    const struct hoop_board *board;
    const struct hoop_mapping_env *maps;
    uint64_t notice_least_bytes; /* from which on there is a notice; UINT64_MAX: never */
    uint64_t read_least_bytes; /* from which on receivers have the kernel read; UINT64_MAX: never */
    bool learns;               /* from what was measured, instead */
    hoop_result_t (*link)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                          struct hoop_link **ret_link);
    void *arg;
    uint64_t (*sequences)[2]; /* [n] with each peer, receiving and sending: transfers ever */
    struct hoop_transfer *(*last)[2]; /* [n] while starting */
    struct hoop_link *(*links)[2];    /* [n] that there are: they live as long as the comm does */
    struct hoop_exchange_ways **ways; /* [n], to each peer; NULL: nothing was learned yet */
    struct hoop_mapping *mappings;    /* [n], of each peer's */
    struct hoop_transfer *transfers;
    struct hoop_failure *failure; /* the comm's: first error wins */
};

/* All up to arg is filled in. */
hoop_result_t hoop_exchange_init(struct hoop_exchange *exchange);
void hoop_exchange_finish(struct hoop_exchange *exchange);

/*
 * HOOP_OK: the k-th send of rank `me` to itself, if there is any, has a k-th receive like it. Else
 * HOOP_INVALID_USAGE: nobody could ever complete it.
 */
hoop_result_t hoop_exchange_check(const struct hoop_transfer *transfers, uint32_t me);

/* Begins; transfers, checked, and failure are borrowed until a poll says done. */
void hoop_exchange_start(struct hoop_exchange *exchange, struct hoop_transfer *transfers,
                         struct hoop_failure *failure);

/* After DONE with a failure, xfers may still be posted: see hoop_engine_poll(). */
enum hoop_poll hoop_exchange_poll(struct hoop_exchange *exchange);

/* The first transfer behind `from` (NULL: of all) that is not done; NULL: none. */
const struct hoop_transfer *hoop_exchange_awaited(const struct hoop_exchange *exchange,
                                                  const struct hoop_transfer *from);

#endif

/*
 * Point-to-point: carries out sends and receives over links of their own, in the lane behind the
 * collectives'.
 *
 * Each ordered pair of ranks has its own sequence: its k-th send meets its k-th receive, in the
 * order of the calls. Transfers of different pairs, and of the two directions of one, run at the
 * same time, so that sends and receives of one exchange never wait for each other. What a rank
 * sends to itself is copied.
 *
 * A transfer goes in chunks over the link. From read_least_bytes on, between processes that may
 * read each other's memory, it is copied once:
 *
 *      state    sender                                    receiver
 *      NOTICE   sends where its data lie                  receives that
 *      READ     waits for the receiver's word on the      reads all of it, slice by slice, and says
 *               board: all was read, it is done; or       so: it is done; or it could not, and says
 *               it could not be: CHUNKS                   that: CHUNKS
 *      CHUNKS   sends chunks                              receives chunks
 *
 * Both ends know from the bytes, which the signature has, how a transfer begins. Memory that only
 * its own process can read (a device's, secret memory), a process that has ended, a kernel that has
 * changed its mind: the receiver finds out by trying, and what follows is as if it had never tried.
 * Who fails closes the gates to its memory (gate.h): what is read of it from then on is no result.
 *
 * Like the engine it never waits, reads no clock, allocates nothing between start and done. One
 * thread at a time, the one that drives the comm.
 */
#ifndef HOOP_EXCHANGE_H
#define HOOP_EXCHANGE_H

#include "exec/board.h"
#include "exec/engine.h"
#include "memory/cuda.h"

/* The lane of its links. */
#define HOOP_TRANSFER_LANE HOOP_MAX_LANES

enum hoop_transfer_state { HOOP_TRANSFER_CHUNKS, HOOP_TRANSFER_NOTICE, HOOP_TRANSFER_READ };

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
    /* the exchange's */
    struct hoop_transfer *before; /* the one before on the same link */
    struct hoop_exchange *exchange;
    struct hoop_link *link;
    enum hoop_transfer_state state;
    size_t moved;
    uint64_t at;       /* the notice: where the data lie in the sender's process */
    uint64_t sequence; /* the header has its low half */
    bool posted, failed, done;
    struct hoop_xfer xfer;
};

struct hoop_exchange {
    uint32_t me, n;
    uint64_t chunk_bytes;
    const struct hoop_board *board;
    uint64_t read_least_bytes; /* of which the ranks read each other's memory; UINT64_MAX: never */
    hoop_result_t (*link)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                          struct hoop_link **ret_link);
    void *arg;
    uint64_t (*sequences)[2]; /* [n] with each peer, receiving and sending: transfers ever */
    struct hoop_transfer *(*last)[2]; /* [n] while starting */
    struct hoop_link *(*links)[2];    /* [n] that there are: they live as long as the comm does */
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

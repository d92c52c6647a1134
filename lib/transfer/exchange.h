/*
 * Point-to-point: carries out sends and receives over links of their own, in the lane after those
 * of the collectives.
 *
 * Each ordered pair of ranks has its own sequence: its k-th send meets its k-th receive, in the
 * order of the calls. Transfers of different pairs, and of the two directions of a pair, run at the
 * same time, so that sends and receives of one exchange never wait for each other. What a rank
 * sends to itself is copied.
 *
 * A transfer goes over the link in chunks. From notice_least_bytes on, between processes that share
 * memory, the sender first sends a notice that says how: the data may be read where they lie, if
 * the receiver can, and are then copied once. If they lie in a region, the receiver maps it
 * (mapping.h); other memory the kernel copies for it.
 *
 *      state    sender                                    receiver
 *      NOTICE   sends where its data lie, or that         receives that
 *               chunks follow
 *      READ     waits for the receiver's word on the      reads the data, slice by slice. Then it
 *               board: they were read, it is done; or     says so, and is done; or it could not,
 *               they could not be: CHUNKS                 and says that: CHUNKS
 *      CHUNKS   sends chunks                              receives chunks
 *
 * Both ends know whether a notice comes from the size, which the signature has. Memory that only
 * its own process can read (a device's, secret memory), a region that cannot be mapped, a process
 * that has ended, a kernel that no longer allows it: the receiver finds out by trying, and falls
 * back to chunks. A rank that fails closes the gates to its memory (gate.h): what is read from it
 * after that is invalid.
 *
 * The sender learns for each receiver and size which way is faster (cost/copies.h): now and then
 * both ends time their work, and the receiver reports its time on the board. Where two ranks send
 * to each other the lower one chooses for both, one transfer ahead, and each of its notices says
 * what comes next: a rank that sends copies to one whose data it reads takes twice as long as if
 * both did the same. Only the time depends on it.
 *
 * Like the engine it never waits, and reads no clock except for that. Used by one thread at a time,
 * the one that drives the comm.
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

/* The lane of the links for transfers. */
#define HOOP_TRANSFER_LANE HOOP_MAX_LANES
/* From this size on a notice, which takes a tenth of a microsecond, is worth sending. */
#define HOOP_EXCHANGE_NOTICE_LEAST 8192u

enum hoop_transfer_state { HOOP_TRANSFER_CHUNKS, HOOP_TRANSFER_NOTICE, HOOP_TRANSFER_READ };

/* What a sender sends first. */
struct hoop_notice {
    uint64_t region; /* the region that the data lie in; 0: none */
    uint64_t at;     /* where: offset in the region, or address */
    uint32_t generation;
    uint8_t reads; /* 1: may be read there; 0: chunks follow */
    uint8_t timed; /* 1: the receiver is to report its time */
    uint8_t next;  /* enum hoop_copy: how the next one of its size will be carried */
};

/* How one size is sent to one receiver. */
struct hoop_exchange_way {
    struct hoop_copies_row row;
    uint8_t next; /* enum hoop_copy: the next transfer */
    bool timed;   /* which is to be timed */
    bool follows; /* next is what the receiver has told */
};

/* What was learned about the ways to send to one receiver. */
struct hoop_exchange_ways {
    struct hoop_exchange_way ways[2][HOOP_COPIES_SIZES]; /* for data outside regions, and inside */
    struct hoop_copies_row *timed; /* of the last timed one, until the receiver reports; or NULL */
    enum hoop_copy how;            /* how that one was carried */
    uint64_t sequence;
    uint64_t ns; /* the sender's own work in it */
};

/* One send or receive. The caller's until it is started, then the exchange's until it is done. */
struct hoop_transfer {
    struct hoop_transfer *next; /* of the same exchange, in the order of the calls */
    void *data;                 /* not written if this is a send */
    size_t bytes;
    uint32_t peer;
    bool sending;
    hoop_stream_t stream;            /* a CUDA stream, or NULL */
    struct hoop_signature signature; /* equal at both ends */
    const void *site;                /* code address of the call */
    /* For buffers on devices: see staging/device_buffers.h. */
    bool looked, staged;
    hoop_cu_context_t context; /* valid once looked; NULL: host memory */
    /* From here on the exchange's, which initializes it. */
    struct hoop_transfer *behind; /* the next transfer on the same link, which waits for this one */
    struct hoop_transfer *beside; /* the first transfer of another link that is not done */
    struct hoop_exchange *exchange;
    struct hoop_link *link;
    enum hoop_transfer_state state;
    size_t moved;
    struct hoop_notice notice;
    const uint8_t *mapped; /* the receiver's, while it reads; NULL: not mapped yet, or no region */
    enum hoop_copy how;
    uint64_t worked_ns; /* this rank's own work, if timed */
    uint64_t sequence;  /* headers have its low half */
    bool posted, failed, done;
    struct hoop_xfer xfer;
};

/* Copies a transfer that is not started. */
static inline void hoop_transfer_copy(struct hoop_transfer *to, const struct hoop_transfer *from)
{
    memcpy(to, from, offsetof(struct hoop_transfer, behind));
}

struct hoop_exchange {
    uint32_t me, n;
    uint64_t chunk_bytes;
    const struct hoop_board *board;
    const struct hoop_mapping_env *maps;
    uint64_t notice_least_bytes; /* size from which there is a notice; UINT64_MAX: never */
    uint64_t read_least_bytes;   /* size from which the kernel reads; UINT64_MAX: never */
    bool learns;                 /* measures instead of using that size */
    hoop_result_t (*link)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                          struct hoop_link **ret_link);
    void *arg;
    uint64_t (*sequences)[2]; /* [n] count of transfers with each peer, receiving and sending */
    struct hoop_transfer *(*last)[2]; /* [n] latest one, while starting */
    struct hoop_link *(*links)[2];    /* [n] known links, which live as long as the comm */
    struct hoop_exchange_ways **ways; /* [n] for each receiver; NULL: nothing was learned yet */
    struct hoop_mapping *mappings;    /* [n] a region of each peer */
    struct hoop_transfer *transfers;
    struct hoop_transfer *first;  /* of each link the first that is not done: these can move */
    struct hoop_failure *failure; /* the comm's, in which the first error wins */
};

/* The members up to arg must be set. */
hoop_result_t hoop_exchange_init(struct hoop_exchange *exchange);
void hoop_exchange_finish(struct hoop_exchange *exchange);

/* HOOP_OK: for every k-th send of rank `me` to itself there is a matching k-th receive, and vice
 * versa. Otherwise HOOP_INVALID_USAGE, because the transfer could never complete. */
hoop_result_t hoop_exchange_check(const struct hoop_transfer *transfers, uint32_t me);

/* Begins; transfers, which were checked, and failure are borrowed until a poll says DONE. */
void hoop_exchange_start(struct hoop_exchange *exchange, struct hoop_transfer *transfers,
                         struct hoop_failure *failure);

/* After DONE with a failure, xfers may still be posted: see hoop_engine_poll(). */
enum hoop_poll hoop_exchange_poll(struct hoop_exchange *exchange);

/* Goes through the transfers that are waited for, the first that is not done of each link: the one
 * after `from`, NULL for the first; NULL: there is none. */
const struct hoop_transfer *hoop_exchange_awaited(const struct hoop_exchange *exchange,
                                                  const struct hoop_transfer *from);

#endif

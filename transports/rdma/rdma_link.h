/*
 * What the files of the rdma transport share: what travels, and what both ends of a link have.
 *
 * A link is a reliable connected queue pair. The receiver's end has slots, registered once; the
 * sender's end has as many, in which it puts a chunk together and from which the device takes it:
 *
 *      sender                                          receiver
 *      | header, payload |  ---- write, word: DATA --->  | header, payload |   slot k mod slots
 *                           <--- word: CREDIT ---------  chunks given back, in all
 *                           <--- word: GOODBYE ------->
 *
 *      sender     tail <= head <= tail + slots            head: chunks sent; tail: given back
 *      receiver   credited <= tail <= next <= head        head: arrived; next: to be taken
 *
 * A word is 32 bits of immediate data: its kind, and the low 30 bits of a counter. It comes after
 * what was written before it on the same queue, so that nobody looks at the payload to see whether
 * it is there. Devices without immediate data take a WRITE and a SEND of the word.
 *
 * The counters alone say who may write where: no slot is announced, none is asked for. The
 * receiver has a receive posted for every word that the sender may send, and the other way round.
 */
#ifndef HOOP_RDMA_LINK_H
#define HOOP_RDMA_LINK_H

#include "transports/rdma.h"
#include "transports/transport.h"
#include "transports/xfer_queue.h"

/* Before every payload; a cache line, so that the payload begins one. Little-endian. */
struct hoop_rdma_header {
    struct hoop_chunk_header chunk;
    uint64_t check; /* of the chunk header, and of the payload as HOOP_CHECK says */
};
#define HOOP_RDMA_HEADER_BYTES ((size_t)64)
_Static_assert(sizeof(struct hoop_rdma_header) == 64, "what travels has no padding");

enum hoop_rdma_word { HOOP_RDMA_DATA = 1, HOOP_RDMA_CREDIT, HOOP_RDMA_GOODBYE };
#define HOOP_RDMA_COUNT_MASK 0x3fffffffu

/* An event's id: the link's number; whether it was a receive; that one, or how many words were
 * sent. */
#define HOOP_RDMA_RECEIVE 0x80000000u

/* A rank's use of a port for one comm: the device, its completion queue and who is behind it. */
struct hoop_rdma_context {
    struct hoop_rdma_context *next; /* in the list of all, under its lock */
    uint64_t comm_id;
    uint32_t epoch, me;
    uint32_t users;        /* links; under the lock */
    uint32_t entries_left; /* of the completion queue; under the lock */
    const struct hoop_verbs *verbs;
    const struct hoop_verbs_port *port;
    const struct hoop_gid *gid;
    struct hoop_verbs_device *device;
    bool armed;
    struct hoop_rdma_link **links; /* by number; NULL: gone. A number is never used again */
    uint32_t link_count;
};

/* Embedded first in either end. Touched by the thread that uses the end. */
struct hoop_rdma_link {
    struct hoop_link base;
    struct hoop_rdma_context *context;
    uint32_t number; /* in context->links */
    struct hoop_verbs_queue *queue;
    struct hoop_verbs_address address; /* mine */
    struct hoop_verbs_depth depth;
    bool immediate;     /* words come as immediate data */
    uint32_t cut_bytes; /* of a write, at most */
    bool ready;         /* sender: the other end is bound */
    bool broken;        /* the queue is of no use any more */
    uint64_t left_ns;   /* since when the peer's end is gone; 0: it is not */
    /* slots of stride bytes; then the words that came without immediate data, and those to be sent
     * so: depth.receives and as many as messages may be on their way */
    uint8_t *memory;
    size_t memory_bytes, stride;
    struct hoop_verbs_memory key;
    uint32_t *words_in, *words_out;
    uint64_t peer_slots; /* sender: where they are */
    uint32_t peer_key;
    uint64_t sent, completed; /* words: given to the device, known to have arrived */
    uint64_t head, next, tail, credited;
    struct hoop_xfer_queue queued; /* sender: copied, not told yet. Receiver: posted */
    uint8_t *back;                 /* receiver, per slot: given back, but `tail` is not there yet */
};

static inline struct hoop_rdma_link *hoop_rdma_from(struct hoop_link *link)
{
    return (struct hoop_rdma_link *)(void *)link;
}

static inline uint8_t *hoop_rdma_slot(const struct hoop_rdma_link *rdma, uint64_t chunk)
{
    return rdma->memory + chunk % rdma->base.params.slots * rdma->stride;
}

/* Words on their way at a time. */
static inline uint32_t hoop_rdma_words(const struct hoop_link_params *params)
{
    return params->slots + 1;
}

/* ---- rdma.c ---------------------------------------------------------------------------------- */

/*
 * Takes what the completion queue has, for all links of the context. True: there was something. If
 * there was nothing and the thread is about to sleep, the descriptor will say when there is.
 */
bool hoop_rdma_poll(struct hoop_rdma_link *rdma);

/* The queue is of no use any more. The link has failed, unless the peer had left before.
 * HOOP_REMOTE_ERROR: it's the peer that cannot be reached. */
void hoop_rdma_fail(struct hoop_rdma_link *rdma, hoop_result_t code, const char *why);

/* ---- rdma_ends.c ----------------------------------------------------------------------------- */

/*
 * Sends a word, after the slot's first bytes if there are any. False: it cannot go out now, and
 * nothing happened, or the link has failed.
 */
bool hoop_rdma_say(struct hoop_rdma_link *rdma, enum hoop_rdma_word kind, uint64_t count,
                   const uint8_t *slot, size_t bytes);

/* A word came. */
void hoop_rdma_sender_hears(struct hoop_rdma_link *rdma, uint32_t word);
void hoop_rdma_receiver_hears(struct hoop_rdma_link *rdma, uint32_t word);

/* Those of struct hoop_transport. */
hoop_result_t hoop_rdma_send(struct hoop_link *link, struct hoop_xfer *xfer);
hoop_result_t hoop_rdma_recv(struct hoop_link *link, struct hoop_xfer *xfer);
void hoop_rdma_release(struct hoop_link *link, struct hoop_xfer *xfer);
bool hoop_rdma_progress(struct hoop_link *link);

#endif

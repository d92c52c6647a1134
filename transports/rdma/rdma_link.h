/*
 * What the files of the rdma transport share: what travels, and what both ends of a link have.
 *
 * A link is a reliable connected queue pair. The receiver's end has slots, registered once; the
 * sender's end has as many, in which it puts a chunk together and from which the device takes it:
 *
 *      sender                                          receiver
 *      | header, payload |  ---- write, word: DATA --->  | header, payload |   slot k mod slots
 *                           <--- word: CREDIT ---------  how many more chunks are given back
 *                           <--- word: GOODBYE ------->
 *
 * Where chunks go both ways between two ranks in a lane, by two links, a sender's DATA carries what
 * its rank owes on the other link, and there is seldom a word for that alone. The two ways are not
 * in order, so both say how many more, and no sum of some of them is too much. The receiver's
 * GOODBYE says all that was given back, and is the last that counts. Large payload is copied
 * neither here nor there if it can be helped. The device takes it from the user's buffer, if that
 * is registered (rdma_context.c), and puts it behind its header; or, where the receiver has offered
 * its own, straight into its place, and only the header into the slot:
 *
 *                           <--- word: PLACE, record --  what is offered, for which operation
 *      | payload |          ---- write ---------------->               | payload |   in its place
 *      | header |           ---- write, word: PLACE -->  | header |    slot k mod slots
 *
 *      sender     tail <= head <= tail + slots            head: chunks sent; tail: given back
 *      receiver   credited <= tail <= next <= head        head: arrived; next: to be taken
 *
 * A word is 32 bits of immediate data: its kind, and the low 30 bits of a counter; with a chunk, 8
 * bits of what is given back, and the low 22 of the chunk's number. It comes after what was written
 * before it on the same queue, so that nobody looks at the payload to see whether it is there.
 * Devices without immediate data take a WRITE and a SEND of the word.
 *
 * The counters alone say who may write to a slot: none is announced, none is asked for. An offer
 * holds for one operation, and no chunk waits for it: what is sent before it has come takes a slot.
 *
 * Each end has a receive posted for every word that the other may send before it hears of them. The
 * sender: a chunk for each slot, and a goodbye. The receiver: a credit for each of these chunks; an
 * offer for the operation of each, and for the one that it is in; and a goodbye.
 */
#ifndef HOOP_RDMA_LINK_H
#define HOOP_RDMA_LINK_H

#include "transports/rdma.h"
#include "transports/transport.h"
#include "transports/xfer_queue.h"
#include <pthread.h>

/* Before every payload; a cache line, so that the payload begins one. Little-endian. */
struct hoop_rdma_header {
    struct hoop_chunk_header chunk;
    uint64_t check; /* of the payload, as HOOP_CHECK says */
};
#define HOOP_RDMA_HEADER_BYTES ((size_t)64)
_Static_assert(sizeof(struct hoop_rdma_header) == 64, "what travels has no padding");

/* From here on a copy costs more than to look for the keys, and to wait for the acknowledgement. */
#define HOOP_RDMA_LARGE_BYTES ((size_t)32768)

/* PLACE counts chunks, like DATA, from the sender; operations from the receiver. */
enum hoop_rdma_word { HOOP_RDMA_PLACE, HOOP_RDMA_DATA, HOOP_RDMA_CREDIT, HOOP_RDMA_GOODBYE };
#define HOOP_RDMA_COUNT_MASK 0x3fffffffu
/* With a chunk: */
#define HOOP_RDMA_BACK_SHIFT 22
#define HOOP_RDMA_BACK_MOST 0xffu
#define HOOP_RDMA_CHUNK_MASK 0x3fffffu

/* A message: the word again, for devices without immediate data, and what a PLACE offers. */
struct hoop_rdma_message {
    uint32_t word;
    uint32_t op;
    uint64_t address, bytes; /* 0 bytes: nothing is offered */
    uint32_t key;
    uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct hoop_rdma_message) == 32, "what travels has no padding");

/* An event's id: the link's number; whether it was a receive; that one, or how many words were
 * sent. */
#define HOOP_RDMA_RECEIVE 0x80000000u

/* A rank's use of a port for one comm: the device, its completion queue and who is behind it. */
struct hoop_rdma_context {
    struct hoop_rdma_context *next; /* in the list of all, under its lock */
    uint64_t comm_id;
    uint32_t me;
    uint32_t users;        /* links; under the lock */
    uint32_t entries_left; /* of the completion queue; under the lock */
    const struct hoop_verbs *verbs;
    const struct hoop_verbs_port *port;
    const struct hoop_gid *gid;
    struct hoop_verbs_device *device;
    pthread_mutex_t lock; /* of the regions, which others free */
    struct hoop_rdma_region *regions;
    size_t region_count, region_room;
    bool armed;
    struct hoop_rdma_link **links; /* by number; NULL: gone. A number is never used again */
    uint32_t link_count;
};

/* Embedded first in either end. Touched by the thread that uses the end. */
struct hoop_rdma_link {
    struct hoop_link base;
    const struct hoop_verbs_port *ports[HOOP_RDMA_RANK_PORTS]; /* of which one is taken */
    uint32_t port_count;
    struct hoop_rdma_context *context; /* NULL: none is taken yet */
    uint32_t number;                   /* in context->links */
    struct hoop_rdma_link *other;      /* the end for what goes the other way; NULL: none */
    struct hoop_verbs_queue *queue;
    struct hoop_verbs_address address; /* mine */
    struct hoop_verbs_depth depth;
    bool immediate;   /* words come as immediate data */
    bool ready;       /* sender: connected, and so is the other end */
    bool broken;      /* the queue is of no use any more */
    bool leaving;     /* a goodbye is on its way */
    uint64_t left_ns; /* since when the peer's end is gone; 0: it is not */
    /* slots of stride bytes; then messages: those that come, and those that go, as many each as
     * words may be on their way */
    uint8_t *memory;
    size_t memory_bytes, stride;
    struct hoop_verbs_memory key;
    struct hoop_rdma_message *words_in, *words_out;
    uint64_t peer_slots; /* sender: where they are */
    uint32_t peer_key;
    uint64_t sent, completed; /* words: given to the device, known to have arrived */
    uint64_t head, next, tail, credited;
    struct hoop_xfer_queue queued;  /* sender: not told yet. Receiver: posted */
    uint8_t *marks;                 /* receiver, per slot: HOOP_RDMA_MARK_... */
    struct hoop_rdma_message offer; /* what the receiver offers, as this end knows it */
    bool offer_waits;               /* receiver: it is not told yet */
};

/* Given back, but `tail` is not there yet; the payload is in its place. */
enum { HOOP_RDMA_MARK_BACK = 1, HOOP_RDMA_MARK_PLACED = 2 };

static inline struct hoop_rdma_link *hoop_rdma_from(struct hoop_link *link)
{
    return (struct hoop_rdma_link *)(void *)link;
}

static inline uint8_t *hoop_rdma_slot(const struct hoop_rdma_link *rdma, uint64_t chunk)
{
    return rdma->memory + chunk % rdma->base.params.slots * rdma->stride;
}

/* Words of either end on their way at a time, at most. */
static inline uint32_t hoop_rdma_words(const struct hoop_link_params *params)
{
    return 2 * params->slots + 2;
}

/* ---- rdma_context.c -------------------------------------------------------------------------- */

/* Enters a link into its rank's context of the wanted port, which it makes if there is none with
 * room; and finds the end for the other way. */
hoop_result_t hoop_rdma_enter(struct hoop_rdma_link *rdma, const struct hoop_rdma_context *wanted);
void hoop_rdma_leave(struct hoop_rdma_link *rdma);

/* Where that was too little memory, the thread's sentence goes on with what this process may lock,
 * which is for queues, too. Returns result. */
hoop_result_t hoop_rdma_blame_limit(hoop_result_t result);

/* Registers memory with the context's device; failures say what this process may lock. */
hoop_result_t hoop_rdma_register(const struct hoop_rdma_context *context, void *data, size_t bytes,
                                 struct hoop_verbs_memory *ret);
/* False: the device may have it still, which is logged. */
bool hoop_rdma_release_memory(const struct hoop_rdma_context *context,
                              struct hoop_verbs_memory *memory);

/* The keys of what is around data, which is registered if that can be. False: it can't. */
bool hoop_rdma_key(struct hoop_rdma_link *rdma, void *data, uint64_t bytes,
                   struct hoop_verbs_memory *ret);

/* ---- rdma.c ---------------------------------------------------------------------------------- */

/*
 * Takes what the completion queue has, for all links of the context. True: there was something. If
 * there was nothing and the thread is about to sleep, the descriptor will say when there is.
 */
bool hoop_rdma_poll(struct hoop_rdma_link *rdma);

/* The sender's end is bound before its queue is connected. HOOP_OK: it is, and so is the
 * receiver's. */
hoop_result_t hoop_rdma_get_ready(struct hoop_rdma_link *rdma);

/* The queue is of no use any more. The link has failed, unless the peer had left before.
 * HOOP_REMOTE_ERROR: it's the peer that cannot be reached. */
void hoop_rdma_fail(struct hoop_rdma_link *rdma, hoop_result_t code, const char *why);

/* ---- rdma_ends.c ----------------------------------------------------------------------------- */

/* Sends a word by itself. False: it cannot go out now, and nothing happened, or the link has
 * failed. */
bool hoop_rdma_say(struct hoop_rdma_link *rdma, enum hoop_rdma_word kind, uint64_t count);

/* A word came; message: with a PLACE, and the peer may still write there. */
void hoop_rdma_sender_hears(struct hoop_rdma_link *rdma, uint32_t word,
                            const struct hoop_rdma_message *message);
void hoop_rdma_receiver_hears(struct hoop_rdma_link *rdma, uint32_t word);

/* Those of struct hoop_transport. */
hoop_result_t hoop_rdma_send(struct hoop_link *link, struct hoop_xfer *xfer);
hoop_result_t hoop_rdma_recv(struct hoop_link *link, struct hoop_xfer *xfer);
void hoop_rdma_release(struct hoop_link *link, struct hoop_xfer *xfer);
void hoop_rdma_offer(struct hoop_link *link, uint32_t op, void *data, uint64_t bytes);
bool hoop_rdma_progress(struct hoop_link *link);

#endif

/*
 * Shared by the files of the rdma transport: what travels, and what both ends of a link have.
 *
 * A link is a reliable connected queue pair. The receiver's end has slots, registered once. The
 * sender's end has as many, in which it assembles a chunk and from which the device takes it:
 *
 *      sender                                          receiver
 *      | header, payload |  ---- write, word: DATA --->  | header, payload |   slot k mod slots
 *                           <--- word: CREDIT ---------  how many more chunks are given back
 *                           <--- word: GOODBYE ------->
 *
 * If chunks go both ways between two ranks in a lane, by two links, a sender's DATA carries the
 * credit that its rank owes on the other link, so that a separate word for it is rare. The two
 * links are not ordered with each other, so credits say how many more chunks are given back, and
 * add up in any order. The receiver's GOODBYE has the total, and is the last that counts.
 *
 * Large payload is not copied at either end if possible. The device takes it from the user's
 * buffer, if that is registered (rdma_context.c), and puts it behind its header; or, if the
 * receiver has offered its own buffer, straight into its place, and only the header into the slot:
 *
 *                           <--- word: PLACE, record --  what is offered, for which operation
 *      | payload |          ---- write ---------------->               | payload |   in its place
 *      | header |           ---- write, word: PLACE -->  | header |    slot k mod slots
 *
 *      sender     tail <= head <= tail + slots            head: chunks sent; tail: given back
 *      receiver   credited <= tail <= next <= head        head: arrived; next: to be taken
 *
 * A word is 32 bits of immediate data: its kind, and the low 30 bits of a counter; with a chunk, 8
 * bits of credit and the low 22 bits of the chunk's number. It arrives after everything that was
 * written before it on the same queue, so nobody polls the payload. On devices without immediate
 * data the word is a message of its own, sent after the write.
 *
 * The counters alone say who may write to a slot; slots are neither announced nor requested. An
 * offer is valid for one operation, and no chunk waits for it: what is sent before it has arrived
 * takes a slot.
 *
 * Each end has a receive posted for every word that the other may send before it knows of them. For
 * words to the receiver: a chunk per slot, and a goodbye. For words to the sender: a credit for
 * each of these chunks, an offer for the operation of each and for the current one, and a goodbye.
 */
#ifndef HOOP_RDMA_LINK_H
#define HOOP_RDMA_LINK_H

#include "transports/rdma.h"
#include "transports/transport.h"
#include "transports/xfer_queue.h"
#include <pthread.h>

/* Precedes every payload; a cache line, so that the payload starts on one. Little-endian. */
struct hoop_rdma_header {
    struct hoop_chunk_header chunk;
    uint64_t check; /* of the payload, by HOOP_CHECK */
};
#define HOOP_RDMA_HEADER_BYTES ((size_t)64)
_Static_assert(sizeof(struct hoop_rdma_header) == 64, "what travels has no padding");

/* From this size a copy costs more than finding the keys and waiting for the acknowledgement. */
#define HOOP_RDMA_LARGE_BYTES ((size_t)32768)

/* A PLACE counts chunks when it comes from the sender, as DATA does; else operations. */
enum hoop_rdma_word { HOOP_RDMA_PLACE, HOOP_RDMA_DATA, HOOP_RDMA_CREDIT, HOOP_RDMA_GOODBYE };
#define HOOP_RDMA_COUNT_MASK 0x3fffffffu
/* The parts of the counter with a chunk: */
#define HOOP_RDMA_BACK_SHIFT 22
#define HOOP_RDMA_BACK_MOST 0xffu
#define HOOP_RDMA_CHUNK_MASK 0x3fffffu

/* A message: the word again, for devices without immediate data, and the offer of a PLACE. */
struct hoop_rdma_message {
    uint32_t word;
    uint32_t op;
    uint64_t address, bytes; /* 0 bytes: no offer */
    uint32_t key;
    uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct hoop_rdma_message) == 32, "what travels has no padding");

/* An event's id: the link's number (high half), this bit if it was a receive, and the receive's
 * index, or the number of words sent so far. */
#define HOOP_RDMA_RECEIVE 0x80000000u

/* A rank's use of a port for one comm: device, completion queue, and the links that use them. */
struct hoop_rdma_context {
    struct hoop_rdma_context *next; /* in the list of all contexts, under its lock */
    uint64_t comm_id;
    uint32_t me;
    uint32_t users;        /* number of links; under the list's lock */
    uint32_t entries_left; /* free entries of the completion queue; under the list's lock */
    const struct hoop_verbs *verbs;
    const struct hoop_verbs_port *port;
    const struct hoop_gid *gid;
    struct hoop_verbs_device *device;
    pthread_mutex_t lock; /* guards the regions, which other threads free */
    struct hoop_rdma_region *regions;
    size_t region_count, region_room;
    bool armed;
    struct hoop_rdma_link **links; /* by number; NULL: gone. Numbers are not reused */
    uint32_t link_count;
};

/* First member of either end. Touched only by the thread that uses the end. */
struct hoop_rdma_link {
    struct hoop_link base;
    const struct hoop_verbs_port *ports[HOOP_RDMA_RANK_PORTS]; /* one of which is chosen */
    uint32_t port_count;
    struct hoop_rdma_context *context; /* NULL: no port is chosen yet */
    uint32_t number;                   /* in context->links */
    struct hoop_rdma_link *other;      /* this rank's end for the opposite direction; NULL: none */
    struct hoop_verbs_queue *queue;
    struct hoop_verbs_address address; /* this end's */
    struct hoop_verbs_depth depth;
    bool immediate;   /* words come as immediate data */
    bool ready;       /* sender: both ends are connected */
    bool broken;      /* the queue cannot be used any more */
    bool leaving;     /* a goodbye is under way */
    uint64_t left_ns; /* when the peer's end left; 0: it has not */
    /* Slots of stride bytes, then messages: incoming and outgoing ones, as many of each as words
     * may be under way. */
    uint8_t *memory;
    size_t memory_bytes, stride;
    struct hoop_verbs_memory key;
    struct hoop_rdma_message *words_in, *words_out;
    uint64_t peer_slots; /* sender: the receiver's slots */
    uint32_t peer_key;
    uint64_t sent, completed; /* words given to the device, and known to have arrived */
    uint64_t head, next, tail, credited;
    struct hoop_xfer_queue queued;  /* sender: not reported as done; receiver: posted */
    uint8_t *marks;                 /* receiver, per slot: HOOP_RDMA_MARK_... */
    struct hoop_rdma_message offer; /* what the receiver offers, as far as this end knows */
    bool offer_waits;               /* receiver: the sender is not told yet */
};

/* Given back ahead of `tail`; the payload is in its place. */
enum { HOOP_RDMA_MARK_BACK = 1, HOOP_RDMA_MARK_PLACED = 2 };

static inline struct hoop_rdma_link *hoop_rdma_from(struct hoop_link *link)
{
    return (struct hoop_rdma_link *)(void *)link;
}

static inline uint8_t *hoop_rdma_slot(const struct hoop_rdma_link *rdma, uint64_t chunk)
{
    return rdma->memory + chunk % rdma->base.params.slots * rdma->stride;
}

/* The most words of either end that are under way at a time. */
static inline uint32_t hoop_rdma_words(const struct hoop_link_params *params)
{
    return 2 * params->slots + 2;
}

/* ---- rdma_context.c -------------------------------------------------------------------------- */

/* Adds a link to its rank's context for the wanted port, which is created unless there is one with
 * room, and finds the end for the opposite direction. */
hoop_result_t hoop_rdma_enter(struct hoop_rdma_link *rdma, const struct hoop_rdma_context *wanted);
void hoop_rdma_leave(struct hoop_rdma_link *rdma);

/* If result says that memory was short, adds to the thread's error how much this process may lock,
 * which includes queues. Returns result. */
hoop_result_t hoop_rdma_blame_limit(hoop_result_t result);

/* Registers memory with the context's device; errors say what this process may lock. */
hoop_result_t hoop_rdma_register(const struct hoop_rdma_context *context, void *data, size_t bytes,
                                 struct hoop_verbs_memory *ret);
/* False: the device may still use it, which is logged. */
bool hoop_rdma_release_memory(const struct hoop_rdma_context *context,
                              struct hoop_verbs_memory *memory);

/* The keys of the region that contains data, which is registered if possible. False: it is not. */
bool hoop_rdma_key(struct hoop_rdma_link *rdma, void *data, uint64_t bytes,
                   struct hoop_verbs_memory *ret);

/* ---- rdma.c ---------------------------------------------------------------------------------- */

/*
 * Takes the events of the completion queue, for all links of the context. True: there were some. If
 * there were none and the thread is about to sleep, the descriptor will become readable at the next
 * one.
 */
bool hoop_rdma_poll(struct hoop_rdma_link *rdma);

/* Connects the sender's queue, which bind left unconnected. HOOP_OK: both ends are connected. */
hoop_result_t hoop_rdma_get_ready(struct hoop_rdma_link *rdma);

/* Marks the queue as broken and fails the link, unless the peer had left before. HOOP_REMOTE_ERROR:
 * the peer cannot be reached. */
void hoop_rdma_fail(struct hoop_rdma_link *rdma, hoop_result_t code, const char *why);

/* ---- rdma_ends.c ----------------------------------------------------------------------------- */

/* Sends a word by itself. False: it cannot be sent now (nothing happened), or the link has
 * failed. */
bool hoop_rdma_say(struct hoop_rdma_link *rdma, enum hoop_rdma_word kind, uint64_t count);

/* Handle an incoming word; message: a PLACE's offer, to which the peer may still be writing. */
void hoop_rdma_sender_hears(struct hoop_rdma_link *rdma, uint32_t word,
                            const struct hoop_rdma_message *message);
void hoop_rdma_receiver_hears(struct hoop_rdma_link *rdma, uint32_t word);

/* Functions of struct hoop_transport. */
hoop_result_t hoop_rdma_send(struct hoop_link *link, struct hoop_xfer *xfer);
hoop_result_t hoop_rdma_recv(struct hoop_link *link, struct hoop_xfer *xfer);
void hoop_rdma_release(struct hoop_link *link, struct hoop_xfer *xfer);
void hoop_rdma_offer(struct hoop_link *link, uint32_t op, void *data, uint64_t bytes);
bool hoop_rdma_progress(struct hoop_link *link);

#endif

/*
 * The transport contract.
 *
 * A transport makes links. A link is a one-way, ordered connection from one rank (its sender) to
 * another (its receiver) for one lane of one comm. Each rank holds its own end:
 *
 *      sender's end                                receiver's end
 *      create(sending) -> blob  -----control---->  bind(blob)
 *      bind(blob)       <----control-------------  blob <- create(receiving)
 *      send(xfer) ...                              recv(xfer) ...
 *
 * Blobs travel over the authenticated control connection, never by the transport itself.
 *
 * Data moves in xfers. An xfer is embedded in its poster's struct, filled in by the poster and
 * borrowed by the link from a successful post until `done` has run. Nothing is allocated between
 * post and done. The k-th receive gets the k-th send; their headers must agree and so must their
 * bytes, or the receive fails with HOOP_MISMATCH.
 *
 * Rules for every implementation
 * - send and recv never block. HOOP_AGAIN: no room now, nothing changed, post again after
 *   progress.
 * - `done` runs exactly once for every accepted xfer, in order per link, from inside progress() or
 *   destroy(), never from inside send() or recv(). It may post; it may not destroy.
 * - A send's data may be read until its `done`; it is never written.
 * - A recv with data == NULL borrows the link's own memory: from `done` until release() the payload
 *   lies at xfer->data, readable. Such xfers may be released in any order. The memory is never the
 *   sender's own buffer, which may go away at any time with the sender's end.
 * - When an operation begins, a receiver may offer the memory that it will receive into. Then the
 *   peer may write the data to their place as soon as it has them, before the receive is posted; a
 *   send says where that is. Both are hints: what is not written to its place is copied there, and
 *   an offer ends with its operation.
 * - destroy() takes NULL and half-built links, runs `done` with HOOP_ABORTED for what is pending,
 *   and cannot fail. Afterwards neither end touches the memory of any xfer, nor what was offered.
 *   Over a network destroy() says goodbye, unless the link has failed or is abandoned. leave() says
 *   it before, with a deadline, so that links that end together do not wait one after the other.
 * - One thread at a time uses an end; the two ends may be used by two threads at the same time.
 * - A failure is recorded in link->failure by the function that saw it first; every later call
 *   returns its code. The link stays failed.
 *
 * The functions below are the only way to call a transport: they check the contract once, for all
 * implementations.
 */
#ifndef HOOP_TRANSPORT_H
#define HOOP_TRANSPORT_H

#include "base/crypto.h"
#include "base/error.h"
#include "net/address.h"
#include "transports/blob.h"
#include "transports/signature.h"
#include <stdbool.h>
#include <string.h>

/* Travels with every payload and is checked by the receiver. 56 bytes, little-endian. */
struct hoop_chunk_header {
    uint64_t comm_id;
    uint32_t op; /* operation sequence number of the comm, low half */
    uint32_t lane;
    uint64_t chunk;                  /* step number within the lane */
    uint64_t bytes;                  /* payload bytes that follow */
    struct hoop_signature signature; /* of the operation */
};
_Static_assert(sizeof(struct hoop_chunk_header) == 7 * sizeof(uint64_t), "seven words");

struct hoop_link;
struct hoop_xfer;
typedef void hoop_xfer_done_fn(struct hoop_xfer *xfer, hoop_result_t result);

struct hoop_xfer {
    /* filled in by the poster */
    void *data; /* send: payload. recv: destination, or NULL to be lent the link's memory */
    size_t bytes;
    uint32_t op; /* goes into, or is expected in, the header */
    uint64_t chunk;
    struct hoop_signature signature; /* so does this; all zero is a signature too */
    hoop_xfer_done_fn *done;
    bool may_wait;  /* send: nobody needs it at once. It may be kept back, to go with what is sent
                     * next, until push(), or for 200 ms where the thread goes elsewhere */
    bool past;      /* send: a copy in shared memory is better made past the caches */
    bool has_place; /* send: it belongs so many bytes behind the start of what the receiver */
    uint64_t place; /* offers for this op */
    /* the link's, between post and release */
    struct hoop_xfer *next;
    uint64_t position;
    bool lent; /* data is the link's until release() */
};

/* All but data and bytes; where it lies, as a copy of what was just written in smaller parts would
 * wait for them. */
static inline void hoop_xfer_prepare(struct hoop_xfer *xfer, uint32_t op, uint64_t chunk,
                                     const struct hoop_signature *signature,
                                     hoop_xfer_done_fn *done)
{
    memset(xfer, 0, sizeof(*xfer));
    xfer->op = op;
    xfer->chunk = chunk;
    xfer->signature = *signature;
    xfer->done = done;
}

/* What a link is for. Copied by create. */
struct hoop_link_params {
    uint64_t comm_id;
    uint32_t me, peer; /* ranks */
    uint32_t lane;
    bool sending;
    uint32_t slots;        /* staging buffers wanted; a transport without slots ignores it */
    uint64_t chunk_bytes;  /* no xfer will be larger */
    uint32_t check;        /* enum hoop_check: how payload over a network is checked */
    uint64_t buffer_bytes; /* of a socket, either way; 0: the kernel's choice */
    /* Brings a peer's exported region into this process; for transports over shared memory.
     * Given by the comm. May return HOOP_AGAIN from bind: call bind again later. */
    hoop_result_t (*import)(void *arg, uint32_t peer, uint64_t region_id, uint32_t generation,
                            void **ret_base, uint64_t *ret_bytes);
    /* Tells the rank at the other end that there is something to look at. May be NULL. */
    void (*wake)(void *arg, uint32_t peer);
    /*
     * For transports over a network; given by the comm. data_address: where this process takes in
     * the peer's data connection (for the receiver's blob), which is expected from then on; opens
     * the endpoint if need be. stream: the authenticated, connected, non-blocking TCP socket of
     * this link, which becomes the link's: closed with hoop_fork_close(); and a key that only its
     * two ends have. The sender gives the address to connect to, the receiver NULL.
     * HOOP_AGAIN: it is not there yet, ask again; else the sentence is the thread's
     * (hoop_thread_error()).
     */
    hoop_result_t (*data_address)(void *arg, uint32_t peer, uint32_t lane,
                                  struct hoop_address *ret);
    hoop_result_t (*stream)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                            const struct hoop_address *address, int *ret_fd,
                            struct hoop_secret *ret_key);
    /*
     * For transports whose ends have more to tell each other than their first blobs; given by the
     * comm. tell: another blob for the other end, through the control plane. hear: the next one
     * that the other end has told; false: it has not come yet.
     */
    void (*tell)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                 const struct hoop_blob *blob);
    bool (*hear)(void *arg, uint32_t peer, uint32_t lane, bool sending, struct hoop_blob *ret);
    /* Where there are several devices: how many lower ranks this one's machine has, which choose
     * too; and which of the ways between the two ranks it takes, in turn. */
    uint32_t local, turn;
    /* Set while the thread that drives this end sleeps, or is about to look for the last time;
     * whoever clears it then wakes the thread. NULL: it may be so at any time. */
    const _Atomic uint8_t *sleeping;
    void *arg;
};

/* The slots of one implementation. Each does for its link what the function of the same name
 * below promises; the wrapper has checked arguments and state. */
struct hoop_transport {
    const char *name;
    /* Can a link between these two processes be made by this transport? */
    bool (*reaches)(bool same_process, bool same_machine);
    hoop_result_t (*create)(const struct hoop_link_params *params, struct hoop_link **ret_link,
                            struct hoop_blob *ret_blob, struct hoop_failure *failure);
    hoop_result_t (*bind)(struct hoop_link *link, const struct hoop_blob *peer);
    hoop_result_t (*send)(struct hoop_link *link, struct hoop_xfer *xfer);
    hoop_result_t (*recv)(struct hoop_link *link, struct hoop_xfer *xfer);
    void (*release)(struct hoop_link *link, struct hoop_xfer *xfer);
    /* optional; a smaller xfer, or offer, is copied sooner than it is told where it belongs */
    void (*offer)(struct hoop_link *link, uint32_t op, void *data, uint64_t bytes);
    uint64_t place_least_bytes;                                         /* > 0 */
    void (*pair)(struct hoop_link *sender, struct hoop_link *receiver); /* optional */
    uint32_t (*holds)(const struct hoop_link *link);                    /* optional: none */
    void (*push)(struct hoop_link *sender);                             /* optional */
    bool (*progress)(struct hoop_link *link);
    int (*watch_fd)(struct hoop_link *link); /* optional */
    void (*leave)(struct hoop_link *link);   /* optional */
    void (*destroy)(struct hoop_link *link);
};

/* Embedded first in every implementation's link. Touched by the thread that uses the end. */
struct hoop_link {
    const struct hoop_transport *transport;
    struct hoop_link_params params;
    struct hoop_failure failure; /* code HOOP_OK while the link works */
    bool bound;
    uint64_t leave_by_ns; /* how long its goodbye may take; 0: leave was not called */
};

/* All transports in order of preference, NULL at the end: inproc, shm, tcp; and rdma, which is used
 * where it is asked for by name. */
extern const struct hoop_transport *const hoop_transports[];

/* The first transport in the table that reaches; NULL: none. */
const struct hoop_transport *hoop_transport_for(bool same_process, bool same_machine);

/* By name; NULL: there is none of that name. */
const struct hoop_transport *hoop_transport_named(const char *name);

/*
 * Tests set this to wrap every transport (fault injection): the result is used in place of the
 * argument. NULL in normal life. Set before the first link is made.
 */
extern const struct hoop_transport *(*hoop_transport_decorate)(const struct hoop_transport *);

/*
 * Sets *failure: why rank me could not send to the peer, or receive from it. The link's sentence,
 * if there is a link and it has one, says more than the code that a call returned; of a mismatch it
 * says all. where: "", or " (lane 0, step 3)". Returns failure->code.
 */
hoop_result_t hoop_link_blame(const struct hoop_link *link, bool sending, uint32_t me,
                              uint32_t peer, hoop_result_t code, const char *where,
                              struct hoop_failure *failure);

/*
 * Makes this rank's end and the blob that the peer's bind needs. On failure *ret_link is
 * untouched and the sentence is in *failure.
 */
hoop_result_t hoop_link_create(const struct hoop_transport *transport,
                               const struct hoop_link_params *params, struct hoop_link **ret_link,
                               struct hoop_blob *ret_blob, struct hoop_failure *failure);

/*
 * Completes the link with the peer's blob (copied). HOOP_AGAIN: something it needs is under way,
 * call again. HOOP_INVALID_ARGUMENT: the blob is not one of this transport's.
 */
hoop_result_t hoop_link_bind(struct hoop_link *link, const struct hoop_blob *peer);

/* Posts a send (a receive) on a bound link; see the rules above. bytes may be 0. */
hoop_result_t hoop_link_send(struct hoop_link *link, struct hoop_xfer *xfer);
hoop_result_t hoop_link_recv(struct hoop_link *link, struct hoop_xfer *xfer);

/* Is it of use to know where so many bytes belong? */
static inline bool hoop_link_places(const struct hoop_link *link, uint64_t bytes)
{
    const struct hoop_transport *transport = link->transport;
    return transport->offer != NULL && bytes >= transport->place_least_bytes;
}

/*
 * Receiver, bound: until operation op is over here, the peer may write to [data, data+bytes) what
 * this end is to receive there; see the rules. Instead of what was offered before.
 */
void hoop_link_offer(struct hoop_link *link, uint32_t op, void *data, uint64_t bytes);

/*
 * The two ends, bound, that a rank has with one peer in one lane of a comm may use each other's
 * memory from now on. There is room for one chunk less than the slots that were wanted, if those
 * were several. Where one is destroyed the other has failed, and what it lent is gone.
 */
void hoop_link_pair(struct hoop_link *sender, struct hoop_link *receiver);

/*
 * Receiver: so many messages of no bytes can be sent, and the sends are done, though nobody looks
 * at this end: beside nothing else, and before anything else that is sent later. 0: none.
 */
static inline uint32_t hoop_link_holds(const struct hoop_link *link)
{
    return link->transport->holds != NULL ? link->transport->holds(link) : 0;
}

/* Sender, bound: what was kept back goes. */
static inline void hoop_link_push(struct hoop_link *link)
{
    if (link->transport->push != NULL && link->failure.code == HOOP_OK) {
        link->transport->push(link);
    }
}

/* Gives back what a done receive was lent. */
void hoop_link_release(struct hoop_link *link, struct hoop_xfer *xfer);

/* Moves what can be moved now; runs `done` of what completed. True: something moved. */
static inline bool hoop_link_progress(struct hoop_link *link)
{
    return link->bound && link->transport->progress(link);
}

/*
 * A descriptor to be watched, edge-triggered, for reading and writing: an event there says that
 * progress may move something. It changes no more once the link is bound; links of one comm may
 * share it. -1: wake() is called instead.
 */
int hoop_link_watch_fd(struct hoop_link *link);

/* Says goodbye, if the link works; what is waited for, destroy waits for. Nothing else is allowed
 * between. NULL is allowed. */
void hoop_link_leave(struct hoop_link *link, uint64_t deadline_ns);

/* See the rules. The caller's pointer is dead afterwards. */
void hoop_link_destroy(struct hoop_link *link);

/*
 * The same for a link whose comm has failed: without a goodbye, which would tell the peer that all
 * is well. Why it ended the peer hears from elsewhere.
 */
void hoop_link_abandon(struct hoop_link *link);

#endif

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

/* Travels with every payload, and is checked by the receiver. 56 bytes, little-endian. */
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
    void *data; /* send: payload. recv: destination, or NULL to borrow the link's memory */
    size_t bytes;
    uint32_t op; /* sent in, or expected in, the header, like chunk and signature */
    uint64_t chunk;
    struct hoop_signature signature; /* all zero is a signature, too */
    hoop_xfer_done_fn *done;
    bool may_wait;  /* send: may be held back until the next send, push(), or for 200 ms */
    bool past;      /* send: copy into shared memory by non-temporal stores */
    bool has_place; /* send: belongs at offset `place` */
    uint64_t place; /* of what the receiver offers for this op */
    /* The link's, between post and release. */
    struct hoop_xfer *next;
    uint64_t position;
    bool lent; /* data is the link's memory until release() */
};

/* Fills in all but data and bytes. In place, because copying a struct that was just written field
 * by field would stall on those stores. */
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
    uint32_t slots;        /* staging buffers wanted; ignored by transports without slots */
    uint64_t round_bytes;  /* shared memory that chunks go round in, if it holds more of them */
    uint64_t chunk_bytes;  /* the largest xfer */
    uint32_t check;        /* enum hoop_check: how payload is checked over a network */
    uint64_t buffer_bytes; /* of a socket, in either direction; 0: the kernel's choice */
    /* Maps a peer's exported region into this process, for transports over shared memory; given by
     * the comm. If it returns HOOP_AGAIN, so does bind, which is then called again. */
    hoop_result_t (*import)(void *arg, uint32_t peer, uint64_t region_id, uint32_t generation,
                            void **ret_base, uint64_t *ret_bytes);
    /* Tells the rank at the other end that there is something to look at. May be NULL. */
    void (*wake)(void *arg, uint32_t peer);
    /*
     * For transports over a network; given by the comm. HOOP_AGAIN: not there yet, ask again; other
     * failures have the thread's message (hoop_thread_error()). data_address: where this process
     * accepts the peer's data connection, for the receiver's blob. The connection is expected from
     * then on; opens the endpoint if necessary. stream: the authenticated, connected, non-blocking
     * TCP socket of this link, which the link then owns and closes with hoop_fork_close(), and a
     * key that only its two ends have. The sender passes the address to connect to, the receiver
     * NULL.
     */
    hoop_result_t (*data_address)(void *arg, uint32_t peer, uint32_t lane,
                                  struct hoop_address *ret);
    hoop_result_t (*stream)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                            const struct hoop_address *address, int *ret_fd,
                            struct hoop_secret *ret_key);
    /*
     * For transports whose ends exchange more than their first blobs; given by the comm. tell:
     * sends another blob to the other end, over the control plane. hear: the next blob that the
     * other end has sent; false: it has not come yet.
     */
    void (*tell)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                 const struct hoop_blob *blob);
    bool (*hear)(void *arg, uint32_t peer, uint32_t lane, bool sending, struct hoop_blob *ret);
    /* With several devices: how many lower ranks this rank's machine has, which choose, too; and
     * which of the ways between the two ranks this link takes, in turn. */
    uint32_t local, turn;
    /* Nonzero while the thread that drives this end sleeps, or is about to look for the last time;
     * the thread that clears it wakes it. NULL: it may sleep at any time. */
    const _Atomic uint8_t *sleeping;
    void *arg;
};

/* The functions of one implementation. Each does for its link what the function of the same name
 * below promises; that wrapper has checked arguments and state. */
struct hoop_transport {
    const char *name;
    /* Can this transport connect these two processes? */
    bool (*reaches)(bool same_process, bool same_machine);
    hoop_result_t (*create)(const struct hoop_link_params *params, struct hoop_link **ret_link,
                            struct hoop_blob *ret_blob, struct hoop_failure *failure);
    hoop_result_t (*bind)(struct hoop_link *link, const struct hoop_blob *peer);
    hoop_result_t (*send)(struct hoop_link *link, struct hoop_xfer *xfer);
    hoop_result_t (*recv)(struct hoop_link *link, struct hoop_xfer *xfer);
    void (*release)(struct hoop_link *link, struct hoop_xfer *xfer);
    /* Optional. An xfer or offer smaller than this is copied faster than its place is told. */
    void (*offer)(struct hoop_link *link, uint32_t op, void *data, uint64_t bytes);
    uint64_t place_least_bytes;                                         /* > 0 */
    void (*pair)(struct hoop_link *sender, struct hoop_link *receiver); /* optional */
    uint32_t (*holds)(const struct hoop_link *link);                    /* optional; absent: 0 */
    void (*push)(struct hoop_link *sender);                             /* optional */
    bool (*progress)(struct hoop_link *link);
    int (*watch_fd)(struct hoop_link *link); /* optional */
    void (*leave)(struct hoop_link *link);   /* optional */
    void (*destroy)(struct hoop_link *link);
};

/* First member of every implementation's link. Touched only by the thread that uses the end. */
struct hoop_link {
    const struct hoop_transport *transport;
    struct hoop_link_params params;
    struct hoop_failure failure; /* code HOOP_OK while the link works */
    bool bound;
    uint64_t leave_by_ns; /* deadline of its goodbye; 0: leave was not called */
};

/* All transports in order of preference, then NULL; rdma is only chosen by name. */
extern const struct hoop_transport *const hoop_transports[];

/* The first transport in the table that reaches the peer; NULL: none. */
const struct hoop_transport *hoop_transport_for(bool same_process, bool same_machine);

/* NULL: there is no transport of that name. */
const struct hoop_transport *hoop_transport_named(const char *name);

/* Tests set this to wrap every transport (fault injection): the result replaces the argument.
 * Otherwise NULL. To be set before the first link is made. */
extern const struct hoop_transport *(*hoop_transport_decorate)(const struct hoop_transport *);

/*
 * Sets *failure: why rank me could not send to peer, or receive from it. If the link has a failure,
 * its message says more than the code that a call returned; for a mismatch it is used as it is.
 * where: "", or " (lane 0, step 3)". Returns failure->code.
 */
hoop_result_t hoop_link_blame(const struct hoop_link *link, bool sending, uint32_t me,
                              uint32_t peer, hoop_result_t code, const char *where,
                              struct hoop_failure *failure);

/* Makes this rank's end, and the blob that the peer's bind needs. On failure *ret_link is unchanged
 * and the message is in *failure. */
hoop_result_t hoop_link_create(const struct hoop_transport *transport,
                               const struct hoop_link_params *params, struct hoop_link **ret_link,
                               struct hoop_blob *ret_blob, struct hoop_failure *failure);

/* Completes the link with the peer's blob (copied). HOOP_AGAIN: something is not ready, call again.
 * HOOP_INVALID_ARGUMENT: the blob is of another transport. */
hoop_result_t hoop_link_bind(struct hoop_link *link, const struct hoop_blob *peer);

/* Posts a send (a receive) on a bound link; see the rules above. bytes may be 0. */
hoop_result_t hoop_link_send(struct hoop_link *link, struct hoop_xfer *xfer);
hoop_result_t hoop_link_recv(struct hoop_link *link, struct hoop_xfer *xfer);

/* Does it pay to say where so many bytes belong? */
static inline bool hoop_link_places(const struct hoop_link *link, uint64_t bytes)
{
    const struct hoop_transport *transport = link->transport;
    return transport->offer != NULL && bytes >= transport->place_least_bytes;
}

/* Receiver, bound: until operation op is over at this end, the peer may write what this end will
 * receive directly to [data, data+bytes); see the rules. Replaces the previous offer. */
void hoop_link_offer(struct hoop_link *link, uint32_t op, void *data, uint64_t bytes);

/*
 * A rank's two bound ends with one peer in one lane of a comm may use each other's memory from now
 * on. If several slots were wanted, there is room for one chunk less. When one end is destroyed,
 * the other fails, and what it lent is gone.
 */
void hoop_link_pair(struct hoop_link *sender, struct hoop_link *receiver);

/* Receiver: the number of empty messages whose sends complete although nobody looks at this end, if
 * nothing else is under way; anything sent later comes after them. 0: none. */
static inline uint32_t hoop_link_holds(const struct hoop_link *link)
{
    return link->transport->holds != NULL ? link->transport->holds(link) : 0;
}

/* Sender, bound: sends what was held back. */
static inline void hoop_link_push(struct hoop_link *link)
{
    if (link->transport->push != NULL && link->failure.code == HOOP_OK) {
        link->transport->push(link);
    }
}

/* Returns memory that a completed receive has borrowed. */
void hoop_link_release(struct hoop_link *link, struct hoop_xfer *xfer);

/* Moves what can be moved now; runs `done` of what has completed. True: something moved. */
static inline bool hoop_link_progress(struct hoop_link *link)
{
    return link->bound && link->transport->progress(link);
}

/*
 * A descriptor to be watched for reading and writing, edge-triggered: an event means that progress
 * may move something. Constant once the link is bound; links of one comm may share it. -1: wake()
 * is called instead.
 */
int hoop_link_watch_fd(struct hoop_link *link);

/* Says goodbye, if the link works. destroy waits for the goodbye's completion; no other call may
 * come in between. NULL is allowed. */
void hoop_link_leave(struct hoop_link *link, uint64_t deadline_ns);

/* See the rules. Frees the link. */
void hoop_link_destroy(struct hoop_link *link);

/* Destroys a link whose comm has failed: without a goodbye, which would tell the peer that all is
 * well. The peer hears of the reason from elsewhere. */
void hoop_link_abandon(struct hoop_link *link);

#endif

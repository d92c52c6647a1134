/*
 * Both ends of a link in one process, for tests of transports. For transports over shared memory
 * the receiver's region is exported and mapped a second time, under another process's name, so that
 * the two ends see it at different addresses, as two processes would. For transports over a network
 * there is a connection over the loopback interface, with the smallest buffers that the kernel
 * allows, so that they are full now and then. Calls that may return HOOP_AGAIN do so at first.
 *
 * Nothing here asserts, so it may run on any thread.
 */
#ifndef LINK_PAIR_H
#define LINK_PAIR_H

#include "transports/transport.h"
#include <stdatomic.h>

#define PAIR_SENDER 0u
#define PAIR_RECEIVER 1u
#define PAIR_LANE 2u
#define PAIR_COMM 0x1122334455667788ull
#define PAIR_OTHER_PROCESS 77u /* owns what the sender's end maps */

struct pair {
    const struct hoop_transport *transport;
    uint32_t slots;
    uint32_t check; /* for network transports, like buffer_bytes */
    uint64_t chunk_bytes, round_bytes, buffer_bytes;
    bool back; /* the link goes from PAIR_RECEIVER to PAIR_SENDER */
    struct hoop_link *sender, *receiver;
    struct hoop_blob sender_blob, receiver_blob;
    struct hoop_failure failure; /* why the link could not be created */
    unsigned wakes[2];           /* how often each rank was woken */
    uint64_t region;             /* the region that pair_import() holds for the sender; 0: none */
    uint32_t generation;
    uint32_t local, turn;     /* for several devices */
    struct hoop_blob told[2]; /* for each rank, what it has not heard yet */
    _Atomic bool has_told[2];
    bool connected;
    int sockets[2]; /* of each rank, made when first asked for; -1: a link has it, or there is none
                       yet */
    unsigned asked[2]; /* how often each rank asked for its socket */
};

/* A posted xfer and its outcome. */
struct item {
    struct hoop_xfer xfer;
    unsigned done; /* how often `done` was called */
    hoop_result_t result;
    unsigned turn; /* the place of its `done` among all since item_turns was cleared */
};
extern _Thread_local unsigned item_turns;

/* Does rdma run over this machine's devices (HOOP_TEST_RDMA_DEVICE), not over a fake? */
bool pair_has_device(void);

/* The transport that argv names ("inproc", "shm", "tcp", "rdma"); followed by "faulty" it refuses
 * and delays at random. NULL: there is none of that name. */
const struct hoop_transport *pair_transport(int argc, char **argv);

/* pair is borrowed until both ends are closed. */
struct hoop_link_params pair_params(struct pair *pair, bool sending);

/* Is it a transport over a network? Then descriptors are watched, and ends do not wake each
 * other. */
bool pair_is_network(const struct pair *pair);

/* Makes both ends of a TCP connection over the loopback interface, non-blocking and in the fork
 * handler's list. False: it can't be made. */
bool pair_connect(int *ret_sockets);

/* Makes both ends of a pair. Transport, sizes and options are set, all else is zero. */
hoop_result_t pair_make(struct pair *pair);
/* Makes both ends, but binds neither. */
hoop_result_t pair_create(struct pair *pair, const struct hoop_transport *transport, uint32_t slots,
                          uint64_t chunk_bytes);
/* Binds both ends. */
hoop_result_t pair_join(struct pair *pair);
/* Makes and binds both ends. */
hoop_result_t pair_open(struct pair *pair, const struct hoop_transport *transport, uint32_t slots,
                        uint64_t chunk_bytes);
void pair_close(struct pair *pair);

/* hoop_link_bind() until it is not HOOP_AGAIN; HOOP_TIMEOUT after too many. An end that was bound
 * in the meantime, because the other waited for it, stays so. */
hoop_result_t pair_bind(struct hoop_link *link, const struct hoop_blob *blob);

/* Posts, with progress as long as that is HOOP_AGAIN: of both ends for a send, because its room may
 * depend on what the receiver sends. HOOP_AGAIN after too many. */
hoop_result_t pair_send(struct pair *pair, struct item *item, const void *data, size_t bytes,
                        uint32_t number);
hoop_result_t pair_recv(struct pair *pair, struct item *item, void *data, size_t bytes,
                        uint32_t number);
void item_fill(struct item *item, void *data, size_t bytes, uint32_t number);
hoop_xfer_done_fn item_done;

/* Makes progress on both ends until item is done. False: it was not. */
bool pair_until_done(struct pair *pair, const struct item *item);
/* Makes progress on both ends for a while, until nothing is on the way between them. */
void pair_settle(struct pair *pair);

/* Writes payload number n; is the payload there that one? */
void pattern_fill(void *data, size_t bytes, uint64_t number);
bool pattern_is(const void *data, size_t bytes, uint64_t number);

/* Are all regions and imports gone? */
bool pair_nothing_left(void);

#endif

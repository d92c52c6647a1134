/*
 * A room in which control connections are made: a listener, an owner for either end of a connection
 * that notes what it hears, and raw sockets for those who do not keep to the rules. Over an
 * abstract name or over TCP on loopback.
 *
 * Owners live on the service thread. Their notes are under the room's lock; the main thread waits
 * for them with room_await() and asserts.
 */
#ifndef CONTROL_ROOM_H
#define CONTROL_ROOM_H

#include "control/endpoint.h"
#include "runtime/service.h"
#include <pthread.h>

#define ROOM_PATIENCE_MS 30000u

/* HERE: both ends are in this process, without a socket. */
enum room_kind { ROOM_UNIX, ROOM_TCP4, ROOM_TCP6, ROOM_HERE };
struct room;
struct party;
typedef void party_fn(struct party *party);

/* One end of a connection, and its notes. */
struct party {
    struct room *room;
    struct hoop_connection *connection; /* for the service thread; NULL: none, or destroyed */
    /* What to do besides taking notes, on the service thread; NULL: nothing. */
    party_fn *on_opened, *on_message, *on_closed;
    uint32_t to_send; /* how many messages party_send_all() sends */
    int fd;           /* of a detached connection */
    /* The notes. */
    uint32_t opened, closed, messages;
    uint32_t bad; /* messages that were not the next one of party_fill() */
    struct hoop_failure why;
    union hoop_frame last;
};

struct room {
    enum room_kind kind;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct hoop_secret secret;
    struct hoop_place place;
    struct hoop_endpoint *endpoint;
    struct hoop_expectation expectation; /* what raw_hello() sends */
    struct party server;                 /* takes the connections that open, one at a time */
    int fds;                             /* descriptors that were open when the room was made */
    hoop_result_t result;
};

/* False: this machine has no addresses of this kind. */
bool room_can(enum room_kind kind);
void room_open(struct room *room, enum room_kind kind);
/* Destroys what the test has left. Returns room_fds(). */
int room_close(struct room *room);
/* How many more descriptors are open than when the room was made. */
int room_fds(const struct room *room);
/* Closes the endpoint and opens it again at the same place. */
hoop_result_t room_reopen(struct room *room);
/* expect: does the room expect clients, and tell them the secret? */
void room_expect(struct room *room, bool expect);
bool room_is_far(const struct room *room);
/* Waits until the service thread has done all that was requested before. It then also sees what the
 * main thread has set in the room. */
void room_settle(void);

/* Waits until a note is at least `least`. False: it took too long. */
bool room_await(struct room *room, const uint32_t *note, uint32_t least);

/* Connects to the room's endpoint with this secret. From a thread of the test. */
hoop_result_t party_connect(struct party *party, struct room *room,
                            const struct hoop_secret *secret);
/* The same to any place; from may be NULL. */
hoop_result_t party_connect_to(struct party *party, struct room *room,
                               const struct hoop_place *place, const struct hoop_address *from,
                               const struct hoop_secret *secret);
void party_destroy(struct party *party);

/* To be called from on_...() and by party_run(): */
void party_leave(struct party *party);    /* destroys the connection */
void party_send_all(struct party *party); /* sends to_send messages */
void party_detach(struct party *party);
void party_run(struct party *party, party_fn *fn); /* runs fn on the service thread, and waits */

/* Makes message `number` of a sequence; they have 33 different lengths. */
void party_fill(union hoop_frame *frame, uint32_t number);

/* ---- Raw sockets: blocking, with a deadline ----------------------------------------------- */

int raw_connect(const struct room *room);
/* Listens at a place that is not in use, which is stored in *ret_place. */
int raw_listen(const struct room *room, int backlog, struct hoop_place *ret_place);
int raw_accept(int listen_fd);
/* Sends in pieces of at most `step` bytes. False: the other end is gone. */
bool raw_send(int fd, const void *data, size_t bytes, size_t step);
/* Receives the next message. False: end of the stream, a timeout, or not a message. */
bool raw_receive(const struct room *room, int fd, union hoop_frame *ret_frame);
/* Reads to the end of the stream. False: it does not come. */
bool raw_ended(int fd);

void raw_hello(const struct room *room, union hoop_frame *ret_frame);
/* Makes the proof that belongs to a hello and the server's answer. */
void raw_proof(const struct room *room, const union hoop_frame *hello,
               const union hoop_frame *challenge, union hoop_frame *ret_proof);
void raw_challenge(const struct room *room, const union hoop_frame *hello,
                   union hoop_frame *ret_challenge);
/* Does the whole handshake as a client, in pieces of `step` bytes. */
bool raw_shake(const struct room *room, int fd, size_t step);
/* Does the handshake as a server, up to the proof; the caller sends the welcome. */
bool raw_serve(const struct room *room, int fd);
/* Seals the next message of this end of the latest connection; does nothing on one machine. */
void raw_seal(const struct room *room, union hoop_frame *frame);

#endif

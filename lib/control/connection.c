/*
 * One control connection (connection.h): messages both ways, and its end. The proof is in
 * handshake.c, reading and writing frames in frame_io.c, listening in endpoint.c.
 *
 *     CONNECTING (TCP clients) --> SHAKING --> OPEN --> CLOSED
 *
 * Two properties of Unix sockets shape this file. A send to a closed end fails although what that
 * end sent before can still be read; so only end of file closes a connection. And descriptors in
 * flight are limited per user (ETOOMANYREFS); so a send that meets this limit is retried a little
 * later. With TCP, an error that ends the connection here need not end it there. Within a process
 * there is no socket: each end puts its messages into the other's queue, which the other reads on
 * its timer.
 *
 * An owner may destroy the connection in any callback. The descriptor is closed at once, the memory
 * is freed later (hoop_free_later()), so that callers up the stack see that it is CLOSED.
 */
#include "control/connection.h"
#include "control/frame_io.h"
#include "runtime/watch.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONNECTION_READS 16    /* per wake-up, for fairness to other connections */
#define CONNECTION_RETRY_MS 1u /* when the kernel lacks memory, or has too much in flight */

enum connection_state {
    CONNECTION_CONNECTING, /* TCP: connect() has not finished */
    CONNECTION_SHAKING,
    CONNECTION_OPEN, /* the handshake is complete, and all of it was sent */
    CONNECTION_CLOSED
};

struct hoop_connection {
    const struct hoop_connection_owner *owner;
    void *arg;
    int fd; /* -1 if the other end is in this process */
    struct hoop_watch *watch;
    struct hoop_timer *timer; /* to retry, to close, or without a socket to read */
    enum connection_state state;
    bool retrying, destroyed, broken; /* broken: send nothing more, read to the end */
    struct hoop_connection *other; /* the other end, if it is in this process and has not ended */
    struct hoop_connection_about about;
    struct hoop_handshake handshake;
    struct hoop_failure failure;      /* why this end closes it */
    struct hoop_frame_queue queue;    /* messages to send; within a process: received messages */
    struct hoop_frame_reader *reader; /* NULL for a Unix socket */
    struct hoop_frame_seal in, out;   /* used by open TCP connections */
};

/* ---- Within this process ------------------------------------------------------------------ */

/* The queue that this end's messages go to. */
static struct hoop_frame_queue *connection_out(struct hoop_connection *connection)
{
    return connection->other != NULL ? &connection->other->queue : &connection->queue;
}

/* Separates the two ends. The other end closes when it has read all messages. */
static void connection_part(struct hoop_connection *connection)
{
    struct hoop_connection *other = connection->other;
    if (other != NULL) {
        other->broken = true;
        other->other = connection->other = NULL;
        hoop_timer_start(other->timer, 0, 0);
    }
}

/* ---- Life --------------------------------------------------------------------------------- */

void hoop_connection_destroy(struct hoop_connection *connection)
{
    if (connection == NULL || connection->destroyed) {
        return;
    }
    connection->destroyed = true;
    connection->state = CONNECTION_CLOSED;
    connection_part(connection);
    hoop_timer_destroy(connection->timer);
    hoop_watch_destroy(connection->watch);
    if (connection->reader != NULL && connection->fd >= 0) {
        hoop_socket_drain(connection->fd);
    }
    hoop_fork_close(connection->fd);
    hoop_frame_queue_finish(&connection->queue);
    hoop_handshake_wipe(&connection->handshake);
    hoop_frame_seal_finish(&connection->in);
    hoop_frame_seal_finish(&connection->out);
    hoop_secret_wipe(&connection->about.data_key, sizeof(connection->about.data_key));
    hoop_free_later(connection->reader);
    hoop_free_later(connection);
}

int hoop_connection_detach(struct hoop_connection *connection)
{
    const int fd = connection->fd;
    assert(connection->state == CONNECTION_OPEN && connection->reader != NULL &&
           connection->reader->got == connection->reader->bytes && connection->queue.count == 0);
    hoop_socket_be_patient(fd);
    connection->fd = -1;
    hoop_connection_destroy(connection);
    return fd;
}

void hoop_connection_adopt(struct hoop_connection *connection,
                           const struct hoop_connection_owner *owner, void *arg)
{
    connection->owner = owner;
    connection->arg = arg;
}

const struct hoop_connection_about *hoop_connection_about(const struct hoop_connection *connection)
{
    return &connection->about;
}

/* ---- The end ------------------------------------------------------------------------------ */

/* Sends what is queued. Returns 0, or the errno of the send that failed. On Unix sockets messages
 * are not sealed, since the kernel vouches for them. */
static int connection_send_queued(struct hoop_connection *connection)
{
    if (connection->other != NULL) {
        hoop_timer_start(connection->other->timer, 0, 0); /* makes the other end read */
        return 0;
    }
    const bool sealed = connection->reader != NULL && connection->state == CONNECTION_OPEN;
    return hoop_frame_queue_send(&connection->queue, connection->fd,
                                 sealed ? &connection->out : NULL);
}

/* Sends the other end the reason, if the socket takes it now. */
static void connection_say_reject(struct hoop_connection *connection)
{
    struct hoop_frame_queue *out = connection_out(connection);
    union hoop_frame frame;
    hoop_frame_from_failure(&frame, HOOP_FRAME_REJECT, &connection->failure);
    if (connection->other == NULL) { /* within this process it counts as sent */
        hoop_frame_queue_drop(out);
    }
    if (hoop_frame_queue_put(out, &frame.header, NULL, 0) == HOOP_OK) {
        (void)connection_send_queued(connection);
    } else if (connection->other != NULL) {
        connection->other->failure = connection->failure;
    }
}

/* Ends the connection for the reason in the thread's sentence, unless it has a reason already. If
 * tell is true the other end is told. */
static void connection_end(struct hoop_connection *connection, bool tell, hoop_result_t code)
{
    struct hoop_failure *failure = &connection->failure;
    if (connection->state == CONNECTION_CLOSED) {
        return;
    }
    if (failure->code == HOOP_OK) {
        failure->code = code; /* hoop_failure_set() would not take HOOP_AGAIN */
        (void)snprintf(failure->text, sizeof(failure->text), "%s", hoop_thread_error());
    }
    if (tell && !connection->broken) {
        connection_say_reject(connection);
    }
    connection->broken = true;
    hoop_frame_queue_finish(&connection->queue);
    connection_part(connection);
    /* the timer closes it, since this may run inside a call of the owner's */
    hoop_watch_want(connection->watch, 0);
    hoop_timer_start(connection->timer, 0, 0);
}

void hoop_connection_refuse(struct hoop_connection *connection, hoop_result_t code)
{
    /* an unproven end learns nothing */
    connection_end(connection, connection->state == CONNECTION_OPEN, code);
}

/* Tells the owner that it is over. `why` is used if this end has no reason of its own. */
static void connection_close(struct hoop_connection *connection, const char *why)
{
    if (connection->state == CONNECTION_CLOSED) {
        return;
    }
    connection->state = CONNECTION_CLOSED;
    hoop_watch_want(connection->watch, 0);
    hoop_timer_stop(connection->timer);
    (void)hoop_failure_set(&connection->failure, HOOP_REMOTE_ERROR, -1, "%s", why);
    const struct hoop_failure failure = connection->failure;
    connection->owner->closed(connection->arg, connection, &failure);
}

/* ---- Sending ------------------------------------------------------------------------------ */

/* Watches for what could make progress. */
static void connection_watch(const struct hoop_connection *connection)
{
    unsigned events = HOOP_WATCH_READ;
    if (connection->state == CONNECTION_CLOSED || connection->broken) {
        return;
    }
    if (connection->state == CONNECTION_CONNECTING) {
        events = HOOP_WATCH_WRITE;
    } else if (!connection->retrying && connection->queue.count > 0) {
        events = HOOP_WATCH_READ | HOOP_WATCH_WRITE;
    }
    hoop_watch_want(connection->watch, events);
}

/* Handles the result of a send, 0 or an errno. Returns true if the message is to be sent later. */
static bool connection_send_later(struct hoop_connection *connection, int err)
{
    if (err == 0 || err == EAGAIN) {
        return err != 0;
    }
    const bool starved = hoop_frame_starves(err);
    if (starved && !hoop_frame_queue_gives_up(&connection->queue)) {
        hoop_timer_start(connection->timer, CONNECTION_RETRY_MS, 0);
        connection->retrying = true;
        return true;
    }
    if (err == EPIPE || err == ECONNRESET) {
        connection->broken = true; /* the reader closes, once it has read the last messages */
        hoop_frame_queue_finish(&connection->queue);
        hoop_watch_want(connection->watch, HOOP_WATCH_READ);
        return false;
    }
    const hoop_result_t result =
        hoop_errno_error(err, "sending to %s failed", connection->about.peer);
    const bool far = connection->reader != NULL && !starved && err != EIO; /* it was not sealed */
    hoop_connection_refuse(connection, far ? HOOP_REMOTE_ERROR : result);
    return false;
}

static void connection_flush(struct hoop_connection *connection)
{
    const enum connection_state state = connection->state;
    if (state != CONNECTION_CONNECTING && state != CONNECTION_CLOSED && !connection->broken &&
        !connection->retrying) {
        (void)connection_send_later(connection, connection_send_queued(connection));
    }
    connection_watch(connection);
}

static void connection_put(struct hoop_connection *connection,
                           const struct hoop_frame_header *frame, const int *fds, uint32_t fd_count)
{
    if (connection->state == CONNECTION_CLOSED || connection->broken) {
        return;
    }
    if (connection->reader == NULL && connection->fd >= 0 && connection->queue.count == 0) {
        /* a packet is sent as a whole or not at all, so no copy and no duplicates are needed */
        const ssize_t sent = hoop_socket_send(connection->fd, frame, frame->bytes, fds, fd_count);
        if (sent >= 0 || !connection_send_later(connection, (int)-sent)) {
            return;
        }
    }
    const hoop_result_t result =
        hoop_frame_queue_put(connection_out(connection), frame, fds, fd_count);
    if (result != HOOP_OK) {
        hoop_connection_refuse(connection, result);
    }
    connection_flush(connection);
}

void hoop_connection_send(struct hoop_connection *connection, const struct hoop_frame_header *frame,
                          const int *fds, uint32_t fd_count)
{
    assert(fd_count <= (connection->reader == NULL ? HOOP_MAX_FDS : 0));
    assert(connection->state >= CONNECTION_OPEN && frame->bytes <= sizeof(union hoop_frame));
    connection_put(connection, frame, fds, fd_count);
}

/* ---- Handshake ---------------------------------------------------------------------------- */

/* Asks the owner which secret this client must prove. */
static hoop_result_t connection_admit(struct hoop_connection *connection,
                                      const struct hoop_frame_hello *hello)
{
    const hoop_result_t result = connection->reader != NULL
                                     ? hoop_handshake_reached(hello, &connection->about.local)
                                     : HOOP_OK;
    if (result != HOOP_OK) {
        return result;
    }
    const struct hoop_secret *secret = connection->owner->admit(connection->arg, hello);
    if (secret != NULL) {
        connection->handshake.secret = *secret;
    }
    return secret != NULL ? HOOP_OK : HOOP_AGAIN;
}

/* The handshake is over. Its messages fit any socket's buffer: if one waits, nobody reads. */
static void connection_open(struct hoop_connection *connection)
{
    if (connection->queue.count > 0) {
        hoop_connection_refuse(connection, hoop_error(HOOP_REMOTE_ERROR, "%s takes no welcome",
                                                      connection->about.peer));
        return;
    }
    connection->state = CONNECTION_OPEN;
    connection->owner->opened(connection->arg, connection);
    connection_flush(connection);
}

static hoop_result_t connection_make_keys(struct hoop_connection *connection)
{
    struct hoop_frame_seal *in = &connection->in;
    struct hoop_frame_seal *out = &connection->out;
    hoop_result_t result = hoop_handshake_keys(&connection->handshake, &in->key, &out->key,
                                               &connection->about.data_key);
    if (result == HOOP_OK && connection->handshake.hello.encrypts != 0) {
        result = hoop_aead_create(&in->key, false, &in->aead);
        result = result == HOOP_OK ? hoop_aead_create(&out->key, true, &out->aead) : result;
    }
    return result;
}

/* Handles a message that comes before the connection is open. */
static void connection_shake(struct hoop_connection *connection, const union hoop_frame *frame)
{
    struct hoop_handshake *handshake = &connection->handshake;
    const bool greeted = frame->header.type == HOOP_FRAME_HELLO;
    union hoop_frame answer;
    hoop_result_t result = greeted ? connection_admit(connection, &frame->hello) : HOOP_OK;
    if (result != HOOP_OK) {
        connection_end(connection, true, result);
        return;
    }
    answer.header.bytes = 0;
    result = hoop_handshake_take(handshake, frame, &answer);
    if (result == HOOP_OK && handshake->expects == 0) {
        /* before the welcome, which cannot be taken back */
        result = connection_make_keys(connection);
    }
    if (result != HOOP_OK) {
        connection_end(connection, false, result);
        return;
    }
    if (answer.header.bytes > 0) {
        connection_put(connection, &answer.header, NULL, 0);
    }
    if (handshake->expects == 0 && !connection->broken) {
        connection_open(connection);
    }
}

/* ---- Receiving ---------------------------------------------------------------------------- */

/* Handles a checked message of an expected type. */
static void connection_take(struct hoop_connection *connection, const union hoop_frame *frame,
                            int *fds)
{
    if (connection->state != CONNECTION_OPEN) {
        connection_shake(connection, frame);
    } else if (frame->header.type == HOOP_FRAME_REJECT && frame->reject.code == HOOP_IN_PROGRESS) {
        hoop_connection_refuse(
            connection,
            hoop_error(HOOP_REMOTE_ERROR,
                       "it asked to come back later, but had accepted the connection before"));
    } else if (!connection->owner->message(connection->arg, connection, frame, fds)) {
        hoop_connection_refuse(connection, hoop_error(HOOP_REMOTE_ERROR, "it sent an unexpected %s",
                                                      hoop_frame_name(frame->header.type)));
    }
}

/* Returns false if there is nothing more to read now. */
static bool connection_read_one(struct hoop_connection *connection)
{
    struct hoop_frame_reader packet;
    struct hoop_frame_reader *reader = connection->reader != NULL ? connection->reader : &packet;
    const bool open = connection->state == CONNECTION_OPEN;
    const hoop_result_t result =
        connection->fd < 0
            ? hoop_frame_queue_take(&connection->queue, connection->other != NULL, reader)
            : hoop_frame_read(reader, connection->fd, connection->reader != NULL,
                              open ? NULL : &connection->handshake, open ? &connection->in : NULL);
    if (result == HOOP_AGAIN || result == HOOP_IN_PROGRESS) {
        return result == HOOP_IN_PROGRESS;
    }
    if (result == HOOP_REMOTE_ERROR) {
        connection_close(connection, hoop_thread_error());
        return false;
    }
    if (result != HOOP_OK) {
        /* tell a client of another version which one this is */
        const bool waiting = !open && connection->handshake.expects == HOOP_FRAME_HELLO;
        connection_end(connection, open || (waiting && result == HOOP_MISMATCH), result);
    } else {
        connection_take(connection, &reader->frame, reader->extras.fds);
    }
    hoop_frame_reader_clear(reader);
    return true;
}

static void connection_read(struct hoop_connection *connection)
{
    bool more = connection->failure.code == HOOP_OK; /* else it is about to close */
    for (int reads = 0; reads < CONNECTION_READS && more; reads++) {
        more = connection_read_one(connection) && connection->state != CONNECTION_CLOSED &&
               connection->failure.code == HOOP_OK;
    }
    if (more && connection->fd < 0) { /* no watch will report what remains */
        hoop_timer_start(connection->timer, 0, 0);
    }
}

/* ---- Connecting --------------------------------------------------------------------------- */

/* err is the result of connect(). */
static void connection_connected(struct hoop_connection *connection, int err)
{
    err = err == 0 && !hoop_socket_local(connection->fd, &connection->about.local) ? errno : err;
    if (err == 0) {
        connection->state = CONNECTION_SHAKING;
        connection_flush(connection);
    } else if (err != EINPROGRESS) {
        hoop_connection_refuse(connection,
                               hoop_error(HOOP_REMOTE_ERROR, "%s", hoop_errno_name(err)));
    }
}

static void connection_due(void *arg)
{
    struct hoop_connection *connection = arg;
    connection->retrying = false;
    if (connection->failure.code != HOOP_OK) {
        connection_close(connection, "");
    } else if (connection->fd < 0) {
        connection_read(connection);
    } else {
        connection_flush(connection);
    }
}

static void connection_ready(void *arg, unsigned events)
{
    struct hoop_connection *connection = arg;
    if (connection->state == CONNECTION_CONNECTING) {
        connection_connected(connection, hoop_socket_connected(connection->fd));
        events = 0;
    }
    if ((events & HOOP_WATCH_WRITE) != 0) {
        connection_flush(connection);
    }
    if ((events & HOOP_WATCH_READ) != 0 && connection->state != CONNECTION_CLOSED) {
        connection_read(connection);
    }
}

/* ---- Birth -------------------------------------------------------------------------------- */

static hoop_result_t connection_know_peer(struct hoop_connection *connection,
                                          const struct hoop_address *address)
{
    struct hoop_connection_about *about = &connection->about;
    if (address != NULL) {
        hoop_address_format(address, about->peer, sizeof(about->peer));
        connection->reader = malloc(sizeof(*connection->reader));
        if (connection->reader == NULL) {
            return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for messages");
        }
        hoop_frame_reader_init(connection->reader);
        return HOOP_OK;
    }
    const hoop_result_t result =
        connection->fd >= 0 ? hoop_socket_vouch(connection->fd, &about->pid) : HOOP_OK;
    about->pid = connection->fd >= 0 ? about->pid : getpid();
    (void)snprintf(about->peer, sizeof(about->peer), "pid %d", (int)about->pid);
    return result;
}

/* peer is NULL for a Unix socket, or for none (fd -1). Takes ownership of fd. */
static hoop_result_t connection_create(int fd, const struct hoop_address *peer,
                                       const struct hoop_connection_owner *owner, void *arg,
                                       struct hoop_connection **ret_connection)
{
    struct hoop_connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL) {
        hoop_fork_close(fd);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a control connection");
    }
    connection->fd = fd;
    connection->owner = owner;
    connection->arg = arg;
    connection->state = CONNECTION_SHAKING;
    connection->failure.rank = -1;
    connection->handshake.peer = connection->about.peer;
    connection->handshake.expects = HOOP_FRAME_HELLO;
    connection->about.hello = &connection->handshake.hello;
    hoop_frame_queue_init(&connection->queue);
    hoop_result_t result = connection_know_peer(connection, peer);
    if (result == HOOP_OK) {
        result = hoop_timer_create(connection_due, connection, &connection->timer);
    }
    if (result == HOOP_OK && fd >= 0) {
        result = hoop_watch_create(fd, HOOP_WATCH_READ, connection_ready, connection,
                                   &connection->watch);
    }
    if (result != HOOP_OK) {
        hoop_connection_destroy(connection);
        return result;
    }
    *ret_connection = connection;
    return HOOP_OK;
}

hoop_result_t hoop_connection_accept(int fd, const struct hoop_connection_owner *owner, void *arg,
                                     struct hoop_connection **ret_connection)
{
    struct hoop_address local;
    struct hoop_address peer;
    const bool far = hoop_socket_local(fd, &local);
    if (far && !hoop_socket_peer(fd, &peer)) {
        hoop_fork_close(fd);
        return hoop_error(HOOP_REMOTE_ERROR, "the other end closed the connection");
    }
    const hoop_result_t result =
        connection_create(fd, far ? &peer : NULL, owner, arg, ret_connection);
    if (result == HOOP_OK) {
        (*ret_connection)->about.local = far ? local : (struct hoop_address){.family = 0};
    }
    return result;
}

/* Queues the hello, which is sent once connected. err is the result of connect(). */
static hoop_result_t connection_greet(struct hoop_connection *connection,
                                      const struct hoop_address *dialled,
                                      const struct hoop_frame_hello *hello,
                                      const struct hoop_secret *secret, int err)
{
    struct hoop_frame_hello greeting = *hello;
    assert(connection != NULL);
    if (dialled != NULL) {
        greeting.dialled = *dialled;
        greeting.dialled.scope = 0; /* interface indices differ between machines */
        greeting.encrypts = hoop_settings()->check == HOOP_CHECK_AEAD ||
                            hoop_settings_accepted(hoop_settings()) != HOOP_OK;
        connection->state = CONNECTION_CONNECTING;
    }
    /* waits in the queue until the socket is connected */
    const hoop_result_t result = hoop_handshake_greet(&connection->handshake, &greeting, secret);
    if (result == HOOP_OK) {
        connection_put(connection, &connection->handshake.hello.header, NULL, 0);
    }
    if (result == HOOP_OK && dialled != NULL && !connection->broken) {
        connection_connected(connection, err);
    }
    return result;
}

hoop_result_t hoop_connection_connect(const struct hoop_place *place,
                                      const struct hoop_address *from,
                                      const struct hoop_frame_hello *hello,
                                      const struct hoop_secret *secret,
                                      const struct hoop_connection_owner *owner, void *arg,
                                      struct hoop_connection **ret_connection)
{
    const struct hoop_address *address = place->address.family != 0 ? &place->address : NULL;
    struct hoop_connection *connection = NULL;
    int fd = -1;
    int err = 0;
    hoop_result_t result = hoop_socket_connect(place, from, &fd, &err);
    if (result == HOOP_OK && address == NULL && err != 0) {
        hoop_fork_close(fd);
        return hoop_socket_unreached(err);
    }
    if (result == HOOP_OK) {
        result = connection_create(fd, address, owner, arg, &connection);
    }
    if (result == HOOP_OK) {
        result = connection_greet(connection, address, hello, secret, err);
    }
    if (result != HOOP_OK) {
        hoop_connection_destroy(connection);
        return result;
    }
    *ret_connection = connection;
    return HOOP_OK;
}

hoop_result_t hoop_connection_pair(const struct hoop_frame_hello *hello,
                                   struct hoop_connection *ret_ends[2])
{
    struct hoop_connection *ends[2] = {NULL, NULL};
    if (connection_create(-1, NULL, NULL, NULL, &ends[0]) != HOOP_OK ||
        connection_create(-1, NULL, NULL, NULL, &ends[1]) != HOOP_OK) {
        hoop_connection_destroy(ends[0]);
        return HOOP_OUT_OF_MEMORY;
    }
    assert(ends[0] != NULL && ends[1] != NULL);
    for (int i = 0; i < 2; i++) {
        ends[i]->state = CONNECTION_OPEN;
        ends[i]->other = ends[1 - i];
        ends[i]->handshake.hello = *hello;
        ret_ends[i] = ends[i];
    }
    return HOOP_OK;
}

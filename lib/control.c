/*
 * One control connection: messages to and from a socket, and when it ends. What it is for is in
 * control.h; the proof is in handshake.c, what arrives in inbox.c, what waits to be sent in
 * outbox.c; who listens is in listener.c.
 *
 *      CONNECTING (TCP clients) --> SHAKING --> WELCOMING (servers) --> OPEN --> CLOSED
 *
 * Three things about Unix sockets shape this file. An end that closes with messages unread gives
 * the other ECONNRESET once, before what is still queued there: so that error is read past. A send
 * to an end that has closed fails, but what it said before is still to be read: so only end of
 * file closes. And descriptors in flight are limited per user (ETOOMANYREFS): so a send that meets
 * the limit is tried again a little later.
 *
 * TCP differs: what ends a connection here need not end it there, so after a failure nothing more
 * is waited for; and the socket may be handed on (hoop_control_detach()), so that nothing beyond
 * the last message is read (inbox.c).
 *
 * An owner may destroy the connection in any callback: while `busy`, only the descriptor goes at
 * once, the memory when the outermost call leaves.
 */
#include "control.h"
#include "handshake.h"
#include "inbox.h"
#include "outbox.h"
#include "packet.h"
#include "stream.h"
#include "watch.h"
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONTROL_READS 16         /* at once, then other connections have their turn */
#define CONTROL_RETRY_MS 1u      /* after ETOOMANYREFS */
#define CONTROL_CONNECT_MS 5000u /* for TCP to find the other end */

enum control_state {
    CONTROL_CONNECTING, /* TCP does not know yet whether somebody is there */
    CONTROL_SHAKING,
    CONTROL_WELCOMING, /* until the welcome has gone: an open connection has nothing of it queued */
    CONTROL_OPEN,
    CONTROL_CLOSED
};

struct hoop_control {
    const struct hoop_control_owner *owner;
    void *arg;
    int fd;
    struct hoop_watch *watch;
    struct hoop_timer *timer; /* made when first needed: to try again, or to give up connecting */
    bool retrying;
    enum control_state state;
    uint32_t busy; /* calls of this file that are on the stack */
    bool destroyed;
    bool broken; /* say no more, read to the end */
    bool proven; /* has been open */
    pid_t pid;
    struct hoop_address local;
    char peer[HOOP_ADDRESS_TEXT_BYTES];
    struct hoop_handshake handshake;
    struct hoop_failure failure; /* why I end it */
    struct hoop_outbox outbox;
    struct hoop_inbox *inbox; /* NULL: a Unix socket */
};

/* ---- Life --------------------------------------------------------------------------------- */

static void control_leave(struct hoop_control *control)
{
    control->busy--;
    if (control->destroyed && control->busy == 0) {
        hoop_handshake_finish(&control->handshake);
        free(control->inbox);
        free(control);
    }
}

void hoop_control_destroy(struct hoop_control *control)
{
    if (control == NULL || control->destroyed) {
        return;
    }
    control->destroyed = true;
    control->state = CONTROL_CLOSED;
    hoop_timer_destroy(control->timer);
    hoop_watch_destroy(control->watch);
    if (control->inbox != NULL && control->fd >= 0) {
        hoop_stream_drain(control->fd);
    }
    hoop_fork_close(control->fd);
    hoop_outbox_finish(&control->outbox);
    control->busy++;
    control_leave(control);
}

int hoop_control_detach(struct hoop_control *control)
{
    const int fd = control->fd;
    assert(control->state == CONTROL_OPEN && control->inbox != NULL);
    assert(control->inbox->got == control->inbox->bytes);
    assert(!hoop_outbox_has(&control->outbox, true));
    hoop_stream_be_patient(fd);
    control->fd = -1;
    hoop_control_destroy(control);
    return fd;
}

void hoop_control_adopt(struct hoop_control *control, const struct hoop_control_owner *owner,
                        void *arg)
{
    control->owner = owner;
    control->arg = arg;
}

const struct hoop_frame_hello *hoop_control_hello(const struct hoop_control *control)
{
    return &control->handshake.hello;
}

pid_t hoop_control_pid(const struct hoop_control *control)
{
    return control->pid;
}

bool hoop_control_is_proven(const struct hoop_control *control)
{
    return control->proven;
}

const struct hoop_secret *hoop_control_secret(const struct hoop_control *control)
{
    return &control->handshake.secret;
}

struct hoop_address hoop_control_local(const struct hoop_control *control)
{
    return control->local;
}

const char *hoop_control_peer(const struct hoop_control *control)
{
    return control->peer;
}

/* ---- The end ------------------------------------------------------------------------------ */

/* Gives the other end the reason, if it takes one now. */
static void control_say_reject(struct hoop_control *control)
{
    const bool open = control->state == CONTROL_OPEN;
    union hoop_frame frame;
    hoop_handshake_reject(&control->failure, &frame);
    hoop_outbox_drop(&control->outbox);
    if (hoop_outbox_put(&control->outbox, &frame.header, 0, NULL, 0, !open) == HOOP_OK) {
        (void)hoop_outbox_send(&control->outbox, control->fd, open);
    }
}

/* Ends the connection; the first reason counts. tell: the other end hears it. */
static void control_end(struct hoop_control *control, bool tell, const struct hoop_failure *failure)
{
    if (control->state == CONTROL_CLOSED) {
        return;
    }
    if (control->failure.code == HOOP_OK) {
        control->failure = *failure;
    }
    if (tell && !control->broken) {
        control_say_reject(control);
    }
    control->broken = true;
    hoop_outbox_finish(&control->outbox);
    /* wakes the reader, which sees the end and closes: not here, inside a call of the owner's */
    if (control->state == CONTROL_CONNECTING) {
        hoop_watch_want(control->watch, 0);
        hoop_timer_start(control->timer, 0, 0);
    } else {
        hoop_watch_want(control->watch, HOOP_WATCH_READ);
        (void)shutdown(control->fd, SHUT_RDWR);
    }
}

void hoop_control_refuse(struct hoop_control *control, hoop_result_t code, const char *format, ...)
{
    struct hoop_failure failure = {.code = code, .rank = -1};
    va_list args;
    va_start(args, format);
    (void)hoop_text_format(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    control_end(control, control->state == CONTROL_OPEN, &failure); /* it may be glad to know */
}

/* Tells the owner that it is over. `why` is used where this end has no reason of its own. */
static void control_close(struct hoop_control *control, const char *why)
{
    if (control->state == CONTROL_CLOSED) {
        return;
    }
    control->state = CONTROL_CLOSED;
    hoop_watch_want(control->watch, 0);
    if (control->timer != NULL) {
        hoop_timer_stop(control->timer);
    }
    (void)hoop_failure_set(&control->failure, HOOP_REMOTE_ERROR, -1, "%s", why);
    const struct hoop_failure failure = control->failure;
    control->owner->closed(control->arg, control, &failure);
}

/* ---- Sending ------------------------------------------------------------------------------ */

static void control_due(void *arg);

static hoop_result_t control_need_timer(struct hoop_control *control)
{
    return control->timer != NULL ? HOOP_OK
                                  : hoop_timer_create(control_due, control, &control->timer);
}

/* What is worth waking up for. */
static void control_watch(const struct hoop_control *control)
{
    unsigned events = HOOP_WATCH_READ;
    if (control->state == CONTROL_CLOSED || control->broken) {
        return;
    }
    if (control->state == CONTROL_CONNECTING || control->state == CONTROL_WELCOMING) {
        events = HOOP_WATCH_WRITE; /* what the other end says is for later */
    } else if (!control->retrying &&
               hoop_outbox_has(&control->outbox, control->state == CONTROL_OPEN)) {
        events = HOOP_WATCH_READ | HOOP_WATCH_WRITE;
    }
    hoop_watch_want(control->watch, events);
}

/* After a send that did not go: try again later (true), or never. */
static bool control_send_later(struct hoop_control *control, int err)
{
    if (err == EAGAIN || err == ENOBUFS) {
        return true;
    }
    if (err == ETOOMANYREFS && control_need_timer(control) == HOOP_OK) {
        hoop_timer_start(control->timer, CONTROL_RETRY_MS, 0);
        control->retrying = true;
        return true;
    }
    if (err == EPIPE || err == ECONNRESET) {
        control->broken = true; /* its last words may be unread: the reader closes */
        hoop_outbox_finish(&control->outbox);
        hoop_watch_want(control->watch, HOOP_WATCH_READ);
        return false;
    }
    hoop_control_refuse(control, control->inbox != NULL ? HOOP_REMOTE_ERROR : hoop_from_errno(err),
                        "sending to %s failed: %s", control->peer, hoop_errno_name(err));
    return false;
}

static void control_flush(struct hoop_control *control)
{
    const enum control_state state = control->state;
    if (state != CONTROL_CONNECTING && state != CONTROL_CLOSED && !control->broken &&
        !control->retrying) {
        const int err = hoop_outbox_send(&control->outbox, control->fd, state == CONTROL_OPEN);
        if (err != 0) {
            (void)control_send_later(control, err);
        }
    }
    control_watch(control);
}

static void control_put(struct hoop_control *control, const struct hoop_frame_header *frame,
                        size_t sent, const int *fds, uint32_t fd_count, bool early)
{
    const hoop_result_t result =
        hoop_outbox_put(&control->outbox, frame, sent, fds, fd_count, early);
    if (result != HOOP_OK) {
        hoop_control_refuse(control, result, "%s", hoop_thread_error());
    }
    control_flush(control);
}

void hoop_control_send(struct hoop_control *control, const struct hoop_frame_header *frame,
                       const int *fds, uint32_t fd_count)
{
    size_t gone = 0;
    assert(fd_count <= HOOP_FRAME_MAX_FDS && frame->bytes <= sizeof(union hoop_frame));
    assert(fd_count == 0 || control->inbox == NULL);
    if (control->state == CONTROL_CLOSED || control->broken) {
        return;
    }
    if (control->state == CONTROL_OPEN && !hoop_outbox_has(&control->outbox, true)) {
        const ssize_t sent = hoop_packet_send(control->fd, frame, frame->bytes, fds, fd_count);
        if (sent == (ssize_t)frame->bytes ||
            (sent < 0 && !control_send_later(control, (int)-sent))) {
            return;
        }
        gone = sent > 0 ? (size_t)sent : 0;
    }
    control_put(control, frame, gone, fds, fd_count, false);
}

/* ---- Handshake ---------------------------------------------------------------------------- */

static bool control_admit(void *arg, const struct hoop_frame_hello *hello,
                          struct hoop_admission *ret, struct hoop_failure *ret_failure)
{
    const struct hoop_control *control = arg;
    return control->owner->admit(control->arg, hello, ret, ret_failure);
}

static void control_say(void *arg, const struct hoop_frame_header *frame)
{
    struct hoop_control *control = arg;
    if (control->state != CONTROL_CLOSED && !control->broken) {
        control_put(control, frame, 0, NULL, 0, true);
    }
}

static const struct hoop_handshake_owner control_handshake_owner = {
    .admit = control_admit,
    .say = control_say,
};

/* Opens the connection, once nothing of the handshake is left to say. */
static void control_open(struct hoop_control *control)
{
    if (control->broken || hoop_outbox_has(&control->outbox, false)) {
        return;
    }
    control->state = CONTROL_OPEN;
    control->proven = true;
    control->owner->opened(control->arg, control);
    control_flush(control);
}

/* A message before the connection is open. */
static void control_shake(struct hoop_control *control, const union hoop_frame *frame)
{
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    if (hoop_handshake_take(&control->handshake, frame, &failure) != HOOP_OK) {
        control_end(control, false, &failure);
    } else if (control->handshake.state == HOOP_HANDSHAKE_DONE &&
               control->state != CONTROL_CLOSED) {
        control->state = CONTROL_WELCOMING;
        control_watch(control);
        control_open(control);
    }
}

/* ---- Receiving ---------------------------------------------------------------------------- */

/* A checked message, of an expected type. */
static void control_take(struct hoop_control *control, const union hoop_frame *frame, int *fds)
{
    const bool reject = frame->header.type == HOOP_FRAME_REJECT;
    if (control->state != CONTROL_OPEN) {
        control_shake(control, frame);
    } else if (reject && frame->reject.code == HOOP_IN_PROGRESS) {
        hoop_control_refuse(control, HOOP_REMOTE_ERROR,
                            "it asks to come back later, after its welcome");
    } else {
        control->owner->message(control->arg, control, frame, fds);
    }
}

/* False: there is nothing more to read now. */
static bool control_read_one(struct hoop_control *control)
{
    struct hoop_inbox packet;
    struct hoop_inbox *inbox = control->inbox != NULL ? control->inbox : &packet;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    const bool open = control->state == CONTROL_OPEN;
    if (inbox == &packet) {
        hoop_inbox_init(inbox);
    }
    const hoop_result_t result = hoop_inbox_receive(inbox, control->fd, control->inbox != NULL,
                                                    open ? NULL : &control->handshake, &failure);
    if (result == HOOP_AGAIN || result == HOOP_IN_PROGRESS) {
        return result == HOOP_IN_PROGRESS;
    }
    if (result == HOOP_REMOTE_ERROR) {
        control_close(control, failure.text);
        return false;
    }
    if (result != HOOP_OK) {
        /* a client of another version is told ours */
        const bool waiting = !open && control->handshake.state == HOOP_HANDSHAKE_WAITING;
        control_end(control, open || (waiting && result == HOOP_MISMATCH), &failure);
    } else if (control->failure.code == HOOP_OK) { /* else only the end is of interest */
        control_take(control, &inbox->packet.frame, inbox->packet.fds);
    }
    hoop_inbox_clear(inbox);
    return true;
}

static void control_read(struct hoop_control *control)
{
    if (control->inbox != NULL && control->failure.code != HOOP_OK) {
        hoop_stream_drain(control->fd);
        control_close(control, ""); /* who goes on sending does not keep it */
        return;
    }
    bool more = true;
    for (int reads = 0; reads < CONTROL_READS && more; reads++) {
        more = control_read_one(control) && control->state != CONTROL_CLOSED &&
               control->state != CONTROL_WELCOMING &&
               (control->inbox == NULL || control->failure.code == HOOP_OK);
    }
}

/* ---- Connecting --------------------------------------------------------------------------- */

/* err: of the attempt to connect. */
static void control_connected(struct hoop_control *control, int err)
{
    if (err == EINPROGRESS) {
        return;
    }
    if (err == 0) {
        struct hoop_address local;
        control->state = CONTROL_SHAKING;
        hoop_timer_stop(control->timer);
        if (hoop_stream_local(control->fd, &local)) {
            local.port = 0;
            control->local = local;
        }
        control_flush(control);
        return;
    }
    hoop_control_refuse(control, HOOP_REMOTE_ERROR, "cannot connect to %s: %s", control->peer,
                        hoop_errno_name(err));
}

static void control_due(void *arg)
{
    struct hoop_control *control = arg;
    control->busy++;
    control->retrying = false;
    if (control->state == CONTROL_CONNECTING) {
        char why[HOOP_ADDRESS_TEXT_BYTES + 64];
        (void)snprintf(why, sizeof(why), "cannot connect to %s: no answer within %u ms",
                       control->peer, CONTROL_CONNECT_MS);
        control_close(control, why);
    } else {
        control_flush(control);
    }
    control_leave(control);
}

static void control_ready(void *arg, unsigned events)
{
    struct hoop_control *control = arg;
    control->busy++;
    if (control->state == CONTROL_CONNECTING) {
        control_connected(control, hoop_stream_connected(control->fd));
        events = 0;
    }
    if ((events & HOOP_WATCH_WRITE) != 0) {
        control_flush(control);
    }
    if (control->state == CONTROL_WELCOMING) {
        control_open(control);
    }
    if ((events & HOOP_WATCH_READ) != 0 && control->state != CONTROL_CLOSED) {
        control_read(control);
    }
    control_leave(control);
}

void hoop_control_hear(struct hoop_control *control)
{
    control_ready(control, HOOP_WATCH_READ);
}

/* ---- Birth -------------------------------------------------------------------------------- */

static hoop_result_t control_know_peer(struct hoop_control *control,
                                       const struct hoop_address *address)
{
    if (address != NULL) {
        hoop_address_format(address, control->peer, sizeof(control->peer));
        control->inbox = malloc(sizeof(*control->inbox));
        if (control->inbox == NULL) {
            return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for messages");
        }
        hoop_inbox_init(control->inbox);
        return HOOP_OK;
    }
    const hoop_result_t result = hoop_packet_peer(control->fd, &control->pid);
    (void)snprintf(control->peer, sizeof(control->peer), "pid %d", (int)control->pid);
    return result;
}

/* peer: NULL: a Unix socket. fd is moved. */
static hoop_result_t control_create(int fd, const struct hoop_address *peer,
                                    const struct hoop_control_owner *owner, void *arg,
                                    struct hoop_control **ret_control)
{
    struct hoop_control *control = calloc(1, sizeof(*control));
    if (control == NULL) {
        hoop_fork_close(fd);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a control connection");
    }
    control->fd = fd;
    control->owner = owner;
    control->arg = arg;
    control->state = CONTROL_SHAKING;
    control->failure.rank = -1;
    control->handshake.owner = &control_handshake_owner;
    control->handshake.arg = control;
    control->handshake.peer = control->peer;
    hoop_outbox_init(&control->outbox);
    hoop_result_t result = control_know_peer(control, peer);
    if (result == HOOP_OK) {
        result = hoop_watch_create(fd, HOOP_WATCH_READ, control_ready, control, &control->watch);
    }
    if (result != HOOP_OK) {
        hoop_control_destroy(control);
        return result;
    }
    *ret_control = control;
    return HOOP_OK;
}

hoop_result_t hoop_control_accept(int fd, const struct hoop_control_owner *owner, void *arg,
                                  struct hoop_control **ret_control)
{
    struct hoop_address local;
    struct hoop_address peer;
    if (!hoop_stream_local(fd, &local)) {
        return control_create(fd, NULL, owner, arg, ret_control);
    }
    if (!hoop_stream_peer(fd, &peer)) {
        hoop_fork_close(fd);
        return hoop_error(HOOP_REMOTE_ERROR, "the other end closed the connection");
    }
    const hoop_result_t result = control_create(fd, &peer, owner, arg, ret_control);
    if (result == HOOP_OK) {
        local.port = 0;
        (*ret_control)->local = local;
    }
    return result;
}

hoop_result_t hoop_control_connect(const struct hoop_place *place, const struct hoop_address *from,
                                   const struct hoop_frame_hello *hello,
                                   const struct hoop_secret *secret,
                                   const struct hoop_control_owner *owner, void *arg,
                                   struct hoop_control **ret_control)
{
    const struct hoop_address *address = place->address.family != 0 ? &place->address : NULL;
    int fd = -1;
    int err = 0;
    struct hoop_control *control = NULL;
    assert(address == NULL || secret != NULL);
    hoop_result_t result = address != NULL ? hoop_stream_connect(address, from, &fd, &err)
                                           : hoop_packet_connect(place->name, &fd);
    if (result != HOOP_OK) {
        return result;
    }
    result = control_create(fd, address, owner, arg, &control);
    if (result != HOOP_OK) {
        return result;
    }
    assert(control != NULL);
    if (address != NULL) {
        control->state = CONTROL_CONNECTING;
        result = control_need_timer(control);
    }
    if (result == HOOP_OK) {
        /* waits in the outbox while the connection is being made */
        result = hoop_handshake_greet(&control->handshake, hello, secret);
    }
    if (result != HOOP_OK) {
        hoop_control_destroy(control);
        return result;
    }
    if (address != NULL && !control->broken) {
        hoop_timer_start(control->timer, CONTROL_CONNECT_MS, 0);
        control_connected(control, err);
    }
    *ret_control = control;
    return HOOP_OK;
}

/*
 * One control connection: handshake, queue, messages. What it is for is in control.h; who listens
 * is in listener.c.
 *
 * Three things about Unix sockets shape this file. An end that closes with messages unread gives
 * the other ECONNRESET once, before what is still queued there: so that error is read past. A send
 * to an end that has closed fails, but what it said before is still to be read: so only end of
 * file closes. And descriptors in flight are limited per user (ETOOMANYREFS): so a send that meets
 * the limit is tried again a little later.
 *
 * An owner may destroy the connection in any callback: while `busy`, only the descriptor goes at
 * once, the memory when the outermost call leaves.
 */
#include "control.h"
#include "packet.h"
#include "watch.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONTROL_QUEUE_COUNT 16384u /* messages that wait for the other end to read */
#define CONTROL_READS 16           /* at once, then other connections have their turn */
#define CONTROL_RETRY_MS 1u        /* after ETOOMANYREFS */
#define CONTROL_LABEL_SERVER "hoop server"
#define CONTROL_LABEL_CLIENT "hoop client"

enum control_state {
    CONTROL_GREETING,   /* client: said hello */
    CONTROL_PROVING,    /* client: sent the proof */
    CONTROL_WAITING,    /* server: for a hello */
    CONTROL_CHALLENGED, /* server: for the proof */
    CONTROL_OPEN,
    CONTROL_CLOSED
};

/* A message in the queue; `bytes` of frame follow the descriptors. */
struct control_letter {
    struct control_letter *next;
    uint32_t bytes, fd_count;
    int fds[HOOP_FRAME_MAX_FDS]; /* duplicates, owned */
    uint8_t data[];
};

struct hoop_control {
    const struct hoop_control_owner *owner;
    void *arg;
    int fd;
    struct hoop_watch *watch;
    struct hoop_timer *retry; /* made when first needed */
    bool retrying;
    enum control_state state;
    uint32_t busy; /* calls of this file that are on the stack */
    bool destroyed;
    bool broken; /* a send failed: say no more, read to the end */
    bool proven; /* has been open */
    bool has_secret;
    pid_t pid;
    struct hoop_secret secret;
    struct hoop_frame_hello hello;
    struct hoop_frame_challenge challenge;
    struct hoop_failure failure; /* why I end it */
    struct control_letter *first, **last;
    uint32_t queued;
};

/* ---- Life --------------------------------------------------------------------------------- */

static void control_letter_free(struct control_letter *letter)
{
    for (uint32_t i = 0; i < letter->fd_count; i++) {
        close(letter->fds[i]);
    }
    free(letter);
}

static void control_drop_queue(struct hoop_control *control)
{
    while (control->first != NULL) {
        struct control_letter *letter = control->first;
        control->first = letter->next;
        control_letter_free(letter);
    }
    control->last = &control->first;
    control->queued = 0;
}

static void control_leave(struct hoop_control *control)
{
    control->busy--;
    if (control->destroyed && control->busy == 0) {
        hoop_secret_wipe(&control->secret, sizeof(control->secret));
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
    hoop_timer_destroy(control->retry);
    hoop_watch_destroy(control->watch);
    hoop_fork_close(control->fd);
    control_drop_queue(control);
    control->busy++;
    control_leave(control);
}

void hoop_control_adopt(struct hoop_control *control, const struct hoop_control_owner *owner,
                        void *arg)
{
    control->owner = owner;
    control->arg = arg;
}

const struct hoop_frame_hello *hoop_control_hello(const struct hoop_control *control)
{
    return &control->hello;
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
    return &control->secret;
}

/* Gives the other end a reason, if it takes one now. */
static void control_say_reject(const struct hoop_control *control,
                               const struct hoop_failure *failure)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_REJECT);
    frame.reject.code = (int32_t)failure->code;
    frame.reject.rank = -1;
    memcpy(frame.reject.text, failure->text, sizeof(frame.reject.text));
    (void)hoop_packet_send(control->fd, &frame, frame.header.bytes, NULL, 0);
}

void hoop_control_refuse(struct hoop_control *control, hoop_result_t code, const char *format, ...)
{
    char text[HOOP_FAILURE_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (control->state == CONTROL_CLOSED) {
        return;
    }
    (void)hoop_failure_set(&control->failure, code, -1, "%s", text);
    if (control->state == CONTROL_OPEN && !control->broken) {
        control_say_reject(control, &control->failure); /* it may be glad to know */
    }
    control->broken = true;
    control_drop_queue(control);
    /* wakes the reader, which sees the end and closes: not here, inside a call of the owner's */
    (void)shutdown(control->fd, SHUT_RDWR);
}

/* Tells the owner that it is over. `why` is used where this end has no reason of its own. */
static void control_close(struct hoop_control *control, hoop_result_t code, const char *why)
{
    if (control->state == CONTROL_CLOSED) {
        return;
    }
    control->state = CONTROL_CLOSED;
    hoop_watch_want(control->watch, 0);
    (void)hoop_failure_set(&control->failure, code, -1, "%s", why);
    const struct hoop_failure failure = control->failure;
    control->owner->closed(control->arg, control, &failure);
}

/* ---- Sending ------------------------------------------------------------------------------ */

static void control_flush(struct hoop_control *control);

static void control_retry(void *arg)
{
    struct hoop_control *control = arg;
    control->retrying = false;
    control->busy++;
    control_flush(control);
    control_leave(control);
}

/* After a send that did not go: try again later (true), or never. */
static bool control_send_later(struct hoop_control *control, int err)
{
    if (err == EAGAIN || err == ENOBUFS) {
        return true;
    }
    if (err == ETOOMANYREFS) {
        if (control->retry == NULL &&
            hoop_timer_create(control_retry, control, &control->retry) != HOOP_OK) {
            hoop_control_refuse(control, HOOP_OUT_OF_MEMORY, "no memory for a timer");
            return false;
        }
        hoop_timer_start(control->retry, CONTROL_RETRY_MS, 0);
        control->retrying = true;
        return true;
    }
    if (err == EPIPE || err == ECONNRESET) {
        control->broken = true; /* its last words may be unread: the reader closes */
        control_drop_queue(control);
        return false;
    }
    hoop_control_refuse(control, hoop_from_errno(err), "sending a message failed: %s",
                        hoop_errno_name(err));
    return false;
}

static void control_flush(struct hoop_control *control)
{
    const bool open = control->state == CONTROL_OPEN && !control->broken;
    while (open && control->first != NULL && !control->retrying) {
        struct control_letter *letter = control->first;
        const ssize_t sent = hoop_packet_send(control->fd, letter->data, letter->bytes, letter->fds,
                                              letter->fd_count);
        if (sent < 0) {
            (void)control_send_later(control, (int)-sent);
            break;
        }
        control->first = letter->next;
        control->queued--;
        if (control->first == NULL) {
            control->last = &control->first;
        }
        control_letter_free(letter);
    }
    if (control->state != CONTROL_CLOSED) {
        const bool write = open && control->first != NULL && !control->retrying;
        hoop_watch_want(control->watch, HOOP_WATCH_READ | (write ? HOOP_WATCH_WRITE : 0u));
    }
}

static void control_enqueue(struct hoop_control *control, const struct hoop_frame_header *frame,
                            const int *fds, uint32_t fd_count)
{
    const uint32_t bytes = frame->bytes;
    struct control_letter *letter = NULL;
    if (control->queued < CONTROL_QUEUE_COUNT) {
        letter = malloc(sizeof(*letter) + bytes);
    }
    if (letter == NULL) {
        hoop_control_refuse(control, HOOP_REMOTE_ERROR, "it leaves %u messages unread",
                            control->queued);
        return;
    }
    letter->next = NULL;
    letter->bytes = bytes;
    letter->fd_count = 0;
    memcpy(letter->data, frame, bytes);
    for (uint32_t i = 0; i < fd_count; i++) {
        const int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            const int err = errno;
            control_letter_free(letter);
            hoop_control_refuse(control, HOOP_SYSTEM_ERROR, "cannot duplicate a descriptor: %s",
                                hoop_errno_name(err));
            return;
        }
        letter->fds[letter->fd_count++] = fd;
    }
    *control->last = letter;
    control->last = &letter->next;
    control->queued++;
}

void hoop_control_send(struct hoop_control *control, const struct hoop_frame_header *frame,
                       const int *fds, uint32_t fd_count)
{
    assert(fd_count <= HOOP_FRAME_MAX_FDS && frame->bytes <= sizeof(union hoop_frame));
    if (control->state == CONTROL_CLOSED || control->broken) {
        return;
    }
    if (control->state == CONTROL_OPEN && control->first == NULL) {
        const ssize_t sent = hoop_packet_send(control->fd, frame, frame->bytes, fds, fd_count);
        if (sent >= 0 || !control_send_later(control, (int)-sent)) {
            return;
        }
    }
    control_enqueue(control, frame, fds, fd_count);
    control_flush(control);
}

/* A message of the handshake: the first in an empty socket, so that it always fits. */
static void control_say(struct hoop_control *control, const void *frame, size_t bytes)
{
    const ssize_t sent = hoop_packet_send(control->fd, frame, bytes, NULL, 0);
    if (sent < 0) {
        (void)control_send_later(control, (int)-sent);
    }
}

/* ---- Handshake ---------------------------------------------------------------------------- */

static void control_opened(struct hoop_control *control)
{
    control->state = CONTROL_OPEN;
    control->proven = true;
    control->owner->opened(control->arg, control);
    if (!control->destroyed) {
        control_flush(control);
    }
}

static bool control_mac(const struct hoop_control *control, const char *label, const void *data,
                        size_t bytes, uint8_t ret_mac[HOOP_MAC_BYTES])
{
    return hoop_hmac(&control->secret, label, &control->hello, sizeof(control->hello), data, bytes,
                     ret_mac) == HOOP_OK;
}

static void control_take_hello(struct hoop_control *control, const union hoop_frame *frame)
{
    struct hoop_admission admission = {.hand_out = false};
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    control->hello = frame->hello;
    bool admitted = control->owner->admit(control->arg, &frame->hello, &admission, &failure);
    if (admitted && frame->hello.want_secret != 0 && !admission.hand_out) {
        admitted = false;
        (void)hoop_failure_set(&failure, HOOP_NOT_AUTHENTICATED, -1,
                               "the rendezvous asks for a secret that this process was not given "
                               "(HOOP_SECRET, or the unique id)");
    }
    if (!admitted) {
        control_say_reject(control, &failure);
        hoop_control_refuse(control, HOOP_NOT_AUTHENTICATED, "%s", failure.text);
        return;
    }
    control->secret = admission.secret;
    hoop_secret_wipe(&admission, sizeof(admission));
    if (frame->hello.want_secret != 0) {
        union hoop_frame secret;
        hoop_frame_init(&secret, HOOP_FRAME_SECRET);
        memcpy(secret.secret.secret, control->secret.bytes, HOOP_SECRET_BYTES);
        control_say(control, &secret, secret.header.bytes);
        hoop_secret_wipe(&secret, sizeof(secret.secret));
    }
    union hoop_frame answer;
    hoop_frame_init(&answer, HOOP_FRAME_CHALLENGE);
    if (hoop_random(answer.challenge.nonce, HOOP_NONCE_BYTES) != HOOP_OK ||
        !control_mac(control, CONTROL_LABEL_SERVER, answer.challenge.nonce, HOOP_NONCE_BYTES,
                     answer.challenge.mac)) {
        hoop_control_refuse(control, HOOP_SYSTEM_ERROR, "%s", hoop_thread_error());
        return;
    }
    control->challenge = answer.challenge;
    control->state = CONTROL_CHALLENGED;
    control_say(control, &answer, answer.header.bytes);
}

static void control_take_proof(struct hoop_control *control, const union hoop_frame *frame)
{
    uint8_t mac[HOOP_MAC_BYTES];
    if (!control_mac(control, CONTROL_LABEL_CLIENT, &control->challenge, sizeof(control->challenge),
                     mac) ||
        !hoop_mac_equal(mac, frame->proof.mac)) {
        hoop_control_refuse(control, HOOP_NOT_AUTHENTICATED, "its proof of the secret is wrong");
        return;
    }
    union hoop_frame welcome;
    hoop_frame_init(&welcome, HOOP_FRAME_WELCOME);
    control_say(control, &welcome, welcome.header.bytes);
    control_opened(control);
}

static void control_take_challenge(struct hoop_control *control, const union hoop_frame *frame)
{
    uint8_t mac[HOOP_MAC_BYTES];
    if (!control->has_secret ||
        !control_mac(control, CONTROL_LABEL_SERVER, frame->challenge.nonce, HOOP_NONCE_BYTES,
                     mac) ||
        !hoop_mac_equal(mac, frame->challenge.mac)) {
        hoop_control_refuse(control, HOOP_NOT_AUTHENTICATED,
                            "pid %d could not prove that it knows this job's secret",
                            (int)control->pid);
        return;
    }
    control->challenge = frame->challenge;
    union hoop_frame proof;
    hoop_frame_init(&proof, HOOP_FRAME_PROOF);
    if (!control_mac(control, CONTROL_LABEL_CLIENT, &control->challenge, sizeof(control->challenge),
                     proof.proof.mac)) {
        hoop_control_refuse(control, HOOP_SYSTEM_ERROR, "%s", hoop_thread_error());
        return;
    }
    control->state = CONTROL_PROVING;
    control_say(control, &proof, proof.header.bytes);
}

/* A message before the connection is open. */
static void control_shake(struct hoop_control *control, const union hoop_frame *frame)
{
    const uint32_t type = frame->header.type;
    if (control->state == CONTROL_WAITING && type == HOOP_FRAME_HELLO) {
        control_take_hello(control, frame);
    } else if (control->state == CONTROL_CHALLENGED && type == HOOP_FRAME_PROOF) {
        control_take_proof(control, frame);
    } else if (control->state == CONTROL_GREETING && type == HOOP_FRAME_CHALLENGE) {
        control_take_challenge(control, frame);
    } else if (control->state == CONTROL_GREETING && type == HOOP_FRAME_SECRET &&
               !control->has_secret) {
        memcpy(control->secret.bytes, frame->secret.secret, HOOP_SECRET_BYTES);
        control->has_secret = true;
    } else if (control->state == CONTROL_PROVING && type == HOOP_FRAME_WELCOME) {
        control_opened(control);
    } else if (control->state == CONTROL_GREETING && type == HOOP_FRAME_REJECT) {
        /* unproven, but the kernel vouches for the uid: as a reason, and never as success */
        hoop_control_refuse(control, HOOP_NOT_AUTHENTICATED, "%s", frame->reject.text);
    } else {
        hoop_control_refuse(control, HOOP_NOT_AUTHENTICATED, "it sent %s before any proof",
                            hoop_frame_name(type));
    }
}

/* ---- Receiving ---------------------------------------------------------------------------- */

static void control_take(struct hoop_control *control, struct hoop_packet *packet, size_t bytes)
{
    char text[160];
    if (packet->fds_missing) {
        hoop_control_refuse(control, HOOP_SYSTEM_ERROR,
                            "descriptors were lost: the limit of open files (ulimit -n) is low");
        return;
    }
    if (packet->truncated) {
        hoop_control_refuse(control, HOOP_NOT_AUTHENTICATED, "it sent no message of hoop");
        return;
    }
    const hoop_result_t result =
        hoop_frame_check(&packet->frame, bytes, packet->fd_count, text, sizeof(text));
    if (result != HOOP_OK) {
        const hoop_result_t code = result == HOOP_MISMATCH ? result : HOOP_NOT_AUTHENTICATED;
        hoop_control_refuse(control, code, "a message %s", text);
    } else if (control->state == CONTROL_OPEN) {
        control->owner->message(control->arg, control, &packet->frame, packet->fds);
    } else {
        control_shake(control, &packet->frame);
    }
}

static void control_read(struct hoop_control *control)
{
    struct hoop_packet packet;
    for (int reads = 0; reads < CONTROL_READS && control->state != CONTROL_CLOSED; reads++) {
        /* strangers' descriptors stay out */
        const bool take_fds = control->state == CONTROL_OPEN;
        const ssize_t got = hoop_packet_receive(control->fd, take_fds, &packet);
        if (got == -EAGAIN) {
            return;
        }
        if (got == -ECONNRESET) {
            continue; /* reported once; messages may be queued behind it */
        }
        if (got <= 0) {
            control_close(control, HOOP_REMOTE_ERROR, "the other end closed the connection");
            return;
        }
        if (control->failure.code == HOOP_OK) { /* else only the end is of interest */
            control_take(control, &packet, (size_t)got);
        }
        for (uint32_t i = 0; i < packet.fd_count; i++) {
            if (packet.fds[i] >= 0) {
                close(packet.fds[i]);
            }
        }
    }
}

static void control_ready(void *arg, unsigned events)
{
    struct hoop_control *control = arg;
    control->busy++;
    if ((events & HOOP_WATCH_WRITE) != 0) {
        control_flush(control);
    }
    if ((events & HOOP_WATCH_READ) != 0) {
        control_read(control);
    }
    control_leave(control);
}

/* ---- Birth -------------------------------------------------------------------------------- */

static hoop_result_t control_create(int fd, const struct hoop_control_owner *owner, void *arg,
                                    enum control_state state, struct hoop_control **ret_control)
{
    struct hoop_control *control = calloc(1, sizeof(*control));
    if (control == NULL) {
        hoop_fork_close(fd);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a control connection");
    }
    control->fd = fd;
    control->owner = owner;
    control->arg = arg;
    control->state = state;
    control->last = &control->first;
    control->failure.rank = -1;
    hoop_result_t result = hoop_packet_peer(fd, &control->pid);
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
    return control_create(fd, owner, arg, CONTROL_WAITING, ret_control);
}

hoop_result_t hoop_control_connect(const char *name, const struct hoop_frame_hello *hello,
                                   const struct hoop_secret *secret,
                                   const struct hoop_control_owner *owner, void *arg,
                                   struct hoop_control **ret_control)
{
    int fd = -1;
    struct hoop_control *control = NULL;
    hoop_result_t result = hoop_packet_connect(name, &fd);
    if (result != HOOP_OK) {
        return result;
    }
    result = control_create(fd, owner, arg, CONTROL_GREETING, &control);
    if (result != HOOP_OK) {
        return result;
    }
    assert(control != NULL);
    control->hello = *hello;
    control->hello.want_secret = secret == NULL;
    if (secret != NULL) {
        control->secret = *secret;
        control->has_secret = true;
    }
    result = hoop_random(control->hello.nonce, HOOP_NONCE_BYTES);
    if (result != HOOP_OK) {
        hoop_control_destroy(control);
        return result;
    }
    control_say(control, &control->hello, sizeof(control->hello));
    *ret_control = control;
    return HOOP_OK;
}

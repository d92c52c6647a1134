/*
 * One control connection: a non-blocking SOCK_SEQPACKET socket whose other end has proved that it
 * is of this uid and knows the secret, and which then carries frames (base/frame.h) both ways.
 *
 *      client  GREETING --CHALLENGE is right--> PROVING --WELCOME--> OPEN     (SECRET: before it)
 *      server  WAITING --HELLO--> CHALLENGED --PROOF is right--> OPEN
 *
 * A wrong proof ends the connection. The owner gets `opened` once, then `message`s, then `closed`
 * once, unless it destroys the connection before; it may do so in any of them. All on the service
 * thread.
 */
#ifndef HOOP_CONTROL_H
#define HOOP_CONTROL_H

#include "base/frame.h"
#include <stdbool.h>
#include <sys/types.h>

struct hoop_control;

/* What a server thinks of a hello. */
struct hoop_admission {
    struct hoop_secret secret;
    bool hand_out; /* tell the secret to who asks */
};

struct hoop_control_owner {
    /* Server only: which secret? False: refused, with the reason in *ret_failure. */
    bool (*admit)(void *arg, const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                  struct hoop_failure *ret_failure);
    /* Both ends have proved themselves: messages flow. */
    void (*opened)(void *arg, struct hoop_control *control);
    /* frame is checked. A descriptor is moved by setting its place to -1; others are closed. */
    void (*message)(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                    int *fds);
    /*
     * The connection is over. HOOP_REMOTE_ERROR: the other end closed it; HOOP_NOT_AUTHENTICATED:
     * it proved nothing; other codes: why not. The owner destroys the connection.
     */
    void (*closed)(void *arg, struct hoop_control *control, const struct hoop_failure *why);
};

/*
 * Connects to an abstract name and says hello. owner and arg: borrowed until destroyed; hello and
 * secret: copied; secret NULL: to be told. HOOP_AGAIN: nobody is there, or its queue is full.
 */
hoop_result_t hoop_control_connect(const char *name, const struct hoop_frame_hello *hello,
                                   const struct hoop_secret *secret,
                                   const struct hoop_control_owner *owner, void *arg,
                                   struct hoop_control **ret_control);

/* The server's side of an accepted socket; fd is moved, kept by hoop_fork_keep() before. */
hoop_result_t hoop_control_accept(int fd, const struct hoop_control_owner *owner, void *arg,
                                  struct hoop_control **ret_control);

/* Somebody else's from now on. */
void hoop_control_adopt(struct hoop_control *control, const struct hoop_control_owner *owner,
                        void *arg);

/*
 * Sends the frame that begins with this header when the connection can, at the earliest when it is
 * open. frame and fds are copied (the descriptors duplicated where they must wait). It cannot fail:
 * a connection that breaks, or takes too little, says so by `closed`.
 */
void hoop_control_send(struct hoop_control *control, const struct hoop_frame_header *frame,
                       const int *fds, uint32_t fd_count);

/* Ends the connection for what the other end did: `closed` follows, with this sentence. */
void hoop_control_refuse(struct hoop_control *control, hoop_result_t code, const char *format, ...)
    HOOP_PRINTF(3, 4);

/* What the client said; the peer's pid as this process sees it; was it ever open; the secret. */
const struct hoop_frame_hello *hoop_control_hello(const struct hoop_control *control);
pid_t hoop_control_pid(const struct hoop_control *control);
bool hoop_control_is_proven(const struct hoop_control *control);
const struct hoop_secret *hoop_control_secret(const struct hoop_control *control);

/* Closes without a word; what was sent is still delivered. NULL is allowed. */
void hoop_control_destroy(struct hoop_control *control);

/* ---- Listening ---------------------------------------------------------------------------- */

/*
 * A listener accepts, checks the uid and authenticates; who has not proved itself in time, and
 * who is one too many, is closed. Only proven connections reach its owner.
 */
struct hoop_listener;
struct hoop_listener_owner {
    bool (*admit)(void *arg, const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                  struct hoop_failure *ret_failure);
    /* Adopts the connection or destroys it. May destroy the listener. */
    void (*opened)(void *arg, struct hoop_control *control);
};

/* The failure's sentence goes to *failure. */
hoop_result_t hoop_listener_create(const char *name, const struct hoop_listener_owner *owner,
                                   void *arg, struct hoop_listener **ret_listener,
                                   struct hoop_failure *failure);
void hoop_listener_destroy(struct hoop_listener *listener); /* NULL is allowed */

/* "hoop-" and 32 random hexadecimal digits. */
hoop_result_t hoop_listener_name(char ret_name[HOOP_FRAME_NAME_BYTES]);

#endif

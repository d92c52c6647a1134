/*
 * One control connection: a non-blocking socket whose other end has proved that it knows the
 * secret (handshake.h), and which then carries frames (base/frame.h) both ways. On one machine an
 * abstract SOCK_SEQPACKET socket, whose other end must be of this uid too; between machines TCP,
 * without descriptors and without handing out secrets.
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

/* Where a listener is: an abstract name, or if address.family is not 0, an address. */
struct hoop_place {
    char name[HOOP_FRAME_NAME_BYTES];
    struct hoop_address address;
};

/* "name" or "10.0.0.1:29500", for sentences. */
void hoop_place_format(const struct hoop_place *place, char *ret_text, size_t bytes);

/* What a server thinks of a hello. */
struct hoop_admission {
    struct hoop_secret secret;
    bool hand_out; /* tell the secret to who asks */
};

struct hoop_control_owner {
    /*
     * Server only: which secret? False: refused, with the reason in *ret_failure. Code HOOP_AGAIN,
     * which hoop_failure_set() does not take: the client may come back later.
     */
    bool (*admit)(void *arg, const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                  struct hoop_failure *ret_failure);
    /* Both ends have proved themselves: messages flow. */
    void (*opened)(void *arg, struct hoop_control *control);
    /*
     * frame is checked. A descriptor is moved by setting its place to -1; others are closed. Over
     * TCP all are -1.
     */
    void (*message)(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                    int *fds);
    /*
     * The connection is over. HOOP_REMOTE_ERROR: the other end closed it, or nobody was there
     * (TCP); HOOP_NOT_AUTHENTICATED: it proved nothing; HOOP_AGAIN: it asks to come back later;
     * other codes: why not. The owner destroys the connection.
     */
    void (*closed)(void *arg, struct hoop_control *control, const struct hoop_failure *why);
};

/*
 * Connects to a place and says hello. owner and arg: borrowed until destroyed; place, from, hello
 * and secret: copied; secret NULL: to be told (on this machine only). from: the address of this
 * machine to connect from, NULL or family 0: any. HOOP_AGAIN: nobody is there, or its queue is
 * full. Over TCP that is only known later: within 5 s `closed` says it, with address and reason. A
 * server that is there and says nothing is the owner's to wait for.
 */
hoop_result_t hoop_control_connect(const struct hoop_place *place, const struct hoop_address *from,
                                   const struct hoop_frame_hello *hello,
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

/*
 * TCP: the address of this end, which others on its network can reach, port 0. Family 0: none yet,
 * or not TCP.
 */
struct hoop_address hoop_control_local(const struct hoop_control *control);

/* "pid 7" or "10.0.0.1:4000": who is at the other end, for sentences. Valid until destroyed. */
const char *hoop_control_peer(const struct hoop_control *control);

/*
 * An open TCP connection that has carried no message yet: its descriptor, non-blocking, kept by
 * hoop_fork_keep(), is the caller's from now on, and the connection is destroyed without a word.
 * Callable in `opened`. Nothing that the other end sent after the handshake has been read.
 */
int hoop_control_detach(struct hoop_control *control);

/* What the client said; the peer's pid as this process sees it, 0 if it cannot; was it ever open;
 * the secret. */
const struct hoop_frame_hello *hoop_control_hello(const struct hoop_control *control);
pid_t hoop_control_pid(const struct hoop_control *control);
bool hoop_control_is_proven(const struct hoop_control *control);
const struct hoop_secret *hoop_control_secret(const struct hoop_control *control);

/* Takes in what has arrived, without waiting for the loop to say so. Not from its own callbacks. */
void hoop_control_hear(struct hoop_control *control);

/* Closes without a word; what the socket has taken is still delivered. NULL is allowed. */
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

/*
 * At a name, or at an address: then at its port, or if that is 0 at one of ports (NULL or
 * first 0: any). The failure's sentence goes to *failure; HOOP_INVALID_USAGE: the name, or every
 * port, is taken. An address must be one of this machine's, not one that stands for all.
 */
hoop_result_t hoop_listener_create(const struct hoop_place *place, const struct hoop_ports *ports,
                                   const struct hoop_listener_owner *owner, void *arg,
                                   struct hoop_listener **ret_listener,
                                   struct hoop_failure *failure);
/* With the port that it got; family 0: it has a name. */
const struct hoop_address *hoop_listener_address(const struct hoop_listener *listener);
void hoop_listener_destroy(struct hoop_listener *listener); /* NULL is allowed */

/* "hoop-" and 32 random hexadecimal digits. */
hoop_result_t hoop_listener_name(char ret_name[HOOP_FRAME_NAME_BYTES]);

#endif

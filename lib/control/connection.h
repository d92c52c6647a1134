/*
 * One control connection: a non-blocking socket whose other end has proved that it knows the
 * secret (handshake.h), and which then carries frames (control/frame.h) both ways. On one machine
 * an abstract SOCK_SEQPACKET socket, whose other end must be of this uid too; between machines TCP,
 * without descriptors.
 *
 * Between machines each frame after the proof carries a MAC: who sits on the way can read, delay
 * and end, and no more. A hello says what address was dialled, and the server compares it with its
 * own: so nobody can pass a connection on from one port to another.
 *
 * Where both ends are in one process there is no socket: see hoop_connection_pair().
 *
 * A wrong proof ends the connection. The owner gets `opened` once, then `message`s, then `closed`
 * once, unless it destroys the connection before; it may do so in any of them. All on the service
 * thread.
 */
#ifndef HOOP_CONTROL_CONNECTION_H
#define HOOP_CONTROL_CONNECTION_H

#include "control/handshake.h"
#include "net/socket.h"

struct hoop_connection;

/* What is known of a connection and of who is at its other end. */
struct hoop_connection_about {
    const struct hoop_frame_hello *hello; /* what the client said */
    const struct hoop_secret *secret;     /* by which both proved themselves */
    /* Of an open connection that is not a Unix socket's: a key that only its two ends have, for
     * what is not a frame. */
    struct hoop_secret data_key;
    pid_t pid;                 /* the other end's, as this process sees it; 0: it cannot */
    struct hoop_address local; /* TCP: of this end, with its port; family 0: none yet, or not TCP */
    char peer[HOOP_ADDRESS_TEXT_BYTES]; /* for sentences: "pid 7" or "10.0.0.1:4000" */
};

struct hoop_connection_owner {
    /* Server only: which secret? NULL: it may come back later; the thread's sentence says why. */
    const struct hoop_secret *(*admit)(void *arg, const struct hoop_frame_hello *hello);
    /* Both ends have proved themselves: messages flow. */
    void (*opened)(void *arg, struct hoop_connection *connection);
    /*
     * frame is checked. A descriptor is moved by setting its place to -1; others are closed. Over
     * TCP all are -1. False: it does not belong here, and the connection ends for that. NULL:
     * somebody else's once it has opened (hoop_connection_adopt()).
     */
    bool (*message)(void *arg, struct hoop_connection *connection, const union hoop_frame *frame,
                    int *fds);
    /*
     * The connection is over. HOOP_REMOTE_ERROR: the other end closed it, or nobody was there
     * (TCP); HOOP_NOT_AUTHENTICATED: it proved nothing; HOOP_AGAIN: it asks to come back later;
     * other codes: why not. The owner destroys the connection.
     */
    void (*closed)(void *arg, struct hoop_connection *connection, const struct hoop_failure *why);
};

/*
 * Connects to a place and says hello. owner and arg: borrowed until destroyed; place, from, hello
 * (but its header and nonce) and secret: copied. from: the address of this machine to connect
 * from, NULL or family 0: any. HOOP_REMOTE_ERROR: nobody is there; HOOP_AGAIN: the queue there is
 * full. Over TCP that is only known later: `closed` says it, with address and reason. How long to
 * wait for that, and for a server that says nothing, is the owner's to know.
 */
hoop_result_t hoop_connection_connect(const struct hoop_place *place,
                                      const struct hoop_address *from,
                                      const struct hoop_frame_hello *hello,
                                      const struct hoop_secret *secret,
                                      const struct hoop_connection_owner *owner, void *arg,
                                      struct hoop_connection **ret_connection);

/* The server's side of an accepted socket; fd is moved, kept by hoop_fork_keep() before. */
hoop_result_t hoop_connection_accept(int fd, const struct hoop_connection_owner *owner, void *arg,
                                     struct hoop_connection **ret_connection);

/*
 * Both ends of a connection within this process, open, without an owner yet: what one sends the
 * other is given with the next turn of the loop. There is no socket, so nobody else can come this
 * way, and nothing is proved: that both know the secret is the caller's to have seen. hello and
 * secret: copied, what the ends say that a handshake told them.
 */
hoop_result_t hoop_connection_pair(const struct hoop_frame_hello *hello,
                                   const struct hoop_secret *secret,
                                   struct hoop_connection *ret_ends[2]);

/* Somebody else's from now on. */
void hoop_connection_adopt(struct hoop_connection *connection,
                           const struct hoop_connection_owner *owner, void *arg);

/*
 * Sends the frame that begins with this header, from `opened` on, when the connection can. frame
 * and fds are copied (the descriptors duplicated where they must wait). It cannot fail: a
 * connection that breaks, or takes too little, says so by `closed`.
 */
void hoop_connection_send(struct hoop_connection *connection, const struct hoop_frame_header *frame,
                          const int *fds, uint32_t fd_count);

/* The same without descriptors; connection NULL: nothing. */
static inline void hoop_connection_say(struct hoop_connection *connection,
                                       const union hoop_frame *frame)
{
    if (connection != NULL) {
        hoop_connection_send(connection, &frame->header, NULL, 0);
    }
}

/* Ends the connection for what the other end did: `closed` follows, with the thread's sentence. */
void hoop_connection_refuse(struct hoop_connection *connection, hoop_result_t code);

/* Valid until destroyed. */
const struct hoop_connection_about *hoop_connection_about(const struct hoop_connection *connection);

/*
 * An open TCP connection that has carried no message yet: its descriptor, non-blocking, kept by
 * hoop_fork_keep(), is the caller's from now on, and the connection is destroyed without a word.
 * Callable in `opened`. Nothing that the other end sent after the handshake has been read.
 */
int hoop_connection_detach(struct hoop_connection *connection);

/* Closes without a word; what the socket has taken is still delivered. NULL is allowed. */
void hoop_connection_destroy(struct hoop_connection *connection);

#endif

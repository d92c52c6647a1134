/*
 * One control connection: a non-blocking socket whose other end has proved that it knows the secret
 * (handshake.h), and which then carries frames (control/frame.h) both ways. Within a machine it is
 * an abstract SOCK_SEQPACKET socket, whose other end must also have this uid; between machines it
 * is TCP, without descriptors.
 *
 * Over TCP each frame after the proof carries a MAC, so that a man in the middle can delay, cut off
 * and (unless they are encrypted) read, but not change anything. The hello says which address the
 * client dialled, and the server compares it with its own, so that a connection cannot be relayed
 * from one port to another.
 *
 * If both ends are in one process there is no socket: see hoop_connection_pair().
 *
 * A wrong proof ends the connection. The owner gets `opened` once, then `message`s, then `closed`
 * once, unless it destroys the connection before, which it may do in each of them. All run on the
 * service thread.
 */
#ifndef HOOP_CONTROL_CONNECTION_H
#define HOOP_CONTROL_CONNECTION_H

#include "control/handshake.h"
#include "net/socket.h"

struct hoop_connection;

/* What is known of a connection and of its other end. */
struct hoop_connection_about {
    const struct hoop_frame_hello *hello; /* the client's hello */
    /* Of an open TCP connection: a key that only the two ends have, for data. */
    struct hoop_secret data_key;
    pid_t pid;                 /* the other end's as seen here; 0 if it is not visible */
    struct hoop_address local; /* TCP: this end with its port; family 0: none yet, or not TCP */
    char peer[HOOP_ADDRESS_TEXT_BYTES]; /* for error messages: "pid 7" or "10.0.0.1:4000" */
};

struct hoop_connection_owner {
    /* Server only: returns the secret that this client must prove, or NULL if it should come back
     * later; the thread's sentence says why. */
    const struct hoop_secret *(*admit)(void *arg, const struct hoop_frame_hello *hello);
    /* Both ends have proved themselves; messages may be sent. */
    void (*opened)(void *arg, struct hoop_connection *connection);
    /*
     * A frame came; it is checked. To keep a descriptor, set its entry to -1; the others are
     * closed. Over TCP all are -1. Return false if the message is unexpected: that ends the
     * connection. May be NULL if `opened` passes the connection to another owner
     * (hoop_connection_adopt()).
     */
    bool (*message)(void *arg, struct hoop_connection *connection, const union hoop_frame *frame,
                    int *fds);
    /*
     * The connection is over; the owner destroys it. HOOP_REMOTE_ERROR: the other end closed it, or
     * over TCP nobody listened. HOOP_NOT_AUTHENTICATED: it did not prove itself. HOOP_AGAIN: it
     * asks to come back later. Other codes: this end failed.
     */
    void (*closed)(void *arg, struct hoop_connection *connection, const struct hoop_failure *why);
};

/*
 * Connects to a place and sends the hello. owner and arg are borrowed until destroyed; place, from,
 * hello (except its header and nonce) and secret are copied. `from` is the local address; NULL or
 * family 0 means any. HOOP_REMOTE_ERROR: nobody listens; HOOP_AGAIN: the listener's queue is full.
 * Over TCP this is known only later, and `closed` reports it. The sentences do not name the place.
 * The owner decides how long to wait for that, or for a server that stays silent.
 */
hoop_result_t hoop_connection_connect(const struct hoop_place *place,
                                      const struct hoop_address *from,
                                      const struct hoop_frame_hello *hello,
                                      const struct hoop_secret *secret,
                                      const struct hoop_connection_owner *owner, void *arg,
                                      struct hoop_connection **ret_connection);

/* The server's side of an accepted socket. Takes ownership of fd (kept by hoop_fork_keep()). */
hoop_result_t hoop_connection_accept(int fd, const struct hoop_connection_owner *owner, void *arg,
                                     struct hoop_connection **ret_connection);

/*
 * Makes both ends of an open connection within this process, without owners yet. What one end sends
 * is delivered to the other in the loop's next iteration. No stranger can use it, so nothing is
 * proved: the caller ensures that both sides know the secret. hello is copied; the ends report it
 * as if it came from a handshake.
 */
hoop_result_t hoop_connection_pair(const struct hoop_frame_hello *hello,
                                   struct hoop_connection *ret_ends[2]);

/* Replaces the owner. */
void hoop_connection_adopt(struct hoop_connection *connection,
                           const struct hoop_connection_owner *owner, void *arg);

/*
 * Sends the frame that begins with this header; allowed from `opened` on. frame and fds are copied;
 * descriptors that must wait are duplicated. This cannot fail: if the connection breaks, or the
 * other end does not read, `closed` says so.
 */
void hoop_connection_send(struct hoop_connection *connection, const struct hoop_frame_header *frame,
                          const int *fds, uint32_t fd_count);

/* The same without descriptors. Does nothing if connection is NULL. */
static inline void hoop_connection_say(struct hoop_connection *connection,
                                       const union hoop_frame *frame)
{
    if (connection != NULL) {
        hoop_connection_send(connection, &frame->header, NULL, 0);
    }
}

/* Ends the connection for what the other end did. `closed` follows, with the thread's sentence. */
void hoop_connection_refuse(struct hoop_connection *connection, hoop_result_t code);

/* Valid until destroyed. */
const struct hoop_connection_about *hoop_connection_about(const struct hoop_connection *connection);

/*
 * Takes the descriptor out of an open TCP connection that has carried no message yet, and destroys
 * the connection silently. The descriptor is non-blocking, registered by hoop_fork_keep(), and the
 * caller's. May be called in `opened`. Nothing that came after the handshake has been read from it.
 */
int hoop_connection_detach(struct hoop_connection *connection);

/* Closes silently; what was written to the socket is still delivered. NULL is allowed. */
void hoop_connection_destroy(struct hoop_connection *connection);

#endif

/*
 * Reads and writes the frames of a connection's socket.
 *
 * Reading gives one message at a time, and never takes bytes of the next from a stream. A Unix
 * socket delivers whole messages with their descriptors. Over TCP a message comes in parts. Its
 * header is judged before the rest is read, and before the proof only types that the handshake
 * expects are accepted, which limits the memory that a stranger can occupy.
 *
 * Writing keeps the order, and holds duplicates of descriptors. A message that was partly sent,
 * which happens only over TCP, is completed, or nothing more is sent.
 *
 * Over TCP every message after the handshake is sealed when its first byte is to be sent: its
 * header's mac is the first 16 bytes of HMAC-SHA256(key, "hoop frame", number, message), computed
 * with mac 0; each direction counts its messages from 0. So none can be changed, left out, repeated
 * or sent back. If the client encrypts, all but the header is encrypted by AES-256-GCM instead, and
 * the mac is its tag; the nonce is made of number, type and size.
 *
 * Private to connection.c. Service thread only.
 */
#ifndef HOOP_CONTROL_FRAME_IO_H
#define HOOP_CONTROL_FRAME_IO_H

#include "base/list.h"
#include "control/handshake.h"
#include "net/encrypt.h"
#include "net/socket.h"

/* One direction of a connection. */
struct hoop_frame_seal {
    struct hoop_secret key;
    struct hoop_aead *aead; /* NULL: messages are in clear */
    uint64_t number;        /* of the next message */
};

/* Wipes the key. */
void hoop_frame_seal_finish(struct hoop_frame_seal *seal);

/* ---- In ----------------------------------------------------------------------------------- */

struct hoop_frame_reader {
    size_t got;   /* TCP: bytes received of the current message */
    size_t bytes; /* its size; 0 until its header is complete */
    union hoop_frame frame;
    struct hoop_socket_extras extras; /* with its descriptors */
};

void hoop_frame_reader_init(struct hoop_frame_reader *reader);

/*
 * Reads once: a packet, or if far is true from a stream, appending to the partial message in
 * reader. handshake limits which types may come; NULL once it is over. seal then verifies messages
 * of a stream.
 *
 *      HOOP_OK              frame has a checked message, until hoop_frame_reader_clear()
 *      HOOP_AGAIN           there is nothing to read now
 *      HOOP_IN_PROGRESS     no whole message yet: read on
 *      HOOP_REMOTE_ERROR    nothing more will come; the thread's sentence says why
 *      other                what came is wrong; the thread's sentence says how
 */
hoop_result_t hoop_frame_read(struct hoop_frame_reader *reader, int fd, bool far,
                              const struct hoop_handshake *handshake, struct hoop_frame_seal *seal);

/* Closes the descriptors that nobody took, and wipes a secret. */
void hoop_frame_reader_clear(struct hoop_frame_reader *reader);

/* ---- Out ---------------------------------------------------------------------------------- */

struct hoop_frame_queue {
    struct hoop_list_node waiting;
    uint32_t count;
    uint64_t starved_ns; /* since when nothing is sent for lack of memory; 0: something was */
};

void hoop_frame_queue_init(struct hoop_frame_queue *queue);
void hoop_frame_queue_finish(struct hoop_frame_queue *queue);

/*
 * Queues a copy of a frame. HOOP_REMOTE_ERROR: too many wait already. HOOP_SYSTEM_ERROR: no
 * descriptor was left for a duplicate.
 */
hoop_result_t hoop_frame_queue_put(struct hoop_frame_queue *queue,
                                   const struct hoop_frame_header *frame, const int *fds,
                                   uint32_t fd_count);

/* Takes the first message with its descriptors, like hoop_frame_read(); for connections within this
 * process. If there is none: HOOP_AGAIN, or HOOP_REMOTE_ERROR if open is false. */
hoop_result_t hoop_frame_queue_take(struct hoop_frame_queue *queue, bool open,
                                    struct hoop_frame_reader *reader);

/* Drops all messages except one that was partly sent. */
void hoop_frame_queue_drop(struct hoop_frame_queue *queue);

/* Sends the queue. seal is NULL for a Unix socket, and during the handshake. Returns 0 if all was
 * sent, else the errno of the send that failed; EIO: the message could not be sealed. */
int hoop_frame_queue_send(struct hoop_frame_queue *queue, int fd, struct hoop_frame_seal *seal);

/* Does the kernel of this machine lack memory, or has it too much in flight? */
bool hoop_frame_starves(int err);
/* To be asked after such an error: has none of the queue been sent for half the time after which
 * others take this process for dead? */
bool hoop_frame_queue_gives_up(struct hoop_frame_queue *queue);

#endif

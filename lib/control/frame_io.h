/*
 * Frames in and frames out of a connection's socket.
 *
 * In: one message at a time, and of a stream not a byte of the next. A Unix socket brings whole
 * messages with their descriptors. On TCP a message comes in parts; its header is judged before
 * anything else is read, and before the proof only what the handshake waits for gets past it: a
 * stranger can make nobody hold more than that.
 *
 * Out: in order, with duplicates of their descriptors. A message that has gone in part, which
 * happens on TCP only, is finished or nothing more is said.
 *
 * On TCP every message after the handshake is sealed when its first byte goes: its header's mac is
 * the first 8 bytes of HMAC-SHA256(key, "hoop frame", number, message), with the message's own mac
 * 0 and the messages of each direction numbered from 0. So none can be changed, left out, said
 * twice or sent back.
 *
 * Private to connection.c. Service thread only.
 */
#ifndef HOOP_CONTROL_FRAME_IO_H
#define HOOP_CONTROL_FRAME_IO_H

#include "base/list.h"
#include "control/handshake.h"
#include "net/socket.h"

/* What the messages of one direction are sealed with, and how many have been. */
struct hoop_frame_seal {
    struct hoop_secret key;
    uint64_t number;
};

/* ---- In ----------------------------------------------------------------------------------- */

struct hoop_frame_reader {
    size_t got;   /* TCP: bytes of the message that is arriving */
    size_t bytes; /* that it has in all; 0: its header is not complete */
    union hoop_frame frame;
    struct hoop_socket_extras extras; /* its descriptors */
};

void hoop_frame_reader_init(struct hoop_frame_reader *reader);

/*
 * Reads once: from a stream (far: on with what is in the reader), or a packet. handshake: only what
 * it waits for may come; NULL: it is over. seal: of a stream, then.
 *
 *      HOOP_OK              a checked message is in frame, until hoop_frame_reader_clear()
 *      HOOP_AGAIN           there is nothing to read now
 *      HOOP_IN_PROGRESS     no whole message yet: read on
 *      HOOP_REMOTE_ERROR    nothing will come any more; the thread's sentence says why
 *      other                what came is wrong; it says how
 */
hoop_result_t hoop_frame_read(struct hoop_frame_reader *reader, int fd, bool far,
                              const struct hoop_handshake *handshake, struct hoop_frame_seal *seal);

/* Closes the descriptors that nobody took, and wipes a secret. */
void hoop_frame_reader_clear(struct hoop_frame_reader *reader);

/* ---- Out ---------------------------------------------------------------------------------- */

struct hoop_frame_queue {
    struct hoop_list_node waiting;
    uint32_t count;
};

void hoop_frame_queue_init(struct hoop_frame_queue *queue);
void hoop_frame_queue_finish(struct hoop_frame_queue *queue);

/*
 * Adds a copy of a frame. HOOP_REMOTE_ERROR: too many wait already; HOOP_OUT_OF_MEMORY;
 * HOOP_SYSTEM_ERROR: no descriptor left for a duplicate.
 */
hoop_result_t hoop_frame_queue_put(struct hoop_frame_queue *queue,
                                   const struct hoop_frame_header *frame, const int *fds,
                                   uint32_t fd_count);

/* The first of them, with its descriptors, as hoop_frame_read() gives it: where both ends of a
 * connection are in this process. Nothing there: HOOP_AGAIN, or if not open HOOP_REMOTE_ERROR. */
hoop_result_t hoop_frame_queue_take(struct hoop_frame_queue *queue, bool open,
                                    struct hoop_frame_reader *reader);

/* Forgets what has not been begun. */
void hoop_frame_queue_drop(struct hoop_frame_queue *queue);

/* Sends it; seal NULL: a Unix socket, or the handshake. 0: all of it went; else the errno of the
 * send that did not. */
int hoop_frame_queue_send(struct hoop_frame_queue *queue, int fd, struct hoop_frame_seal *seal);

#endif

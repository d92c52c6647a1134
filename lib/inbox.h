/*
 * What arrives on a control connection: one message at a time, and of a stream not a byte of the
 * next. A Unix socket brings whole messages with their descriptors. On TCP a message comes in
 * parts; its header is judged before anything else is read, and before the proof only what the
 * handshake waits for gets past it: a stranger can make nobody hold more than that.
 *
 * Private to control.c. Service thread only.
 */
#ifndef HOOP_INBOX_H
#define HOOP_INBOX_H

#include "handshake.h"
#include "packet.h"

struct hoop_inbox {
    size_t got;   /* TCP: bytes of the message that is arriving */
    size_t bytes; /* that it has in all; 0: its header is not complete */
    struct hoop_packet packet;
};

void hoop_inbox_init(struct hoop_inbox *inbox);

/*
 * Reads once. shaking: the connection is not open yet; else NULL. far: TCP.
 *
 *      HOOP_OK              a checked message is in packet, until hoop_inbox_clear()
 *      HOOP_AGAIN           there is nothing to read now
 *      HOOP_IN_PROGRESS     no whole message yet: read on
 *      HOOP_REMOTE_ERROR    nothing will come any more; *failure says why
 *      other                what came is wrong; *failure says how
 */
hoop_result_t hoop_inbox_receive(struct hoop_inbox *inbox, int fd, bool far,
                                 const struct hoop_handshake *shaking,
                                 struct hoop_failure *failure);

/* Closes the descriptors that nobody took, and wipes a secret. */
void hoop_inbox_clear(struct hoop_inbox *inbox);

#endif

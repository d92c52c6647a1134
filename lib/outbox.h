/*
 * What a control connection has yet to say: letters in order, with duplicates of their descriptors.
 * A letter that has gone in part, which happens on TCP only, is finished or nothing more is said.
 * Letters of the handshake are early: they go before all others, and when those may not go yet.
 *
 * Private to control.c. Service thread only.
 */
#ifndef HOOP_OUTBOX_H
#define HOOP_OUTBOX_H

#include "base/frame.h"
#include <stdbool.h>

struct hoop_letter;

struct hoop_outbox {
    struct hoop_letter *first, **last;
    uint32_t count;
};

void hoop_outbox_init(struct hoop_outbox *outbox);
void hoop_outbox_finish(struct hoop_outbox *outbox);

/*
 * Adds a copy of a frame of which `sent` bytes have gone. HOOP_REMOTE_ERROR: too many letters wait
 * already; HOOP_OUT_OF_MEMORY; HOOP_SYSTEM_ERROR: no descriptor left for a duplicate.
 */
hoop_result_t hoop_outbox_put(struct hoop_outbox *outbox, const struct hoop_frame_header *frame,
                              size_t sent, const int *fds, uint32_t fd_count, bool early);

/* Forgets what has not been begun. */
void hoop_outbox_drop(struct hoop_outbox *outbox);

/* Is there a letter that may go now? open: also those that are not early. */
bool hoop_outbox_has(const struct hoop_outbox *outbox, bool open);

/* Sends what may go. 0: all of it went; else the errno of the send that did not. */
int hoop_outbox_send(struct hoop_outbox *outbox, int fd, bool open);

#endif

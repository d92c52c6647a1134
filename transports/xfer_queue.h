/* The xfers that an end was given and that are not done yet, in order. Used by one thread. */
#ifndef HOOP_XFER_QUEUE_H
#define HOOP_XFER_QUEUE_H

#include "transports/transport.h"

struct hoop_xfer_queue {
    struct hoop_xfer *first, *last;
};

static inline void hoop_xfer_queue_push(struct hoop_xfer_queue *queue, struct hoop_xfer *xfer)
{
    xfer->next = NULL;
    if (queue->first == NULL) {
        queue->first = xfer;
    } else {
        queue->last->next = xfer;
    }
    queue->last = xfer;
}

static inline struct hoop_xfer *hoop_xfer_queue_pop(struct hoop_xfer_queue *queue)
{
    struct hoop_xfer *xfer = queue->first;
    if (xfer != NULL) {
        queue->first = xfer->next;
        xfer->next = NULL;
    }
    return xfer;
}

/* Completes all xfers that were queued before the call. What `done` posts meanwhile stays, so that
 * two ends that answer each other do not keep a thread in here. True: there were any. */
static inline bool hoop_xfer_queue_finish(struct hoop_xfer_queue *queue, hoop_result_t result)
{
    if (queue->first == NULL) {
        return false;
    }
    const struct hoop_xfer *const last = queue->last;
    bool more = true;
    while (more) {
        struct hoop_xfer *xfer = hoop_xfer_queue_pop(queue);
        more = xfer != last;
        xfer->done(xfer, result);
    }
    return true;
}

#endif

/*
 * What the service thread has for the driver of a comm: blobs, data connections, answers. One
 * queue; the driver takes what it looks for, in no order but that of arrival among equals.
 */
#ifndef HOOP_EVENTS_H
#define HOOP_EVENTS_H

#include "base/crypto.h"
#include "base/error.h"
#include "base/list.h"
#include "transports/blob.h"
#include <pthread.h>
#include <stdint.h>

enum hoop_event_kind {
    HOOP_EVENT_BLOB,   /* what the other end of a link tells: id is the lane, part my direction */
    HOOP_EVENT_SOCKET, /* the data connection of a link, or why there is none: likewise */
    HOOP_EVENT_ANSWER  /* a region came, or can't be had: id is the region, part its generation */
};

struct hoop_event {
    struct hoop_list_node node;
    enum hoop_event_kind kind;
    uint32_t rank; /* whom it is about */
    uint64_t id;
    uint32_t part;
    bool unwanted;               /* stands for one to come, which goes where this goes */
    int fd;                      /* SOCKET: owned; -1: see the failure */
    struct hoop_secret key;      /* SOCKET: that its two ends have */
    struct hoop_failure failure; /* SOCKET, ANSWER; code HOOP_OK: it is well */
    struct hoop_blob blob;       /* BLOB */
};

/* Any thread. */
struct hoop_events {
    pthread_mutex_t lock;
    struct hoop_list_node queue; /* under lock */
    int wake_fd;                 /* the driver's eventfd, borrowed */
};

/* The descriptor comes before the first push. */
void hoop_events_init(struct hoop_events *events);
/* Frees what nobody took. */
void hoop_events_finish(struct hoop_events *events);

/* Copies the event and wakes the driver. False: no memory; a socket is closed then. */
bool hoop_events_push(struct hoop_events *events, const struct hoop_event *event);

/* The first that is the same in kind, rank, id and part; the caller frees it. NULL: there is none.
 */
struct hoop_event *hoop_events_take(struct hoop_events *events, const struct hoop_event *wanted);

/* Nobody wants it any more: drops it now, or when it comes. */
void hoop_events_drop(struct hoop_events *events, const struct hoop_event *unwanted);

#endif

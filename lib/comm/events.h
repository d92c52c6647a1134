/*
 * What the service thread has for the driver of a comm: blobs, data connections, answers. One
 * queue; the driver takes what it looks for, in no order but that of arrival among equals.
 */
#ifndef HOOP_EVENTS_H
#define HOOP_EVENTS_H

#include "membership/membership.h"
#include <pthread.h>

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

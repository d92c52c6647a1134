/*
 * A queue of what the service thread has for the driver of a comm: blobs, data connections,
 * answers. The driver takes the event that it looks for; only equal events stay in order of
 * arrival.
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

/* wake_fd is set later, before the first push. */
void hoop_events_init(struct hoop_events *events);
/* Frees the events that nobody took. */
void hoop_events_finish(struct hoop_events *events);

/* Copies the event and wakes the driver. False: no memory; the event's socket is closed then. */
bool hoop_events_push(struct hoop_events *events, const struct hoop_event *event);

/* Takes the first event with the same kind, rank, id and part; the caller frees it. NULL: none. */
struct hoop_event *hoop_events_take(struct hoop_events *events, const struct hoop_event *wanted);

/* Drops an event that nobody wants any more, now or when it comes. */
void hoop_events_drop(struct hoop_events *events, const struct hoop_event *unwanted);

#endif

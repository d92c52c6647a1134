/* Events from the service thread for a comm's driver (see events.h). */
#include "comm/events.h"

#include "runtime/wait.h"
#include "runtime/watch.h"

#include <stdlib.h>

void hoop_events_init(struct hoop_events *events)
{
    pthread_mutex_init(&events->lock, NULL);
    hoop_list_init(&events->queue);
    events->wake_fd = -1;
}

static void events_free(struct hoop_event *event)
{
    if (event != NULL && event->kind == HOOP_EVENT_SOCKET) {
        hoop_fork_close(event->fd);
        hoop_secret_wipe(&event->key, sizeof(event->key));
    }
    free(event);
}

void hoop_events_finish(struct hoop_events *events)
{
    HOOP_LIST_EACH(struct hoop_event, event, &events->queue, node) {
        hoop_list_remove(&event->node);
        events_free(event);
    }
    pthread_mutex_destroy(&events->lock);
}

static bool events_equal(const struct hoop_event *a, const struct hoop_event *b)
{
    return a->kind == b->kind && a->rank == b->rank && a->id == b->id && a->part == b->part;
}

/* Under the lock. */
static struct hoop_event *events_remove(struct hoop_events *events, const struct hoop_event *wanted,
                                        bool unwanted)
{
    HOOP_LIST_EACH(struct hoop_event, event, &events->queue, node) {
        if (events_equal(event, wanted) && event->unwanted == unwanted) {
            hoop_list_remove(&event->node);
            return event;
        }
    }
    return NULL;
}

/* Queues the event. But if an event meets the mark that it is unwanted, or the mark its event, both
 * are dropped. False: no memory. */
static bool events_add(struct hoop_events *events, const struct hoop_event *event)
{
    struct hoop_event *copy = malloc(sizeof(*copy));
    if (copy != NULL) {
        *copy = *event;
        copy->node = (struct hoop_list_node){NULL, NULL};
    }
    pthread_mutex_lock(&events->lock);
    struct hoop_event *other = events_remove(events, event, !event->unwanted);
    if (other == NULL && copy != NULL) {
        hoop_list_push_back(&events->queue, &copy->node);
    }
    pthread_mutex_unlock(&events->lock);
    const bool added = copy != NULL || other != NULL;
    if (other != NULL) {
        events_free(other);
        events_free(copy);
    }
    return added;
}

bool hoop_events_push(struct hoop_events *events, const struct hoop_event *event)
{
    const bool added = events_add(events, event);
    if (!added && event->kind == HOOP_EVENT_SOCKET) {
        hoop_fork_close(event->fd);
    }
    hoop_wake(events->wake_fd);
    return added;
}

struct hoop_event *hoop_events_take(struct hoop_events *events, const struct hoop_event *wanted)
{
    pthread_mutex_lock(&events->lock);
    struct hoop_event *event = events_remove(events, wanted, false);
    pthread_mutex_unlock(&events->lock);
    return event;
}

void hoop_events_drop(struct hoop_events *events, const struct hoop_event *unwanted)
{
    struct hoop_event mark = *unwanted;
    mark.unwanted = true;
    mark.fd = -1;
    (void)events_add(events, &mark); /* without memory the event stays until the comm ends */
}

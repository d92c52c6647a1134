/*
 * Whether devices have failed that something is awaited of by who may not call CUDA: a thread asks
 * them, now and then. The comms whose calls are awaited there fail. Nobody waits for the thread: it
 * may have to wait itself, for a call of the program that waits for all streams.
 *
 * Any thread.
 */
#ifndef HOOP_HEALTH_H
#define HOOP_HEALTH_H

#include "memory/cuda.h"

/* Who awaits. Called with no lock. */
struct hoop_health_asker {
    /* The contexts whose devices it awaits, each once, `most` of them at most: how many. */
    size_t (*list)(hoop_cu_context_t *ret, size_t most);
    /* The device has failed: does it await that for a call of the comm? It does so in vain. */
    bool (*broke)(hoop_cu_context_t context, uint64_t comm_id);
};

/* Borrowed for ever, and always the same. False: there is no thread. */
bool hoop_health_start(const struct hoop_health_asker *asker);
/* Something more is awaited. */
void hoop_health_notify(void);

#endif

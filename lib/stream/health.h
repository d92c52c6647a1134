/*
 * The health thread: it asks from time to time whether a device has failed, for threads that wait
 * for the device but may not call CUDA. If it has, the comms that have outstanding calls there
 * fail. Nobody waits for the health thread, because CUDA may block it while the program is in a
 * call that waits for all streams.
 *
 * Any thread.
 */
#ifndef HOOP_HEALTH_H
#define HOOP_HEALTH_H

#include "memory/cuda.h"

/* The callbacks of the code that waits for devices. They are called without a lock. */
struct hoop_health_asker {
    /* Lists the contexts whose devices are awaited, each once, at most `most`. Returns how many. */
    size_t (*list)(hoop_cu_context_t *ret, size_t most);
    /* The device of the context has failed: stop waiting for it. Returns whether a call of the comm
     * was waiting for it. */
    bool (*broke)(hoop_cu_context_t context, uint64_t comm_id);
};

/* Starts the thread, once. asker: always the same, and never freed. False: there is no thread. */
bool hoop_health_start(const struct hoop_health_asker *asker);
/* A device is awaited that was perhaps not awaited before. */
void hoop_health_notify(void);

#endif

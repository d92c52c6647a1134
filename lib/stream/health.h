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

/* The callbacks of code that waits for devices. They are called without a lock. */
struct hoop_health_asker {
    struct hoop_health_asker *next_asker; /* of health.c */
    /* Of the contexts whose devices are awaited, the one with the lowest address above `after`;
     * NULL: there is none. */
    hoop_cu_context_t (*next)(hoop_cu_context_t after);
    /* Waits a call of the comm for the device of the context? */
    bool (*waits)(hoop_cu_context_t context, uint64_t comm_id);
    /* The device of the context has failed, and the comms that wait for it know: stop waiting. */
    void (*broke)(hoop_cu_context_t context);
};

/* For `next`: the better of two answers, `best` (may be NULL) and the context. */
static inline hoop_cu_context_t hoop_health_better(hoop_cu_context_t best, hoop_cu_context_t after,
                                                   hoop_cu_context_t context)
{
    const bool above = (uintptr_t)context > (uintptr_t)after;
    return above && (best == NULL || (uintptr_t)context < (uintptr_t)best) ? context : best;
}

/* Adds the asker, which is never freed, unless it was added before, and starts the thread, once.
 * False: there is no thread. */
bool hoop_health_start(struct hoop_health_asker *asker);
/* A device is awaited that was perhaps not awaited before. */
void hoop_health_notify(void);

#endif

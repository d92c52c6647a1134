/*
 * Signs of life: how often they are given, and when their absence counts. The same for a member
 * that watches the ranks of its machine, for a rendezvous that watches its guests for the other
 * machines, and for a tree that watches its neighbours.
 *
 * Silence counts only while an operation waits, and only while the watcher was running itself:
 * after a beat of its own that came much too late, everybody gets a fresh start.
 */
#ifndef HOOP_LIFE_H
#define HOOP_LIFE_H

#include "base/clock.h"
#include <stdbool.h>

#define HOOP_LIFE_BEAT_MIN_MS 20u
#define HOOP_LIFE_BEAT_MAX_MS 1000u
#define HOOP_LIFE_LATE 3u /* beats: I was stopped myself */
/* A dying process closes its sockets a little before its pidfd tells. */
#define HOOP_LIFE_VERDICT_MS 20u
#define HOOP_LIFE_CLOSED "closed its connection without a goodbye"

static inline uint64_t hoop_life_beat_ms(uint64_t dead_after_ms)
{
    const uint64_t fifth = dead_after_ms / 5;
    if (fifth < HOOP_LIFE_BEAT_MIN_MS) {
        return HOOP_LIFE_BEAT_MIN_MS;
    }
    return fifth < HOOP_LIFE_BEAT_MAX_MS ? fifth : HOOP_LIFE_BEAT_MAX_MS;
}

static inline bool hoop_life_was_late(uint64_t last_ns, uint64_t now, uint64_t beat_ms)
{
    return now - last_ns > HOOP_LIFE_LATE * beat_ms * HOOP_NS_PER_MS;
}

/*
 * For how many milliseconds somebody who was heard at heard_ns has been silent while there was a
 * wait since waiting_ns (HOOP_NEVER: there is none); 0: for no longer than dead_after_ms.
 */
static inline uint64_t hoop_life_silence_ms(uint64_t heard_ns, uint64_t waiting_ns, uint64_t now,
                                            uint64_t dead_after_ms)
{
    const uint64_t since = heard_ns > waiting_ns ? heard_ns : waiting_ns;
    if (waiting_ns == HOOP_NEVER || now <= since || now - since <= dead_after_ms * HOOP_NS_PER_MS) {
        return 0;
    }
    return (now - since) / HOOP_NS_PER_MS;
}

#endif

/*
 * The flight recorder: the last operations of a comm. When a comm fails, it and every comm of the
 * process that is waiting write theirs down, at HOOP_DEBUG=info. Each is written by its own driver,
 * who alone may read it: the one that fails at once, the others at their next look.
 */
#ifndef HOOP_HISTORY_H
#define HOOP_HISTORY_H

#include "base/error.h"
#include "transports/signature.h"
#include <stdbool.h>

#define HOOP_HISTORY_LENGTH 32u

struct hoop_past {
    uint32_t sequence;
    hoop_result_t result; /* HOOP_IN_PROGRESS while it runs */
    struct hoop_signature signature;
};

struct hoop_history {
    uint32_t last; /* sequence of the operation that runs or ran last */
    uint32_t seen; /* how many dumps had been asked for when it last looked */
    struct hoop_past past[HOOP_HISTORY_LENGTH];
};

/* A comm is born: what others asked for before does not concern it. */
void hoop_history_init(struct hoop_history *history);

/* An operation begins. */
static inline void hoop_history_begin(struct hoop_history *history, uint32_t sequence,
                                      const struct hoop_signature *signature)
{
    history->last = sequence;
    history->past[sequence % HOOP_HISTORY_LENGTH] = (struct hoop_past){
        .sequence = sequence, .result = HOOP_IN_PROGRESS, .signature = *signature};
}

/* It is over. */
static inline void hoop_history_end(struct hoop_history *history, hoop_result_t result)
{
    history->past[history->last % HOOP_HISTORY_LENGTH].result = result;
}

/* The i-th oldest, i below HOOP_HISTORY_LENGTH; NULL: there were not so many. */
const struct hoop_past *hoop_history_at(const struct hoop_history *history, uint32_t i);

/* Asks every comm of the process to write. */
void hoop_history_ask(void);

/* True: another has asked since the last time. */
bool hoop_history_is_asked(struct hoop_history *history);

/* Writes it down; who: "rank 3 of name". */
void hoop_history_dump(const struct hoop_history *history, const char *who);

#endif

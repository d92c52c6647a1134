/* The flight recorder (see history.h). */
#include "operation/history.h"

#include "base/log.h"

#include <stdatomic.h>

static _Atomic uint32_t history_asked;

void hoop_history_init(struct hoop_history *history)
{
    history->seen = atomic_load_explicit(&history_asked, memory_order_relaxed);
}

const struct hoop_past *hoop_history_at(const struct hoop_history *history, uint32_t i)
{
    const uint32_t sequence = history->last - HOOP_HISTORY_LENGTH + 1 + i;
    const struct hoop_past *past = &history->past[sequence % HOOP_HISTORY_LENGTH];
    return past->sequence == sequence && sequence != 0 ? past : NULL;
}

void hoop_history_ask(void)
{
    atomic_fetch_add_explicit(&history_asked, 1, memory_order_relaxed);
}

bool hoop_history_is_asked(struct hoop_history *history)
{
    const uint32_t asked = atomic_load_explicit(&history_asked, memory_order_relaxed);
    const bool again = asked != history->seen;
    history->seen = asked;
    return again;
}

void hoop_history_dump(const struct hoop_history *history, const char *who)
{
    for (uint32_t i = 0; i < HOOP_HISTORY_LENGTH; i++) {
        const struct hoop_past *past = hoop_history_at(history, i);
        if (past != NULL) {
            char what[96];
            hoop_signature_describe(&past->signature, what, sizeof(what));
            hoop_log(HOOP_LOG_INFO, HOOP_LOG_COMM, "%s: operation %u: %s: %s", who, past->sequence,
                     what, hoop_get_error_name(past->result));
        }
    }
}

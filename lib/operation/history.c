/* The flight recorder (see history.h). */
#include "operation/history.h"

#include "base/clock.h"
#include "base/log.h"

static _Atomic uint32_t history_asked;

void hoop_history_init(struct hoop_history *history)
{
    history->seen = atomic_load_explicit(&history_asked, memory_order_relaxed);
}

bool hoop_history_at(const struct hoop_history *history, uint32_t i, struct hoop_past *ret)
{
    const uint32_t last = atomic_load_explicit(&history->last, memory_order_acquire);
    const uint32_t number = last - HOOP_HISTORY_LENGTH + 1 + i;
    const struct hoop_history_slot *slot = &history->slots[number % HOOP_HISTORY_LENGTH];
    const uint16_t its = atomic_load_explicit(&slot->number, memory_order_acquire);
    uint64_t words[3];
    if (number == 0 || number > last || its != (uint16_t)number) {
        return false;
    }
    for (int w = 0; w < 3; w++) {
        words[w] = atomic_load_explicit(&slot->signature[w], memory_order_relaxed);
    }
    ret->sequence = atomic_load_explicit(&slot->sequence, memory_order_relaxed);
    ret->result = (hoop_result_t)atomic_load_explicit(&slot->result, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    memcpy(&ret->signature, words, sizeof(words));
    return atomic_load_explicit(&history->last, memory_order_relaxed) - number <
           HOOP_HISTORY_LENGTH;
}

void hoop_history_look(struct hoop_history *history, unsigned what, uint32_t rank)
{
    const uint32_t number = atomic_load_explicit(&history->last, memory_order_relaxed);
    const uint64_t before = atomic_load_explicit(&history->sight, memory_order_relaxed);
    const uint64_t sight = (uint64_t)number << 32 | (uint64_t)what << 16 | (rank & 0xffff);
    if (before >> 32 != number) {
        atomic_store_explicit(&history->sight, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        atomic_store_explicit(&history->since_ns, hoop_now_ns(), memory_order_relaxed);
    }
    if (before != sight) {
        atomic_store_explicit(&history->sight, sight, memory_order_release);
    }
}

bool hoop_history_sight(const struct hoop_history *history, struct hoop_past *ret,
                        struct hoop_sight *ret_sight)
{
    const uint64_t sight = atomic_load_explicit(&history->sight, memory_order_acquire);
    const uint64_t since_ns = atomic_load_explicit(&history->since_ns, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    *ret_sight = (struct hoop_sight){.what = (unsigned)(sight >> 16 & 0xffff),
                                     .rank = (uint32_t)(sight & 0xffff),
                                     .since_ns = since_ns};
    return sight != 0 && hoop_history_at(history, HOOP_HISTORY_LENGTH - 1, ret) &&
           ret->result == HOOP_IN_PROGRESS &&
           atomic_load_explicit(&history->sight, memory_order_relaxed) >> 32 == sight >> 32 &&
           atomic_load_explicit(&history->last, memory_order_relaxed) == sight >> 32;
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
        struct hoop_past past;
        if (hoop_history_at(history, i, &past)) {
            char what[96];
            hoop_signature_describe(&past.signature, what, sizeof(what));
            hoop_log(HOOP_LOG_INFO, HOOP_LOG_COMM, "%s: operation %u: %s: %s", who, past.sequence,
                     what, hoop_get_error_name(past.result));
        }
    }
}

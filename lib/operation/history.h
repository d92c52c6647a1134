/*
 * The flight recorder: the last operations of a comm, and what the current one waits for. Only the
 * comm's driver writes; any thread may read at any time. When a comm fails, it and every other comm
 * of the process that is waiting log their operations at HOOP_DEBUG=info: the failed one at once,
 * the others when they next look.
 *
 * Each operation has a number in this recorder, and that number's slot. There is no lock, and on
 * common processors beginning and ending an operation are plain stores:
 *
 *      writer of number k                        reader of number j
 *      last = k; fence                           slot's number is not j? then it is not there
 *      the slot's signature, ...                 the slot's signature, ...; fence
 *      the slot's number, released               last is j + 32 or more? then k may be in the slot
 */
#ifndef HOOP_HISTORY_H
#define HOOP_HISTORY_H

#include "base/error.h"
#include "transports/signature.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define HOOP_HISTORY_LENGTH 32u

struct hoop_past {
    uint32_t sequence;    /* on the board; a transfer has that of the operation before it */
    hoop_result_t result; /* HOOP_IN_PROGRESS while it runs */
    struct hoop_signature signature;
};

/* What the current operation waits for. */
struct hoop_sight {
    unsigned what;     /* enum hoop_awaited_what (operation.h) */
    uint32_t rank;     /* the rank, if a rank is awaited */
    uint64_t since_ns; /* when its driver first found that it has to wait */
};

struct hoop_history {
    _Atomic uint32_t last; /* number of the current or latest operation */
    uint32_t seen;         /* the driver's: the number of dumps asked for when it last looked */
    struct hoop_history_slot {
        _Atomic uint64_t signature[3];
        _Atomic uint32_t sequence;
        _Atomic uint16_t result;
        _Atomic uint16_t number; /* low half of its number; written last */
    } slots[HOOP_HISTORY_LENGTH];
    _Atomic uint64_t sight; /* number, what, rank: 32, 16, 16 bits; 0: being written */
    _Atomic uint64_t since_ns;
};

/* For a new comm, which earlier requests to dump do not concern. */
void hoop_history_init(struct hoop_history *history);

/* An operation begins. */
static inline void hoop_history_begin(struct hoop_history *history, uint32_t sequence,
                                      const struct hoop_signature *signature)
{
    const uint32_t number = atomic_load_explicit(&history->last, memory_order_relaxed) + 1;
    struct hoop_history_slot *slot = &history->slots[number % HOOP_HISTORY_LENGTH];
    const unsigned char *from = (const unsigned char *)signature;
    uint64_t words[3]; /* no loop: compilers do not unroll loops of atomic stores */
    memcpy(&words[0], from, sizeof(words[0]));
    memcpy(&words[1], from + sizeof(words[0]), sizeof(words[0]));
    memcpy(&words[2], from + 2 * sizeof(words[0]), sizeof(words[0]));
    atomic_store_explicit(&history->last, number, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&slot->signature[0], words[0], memory_order_relaxed);
    atomic_store_explicit(&slot->signature[1], words[1], memory_order_relaxed);
    atomic_store_explicit(&slot->signature[2], words[2], memory_order_relaxed);
    atomic_store_explicit(&slot->sequence, sequence, memory_order_relaxed);
    atomic_store_explicit(&slot->result, HOOP_IN_PROGRESS, memory_order_relaxed);
    atomic_store_explicit(&slot->number, (uint16_t)number, memory_order_release);
}

/* The current operation ends. */
static inline void hoop_history_end(struct hoop_history *history, hoop_result_t result)
{
    const uint32_t number = atomic_load_explicit(&history->last, memory_order_relaxed);
    atomic_store_explicit(&history->slots[number % HOOP_HISTORY_LENGTH].result, (uint16_t)result,
                          memory_order_relaxed);
}

/* The driver has found that the current operation has to wait. */
void hoop_history_look(struct hoop_history *history, unsigned what, uint32_t rank);

/* The i-th oldest, i below HOOP_HISTORY_LENGTH. False: none, or its slot is being written. */
bool hoop_history_at(const struct hoop_history *history, uint32_t i, struct hoop_past *ret);

/* What the current operation waits for; false: none is running, or it has not waited yet. */
bool hoop_history_sight(const struct hoop_history *history, struct hoop_past *ret,
                        struct hoop_sight *ret_sight);

/* Asks every comm of the process to dump its recorder. */
void hoop_history_ask(void);

/* True: a dump was asked for since the last call. Only for the driver. */
bool hoop_history_is_asked(struct hoop_history *history);

/* Logs the recorded operations; who: "rank 3 of name". */
void hoop_history_dump(const struct hoop_history *history, const char *who);

#endif

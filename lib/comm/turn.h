/*
 * The turn: the right to drive a comm, which exactly one thread has at a time. The first thread
 * that calls becomes the owner, which takes the turn by a plain store to `inside`. The first other
 * thread that calls takes this privilege away for good: it sets `revoked`, executes a membarrier,
 * and waits until the owner is not inside. From then on all threads stand in line, first come,
 * first served.
 *
 * The owner's plain store is worth this because a locked instruction keeps the core from
 * overlapping the end of one small operation with the beginning of the next
 * (docs/inside/tuning.md).
 */
#ifndef HOOP_TURN_H
#define HOOP_TURN_H

#include "base/error.h"
#include "base/list.h"
#include "runtime/wait.h"

struct hoop_turn {
    _Atomic uintptr_t owner; /* hoop_turn_self() of the thread that need not queue; 0: none */
    _Atomic uint32_t inside, revoked;
    pthread_mutex_t lock; /* guards the rest */
    struct hoop_list_node line;
    bool held;      /* a thread has the turn that did not take it as the owner */
    uint64_t moves; /* counts changes of hands, and progress of the thread that has the turn */
};

/* A place in the line. Belongs to the waiting thread until it has the turn. */
struct hoop_turn_place {
    struct hoop_list_node node;
    struct hoop_turn *turn;
    struct hoop_sleeper *sleeper; /* whom to wake when this place may have the turn */
    struct hoop_sleeper own;      /* of a thread that waits; its descriptor exists meanwhile */
    _Atomic uint8_t sleeping;
    bool reserved;
    uint64_t moves, since_ns, patience_ns;
};

void hoop_turn_init(struct hoop_turn *turn);
/* No thread may have the turn or stand in line. */
void hoop_turn_finish(struct hoop_turn *turn);

/* Its address identifies the calling thread. */
extern _Thread_local char hoop_turn_mark __attribute__((tls_model("initial-exec")));

static inline uintptr_t hoop_turn_self(void)
{
    return (uintptr_t)&hoop_turn_mark;
}

/* The turn has no owner yet: tries to become it. True: the calling thread is the owner now. */
bool hoop_turn_claim(struct hoop_turn *turn);
/* Wakes the first in line after the caller has left. owned: it had the turn as the owner. */
void hoop_turn_pass(struct hoop_turn *turn, bool owned);

static inline void hoop_turn_leave(struct hoop_turn *turn)
{
    const bool owned = atomic_load_explicit(&turn->inside, memory_order_relaxed) != 0 &&
                       atomic_load_explicit(&turn->owner, memory_order_relaxed) == hoop_turn_self();
    if (owned) {
        atomic_store_explicit(&turn->inside, 0, memory_order_release);
        atomic_signal_fence(memory_order_seq_cst);
        if (__builtin_expect(atomic_load_explicit(&turn->revoked, memory_order_relaxed) == 0, 1)) {
            return;
        }
    }
    hoop_turn_pass(turn, owned);
}

/* Takes the turn as the owner; the first caller becomes it. False: stand in line instead. */
static inline bool hoop_turn_take(struct hoop_turn *turn)
{
    const uintptr_t owner = atomic_load_explicit(&turn->owner, memory_order_relaxed);
    if (__builtin_expect(owner != hoop_turn_self(), 0) && (owner != 0 || !hoop_turn_claim(turn))) {
        return false;
    }
    atomic_store_explicit(&turn->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&turn->revoked, memory_order_relaxed) == 0, 1)) {
        return true;
    }
    hoop_turn_leave(turn);
    return false;
}

/*
 * For all other threads: get in line, then poll until HOOP_OK (the caller has the turn) or
 * HOOP_TIMEOUT (the thread that has it has not moved for patience_ms; 0: no limit). After either
 * the place is free again.
 */
void hoop_turn_queue(struct hoop_turn *turn, struct hoop_turn_place *place, uint64_t patience_ms);
hoop_result_t hoop_turn_poll(struct hoop_turn_place *place);

/*
 * Reserves a place for later. It need not be polled before the work that it is for can begin, and
 * the places behind it count that as no delay. sleeper, borrowed, is woken when the place may have
 * the turn.
 */
void hoop_turn_reserve(struct hoop_turn *turn, struct hoop_turn_place *place,
                       struct hoop_sleeper *sleeper, uint64_t patience_ms);

/* Gives up a place that was not polled to its end. */
void hoop_turn_drop(struct hoop_turn_place *place);

/* Takes the turn if that is possible at once. False: a thread has it, maybe this one (in a signal
 * handler), or stands in line. */
bool hoop_turn_try(struct hoop_turn *turn);
/* Takes the turn, waiting for it. HOOP_OK or HOOP_TIMEOUT, as above. */
hoop_result_t hoop_turn_enter(struct hoop_turn *turn, uint64_t patience_ms);

/* The thread that has the turn makes progress: the patience of the others begins anew. */
void hoop_turn_move(struct hoop_turn *turn);

#endif

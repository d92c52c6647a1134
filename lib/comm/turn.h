/*
 * Whose turn it is: exactly one thread at a time drives a comm. The first thread that calls owns
 * the turn: it says `inside` with a plain store. Any other thread takes the turn away from it for
 * good (`revoked`, then membarrier, then it waits until the owner is not inside), and from then on
 * all stand in line, first come, first served.
 *
 * The owner's way is there because a locked instruction keeps the core from overlapping one small
 * operation's end with the next one's beginning (docs/inside/tuning.md).
 */
#ifndef HOOP_TURN_H
#define HOOP_TURN_H

#include "base/error.h"
#include "base/list.h"
#include "runtime/wait.h"

struct hoop_turn {
    _Atomic uintptr_t owner; /* who need not stand in line; 0: nobody's yet */
    _Atomic uint32_t inside, revoked;
    pthread_mutex_t lock; /* over the rest */
    struct hoop_list_node line;
    bool held;      /* by one who stood in line */
    uint64_t moves; /* how often it changed hands, or who has it moved on */
};

/* Somebody's place in the line; his own until he has the turn. */
struct hoop_turn_place {
    struct hoop_list_node node;
    struct hoop_turn *turn;
    struct hoop_sleeper *sleeper; /* who is woken when it may be his turn */
    struct hoop_sleeper own;      /* its descriptor is there while he waits */
    _Atomic uint8_t sleeping;
    bool reserved;
    uint64_t moves, since_ns, patience_ns;
};

void hoop_turn_init(struct hoop_turn *turn);
/* Nobody has it, and nobody stands in line. */
void hoop_turn_finish(struct hoop_turn *turn);

/* Its address is who the calling thread is. */
extern _Thread_local char hoop_turn_mark __attribute__((tls_model("initial-exec")));

static inline uintptr_t hoop_turn_self(void)
{
    return (uintptr_t)&hoop_turn_mark;
}

/* The turn has no owner yet: is it me now? */
bool hoop_turn_claim(struct hoop_turn *turn);
/* Who has left wakes who is next. owned: he came by the owner's way. */
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

/* The owner's way; also makes the first who comes the owner. True: it is my turn. */
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
 * Everybody else's: gets in line, and polls until HOOP_OK, it is my turn; or HOOP_TIMEOUT, who has
 * it has not moved for patience_ms (0: that takes for ever). Either way the place is free again.
 */
void hoop_turn_queue(struct hoop_turn *turn, struct hoop_turn_place *place, uint64_t patience_ms);
hoop_result_t hoop_turn_poll(struct hoop_turn_place *place);

/*
 * A place for later: nobody needs to poll it before what it is for can begin, and who stands behind
 * it is patient until then. sleeper, borrowed, is woken when it may be its turn.
 */
void hoop_turn_reserve(struct hoop_turn *turn, struct hoop_turn_place *place,
                       struct hoop_sleeper *sleeper, uint64_t patience_ms);

/* Gives up a place that was not polled to its end. */
void hoop_turn_drop(struct hoop_turn_place *place);

/* Both ways in one. False: somebody has it, also this thread (a signal handler), or is in line. */
bool hoop_turn_try(struct hoop_turn *turn);
/* The same; waits. HOOP_OK or HOOP_TIMEOUT, as above. */
hoop_result_t hoop_turn_enter(struct hoop_turn *turn, uint64_t patience_ms);

/* Who has it has not been idle: the others' patience begins again. */
void hoop_turn_move(struct hoop_turn *turn);

#endif

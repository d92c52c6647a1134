/*
 * The turn (see turn.h): how a thread takes the owner's privilege away.
 *
 *   the owner enters                       another thread, first in line
 *   inside = 1                             revoked = 1
 *   (compiler barrier)                     membarrier: a full barrier on every running thread
 *   revoked? then inside = 0, in line      inside == 0? then it has the turn
 *
 *   the owner leaves
 *   inside = 0
 *   (compiler barrier)
 *   revoked? then wakes the first in line
 *
 * Either the owner sees `revoked`, or the other thread sees `inside`. If the membarrier comes
 * before the owner's store, the owner's load comes later still and sees `revoked`; if it comes
 * after the store, it makes the store visible.
 */
#include "comm/turn.h"

#include "base/clock.h"

#include <sys/eventfd.h>
#include <unistd.h>

void hoop_turn_init(struct hoop_turn *turn)
{
    pthread_mutex_init(&turn->lock, NULL);
    hoop_list_init(&turn->line);
}

void hoop_turn_finish(struct hoop_turn *turn)
{
    pthread_mutex_destroy(&turn->lock);
}

_Thread_local char hoop_turn_mark;

bool hoop_turn_claim(struct hoop_turn *turn)
{
    uintptr_t nobody = 0;
    return hoop_membarrier_ready() &&
           atomic_compare_exchange_strong(&turn->owner, &nobody, hoop_turn_self());
}

/* Under the lock. */
static void turn_wake_first(struct hoop_turn *turn)
{
    struct hoop_list_node *first = hoop_list_first(&turn->line);
    if (first != NULL && !turn->held) {
        const struct hoop_turn_place *place =
            HOOP_CONTAINER_OF(first, struct hoop_turn_place, node);
        if (atomic_load_explicit(place->sleeper->sleeping, memory_order_relaxed) != 0) {
            hoop_wake(place->sleeper->wake_fd);
        }
    }
}

void hoop_turn_pass(struct hoop_turn *turn, bool owned)
{
    pthread_mutex_lock(&turn->lock);
    if (!owned) {
        turn->held = false;
    }
    turn->moves++;
    turn_wake_first(turn);
    pthread_mutex_unlock(&turn->lock);
}

void hoop_turn_move(struct hoop_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->moves++;
    pthread_mutex_unlock(&turn->lock);
}

/* ---- In line -------------------------------------------------------------------------------- */

/* Revokes the owner's privilege. True: the owner is not inside, and stands in line from now on.
 * Under the lock. */
static bool turn_owner_is_out(struct hoop_turn *turn)
{
    if (atomic_load_explicit(&turn->revoked, memory_order_relaxed) == 0) {
        /* Pairs with the owner's store of `inside` before its load of `revoked`. */
        atomic_store(&turn->revoked, 1);
        hoop_membarrier();
    }
    return atomic_load_explicit(&turn->inside, memory_order_acquire) == 0;
}

static void turn_line_up(struct hoop_turn *turn, struct hoop_turn_place *place,
                         uint64_t patience_ms)
{
    place->turn = turn;
    place->since_ns = hoop_now_ns();
    place->patience_ns = patience_ms == 0 ? HOOP_NEVER : patience_ms * HOOP_NS_PER_MS;
    pthread_mutex_lock(&turn->lock);
    place->moves = turn->moves;
    hoop_list_push_back(&turn->line, &place->node);
    if (place->reserved) {
        (void)turn_owner_is_out(turn); /* later calls of the owner come behind this place */
    }
    pthread_mutex_unlock(&turn->lock);
}

void hoop_turn_queue(struct hoop_turn *turn, struct hoop_turn_place *place, uint64_t patience_ms)
{
    /* If there is no descriptor the thread sleeps for short times instead. */
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *place = (struct hoop_turn_place){
        .sleeper = &place->own,
        .own = {.poll_fd = fd, .wake_fd = fd, .sleeping = &place->sleeping},
    };
    turn_line_up(turn, place, patience_ms);
}

void hoop_turn_reserve(struct hoop_turn *turn, struct hoop_turn_place *place,
                       struct hoop_sleeper *sleeper, uint64_t patience_ms)
{
    *place = (struct hoop_turn_place){.sleeper = sleeper, .own = {.wake_fd = -1}, .reserved = true};
    turn_line_up(turn, place, patience_ms);
}

/* Under the lock. While a reserved place that does not have the turn is first, nobody counts as
 * stuck: what it waits for has deadlines of its own. */
static bool turn_is_stuck(struct hoop_turn_place *place)
{
    const struct hoop_turn *turn = place->turn;
    const struct hoop_turn_place *first =
        HOOP_CONTAINER_OF(turn->line.next, struct hoop_turn_place, node);
    const uint64_t now = hoop_now_ns();
    if (place->moves != turn->moves || (first->reserved && !turn->held)) {
        place->moves = turn->moves;
        place->since_ns = now;
    }
    return now - place->since_ns >= place->patience_ns;
}

/* Under the lock. */
static void turn_step_out(struct hoop_turn_place *place)
{
    hoop_list_remove(&place->node);
    turn_wake_first(place->turn);
}

static void turn_place_finish(struct hoop_turn_place *place)
{
    if (place->own.wake_fd >= 0) {
        close(place->own.wake_fd);
    }
}

hoop_result_t hoop_turn_poll(struct hoop_turn_place *place)
{
    struct hoop_turn *turn = place->turn;
    hoop_result_t result = HOOP_AGAIN;
    pthread_mutex_lock(&turn->lock);
    if (hoop_list_first(&turn->line) == &place->node && !turn->held && turn_owner_is_out(turn)) {
        turn->held = true;
        turn->moves++;
        result = HOOP_OK;
    } else if (turn_is_stuck(place)) {
        result = HOOP_TIMEOUT;
    }
    if (result != HOOP_AGAIN) {
        turn_step_out(place);
    }
    pthread_mutex_unlock(&turn->lock);
    if (result != HOOP_AGAIN) {
        turn_place_finish(place);
    }
    return result;
}

void hoop_turn_drop(struct hoop_turn_place *place)
{
    struct hoop_turn *turn = place->turn;
    pthread_mutex_lock(&turn->lock);
    turn_step_out(place);
    pthread_mutex_unlock(&turn->lock);
    turn_place_finish(place);
}

/* Takes the turn if no thread is inside or in line. */
static bool turn_take_at_once(struct hoop_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    const bool mine = hoop_list_is_empty(&turn->line) && !turn->held && turn_owner_is_out(turn);
    if (mine) {
        turn->held = true;
        turn->moves++;
    }
    pthread_mutex_unlock(&turn->lock);
    return mine;
}

static bool turn_try(struct hoop_turn *turn)
{
    return hoop_turn_take(turn) || turn_take_at_once(turn);
}

bool hoop_turn_try(struct hoop_turn *turn)
{
    const bool mine =
        atomic_load_explicit(&turn->owner, memory_order_relaxed) == hoop_turn_self() &&
        atomic_load_explicit(&turn->inside, memory_order_relaxed) != 0;
    return !mine && turn_try(turn);
}

struct turn_wait {
    struct hoop_turn_place place;
    hoop_result_t result;
};

static enum hoop_poll turn_wait_poll(void *arg, bool look)
{
    struct turn_wait *wait = arg;
    (void)look;
    wait->result = hoop_turn_poll(&wait->place);
    return wait->result == HOOP_AGAIN ? HOOP_POLL_IDLE : HOOP_POLL_DONE;
}

hoop_result_t hoop_turn_enter(struct hoop_turn *turn, uint64_t patience_ms)
{
    if (turn_try(turn)) {
        return HOOP_OK;
    }
    struct turn_wait wait = {.result = HOOP_AGAIN};
    struct hoop_sleeper *sleeper = &wait.place.own;
    const int before = hoop_cancel_off();
    hoop_turn_queue(turn, &wait.place, patience_ms);
    hoop_wait(&(struct hoop_wait){
        .poll = turn_wait_poll, .arg = &wait, .sleepers = &sleeper, .n_sleepers = 1});
    hoop_cancel_restore(before);
    return wait.result;
}

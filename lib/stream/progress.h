/*
 * Who moves what is queued: one thread at a time, the driver, moves all queues of the process,
 * taking each comm's turn like any other thread. The driver is
 *
 *   a waiter         a thread that waits for something queued and finds no driver, until that is
 *                    complete: so a call whose result is awaited at once costs no thread switch.
 *                    The progress thread leaves it 50 us for that
 *   a visitor        a thread that does not wait: it moves what it can at once, and leaves the rest
 *                    as a waiter would
 *   the progress     otherwise; it starts with the first stream, and sleeps while nothing is
 *   thread           queued or another thread drives
 *
 *      queue    idle --notify--> arrived --driver looks--> active --last item over--> idle
 *
 * One lock, which also guards all queues. It is taken before a comm's lock, and held only for list
 * operations.
 */
#ifndef HOOP_PROGRESS_H
#define HOOP_PROGRESS_H

#include "stream/queue.h"

/* Starts the progress thread if it is not running. */
hoop_result_t hoop_progress_start(void);

void hoop_progress_lock(void);
void hoop_progress_unlock(void);

/* What the driver sleeps on, for places in line. */
struct hoop_sleeper *hoop_progress_sleeper(void);

/* Work of this comm will be pushed: its ranks and CPUs decide how to wait. */
void hoop_progress_suit(const struct hoop_comm *comm);

/* Queues a piece that is on no host stream, after those that begin with the same comm. On failure
 * (no memory) its holders stay the caller's. *ret_refused: the failure, if none of its calls can
 * run. */
hoop_result_t hoop_progress_push(struct hoop_piece *piece, hoop_result_t *ret_refused);

/* Without the lock, when comm has ended: queued work on it that has not begun fails now, and no
 * more can be queued. */
void hoop_progress_drop(struct hoop_comm *comm);

/* hoop_region_free(), deferred while queued work uses the memory. Without the lock. */
hoop_result_t hoop_progress_free(void *ptr);

/* With the lock: something was pushed. */
void hoop_progress_notify(struct hoop_queue *queue);

/* With the lock: no thread will wait for what is queued, so the progress thread begins at once. */
void hoop_progress_hurry(void);

/* With the lock, which is released meanwhile: moves what it can at once, if there is no driver. */
void hoop_progress_look_in(void);

/* With the lock, which is released meanwhile: waits until *counter, of the queue, which must be
 * pinned, is at least `target`. HOOP_OK, or HOOP_TIMEOUT at the deadline. */
hoop_result_t hoop_progress_wait(struct hoop_queue *queue, const _Atomic uint64_t *counter,
                                 uint64_t target, uint64_t deadline_ns);

#endif

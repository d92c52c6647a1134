/*
 * Who moves what is queued. One thread at a time, the driver, moves all queues of the process,
 * taking each comm's turn like any other thread. The driver is
 *
 *   a waiting thread     that finds no driver, until what it waits for is complete: so a call whose
 *                        result is awaited at once costs no thread switch; the progress thread
 *                        leaves it 50 us for that
 *   a thread that looks  without waiting: it moves what it can at once, and leaves the rest
 *   the progress thread  otherwise; it starts with the first stream, and sleeps while nothing is
 *                        queued or another thread drives
 *
 *      queue    idle --notify--> arrived --driver looks--> active --last item over--> idle
 *
 * One lock, over all queues too. It is taken before a comm's, and held no longer than it takes to
 * change a list.
 */
#ifndef HOOP_PROGRESS_H
#define HOOP_PROGRESS_H

#include "stream/queue.h"

/* Starts the thread if it does not run. */
hoop_result_t hoop_progress_start(void);

void hoop_progress_lock(void);
void hoop_progress_unlock(void);

/* What the driver sleeps on: for places in line. */
struct hoop_sleeper *hoop_progress_sleeper(void);

/* What is pushed is of this comm: how to wait follows from its ranks and CPUs. */
void hoop_progress_suit(const struct hoop_comm *comm);

/* Queues a piece without a stream of the host, behind those that begin with the same comm. Its
 * holders stay the caller's on failure: no memory, or hoop_progress_refuse(). */
hoop_result_t hoop_progress_push(struct hoop_piece *piece);

/* With the lock: may a piece be pushed? Not behind hoop_progress_drop(): nobody would take it out
 * again. */
hoop_result_t hoop_progress_refuse(const struct hoop_piece *piece);

/* Without the lock: work on comm, which has ended, that is queued and has not begun fails now; none
 * is queued any more. */
void hoop_progress_drop(struct hoop_comm *comm);

/* hoop_region_free(), at once or, where work that is queued uses it, when that is over. No lock. */
hoop_result_t hoop_progress_free(void *ptr);

/* With the lock: something was pushed. */
void hoop_progress_notify(struct hoop_queue *queue);

/* With the lock: nobody comes to wait for what is queued, the thread is to begin at once. */
void hoop_progress_hurry(void);

/* With the lock, which is let go meanwhile: moves what can be moved at once, if nobody drives. */
void hoop_progress_look_in(void);

/*
 * With the lock, which is let go meanwhile: waits until *counter, of the queue, which is pinned, is
 * at least `target`. HOOP_OK, or HOOP_TIMEOUT at the deadline.
 */
hoop_result_t hoop_progress_wait(struct hoop_queue *queue, const _Atomic uint64_t *counter,
                                 uint64_t target, uint64_t deadline_ns);

#endif

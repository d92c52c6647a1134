/*
 * A stream from the inside: a queue of items that are done one after the other.
 *
 *      item   what it is                                   over when
 *      WORK   a piece of work: what one call or one group  its batch is
 *             put on the stream
 *      JOIN   the same piece, on the group's other         the piece is
 *             streams: none goes on before it is over
 *      WAIT   for a ticket of another stream               that is complete
 *
 *      items   [current] [ ] [ ] [ ]      tickets are counted at the item that they stand behind
 *               |  `--- reached, not begun: a JOIN is not there yet
 *               `------ begun: its batch is moved by the driver of progress.h
 *
 * A piece takes its places in the lines of its comms when it is queued, under the lock, so that all
 * that anything waits for was called before it: no circle of waiting within a process.
 *
 * Two parties. `lock` is the one of progress.h, which whoever calls a function here holds, but for
 * hoop_queue_poll() and what is said otherwise. The driver alone moves `current` and what is begun.
 */
#ifndef HOOP_QUEUE_H
#define HOOP_QUEUE_H

#include "staging/order.h"
#include "stream/batch.h"
#include "stream/tickets.h"

struct hoop_item {
    struct hoop_list_node node;
    enum { HOOP_ITEM_WORK, HOOP_ITEM_JOIN, HOOP_ITEM_WAIT } kind;
    struct hoop_piece *piece;  /* WORK: that it is the first member of; JOIN */
    struct hoop_queue *target; /* WAIT: pinned */
    uint64_t number;           /* WAIT: the ticket's */
    uint64_t tickets;          /* that stand behind it */
};

/* Work, and the memory for it. */
struct hoop_piece {
    struct hoop_item item;
    struct hoop_batch batch;
    struct hoop_stream_order
        *order; /* its own: streams of CUDA that are held until it is over; or NULL */
    /* Called when it is over, without the lock; NULL: nobody is to know. */
    void (*ended)(void *arg, const struct hoop_batch *batch);
    void *ended_arg;
    _Atomic uint32_t holders; /* items, and who waits for its result */
    uint32_t awaited;         /* streams that have not come to it */
    bool begun, over; /* written by the driver, under the lock; read by the driver, or under it */
    struct hoop_work work[];
};

struct hoop_queue {
    uint64_t uid;     /* handle.h gives it, once; 0: it has no handle, and ends when it is empty */
    uint64_t comm_id; /* it has no handle: it is for pieces that begin with this comm */
    pthread_cond_t changed;
    /* under the lock */
    struct hoop_list_node items;
    struct hoop_list_node active; /* progress.h */
    struct hoop_tickets tickets;
    uint64_t queued;          /* items ever */
    _Atomic uint64_t done;    /* of them; any thread may look */
    hoop_result_t failed;     /* first failure that hoop_stream_synchronize() has not told */
    struct hoop_failure *why; /* the last failure's sentence; NULL: none */
    uint32_t pins;            /* who looks at it without the lock, or waits for it */
    uint32_t waiting;         /* on `changed` */
    int fd;                   /* the user's eventfd; -1: not asked for */
    bool closing;             /* its handle is dead */
    /* the driver */
    struct hoop_item *current;
};

/* NULL: no memory. No lock. */
struct hoop_queue *hoop_queue_create(void);
/* Nothing is queued, nobody looks. Takes NULL. */
void hoop_queue_destroy(struct hoop_queue *queue);

/*
 * A copy of work, with what its requests own, for so many streams; NULL: no memory, and all of that
 * is freed. Holders: its item, and the caller if `kept`. No lock.
 */
struct hoop_piece *hoop_piece_create(const struct hoop_work *work, size_t count, uint32_t streams,
                                     bool kept);
/* One holder less. No lock. */
void hoop_piece_release(struct hoop_piece *piece);

/* JOIN (piece) or WAIT (target, number); NULL: no memory. No lock. */
struct hoop_item *hoop_item_create(struct hoop_piece *piece, struct hoop_queue *target,
                                   uint64_t number);

/* Puts it at the end. */
void hoop_queue_push(struct hoop_queue *queue, struct hoop_item *item);

/* A ticket behind all that is queued; complete at once where that is nothing. Its number. */
uint64_t hoop_queue_record(struct hoop_queue *queue);

/* The driver's: looks for the next item. False: there is none. */
bool hoop_queue_advance(struct hoop_queue *queue);

/* The driver's, without the lock: moves the current item. DONE: it is over. */
enum hoop_poll hoop_queue_poll(struct hoop_queue *queue, bool look);

/* The driver's, after DONE: takes the current item out, which is to be released then. */
struct hoop_item *hoop_queue_pop(struct hoop_queue *queue);
/* No lock. */
void hoop_item_release(struct hoop_item *item);

/* Takes all work on comm out that has not begun: it has failed with code. */
void hoop_queue_drop(struct hoop_queue *queue, const struct hoop_comm *comm, hoop_result_t code);

/* Is there work with a buffer that begins in [base, base+bytes)? */
bool hoop_queue_uses(const struct hoop_queue *queue, const void *base, uint64_t bytes);

/* HOOP_OK: all their comms take operations, as far as is known. No lock. */
hoop_result_t hoop_work_refuse(const struct hoop_work *work, size_t count);

/*
 * Their comms have failed with code, for what the thread's error says: nobody is to take for a
 * result what a stream goes on with, or to wait for what will not be called.
 */
void hoop_work_fail(const struct hoop_work *work, size_t count, hoop_result_t code);

/* A copy for each, with what requests own. False: no memory, and there is none. No lock. */
bool hoop_work_copy(const struct hoop_work *work, size_t count, struct hoop_work *ret);

/* Frees what requests own: transfers. No lock. */
void hoop_work_finish(const struct hoop_work *work, size_t count);

#endif

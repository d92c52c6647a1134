/*
 * The inside of a stream: a queue of items that are done one after the other.
 *
 *      item   what it is                                   over when
 *      WORK   a piece of work: what one call or one group  its batch is over
 *             put on the stream
 *      JOIN   the same piece, on the group's other         the piece is over
 *             streams: none goes on before it is over
 *      WAIT   for a ticket of another stream               the ticket is complete
 *
 *      items   [current] [ ] [ ] [ ]      tickets are counted at the item that they follow
 *               |  `--- reached, not begun: a JOIN is not there yet
 *               `------ begun: its batch is moved by the driver of progress.h
 *
 * A piece takes its places in the lines of its comms when it is queued, under the lock. So
 * everything waits only for earlier calls, and there are no circles of waiting within a process.
 *
 * `lock` means the lock of progress.h. Callers of the functions here hold it, except for
 * hoop_queue_poll() and where noted. Only the driver changes `current` and moves what has begun.
 */
#ifndef HOOP_QUEUE_H
#define HOOP_QUEUE_H

#include "staging/order.h"
#include "stream/batch.h"
#include "stream/tickets.h"

struct hoop_item {
    struct hoop_list_node node;
    enum { HOOP_ITEM_WORK, HOOP_ITEM_JOIN, HOOP_ITEM_WAIT } kind;
    struct hoop_piece *piece;  /* WORK: the piece that this item is the first member of; JOIN */
    struct hoop_queue *target; /* WAIT: pinned */
    uint64_t number;           /* WAIT: the ticket's */
    uint64_t tickets;          /* number of tickets that follow it */
};

/* Work, and the memory for it. */
struct hoop_piece {
    struct hoop_item item;
    struct hoop_batch batch;
    struct hoop_stream_order *order; /* CUDA streams that are held until it is over; or NULL */
    /* Called when it is over, without the lock; may be NULL. */
    void (*ended)(void *arg, const struct hoop_batch *batch);
    void *ended_arg;
    _Atomic uint32_t holders; /* its items, and a thread that waits for its result */
    uint32_t awaited;         /* streams that have not reached it */
    bool begun, over; /* written by the driver with the lock; read by it, or with the lock */
    struct hoop_work work[];
};

struct hoop_queue {
    uint64_t uid;     /* unique, from handle.h; 0: no handle, destroyed when it is empty */
    uint64_t comm_id; /* without a handle: of the comm with which its pieces begin */
    pthread_cond_t changed;
    /* Under the lock. */
    struct hoop_list_node items;
    struct hoop_list_node active; /* progress.h */
    struct hoop_tickets tickets;
    uint64_t queued;          /* number of items so far */
    _Atomic uint64_t done;    /* number of them that are over; any thread may read it */
    hoop_result_t failed;     /* first failure not yet returned by hoop_stream_synchronize() */
    struct hoop_failure *why; /* message of the last failure; NULL: none */
    uint32_t pins;            /* users without the lock, and waiters */
    uint32_t waiting;         /* threads that wait on `changed` */
    int fd;                   /* the user's eventfd; -1: none */
    bool closing;             /* its handle was destroyed */
    /* The driver's. */
    struct hoop_item *current;
};

/* NULL: no memory. Without the lock. */
struct hoop_queue *hoop_queue_create(void);
/* Nothing may be queued, and nobody may use it. Accepts NULL. */
void hoop_queue_destroy(struct hoop_queue *queue);

/*
 * Copies work, takes over what its requests own, for this number of streams. NULL: no memory, and
 * all that the requests own is freed. Holders: its item, and if `kept` the caller. Without the
 * lock.
 */
struct hoop_piece *hoop_piece_create(const struct hoop_work *work, size_t count, uint32_t streams,
                                     bool kept);
/* Removes a holder; the last one frees the piece. Without the lock. */
void hoop_piece_release(struct hoop_piece *piece);

/* A JOIN (piece), or a WAIT (piece NULL), whose target is still to be set; NULL: no memory. Without
 * the lock. */
struct hoop_item *hoop_item_create(struct hoop_piece *piece, uint64_t number);

/* Appends an item. */
void hoop_queue_push(struct hoop_queue *queue, struct hoop_item *item);

/* Records a ticket after all that is queued; if that is nothing it is complete. Its number. */
uint64_t hoop_queue_record(struct hoop_queue *queue);

/* For the driver: makes the next item current. False: there is none. */
bool hoop_queue_advance(struct hoop_queue *queue);

/* For the driver, without the lock: moves the current item. DONE: it is over. */
enum hoop_poll hoop_queue_poll(struct hoop_queue *queue, bool look);

/* For the driver, after DONE: removes the current item, which must then be released. */
struct hoop_item *hoop_queue_pop(struct hoop_queue *queue);
/* Without the lock. */
void hoop_item_release(struct hoop_item *item);

/* Removes all work on comm that has not begun: it has failed with code and the thread's error. */
void hoop_queue_drop(struct hoop_queue *queue, const struct hoop_comm *comm, hoop_result_t code);

/* Does any queued work have a buffer that begins in [base, base+bytes)? */
bool hoop_queue_uses(const struct hoop_queue *queue, const void *base, uint64_t bytes);

/* Copies work, and what requests own. False: no memory, and no copy is left. Without the lock. */
bool hoop_work_copy(const struct hoop_work *work, size_t count, struct hoop_work *ret);

/* Frees what requests own: transfers. Without the lock. */
void hoop_work_finish(const struct hoop_work *work, size_t count);

#endif

/*
 * A comm: its birth, its death, its failure. (Who drives it: driver.h. Whose turn it is: turn.h.)
 *
 * Death comes in two steps, each by whoever has the turn:
 *
 *      state       what there is                     next
 *      (birth)     the handle, then a join           living; tombstone or freed when it fails
 *      living      everything                        tombstone, by abort or destroy
 *      tombstone   the handle: turn, failure, name   freed, by destroy
 *
 * So a thread that is about to call finds a handle that answers, whatever another thread aborts.
 * Code that looks into a comm without the turn (state, inspection, abort's alarm) holds
 * `look_lock`, under which a living comm becomes a tombstone.
 *
 * A comm that is still being made in the background (config.blocking 0), or from which others are
 * being made so, is `pending`: it takes no operation until that is done (birth/birth.h).
 *
 * Failure. The first failure of any rank goes to the board, where all ranks of the machine see it;
 * each rank's driver then ends its operation, takes write access away from its peers, and keeps its
 * own sentence. What a dead rank had already delivered is used first: an operation fails only when
 * it cannot move. Each machine has a board of its own: the rank that claims the failure record of
 * its machine tells the other machines.
 */
#ifndef HOOP_COMM_H
#define HOOP_COMM_H

#include "comm/events.h"
#include "comm/links.h"
#include "comm/turn.h"
#include "exec/board.h"
#include "exec/engine.h"
#include "membership/membership.h"
#include "operation/history.h"
#include "operation/operation.h"
#include "runtime/wait.h"
#include "staging/ahead.h"

/* Why a comm takes no operation: it was finalized; a thread of hoop's own works on it. */
enum { HOOP_COMM_FINALIZED = 1, HOOP_COMM_PENDING = 2 };

struct hoop_comm {
    /* any thread */
    struct hoop_turn turn;
    _Atomic uint32_t waiting;  /* an operation runs */
    _Atomic int failed;        /* the code in `failure`, which was written before */
    _Atomic uint32_t closed;   /* to operations: bits, see below */
    _Atomic uint32_t pins;     /* others are made of it: what it consists of stays */
    _Atomic bool ending;       /* somebody waits for them to be done */
    _Atomic uint32_t captured; /* calls on it that graphs hold (device/capture.h) */
    /* threads that wait for calls on it which may use a device (device/launch.h) */
    _Atomic uint32_t awaited;
    struct hoop_failure failure;
    pthread_mutex_t look_lock;
    struct hoop_op *ops; /* [n_ops] that the user made (ops.h), under look_lock */
    uint32_t n_ops;
    uintptr_t *registered; /* [n_registered] handles of buffers, likewise */
    size_t n_registered;
    bool over;    /* a tombstone; written by who has the turn, under look_lock. `failed` is set */
    bool dropped; /* nothing is queued on it any more; under the lock of stream/progress.h */
    struct hoop_list_node node; /* in the list of all */
    uint64_t id;                /* in this process: the order in which groups enter */
    uint32_t rank, n;
    char name[HOOP_COMM_NAME_BYTES];
    struct hoop_events events;
    /* the driver */
    struct hoop_board board;
    struct hoop_engine *engine;
    struct hoop_operation operation;
    struct hoop_links links;
    struct hoop_history history;
    bool spans; /* several machines: others hear of failures by control connections only */
    struct hoop_spin spin; /* see struct hoop_wait; of 0 ns: ranks outnumber CPUs */
    bool spins;            /* of more; any thread, from the birth on */
    /* With fewer elements a call calls the system only in hoop_wait(). */
    uint64_t small_counts[HOOP_COLL_COUNT + 1];
    uint64_t op_timeout_ms, dead_after_ms;
    uint64_t job_id; /* the same of all its ranks: they are of one communicator */
    uint32_t here;   /* of them in this process */
    struct hoop_ahead ahead;
    char no_cma[160];     /* why plain memory of other processes is not read straight; "": it is */
    int device;           /* CUDA's current one at the birth; -1: none */
    uint64_t deadline_ns; /* of the running operation, in a group */
    uint64_t left_ns;     /* since when it waits for a rank that has left; 0: it does not */
    struct hoop_agreement agreed;
    struct hoop_sleeper sleeper;
    uint32_t splits;              /* made of it */
    uint32_t successor;           /* what it was shrunk to (struct hoop_survival); 0: it was not */
    _Atomic uint32_t invitations; /* to grow: made by this rank */
    /* birth */
    struct hoop_member *member; /* written under look_lock */
    struct hoop_job job;
    uint64_t init_timeout_ms;
    bool blocking;
    _Atomic bool ready;         /* it is laid out */
    pthread_mutex_t birth_lock; /* of the next */
    struct hoop_failure early;  /* that was heard before */
};

/* Options after defaults, settings and config have been merged. */
struct hoop_comm_options {
    struct hoop_rendezvous rendezvous;
    const struct hoop_lineage *lineage; /* borrowed; NULL: none */
    bool serve;
    uint32_t n, rank;
    uint64_t init_timeout_ms, op_timeout_ms, dead_after_ms;
    bool blocking;
    struct hoop_agreement agreed;
    char name[HOOP_COMM_NAME_BYTES];
};

/* Those by which it sleeps and is woken. */
void hoop_comm_close_descriptors(struct hoop_comm *comm);

/* The handle alone. */
hoop_result_t hoop_comm_create(struct hoop_comm **ret);
/* Calls fn for every handle that there is, oldest first; none is freed meanwhile. fn waits for
 * nothing. Any thread. */
void hoop_comm_each(void (*fn)(void *arg, struct hoop_comm *comm), void *arg);
/* As those who were born with it have them; rank and n are still to be said. */
void hoop_comm_inherit(const struct hoop_comm *comm, struct hoop_comm_options *ret);

/* It has been born, whatever became of it. Any thread. */
bool hoop_comm_is_ready(const struct hoop_comm *comm);
/* HOOP_OK: it can take operations, or will refuse them by its failure. HOOP_INVALID_USAGE: it is
 * being made, or is pending. Any thread. */
hoop_result_t hoop_comm_check_born(const struct hoop_comm *comm);
/* While it is pinned nothing of it is given back, so that others can be made of it. Any thread. */
void hoop_comm_pin(struct hoop_comm *comm, bool pin);
bool hoop_comm_is_pending(const struct hoop_comm *comm);
/* Takes it, if it is not pending; then nobody else works on it until the end. */
bool hoop_comm_begin_pending(struct hoop_comm *comm);
void hoop_comm_end_pending(struct hoop_comm *comm);
/* Its birth has failed with code and the thread's sentence: makes a tombstone of it. */
void hoop_comm_miscarry(struct hoop_comm *comm, hoop_result_t code);

/* No operation comes after it. HOOP_INVALID_USAGE: it was said before. HOOP_AGAIN: it does not
 * wait, and somebody is inside, or stands in line. */
hoop_result_t hoop_comm_say_goodbye(struct hoop_comm *comm, bool waits);

/*
 * In a forked child the two below do nothing; everything else here and in driver.h is refused.
 *
 * Makes a tombstone of it: waits for calls that are inside, says goodbye, gives back all but the
 * handle. HOOP_TIMEOUT: a call stays inside, for more than patience_ms (0: it is waited for).
 */
hoop_result_t hoop_comm_release(struct hoop_comm *comm, uint64_t patience_ms);
/* The same, and frees. Takes NULL and half-born ones. */
hoop_result_t hoop_comm_end(struct hoop_comm *comm);

/* How long somebody may be inside before he is taken for stuck; 0: for ever. */
uint64_t hoop_comm_patience_ms(const struct hoop_comm *comm);

/* Fails the comm on all ranks, unless it has failed. Any thread, any time before the end. */
void hoop_comm_raise(struct hoop_comm *comm, hoop_result_t code, int rank, const char *format, ...)
    HOOP_PRINTF(4, 5);

/* As its user ends it, "aborted" or "revoked": who has said goodbye ends nobody else's work. */
void hoop_comm_give_up(struct hoop_comm *comm, const char *how);

/* The first. Only the driver, or the service thread: while the comm can't become a tombstone. */
void hoop_comm_publish(struct hoop_comm *comm, const struct hoop_failure *failure);
/* The same; before the board is laid out it is kept until then. */
void hoop_comm_fail(struct hoop_comm *comm, const struct hoop_failure *failure);

/* HOOP_OK or the failure that ended the comm, with its sentence in *ret (may be NULL). Any thread;
 * does not wait. */
hoop_result_t hoop_comm_state(struct hoop_comm *comm, struct hoop_failure *ret);

/* The same in a process that has not forked; the caller has look_lock. */
hoop_result_t hoop_comm_look_state(const struct hoop_comm *comm, struct hoop_failure *ret);

/* The time that the cost model gives an operation. HOOP_INVALID_USAGE: the comm was aborted. */
hoop_result_t hoop_comm_estimate(struct hoop_comm *comm, const struct hoop_request *request,
                                 uint64_t *ret_ns);

/* Has rank said goodbye? arg is the comm. Driver, or service thread. */
bool hoop_comm_left(void *arg, uint32_t rank);
/* The same, and how: see hoop_member_events. */
uint32_t hoop_comm_how_left(void *arg, uint32_t rank);

#endif

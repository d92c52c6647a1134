/*
 * A comm: its birth, its death, its failure. (Who drives it: driver.h. Whose turn it is: turn.h.)
 *
 * A comm ends in two steps; the thread that takes each of them has the turn:
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

/* Bits of hoop_comm.closed: it was finalized; it is being made, or others are made of it. */
enum { HOOP_COMM_FINALIZED = 1, HOOP_COMM_PENDING = 2 };

struct hoop_comm {
    /* any thread */
    struct hoop_turn turn;
    _Atomic uint32_t waiting;  /* an operation runs */
    _Atomic int failed;        /* the code in `failure`, which was written before */
    _Atomic uint32_t closed;   /* why it takes no operation: the bits above; 0: it takes them */
    _Atomic uint32_t pins;     /* births that use it: until they end nothing of it is freed */
    _Atomic bool ending;       /* a thread waits for the pins to be gone */
    _Atomic uint32_t captured; /* calls on it that graphs hold (device/capture.h) */
    /* calls on it that threads wait for and that may use a device (device/launch.h) */
    _Atomic uint32_t awaited;
    struct hoop_failure failure;
    pthread_mutex_t look_lock;
    struct hoop_op *ops; /* [n_ops] operations that the user made (ops.h); under look_lock */
    uint32_t n_ops;
    uintptr_t *registered; /* [n_registered] handles of registered buffers; under look_lock */
    size_t n_registered;
    bool over;    /* a tombstone, and `failed` is set; written with the turn, under look_lock */
    bool dropped; /* nothing may be queued on it; under the lock of stream/progress.h */
    struct hoop_list_node node; /* in the list of all comms */
    uint64_t id;                /* unique in this process; groups take turns in this order */
    uint32_t rank, n;
    char name[HOOP_COMM_NAME_BYTES];
    struct hoop_events events;
    /* only the driver */
    struct hoop_board board;
    struct hoop_engine *engine;
    struct hoop_operation operation;
    struct hoop_links links;
    struct hoop_history history;
    bool spans; /* several machines, which hear of failures by control connections only */
    struct hoop_spin spin; /* see struct hoop_wait; 0 ns if ranks outnumber CPUs */
    bool spins;            /* spin is not 0 ns; constant after the birth, any thread */
    /* With fewer elements a call makes system calls only in hoop_wait(). */
    uint64_t small_counts[HOOP_COLL_COUNT + 1];
    uint64_t op_timeout_ms, dead_after_ms;
    uint64_t job_id; /* identifies the communicator: the same on all its ranks */
    uint32_t here;   /* ranks of the communicator in this process */
    struct hoop_ahead ahead;
    char no_cma[160];     /* why plain memory of other processes can't be read (cma); "": it can */
    int device;           /* the current CUDA device at the birth; -1: none */
    uint64_t deadline_ns; /* of the running operation, if a batch moves the comm */
    uint64_t left_ns;     /* since when it waits for a rank that has left; 0: it does not */
    struct hoop_agreement agreed;
    struct hoop_sleeper sleeper;
    uint32_t splits;              /* how many splits were made of it */
    uint32_t successor;           /* what it was shrunk to (struct hoop_survival); 0: nothing */
    _Atomic uint32_t invitations; /* how many ids this rank made to grow it */
    /* birth */
    _Atomic(struct hoop_member *) member; /* set before its first event; NULL: none */
    struct hoop_job job;
    uint64_t init_timeout_ms;
    bool blocking;
    _Atomic bool ready;           /* all of the above is in place; written under look_lock */
    struct hoop_failure unusable; /* a setting with which it joins only to tell the others */
    struct hoop_failure early;    /* its user ended it before that; under look_lock */
};

/* Options after defaults, settings and config have been merged. */
struct hoop_comm_options {
    struct hoop_join join; /* all but what hoop_comm_begin() adds: what this process can do */
    int device;            /* of a join: the CUDA device's number; -1: the one that is current */
    uint64_t op_timeout_ms;
    bool blocking;
    char name[HOOP_COMM_NAME_BYTES];
    const struct hoop_failure *unusable; /* see hoop_comm; borrowed until it has begun; or NULL */
};

/* Closes the descriptors by which the driver sleeps and is woken. */
void hoop_comm_close_descriptors(struct hoop_comm *comm);

/* Makes the handle, and nothing else yet. */
hoop_result_t hoop_comm_create(struct hoop_comm **ret);
/* Is this the handle of a comm that was not destroyed? Any pointer. Any thread; slow. */
bool hoop_comm_exists(const struct hoop_comm *comm);
/* Calls fn for every handle of the process, oldest first; none is freed meanwhile. fn must not
 * wait. Any thread. */
void hoop_comm_each(void (*fn)(void *arg, struct hoop_comm *comm), void *arg);
/* Fills in the options of a comm that is made of this one, all but rank and n. */
void hoop_comm_inherit(const struct hoop_comm *comm, struct hoop_comm_options *ret);

/* Its birth is complete, even if it has failed or ended since. Any thread. */
bool hoop_comm_is_ready(const struct hoop_comm *comm);
/* HOOP_INVALID_USAGE: it is pending, so it takes no operation. HOOP_OK: it takes operations, or
 * refuses them because it has failed. Any thread. */
hoop_result_t hoop_comm_check_born(const struct hoop_comm *comm);
/* HOOP_INVALID_USAGE: it is pending, or was finalized: to call an operation is a mistake. Any
 * thread. */
hoop_result_t hoop_comm_check_open(const struct hoop_comm *comm);
/* HOOP_OK: it takes operations, as far as is known. Otherwise says why it has failed, or what
 * hoop_comm_check_open() says. Any thread. */
hoop_result_t hoop_comm_refuse(struct hoop_comm *comm);
/* Adds or removes a pin. While a comm is pinned nothing of it is freed: others are being made of
 * it. Any thread. */
void hoop_comm_pin(struct hoop_comm *comm, bool pin);
bool hoop_comm_is_pending(const struct hoop_comm *comm);
/* Makes it pending, unless it is already (false). The caller alone works on it until
 * hoop_comm_end_pending(). */
bool hoop_comm_begin_pending(struct hoop_comm *comm);
void hoop_comm_end_pending(struct hoop_comm *comm);
/* Its birth has failed, with code and the calling thread's error text: makes a tombstone of it. */
void hoop_comm_miscarry(struct hoop_comm *comm, hoop_result_t code);

/* Tells the other ranks that this one calls no more operations. HOOP_INVALID_USAGE: that was said
 * before. HOOP_AGAIN, only without waits: another thread is inside the comm, or stands in line. */
hoop_result_t hoop_comm_say_goodbye(struct hoop_comm *comm, bool waits);

/*
 * In a forked child the two functions below do nothing; everything else here and in driver.h is
 * refused.
 *
 * Makes a tombstone of the comm: waits for calls that are inside, says goodbye, and frees all but
 * the handle. HOOP_TIMEOUT: a call was still inside after patience_ms (0: no limit), and nothing
 * was freed.
 */
hoop_result_t hoop_comm_release(struct hoop_comm *comm, uint64_t patience_ms);
/* The same, and frees the handle. Accepts NULL, and comms whose birth is not complete. */
hoop_result_t hoop_comm_end(struct hoop_comm *comm);

/* How long a thread inside the comm may not move before it counts as stuck; 0: no limit. */
uint64_t hoop_comm_patience_ms(const struct hoop_comm *comm);

/* Fails the comm on all ranks, unless it has failed already. Any thread, until its end. */
void hoop_comm_raise(struct hoop_comm *comm, hoop_result_t code, int rank, const char *format, ...)
    HOOP_PRINTF(4, 5);

/* Fails the comm because its user has ended it; how: "aborted" or "revoked". Does nothing if this
 * rank has said goodbye: the others go on. */
void hoop_comm_give_up(struct hoop_comm *comm, const char *how);

/* Publishes a failure to all ranks, unless another was first. Only by the driver, or by the service
 * thread once all ranks are in, while the comm can't become a tombstone. */
void hoop_comm_publish(struct hoop_comm *comm, const struct hoop_failure *failure);

/* HOOP_OK, or the code of the failure that ended the comm, with its sentence in *ret (may be NULL).
 * Any thread; does not wait. */
hoop_result_t hoop_comm_state(struct hoop_comm *comm, struct hoop_failure *ret);

/* The same with look_lock held, and not in a forked child. */
hoop_result_t hoop_comm_look_state(const struct hoop_comm *comm, struct hoop_failure *ret);

/* How long an operation takes by the cost model. HOOP_INVALID_USAGE: the comm was aborted. */
hoop_result_t hoop_comm_estimate(struct hoop_comm *comm, const struct hoop_request *request,
                                 uint64_t *ret_ns);

/* For calls whose arguments are checked against n: refuses a comm while n is not known, and one
 * whose birth failed before it was. */
static inline hoop_result_t hoop_comm_check_sized(struct hoop_comm *comm)
{
    return __builtin_expect(comm->n != 0, 1) ? HOOP_OK : hoop_comm_refuse(comm);
}

/* Has the rank said goodbye? arg is the comm. Driver or service thread. */
bool hoop_comm_left(void *arg, uint32_t rank);
/* The same, and in which way: see struct hoop_member_events. */
uint32_t hoop_comm_how_left(void *arg, uint32_t rank);

#endif

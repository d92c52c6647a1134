/*
 * Waiting: this is the only place that waits; everything else polls.
 *
 *   tier     how                                        when
 *   spin     poll, pause                                ranks fit the CPUs: at most HOOP_SPIN_US
 *   yield    poll, sched_yield                          then; at once where they do not fit
 *   sleep    poll(2) on the comm's descriptor           after HOOP_SLEEP_AFTER_US; at once in
 *                                                       waits with no_yield
 *
 * The spin adapts, because ranks that fit the CPUs by number may still share one with each other or
 * with strangers. A spin in vain, when the first yields ended the wait, halves the next one; a spin
 * that met its event doubles it again.
 *
 * Two ranks that hand one CPU to each other by yields, beside an idle one, may stay so for a whole
 * run: neither sleeps, and the kernel leaves a thread that has just run where its cache is. So a
 * rank that has had several waits in a row ended by their first yield moves to another CPU, if one
 * is idle and the thread is not bound; then not again for a while, which grows if moving did not
 * help.
 *
 * Nobody wakes a thread that awaits a word written by a device. It naps instead of sleeping: for a
 * small fraction of the time that it has waited so far, so that it is late by no more.
 *
 * The sleeper pays for the race between sleeping and publishing: it sets `sleeping`, runs
 * membarrier, and looks once more; publishers only load. If membarrier is missing, publishers fence
 * (hoop_roster.need_fence). If it stops working later, the sleeper waits for a moment instead, and
 * logs that.
 */
#ifndef HOOP_WAIT_H
#define HOOP_WAIT_H

#include "base/error.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What a poll did. */
enum hoop_poll {
    HOOP_POLL_DONE, /* finished: the result is in the failure (code HOOP_OK: success) */
    HOOP_POLL_BUSY, /* something moved: poll again at once */
    HOOP_POLL_IDLE  /* nothing to do until another rank or thread does something */
};

/* Moves what can be moved; never waits. DONE: stop waiting. look: also check whether there is still
 * something to wait for; set only now and then, so that spinning is fast. */
typedef enum hoop_poll hoop_poll_fn(void *arg, bool look);

/* How one comm is put to sleep and woken. */
struct hoop_sleeper {
    int poll_fd;               /* readable when there is something to poll for */
    int wake_fd;               /* an eventfd, drained by the waiter: poll_fd or in its epoll set */
    bool has_sockets;          /* poll_fd is an epoll set with sockets, edge-triggered */
    bool naps;                 /* nothing wakes it when its event comes: it looks again soon */
    _Atomic uint8_t *sleeping; /* 1 while asleep: the publisher that clears it wakes it */
};

/* What the waits of one comm have learned; only for its driver. */
struct hoop_spin {
    uint64_t ns;            /* how long to spin */
    uint32_t handed;        /* consecutive waits that ended with the first yield */
    uint64_t calm_until_ns; /* earliest time for the next move: calm_ns after the last one */
    uint64_t calm_ns;
};

struct hoop_wait {
    hoop_poll_fn *poll;
    void *arg;
    /* [n_sleepers]; none: it yields instead of sleeping. A poll may change them. NULL: nobody; a
     * negative poll_fd: somebody whom nothing wakes. */
    struct hoop_sleeper *const *sleepers;
    uint32_t n_sleepers;
    struct hoop_spin *spin; /* adapted by each wait; NULL: no spinning */
    bool no_yield;          /* sleeps right after spinning */
    uint64_t timeout_ms;    /* 0: none. The clock starts when spinning ends */
};

/* Polls until DONE (HOOP_OK), or HOOP_TIMEOUT: at the deadline it polls until nothing moves. */
hoop_result_t hoop_wait(const struct hoop_wait *wait);

/* Polls, with look, until nothing moves: DONE or IDLE. */
enum hoop_poll hoop_poll_out(hoop_poll_fn *poll_fn, void *arg);

/* Condition variables, for conditions of the caller. Waits until woken, perhaps spuriously; false:
 * deadline_ns has passed. The lock is held before and after. */
void hoop_cond_init(pthread_cond_t *cond);
bool hoop_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

/* A result that one thread waits for and another delivers, once. */
struct hoop_job {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool complete;
    struct hoop_failure failure; /* code HOOP_OK: success */
};
void hoop_job_init(struct hoop_job *job);
void hoop_job_finish(struct hoop_job *job);
/* failure NULL: success. It is copied. The job may be gone when this returns. */
void hoop_job_complete(struct hoop_job *job, const struct hoop_failure *failure);
/* The same where it may have been completed already: *job is then NULL, and becomes NULL. */
static inline void hoop_job_complete_once(struct hoop_job **job, const struct hoop_failure *failure)
{
    struct hoop_job *its = *job;
    *job = NULL;
    if (its != NULL) {
        hoop_job_complete(its, failure);
    }
}
/* Waits for a job. Returns its result, with the message in *ret (may be NULL). HOOP_TIMEOUT: the
 * deadline has passed, and the job is still borrowed. */
hoop_result_t hoop_job_wait(struct hoop_job *job, uint64_t deadline_ns, struct hoop_failure *ret);

/* For a caller that polls something in a loop: gives the CPU to the threads that work on it. */
void hoop_wait_yield(void);

/* Waits a moment, for a rank that must give another process time to leave. */
void hoop_wait_briefly(void);

/* Wakes the sleeper on this eventfd. Any thread; never a cancellation point. */
void hoop_wake(int wake_fd);

/* No function of the library is a cancellation point, because a thread that is cancelled inside
 * would leave its locks behind. hoop_wait() and hoop_job_wait() disable cancellation themselves. */
int hoop_cancel_off(void);
void hoop_cancel_restore(int before);

/* The CPUs that a rank may use. */
struct hoop_cpus {
    uint64_t set;     /* a digest of which CPUs, of which kernel; 0: a quota says only how many */
    uint32_t count;   /* at least 1 */
    uint32_t local_n; /* ranks on its machine, as its launcher told it; 0: unknown */
};

/* Those of the calling thread: its affinity, limited by its cgroup's quota. */
struct hoop_cpus hoop_cpus_usable(uint32_t local_n);

/*
 * If ranks (those of one machine and others that may use the same CPUs) outnumber their CPUs: how
 * many of these n share one, rounded up. Else 0. If all name the same CPUs, these are shared by
 * all; else a launcher has bound the ranks to sets that do not overlap, which are added up.
 * Reorders the array.
 */
uint32_t hoop_cpus_shared_by(struct hoop_cpus *ranks, uint32_t n);

/* A full barrier on every running thread of every registered process, or just on the caller. */
void hoop_membarrier(void);

/* Does membarrier work? Registers this process for it. Any thread; fast after the first call. */
bool hoop_membarrier_ready(void);

#endif

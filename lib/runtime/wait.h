/*
 * Waiting: the only place that does. (Everything else polls.)
 *
 *   tier     how                                        when
 *   spin     poll, pause                                ranks fit the CPUs: at most HOOP_SPIN_US
 *   yield    poll, sched_yield                          then; at once where they do not fit
 *   sleep    poll(2) on the comm's descriptor           after HOOP_SLEEP_AFTER_US; at once where
 *                                                       the wait is one that never yields
 *
 * The spin adapts: ranks may fit the CPUs by number, and yet share one with each other or with
 * strangers. A spin that was in vain, ended by the first yields, halves the next; one that met its
 * event doubles it again.
 *
 * Two ranks that hand one CPU to each other by yields, beside an idle one, may stay so for a whole
 * run: neither sleeps, and what has just run the kernel leaves where its cache is. So who has had
 * several waits in a row ended by their first yield moves to another CPU, if one is idle and
 * nothing binds it; and not again for a while, the longer the less it helped.
 *
 * Who awaits a word that a device writes is woken by nobody, and naps in place of sleeping: for a
 * small part of the time that it has waited, so that it is late by no more.
 *
 * The sleeper pays for the race: it sets `sleeping`, runs membarrier, and looks once more;
 * publishers only load. Where membarrier is missing, publishers fence (hoop_roster.need_fence);
 * where it goes missing later, the sleeper waits a moment instead, which is logged.
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
    HOOP_POLL_DONE, /* finished: the result is in the failure (code HOOP_OK: well) */
    HOOP_POLL_BUSY, /* something moved: poll again at once */
    HOOP_POLL_IDLE  /* nothing to do until a peer does something */
};

/*
 * Moves what can be moved; never waits. DONE: stop waiting. look: see also whether there is still
 * something to wait for; asked for now and then, so that spinning is quick.
 */
typedef enum hoop_poll hoop_poll_fn(void *arg, bool look);

/* How one comm is put to sleep and woken. */
struct hoop_sleeper {
    int poll_fd;               /* readable when there is something to poll for */
    int wake_fd;               /* an eventfd, drained by the waiter: poll_fd, or in that set */
    bool has_sockets;          /* poll_fd is an epoll set: sockets are in it, edge-triggered */
    bool naps;                 /* nothing wakes it from what it awaits: it looks again soon */
    _Atomic uint8_t *sleeping; /* 1 while asleep: the publisher who clears it wakes */
};

/* What the waits of one comm have learned: its driver's. */
struct hoop_spin {
    uint64_t ns;            /* to spin */
    uint32_t handed;        /* waits in a row that the first yield ended */
    uint64_t calm_until_ns; /* does not move again before that, which is so much after the last */
    uint64_t calm_ns;
};

struct hoop_wait {
    hoop_poll_fn *poll;
    void *arg;
    /* [n_sleepers]; none: yields instead of sleeping. A poll may change them: NULL is nobody, a
     * negative poll_fd somebody whom nothing wakes. */
    struct hoop_sleeper *const *sleepers;
    uint32_t n_sleepers;
    struct hoop_spin *spin; /* what each wait adapts; NULL: it does not spin at all */
    bool no_yield;          /* sleeps when it has spun */
    uint64_t timeout_ms;    /* 0: none. The clock starts when the spinning ends */
};

/* Polls until DONE (HOOP_OK) or the deadline (HOOP_TIMEOUT): then once more until nothing moves. */
hoop_result_t hoop_wait(const struct hoop_wait *wait);

/* Polls, with look, until nothing moves: DONE or IDLE. */
enum hoop_poll hoop_poll_out(hoop_poll_fn *poll_fn, void *arg);

/*
 * Condition variables: what is done and what wakes is the caller's. Waits until woken, perhaps for
 * nothing; false: deadline_ns has passed. The lock is held before and after.
 */
void hoop_cond_init(pthread_cond_t *cond);
bool hoop_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

/* A result that one thread waits for and another delivers, once. */
struct hoop_job {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool complete;
    struct hoop_failure failure; /* code HOOP_OK: it worked */
};
void hoop_job_init(struct hoop_job *job);
void hoop_job_finish(struct hoop_job *job);
/* failure NULL: it worked. Copied. The job may be gone when this returns. */
void hoop_job_complete(struct hoop_job *job, const struct hoop_failure *failure);
/* The same for who may have done so: *job is NULL then, and from now on. */
static inline void hoop_job_complete_once(struct hoop_job **job, const struct hoop_failure *failure)
{
    struct hoop_job *its = *job;
    *job = NULL;
    if (its != NULL) {
        hoop_job_complete(its, failure);
    }
}
/* Waits for a job; its result, with the sentence in *ret (may be NULL). HOOP_TIMEOUT: the deadline
 * passed and the job is still borrowed. */
hoop_result_t hoop_job_wait(struct hoop_job *job, uint64_t deadline_ns, struct hoop_failure *ret);

/* For who asks in a loop whether something is over: those who do it get the CPU first. */
void hoop_wait_yield(void);

/* Lets a moment pass, for a rank that must give another process time to leave. */
void hoop_wait_briefly(void);

/* Wakes whoever sleeps on this eventfd. Any thread, never a cancellation point. */
void hoop_wake(int wake_fd);

/*
 * No function of the library is a cancellation point: a thread that went away inside would leave
 * what it holds behind. hoop_wait() and hoop_job_wait() see to it themselves.
 */
int hoop_cancel_off(void);
void hoop_cancel_restore(int before);

/* The CPUs that a rank may use. */
struct hoop_cpus {
    uint64_t set;   /* which, of all kernels': a digest, the same for the same ones; 0: a quota says
                     * only how many */
    uint32_t count; /* at least 1 */
    uint32_t local_n; /* ranks on its machine that a launcher told it of; 0: it was told of none */
};

/* The calling thread's: its affinity, cut by the quota of its cgroup. */
struct hoop_cpus hoop_cpus_usable(uint32_t local_n);

/*
 * Do ranks, those of one machine and others that may use the same CPUs, outnumber them? Where all
 * may use the same ones, these are all; else a launcher has bound them, and to different ones that
 * do not overlap. Reorders.
 */
bool hoop_cpus_are_few(struct hoop_cpus *ranks, uint32_t n);

/* A full barrier on every running thread of every process that registered; where membarrier does
 * not work, on the caller only. */
void hoop_membarrier(void);

/* True if membarrier works here; registers this process for it. Any thread, cheap after once. */
bool hoop_membarrier_ready(void);

#endif

/* Waiting (see wait.h). Nothing else in the library sleeps, yields or blocks, except the event loop
 * of the service thread. */
#include "runtime/wait.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "runtime/process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

/* First polls, without a pause: so a peer that is on time is seen without the pause's 50-odd ns. */
#define WAIT_EAGER_POLLS 64u
/*
 * Polls between two looks at the clock while spinning, and between two polls with `look` while
 * there is work. With sockets a poll takes longer than reading the clock, so it is read after each.
 */
#define WAIT_SPINS_PER_LOOK 32u
/* Polls that move something, after which the deadline is watched during work, too. */
#define WAIT_BUSY_POLLS 1024u
/* The shortest spin that adapting leaves: about one exchange of cache lines. */
#define WAIT_SPIN_LEAST_NS 500u
/* Most descriptors that a sleep watches; with more it is kept short. */
#define WAIT_MAX_FDS 64u
/* Waits in a row that ended with their first yield, after which the thread moves. */
#define WAIT_HANDED_MOST 8u
/* Then not again for this time, which doubles if the move did not help. */
#define WAIT_CALM_LEAST_NS (HOOP_NS_PER_MS / 16)
#define WAIT_CALM_MOST_NS HOOP_NS_PER_S
/* Longest sleep: limits the cost of a lost wake-up, which should not happen. */
#define WAIT_SLICE_MS 100
/* A nap is a 16th of the time waited so far, from 15 to 50 us, or a 256th, 1 ms at most. Each takes
 * some 4 us of CPU time. */
#define WAIT_NAP_FIRST_NS (15 * HOOP_NS_PER_MS / 1000)
#define WAIT_NAP_SOON_NS (HOOP_NS_PER_MS / 20)
#define WAIT_NAP_MOST_NS HOOP_NS_PER_MS
/* Sets of 1024 CPUs each, for as many as a kernel may have: it refuses to name its CPUs in fewer.
 */
#define WAIT_CPU_SETS 16

static int wait_membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* ---- membarrier ----------------------------------------------------------------------------- */

/* LOST: it worked before, and others rely on it. */
enum { MEMBARRIER_MISSING, MEMBARRIER_WORKS, MEMBARRIER_LOST };

static pthread_once_t membarrier_once = PTHREAD_ONCE_INIT;
static _Atomic int membarrier_state;

static void membarrier_register(void)
{
    membarrier_state = wait_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0
                           ? MEMBARRIER_WORKS
                           : MEMBARRIER_MISSING;
}

bool hoop_membarrier_ready(void)
{
    pthread_once(&membarrier_once, membarrier_register);
    return atomic_load_explicit(&membarrier_state, memory_order_relaxed) == MEMBARRIER_WORKS;
}

/* A seccomp filter must have come later. */
static void membarrier_lose(int err)
{
    if (atomic_exchange(&membarrier_state, MEMBARRIER_LOST) != MEMBARRIER_LOST) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT,
                 "membarrier() worked and now fails: %s (a seccomp filter?); from now on every "
                 "sleep and every change of threads waits 0.1 ms instead",
                 hoop_errno_name(err));
    }
}

void hoop_membarrier(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (hoop_membarrier_ready() && wait_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0) {
        membarrier_lose(errno);
    }
    if (atomic_load_explicit(&membarrier_state, memory_order_relaxed) == MEMBARRIER_LOST) {
        /* No core delays a store for as long as that. */
        hoop_wait_briefly();
    }
}

/* ---- CPUs ----------------------------------------------------------------------------------- */

/* FNV-1a. */
static uint64_t wait_digest(uint64_t digest, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < count; i++) {
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return digest;
}

/* Identifies the running kernel: by its boot id, or else its host name. */
static uint64_t wait_kernel(void)
{
    char boot[64] = "";
    struct utsname names = {.nodename = ""};
    if (!hoop_process_read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot))) {
        (void)uname(&names);
    }
    const uint64_t digest = wait_digest(UINT64_C(0xcbf29ce484222325), boot, strlen(boot));
    return wait_digest(digest, names.nodename, strlen(names.nodename));
}

static pthread_once_t cpus_once = PTHREAD_ONCE_INIT;
static uint32_t cpus_of_cgroup;
static uint64_t cpus_kernel;

static void cpus_read(void)
{
    cpus_of_cgroup = hoop_process_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    cpus_kernel = wait_kernel();
}

struct hoop_cpus hoop_cpus_usable(uint32_t local_n)
{
    const size_t bytes = WAIT_CPU_SETS * sizeof(cpu_set_t);
    cpu_set_t *allowed = malloc(bytes); /* the caller's stack may be small */
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    struct hoop_cpus ret = {.count = online > 0 ? (uint32_t)online : 1, .local_n = local_n};
    pthread_once(&cpus_once, cpus_read);
    if (allowed != NULL && sched_getaffinity(0, bytes, allowed) == 0) {
        ret.count = (uint32_t)CPU_COUNT_S(bytes, allowed);
        ret.set = wait_digest(cpus_kernel, allowed, bytes);
    }
    free(allowed);
    if (cpus_of_cgroup < ret.count) {
        ret.count = cpus_of_cgroup;
        ret.set = 0;
    }
    return ret;
}

static int wait_compare_cpus(const void *a, const void *b)
{
    const struct hoop_cpus *left = a, *right = b;
    return (left->set > right->set) - (left->set < right->set);
}

uint32_t hoop_cpus_shared_by(struct hoop_cpus *ranks, uint32_t n)
{
    uint64_t cpus = 0;
    uint32_t told = n;
    qsort(ranks, n, sizeof(*ranks), wait_compare_cpus);
    for (uint32_t i = 0; i < n; i++) {
        cpus += i == 0 || ranks[i].set != ranks[i - 1].set ? ranks[i].count : 0;
        told = ranks[i].local_n > told ? ranks[i].local_n : told;
    }
    /* nobody knows the CPUs of ranks that are not in the array */
    const bool few = (ranks[0].set == ranks[n - 1].set ? told : n) > cpus;
    return !few ? 0 : cpus > 0 ? (uint32_t)((n + cpus - 1) / cpus) : n;
}

/* ---- Two threads on one CPU ----------------------------------------------------------------- */

/* Number of runnable threads of the whole system, this one included; 0: unknown. */
static long wait_runnable(void)
{
    char text[128] = "";
    const int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0) {
        close(fd);
    }
    const char *at = got > 0 ? strchr(text, '/') : NULL; /* 0.08 0.03 0.01 2/345 678 */
    while (at != NULL && at > text && at[-1] != ' ') {
        at--;
    }
    return at != NULL ? strtol(at, NULL, 10) : 0;
}

/* If there are no more of them than CPUs, and yet two share a CPU, another CPU is idle. */
static bool wait_has_idle_cpu(int online)
{
    const long runnable = wait_runnable();
    return runnable > 0 && runnable <= online;
}

/* Moves to another CPU, if one is idle and this thread is bound to none. Its affinity is then all
 * CPUs of its container's cpuset, and is so again afterwards. */
static void wait_move(void)
{
    cpu_set_t all, others;
    const int cpu = sched_getcpu();
    const int online = get_nprocs();
    if (cpu < 0 || online < 2 || sched_getaffinity(0, sizeof(others), &others) != 0 ||
        CPU_COUNT(&others) != online || !wait_has_idle_cpu(online)) {
        return;
    }
    CPU_CLR(cpu, &others);
    memset(&all, 0xff, sizeof(all));
    if (sched_setaffinity(0, sizeof(others), &others) == 0) {
        (void)sched_setaffinity(0, sizeof(all), &all);
    }
}

/*
 * After a wait that ended with its first yield: the awaited thread has just left this CPU and stays
 * on another one, as nobody is there to yield to. If both threads moved before they yield, as soon
 * as each has had so many waits, they would meet again on the other CPU.
 */
static void wait_part(struct hoop_spin *spin)
{
    const uint64_t now = hoop_now_ns();
    if (now < spin->calm_until_ns) {
        return;
    }
    const bool helped = now - spin->calm_until_ns > 8 * spin->calm_ns;
    const uint64_t twice = helped ? 0 : 2 * spin->calm_ns;
    spin->calm_ns = twice < WAIT_CALM_LEAST_NS  ? WAIT_CALM_LEAST_NS
                    : twice > WAIT_CALM_MOST_NS ? WAIT_CALM_MOST_NS
                                                : twice;
    spin->calm_until_ns = now + spin->calm_ns;
    spin->handed = 0;
    wait_move();
}

/* ---- Waiting -------------------------------------------------------------------------------- */

int hoop_cancel_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

void hoop_cancel_restore(int before)
{
    pthread_setcancelstate(before, &before);
}

void hoop_wake(int wake_fd)
{
    const uint64_t one = 1;
    /* write() would be a cancellation point. EAGAIN: it is full, so the sleeper wakes anyway. */
    (void)syscall(SYS_write, wake_fd, &one, sizeof(one));
}

void hoop_wait_yield(void)
{
    sched_yield();
}

void hoop_wait_briefly(void)
{
    const struct timespec moment = {.tv_nsec = 100000};
    nanosleep(&moment, NULL);
}

static void wait_drain(int wake_fd)
{
    uint64_t count;
    ssize_t ignored = read(wake_fd, &count, sizeof(count));
    (void)ignored;
}

/* Consumes the edges that sockets have reported so far: the last look follows and sees what they
 * stood for, and later edges end the sleep. The eventfd in the set stays readable. */
static void wait_forget_edges(int epoll_fd)
{
    struct epoll_event events[64];
    while (epoll_wait(epoll_fd, events, 64, 0) == 64) {
    }
}

/* Marks all sleepers as asleep or awake. */
static void wait_say(const struct hoop_wait *wait, bool sleeping)
{
    for (uint32_t i = 0; i < wait->n_sleepers; i++) {
        if (wait->sleepers[i] != NULL) {
            atomic_store_explicit(wait->sleepers[i]->sleeping, sleeping, memory_order_seq_cst);
        }
    }
}

static uint64_t wait_nap_ns(uint64_t idle_ns)
{
    const uint64_t soon = idle_ns / 16, part = idle_ns / 256;
    return soon < WAIT_NAP_FIRST_NS  ? WAIT_NAP_FIRST_NS
           : soon < WAIT_NAP_SOON_NS ? soon
           : part < WAIT_NAP_SOON_NS ? WAIT_NAP_SOON_NS
           : part < WAIT_NAP_MOST_NS ? part
                                     : WAIT_NAP_MOST_NS;
}

/* poll(2) over the sleepers' descriptors; drains the eventfds when it was woken. */
static void wait_for_any(const struct hoop_wait *wait, uint64_t timeout_ns, uint64_t nap_ns)
{
    struct pollfd fds[WAIT_MAX_FDS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < wait->n_sleepers; i++) {
        const struct hoop_sleeper *sleeper = wait->sleepers[i];
        if (sleeper != NULL && sleeper->poll_fd >= 0 && count < WAIT_MAX_FDS) {
            fds[count++] = (struct pollfd){.fd = sleeper->poll_fd, .events = POLLIN};
        } else if (sleeper != NULL) {
            timeout_ns = HOOP_NS_PER_MS; /* do not oversleep for those that are not watched */
        }
        if (sleeper != NULL && sleeper->naps && nap_ns < timeout_ns) {
            timeout_ns = nap_ns;
        }
    }
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / HOOP_NS_PER_S),
                                     .tv_nsec = (long)(timeout_ns % HOOP_NS_PER_S)};
    if (ppoll(fds, count, &timeout, NULL) > 0) {
        for (uint32_t i = 0; i < wait->n_sleepers; i++) {
            if (wait->sleepers[i] != NULL) {
                wait_drain(wait->sleepers[i]->wake_fd);
            }
        }
    }
}

/* Sleeps until something may have changed, or for timeout_ns. Polls once before it does. */
static enum hoop_poll wait_sleep(const struct hoop_wait *wait, uint64_t timeout_ns, uint64_t nap_ns)
{
    wait_say(wait, true);
    hoop_membarrier();
    for (uint32_t i = 0; i < wait->n_sleepers; i++) {
        if (wait->sleepers[i] != NULL && wait->sleepers[i]->has_sockets) {
            wait_forget_edges(wait->sleepers[i]->poll_fd);
        }
    }
    const enum hoop_poll last = wait->poll(wait->arg, true);
    if (last == HOOP_POLL_IDLE) {
        wait_for_any(wait, timeout_ns, nap_ns);
    }
    wait_say(wait, false);
    return last;
}

/* Adapts the next wait's spin to how this wait ended. */
static void wait_adapt(const struct hoop_wait *wait, uint32_t yields)
{
    const uint64_t most = hoop_settings()->spin_us * 1000;
    struct hoop_spin *spin = wait->spin;
    if (spin == NULL) {
        return;
    }
    if (yields > 0) {
        spin->ns = spin->ns / 2 > WAIT_SPIN_LEAST_NS ? spin->ns / 2 : WAIT_SPIN_LEAST_NS;
    } else {
        spin->ns = spin->ns * 2 < most ? spin->ns * 2 : most;
    }
    spin->handed = yields == 1 ? spin->handed + 1 : 0;
    if (spin->handed >= WAIT_HANDED_MOST) {
        wait_part(spin);
    }
}

enum hoop_poll hoop_poll_out(hoop_poll_fn *poll_fn, void *arg)
{
    enum hoop_poll polled = HOOP_POLL_BUSY;
    while (polled == HOOP_POLL_BUSY) {
        polled = poll_fn(arg, true);
    }
    return polled;
}

static bool wait_has_sockets(const struct hoop_wait *wait)
{
    bool has = false;
    for (uint32_t i = 0; i < wait->n_sleepers; i++) {
        has = has || (wait->sleepers[i] != NULL && wait->sleepers[i]->has_sockets);
    }
    return has;
}

/* The tiers after the first polls, with the clock running. idled: the last poll moved nothing. */
static hoop_result_t wait_slowly(const struct hoop_wait *wait, bool idled)
{
    const uint64_t start = hoop_now_ns();
    const uint64_t deadline =
        wait->timeout_ms == 0 ? HOOP_NEVER : start + wait->timeout_ms * HOOP_NS_PER_MS;
    const uint64_t spin_ns = wait->spin != NULL ? wait->spin->ns : 0;
    const uint32_t spins = wait_has_sockets(wait) ? 1 : WAIT_SPINS_PER_LOOK;
    const uint64_t sleep_ns = wait->no_yield ? spin_ns : hoop_settings()->sleep_after_us * 1000;
    uint64_t idle_since = start, now = start;
    uint32_t busy = 0, yields = 0; /* yields: since something moved */
    for (;;) {
        enum hoop_poll polled = HOOP_POLL_IDLE;
        const uint64_t idle_ns = now - idle_since;
        if (!idled) {
            /* A thread with work does not yield; `look` is for others in the same poll that have
             * none. */
            polled = wait->poll(wait->arg, ++busy % WAIT_SPINS_PER_LOOK == 0);
        } else if (idle_ns < spin_ns) {
            for (uint32_t i = 0; i < spins && polled == HOOP_POLL_IDLE; i++) {
                polled = wait->poll(wait->arg, i == 0);
                hoop_cpu_relax();
            }
        } else if (idle_ns < sleep_ns || wait->n_sleepers == 0) {
            yields++;
            sched_yield();
            polled = wait->poll(wait->arg, true);
        } else {
            const uint64_t left_ns = deadline - now, slice_ns = WAIT_SLICE_MS * HOOP_NS_PER_MS;
            polled =
                wait_sleep(wait, left_ns < slice_ns ? left_ns : slice_ns, wait_nap_ns(idle_ns));
        }
        /* a wait has ended only if the poll before was idle */
        if (polled != HOOP_POLL_IDLE && idled && idle_ns < sleep_ns) {
            wait_adapt(wait, yields);
        }
        idled = polled == HOOP_POLL_IDLE;
        if (polled == HOOP_POLL_DONE) {
            return HOOP_OK;
        }
        now = hoop_now_ns();
        if (polled == HOOP_POLL_BUSY) {
            idle_since = now;
            yields = 0;
        }
        if (now >= deadline) {
            /* This process may have been stopped meanwhile: use what has come since. */
            return hoop_poll_out(wait->poll, wait->arg) == HOOP_POLL_DONE ? HOOP_OK : HOOP_TIMEOUT;
        }
    }
}

hoop_result_t hoop_wait(const struct hoop_wait *wait)
{
    /* Where ranks outnumber CPUs, a spin only keeps the awaited rank from running. */
    const uint32_t eager = wait->spin != NULL && !wait_has_sockets(wait) ? WAIT_EAGER_POLLS : 1;
    uint32_t idle = 0, busy = 0;
    while (idle < eager && busy < WAIT_BUSY_POLLS) {
        switch (wait->poll(wait->arg, false)) {
        case HOOP_POLL_DONE:
            return HOOP_OK;
        case HOOP_POLL_BUSY:
            idle = 0;
            busy++;
            break;
        case HOOP_POLL_IDLE:
            idle++;
            break;
        }
    }
    const int before = hoop_cancel_off();
    const hoop_result_t result = wait_slowly(wait, idle >= eager);
    hoop_cancel_restore(before);
    return result;
}

/* ---- Condition variables -------------------------------------------------------------------- */

void hoop_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool hoop_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / HOOP_NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % HOOP_NS_PER_S)};
    const int before = hoop_cancel_off();
    const int err = deadline_ns == HOOP_NEVER ? pthread_cond_wait(cond, lock)
                                              : pthread_cond_timedwait(cond, lock, &until);
    hoop_cancel_restore(before);
    return err != ETIMEDOUT;
}

/* ---- Jobs ----------------------------------------------------------------------------------- */

void hoop_job_init(struct hoop_job *job)
{
    *job = (struct hoop_job){.failure = {.rank = -1}};
    pthread_mutex_init(&job->lock, NULL);
    hoop_cond_init(&job->changed);
}

void hoop_job_finish(struct hoop_job *job)
{
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
}

void hoop_job_complete(struct hoop_job *job, const struct hoop_failure *failure)
{
    pthread_mutex_lock(&job->lock);
    assert(!job->complete);
    if (failure != NULL) {
        job->failure = *failure;
    }
    job->complete = true;
    /* with the lock held: the waiter must not destroy the job before the broadcast is over */
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

hoop_result_t hoop_job_wait(struct hoop_job *job, uint64_t deadline_ns, struct hoop_failure *ret)
{
    hoop_result_t result = HOOP_TIMEOUT;
    pthread_mutex_lock(&job->lock);
    while (!job->complete && hoop_cond_wait(&job->changed, &job->lock, deadline_ns)) {
    }
    if (job->complete) {
        result = job->failure.code;
        if (ret != NULL) {
            *ret = job->failure;
        }
    }
    pthread_mutex_unlock(&job->lock);
    return result;
}

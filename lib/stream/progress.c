/* Who moves what is queued (see progress.h). */
#include "stream/progress.h"

#include "base/clock.h"
#include "base/settings.h"
#include "memory/region.h"
#include "runtime/process.h"
#include "runtime/service.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The most sleepers that the driver waits on; with more its sleeps are short. */
#define PROGRESS_SLEEPERS 64u

/* How long work is left to a thread that may come to wait for it, unless some is this old. */
#define PROGRESS_SOON_NS 50000u
#define PROGRESS_OLD_NS 1000000u
/* The longest time between two looks of the progress thread while work keeps coming. */
#define PROGRESS_LONG_NAP_NS 400000u
/* Polls by a visitor: enough for a small operation whose ranks are all there, and of a large one
 * for little more than its beginning. */
#define PROGRESS_LOOKS 4u

/* Memory that was freed while queued work used it. */
struct owed {
    struct owed *next;
    void *ptr;
    uint64_t bytes;
};

static struct {
    pthread_mutex_t lock;
    /* Under the lock. */
    pthread_cond_t work; /* for the progress thread */
    bool started, idle;  /* of the thread; idle: it waits for work, and was not signalled */
    bool napping;        /* it looks for work by itself, */
    uint64_t nap_ns;     /* at this interval */
    bool urgent;         /* there is work that no thread will wait for */
    uint64_t since_ns;   /* since when there has been work */
    uint64_t touched_ns; /* when a queue last got work, or a waiter last moved it */
    bool driven;         /* there is a driver */
    struct hoop_list_node arrivals;
    struct owed *owed;
    /* Any thread; written under the lock. */
    _Atomic bool arrived; /* the driver polls it */
    _Atomic bool crowded; /* ranks outnumber the CPUs */
    struct hoop_sleeper sleeper;
    _Atomic uint8_t sleeping;
    /* The driver's. */
    struct hoop_list_node active;
    struct hoop_sleeper *sleepers[PROGRESS_SLEEPERS];
    struct hoop_wait wait;
    struct hoop_spin spin;
} progress = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .arrivals = HOOP_LIST_EMPTY(progress.arrivals),
    .active = HOOP_LIST_EMPTY(progress.active),
    .sleeper = {.poll_fd = -1, .wake_fd = -1, .sleeping = &progress.sleeping},
    .nap_ns = PROGRESS_SOON_NS,
};

void hoop_progress_lock(void)
{
    pthread_mutex_lock(&progress.lock);
}

void hoop_progress_unlock(void)
{
    pthread_mutex_unlock(&progress.lock);
}

struct hoop_sleeper *hoop_progress_sleeper(void)
{
    return &progress.sleeper;
}

void hoop_progress_suit(const struct hoop_comm *comm)
{
    atomic_store_explicit(&progress.crowded, !comm->spins, memory_order_relaxed);
}

/* ---- Memory that is freed before its time -------------------------------------------------- */

/* With the lock. */
static bool progress_uses(const void *base, uint64_t bytes)
{
    struct hoop_list_node *const lists[] = {&progress.active, &progress.arrivals};
    for (size_t i = 0; i < 2; i++) {
        HOOP_LIST_EACH(const struct hoop_queue, queue, lists[i], active) {
            if (hoop_queue_uses(queue, base, bytes)) {
                return true;
            }
        }
    }
    return false;
}

static hoop_result_t progress_owe(void *ptr, uint64_t bytes)
{
    struct owed *at = progress.owed;
    while (at != NULL && at->ptr != ptr) {
        at = at->next;
    }
    if (at != NULL) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%p was freed before, while queued work used it",
                          ptr);
    }
    struct owed *owed = malloc(sizeof(*owed));
    if (owed == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to remember what is to be freed");
    }
    *owed = (struct owed){.next = progress.owed, .ptr = ptr, .bytes = bytes};
    progress.owed = owed;
    return HOOP_OK;
}

hoop_result_t hoop_progress_free(void *ptr)
{
    struct hoop_region_ref ref;
    hoop_result_t result = HOOP_OK;
    /* Device memory: freeing it waits for the whole device anyway. */
    const bool host = hoop_region_find(ptr, 0, &ref) && ref.kind == HOOP_MEM_HOST; /* also torn */
    pthread_mutex_lock(&progress.lock);
    const bool used = host && ref.offset == 0 && progress_uses(ptr, ref.bytes);
    if (used) {
        result = progress_owe(ptr, ref.bytes);
    }
    pthread_mutex_unlock(&progress.lock);
    return used ? result : hoop_region_free(ptr);
}

/* Work is over: frees what no queued work uses any more. Without the lock. */
static void progress_pay(void)
{
    struct owed **at = &progress.owed, *due = NULL;
    pthread_mutex_lock(&progress.lock);
    while (*at != NULL) {
        struct owed *owed = *at;
        const bool used = progress_uses(owed->ptr, owed->bytes);
        at = used ? &owed->next : at;
        if (!used) {
            *at = owed->next;
            owed->next = due;
            due = owed;
        }
    }
    pthread_mutex_unlock(&progress.lock);
    while (due != NULL) {
        struct owed *next = due->next;
        (void)hoop_region_free(due->ptr);
        free(due);
        due = next;
    }
}

/* ---- Driving -------------------------------------------------------------------------------- */

/* Moves arrived queues to the active ones. */
static bool progress_adopt(void)
{
    bool any = false;
    pthread_mutex_lock(&progress.lock);
    atomic_store_explicit(&progress.arrived, false, memory_order_relaxed);
    HOOP_LIST_EACH(struct hoop_queue, queue, &progress.arrivals, active) {
        hoop_list_remove(&queue->active);
        hoop_list_push_back(&progress.active, &queue->active);
        any |= hoop_queue_advance(queue);
    }
    pthread_mutex_unlock(&progress.lock);
    return any;
}

static void progress_next(struct hoop_queue *queue)
{
    pthread_mutex_lock(&progress.lock);
    struct hoop_item *item = hoop_queue_pop(queue);
    const bool owes = progress.owed != NULL;
    if (!hoop_queue_advance(queue)) {
        hoop_list_remove(&queue->active); /* it may be gone once the lock is released */
        if (queue->uid == 0) {
            hoop_queue_destroy(queue);
        }
    }
    pthread_mutex_unlock(&progress.lock);
    hoop_item_release(item);
    if (owes) {
        progress_pay();
    }
}

/* Lists what the driver can sleep on now. */
static void progress_list_sleepers(void)
{
    static _Atomic uint8_t ignored;
    static struct hoop_sleeper more = {.poll_fd = -1, .wake_fd = -1, .sleeping = &ignored};
    const uint32_t room = PROGRESS_SLEEPERS - 1;
    uint32_t count = 1;
    progress.sleepers[0] = &progress.sleeper;
    HOOP_LIST_EACH(const struct hoop_queue, queue, &progress.active, active) {
        const struct hoop_item *item = queue->current;
        if (item->kind == HOOP_ITEM_WORK && item->piece->begun && count < room) {
            count +=
                hoop_batch_sleepers(&item->piece->batch, progress.sleepers + count, room - count);
        }
    }
    if (count >= room) {
        progress.sleepers[room] = &more;
        count = PROGRESS_SLEEPERS;
    }
    progress.wait.n_sleepers = count;
}

/* DONE: nothing is left to move, except for what has just arrived. */
static enum hoop_poll progress_poll(void *arg, bool look)
{
    (void)arg;
    bool busy = atomic_load_explicit(&progress.arrived, memory_order_acquire) && progress_adopt();
    HOOP_LIST_EACH(struct hoop_queue, queue, &progress.active, active) {
        const enum hoop_poll polled = hoop_queue_poll(queue, look);
        busy |= polled != HOOP_POLL_IDLE;
        if (polled == HOOP_POLL_DONE) {
            progress_next(queue);
        }
    }
    if (busy) {
        progress_list_sleepers(); /* also when all is done: comms may go, with their sleepers */
    }
    return hoop_list_is_empty(&progress.active) ? HOOP_POLL_DONE
           : busy                               ? HOOP_POLL_BUSY
                                                : HOOP_POLL_IDLE;
}

/* ---- The driver comes and goes: with the lock ----------------------------------------------- */

static bool progress_has_work(void)
{
    return !hoop_list_is_empty(&progress.arrivals) || !hoop_list_is_empty(&progress.active);
}

static void progress_call(void)
{
    if (progress.idle) {
        progress.idle = false;
        pthread_cond_signal(&progress.work);
    }
}

static void progress_call_unless_napping(void)
{
    if (!progress.napping) {
        progress_call();
    }
}

static bool progress_wake_waiter(const struct hoop_list_node *list)
{
    HOOP_LIST_EACH(struct hoop_queue, queue, list, active) {
        if (queue->waiting > 0) {
            pthread_cond_broadcast(&queue->changed);
            return true;
        }
    }
    return false;
}

/* Work that is left is for a waiter, the last driver if it comes back soon, or the thread. */
static void progress_pass_on(void)
{
    if (progress_has_work() && !progress.driven && !progress_wake_waiter(&progress.active) &&
        !progress_wake_waiter(&progress.arrivals)) {
        progress.touched_ns = hoop_now_ns();
        progress_call_unless_napping();
    }
}

/*
 * Drives until poll returns DONE, or for timeout_ms; releases the lock meanwhile. The progress
 * thread (arg NULL) either has a CPU beside a caller that computes, or takes that caller's CPU. A
 * sleep and its wake-up cost some 20 us of CPU time, so it spins for about as long first. A yield
 * would give the CPU to the caller for milliseconds: it yields only where ranks outnumber CPUs, so
 * that some thread always waits for one.
 */
static void progress_drive(hoop_poll_fn *poll, void *arg, uint64_t timeout_ms)
{
    progress.driven = true;
    pthread_mutex_unlock(&progress.lock);
    const bool crowded = atomic_load_explicit(&progress.crowded, memory_order_relaxed);
    progress.spin.ns = progress.spin.ns != 0 ? progress.spin.ns : hoop_settings()->spin_us * 1000;
    progress.wait = (struct hoop_wait){
        .poll = poll,
        .arg = arg,
        .sleepers = progress.sleepers,
        .spin = !crowded && progress.spin.ns != 0 ? &progress.spin : NULL,
        .no_yield = !crowded && arg == NULL,
        .timeout_ms = timeout_ms,
    };
    progress_list_sleepers();
    (void)hoop_wait(&progress.wait);
    pthread_mutex_lock(&progress.lock);
    progress.driven = false;
    progress.urgent &= progress_has_work();
    progress_pass_on();
}

void hoop_progress_notify(struct hoop_queue *queue)
{
    if (hoop_list_is_linked(&queue->active)) {
        return; /* the driver will come to it anyway */
    }
    progress.touched_ns = hoop_now_ns();
    progress.since_ns = progress_has_work() ? progress.since_ns : progress.touched_ns;
    hoop_list_push_back(&progress.arrivals, &queue->active);
    /* Sequentially consistent, like the load: the driver looks again after it set `sleeping`. */
    atomic_store(&progress.arrived, true);
    if (!progress.driven) {
        progress_call_unless_napping();
    } else if (atomic_load(&progress.sleeping) != 0) {
        hoop_wake(progress.sleeper.wake_fd);
    }
}

void hoop_progress_hurry(void)
{
    progress.urgent = true;
    progress_call();
}

/* Every queue with work is on one of the two lists. */
static struct hoop_queue *progress_find(const struct hoop_list_node *list, uint64_t comm_id)
{
    HOOP_LIST_EACH(struct hoop_queue, queue, list, active) {
        if (queue->uid == 0 && queue->comm_id == comm_id) {
            return queue;
        }
    }
    return NULL;
}

/* NULL: no memory. */
static struct hoop_queue *progress_queue(uint64_t comm_id)
{
    struct hoop_queue *queue = progress_find(&progress.active, comm_id);
    queue = queue != NULL ? queue : progress_find(&progress.arrivals, comm_id);
    queue = queue != NULL ? queue : hoop_queue_create();
    if (queue != NULL) {
        queue->comm_id = comm_id;
    }
    return queue;
}

static hoop_result_t progress_push(struct hoop_piece *piece, hoop_result_t *ret_refused)
{
    struct hoop_queue *queue = progress_queue(piece->batch.comms[0].comm->id);
    if (queue == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a queue");
    }
    const hoop_result_t refused = hoop_batch_refuse(&piece->batch);
    *ret_refused = piece->batch.left == 0 ? refused : HOOP_OK;
    hoop_batch_reserve(&piece->batch, &progress.sleeper);
    hoop_queue_push(queue, &piece->item);
    hoop_progress_notify(queue);
    hoop_progress_hurry();
    return HOOP_OK;
}

hoop_result_t hoop_progress_push(struct hoop_piece *piece, hoop_result_t *ret_refused)
{
    pthread_mutex_lock(&progress.lock);
    const hoop_result_t result = progress_push(piece, ret_refused);
    pthread_mutex_unlock(&progress.lock);
    return result;
}

void hoop_progress_drop(struct hoop_comm *comm)
{
    struct hoop_list_node *const lists[] = {&progress.active, &progress.arrivals};
    if (hoop_is_forked()) {
        return;
    }
    /* A comm that has said goodbye has no failure, but what is dropped was not done. */
    struct hoop_failure failure = {.code = HOOP_ABORTED, .text = "the communicator was aborted"};
    struct hoop_failure its;
    failure = hoop_comm_state(comm, &its) != HOOP_OK ? its : failure;
    (void)hoop_error(failure.code, "%s", failure.text);
    pthread_mutex_lock(&progress.lock);
    comm->dropped = true;
    for (size_t i = 0; i < 2; i++) {
        HOOP_LIST_EACH(struct hoop_queue, queue, lists[i], active) {
            hoop_queue_drop(queue, comm, failure.code);
        }
    }
    pthread_mutex_unlock(&progress.lock);
}

/* ---- The progress thread --------------------------------------------------------------------- */

/*
 * Is there work that the thread should drive? A thread that queues work often waits for the result
 * at once, and then a driver in its way costs more than a small operation: so work is left to it
 * for a moment. The thread looks by itself, without being signalled, until no work has come between
 * two looks. A look takes up to 20 us from a thread that computes on its CPU, so vain looks become
 * rarer.
 */
static bool progress_is_mine(uint64_t now_ns)
{
    return !progress.driven && progress_has_work() &&
           (progress.urgent || now_ns - progress.touched_ns >= PROGRESS_SOON_NS ||
            now_ns - progress.since_ns >= PROGRESS_OLD_NS);
}

static void progress_await_work(void)
{
    uint64_t now = hoop_now_ns();
    while (!progress_is_mine(now)) {
        /* Work that was pushed or left too recently is there, and nobody will signal again. */
        const bool lies_about = !progress.driven && progress_has_work();
        progress.napping = lies_about || now - progress.touched_ns < progress.nap_ns;
        progress.idle = true;
        const bool called = hoop_cond_wait(&progress.work, &progress.lock,
                                           progress.napping ? now + progress.nap_ns : HOOP_NEVER);
        if (!called && progress.nap_ns < PROGRESS_LONG_NAP_NS) {
            progress.nap_ns *= 2;
        }
        now = hoop_now_ns();
    }
    progress.nap_ns = PROGRESS_SOON_NS;
    progress.idle = progress.napping = false;
}

static void *progress_main(void *arg)
{
    (void)arg;
    pthread_setname_np(pthread_self(), "hoop-progress");
    (void)prctl(PR_SET_TIMERSLACK, 1000UL); /* ns; its naps are short */
    pthread_mutex_lock(&progress.lock);
    for (;;) {
        progress_await_work();
        progress_drive(progress_poll, NULL, 0);
    }
    return NULL;
}

static hoop_result_t progress_start(void)
{
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        return hoop_errno_error(errno, "no descriptor for the progress thread");
    }
    hoop_cond_init(&progress.work);
    progress.sleeper.poll_fd = progress.sleeper.wake_fd = fd;
    const int err = hoop_thread_spawn(progress_main, NULL);
    if (err != 0) {
        (void)close(fd);
        return hoop_thread_refused("the progress thread", err);
    }
    return HOOP_OK;
}

hoop_result_t hoop_progress_start(void)
{
    hoop_result_t result = hoop_service_start();
    if (result == HOOP_OK) {
        pthread_mutex_lock(&progress.lock);
        result = progress.started ? HOOP_OK : progress_start();
        progress.started = result == HOOP_OK;
        pthread_mutex_unlock(&progress.lock);
    }
    return result;
}

/* ---- Waiting -------------------------------------------------------------------------------- */

struct progress_goal {
    const _Atomic uint64_t *counter;
    uint64_t target, deadline_ns;
};

static bool progress_reached(const struct progress_goal *goal)
{
    return atomic_load_explicit(goal->counter, memory_order_acquire) >= goal->target;
}

static bool progress_is_late(const struct progress_goal *goal)
{
    return goal->deadline_ns != HOOP_NEVER && hoop_now_ns() >= goal->deadline_ns;
}

/* Checks the deadline, too, as others' work may keep the driver busy for longer. */
static enum hoop_poll progress_poll_for(void *arg, bool look)
{
    const struct progress_goal *goal = arg;
    if (progress_reached(goal)) {
        return HOOP_POLL_DONE;
    }
    const enum hoop_poll polled = progress_poll(arg, look);
    const bool over =
        progress_reached(goal) || (polled == HOOP_POLL_BUSY && progress_is_late(goal));
    return over ? HOOP_POLL_DONE : polled;
}

/* For hoop_wait(), where 0 means no deadline. The deadline may have passed since it was checked. */
static uint64_t progress_timeout_ms(uint64_t deadline_ns)
{
    const uint64_t left_ms = hoop_left_ms(deadline_ns);
    return deadline_ns == HOOP_NEVER ? 0 : left_ms > 0 ? left_ms : 1;
}

void hoop_progress_look_in(void)
{
    if (progress.driven || !progress_has_work()) {
        return;
    }
    progress.driven = true;
    pthread_mutex_unlock(&progress.lock);
    for (uint32_t i = 0; i < PROGRESS_LOOKS && progress_poll(NULL, false) == HOOP_POLL_BUSY; i++) {
    }
    pthread_mutex_lock(&progress.lock);
    progress.driven = false;
    progress.urgent &= progress_has_work();
    progress_pass_on();
}

hoop_result_t hoop_progress_wait(struct hoop_queue *queue, const _Atomic uint64_t *counter,
                                 uint64_t target, uint64_t deadline_ns)
{
    struct progress_goal goal = {.counter = counter, .target = target, .deadline_ns = deadline_ns};
    while (!progress_reached(&goal) && !progress_is_late(&goal)) {
        if (!progress.driven) {
            progress_drive(progress_poll_for, &goal, progress_timeout_ms(deadline_ns));
        } else {
            queue->waiting++;
            (void)hoop_cond_wait(&queue->changed, &progress.lock, deadline_ns);
            queue->waiting--;
        }
    }
    progress_pass_on(); /* this thread may have been woken in order to drive */
    return progress_reached(&goal) ? HOOP_OK : HOOP_TIMEOUT;
}

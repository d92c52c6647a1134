/*
 * The end of a process that was in a comm of several machines. This process may connect its machine
 * with others, or other machines with each other. If it ended at once, ranks that have not left yet
 * could not hear of each other any more, nor why a join failed.
 */
#include "base/clock.h"
#include "membership/membership.h"
#include "membership/membership_inside.h"
#include "tree/leader.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define LINGER_MS 5000u /* for ranks elsewhere that are a little behind */

/* How many joins of several machines this process began. Counted by the service thread. */
static _Atomic uint64_t linger_spans;

static struct {
    pthread_mutex_t lock; /* protects all members below */
    struct hoop_job job;
    bool needed; /* all comms have been left */
    uint64_t spans, deadline_ns;
} linger = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool linger_is_here; /* a signal handler may call exit() in the middle of it */

/* Only a process that has left all its comms waits. Otherwise its end should be seen soon. */
static void linger_ask(void *arg)
{
    (void)arg;
    linger.needed = hoop_list_is_empty(&hoop_members);
    hoop_tree_on_idle(linger.needed ? &linger.job : NULL);
}

static void linger_forget(void *arg)
{
    (void)arg;
    hoop_tree_on_idle(NULL);
}

/* Returns false at the deadline, which is set anew only if another comm came in between. */
static bool linger_await(uint64_t spans)
{
    if (linger.spans != spans) {
        linger.deadline_ns = hoop_deadline_ns(LINGER_MS);
        linger.spans = spans;
    }
    hoop_job_init(&linger.job);
    hoop_service_drain(); /* a failure may be on its way from a rank here to the leader here */
    hoop_service_run(linger_ask, NULL);
    const bool over =
        !linger.needed || hoop_job_wait(&linger.job, linger.deadline_ns, NULL) == HOOP_OK;
    hoop_service_run(linger_forget, NULL);
    hoop_job_finish(&linger.job);
    return over;
}

hoop_result_t hoop_member_linger(void)
{
    const uint64_t spans = atomic_load(&linger_spans);
    if (spans == 0 || hoop_service_start() != HOOP_OK) {
        return HOOP_OK; /* it fails in a forked child, and after exit() has stopped it */
    }
    linger_is_here = true;
    pthread_mutex_lock(&linger.lock);
    const bool over = linger_await(spans);
    pthread_mutex_unlock(&linger.lock);
    linger_is_here = false;
    return over ? HOOP_OK
                : hoop_error(HOOP_TIMEOUT, "other machines still need this process after %u ms",
                             LINGER_MS);
}

static void linger_at_exit(void)
{
    if (!linger_is_here && !hoop_service_is_me()) {
        (void)hoop_member_linger();
    }
}

void hoop_member_span(void)
{
    static bool lingers;
    lingers = lingers || atexit(linger_at_exit) == 0;
    atomic_fetch_add(&linger_spans, 1);
}

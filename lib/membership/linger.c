/*
 * The end of a process that was in a comm of several machines. It may be what connects its machine
 * with the others, and machines with each other: if it ended at once, ranks that have not left yet
 * could not tell each other anything more.
 */
#include "base/clock.h"
#include "membership/membership.h"
#include "membership/membership_inside.h"
#include "tree/leader.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define LINGER_MS 5000u /* for ranks elsewhere that are a little behind */

/* This process was in a comm of several machines. Written once, by the service thread, before the
 * join that did it is complete. */
static _Atomic bool linger_spans;

/* Only a process that has left all its comms waits: another is lost, the sooner the better. */
static void linger_await_idle(void *arg)
{
    if (hoop_list_is_empty(&hoop_members)) {
        hoop_tree_on_idle(arg);
    } else {
        hoop_job_complete(arg, NULL);
    }
}

hoop_result_t hoop_member_linger(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
    static struct hoop_job job;
    static uint64_t deadline_ns; /* not 0: the job is the tree's, where a wait in vain leaves it */
    if (!atomic_load(&linger_spans) || hoop_service_start() != HOOP_OK) {
        return HOOP_OK; /* the latter: in a forked child, or when exit() is through with it */
    }
    pthread_mutex_lock(&lock);
    if (deadline_ns == 0) {
        hoop_job_init(&job);
        hoop_service_drain(); /* a failure may be on its way from a rank here to the leader here */
        hoop_service_run(linger_await_idle, &job);
        deadline_ns = hoop_deadline_ns(LINGER_MS);
    }
    const hoop_result_t result = hoop_job_wait(&job, deadline_ns, NULL);
    if (result == HOOP_OK) {
        hoop_job_finish(&job);
        deadline_ns = 0;
    }
    pthread_mutex_unlock(&lock);
    return result == HOOP_OK
               ? HOOP_OK
               : hoop_error(result, "other machines still need this process after %u ms",
                            LINGER_MS);
}

static void linger_at_exit(void)
{
    (void)hoop_member_linger();
}

void hoop_member_span(void)
{
    static bool lingers;
    lingers = lingers || atexit(linger_at_exit) == 0;
    atomic_store(&linger_spans, true);
}

/*
 * The end of a process that was in a comm of several machines. It may be what connects its machine
 * with the others, and machines with each other: if it ended at once, ranks that have not left yet
 * could not tell each other anything more.
 */
#include "base/clock.h"
#include "membership/membership_inside.h"
#include "tree/leader.h"
#include <stdlib.h>

#define LINGER_MS 5000u /* for ranks elsewhere that are a little behind */

/* Only a process that has left all its comms waits: another is lost, the sooner the better. */
static void linger_await_idle(void *arg)
{
    if (hoop_members == NULL) {
        hoop_tree_on_idle(arg);
    } else {
        hoop_job_complete(arg, NULL);
    }
}

/* At exit. */
static void linger(void)
{
    static struct hoop_job job;
    if (hoop_service_start() == HOOP_OK) { /* not in a forked child */
        hoop_job_init(&job);
        hoop_service_drain(); /* a failure may be on its way from a rank here to the leader here */
        hoop_service_run(linger_await_idle, &job);
        (void)hoop_job_wait(&job, hoop_deadline_ns(LINGER_MS), NULL);
    }
}

void hoop_member_span(void)
{
    static bool lingers;
    lingers = lingers || atexit(linger) == 0;
}

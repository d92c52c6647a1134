/*
 * The job: starts the ranks, watches them, ends them. It runs in the keeper, a child of the
 * process that the user sees (hooprun.c draws the picture), and is the parent of the ranks.
 *
 *     phase    entered when                            what ends it
 *     RUN      all ranks are started                   a cause to end the job; all ranks ended
 *     END      a rank failed, the job's time is over:  all processes ended; the grace is over
 *              SIGTERM was sent
 *     LINGER   all ranks ended by themselves, some     they ended; a short time (then END)
 *              descendants did not
 *     KILL     the grace is over, a second SIGINT or   all processes ended, which the kernel
 *              SIGTERM came, hooprun was killed        sees to; a bound for those it can not kill
 *     FLUSH    no process is left                      all output is written
 *     DONE
 *
 * The exit code is set once: the first event that decides it wins.
 */
#ifndef HOOPRUN_JOB_H
#define HOOPRUN_JOB_H

#include "hooprun_options.h"
#include <signal.h>
#include <sys/types.h>

/* How the keeper hangs together with the process that the user sees. */
struct hooprun_front {
    pid_t pid;
    pid_t group;
    int alive_fd;     /* reaches its end when the front process is dead */
    sigset_t signals; /* what the front passes on, blocked here */
    sigset_t mask;    /* the mask hooprun was started with */
};

/* Runs the whole job; returns hooprun's exit code. To be called once per process. */
int hooprun_job_run(const struct hooprun_options *options, const struct hooprun_front *front);

#endif

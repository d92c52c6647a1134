/*
 * The job: attempts, one after the other, until one goes well or is the last. It runs in the
 * keeper, a child of the process that the user sees (hooprun.c draws the picture), and is the
 * parent of the ranks.
 *
 *     attempt (hooprun_attempt.h) --- no process is left --> flush --- all output is written -->
 *        ^                                                                                     |
 *        +---- a rank failed, restarts are left, and nothing has decided the exit code --------+
 *                                                                                              |
 *                                                                                     done <---+
 *
 * The exit code is set once: the first event that decides it wins. A failure that a restart may
 * still mend decides nothing.
 */
#ifndef HOOPRUN_JOB_H
#define HOOPRUN_JOB_H

#include "hooprun/hooprun_front.h"
#include "hooprun/hooprun_options.h"

/* Runs the whole job; returns hooprun's exit code. To be called once per process. */
int hooprun_job_run(const struct hooprun_options *options, const struct hooprun_front *front);

#endif

/*
 * The job: attempts, one after the other, until one succeeds or is the last. It runs in the keeper,
 * a child of the process that the user sees (hooprun.c has the picture), which is the ranks'
 * parent.
 *
 *     attempt (hooprun_attempt.h) --- no process is left --> flush --- all output is written -->
 *        ^                                                                                     |
 *        +---- a rank failed, restarts are left, and the exit code is not decided -------------+
 *                                                                                              |
 *                                                                                     done <---+
 *
 * The exit code is set once, by the first event that decides it. A failure after which a restart is
 * possible does not.
 */
#ifndef HOOPRUN_JOB_H
#define HOOPRUN_JOB_H

#include "hooprun/hooprun_front.h"
#include "hooprun/hooprun_options.h"

/* Runs the whole job and returns hooprun's exit code. Call it once per process. */
int hooprun_job_run(const struct hooprun_options *options, const struct hooprun_front *front);

#endif

/*
 * One attempt of a job: the ranks of this machine from their start until no process of theirs is
 * left. The next attempt begins only then, so attempts never meet.
 *
 *     phase    entered when                            what ends it
 *     RUN      all ranks are started                   a cause to end them; all ranks ended
 *     END      a rank failed, hooprun_attempt_stop():  all processes ended; the grace is over
 *              SIGTERM was sent
 *     LINGER   all ranks ended by themselves, some     they ended; a short time (then END)
 *              descendants did not; ranks of a job
 *              over machines could not start
 *     KILL     the grace is over,                      all processes ended, which the kernel
 *              hooprun_attempt_kill()                  sees to; a bound for those it can not kill
 *     OVER     no process is left
 *
 * One object serves all attempts, one after the other. Ranks are named on standard error by their
 * number in the whole job, and kept by their number on this machine.
 */
#ifndef HOOPRUN_ATTEMPT_H
#define HOOPRUN_ATTEMPT_H

#include "hooprun/hooprun_front.h"
#include "hooprun/hooprun_output.h"
#include "hooprun/hooprun_rank.h"
#include <stdbool.h>
#include <stdint.h>

struct hooprun_attempt;

/* An attempt that is over. Options, front and output are borrowed for its life. NULL with errno. */
struct hooprun_attempt *hooprun_attempt_create(const struct hooprun_options *options,
                                               const struct hooprun_front *front,
                                               struct hooprun_output *output);
void hooprun_attempt_destroy(struct hooprun_attempt *attempt);

/*
 * Starts the ranks; the one before must be over. setup is complete but for identity, refusal_fd
 * and free_writers, and copied. When it fails, that is reported and the attempt on its way to its
 * end.
 */
void hooprun_attempt_start(struct hooprun_attempt *attempt, const struct hooprun_setup *setup);

/* Sends sig to the ranks and what they started in their process groups. */
void hooprun_attempt_signal(struct hooprun_attempt *attempt, int sig);

/* The same for a signal that is to end them: what fails from now on is not reported. */
void hooprun_attempt_interrupt(struct hooprun_attempt *attempt, int sig);

/* Ends all: with SIGTERM and, after the grace, SIGKILL; with SIGKILL at once. */
void hooprun_attempt_stop(struct hooprun_attempt *attempt);
void hooprun_attempt_kill(struct hooprun_attempt *attempt);

/*
 * Reaps and moves on to what the state of the processes asks for; to be called after every
 * SIGCHLD, and at the time (ms, INT64_MAX: none) that until() gives.
 */
void hooprun_attempt_step(struct hooprun_attempt *attempt);
int64_t hooprun_attempt_until(const struct hooprun_attempt *attempt);

bool hooprun_attempt_running(const struct hooprun_attempt *attempt); /* in RUN */
bool hooprun_attempt_over(const struct hooprun_attempt *attempt);

/*
 * -1 while nothing has failed, else the exit code of the first rank that did, or
 * HOOPRUN_EXIT_LAUNCHER. Hopeless: another attempt would end the same, because hooprun itself
 * failed or the program can not be run; or nobody wants one, after Ctrl-C.
 */
int hooprun_attempt_code(const struct hooprun_attempt *attempt);
bool hooprun_attempt_hopeless(const struct hooprun_attempt *attempt);

/* After the failed rank was named: what became of the others, in one line. */
void hooprun_attempt_summarise(const struct hooprun_attempt *attempt);

#endif

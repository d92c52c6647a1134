/*
 * One attempt of a job: this machine's ranks from their start until none of their processes is
 * left. Only then does the next attempt begin, so attempts never overlap.
 *
 *     phase    entered when                            what ends it
 *     RUN      all ranks are started                   a reason to end them; all ranks ended
 *     END      a rank failed, or                       all processes ended; the grace is over
 *              hooprun_attempt_stop():
 *              SIGTERM was sent
 *     LINGER   all ranks ended by themselves, but not  they ended; a short time (then END)
 *              all descendants; ranks of a job over
 *              several machines could not start
 *     KILL     the grace is over,                      all processes ended, which the kernel
 *              hooprun_attempt_kill()                  ensures; a limit for those that do not die
 *     OVER     no process is left
 *
 * One object serves all attempts in turn. Messages name a rank by its number in the whole job; the
 * code uses its number on this machine.
 */
#ifndef HOOPRUN_ATTEMPT_H
#define HOOPRUN_ATTEMPT_H

#include "hooprun/hooprun_front.h"
#include "hooprun/hooprun_output.h"
#include "hooprun/hooprun_rank.h"
#include <stdbool.h>
#include <stdint.h>

struct hooprun_attempt;

/* An object without a running attempt; NULL with errno. Borrows its arguments for its life. */
struct hooprun_attempt *hooprun_attempt_create(const struct hooprun_options *options,
                                               const struct hooprun_front *front,
                                               struct hooprun_output *output);
void hooprun_attempt_destroy(struct hooprun_attempt *attempt);

/*
 * Starts the ranks; the previous attempt must be over. setup is copied; identity, refusal_fd and
 * free_writers are filled in here. A failure is reported and ends the attempt.
 */
void hooprun_attempt_start(struct hooprun_attempt *attempt, const struct hooprun_setup *setup);

/* Sends sig to the ranks' process groups. */
void hooprun_attempt_signal(struct hooprun_attempt *attempt, int sig);

/* The same for a signal that should end them: failures are not reported from now on. */
void hooprun_attempt_interrupt(struct hooprun_attempt *attempt, int sig);

/* Ends all: with SIGTERM, and SIGKILL after the grace, also for what joins in place of ranks that
 * could not start if the job's time is over; or with SIGKILL at once. */
void hooprun_attempt_stop(struct hooprun_attempt *attempt);
void hooprun_attempt_expire(struct hooprun_attempt *attempt);
void hooprun_attempt_kill(struct hooprun_attempt *attempt);

/*
 * Reaps, and moves on to the phase that the state of the processes requires. Call it after every
 * SIGCHLD, and at the time that until() returns (ms; INT64_MAX: never).
 */
void hooprun_attempt_step(struct hooprun_attempt *attempt);
int64_t hooprun_attempt_until(const struct hooprun_attempt *attempt);

bool hooprun_attempt_running(const struct hooprun_attempt *attempt);    /* in phase RUN */
bool hooprun_attempt_may_expire(const struct hooprun_attempt *attempt); /* it may last for long */
bool hooprun_attempt_over(const struct hooprun_attempt *attempt);

/*
 * -1 while nothing has failed; else the exit code of the first rank that failed, or
 * HOOPRUN_EXIT_LAUNCHER. Hopeless: another attempt would fail in the same way, because hooprun
 * failed or the program cannot be run; or is not wanted, after Ctrl-C.
 */
int hooprun_attempt_code(const struct hooprun_attempt *attempt);
bool hooprun_attempt_hopeless(const struct hooprun_attempt *attempt);

/* Says in one line what became of the other ranks, after the failed one was named. */
void hooprun_attempt_summarise(const struct hooprun_attempt *attempt);

#endif

/*
 * The ranks of one kill_fuzz job, as their parent sees them: processes and pipes. Whatever happens,
 * no rank outlives its family: they die with their parent, and family_finish() kills the rest.
 */
#ifndef HOOP_TESTS_KILL_FAMILY_H
#define HOOP_TESTS_KILL_FAMILY_H

#include "kill_rank.h"
#include "kill_sweep.h"
#include <stdbool.h>
#include <sys/types.h>

struct kill_family {
    uint32_t n;
    pid_t pids[SWEEP_MAX_RANKS]; /* 0: reaped */
    int from[SWEEP_MAX_RANKS], to[SWEEP_MAX_RANKS];
    _Atomic uint64_t *operations; /* [n], shared with the ranks */
};

uint64_t family_now_ns(void);

/* *job: borrowed until the ranks have started. False: the machine has not enough of something. */
bool family_start(struct kill_family *family, const struct kill_job *job);
/* Kills and reaps. */
void family_finish(struct kill_family *family);

/* The next report of a rank; false: none until then, or it has ended. */
bool family_hear(struct kill_family *family, uint32_t rank, uint64_t deadline_ns,
                 struct kill_report *ret);
/* It may leave. */
void family_release(struct kill_family *family, uint32_t rank);
/* Waits for its end; false: not by exit(0), or not until then. */
bool family_reap(struct kill_family *family, uint32_t rank, uint64_t deadline_ns);

#endif

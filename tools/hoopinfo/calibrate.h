/*
 * hoopinfo --calibrate: measures the constants of the cost model for shared memory, and writes them
 * as a profile for HOOP_PROFILE (lib/cost/profile.h has the format).
 *
 * Ranks of this machine run all_reduce of several sizes by oneshot and by slab, and all_gather by
 * cma. fit.h says what follows from the times.
 */
#ifndef HOOPINFO_CALIBRATE_H
#define HOOPINFO_CALIBRATE_H

#include "hoopinfo/facts.h"

/* Writes the profile to file, and adds what was measured to facts. Returns an exit code. */
int calibrate_run(const char *file, struct facts *facts);

/* Runs as a rank of one of calibrate_run()'s jobs. Returns an exit code. */
int calibrate_rank(void);

/* Rank 0 of a job prints a line "ALGO KIB NS" for each pair, in the order of fit.h. */
extern const char *const calibrate_algos[];

#endif

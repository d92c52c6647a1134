/*
 * hoopinfo --calibrate: measures what the cost model counts with in shared memory, and writes it as
 * a profile, which HOOP_PROFILE may name (lib/cost/profile.h has the format).
 *
 * Ranks of this machine run all_reduce of several sizes by oneshot and by slab, and all_gather by
 * cma; what follows from the times is in fit.h.
 */
#ifndef HOOPINFO_CALIBRATE_H
#define HOOPINFO_CALIBRATE_H

#include "hoopinfo/facts.h"

/* Adds what was measured and written to this file. An exit code. */
int calibrate_run(const char *file, struct facts *facts);

/* As a rank of a job of calibrate_run(). An exit code. */
int calibrate_rank(void);

/* Its rank 0 prints a line "ALGO KIB NS" for each pair, in the order of fit.h. */
extern const char *const calibrate_algos[];

#endif

/*
 * hoopinfo --calibrate: measures what the cost model counts with in shared memory, and writes it as
 * a profile, which HOOP_PROFILE may name (lib/cost/profile.h has the format).
 *
 * Ranks of this machine run all_reduce of several sizes by oneshot and by slab; of each a line is
 * fitted through the times. The model says of n ranks and S KiB
 *
 *      oneshot = sync + (moved + n folded) S
 *      slab    = 3 barrier + (3 moved + folded) S
 *
 * so the four ends of the two lines are the four constants, and where the lines meet, the model
 * goes over from one to the other. How sync and barrier grow with n is taken from a second n.
 */
#ifndef HOOPINFO_CALIBRATE_H
#define HOOPINFO_CALIBRATE_H

#include "hoopinfo/facts.h"

/* Adds what was measured and written to this file. An exit code. */
int calibrate_run(const char *file, struct facts *facts);

/* As a rank of a job of calibrate_run(). An exit code. */
int calibrate_rank(void);

#define CALIBRATE_ALGOS 2
#define CALIBRATE_SIZES 4

/* Its rank 0 prints a line "ALGO KIB NS" for each pair, in this order. */
extern const char *const calibrate_algos[CALIBRATE_ALGOS];
extern const size_t calibrate_kib[CALIBRATE_SIZES];

#endif

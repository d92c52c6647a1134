/*
 * hoopinfo --test: is every collective right between these ranks, and how fast is it? Runs as a
 * rank of a job that a launcher started, or without one in jobs of its own on this machine, one per
 * transport.
 */
#ifndef HOOPINFO_CHECK_H
#define HOOPINFO_CHECK_H

#include <stdbool.h>

/*
 * ranks: number of ranks of its own jobs, and what a launcher must have started; 0: the usual
 * number, or however many a launcher started. alone: this process is a rank of such a job, even if
 * it is the only one. Returns an exit code. json: rank 0 prints
 *
 *      {"jobs": [{"transport", "ranks", "block_bytes", "operations": [{"name", "right",
 *       "us_8_bytes", "gb_per_s_1_mib"}], "wrong_elements", "error", "works"}],
 *       "verdict", "works"}
 *
 * or in a job of its own only an element of "jobs". If without a launcher not even one rank can be
 * made, "jobs" is empty and there is an additional "error".
 */
int check_run(int ranks, bool alone, bool json);

#endif

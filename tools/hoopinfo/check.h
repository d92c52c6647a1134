/*
 * hoopinfo --test: is every collective right between these ranks, and how fast is it? As a rank of
 * a job that a launcher started, or, without one, in jobs of its own on this machine: one for each
 * transport.
 */
#ifndef HOOPINFO_CHECK_H
#define HOOPINFO_CHECK_H

#include <stdbool.h>

/*
 * ranks: of the jobs of its own. alone: a rank of such a job, whatever its size. An exit code.
 * json: rank 0 prints
 *
 *      {"jobs": [{"transport", "ranks", "operations": [{"name", "right", "us_8_bytes",
 *       "gb_per_s_1_mib"}], "wrong_elements", "error", "works"}], "verdict", "works"}
 *
 * and of a job of its own the element of "jobs" alone. Where not even one rank can be made, without
 * a launcher, "jobs" is empty and "error" stands beside it.
 */
int check_run(int ranks, bool alone, bool json);

#endif

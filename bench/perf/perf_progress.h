/*
 * Shows on a terminal how far a run is; never while something is timed. What is shown is erased
 * again, so the table is not affected.
 */
#ifndef PERF_PROGRESS_H
#define PERF_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct perf_progress {
    FILE *out;       /* NULL: nothing is shown */
    bool behind_row; /* out has the table: show progress behind the row that has begun */
    size_t row;      /* the running row, from 1 */
    size_t rows;     /* how many rows there will be; 0: unknown */
};

/*
 * Shows progress if err is a terminal: on the table's stream if that is a terminal, too, else on
 * err. That the table's stream is a terminal is not enough: mpirun gives a rank a terminal, and may
 * keep its output in a file.
 */
void perf_progress_init(struct perf_progress *progress, FILE *table, FILE *err, size_t rows);

/* Shows what is happening now: "timing", ... */
void perf_progress_show(const struct perf_progress *progress, const char *phase);
/* Erases what was shown. */
void perf_progress_clear(const struct perf_progress *progress);

#endif

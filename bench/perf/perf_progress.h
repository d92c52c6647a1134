/*
 * Where a run is, for somebody who watches: on a terminal only, and never within what is timed.
 * What is shown disappears again; the table is the same with it and without.
 */
#ifndef PERF_PROGRESS_H
#define PERF_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct perf_progress {
    FILE *out;       /* NULL: nobody watches */
    bool behind_row; /* out is where the table goes: show it behind the row that has begun */
    size_t row;      /* the running one, from 1 */
    size_t rows;     /* 0: no end is known */
};

/*
 * Somebody watches if err is a terminal: then progress is shown where the table goes if that is one
 * too. The table alone says nothing: mpirun gives a rank a terminal to write to, and keeps what
 * comes out of it in a file.
 */
void perf_progress_init(struct perf_progress *progress, FILE *table, FILE *err, size_t rows);

/* What is happening now: "timing", ... */
void perf_progress_show(const struct perf_progress *progress, const char *phase);
/* Takes back what was shown. */
void perf_progress_clear(const struct perf_progress *progress);

#endif

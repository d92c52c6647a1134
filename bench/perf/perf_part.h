/* One rank's window in a call: makes its inputs before the call, and checks it afterwards. */
#ifndef PERF_PART_H
#define PERF_PART_H

#include "perf/perf.h"
#include "perf/perf_ranks.h"

/* One local rank in the running half. */
struct perf_part {
    struct perf_rank *rank;
    struct perf_shape shape;
    struct perf_call call; /* the window in use */
    char *send;            /* where the first window's sent elements are */
    char *recv;            /* where its received elements are */
    char *area;            /* in place: where the window that holds both begins */
};

/* How many elements a window that holds both sent and received elements has. */
size_t perf_shape_in_place(const struct perf_shape *shape);

/* All functions return exit codes. On a device their work is complete when they return. */

/* Writes inputs to the first `windows` windows, which are stride bytes apart. */
int perf_part_fill(const struct perf_part *part, const struct perf_case *data, size_t windows,
                   size_t stride);

/* Prepares the window in use for a check: inputs, poison where results are expected, and guard
 * bytes around both. */
int perf_part_prepare(const struct perf_part *part, const struct perf_case *data, bool in_place);

/* Adds to *found how many received elements are wrong. */
int perf_part_wrong(const struct perf_part *part, const struct perf_collective *collective,
                    const struct perf_case *data, size_t *found);

/*
 * Adds to *found how many bytes have changed that nobody may write: around the window, and in the
 * inputs; in place only those inputs that are not received elements, too.
 */
int perf_part_damage(const struct perf_part *part, const struct perf_case *data, bool in_place,
                     size_t *found);

#endif

/* One rank's window in a call: its inputs before, and what came of them afterwards. */
#ifndef PERF_PART_H
#define PERF_PART_H

#include "perf/perf.h"
#include "perf/perf_ranks.h"

/* One local rank in the running half. */
struct perf_part {
    struct perf_rank *rank;
    struct perf_shape shape;
    struct perf_call call; /* the window in use */
    char *send;            /* the first window: what is sent, */
    char *recv;            /* what is received, */
    char *area;            /* and in place the buffer that holds both */
};

/* Elements of the buffer that holds both what is sent and what is received. */
size_t perf_shape_in_place(const struct perf_shape *shape);

/* All are exit codes. On a device what they do is over when they return. */

/* Inputs in the first windows, which are stride bytes from each other. */
int perf_part_fill(const struct perf_part *part, const struct perf_case *data, size_t windows,
                   size_t stride);

/* Fresh inputs, poison where results are to come, paint around both. */
int perf_part_prepare(const struct perf_part *part, const struct perf_case *data, bool in_place);

/* Adds the elements of the receive buffer that are wrong. */
int perf_part_wrong(const struct perf_part *part, const struct perf_collective *collective,
                    const struct perf_case *data, size_t *found);

/*
 * Adds the bytes that changed although nobody may write there: around the windows, and in the
 * inputs. In place the inputs before and behind what is received must be as they were.
 */
int perf_part_damage(const struct perf_part *part, const struct perf_case *data, bool in_place,
                     size_t *found);

#endif

/* One rank's window in a call: its inputs before, and what came of them afterwards. */
#ifndef PERF_PART_H
#define PERF_PART_H

#include "perf/perf.h"
#include "perf/perf_ranks.h"

/* One local rank in the running half. */
struct perf_part {
    struct perf_rank *rank;
    struct perf_shape shape;
    struct perf_call call;  /* the window in use */
    struct perf_call there; /* the same, by the addresses that operations know */
    char *send;             /* the first window: what is sent, */
    char *recv;             /* what is received, */
    char *area;             /* and in place the buffer that holds both */
};

/* Elements of the buffer that holds both what is sent and what is received. */
size_t perf_shape_in_place(const struct perf_shape *shape);

/* Fresh inputs, poison where results are to come, paint around both. */
void perf_part_prepare(const struct perf_part *part, const struct perf_case *data, bool in_place);

/* The window in use is another one. */
void perf_part_aim(struct perf_part *part);

/* Brings the window in use to its device, or back; an exit code. On none it is there. */
int perf_part_put(const struct perf_part *part, bool in_place);
int perf_part_get(const struct perf_part *part, bool in_place);

/* Elements of the receive buffer that are wrong. */
size_t perf_part_wrong(const struct perf_part *part, const struct perf_collective *collective,
                       const struct perf_case *data);

/*
 * Bytes that changed although nobody may write there: around the windows, and in the inputs. In
 * place the inputs before and behind what is received must be as they were.
 */
size_t perf_part_damage(const struct perf_part *part, const struct perf_case *data, bool in_place);

#endif

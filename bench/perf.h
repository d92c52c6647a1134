/*
 * The engine of the benchmarks, in the dialect of nccl-tests.
 *
 * A benchmark is one struct perf_collective and a main() that hands it to perf_main(); the engine
 * does everything else: options, ranks, buffers, timing, checking, reports. It uses nothing but
 * the public header hoop.h, so it measures what any program would see.
 *
 *     perf_main.c      the order of things             perf_run.c      sweep, timing, checking
 *     perf_options.c   the command line                perf_data.c     inputs, expected results
 *     perf_ranks.c     birth and death of the comms    perf_buffer.c   memory with guard bytes
 *     perf_report.c    text on stdout                  perf_bound.c    the machine's memory speed
 *     perf_json.c      the JSON file                   perf_watch.c    -T, the watchdog
 *     perf_failure.c   messages about failures
 */
#ifndef PERF_H
#define PERF_H

#include <stdbool.h>
#include <stddef.h>

#include "hoop.h"
#include "perf_data.h"

/* What the process returns; the numbers are the dialect's. */
enum perf_exit {
    PERF_SUCCESS = 0,
    PERF_INTERNAL = 1,
    PERF_HOOP = 3, /* a call of hoop failed */
    PERF_TIMED_OUT = 4,
    PERF_NOT_IMPLEMENTED = 5,
    PERF_USAGE = 6,
    PERF_WRONG = 7, /* wrong data, or too slow for NCCL_TESTS_MIN_BW */
    PERF_BAD_ARGUMENT = 255
};

/* How a size turns into counts of elements, for one rank. */
struct perf_shape {
    size_t bytes;            /* the size column */
    size_t count;            /* the count column, and the argument of the call */
    size_t send_count;       /* elements this rank sends from */
    size_t recv_count;       /* elements this rank receives into */
    size_t in_place_send_at; /* in place: where in the receive buffer the sent elements are */
};

/* One call of the collective on one comm. */
struct perf_call {
    const char *send;
    char *recv;
    size_t count;
    hoop_datatype_t type;
    hoop_red_op_t op;
    int root;
    hoop_comm_t comm;
};

struct perf_collective {
    const char *program; /* "all_reduce_perf" */
    bool has_op;         /* takes an operation; otherwise the column says none */
    bool has_root;       /* takes a root; otherwise the column says -1 */

    /* The largest shape with at most bytes of the size column. */
    void (*shape)(size_t bytes, size_t type_bytes, int nranks, int rank, struct perf_shape *ret);

    /* GB/s of a call that took that long: algorithm, and bus. */
    void (*bandwidth)(const struct perf_shape *shape, size_t type_bytes, double seconds, int nranks,
                      double *ret_alg, double *ret_bus);

    /* Bytes that all ranks together must read and write, for each byte of the size column. */
    double (*traffic)(int nranks);

    /* What the elements from first on of rank's receive buffer must be. */
    void (*expect)(const struct perf_case *data, int rank, size_t first, size_t count, void *dst);

    hoop_result_t (*start)(const struct perf_call *call);
};

/* The whole program: returns what main() must return. */
int perf_main(int argc, char **argv, const struct perf_collective *collective);

#endif

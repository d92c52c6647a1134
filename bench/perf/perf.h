/*
 * The engine of the benchmarks. Options, output and exit codes are those of nccl-tests, which the
 * comments call "the dialect".
 *
 * A benchmark is one struct perf_collective and a main() that hands it to perf_main(). The engine
 * does everything else: options, ranks, buffers, timing, checking, reports. Of hoop it uses only
 * the public header hoop.h, so it measures what any program would see; for buffers on devices it
 * uses CUDA's driver.
 *
 *     perf_main.c      the whole of a run              perf_run.c      sweep, timing, checking
 *     perf_options.c   the command line                perf_data.c     inputs, expected results
 *     perf_ranks.c     birth and death of the comms    perf_buffer.c   memory with guard bytes
 *     perf_report.c    text on stdout                  perf_bound.c    the machine's memory speed
 *     perf_json.c      the JSON file                   perf_watch.c    -T, the watchdog
 *     perf_failure.c   messages about failures         perf_progress.c  progress, on a terminal
 *     perf_device.c    CUDA's driver, for buffers on devices
 *     perf_rules.h     what each element is, for the host and for kernels
 *     perf_kernels.cu  kernels that make elements, and compare them
 *     perf_elements.c  makes and compares elements where they lie, by the host or by kernels
 *     perf_times.c     averages, and statistics of single iterations
 *     perf_shape.c     sizes and origins that several collectives share
 *     perf_part.c      one rank's window: makes its inputs, checks its results
 */
#ifndef PERF_H
#define PERF_H

#include <stdbool.h>
#include <stddef.h>

#include "hoop.h"
#include "perf/perf_data.h"

/* Exit codes of the process, with the numbers of the dialect. */
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

/*
 * The counts of elements that follow from a size, for one rank. No buffer is larger than the size
 * column. In place one buffer holds both what is sent and what is received.
 */
struct perf_shape {
    size_t bytes;            /* the size column */
    size_t count;            /* the count column, and the argument of the call */
    size_t send_count;       /* elements that this rank sends; 0: its send buffer is not read */
    size_t recv_count;       /* elements that it receives; 0: its receive buffer is not written */
    size_t in_place_send_at; /* in place: the first sent element in the buffer */
    size_t in_place_recv_at; /* in place: the first received element in the buffer */
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
    hoop_stream_t stream; /* a CUDA stream, or NULL */
    int rank, nranks;
};

struct perf_collective {
    const char *program; /* "all_reduce_perf" */
    bool has_op;         /* takes an operation; if not the column says none */
    bool has_root;       /* takes a root; if not the column says -1 */
    bool not_in_place;   /* can't be done in place: that half is not measured and says N/A */
    bool grouped;        /* start() makes several calls, which need a group */

    /* The largest shape whose size column is at most bytes; root is 0 if there is none. */
    void (*shape)(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                  struct perf_shape *ret);

    /* Bus bandwidth divided by algorithm bandwidth: how often the best ring moves a byte past a
     * rank. */
    double (*bus_factor)(int nranks);

    /* Bytes that all ranks together must read and write, for each byte of the size column. */
    double (*traffic)(int nranks);

    /*
     * A rank receives blocks of count elements: from which rank's input is a block, and from which
     * element on? With an operation the block is the reduction of these elements of all ranks.
     */
    struct perf_origin (*origin)(const struct perf_case *data, size_t count, int rank, int block);

    hoop_result_t (*start)(const struct perf_call *call);
};

/* ---- What several collectives have in common ------------------------------------------------- */

/* How many elements fit into bytes. */
size_t perf_count_whole(size_t bytes, size_t type_bytes);
/*
 * How many elements each of nranks equal parts has: whole units of 16 bytes, as in the dialect, so
 * that small sizes become 0.
 */
size_t perf_count_part(size_t bytes, size_t type_bytes, int nranks);

/* The shape if every rank sends and receives the whole size. */
void perf_shape_whole(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                      struct perf_shape *ret);

/* Traffic if every rank reads the whole size and writes it: 2n. */
double perf_traffic_both(int nranks);

/* Bus factors: 1 and (n-1)/n. */
double perf_bus_once(int nranks);
double perf_bus_others(int nranks);

/* Origins: the same elements (of this rank, or reduced); block b from rank b; from the root. */
struct perf_origin perf_origin_same(const struct perf_case *data, size_t count, int rank,
                                    int block);
struct perf_origin perf_origin_ranks(const struct perf_case *data, size_t count, int rank,
                                     int block);
struct perf_origin perf_origin_root(const struct perf_case *data, size_t count, int rank,
                                    int block);

/* The whole program: returns what main() must return. */
int perf_main(int argc, char **argv, const struct perf_collective *collective);

#endif

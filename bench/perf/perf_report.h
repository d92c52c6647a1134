/*
 * What the benchmark shows: the table on stdout, in the columns of nccl-tests, and the JSON file
 * if one is wanted. Anything that nccl-tests does not print is in lines that begin with #.
 * Used by one thread, that of global rank 0.
 */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include "perf/perf.h"
#include "perf/perf_json.h"
#include "perf/perf_options.h"
#include "perf/perf_progress.h"

struct perf_place;

/* Seconds of single iterations. */
struct perf_stats {
    double min, max, mean, p50, p95, p99, deviation;
};

/* One half of a row: out of place, or in place. */
struct perf_half {
    double seconds; /* per operation */
    double cpu_seconds;
    double alg; /* GB/s */
    double bus;
    bool none; /* the collective has no such form: nothing was measured */
    bool checked;
    int64_t wrong;  /* elements, all ranks together */
    int64_t damage; /* bytes next to the buffers, or in send buffers */
    size_t n_times; /* 0 without -I */
    double *times;  /* borrowed: seconds of each iteration */
    struct perf_stats stats;
};

struct perf_row {
    size_t bytes;
    size_t count;
    const char *type;
    const char *op;
    int root;
    struct perf_half half[2]; /* out of place, in place */
};

/* Smaller sizes are a matter of latency, and of caches: no comparison is made. */
#define PERF_BOUND_FROM_BYTES ((size_t)1 << 20)

/* What the speed of memory allows; see perf_bound.h. */
struct perf_bound {
    double bytes_per_second; /* all ranks together, read plus written; 0: not measured */
    size_t bytes;            /* of each rank's two buffers in that measurement */
    double alg;              /* GB/s: the algorithm bandwidth that it allows */
};

/* The totals of a run. */
struct perf_tally {
    double bus_sum;
    size_t halves;
    int64_t errors; /* half rows with wrong elements or damage */
};

/* The share of the bound, kept until the table is finished. */
struct perf_share {
    size_t bytes;
    const char *type;
    const char *op;
    double alg[2];
};

struct perf_report {
    FILE *out;
    struct perf_json json;
    struct perf_progress progress;
    const struct perf_options *options;
    struct perf_bound bound;
    struct perf_share *shares;
    size_t n_shares;
    size_t room_shares;
};

/* Writes a number into width columns (less than 16): as many digits as fit. */
#define PERF_NUMBER_BYTES 32
void perf_report_number(double value, int width, char ret_text[PERF_NUMBER_BYTES]);

/* Summary of n >= 1 values; percentiles by nearest rank. values come back sorted. */
void perf_report_stats(double *values, size_t n, struct perf_stats *ret_stats);

/* Banner, options, places of the ranks. */
void perf_report_open(struct perf_report *report, const struct perf_collective *collective,
                      int argc, char **argv);
void perf_report_places(struct perf_report *report, const struct perf_place *places, int nranks);

/* The head of the table; then for each row begin, both halves, end. */
void perf_report_head(struct perf_report *report);
void perf_report_row_begin(struct perf_report *report, const struct perf_row *row);
void perf_report_half(struct perf_report *report, const struct perf_row *row, int in_place);
void perf_report_row_end(struct perf_report *report, const struct perf_row *row);

/* The # lines that set the rows so far beside the bound, if that was measured. */
void perf_report_bound(struct perf_report *report, int nranks);

/* min_bus negative: no demand. False when the demand is not met. */
bool perf_report_fast_enough(const struct perf_tally *tally, double min_bus);
double perf_report_mean_bus(const struct perf_tally *tally);

/* The foot, and the end of the file. failure NULL: the run went well. False: the file is not whole,
 * or there is none and should be one. */
bool perf_report_close(struct perf_report *report, const struct perf_collective *collective,
                       const struct perf_tally *tally, double min_bus, const char *failure);

#endif

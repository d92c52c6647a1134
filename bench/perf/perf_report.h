/*
 * The output of the benchmark: the table on stdout, with the columns of nccl-tests, and the JSON
 * file if one is wanted. Anything that nccl-tests does not print is in lines that begin with #.
 * Used by one thread only, that of global rank 0.
 */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include "perf/perf.h"
#include "perf/perf_json.h"
#include "perf/perf_options.h"
#include "perf/perf_progress.h"

struct perf_place;

/* Statistics of single iterations, in seconds. */
struct perf_stats {
    double min, max, mean, p50, p95, p99, deviation;
};

/* One half of a row: out of place, or in place. */
struct perf_half {
    double seconds; /* per operation */
    double cpu_seconds;
    double alg; /* GB/s */
    double bus;
    bool none; /* the collective can't be done in place: nothing was measured */
    bool checked;
    int64_t wrong;  /* elements, of all ranks together */
    int64_t damage; /* changed bytes next to the buffers, or in send buffers */
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

/* Smaller sizes are not compared with the bound: latency and caches decide there. */
#define PERF_BOUND_FROM_BYTES ((size_t)1 << 20)

/* What the speed of memory allows (see perf_bound.h). */
struct perf_bound {
    double bytes_per_second; /* read plus written, of all ranks together; 0: not measured */
    size_t bytes;            /* size of each of a rank's two buffers in the measurement */
    double alg;              /* the algorithm bandwidth that it allows, in GB/s */
};

/* The totals of a run. */
struct perf_tally {
    double bus_sum;
    size_t halves;
    int64_t errors; /* half rows with wrong elements or damage */
};

/* A row to be compared with the bound, kept until the table is complete. */
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

/* Formats a number into width (less than 16) columns, with as many digits as fit. */
#define PERF_NUMBER_BYTES 32
void perf_report_number(double value, int width, char ret_text[PERF_NUMBER_BYTES]);

/* Statistics of n >= 1 values, which it sorts; percentiles by nearest rank. */
void perf_report_stats(double *values, size_t n, struct perf_stats *ret_stats);

/* Print the banner and options; the places of the ranks. */
void perf_report_open(struct perf_report *report, const struct perf_collective *collective,
                      int argc, char **argv);
void perf_report_places(struct perf_report *report, const struct perf_place *places, int nranks);

/* Print the head of the table; then for each row its begin, both halves and its end. */
void perf_report_head(struct perf_report *report);
void perf_report_row_begin(struct perf_report *report, const struct perf_row *row);
void perf_report_half(struct perf_report *report, const struct perf_row *row, int in_place);
void perf_report_row_end(struct perf_report *report, const struct perf_row *row);

/* Prints # lines that compare the rows so far with the bound, if that was measured. */
void perf_report_bound(struct perf_report *report, int nranks);

/* False: the mean bus bandwidth does not reach nine tenths of min_bus; negative: no demand. */
bool perf_report_fast_enough(const struct perf_tally *tally, double min_bus);
double perf_report_mean_bus(const struct perf_tally *tally);

/* Prints the foot and closes the JSON file. failure NULL: the run went well. False: the file is
 * incomplete, or could not be opened. */
bool perf_report_close(struct perf_report *report, const struct perf_collective *collective,
                       const struct perf_tally *tally, double min_bus, const char *failure);

#endif

/* The command line of the benchmarks: the options of nccl-tests, read into one struct. */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* For type, op and root: all values, one after the other. */
#define PERF_ALL (-1)

enum perf_average { PERF_AVERAGE_RANK0, PERF_AVERAGE_MEAN, PERF_AVERAGE_MIN, PERF_AVERAGE_MAX };

enum perf_memory { PERF_MEMORY_PLAIN, PERF_MEMORY_REGISTERED, PERF_MEMORY_HOOP };

/* Where the buffers are; AUTO: on devices if there are any. */
enum perf_place_kind { PERF_PLACE_HOST, PERF_PLACE_DEVICE, PERF_PLACE_AUTO };

/* -z */
enum perf_blocking {
    PERF_BLOCKING_OFF,
    PERF_BLOCKING_BARRIER, /* barrier after each operation */
    PERF_BLOCKING_WAIT,    /* wait for each operation, as those on host buffers do anyway */
    PERF_BLOCKING_OUTER    /* barrier after each iteration, which has -m operations */
};

struct perf_options {
    int threads;
    int gpus; /* ranks that each thread drives */
    size_t min_bytes;
    size_t max_bytes;
    size_t step_bytes;
    size_t step_factor; /* 1: step_bytes is used */
    int iters;
    int agg_iters;
    int warmup_iters;
    int cycles; /* 0: for ever */
    int parallel_init;
    int checks;
    int type; /* hoop_datatype_t or PERF_ALL */
    int op;   /* hoop_red_op_t, PERF_MULSUM or PERF_ALL */
    int root; /* or PERF_ALL */
    int blocking;
    int null_stream;
    int timeout_s; /* 0: none */
    int graph;
    int cpu_time;
    int timestamps;
    const char *json_path; /* borrowed from argv */
    int average;
    int memory;
    int cta_policy; /* -1: not given */
    int device_implementation;
    int device_ctas; /* -1: not given */
    int memory_report;
    int place;      /* not AUTO after parsing */
    size_t unalign; /* elements */
    int per_iter;
    int per_iter_skip;
    int bound; /* compare with the speed of memory */
};

/*
 * True: continue with *ret_options. False: exit with *ret_exit (help, a bad argument, or something
 * that needs a GPU). Messages go to out and err; NULL: none, since of many processes only one
 * prints.
 */
bool perf_options_parse(int argc, char **argv, FILE *out, FILE *err,
                        struct perf_options *ret_options, int *ret_exit);

/* Writes a # line for each given option that has no effect for host ranks. */
void perf_options_notes(const struct perf_options *options, FILE *out);

/* The size after bytes; false: bytes is the last one. */
bool perf_options_next_size(const struct perf_options *options, size_t bytes, size_t *ret_bytes);
/* How many sizes there are. */
size_t perf_options_sizes(const struct perf_options *options);

#endif

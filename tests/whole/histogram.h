/*
 * Times of events and their distribution: log-spaced buckets, median, 99th percentile, maximum.
 * Every sample is kept. One thread.
 */
#ifndef HOOP_TESTS_HISTOGRAM_H
#define HOOP_TESTS_HISTOGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct histogram {
    double *ms;
    size_t count, room;
};

/* False: no memory. */
bool histogram_add(struct histogram *histogram, double ms);
void histogram_finish(struct histogram *histogram);

/* The value that a share of all samples, 0 to 1, does not exceed; 0 without samples. */
double histogram_quantile(struct histogram *histogram, double share);

/* Prints a line for every bucket from the first to the last that is not empty. */
void histogram_print(struct histogram *histogram, FILE *to);

#endif

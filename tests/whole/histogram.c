/* See histogram.h. */
#include "whole/histogram.h"
#include <math.h>
#include <stdlib.h>

/* Upper limits in ms, three per decade, so that each is about twice the one before. */
static const double borders[] = {0.1, 0.2, 0.5, 1,    2,    5,    10,    20,      50,
                                 100, 200, 500, 1000, 2000, 5000, 10000, INFINITY};
#define BUCKETS (sizeof(borders) / sizeof(borders[0]))
#define BAR 50

bool histogram_add(struct histogram *histogram, double ms)
{
    if (histogram->count == histogram->room) {
        const size_t room = histogram->room == 0 ? 1024 : 2 * histogram->room;
        double *grown = realloc(histogram->ms, room * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        histogram->ms = grown;
        histogram->room = room;
    }
    histogram->ms[histogram->count++] = ms;
    return true;
}

void histogram_finish(struct histogram *histogram)
{
    free(histogram->ms);
    *histogram = (struct histogram){.ms = NULL};
}

static int histogram_compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

double histogram_quantile(struct histogram *histogram, double share)
{
    if (histogram->count == 0) {
        return 0;
    }
    qsort(histogram->ms, histogram->count, sizeof(*histogram->ms), histogram_compare);
    const size_t at = (size_t)ceil(share * (double)histogram->count);
    return histogram->ms[at > 0 ? at - 1 : 0];
}

void histogram_print(struct histogram *histogram, FILE *to)
{
    size_t counts[BUCKETS] = {0};
    size_t first = BUCKETS;
    size_t last = 0;
    size_t most = 1;
    for (size_t i = 0; i < histogram->count; i++) {
        size_t bucket = 0;
        while (histogram->ms[i] >= borders[bucket]) {
            bucket++;
        }
        counts[bucket]++;
        first = bucket < first ? bucket : first;
        last = bucket > last ? bucket : last;
        most = counts[bucket] > most ? counts[bucket] : most;
    }
    for (size_t i = first; i < BUCKETS && i <= last; i++) {
        const int bar = (int)((counts[i] * BAR + most - 1) / most);
        fprintf(to, "  %7g .. %-7g ms %7zu  %.*s\n", i == 0 ? 0 : borders[i - 1], borders[i],
                counts[i], bar, "##################################################");
    }
}

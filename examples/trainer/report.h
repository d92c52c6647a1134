/*
 * The output of rank 0: lines as PyTorch's MNIST example prints them, on a terminal a bar instead
 * of the training lines, a file of metrics, and at the end where the time went. Other ranks print
 * nothing.
 */
#ifndef TRAINER_REPORT_H
#define TRAINER_REPORT_H

#include <stdint.h>

#include "problem.h"

enum report_share {
    SHARE_DATA,
    SHARE_COMPUTE,
    SHARE_COMMUNICATION,
    SHARE_WAIT,
    SHARE_OTHER,
    SHARES
};

struct report {
    bool speaks, bar, json;
    FILE *metrics;
    const char *metrics_path; /* borrowed */
    int epochs;
    double began_s, epoch_s; /* when the run, and the epoch, began */
    double share_s[SHARES];
    double images, flop; /* images of all ranks; operations of this rank */
    double epoch_images; /* images before the epoch, or what is left of it after a resume */
};

struct report_line {
    int epoch;              /* from 1 */
    int images, all_images; /* of all ranks so far; of the epoch */
    int batch, batches;
    int64_t updates;
    double lr, loss;
};

double report_now(void);

/* metrics may be NULL. over, updates: how many epochs and updates a resumed training has done; the
 * file is continued after the lines about these. */
bool report_open(struct report *report, bool speaks, int epochs, const char *metrics, int over,
                 int64_t updates, struct problem *problem);
/* False: not everything could be written to standard output. */
bool report_said(struct problem *problem);
/* False: not everything could be written to standard output and to the metrics. */
bool report_kept(const struct report *report, struct problem *problem);
void report_close(struct report *report);

void report_epoch(struct report *report);
void report_train(struct report *report, const struct report_line *line);
void report_test(struct report *report, int epoch, int64_t updates, double loss, int correct,
                 int images);
void report_epoch_over(struct report *report, int epoch);
void report_over(const struct report *report);
/* In place of report_over(), if the checkpoint was that of a whole training. */
void report_nothing(const struct report *report, int epoch);

#endif

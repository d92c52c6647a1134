#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BAR 30

double report_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Is a line about something that a resumed training repeats: a later update, or the test of an
 * epoch that is not over? */
static bool metrics_is_lost(const char *line, bool json, int epochs, int64_t updates)
{
    char kind[8] = "";
    int epoch = 0;
    int64_t later = 0;
    sscanf(line,
           json ? "{\"kind\": \"%7[a-z]\", \"epoch\": %d, \"updates\": %" SCNd64
                : "%7[a-z],%d,%" SCNd64,
           kind, &epoch, &later);
    return later > updates || (strcmp(kind, "test") == 0 && epoch > epochs);
}

/* Cuts off the lines about what a resumed training repeats. Returns how many bytes are kept. */
static off_t metrics_cut(const char *path, bool json, int epochs, int64_t updates)
{
    struct stat status;
    FILE *file = stat(path, &status) == 0 && S_ISREG(status.st_mode) ? fopen(path, "r+e") : NULL;
    if (file == NULL) {
        return 0;
    }
    char *line = NULL;
    size_t room = 0;
    off_t kept = 0;
    for (ssize_t bytes; (bytes = getline(&line, &room, file)) > 0; kept += bytes) {
        if (metrics_is_lost(line, json, epochs, updates) || line[bytes - 1] != '\n') {
            break;
        }
    }
    free(line);
    if (ftruncate(fileno(file), kept) != 0) {
        kept = status.st_size; /* then all lines are kept */
    }
    fclose(file);
    return kept;
}

bool report_open(struct report *report, bool speaks, int epochs, const char *metrics, int over,
                 int64_t updates, struct problem *problem)
{
    *report = (struct report){.speaks = speaks, .epochs = epochs, .began_s = report_now()};
    report->bar = speaks && isatty(STDOUT_FILENO);
    if (speaks) {
        setvbuf(stdout, NULL, _IOLBF, 0);
    }
    if (!speaks || metrics == NULL) {
        return true;
    }
    const char *end = strrchr(metrics, '.');
    report->json = end != NULL && strcmp(end, ".jsonl") == 0;
    const off_t kept = updates > 0 ? metrics_cut(metrics, report->json, over, updates) : 0;
    report->metrics_path = metrics;
    report->metrics = fopen(metrics, updates > 0 ? "ae" : "we");
    if (report->metrics == NULL) {
        return problem_say(problem, "%s: %s", metrics, strerror(errno));
    }
    setvbuf(report->metrics, NULL, _IOLBF, 0);
    if (!report->json && kept == 0) {
        fprintf(report->metrics, "kind,epoch,updates,lr,loss,accuracy,seconds\n");
    }
    return true;
}

bool report_said(struct problem *problem)
{
    return (fflush(stdout) == 0 && !ferror(stdout)) ||
           problem_say(problem, "not all could be written to standard output");
}

bool report_kept(const struct report *report, struct problem *problem)
{
    return (report->metrics == NULL || (fflush(report->metrics) == 0 && !ferror(report->metrics)) ||
            problem_say(problem, "%s: not all metrics could be written to it",
                        report->metrics_path)) &&
           report_said(problem);
}

void report_close(struct report *report)
{
    if (report->metrics != NULL) {
        fclose(report->metrics);
    }
}

/* A line about training has lr, a line about a test has accuracy; the other is NULL. */
static void metrics_write(struct report *report, int epoch, int64_t updates, double loss,
                          const double *lr, const double *accuracy)
{
    FILE *to = report->metrics;
    if (to == NULL) {
        return;
    }
    fprintf(to,
            report->json ? "{\"kind\": \"%s\", \"epoch\": %d, \"updates\": %" PRId64 ", "
                         : "%s,%d,%" PRId64 ",",
            lr != NULL ? "train" : "test", epoch, updates);
    if (lr != NULL) {
        fprintf(to, report->json ? "\"lr\": %.8g, " : "%.8g", *lr);
    }
    if (report->json && !isfinite(loss)) {
        fprintf(to, "\"loss\": null, "); /* JSON has neither NaN nor infinity */
    } else {
        fprintf(to, report->json ? "\"loss\": %.9g, " : ",%.9g,", loss);
    }
    if (accuracy != NULL) {
        fprintf(to, report->json ? "\"accuracy\": %.6f, " : "%.6f", *accuracy);
    }
    fprintf(to, report->json ? "\"seconds\": %.3f}\n" : ",%.3f\n", report_now() - report->began_s);
}

void report_epoch(struct report *report)
{
    report->epoch_s = report_now();
    report->epoch_images = report->images;
}

static void bar_draw(const struct report *report, const struct report_line *line)
{
    const int done = BAR * line->batch / line->batches;
    printf("\r\033[KEpoch %d of %d [%.*s%*s] %3d%%  loss %.4f  %.0f images/s", line->epoch,
           report->epochs, done, "##############################", BAR - done, "",
           100 * line->batch / line->batches, line->loss,
           (report->images - report->epoch_images) / (report_now() - report->epoch_s + 1e-9));
    fflush(stdout);
}

void report_train(struct report *report, const struct report_line *line)
{
    if (!report->speaks) {
        return;
    }
    metrics_write(report, line->epoch, line->updates, line->loss, &line->lr, NULL);
    if (report->bar) {
        bar_draw(report, line);
        return;
    }
    printf("Train Epoch: %d [%d/%d (%d%%)]\tLoss: %.6f\n", line->epoch, line->images,
           line->all_images, 100 * line->batch / line->batches, line->loss);
}

void report_test(struct report *report, int epoch, int64_t updates, double loss, int correct,
                 int images)
{
    const double accuracy = (double)correct / images;
    if (report->speaks) {
        metrics_write(report, epoch, updates, loss, NULL, &accuracy);
        printf("%s\nTest set: Average loss: %.4f, Accuracy: %d/%d (%.2f%%)\n\n",
               report->bar ? "\r\033[K" : "", loss, correct, images, 100 * accuracy);
    }
}

void report_epoch_over(struct report *report, int epoch)
{
    if (report->speaks) {
        printf("Epoch %d of %d took %.3fs\n", epoch, report->epochs,
               report_now() - report->epoch_s);
    }
}

void report_nothing(const struct report *report, int epoch)
{
    if (report->speaks) {
        printf("Nothing to train: the checkpoint has %d epochs, and --epochs is %d\n", epoch,
               report->epochs);
    }
}

void report_over(const struct report *report)
{
    if (!report->speaks) {
        return;
    }
    static const char *const names[SHARES] = {
        [SHARE_DATA] = "waiting for data",
        [SHARE_COMPUTE] = "compute",
        [SHARE_COMMUNICATION] = "communication calls",
        [SHARE_WAIT] = "waiting for gradients",
        [SHARE_OTHER] = "tests and checkpoints",
    };
    const double total = report_now() - report->began_s;
    double train = 0;
    for (int i = 0; i < SHARE_OTHER; i++) {
        train += report->share_s[i];
    }
    printf("Time of rank 0:");
    for (int i = 0; i < SHARES; i++) {
        printf(" %s %.1f%%%s", names[i], 100 * report->share_s[i] / total,
               i + 1 < SHARES ? "," : "\n");
    }
    printf("Training: %.0f images/s in all, %.1f GFLOP/s of rank 0\n",
           report->images / (train + 1e-9),
           report->flop / (report->share_s[SHARE_COMPUTE] + 1e-9) / 1e9);
    printf("Total time= %.3fs\n", total);
}

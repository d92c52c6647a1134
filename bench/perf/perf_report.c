/* See perf_report.h. */
#include "perf/perf_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf/perf_elements.h"
#include "perf/perf_ranks.h"

#define TIME_FORMAT "%Y-%m-%d %H:%M:%S"
#define JSON_SCHEMA 3

static const char *const half_keys[2] = {"out_of_place", "in_place"};
static const char *const iteration_keys[2] = {"out_of_place_per_iter", "in_place_per_iter"};

/* ---- Numbers --------------------------------------------------------------------------------- */

void perf_report_number(double value, int width, char ret_text[PERF_NUMBER_BYTES])
{
    static const char *const formats[] = {"%*.2f", "%*.1f", "%*.0f", "%*.1e", "%*.0e"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        int length = snprintf(ret_text, PERF_NUMBER_BYTES, formats[i], width, value);
#pragma GCC diagnostic pop
        if (length <= width) {
            return;
        }
    }
}

static int report_compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: the smallest value that percent of all values do not exceed. */
static double report_percentile(const double *sorted, size_t n, size_t percent)
{
    size_t rank = (n * percent + 99) / 100;
    return sorted[rank > 0 ? rank - 1 : 0];
}

void perf_report_stats(double *values, size_t n, struct perf_stats *ret_stats)
{
    qsort(values, n, sizeof *values, report_compare);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += values[i];
    }
    double mean = sum / (double)n;
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        squares += (values[i] - mean) * (values[i] - mean);
    }
    *ret_stats = (struct perf_stats){
        .min = values[0],
        .max = values[n - 1],
        .mean = mean,
        .p50 = report_percentile(values, n, 50),
        .p95 = report_percentile(values, n, 95),
        .p99 = report_percentile(values, n, 99),
        .deviation = sqrt(squares / (double)n),
    };
}

static double report_variation(const struct perf_stats *stats)
{
    return stats->mean > 0 ? stats->deviation / stats->mean * 100 : 0;
}

static void report_now(char *text, size_t bytes)
{
    time_t now = time(NULL);
    struct tm parts;
    if (!localtime_r(&now, &parts) || strftime(text, bytes, TIME_FORMAT, &parts) == 0) {
        text[0] = '\0';
    }
}

/* ---- Head ------------------------------------------------------------------------------------ */

extern char **environ;

/* Only variables that concern the run, and never a secret. */
static void report_json_environment(struct perf_json *json)
{
    perf_json_begin(json, "env", '[');
    for (char **entry = environ; *entry; entry++) {
        bool ours = strncmp(*entry, "HOOP_", 5) == 0 || strncmp(*entry, "NCCL_TESTS_", 11) == 0;
        if (ours && !strstr(*entry, "SECRET")) {
            perf_json_string(json, NULL, *entry);
        }
    }
    perf_json_end(json);
}

static void report_json_open(struct perf_json *json, int argc, char **argv)
{
    char now[32];
    report_now(now, sizeof now);
    perf_json_begin(json, NULL, '{');
    perf_json_integer(json, "version", JSON_SCHEMA);
    perf_json_string(json, "start_time", now);
    perf_json_begin(json, "args", '[');
    for (int i = 0; i < argc; i++) {
        perf_json_string(json, NULL, argv[i]);
    }
    perf_json_end(json);
    report_json_environment(json);
    int version = 0;
    hoop_get_version(&version);
    perf_json_string(json, "library", "hoop");
    /* in the dialect the key of the library's version */
    perf_json_integer(json, "nccl_version", version);
}

static void report_banner(FILE *out, const struct perf_options *options, const char *program)
{
    bool multiplied = options->step_factor > 1;
    int library = 0;
    hoop_get_version(&library);
    fprintf(out, "# hoop version %d.%d.%d hoop-headers=%d hoop-library=%d\n", HOOP_MAJOR,
            HOOP_MINOR, HOOP_PATCH, HOOP_VERSION_CODE, library);
    fprintf(out, "# Collective test starting: %s\n", program);
    fprintf(out,
            "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d "
            "iters: %d agg iters: %d validation: %d graph: %d unalign: %zu\n",
            options->threads, options->gpus, options->min_bytes, options->max_bytes,
            multiplied ? options->step_factor : options->step_bytes,
            multiplied ? "factor" : "bytes", options->warmup_iters, options->iters,
            options->agg_iters, options->checks, options->graph, options->unalign);
    if (options->blocking == PERF_BLOCKING_BARRIER) {
        fprintf(out, "# Blocking Enabled: barrier after each collective\n");
    } else if (options->blocking == PERF_BLOCKING_WAIT) {
        fprintf(out,
                "# Blocking Enabled: wait for completion after each collective (no barrier)\n");
    } else if (options->blocking == PERF_BLOCKING_OUTER) {
        fprintf(out, "# Blocking Enabled: barrier after each iteration\n");
    }
    if (options->per_iter) {
        fprintf(out, "# Per-Iteration Report: i_* are of the slowest rank in each iteration\n");
    }
    if (options->parallel_init) {
        fprintf(out, "# Parallel Init Enabled: ranks of a process initialise concurrently\n");
    }
    perf_options_notes(options, out);
    fprintf(out, "#\n");
}

void perf_report_open(struct perf_report *report, const struct perf_collective *collective,
                      int argc, char **argv)
{
    if (report->options->json_path) {
        perf_json_open(&report->json, report->options->json_path, report->out);
    }
    report_json_open(&report->json, argc, argv);
    report_banner(report->out, report->options, collective->program);
}

/* Where inputs are made and results compared, judged by rank 0. */
static const char *report_checker(const struct perf_place *places)
{
    return perf_elements_have_kernels(places[0].device) ? "device" : "host";
}

static void report_json_config(struct perf_json *json, const struct perf_options *options)
{
    bool multiplied = options->step_factor > 1;
    perf_json_integer(json, "nthreads", options->threads);
    perf_json_integer(json, "ngpus", options->gpus);
    perf_json_size(json, "minimum_bytes", options->min_bytes);
    perf_json_size(json, "maximum_bytes", options->max_bytes);
    perf_json_size(json, multiplied ? "step_factor" : "step_bytes",
                   multiplied ? options->step_factor : options->step_bytes);
    perf_json_integer(json, "warmup_iters", options->warmup_iters);
    perf_json_integer(json, "iterations", options->iters);
    perf_json_integer(json, "aggregated_iterations", options->agg_iters);
    perf_json_integer(json, "validation", options->checks);
    perf_json_integer(json, "graph", options->graph);
    perf_json_bool(json, "blocking_collectives", options->blocking != PERF_BLOCKING_OFF);
    perf_json_bool(json, "per_iter_timing", options->per_iter != 0);
    perf_json_bool(json, "parallel_init", options->parallel_init != 0);
}

void perf_report_places(struct perf_report *report, const struct perf_place *places, int nranks)
{
    struct perf_json *json = &report->json;
    perf_json_begin(json, "config", '{');
    report_json_config(json, report->options);
    perf_json_string(json, "validation_by", report_checker(places));
    perf_json_begin(json, "devices", '[');
    fprintf(report->out, "# Using devices\n");
    for (int rank = 0; rank < nranks; rank++) {
        const struct perf_place *place = &places[rank];
        fprintf(report->out, "#  Rank %2d Group %2d Pid %6d on %10s device ", rank, 0,
                (int)place->pid, place->host);
        if (place->device < 0) {
            fprintf(report->out, "host [cpus %s]\n", place->cpus);
        } else {
            fprintf(report->out, "%2d [%s] %s\n", (int)place->device, place->bus, place->cpus);
        }
        perf_json_begin(json, NULL, '{');
        perf_json_integer(json, "rank", rank);
        perf_json_integer(json, "group", 0);
        perf_json_integer(json, "pid", place->pid);
        perf_json_string(json, "hostname", place->host);
        perf_json_integer(json, "device", place->device);
        perf_json_string(json, "device_hex", place->device < 0 ? "host" : place->bus);
        perf_json_string(json, "device_info", place->cpus);
        perf_json_end(json);
    }
    if (places[0].device >= 0 && report->options->checks > 0) {
        fprintf(report->out, "# Results are compared on the %s\n", report_checker(places));
    }
    perf_json_end(json);
    perf_json_end(json);
}

/* ---- Table ----------------------------------------------------------------------------------- */

/* One line of the head: the columns of both halves, each followed by the four of -I. */
static void report_head_line(const struct perf_report *report, const char *const first[3],
                             const char *const half[4], const char *const iteration[4],
                             const char *stamp)
{
    FILE *out = report->out;
    bool both = first[2][0] != '\0';
    fprintf(out, "# %10s  %12s  %8s  %6s  %6s", first[0], first[1], first[2], both ? "redop" : "",
            both ? "root" : "");
    for (int i = 0; i < 2; i++) {
        fprintf(out, "  %7s  %6s  %6s  %6s", half[0], half[1], half[2], half[3]);
        if (report->options->per_iter) {
            fprintf(out, "  %7s  %7s  %7s  %7s", iteration[0], iteration[1], iteration[2],
                    iteration[3]);
        }
    }
    if (report->options->timestamps) {
        fprintf(out, " %19s\n", stamp);
    } else {
        fprintf(out, " \n");
    }
}

void perf_report_head(struct perf_report *report)
{
    static const char *const names[3] = {"size", "count", "type"};
    static const char *const units[3] = {"(B)", "(elements)", ""};
    static const char *const half_units[4] = {"(us)", "(GB/s)", "(GB/s)", ""};
    static const char *const iteration_names[4] = {"i_min", "i_max", "i_p99", "i_cv%"};
    static const char *const iteration_units[4] = {"(us)", "(us)", "(us)", "(%)"};
    const char *const half_names[4] = {report->options->cpu_time ? "cputime" : "time", "algbw",
                                       "busbw", "#wrong"};
    fprintf(report->out, "#\n");
    fprintf(report->out, "# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
    if (report->options->per_iter) {
        fprintf(report->out, "%14s%-53s%-21s%s\n", "", "out-of-place (+ per-iteration)", "",
                "in-place (+ per-iteration)");
    } else {
        fprintf(report->out, "%11s%-35s%-18s\n", "", "out-of-place", "in-place");
    }
    report_head_line(report, names, half_names, iteration_names, "timestamp");
    report_head_line(report, units, half_units, iteration_units, TIME_FORMAT);
    perf_json_begin(&report->json, "results", '[');
    fflush(report->out);
}

void perf_report_row_begin(struct perf_report *report, const struct perf_row *row)
{
    struct perf_json *json = &report->json;
    char root[16];
    snprintf(root, sizeof root, "%d", row->root);
    report->progress.row++;
    fprintf(report->out, "%12zu  %12zu  %8s  %6s  %6s", row->bytes, row->count, row->type, row->op,
            root);
    fflush(report->out); /* shows which row is running, if it is slow */
    perf_json_begin(json, NULL, '{');
    perf_json_size(json, "size", row->bytes);
    perf_json_size(json, "count", row->count);
    perf_json_string(json, "type", row->type);
    perf_json_string(json, "redop", row->op);
    perf_json_integer(json, "root", row->root);
}

static void report_json_iterations(struct perf_json *json, const struct perf_half *half,
                                   int in_place)
{
    const struct perf_stats *stats = &half->stats;
    const char *const keys[] = {"min_us", "max_us", "avg_us",  "p50_us",
                                "p95_us", "p99_us", "stdev_us"};
    const double seconds[] = {stats->min, stats->max, stats->mean,     stats->p50,
                              stats->p95, stats->p99, stats->deviation};
    perf_json_begin(json, iteration_keys[in_place], '{');
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        perf_json_double(json, keys[i], seconds[i] * 1e6);
    }
    perf_json_double(json, "cv_pct", report_variation(stats));
    perf_json_begin(json, "times_us", '[');
    for (size_t i = 0; i < half->n_times; i++) {
        perf_json_double(json, NULL, half->times[i] * 1e6);
    }
    perf_json_end(json);
    perf_json_end(json);
}

static void report_json_half(struct perf_report *report, const struct perf_half *half, int in_place)
{
    struct perf_json *json = &report->json;
    bool cpu = report->options->cpu_time != 0;
    if (half->none) {
        perf_json_null(json, half_keys[in_place]);
        return;
    }
    perf_json_begin(json, half_keys[in_place], '{');
    perf_json_double(json, cpu ? "cpu_time" : "time",
                     (cpu ? half->cpu_seconds : half->seconds) * 1e6);
    perf_json_double(json, "alg_bw", half->alg);
    perf_json_double(json, "bus_bw", half->bus);
    if (half->checked) {
        perf_json_integer(json, "nwrong", half->wrong);
    } else {
        perf_json_null(json, "nwrong");
    }
    if (report->bound.alg > 0) {
        perf_json_double(json, "bound_share", half->alg / report->bound.alg);
    }
    perf_json_end(json);
    if (half->n_times > 0) {
        report_json_iterations(json, half, in_place);
    }
}

/* Prints the number, or N/A if the half was not measured. */
static void report_column(const struct perf_report *report, const struct perf_half *half,
                          double value, int width)
{
    char text[PERF_NUMBER_BYTES] = "N/A";
    if (!half->none) {
        perf_report_number(value, width, text);
    }
    fprintf(report->out, "  %*s", width, text);
}

void perf_report_half(struct perf_report *report, const struct perf_row *row, int in_place)
{
    const struct perf_half *half = &row->half[in_place];
    double seconds = report->options->cpu_time ? half->cpu_seconds : half->seconds;
    perf_progress_clear(&report->progress);
    report_column(report, half, seconds * 1e6, 7);
    report_column(report, half, half->alg, 6);
    report_column(report, half, half->bus, 6);
    if (half->checked) {
        fprintf(report->out, "  %6g", (double)half->wrong);
    } else {
        fprintf(report->out, "    N/A"); /* one character short, as in the dialect */
    }
    if (report->options->per_iter) {
        report_column(report, half, half->stats.min * 1e6, 7);
        report_column(report, half, half->stats.max * 1e6, 7);
        report_column(report, half, half->stats.p99 * 1e6, 7);
        report_column(report, half, report_variation(&half->stats), 7);
    }
    fflush(report->out);
    report_json_half(report, half, in_place);
}

static void report_remember(struct perf_report *report, const struct perf_row *row)
{
    if (report->n_shares == report->room_shares) {
        size_t room = report->room_shares > 0 ? 2 * report->room_shares : 64;
        struct perf_share *shares = realloc(report->shares, room * sizeof *shares);
        if (!shares) {
            return; /* the row itself is printed; only its comparison is lost */
        }
        report->shares = shares;
        report->room_shares = room;
    }
    report->shares[report->n_shares++] = (struct perf_share){
        .bytes = row->bytes,
        .type = row->type,
        .op = row->op,
        .alg = {row->half[0].alg, row->half[1].none ? NAN : row->half[1].alg},
    };
}

void perf_report_row_end(struct perf_report *report, const struct perf_row *row)
{
    if (report->options->timestamps) {
        char now[32];
        report_now(now, sizeof now);
        fprintf(report->out, "%21s", now);
    }
    fprintf(report->out, "\n");
    int64_t damage = row->half[0].damage + row->half[1].damage;
    if (damage > 0) {
        fprintf(report->out, "# %lld bytes outside the receive buffers were written\n",
                (long long)damage);
    }
    fflush(report->out);
    if (report->bound.alg > 0 && row->bytes >= PERF_BOUND_FROM_BYTES) {
        report_remember(report, row);
    }
    perf_json_end(&report->json);
}

/* ---- Foot ------------------------------------------------------------------------------------ */

void perf_report_bound(struct perf_report *report, int nranks)
{
    if (report->bound.alg <= 0) {
        return;
    }
    fprintf(report->out,
            "# bound: memory moves %.2f GB/s (read + written) when all %d ranks run a += b over "
            "two buffers of %zu bytes each;\n"
            "# bound: what must be read and written at least then allows algbw %.2f GB/s; "
            "sizes that fit the caches can exceed it\n",
            report->bound.bytes_per_second / 1e9, nranks, report->bound.bytes, report->bound.alg);
    for (size_t i = 0; i < report->n_shares; i++) {
        const struct perf_share *share = &report->shares[i];
        fprintf(report->out, "# bound %12zu  %8s  %6s  out-of-place %6.1f %%", share->bytes,
                share->type, share->op, share->alg[0] / report->bound.alg * 100);
        if (!isnan(share->alg[1])) {
            fprintf(report->out, "  in-place %6.1f %%", share->alg[1] / report->bound.alg * 100);
        }
        fprintf(report->out, " of algbw %.2f GB/s\n", report->bound.alg);
    }
    report->n_shares = 0;
    fflush(report->out);
}

double perf_report_mean_bus(const struct perf_tally *tally)
{
    return tally->halves > 0 ? tally->bus_sum / (double)tally->halves : 0;
}

bool perf_report_fast_enough(const struct perf_tally *tally, double min_bus)
{
    return min_bus < 0 || perf_report_mean_bus(tally) >= 0.9 * min_bus;
}

static bool report_json_close(struct perf_report *report, const struct perf_tally *tally,
                              double min_bus, const char *failure)
{
    struct perf_json *json = &report->json;
    char now[32];
    while (json->file && json->depth > 1) {
        perf_json_end(json); /* the list of results, and an incomplete row */
    }
    if (report->bound.alg > 0) {
        perf_json_begin(json, "bound", '{');
        perf_json_double(json, "memory_bw", report->bound.bytes_per_second / 1e9);
        perf_json_double(json, "alg_bw", report->bound.alg);
        perf_json_end(json);
    }
    perf_json_begin(json, "out_of_bounds", '{');
    perf_json_integer(json, "count", tally->errors);
    perf_json_bool(json, "okay", tally->errors == 0);
    perf_json_end(json);
    perf_json_begin(json, "average_bus_bandwidth", '{');
    perf_json_double(json, "bandwidth", perf_report_mean_bus(tally));
    if (min_bus < 0) {
        perf_json_string(json, "okay", "unchecked");
    } else {
        perf_json_bool(json, "okay", perf_report_fast_enough(tally, min_bus));
    }
    perf_json_end(json);
    perf_json_begin(json, "errors", '[');
    if (failure) {
        perf_json_string(json, NULL, failure);
    }
    perf_json_end(json);
    report_now(now, sizeof now);
    perf_json_string(json, "end_time", now);
    const bool whole = perf_json_close(json);
    if (!whole) {
        fprintf(report->out, "# the JSON output could not be written completely\n");
    }
    return whole;
}

bool perf_report_close(struct perf_report *report, const struct perf_collective *collective,
                       const struct perf_tally *tally, double min_bus, const char *failure)
{
    if (!failure) {
        const char *verdict = min_bus < 0 ? "" : "FAILED";
        if (min_bus >= 0 && perf_report_fast_enough(tally, min_bus)) {
            verdict = "OK";
        }
        fprintf(report->out, "# %-20s : %lld %s\n", "Out of bounds values",
                (long long)tally->errors, tally->errors == 0 ? "OK" : "FAILED");
        fprintf(report->out, "# %-20s : %g %s\n", "Avg bus bandwidth", perf_report_mean_bus(tally),
                verdict);
        fprintf(report->out, "#\n# Collective test concluded: %s\n#\n", collective->program);
    } else {
        fprintf(report->out, "\n# %s\n", failure);
    }
    fflush(report->out);
    const bool whole = report_json_close(report, tally, min_bus, failure);
    free(report->shares);
    report->shares = NULL;
    return whole;
}

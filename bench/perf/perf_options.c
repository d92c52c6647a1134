/* See perf_options.h. One table drives the short options, the long ones and the help. */
#include "perf/perf_options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "perf/perf.h"
#include "perf/perf_device.h"

enum option_kind {
    OPTION_INT,
    OPTION_SIZE,
    OPTION_TYPE,
    OPTION_OP,
    OPTION_PATH,
    OPTION_MEMORY,
    OPTION_OFF
};

#define NO_BOUND 256

struct option_row {
    int letter; /* the short option, NO_BOUND: none */
    enum option_kind kind;
    int low; /* of an OPTION_INT */
    int high;
    size_t at; /* offset of the field */
    const char *name;
    const char *text;
};

#define FIELD(name) offsetof(struct perf_options, name)

static const struct option_row rows[] = {
    {'t', OPTION_INT, 1, 4096, FIELD(threads), "nthreads", "threads per process"},
    {'g', OPTION_INT, 1, 4096, FIELD(gpus), "ngpus", "ranks per thread, as one group"},
    {'b', OPTION_SIZE, 0, 0, FIELD(min_bytes), "minbytes", "first size; K, M, G are binary"},
    {'e', OPTION_SIZE, 0, 0, FIELD(max_bytes), "maxbytes", "last size"},
    {'i', OPTION_SIZE, 0, 0, FIELD(step_bytes), "stepbytes", "size step, added"},
    {'f', OPTION_SIZE, 0, 0, FIELD(step_factor), "stepfactor",
     "size step, multiplied; wins if > 1"},
    {'n', OPTION_INT, 0, INT_MAX, FIELD(iters), "iters", "timed iterations"},
    {'m', OPTION_INT, 1, INT_MAX, FIELD(agg_iters), "agg_iters", "operations per iteration"},
    {'w', OPTION_INT, 0, INT_MAX, FIELD(warmup_iters), "warmup_iters", "untimed iterations"},
    {'N', OPTION_INT, 0, INT_MAX, FIELD(cycles), "run_cycles", "repeat all; 0 = for ever"},
    {'p', OPTION_INT, 0, 1, FIELD(parallel_init), "parallel_init", "ranks initialise concurrently"},
    {'c', OPTION_INT, 0, INT_MAX, FIELD(checks), "check", "checking iterations; 0 = none"},
    {'o', OPTION_OP, 0, 0, FIELD(op), "op", "sum prod min max avg mulsum all"},
    {'d', OPTION_TYPE, 0, 0, FIELD(type), "datatype", "float, int8, ... or all"},
    {'r', OPTION_INT, -1, INT_MAX, FIELD(root), "root", "root rank; -1 = each in turn"},
    {'z', OPTION_INT, 0, 3, FIELD(blocking), "blocking",
     "1 barrier after each operation, 2 wait only, 3 barrier after each iteration"},
    {'y', OPTION_INT, 0, 1, FIELD(null_stream), "stream_null", "1: calls on the default stream"},
    {'T', OPTION_INT, 0, INT_MAX, FIELD(timeout_s), "timeout",
     "seconds without progress; 0 = none"},
    {'G', OPTION_INT, 0, INT_MAX, FIELD(graph), "cudagraph",
     "replay the iterations as a graph N times; 0: none"},
    {'C', OPTION_INT, 0, 1, FIELD(cpu_time), "report_cputime", "show processor time instead"},
    {'S', OPTION_INT, 0, 1, FIELD(timestamps), "report_timestamps", "one more column: the time"},
    {'J', OPTION_PATH, 0, 0, FIELD(json_path), "output_file", "results as JSON too"},
    {'a', OPTION_INT, 0, 3, FIELD(average), "average", "time of: 0 rank 0, 1 mean, 2 min, 3 max"},
    {'R', OPTION_INT, 0, 2, FIELD(memory), "local_register",
     "0 plain memory, 1 registered, 2 from hoop_mem_alloc"},
    {'x', OPTION_INT, 0, 2, FIELD(cta_policy), "cta_policy", "no effect on host ranks"},
    {'D', OPTION_INT, 0, INT_MAX, FIELD(device_implementation), "device_implementation",
     "needs GPUs unless 0"},
    {'V', OPTION_INT, 1, INT_MAX, FIELD(device_ctas), "device_cta_count",
     "no effect on host ranks"},
    {'M', OPTION_MEMORY, 0, 1, FIELD(memory_report), "memory",
     "1 print memory use; host, device, auto: where the buffers are"},
    {'u', OPTION_SIZE, 0, 0, FIELD(unalign), "unalign", "offset of the buffers, in elements"},
    {'I', OPTION_INT, 0, 1, FIELD(per_iter), "per_iter_timing", "columns about single iterations"},
    {'K', OPTION_INT, 0, INT_MAX, FIELD(per_iter_skip), "per_iter_skip",
     "leave out the first ones there"},
    {NO_BOUND, OPTION_OFF, 0, 0, FIELD(bound), "no-bound",
     "do not compare with the speed of memory"},
};
#define N_ROWS (sizeof rows / sizeof rows[0])

static const struct perf_options presets = {
    .threads = 1,
    .gpus = 1,
    .min_bytes = (size_t)32 << 20,
    .max_bytes = (size_t)32 << 20,
    .step_bytes = (size_t)1 << 20,
    .step_factor = 1,
    .iters = 20,
    .agg_iters = 1,
    .warmup_iters = 1,
    .cycles = 1,
    .checks = 1,
    .type = HOOP_FLOAT32,
    .op = HOOP_SUM,
    .average = PERF_AVERAGE_MEAN,
    .cta_policy = -1,
    .device_ctas = -1,
    .bound = 1,
};

static __attribute__((format(printf, 2, 3))) void option_say(FILE *to, const char *format, ...)
{
    if (to) {
        va_list args;
        va_start(args, format);
        vfprintf(to, format, args);
        va_end(args);
    }
}

static bool option_size(const char *text, size_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (end == text || errno != 0 || strchr(text, '-')) {
        return false;
    }
    int shift = 0;
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    default:
        break;
    }
    end += shift > 0;
    if (*end != '\0' || value > (SIZE_MAX >> shift)) {
        return false;
    }
    *ret = (size_t)value << shift;
    return true;
}

static bool option_int(const struct option_row *row, const char *text, int *ret)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 0);
    if (row->letter == 'r' && strcmp(text, "all") == 0) {
        *ret = 0; /* as in the dialect; -1 means every root */
        return true;
    }
    if (end == text || *end != '\0' || errno != 0 || value < row->low || value > row->high) {
        return false;
    }
    *ret = (int)value;
    return true;
}

static int option_type(const char *text, FILE *out)
{
    for (int type = 0; type < HOOP_NUM_DATATYPES; type++) {
        if (strcmp(text, perf_type_name((hoop_datatype_t)type)) == 0) {
            return type;
        }
    }
    if (strcmp(text, "all") == 0) {
        return PERF_ALL;
    }
    option_say(out, "invalid type %s, defaulting to %s .. \n", text, perf_type_name(HOOP_FLOAT32));
    return HOOP_FLOAT32;
}

static int option_op(const char *text, FILE *out)
{
    for (int op = 0; op < PERF_NUM_OPS; op++) {
        if (strcmp(text, perf_op_name(op)) == 0) {
            return op;
        }
    }
    if (strcmp(text, "all") == 0) {
        return PERF_ALL;
    }
    option_say(out, "invalid op %s, defaulting to %s .. \n", text, perf_op_name(HOOP_SUM));
    return HOOP_SUM;
}

/* --memory has two meanings: the dialect's, and where the buffers are. */
static bool option_memory(const struct option_row *row, const char *text,
                          struct perf_options *options)
{
    static const char *const places[] = {"host", "device", "auto"};
    for (int place = PERF_PLACE_HOST; place <= PERF_PLACE_AUTO; place++) {
        if (strcmp(text, places[place]) == 0) {
            options->place = place;
            return true;
        }
    }
    return option_int(row, text, &options->memory_report);
}

static bool option_set(const struct option_row *row, char *text, FILE *out,
                       struct perf_options *options)
{
    void *field = (char *)options + row->at;
    switch (row->kind) {
    case OPTION_INT:
        return option_int(row, text, field);
    case OPTION_SIZE:
        return option_size(text, field);
    case OPTION_TYPE:
        *(int *)field = option_type(text, out);
        return true;
    case OPTION_OP:
        *(int *)field = option_op(text, out);
        return true;
    case OPTION_MEMORY:
        return option_memory(row, text, options);
    case OPTION_PATH:
        *(const char **)field = text;
        return true;
    default:
        *(int *)field = 0;
        return true;
    }
}

static void option_usage(const char *program, FILE *out)
{
    option_say(out, "USAGE: %s\n", program);
    for (size_t i = 0; i < N_ROWS; i++) {
        char letter[8] = "   ";
        if (rows[i].letter < NO_BOUND) {
            snprintf(letter, sizeof letter, "-%c,", (char)rows[i].letter);
        }
        option_say(out, "\t[%s --%s%s]  %s\n", letter, rows[i].name,
                   rows[i].kind == OPTION_OFF ? "" : " <value>", rows[i].text);
    }
    option_say(out, "\t[-h, --help]\n");
}

static void option_bad_value(const struct option_row *row, const char *text, FILE *err)
{
    option_say(err, "invalid value '%s' for --%s", text, row->name);
    if (row->kind == OPTION_MEMORY) {
        option_say(err, ": 0, 1, host, device or auto is expected\n");
    } else if (row->kind == OPTION_SIZE) {
        option_say(err, ": a whole number is expected, with or without K, M or G\n");
    } else if (row->high == INT_MAX) {
        option_say(err, ": a whole number from %d up is expected\n", row->low);
    } else {
        option_say(err, ": a whole number from %d to %d is expected\n", row->low, row->high);
    }
}

/* Makes getopt's arguments from the table. */
static void option_tables(char *letters, struct option *names)
{
    size_t at = 0;
    letters[at++] = ':'; /* ':' for a value that is missing, not '?' */
    for (size_t i = 0; i < N_ROWS; i++) {
        bool takes = rows[i].kind != OPTION_OFF;
        names[i] = (struct option){rows[i].name, takes ? required_argument : no_argument, NULL,
                                   rows[i].letter};
        if (rows[i].letter < NO_BOUND) {
            letters[at++] = (char)rows[i].letter;
            letters[at++] = ':';
        }
    }
    letters[at++] = 'h';
    letters[at] = '\0';
    names[N_ROWS] = (struct option){"help", no_argument, NULL, 'h'};
    names[N_ROWS + 1] = (struct option){NULL, 0, NULL, 0};
}

/* Checks options against each other. */
static int option_check(const struct perf_options *options, FILE *err)
{
    if (options->max_bytes < options->min_bytes) {
        option_say(err, "invalid sizes: minbytes %zu is more than maxbytes %zu\n",
                   options->min_bytes, options->max_bytes);
        return PERF_BAD_ARGUMENT;
    }
    if (options->max_bytes > SIZE_MAX / 4 || options->unalign > SIZE_MAX / 64) {
        option_say(err, "invalid sizes: maxbytes %zu or unalign %zu is beyond any memory\n",
                   options->max_bytes, options->unalign);
        return PERF_BAD_ARGUMENT;
    }
    if (options->device_implementation > 0) {
        option_say(err, "-D %d: device kernels need GPU ranks, and these are host ranks\n",
                   options->device_implementation);
        return PERF_NOT_IMPLEMENTED;
    }
    return PERF_SUCCESS;
}

/* An argument that belongs to no option: one too many, or part of a value with a blank in it. */
static int option_stray(const char *text, FILE *err)
{
    option_say(err, "unexpected argument '%s': options begin with - and have one value at most\n",
               text);
    return PERF_BAD_ARGUMENT;
}

/* Decides where the buffers are, and checks the options that depend on it. */
static int option_settle(struct perf_options *options, FILE *err)
{
    const char *why = NULL;
    const bool any = options->place != PERF_PLACE_HOST && perf_device_count(&why) > 0;
    if (options->place == PERF_PLACE_DEVICE && !any) {
        option_say(err, "--memory device: there is no device: %s\n", why);
        return PERF_NOT_IMPLEMENTED;
    }
    options->place = any ? PERF_PLACE_DEVICE : PERF_PLACE_HOST;
    options->bound &= !any; /* the bound is that of host memory */
    if (options->graph > 0 && !any) {
        option_say(err, "-G %d: graphs need GPU ranks, and these are host ranks\n", options->graph);
        return PERF_NOT_IMPLEMENTED;
    }
    if (options->graph > 0 && (options->threads > 1 || options->gpus > 1 || options->per_iter)) {
        option_say(err, "-G %d: expected one rank in a process, and no -I\n", options->graph);
        return PERF_NOT_IMPLEMENTED;
    }
    return PERF_SUCCESS;
}

bool perf_options_parse(int argc, char **argv, FILE *out, FILE *err,
                        struct perf_options *ret_options, int *ret_exit)
{
    char letters[2 * N_ROWS + 3];
    struct option names[N_ROWS + 2];
    option_tables(letters, names);
    struct perf_options options = presets;
    optind = 0; /* so that a second call begins anew */
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, letters, names, NULL)) != -1;) {
        size_t i = 0;
        while (i < N_ROWS && rows[i].letter != letter) {
            i++;
        }
        if (letter == ':') {
            option_say(err, "%s: a value is expected after it\n", argv[optind - 1]);
            *ret_exit = PERF_BAD_ARGUMENT;
            return false;
        }
        if (i == N_ROWS) {
            if (letter != 'h') {
                option_say(out, "invalid option '%s'\n", argv[optind > 1 ? optind - 1 : 0]);
            }
            option_usage(argv[0], out);
            *ret_exit = PERF_SUCCESS;
            return false;
        }
        if (!option_set(&rows[i], optarg, out, &options)) {
            option_bad_value(&rows[i], optarg, err);
            *ret_exit = PERF_BAD_ARGUMENT;
            return false;
        }
    }
    *ret_exit = optind < argc ? option_stray(argv[optind], err) : option_check(&options, err);
    if (*ret_exit == PERF_SUCCESS) {
        *ret_exit = option_settle(&options, err);
    }
    *ret_options = options;
    return *ret_exit == PERF_SUCCESS;
}

void perf_options_notes(const struct perf_options *options, FILE *out)
{
    if (options->null_stream && options->place == PERF_PLACE_HOST) {
        fprintf(out, "# -y %d has no effect: host ranks use no CUDA stream\n",
                options->null_stream);
    }
    if (options->cta_policy >= 0) {
        fprintf(out, "# -x %d has no effect: host ranks launch no kernels\n", options->cta_policy);
    }
    if (options->device_ctas >= 0) {
        fprintf(out, "# -V %d has no effect: host ranks launch no kernels\n", options->device_ctas);
    }
    if (options->cpu_time) {
        fprintf(out, "# cputime: processor time of the calling thread; bandwidths are of the "
                     "elapsed time\n");
    }
}

bool perf_options_next_size(const struct perf_options *options, size_t bytes, size_t *ret_bytes)
{
    size_t next = bytes;
    if (options->step_factor > 1 && bytes > 0) {
        next = bytes > options->max_bytes / options->step_factor ? SIZE_MAX
                                                                 : bytes * options->step_factor;
    } else if (options->step_factor > 1) {
        next = 1; /* 0 can't be multiplied */
    } else {
        next = bytes > SIZE_MAX - options->step_bytes ? SIZE_MAX : bytes + options->step_bytes;
    }
    *ret_bytes = next;
    return next > bytes && next <= options->max_bytes;
}

size_t perf_options_sizes(const struct perf_options *options)
{
    size_t bytes = options->min_bytes;
    size_t sizes = 1;
    while (perf_options_next_size(options, bytes, &bytes)) {
        sizes++;
    }
    return sizes;
}

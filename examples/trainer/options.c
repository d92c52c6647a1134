#include "options.h"

#include <ctype.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/*
 * A row for each option except --help: its name, kind and field, the range if it is a number, and
 * its help. FLAG takes no value.
 */
enum option_kind { FLAG, WHOLE, NUMBER, TEXT, MODEL, OPTIMIZER, MEGABYTES, DEVICE, OVERLAP };
struct option_row {
    const char *name;
    enum option_kind kind;
    size_t field;
    double least, most;
    const char *text;
};
#define AT(field) offsetof(struct options, field)

static const struct option_row rows[] = {
    {"model", MODEL, AT(model), 0, 0,
     "NAME     mnist, mnist-bn, cifar or linear (default: by the data)"},
    {"device", DEVICE, AT(device), 0, 0, "NAME     cpu, cuda, or cuda:N for all ranks (cpu)"},
    {"data", TEXT, AT(data), 0, 0,
     "DIR      MNIST, Fashion-MNIST (IDX) or CIFAR-10 (binary); default: digits"},
    {"train-samples", WHOLE, AT(train_samples), 1, INT_MAX, "N        only the first N images"},
    {"workers", WHOLE, AT(workers), 0, 64, "N        threads that prepare batches (1)"},
    {"drop-last", FLAG, AT(drop_last), 0, 0,
     "         leave out images that would make ranks unequal"},
    {"epochs", WHOLE, AT(epochs), 1, INT_MAX, "N        (10)"},
    {"batch-size", WHOLE, AT(batch), 1, 65536, "N        of each rank (64)"},
    {"test-batch-size", WHOLE, AT(test_batch), 1, 65536, "N        of each rank (250)"},
    {"accumulate", WHOLE, AT(accumulate), 1, 65536, "N        batches for one update (1)"},
    {"optimizer", OPTIMIZER, AT(optimizer.kind), 0, 0, "NAME     sgd or adam (sgd)"},
    {"lr", NUMBER, AT(lr), 0, 1e9, "X        learning rate (0.01)"},
    {"momentum", NUMBER, AT(optimizer.momentum), 0, 1, "X        of sgd (0.5)"},
    {"weight-decay", NUMBER, AT(optimizer.weight_decay), 0, 1e9, "X        (0)"},
    {"scale-lr", FLAG, AT(scale_lr), 0, 0,
     "         learning rate times ranks times accumulated batches"},
    {"warmup", NUMBER, AT(warmup), 0, 1e9, "X        epochs until the learning rate is there (0)"},
    {"seed", WHOLE, AT(seed), 0, UINT_MAX, "N        (1)"},
    {"first-bucket-mb", MEGABYTES, AT(ddp.first_bucket_bytes), 0, 1e6, "X        (1)"},
    {"bucket-cap-mb", MEGABYTES, AT(ddp.bucket_bytes), 0, 1e6,
     "X        gradients that travel together (25)"},
    {"overlap", OVERLAP, AT(ddp.overlap), 0, 0,
     "WHEN     gradients travel beside backward: always, never, or auto: where a CPU is free "
     "(auto)"},
    {"bf16", FLAG, AT(ddp.bf16), 0, 0, "         gradients travel as bfloat16"},
    {"init-method", TEXT, AT(init_method), 0, 0,
     "URL      tcp://host:port, file:///path, env:// (the launcher's)"},
    {"rank", WHOLE, AT(rank), 0, INT_MAX, "N        with --init-method"},
    {"world-size", WHOLE, AT(world_size), 1, INT_MAX, "N        with --init-method"},
    {"log-interval", WHOLE, AT(log_interval), 1, INT_MAX, "N        batches between lines (10)"},
    {"dry-run", FLAG, AT(dry_run), 0, 0, "         one update, one test batch"},
    {"metrics", TEXT, AT(metrics), 0, 0,
     "FILE     losses and accuracies as CSV, or JSON lines if it ends in .jsonl"},
    {"checkpoint", TEXT, AT(checkpoint), 0, 0, "FILE     written after each epoch (safetensors)"},
    {"checkpoint-every", WHOLE, AT(checkpoint_every), 1, INT_MAX,
     "N        and after every N updates"},
    {"resume", TEXT, AT(resume), 0, 0,
     "FILE     resume from a checkpoint; auto: from --checkpoint if it exists"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))
#define HELP ((int)ROWS)

void options_help(FILE *to)
{
    fprintf(to, "usage: train [options]\n"
                "       hooprun -n RANKS train [options]\n\n"
                "Trains a small convolutional net, data-parallel over the ranks.\n\n");
    for (size_t i = 0; i < ROWS; i++) {
        fprintf(to, "  --%-16s %s\n", rows[i].name, rows[i].text);
    }
    fprintf(to, "\nmodels:\n");
    for (const struct model *model = models; model->name != NULL; model++) {
        fprintf(to, "  %-10s %s\n", model->name, model->about);
    }
}

static bool number_parse(const struct option_row *row, const char *value, double *ret,
                         struct problem *problem)
{
    char *end = NULL;
    *ret = strtod(value, &end);
    const bool within = *ret >= row->least && *ret <= row->most;
    const bool whole = row->kind != WHOLE || (within && *ret == (double)(int64_t)*ret);
    if (end == value || *end != '\0' || !within || !whole) {
        return problem_say(problem, "--%s %s: expected a %snumber from %.0f to %.0f", row->name,
                           value, row->kind == WHOLE ? "whole " : "", row->least, row->most);
    }
    return true;
}

static bool optimizer_parse(const char *value, enum optimizer_kind *ret, struct problem *problem)
{
    *ret = strcmp(value, "adam") == 0 ? OPTIMIZER_ADAM : OPTIMIZER_SGD;
    return *ret == OPTIMIZER_ADAM || strcmp(value, "sgd") == 0 ||
           problem_say(problem, "--optimizer %s: expected sgd or adam", value);
}

static bool device_parse(const char *value, int *ret, struct problem *problem)
{
    char *end = NULL;
    *ret = strcmp(value, "cpu") == 0 ? DEVICE_HOST : DEVICE_ANY;
    if (*ret == DEVICE_HOST || strcmp(value, "cuda") == 0) {
        return true;
    }
    const bool numbered = strncmp(value, "cuda:", 5) == 0 && isdigit((unsigned char)value[5]);
    const long number = numbered ? strtol(value + 5, &end, 10) : 0;
    *ret = (int)number;
    return (numbered && *end == '\0' && number <= 1023) ||
           problem_say(problem, "--device %s: expected cpu, cuda or cuda:N", value);
}

static bool overlap_parse(const char *value, enum ddp_overlap *ret, struct problem *problem)
{
    *ret = strcmp(value, "always") == 0  ? DDP_OVERLAP_ALWAYS
           : strcmp(value, "never") == 0 ? DDP_OVERLAP_NEVER
                                         : DDP_OVERLAP_AUTO;
    return *ret != DDP_OVERLAP_AUTO || strcmp(value, "auto") == 0 ||
           problem_say(problem, "--overlap %s: expected always, never or auto", value);
}

static bool option_set(struct options *options, const struct option_row *row, const char *value,
                       struct problem *problem)
{
    void *field = (char *)options + row->field;
    double number = 0;
    const bool counts = row->kind == WHOLE || row->kind == NUMBER || row->kind == MEGABYTES;
    if (counts && !number_parse(row, value, &number, problem)) {
        return false;
    }
    switch (row->kind) {
    case FLAG:
        *(bool *)field = true;
        return true;
    case WHOLE:
        if (row->field == AT(seed)) {
            options->seed = (int64_t)number;
        } else {
            *(int *)field = (int)number;
        }
        return true;
    case NUMBER:
        if (row->field == AT(lr) || row->field == AT(warmup)) {
            *(double *)field = number;
        } else {
            *(float *)field = (float)number;
        }
        return true;
    case MEGABYTES:
        *(size_t *)field = (size_t)(number * 1048576);
        return true;
    case TEXT:
        *(const char **)field = value;
        return value[0] != '\0' ||
               problem_say(problem, "--%s: expected a value that is not empty", row->name);
    case MODEL:
        options->model = model_find(value);
        return options->model != NULL ||
               problem_say(problem, "--model %s: there is no such model (--help lists them)",
                           value);
    case OPTIMIZER:
        return optimizer_parse(value, field, problem);
    case DEVICE:
        return device_parse(value, field, problem);
    case OVERLAP:
        return overlap_parse(value, field, problem);
    }
    return false;
}

/* Checks options against each other. */
static bool options_agree(struct options *options, struct problem *problem)
{
    const bool env = options->init_method == NULL || strcmp(options->init_method, "env://") == 0;
    if (env) {
        options->init_method = NULL;
    }
    if (env && (options->rank >= 0 || options->world_size > 0)) {
        return problem_say(problem, "--rank and --world-size are for --init-method tcp://host:port "
                                    "or file:///path; else the launcher sets them");
    }
    if (!env &&
        (options->world_size < 1 || options->rank < 0 || options->rank >= options->world_size)) {
        return problem_say(problem,
                           "--init-method %s needs --world-size and --rank below it, got %d and %d",
                           options->init_method, options->world_size, options->rank);
    }
    if (options->resume != NULL && strcmp(options->resume, "auto") == 0 &&
        options->checkpoint == NULL) {
        return problem_say(problem, "--resume auto needs --checkpoint FILE");
    }
    if (options->checkpoint_every > 0 && options->checkpoint == NULL) {
        return problem_say(problem, "--checkpoint-every %d needs --checkpoint FILE",
                           options->checkpoint_every);
    }
    return true;
}

static void options_default(struct options *options)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    *options = (struct options){
        .device = DEVICE_HOST,
        .workers = 1,
        .epochs = 10,
        .batch = 64,
        .test_batch = 250,
        .accumulate = 1,
        .optimizer = optimizer_defaults,
        .lr = 0.01,
        .seed = 1,
        .ddp = ddp_defaults,
        .rank = -1,
        .log_interval = 10,
    };
    options->optimizer.momentum = 0.5F;
    const int told = threads != NULL ? atoi(threads) : 0;
    options->ddp.threads = told > 0 ? told : INT_MAX; /* unset: one for each CPU */
}

enum options_found options_parse(struct options *options, int argc, char **argv,
                                 struct problem *problem)
{
    struct option known[ROWS + 2];
    for (size_t i = 0; i < ROWS; i++) {
        const int takes = rows[i].kind == FLAG ? no_argument : required_argument;
        known[i] = (struct option){rows[i].name, takes, NULL, (int)i};
    }
    known[ROWS] = (struct option){"help", no_argument, NULL, HELP};
    known[ROWS + 1] = (struct option){0};
    options_default(options);
    opterr = 0;
    optind = 0; /* so that a second call begins anew */
    int at = 1; /* of the option that is read, which optind is behind, or not yet */
    for (int got = 0; (got = getopt_long(argc, argv, "+", known, NULL)) != -1; at = optind) {
        if (got == HELP) {
            return OPTIONS_HELP;
        }
        if (got == '?') {
            problem_say(problem, "%s: no such option, or its value is missing (--help lists all)",
                        argv[at]);
            return OPTIONS_BAD;
        }
        if (!option_set(options, &rows[got], optarg, problem)) {
            return OPTIONS_BAD;
        }
    }
    if (optind < argc) {
        problem_say(problem, "%s: no argument was expected", argv[optind]);
        return OPTIONS_BAD;
    }
    return options_agree(options, problem) ? OPTIONS_GOOD : OPTIONS_BAD;
}

#include "hooprun_options.h"

#include "hoop.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MOST 31536000.0
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static const char help_text[] =
    "usage: hooprun [options] [--] program [arguments]\n"
    "\n"
    "Runs the program as N ranks on this machine and waits for all of them.\n"
    "\n"
    "  -n N, -np N, --nproc-per-node N  ranks to start, 1 to " TEXT(
        HOOPRUN_RANKS_MOST) " (default 1)\n"
                            "  --tag-output              begin every line of a rank's output with "
                            "[rank]\n"
                            "  --on-failure=kill|wait    when a rank fails: end the others, or let "
                            "them finish\n"
                            "                            (default kill)\n"
                            "  --grace SECONDS           time between SIGTERM and SIGKILL (default "
                            "5)\n"
                            "  --timeout SECONDS         end the job after this time with code 124 "
                            "(default: never)\n"
                            "  -h, --help                show this\n"
                            "  --version                 show the version\n"
                            "\n"
                            "Exit code: 0, or that of the first rank that failed (128 + signal "
                            "when a signal killed\n"
                            "it, or ended hooprun); 124 timeout, 125 hooprun itself failed, 126 "
                            "the program is not\n"
                            "executable, 127 it was not found, 2 wrong options.\n";

static bool seconds_parse(const char *value, int64_t *ret_ms)
{
    if (!isdigit((unsigned char)value[0]) && value[0] != '.') {
        return false;
    }
    char *end = NULL;
    const double seconds = strtod(value, &end);
    if (end == value || *end != '\0' || !(seconds >= 0.0 && seconds <= SECONDS_MOST)) {
        return false;
    }
    *ret_ms = (int64_t)(seconds * 1000.0 + 0.5);
    return true;
}

static bool set_rank_count(struct hooprun_options *options, const char *value)
{
    char *end = NULL;
    const long count = strtol(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end != '\0' || count < 1 ||
        count > HOOPRUN_RANKS_MOST) {
        return false;
    }
    options->rank_count = (int)count;
    return true;
}

static bool set_on_failure(struct hooprun_options *options, const char *value)
{
    options->kill_on_failure = strcmp(value, "kill") == 0;
    return options->kill_on_failure || strcmp(value, "wait") == 0;
}

static bool set_grace(struct hooprun_options *options, const char *value)
{
    return seconds_parse(value, &options->grace_ms);
}

static bool set_timeout(struct hooprun_options *options, const char *value)
{
    return seconds_parse(value, &options->timeout_ms) && options->timeout_ms > 0;
}

static const struct option_spec {
    const char *name;
    bool (*set)(struct hooprun_options *options, const char *value);
    const char *expected;
} specs[] = {
    {"-n", set_rank_count, "a number of ranks from 1 to " TEXT(HOOPRUN_RANKS_MOST)},
    {"-np", set_rank_count, "a number of ranks from 1 to " TEXT(HOOPRUN_RANKS_MOST)},
    {"--nproc-per-node", set_rank_count, "a number of ranks from 1 to " TEXT(HOOPRUN_RANKS_MOST)},
    {"--nproc_per_node", set_rank_count, "a number of ranks from 1 to " TEXT(HOOPRUN_RANKS_MOST)},
    {"--on-failure", set_on_failure, "kill or wait"},
    {"--grace", set_grace, "seconds, 0 or more, such as 5 or 0.5"},
    {"--timeout", set_timeout, "seconds, more than 0, such as 60 or 0.5"},
};

/* Finds the option that arg is, and its value where arg holds both (--name=value, -n4). */
static const struct option_spec *spec_find(const char *arg, const char **ret_value)
{
    *ret_value = NULL;
    if (strncmp(arg, "-n", 2) == 0 && isdigit((unsigned char)arg[2])) {
        *ret_value = arg + 2;
        return &specs[0];
    }
    const size_t length = strcspn(arg, "=");
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        if (strlen(specs[i].name) == length && strncmp(arg, specs[i].name, length) == 0) {
            *ret_value = arg[length] == '=' ? arg + length + 1 : NULL;
            return &specs[i];
        }
    }
    return NULL;
}

static bool usage_error(int *ret_code)
{
    *ret_code = HOOPRUN_EXIT_USAGE;
    return false;
}

/* Handles argv[0], an option that takes a value, and moves *argv to the last word it used. */
static bool option_apply(char ***argv, struct hooprun_options *options)
{
    const char *arg = **argv;
    const char *value = NULL;
    const struct option_spec *spec = spec_find(arg, &value);
    if (spec == NULL) {
        fprintf(stderr, "hooprun: unknown option '%s': hooprun --help lists the options\n", arg);
        return false;
    }
    if (value == NULL) {
        value = (*argv)[1];
        if (value == NULL) {
            fprintf(stderr, "hooprun: %s: expected %s after it\n", spec->name, spec->expected);
            return false;
        }
        ++*argv;
    }
    if (!spec->set(options, value)) {
        fprintf(stderr, "hooprun: %s '%s': expected %s\n", spec->name, value, spec->expected);
        return false;
    }
    return true;
}

bool hooprun_options_parse(char **argv, struct hooprun_options *ret_options, int *ret_code)
{
    struct hooprun_options options = {.rank_count = 1, .kill_on_failure = true, .grace_ms = 5000};
    char **arg = argv[0] == NULL ? argv : argv + 1;
    for (; *arg != NULL && (*arg)[0] == '-'; arg++) {
        if (strcmp(*arg, "--") == 0) {
            arg++;
            break;
        }
        if (strcmp(*arg, "-h") == 0 || strcmp(*arg, "--help") == 0) {
            *ret_code = fputs(help_text, stdout) < 0 || fflush(stdout) != 0;
            return false;
        }
        if (strcmp(*arg, "--version") == 0) {
            *ret_code = printf("hooprun %d.%d.%d\n", HOOP_MAJOR, HOOP_MINOR, HOOP_PATCH) < 0;
            return false;
        }
        if (strcmp(*arg, "--tag-output") == 0) {
            options.tag_output = true;
        } else if (!option_apply(&arg, &options)) {
            return usage_error(ret_code);
        }
    }
    if (*arg == NULL) {
        fprintf(stderr, "hooprun: expected a program to run: hooprun [options] program ...\n");
        return usage_error(ret_code);
    }
    options.command = arg;
    *ret_options = options;
    return true;
}

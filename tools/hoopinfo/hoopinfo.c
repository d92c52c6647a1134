/*
 * hoopinfo: the version and settings of this hoop, what it finds on this machine, and whether it
 * works here. It uses only the public header.
 */
#include "hoopinfo/hoopinfo.h"
#include "hoopinfo/calibrate.h"
#include "hoopinfo/check.h"
#include "hoopinfo/explain.h"
#include "hoopinfo/job.h"
#include "hoopinfo/machine.h"
#include <ctype.h>
#include <getopt.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MOST 512 /* for --explain and --test, on one machine */

static const char usage_text[] =
    "usage: hoopinfo [--json]                            what hoop is and finds here\n"
    "       hoopinfo --settings [--json] | --version [--json]\n"
    "       hoopinfo --test [--ranks N] [--json]         does it work here?\n"
    "       hoopinfo --calibrate FILE [--json]           how fast is memory here?\n"
    "       hoopinfo --job [--json]                      who waits for whom?\n"
    "       hoopinfo --explain COLLECTIVE [--bytes B] [--ranks N] [--json]\n"
    "\n"
    "  (none)       system, CPUs, memory, limits, interfaces, devices: to be added to a bug "
    "report\n"
    "  --settings   every HOOP_* variable: what is in force, and why\n"
    "  --test       every collective between N ranks (default 4), right or not and how fast, over\n"
    "               every transport; under a launcher: between the ranks of that job\n"
    "  --calibrate  measures what the cost model counts with in shared memory, in up to 30 s, and\n"
    "               writes it to FILE, for jobs whose HOOP_PROFILE names that; nothing else reads "
    "it\n"
    "  --job        the processes of this user on this machine that use hoop, their comms, the\n"
    "               operation each waits in, for whom and how long, and who keeps the others "
    "waiting\n"
    "  --explain    how all_reduce, broadcast, ... of B bytes (default 1M) of float between N "
    "ranks\n"
    "               of this machine is done, and what the alternatives would take\n"
    "  --bytes B    K, M and G are binary\n"
    "  --ranks N    1 to 512\n"
    "  --json       the same as one JSON object: of sections of texts; of --job {\"processes\":\n"
    "               [{\"pid\", \"uid\", \"program\", \"state\", \"report\"}]}; of --test "
    "{\"jobs\":\n"
    "               [{\"transport\", \"ranks\", \"block_bytes\", \"operations\": [{\"name\", "
    "\"right\",\n"
    "               \"us_8_bytes\", \"gb_per_s_1_mib\"}], \"wrong_elements\", \"error\", "
    "\"works\"}],\n"
    "               \"verdict\", \"works\"}\n"
    "  --version    the version of the library in use\n"
    "  -h, --help   show this\n"
    "\n"
    "Exit code: 0; 1 it does not work or could not be found out; 7 wrong results; 2 wrong "
    "options.\n";

enum request { SHOW, SETTINGS, VERSION, TEST, EXPLAIN, JOB, CALIBRATE, CALIBRATE_RANK, HELP };

struct options {
    enum request request;
    const char *asked; /* the option that set request, or NULL */
    const char *given_bytes, *given_ranks;
    const char *collective, *file;
    size_t bytes;
    int ranks;
    bool json, alone;
};

int library_failed(const char *what, hoop_result_t result)
{
    fprintf(stderr, "hoopinfo: %s: %s: %s\n", what, hoop_get_error_string(result),
            hoop_get_last_error(NULL));
    return 1;
}

static int settings_print(void)
{
    int width = 0;
    hoop_setting_t setting;
    for (size_t at = 0; hoop_setting_next(&at, &setting) == HOOP_OK;) {
        const int length = (int)strlen(setting.name);
        width = length > width ? length : width;
    }
    for (size_t at = 0; hoop_setting_next(&at, &setting) == HOOP_OK;) {
        const char *value = setting.value != NULL && *setting.value != '\0' ? setting.value : "-";
        const char *preset =
            setting.preset != NULL && *setting.preset != '\0' ? setting.preset : "-";
        printf("%-*s  %s  (%s; default %s; %s)\n", width, setting.name, value, setting.origin,
               preset, setting.range);
        printf("%-*s  %s\n", width, "", setting.text);
    }
    return 0;
}

/* Adds a section per setting. */
static void settings_add_all(struct facts *facts)
{
    hoop_setting_t setting;
    for (size_t at = 0; hoop_setting_next(&at, &setting) == HOOP_OK;) {
        facts_add(facts, setting.name, "value", "%s", setting.value != NULL ? setting.value : "");
        facts_add(facts, setting.name, "origin", "%s", setting.origin);
        facts_add(facts, setting.name, "default", "%s",
                  setting.preset != NULL ? setting.preset : "");
        facts_add(facts, setting.name, "range", "%s", setting.range);
        facts_add(facts, setting.name, "meaning", "%s", setting.text);
    }
}

static void version_write(char *ret, size_t bytes)
{
    int version = 0;
    (void)hoop_get_version(&version);
    (void)snprintf(ret, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static int version_print(void)
{
    char version[32];
    version_write(version, sizeof(version));
    printf("hoop %s\n", version);
    return 0;
}

/* Adds the process's own state, whose size may grow between asking for it and reading it. */
static int library_add(struct facts *facts)
{
    char *text = NULL;
    size_t bytes = 0;
    size_t needed = 0;
    hoop_result_t result = hoop_info_json(NULL, NULL, 0, &needed);
    while (result != HOOP_OK && needed > bytes) {
        bytes = needed;
        char *grown = realloc(text, bytes);
        if (grown == NULL) {
            free(text);
            return library_failed("the library", HOOP_OUT_OF_MEMORY);
        }
        text = grown;
        result = hoop_info_json(NULL, text, bytes, &needed);
    }
    if (result == HOOP_OK && text != NULL) {
        facts_add_json(facts, "hoop", text);
    }
    free(text);
    return result == HOOP_OK ? 0 : library_failed("the library", result);
}

static void settings_add(struct facts *facts)
{
    hoop_setting_t setting;
    for (size_t at = 0; hoop_setting_next(&at, &setting) == HOOP_OK;) {
        if (strcmp(setting.origin, "default") != 0) {
            facts_add(facts, "settings in force", setting.name, "%s", setting.value);
        }
    }
}

static int page_print(const struct options *options)
{
    char version[32];
    struct facts *facts = facts_create();
    int code = facts != NULL ? 0 : library_failed("facts", HOOP_OUT_OF_MEMORY);
    if (code == 0 && options->request == EXPLAIN) {
        code = explain_add(facts, options->collective, options->bytes, options->ranks);
    } else if (code == 0 && options->request == CALIBRATE) {
        code = calibrate_run(options->file, facts);
    } else if (code == 0 && options->request == SETTINGS) {
        settings_add_all(facts);
    } else if (code == 0 && options->request == VERSION) {
        version_write(version, sizeof(version));
        facts_add(facts, "hoop", "version", "%s", version);
    } else if (code == 0) {
        code = library_add(facts);
        machine_add(facts);
        settings_add(facts);
    }
    if (facts != NULL && code == 0 && !facts_print(facts, options->json)) {
        code = library_failed("standard output", HOOP_OUT_OF_MEMORY);
    }
    facts_destroy(facts);
    return code;
}

/* Parses a number, which K, M or G may follow. */
static bool bytes_parse(const char *text, size_t *ret)
{
    char *end = NULL;
    const unsigned long long number = strtoull(text, &end, 10);
    static const char units[] = "KMG";
    const char *unit = *end != 0 ? strchr(units, toupper((unsigned char)*end)) : NULL;
    const unsigned shift = unit != NULL ? 10u * (unsigned)(unit - units + 1) : 0;
    *ret = (size_t)number << shift;
    return isdigit((unsigned char)text[0]) && end[unit != NULL] == 0 &&
           number <= (UINT64_MAX >> 8 >> shift);
}

static bool ranks_parse(const char *text, int *ret)
{
    size_t number = 0;
    const bool valid = bytes_parse(text, &number) && number >= 1 && number <= RANKS_MOST;
    *ret = valid ? (int)number : 0;
    return valid;
}

static bool wrong(const char *option, const char *value, const char *expected)
{
    fprintf(stderr, "hoopinfo: %s %s: expected %s\n", option, value, expected);
    return false;
}

/* Sets the request, of which there can be only one. */
static bool request_take(struct options *options, const char *option, enum request request)
{
    if (options->asked != NULL && options->request != request) {
        return wrong(options->asked, option, "one of them");
    }
    options->asked = option;
    options->request = request;
    return true;
}

static bool option_take(struct options *options, int option)
{
    switch (option) {
    case 's':
        return request_take(options, "--settings", SETTINGS);
    case 'v':
        return request_take(options, "--version", VERSION);
    case 'T':
        options->alone = true;
        return request_take(options, "--test-rank", TEST);
    case 't':
        return request_take(options, "--test", TEST);
    case 'J':
        return request_take(options, "--job", JOB);
    case 'h':
        return request_take(options, "--help", HELP);
    case 'C':
        return request_take(options, "--calibrate-rank", CALIBRATE_RANK);
    case 'c':
        options->file = optarg;
        return (optarg[0] != '-' || wrong("--calibrate", optarg, "the name of a file first")) &&
               request_take(options, "--calibrate", CALIBRATE);
    case 'e':
        options->collective = optarg;
        return request_take(options, "--explain", EXPLAIN);
    case 'b':
        options->given_bytes = optarg;
        return bytes_parse(optarg, &options->bytes) ||
               wrong("--bytes", optarg, "a number such as 4096 or 64M");
    case 'n':
        options->given_ranks = optarg;
        return ranks_parse(optarg, &options->ranks) ||
               wrong("--ranks", optarg, "a number of ranks from 1 to 512");
    case 'j':
        options->json = true;
        return true;
    default:
        return false;
    }
}

static bool options_parse(int argc, char **argv, struct options *options)
{
    static const struct option table[] = {
        {"settings", no_argument, NULL, 's'},
        {"version", no_argument, NULL, 'v'},
        {"test", no_argument, NULL, 't'},
        {"test-rank", no_argument, NULL, 'T'},
        {"explain", required_argument, NULL, 'e'},
        {"job", no_argument, NULL, 'J'},
        {"calibrate", required_argument, NULL, 'c'},
        {"calibrate-rank", no_argument, NULL, 'C'},
        {"bytes", required_argument, NULL, 'b'},
        {"ranks", required_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option = 0;
    while ((option = getopt_long(argc, argv, "hn:", table, NULL)) != -1) {
        if (!option_take(options, option)) {
            return false;
        }
    }
    if (options->given_bytes != NULL && options->request != EXPLAIN) {
        return wrong("--bytes", options->given_bytes, "--explain with it");
    }
    if (options->given_ranks != NULL && options->request != EXPLAIN && options->request != TEST) {
        return wrong("--ranks", options->given_ranks, "--explain or --test with it");
    }
    return optind == argc || wrong("argument", argv[optind], "options only; see --help");
}

static int run(const struct options *options)
{
    switch (options->request) {
    case HELP:
        return fputs(usage_text, stdout) < 0;
    case TEST:
        return check_run(options->given_ranks != NULL ? options->ranks : 0, options->alone,
                         options->json);
    case JOB:
        return job_print(options->json);
    case CALIBRATE_RANK:
        return calibrate_rank();
    case SETTINGS:
        return options->json ? page_print(options) : settings_print();
    case VERSION:
        return options->json ? page_print(options) : version_print();
    case SHOW:
    case EXPLAIN:
    case CALIBRATE:
    default:
        return page_print(options);
    }
}

int main(int argc, char **argv)
{
    struct options options = {.bytes = (size_t)1 << 20, .ranks = RANKS_USUAL};
    (void)signal(SIGCHLD, SIG_DFL); /* if it is ignored no child can be waited for */
    if (!options_parse(argc, argv, &options)) {
        fputs("hoopinfo --help lists the options\n", stderr);
        return 2;
    }
    const int code = run(&options);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("hoopinfo: cannot write to standard output\n", stderr);
        return 1;
    }
    return code;
}

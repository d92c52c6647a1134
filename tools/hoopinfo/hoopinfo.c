/*
 * hoopinfo: what this installation of hoop is, how it is set, what it finds on this machine, and
 * whether it works there. A client of the public header alone.
 */
#include "hoop.h"
#include "hoopinfo/check.h"
#include "hoopinfo/explain.h"
#include "hoopinfo/job.h"
#include "hoopinfo/machine.h"
#include <ctype.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MOST 512 /* of --explain and --test, on one machine */

static const char usage_text[] =
    "usage: hoopinfo [--json]                            what hoop is and finds here\n"
    "       hoopinfo --settings [--json] | --version\n"
    "       hoopinfo --test [--ranks N]                  does it work here?\n"
    "       hoopinfo --job [--json]                      who waits for whom?\n"
    "       hoopinfo --explain COLLECTIVE [--bytes B] [--ranks N] [--json]\n"
    "\n"
    "  (none)       system, CPUs, memory, limits, interfaces, devices: to be added to a bug "
    "report\n"
    "  --settings   every HOOP_* variable: what is in force, and why\n"
    "  --test       every collective between N ranks (default 4), right or not and how fast, over\n"
    "               every transport; under a launcher: between the ranks of that job\n"
    "  --job        the processes of this user on this machine that use hoop, their comms, the\n"
    "               operation each waits in, for whom and how long, and who keeps the others "
    "waiting\n"
    "  --explain    how all_reduce, broadcast, ... of B bytes (default 1M) of float between N "
    "ranks\n"
    "               of this machine is done, and what the alternatives would take\n"
    "  --bytes B    K, M and G are binary\n"
    "  --json       the same as one JSON object\n"
    "  --version    the version of the library in use\n"
    "  -h, --help   show this\n"
    "\n"
    "Exit code: 0; 1 it does not work or could not be found out; 7 wrong results; 2 wrong "
    "options.\n";

enum request { SHOW, SETTINGS, VERSION, TEST, EXPLAIN, JOB };

struct options {
    enum request request;
    const char *collective;
    size_t bytes;
    int ranks;
    bool json, alone;
};

static int failed(const char *what, hoop_result_t result)
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

/* A section of its own for each. */
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

static int version_print(void)
{
    int version = 0;
    const hoop_result_t result = hoop_get_version(&version);
    if (result != HOOP_OK) {
        return failed("version", result);
    }
    printf("hoop %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return 0;
}

/* The process's own state. The size may grow between asking for it and using it. */
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
            return failed("the library", HOOP_OUT_OF_MEMORY);
        }
        text = grown;
        result = hoop_info_json(NULL, text, bytes, &needed);
    }
    if (result == HOOP_OK && text != NULL) {
        facts_add_json(facts, "hoop", text);
    }
    free(text);
    return result == HOOP_OK ? 0 : failed("the library", result);
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
    struct facts *facts = facts_create();
    int code = facts != NULL ? 0 : failed("facts", HOOP_OUT_OF_MEMORY);
    if (code == 0 && options->request == EXPLAIN) {
        code = explain_add(facts, options->collective, options->bytes, options->ranks);
    } else if (code == 0 && options->request == SETTINGS) {
        settings_add_all(facts);
    } else if (code == 0) {
        code = library_add(facts);
        machine_add(facts);
        settings_add(facts);
    }
    if (facts != NULL && code == 0 && !facts_print(facts, options->json)) {
        fputs("hoopinfo: cannot write all of it to standard output\n", stderr);
        code = 1;
    }
    facts_destroy(facts);
    return code;
}

/* A number with K, M or G behind it. */
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

static bool option_take(struct options *options, int option)
{
    switch (option) {
    case 's':
        options->request = SETTINGS;
        return true;
    case 'v':
        options->request = VERSION;
        return true;
    case 'T':
        options->alone = true;
        options->request = TEST;
        return true;
    case 't':
        options->request = TEST;
        return true;
    case 'J':
        options->request = JOB;
        return true;
    case 'e':
        options->request = EXPLAIN;
        options->collective = optarg;
        return true;
    case 'b':
        return bytes_parse(optarg, &options->bytes) ||
               wrong("--bytes", optarg, "a number such as 4096 or 64M");
    case 'n':
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
        {"settings", no_argument, NULL, 's'},      {"version", no_argument, NULL, 'v'},
        {"test", no_argument, NULL, 't'},          {"test-rank", no_argument, NULL, 'T'},
        {"explain", required_argument, NULL, 'e'}, {"job", no_argument, NULL, 'J'},
        {"bytes", required_argument, NULL, 'b'},   {"ranks", required_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},          {NULL, 0, NULL, 0},
    };
    int option = 0;
    while ((option = getopt_long(argc, argv, "n:", table, NULL)) != -1) {
        if (!option_take(options, option)) {
            return false;
        }
    }
    if (options->json && (options->request == TEST || options->request == VERSION)) {
        return wrong("--json", options->request == TEST ? "--test" : "--version",
                     "no option, --settings, --explain or --job beside it");
    }
    return optind == argc || wrong("argument", argv[optind], "options only; see --help");
}

int main(int argc, char **argv)
{
    struct options options = {.bytes = (size_t)1 << 20, .ranks = 4};
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        return fputs(usage_text, stdout) < 0 || fflush(stdout) != 0;
    }
    if (!options_parse(argc, argv, &options)) {
        fputs("hoopinfo --help lists the options\n", stderr);
        return 2;
    }
    int code = 0;
    switch (options.request) {
    case TEST:
        code = check_run(options.ranks, options.alone);
        break;
    case JOB:
        code = job_print(options.json);
        break;
    case SETTINGS:
        code = options.json ? page_print(&options) : settings_print();
        break;
    case VERSION:
        code = version_print();
        break;
    case SHOW:
    case EXPLAIN:
    default:
        code = page_print(&options);
    }
    if (fflush(stdout) != 0) {
        fputs("hoopinfo: cannot write to standard output\n", stderr);
        return 1;
    }
    return code;
}

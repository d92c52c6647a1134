#include "hooprun/hooprun_options.h"

#include "hoop.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECONDS_MOST 31536000.0
#define ADDRESS_MOST 255 /* characters of the longest DNS name */
#define PORT_MOST 65535
#define MASTER_PORT_DEFAULT 29500 /* torchrun's */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static const char help_text[] =
    "usage: hooprun [options] [--] program [arguments]\n"
    "\n"
    "Runs the program as ranks of one job and waits for all ranks of this machine.\n"
    "\n"
    "  -n N, -np N, --nproc-per-node N  ranks to start on this machine, 1 to %d (default 1)\n"
    "  --tag-output              begin every line of a rank's output with [rank]\n"
    "  --bind-to none|core       core: each rank to its share of the cores (default none)\n"
    "  --nccl                    programs that were built for NCCL use hoop in its place\n"
    "  --on-failure=kill|wait    when a rank fails: end the others, or let them finish\n"
    "                            (default kill)\n"
    "  --max-restarts K          when a rank failed and all have ended: start all of them again,\n"
    "                            K times at most (default 0)\n"
    "  --grace SECONDS           time between SIGTERM and SIGKILL (default 5)\n"
    "  --timeout SECONDS         end the job after this time with code 124 (default: never)\n"
    "  -h, --help                show this\n"
    "  --version                 show the version\n"
    "\n"
    "Several machines: start the same command on each, with its own --node-rank.\n"
    "  --nnodes N                machines, each with the same -n (default 1)\n"
    "  --node-rank R             which of them this is, 0 to N-1\n"
    "  --master-addr HOST        where the others reach machine 0\n"
    "  --master-port PORT        and at which port (default %d)\n"
    "  --run-id ID               a name that no other job has that these machines run at the same\n"
    "                            time, the same on all machines (default: Slurm's, or none)\n"
    "  --secret-file FILE        the job's secret, the same on all machines; HOOP_SECRET_FILE and\n"
    "                            HOOP_SECRET in the environment do, too\n"
    "\n"
    "Exit code: 0, or that of the first rank that failed (128 + signal when a signal killed it,\n"
    "or ended hooprun); 124 timeout, 125 hooprun itself failed, 126 the program is not "
    "executable,\n"
    "127 it was not found, 2 wrong options. After restarts, that of the last attempt.\n";

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

static bool number_parse(const char *value, int least, int most, int *ret_number)
{
    char *end = NULL;
    const long number = strtol(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end != '\0' || number < least || number > most) {
        return false;
    }
    *ret_number = (int)number;
    return true;
}

static bool set_rank_count(struct hooprun_options *options, const char *value)
{
    return number_parse(value, 1, HOOPRUN_RANKS_MOST, &options->rank_count);
}

static bool set_node_count(struct hooprun_options *options, const char *value)
{
    return number_parse(value, 1, HOOPRUN_RANKS_MOST, &options->node_count);
}

static bool set_node_rank(struct hooprun_options *options, const char *value)
{
    return number_parse(value, 0, HOOPRUN_RANKS_MOST - 1, &options->node_rank);
}

/* Checks the form only; those who connect resolve it. */
static bool set_master_addr(struct hooprun_options *options, const char *value)
{
    options->master_addr = value;
    size_t length = 0;
    while (isgraph((unsigned char)value[length]) && length <= ADDRESS_MOST) {
        length++;
    }
    return length > 0 && length <= ADDRESS_MOST && value[length] == '\0';
}

static bool set_master_port(struct hooprun_options *options, const char *value)
{
    return number_parse(value, 1, PORT_MOST, &options->master_port);
}

static bool set_run_id(struct hooprun_options *options, const char *value)
{
    options->run_id = value;
    const size_t length = strlen(value);
    for (size_t i = 0; i < length; i++) {
        if (!isgraph((unsigned char)value[i])) {
            return false;
        }
    }
    return length > 0 && length < HOOPRUN_RUN_ID_BYTES;
}

static bool set_secret_file(struct hooprun_options *options, const char *value)
{
    options->secret_file = value;
    return *value != '\0';
}

static bool set_max_restarts(struct hooprun_options *options, const char *value)
{
    return number_parse(value, 0, HOOPRUN_RESTARTS_MOST, &options->restarts_most);
}

static bool set_on_failure(struct hooprun_options *options, const char *value)
{
    options->kill_on_failure = strcmp(value, "kill") == 0;
    return options->kill_on_failure || strcmp(value, "wait") == 0;
}

static bool set_bind_to(struct hooprun_options *options, const char *value)
{
    options->bind_to_core = strcmp(value, "core") == 0;
    return options->bind_to_core || strcmp(value, "none") == 0;
}

static bool set_grace(struct hooprun_options *options, const char *value)
{
    return seconds_parse(value, &options->grace_ms);
}

static bool set_timeout(struct hooprun_options *options, const char *value)
{
    return seconds_parse(value, &options->timeout_ms) && options->timeout_ms > 0;
}

#define RUN_ID_EXPECTED "a name of 1 to 64 visible characters"
#define RANKS_EXPECTED "a number of ranks from 1 to " TEXT(HOOPRUN_RANKS_MOST)

static const struct option_spec {
    const char *name;
    bool (*set)(struct hooprun_options *options, const char *value);
    const char *expected;
} specs[] = {
    {"-n", set_rank_count, RANKS_EXPECTED},
    {"-np", set_rank_count, RANKS_EXPECTED},
    {"--nproc-per-node", set_rank_count, RANKS_EXPECTED},
    {"--nnodes", set_node_count, "a number of machines from 1 to " TEXT(HOOPRUN_RANKS_MOST)},
    {"--node-rank", set_node_rank, "the number of this machine, 0 or more"},
    {"--master-addr", set_master_addr, "a host name or an address"},
    {"--master-port", set_master_port, "a port from 1 to " TEXT(PORT_MOST)},
    {"--run-id", set_run_id, RUN_ID_EXPECTED},
    {"--rdzv-id", set_run_id, RUN_ID_EXPECTED},
    {"--secret-file", set_secret_file, "the name of a file"},
    {"--max-restarts", set_max_restarts, "a number from 0 to " TEXT(HOOPRUN_RESTARTS_MOST)},
    {"--bind-to", set_bind_to, "none or core"},
    {"--on-failure", set_on_failure, "kill or wait"},
    {"--grace", set_grace, "seconds from 0 to 31536000, such as 5 or 0.5"},
    {"--timeout", set_timeout, "seconds, more than 0 and at most 31536000, such as 60 or 0.5"},
};

/* torchrun also accepts _ for - in names. */
static bool name_matches(const char *name, const char *arg, size_t length)
{
    if (strlen(name) != length) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (name[i] != arg[i] && (name[i] != '-' || arg[i] != '_' || i < 2)) {
            return false;
        }
    }
    return true;
}

/* Finds the option that arg names, and its value if arg has both (--name=value, -n4). */
static const struct option_spec *spec_find(const char *arg, const char **ret_value)
{
    *ret_value = NULL;
    if (strncmp(arg, "-n", 2) == 0 && isdigit((unsigned char)arg[2])) {
        *ret_value = arg + 2;
        return &specs[0];
    }
    const size_t length = strcspn(arg, "=");
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        if (name_matches(specs[i].name, arg, length)) {
            *ret_value = arg[length] == '=' ? arg + length + 1 : NULL;
            return &specs[i];
        }
    }
    return NULL;
}

/* Applies an option that takes a value. Advances *argv to the last word it used. */
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

/* What an option that takes no value sets; NULL: arg is none. */
static bool *flag_find(struct hooprun_options *options, const char *arg)
{
    const size_t length = strcspn(arg, "=");
    return name_matches("--tag-output", arg, length) ? &options->tag_output
           : name_matches("--nccl", arg, length)     ? &options->nccl
                                                     : NULL;
}

static bool flag_apply(bool *flag, const char *arg)
{
    *flag = strchr(arg, '=') == NULL;
    if (!*flag) {
        fprintf(stderr, "hooprun: %s: expected no value\n", arg);
    }
    return *flag;
}

/* ---- The options together ------------------------------------------------------------------- */

static bool machines_check(const struct hooprun_options *options)
{
    const int nodes = options->node_count;
    if (options->rank_count > HOOPRUN_RANKS_MOST / nodes) {
        fprintf(stderr, "hooprun: --nnodes %d and -n %d make %ld ranks: expected at most %d\n",
                nodes, options->rank_count, (long)nodes * options->rank_count, HOOPRUN_RANKS_MOST);
    } else if (nodes > 1 && options->node_rank < 0) {
        fprintf(stderr,
                "hooprun: --nnodes %d: expected --node-rank too, the number of this machine from 0 "
                "to %d\n",
                nodes, nodes - 1);
    } else if (options->node_rank >= nodes) {
        fprintf(stderr, "hooprun: --node-rank %d: expected less than --nnodes, which is %d\n",
                options->node_rank, nodes);
    } else if (nodes > 1 && options->master_addr == NULL) {
        fprintf(stderr,
                "hooprun: --nnodes %d: expected --master-addr too, where the others reach machine "
                "0\n",
                nodes);
    } else {
        return true;
    }
    return false;
}

static bool environment_says(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

/* Checks that there is a secret. Whether it is valid the ranks find out. */
static bool secret_check(const struct hooprun_options *options)
{
    if (options->secret_file != NULL) {
        if (access(options->secret_file, R_OK) == 0) {
            return true;
        }
        fprintf(stderr, "hooprun: --secret-file '%s': %s\n", options->secret_file, strerror(errno));
        return false;
    }
    const char *insecure = getenv("HOOP_INSECURE");
    if (options->own_secret || environment_says("HOOP_SECRET") ||
        environment_says("HOOP_SECRET_FILE") || (insecure != NULL && strcmp(insecure, "1") == 0)) {
        return true;
    }
    fprintf(stderr,
            "hooprun: --nnodes %d: expected a secret that all machines share: make a file with it "
            "by `(umask 077; openssl rand -hex 32 > FILE)`, copy it to every machine and say "
            "--secret-file FILE there, or set HOOP_SECRET_FILE=FILE; or, where everybody on the "
            "network is trusted, set HOOP_INSECURE=1\n",
            options->node_count);
    return false;
}

static void options_complete(struct hooprun_options *options)
{
    const bool alone = options->node_count == 1;
    options->own_secret = alone && options->secret_file == NULL;
    options->node_rank = options->node_rank < 0 ? 0 : options->node_rank;
    options->world_size = options->node_count * options->rank_count;
    options->first_rank = options->node_rank * options->rank_count;
    if (options->master_addr == NULL) {
        options->master_addr = "127.0.0.1";
    }
    if (options->master_port == 0 && !alone) {
        options->master_port = MASTER_PORT_DEFAULT;
    }
}

/* Prints help or version if arg asks for it. */
static bool question_answer(const char *arg, int *ret_code)
{
    if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0) {
        printf(help_text, HOOPRUN_RANKS_MOST, MASTER_PORT_DEFAULT);
    } else if (strcmp(arg, "--version") == 0) {
        printf("hooprun %d.%d.%d\n", HOOP_MAJOR, HOOP_MINOR, HOOP_PATCH);
    } else {
        return false;
    }
    const bool written = fflush(stdout) == 0 && ferror(stdout) == 0;
    if (!written) {
        fputs("hooprun: cannot write to standard output\n", stderr);
    }
    *ret_code = written ? 0 : HOOPRUN_EXIT_LAUNCHER;
    return true;
}

bool hooprun_options_parse(char **argv, struct hooprun_options *ret_options, int *ret_code)
{
    struct hooprun_options options = {
        .rank_count = 1,
        .node_count = 1,
        .node_rank = -1,
        .kill_on_failure = true,
        .grace_ms = 5000,
    };
    *ret_code = HOOPRUN_EXIT_USAGE;
    char **arg = argv[0] == NULL ? argv : argv + 1;
    for (; *arg != NULL && (*arg)[0] == '-'; arg++) {
        if (strcmp(*arg, "--") == 0) {
            arg++;
            break;
        }
        if (question_answer(*arg, ret_code)) {
            return false;
        }
        bool *flag = flag_find(&options, *arg);
        if (flag != NULL ? !flag_apply(flag, *arg) : !option_apply(&arg, &options)) {
            return false;
        }
    }
    if (*arg == NULL) {
        fprintf(stderr, "hooprun: expected a program to run: hooprun [options] program ...\n");
        return false;
    }
    if (!machines_check(&options)) {
        return false;
    }
    options_complete(&options);
    if (!secret_check(&options)) {
        return false;
    }
    options.command = arg;
    *ret_options = options;
    return true;
}

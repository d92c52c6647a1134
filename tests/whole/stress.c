/*
 * Random programs of operations over processes, threads, streams and overlapping comms; every byte
 * of every buffer is compared (stress_program.h, stress_call.h, stress_stream.h):
 *
 *     stress [--processes P] [--threads T] [--streams K] [--seconds S] [--seed N] [--bytes B]
 *            [--programs N] [--machines M] [--any-order] [--sums] [--harm KIND] [--rounds N]
 *            [--patience S]
 *
 * There are P processes of T ranks each. Each rank runs K streams at once, and in each process a
 * thread makes and ends comms of its own all the time. HOOP_* variables apply to the job, so that
 * algorithms, transports and checks can be chosen. --programs: runs until N programs are done, of
 * STRESS_PROGRAM_STEPS steps each, instead of for a time. --any-order: sums are made exact, because
 * the chosen algorithms do not all add in rank order. --sums: all reductions are sums of integers,
 * since others, such as a maximum, may hide a flipped bit. The parent never calls hoop.
 *
 * --harm abort|revoke|exit|cancel|fork|calls|all: in each of N rounds, which are jobs of S seconds
 * with consecutive seeds, this is done to one process (stress_harm.h). Then operations may fail if
 * that is to be expected, but nothing may be wrong. --harm hang: one process does not end. If a job
 * is not over --patience seconds (150) after its time, what its processes are doing is shown.
 */
#include "base/clock.h"
#include "harness/family.h"
#include "whole/stress_harm.h"
#include "whole/stress_stream.h"
#include <errno.h>
#include <getopt.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STRESS_PROGRAM_MS 2000 /* the longest that a program may take */

struct options {
    int processes, threads, streams, machines;
    double seconds, patience; /* patience: in addition to the time that was asked for */
    uint64_t programs;
    enum stress_harm harm; /* HARM_KINDS: each kind in turn */
    int rounds;
    struct stress_program program;
};

/* A process's report to its parent. */
struct report {
    struct stress_totals totals;
    char wrong[500];
};

/* Inherited by every process. */
struct legacy {
    const struct options *options;
    struct stress_births *births;
};

/* ---- Churn -------------------------------------------------------------------------------- */

struct churn {
    pthread_t thread;
    _Atomic bool over;
    uint64_t seed, comms;
    char wrong[200];
};

/* Sums the ranks' numbers in a group. */
static bool churn_sum(hoop_comm_t *comms, int n)
{
    int32_t values[3];
    hoop_result_t result = hoop_group_start();
    for (int r = 0; r < n; r++) {
        values[r] = r + 1;
        result = result == HOOP_OK ? hoop_all_reduce(&values[r], &values[r], 1, HOOP_INT32,
                                                     HOOP_SUM, comms[r], NULL)
                                   : result;
    }
    const hoop_result_t ended = hoop_group_end();
    bool good = result == HOOP_OK && ended == HOOP_OK;
    for (int r = 0; r < n; r++) {
        good = good && values[r] == n * (n + 1) / 2;
    }
    return good;
}

/* Makes comms within the process, uses them, aborts some, and destroys them. */
static void *churn_main(void *arg)
{
    const struct timespec breath = {.tv_nsec = 2000000}; /* otherwise little else would run */
    struct churn *churn = arg;
    struct stress_random random = stress_random_from(churn->seed, 0, 0, 0);
    while (!atomic_load(&churn->over) && churn->wrong[0] == 0) {
        hoop_comm_t comms[3];
        const int n = 1 + (int)stress_below(&random, 3);
        if (hoop_comm_init_all(comms, n, NULL) != HOOP_OK) {
            (void)snprintf(churn->wrong, sizeof(churn->wrong), "churn: hoop_comm_init_all: %s",
                           hoop_get_last_error(NULL));
            break;
        }
        if (!churn_sum(comms, n)) {
            (void)snprintf(churn->wrong, sizeof(churn->wrong), "churn: a sum of %d: %s", n,
                           hoop_get_last_error(NULL));
        }
        for (int r = 0; r < n; r++) {
            if (stress_below(&random, 2) == 0) {
                (void)hoop_comm_abort(comms[r]);
            }
            (void)hoop_comm_destroy(comms[r]); /* otherwise what is left of them would add up */
        }
        churn->comms += (uint64_t)n;
        nanosleep(&breath, NULL);
    }
    return NULL;
}

/* ---- A process ---------------------------------------------------------------------------- */

static void process_environment(const struct options *options, int process)
{
    setenv("HOOP_DEBUG", "none", 0);
    if (options->machines > 1) {
        family_set_number("HOOP_HOSTID", process % options->machines);
        setenv("HOOP_SOCKET_IFNAME", "lo", 0);
    }
}

static void *process_stream(void *arg)
{
    stress_stream_run(arg);
    return NULL;
}

static void totals_add(struct stress_totals *to, const struct stress_totals *from)
{
    to->programs += from->programs;
    to->results += from->results;
    to->bytes += from->bytes;
    to->groups += from->groups;
    to->barriers += from->barriers;
    to->queued += from->queued;
    to->births += from->births;
    to->splits += from->splits;
    to->shrinks += from->shrinks;
    to->churned += from->churned;
    to->failures += from->failures;
}

/* Keeps the first text, or one about wrong bytes rather than about their consequences elsewhere. */
static void report_wrong(struct report *report, const char *text)
{
    const bool bytes = strstr(text, "WRONG") != NULL && strstr(report->wrong, "WRONG") == NULL;
    if (report->wrong[0] == 0 || bytes) {
        (void)snprintf(report->wrong, sizeof(report->wrong), "%s", text);
    }
}

/* Runs all streams of all ranks of the process, each in a thread. */
static void process_streams(const struct legacy *legacy, const struct stress_program *program,
                            int process, struct report *ret)
{
    static struct stress_stream streams[STRESS_MOST_RANKS * STRESS_MOST_STREAMS];
    pthread_t threads[STRESS_MOST_RANKS * STRESS_MOST_STREAMS];
    const struct options *options = legacy->options;
    const uint64_t until = hoop_now_ns() + (uint64_t)(options->seconds * 1e9);
    const int n = options->threads * options->streams;
    const int victim = (int)(program->seed % (uint64_t)options->processes);
    struct stress_harmer harmer = {
        .harm = process == victim ? options->harm : HARM_NONE,
        .seed = program->seed,
        .seconds = options->seconds,
        .streams = streams,
        .threads = threads,
    };
    int started = 0;
    for (; started < n; started++) {
        struct stress_stream *stream = &streams[started];
        stream->program = program;
        stream->births = legacy->births;
        stream->rank = process * options->threads + started / options->streams;
        stream->stream = started % options->streams;
        stream->until_ns = until;
        stream->programs =
            (options->programs + (uint64_t)options->streams - 1) / (uint64_t)options->streams;
        stream->lenient = stress_harm_fails(options->harm);
        (void)pthread_mutex_init(&stream->lock, NULL);
        if (pthread_create(&threads[started], NULL, process_stream, stream) != 0) {
            report_wrong(ret, "no thread for a stream");
            break;
        }
    }
    harmer.n_streams = started;
    stress_harm_start(&harmer);
    for (int i = 0; i < started; i++) {
        void *value = NULL;
        (void)pthread_join(threads[i], &value);
        if (value == PTHREAD_CANCELED) {
            stress_stream_abandon(&streams[i]);
        }
        totals_add(&ret->totals, &streams[i].totals);
        report_wrong(ret, streams[i].wrong);
    }
    stress_harm_join(&harmer);
    report_wrong(ret, harmer.wrong);
}

static void process_run(const struct family_self *self, const void *arg)
{
    const struct legacy *legacy = arg;
    const struct stress_program *program = &legacy->options->program;
    struct churn churn = {.seed = program->seed + (uint64_t)self->rank};
    struct report report = {.wrong = ""};
    process_environment(legacy->options, self->rank);
    const bool churns = pthread_create(&churn.thread, NULL, churn_main, &churn) == 0;
    process_streams(legacy, program, self->rank, &report);
    atomic_store(&churn.over, true);
    if (churns) {
        (void)pthread_join(churn.thread, NULL);
    }
    report.totals.churned = churn.comms;
    if (!stress_harm_fails(legacy->options->harm)) {
        report_wrong(&report, churn.wrong);
    }
    if (!family_say(self, &report, sizeof(report))) {
        _exit(3);
    }
}

/* ---- The parent --------------------------------------------------------------------------- */

static void print_totals(const struct options *options, const struct stress_totals *totals)
{
    printf(
        "%d x %d ranks, %d streams, seed %llu: %llu programs, %llu results, %.3g bytes, %llu "
        "groups, %llu "
        "queued, %llu barriers, %llu births (%llu splits, %llu shrinks), %llu churned comms; harm: "
        "%s, %llu "
        "failures\n",
        options->processes, options->threads, options->streams,
        (unsigned long long)options->program.seed, (unsigned long long)totals->programs,
        (unsigned long long)totals->results, (double)totals->bytes,
        (unsigned long long)totals->groups, (unsigned long long)totals->queued,
        (unsigned long long)totals->barriers, (unsigned long long)totals->births,
        (unsigned long long)totals->splits, (unsigned long long)totals->shrinks,
        (unsigned long long)totals->churned, stress_harm_name(options->harm),
        (unsigned long long)totals->failures);
}

/* Shows what the processes that have not ended are doing. */
static void show_hang(const struct family *family)
{
    char pids[FAMILY_MOST][16];
    static char show[] = STRESS_SHOW;
    char *command[FAMILY_MOST + 2] = {show};
    int n = 0;
    for (int p = 0; p < family->n; p++) {
        if (family->ranks[p].pid > 0) {
            (void)snprintf(pids[n], sizeof(pids[n]), "%d", (int)family->ranks[p].pid);
            command[n + 1] = pids[n];
            n++;
        }
    }
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execv(command[0], command);
        _exit(1);
    }
    if (child > 0) {
        (void)waitpid(child, NULL, 0);
    }
}

static bool run(const struct options *options)
{
    const uint64_t deadline =
        hoop_deadline_ns((uint64_t)((options->seconds + options->patience) * 1000) +
                         options->programs * STRESS_PROGRAM_MS);
    struct legacy legacy = {.options = options};
    struct stress_totals totals = {.results = 0};
    struct family family;
    bool good = true, shown = false;
    void *shared = mmap(NULL, sizeof(*legacy.births), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    family_init(&family, options->processes);
    legacy.births = shared;
    if (shared == MAP_FAILED || !family_fork_all(&family, process_run, &legacy)) {
        family_finish(&family);
        printf("FAILED: cannot start %d processes: %s\n", options->processes, strerror(errno));
        return false;
    }
    for (int p = 0; p < options->processes; p++) {
        struct report report = {.wrong = ""};
        const enum family_heard heard = family_hear(&family, p, &report, sizeof(report), deadline);
        /* a process that was made to exit reports nothing, but must exit with 0 */
        const bool leaves = options->harm == HARM_EXIT && heard == FAMILY_ENDED;
        if (heard != FAMILY_HEARD && !leaves) {
            report_wrong(&report, heard == FAMILY_SILENT ? "it hangs" : "it died");
        }
        totals_add(&totals, &report.totals);
        const bool reaped = heard != FAMILY_SILENT && family_reap(&family, p, deadline);
        if (report.wrong[0] != 0 || !reaped) {
            printf("FAILED: process %d: %s\n", p,
                   report.wrong[0] != 0 ? report.wrong : "it did not exit with 0");
            good = false;
        }
        if (!reaped && !shown && hoop_now_ns() >= deadline) {
            show_hang(&family);
            shown = true;
        }
    }
    family_finish(&family);
    (void)munmap(shared, sizeof(*legacy.births));
    print_totals(options, &totals);
    return good;
}

static const char usage[] =
    "usage: stress [--processes P] [--threads T] [--streams K] [--seconds S] [--seed N]\n"
    "              [--programs N] [--bytes B] [--machines M] [--any-order] [--sums]\n"
    "              [--harm abort|revoke|exit|cancel|fork|calls|hang|all] [--rounds N]\n"
    "              [--patience S]\n";

static bool options_read(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"processes", required_argument, NULL, 'p'},
        {"threads", required_argument, NULL, 't'},
        {"streams", required_argument, NULL, 'k'},
        {"seconds", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, 'x'},
        {"bytes", required_argument, NULL, 'b'},
        {"machines", required_argument, NULL, 'm'},
        {"any-order", no_argument, NULL, 'o'},
        {"sums", no_argument, NULL, 'i'},
        {"programs", required_argument, NULL, 'q'},
        {"harm", required_argument, NULL, 'h'},
        {"rounds", required_argument, NULL, 'r'},
        {"patience", required_argument, NULL, 'w'},
        {NULL, 0, NULL, 0},
    };
    for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        char *end = NULL;
        const bool number = letter != 'o' && letter != 'i' && letter != 'h' && letter != '?';
        const double value = number ? strtod(optarg, &end) : 0;
        if (letter == '?' || (end != NULL && (*end != 0 || end == optarg || value < 0))) {
            return false;
        }
        switch (letter) {
        case 'p':
            options->processes = (int)value;
            break;
        case 't':
            options->threads = (int)value;
            break;
        case 'k':
            options->streams = (int)value;
            break;
        case 's':
            options->seconds = value;
            break;
        case 'x':
            options->program.seed = strtoull(optarg, NULL, 10);
            break;
        case 'b':
            options->program.most_bytes = (size_t)value;
            break;
        case 'm':
            options->machines = (int)value;
            break;
        case 'q':
            options->programs = (uint64_t)value;
            break;
        case 'r':
            options->rounds = (int)value;
            break;
        case 'w':
            options->patience = value;
            break;
        case 'i':
            options->program.sums = true;
            break;
        case 'h':
            options->harm = stress_harm_from(optarg);
            if (options->harm == HARM_KINDS && strcmp(optarg, "all") != 0) {
                return false;
            }
            break;
        default:
            options->program.special = false;
            break;
        }
    }
    options->program.ranks = options->processes * options->threads;
    return optind == argc && options->program.ranks >= 2 &&
           options->program.ranks <= STRESS_MOST_RANKS && options->streams >= 1 &&
           options->streams <= STRESS_MOST_STREAMS && options->program.most_bytes >= 1;
}

/*
 * Maps buffers one by one, whatever was freed before. Otherwise they would lie between allocations
 * of the library, and malloc() would keep more and more memory, which would say nothing about leaks
 * in the library.
 */
static void keep_memory_apart(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 16384);
#endif
}

int main(int argc, char **argv)
{
    struct options options = {
        .processes = 2,
        .threads = 2,
        .streams = 2,
        .seconds = 10,
        .patience = 150,
        .machines = 1,
        .rounds = 1,
        .program = {.seed = 1, .special = true, .most_bytes = (size_t)1 << 20},
    };
    if (!options_read(argc, argv, &options)) {
        (void)fprintf(stderr, "%s%d ranks at most, %d streams\n", usage, STRESS_MOST_RANKS,
                      STRESS_MOST_STREAMS);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    keep_memory_apart();
    bool good = true;
    for (int round = 0; round < options.rounds && good; round++) {
        struct options one = options;
        one.program.seed += (uint64_t)round;
        if (options.harm == HARM_KINDS) {
            one.harm = (enum stress_harm)(HARM_ABORT + round % (HARM_HANG - HARM_ABORT));
        }
        good = run(&one);
        (void)fflush(stdout);
    }
    return good ? 0 : 1;
}

/*
 * Kills or stops one rank of each of many jobs, at a random moment, and checks the effect on the
 * others (see usage() for the options):
 *
 *  - every survivor's operation fails within seconds, and the error names the rank;
 *  - no result that was returned as HOOP_OK is wrong;
 *  - survivors leave in order, and what they keep in their buffers stays: a stopped rank that goes
 *    on later writes to no other rank's memory;
 *  - the time from the event to each survivor's error goes into a histogram.
 *
 * All that is drawn follows from the seed and the number of the event; what the machine does at
 * that moment does not. This process never uses hoop, so that its children may.
 */
#include "base/clock.h"
#include "whole/histogram.h"
#include "whole/kill_family.h"
#include "whole/kill_sweep.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FUZZ_START_MS 30000     /* until all ranks run */
#define FUZZ_ERROR_MS 5000      /* until a survivor's operation fails, without dead_after */
#define FUZZ_LEAVE_MS 10000     /* until a rank that may leave has left */
#define FUZZ_INIT_MS 1000       /* timeout of a join in which a rank is killed */
#define FUZZ_INIT_GRACE_MS 1500 /* a member waits one second longer than the leader */
#define FUZZ_DEAD_AFTER_MS 300  /* for jobs with a stopped rank */
#define FUZZ_LATE_WRITES_MS 50  /* how long a rank that goes on is watched for writes */
#define FUZZ_MOST_DELAY_MS 100.0
#define FUZZ_MOST_FAILURES 10

/* A bit i means that transport i of enum kill_transport may be drawn. */
static const struct {
    const char *name;
    unsigned bits;
} fuzz_transports[] = {
    {"shm", 1 << KILL_SHM},
    {"tcp", 1 << KILL_TCP},
    {"machines", 1 << KILL_MACHINES},
    {"both", 1 << KILL_SHM | 1 << KILL_TCP},
    {"all", 1 << KILL_SHM | 1 << KILL_TCP | 1 << KILL_MACHINES},
};
#define FUZZ_TRANSPORTS (sizeof(fuzz_transports) / sizeof(fuzz_transports[0]))

struct fuzz_options {
    uint64_t kills, stops, seed;
    uint32_t least_ranks, most_ranks;
    unsigned transports;
    const char *histogram;
    int64_t only; /* number of the one event to run; -1: all */
    bool verbose;
};

/* One event, as drawn. */
struct fuzz_event {
    uint64_t number;
    bool stop, init;
    uint32_t victim;
    double delay_ms;
    struct kill_job job;
};

struct fuzz {
    struct fuzz_options options;
    struct histogram kills, stops; /* ms from the event to each survivor's error */
    uint64_t operations;           /* of all ranks, that succeeded */
    uint64_t failures;
};

static volatile sig_atomic_t fuzz_interrupted;

static void fuzz_interrupt(int number)
{
    fuzz_interrupted = number;
}

/* ---- Drawing ------------------------------------------------------------------------------ */

/* From 0 to below 1. */
static double fuzz_share(uint64_t drawn)
{
    return (double)(drawn >> 11) / 9007199254740992.0;
}

static enum kill_transport fuzz_draw_transport(unsigned bits, uint64_t drawn)
{
    unsigned transport = (unsigned)(drawn % 3);
    while ((bits >> transport & 1) == 0) {
        transport = (transport + 1) % 3;
    }
    return (enum kill_transport)transport;
}

static const char *fuzz_algo(enum kill_transport transport, uint64_t drawn)
{
    static const char *const near[] = {"auto", "auto", "auto", "ring", "slab", "direct", "cma"};
    static const char *const far[] = {"auto", "auto", "auto", "ring", "torus", "hierarchical"};
    return transport == KILL_SHM ? near[drawn % 7] : far[drawn % 6];
}

static struct fuzz_event fuzz_draw(const struct fuzz_options *options, uint64_t number, bool stop)
{
    const uint64_t seed = sweep_draw(options->seed, number, 0);
    struct fuzz_event event = {.number = number, .stop = stop};
    struct kill_job *job = &event.job;
    const uint32_t kinds = options->most_ranks - options->least_ranks + 1;
    job->seed = seed;
    job->n = options->least_ranks + (uint32_t)(sweep_draw(seed, 1, 0) % kinds);
    job->transport = fuzz_draw_transport(options->transports, sweep_draw(seed, 2, 0));
    job->by_id = job->transport == KILL_MACHINES || sweep_draw(seed, 3, 0) % 3 == 0;
    job->algo = fuzz_algo(job->transport, sweep_draw(seed, 4, 0));
    event.init = !stop && sweep_draw(seed, 5, 0) % 16 == 0;
    event.victim = (uint32_t)(sweep_draw(seed, 6, 0) % job->n);
    /* log-uniform: small delays, from 10 us on, are as likely as large ones */
    const double share = fuzz_share(sweep_draw(seed, 7, 0));
    event.delay_ms = 0.01 * pow(FUZZ_MOST_DELAY_MS / 0.01, share);
    job->init_timeout_ms = event.init ? FUZZ_INIT_MS : FUZZ_START_MS;
    job->dead_after_ms = stop ? FUZZ_DEAD_AFTER_MS : 2 * FUZZ_ERROR_MS;
    (void)snprintf(job->name, sizeof(job->name), "kill-fuzz-%d-%" PRIu64, (int)getpid(), number);
    return event;
}

static void fuzz_pause(double ms)
{
    const double s = ms / 1000;
    const struct timespec t = {.tv_sec = (time_t)s,
                               .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

/* ---- Judging ------------------------------------------------------------------------------ */

static void fuzz_describe(const struct fuzz_event *event, FILE *to)
{
    fprintf(to, "event %" PRIu64 ": rank %u of %u %s %.2f ms after %s (%s, %s, joined by %s)",
            event->number, event->victim, event->job.n, event->stop ? "stopped" : "killed",
            event->delay_ms, event->init ? "the forks" : "all ran",
            fuzz_transports[event->job.transport].name, event->job.algo,
            event->job.by_id ? "unique id" : "environment");
}

static bool fuzz_fail(struct fuzz *fuzz, const struct fuzz_event *event,
                      const struct kill_family *family, const char *what, const char *text)
{
    fuzz->failures++;
    fuzz_describe(event, stdout);
    printf(": FAILED: %s: %s\n    operations that had succeeded:", what, text);
    for (uint32_t r = 0; r < event->job.n && family->operations != NULL; r++) {
        printf(" %" PRIu64, atomic_load_explicit(&family->operations[r], memory_order_relaxed));
    }
    printf("\n");
    return false;
}

/*
 * Does the text blame the rank? It must be in the last "rank 3" or "ranks 1, 3, 4": before the
 * cause, texts tell what their own rank was doing, and which ranks it waited for.
 */
static bool fuzz_blames(const char *text, uint32_t rank)
{
    bool blamed = false;
    for (const char *at = strstr(text, "rank"); at != NULL; at = strstr(at, "rank")) {
        at += strlen("rank");
        at += *at == 's' ? 1 : 0;
        for (bool first = true; *at == ' ' || *at == ','; first = false) {
            char *end = NULL;
            const char *digits = at + strspn(at, " ,");
            const unsigned long number = strtoul(digits, &end, 10);
            if (*digits < '0' || *digits > '9') {
                break;
            }
            blamed = (blamed && !first) || number == rank;
            at = end;
        }
    }
    return blamed;
}

/*
 * During the join others may know the rank only as the process that served the leader. And a rank
 * that comes after rank 0 is gone can only report that no leader answers, since rank 0 would have
 * told which ranks there are.
 */
static bool fuzz_blames_joining(const char *text, const struct fuzz_event *event, pid_t pid)
{
    char process[32];
    (void)snprintf(process, sizeof(process), "(pid %d)", (int)pid);
    return fuzz_blames(text, event->victim) || strstr(text, process) != NULL ||
           (event->victim == 0 && (strstr(text, "no leader answers") != NULL ||
                                   strstr(text, "did not find the root") != NULL));
}

static bool fuzz_hear(const struct kill_family *family, uint32_t rank, uint64_t deadline_ns,
                      struct kill_report *ret)
{
    return family_hear(&family->ranks, (int)rank, ret, sizeof(*ret), deadline_ns) == FAMILY_HEARD;
}

/* Reads a rank's reports up to its failure. */
static bool fuzz_hear_failure(struct fuzz *fuzz, const struct fuzz_event *event,
                              struct kill_family *family, uint32_t rank, uint64_t deadline_ns,
                              struct kill_report *ret)
{
    char who[64];
    (void)snprintf(who, sizeof(who), "rank %u", rank);
    do {
        if (!fuzz_hear(family, rank, deadline_ns, ret)) {
            return fuzz_fail(fuzz, event, family, who, "no failure in time: it hangs, or has died");
        }
        if (ret->word == KILL_WRONG) {
            return fuzz_fail(fuzz, event, family, who, ret->text);
        }
    } while (ret->word != KILL_FAILED);
    return true;
}

static bool fuzz_judge_survivor(struct fuzz *fuzz, const struct fuzz_event *event,
                                struct kill_family *family, uint32_t rank, uint64_t happened_ns,
                                pid_t victim_pid)
{
    struct kill_report report = {.word = 0};
    const uint64_t patience_ms = FUZZ_ERROR_MS +
                                 (event->init ? FUZZ_INIT_MS + FUZZ_INIT_GRACE_MS : 0) +
                                 (event->stop ? FUZZ_DEAD_AFTER_MS : 0);
    if (!fuzz_hear_failure(fuzz, event, family, rank, happened_ns + patience_ms * HOOP_NS_PER_MS,
                           &report)) {
        return false;
    }
    char who[96];
    (void)snprintf(who, sizeof(who), "rank %u failed with result %d and does not blame the rank",
                   rank, (int)report.result);
    const bool blamed = event->init ? fuzz_blames_joining(report.text, event, victim_pid)
                                    : fuzz_blames(report.text, event->victim);
    if (!blamed || (report.result != HOOP_REMOTE_ERROR && report.result != HOOP_TIMEOUT)) {
        return fuzz_fail(fuzz, event, family, who, report.text);
    }
    /* a rank may notice the loss before kill() has returned and this process reads the clock */
    const double ms = report.time_ns < happened_ns
                          ? 0
                          : (double)(report.time_ns - happened_ns) / (double)HOOP_NS_PER_MS;
    if (fuzz->options.verbose) {
        printf("    rank %u after %.3f ms: %s\n", rank, ms, report.text);
    }
    if (event->init) {
        return true; /* otherwise the time measured would be the join's timeout */
    }
    return histogram_add(event->stop ? &fuzz->stops : &fuzz->kills, ms);
}

/* ---- One event ---------------------------------------------------------------------------- */

static bool fuzz_await_running(struct fuzz *fuzz, const struct fuzz_event *event,
                               struct kill_family *family)
{
    const uint64_t deadline = hoop_now_ns() + FUZZ_START_MS * HOOP_NS_PER_MS;
    for (uint32_t r = 0; r < event->job.n; r++) {
        struct kill_report report = {.word = 0};
        if (!fuzz_hear(family, r, deadline, &report)) {
            return fuzz_fail(fuzz, event, family, "not all ranks came to run", "");
        }
        if (report.word != KILL_RUNNING) {
            return fuzz_fail(fuzz, event, family, "a rank failed before the event", report.text);
        }
    }
    return true;
}

/* The stopped rank goes on: whatever it does, it must not write to the others' memory. */
static bool fuzz_continue(struct fuzz *fuzz, const struct fuzz_event *event,
                          struct kill_family *family)
{
    struct kill_report report = {.word = 0};
    kill(family->ranks.ranks[event->victim].pid, SIGCONT);
    const uint64_t deadline = hoop_now_ns() + FUZZ_LEAVE_MS * HOOP_NS_PER_MS;
    const bool good = fuzz_hear_failure(fuzz, event, family, event->victim, deadline, &report);
    fuzz_pause(FUZZ_LATE_WRITES_MS);
    return good;
}

static bool fuzz_end(struct fuzz *fuzz, const struct fuzz_event *event, struct kill_family *family)
{
    const uint64_t deadline = hoop_now_ns() + FUZZ_LEAVE_MS * HOOP_NS_PER_MS;
    for (uint32_t r = 0; r < event->job.n; r++) {
        family_hang_up(&family->ranks, (int)r);
    }
    for (uint32_t r = 0; r < event->job.n; r++) {
        struct kill_report report = {.word = 0};
        if (family->ranks.ranks[r].pid == 0) {
            continue;
        }
        if (!fuzz_hear(family, r, deadline, &report) || report.word != KILL_DONE) {
            return fuzz_fail(fuzz, event, family, "a survivor does not leave in order",
                             report.word == KILL_WRONG ? report.text : "nothing heard");
        }
        if (!family_reap(&family->ranks, (int)r, deadline)) {
            return fuzz_fail(fuzz, event, family, "a survivor did not exit with 0", "");
        }
    }
    return true;
}

static bool fuzz_run(struct fuzz *fuzz, const struct fuzz_event *event, struct kill_family *family)
{
    if (!kill_family_start(family, &event->job)) {
        return fuzz_fail(fuzz, event, family, "cannot start the ranks", strerror(errno));
    }
    if (!event->init && !fuzz_await_running(fuzz, event, family)) {
        return false;
    }
    fuzz_pause(event->delay_ms);
    const pid_t victim = family->ranks.ranks[event->victim].pid;
    const uint64_t happened = hoop_now_ns();
    kill(victim, event->stop ? SIGSTOP : SIGKILL);
    bool good = true;
    for (uint32_t r = 0; r < event->job.n; r++) {
        good =
            (r == event->victim || fuzz_judge_survivor(fuzz, event, family, r, happened, victim)) &&
            good;
    }
    if (!good) {
        return false;
    }
    if (event->stop) {
        good = fuzz_continue(fuzz, event, family);
    } else {
        (void)family_reap(&family->ranks, (int)event->victim,
                          happened + FUZZ_LEAVE_MS * HOOP_NS_PER_MS);
    }
    return good && fuzz_end(fuzz, event, family);
}

static void fuzz_all(struct fuzz *fuzz)
{
    const struct fuzz_options *options = &fuzz->options;
    const uint64_t count = options->kills + options->stops;
    uint64_t stops_left = options->stops;
    for (uint64_t i = 0; i < count && fuzz_interrupted == 0; i++) {
        const bool stop = sweep_draw(options->seed, i, 1) % (count - i) < stops_left;
        const struct fuzz_event event = fuzz_draw(options, i, stop);
        struct kill_family family;
        stops_left -= stop ? 1 : 0;
        if (options->only >= 0 && (uint64_t)options->only != i) {
            continue;
        }
        if (options->verbose) {
            fuzz_describe(&event, stdout);
            printf("\n");
        }
        (void)fuzz_run(fuzz, &event, &family);
        for (uint32_t r = 0; r < event.job.n && family.operations != NULL; r++) {
            fuzz->operations += family.operations[r];
        }
        kill_family_finish(&family);
        if (fuzz->failures >= FUZZ_MOST_FAILURES) {
            printf("kill_fuzz: too many failures, the rest was not tried\n");
            return;
        }
    }
}

/* ---- The outside -------------------------------------------------------------------------- */

static void fuzz_print_one(struct histogram *times, const char *what, FILE *to)
{
    if (times->count > 0) {
        fprintf(
            to,
            "%s to each survivor's error: %zu samples, median %.2f ms, p99 %.2f ms, max %.2f ms\n",
            what, times->count, histogram_quantile(times, 0.5), histogram_quantile(times, 0.99),
            histogram_quantile(times, 1));
        histogram_print(times, to);
    }
}

static bool fuzz_print(struct fuzz *fuzz)
{
    FILE *file = fuzz->options.histogram != NULL ? fopen(fuzz->options.histogram, "w") : NULL;
    FILE *const to[] = {stdout, file};
    for (unsigned i = 0; i < 2 && to[i] != NULL; i++) {
        fuzz_print_one(&fuzz->kills, "kill", to[i]);
        fuzz_print_one(&fuzz->stops, "stop", to[i]);
    }
    if (fuzz->options.histogram != NULL && (file == NULL || fclose(file) != 0)) {
        printf("kill_fuzz: cannot write %s: %s\n", fuzz->options.histogram, strerror(errno));
        return false;
    }
    return true;
}

static int usage(const char *what)
{
    fprintf(stderr,
            "kill_fuzz: %s\n"
            "usage: kill_fuzz [--kills N] [--stops M] [--seed S] [--ranks LO-HI]\n"
            "                 [--transport shm|tcp|machines|both|all] [--histogram FILE]\n"
            "                 [--only EVENT] [--verbose]\n",
            what);
    return 2;
}

static bool fuzz_number(const char *text, uint64_t *ret)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0) {
        return false;
    }
    *ret = value;
    return true;
}

static bool fuzz_ranks(const char *text, struct fuzz_options *options)
{
    const int got = sscanf(text, "%1u-%1u", &options->least_ranks, &options->most_ranks);
    options->most_ranks = got == 1 ? options->least_ranks : options->most_ranks;
    return got >= 1 && strlen(text) == (got == 1 ? 1 : 3) && options->least_ranks >= 2 &&
           options->least_ranks <= options->most_ranks && options->most_ranks <= SWEEP_MAX_RANKS;
}

static bool fuzz_transport(const char *text, unsigned *ret)
{
    for (unsigned i = 0; i < FUZZ_TRANSPORTS; i++) {
        if (strcmp(text, fuzz_transports[i].name) == 0) {
            *ret = fuzz_transports[i].bits;
            return true;
        }
    }
    return false;
}

static bool fuzz_option(int letter, const char *text, struct fuzz_options *options)
{
    uint64_t only = 0;
    switch (letter) {
    case 'k':
        return fuzz_number(text, &options->kills);
    case 's':
        return fuzz_number(text, &options->stops);
    case 'S':
        return fuzz_number(text, &options->seed);
    case 'r':
        return fuzz_ranks(text, options);
    case 't':
        return fuzz_transport(text, &options->transports);
    case 'h':
        options->histogram = text;
        return true;
    case 'v':
        options->verbose = true;
        return true;
    case 'o':
        options->only = fuzz_number(text, &only) ? (int64_t)only : -1;
        return options->only >= 0;
    default:
        return false;
    }
}

int main(int argc, char **argv)
{
    static const struct option words[] = {
        {"kills", required_argument, NULL, 'k'},
        {"stops", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, 'S'},
        {"ranks", required_argument, NULL, 'r'},
        {"transport", required_argument, NULL, 't'},
        {"histogram", required_argument, NULL, 'h'},
        {"only", required_argument, NULL, 'o'},
        {"verbose", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    struct fuzz fuzz = {.options = {.kills = 45,
                                    .stops = 5,
                                    .seed = hoop_now_ns(),
                                    .least_ranks = 2,
                                    .most_ranks = SWEEP_MAX_RANKS,
                                    .transports = 1 << KILL_SHM,
                                    .only = -1}};
    int letter;
    while ((letter = getopt_long(argc, argv, "", words, NULL)) != -1) {
        if (!fuzz_option(letter, optarg, &fuzz.options)) {
            return usage("wrong options");
        }
    }
    if (optind != argc) {
        return usage("a word that is no option");
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, fuzz_interrupt);
    signal(SIGTERM, fuzz_interrupt);
    setvbuf(stdout, NULL, _IOLBF, 0); /* forked children have nothing to write again */
    printf("kill_fuzz: seed %" PRIu64 "\n", fuzz.options.seed);
    fuzz_all(&fuzz);
    printf("kill_fuzz: %" PRIu64 " operations were right before they failed\n", fuzz.operations);
    const bool written = fuzz_print(&fuzz);
    struct histogram *times = fuzz.kills.count > 0 ? &fuzz.kills : &fuzz.stops;
    printf("kill_fuzz: %" PRIu64 " kills, %" PRIu64 " stops, %" PRIu64
           " failures, median %.2f ms, p99 %.2f ms, max %.2f ms\n",
           fuzz.options.kills, fuzz.options.stops, fuzz.failures, histogram_quantile(times, 0.5),
           histogram_quantile(times, 0.99), histogram_quantile(times, 1));
    const bool good = fuzz.failures == 0 && written && fuzz_interrupted == 0;
    histogram_finish(&fuzz.kills);
    histogram_finish(&fuzz.stops);
    return good ? 0 : 1;
}

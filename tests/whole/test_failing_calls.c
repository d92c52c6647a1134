/*
 * One call of the C library fails, and what happens then. Three ranks live twice: they join, work
 * in all ways, and end. In the first life the N-th call of a function fails in one rank, for every
 * N up to the last call. Then either all works, with right results, or every rank that notices gets
 * a sentence that says what failed; nothing crashes or hangs, the second life is undisturbed, and
 * no descriptor or memory (with LeakSanitizer) is left over.
 *
 *     test_failing_calls [local|tcp|machines] [--full] [--seed N] [--call NAME [--from N]]
 *                        [--show]
 *
 * machines: each rank counts as a machine. Without --full a sample of a few of all cases. --from
 * alone: only the N-th call; with --full: the N-th and all later ones.
 */
#include "base/clock.h"
#include "fakes/failing_calls.h"
#include "harness/family.h"
#include "harness/fds.h"
#include "harness/splitmix.h"
#include "whole/life.h"
#include "whole/surroundings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RANKS LIFE_RANKS
#define PATIENCE_MS 40000
#define SETTLE_MS 3000
#define SAMPLE 40 /* one of so many calls fails in a sample; later ones are rare */

/* ---- What fails --------------------------------------------------------------------------- */

/* For ever: from the N-th call on all fail, as where a resource is used up. */
#define FOR_EVER 1000000000u

static const struct failing kinds[] = {
    {"malloc", ENOMEM, 1, 1},
    {"malloc", ENOMEM, 1, FOR_EVER},
    {"calloc", ENOMEM, 1, 1},
    {"realloc", ENOMEM, 1, 1},
    {"aligned_alloc", ENOMEM, 1, 1},
    {"strdup", ENOMEM, 1, 1},
    {"mmap64", ENOMEM, 1, 1},
    {"mmap64", ENOMEM, 1, FOR_EVER},
    {"mremap", ENOMEM, 1, 1},
    {"madvise", EINVAL, 1, 1},
    {"open64", EMFILE, 1, 1},
    {"openat64", EACCES, 1, 1},
    {"fopen64", EMFILE, 1, FOR_EVER},
    {"fcntl64", EMFILE, 1, 1},
    {"fcntl64", EMFILE, 1, FOR_EVER},
    {"fstat64", ENOMEM, 1, 1},
    {"ftruncate64", ENOSPC, 1, 1},
    {"memfd_create", ENFILE, 1, 1},
    {"memfd_create", EMFILE, 1, FOR_EVER},
    {"eventfd", EMFILE, 1, 1},
    {"eventfd", EMFILE, 1, FOR_EVER},
    {"epoll_create1", EMFILE, 1, 1},
    {"epoll_ctl", ENOSPC, 1, 1},
    {"socket", EMFILE, 1, 1},
    {"socket", EACCES, 1, FOR_EVER},
    {"bind", EADDRINUSE, 1, 1},
    {"bind", EACCES, 1, 1},
    {"listen", EADDRINUSE, 1, 1},
    {"accept4", EMFILE, 1, 1},
    {"accept4", EMFILE, 1, 20},
    {"accept4", EMFILE, 1, FOR_EVER},
    {"accept4", ENOBUFS, 1, FOR_EVER},
    {"accept4", ECONNABORTED, 1, 1},
    {"accept4", EINTR, 1, 1},
    {"connect", EINTR, 1, 1},
    {"connect", EAGAIN, 1, 1},
    {"connect", ECONNREFUSED, 1, 1},
    {"connect", ENETUNREACH, 1, FOR_EVER},
    {"getsockopt", ENOBUFS, 1, 1},
    {"setsockopt", ENOPROTOOPT, 1, FOR_EVER},
    {"getsockname", ENOBUFS, 1, 1},
    {"getpeername", ENOTCONN, 1, 1},
    {"getifaddrs", ENOMEM, 1, 1},
    {"getaddrinfo", ENOMEM, 1, 1},
    {"read", EINTR, 1, 1},
    {"read", EAGAIN, 1, 1},
    {"read", EIO, 1, 1},
    {"write", EINTR, 1, 1},
    {"write", ENOSPC, 1, FOR_EVER},
    {"pread64", EINTR, 1, 1},
    {"recv", EINTR, 1, 1},
    {"recv", EAGAIN, 1, 1},
    {"recv", ECONNRESET, 1, 1},
    {"recv", 0, 1, 1},
    {"recv", 0, 1, FOR_EVER},
    {"send", EINTR, 1, 1},
    {"sendmsg", EINTR, 1, 1},
    {"sendmsg", EAGAIN, 1, 1},
    {"sendmsg", ENOBUFS, 1, 1},
    {"sendmsg", ETOOMANYREFS, 1, 3},
    {"sendmsg", ENOMEM, 1, 1},
    {"sendmsg", 0, 1, 1},
    {"sendmsg", 0, 1, 100},
    {"recvmsg", EINTR, 1, 1},
    {"recvmsg", EAGAIN, 1, 1},
    {"recvmsg", ENOMEM, 1, 1},
    {"recvmsg", ECONNRESET, 1, 1},
    {"recvmsg", 0, 1, 1},
    {"recvmsg", 0, 1, 100},
    {"process_vm_readv", EPERM, 1, 1},
    {"process_vm_readv", EPERM, 1, FOR_EVER},
    {"process_vm_readv", ENOMEM, 1, 1},
    {"process_vm_readv", 0, 1, 1},
    {"getrandom", ENOSYS, 1, 1},
    {"getrandom", EINTR, 1, 1},
    {"getrandom", 0, 1, FOR_EVER},
    {"sched_getaffinity", EPERM, 1, 1},
    {"pthread_create", EAGAIN, 1, 1},
    {"pthread_setspecific", ENOMEM, 1, 1},
    {"syscall", EMFILE, 1, 1},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- A rank ------------------------------------------------------------------------------- */

#define NOBODY (-1)

struct trial {
    struct failing failing;
    int victim; /* NOBODY: none */
    const struct surrounding *around;
    const char *where;
    int number, port;
    int fds[RANKS];          /* as many as are left over when nothing fails; -1: unknown */
    struct meeting *meeting; /* shared memory */
};

/* Where the ranks meet between their lives. */
struct meeting {
    _Atomic int lived; /* ranks whose first life is over */
    _Atomic bool ready;
    hoop_unique_id_t id;
};

struct report {
    hoop_result_t results[2];
    int steps[2];
    char texts[2][400];
    const char *skipped;
    bool wrong, leaks;
    int fds;
    unsigned calls, ms;
    const void *at; /* before it is the call that failed */
};

int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static void rank_prepare(const struct family_self *self, const struct trial *trial)
{
    const bool apart = strcmp(trial->where, "machines") == 0;
    char job[48];
    family_set_number("RANK", self->rank);
    family_set_number("WORLD_SIZE", RANKS);
    family_set_number("LOCAL_WORLD_SIZE", apart ? 1 : RANKS);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    family_set_number("MASTER_PORT", trial->port);
    setenv("HOOP_DEBUG", "none", 0);
    setenv("HOOP_DEAD_AFTER_MS", "2000", 1);
    family_set_number("HOOP_INIT_TIMEOUT_MS", LIFE_JOIN_MS);
    (void)snprintf(job, sizeof(job), "failing-%d-%d", (int)getppid(), trial->number);
    setenv("TORCHELASTIC_RUN_ID", job, 1);
    if (apart) {
        family_set_number("HOOP_HOSTID", self->rank);
        setenv("HOOP_SECRET", "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e",
               1);
    } else if (strcmp(trial->where, "tcp") == 0) {
        setenv("HOOP_TRANSPORT", "tcp", 1);
    }
}

static void rank_wait(void)
{
    const struct timespec nap = {.tv_nsec = 500000};
    nanosleep(&nap, NULL);
}

/* A rank that failed early must not join again while others still are in their first life. */
static bool rank_meet(const struct family_self *self, struct meeting *meeting)
{
    const uint64_t deadline = hoop_deadline_ns(PATIENCE_MS);
    ++meeting->lived;
    while (meeting->lived < RANKS && hoop_now_ns() < deadline) {
        rank_wait();
    }
    if (self->rank == 0 && hoop_get_unique_id(&meeting->id) == HOOP_OK) {
        meeting->ready = true;
    }
    while (!meeting->ready && hoop_now_ns() < deadline) {
        rank_wait();
    }
    return meeting->ready;
}

static void rank_live(const struct family_self *self, const struct trial *trial, int32_t *plain,
                      struct report *report)
{
    struct life lives[2] = {{.rank = self->rank, .plain = plain},
                            {.rank = self->rank, .plain = plain}};
    const uint64_t start = hoop_now_ns();
    if (trial->victim == self->rank) {
        failing_start(&trial->failing);
    }
    report->results[0] = life_live(&lives[0], NULL);
    report->calls = failing_stop(&report->at);
    report->ms = (unsigned)((hoop_now_ns() - start) / HOOP_NS_PER_MS);
    report->results[1] =
        rank_meet(self, trial->meeting) ? life_live(&lives[1], &trial->meeting->id) : HOOP_TIMEOUT;
    for (int i = 0; i < 2; i++) {
        report->steps[i] = lives[i].step;
        report->wrong |= lives[i].wrong;
        memcpy(report->texts[i], lives[i].text, sizeof(lives[i].text));
    }
}

/* Descriptors are closed a little later. */
static int rank_count_fds(int expected)
{
    const struct timespec nap = {.tv_nsec = expected < 0 ? 300000000 : 1000000};
    const uint64_t deadline = hoop_deadline_ns(SETTLE_MS);
    int fds = -1;
    do {
        nanosleep(&nap, NULL);
        fds = fds_count(0);
    } while (expected >= 0 && fds > expected && hoop_now_ns() < deadline);
    return fds;
}

static void rank_run(const struct family_self *self, const void *arg)
{
    const struct trial *trial = arg;
    struct report report = {.ms = 0};
    int32_t *plain = malloc(2 * LIFE_COUNT * sizeof(*plain));
    if (plain == NULL) {
        _exit(3);
    }
    rank_prepare(self, trial);
    report.skipped = trial->around != NULL ? trial->around->enter() : NULL;
    if (report.skipped == NULL) {
        rank_live(self, trial, plain, &report);
        report.fds = rank_count_fds(trial->fds[self->rank]);
    }
    free(plain);
    report.leaks = __lsan_do_recoverable_leak_check != NULL && report.fds >= 0 &&
                   __lsan_do_recoverable_leak_check() != 0; /* it needs /proc, too */
    _exit(family_say(self, &report, sizeof(report)) ? 0 : 3);
}

/* ---- A trial ------------------------------------------------------------------------------ */

static bool shows; /* --show */

static void trial_print(const struct trial *trial, const struct report *reports)
{
    const struct failing *failing = &trial->failing;
    if (trial->around != NULL) {
        (void)printf("%s: %s\n", trial->where, trial->around->name);
    } else {
        (void)printf("%s: in rank %d %s fails with %s, call %u, %u times\n", trial->where,
                     trial->victim, failing->call,
                     failing->error != 0 ? strerrorname_np(failing->error) : "one byte",
                     failing->from, failing->most);
    }
    for (int r = 0; r < RANKS; r++) {
        const struct report *it = &reports[r];
        (void)printf("  rank %d: %u ms, %u calls, %d descriptors (expected %d)%s%s, before %p\n", r,
                     it->ms, it->calls, it->fds, trial->fds[r], it->wrong ? ", WRONG" : "",
                     it->leaks ? ", LEAKS" : "", it->at);
        for (int i = 0; i < 2 && it->results[i] != HOOP_OK; i++) {
            (void)printf("    life %d, step %d: %s: %s\n", i + 1, it->steps[i] - 1,
                         hoop_get_error_name(it->results[i]), it->texts[i]);
        }
    }
}

/* Does the text name the rank, or its process, or say that rank 0 is not there? */
static bool names(const char *text, int rank, int pid)
{
    char name[3][24];
    (void)snprintf(name[0], sizeof(name[0]), "rank %d", rank);
    (void)snprintf(name[1], sizeof(name[1]), "ranks %d", rank);
    (void)snprintf(name[2], sizeof(name[2]), "(pid %d", pid);
    bool named = rank == 0 && (strstr(text, "no leader answers") != NULL ||
                               strstr(text, "did not find the root") != NULL ||
                               strstr(text, "cannot reach the machine that connects") != NULL);
    for (int i = 0; i < 3; i++) {
        named = named || strstr(text, name[i]) != NULL;
    }
    return named;
}

/* Does the text name a rank that left the comm because its child had failed by the victim's fault?
 * The comm knows nothing of that, and this rank may have been ahead in the child. */
static bool names_leaver(const char *text, const struct report *reports, int victim, int pid)
{
    bool named = false;
    for (int r = 0; r < RANKS; r++) {
        char left[48];
        (void)snprintf(left, sizeof(left), "rank %d has left the communicator", r);
        named = named ||
                (strstr(text, left) != NULL && reports[r].results[0] != HOOP_OK &&
                 life_in_child(reports[r].steps[0] - 1) && names(reports[r].texts[0], victim, pid));
    }
    return named;
}

/* Why a rank's report is not as it must be; NULL: it is. */
static const char *report_fault(const struct trial *trial, const struct report *reports, int rank,
                                int victim_pid)
{
    const struct report *it = &reports[rank];
    const char *text = it->texts[0];
    const bool may_fail = trial->around == NULL || trial->around->may_refuse;
    if (it->wrong) {
        return "a wrong result";
    }
    if (it->results[0] != HOOP_OK && (!may_fail || text[0] == '\0')) {
        return may_fail ? "no sentence" : "it must work";
    }
    if (it->results[0] == HOOP_INTERNAL_ERROR || strstr(text, "unknown errno") != NULL) {
        return "no explanation";
    }
    /* a reset is the doing of the other end */
    const bool blamed = trial->victim != NOBODY && trial->failing.error != ECONNRESET;
    if (it->results[0] != HOOP_OK && blamed && trial->victim != rank &&
        !names(text, trial->victim, victim_pid) &&
        !names_leaver(text, reports, trial->victim, victim_pid)) {
        return "the rank is not named";
    }
    if (it->results[1] != HOOP_OK && (trial->around == NULL || !may_fail)) {
        return "the second life fails";
    }
    if (it->leaks) {
        return "memory is left over";
    }
    if (it->ms > LIFE_JOIN_MS + LIFE_OPERATION_MS + 3000) {
        return "it takes too long";
    }
    /* fewer: hoopinfo cannot ask this process */
    return trial->fds[rank] >= 0 && it->fds > trial->fds[rank] ? "descriptors are left over" : NULL;
}

/* A port that is free, as far as one can know. */
static int trial_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)&at, bytes) == 0 &&
                       getsockname(fd, (struct sockaddr *)&at, &bytes) == 0;
    close(fd);
    return bound ? ntohs(at.sin_port) : 29500;
}

/* Returns false, and prints why, if something is not as it must be. */
static bool trial_run(struct trial *trial, struct report *ret)
{
    struct family family;
    const char *fault = NULL;
    static int number;
    trial->number = number++;
    trial->port = trial_port();
    trial->meeting->lived = 0;
    trial->meeting->ready = false;
    family_init(&family, RANKS);
    memset(ret, 0, RANKS * sizeof(*ret));
    fault = family_fork_all(&family, rank_run, trial) ? NULL : "no process";
    const int pid = trial->victim != NOBODY ? (int)family.ranks[trial->victim].pid : 0;
    const uint64_t deadline = hoop_deadline_ns(PATIENCE_MS);
    const bool forked = fault == NULL;
    for (int r = 0; r < RANKS && forked; r++) {
        const enum family_heard heard = family_hear(&family, r, &ret[r], sizeof(*ret), deadline);
        if (heard != FAMILY_HEARD && fault == NULL) {
            fault = heard == FAMILY_SILENT ? "a rank hangs" : "a rank crashes";
        }
    }
    for (int r = 0; r < RANKS && fault == NULL; r++) {
        if (ret[r].skipped != NULL) {
            (void)printf("skipped: %s: %s\n", trial->around->name, ret[r].skipped);
        } else {
            fault = report_fault(trial, ret, r, pid);
        }
    }
    if (fault != NULL || shows) {
        trial_print(trial, ret);
    }
    if (fault != NULL) {
        (void)printf("  FAULT: %s\n", fault);
    }
    family_finish(&family);
    return fault == NULL;
}

/* ---- All trials --------------------------------------------------------------------------- */

struct options {
    const char *where, *call;
    bool full;
    uint64_t seed;
    unsigned from;
};

static unsigned failures, trials;

/* Calls in the ranks where they fail. */
static unsigned run_once(struct trial *trial)
{
    struct report reports[RANKS];
    unsigned calls = 0;
    trials++;
    failures += !trial_run(trial, reports);
    for (int r = 0; r < RANKS; r++) {
        calls = reports[r].calls > calls ? reports[r].calls : calls;
    }
    return calls;
}

/* For every N, as long as there are so many calls; or for a random N. */
static void run_kind(struct trial *trial, const struct failing *kind, struct options *options)
{
    trial->failing = *kind;
    trial->failing.from = options->from > 0 ? options->from : 1;
    if (options->full) {
        while (run_once(trial) >= trial->failing.from) {
            trial->failing.from++;
        }
        (void)printf("%s: %s in rank %d: %u calls\n", trial->where, kind->call, trial->victim,
                     trial->failing.from - 1);
    } else {
        if (options->from == 0) {
            trial->failing.from = 1 + (unsigned)(splitmix(&options->seed) % SAMPLE);
        }
        (void)run_once(trial);
    }
}

static void run_all(struct options *options)
{
    struct trial trial = {.where = options->where, .fds = {-1, -1, -1}, .victim = NOBODY};
    trial.meeting = mmap(NULL, sizeof(*trial.meeting), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct report reports[RANKS];
    failures += !trial_run(&trial, reports);
    for (int r = 0; r < RANKS; r++) {
        trial.fds[r] = reports[r].fds;
    }
    for (trial.around = surroundings; options->call == NULL && trial.around->name != NULL;
         trial.around++) {
        (void)run_once(&trial);
    }
    trial.around = NULL;
    for (size_t i = 0; i < KINDS; i++) {
        const bool wanted = options->call == NULL || strcmp(options->call, kinds[i].call) == 0;
        const int chosen = (int)(splitmix(&options->seed) % (RANKS - 1));
        for (trial.victim = 0; wanted && trial.victim < RANKS - 1; trial.victim++) {
            if (options->full || options->from > 0 || trial.victim == chosen) {
                run_kind(&trial, &kinds[i], options);
            }
        }
    }
}

static bool is_place(const char *text)
{
    return strcmp(text, "local") == 0 || strcmp(text, "tcp") == 0 || strcmp(text, "machines") == 0;
}

static bool is_call(const char *name)
{
    size_t i = 0;
    while (i < KINDS && strcmp(kinds[i].call, name) != 0) {
        i++;
    }
    return i < KINDS;
}

int main(int argc, char **argv)
{
    struct options options = {.where = "local", .seed = 1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--full") == 0) {
            options.full = true;
        } else if (strcmp(argv[i], "--show") == 0) {
            shows = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--call") == 0 && is_call(argv[i + 1])) {
            options.call = argv[++i];
        } else if (i + 1 < argc && strcmp(argv[i], "--from") == 0) {
            options.from = (unsigned)strtoul(argv[++i], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            options.seed = strtoull(argv[++i], NULL, 10);
        } else if (is_place(argv[i])) {
            options.where = argv[i];
        } else {
            (void)fprintf(stderr,
                          "%s: expected local, tcp, machines, or an option; see the source\n",
                          argv[i]);
            return 2;
        }
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    run_all(&options);
    (void)printf("%u trials, %u faults\n", trials, failures);
    return failures == 0 ? 0 : 1;
}

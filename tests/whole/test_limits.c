/*
 * Environments that lack something: few descriptors, a /dev/shm that is tiny or full, pid
 * namespaces, system calls that a sandbox denies, no privileges, no threads. Either all works, or
 * every rank gets an error text that says why not; nothing hangs and nothing crashes.
 *
 *     test_limits [tcp]       tcp: with HOOP_TRANSPORT=tcp
 *
 * Each trial forks ranks, which limit themselves before they use hoop and report through pipes. The
 * parent alone asserts, and never calls hoop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/family.h"
#include "hoop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 3
#define PATIENCE_MS 30000
#define JOIN_MS 1500 /* when a rank can't join, the others wait this long for it */
#define COUNT ((size_t)300001)
#define NOBODY 65534

/* A rank's report. */
enum outcome { WORKED = 1, REFUSED, SKIPPED, WRONG };
struct report {
    enum outcome outcome;
    int result;     /* REFUSED: hoop_result_t */
    char text[400]; /* REFUSED: hoop's error text; SKIPPED: the reason */
    char warning[200];
};

struct trial {
    struct family family;
    struct report reports[RANKS];
};

/* Limits this process. Returns NULL, or why it can't be limited so. */
typedef const char *limit_fn(int value);

static bool over_tcp;

/* ---- A rank ------------------------------------------------------------------------------- */

static struct family_self rank_self;

/* The last warning, which users see besides the error text. */
static pthread_mutex_t rank_lock = PTHREAD_MUTEX_INITIALIZER;
static char rank_warning[200];

static void rank_log(void *arg, hoop_log_level_t level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)subsystem;
    if (level == HOOP_LOG_WARN) {
        pthread_mutex_lock(&rank_lock);
        (void)snprintf(rank_warning, sizeof(rank_warning), "%s", line);
        pthread_mutex_unlock(&rank_lock);
    }
}

static _Noreturn void rank_say(enum outcome outcome, int result, const char *text)
{
    struct report report = {.outcome = outcome, .result = result};
    (void)snprintf(report.text, sizeof(report.text), "%s", text);
    pthread_mutex_lock(&rank_lock);
    (void)snprintf(report.warning, sizeof(report.warning), "%s", rank_warning);
    pthread_mutex_unlock(&rank_lock);
    _exit(family_say(&rank_self, &report, sizeof(report)) ? 0 : 3);
}

static void rank_need(hoop_result_t result)
{
    if (result != HOOP_OK) {
        rank_say(REFUSED, (int)result, hoop_get_last_error(NULL));
    }
}

static void rank_sum(hoop_comm_t comm, int rank, int32_t *x, size_t count)
{
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        x[i] = (int32_t)(i % 1000) * (rank + 1);
    }
    rank_need(hoop_all_reduce(x, x, count, HOOP_INT32, HOOP_SUM, comm, NULL));
    for (size_t i = 0; i < count; i++) {
        wrong += x[i] != (int32_t)(i % 1000) * (RANKS * (RANKS + 1) / 2) ? 1 : 0;
    }
    if (wrong > 0) {
        rank_say(WRONG, 0, "wrong result");
    }
}

static hoop_comm_t rank_join(int rank, const char *job)
{
    hoop_comm_t comm = NULL;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    family_set_number("RANK", rank);
    family_set_number("WORLD_SIZE", RANKS);
    family_set_number("LOCAL_WORLD_SIZE", RANKS);
    setenv("MASTER_PORT", "29500", 1);
    setenv("TORCHELASTIC_RUN_ID", job, 1);
    setenv("HOOP_DEBUG", "warn", 1);
    (void)hoop_set_log_callback(rank_log, NULL);
    if (over_tcp) {
        setenv("HOOP_TRANSPORT", "tcp", 1);
    }
    config.init_timeout_ms = JOIN_MS;
    config.op_timeout_ms = PATIENCE_MS / 2;
    rank_need(hoop_comm_init_env(&comm, &config));
    return comm;
}

static void rank_work(hoop_comm_t comm, int rank)
{
    int32_t *plain = malloc(COUNT * sizeof(*plain));
    int32_t *shared = NULL;
    if (plain == NULL) {
        rank_say(SKIPPED, 0, "no memory");
    }
    rank_sum(comm, rank, plain, 1);
    rank_sum(comm, rank, plain, COUNT);
    rank_need(hoop_mem_alloc((void **)&shared, COUNT * sizeof(*shared), HOOP_MEM_HOST));
    rank_sum(comm, rank, shared, COUNT);
    rank_need(hoop_barrier(comm, NULL));
    rank_need(hoop_mem_free(shared));
    free(plain);
}

/* Does everything once, and ends well. */
static void rank_once(int rank, const char *job)
{
    hoop_comm_t comm = rank_join(rank, job);
    rank_work(comm, rank);
    rank_need(hoop_comm_destroy(comm));
    rank_say(WORKED, 0, "");
}

/* Reports that it has begun, works until an operation fails, and reports that. */
static void rank_for_ever(int rank, const char *job)
{
    hoop_comm_t comm = rank_join(rank, job);
    rank_work(comm, rank);
    if (!family_say(&rank_self, "", 1)) {
        _exit(3);
    }
    for (;;) {
        rank_work(comm, rank);
    }
}

/* ---- A trial ------------------------------------------------------------------------------ */

struct trial_rank {
    limit_fn *limit;
    int value;
    char job[48];
    void (*work)(int rank, const char *job);
};

/* Closes all descriptors but the needed ones, so that a limit counts only those that hoop needs. */
static void trial_tidy(const struct family_self *self)
{
    if (dup2(self->to_parent, 100) != 100 || dup2(self->from_parent, 101) != 101) {
        _exit(3);
    }
    for (int fd = 3; fd < 200; fd++) {
        if (fd != 100 && fd != 101) {
            close(fd);
        }
    }
    rank_self = *self;
    rank_self.to_parent = dup(100);
    rank_self.from_parent = dup(101);
    close(100);
    close(101);
}

static void trial_run(const struct family_self *self, const void *arg)
{
    const struct trial_rank *rank = arg;
    trial_tidy(self);
    const char *why = rank->limit != NULL ? rank->limit(rank->value) : NULL;
    /* again, because a process that becomes another user's loses it */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (why != NULL) {
        rank_say(SKIPPED, 0, why);
    }
    rank->work(self->rank, rank->job);
}

static void trial_begin(struct trial *trial, limit_fn *limit, int value,
                        void (*work)(int rank, const char *job))
{
    static unsigned serial;
    struct trial_rank rank = {.limit = limit, .value = value, .work = work};
    memset(trial, 0, sizeof(*trial));
    family_init(&trial->family, RANKS);
    (void)snprintf(rank.job, sizeof(rank.job), "limits-%d-%u", (int)getpid(), ++serial);
    assert_true(family_fork_all(&trial->family, trial_run, &rank));
}

/* Reads a rank's report; a rank that reports nothing has crashed or hangs. */
static void trial_hear(struct trial *trial, int rank, void *to, size_t bytes, const char *what,
                       int value)
{
    const enum family_heard heard =
        family_hear(&trial->family, rank, to, bytes, hoop_deadline_ns(PATIENCE_MS));
    if (heard != FAMILY_HEARD) {
        family_finish(&trial->family);
        fail_msg("%s %d: rank %d %s", what, value, rank,
                 heard == FAMILY_ENDED ? "ended without a word" : "hangs");
    }
}

/* Returns how many ranks worked; the others refused with an error text. May skip the test. */
static int trial_end(struct trial *trial, const char *what, int value)
{
    int worked = 0;
    for (int r = 0; r < RANKS; r++) {
        struct report *report = &trial->reports[r];
        trial_hear(trial, r, report, sizeof(*report), what, value);
        if (report->outcome == SKIPPED) {
            print_message("skipped: %s: %s\n", what, report->text);
            family_finish(&trial->family);
            skip();
        }
        if (report->outcome == WRONG || strstr(report->text, "waiting for nobody") != NULL ||
            (report->outcome == REFUSED && report->text[0] == 0)) {
            family_finish(&trial->family);
            fail_msg("%s %d: rank %d says only '%s'", what, value, r, report->text);
        }
        worked += report->outcome == WORKED;
    }
    family_finish(&trial->family);
    return worked;
}

static void expect_all_work(limit_fn *limit, int value, const char *what)
{
    struct trial trial;
    trial_begin(&trial, limit, value, rank_once);
    if (trial_end(&trial, what, value) != RANKS) {
        for (int r = 0; r < RANKS; r++) {
            print_message("rank %d: %s\n", r, trial.reports[r].text);
        }
        fail_msg("%s %d: not all ranks worked", what, value);
    }
}

/* When a rank is killed, the others notice, and name it. */
static void expect_death_noticed(limit_fn *limit, int value, const char *what, int victim)
{
    struct trial trial;
    char name[16];
    char begun;
    (void)snprintf(name, sizeof(name), "rank %d ", victim);
    trial_begin(&trial, limit, value, rank_for_ever);
    for (int r = 0; r < RANKS; r++) {
        trial_hear(&trial, r, &begun, 1, what, value);
    }
    family_kill(&trial.family, victim);
    for (int r = 0; r < RANKS; r++) {
        struct report *report = &trial.reports[r];
        if (r == victim) {
            continue;
        }
        trial_hear(&trial, r, report, sizeof(*report), what, value);
        if (report->outcome != REFUSED || strstr(report->text, name) == NULL ||
            strstr(report->text, "pid 0") != NULL) {
            family_finish(&trial.family);
            fail_msg("%s %d: rank %d does not name rank %d rightly: %s", what, value, r, victim,
                     report->text);
        }
    }
    family_finish(&trial.family);
}

/* ---- Descriptors -------------------------------------------------------------------------- */

static const char *limit_files(int files)
{
    const struct rlimit limit = {.rlim_cur = (rlim_t)files, .rlim_max = (rlim_t)files};
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? NULL : "setrlimit(RLIMIT_NOFILE) failed";
}

static bool explains(const struct trial *trial, const char *word)
{
    for (int r = 0; r < RANKS; r++) {
        if (strstr(trial->reports[r].text, word) != NULL ||
            strstr(trial->reports[r].warning, word) != NULL) {
            return true;
        }
    }
    return false;
}

static void test_few_descriptors(void **state)
{
    static const int limits[] = {5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 18,
                                 20, 22, 24, 26, 28, 30, 34, 40, 50, 64, 96, 128};
    int worked = 0;
    (void)state;
    for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct trial trial;
        trial_begin(&trial, limit_files, limits[i], rank_once);
        worked = trial_end(&trial, "ulimit -n", limits[i]);
        print_message("ulimit -n %d: %d of %d work; rank 0: %s\n", limits[i], worked, RANKS,
                      trial.reports[0].text);
        if (worked < RANKS && !explains(&trial, "EMFILE") && !explains(&trial, "open files")) {
            for (int r = 0; r < RANKS; r++) {
                print_message("rank %d: %s %s\n", r, trial.reports[r].text,
                              trial.reports[r].warning);
            }
            fail_msg("ulimit -n %d: no rank says that descriptors are missing", limits[i]);
        }
    }
    assert_int_equal(worked, RANKS); /* 128 are plenty */
}

static int split_victim, split_spare; /* the rank that has few descriptors left, and how many */

static void rank_split(int rank, const char *job)
{
    hoop_comm_t comm = rank_join(rank, job);
    hoop_comm_t child = NULL;
    struct rlimit limit;
    rank_need(hoop_comm_split(comm, 0, 0, &child, NULL)); /* makes the links of another split */
    rank_need(hoop_comm_destroy(child));
    const int next = dup(0);
    close(next);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    const struct rlimit few = {.rlim_cur = (rlim_t)(next + split_spare),
                               .rlim_max = limit.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, rank == split_victim ? &few : &limit);
    const hoop_result_t result = hoop_comm_split(comm, 0, 0, &child, NULL);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    const char *text = strdup(hoop_get_last_error(NULL));
    rank_need(hoop_barrier(comm, NULL)); /* it works as before */
    rank_need(hoop_comm_destroy(comm));
    rank_say(result == HOOP_OK ? WORKED : REFUSED, (int)result, text);
}

/* If a rank lacks a descriptor the new comm fails for all, before any rank waits for it. */
static void test_poor_split(void **state)
{
    struct trial trial;
    int worked = 0;
    (void)state;
    for (int i = 0; i < 28; i++) {
        split_victim = i < 14 ? 0 : RANKS - 1;
        split_spare = i % 14;
        trial_begin(&trial, NULL, 0, rank_split);
        worked = trial_end(&trial, "descriptors to split with", split_spare);
        const bool refused = worked == 0 && !explains(&trial, "did not arrive");
        if (worked != RANKS && !(refused && explains(&trial, "EMFILE"))) {
            fail_msg("rank %d has %d: %d of %d work; rank 1: %s", split_victim, split_spare, worked,
                     RANKS, trial.reports[1].text);
        }
    }
    assert_int_equal(worked, RANKS);
}

/* ---- /dev/shm ----------------------------------------------------------------------------- */

static void write_text(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        close(fd);
    }
}

/* Gives this process a mount namespace of its own, without privileges within a user namespace. */
static bool limit_own_mounts(void)
{
    char text[64];
    const unsigned uid = (unsigned)getuid();
    const unsigned gid = (unsigned)getgid();
    if (unshare(CLONE_NEWNS) == 0) {
        return true;
    }
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return false;
    }
    (void)snprintf(text, sizeof(text), "%u %u 1", uid, uid);
    write_text("/proc/self/uid_map", text);
    write_text("/proc/self/setgroups", "deny");
    (void)snprintf(text, sizeof(text), "%u %u 1", gid, gid);
    write_text("/proc/self/gid_map", text);
    return true;
}

/* A /dev/shm of one page; is_full: which is in use. */
static const char *limit_shm(int is_full)
{
    if (!limit_own_mounts() || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tiny", "/dev/shm", "tmpfs", 0, "size=4096") != 0) {
        return "this process may not mount a file system of its own over /dev/shm";
    }
    char page[4096] = {1};
    if (is_full) {
        const int fd = open("/dev/shm/taken", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, page, sizeof(page)) != sizeof(page)) {
            return "/dev/shm cannot be filled";
        }
        close(fd);
    }
    return NULL;
}

static void test_poor_shm(void **state)
{
    (void)state;
    expect_all_work(limit_shm, 0, "a /dev/shm of one page");
    expect_all_work(limit_shm, 1, "a full /dev/shm");
}

/* ---- Pid namespaces ----------------------------------------------------------------------- */

/* Makes this rank process 1 of its own pid namespace, with /proc of that, or with the outer one.
 * The process that was forked as the rank waits for it. */
static const char *limit_pids(int has_proc)
{
    if (!limit_own_mounts() || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        unshare(CLONE_NEWPID) != 0) {
        return "this process may not make a pid namespace";
    }
    const pid_t child = fork();
    if (child != 0) {
        int status = 0;
        _exit(child > 0 && waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 3);
    }
    if (has_proc && mount("proc", "/proc", "proc", 0, NULL) != 0) {
        return "this process may not mount a /proc of its own";
    }
    return NULL;
}

static const char *limit_pids_of_one(int rank)
{
    return rank == rank_self.rank ? limit_pids(0) : NULL;
}

static void test_pid_namespaces(void **state)
{
    (void)state;
    expect_all_work(limit_pids, 0, "as process 1, with the /proc outside");
    expect_all_work(limit_pids, 1, "as process 1, with a /proc of its own");
    for (int rank = 0; rank < RANKS; rank++) {
        expect_all_work(limit_pids_of_one, rank, "one rank as process 1");
        expect_death_noticed(limit_pids, rank % 2, "as process 1", rank);
    }
}

/* ---- Denied system calls ------------------------------------------------------------------ */

/* System calls that a sandbox may deny. Those that hoop does not use must not be needed either. */
static const struct {
    const char *name;
    int number;
} denied[] = {
    {"process_vm_readv", SYS_process_vm_readv},
    {"process_vm_writev", SYS_process_vm_writev},
    {"pidfd_getfd", 438},
    {"pidfd_open", 434},
    {"membarrier", SYS_membarrier},
};
#define DENIED ((int)(sizeof(denied) / sizeof(denied[0])))
#define ALL_DENIED ((1 << DENIED) - 1)

#if defined(__x86_64__)
#define LIMIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define LIMIT_ARCH AUDIT_ARCH_AARCH64
#else
#define LIMIT_ARCH 0
#endif

/* Bit i of `which`: denied[i] fails with EPERM. */
static const char *limit_calls(int which)
{
    struct sock_filter code[2 * DENIED + 5];
    unsigned short at = 0;
    code[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LIMIT_ARCH, 1, 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < DENIED; i++) {
        if ((which >> i & 1) != 0) {
            code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                      (uint32_t)denied[i].number, 0, 1);
            code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
        }
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {.len = at, .filter = code};
    if (LIMIT_ARCH == 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        return "system calls cannot be filtered here";
    }
    for (int i = 0; i < DENIED; i++) {
        if ((which >> i & 1) != 0 &&
            (syscall(denied[i].number, 0, 0, 0, 0, 0, 0) != -1 || errno != EPERM)) {
            rank_say(WRONG, 0, "a denied call was let through");
        }
    }
    return NULL;
}

static void test_denied_calls(void **state)
{
    (void)state;
    for (int i = 0; i < DENIED; i++) {
        expect_all_work(limit_calls, 1 << i, denied[i].name);
    }
    expect_all_work(limit_calls, ALL_DENIED, "all calls denied");
}

static void test_death_with_denied_calls(void **state)
{
    (void)state;
    for (int victim = 0; victim < RANKS; victim++) {
        expect_death_noticed(limit_calls, ALL_DENIED, "all calls denied", victim);
    }
}

/* ---- Rights ------------------------------------------------------------------------------- */

static const char *limit_rights(int threads)
{
    /* as a login shell would start it: the kernel lets other processes of this user look at it */
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) {
        return "this process is unprivileged: so are all the other tests";
    }
    if (threads == 0) {
        const struct rlimit none = {.rlim_cur = 0};
        return setrlimit(RLIMIT_NPROC, &none) == 0 ? NULL : "setrlimit(RLIMIT_NPROC) failed";
    }
    return NULL;
}

static void test_unprivileged(void **state)
{
    (void)state;
    expect_all_work(limit_rights, 1, "as nobody");
    for (int victim = 0; victim < 2; victim++) {
        expect_death_noticed(limit_rights, 1, "as nobody", victim);
    }
}

static void test_no_threads(void **state)
{
    struct trial trial;
    (void)state;
    trial_begin(&trial, limit_rights, 0, rank_once);
    const int worked = trial_end(&trial, "without a thread", 0);
    print_message("without a thread: rank 0: %s\n", trial.reports[0].text);
    assert_int_equal(worked, 0);
    assert_true(explains(&trial, "thread"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_descriptors), cmocka_unit_test(test_poor_split),
        cmocka_unit_test(test_poor_shm),        cmocka_unit_test(test_pid_namespaces),
        cmocka_unit_test(test_denied_calls),    cmocka_unit_test(test_death_with_denied_calls),
        cmocka_unit_test(test_unprivileged),    cmocka_unit_test(test_no_threads),
    };
    over_tcp = argc > 1 && strcmp(argv[1], "tcp") == 0;
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Strangers at the endpoints of a job of three ranks: while it waits for the third one, while the
 * third one has to get through a crowd, and while it runs. No stranger gets in, no result is wrong,
 * the job ends well, and then every rank has as much memory and as many descriptors as before.
 *
 *     test_strangers local|tcp|machines [--full]
 *
 * local: the launcher says that all ranks are here, so that there are Unix sockets and no others;
 * tcp: data go over TCP; machines: every rank counts as on a machine of its own, so that there are
 * ports while they wait, too. --full: 10 MB over 1000 connections to every port.
 *
 * The ranks are forked and report to this process through pipes. Only this process asserts, and it
 * never uses hoop's sockets itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/family.h"
#include "harness/fds.h"
#include "harness/sanitizer.h"
#include "hoop.h"
#include "membership/membership.h"
#include "whole/strangers.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define RANKS 3
#define PATIENCE_MS 60000
#define SETTLE_MS 15000 /* an unproven connection may last 5 s */
#define COUNT 3000
#define GROWTH_KB 2048

static const char *mode;
static bool full;

/* A rank reports by letters: J joined, P paused, E ended well, ! something unexpected. */
struct job {
    struct family family;
    hoop_unique_id_t id;
};

/* ---- A rank ------------------------------------------------------------------------------- */

static struct family_self rank_self;

static void rank_say(char letter)
{
    if (!family_say(&rank_self, &letter, 1)) {
        _exit(3);
    }
}

static void rank_expect(bool as_expected, const char *what)
{
    if (!as_expected) {
        fprintf(stderr, "rank: %s: %s\n", what, hoop_get_last_error(NULL));
        rank_say('!');
        _exit(1);
    }
}

static char rank_order(void)
{
    const int order = family_order(&rank_self);
    rank_expect(order >= 0, "no orders");
    return (char)order;
}

/* Rank 0 passes on its parent's wish, so that all pause and end after the same operation. */
static char rank_wish(int rank)
{
    struct pollfd fd = {.fd = rank_self.from_parent, .events = POLLIN};
    return rank == 0 && poll(&fd, 1, 0) == 1 ? rank_order() : 0;
}

/* One sum. Returns the wish, which is rank 0's element 0; the other elements are known. */
static char rank_sum(hoop_comm_t comm, int rank, int32_t *x)
{
    x[0] = (unsigned char)rank_wish(rank);
    for (int i = 1; i < COUNT; i++) {
        x[i] = i * (rank + 1);
    }
    rank_expect(hoop_all_reduce(x, x, COUNT, HOOP_INT32, HOOP_SUM, comm, NULL) == HOOP_OK,
                "all_reduce failed");
    int wrong = 0;
    for (int i = 1; i < COUNT; i++) {
        wrong += x[i] != i * (RANKS * (RANKS + 1) / 2) ? 1 : 0;
    }
    rank_expect(wrong == 0, "wrong result");
    return (char)x[0];
}

/* Works until it is told to end, now and then with new memory, for which ranks need connections. */
static void rank_work(hoop_comm_t comm, int rank)
{
    const struct timespec breath = {.tv_nsec = 200000};
    int32_t *x = NULL;
    char wish = 0;
    for (int i = 0; wish != 'q'; i++) {
        if (i % 64 == 0) {
            rank_expect(hoop_mem_free(x) == HOOP_OK, "hoop_mem_free");
            rank_expect(hoop_mem_alloc((void **)&x, COUNT * sizeof(*x), HOOP_MEM_HOST) == HOOP_OK,
                        "hoop_mem_alloc");
        }
        wish = rank_sum(comm, rank, x);
        if (wish == 'p') {
            rank_say('P');
            (void)rank_order();
        }
        nanosleep(&breath, NULL);
    }
    rank_expect(hoop_comm_destroy(comm) == HOOP_OK, "hoop_comm_destroy");
    rank_expect(hoop_mem_free(x) == HOOP_OK, "hoop_mem_free");
}

static void rank_environment(int rank)
{
    char text[16];
    (void)snprintf(text, sizeof(text), "host-%d", rank);
    setenv("HOOP_DEBUG", "none", 0);
    setenv("HOOP_SOCKET_IFNAME", "lo", 1);
    if (strcmp(mode, "local") == 0) {
        setenv("RANK", text + strlen("host-"), 1);
        setenv("WORLD_SIZE", "3", 1);
        setenv("LOCAL_WORLD_SIZE", "3", 1);
    } else if (strcmp(mode, "tcp") == 0) {
        setenv("HOOP_TRANSPORT", "tcp", 1);
    } else {
        setenv("HOOP_HOSTID", text, 1);
    }
}

static void rank_main(const struct family_self *self, const void *arg)
{
    const int rank = self->rank;
    (void)arg;
    rank_self = *self;
    hoop_unique_id_t id;
    hoop_comm_t comm = NULL;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    rank_environment(rank);
    config.init_timeout_ms = 600000;
    config.dead_after_ms = 60000; /* a crowd of strangers may starve a small machine */
    if (rank == 0) {
        rank_expect(hoop_get_unique_id(&id) == HOOP_OK, "hoop_get_unique_id");
        rank_expect(family_say(&rank_self, &id, sizeof(id)), "hand on the id");
    } else {
        rank_expect(read(rank_self.from_parent, &id, sizeof(id)) == sizeof(id), "no id");
    }
    rank_expect(hoop_comm_init_rank_config(&comm, RANKS, id, rank, &config) == HOOP_OK, "join");
    rank_say('J');
    rank_work(comm, rank);
    rank_say('E');
}

/* ---- The job, from outside ---------------------------------------------------------------- */

static void job_kill(struct job *job)
{
    family_finish(&job->family);
}

static void job_read(struct job *job, int r, void *to, size_t bytes)
{
    if (family_hear(&job->family, r, to, bytes, hoop_deadline_ns(PATIENCE_MS)) != FAMILY_HEARD) {
        job_kill(job);
        fail_msg("rank %d said nothing", r);
    }
}

static void job_hear(struct job *job, int r, char expected)
{
    char letter = 0;
    job_read(job, r, &letter, 1);
    if (letter != expected) {
        job_kill(job);
        fail_msg("rank %d said '%c' and not '%c'", r, letter, expected);
    }
}

static void job_tell(struct job *job, int r, const void *data, size_t bytes)
{
    assert_true(family_tell(&job->family, r, data, bytes));
}

/* Starts ranks 0 and 1; the third is awaited. */
static void job_start(struct job *job)
{
    family_init(&job->family, RANKS);
    assert_true(family_fork(&job->family, 0, rank_main, NULL));
    job_read(job, 0, &job->id, sizeof(job->id));
    assert_true(family_fork(&job->family, 1, rank_main, NULL));
    job_tell(job, 1, &job->id, sizeof(job->id));
}

static void job_complete(struct job *job)
{
    assert_true(family_fork(&job->family, 2, rank_main, NULL));
    job_tell(job, 2, &job->id, sizeof(job->id));
    for (int r = 0; r < RANKS; r++) {
        job_hear(job, r, 'J');
    }
}

static void job_pause(struct job *job)
{
    job_tell(job, 0, "p", 1);
    for (int r = 0; r < RANKS; r++) {
        job_hear(job, r, 'P');
    }
}

static void job_continue(struct job *job)
{
    for (int r = 0; r < RANKS; r++) {
        job_tell(job, r, "c", 1);
    }
}

static void job_end(struct job *job)
{
    job_tell(job, 0, "q", 1);
    for (int r = 0; r < RANKS; r++) {
        job_hear(job, r, 'E');
        assert_true(family_reap(&job->family, r, hoop_deadline_ns(PATIENCE_MS)));
    }
    family_finish(&job->family);
}

/* ---- What a process has ------------------------------------------------------------------- */

static long process_memory_kb(pid_t pid)
{
    char path[64];
    char line[256];
    long kb = -1;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            kb = strtol(line + 6, NULL, 10);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return kb;
}

struct belongings {
    int descriptors[RANKS];
    long memory_kb[RANKS];
};

static void job_look(const struct job *job, int ranks, struct belongings *ret)
{
    for (int r = 0; r < ranks; r++) {
        ret->descriptors[r] = fds_count(job->family.ranks[r].pid);
        ret->memory_kb[r] = process_memory_kb(job->family.ranks[r].pid);
    }
}

/* The same once nothing has changed for a while, so that ended connections are closed. */
static void job_look_calmly(const struct job *job, int ranks, struct belongings *ret)
{
    const struct timespec t = {.tv_nsec = 50000000};
    struct belongings last;
    int calm = 0;
    job_look(job, ranks, &last);
    for (int i = 0; i < SETTLE_MS / 50 && calm < 6; i++) {
        nanosleep(&t, NULL);
        job_look(job, ranks, ret);
        calm = memcmp(ret->descriptors, last.descriptors, (size_t)ranks * sizeof(int)) == 0
                   ? calm + 1
                   : 0;
        last = *ret;
    }
}

/* Connections that have ended are closed soon: the count returns to what it was, or stays below. */
static void job_assert_unchanged(struct job *job, int ranks, const struct belongings *before)
{
    const struct timespec t = {.tv_nsec = 20000000};
    struct belongings now;
    bool same = false;
    for (int i = 0; i < SETTLE_MS / 20 && !same; i++) {
        job_look(job, ranks, &now);
        same = true;
        for (int r = 0; r < ranks; r++) {
            same = same && now.descriptors[r] <= before->descriptors[r];
        }
        if (!same) {
            nanosleep(&t, NULL);
        }
    }
    for (int r = 0; r < ranks; r++) {
        const long grown = now.memory_kb[r] - before->memory_kb[r];
        print_message("rank %d: %d descriptors, then %d; %ld KiB, then %ld\n", r,
                      before->descriptors[r], now.descriptors[r], before->memory_kb[r],
                      now.memory_kb[r]);
        if (!same || (MEMORY_IS_PLAIN && grown > GROWTH_KB)) {
            job_kill(job);
            fail_msg("rank %d grew", r);
        }
    }
}

/* ---- The attacks -------------------------------------------------------------------------- */

static void strangers_from_job(const struct job *job, struct strangers *ret)
{
    struct hoop_rendezvous rendezvous;
    memset(ret, 0, sizeof(*ret));
    assert_int_equal(hoop_rendezvous_from_id(&job->id, &rendezvous), HOOP_OK);
    (void)snprintf(ret->rendezvous, sizeof(ret->rendezvous), "%s", rendezvous.name);
    ret->secret = rendezvous.secret;
    ret->full = full;
    ret->random = 20261121;
}

/* Finds the sockets of the first ranks, at least `least` of them, which may still be opening. */
static int job_targets(struct job *job, int ranks, int least, struct target *ret)
{
    const struct timespec t = {.tv_nsec = 10000000};
    pid_t pids[RANKS];
    int count = 0;
    for (int r = 0; r < ranks; r++) {
        pids[r] = job->family.ranks[r].pid;
    }
    for (int i = 0; i < PATIENCE_MS / 10 && count < least; i++) {
        count = strangers_find(pids, ranks, ret);
        if (count < least) {
            nanosleep(&t, NULL);
        }
    }
    if (count < least) {
        job_kill(job);
        fail_msg("the ranks listen at %d sockets, expected at least %d", count, least);
    }
    return count;
}

/* Are there TCP ports, only at the allowed interface, if and only if there must be? */
static void assert_listens(struct job *job, const struct target *targets, int count, bool expected)
{
    int tcp = 0;
    for (int i = 0; i < count; i++) {
        tcp += target_is_tcp(&targets[i]) ? 1 : 0;
        print_message("listens at %s\n", targets[i].text);
        if (target_is_tcp(&targets[i]) && strncmp(targets[i].text, "127.0.0.1 ", 10) != 0 &&
            strncmp(targets[i].text, "::1 ", 4) != 0) {
            job_kill(job);
            fail_msg("%s is no address of the one interface that was allowed", targets[i].text);
        }
    }
    if (expected != (tcp > 0)) {
        job_kill(job);
        fail_msg("%d of %d sockets are TCP ports in mode %s", tcp, count, mode);
    }
}

static void attack_all(struct job *job, struct strangers *strangers, const struct target *targets,
                       int count)
{
    for (int i = 0; i < count; i++) {
        strangers_attack(strangers, &targets[i]);
        strangers_attack_as_other(strangers, &targets[i]);
    }
    print_message("%llu connections, %llu bytes, %llu challenges\n",
                  (unsigned long long)strangers->connections, (unsigned long long)strangers->bytes,
                  (unsigned long long)strangers->challenges);
    if (strangers->welcomes != 0 || strangers->weak != 0) {
        job_kill(job);
        fail_msg("%llu strangers were let in, %llu challenges were weak",
                 (unsigned long long)strangers->welcomes, (unsigned long long)strangers->weak);
    }
}

/* While two ranks wait for the third, which then has to get through a crowd. */
static void test_waiting(void **state)
{
    (void)state;
    struct job job;
    struct strangers strangers;
    struct belongings before;
    struct target targets[STRANGERS_TARGETS];
    static struct held held[STRANGERS_TARGETS];
    job_start(&job);
    strangers_from_job(&job, &strangers);
    /* one leader, or one for each rank, and the listeners of two ranks; ports if there may be
     * others */
    const bool far = strcmp(mode, "machines") == 0;
    const int count = job_targets(&job, 2, far ? 6 : 3, targets);
    assert_listens(&job, targets, count, far);
    for (int i = 0; i < count; i++) {
        strangers_warm(&strangers, &targets[i]);
    }
    job_look_calmly(&job, 2, &before);
    attack_all(&job, &strangers, targets, count);
    if (strangers.challenges == 0) {
        job_kill(&job);
        fail_msg("no right hello was answered: nothing was tried");
    }
    job_assert_unchanged(&job, 2, &before);
    for (int i = 0; i < count; i++) {
        strangers_hold(&strangers, &targets[i], &held[i]);
    }
    job_complete(&job);
    for (int i = 0; i < count; i++) {
        strangers_let_go(&held[i]);
    }
    job_end(&job);
}

static void test_running(void **state)
{
    (void)state;
    struct job job;
    struct strangers strangers;
    struct belongings before;
    struct target targets[STRANGERS_TARGETS];
    static struct held held;
    job_start(&job);
    strangers_from_job(&job, &strangers);
    job_complete(&job);
    job_pause(&job); /* after some operations all ports that they need are open */
    const int count = job_targets(&job, RANKS, RANKS, targets);
    job_continue(&job);
    assert_listens(&job, targets, count, strcmp(mode, "local") != 0);
    for (int i = 0; i < count; i++) {
        strangers_warm(&strangers, &targets[i]);
    }
    job_pause(&job);
    job_look_calmly(&job, RANKS, &before);
    job_continue(&job);
    attack_all(&job, &strangers, targets, count);
    for (int i = 0; i < count; i++) {
        strangers_hold(&strangers, &targets[i], &held);
        strangers_let_go(&held);
    }
    job_pause(&job);
    job_assert_unchanged(&job, RANKS, &before);
    job_continue(&job);
    job_end(&job);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_running),
    };
    mode = argc > 1 ? argv[1] : "";
    full = argc > 2 && strcmp(argv[2], "--full") == 0;
    if (strcmp(mode, "local") != 0 && strcmp(mode, "tcp") != 0 && strcmp(mode, "machines") != 0) {
        fprintf(stderr, "usage: test_strangers local|tcp|machines [--full]\n");
        return 2;
    }
    /* a crowd needs descriptors in this process, too */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Ranks are killed, one after the other and some at the same time, until two are left. The others
 * shrink and go on, and every sum has the contributions of the remaining ranks and no others.
 *
 *      test_shrink local|tcp|machines [--shrinks N] [--seed N]
 *
 * Before that one rank of a job is stopped until the others have gone on, of which it is told then.
 *
 * machines: rank r counts as on machine r % 3. In one of five cases a second rank is killed a
 * moment later, which may be during the agreement. Prints how long it took to recover from a kill:
 * until the last survivor had its first right sum.
 */
#include "base/clock.h"
#include "harness/family.h"
#include "hoop.h"
#include "whole/kill_sweep.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS 8
#define LEAST 2
#define COUNT 4099u /* elements; the last tells which ranks want to end */
#define LONG_NS (60 * 1000000000ull)

struct shrink_job {
    const char *where;
    char dir[32];
    uint64_t number;
    int dead_after_ms; /* 0: the default */
};

/* From a rank: its sums over these ranks are right. */
struct shrink_report {
    uint32_t members; /* bits; 0: something is wrong */
    uint32_t shrinks; /* how often this rank has called shrink */
    uint64_t time_ns;
    char text[400];
};

/* ---- A rank ------------------------------------------------------------------------------- */

static void rank_say(const struct family_self *self, uint32_t members, uint32_t shrinks,
                     const char *text)
{
    struct shrink_report report = {
        .members = members, .shrinks = shrinks, .time_ns = hoop_now_ns()};
    (void)snprintf(report.text, sizeof(report.text), "%s", text);
    if (!family_say(self, &report, sizeof(report))) {
        _exit(3);
    }
}

static _Noreturn void rank_give_up(const struct family_self *self, const char *what,
                                   hoop_result_t result)
{
    char text[380];
    (void)snprintf(text, sizeof(text), "%s: %s: %s", what, hoop_get_error_string(result),
                   hoop_get_last_error(NULL));
    rank_say(self, 0, 0, text);
    _exit(1);
}

static hoop_comm_t rank_join(const struct family_self *self, const struct shrink_job *job)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_comm_t comm = HOOP_COMM_NULL;
    char text[64];
    setenv("HOOP_DEBUG", "none", 0);
    if (strcmp(job->where, "tcp") == 0) {
        setenv("HOOP_TRANSPORT", "tcp", 1);
    } else if (strcmp(job->where, "machines") == 0) {
        (void)snprintf(text, sizeof(text), "m%d", self->rank % 3);
        setenv("HOOP_HOSTID", text, 1);
        setenv("HOOP_SOCKET_IFNAME", "lo", 1);
    }
    (void)snprintf(text, sizeof(text), "file://%s/%llu", job->dir, (unsigned long long)job->number);
    config.init_timeout_ms = 30000;
    config.op_timeout_ms = 30000;
    config.dead_after_ms = job->dead_after_ms != 0 ? job->dead_after_ms : config.dead_after_ms;
    const hoop_result_t result = hoop_comm_init_url(&comm, text, self->n, self->rank, &config);
    if (result != HOOP_OK) {
        rank_give_up(self, "the join", result);
    }
    return comm;
}

static bool rank_is_told(const struct family_self *self)
{
    struct pollfd poll_fd = {.fd = self->from_parent, .events = POLLIN};
    return poll(&poll_fd, 1, 0) != 0;
}

/* Out of place, so the input stays unchanged even if the sum fails. */
static hoop_result_t rank_sum(hoop_comm_t comm, int64_t *in, int64_t *out, int64_t mine, bool ends)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        in[i] = i + 1 < COUNT ? mine : ends;
    }
    const hoop_result_t result = hoop_all_reduce(in, out, COUNT, HOOP_INT64, HOOP_SUM, comm, NULL);
    return result;
}

/* Checks that all elements are equal, that the comm has as many ranks, and this rank its place. */
static uint32_t rank_check(const struct family_self *self, hoop_comm_t comm, const int64_t *in,
                           const int64_t *out)
{
    int n = -1, rank = -1;
    const int64_t mine = (int64_t)1 << self->rank;
    for (uint32_t i = 0; i + 1 < COUNT; i++) {
        if (out[i] != out[0] || in[i] != mine) {
            rank_give_up(self, "a sum, or what it is made of, is wrong", HOOP_OK);
        }
    }
    const uint32_t members = (uint32_t)out[0];
    if (hoop_comm_count(comm, &n) != HOOP_OK || hoop_comm_user_rank(comm, &rank) != HOOP_OK ||
        n != __builtin_popcount(members) ||
        rank != __builtin_popcount(members & ((1u << self->rank) - 1u))) {
        rank_give_up(self, "the communicator is of other ranks than the sum", HOOP_OK);
    }
    return members;
}

static void rank_main(const struct family_self *self, const void *arg)
{
    hoop_comm_t comm = rank_join(self, arg);
    int64_t *in = calloc(COUNT, sizeof(*in));
    int64_t *out = calloc(COUNT, sizeof(*out));
    uint32_t members = 0, shrinks = 0;
    bool over = false;
    while (!over) {
        const hoop_result_t sum =
            rank_sum(comm, in, out, (int64_t)1 << self->rank, rank_is_told(self));
        if (sum == HOOP_OK) {
            const uint32_t now = rank_check(self, comm, in, out);
            if (now != members) {
                rank_say(self, now, shrinks, "");
            }
            members = now;
            over = out[COUNT - 1] != 0;
            continue;
        }
        hoop_comm_t next = HOOP_COMM_NULL;
        const hoop_result_t result =
            hoop_comm_shrink(comm, NULL, 0, &next, NULL, HOOP_SHRINK_ABORT);
        shrinks++;
        if (result != HOOP_OK) {
            rank_give_up(self, "the shrink", result);
        }
        if (hoop_comm_destroy(comm) != HOOP_OK) {
            rank_give_up(self, "the destroy", HOOP_OK);
        }
        comm = next;
    }
    free(in);
    free(out);
    if (hoop_comm_destroy(comm) != HOOP_OK) {
        rank_give_up(self, "the last destroy", HOOP_OK);
    }
}

/* ---- The parent --------------------------------------------------------------------------- */

static struct {
    uint64_t kills, most_ns, sum_ns, seed;
} tally;

static int fail(const char *what, int rank, const char *text)
{
    (void)printf("seed %llu: rank %d: %s: %s\n", (unsigned long long)tally.seed, rank, what, text);
    return 1;
}

/* Waits until all members report this membership. *ret_ns: when the last one did. */
static int await_members(const struct family *family, uint32_t members, uint64_t *ret_ns)
{
    const uint64_t deadline = hoop_now_ns() + LONG_NS;
    *ret_ns = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        struct shrink_report report = {.members = 0};
        while ((members >> rank & 1u) != 0 && report.members != members) {
            const enum family_heard heard =
                family_hear(family, rank, &report, sizeof(report), deadline);
            if (heard != FAMILY_HEARD || report.members == 0) {
                return fail(heard == FAMILY_SILENT ? "silent" : "ended", rank, report.text);
            }
            if ((report.members & members) != members) {
                return fail("lost a living rank", rank, "");
            }
        }
        *ret_ns = report.time_ns > *ret_ns ? report.time_ns : *ret_ns;
    }
    return 0;
}

static int draw_rank(uint32_t members, uint64_t a)
{
    int at = (int)(sweep_draw(tally.seed, a, 1) % (uint64_t)__builtin_popcount(members));
    int rank = 0;
    while ((members >> rank & 1u) == 0 || at-- > 0) {
        rank++;
    }
    return rank;
}

/* Kills one rank, or two, and waits until the others have recovered. */
static int kill_some(struct family *family, uint32_t *members)
{
    const uint64_t number = tally.kills;
    const uint64_t moment_us = sweep_draw(tally.seed, number, 2) % 3000;
    const bool two = number % 5 == 4 && __builtin_popcount(*members) > LEAST + 1;
    const int first = draw_rank(*members, 2 * number);
    uint64_t time_ns = 0;
    (void)usleep((useconds_t)moment_us);
    const uint64_t begin_ns = hoop_now_ns();
    family_kill(family, first);
    *members &= ~(1u << first);
    if (two) {
        const int second = draw_rank(*members, 2 * number + 1);
        (void)usleep((useconds_t)moment_us);
        family_kill(family, second);
        *members &= ~(1u << second);
    }
    if (await_members(family, *members, &time_ns) != 0) {
        return 1;
    }
    const uint64_t took_ns = time_ns - begin_ns;
    tally.kills++;
    tally.sum_ns += took_ns;
    tally.most_ns = took_ns > tally.most_ns ? took_ns : tally.most_ns;
    return 0;
}

/* A rank that was stopped for too long goes on: the others have gone on without it. */
static int run_stopped(struct shrink_job *job)
{
    struct family family;
    struct shrink_report report = {.members = 1};
    const uint32_t all = (1u << RANKS) - 1;
    const int stopped = (int)(tally.seed % RANKS);
    uint64_t time_ns = 0;
    job->dead_after_ms = 1000;
    family_init(&family, RANKS);
    int wrong = family_fork_all(&family, rank_main, job) ? 0 : fail("fork", -1, "");
    wrong = wrong != 0 ? wrong : await_members(&family, all, &time_ns);
    if (wrong == 0) {
        (void)kill(family.ranks[stopped].pid, SIGSTOP);
        wrong = await_members(&family, all & ~(1u << stopped), &time_ns);
        (void)kill(family.ranks[stopped].pid, SIGCONT);
    }
    while (wrong == 0 && report.members != 0) {
        if (family_hear(&family, stopped, &report, sizeof(report), hoop_now_ns() + LONG_NS) !=
            FAMILY_HEARD) {
            wrong = fail("was stopped, and says nothing", stopped, "");
        } else if (report.members != 0 && report.members != all) {
            wrong = fail("was stopped, and has a comm of its own", stopped, "");
        }
    }
    if (wrong == 0 && strstr(report.text, "this one") == NULL) {
        wrong = fail("was stopped, and is not told so", stopped, report.text);
    }
    family_finish(&family);
    job->dead_after_ms = 0;
    job->number++;
    return wrong;
}

static int run_family(struct shrink_job *job, uint64_t kills)
{
    struct family family;
    uint32_t members = (1u << RANKS) - 1;
    uint64_t time_ns = 0;
    family_init(&family, RANKS);
    int wrong = family_fork_all(&family, rank_main, job) ? 0 : fail("fork", -1, "");
    wrong = wrong != 0 ? wrong : await_members(&family, members, &time_ns);
    while (wrong == 0 && tally.kills < kills && __builtin_popcount(members) > LEAST) {
        wrong = kill_some(&family, &members);
    }
    for (int rank = 0; rank < RANKS && wrong == 0; rank++) {
        if ((members >> rank & 1u) != 0) {
            (void)family_tell(&family, rank, "", 1);
        }
    }
    for (int rank = 0; rank < RANKS && wrong == 0; rank++) {
        if ((members >> rank & 1u) != 0 && !family_reap(&family, rank, hoop_now_ns() + LONG_NS)) {
            wrong = fail("did not end well", rank, "");
        }
    }
    family_finish(&family);
    job->number++;
    return wrong;
}

int main(int argc, char **argv)
{
    struct shrink_job job = {.where = argc > 1 ? argv[1] : "local",
                             .dir = "/tmp/hoop-shrink-XXXXXX"};
    uint64_t kills = 12;
    tally.seed = 1;
    for (int i = 2; i + 1 < argc; i += 2) {
        uint64_t *value = strcmp(argv[i], "--shrinks") == 0 ? &kills : &tally.seed;
        *value = strtoull(argv[i + 1], NULL, 10);
    }
    if (mkdtemp(job.dir) == NULL) {
        return fail("mkdtemp", -1, job.dir);
    }
    int wrong = run_stopped(&job);
    while (wrong == 0 && tally.kills < kills) {
        wrong = run_family(&job, kills);
    }
    (void)rmdir(job.dir);
    (void)printf("%s: %llu kills; from a kill to the last right sum %.1f ms on average, %.1f ms at "
                 "most\n",
                 job.where, (unsigned long long)tally.kills,
                 tally.kills > 0 ? (double)tally.sum_ns / 1e6 / (double)tally.kills : 0,
                 (double)tally.most_ns / 1e6);
    return wrong;
}

/*
 * Bootstrap over several machines: joins by way of a root, and what machines tell each other
 * afterwards.
 */
#include "base/clock.h"
#include "harness/fds.h"
#include "runtime/wait.h"
#include "whole/machine_job.h"
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Joining ------------------------------------------------------------------------------ */

static void check_rosters(void)
{
    char expected[512] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < job.n; i++) {
        at += (size_t)snprintf(expected + at, sizeof(expected) - at, "%s%u", i == 0 ? "" : ",",
                               job.machine_of[i]);
    }
    for (uint32_t i = 0; i < job.n; i++) {
        char line[600];
        uint32_t here = 0;
        for (uint32_t peer = 0; peer < job.n; peer++) {
            here += job.machine_of[peer] == job.machine_of[i] ? 1 : 0;
        }
        (void)snprintf(line, sizeof(line), "roster %u %u %s", job.machines, here, expected);
        rank_command(&job.ranks[i], "roster");
        assert_true(rank_line(&job.ranks[i], line, JOB_LONG_MS));
    }
}

static void test_join(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 5; m++) {
        for (uint32_t each = 1; each <= 3; each++) {
            job_place(m * each, m, false);
            job_join();
            check_rosters();
            job_finish();
        }
    }
    job_place(6, 3, true);
    job_join();
    check_rosters();
    job_finish();
}

static void test_many(void **state)
{
    const uint64_t start = hoop_now_ns();
    (void)state;
    job_place(64, 8, false);
    job_join();
    print_message("64 ranks on 8 machines joined after %llu ms\n",
                  (hoop_now_ns() - start) / HOOP_NS_PER_MS);
    check_rosters();
    rank_command(&job.ranks[9], "raise 3 because");
    job_expect("raised 3 6 because", 9, job.machine_of[9]);
    job_finish();
}

static void test_second_address(void **state)
{
    const struct hoop_rendezvous rendezvous = job_meeting(2);
    (void)state;
    job_place(2, 2, false);
    for (uint32_t i = 0; i < job.n; i++) {
        job.ranks[i].join.rendezvous = rendezvous;
    }
    /* the rank that serves knows only the second address */
    job.ranks[0].join.rendezvous.addresses[0] = rendezvous.addresses[1];
    job.ranks[0].join.rendezvous.address_count = 1;
    job_join();
    check_rosters();
    job_finish();
}

/* Ranks of this process, too. */
static void test_threads(void **state)
{
    const struct hoop_rendezvous rendezvous = job_meeting(1);
    const struct hoop_blob blob = {.bytes = 5, .data = "hello"};
    (void)state;
    assert_int_equal(hoop_service_start(), HOOP_OK);
    const int fds = fds_count(0);
    job.n = 3;
    for (uint32_t i = 0; i < job.n; i++) {
        rank_init(&job.ranks[i], &rendezvous, job.n, i);
        job.machine_of[i] = i / 2;
    }
    (void)snprintf(job.ranks[2].host_id, sizeof(job.ranks[2].host_id), "other");
    assert_int_equal(rank_spawn(&job.ranks[2], NULL), 0);
    assert_int_equal(rank_start(&job.ranks[1]), HOOP_OK);
    assert_int_equal(rank_start(&job.ranks[0]), HOOP_OK);
    assert_int_equal(rank_join(&job.ranks[0]), HOOP_OK);
    assert_int_equal(rank_join(&job.ranks[1]), HOOP_OK);
    assert_true(rank_line(&job.ranks[2], "joined", JOB_LONG_MS));
    hoop_member_send_blob(job.ranks[1].member, 2, 3, true, &blob);
    assert_true(rank_line(&job.ranks[2], "blob 1 3 1 hello", JOB_LONG_MS));
    rank_command(&job.ranks[2], "blob 0 1 there");
    assert_true(rank_line(&job.ranks[0], "blob 2 1 1 there", JOB_LONG_MS));
    rank_say_left(&job.ranks[0]);
    rank_finish(&job.ranks[0]);
    assert_true(rank_line(&job.ranks[2], "gone 0", JOB_LONG_MS));
    rank_finish(&job.ranks[1]); /* without a goodbye */
    assert_true(
        rank_line(&job.ranks[2], "lost 1 closed its connection without a goodbye", JOB_LONG_MS));
    rank_finish(&job.ranks[2]);
    assert_true(fds_await(fds, hoop_deadline_ns(JOB_LONG_MS)));
}

/* Ranks 0 and 1 on one machine, rank 2 on another: which of them outnumber their CPUs? */
static void check_cpus(const struct hoop_cpus cpus[3], bool crowded, uint32_t oversubscribed)
{
    const struct hoop_rendezvous rendezvous = job_meeting(1);
    for (uint32_t i = 0; i < 3; i++) {
        rank_init(&job.ranks[i], &rendezvous, 3, i);
        job.ranks[i].join.cpus = cpus[i];
    }
    (void)snprintf(job.ranks[2].host_id, sizeof(job.ranks[2].host_id), "other");
    assert_int_equal(rank_spawn(&job.ranks[2], NULL), 0);
    assert_int_equal(rank_start(&job.ranks[1]), HOOP_OK);
    assert_int_equal(rank_start(&job.ranks[0]), HOOP_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(rank_join(&job.ranks[i]), HOOP_OK);
        const struct hoop_roster *roster = hoop_member_roster(job.ranks[i].member);
        assert_int_equal(roster->crowded, crowded);
        assert_int_equal(roster->oversubscribed, oversubscribed);
    }
    for (uint32_t i = 0; i < 3; i++) {
        rank_finish(&job.ranks[i]);
    }
}

static void test_cpus(void **state)
{
    (void)state;
    assert_int_equal(hoop_service_start(), HOOP_OK);
    /* separate hosts; containers of one host that share its CPUs, or have a quota */
    check_cpus((struct hoop_cpus[]){{1, 2, 0}, {1, 2, 0}, {2, 2, 0}}, false, 0);
    check_cpus((struct hoop_cpus[]){{1, 2, 0}, {1, 2, 0}, {1, 2, 0}}, true, 2);
    check_cpus((struct hoop_cpus[]){{1, 3, 0}, {1, 3, 0}, {1, 3, 0}}, false, 0);
    check_cpus((struct hoop_cpus[]){{0, 2, 0}, {0, 2, 0}, {0, 2, 0}}, false, 0);
    check_cpus((struct hoop_cpus[]){{1, 2, 0}, {1, 2, 0}, {2, 1, 2}}, false, 1);
}

/* All ranks turn out to be on one machine: then nothing of the network is left. */
static void test_alone(void **state)
{
    const struct hoop_rendezvous rendezvous = job_meeting(1);
    struct sockaddr_storage address;
    (void)state;
    assert_int_equal(hoop_service_start(), HOOP_OK);
    const int fds = fds_count(0);
    const socklen_t bytes = hoop_address_to_sockaddr(&rendezvous.addresses[0], &address);
    for (uint32_t i = 0; i < 3; i++) {
        rank_init(&job.ranks[i], &rendezvous, 3, i);
        assert_int_equal(rank_start(&job.ranks[i]), HOOP_OK);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(rank_join(&job.ranks[i]), HOOP_OK);
        assert_int_equal(hoop_member_roster(job.ranks[i].member)->machines, 1);
    }
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, bytes), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(fd);
    for (uint32_t i = 0; i < 3; i++) {
        rank_finish(&job.ranks[i]);
    }
    assert_true(fds_await(fds, hoop_deadline_ns(JOB_LONG_MS)));
}

/*
 * Ranks with all numbers of a job have come to one machine, but the launcher said that some are
 * elsewhere. They may be from several jobs. Only the root can know, so nothing is decided without
 * it.
 */
static void test_never_alone(void **state)
{
    (void)state;
    assert_int_equal(hoop_service_start(), HOOP_OK);
    const int fds = fds_count(0);
    for (uint32_t root = 0; root < 2; root++) {
        struct hoop_rendezvous rendezvous = job_meeting(1);
        rendezvous.local_n = 2;
        for (uint32_t i = 0; i < 4; i++) {
            rank_init(&job.ranks[i], &rendezvous, 4, i);
            job.ranks[i].join.timeout_ms = root == 0 ? 700 : JOB_LONG_MS;
            job.ranks[i].join.serve = root == 1 && i == 0;
            assert_int_equal(rank_start(&job.ranks[i]), HOOP_OK);
        }
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(rank_join(&job.ranks[i]), root == 0 ? HOOP_TIMEOUT : HOOP_OK);
        }
        for (uint32_t i = 0; i < 4; i++) {
            rank_finish(&job.ranks[i]);
        }
    }
    assert_true(fds_await(fds, hoop_deadline_ns(JOB_LONG_MS)));
}

/* ---- Blobs -------------------------------------------------------------------------------- */

static void test_blobs(void **state)
{
    (void)state;
    job_place(10, 5, false);
    job_join();
    for (uint32_t from = 0; from < job.n; from++) {
        for (uint32_t to = 0; to < job.n; to++) {
            char line[64];
            if (from != to) {
                rank_command(&job.ranks[from], "blob %u %u from%uto%u", to, from, from, to);
                (void)snprintf(line, sizeof(line), "blob %u %u 1 from%uto%u", from, from, from, to);
                assert_true(rank_line(&job.ranks[to], line, JOB_LONG_MS));
            }
        }
    }
    job_expect_nothing(JOB_NOBODY);
    job_finish();
}

/* ---- Losses ------------------------------------------------------------------------------- */

static void kill_and_expect(uint32_t victim)
{
    char line[32];
    const uint64_t start = hoop_now_ns();
    (void)snprintf(line, sizeof(line), "lost %u died", victim);
    kill(job.ranks[victim].pid, SIGKILL);
    job_expect(line, victim, JOB_NOBODY);
    print_message("rank %u of %u on %u machines: its death was known everywhere after %" PRIu64
                  " us\n",
                  victim, job.n, job.machines, (hoop_now_ns() - start) / 1000);
    job_expect_nothing(victim);
}

static void test_kill(void **state)
{
    (void)state;
    for (uint32_t m = 2; m <= 5; m++) {
        job_place(2 * m, m, false);
        job_join();
        kill_and_expect(job_find(false, m / 2));
        job_finish();
        job_place(2 * m, m, false);
        job_join();
        kill_and_expect(job_find(true, m / 2));
        job_finish();
        job_place(2 * m, m, false);
        job_join();
        kill_and_expect(0); /* the root was in that process */
        job_finish();
    }
}

static void test_stop(void **state)
{
    (void)state;
    job_place(5, 3, false); /* machine 2 has only rank 2 */
    for (uint32_t i = 0; i < job.n; i++) {
        job.ranks[i].join.dead_after_ms = 300;
    }
    job_join();
    rank_command(&job.ranks[2], "wait");
    assert_true(rank_is_silent(&job.ranks[2], 200));
    kill(job.ranks[2].pid, SIGSTOP);
    assert_true(rank_is_silent(&job.ranks[0], 700)); /* no rank waits for it yet */
    kill(job.ranks[2].pid, SIGCONT);
    assert_true(rank_is_silent(&job.ranks[2], 500)); /* these two were not the silent ones */
    kill(job.ranks[2].pid, SIGSTOP);
    rank_command(&job.ranks[1], "wait"); /* its machine has no connection with that of rank 2 */
    job_expect("lost 2 gave no sign of life for", 2, JOB_NOBODY);
    kill(job.ranks[2].pid, SIGCONT);
    rank_command(&job.ranks[2], "blob 0 1 back");
    assert_true(rank_line(&job.ranks[0], "blob 2 1 1 back", JOB_LONG_MS));
    job_finish();
    /* a rank for which another process speaks */
    job_place(6, 2, false);
    for (uint32_t i = 0; i < job.n; i++) {
        job.ranks[i].join.dead_after_ms = 300;
    }
    job_join();
    const uint32_t victim = job_find(false, 1);
    char line[64];
    (void)snprintf(line, sizeof(line), "lost %u gave no sign of life for", victim);
    kill(job.ranks[victim].pid, SIGSTOP);
    rank_command(&job.ranks[0], "wait"); /* on another machine */
    job_expect(line, victim, JOB_NOBODY);
    job_finish();
}

#define FAR_DEAD_AFTER_MS 400u
#define FAR_TRIES 5 /* one of them must succeed: a slow machine may be late now and then */

/* Of nine machines with one rank each, one stops; then these ranks begin to wait. Returns how long
 * it takes until all others know. */
static uint64_t stop_far(uint32_t victim, const uint32_t *waiters, size_t count)
{
    char line[64];
    job_place(9, 9, false);
    for (uint32_t i = 0; i < job.n; i++) {
        job.ranks[i].join.dead_after_ms = FAR_DEAD_AFTER_MS;
    }
    job_join();
    const uint64_t start = hoop_now_ns();
    kill(job.ranks[victim].pid, SIGSTOP);
    for (size_t i = 0; i < count; i++) {
        rank_command(&job.ranks[waiters[i]], "wait");
    }
    (void)snprintf(line, sizeof(line), "lost %u gave no sign of life for", victim);
    job_expect(line, victim, JOB_NOBODY);
    const uint64_t ns = hoop_now_ns() - start;
    job_finish();
    return ns;
}

/* The tree is four levels deep: 0; 1 2; 3 4 5 6; 7 8. The ranks that wait are far from those that
 * notice the silence. */
static void test_stop_far(void **state)
{
    static const struct {
        uint32_t victim;
        uint32_t waiters[3];
        size_t count;
    } cases[] = {
        {.victim = 6, .waiters = {8}, .count = 1},       /* five edges from the rank that notices */
        {.victim = 8, .waiters = {5}, .count = 1},       /* in the other direction */
        {.victim = 1, .waiters = {5, 7, 4}, .count = 3}, /* it cuts the tree into three parts */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t best = UINT64_MAX;
        for (int try = 0; try < FAR_TRIES && best > FAR_DEAD_AFTER_MS * 5 / 4 * HOOP_NS_PER_MS;
             try++) {
            const uint64_t ns = stop_far(cases[i].victim, cases[i].waiters, cases[i].count);
            best = ns < best ? ns : best;
        }
        print_message("machine %u of 9 stopped: known everywhere after %llu ms (HOOP_DEAD_AFTER_MS "
                      "is %u)\n",
                      cases[i].victim, best / HOOP_NS_PER_MS, FAR_DEAD_AFTER_MS);
        assert_in_range(best, FAR_DEAD_AFTER_MS * HOOP_NS_PER_MS,
                        FAR_DEAD_AFTER_MS * 5 / 4 * HOOP_NS_PER_MS);
    }
}

static void test_raise(void **state)
{
    (void)state;
    job_place(6, 3, false);
    job_join();
    rank_command(&job.ranks[5], "raise 1 because");
    job_expect("raised 1 6 because", JOB_NOBODY, job.machine_of[5]);
    rank_command(&job.ranks[5], "raise 2 again"); /* once is enough */
    rank_command(&job.ranks[5], "blob 0 1 later");
    assert_true(rank_line(&job.ranks[0], "blob 5 1 1 later", JOB_LONG_MS));
    job_expect_nothing(JOB_NOBODY);
    job_finish();
}

/* ---- Goodbyes ----------------------------------------------------------------------------- */

static void leave_in_order(const uint32_t *order)
{
    for (uint32_t i = 0; i < job.n; i++) {
        char line[32];
        const uint32_t leaver = order[i];
        rank_command(&job.ranks[leaver], "left");
        rank_command(&job.ranks[leaver], "quit");
        (void)snprintf(line, sizeof(line), "gone %u", leaver);
        for (uint32_t k = i + 1; k < job.n; k++) {
            if (job.machine_of[order[k]] != job.machine_of[leaver]) {
                assert_true(rank_line(&job.ranks[order[k]], line, JOB_LONG_MS));
            }
        }
        /* the remaining ranks still reach each other */
        if (i + 2 < job.n) {
            const uint32_t from = order[job.n - 2];
            const uint32_t to = order[job.n - 1];
            rank_command(&job.ranks[from], "blob %u %u still", to, i);
            (void)snprintf(line, sizeof(line), "blob %u %u 1 still", from, i);
            assert_true(rank_line(&job.ranks[to], line, JOB_LONG_MS));
        }
    }
    for (uint32_t i = 0; i < job.n; i++) {
        int status = -1;
        assert_true(rank_is_silent(&job.ranks[i], 10)); /* the end of its output, without a loss */
        assert_int_equal(waitpid(job.ranks[i].pid, &status, 0), job.ranks[i].pid);
        assert_int_equal(status, 0);
        job.ranks[i].pid = -1;
    }
}

/* By number, up or down; or first the ranks that speak for a machine, or first the others. */
static void choose_order(uint32_t how, uint32_t *order)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < job.n; i++) {
        order[i] = how == 1 ? job.n - 1 - i : i;
    }
    for (uint32_t turn = 0; how >= 2 && turn < 2; turn++) {
        for (uint32_t i = 0; i < job.n; i++) {
            if (job_is_gate(i) == ((how == 2) == (turn == 0))) {
                order[at++] = i;
            }
        }
    }
}

static void test_goodbyes(void **state)
{
    uint32_t order[JOB_MOST] = {0};
    (void)state;
    for (uint32_t how = 0; how < 4; how++) {
        job_place(6, 3, false);
        job_join();
        choose_order(how, order);
        leave_in_order(order);
        job_finish();
    }
}

/*
 * The process that speaks for machine 1 has left and ends, though another rank is there. News along
 * the tree no longer reach that rank, but processes reach each other without it.
 */
static void test_unspoken(void **state)
{
    char line[80];
    (void)state;
    job_place(8, 4, false);
    job_join();
    const uint32_t speaker = job_is_gate(1) ? 1 : 5; /* ranks 1 and 5 are on machine 1 */
    const uint32_t ways[][2] = {{6 - speaker, 3}, {0, 6 - speaker}, {2, 6 - speaker}};
    rank_command(&job.ranks[speaker], "left");
    rank_command(&job.ranks[speaker], "quit");
    (void)snprintf(line, sizeof(line), "gone %u", speaker);
    job_expect(line, JOB_NOBODY, job.machine_of[speaker]);
    kill(job.ranks[speaker].pid, SIGKILL); /* otherwise it would wait a moment at its exit */
    assert_int_equal(waitpid(job.ranks[speaker].pid, NULL, 0), job.ranks[speaker].pid);
    job.ranks[speaker].pid = -1;
    for (size_t i = 0; i < 2 * sizeof(ways) / sizeof(ways[0]); i++) {
        const uint32_t from = ways[i / 2][i % 2], to = ways[i / 2][1 - i % 2];
        rank_command(&job.ranks[from], "blob %u 1 hello", to);
        (void)snprintf(line, sizeof(line), "blob %u 1 1 hello", from);
        assert_true(rank_line(&job.ranks[to], line, JOB_LONG_MS));
    }
    job_expect_nothing(speaker);
    job_finish();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),     cmocka_unit_test(test_second_address),
        cmocka_unit_test(test_many),     cmocka_unit_test(test_threads),
        cmocka_unit_test(test_alone),    cmocka_unit_test(test_never_alone),
        cmocka_unit_test(test_blobs),    cmocka_unit_test(test_kill),
        cmocka_unit_test(test_stop),     cmocka_unit_test(test_stop_far),
        cmocka_unit_test(test_raise),    cmocka_unit_test(test_goodbyes),
        cmocka_unit_test(test_unspoken), cmocka_unit_test(test_cpus),
    };
    if (argc > 2) {
        return rank_main(argc, argv);
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("machines", tests, NULL, NULL);
}

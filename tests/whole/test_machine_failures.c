/*
 * Joins over several machines that fail, each for a reason that the ranks must be told; and deaths
 * at any moment of a join, after which nobody may wait for ever.
 *
 *      test_machine_failures [FILTER [ROUNDS SEED]]    deaths: how many, and from which seed on
 */
#include "base/clock.h"
#include "runtime/wait.h"
#include "whole/machine_job.h"
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Joins that fail ---------------------------------------------------------------------- */

/* This rank's join fails with this code and these words. */
static void expect_failure(uint32_t rank, hoop_result_t code, const char *a, const char *b)
{
    char line[32];
    (void)snprintf(line, sizeof(line), "failed %d ", (int)code);
    if (!rank_line(&job.ranks[rank], line, JOB_LONG_MS)) {
        fail_msg("rank %u: \"%s\" does not begin with \"%s\"", rank, job.ranks[rank].line, line);
    }
    if (strstr(job.ranks[rank].line, a) == NULL || strstr(job.ranks[rank].line, b) == NULL) {
        fail_msg("\"%s\" has no \"%s\" or \"%s\"", job.ranks[rank].line, a, b);
    }
}

static void test_missing_machine(void **state)
{
    (void)state;
    job_place(6, 3, false);
    for (uint32_t i = 0; i < job.n; i++) {
        job.ranks[i].join.timeout_ms = 700;
        if (job.machine_of[i] != 2) {
            assert_int_equal(rank_spawn(&job.ranks[i], NULL), 0);
        }
    }
    for (uint32_t i = 0; i < job.n; i++) {
        if (job.machine_of[i] != 2) {
            expect_failure(i, HOOP_TIMEOUT, "ranks 2, 5 of 6 did not arrive", "within 700 ms");
        }
    }
    /* late ranks are told why at once */
    assert_int_equal(rank_spawn(&job.ranks[2], NULL), 0);
    expect_failure(2, HOOP_TIMEOUT, "ranks 2, 5 of 6 did not arrive", "within 700 ms");
    job_finish();
}

static void test_no_root(void **state)
{
    struct hoop_rendezvous rendezvous = job_meeting(2);
    char first[HOOP_ADDRESS_TEXT_BYTES];
    char second[HOOP_ADDRESS_TEXT_BYTES];
    (void)state;
    job_place(4, 2, false);
    hoop_address_format(&rendezvous.addresses[0], first, sizeof(first));
    hoop_address_format(&rendezvous.addresses[1], second, sizeof(second));
    for (uint32_t i = 1; i < job.n; i += 2) {
        job.ranks[i].join.rendezvous = rendezvous;
        job.ranks[i].join.timeout_ms = 500;
        assert_int_equal(rank_spawn(&job.ranks[i], NULL), 0);
    }
    for (uint32_t i = 1; i < job.n; i += 2) {
        expect_failure(i, HOOP_TIMEOUT, "ranks 1, 3 of 4", "did not find the root");
        assert_non_null(strstr(job.ranks[i].line, first));
        assert_non_null(strstr(job.ranks[i].line, second));
        assert_non_null(strstr(job.ranks[i].line, "ECONNREFUSED"));
    }
    job_finish();
}

static void test_wrong_secret(void **state)
{
    (void)state;
    job_place(3, 3, false);
    job.ranks[1].join.rendezvous.secret.bytes[0] ^= 1;
    job.ranks[0].join.timeout_ms = 1500;
    job.ranks[1].join.timeout_ms = 600; /* the wrong one may be a stranger: it tries until then */
    job.ranks[2].join.timeout_ms = 10000;
    assert_int_equal(rank_spawn(&job.ranks[0], NULL), 0);
    assert_int_equal(rank_spawn(&job.ranks[1], NULL), 0);
    expect_failure(1, HOOP_NOT_AUTHENTICATED, "did not find the root", "could not prove");
    assert_int_equal(rank_spawn(&job.ranks[2], NULL), 0);
    expect_failure(0, HOOP_TIMEOUT, "rank 1 of 3 did not arrive", "1500 ms");
    expect_failure(2, HOOP_TIMEOUT, "rank 1 of 3 did not arrive", "1500 ms");
    job_finish();
}

/* Listens at a port of all addresses; returns the port. */
static uint16_t hold_port(int *ret_fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(at);
    *ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*ret_fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(*ret_fd, 1), 0);
    assert_int_equal(getsockname(*ret_fd, (struct sockaddr *)&at, &bytes), 0);
    return ntohs(at.sin_port);
}

/* A machine has no port for its leader, and its process exits at once: the others hear why all the
 * same. */
static void test_ends_with_the_reason(void **state)
{
    char range[32];
    int fd = -1;
    (void)state;
    const unsigned port = hold_port(&fd);
    (void)snprintf(range, sizeof(range), "%u-%u", port, port);
    for (int round = 0; round < 3; round++) {
        job_place(3, 3, false);
        assert_int_equal(rank_spawn(&job.ranks[0], NULL), 0);
        assert_int_equal(rank_spawn(&job.ranks[1], NULL), 0);
        assert_int_equal(setenv("HOOP_PORT_RANGE", range, 1), 0);
        assert_int_equal(rank_spawn(&job.ranks[2], NULL), 0);
        assert_int_equal(unsetenv("HOOP_PORT_RANGE"), 0);
        close(job.ranks[2].order); /* it waits for no order */
        job.ranks[2].order = -1;
        expect_failure(0, HOOP_INVALID_USAGE, "cannot listen at port", "HOOP_PORT_RANGE");
        expect_failure(1, HOOP_INVALID_USAGE, "cannot listen at port", "HOOP_PORT_RANGE");
        job_finish();
    }
    close(fd);
}

static void test_contradictions(void **state)
{
    static const struct {
        hoop_result_t code;
        const char *a, *b;
    } expected[] = {
        {HOOP_INVALID_USAGE, "rank 1 joined twice", "pid"},
        {HOOP_MISMATCH, "rank 1 (", "joined with "},
        {HOOP_MISMATCH, "HOOP_CHUNK_BYTES", "4096"},
    };
    (void)state;
    for (int what = 0; what < 3; what++) {
        job_place(4, 2, false);
        if (what == 0) {
            job.ranks[2].join.rank = 1; /* on another machine than the first one */
        } else if (what == 1) {
            job.ranks[1].join.n = 5;
        } else {
            job.ranks[1].join.agreement.chunk_bytes = 4096;
        }
        job_spawn();
        for (uint32_t i = 0; i < job.n; i++) {
            expect_failure(i, expected[what].code, expected[what].a, expected[what].b);
        }
        job_finish();
    }
}

static void test_death_while_joining(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 4; victim++) {
        job_place(5, 2, false);
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(rank_spawn(&job.ranks[i], NULL), 0);
        }
        /* rank 4 never comes; the victim's join is done with when its timeout is asked for */
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(rank_is_silent(&job.ranks[i], 250));
        }
        kill(job.ranks[victim].pid, SIGKILL);
        for (uint32_t i = 0; i < 4; i++) {
            if (i != victim) {
                expect_failure(i, HOOP_REMOTE_ERROR, "ended during the join", "");
            }
        }
        job_finish();
    }
}

/* ---- At any moment ------------------------------------------------------------------------ */

/* The rank has joined or failed. If it has joined it is told of the victim. In any case in time. */
static void expect_an_end(uint32_t rank, uint32_t victim)
{
    char lost[32];
    (void)snprintf(lost, sizeof(lost), "lost %u ", victim);
    struct rank *at = &job.ranks[rank];
    for (int lines = 0; lines < 8; lines++) {
        if (!rank_any_line(at, JOB_LONG_MS)) {
            fail_msg("rank %u of %u on %u machines hears nothing of the death of rank %u", rank,
                     job.n, job.machines, victim);
        }
        if (strncmp(at->line, "failed ", 7) == 0 || strncmp(at->line, "raised ", 7) == 0 ||
            strncmp(at->line, lost, strlen(lost)) == 0) {
            return;
        }
        if (strncmp(at->line, "joined", 6) != 0 && strncmp(at->line, "lost ", 5) != 0) {
            fail_msg("rank %u: \"%s\"", rank, at->line);
        }
    }
}

static uint32_t kill_rounds = 16; /* an argument may raise it */
static unsigned kill_seed = 1;

/* Each round has its own seed, so that one that fails can be repeated. */
static void kill_at_some_moment(unsigned round)
{
    unsigned seed = round;
    const uint32_t m = 1 + (uint32_t)rand_r(&seed) % 5;
    const uint32_t n = 1 + m * (1 + (uint32_t)rand_r(&seed) % 3);
    job_place(n, m, false);
    for (uint32_t i = 0; i < job.n; i++) {
        job.ranks[i].join.timeout_ms = 1000;
    }
    const uint32_t victim = (uint32_t)rand_r(&seed) % n;
    const uint64_t delay_us = (uint64_t)rand_r(&seed) % (10000ull * n);
    const uint64_t start = hoop_now_ns();
    job_spawn();
    while (hoop_now_ns() - start < delay_us * 1000) {
        hoop_wait_briefly();
    }
    kill(job.ranks[victim].pid, SIGKILL);
    for (uint32_t i = 0; i < job.n; i++) {
        if (i != victim) {
            expect_an_end(i, victim);
        }
    }
    job_finish();
}

static void test_kill_at_any_moment(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < kill_rounds; round++) {
        kill_at_some_moment(kill_seed + round);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_machine),      cmocka_unit_test(test_no_root),
        cmocka_unit_test(test_wrong_secret),         cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_death_while_joining),  cmocka_unit_test(test_kill_at_any_moment),
        cmocka_unit_test(test_ends_with_the_reason),
    };
    if (argc == 3) {
        return rank_main(argc, argv);
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    if (argc > 3) {
        kill_rounds = (uint32_t)strtoul(argv[2], NULL, 10);
        kill_seed = (unsigned)strtoul(argv[3], NULL, 10);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("machine_failures", tests, NULL, NULL);
}

/*
 * Shrinks among threads of one process, where no rank dies: without some ranks, of revoked comms,
 * in groups, in the background; what is refused, and what is given up. Shrinks after deaths are in
 * whole/test_shrink.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/fds.h"
#include "hoop.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define N 5

/* One rank's call, on a thread of its own. */
struct shrinker {
    pthread_t thread;
    int rank, flags, count, timeout_ms;
    int exclude[N];
    hoop_comm_t comm, next;
    hoop_result_t result;
    int64_t sum;
    char text[400];
};

static hoop_result_t sum_of(hoop_comm_t comm, int64_t mine, int64_t *ret)
{
    return hoop_all_reduce(&mine, ret, 1, HOOP_INT64, HOOP_SUM, comm, NULL);
}

static void *shrinker_main(void *arg)
{
    struct shrinker *me = arg;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.init_timeout_ms = me->timeout_ms != 0 ? me->timeout_ms : 20000;
    me->result = hoop_comm_shrink(me->comm, me->exclude, me->count, &me->next, &config, me->flags);
    if (me->result == HOOP_OK) {
        me->result = sum_of(me->next, 1 << me->rank, &me->sum);
    }
    (void)snprintf(me->text, sizeof(me->text), "%s", hoop_get_last_error(NULL));
    return NULL;
}

static void start_all(struct shrinker *all, hoop_comm_t *comms, uint32_t who, int flags)
{
    for (int rank = 0; rank < N; rank++) {
        all[rank] = (struct shrinker){.rank = rank, .comm = comms[rank], .flags = flags};
        for (int other = 0; other < N; other++) {
            if ((who >> other & 1u) == 0) {
                all[rank].exclude[all[rank].count++] = other;
            }
        }
    }
}

static void go(struct shrinker *all, uint32_t who)
{
    for (int rank = 0; rank < N; rank++) {
        if ((who >> rank & 1u) != 0) {
            assert_int_equal(pthread_create(&all[rank].thread, NULL, shrinker_main, &all[rank]), 0);
        }
    }
}

static void join_all(struct shrinker *all, uint32_t who)
{
    for (int rank = 0; rank < N; rank++) {
        if ((who >> rank & 1u) != 0) {
            pthread_join(all[rank].thread, NULL);
        }
    }
}

/* All ranks that called have a comm of just these ranks, which then ends. */
static void expect_comm(struct shrinker *all, uint32_t who)
{
    int next = 0;
    for (int rank = 0; rank < N; rank++) {
        int n = -1, me = -1;
        if ((who >> rank & 1u) == 0) {
            continue;
        }
        if (all[rank].result != HOOP_OK) {
            fail_msg("rank %d: %s", rank, all[rank].text);
        }
        assert_int_equal(all[rank].sum, who);
        assert_int_equal(hoop_comm_count(all[rank].next, &n), HOOP_OK);
        assert_int_equal(hoop_comm_user_rank(all[rank].next, &me), HOOP_OK);
        assert_int_equal(n, __builtin_popcount(who));
        assert_int_equal(me, next++);
    }
    for (int rank = 0; rank < N; rank++) {
        assert_int_equal(hoop_comm_destroy(all[rank].next), HOOP_OK);
    }
}

static void expect_refused(const struct shrinker *me, hoop_result_t code, const char *words)
{
    assert_int_equal(me->result, code);
    assert_null(me->next);
    if (strstr(me->text, words) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", me->text, words);
    }
}

static void expect_failure(const struct shrinker *all, uint32_t who, hoop_result_t code,
                           const char *words)
{
    for (int rank = 0; rank < N; rank++) {
        if ((who >> rank & 1u) != 0) {
            expect_refused(&all[rank], code, words);
        }
    }
}

static void begin(hoop_comm_t *comms)
{
    assert_int_equal(hoop_comm_init_all(comms, N, NULL), HOOP_OK);
}

static void end(hoop_comm_t *comms)
{
    for (int rank = 0; rank < N; rank++) {
        assert_int_equal(hoop_comm_destroy(comms[rank]), HOOP_OK);
    }
}

/* Shrinks without some ranks, again and again. The old comm still works, and nothing is left
 * over. */
static void test_exclude(void **state)
{
    static const uint32_t sets[] = {0x1d, 0x0e, 0x10, 0x1f, 0x1d, 0x1d, 0x03};
    hoop_comm_t comms[N];
    struct shrinker all[N];
    (void)state;
    begin(comms);
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        start_all(all, comms, sets[i], HOOP_SHRINK_DEFAULT);
        go(all, sets[i]);
        join_all(all, sets[i]);
        expect_comm(all, sets[i]);
    }
    int64_t in[N], out[N];
    hoop_group_start();
    for (int rank = 0; rank < N; rank++) {
        in[rank] = rank;
        assert_int_equal(
            hoop_all_reduce(&in[rank], &out[rank], 1, HOOP_INT64, HOOP_SUM, comms[rank], NULL),
            HOOP_OK);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    assert_int_equal(out[3], 10);
    end(comms);
}

/* A comm that has failed by itself shrinks only with HOOP_SHRINK_ABORT. That works several times in
 * a row. */
static void test_revoked(void **state)
{
    hoop_comm_t comms[N];
    struct shrinker all[N];
    (void)state;
    begin(comms);
    assert_int_equal(hoop_comm_revoke(comms[2], HOOP_REVOKE_DEFAULT), HOOP_OK);
    start_all(all, comms, 0x0f, HOOP_SHRINK_DEFAULT);
    go(all, 0x0f);
    join_all(all, 0x0f);
    expect_failure(all, 0x0f, HOOP_ABORTED, "only HOOP_SHRINK_ABORT");
    for (int i = 0; i < 3; i++) {
        start_all(all, comms, 0x1f, HOOP_SHRINK_ABORT);
        go(all, 0x1f);
        join_all(all, 0x1f);
        if (i == 2) {
            expect_comm(all, 0x1f);
            break;
        }
        for (int rank = 0; rank < N; rank++) {
            assert_int_equal(all[rank].result, HOOP_OK);
            assert_int_equal(hoop_comm_destroy(comms[rank]), HOOP_OK);
            comms[rank] = all[rank].next;
        }
    }
    end(comms);
}

/* HOOP_SHRINK_ABORT ends a running operation. A rank that one rank excludes is excluded by all. */
static void test_abort_ends_what_runs(void **state)
{
    hoop_comm_t comms[N];
    struct shrinker all[N];
    hoop_stream_t stream;
    hoop_ticket_t ticket;
    int64_t one = 1, got = 0;
    (void)state;
    begin(comms);
    assert_int_equal(hoop_stream_create(&stream), HOOP_OK);
    assert_int_equal(hoop_all_reduce(&one, &got, 1, HOOP_INT64, HOOP_SUM, comms[1], stream),
                     HOOP_OK);
    assert_int_equal(hoop_stream_record(stream, &ticket), HOOP_OK);
    start_all(all, comms, 0x1f, HOOP_SHRINK_ABORT);
    all[3].count = 1;
    all[3].exclude[0] = 0;
    go(all, 0x1e);
    join_all(all, 0x1e);
    expect_comm(all, 0x1e);
    assert_int_equal(hoop_ticket_wait(ticket, 20000), HOOP_ABORTED);
    assert_int_equal(hoop_stream_destroy(stream), HOOP_ABORTED);
    end(comms);
}

static void test_refused(void **state)
{
    int bad[] = {1, 9};
    int me[] = {0};
    hoop_comm_t comms[N], next = HOOP_COMM_NULL;
    struct shrinker all[N];
    (void)state;
    begin(comms);
    assert_int_equal(hoop_comm_shrink(NULL, NULL, 0, &next, NULL, 0), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_shrink(comms[0], NULL, 0, NULL, NULL, 0), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_shrink(comms[0], NULL, 1, &next, NULL, 0), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_shrink(comms[0], bad, -1, &next, NULL, 0), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_shrink(comms[0], bad, 1, &next, NULL, 2), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_shrink(comms[0], bad, 2, &next, NULL, 0), HOOP_INVALID_ARGUMENT);
    assert_non_null(strstr(hoop_get_last_error(NULL), "exclude_ranks[1] is 9"));
    assert_int_equal(hoop_comm_shrink(comms[0], me, 1, &next, NULL, 0), HOOP_INVALID_ARGUMENT);
    assert_null(next);
    /* their exclusions differ */
    start_all(all, comms, 0x0f, HOOP_SHRINK_DEFAULT);
    all[2].exclude[0] = 3;
    go(all, 0x05);
    join_all(all, 0x05);
    assert_int_equal(all[0].result, HOOP_MISMATCH);
    assert_int_equal(all[2].result, HOOP_MISMATCH);
    assert_non_null(strstr(all[2].text, "different ranks to exclude"));
    /* one rank does not call */
    start_all(all, comms, 0x0f, HOOP_SHRINK_DEFAULT);
    for (int rank = 0; rank < N; rank++) {
        all[rank].timeout_ms = 300;
    }
    go(all, 0x05);
    join_all(all, 0x05);
    expect_failure(all, 0x05, HOOP_TIMEOUT, "ranks 1, 3 did not call");
    end(comms);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * HOOP_NS_PER_MS}, NULL);
}

/* A rank that one shrink leaves out may be in the next one, and call that before the others do.
 * Here are two such shrinks, with one rank in both. In the second one, that rank waits for the
 * other, or is waited for. */
static void test_ahead(void **state)
{
    static const struct {
        int both, first, second;
    } cases[] = {{0, 1, 2}, {2, 3, 0}, {2, 0, 3}, {4, 1, 0}};
    hoop_comm_t comms[N];
    struct shrinker first[N], second[N];
    (void)state;
    begin(comms);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t both = 1u << cases[i].both;
        const uint32_t one = 1u << cases[i].first, other = 1u << cases[i].second;
        start_all(first, comms, both | one, HOOP_SHRINK_DEFAULT);
        start_all(second, comms, both | other, HOOP_SHRINK_DEFAULT);
        go(first, both);
        sleep_ms(20);
        go(second, other);
        sleep_ms(150);
        go(first, one);
        join_all(first, both | one);
        expect_comm(first, both | one);
        go(second, both);
        join_all(second, both | other);
        expect_comm(second, both | other);
    }
    /* The second shrink never takes place. */
    start_all(first, comms, 0x03, HOOP_SHRINK_DEFAULT);
    start_all(second, comms, 0x05, HOOP_SHRINK_DEFAULT);
    first[0].timeout_ms = 1500;
    second[2].timeout_ms = 300;
    go(first, 0x01);
    go(second, 0x04);
    join_all(second, 0x04);
    expect_refused(&second[2], HOOP_MISMATCH, "rank 0 called hoop_comm_shrink() without rank 2");
    join_all(first, 0x01);
    expect_refused(&first[0], HOOP_TIMEOUT, "rank 1 did not call");
    end(comms);
}

/* One shrink at a time; and with the largest timeout that can be given. */
static void test_one_at_a_time(void **state)
{
    hoop_comm_t comms[N], next[2] = {NULL};
    struct shrinker all[N];
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    (void)state;
    begin(comms);
    config.init_timeout_ms = 1000;
    hoop_group_start();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hoop_comm_shrink(comms[0], NULL, 0, &next[i], &config, 0), HOOP_OK);
    }
    assert_int_equal(hoop_group_end(), HOOP_INVALID_USAGE);
    assert_non_null(strstr(hoop_get_last_error(NULL), "being shrunk already"));
    start_all(all, comms, 0x0f, HOOP_SHRINK_DEFAULT);
    for (int rank = 0; rank < N; rank++) {
        all[rank].timeout_ms = INT_MAX;
    }
    go(all, 0x0f);
    join_all(all, 0x0f);
    expect_comm(all, 0x0f);
    end(comms);
}

/* One thread shrinks for all ranks, and waits for that or does not. */
static void test_group(void **state)
{
    int exclude[] = {1, 3};
    hoop_comm_t comms[N], next[N] = {NULL};
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    (void)state;
    begin(comms);
    for (int blocking = 1; blocking >= 0; blocking--) {
        config.blocking = blocking;
        hoop_group_start();
        for (int rank = 0; rank < N; rank += 2) {
            assert_int_equal(hoop_comm_shrink(comms[rank], exclude, 2, &next[rank], &config, 0),
                             HOOP_OK);
        }
        assert_int_equal(hoop_group_end(), blocking ? HOOP_OK : HOOP_IN_PROGRESS);
        for (int rank = 0; rank < N; rank += 2) {
            hoop_result_t state_of = HOOP_IN_PROGRESS;
            const uint64_t deadline = hoop_deadline_ns(20000);
            while (state_of == HOOP_IN_PROGRESS && hoop_now_ns() < deadline) {
                assert_int_equal(hoop_comm_get_async_error(next[rank], &state_of), HOOP_OK);
            }
            assert_int_equal(state_of, HOOP_OK);
        }
        for (int rank = 0; rank < N; rank += 2) {
            assert_int_equal(hoop_comm_destroy(next[rank]), HOOP_OK);
        }
    }
    end(comms);
}

/* A shrink that no other rank calls ends with the comm, or with the handle of the new one. */
static void test_given_up(void **state)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    (void)state;
    config.blocking = 0;
    for (int i = 0; i < 3; i++) {
        hoop_comm_t comms[N], next = NULL;
        const uint64_t begun = hoop_now_ns();
        begin(comms);
        assert_int_equal(hoop_comm_shrink(comms[1], NULL, 0, &next, &config,
                                          i == 0 ? HOOP_SHRINK_DEFAULT : HOOP_SHRINK_ABORT),
                         HOOP_IN_PROGRESS);
        if (i == 0) { /* the comm fails */
            assert_int_equal(hoop_comm_revoke(comms[0], HOOP_REVOKE_DEFAULT), HOOP_OK);
        } else if (i == 1) {
            assert_int_equal(hoop_comm_abort(comms[1]), HOOP_OK);
        } else {
            assert_int_equal(hoop_comm_abort(next), HOOP_OK);
        }
        hoop_result_t state_of = HOOP_IN_PROGRESS;
        while (state_of == HOOP_IN_PROGRESS && hoop_now_ns() - begun < 20000000000u) {
            assert_int_equal(hoop_comm_get_async_error(next, &state_of), HOOP_OK);
        }
        assert_int_equal(state_of, HOOP_ABORTED);
        assert_int_equal(hoop_comm_destroy(next), HOOP_OK);
        end(comms);
    }
}

/* What earlier tests have left may still be freed meanwhile. */
static void test_nothing_grows(void **state)
{
    const int before = fds_count(getpid());
    const uint64_t deadline = hoop_deadline_ns(20000);
    test_exclude(state);
    test_revoked(state);
    while (fds_count(getpid()) > before && hoop_now_ns() < deadline) {
        (void)usleep(1000);
    }
    assert_true(fds_count(getpid()) <= before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exclude),
        cmocka_unit_test(test_revoked),
        cmocka_unit_test(test_abort_ends_what_runs),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_nothing_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

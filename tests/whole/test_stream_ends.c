/*
 * Queued work whose comm, peer or process ends: tickets report failures, which do not hold up work
 * of other comms; abort, revoke and destroy with work in the queues; fork and exit().
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/meeting.h"
#include "whole/stream_world.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIR 2
#define SOON_NS (10 * HOOP_NS_PER_S) /* the patience of abort is a minute */

static void make(hoop_comm_t *comms, int op_timeout_ms)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_unique_id_t id;
    config.op_timeout_ms = op_timeout_ms;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    hoop_group_start();
    for (int rank = 0; rank < PAIR; rank++) {
        hoop_comm_init_rank_config(&comms[rank], PAIR, id, rank, &config);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
}

static void end(hoop_comm_t *comms)
{
    for (int rank = 0; rank < PAIR; rank++) {
        assert_int_equal(hoop_comm_destroy(comms[rank]), HOOP_OK);
    }
}

/* Queues a sum over one number, and a ticket behind it. */
static hoop_ticket_t queue_sum(int64_t *x, hoop_comm_t comm, hoop_stream_t stream)
{
    *x = 1;
    assert_int_equal(stream_sum(x, comm, stream), HOOP_OK);
    return stream_record(stream);
}

/* ---- Failures ------------------------------------------------------------------------------- */

/* The peer of the first comm never comes, and the comm is revoked; what is behind it on the stream
 * goes on. */
static void test_failure_holds_up_nothing(void **state)
{
    (void)state;
    hoop_comm_t bad[PAIR], good[PAIR];
    hoop_stream_t streams[PAIR];
    int64_t x[4];
    make(bad, 0);
    make(good, 0);
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_create(&streams[r]), HOOP_OK);
    }
    const hoop_ticket_t first = queue_sum(&x[0], bad[0], streams[0]);
    const hoop_ticket_t second = queue_sum(&x[1], bad[0], streams[0]);
    const hoop_ticket_t third = queue_sum(&x[2], good[0], streams[0]);
    queue_sum(&x[3], good[1], streams[1]);
    assert_int_equal(hoop_ticket_wait(third, 30), HOOP_TIMEOUT);
    assert_int_equal(hoop_comm_revoke(bad[1], HOOP_REVOKE_DEFAULT), HOOP_OK);
    assert_int_equal(hoop_ticket_wait(third, MINUTE_MS), HOOP_OK);
    assert_int_equal(x[2], PAIR);
    assert_int_equal(hoop_ticket_wait(first, 0), HOOP_ABORTED);
    assert_non_null(strstr(hoop_get_last_error(NULL), "rank 1 revoked"));
    assert_int_equal(hoop_ticket_query(second), HOOP_ABORTED);
    /* Now the call itself is refused, which is not a failure of the stream. */
    assert_int_equal(stream_sum(&x[0], bad[0], streams[0]), HOOP_ABORTED);
    assert_int_equal(hoop_ticket_wait(stream_record(streams[0]), -1), HOOP_OK);
    assert_int_equal(hoop_stream_synchronize(streams[0]), HOOP_ABORTED);
    assert_int_equal(hoop_stream_synchronize(streams[0]), HOOP_OK);
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_destroy(streams[r]), HOOP_OK);
    }
    assert_int_equal(hoop_ticket_query(first), HOOP_ABORTED); /* still remembered */
    end(bad);
    end(good);
}

/* A group on a stream has calls on a comm that has failed: they fail like queued work, and the
 * calls on other comms run, since other ranks wait for them. */
static void test_group_with_a_failed_comm(void **state)
{
    (void)state;
    hoop_comm_t bad[PAIR], good[PAIR];
    hoop_stream_t streams[PAIR];
    int64_t x[3] = {1, 1, 1};
    make(bad, 0);
    make(good, 20000);
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_create(&streams[r]), HOOP_OK);
    }
    assert_int_equal(hoop_comm_revoke(bad[1], HOOP_REVOKE_DEFAULT), HOOP_OK);
    for (int blocks = 0; blocks < 2; blocks++) {
        queue_sum(&x[2], good[1], streams[1]);
        x[1] = 1;
        assert_int_equal(hoop_group_start(), HOOP_OK);
        assert_int_equal(stream_sum(&x[0], bad[0], streams[0]), HOOP_OK);
        assert_int_equal(stream_sum(&x[1], good[0], blocks == 0 ? streams[0] : NULL), HOOP_OK);
        assert_int_equal(hoop_group_end(), blocks == 0 ? HOOP_OK : HOOP_ABORTED);
        assert_int_equal(hoop_stream_synchronize(streams[0]), HOOP_ABORTED);
        assert_non_null(strstr(hoop_get_last_error(NULL), "rank 1 revoked"));
        assert_int_equal(hoop_stream_synchronize(streams[1]), HOOP_OK);
        assert_int_equal(x[1], PAIR);
        assert_int_equal(x[2], PAIR);
    }
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_destroy(streams[r]), HOOP_OK);
    }
    end(bad);
    end(good);
}

/* An operation that never ends by itself fails at its timeout, even if nobody waits for it. */
static void test_deadline(void **state)
{
    (void)state;
    hoop_comm_t comms[PAIR];
    hoop_stream_t stream;
    int64_t x;
    hoop_result_t told = HOOP_OK;
    make(comms, 100);
    assert_int_equal(hoop_stream_create(&stream), HOOP_OK);
    queue_sum(&x, comms[0], stream);
    const uint64_t deadline = hoop_now_ns() + SOON_NS;
    while (hoop_stream_query(stream) == HOOP_IN_PROGRESS && hoop_now_ns() < deadline) {
        usleep(1000);
    }
    assert_int_equal(hoop_stream_synchronize(stream), HOOP_TIMEOUT);
    assert_non_null(strstr(hoop_get_last_error(NULL), "100 ms"));
    assert_int_equal(hoop_comm_get_async_error(comms[0], &told), HOOP_OK);
    assert_int_equal(told, HOOP_TIMEOUT);
    assert_int_equal(hoop_stream_destroy(stream), HOOP_OK);
    end(comms);
}

/* Ranks that queue different operations. */
static void test_mismatch(void **state)
{
    (void)state;
    hoop_comm_t comms[PAIR];
    hoop_stream_t streams[PAIR];
    int64_t x[2] = {1, 1};
    make(comms, 0);
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_create(&streams[r]), HOOP_OK);
        assert_int_equal(hoop_all_reduce(&x[r], &x[r], 1, HOOP_INT64, r == 0 ? HOOP_SUM : HOOP_MAX,
                                         comms[r], streams[r]),
                         HOOP_OK);
    }
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_destroy(streams[r]), HOOP_MISMATCH);
    }
    end(comms);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/*
 * Work on a comm is queued behind work on another one that does not end. Aborting the comm ends its
 * work at once, wherever it is; its handle may be freed, and the stream goes on when it can.
 */
static void test_abort_behind_another(void **state)
{
    (void)state;
    hoop_comm_t slow[PAIR], doomed[PAIR];
    hoop_stream_t streams[PAIR];
    int64_t x[5], y[3];
    make(slow, 0);
    make(doomed, 0);
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_create(&streams[r]), HOOP_OK);
    }
    const hoop_ticket_t first = queue_sum(&x[0], slow[0], streams[0]);
    const hoop_ticket_t second = queue_sum(&x[1], doomed[0], streams[0]);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    x[2] = x[3] = x[4] = 1;
    assert_int_equal(stream_sum(&x[2], doomed[0], streams[0]), HOOP_OK);
    assert_int_equal(stream_sum(&x[3], slow[0], streams[0]), HOOP_OK);
    assert_int_equal(stream_sum(&x[4], slow[0], streams[1]), HOOP_OK);
    assert_int_equal(hoop_group_end(), HOOP_OK);
    const hoop_ticket_t third = stream_record(streams[0]);
    const uint64_t before = hoop_now_ns();
    assert_int_equal(hoop_comm_abort(doomed[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(doomed[0]), HOOP_OK);
    assert_in_range(hoop_now_ns() - before, 0, SOON_NS);
    assert_int_equal(hoop_ticket_query(first), HOOP_IN_PROGRESS);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int i = 0; i < 3; i++) {
        y[i] = 1;
        assert_int_equal(stream_sum(&y[i], slow[1], NULL), HOOP_OK);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    assert_int_equal(hoop_ticket_wait(third, MINUTE_MS), HOOP_ABORTED);
    assert_int_equal(x[3], PAIR);
    assert_int_equal(hoop_ticket_wait(first, 0), HOOP_OK);
    assert_int_equal(hoop_ticket_wait(second, 0), HOOP_ABORTED);
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_destroy(streams[r]), HOOP_ABORTED);
    }
    assert_int_equal(hoop_comm_destroy(doomed[1]), HOOP_OK);
    end(slow);
}

/* The same for a shrink that ends running work: its ranks may wait for it before they get to the
 * other comm's work. */
static void test_shrink_behind_another(void **state)
{
    (void)state;
    hoop_comm_t slow[PAIR], doomed[PAIR], next[PAIR];
    hoop_stream_t stream;
    int64_t x[2], y = 1;
    make(slow, 20000);
    make(doomed, 0);
    assert_int_equal(hoop_stream_create(&stream), HOOP_OK);
    const hoop_ticket_t first = queue_sum(&x[0], slow[0], stream);
    const hoop_ticket_t second = queue_sum(&x[1], doomed[0], stream);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < PAIR; r++) {
        (void)hoop_comm_shrink(doomed[r], NULL, 0, &next[r], NULL, HOOP_SHRINK_ABORT);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    assert_int_equal(hoop_ticket_query(first), HOOP_IN_PROGRESS);
    assert_int_equal(stream_sum(&y, slow[1], NULL), HOOP_OK);
    assert_int_equal(hoop_ticket_wait(first, MINUTE_MS), HOOP_OK);
    assert_int_equal(hoop_ticket_wait(second, MINUTE_MS), HOOP_ABORTED);
    assert_int_equal(hoop_stream_destroy(stream), HOOP_ABORTED);
    end(slow);
    end(doomed);
    end(next);
}

struct caller {
    pthread_t thread;
    hoop_comm_t comm;
    hoop_result_t result;
    char why[400];
    uint64_t calls;
};

/* Queues as fast as it can, and waits now and then, until something fails. */
static void *queue_until_it_fails(void *arg)
{
    struct caller *caller = arg;
    hoop_stream_t stream = NULL;
    static const int bytes[] = {8, 4000, 100000};
    char *data = calloc(1, 100000);
    caller->result = hoop_stream_create(&stream);
    while (caller->result == HOOP_OK) {
        caller->result = hoop_all_reduce(data, data, (size_t)bytes[caller->calls % 3], HOOP_INT8,
                                         HOOP_SUM, caller->comm, stream);
        if (++caller->calls % 10 == 0 && caller->result == HOOP_OK) {
            caller->result = hoop_stream_synchronize(stream);
        }
    }
    (void)snprintf(caller->why, sizeof(caller->why), "%s", hoop_get_last_error(NULL));
    (void)hoop_stream_destroy(stream);
    free(data);
    return NULL;
}

static void expect_aborted(const struct caller *caller, int round)
{
    if (caller->result != HOOP_ABORTED) {
        fail_msg("round %d: %s: %s", round, hoop_get_error_name(caller->result), caller->why);
    }
}

static void test_abort_races_with_queues(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        hoop_comm_t comms[PAIR];
        struct caller callers[PAIR];
        make(comms, 0);
        for (int r = 0; r < PAIR; r++) {
            callers[r] = (struct caller){.comm = comms[r]};
            assert_int_equal(
                pthread_create(&callers[r].thread, NULL, queue_until_it_fails, &callers[r]), 0);
        }
        usleep((useconds_t)(round % 10) * 200);
        const uint64_t before = hoop_now_ns();
        assert_int_equal(round % 3 == 0 ? hoop_comm_revoke(comms[0], 0)
                                        : hoop_comm_abort(comms[round % PAIR]),
                         HOOP_OK);
        for (int r = 0; r < PAIR; r++) {
            pthread_join(callers[r].thread, NULL);
            expect_aborted(&callers[r], round);
        }
        assert_in_range(hoop_now_ns() - before, 0, SOON_NS);
        end(comms);
    }
}

struct flooder {
    pthread_t thread;
    hoop_comm_t slow, doomed;
    atomic_bool floods;
};

/* Queues behind work that does not end, until that is refused. */
static void *flood(void *arg)
{
    struct flooder *flooder = arg;
    hoop_stream_t stream = NULL;
    int64_t x[2] = {1, 1};
    (void)hoop_stream_create(&stream);
    (void)stream_sum(&x[0], flooder->slow, stream);
    do {
        flooder->floods = true;
    } while (stream_sum(&x[1], flooder->doomed, stream) == HOOP_OK);
    (void)hoop_stream_destroy(stream);
    return NULL;
}

/* Work that is being queued while abort removes queued work does not hold up anything either. */
static void test_abort_against_a_flood(void **state)
{
    (void)state;
    for (int round = 0; round < 150; round++) {
        hoop_comm_t slow[PAIR], doomed[PAIR];
        struct flooder flooders[4];
        make(slow, 20000);
        make(doomed, 0);
        for (int i = 0; i < 4; i++) {
            flooders[i] = (struct flooder){.slow = slow[0], .doomed = doomed[0]};
            assert_int_equal(pthread_create(&flooders[i].thread, NULL, flood, &flooders[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            while (!flooders[i].floods) {
                sched_yield();
            }
        }
        const uint64_t before = hoop_now_ns();
        assert_int_equal(hoop_comm_abort(doomed[0]), HOOP_OK);
        assert_in_range(hoop_now_ns() - before, 0, SOON_NS);
        assert_int_equal(hoop_comm_revoke(slow[1], HOOP_REVOKE_DEFAULT), HOOP_OK);
        for (int i = 0; i < 4; i++) {
            pthread_join(flooders[i].thread, NULL);
        }
        end(slow);
        end(doomed);
    }
}

static void *destroy(void *arg)
{
    struct caller *caller = arg;
    caller->result = hoop_comm_destroy(caller->comm);
    return NULL;
}

/* Destroying a comm or a stream waits for what is queued. */
static void test_destroy_waits(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        hoop_comm_t comms[PAIR];
        hoop_stream_t streams[PAIR];
        struct caller callers[PAIR];
        static int64_t x[PAIR][50];
        make(comms, 0);
        for (int r = 0; r < PAIR; r++) {
            assert_int_equal(hoop_stream_create(&streams[r]), HOOP_OK);
            for (int i = 0; i < 50; i++) {
                queue_sum(&x[r][i], comms[r], streams[r]);
            }
            callers[r] = (struct caller){.comm = comms[r]};
            assert_int_equal(pthread_create(&callers[r].thread, NULL, destroy, &callers[r]), 0);
        }
        for (int r = 0; r < PAIR; r++) {
            pthread_join(callers[r].thread, NULL);
            assert_int_equal(callers[r].result, HOOP_OK);
            assert_int_equal(x[r][49], PAIR);
            assert_int_equal(hoop_stream_destroy(streams[r]), HOOP_OK);
        }
    }
}

/* After the goodbye no call is allowed, queued or not. */
static void test_finalize(void **state)
{
    (void)state;
    hoop_comm_t comms[PAIR];
    hoop_stream_t streams[PAIR];
    int64_t x[PAIR + 1];
    make(comms, 0);
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_create(&streams[r]), HOOP_OK);
        queue_sum(&x[r], comms[r], streams[r]);
    }
    assert_int_equal(hoop_comm_finalize(comms[0]), HOOP_OK);
    assert_int_equal(x[0], PAIR);
    assert_int_equal(stream_sum(&x[PAIR], comms[0], streams[0]), HOOP_INVALID_USAGE);
    assert_non_null(strstr(hoop_get_last_error(NULL), "was finalized"));
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(hoop_stream_destroy(streams[r]), HOOP_OK);
    }
    end(comms);
}

/* ---- Processes ------------------------------------------------------------------------------ */

static void check(bool good, int code)
{
    if (!good) {
        _exit(code);
    }
}

static hoop_comm_t meet(const struct family_self *self, const void *arg)
{
    const struct meeting *meeting = meeting_open(self, arg);
    hoop_comm_t comm = HOOP_COMM_NULL;
    check(hoop_comm_init_rank(&comm, self->n, meeting->ids[0], self->rank) == HOOP_OK, 11);
    return comm;
}

/* Rank 1 ends without a goodbye while the others have work queued. */
static void lose_a_rank(const struct family_self *self, const void *arg)
{
    hoop_comm_t comm = meet(self, arg);
    hoop_stream_t stream = NULL;
    hoop_ticket_t ticket;
    static float data[30][20000];
    check(hoop_stream_create(&stream) == HOOP_OK, 1);
    for (int i = 0; i < 30; i++) {
        if (self->rank == 1 && i == 10) {
            check(hoop_stream_synchronize(stream) == HOOP_OK, 2);
            _exit(0);
        }
        check(hoop_all_reduce(data[i], data[i], 20000, HOOP_FLOAT32, HOOP_SUM, comm, stream) ==
                      HOOP_OK ||
                  i >= 10,
              3);
    }
    check(hoop_stream_record(stream, &ticket) == HOOP_OK, 4);
    check(hoop_ticket_wait(ticket, MINUTE_MS) == HOOP_REMOTE_ERROR, 5);
    check(strstr(hoop_get_last_error(NULL), "rank 1") != NULL, 6);
    check(hoop_stream_destroy(stream) == HOOP_REMOTE_ERROR, 7);
    check(hoop_comm_destroy(comm) == HOOP_OK, 8);
}

static void test_rank_lost(void **state)
{
    (void)state;
    meeting_run(3, lose_a_rank);
}

/* exit() with queued work that will never end, and from inside it. */
static void exit_with_work(const struct family_self *self, const void *arg)
{
    hoop_comm_t comm = meet(self, arg);
    hoop_stream_t stream = NULL;
    static float data[20][20000];
    check(hoop_stream_create(&stream) == HOOP_OK, 1);
    for (int i = 0; i < (self->rank == 0 ? 20 : 10); i++) {
        /* the other rank may have left */
        (void)hoop_all_reduce(data[i], data[i], 20000, HOOP_FLOAT32, HOOP_SUM, comm, stream);
    }
    usleep(self->rank == 0 ? (useconds_t)(getpid() % 8) * 500 : 20000);
    exit(0);
}

static void test_exit(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        meeting_run(2, exit_with_work);
    }
}

/* A child has none of the work, and may free what it has inherited. */
static void fork_with_work(const struct family_self *self, const void *arg)
{
    hoop_comm_t comm = meet(self, arg);
    hoop_stream_t stream = NULL;
    hoop_ticket_t ticket;
    int64_t x = 1;
    int status = -1, fd = -1;
    check(hoop_stream_create(&stream) == HOOP_OK, 1);
    check(stream_sum(&x, comm, stream) == HOOP_OK, 2);
    check(hoop_stream_record(stream, &ticket) == HOOP_OK, 3);
    const pid_t pid = fork();
    if (pid == 0) {
        check(hoop_stream_synchronize(stream) == HOOP_INVALID_USAGE, 20);
        check(hoop_stream_query(stream) == HOOP_INVALID_USAGE, 21);
        check(hoop_stream_get_fd(stream, &fd) == HOOP_INVALID_USAGE, 22);
        check(hoop_stream_record(stream, &ticket) == HOOP_INVALID_USAGE, 23);
        check(hoop_ticket_wait(ticket, -1) == HOOP_INVALID_USAGE, 24);
        check(hoop_ticket_query(ticket) == HOOP_INVALID_USAGE, 25);
        check(hoop_stream_wait_ticket(stream, ticket) == HOOP_INVALID_USAGE, 26);
        check(stream_sum(&x, comm, stream) == HOOP_INVALID_USAGE, 27);
        check(hoop_stream_create(&stream) == HOOP_INVALID_USAGE, 28);
        check(hoop_stream_destroy(stream) == HOOP_OK, 29);
        check(hoop_comm_destroy(comm) == HOOP_OK, 30);
        _exit(0);
    }
    check(hoop_ticket_wait(ticket, MINUTE_MS) == HOOP_OK && x == self->n, 4);
    check(waitpid(pid, &status, 0) == pid && status == 0, WEXITSTATUS(status));
    check(hoop_stream_destroy(stream) == HOOP_OK, 5);
    check(hoop_comm_destroy(comm) == HOOP_OK, 6);
}

static void test_fork(void **state)
{
    (void)state;
    meeting_run(2, fork_with_work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Processes first, while the parent has not called hoop yet. */
        cmocka_unit_test(test_rank_lost),
        cmocka_unit_test(test_exit),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_failure_holds_up_nothing),
        cmocka_unit_test(test_group_with_a_failed_comm),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_abort_behind_another),
        cmocka_unit_test(test_shrink_behind_another),
        cmocka_unit_test(test_abort_races_with_queues),
        cmocka_unit_test(test_abort_against_a_flood),
        cmocka_unit_test(test_destroy_waits),
        cmocka_unit_test(test_finalize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The end of a comm that others are using: abort and revoke, from any thread at any time, and what
 * the handle returns afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/driver.h"
#include "hoop.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static void make(hoop_comm_t *comms)
{
    /* No timeout: only the abort ends an operation here. */
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_unique_id_t id;
    config.op_timeout_ms = 0;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    hoop_group_start();
    for (int rank = 0; rank < 2; rank++) {
        hoop_comm_init_rank_config(&comms[rank], 2, id, rank, &config);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
}

static hoop_result_t sum_one(hoop_comm_t comm)
{
    int64_t x = 1;
    return hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, comm, NULL);
}

struct caller {
    pthread_t thread;
    hoop_comm_t comms[2];
    hoop_result_t result;
    char sentence[400];
};

/* Until a thread runs an operation. */
static void await_inside(const struct hoop_comm *comm)
{
    while (atomic_load(&comm->waiting) == 0) {
        usleep(100);
    }
}

static void start(struct caller *caller, void *(*body)(void *), hoop_comm_t a, hoop_comm_t b)
{
    *caller = (struct caller){.comms = {a, b}};
    assert_int_equal(pthread_create(&caller->thread, NULL, body, caller), 0);
}

/* Calls like any user until a call fails, and then asks why. */
static void *call_until_it_fails(void *arg)
{
    struct caller *caller = arg;
    do {
        caller->result = sum_one(caller->comms[0]);
    } while (caller->result == HOOP_OK);
    usleep(500);
    strncpy(caller->sentence, hoop_get_last_error(caller->comms[0]), sizeof(caller->sentence) - 1);
    return NULL;
}

static void *call_in_group(void *arg)
{
    struct caller *caller = arg;
    static int64_t x[2] = {1, 1};
    hoop_group_start();
    for (int i = 0; i < 2; i++) {
        hoop_all_reduce(&x[i], &x[i], 1, HOOP_INT64, HOOP_SUM, caller->comms[i], NULL);
    }
    caller->result = hoop_group_end();
    return NULL;
}

/* A rank waits for one that never calls, and another thread aborts that one. */
static void test_abort_inside(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    struct caller caller;
    make(comms);
    start(&caller, call_until_it_fails, comms[0], NULL);
    assert_int_equal(hoop_comm_abort(comms[1]), HOOP_OK);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, HOOP_ABORTED);
    assert_int_equal(sum_one(comms[0]), HOOP_ABORTED);
    assert_non_null(strstr(caller.sentence, "rank 1 aborted"));
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
}

/* Used in place of hoop_links_get(). There is never a link, and at the n-th call rank 1 aborts. */
static struct late {
    hoop_comm_t aborts;
    int calls, n;
} late;

static hoop_result_t late_link(void *arg, uint32_t peer, uint32_t lane, bool sending,
                               struct hoop_link **ret_link)
{
    (void)arg, (void)peer, (void)lane, (void)sending, (void)ret_link;
    if (++late.calls == late.n) {
        hoop_comm_abort(late.aborts);
    }
    return HOOP_AGAIN;
}

/* A rank that waits finds no failure first, then that the awaited rank has left, and polls
 * once more. If the other one aborts and leaves between these two looks, the last poll finds
 * the abort. */
static void test_abort_between_looks(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    int64_t x = 1;
    const struct hoop_request request = {
        .signature = {.collective = HOOP_COLL_ALL_REDUCE,
                      .type = HOOP_INT64,
                      .op = HOOP_SUM,
                      .root = -1,
                      .count = 1},
        .in = &x,
        .out = &x,
    };
    make(comms);
    late = (struct late){.aborts = comms[1]};
    comms[0]->operation.env.over_links = true;
    comms[0]->operation.env.link = late_link;
    assert_int_equal(hoop_turn_enter(&comms[0]->turn, 1000), HOOP_OK);
    assert_int_equal(hoop_driver_begin(comms[0], &request), HOOP_OK);
    while (hoop_driver_poll(comms[0], false) == HOOP_POLL_BUSY) {
    }
    late.calls = 0;
    assert_int_equal(hoop_driver_poll(comms[0], false), HOOP_POLL_IDLE);
    assert_int_not_equal(late.calls, 0);
    late.n = late.calls + 1; /* the second request for a link in one poll */
    late.calls = 0;
    comms[0]->left_ns = 1; /* long ago, so there is no more patience with it */
    hoop_board_leave(&comms[0]->board, 1, HOOP_LEFT);
    assert_int_equal(hoop_driver_poll(comms[0], true), HOOP_POLL_DONE);
    assert_int_equal(comms[0]->operation.failure.code, HOOP_ABORTED);
    assert_int_equal(hoop_driver_end(comms[0], HOOP_OK), HOOP_ABORTED);
    hoop_turn_leave(&comms[0]->turn);
    assert_non_null(strstr(hoop_get_last_error(comms[0]), "rank 1 aborted"));
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
}

/* Two threads call all the time and a third aborts: it may find them inside, or about to call. */
static void test_abort_races_with_calls(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        hoop_comm_t comms[2];
        struct caller callers[2];
        make(comms);
        for (int rank = 0; rank < 2; rank++) {
            start(&callers[rank], call_until_it_fails, comms[rank], NULL);
        }
        usleep((useconds_t)(round % 10) * 100);
        assert_int_equal(hoop_comm_abort(comms[round % 2]), HOOP_OK);
        for (int rank = 0; rank < 2; rank++) {
            pthread_join(callers[rank].thread, NULL);
            assert_int_equal(callers[rank].result, HOOP_ABORTED);
            assert_non_null(strstr(callers[rank].sentence, "aborted"));
            assert_int_equal(hoop_comm_destroy(comms[rank]), HOOP_OK);
        }
    }
}

/* The tombstone of an aborted comm answers every call, and nothing crashes. */
static void test_tombstone(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    char json[4096];
    size_t needed = 0;
    int value = 0;
    hoop_result_t error = HOOP_OK;
    make(comms);
    assert_int_equal(hoop_comm_abort(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_abort(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_revoke(comms[0], HOOP_REVOKE_DEFAULT), HOOP_OK);
    assert_int_equal(sum_one(comms[0]), HOOP_ABORTED);
    assert_int_equal(hoop_barrier(comms[0], NULL), HOOP_ABORTED);
    assert_int_equal(hoop_comm_finalize(comms[0]), HOOP_ABORTED);
    assert_int_equal(hoop_comm_get_async_error(comms[0], &error), HOOP_OK);
    assert_int_equal(error, HOOP_ABORTED);
    assert_string_equal(hoop_get_last_error(comms[0]), "rank 0 aborted the communicator");
    assert_int_equal(hoop_comm_count(comms[0], &value), HOOP_OK);
    assert_int_equal(value, 2);
    assert_int_equal(hoop_info_json(comms[0], json, sizeof(json), &needed), HOOP_OK);
    assert_non_null(strstr(json, "\"state\":\"HOOP_ABORTED\""));
    assert_int_equal(hoop_explain_json(comms[0], "all_reduce", 1, HOOP_FLOAT32, HOOP_SUM, json,
                                       sizeof(json), &needed),
                     HOOP_INVALID_USAGE);
    assert_int_equal(hoop_comm_abort(comms[1]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
    assert_int_equal(hoop_comm_abort(NULL), HOOP_OK);
}

/* After its goodbye a rank aborts only its own handle: the others go on. */
static void test_abort_after_finalize(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    hoop_result_t error = HOOP_ABORTED;
    make(comms);
    assert_int_equal(hoop_comm_finalize(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_abort(comms[0]), HOOP_OK);
    assert_int_equal(sum_one(comms[0]), HOOP_ABORTED);
    assert_string_equal(hoop_get_last_error(comms[0]), "rank 0 left the communicator");
    assert_int_equal(hoop_comm_get_async_error(comms[1], &error), HOOP_OK);
    assert_int_equal(error, HOOP_OK);
    assert_int_equal(sum_one(comms[1]), HOOP_REMOTE_ERROR);
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
}

static void *abort_it(void *arg)
{
    struct caller *caller = arg;
    caller->result = hoop_comm_abort(caller->comms[0]);
    return NULL;
}

/* An abort comes at the same time as a goodbye, and after it: the others go on. */
static void test_abort_races_with_finalize(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    struct caller caller;
    hoop_result_t error = HOOP_ABORTED;
    make(comms);
    pthread_mutex_lock(&comms[0]->look_lock); /* as finalize does */
    start(&caller, abort_it, comms[0], NULL);
    usleep(50000);
    atomic_fetch_or(&comms[0]->closed, HOOP_COMM_FINALIZED);
    pthread_mutex_unlock(&comms[0]->look_lock);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, HOOP_OK);
    assert_int_equal(hoop_comm_get_async_error(comms[1], &error), HOOP_OK);
    assert_int_equal(error, HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
}

/* An abort with no thread inside the comm is a goodbye: the others go on, until they need this
 * rank. */
static void test_leave(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    hoop_result_t error = HOOP_ABORTED;
    make(comms);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(hoop_comm_leave(comms[0]), HOOP_OK);
        assert_int_equal(sum_one(comms[0]), HOOP_ABORTED);
        assert_string_equal(hoop_get_last_error(comms[0]), "rank 0 left the communicator");
    }
    assert_int_equal(hoop_comm_get_async_error(comms[1], &error), HOOP_OK);
    assert_int_equal(error, HOOP_OK);
    assert_int_equal(sum_one(comms[1]), HOOP_REMOTE_ERROR);
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
    assert_int_equal(hoop_comm_leave(NULL), HOOP_OK);
}

/* If a thread is inside, or something is queued, leaving does not wait. */
static void test_leave_with_work_inside(void **state)
{
    (void)state;
    for (int queued = 0; queued < 2; queued++) {
        hoop_comm_t comms[2];
        struct caller caller;
        hoop_stream_t stream;
        int64_t x = 1;
        make(comms);
        assert_int_equal(hoop_stream_create(&stream), HOOP_OK);
        if (queued == 0) {
            start(&caller, call_until_it_fails, comms[0], NULL);
            await_inside(comms[0]);
        } else {
            hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, comms[0], stream);
        }
        assert_int_equal(hoop_comm_leave(comms[0]), HOOP_OK);
        if (queued == 0) {
            pthread_join(caller.thread, NULL);
            assert_int_equal(caller.result, HOOP_ABORTED);
        }
        assert_int_equal(sum_one(comms[1]), HOOP_ABORTED);
        assert_non_null(strstr(hoop_get_last_error(comms[1]), "rank 0 aborted"));
        hoop_stream_destroy(stream);
        assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
        assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
    }
}

/* Two ranks that both name themselves as the root of small broadcasts wait for nobody. The mismatch
 * is found at the goodbye, or at the end. */
static void test_goodbye_looks_back(void **state)
{
    (void)state;
    for (int finalize = 0; finalize < 2; finalize++) {
        hoop_comm_t comms[2];
        int32_t value = 7;
        make(comms);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(hoop_broadcast(&value, &value, 1, HOOP_INT32, r, comms[r], NULL),
                             HOOP_OK);
        }
        if (finalize == 1) {
            assert_int_equal(hoop_comm_finalize(comms[1]), HOOP_MISMATCH);
        } else {
            assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
        }
        assert_int_equal(sum_one(comms[0]), HOOP_MISMATCH);
        assert_non_null(strstr(hoop_get_last_error(comms[0]), "rank 1 called broadcast"));
        assert_non_null(strstr(hoop_get_last_error(comms[0]), "rank 0 called broadcast"));
        assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
        assert_int_equal(finalize == 1 ? hoop_comm_destroy(comms[1]) : HOOP_OK, HOOP_OK);
    }
}

/* Revoke ends the comm on all ranks, but leaves the handle to be destroyed. */
static void test_revoke(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    struct caller caller;
    make(comms);
    start(&caller, call_until_it_fails, comms[0], NULL);
    assert_int_equal(hoop_comm_revoke(comms[0], 1), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_revoke(NULL, HOOP_REVOKE_DEFAULT), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_revoke(comms[0], HOOP_REVOKE_DEFAULT), HOOP_OK);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, HOOP_ABORTED);
    assert_non_null(strstr(caller.sentence, "rank 0 revoked"));
    assert_int_equal(sum_one(comms[1]), HOOP_ABORTED);
    assert_int_equal(hoop_comm_revoke(comms[1], HOOP_REVOKE_DEFAULT), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
}

/* A watchdog aborts, one after the other, the comms that a group of another thread uses. Each abort
 * returns by itself. */
static void test_abort_of_a_group(void **state)
{
    (void)state;
    hoop_comm_t a[2], b[2];
    struct caller caller;
    make(a);
    make(b);
    start(&caller, call_in_group, a[0], b[0]);
    await_inside(a[0]);
    await_inside(b[0]);
    assert_int_equal(hoop_comm_abort(a[0]), HOOP_OK);
    assert_int_equal(hoop_comm_abort(b[0]), HOOP_OK);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, HOOP_ABORTED);
    for (int i = 0; i < 2; i++) {
        hoop_comm_destroy(a[i]);
        hoop_comm_destroy(b[i]);
    }
}

/* Used in place of hoop_links_get(), by a group on `first` and a comm that is always polled after
 * it. Lets the operation on `first` begin to sleep, and then complete; once it is over the comm is
 * aborted, and the other one fails in the same poll. */
static struct {
    hoop_comm_t first, its_peer;
    bool called;
} ends;

static hoop_result_t link_after_an_end(void *arg, uint32_t peer, uint32_t lane, bool sending,
                                       struct hoop_link **ret_link)
{
    (void)arg, (void)peer, (void)lane, (void)sending, (void)ret_link;
    if (ends.first->waiting != 0) {
        if (!ends.called && *ends.first->sleeper.sleeping != 0) {
            ends.called = true;
            assert_int_equal(sum_one(ends.its_peer), HOOP_OK);
        }
        return HOOP_AGAIN;
    }
    assert_int_equal(hoop_comm_abort(ends.first), HOOP_OK);
    assert_int_equal(hoop_comm_abort(ends.its_peer), HOOP_OK); /* the last to unmap the board */
    return hoop_error(HOOP_SYSTEM_ERROR, "no link");
}

/* When a group's work on a comm is over the comm may go, while the group has not returned yet. */
static void test_abort_before_a_group_returns(void **state)
{
    (void)state;
    hoop_comm_t a[2], b[2];
    struct caller caller;
    make(a);
    make(b);
    ends.first = a[0];
    ends.its_peer = a[1];
    b[0]->operation.env.over_links = true;
    b[0]->operation.env.link = link_after_an_end;
    start(&caller, call_in_group, a[0], b[0]);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, HOOP_SYSTEM_ERROR);
    for (int i = 0; i < 2; i++) {
        hoop_comm_destroy(a[i]);
        hoop_comm_destroy(b[i]);
    }
}

/* The comm ends while calls on it wait in the thread's own group: destroy refuses, abort
 * does not. */
static void test_end_inside_own_group(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    int64_t x[2] = {1, 1};
    make(comms);
    for (int round = 0; round < 2; round++) {
        hoop_group_start();
        for (int rank = 0; rank < 2; rank++) {
            hoop_all_reduce(&x[rank], &x[rank], 1, HOOP_INT64, HOOP_SUM, comms[rank], NULL);
        }
        assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_INVALID_USAGE);
        assert_non_null(strstr(hoop_get_last_error(NULL), "hoop_group_end"));
        if (round == 1) {
            assert_int_equal(hoop_comm_abort(comms[0]), HOOP_OK);
        }
        assert_int_equal(hoop_group_end(), round == 0 ? HOOP_OK : HOOP_ABORTED);
    }
    assert_int_equal(x[0], 2);
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
}

/* A thread that is cancelled inside a call ends after the operation, not in the middle of it. */
static void test_cancelled_inside(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 100000};
    static float in[100000], out[100000];
    for (size_t i = 0; i < 2; i++) {
        hoop_comm_t comms[2];
        struct caller caller;
        make(comms);
        start(&caller, call_until_it_fails, comms[0], NULL);
        await_inside(comms[0]);
        assert_int_equal(pthread_cancel(caller.thread), 0);
        hoop_all_reduce(in, out, counts[i], HOOP_FLOAT32, HOOP_SUM, comms[1], NULL);
        assert_int_equal(hoop_comm_abort(comms[0]), HOOP_OK);
        pthread_join(caller.thread, NULL);
        assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
        assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort_inside),
        cmocka_unit_test(test_abort_between_looks),
        cmocka_unit_test(test_abort_races_with_calls),
        cmocka_unit_test(test_tombstone),
        cmocka_unit_test(test_revoke),
        cmocka_unit_test(test_abort_of_a_group),
        cmocka_unit_test(test_abort_before_a_group_returns),
        cmocka_unit_test(test_end_inside_own_group),
        cmocka_unit_test(test_cancelled_inside),
        cmocka_unit_test(test_abort_after_finalize),
        cmocka_unit_test(test_goodbye_looks_back),
        cmocka_unit_test(test_abort_races_with_finalize),
        cmocka_unit_test(test_leave),
        cmocka_unit_test(test_leave_with_work_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

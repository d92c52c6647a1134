/*
 * Several threads on one comm: turns, and abort while another thread is inside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "hoop.h"

#include <pthread.h>
#include <string.h>

#define THREADS 4
#define CALLS 2000

struct caller {
    pthread_t thread;
    hoop_comm_t comm;
    int calls;
    hoop_result_t result;
};

static void *call_often(void *arg)
{
    struct caller *caller = arg;
    for (int i = 0; i < caller->calls && caller->result == HOOP_OK; i++) {
        int64_t x = i;
        caller->result = hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, caller->comm, NULL);
    }
    return NULL;
}

static void start(struct caller *caller, hoop_comm_t comm, int calls)
{
    *caller = (struct caller){.comm = comm, .calls = calls};
    assert_int_equal(pthread_create(&caller->thread, NULL, call_often, caller), 0);
}

/* Two ranks, each called by two threads: whatever order the turns take, the calls are alike. */
static void test_turns(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    struct caller callers[THREADS];
    assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
    for (int t = 0; t < THREADS; t++) {
        start(&callers[t], comms[t % 2], CALLS);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(callers[t].thread, NULL);
        assert_int_equal(callers[t].result, HOOP_OK);
    }
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
}

/* A rank waits for one that never calls; another thread aborts it. */
static void test_abort_inside(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    struct caller caller;
    int64_t x = 1;
    assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
    start(&caller, comms[0], 1);
    assert_int_equal(hoop_comm_abort(comms[1]), HOOP_OK);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, HOOP_ABORTED);
    assert_int_equal(hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, comms[0], NULL),
                     HOOP_ABORTED);
    assert_non_null(strstr(hoop_get_last_error(comms[0]), "rank 1 aborted"));
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
}

/* The turn goes from the thread that finalizes to another, and back to the one that destroys. */
static void test_turn_changes_hands(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        hoop_comm_t comms[2];
        struct caller caller;
        assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
        assert_int_equal(hoop_comm_finalize(comms[1]), HOOP_OK);
        start(&caller, comms[1], 1);
        pthread_join(caller.thread, NULL);
        assert_int_equal(caller.result, HOOP_INVALID_USAGE);
        assert_int_equal(hoop_comm_abort(comms[0]), HOOP_OK);
        assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
    }
    assert_int_equal(hoop_comm_abort(NULL), HOOP_OK);
}

static void *sum_and_leave(void *arg)
{
    struct caller *caller = arg;
    static float in[5][20000], out[5][20000];
    const int rank = caller->calls;
    caller->result =
        hoop_all_reduce(in[rank], out[rank], 20000, HOOP_FLOAT32, HOOP_SUM, caller->comm, NULL);
    if (hoop_comm_destroy(caller->comm) != HOOP_OK && caller->result == HOOP_OK) {
        caller->result = HOOP_INTERNAL_ERROR;
    }
    return NULL;
}

/* Who has finished may go at once, however far its neighbours in the ring are. */
static void test_leave_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        hoop_unique_id_t id;
        hoop_comm_t comms[5];
        struct caller callers[5];
        hoop_config_t config = HOOP_CONFIG_INITIALIZER;
        config.algo = "ring";
        assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
        hoop_group_start();
        for (int r = 0; r < 5; r++) {
            hoop_comm_init_rank_config(&comms[r], 5, id, r, &config);
        }
        assert_int_equal(hoop_group_end(), HOOP_OK);
        for (int r = 0; r < 5; r++) {
            callers[r] = (struct caller){.comm = comms[r], .calls = r};
            assert_int_equal(pthread_create(&callers[r].thread, NULL, sum_and_leave, &callers[r]),
                             0);
        }
        for (int r = 0; r < 5; r++) {
            pthread_join(callers[r].thread, NULL);
            assert_int_equal(callers[r].result, HOOP_OK);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_abort_inside),
        cmocka_unit_test(test_turn_changes_hands),
        cmocka_unit_test(test_leave_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Several threads on one comm, and on several by groups: turns. Abort: test_abort.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/turn.h"
#include "hoop.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* Two ranks, each called by two threads: in whatever order they take turns, the calls match. */
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

/* The turn passes from the thread that finalizes to another, and back to the one that destroys. */
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

/* ---- Turns that are awaited ------------------------------------------------------------------ */

static hoop_result_t sum_one(hoop_comm_t comm)
{
    int64_t x = 1;
    const hoop_result_t result = hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, comm, NULL);
    return result == HOOP_OK && x != 2 ? HOOP_INTERNAL_ERROR : result;
}

static void *sum_and_count_cpu(void *arg)
{
    struct caller *caller = arg;
    struct timespec used;
    caller->result = sum_one(caller->comm);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    caller->calls = (int)(used.tv_sec * 1000 + used.tv_nsec / 1000000);
    return NULL;
}

/* One thread is inside for half a second. The next one in line uses next to no CPU while it
 * waits. */
static void test_turn_awaited_sleeps(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    struct caller callers[2];
    assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
    for (int t = 0; t < 2; t++) {
        callers[t] = (struct caller){.comm = comms[0]};
        assert_int_equal(pthread_create(&callers[t].thread, NULL, sum_and_count_cpu, &callers[t]),
                         0);
    }
    usleep(500000); /* the time in which CPU use is measured */
    assert_int_equal(sum_one(comms[1]), HOOP_OK);
    assert_int_equal(sum_one(comms[1]), HOOP_OK);
    for (int t = 0; t < 2; t++) {
        pthread_join(callers[t].thread, NULL);
        assert_int_equal(callers[t].result, HOOP_OK);
        assert_in_range(callers[t].calls, 0, 200);
    }
    hoop_comm_destroy(comms[0]);
    hoop_comm_destroy(comms[1]);
}

/* Two comms, A and B, of two ranks. One thread runs rank 0's group, one its single call, one rank
 * 1. */
#define LARGE ((size_t)300000)
struct crossing {
    hoop_comm_t a[2], b[2];
    hoop_result_t group, single, others[3];
};
static float large[2][LARGE];

static void crossing_make(struct crossing *c)
{
    memset(c, 0, sizeof(*c));
    assert_int_equal(hoop_comm_init_all(c->a, 2, NULL), HOOP_OK);
    assert_int_equal(hoop_comm_init_all(c->b, 2, NULL), HOOP_OK);
}

static void crossing_run(struct crossing *c, void *(*const bodies[3])(void *))
{
    pthread_t threads[3];
    for (int t = 0; t < 3; t++) {
        assert_int_equal(pthread_create(&threads[t], NULL, bodies[t], c), 0);
    }
    for (int t = 0; t < 3; t++) {
        pthread_join(threads[t], NULL);
    }
    assert_int_equal(c->group, HOOP_OK);
    assert_int_equal(c->single, HOOP_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c->others[i], HOOP_OK);
        if (i < 2) {
            hoop_comm_destroy(c->a[i]);
            hoop_comm_destroy(c->b[i]);
        }
    }
}

static hoop_result_t sum_large(int rank, hoop_comm_t comm)
{
    return hoop_all_reduce(large[rank], large[rank], LARGE, HOOP_FLOAT32, HOOP_SUM, comm, NULL);
}

static void *group_large_a_small_b(void *arg)
{
    struct crossing *c = arg;
    static int64_t x = 1;
    usleep(50000); /* gets in line behind B1 */
    hoop_group_start();
    sum_large(0, c->a[0]);
    hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, c->b[0], NULL);
    c->group = hoop_group_end();
    return NULL;
}

static void *single_b(void *arg)
{
    struct crossing *c = arg;
    c->single = sum_one(c->b[0]);
    return NULL;
}

static void *a_then_b_twice(void *arg)
{
    struct crossing *c = arg;
    usleep(100000);
    c->others[0] = sum_large(1, c->a[1]);
    c->others[1] = sum_one(c->b[1]);
    c->others[2] = sum_one(c->b[1]);
    return NULL;
}

/* A: A_g; B: B1, B_g. Rank 0 runs {A_g, B_g} behind B1; rank 1 A_g, B1, B_g: A_g must move while
 * the group waits for B's turn. */
static void test_group_moves_while_it_waits(void **state)
{
    (void)state;
    struct crossing c;
    crossing_make(&c);
    crossing_run(&c, (void *(*const[3])(void *)){group_large_a_small_b, single_b, a_then_b_twice});
}

static void *group_small_a_b(void *arg)
{
    struct crossing *c = arg;
    static int64_t x = 1, y = 1;
    hoop_group_start();
    hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, c->a[0], NULL);
    hoop_all_reduce(&y, &y, 1, HOOP_INT64, HOOP_SUM, c->b[0], NULL);
    c->group = hoop_group_end();
    return NULL;
}

static void *single_a_later(void *arg)
{
    struct crossing *c = arg;
    usleep(50000);
    c->single = sum_one(c->a[0]);
    return NULL;
}

static void *a_twice_then_b(void *arg)
{
    struct crossing *c = arg;
    usleep(100000);
    c->others[0] = sum_one(c->a[1]);
    c->others[1] = sum_one(c->a[1]);
    c->others[2] = sum_one(c->b[1]);
    return NULL;
}

/* A: A1, A2; B: B1. Rank 0 runs {A1, B1}, and A2 behind it; rank 1 A1, A2, B1: the group must give
 * A's turn back before B1 is complete. */
static void test_group_gives_back(void **state)
{
    (void)state;
    struct crossing c;
    crossing_make(&c);
    crossing_run(&c, (void *(*const[3])(void *)){group_small_a_b, single_a_later, a_twice_then_b});
}

struct crossed {
    pthread_t thread;
    hoop_comm_t *first, *second;
    hoop_result_t result;
};

/* Two ranks of the first comm, and two of the second, in one group each time. */
static void *groups_of_four(void *arg)
{
    struct crossed *crossed = arg;
    for (int i = 0; i < 300 && crossed->result == HOOP_OK; i++) {
        int64_t x[4] = {1, 1, 1, 1};
        hoop_group_start();
        for (int k = 0; k < 4; k++) {
            hoop_comm_t comm = k < 2 ? crossed->first[k] : crossed->second[k - 2];
            hoop_all_reduce(&x[k], &x[k], 1, HOOP_INT64, HOOP_SUM, comm, NULL);
        }
        crossed->result = hoop_group_end();
    }
    return NULL;
}

/* Groups of two threads over the same comms: each waits in line for a comm that the other has. */
static void test_groups_crossed(void **state)
{
    (void)state;
    hoop_comm_t a[2], b[2];
    assert_int_equal(hoop_comm_init_all(a, 2, NULL), HOOP_OK);
    assert_int_equal(hoop_comm_init_all(b, 2, NULL), HOOP_OK);
    struct crossed crossed[2] = {{.first = a, .second = b}, {.first = b, .second = a}};
    for (int t = 0; t < 2; t++) {
        assert_int_equal(pthread_create(&crossed[t].thread, NULL, groups_of_four, &crossed[t]), 0);
    }
    for (int t = 0; t < 2; t++) {
        pthread_join(crossed[t].thread, NULL);
        assert_int_equal(crossed[t].result, HOOP_OK);
    }
    for (int rank = 0; rank < 2; rank++) {
        hoop_comm_destroy(a[rank]);
        hoop_comm_destroy(b[rank]);
    }
}

/* ---- Places for later ----------------------------------------------------------------------- */

/* Whoever is behind a reserved place stays patient, however long that is not polled; but not behind
 * a thread that has the turn and does not move. */
static void test_reserved_place(void **state)
{
    (void)state;
    struct hoop_turn turn = {.moves = 0};
    struct hoop_turn_place later, behind, last;
    _Atomic uint8_t sleeping = 0;
    struct hoop_sleeper nobody = {.poll_fd = -1, .wake_fd = -1, .sleeping = &sleeping};
    hoop_turn_init(&turn);
    assert_true(hoop_turn_take(&turn)); /* takes it as the owner, and from then on stands in line */
    hoop_turn_leave(&turn);
    hoop_turn_reserve(&turn, &later, &nobody, 10);
    assert_false(hoop_turn_take(&turn));
    hoop_turn_queue(&turn, &behind, 10);
    usleep(20000); /* longer than its patience */
    assert_int_equal(hoop_turn_poll(&behind), HOOP_AGAIN);
    assert_int_equal(hoop_turn_poll(&later), HOOP_OK);
    assert_int_equal(hoop_turn_poll(&behind), HOOP_AGAIN);
    hoop_turn_reserve(&turn, &last, &nobody, 10);
    usleep(20000);
    assert_int_equal(hoop_turn_poll(&behind), HOOP_TIMEOUT);
    hoop_turn_drop(&last);
    hoop_turn_leave(&turn);
    assert_int_equal(hoop_turn_enter(&turn, 10), HOOP_OK);
    hoop_turn_leave(&turn);
    hoop_turn_finish(&turn);
}

/* ---- Leaving --------------------------------------------------------------------------------- */

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

/* A rank that has finished may leave at once, however far its neighbours in the ring are. */
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
        cmocka_unit_test(test_turn_changes_hands),
        cmocka_unit_test(test_turn_awaited_sleeps),
        cmocka_unit_test(test_group_moves_while_it_waits),
        cmocka_unit_test(test_group_gives_back),
        cmocka_unit_test(test_groups_crossed),
        cmocka_unit_test(test_reserved_place),
        cmocka_unit_test(test_leave_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Births that are given up: because their comm is ended, because a group has a mistake, because
 * another one of the group cannot be made. Nobody waits for them until a timeout.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "hoop.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define PAIR 2
#define SOON_NS (20 * HOOP_NS_PER_S) /* the timeouts are a minute and more */

static void destroy(hoop_comm_t *comms)
{
    for (int rank = 0; rank < PAIR; rank++) {
        assert_int_equal(hoop_comm_destroy(comms[rank]), HOOP_OK);
    }
}

static hoop_result_t state_of(hoop_comm_t comm)
{
    hoop_result_t result = HOOP_IN_PROGRESS;
    const uint64_t deadline = hoop_now_ns() + SOON_NS;
    const struct timespec nap = {.tv_nsec = 1000000};
    while (result == HOOP_IN_PROGRESS && hoop_now_ns() < deadline) {
        nanosleep(&nap, NULL);
        assert_int_equal(hoop_comm_get_async_error(comm, &result), HOOP_OK);
    }
    return result;
}

/* ---- The comm is ended -------------------------------------------------------------------------
 */

/* Grows by a rank that never comes, in the background. */
static void grow_in_vain(hoop_comm_t *comms, hoop_comm_t *grown)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_unique_id_t id;
    config.blocking = 0;
    config.init_timeout_ms = 600000;
    assert_int_equal(hoop_comm_get_unique_id(comms[0], &id), HOOP_OK);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int rank = 0; rank < PAIR; rank++) {
        assert_int_equal(hoop_comm_grow(comms[rank], PAIR + 1, rank == 0 ? &id : NULL, -1,
                                        &grown[rank], &config),
                         HOOP_OK);
    }
    assert_int_equal(hoop_group_end(), HOOP_IN_PROGRESS);
}

static void test_comm_is_ended(void **state)
{
    (void)state;
    const struct timespec joins = {.tv_nsec = 50000000}; /* long enough, as a rule, to get there */
    for (int how = 0; how < 3; how++) {
        hoop_comm_t comms[PAIR], grown[PAIR];
        assert_int_equal(hoop_comm_init_all(comms, PAIR, NULL), HOOP_OK);
        grow_in_vain(comms, grown);
        nanosleep(&joins, NULL);
        const uint64_t before = hoop_now_ns();
        assert_int_equal(how == 0   ? hoop_comm_abort(comms[0])
                         : how == 1 ? hoop_comm_revoke(comms[1], HOOP_REVOKE_DEFAULT)
                                    : hoop_comm_destroy(comms[0]),
                         HOOP_OK);
        for (int rank = 0; rank < PAIR; rank++) {
            assert_int_equal(state_of(grown[rank]), HOOP_ABORTED);
        }
        assert_non_null(strstr(hoop_get_last_error(grown[0]), how == 0   ? "rank 0 aborted"
                                                              : how == 1 ? "rank 1 revoked"
                                                                         : "was ended"));
        assert_in_range(hoop_now_ns() - before, 0, SOON_NS);
        destroy(grown);
        for (int rank = how < 2 ? 0 : 1; rank < PAIR; rank++) {
            assert_int_equal(hoop_comm_destroy(comms[rank]), HOOP_OK);
        }
    }
}

/* ---- Another rank's mistake ---------------------------------------------------------------------
 */

struct other {
    pthread_t thread;
    hoop_comm_t comm, child;
    hoop_result_t result;
    char why[400];
};

/* Rank 1, which makes no mistake. */
static void *split(void *arg)
{
    struct other *other = arg;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.init_timeout_ms = config.op_timeout_ms = 600000;
    other->result = hoop_comm_split(other->comm, 0, 0, &other->child, &config);
    (void)strncpy(other->why, hoop_get_last_error(NULL), sizeof(other->why) - 1);
    return NULL;
}

static void begin_split(struct other *other, hoop_comm_t comm)
{
    *other = (struct other){.comm = comm};
    assert_int_equal(pthread_create(&other->thread, NULL, split, other), 0);
}

static void assert_told(struct other *other, const char *what)
{
    pthread_join(other->thread, NULL);
    assert_int_equal(other->result, HOOP_REMOTE_ERROR);
    assert_non_null(strstr(other->why, what));
    assert_null(other->child);
}

/* A mistake in the call that makes a comm, and one that shows only at the end of the group. */
static void test_mistake_in_a_group(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        hoop_comm_t comms[PAIR], child = NULL, last = NULL;
        hoop_stream_t stream;
        struct other other;
        int64_t x = 1;
        assert_int_equal(hoop_comm_init_all(comms, PAIR, NULL), HOOP_OK);
        assert_int_equal(hoop_comm_init_all(&last, 1, NULL), HOOP_OK);
        assert_int_equal(hoop_stream_create(&stream), HOOP_OK);
        begin_split(&other, comms[1]);
        assert_int_equal(hoop_group_start(), HOOP_OK);
        assert_int_equal(hoop_comm_split(comms[0], late ? 0 : -5, 0, &child, NULL),
                         late ? HOOP_OK : HOOP_INVALID_ARGUMENT);
        if (late) {
            assert_int_equal(hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, last, stream),
                             HOOP_OK);
        }
        assert_int_equal(hoop_stream_destroy(stream), HOOP_OK);
        assert_int_equal(hoop_group_end(), HOOP_INVALID_ARGUMENT);
        assert_non_null(strstr(hoop_get_last_error(NULL), late ? "was destroyed" : "color is -5"));
        assert_null(child);
        assert_told(&other, late ? "was destroyed" : "color is -5");
        destroy(comms);
        assert_int_equal(hoop_comm_destroy(last), HOOP_OK);
    }
}

/* One thread splits two comms, of which one has failed. */
static void test_another_fails(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        hoop_comm_t bad[PAIR], good[PAIR], children[2] = {NULL, NULL};
        struct other other;
        assert_int_equal(hoop_comm_init_all(bad, PAIR, NULL), HOOP_OK);
        assert_int_equal(hoop_comm_init_all(good, PAIR, NULL), HOOP_OK);
        begin_split(&other, good[1]);
        assert_int_equal(hoop_comm_revoke(bad[1], HOOP_REVOKE_DEFAULT), HOOP_OK);
        assert_int_equal(hoop_group_start(), HOOP_OK);
        for (int i = 0; i < 2; i++) {
            hoop_comm_t comm = i == first ? bad[0] : good[0];
            assert_int_equal(hoop_comm_split(comm, 0, 0, &children[i], NULL), HOOP_OK);
        }
        assert_int_equal(hoop_group_end(), HOOP_ABORTED);
        assert_true(children[0] == NULL && children[1] == NULL);
        assert_told(&other, "rank 1 revoked");
        destroy(bad);
        destroy(good);
    }
}

/* ---- Not waited for ----------------------------------------------------------------------------
 */

/* What is refused at once writes nothing, and is not reported later. */
static void test_refused_in_background(void **state)
{
    (void)state;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_comm_t comms[PAIR], grown[PAIR], child = (hoop_comm_t)&config;
    config.blocking = 0;
    assert_int_equal(hoop_comm_init_all(comms, PAIR, NULL), HOOP_OK);
    grow_in_vain(comms, grown);
    assert_int_equal(hoop_comm_split(comms[0], 0, 0, &child, &config), HOOP_INVALID_USAGE);
    assert_ptr_equal(child, &config);
    assert_int_equal(hoop_comm_abort(comms[0]), HOOP_OK);
    destroy(grown);
    destroy(comms);
    assert_int_equal(hoop_comm_init_rank_config(&child, 1, (hoop_unique_id_t){{0}}, 0, &config),
                     HOOP_INVALID_ARGUMENT);
    hoop_unique_id_t id;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    assert_int_equal(hoop_comm_init_rank_config(&child, 1, id, 0, &config), HOOP_IN_PROGRESS);
    assert_int_equal(state_of(child), HOOP_OK);
    assert_int_equal(hoop_comm_finalize(child), HOOP_IN_PROGRESS);
    assert_int_equal(state_of(child), HOOP_OK);
    assert_int_equal(hoop_comm_finalize(child), HOOP_INVALID_USAGE);
    assert_non_null(strstr(hoop_get_last_error(NULL), "was finalized"));
    assert_int_equal(hoop_comm_destroy(child), HOOP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_is_ended),
        cmocka_unit_test(test_mistake_in_a_group),
        cmocka_unit_test(test_another_fails),
        cmocka_unit_test(test_refused_in_background),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

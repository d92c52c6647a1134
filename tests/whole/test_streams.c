/*
 * Host streams: order, groups, several comms at once, invalid arguments. One thread drives all
 * ranks, which is what queues are for. Waiting is tested in test_stream_tickets.c, failures and
 * ends in test_stream_ends.c, random programs in stress.c.
 */
#include "memory/region.h"
#include "whole/stream_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- Order ---------------------------------------------------------------------------------- */

/* Each operation needs the result of the one before; the sizes use all algorithms. */
static void test_one_after_the_other(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 7, 200, 5000, 300000};
    struct world world;
    world_make(&world);
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        int64_t *data[RANKS];
        for (int r = 0; r < RANKS; r++) {
            data[r] = malloc(counts[c] * sizeof(int64_t));
            for (size_t i = 0; i < counts[c]; i++) {
                data[r][i] = (int64_t)i + r;
            }
            for (int round = 0; round < 5; round++) {
                assert_int_equal(hoop_all_reduce(data[r], data[r], counts[c], HOOP_INT64, HOOP_SUM,
                                                 world.comms[r], world.streams[r]),
                                 HOOP_OK);
            }
            assert_int_equal(hoop_broadcast(data[r], data[r], counts[c], HOOP_INT64, 1,
                                            world.comms[r], world.streams[r]),
                             HOOP_OK);
        }
        world_synchronize(&world);
        for (int r = 0; r < RANKS; r++) {
            for (size_t i = 0; i < counts[c]; i++) {
                assert_int_equal(data[r][i], (3 * (int64_t)i + 3) * 81);
            }
            free(data[r]);
        }
    }
    world_end(&world);
}

struct blocking {
    pthread_t thread;
    hoop_comm_t comm;
    int64_t x;
    hoop_result_t result;
};

static void *block(void *arg)
{
    struct blocking *blocking = arg;
    blocking->x += 1;
    blocking->result = stream_sum(&blocking->x, blocking->comm, NULL);
    return NULL;
}

/* Queued x = 3 x, then blocking x = 3 (x + 1), on one comm. */
static void test_blocking_behind_queued(void **state)
{
    (void)state;
    struct world world;
    struct blocking blocking[RANKS];
    int64_t queued[RANKS];
    world_make(&world);
    for (int round = 0; round < 200; round++) {
        for (int r = 0; r < RANKS; r++) {
            queued[r] = round;
            blocking[r] = (struct blocking){.comm = world.comms[r], .x = round};
            assert_int_equal(stream_sum(&queued[r], world.comms[r], world.streams[r]), HOOP_OK);
            assert_int_equal(pthread_create(&blocking[r].thread, NULL, block, &blocking[r]), 0);
        }
        for (int r = 0; r < RANKS; r++) {
            pthread_join(blocking[r].thread, NULL);
            assert_int_equal(blocking[r].result, HOOP_OK);
            assert_int_equal(blocking[r].x, 3 * (round + 1));
            /* Earlier calls on this comm are complete. (Their stream may report that a moment
             * later, because the driver gives back the comm's turn first.) */
            assert_int_equal(queued[r], 3 * round);
        }
    }
    world_end(&world);
}

/* The thread that owns the comm's turn goes on calling, with and without a stream. */
static void test_alone_mixed(void **state)
{
    (void)state;
    hoop_comm_t comm;
    hoop_stream_t stream;
    int64_t from[3] = {1, 2, 3}, to[3];
    assert_int_equal(hoop_comm_init_all(&comm, 1, NULL), HOOP_OK);
    assert_int_equal(hoop_stream_create(&stream), HOOP_OK);
    for (int i = 0; i < 1000; i++) {
        from[0] = i;
        assert_int_equal(
            hoop_all_reduce(from, to, 3, HOOP_INT64, HOOP_SUM, comm, i % 3 == 0 ? stream : NULL),
            HOOP_OK);
        assert_int_equal(hoop_barrier(comm, NULL), HOOP_OK);
        assert_int_equal(to[0], i);
    }
    assert_int_equal(hoop_stream_destroy(stream), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comm), HOOP_OK);
}

/* y = 3 x on one stream, z = 3 y on another that waits for it. */
static void test_order_across_streams(void **state)
{
    (void)state;
    struct world world;
    hoop_stream_t others[RANKS];
    int64_t x[RANKS], y[RANKS], z[RANKS];
    world_make(&world);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(hoop_stream_create(&others[r]), HOOP_OK);
    }
    for (int round = 0; round < 100; round++) {
        for (int r = 0; r < RANKS; r++) {
            hoop_ticket_t ticket;
            x[r] = round;
            assert_int_equal(hoop_all_reduce(&x[r], &y[r], 1, HOOP_INT64, HOOP_SUM, world.comms[r],
                                             world.streams[r]),
                             HOOP_OK);
            ticket = stream_record(world.streams[r]);
            assert_int_equal(hoop_stream_wait_ticket(world.streams[r], ticket), HOOP_OK);
            assert_int_equal(hoop_stream_wait_ticket(others[r], ticket), HOOP_OK);
            assert_int_equal(
                hoop_all_reduce(&y[r], &z[r], 1, HOOP_INT64, HOOP_SUM, world.comms[r], others[r]),
                HOOP_OK);
        }
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(hoop_stream_synchronize(others[r]), HOOP_OK);
            assert_int_equal(z[r], 9 * round);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(hoop_stream_destroy(others[r]), HOOP_OK);
    }
    world_end(&world);
}

/* Rank 0 of one comm waits for rank 1, which comes last; meanwhile everything else goes on. */
static void test_streams_are_independent(void **state)
{
    (void)state;
    struct world slow, quick;
    int64_t x[RANKS] = {1, 1, 1}, y[RANKS] = {1, 1, 1};
    world_make(&slow);
    world_make(&quick);
    assert_int_equal(stream_sum(&x[0], slow.comms[0], slow.streams[0]), HOOP_OK);
    for (int i = 0; i < 30; i++) {
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(stream_sum(&y[r], quick.comms[r], quick.streams[r]), HOOP_OK);
        }
    }
    world_synchronize(&quick);
    assert_int_equal(hoop_stream_query(slow.streams[0]), HOOP_IN_PROGRESS);
    for (int r = 1; r < RANKS; r++) {
        assert_int_equal(stream_sum(&x[r], slow.comms[r], slow.streams[r]), HOOP_OK);
    }
    world_synchronize(&slow);
    assert_int_equal(x[0], RANKS);
    world_end(&slow);
    world_end(&quick);
}

/* More queues and comms than the driver can watch while it sleeps. */
static void test_many_at_once(void **state)
{
    (void)state;
    enum { WORLDS = 30 };
    static struct world worlds[WORLDS];
    static int64_t x[WORLDS][RANKS];
    for (int w = 0; w < WORLDS; w++) {
        world_make(&worlds[w]);
    }
    for (int round = 0; round < 5; round++) {
        for (int r = 0; r < RANKS; r++) {
            for (int w = 0; w < WORLDS; w++) {
                x[w][r] = w;
                assert_int_equal(stream_sum(&x[w][r], worlds[w].comms[r], worlds[w].streams[r]),
                                 HOOP_OK);
            }
            usleep(2000); /* long enough for the driver to sleep with those that wait for rank 2 */
        }
        for (int w = 0; w < WORLDS; w++) {
            world_synchronize(&worlds[w]);
            assert_int_equal(x[w][1], RANKS * w);
        }
    }
    for (int w = 0; w < WORLDS; w++) {
        world_end(&worlds[w]);
    }
}

/* ---- Groups --------------------------------------------------------------------------------- */

/* A ring of messages and two sums, as one piece for each rank. */
static void queue_group(const struct world *world, int r, int64_t *token, int64_t *sums,
                        hoop_stream_t a, hoop_stream_t b)
{
    hoop_comm_t comm = world->comms[r];
    assert_int_equal(hoop_group_start(), HOOP_OK);
    assert_int_equal(stream_sum(&sums[0], comm, a), HOOP_OK);
    assert_int_equal(hoop_send(&token[0], 1, HOOP_INT64, (r + 1) % RANKS, comm, a), HOOP_OK);
    assert_int_equal(hoop_recv(&token[1], 1, HOOP_INT64, (r + RANKS - 1) % RANKS, comm, b),
                     HOOP_OK);
    assert_int_equal(stream_sum(&sums[1], comm, b), HOOP_OK);
    assert_int_equal(hoop_group_end(), HOOP_OK);
}

static void check_group(int r, const int64_t *token, const int64_t *sums)
{
    assert_int_equal(token[1], (r + RANKS - 1) % RANKS);
    assert_int_equal(sums[0], 3 * RANKS);
    assert_int_equal(sums[1], 5 * RANKS);
}

static void test_group(void **state)
{
    (void)state;
    struct world world, more;
    world_make(&world);
    world_make(&more);
    for (int round = 0; round < 100; round++) {
        int64_t token[RANKS][2], sums[RANKS][2];
        for (int r = 0; r < RANKS; r++) {
            memcpy(token[r], ((int64_t[]){r, -1}), sizeof(token[r]));
            memcpy(sums[r], ((int64_t[]){3, 5}), sizeof(sums[r]));
            /* One stream; or two streams, swapped on one rank. */
            hoop_stream_t a = world.streams[r];
            hoop_stream_t b = round % 2 == 0 ? a : more.streams[r];
            queue_group(&world, r, token[r], sums[r], r == 1 ? b : a, r == 1 ? a : b);
        }
        for (int r = 0; r < RANKS; r++) {
            hoop_stream_t last = round % 2 == 0 ? world.streams[r] : more.streams[r];
            assert_int_equal(hoop_stream_synchronize(last), HOOP_OK);
            check_group(r, token[r], sums[r]);
        }
    }
    world_end(&more);
    world_end(&world);
}

/* A group begins when all of its streams have come to it, and none goes on before it is over. */
static void test_group_joins_streams(void **state)
{
    (void)state;
    struct world world, more;
    int64_t x[RANKS], y[RANKS], z[RANKS];
    world_make(&world);
    world_make(&more);
    for (int round = 0; round < 100; round++) {
        for (int r = 0; r < RANKS; r++) {
            x[r] = round;
            assert_int_equal(stream_sum(&x[r], more.comms[r], more.streams[r]), HOOP_OK);
            assert_int_equal(hoop_group_start(), HOOP_OK);
            assert_int_equal(hoop_all_reduce(&x[r], &y[r], 1, HOOP_INT64, HOOP_SUM, world.comms[r],
                                             world.streams[r]),
                             HOOP_OK);
            assert_int_equal(hoop_barrier(more.comms[r], more.streams[r]), HOOP_OK);
            assert_int_equal(hoop_group_end(), HOOP_OK);
            assert_int_equal(hoop_all_reduce(&y[r], &z[r], 1, HOOP_INT64, HOOP_SUM, more.comms[r],
                                             more.streams[r]),
                             HOOP_OK);
        }
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(hoop_stream_synchronize(more.streams[r]), HOOP_OK);
            assert_int_equal(z[r], 27 * round);
        }
    }
    world_end(&more);
    world_end(&world);
}

/* One call in the group has no stream, so its end waits. All ranks are in one group; otherwise the
 * end would wait for ranks whose calls come later. */
static void test_group_that_blocks(void **state)
{
    (void)state;
    struct world world;
    world_make(&world);
    for (int round = 0; round < 100; round++) {
        int64_t x[RANKS], y[RANKS];
        assert_int_equal(hoop_group_start(), HOOP_OK);
        for (int r = 0; r < RANKS; r++) {
            x[r] = y[r] = round;
            assert_int_equal(stream_sum(&x[r], world.comms[r], world.streams[r]), HOOP_OK);
            assert_int_equal(stream_sum(&y[r], world.comms[r], NULL), HOOP_OK);
        }
        assert_int_equal(hoop_group_end(), HOOP_OK);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(x[r], RANKS * round);
            assert_int_equal(y[r], RANKS * round);
        }
    }
    world_end(&world);
}

/* Messages outside groups: a send may wait for a receive that is queued later. */
static void test_messages(void **state)
{
    (void)state;
    struct world world;
    static char from[100000], to[100000];
    world_make(&world);
    memset(from, 7, sizeof(from));
    assert_int_equal(hoop_send(from, sizeof(from), HOOP_INT8, 2, world.comms[0], world.streams[0]),
                     HOOP_OK);
    assert_int_equal(hoop_recv(to, sizeof(to), HOOP_INT8, 0, world.comms[2], world.streams[2]),
                     HOOP_OK);
    world_synchronize(&world);
    assert_memory_equal(from, to, sizeof(to));
    world_end(&world);
}

/* alltoallv reads its arrays before it returns. */
static void test_alltoallv(void **state)
{
    (void)state;
    struct world world;
    int32_t from[RANKS][RANKS * 2], to[RANKS][RANKS * 2];
    world_make(&world);
    for (int r = 0; r < RANKS; r++) {
        size_t sends[RANKS], receives[RANKS], at[RANKS];
        for (int q = 0; q < RANKS; q++) {
            sends[q] = q == 0 ? 2 : 1;
            receives[q] = r == 0 ? 2 : 1;
            at[q] = (size_t)q * 2;
            from[r][at[q]] = from[r][at[q] + 1] = 10 * r + q;
        }
        assert_int_equal(hoop_alltoallv(from[r], sends, at, to[r], receives, at, HOOP_INT32,
                                        world.comms[r], world.streams[r]),
                         HOOP_OK);
        memset(sends, 0xff, sizeof(sends));
        memset(at, 0xff, sizeof(at));
    }
    world_synchronize(&world);
    for (int r = 0; r < RANKS; r++) {
        for (int q = 0; q < RANKS; q++) {
            assert_int_equal(to[r][(size_t)q * 2], 10 * q + r);
        }
    }
    assert_int_equal(to[0][3], 10);
    world_end(&world);
}

/* ---- Many, and none ------------------------------------------------------------------------- */

/* Arguments are copied, and so is what an operation with a factor consists of. */
static void test_ten_thousand(void **state)
{
    (void)state;
    enum { CALLS = 10000 };
    struct world world;
    static double x[RANKS][CALLS];
    world_make(&world);
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < CALLS; i++) {
            double factor = r + 1;
            hoop_red_op_t op = HOOP_SUM;
            x[r][i] = i;
            assert_int_equal(hoop_red_op_create_pre_mul_sum(&op, &factor, HOOP_FLOAT64,
                                                            HOOP_SCALAR_HOST_IMMEDIATE,
                                                            world.comms[r]),
                             HOOP_OK);
            assert_int_equal(hoop_all_reduce(&x[r][i], &x[r][i], 1, HOOP_FLOAT64, op,
                                             world.comms[r], world.streams[r]),
                             HOOP_OK);
            assert_int_equal(hoop_red_op_destroy(op, world.comms[r]), HOOP_OK);
        }
    }
    world_synchronize(&world);
    for (int i = 0; i < CALLS; i++) {
        for (int r = 0; r < RANKS; r++) {
            assert_true(x[r][i] == 6.0 * i);
        }
    }
    world_end(&world);
}

/* Streams come and go; an old handle is refused, even when its slot is used again. */
static void test_handles(void **state)
{
    (void)state;
    static hoop_stream_t streams[1000];
    hoop_comm_t comm;
    int64_t x = 1;
    assert_int_equal(hoop_comm_init_all(&comm, 1, NULL), HOOP_OK);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++) {
            assert_int_equal(hoop_stream_create(&streams[i]), HOOP_OK);
            assert_int_equal(stream_sum(&x, comm, streams[i]), HOOP_OK);
        }
        for (int i = 0; i < 1000; i++) {
            assert_int_equal(hoop_stream_destroy(streams[i]), HOOP_OK);
            assert_int_equal(hoop_stream_destroy(streams[i]), HOOP_INVALID_ARGUMENT);
            assert_int_equal(stream_sum(&x, comm, streams[i]), HOOP_INVALID_ARGUMENT);
        }
    }
    hoop_stream_t old = streams[0], young = NULL;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(hoop_stream_create(&young), HOOP_OK);
        assert_int_equal(hoop_stream_destroy(young), HOOP_OK);
        assert_int_equal(hoop_stream_query(old), HOOP_INVALID_ARGUMENT);
    }
    assert_int_equal(hoop_comm_destroy(comm), HOOP_OK);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    struct world world;
    int64_t x = 1;
    int fd = -1;
    hoop_ticket_t ticket = {{0, 0}};
    hoop_stream_t foreign = (hoop_stream_t)&world;
    world_make(&world);
    assert_int_equal(stream_sum(&x, world.comms[0], foreign), HOOP_UNSUPPORTED);
    assert_non_null(strstr(hoop_get_last_error(NULL), "hoop_stream_create"));
    assert_int_equal(hoop_send(&x, 1, HOOP_INT64, 1, world.comms[0], foreign), HOOP_UNSUPPORTED);
    assert_int_equal(hoop_stream_create(NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_stream_destroy(NULL), HOOP_OK);
    assert_int_equal(hoop_stream_destroy(foreign), HOOP_UNSUPPORTED);
    assert_int_equal(hoop_stream_synchronize(NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_stream_query(NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_stream_get_fd(world.streams[0], NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_stream_get_fd(NULL, &fd), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_stream_record(world.streams[0], NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_ticket_query(ticket), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_ticket_wait(ticket, 0), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_stream_wait_ticket(world.streams[0], ticket), HOOP_INVALID_ARGUMENT);
    ticket = stream_record(world.streams[0]);
    ticket.opaque[1]++; /* not given out yet */
    assert_int_equal(hoop_ticket_query(ticket), HOOP_INVALID_ARGUMENT);
    /* A mistake in a group on a stream: nothing of the group is queued. */
    assert_int_equal(hoop_group_start(), HOOP_OK);
    assert_int_equal(stream_sum(&x, world.comms[0], world.streams[0]), HOOP_OK);
    assert_int_equal(hoop_send(&x, 1, HOOP_INT64, 1, world.comms[0], world.streams[0]), HOOP_OK);
    assert_int_equal(stream_sum(&x, world.comms[0], foreign), HOOP_UNSUPPORTED);
    assert_int_equal(hoop_group_end(), HOOP_UNSUPPORTED);
    assert_int_equal(hoop_stream_query(world.streams[0]), HOOP_OK);
    world_end(&world);
}

/* Memory that is freed while queued work uses it: the work is done first. torn: an operation failed
 * in it before. */
static void free_too_soon(bool torn)
{
    struct world world;
    int64_t *x = NULL, y[RANKS] = {1, 1, 1};
    world_make(&world);
    assert_int_equal(hoop_mem_alloc((void **)&x, 2 * sizeof(*x), HOOP_MEM_HOST), HOOP_OK);
    assert_true(!torn || hoop_region_fence(x, sizeof(*x)) == HOOP_OK);
    x[0] = x[1] = 1;
    assert_int_equal(stream_sum(&x[0], world.comms[0], world.streams[0]), HOOP_OK);
    assert_int_equal(hoop_send(&x[1], 1, HOOP_INT64, 1, world.comms[0], world.streams[0]), HOOP_OK);
    assert_int_equal(hoop_mem_free(x), HOOP_OK);
    assert_int_equal(hoop_mem_free(x), HOOP_INVALID_ARGUMENT);
    for (int r = 1; r < RANKS; r++) {
        assert_int_equal(stream_sum(&y[r], world.comms[r], world.streams[r]), HOOP_OK);
    }
    assert_int_equal(hoop_recv(&y[0], 1, HOOP_INT64, 0, world.comms[1], world.streams[1]), HOOP_OK);
    world_synchronize(&world);
    assert_int_equal(y[1], RANKS);
    assert_int_equal(y[2], RANKS);
    assert_int_equal(y[0], 1);
    /* The driver reports the end of the work before it frees the memory. */
    for (int i = 0; i < MINUTE_MS && msync(x, 1, MS_ASYNC) == 0; i++) {
        usleep(1000);
    }
    assert_int_equal(msync(x, 1, MS_ASYNC), -1);
    world_end(&world);
}

static void test_freed_too_soon(void **state)
{
    (void)state;
    free_too_soon(false);
    free_too_soon(true);
}

/* An idle process uses no CPU, whether nothing is queued or a peer is awaited. */
static void test_idle(void **state)
{
    (void)state;
    struct world world;
    struct timespec before, after;
    int64_t x[RANKS] = {1, 1, 1};
    world_make(&world);
    for (int round = 0; round < 2; round++) {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
        usleep(300000); /* the time in which CPU use is measured */
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
        const double used =
            (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
        assert_true(used < 0.1);
        assert_int_equal(stream_sum(&x[round], world.comms[round], world.streams[round]), HOOP_OK);
    }
    assert_int_equal(stream_sum(&x[2], world.comms[2], world.streams[2]), HOOP_OK);
    world_synchronize(&world);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_after_the_other),
        cmocka_unit_test(test_blocking_behind_queued),
        cmocka_unit_test(test_alone_mixed),
        cmocka_unit_test(test_order_across_streams),
        cmocka_unit_test(test_streams_are_independent),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_group_joins_streams),
        cmocka_unit_test(test_group_that_blocks),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_alltoallv),
        cmocka_unit_test(test_ten_thousand),
        cmocka_unit_test(test_handles),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_freed_too_soon),
        cmocka_unit_test(test_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

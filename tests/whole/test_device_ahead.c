/*
 * Calls that return before their streams have come to them, over the fake driver that HOOP_CUDA
 * names: what order there is, and what becomes of a stream that waits when something goes wrong.
 * With CUDA_DEVICE_MAX_CONNECTIONS=1 all streams share a queue, calls wait for their results, and
 * everything else is the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "memory/cuda.h"
#include "whole/device_world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ON_DEVICE(test) cmocka_unit_test_prestate(test, (void *)(uintptr_t) "direct")
#define BY_HOST(test) cmocka_unit_test_prestate(test, (void *)(uintptr_t) "slab")

static int queues; /* of the device; 0: one for each stream */

static void fill_all(int value, unsigned delay_us)
{
    for (int r = 0; r < RANKS; r++) {
        (void)enter_device_of(r); /* the stream may be its default stream */
        fill(ranks[r].stream, ranks[r].in, value + r, BYTES, delay_us);
        leave_device();
    }
}

/* Waits for first operations, so that later ones need not be waited for. On a busy machine one may
 * not be enough. */
static void make_known(const char *algo)
{
    make_by(algo);
    for (int i = 0; i < 3; i++) {
        fill_all(1, 0);
        sum_in_group();
        assert_int_equal(ranks[0].result, HOOP_OK);
        settle();
        assert_all(ranks[RANKS - 1].out, 6);
    }
}

static void copy(hoop_stream_t stream, void *to, const void *from, size_t bytes)
{
    assert_int_equal(hoop_cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, stream), 0);
}

static void assert_async(int r, hoop_result_t expected)
{
    hoop_result_t failed = HOOP_OK;
    assert_int_equal(hoop_comm_get_async_error(ranks[r].comm, &failed), HOOP_OK);
    assert_int_equal(failed, expected);
}

/* ---- Order ---- */

/* The call returns before its input is there; what follows on the stream sees the result. */
static void test_returns(void **state)
{
    make_known(*state);
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].out, 0x11, BYTES, 0);
    }
    fill_all(10, 300000);
    const uint64_t start = hoop_now_ns();
    sum_in_group();
    const uint64_t took = hoop_now_ns() - start;
    assert_int_equal(ranks[0].result, HOOP_OK);
    if (queues <= 1) {
        assert_true((queues == 1) == (took >= 250 * HOOP_NS_PER_MS));
    }
    for (int r = 0; r < RANKS; r++) {
        copy(ranks[r].stream, ranks[r].in, ranks[r].out, BYTES); /* the input is no longer needed */
    }
    settle();
    for (int r = 0; r < RANKS; r++) {
        assert_all(ranks[r].in, 33);
        assert_all(ranks[r].out, 33);
        assert_async(r, HOOP_OK);
    }
    end();
}

/* The first operation of its kind: its kernel is launched while streams are held. */
static void test_first_of_its_kind(void **state)
{
    make_known(*state);
    fill_all(10, 1000);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        const struct rank *rank = &ranks[r];
        hoop_all_reduce(rank->in, rank->out, BYTES, HOOP_UINT8, HOOP_MAX, rank->comm, rank->stream);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    settle();
    assert_all(ranks[RANKS - 1].out, 12);
    end();
}

/* The driver sleeps when the streams come to the call, and must not sleep on for its slice of 100
 * ms. */
static void test_wakes(void **state)
{
    enum { ROUNDS = 20 };
    make_known(*state);
    const uint64_t start = hoop_now_ns();
    for (int round = 0; round < ROUNDS; round++) {
        fill_all(round, 5000);
        sum_in_group();
        settle();
        assert_all(ranks[RANKS - 1].out, 3 * round + 3);
    }
    assert_true(hoop_now_ns() - start < ROUNDS * (50 * HOOP_NS_PER_MS));
    end();
}

/* Many calls on the same streams, one behind the other, without waiting. */
static void test_many(void **state)
{
    enum { ROUNDS = 30 };
    unsigned char *logs[RANKS] = {NULL};
    make_known(*state);
    for (int r = 0; r < RANKS; r++) {
        (void)enter_device_of(r);
        assert_int_equal(hoop_mem_alloc((void **)&logs[r], ROUNDS, HOOP_MEM_DEVICE), HOOP_OK);
        leave_device();
    }
    for (int round = 0; round < ROUNDS; round++) {
        fill_all(round, round % 8 == 0 ? 2000 : 0);
        sum_in_group();
        for (int r = 0; r < RANKS; r++) {
            copy(ranks[r].stream, logs[r] + round, ranks[r].out + BYTES - 1, 1);
            fill(ranks[r].stream, ranks[r].out, 0xee, BYTES, 0);
        }
    }
    settle();
    for (int i = 0; i < ROUNDS * RANKS; i++) {
        assert_int_equal(logs[i % RANKS][i / RANKS + view], (3 * (i / RANKS) + 3) & 0xff);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(hoop_mem_free(logs[r]), HOOP_OK);
    }
    end();
}

/* All ranks use a default stream, the device's or the thread's, which becomes known like any
 * other. */
static void sum_on_default(const char *algo, hoop_stream_t name)
{
    hoop_stream_t streams[RANKS];
    make_known(algo);
    for (int r = 0; r < RANKS; r++) {
        streams[r] = ranks[r].stream;
        ranks[r].stream = name;
    }
    for (int round = 0; round < 10; round++) {
        fill_all(round, 3000);
        sum_in_group();
        assert_int_equal(ranks[0].result, HOOP_OK);
        for (int r = 0; r < RANKS; r++) {
            /* a device's other streams are in order with its default stream */
            copy(name == FAKE_STREAM_OF_THREAD ? name : streams[r], ranks[r].in, ranks[r].out,
                 BYTES);
        }
    }
    settle();
    for (int r = 0; r < RANKS; r++) {
        ranks[r].stream = streams[r];
    }
    settle();
    assert_all(ranks[1].in, 3 * 9 + 3);
    end();
}

static void test_default_stream(void **state)
{
    sum_on_default(*state, NULL);
    sum_on_default(*state, FAKE_STREAM_LEGACY);
    sum_on_default(*state, FAKE_STREAM_OF_THREAD);
}

/* A call from the host waits for what is queued. */
static void test_barrier(void **state)
{
    make_known(*state);
    for (int round = 1; round < 8; round++) {
        fill_all(round, 1000);
        sum_in_group();
        assert_int_equal(hoop_group_start(), HOOP_OK);
        for (int r = 0; r < RANKS; r++) {
            hoop_barrier(ranks[r].comm, NULL);
        }
        assert_int_equal(hoop_group_end(), HOOP_OK);
        assert_all(ranks[0].out, 3 * round + 3);
    }
    end();
}

/* Messages, alltoallv, a sum with a factor, and host buffers with a stream. */
static void test_other_calls(void **state)
{
    static const size_t counts[RANKS] = {1000, 1000, 1000}, displs[RANKS] = {0, 1000, 2000};
    static unsigned char host[RANKS][1000];
    hoop_red_op_t op[RANKS];
    make_known(*state);
    unsigned char two = 2;
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(hoop_red_op_create_pre_mul_sum(&op[r], &two, HOOP_UINT8,
                                                        HOOP_SCALAR_HOST_IMMEDIATE, ranks[r].comm),
                         HOOP_OK);
    }
    for (int round = 0; round < 4; round++) {
        fill_all(round, 2000);
        assert_int_equal(hoop_group_start(), HOOP_OK);
        for (int r = 0; r < RANKS; r++) {
            struct rank *rank = &ranks[r];
            hoop_send(rank->in, 100, HOOP_UINT8, (r + 1) % RANKS, rank->comm, rank->stream);
            hoop_recv(rank->out, 100, HOOP_UINT8, (r + 2) % RANKS, rank->comm, rank->stream);
            hoop_alltoallv(rank->in, counts, displs, rank->out + 5000, counts, displs, HOOP_UINT8,
                           rank->comm, rank->stream);
            hoop_all_reduce(rank->in, rank->out + 10000, 9000, HOOP_UINT8, op[r], rank->comm,
                            rank->stream);
            hoop_broadcast(rank->in, host[r], 1000, HOOP_UINT8, 1, rank->comm, rank->stream);
            hoop_barrier(rank->comm, rank->stream);
        }
        assert_int_equal(hoop_group_end(), HOOP_OK);
        settle();
        for (int r = 0; r < RANKS; r++) {
            const unsigned char *out = ranks[r].out + view;
            assert_int_equal(out[99], round + (r + 2) % RANKS);
            assert_int_equal(out[5000], round);
            assert_int_equal(out[7999], round + 2);
            assert_int_equal(out[18999], 2 * (3 * round + 3));
            assert_int_equal(host[r][999], round + 1);
        }
    }
    end();
}

/* Comms and streams cross each other; some calls wait, some do not, and several threads call. */
static void *cross_main(void *arg)
{
    hoop_comm_t *comm = arg;
    hoop_stream_t stream = NULL;
    hoop_cu_context_t context = NULL;
    hoop_cu_address_t at = 0;
    assert_int_equal(hoop_cuda_context(&context), HOOP_OK);
    assert_int_equal(hoop_cuda.context_push(context), 0);
    assert_int_equal(hoop_cuda.alloc(&at, 2 * BYTES), 0);
    assert_int_equal(hoop_cuda.stream_create(&stream, HOOP_CU_STREAM_NON_BLOCKING), 0);
    unsigned char *in = (unsigned char *)(uintptr_t)at, *out = in + BYTES;
    for (int round = 0; round < 16; round++) {
        fill(stream, in, round, BYTES, 100);
        assert_int_equal(
            hoop_all_reduce(in, out, BYTES, HOOP_UINT8, HOOP_SUM, comm[round % 2], stream),
            HOOP_OK);
        copy(stream, in, out, BYTES);
        assert_int_equal(hoop_all_reduce(in, in, BYTES / 2, HOOP_UINT8, HOOP_SUM, comm[1], stream),
                         HOOP_OK);
    }
    assert_int_equal(hoop_cuda.stream_synchronize(stream), 0);
    assert_int_equal(in[(ptrdiff_t)BYTES - 1 + view], 15);
    assert_int_equal(hoop_cuda.stream_destroy(stream), 0);
    assert_int_equal(hoop_cuda.free(at), 0);
    assert_int_equal(hoop_cuda.context_pop(&context), 0);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    pthread_t threads[4];
    for (int c = 0; c < 2; c++) {
        assert_int_equal(hoop_comm_init_all(&comms[c], 1, NULL), HOOP_OK);
    }
    for (int t = 0; t < 4; t++) {
        assert_int_equal(pthread_create(&threads[t], NULL, cross_main, comms), 0);
    }
    for (int t = 0; t < 4; t++) {
        pthread_join(threads[t], NULL);
    }
    for (int c = 0; c < 2; c++) {
        assert_int_equal(hoop_comm_destroy(comms[c]), HOOP_OK);
    }
}

/* More calls than can be held: the others wait. */
static void test_too_many(void **state)
{
    (void)state;
    hoop_comm_t comm = NULL;
    make();
    assert_int_equal(hoop_comm_init_all(&comm, 1, NULL), HOOP_OK);
    unsigned char *in = ranks[0].in;
    assert_int_equal(hoop_bcast(in, 1, HOOP_UINT8, 0, comm, ranks[0].stream), HOOP_OK);
    fill(ranks[0].stream, in, 1, BYTES, 500000);
    for (int i = 0; i < 1030; i++) {
        assert_int_equal(hoop_bcast(in, 1, HOOP_UINT8, 0, comm, ranks[0].stream), HOOP_OK);
    }
    settle();
    assert_int_equal(hoop_comm_destroy(comm), HOOP_OK);
    end();
}

/* ---- What may happen meanwhile ---- */

/* Buffers are freed in the order of their stream: CUDA does not know them any more when the call
 * runs. */
static void test_forgotten(void **state)
{
    make_known(*state);
    fill_all(20, 50000);
    sum_in_group();
    forget(1);
    settle();
    forget(0);
    for (int r = 0; r < RANKS; r++) {
        assert_async(r, HOOP_OK);
        assert_all(ranks[r].out, 63);
    }
    end();
}

static void test_destroy(void **state)
{
    make_known(*state);
    fill_all(30, 50000);
    sum_in_group();
    assert_int_equal(hoop_comm_finalize(ranks[0].comm), HOOP_OK); /* comes behind the call */
    sum_in_group();
    assert_int_equal(ranks[0].result, HOOP_INVALID_USAGE);
    end_comms(); /* waits for the call */
    settle();
    for (int r = 0; r < RANKS; r++) {
        assert_all(ranks[r].out, 93);
    }
    end();
}

/* While one stream is busy for long the others, which wait for it, go on at once. */
static void test_abort(void **state)
{
    make_known(*state);
    fill(ranks[1].stream, ranks[1].in, 1, BYTES, 1500000);
    sum_in_group();
    assert_int_equal(ranks[0].result, HOOP_OK);
    usleep(20000);
    const uint64_t start = hoop_now_ns();
    assert_int_equal(hoop_comm_abort(ranks[2].comm), HOOP_OK);
    assert_int_equal(hoop_cuda.stream_synchronize(ranks[0].stream), 0);
    assert_int_equal(hoop_cuda.stream_synchronize(ranks[2].stream), 0);
    assert_true(hoop_now_ns() - start < 1000 * HOOP_NS_PER_MS);
    for (int r = 0; r < RANKS; r++) {
        assert_async(r, HOOP_ABORTED);
    }
    sum_in_group();
    assert_int_equal(ranks[0].result, HOOP_ABORTED);
    settle();
    end();
}

/* A launch is refused after the call has returned: streams go on, and the comms report why. */
static void test_fails(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= folds(); n++) {
        make_known("direct");
        fill_all(1, 20000);
        refuse(n);
        sum_in_group();
        settle();
        for (int r = 0; r < RANKS; r++) {
            assert_async(r, HOOP_CUDA_ERROR);
            assert_non_null(strstr(hoop_get_last_error(ranks[r].comm),
                                   "cuLaunchKernel: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"));
        }
        assert_int_equal(hoop_all_reduce(ranks[0].in, ranks[0].out, BYTES, HOOP_UINT8, HOOP_SUM,
                                         ranks[0].comm, ranks[0].stream),
                         HOOP_CUDA_ERROR);
        end();
    }
}

/* The device fails while calls are queued. */
static void test_broken(void **state)
{
    make_known(*state);
    fill_all(1, 20000);
    sum_in_group();
    break_device(1);
    (void)hoop_cuda.copy((uintptr_t)ranks[0].out, (uintptr_t)ranks[0].in, 1, ranks[0].stream);
    assert_int_not_equal(hoop_cuda.stream_synchronize(ranks[0].stream), 0);
    sum_in_group();
    assert_int_equal(ranks[0].result, HOOP_CUDA_ERROR);
    end_comms();
    break_device(0);
    end();
}

/* Another thread captures a graph: calls on the default stream are refused, which changes nothing;
 * those on other streams go on; and nothing that hoop does spoils the graph. */
static void test_capture(void **state)
{
    hoop_stream_t capturing = NULL;
    make_by(*state);
    struct rank *rank = &ranks[0];
    assert_int_equal(hoop_cuda.stream_create(&capturing, 0), 0);
    capture(capturing, 1);
    assert_int_equal(
        hoop_all_reduce(rank->in, rank->out, BYTES, HOOP_UINT8, HOOP_SUM, rank->comm, NULL),
        HOOP_UNSUPPORTED);
    assert_non_null(strstr(hoop_get_last_error(NULL), "hoop_all_reduce: the legacy default stream "
                                                      "(NULL) can't be used while another one"));
    assert_int_equal(hoop_send(rank->in, 1, HOOP_UINT8, 1, rank->comm, NULL), HOOP_UNSUPPORTED);
    assert_int_equal(
        hoop_all_reduce(rank->in, rank->out, BYTES, HOOP_UINT8, HOOP_SUM, rank->comm, capturing),
        HOOP_UNSUPPORTED);
    assert_non_null(strstr(hoop_get_last_error(NULL), "captures a graph"));
    for (int round = 0; round < 4; round++) { /* the first one pins memory */
        fill_all(round, 1000);
        sum_in_group();
        assert_int_equal(ranks[0].result, HOOP_OK);
    }
    settle();
    assert_all(ranks[2].out, 12);
    capture(capturing, 0);
    assert_int_equal(hoop_cuda.stream_destroy(capturing), 0);
    end();
}

int main(void)
{
    const char *setting = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    queues = setting != NULL ? atoi(setting) : 0;
    const struct CMUnitTest tests[] = {
        ON_DEVICE(test_returns),
        BY_HOST(test_returns),
        ON_DEVICE(test_first_of_its_kind),
        BY_HOST(test_wakes),
        ON_DEVICE(test_many),
        BY_HOST(test_many),
        ON_DEVICE(test_default_stream),
        BY_HOST(test_default_stream),
        ON_DEVICE(test_barrier),
        BY_HOST(test_barrier),
        ON_DEVICE(test_other_calls),
        BY_HOST(test_other_calls),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_too_many),
        ON_DEVICE(test_forgotten),
        BY_HOST(test_forgotten),
        ON_DEVICE(test_destroy),
        BY_HOST(test_destroy),
        ON_DEVICE(test_abort),
        BY_HOST(test_abort),
        cmocka_unit_test(test_fails),
        ON_DEVICE(test_broken),
        BY_HOST(test_broken),
        ON_DEVICE(test_capture),
        BY_HOST(test_capture),
    };
    const struct CMUnitTest with_queues[] = {
        ON_DEVICE(test_returns),   BY_HOST(test_returns), ON_DEVICE(test_many),
        BY_HOST(test_other_calls), BY_HOST(test_abort),   cmocka_unit_test(test_threads),
    };
    return queues == 0
               ? cmocka_run_group_tests_name("device ahead", tests, setup, NULL)
               : cmocka_run_group_tests_name("device ahead, few queues", with_queues, setup, NULL);
}

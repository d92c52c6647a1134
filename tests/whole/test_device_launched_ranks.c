/*
 * Calls that are launched where a process has several ranks of a communicator, over the fake driver
 * that HOOP_CUDA names: one thread calls for all in a group (lib/device/launch.h). Ranks share one
 * device, or have one each, or two share one of two; with FAKE_CUDA_DEVICES and
 * CUDA_DEVICE_MAX_CONNECTIONS from outside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "memory/cuda.h"
#include "whole/device_world.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOW_US 100000u
#define ROUNDS 12

static fake_cuda_fetches_t *fetches;
static fake_cuda_pool_t *pool;
static bool takes_plain; /* buffers come from cudaMalloc() */

static void take_plain(int r)
{
    hoop_cu_address_t at = 0;
    assert_int_equal(hoop_cuda.alloc(&at, BYTES), 0);
    assert_int_equal(hoop_mem_free(ranks[r].in), HOOP_OK);
    ranks[r].in = (unsigned char *)(uintptr_t)at; /* NOLINT */
    assert_int_equal(hoop_cuda.alloc(&at, BYTES), 0);
    assert_int_equal(hoop_mem_free(ranks[r].out), HOOP_OK);
    ranks[r].out = (unsigned char *)(uintptr_t)at; /* NOLINT */
}

static void free_buffers(void)
{
    for (int r = 0; r < RANKS; r++) {
        (void)enter_device_of(r);
        if (takes_plain) {
            assert_int_equal(hoop_cuda.free((uintptr_t)ranks[r].in), 0);
            assert_int_equal(hoop_cuda.free((uintptr_t)ranks[r].out), 0);
        } else {
            assert_int_equal(hoop_mem_free(ranks[r].in), HOOP_OK);
            assert_int_equal(hoop_mem_free(ranks[r].out), HOOP_OK);
        }
        assert_int_equal(hoop_cuda.stream_destroy(ranks[r].stream), 0);
        leave_device();
    }
}

static void finish(void)
{
    end_comms();
    free_buffers();
}

static void fill_in(int value, unsigned delay_us)
{
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].in, value + r, BYTES, delay_us);
    }
}

/* Waits for a call, so that later ones are launched. */
static void begin(void)
{
    make();
    for (int r = 0; r < RANKS && takes_plain; r++) {
        (void)enter_device_of(r);
        take_plain(r);
        leave_device();
    }
    fill_in(1, 0);
    sum_in_group();
    assert_int_equal(ranks[0].result, HOOP_OK);
    settle();
    assert_all(ranks[RANKS - 1].out, 6);
}

static bool is_busy(int r)
{
    return hoop_cuda.stream_query(ranks[r].stream) == HOOP_CU_NOT_READY;
}

static void assert_busy(bool expected)
{
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(is_busy(r), expected);
    }
}

/* ---- Order ---- */

/* The group returns before its input is there, and nothing goes through the host. */
static void test_returns(void **state)
{
    (void)state;
    begin();
    const unsigned before = launches(), fetched = fetches();
    for (int round = 0; round < 3; round++) {
        fill_in(round, SLOW_US);
        sum_in_group();
        assert_int_equal(ranks[0].result, HOOP_OK);
        assert_busy(true);
        fill_in(0x44, 0); /* behind the call */
        settle();
        for (int r = 0; r < RANKS; r++) {
            assert_all(ranks[r].out, 3 * round + 3);
        }
    }
    assert_int_equal(launches(), before + 3 * folds());
    assert_int_equal(fetches(), fetched);
    finish();
}

/* Only a late rank's stream is behind; those of the others wait for it. */
static void test_late(void **state)
{
    (void)state;
    begin();
    for (int late = 0; late < RANKS; late++) {
        fill_in(late, 0);
        fill(ranks[late].stream, ranks[late].in, 50, BYTES, SLOW_US);
        sum_in_group();
        assert_busy(true);
        settle();
        assert_all(ranks[late].out, 50 + 3 * late + 3 - 2 * late);
    }
    finish();
}

/* Calls of several kinds in one group, by rank or by call, each rank's in its order. */
static void call(int r, int k)
{
    const struct rank *rank = &ranks[r];
    const size_t part = BYTES / RANKS;
    unsigned char *in = rank->in, *out = rank->out;
    (void)(k == 0 ? hoop_all_reduce(in, out, BYTES, HOOP_UINT8, HOOP_SUM, rank->comm, rank->stream)
           : k == 1 ? hoop_broadcast(in, in, BYTES, HOOP_UINT8, 1, rank->comm, rank->stream)
           : k == 2
               ? hoop_reduce_scatter(out, in, part, HOOP_UINT8, HOOP_MAX, rank->comm, rank->stream)
               : hoop_all_gather(in, out, part, HOOP_UINT8, rank->comm, rank->stream));
}

static void test_groups(void **state)
{
    (void)state;
    begin();
    for (int round = 0; round < ROUNDS; round++) {
        fill_in(round, round >= RANKS ? SLOW_US : 0);
        hoop_group_start();
        for (int i = 0; i < RANKS * 4; i++) {
            const int k = round % 2 != 0 ? i / RANKS : i % 4;
            call((round + (round % 2 != 0 ? i % RANKS : i / 4)) % RANKS, k);
        }
        assert_int_equal(hoop_group_end(), HOOP_OK);
        assert_true(round < RANKS || is_busy(0)); /* the first with each root wait */
        settle();
        for (int r = 0; r < RANKS; r++) { /* the last bytes are in no part */
            assert_int_equal(ranks[r].out[view], 3 * round + 3);
            assert_int_equal(ranks[r].out[view + (ptrdiff_t)(BYTES / RANKS * RANKS) - 1],
                             3 * round + 3);
            assert_int_equal(ranks[r].in[view + (ptrdiff_t)BYTES - 1], round + 1);
        }
    }
    finish();
}

/* Many groups without waiting in between; small ones go through the host, as do messages. */
static void test_many(void **state)
{
    (void)state;
    begin();
    for (int round = 0; round < 10 * ROUNDS; round++) {
        const size_t count = round % 4 == 1 ? 9 : BYTES;
        fill_in(round, 0);
        hoop_group_start();
        for (int i = 0; i < RANKS; i++) {
            const int r = (i + round) % RANKS;
            const struct rank *rank = &ranks[r];
            if (round % 4 == 3) {
                hoop_send(rank->in, BYTES, HOOP_UINT8, (r + 1) % RANKS, rank->comm, rank->stream);
                hoop_recv(rank->out, BYTES, HOOP_UINT8, (r + 2) % RANKS, rank->comm, rank->stream);
            } else {
                hoop_all_reduce(rank->in, rank->out, count, HOOP_UINT8, HOOP_SUM, rank->comm,
                                rank->stream);
            }
        }
        assert_int_equal(hoop_group_end(), HOOP_OK);
    }
    settle();
    for (int r = 0; r < RANKS; r++) {
        assert_all(ranks[r].out, 10 * ROUNDS - 1 + (r + 2) % RANKS);
    }
    finish();
}

/* Calls of threads, and of a group that lacks a rank, wait for their results. */
static void test_threads(void **state)
{
    (void)state;
    begin();
    for (int round = 0; round < ROUNDS; round++) {
        fill_in(round, SLOW_US / 20);
        if (round % 2 == 0) {
            sum_in_threads();
        } else {
            sum_in_group();
        }
        assert_int_equal(ranks[RANKS - 1].result, HOOP_OK);
        assert_true(round % 2 != 0 || !is_busy(0));
        settle();
        assert_all(ranks[round % RANKS].out, 3 * round + 3);
    }
    finish();
}

/* Memory that other devices do not reach: not launched, and right. */
static void test_pool(void **state)
{
    (void)state;
    begin();
    if (takes_plain && folds() > 1) {
        pool(ranks[1].out);
    }
    for (int round = 0; round < 3; round++) {
        fill_in(round, SLOW_US / 20);
        sum_in_group();
        assert_int_equal(ranks[0].result, HOOP_OK);
        settle();
        assert_all(ranks[1].out, 3 * round + 3);
    }
    finish();
}

/* ---- What a program may do meanwhile ---- */

static atomic_bool frees_on;

/* Calls that wait for all streams of the process, and keep all threads from putting anything on
 * one. */
static void *free_often(void *arg)
{
    (void)arg;
    (void)enter_device_of(0);
    while (atomic_load(&frees_on)) {
        hoop_cu_address_t at = 0;
        assert_true(hoop_cuda.alloc(&at, 100) == 0 && hoop_cuda.free(at) == 0);
        usleep(300);
    }
    leave_device();
    return NULL;
}

static void test_meanwhile(void **state)
{
    (void)state;
    pthread_t thread;
    begin();
    atomic_store(&frees_on, true);
    assert_int_equal(pthread_create(&thread, NULL, free_often, NULL), 0);
    for (int round = 0; round < 10 * ROUNDS; round++) {
        fill_in(round, 0);
        hoop_group_start();
        for (int i = 0; i < 2 * RANKS; i++) {
            (void)sum(&ranks[i % RANKS]);
        }
        assert_int_equal(hoop_group_end(), HOOP_OK);
    }
    atomic_store(&frees_on, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    settle();
    assert_all(ranks[0].out, (30 * ROUNDS) & 0xff);
    finish();
}

/* ---- What goes wrong ---- */

/* An abort of one rank lets all streams go, also before they have come to the call. */
static void test_abort(void **state)
{
    (void)state;
    begin();
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].in, 1, BYTES, r == 1 ? 5 * SLOW_US : 0);
    }
    sum_in_group();
    assert_busy(true);
    assert_int_equal(hoop_comm_abort(ranks[0].comm), HOOP_OK);
    assert_true(is_busy(1)); /* an abort waits for no stream */
    settle();
    for (int r = 1; r < RANKS; r++) {
        hoop_result_t failed = HOOP_OK;
        assert_int_equal(hoop_comm_get_async_error(ranks[r].comm, &failed), HOOP_OK);
        assert_int_equal(failed, HOOP_ABORTED);
    }
    finish();
}

/* A rank fails when the ranks before it were told what their kernels do, as it finds a gate closed.
 * In one queue theirs are behind its own, as ranks call in reverse, which is told nothing. */
static void test_fails_late(void **state)
{
    (void)state;
    for (int bad = 0; bad < RANKS; bad++) {
        begin();
        struct hoop_board *board = &ranks[bad].comm->board;
        const int other = bad == 0 ? 1 : 0;
        atomic_store(&hoop_board_rank(board, (uint32_t)bad)->gates[other], 1);
        for (int r = 0; r < RANKS; r++) {
            ranks[r].comm->op_timeout_ms = 6000;
        }
        const uint64_t began_ns = hoop_now_ns();
        assert_int_equal(hoop_group_start(), HOOP_OK);
        for (int r = RANKS - 1; r >= 0; r--) {
            call(r, 0);
        }
        assert_int_equal(hoop_group_end(), HOOP_OK);
        settle();
        assert_true(hoop_now_ns() - began_ns < 3 * HOOP_NS_PER_S);
        finish();
    }
}

/* The driver refuses something half way: the group fails, and no stream is held for ever. */
static int (*wait_of)(hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags);
static int waits_left;
static unsigned refused_after_us;

static int wait_fails(hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags)
{
    if (waits_left-- == 0) {
        usleep(refused_after_us);
        return HOOP_CU_OUT_OF_MEMORY;
    }
    return wait_of(stream, at, value, flags);
}

static int (*write_of)(hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags);
static int writes_left;

static int write_fails(hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags)
{
    if (writes_left-- == 0) {
        usleep(refused_after_us);
        return HOOP_CU_OUT_OF_MEMORY;
    }
    return write_of(stream, at, value, flags);
}

/* Comms end, and so free what is no longer used, until no more than that is pinned. */
static void await_pinned(size_t most)
{
    size_t bytes = 0, pinned = most + 1;
    for (int i = 0; i < 2000 && pinned > most; i++) { /* the bells thread lets calls go */
        hoop_comm_t alone = NULL;
        hoop_unique_id_t id;
        assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
        assert_int_equal(hoop_comm_init_rank(&alone, 1, id, 0), HOOP_OK);
        assert_int_equal(hoop_comm_destroy(alone), HOOP_OK);
        use(&bytes, &pinned);
    }
    assert_in_range(pinned, 0, most);
}

static void test_refused(void **state)
{
    (void)state;
    size_t bytes = 0, pinned = 0;
    begin();
    finish();
    use(&bytes, &pinned);
    wait_of = hoop_cuda.stream_wait_value;
    write_of = hoop_cuda.stream_write_value;
    for (int k = 0; k < 8; k++) {
        begin();
        waits_left = k < 4 ? k : -1;
        writes_left = k < 4 ? -1 : k - 4;
        hoop_cuda.stream_wait_value = wait_fails;
        hoop_cuda.stream_write_value = write_fails;
        fill_in(1, SLOW_US / 20);
        sum_in_group();
        hoop_cuda.stream_wait_value = wait_of;
        hoop_cuda.stream_write_value = write_of;
        assert_int_not_equal(ranks[0].result, HOOP_OK);
        assert_non_null(strstr(ranks[0].why, k < 4 ? "cuStreamWaitValue32" : "cuStreamWriteV"));
        settle();
        finish();
        await_pinned(pinned);
    }
}

/* The word behind a kernel is refused when the kernel has been told what to do: only the stream can
 * say when it is over. */
static void test_refused_word(void **state)
{
    (void)state;
    write_of = hoop_cuda.stream_write_value;
    refused_after_us = SLOW_US;
    begin();
    writes_left = RANKS; /* the bells of the streams come before it */
    hoop_cuda.stream_write_value = write_fails;
    const uint64_t began_ns = hoop_now_ns();
    sum_in_group();
    hoop_cuda.stream_write_value = write_of;
    assert_int_not_equal(ranks[0].result, HOOP_OK);
    settle();
    finish();
    assert_true(hoop_now_ns() - began_ns < 10 * HOOP_NS_PER_S); /* half of the time limit */
    refused_after_us = 0;
}

/* What is on other streams by then, and was told what to do, is waited for: nothing is written once
 * the communicator is gone. */
static void test_refused_late(void **state)
{
    (void)state;
    static unsigned char seen[RANKS][BYTES];
    wait_of = hoop_cuda.stream_wait_value;
    refused_after_us = SLOW_US / 2;
    for (int k = 0; k < RANKS; k++) {
        begin();
        fill_in(5, 0); /* for other sums than before */
        waits_left = k;
        delay(2 * SLOW_US);
        hoop_cuda.stream_wait_value = wait_fails;
        sum_in_group();
        hoop_cuda.stream_wait_value = wait_of;
        delay(0);
        assert_int_not_equal(ranks[0].result, HOOP_OK);
        end_comms();
        for (int r = 0; r < RANKS; r++) {
            memcpy(seen[r], ranks[r].out + view, BYTES);
        }
        settle();
        for (int r = 0; r < RANKS; r++) {
            assert_memory_equal(seen[r], ranks[r].out + view, BYTES);
        }
        free_buffers();
    }
    refused_after_us = 0;
}

/* ---- Numbers of devices ---- */

static void expect_devices(const int *devlist, const int *expected)
{
    hoop_comm_t comms[RANKS] = {NULL};
    assert_int_equal(hoop_comm_init_all(comms, RANKS, devlist), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        int device = -2;
        assert_int_equal(hoop_comm_cu_device(comms[r], &device), HOOP_OK);
        assert_int_equal(device, expected[r]);
        assert_int_equal(hoop_comm_destroy(comms[r]), HOOP_OK);
    }
}

/* hoop_comm_init_all() takes the devices of its list; without one the first, or else the current
 * one. */
static void test_numbers(void **state)
{
    hoop_comm_t comms[RANKS] = {NULL};
    int devices = 0, first[RANKS], last[RANKS];
    (void)state;
    assert_int_equal(hoop_cuda.device_count(&devices), 0);
    for (int r = 0; r < RANKS; r++) {
        first[r] = r < devices ? r : 0;
        last[r] = devices - 1 - r % devices;
    }
    (void)enter_device_of(0);
    expect_devices(NULL, first);
    expect_devices(last, last);
    leave_device();
    for (int r = 0; r < RANKS; r++) {
        int wrong[RANKS] = {0};
        wrong[r] = r == 0 ? -1 : devices;
        assert_int_equal(hoop_comm_init_all(comms, RANKS, wrong), HOOP_INVALID_ARGUMENT);
        assert_non_null(strstr(hoop_get_last_error(NULL), "devlist["));
        assert_null(comms[0]);
    }
}

static int setup_all(void **state)
{
    hoop_cu_context_t context = NULL;
    const int result = setup(state);
    void *library = dlopen(getenv("HOOP_CUDA"), RTLD_NOW);
    *(void **)&fetches = dlsym(library, "fake_cuda_fetches");
    *(void **)&pool = dlsym(library, "fake_cuda_pool");
    return result != 0 || hoop_cuda_context(&context) != HOOP_OK;
}

/* With the argument `plain` buffers come from cudaMalloc(). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_returns),      cmocka_unit_test(test_late),
        cmocka_unit_test(test_groups),       cmocka_unit_test(test_many),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_pool),
        cmocka_unit_test(test_meanwhile),    cmocka_unit_test(test_abort),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_fails_late),   cmocka_unit_test(test_refused_late),
        cmocka_unit_test(test_refused_word),
    };
    (void)argv;
    takes_plain = argc > 1;
    return cmocka_run_group_tests_name("device launched ranks", tests, setup_all, NULL);
}

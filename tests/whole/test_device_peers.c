/*
 * Ranks of one process on several devices, over the fake driver that HOOP_CUDA names: whose memory
 * they can access, and what becomes of a call if they can't. Streams and failures are tested by
 * test_device, which runs with several devices, too; processes by test_device_processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "memory/cuda.h"
#include "whole/device_world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *owns[RANKS][2]; /* from hoop_mem_alloc(), while others are used */

/* Makes a sum. Did it run on the devices? */
static void assert_sum(bool there)
{
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].in, r + 1, BYTES, 0);
    }
    const unsigned kernels = launches(), copies = host_copies();
    sum_in_threads();
    for (int r = 0; r < RANKS; r++) {
        assert_string_equal(ranks[r].result == HOOP_OK ? "" : ranks[r].why, "");
        assert_all(ranks[r].out, 6);
    }
    assert_int_equal(launches() - kernels, there ? RANKS : 0);
    assert_int_equal(host_copies() - copies, there ? 0 : 2 * RANKS);
}

static void make_on_devices(const char *devices)
{
    setenv("FAKE_CUDA_DEVICES", devices, 1);
    make();
    for (int r = 0; r < RANKS; r++) {
        owns[r][0] = ranks[r].in;
        owns[r][1] = ranks[r].out;
    }
}

static void end_on_devices(void)
{
    end_comms();
    for (int r = 0; r < RANKS; r++) {
        ranks[r].in = owns[r][0];
        ranks[r].out = owns[r][1];
    }
    end();
}

static void *alloc_plain(void)
{
    hoop_cu_address_t at = 0;
    assert_int_equal(hoop_cuda.alloc(&at, BYTES), 0);
    return (void *)(uintptr_t)at;
}

static void free_plain(void *plain)
{
    assert_int_equal(hoop_cuda.free((uintptr_t)plain), 0);
}

/* ---- They reach each other ---- */

/* A device for each rank, and two for three. */
static void test_regions(void **state)
{
    make_on_devices(*state);
    for (int round = 0; round < 3; round++) {
        assert_sum(true);
    }
    end_on_devices();
}

static void test_plain(void **state)
{
    make_on_devices(*state);
    for (int r = 0; r < RANKS; r++) {
        (void)enter_device_of(r);
        ranks[r].out = alloc_plain();
        leave_device();
    }
    assert_sum(true); /* both kinds of memory */
    for (int r = 0; r < RANKS; r++) {
        ranks[r].in = ranks[r].out;
    }
    assert_sum(true);
    for (int r = 0; r < RANKS; r++) {
        free_plain(ranks[r].out);
    }
    end_on_devices();
}

/* ---- They don't ---- */

static void test_apart(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_APART", "02", 1);
    make_on_devices("3");
    assert_sum(false);
    end_on_devices();
    make_on_devices("2"); /* no rank's device is one of these two */
    assert_sum(true);
    end_on_devices();
    unsetenv("FAKE_CUDA_APART");
}

/* Memory that the program has mapped itself for its own device, or allocated in the order of a
 * stream, can't be opened to other devices. */
static void test_foreign(void **state)
{
    const struct hoop_cu_properties properties = {.type = HOOP_CU_MEMORY_PINNED,
                                                  .location = {HOOP_CU_LOCATION_DEVICE, 1}};
    const struct hoop_cu_access access = {properties.location, HOOP_CU_ACCESS_READ_WRITE};
    hoop_cu_memory_t memory = 0;
    hoop_cu_address_t at = 0;
    (void)state;
    make_on_devices("3");
    assert_int_equal(hoop_cuda.memory_create(&memory, 65536, &properties, 0), 0);
    assert_int_equal(hoop_cuda.address_reserve(&at, 65536, 0, 0, 0), 0);
    assert_int_equal(hoop_cuda.map(at, 65536, 0, memory, 0), 0);
    assert_int_equal(hoop_cuda.set_access(at, 65536, &access, 1), 0);
    assert_int_equal(hoop_cuda.memory_release(memory), 0);
    assert_sum(true);
    ranks[1].in = (unsigned char *)(uintptr_t)at;
    assert_sum(false);
    ranks[1].in = owns[1][0];
    assert_sum(true);
    assert_int_equal(hoop_cuda.unmap(at, 65536), 0);
    assert_int_equal(hoop_cuda.address_free(at, 65536), 0);
    end_on_devices();
}

/* Memory of a context that is not its device's primary one, and that the others do not know. */
static void test_other_context(void **state)
{
    (void)state;
    make_on_devices("3");
    const hoop_stream_t stream = ranks[1].stream;
    assert_int_equal(hoop_cuda.context_push(other_context(1)), 0);
    ranks[1].in = ranks[1].out = alloc_plain();
    assert_int_equal(hoop_cuda.stream_create(&ranks[1].stream, 0), 0);
    assert_sum(false);
    free_plain(ranks[1].in);
    assert_int_equal(hoop_cuda.stream_destroy(ranks[1].stream), 0);
    ranks[1].stream = stream;
    leave_device();
    end_on_devices();
}

/* The driver refuses what it has promised. */
static void test_refused(void **state)
{
    const bool plain = strcmp(*state, "cuCtxEnablePeerAccess") == 0; /* contexts that never met */
    make_on_devices("3");
    for (int r = 0; r < RANKS && plain; r++) {
        (void)enter_device_of(r);
        ranks[r].in = ranks[r].out = alloc_plain();
        leave_device();
    }
    setenv("FAKE_CUDA_NO_ACCESS", "1", 1);
    sum_in_threads();
    unsetenv("FAKE_CUDA_NO_ACCESS");
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].result, HOOP_CUDA_ERROR);
        assert_non_null(strstr(ranks[r].why, "cannot map the buffer of rank "));
        assert_non_null(strstr(ranks[r].why, *state));
        assert_non_null(strstr(ranks[r].why, "HOOP_CUDA_PEERS=0"));
    }
    for (int r = 0; r < RANKS && plain; r++) {
        free_plain(ranks[r].in);
    }
    end_on_devices();
}

/* ---- Streams and contexts ---- */

static void *barrier_main(void *arg)
{
    struct rank *rank = arg;
    rank->result = hoop_barrier(rank->comm, rank->stream);
    return NULL;
}

/* Each rank's stream is of another device than its buffers, and nevertheless orders its calls:
 * what comes before a call is overwritten by it. By the devices, and by the host. */
static void test_streams_elsewhere(void **state)
{
    setenv("FAKE_CUDA_APART", *state, 1);
    make_on_devices("3");
    const hoop_stream_t first = ranks[0].stream;
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].in, r + 1, BYTES, 0);
    }
    settle();
    for (int r = 0; r < RANKS; r++) {
        const int next = (r + 1) % RANKS;
        ranks[r].stream = next != 0 ? ranks[next].stream : first;
        fill(ranks[r].stream, ranks[next].out, 0x77, BYTES, 20000);
    }
    sum_in_threads();
    for (int r = 0; r < RANKS; r++) {
        assert_string_equal(ranks[r].result == HOOP_OK ? "" : ranks[r].why, "");
        assert_all(ranks[r].out, 6);
    }
    end_on_devices();
    unsetenv("FAKE_CUDA_APART");
}

/* A call without buffers on a device, from a thread without a context: nothing is made for it on
 * the first device, and nothing given up on the rank's own. */
static void test_barrier(void **state)
{
    pthread_t threads[RANKS];
    size_t bytes = 0, before = 0, after = 0;
    (void)state;
    setenv("FAKE_CUDA_APART", "01,02,12", 1);
    make_on_devices("3");
    assert_sum(false);
    use(&bytes, &before);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(pthread_create(&threads[r], NULL, barrier_main, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(ranks[r].result, HOOP_OK);
    }
    use(&bytes, &after);
    assert_int_equal(after, before);
    end_on_devices();
    unsetenv("FAKE_CUDA_APART");
}

/* A factor on a device that is not the thread's current one: what the default stream there still
 * writes is awaited. */
static void test_factor_elsewhere(void **state)
{
    hoop_cu_address_t at = 0;
    hoop_red_op_t ops[RANKS];
    (void)state;
    make_on_devices("3");
    (void)enter_device_of(1);
    assert_int_equal(hoop_cuda.alloc(&at, 1), 0);
    fill(NULL, (void *)(uintptr_t)at, 3, 1, 100000);
    leave_device();
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].in, r + 1, BYTES, 0);
        assert_int_equal(hoop_red_op_create_pre_mul_sum(&ops[r], (void *)(uintptr_t)at, HOOP_UINT8,
                                                        HOOP_SCALAR_DEVICE, ranks[r].comm),
                         HOOP_OK);
    }
    hoop_group_start();
    for (int r = 0; r < RANKS; r++) {
        (void)hoop_all_reduce(ranks[r].in, ranks[r].out, BYTES, HOOP_UINT8, ops[r], ranks[r].comm,
                              ranks[r].stream);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        assert_all(ranks[r].out, 18);
    }
    free_plain((void *)(uintptr_t)at);
    end_on_devices();
}

/* Tests the fake driver: a device can't access memory that was not opened to it. */
static void test_fake_refuses(void **state)
{
    (void)state;
    make_on_devices("3");
    const hoop_cu_address_t mine = (uintptr_t)ranks[0].in, other = (uintptr_t)ranks[1].in;
    assert_int_not_equal(hoop_cuda.copy(mine, other, BYTES, ranks[0].stream), 0);
    assert_int_equal(hoop_cuda.copy(mine, mine + 4096, 4096, ranks[0].stream), 0);
    assert_int_not_equal(hoop_cuda.copy(mine, mine + 4096, 4096, ranks[1].stream), 0);
    settle();
    end_on_devices();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fake_refuses),
        cmocka_unit_test_prestate(test_refused, (void *)(uintptr_t) "cuCtxEnablePeerAccess"),
        cmocka_unit_test_prestate(test_refused, (void *)(uintptr_t) "cuMemSetAccess"),
        cmocka_unit_test_prestate(test_regions, (void *)(uintptr_t) "3"),
        cmocka_unit_test_prestate(test_regions, (void *)(uintptr_t) "2"),
        cmocka_unit_test_prestate(test_plain, (void *)(uintptr_t) "3"),
        cmocka_unit_test_prestate(test_plain, (void *)(uintptr_t) "2"),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_other_context),
        cmocka_unit_test_prestate(test_streams_elsewhere, (void *)(uintptr_t) ""),
        cmocka_unit_test_prestate(test_streams_elsewhere, (void *)(uintptr_t) "01,02,12"),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_factor_elsewhere),
    };
    return cmocka_run_group_tests_name("device peers", tests, setup, NULL);
}

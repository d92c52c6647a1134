/*
 * Buffers on a device, over the fake driver that HOOP_CUDA names: mistakes, devices that fail, and
 * aborting.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fakes/failing_cuda.h"
#include "memory/cuda.h"
#include "whole/device_world.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void test_refused(void **state)
{
    (void)state;
    void *ptr = NULL;
    make();
    assert_int_equal(hoop_mem_alloc(&ptr, (size_t)1 << 40, HOOP_MEM_DEVICE), HOOP_OUT_OF_MEMORY);
    assert_non_null(strstr(hoop_get_last_error(NULL), "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY"));
    struct rank *rank = &ranks[1];
    const hoop_stream_t stream = rank->stream;
    rank->stream = (hoop_stream_t)(void *)ranks; /* not a stream */
    assert_int_equal(sum(rank), HOOP_INVALID_ARGUMENT);
    assert_non_null(strstr(hoop_get_last_error(NULL), "is not a CUDA stream"));
    rank->stream = stream;
    capture(stream, 1);
    assert_int_equal(sum(rank), HOOP_UNSUPPORTED);
    assert_non_null(strstr(hoop_get_last_error(NULL), "captures a graph"));
    assert_int_equal(hoop_send(rank->in, 1, HOOP_UINT8, 0, rank->comm, stream), HOOP_UNSUPPORTED);
    capture(stream, 0);
    sum_in_threads(); /* the comm is unchanged */
    assert_int_equal(ranks[0].result, HOOP_OK);
    end();
}

/* A kernel before the call, or one of the call's own, has broken the device: no sum is wrong, and
 * every rank gets an error. */
static void test_broken(void **state)
{
    const bool copies = strcmp(*state, "slab") == 0; /* to the host and back; otherwise kernels */
    for (unsigned n = 1; n <= (copies ? 2 * RANKS : folds()); n++) {
        make_by(*state);
        for (int r = 0; r < RANKS; r++) {
            memset(ranks[r].in + view, r + 1, BYTES);
        }
        break_device(n);
        sum_in_threads();
        int failed = 0, named = 0;
        count_failed(&failed, &named);
        assert_true(failed == RANKS || (failed > 0 && copies && n > RANKS)); /* some got theirs */
        assert_true(named >= 1);
        end_comms(); /* nobody waits for a broken device */
        break_device(0);
        end();
    }
}

/* A pointer that CUDA does not know is readable host memory, or the caller's mistake, which leaves
 * the comm unchanged. */
static void test_forgotten(void **state)
{
    (void)state;
    make();
    forget(1);
    sum_in_threads();
    forget(0);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].result, HOOP_INVALID_ARGUMENT);
        assert_non_null(strstr(ranks[r].why, "are neither device memory (any more) nor"));
    }
    sum_in_threads();
    assert_int_equal(ranks[0].result, HOOP_OK);
    end();
}

static void test_freed(void **state)
{
    static unsigned char host[BYTES];
    static const size_t counts[RANKS] = {1, 1, 1}, displs[RANKS] = {0, 1, 2};
    hoop_cu_address_t at = 0;
    char what[64];
    (void)state;
    make();
    struct rank *rank = &ranks[1];
    (void)enter_device_of(1);
    assert_int_equal(hoop_cuda.alloc(&at, BYTES), 0);
    assert_int_equal(hoop_cuda.free(at), 0);
    leave_device();
    unsigned char *freed = (unsigned char *)(uintptr_t)at;
    (void)snprintf(what, sizeof(what), "hoop_all_reduce: the %zu bytes at %p", BYTES,
                   (void *)freed);
    for (int side = 0; side < 4; side++) {
        const bool device = side >= 2;
        unsigned char *other = device ? rank->in : host;
        assert_int_equal(hoop_all_reduce(side % 2 ? other : freed, side % 2 ? freed : other, BYTES,
                                         HOOP_UINT8, HOOP_SUM, rank->comm,
                                         device ? rank->stream : NULL),
                         HOOP_INVALID_ARGUMENT);
        assert_non_null(strstr(hoop_get_last_error(NULL), what));
    }
    assert_int_equal(hoop_send(freed, 1, HOOP_UINT8, 0, rank->comm, rank->stream),
                     HOOP_INVALID_ARGUMENT);
    assert_non_null(strstr(hoop_get_last_error(NULL), "hoop_send: the 1 bytes at"));
    assert_int_equal(
        hoop_alltoallv(freed, counts, displs, host, counts, displs, HOOP_UINT8, rank->comm, NULL),
        HOOP_INVALID_ARGUMENT);
    sum_in_threads();
    assert_int_equal(ranks[0].result, HOOP_OK);
    end();
}

/* The device has failed before the call: its buffers do not count as host memory, nor its streams
 * as invalid. It is not a mistake in the call either, of which no other rank would be told. */
static void test_broken_before(void **state)
{
    const bool on_streams = strcmp(*state, "streams") == 0;
    hoop_stream_t streams[RANKS];
    hoop_result_t failed = HOOP_OK;
    make();
    break_device(1);
    (void)hoop_cuda.copy((uintptr_t)ranks[0].out, (uintptr_t)ranks[0].in, 1, ranks[0].stream);
    for (int r = 0; r < RANKS; r++) {
        streams[r] = ranks[r].stream;
        ranks[r].stream = on_streams ? streams[r] : NULL;
    }
    assert_int_equal(sum(&ranks[0]), HOOP_CUDA_ERROR);
    assert_int_equal(hoop_comm_get_async_error(ranks[2].comm, &failed), HOOP_OK);
    assert_int_equal(failed, HOOP_CUDA_ERROR);
    sum_in_threads();
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].result, HOOP_CUDA_ERROR);
        assert_non_null(strstr(ranks[r].why, "rank 0: cuPointerGetAttributes: CUDA_ERROR_ILLEGAL"));
        ranks[r].stream = streams[r];
    }
    end_comms();
    break_device(0);
    end();
}

/* One launch is refused: its rank reports that, and all others report the same. */
static void test_refused_launch(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= folds(); n++) {
        make();
        refuse(n);
        sum_in_threads();
        const char *why = strstr(ranks[0].why, ": rank ");
        assert_non_null(why);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ranks[r].result, HOOP_CUDA_ERROR);
            assert_non_null(strstr(ranks[r].why, why)); /* the rank, and the reason */
            assert_non_null(
                strstr(why, ": cuLaunchKernel: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"));
        }
        end();
    }
}

/* Each rank has the right sum, or an error that says which call of CUDA's was refused and why. */
static void assert_sum_or_reason(const char *call)
{
    for (int r = 0; r < RANKS; r++) {
        if (ranks[r].result == HOOP_OK) {
            assert_all(ranks[r].out, 6);
        } else if (ranks[r].result != HOOP_CUDA_ERROR || strstr(ranks[r].why, ": cu") == NULL ||
                   strstr(ranks[r].why, "CUDA_ERROR_FAKE (801)") == NULL ||
                   strstr(ranks[r].why, "has not ended") != NULL) {
            fail_msg("%s: rank %d returned %d: %s", call, r, ranks[r].result, ranks[r].why);
        }
    }
}

/* A call of the driver's is refused, whichever it is: nobody waits for what will not come, and all
 * that was pinned is given back with the comms. */
static void test_refused_calls(void **state)
{
    size_t bytes = 0, pinned = 0, before = 0;
    make_by(*state);
    sum_in_threads();
    end();
    use(&bytes, &before);
    for (size_t i = 0; failing_cuda_name(i) != NULL; i++) {
        const char *call = failing_cuda_name(i);
        for (unsigned n = 1, calls = n; calls >= n - 1 && n <= 3 * RANKS; n++) {
            make_by(*state);
            for (int r = 0; r < RANKS; r++) {
                memset(ranks[r].in + view, r + 1, BYTES);
            }
            failing_cuda_start(call, n, 1, 801);
            sum_in_threads();
            calls = failing_cuda_stop();
            assert_sum_or_reason(call);
            settle();
            end();
            use(&bytes, &pinned);
            assert_in_range(pinned, 0, before);
        }
    }
}

/* The same for ranks that one thread drives: the one that fails waits for the others, which still
 * use its buffers, and which must not be kept from leaving them. */
static void test_group_fails(void **state)
{
    const bool refused = strcmp(*state, "refuse") == 0;
    for (unsigned n = 1; n <= folds(); n++) {
        make();
        const uint64_t start = hoop_now_ns();
        delay(2000);
        (refused ? refuse : break_device)(n);
        sum_in_group();
        delay(0);
        assert_int_equal(ranks[0].result, HOOP_CUDA_ERROR);
        assert_non_null(strstr(ranks[0].why, refused ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"
                                                     : "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
        for (int r = 0; r < RANKS; r++) {
            hoop_result_t failed = HOOP_OK;
            assert_int_equal(hoop_comm_get_async_error(ranks[r].comm, &failed), HOOP_OK);
            assert_int_equal(failed, HOOP_CUDA_ERROR);
        }
        assert_true(hoop_now_ns() - start < 5 * HOOP_NS_PER_S);
        end_comms();
        break_device(0);
        end();
    }
}

static void *abort_main(void *arg)
{
    usleep(30000);
    hoop_comm_abort(((struct rank *)arg)->comm);
    return NULL;
}

static void sum_aborted(void (*sum_all)(void))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, abort_main, &ranks[2]), 0);
    sum_all();
    pthread_join(thread, NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_int_not_equal(ranks[r].result, HOOP_OK);
    }
}

/* While the streams are busy for long: calls return before that is over, and what is done later
 * harms nothing. */
static void test_abort(void **state)
{
    make_by(*state);
    fill(ranks[1].stream, ranks[1].in, 1, BYTES, 3000000);
    const uint64_t start = hoop_now_ns();
    sum_aborted(sum_in_threads);
    assert_true(hoop_now_ns() - start < 2500 * HOOP_NS_PER_MS);
    end();
}

/* While kernels run: none of them writes any more when the calls have returned. */
static void test_abort_in_kernel(void **state)
{
    const bool group = strcmp(*state, "group") == 0;
    make();
    const uint64_t start = hoop_now_ns();
    delay(200000);
    sum_aborted(group ? sum_in_group : sum_in_threads);
    delay(0);
    assert_true(hoop_now_ns() - start < 5 * HOOP_NS_PER_S);
    for (int r = 0; r < RANKS; r++) {
        memset(ranks[r].out + view, 0x77, BYTES);
    }
    usleep(300000);
    for (int r = 0; r < RANKS; r++) {
        assert_all(ranks[r].out, 0x77);
    }
    end();
}

/* The input of rank 1 ends beyond its allocation, so that the copy to the host is refused. */
static void test_too_short(void **state)
{
    make_by(*state);
    sum_in_threads();
    assert_int_equal(ranks[0].result, HOOP_OK);
    ranks[1].in += 61440;
    const uint64_t start = hoop_now_ns();
    sum_in_threads();
    assert_true(hoop_now_ns() - start < 10 * HOOP_NS_PER_S);
    for (int r = 0; r < RANKS; r++) {
        assert_int_not_equal(ranks[r].result, HOOP_OK);
        assert_non_null(strstr(ranks[r].why, "rank 1"));
    }
    ranks[1].in -= 61440;
    end();
}

#define ON_DEVICE(test) cmocka_unit_test_prestate(test, (void *)(uintptr_t) "direct")
#define BY_HOST(test) cmocka_unit_test_prestate(test, (void *)(uintptr_t) "slab")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_freed),
        cmocka_unit_test_prestate(test_broken_before, (void *)(uintptr_t) "streams"),
        cmocka_unit_test_prestate(test_broken_before, (void *)(uintptr_t) "default"),
        cmocka_unit_test(test_refused_launch),
        cmocka_unit_test_prestate(test_group_fails, (void *)(uintptr_t) "refuse"),
        cmocka_unit_test_prestate(test_group_fails, (void *)(uintptr_t) "break"),
        BY_HOST(test_too_short),
        BY_HOST(test_refused_calls),
        ON_DEVICE(test_refused_calls),
        ON_DEVICE(test_broken),
        BY_HOST(test_broken),
        ON_DEVICE(test_abort),
        BY_HOST(test_abort),
        cmocka_unit_test_prestate(test_abort_in_kernel, (void *)(uintptr_t) "threads"),
        cmocka_unit_test_prestate(test_abort_in_kernel, (void *)(uintptr_t) "group"),
    };
    return cmocka_run_group_tests_name("device fails", tests, setup, NULL);
}

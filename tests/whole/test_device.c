/*
 * Buffers on a device, over the fake driver that HOOP_CUDA names: the order that streams give, what
 * is kept and freed, and failures. Every collective with its data is tested by
 * test_every_collective.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "memory/cuda.h"
#include "staging/order.h"
#include "whole/device_world.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Order ---- */

/* An operation sees what was put on the stream before, and what comes behind sees its result. */
static void test_order(void **state)
{
    make_by(*state);
    for (int round = 1; round <= 20; round++) {
        for (int r = 0; r < RANKS; r++) {
            fill(ranks[r].stream, ranks[r].in, 0xee, BYTES, 0);
            fill(ranks[r].stream, ranks[r].in, round + r, BYTES, round % 4 == 0 ? 5000 : 100);
            fill(ranks[r].stream, ranks[r].out, 0x11, BYTES, 500);
        }
        sum_in_threads();
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ranks[r].result, HOOP_OK);
            assert_all(ranks[r].out, 3 * round + 3);
        }
    }
    end();
}

/* CUDA's default streams with all of their names: the device's, and the calling thread's. */
static void test_default_streams(void **state)
{
    const hoop_stream_t names[] = {NULL, FAKE_STREAM_LEGACY, FAKE_STREAM_OF_THREAD};
    hoop_stream_t streams[RANKS];
    make_by(*state);
    for (int round = 1; round <= 9; round++) {
        for (int r = 0; r < RANKS; r++) {
            streams[r] = ranks[r].stream;
            ranks[r].stream = names[round % 3];
            (void)enter_device_of(r);
            fill(ranks[r].stream, ranks[r].in, round + r, BYTES, 20000);
            fill(ranks[r].stream, ranks[r].out, 0x11, BYTES, 500);
            leave_device();
        }
        sum_in_group();
        assert_int_equal(ranks[0].result, HOOP_OK);
        for (int r = 0; r < RANKS; r++) {
            assert_all(ranks[r].out, 3 * round + 3);
            ranks[r].stream = streams[r];
        }
    }
    end();
}

/* The stream of a call may belong to another device than its buffers. */
static void test_stream_elsewhere(void **state)
{
    hoop_stream_t first = NULL;
    make_by(*state);
    for (int r = 0; r < RANKS; r++) {
        memset(ranks[r].in + view, r + 1, BYTES);
    }
    /* no rank touches it before all ranks' streams have come */
    fill(ranks[1].stream, ranks[1].out, 0x11, BYTES, 200000);
    const hoop_stream_t busy = ranks[1].stream;
    first = ranks[0].stream;
    ranks[0].stream = busy;
    ranks[1].stream = first;
    const uint64_t start = hoop_now_ns();
    sum_in_threads();
    assert_true(hoop_now_ns() - start >= 190 * HOOP_NS_PER_MS);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].result, HOOP_OK);
        assert_all(ranks[r].out, 6);
    }
    end();
}

/* A host buffer with a stream is ordered on that stream, too. */
static void test_host_buffers(void **state)
{
    (void)state;
    static unsigned char host[RANKS][BYTES];
    make();
    for (int r = 0; r < RANKS; r++) {
        memset(host[r], r + 1, BYTES);
        fill(ranks[r].stream, ranks[r].in, 9, BYTES, 20000);
    }
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        hoop_all_reduce(host[r], host[r], BYTES, HOOP_UINT8, HOOP_SUM, ranks[r].comm,
                        ranks[r].stream);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(host[r][BYTES - 1], 6);
        assert_all(ranks[r].in, 9); /* the stream was waited for */
    }
    end();
}

/* Kernels fold, or copies stay inside the device. Nothing goes to the host, and only buffers of
 * ranks on the host cause copies back. */
static void test_stays_there(void **state)
{
    (void)state;
    static unsigned char host[BYTES];
    make();
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].in, r + 1, BYTES, 1000);
    }
    const unsigned before = host_copies(), kernels = launches();
    sum_in_threads();
    assert_all(ranks[1].out, 6);
    assert_int_equal(launches(), kernels + folds());
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        hoop_all_gather(ranks[r].in, ranks[r].out, BYTES / RANKS, HOOP_UINT8, ranks[r].comm,
                        ranks[r].stream);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[0].out[(ptrdiff_t)(BYTES / RANKS * (size_t)i) + view], i + 1);
    }
    /* on one device one rank copies, each block by one kernel to all */
    assert_int_equal(launches(), kernels + folds() + (folds() == 1 ? RANKS : 0));
    assert_int_equal(host_copies(), before);
    unsigned char *const in = ranks[2].in;
    memset(host, 3, BYTES);
    ranks[2].in = host;
    sum_in_threads();
    ranks[2].in = in;
    assert_all(ranks[0].out, 6);
    assert_int_equal(host_copies(), before + 2 * RANKS - 1);
    end();
}

static void test_transfers(void **state)
{
    (void)state;
    make();
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].in, 50 + r, BYTES, 2000);
    }
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        hoop_send(ranks[r].in, BYTES, HOOP_UINT8, (r + 1) % RANKS, ranks[r].comm, ranks[r].stream);
        hoop_recv(ranks[r].out, BYTES, HOOP_UINT8, (r + RANKS - 1) % RANKS, ranks[r].comm,
                  ranks[r].stream);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        assert_all(ranks[r].out, 50 + (r + RANKS - 1) % RANKS);
    }
    end();
}

static void test_alltoallv(void **state)
{
    (void)state;
    static const size_t counts[RANKS] = {1000, 1000, 1000}, displs[RANKS] = {0, 1000, 2000};
    make();
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].in, 20 + r, BYTES, 3000);
    }
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        hoop_alltoallv(ranks[r].in, counts, displs, ranks[r].out, counts, displs, HOOP_UINT8,
                       ranks[r].comm, ranks[r].stream);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < 3000; i++) {
            assert_int_equal(ranks[r].out[i + view], 20 + i / 1000);
        }
    }
    end();
}

/* One rank's output is on the host, or is empty: that rank delivers nothing, the others do. */
static void test_alltoallv_uneven(void **state)
{
    static const size_t displs[RANKS] = {0, 1000, 2000};
    static unsigned char host[RANKS * 1000];
    const bool empty = strcmp(*state, "empty") == 0;
    const size_t last = empty ? 0 : 1000;
    const size_t sends[RANKS] = {1000, 1000, last}, all[RANKS] = {1000, 1000, 1000};
    const size_t none[RANKS] = {0};
    make();
    for (int r = 0; r < RANKS; r++) {
        fill(ranks[r].stream, ranks[r].in, 20 + r, BYTES, 3000);
    }
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        const bool mine = r == RANKS - 1;
        hoop_alltoallv(ranks[r].in, sends, displs, mine && !empty ? host : ranks[r].out,
                       mine && empty ? none : all, displs, HOOP_UINT8, ranks[r].comm,
                       ranks[r].stream);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        const unsigned char *out = r == RANKS - 1 ? host : ranks[r].out + view;
        for (int i = 0; i < 3000 && !(empty && r == RANKS - 1); i++) {
            assert_int_equal(out[i], 20 + i / 1000);
        }
    }
    end();
}

/* Each input is multiplied by its rank's factor, where all of them lie or on the host. */
static void test_device_scalar(void **state)
{
    size_t bytes = 0, pinned = 0, pinned_after = 0;
    make_by(*state);
    use(&bytes, &pinned);
    hoop_red_op_t op[RANKS];
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        memset(ranks[r].in + view, 2, BYTES);
        ranks[r].out[view] = (unsigned char)(r + 1); /* the factor */
        assert_int_equal(hoop_red_op_create_pre_mul_sum(&op[r], ranks[r].out, HOOP_UINT8,
                                                        HOOP_SCALAR_DEVICE, ranks[r].comm),
                         HOOP_OK);
        hoop_all_reduce(ranks[r].in, ranks[r].out, BYTES, HOOP_UINT8, op[r], ranks[r].comm, NULL);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    assert_all(ranks[2].out, 2 * 1 + 2 * 2 + 2 * 3);
    use(&bytes, &pinned_after);
    assert_int_equal(pinned_after, pinned + (strcmp(*state, "slab") == 0 ? RANKS : 0));
    unsigned char host = 1;
    assert_int_equal(hoop_red_op_create_pre_mul_sum(&op[0], &host, HOOP_UINT8, HOOP_SCALAR_DEVICE,
                                                    ranks[0].comm),
                     HOOP_INVALID_ARGUMENT);
    end();
}

/* ---- What is kept ---- */

static void test_nothing_is_left(void **state)
{
    size_t bytes = 0, pinned = 0, bytes_after = 0, pinned_after = 0;
    int device = 7;
    use(&bytes, &pinned);
    make_by(*state);
    assert_int_equal(hoop_comm_cu_device(ranks[0].comm, &device), HOOP_OK);
    assert_int_equal(device, 0);
    sum_in_threads();
    use(&bytes_after, &pinned_after);
    assert_int_equal(bytes_after, bytes + (size_t)2 * RANKS * 65536); /* whole units of CUDA */
    assert_int_equal(pinned_after, pinned + (strcmp(*state, "slab") == 0 ? RANKS : 0));
    end();
    use(&bytes_after, &pinned_after);
    assert_int_equal(bytes_after, bytes);
    assert_int_equal(pinned_after, pinned);
}

/* Marks: each owner has a word of its own as long as there are some, and words are used again. */
static void test_marks(void **state)
{
    enum { MORE_THAN_THERE_ARE = 3000 };
    static struct hoop_mark marks[MORE_THAN_THERE_ARE];
    int words = 0;
    (void)state;
    make();
    (void)enter_device_of(0);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < MORE_THAN_THERE_ARE; i++) {
            hoop_mark_take(&marks[i]);
            words += marks[i].word != 0;
            assert_int_equal(hoop_mark_awaited(&marks[i]), 0);
        }
        fill(ranks[0].stream, ranks[0].in, 1, BYTES, 50000);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(hoop_mark_put(&marks[turn], ranks[0].stream), HOOP_OK);
        }
        assert_int_equal(hoop_mark_awaited(&marks[turn]), 3);
        assert_int_equal(hoop_mark_awaited(&marks[1 - turn]), 0);
        assert_int_equal(hoop_cuda.stream_synchronize(ranks[0].stream), 0);
        for (int i = 0; i < MORE_THAN_THERE_ARE; i++) {
            assert_int_equal(hoop_mark_awaited(&marks[i]), 0);
            hoop_mark_give(&marks[i]);
        }
    }
    assert_in_range(words, 2 * 1000, 2 * 1024);
    leave_device();
    end();
}

/* A comm without device buffers leaves nothing behind, and logs nothing. */
static void test_unused(void **state)
{
    (void)state;
    make();
    assert_int_equal(hoop_comm_destroy(NULL), HOOP_OK);
    const char *before = hoop_get_last_error(NULL);
    char text[512];
    strncpy(text, before, sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    end_comms();
    assert_string_equal(hoop_get_last_error(NULL), text);
    end();
}

/* ---- Mistakes ---- */

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
        for (int r = 0; r < RANKS; r++) {
            failed += ranks[r].result != HOOP_OK;
            named += strstr(ranks[r].why, "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL;
            if (ranks[r].result == HOOP_OK) {
                assert_all(ranks[r].out, 6);
            }
        }
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
        BY_HOST(test_too_short),
        ON_DEVICE(test_order),
        BY_HOST(test_order),
        ON_DEVICE(test_default_streams),
        BY_HOST(test_default_streams),
        ON_DEVICE(test_stream_elsewhere),
        BY_HOST(test_stream_elsewhere),
        cmocka_unit_test(test_host_buffers),
        cmocka_unit_test(test_stays_there),
        cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_alltoallv),
        cmocka_unit_test_prestate(test_alltoallv_uneven, (void *)(uintptr_t) "host"),
        cmocka_unit_test_prestate(test_alltoallv_uneven, (void *)(uintptr_t) "empty"),
        ON_DEVICE(test_device_scalar),
        BY_HOST(test_device_scalar),
        ON_DEVICE(test_nothing_is_left),
        BY_HOST(test_nothing_is_left),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_unused),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_freed),
        cmocka_unit_test_prestate(test_broken_before, (void *)(uintptr_t) "streams"),
        cmocka_unit_test_prestate(test_broken_before, (void *)(uintptr_t) "default"),
        cmocka_unit_test(test_refused_launch),
        cmocka_unit_test_prestate(test_group_fails, (void *)(uintptr_t) "refuse"),
        cmocka_unit_test_prestate(test_group_fails, (void *)(uintptr_t) "break"),
        ON_DEVICE(test_broken),
        BY_HOST(test_broken),
        ON_DEVICE(test_abort),
        BY_HOST(test_abort),
        cmocka_unit_test_prestate(test_abort_in_kernel, (void *)(uintptr_t) "threads"),
        cmocka_unit_test_prestate(test_abort_in_kernel, (void *)(uintptr_t) "group"),
    };
    return cmocka_run_group_tests_name("device", tests, setup, NULL);
}

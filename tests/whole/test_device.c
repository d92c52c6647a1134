/*
 * Buffers on a device, over the fake driver that HOOP_CUDA names: the order that streams give, and
 * what is kept and freed. Every collective with its data is tested by test_every_collective,
 * failures by test_device_fails.
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

#include <string.h>

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

#define ON_DEVICE(test) cmocka_unit_test_prestate(test, (void *)(uintptr_t) "direct")
#define BY_HOST(test) cmocka_unit_test_prestate(test, (void *)(uintptr_t) "slab")

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests_name("device", tests, setup, NULL);
}

/* Copies in pieces while the operation runs over TCP (lib/transfer/overlap.h), with pieces and
 * chunks of 4 KiB. Every collective with its data is tested by test_every_collective. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "whole/device_world.h"

#include <pthread.h>
#include <string.h>

static unsigned char at_byte(size_t i, int round)
{
    return (unsigned char)(i / 4096 * 7 + i % 251 + (size_t)round);
}

static void *broadcast_main(void *arg)
{
    struct rank *rank = arg;
    rank->result =
        hoop_broadcast(rank->in, rank->out, BYTES, HOOP_UINT8, 0, rank->comm, rank->stream);
    strncpy(rank->why, hoop_get_last_error(NULL), sizeof(rank->why) - 1);
    return NULL;
}

static void broadcast_in_threads(void)
{
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(pthread_create(&threads[r], NULL, broadcast_main, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
    }
}

/* The root gets the fifth of ten pieces from its device only when another rank delivers a piece to
 * its own, so the first pieces have gone through the network by then. A step that does not wait for
 * its piece, or a delivery that does not wait for its step, uses data of the round before. */
static void test_order_of_pieces(void **state)
{
    (void)state;
    make_by("chain");
    broadcast_in_threads(); /* the first call on a device loads kernels, which waits for streams */
    settle();
    for (int round = 1; round <= 3; round++) {
        for (size_t i = 0; i < BYTES; i++) {
            ranks[0].in[(ptrdiff_t)i + view] = at_byte(i, round);
        }
        const unsigned before = host_copies();
        hold();
        broadcast_in_threads();
        settle();
        assert_in_range(host_copies() - before, (1 + RANKS) * (BYTES / 8192), 1000);
        for (int r = 0; r < RANKS; r++) {
            assert_string_equal(ranks[r].result == HOOP_OK ? "" : ranks[r].why, "");
            for (size_t i = 0; i < BYTES; i++) {
                assert_int_equal(ranks[r].out[(ptrdiff_t)i + view], at_byte(i, round));
            }
        }
    }
    end();
}

/* At whichever copy the device breaks, there is an error that names it, or the right sum; and
 * nothing hangs. */
static void test_broken(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 60; n += 3) {
        make_by("ring");
        for (int r = 0; r < RANKS; r++) {
            memset(ranks[r].in + view, r + 1, BYTES);
        }
        break_device(n);
        sum_in_threads();
        int failed = 0, named = 0;
        count_failed(&failed, &named);
        assert_true(failed > 0 && named > 0);
        end_comms();
        break_device(0);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_pieces),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests_name("device overlap", tests, setup, NULL);
}

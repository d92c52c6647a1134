/*
 * The contract of transports/transport.h for hints, which change no result with any transport:
 * receivers offer memory, sends say where they belong, and a rank's two ends with one peer are told
 * of each other. Usage: `test_transport_places inproc|shm|tcp|rdma [faulty]`
 */
#include "harness/splitmix.h"
#include "memory/region.h"
#include "transports/link_stream.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK 70001u
#define SLOTS 4u
#define ROOM 200000u
#define PLACE 1013u

static const struct hoop_transport *transport;
static struct pair pair;

/* A region or plain memory; its last bytes are never written. */
struct memory {
    uint8_t *data;
    bool region;
};

static struct memory memory_get(bool region)
{
    struct memory memory = {.data = NULL, .region = region};
    void *data = NULL;
    if (region) {
        assert_int_equal(hoop_region_alloc(ROOM + 1, HOOP_MEM_HOST, &data), HOOP_OK);
        memory.data = data;
    } else {
        memory.data = malloc(ROOM + 1);
    }
    assert_non_null(memory.data);
    memset(memory.data, 0xee, ROOM + 1);
    return memory;
}

static void memory_free(struct memory *memory)
{
    if (memory->region) {
        assert_int_equal(hoop_region_free(memory->data), HOOP_OK);
    } else {
        free(memory->data);
    }
    memory->data = NULL;
}

static int open_pair(void **state)
{
    (void)state;
    return pair_open(&pair, transport, SLOTS, CHUNK) == HOOP_OK ? 0 : -1;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return pair_nothing_left() ? 0 : -1;
}

/* Posts a send that belongs at `place`. */
static hoop_result_t send_to(struct item *item, void *data, size_t bytes, uint32_t number,
                             uint64_t place)
{
    item_fill(item, data, bytes, number);
    item->xfer.has_place = true;
    item->xfer.place = place;
    hoop_result_t result = HOOP_AGAIN;
    for (int i = 0; result == HOOP_AGAIN && i < 2000; i++) {
        result = hoop_link_send(pair.sender, &item->xfer);
        if (result == HOOP_AGAIN) {
            (void)hoop_link_progress(pair.sender);
            if (pair.receiver != NULL) {
                (void)hoop_link_progress(pair.receiver);
            }
        }
    }
    return result;
}

/* Sends one chunk to its place. early: it is sent, and time passes, before the receive is
 * posted. */
static void move(uint8_t *from, uint8_t *to, size_t bytes, uint32_t number, bool early)
{
    struct item send, recv;
    pattern_fill(from, bytes, number);
    if (!early) {
        assert_int_equal(pair_recv(&pair, &recv, to + PLACE, bytes, number), HOOP_OK);
    }
    assert_int_equal(send_to(&send, from, bytes, number, PLACE), HOOP_OK);
    if (early) {
        pair_settle(&pair);
        assert_int_equal(pair_recv(&pair, &recv, to + PLACE, bytes, number), HOOP_OK);
    }
    assert_true(pair_until_done(&pair, &recv) && pair_until_done(&pair, &send));
    assert_int_equal(recv.result, HOOP_OK);
    assert_int_equal(send.result, HOOP_OK);
    assert_true(pattern_is(to + PLACE, bytes, number));
    assert_int_equal(to[PLACE - 1], 0xee);
    assert_int_equal(to[PLACE + bytes], 0xee);
    memset(to, 0xee, ROOM + 1);
}

enum offered { NOTHING, ALL, ANOTHER_OPERATION, TOO_LITTLE, OFFERS };

static void offer(uint8_t *to, enum offered what, uint32_t number, size_t bytes)
{
    if (what == ALL) {
        hoop_link_offer(pair.receiver, number, to, ROOM);
        pair_settle(&pair);
    } else if (what == ANOTHER_OPERATION) {
        hoop_link_offer(pair.receiver, number + 1, to, ROOM);
    } else if (what == TOO_LITTLE) {
        hoop_link_offer(pair.receiver, number, to, PLACE + bytes - 1);
    }
}

/* Any sizes, from and to memory of any kind, offered or not. */
static void test_offers(void **state)
{
    (void)state;
    static const size_t sizes[] = {CHUNK, 32767, 1, 5000, 32768, 40001};
    const size_t size_count = pair_has_device() ? 2 : 6; /* an emulated device is slow */
    uint32_t number = 1;
    for (unsigned kinds = 0; kinds < 4; kinds++) {
        struct memory from = memory_get((kinds & 1) != 0), to = memory_get((kinds & 2) != 0);
        for (size_t i = 0; i < size_count; i++) {
            for (unsigned what = 0; what < 2 * OFFERS; what++) {
                offer(to.data, what / 2, number, sizes[i]);
                move(from.data + what, to.data, sizes[i], number, what % 2 != 0);
                number += 2;
            }
        }
        memory_free(&from);
        memory_free(&to);
    }
}

/* Freed memory is forgotten: new memory at the same address is sent and received as such. */
static void test_same_address(void **state)
{
    (void)state;
    uint8_t *before[2] = {NULL, NULL};
    unsigned again = 0;
    for (uint32_t round = 0; round < 5; round++) {
        struct memory from = memory_get(true), to = memory_get(true);
        again += from.data == before[0] && to.data == before[1];
        before[0] = from.data;
        before[1] = to.data;
        for (uint32_t i = 0; i < 2; i++) {
            offer(to.data, ALL, 2 * round + i, CHUNK);
            move(from.data, to.data, CHUNK, 2 * round + i, i == 0);
        }
        memory_free(&from);
        memory_free(&to);
    }
    assert_true(again > 0);
}

/* Chunks of one operation, each to its place, as many as there is room for, with lent ones in
 * between. What was offered is no longer accessed once the receiver's end is gone. */
static void test_many(void **state)
{
    (void)state;
    const size_t bytes = 40000;
    struct memory from = memory_get(true), to = memory_get(true);
    pattern_fill(from.data, 4 * bytes, 7);
    for (uint32_t round = 1; round < 10; round++) {
        struct item send[4], recv[4];
        hoop_link_offer(pair.receiver, round, to.data, ROOM);
        for (uint32_t i = 0; i < 4; i++) {
            const bool lent = (round + i) % 5 == 0;
            uint8_t *data = from.data + i * bytes;
            assert_int_equal(
                pair_recv(&pair, &recv[i], lent ? NULL : to.data + i * bytes, bytes, round),
                HOOP_OK);
            assert_int_equal(lent ? pair_send(&pair, &send[i], data, bytes, round)
                                  : send_to(&send[i], data, bytes, round, i * bytes),
                             HOOP_OK);
        }
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(pair_until_done(&pair, &recv[i]) && pair_until_done(&pair, &send[i]));
            assert_memory_equal(recv[i].xfer.data, from.data + i * bytes, bytes);
            if (recv[i].xfer.lent) {
                hoop_link_release(pair.receiver, &recv[i].xfer);
            }
        }
    }
    static struct item last;
    hoop_link_offer(pair.receiver, 99, to.data, ROOM);
    pair_settle(&pair);
    hoop_link_destroy(pair.receiver);
    pair.receiver = NULL;
    memset(to.data, 0xdd, ROOM);
    (void)send_to(&last, from.data, bytes, 99, 0);
    for (int i = 0; i < 100; i++) {
        (void)hoop_link_progress(pair.sender);
    }
    for (size_t i = 0; i < ROOM; i++) {
        assert_int_equal(to.data[i], 0xdd);
    }
    hoop_link_destroy(pair.sender);
    pair.sender = NULL;
    memory_free(&from);
    memory_free(&to);
}

/* ---- Both ways ------------------------------------------------------------------------------- */

/* Through shared memory, chunks that are given back at once go round in all that was wanted. */
static void test_go_round(void **state)
{
    (void)state;
    enum { AROUND = 16 };
    static uint8_t chunk[CHUNK];
    const void *at[3 * AROUND];
    struct pair wide = {.transport = transport,
                        .slots = SLOTS,
                        .chunk_bytes = CHUNK,
                        .round_bytes = (uint64_t)AROUND * CHUNK};
    assert_int_equal(pair_make(&wide), HOOP_OK);
    assert_int_equal(pair_join(&wide), HOOP_OK);
    for (uint32_t i = 0; i < 3 * AROUND; i++) {
        struct item send, recv;
        assert_int_equal(pair_send(&wide, &send, chunk, CHUNK, i), HOOP_OK);
        assert_int_equal(pair_recv(&wide, &recv, NULL, CHUNK, i), HOOP_OK);
        assert_true(pair_until_done(&wide, &recv) && pair_until_done(&wide, &send));
        at[i] = recv.xfer.data;
        for (uint32_t before = i < AROUND ? 0 : i + 1 - AROUND; before < i; before++) {
            assert_ptr_not_equal(at[before], at[i]);
        }
        hoop_link_release(wide.receiver, &recv.xfer);
    }
    pair_close(&wide);
}

/* One direction between the two ranks, and what it has lent. */
struct way {
    struct pair pair;
    struct item send[SLOTS], recv[SLOTS];
    uint32_t sent, lents, lent[SLOTS];
};

static void open_way(struct way *way, bool back)
{
    *way = (struct way){.pair = {.transport = transport,
                                 .slots = SLOTS,
                                 .chunk_bytes = CHUNK,
                                 .buffer_bytes = CHUNK,
                                 .back = back}};
    assert_int_equal(pair_make(&way->pair), HOOP_OK);
    assert_int_equal(pair_join(&way->pair), HOOP_OK);
}

/* In any order. */
static void give_back(struct way *way, uint64_t random)
{
    for (; way->lents > 0; way->lents--, random /= SLOTS) {
        uint32_t *which = &way->lent[random % way->lents];
        struct hoop_xfer *xfer = &way->recv[*which].xfer;
        assert_true(pattern_is(xfer->data, xfer->bytes, xfer->op));
        hoop_link_release(way->pair.receiver, xfer);
        *which = way->lent[way->lents - 1];
    }
}

/* Some chunks of any size, copied, or lent until the next ones in this direction. */
static void move_some(struct way *way, uint64_t random)
{
    static const size_t sizes[] = {CHUNK, CHUNK, 961, 960, 0, 1, 20000, 8192};
    static uint8_t from[SLOTS][CHUNK], to[SLOTS][CHUNK];
    const uint32_t count = 1 + random % (SLOTS - 1);
    give_back(way, random >> 8);
    for (uint32_t i = 0; i < count; i++) {
        const size_t bytes = sizes[random >> (16 + 3 * i) & 7];
        const bool lend = (random >> (32 + i) & 1) != 0;
        const uint32_t number = way->sent++;
        pattern_fill(from[i], bytes, number);
        assert_int_equal(pair_recv(&way->pair, &way->recv[i], lend ? NULL : to[i], bytes, number),
                         HOOP_OK);
        assert_int_equal(pair_send(&way->pair, &way->send[i], from[i], bytes, number), HOOP_OK);
        way->lent[way->lents] = i;
        way->lents += lend;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct hoop_xfer *xfer = &way->recv[i].xfer;
        assert_true(pair_until_done(&way->pair, &way->recv[i]));
        assert_true(pair_until_done(&way->pair, &way->send[i]));
        assert_int_equal(way->recv[i].result, HOOP_OK);
        assert_true(pattern_is(xfer->data, xfer->bytes, xfer->op));
    }
}

static void pair_ways(struct way *ways, bool first, bool second)
{
    if (first) {
        hoop_link_pair(ways[0].pair.sender, ways[1].pair.receiver);
    }
    if (second) {
        hoop_link_pair(ways[1].pair.sender, ways[0].pair.receiver);
    }
}

/* A rank's two ends with one peer are told of each other on neither rank, on one, or on both, at
 * first or later; and most chunks go in one direction, in the other, or as many in both. */
static void test_paired(void **state)
{
    (void)state;
    static struct way ways[2];
    uint64_t random = 5;
    for (uint32_t round = 0; round < (pair_has_device() ? 8 : 48); round++) {
        open_way(&ways[0], false);
        open_way(&ways[1], true);
        for (uint32_t step = 0; step < 60; step++) {
            const uint64_t drawn = splitmix(&random);
            if (step == (round >> 2 & 1) * 20) {
                pair_ways(ways, (round & 1) != 0, (round & 2) != 0);
            }
            move_some(&ways[drawn % 5 < 1 + round / 16], drawn >> 8);
        }
        give_back(&ways[0], random);
        give_back(&ways[1], random);
        pair_close(&ways[round % 2].pair);
        pair_close(&ways[1 - round % 2].pair);
        assert_true(pair_nothing_left());
    }
}

int main(int argc, char **argv)
{
    transport = pair_transport(argc, argv);
    if (transport == NULL) {
        fprintf(stderr, "usage: %s inproc|shm|tcp|rdma [faulty]\n", argv[0]);
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_offers, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_same_address, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_many, open_pair, close_pair),
        cmocka_unit_test(test_paired),
    };
    const struct CMUnitTest of_shm[] = {cmocka_unit_test(test_go_round)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return strcmp(transport->name, "shm") == 0 ? failed + cmocka_run_group_tests(of_shm, NULL, NULL)
                                               : failed;
}

/*
 * RDMA without copies, over fake devices (fakes/fake_verbs.h): from where to where payload goes,
 * when a send is done, what a key allows, and what a peer may not say. That results are right is
 * tested in test_transport_places.c.
 */
#include "base/clock.h"
#include "base/log.h"
#include "fakes/fake_verbs.h"
#include "memory/region.h"
#include "transports/link_pair.h"
#include "transports/rdma/rdma_link.h"
#include "transports/table.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define CHUNK 65536u
#define SLOTS 4u
#define ROOM ((size_t)3 * CHUNK)

static struct pair pair;
static uint8_t *from, *to; /* regions */

static uint8_t *get(void)
{
    void *data = NULL;
    assert_int_equal(hoop_region_alloc(ROOM, HOOP_MEM_HOST, &data), HOOP_OK);
    return data;
}

static int open_pair(void **state)
{
    (void)state;
    memset(&fake_counts, 0, sizeof(fake_counts));
    from = get();
    to = get();
    return pair_open(&pair, &hoop_transport_rdma, SLOTS, CHUNK) == HOOP_OK ? 0 : -1;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    (void)hoop_region_free(from);
    (void)hoop_region_free(to);
    return fake_counts.open == 0 && fake_counts.memories == 0 && pair_nothing_left() ? 0 : -1;
}

static hoop_result_t send_to(struct item *item, uint8_t *data, size_t bytes, uint32_t number,
                             uint64_t place)
{
    item_fill(item, data, bytes, number);
    item->xfer.has_place = true;
    item->xfer.place = place;
    return hoop_link_send(pair.sender, &item->xfer);
}

/* Offers are sent only after the first chunk: before that the peer may not listen. */
static void say_hello(void)
{
    static uint8_t word[8], heard[8];
    struct item send, recv;
    const uint64_t before = fake_counts.words;
    hoop_link_offer(pair.receiver, 900, to, ROOM);
    pair_settle(&pair);
    assert_int_equal(fake_counts.words, before);
    assert_int_equal(pair_send(&pair, &send, word, sizeof(word), 900), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv, heard, sizeof(heard), 900), HOOP_OK);
    assert_true(pair_until_done(&pair, &recv) && pair_until_done(&pair, &send));
}

/* ---- Where payload goes ---------------------------------------------------------------------- */

/* The place of the payload in the slot that the next chunk uses. */
static uint8_t *next_payload(struct hoop_link *link)
{
    const struct hoop_rdma_link *rdma = hoop_rdma_from(link);
    return hoop_rdma_slot(rdma, rdma->head) + HOOP_RDMA_HEADER_BYTES;
}

static bool is_all(const uint8_t *data, size_t bytes, uint8_t value)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != value) {
            return false;
        }
    }
    return true;
}

/* Sends a chunk from data to `to + 5`. Returns through which rank's slot it went, if any. */
static void move(uint8_t *data, size_t bytes, uint32_t number, bool *ret_mine, bool *ret_peer)
{
    struct item send, recv;
    uint8_t *mine = next_payload(pair.sender), *peer = next_payload(pair.receiver);
    memset(mine, 0x55, bytes);
    memset(peer, 0x55, bytes);
    pattern_fill(data, bytes, number);
    assert_int_equal(send_to(&send, data, bytes, number, 5), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv, to + 5, bytes, number), HOOP_OK);
    assert_true(pair_until_done(&pair, &recv) && pair_until_done(&pair, &send));
    assert_int_equal(recv.result, HOOP_OK);
    assert_true(pattern_is(to + 5, bytes, number));
    *ret_mine = !is_all(mine, bytes, 0x55);
    *ret_peer = !is_all(peer, bytes, 0x55);
}

static void test_ways(void **state)
{
    (void)state;
    static uint8_t plain[CHUNK];
    const struct {
        uint8_t *from;
        size_t bytes;
        bool offered, mine, peer; /* the slots that it goes through */
    } cases[] = {
        {from, CHUNK, true, false, false},
        {from, CHUNK, false, false, true},
        {plain, CHUNK, true, true, false},
        {plain, CHUNK, false, true, true},
        {from + 3, 32768, true, false, false},
        {from, 32767, true, true, true}, /* a copy is faster */
    };
    say_hello();
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool mine = false, peer = false;
        const unsigned writes = fake_counts.writes;
        if (cases[i].offered) {
            hoop_link_offer(pair.receiver, i, to, ROOM);
            pair_settle(&pair);
        }
        move(cases[i].from, cases[i].bytes, i, &mine, &peer);
        assert_int_equal(mine, cases[i].mine);
        assert_int_equal(peer, cases[i].peer);
        /* what lies right behind its header at both ends is written together with it */
        assert_int_equal(fake_counts.writes - writes, mine && peer ? 1 : 2);
    }
}

/* The payload is there before the receive is posted. */
static void test_early(void **state)
{
    (void)state;
    static struct item send; /* pending to the end */
    say_hello();
    hoop_link_offer(pair.receiver, 1, to, ROOM);
    pair_settle(&pair);
    pattern_fill(from, CHUNK, 1);
    assert_int_equal(send_to(&send, from, CHUNK, 1, 1000), HOOP_OK);
    assert_true(pattern_is(to + 1000, CHUNK, 1));
}

/* A send is not done before the word behind it has arrived, because the device reads the buffer. */
static void test_done(void **state)
{
    (void)state;
    static uint8_t plain[CHUNK];
    static struct item direct, copied, recv[2];
    fake_holds = true;
    assert_int_equal(send_to(&direct, from, CHUNK, 1, 0), HOOP_OK);
    assert_int_equal(pair_send(&pair, &copied, plain, CHUNK, 2), HOOP_OK);
    pair_settle(&pair);
    assert_int_equal(direct.done + copied.done, 0); /* in order */
    fake_holds = false;
    assert_int_equal(pair_recv(&pair, &recv[0], to, CHUNK, 1), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv[1], to, CHUNK, 2), HOOP_OK);
    assert_true(pair_until_done(&pair, &copied) && pair_until_done(&pair, &recv[1]));
    assert_int_equal(direct.result, HOOP_OK);
    fake_holds = true;
    assert_int_equal(send_to(&direct, from, CHUNK, 3, 0), HOOP_OK);
    hoop_link_abandon(pair.sender);
    pair.sender = NULL;
    fake_holds = false;
    assert_int_equal(direct.done, 1);
    assert_int_equal(direct.result, HOOP_ABORTED);
}

/* A receiver that leaves says what it has received, since the device's own answers may be lost with
 * it. */
static void test_last_words(void **state)
{
    (void)state;
    static struct item send[2];
    struct hoop_rdma_link *sender = hoop_rdma_from(pair.sender);
    fake_holds = true;
    assert_int_equal(send_to(&send[0], from, CHUNK, 1, 0), HOOP_OK);
    assert_int_equal(send_to(&send[1], from, CHUNK, 2, 0), HOOP_OK);
    hoop_rdma_sender_hears(sender, (uint32_t)HOOP_RDMA_GOODBYE << 30 | 1, NULL);
    (void)hoop_link_progress(pair.sender);
    assert_int_equal(send[0].done, 1);
    assert_int_equal(send[0].result, HOOP_OK);
    assert_int_equal(send[1].done, 0);
    sender->left_ns -= 2 * HOOP_NS_PER_S;
    (void)hoop_link_progress(pair.sender);
    assert_int_equal(send[1].result, HOOP_REMOTE_ERROR);
    assert_non_null(strstr(pair.sender->failure.text, "rank 1 has left the communicator"));
    fake_holds = false;
}

static void test_no_immediate(void **state)
{
    bool mine = true, peer = true;
    pair_close(&pair);
    setenv("HOOP_TEST_NO_IMMEDIATE", "1", 1);
    assert_int_equal(pair_open(&pair, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
    unsetenv("HOOP_TEST_NO_IMMEDIATE");
    (void)state;
    say_hello();
    for (uint32_t i = 0; i < 3 * SLOTS; i++) {
        hoop_link_offer(pair.receiver, i, to, ROOM);
        pair_settle(&pair);
        move(from, CHUNK - i, i, &mine, &peer);
        assert_false(mine || peer);
    }
    assert_int_equal(fake_counts.words, 0);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* A region is registered once at each end, and deregistered when it is freed. */
static void test_keys(void **state)
{
    (void)state;
    bool mine = true, peer = true;
    const unsigned before = fake_counts.memories;
    say_hello();
    for (uint32_t i = 0; i < 20; i++) {
        hoop_link_offer(pair.receiver, i, to, ROOM);
        pair_settle(&pair);
        move(from, CHUNK, i, &mine, &peer);
        assert_false(mine || peer);
        assert_int_equal(fake_counts.memories, before + 2);
        if (i % 5 == 4) { /* most likely another one at the same address */
            assert_int_equal(hoop_region_free(from), HOOP_OK);
            assert_int_equal(fake_counts.memories, before + 1);
            from = get();
            assert_int_equal(hoop_region_free(to), HOOP_OK);
            assert_int_equal(fake_counts.memories, before);
            to = get();
        }
    }
}

/* The peer still knows the key, but it is no longer valid. */
static void test_dead_key(void **state)
{
    (void)state;
    static struct item send; /* pending to the end */
    say_hello();
    hoop_link_offer(pair.receiver, 1, to, ROOM);
    pair_settle(&pair);
    assert_int_equal(hoop_region_free(to), HOOP_OK);
    to = get();
    memset(to, 0x77, ROOM);
    assert_int_equal(send_to(&send, from, CHUNK, 1, 0), HOOP_OK);
    assert_true(pair_until_done(&pair, &send));
    assert_int_equal(send.result, HOOP_REMOTE_ERROR);
    assert_non_null(strstr(pair.sender->failure.text, "verbs status 10")); /* remote access error */
    assert_true(is_all(to, ROOM, 0x77));
}

static unsigned warnings;

static void count_warnings(void *arg, hoop_log_level_t level, const char *subsystem,
                           const char *line)
{
    (void)subsystem;
    (void)arg;
    warnings += level == HOOP_LOG_WARN && strstr(line, "copies") != NULL;
}

/* If no more memory may be locked payload goes through the slots; one line in the log says so. */
static void test_refused(void **state)
{
    (void)state;
    bool mine = false, peer = false;
    hoop_log_set_callback(count_warnings, NULL);
    fake_refuses_memory = true;
    for (uint32_t i = 0; i < 10; i++) {
        hoop_link_offer(pair.receiver, i, to, ROOM);
        pair_settle(&pair);
        move(from, CHUNK, i, &mine, &peer);
        assert_true(mine && peer);
    }
    fake_refuses_memory = false;
    hoop_log_set_callback(NULL, NULL);
    assert_int_equal(warnings, 1);
}

/*
 * If little memory may be locked, regions take at most half of it, because later operations may
 * need more links. If a link gets none, its error says what it needed and what there is.
 */
static void test_half(void **state)
{
    (void)state;
    struct pair other;
    struct rlimit before, limit;
    bool mine = false, peer = false;
    const size_t slots = fake_counts.memory_bytes;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    if (before.rlim_max < 2 * slots + 8 * ROOM) {
        skip(); /* too little may be locked here for this test */
    }
    limit = before;
    limit.rlim_cur = fake_most_bytes = 2 * slots;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    hoop_link_offer(pair.receiver, 1, to, ROOM);
    pair_settle(&pair);
    move(from, CHUNK, 1, &mine, &peer);
    assert_true(mine && peer);
    assert_int_equal(fake_counts.memory_bytes, slots);
    assert_int_equal(pair_open(&other, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
    struct pair late;
    assert_int_equal(pair_open(&late, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OUT_OF_MEMORY);
    char words[128];
    snprintf(words, sizeof(words),
             "this process may lock %zu bytes in all (ulimit -l), %zu are registered", 2 * slots,
             2 * slots);
    assert_non_null(strstr(late.sender->failure.text, words));
    pair_close(&late);
    pair_close(&other);
    limit.rlim_cur = fake_most_bytes = 2 * slots + 8 * ROOM;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    assert_int_equal(hoop_region_free(from), HOOP_OK); /* registering it was not tried again */
    assert_int_equal(hoop_region_free(to), HOOP_OK);
    from = get();
    to = get();
    hoop_link_offer(pair.receiver, 2, to, ROOM);
    pair_settle(&pair);
    move(from, CHUNK, 2, &mine, &peer);
    assert_false(mine || peer);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    fake_most_bytes = 0;
}

struct taker {
    struct hoop_link *link;
    uint8_t *data;
    pthread_barrier_t *both;
};

static void *take_key(void *arg)
{
    const struct taker *taker = arg;
    struct hoop_verbs_memory key;
    (void)pthread_barrier_wait(taker->both);
    (void)hoop_rdma_key(hoop_rdma_from(taker->link), taker->data, ROOM, &key);
    return NULL;
}

/* Two communicators at once: there is room for the region of one. */
static void test_half_at_once(void **state)
{
    (void)state;
    struct rlimit before, limit;
    const size_t slots = fake_counts.memory_bytes;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    if (before.rlim_max < 2 * slots + 3 * ROOM) {
        skip(); /* too little may be locked here for this test */
    }
    limit = before;
    limit.rlim_cur = 2 * slots + 3 * ROOM;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    for (int round = 0; round < 300; round++) {
        pthread_barrier_t both;
        pthread_t thread;
        struct taker takers[2] = {{pair.sender, from, &both}, {pair.receiver, to, &both}};
        assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, take_key, &takers[1]), 0);
        (void)take_key(&takers[0]);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(pthread_barrier_destroy(&both), 0);
        assert_int_equal(fake_counts.memory_bytes, slots + ROOM);
        assert_int_equal(hoop_region_free(from), HOOP_OK);
        assert_int_equal(hoop_region_free(to), HOOP_OK);
        from = get();
        to = get();
    }
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

/* ---- What a peer may not say ----------------------------------------------------------------- */

/* A peer claims to have put a chunk where nothing was offered. */
static void test_liar(void **state)
{
    (void)state;
    static const struct {
        uint32_t op;
        uint64_t bytes; /* the size of the offer */
        bool lent;
    } cases[] = {{1, 0, false}, {2, ROOM, false}, {1, CHUNK - 1, false}, {1, ROOM, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static struct item send, recv;
        hoop_link_offer(pair.receiver, cases[i].op, to, cases[i].bytes);
        pair_settle(&pair);
        struct hoop_rdma_link *sender = hoop_rdma_from(pair.sender);
        struct hoop_verbs_memory key;
        assert_true(hoop_rdma_key(hoop_rdma_from(pair.receiver), to, ROOM, &key));
        sender->offer = (struct hoop_rdma_message){
            .op = 1, .address = (uintptr_t)to, .bytes = ROOM, .key = key.remote_key};
        assert_int_equal(send_to(&send, from, CHUNK, 1, 0), HOOP_OK);
        assert_int_equal(pair_recv(&pair, &recv, cases[i].lent ? NULL : to, CHUNK, 1), HOOP_OK);
        assert_true(pair_until_done(&pair, &recv));
        assert_int_equal(recv.result, HOOP_REMOTE_ERROR);
        assert_non_null(strstr(pair.receiver->failure.text, "which was not offered"));
        pair_close(&pair);
        assert_int_equal(pair_open(&pair, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
    }
}

/* An offer that is smaller than the chunk, or that ends beyond the address space. */
static void test_hostile_offers(void **state)
{
    (void)state;
    static const uint64_t places[] = {ROOM, ROOM - CHUNK + 1, UINT64_MAX, UINT64_MAX - CHUNK + 1};
    for (uint32_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        static struct item send, recv;
        hoop_link_offer(pair.receiver, i, to, ROOM);
        pair_settle(&pair);
        pattern_fill(from, CHUNK, i);
        assert_int_equal(send_to(&send, from, CHUNK, i, places[i]), HOOP_OK);
        assert_int_equal(pair_recv(&pair, &recv, to, CHUNK, i), HOOP_OK);
        assert_true(pair_until_done(&pair, &recv));
        assert_true(pattern_is(to, CHUNK, i));
    }
}

/* As many operations as can be without an answer: no word is lost, and each finds a receive. */
static void test_unheard(void **state)
{
    (void)state;
    static struct item send[SLOTS], recv[SLOTS];
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            assert_int_equal(pair_send(&pair, &send[i], from, CHUNK, i), HOOP_OK);
        }
        for (uint32_t i = 0; i < SLOTS; i++) {
            hoop_link_offer(pair.receiver, i, to, ROOM);
            assert_int_equal(pair_recv(&pair, &recv[i], to, CHUNK, i), HOOP_OK);
            for (int turn = 0; turn < 10 && recv[i].done == 0; turn++) {
                (void)hoop_link_progress(pair.receiver);
            }
            assert_int_equal(recv[i].result, HOOP_OK);
        }
        hoop_link_offer(pair.receiver, SLOTS, to, ROOM);
        assert_true(pair_until_done(&pair, &send[SLOTS - 1]));
        pair_settle(&pair);
        assert_int_equal(hoop_rdma_from(pair.sender)->offer.op, SLOTS);
    }
}

int main(void)
{
    setenv("HOOP_IB_HCA", "fake", 1);
    hoop_rdma_verbs = &fake_verbs;
    fake_drop_ipc_lock();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ways, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_early, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_done, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_last_words, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_no_immediate, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_keys, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_dead_key, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_refused, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_half, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_half_at_once, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_liar, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_hostile_offers, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_unheard, open_pair, close_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

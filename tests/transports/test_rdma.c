/*
 * The rdma transport over fake devices (fakes/fake_verbs.h): words and credits, devices without
 * immediate data, and failures that a device may report. The choice of ports is in
 * test_rdma_ports.c, the contract in test_transport.c; real verbs are in tests/vm/.
 */
#include "base/clock.h"
#include "base/settings.h"
#include "fakes/fake_verbs.h"
#include "transports/link_pair.h"
#include "transports/rdma/rdma_link.h"
#include "transports/table.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK 10000u
#define SLOTS 4u

static struct pair pair, back; /* the same ranks, in the other direction */

static int open_pair(void **state)
{
    (void)state;
    memset(&fake_counts, 0, sizeof(fake_counts));
    return pair_open(&pair, &hoop_transport_rdma, SLOTS, CHUNK) == HOOP_OK ? 0 : -1;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return fake_counts.open == 0 ? 0 : -1;
}

static int open_back(void)
{
    back = (struct pair){
        .transport = &hoop_transport_rdma, .slots = SLOTS, .chunk_bytes = CHUNK, .back = true};
    return pair_make(&back) == HOOP_OK && pair_join(&back) == HOOP_OK ? 0 : -1;
}

static int open_both(void **state)
{
    return open_pair(state) == 0 ? open_back() : -1;
}

static int close_both(void **state)
{
    pair_close(&back);
    return close_pair(state);
}

/* ---- Words ----------------------------------------------------------------------------------- */

/* One chunk from end to end. */
static void move_along(struct pair *way, uint32_t number, size_t bytes)
{
    static uint8_t from[CHUNK], to[CHUNK];
    struct item send, recv;
    pattern_fill(from, bytes, number);
    assert_int_equal(pair_send(way, &send, from, bytes, number), HOOP_OK);
    assert_int_equal(pair_recv(way, &recv, to, bytes, number), HOOP_OK);
    assert_true(pair_until_done(way, &recv) && pair_until_done(way, &send));
    assert_int_equal(recv.result, HOOP_OK);
    assert_true(pattern_is(to, bytes, number));
}

static void move_chunk(uint32_t number, size_t bytes)
{
    move_along(&pair, number, bytes);
}

/* Each chunk of any size is one write with a word, and every two of four slots are one credit; the
 * links of a rank share a device. */
static void test_cadence(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        move_chunk(i, i % 2 == 0 ? 8 : CHUNK);
    }
    assert_int_equal(fake_counts.opened, 2);
    assert_int_equal(fake_counts.writes, 100);
    assert_int_equal(fake_counts.words, 150);
    assert_int_equal(fake_counts.sends, 150);
    struct pair other;
    assert_int_equal(pair_open(&other, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
    assert_int_equal(fake_counts.opened, 2);
    pair_close(&other);
    assert_int_equal(fake_counts.open, 2);
}

/* Chunks in the other direction carry the credits; if there are none, credits are sent alone. */
static void test_both_ways(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        move_chunk(i, i % 2 == 0 ? 8 : CHUNK);
        move_along(&back, i, i % 3 == 0 ? 8 : CHUNK);
    }
    assert_int_equal(fake_counts.words, 200);
    for (uint32_t i = 100; i < 200; i++) {
        move_chunk(i, 8);
    }
    assert_int_equal(fake_counts.words, 200 + 100 + 50);
    move_along(&back, 100, 8); /* nothing was owed: the last credit went alone */
    move_chunk(200, 8);
    assert_int_equal(fake_counts.words, 352);
    pair_close(&back);
    for (uint32_t i = 201; i < 301; i++) {
        move_chunk(i, 8);
    }
    assert_int_equal(fake_counts.words, 352 + 100 + 50 + 2); /* two goodbyes */
}

static void test_both_ways_no_immediate(void **state)
{
    setenv("HOOP_TEST_NO_IMMEDIATE", "1", 1);
    assert_int_equal(open_both(state), 0);
    unsetenv("HOOP_TEST_NO_IMMEDIATE");
    for (uint32_t i = 0; i < 50; i++) {
        move_chunk(i, (size_t)i * 7);
        move_along(&back, i, (size_t)i * 70);
    }
    assert_int_equal(fake_counts.words, 0);
    assert_int_equal(hoop_rdma_from(pair.receiver)->sent + hoop_rdma_from(back.receiver)->sent, 0);
    assert_int_equal(close_both(state), 0);
}

/* A credit comes to a completion queue that is not the sender's own, and its rank looks at no other
 * link. It receives the credit anyway. */
static void test_both_ways_apart(void **state)
{
    assert_int_equal(open_pair(state), 0);
    struct hoop_rdma_link *sender = hoop_rdma_from(pair.sender);
    sender->context->entries_left = hoop_rdma_from(pair.receiver)->context->entries_left = 0;
    assert_int_equal(open_back(), 0);
    assert_int_equal(fake_counts.opened, 4);
    static uint64_t from, to;
    struct item send, recv;
    move_chunk(0, 8);
    assert_int_equal(pair_send(&back, &send, &from, sizeof(from), 0), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv, &to, sizeof(to), 1), HOOP_OK);
    assert_int_equal(sender->tail, 0);
    (void)hoop_link_progress(pair.sender);
    assert_int_equal(sender->tail, 1);
    assert_int_equal(close_both(state), 0);
}

/* Both ends of a rank. */
struct mover {
    struct hoop_link *sender, *receiver;
    uint32_t sends, receives;
    bool well;
};

static void *move_both(void *arg)
{
    struct mover *mover = arg;
    const uint64_t deadline = hoop_deadline_ns(60000);
    struct item send = {.done = 0}, recv = send;
    uint32_t sent = 0, received = 0;
    uint64_t from = 0, to = 0;
    bool sending = false, receiving = false, right = true;
    while ((sent < mover->sends || received < mover->receives) && right &&
           hoop_now_ns() < deadline) {
        if (!sending && sent < mover->sends) {
            from = sent;
            item_fill(&send, &from, sizeof(from), sent);
            sending = hoop_link_send(mover->sender, &send.xfer) == HOOP_OK;
        }
        if (!receiving && received < mover->receives) {
            item_fill(&recv, &to, sizeof(to), received);
            receiving = hoop_link_recv(mover->receiver, &recv.xfer) == HOOP_OK;
        }
        const bool moved = hoop_link_progress(mover->sender);
        if (!hoop_link_progress(mover->receiver) && !moved) {
            sched_yield();
        }
        if (sending && send.done == 1) {
            sending = false;
            sent++;
        }
        if (receiving && recv.done == 1) {
            right = recv.result == HOOP_OK && to == received;
            receiving = false;
            received++;
        }
    }
    mover->well = right && sent == mover->sends && received == mover->receives;
    return NULL;
}

/* Each rank has a thread; one of them sends three times as much. */
static void test_both_ways_at_once(void **state)
{
    (void)state;
    struct mover movers[2] = {{pair.sender, back.receiver, 6000, 2000, false},
                              {back.sender, pair.receiver, 2000, 6000, false}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, move_both, &movers[1]), 0);
    (void)move_both(&movers[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(movers[0].well && movers[1].well);
}

/* A chunk's word that returns more credits than there were chunks; also after a goodbye. */
static void test_wrong_credit(void **state)
{
    (void)state;
    struct hoop_rdma_link *sender = hoop_rdma_from(pair.sender);
    struct hoop_rdma_link *receiver = hoop_rdma_from(back.receiver);
    static const uint8_t byte;
    static struct item send;
    assert_int_equal(pair_send(&pair, &send, &byte, 1, 0), HOOP_OK);
    const uint32_t data = (uint32_t)HOOP_RDMA_DATA << 30;
    hoop_rdma_receiver_hears(receiver, data | 1u << HOOP_RDMA_BACK_SHIFT | 1);
    assert_int_equal(sender->tail, 1);
    assert_int_equal(pair_send(&pair, &send, &byte, 1, 1), HOOP_OK);
    hoop_rdma_receiver_hears(receiver, data | 2u << HOOP_RDMA_BACK_SHIFT | 2);
    assert_int_equal(sender->tail, 1);
    assert_int_equal(back.receiver->failure.code, HOOP_OK);
    assert_int_equal(pair.sender->failure.code, HOOP_REMOTE_ERROR);
    assert_non_null(strstr(pair.sender->failure.text, "expected a credit for at most 1"));
    pair.sender->failure.code = HOOP_OK;
    hoop_rdma_sender_hears(sender, (uint32_t)HOOP_RDMA_GOODBYE << 30 | 2, NULL);
    assert_int_equal(sender->tail, 2);
    hoop_rdma_receiver_hears(receiver, data | 1u << HOOP_RDMA_BACK_SHIFT | 3);
    assert_int_equal(sender->tail, 2);
    assert_int_equal(pair.sender->failure.code, HOOP_OK);
}

/* The count in a credit's word has 30 bits, that in a chunk's word 22. */
static void test_wrap(void **state)
{
    (void)state;
    struct hoop_rdma_link *sender = hoop_rdma_from(pair.sender);
    struct hoop_rdma_link *receiver = hoop_rdma_from(pair.receiver);
    const uint64_t near = ((uint64_t)3 << 30) - UINT64_C(3) * SLOTS;
    sender->head = sender->tail = sender->sent = sender->completed = near;
    receiver->head = receiver->next = receiver->tail = receiver->credited = near;
    for (uint32_t i = 0; i < 6 * SLOTS; i++) {
        move_chunk(i, 100);
    }
    assert_true(sender->tail > (uint64_t)3 << 30);
}

static void test_no_immediate(void **state)
{
    (void)state;
    setenv("HOOP_TEST_NO_IMMEDIATE", "1", 1);
    assert_int_equal(open_pair(NULL), 0);
    unsetenv("HOOP_TEST_NO_IMMEDIATE");
    for (uint32_t i = 0; i < 50; i++) {
        move_chunk(i, (size_t)i * 7);
    }
    assert_int_equal(fake_counts.words, 0);
    assert_int_equal(close_pair(NULL), 0);
}

static void test_wrong_words(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0,        UINT32_MAX,     1u << 30,
                                     2u << 30, (1u << 30) + 2, (2u << 30) + 1};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(open_pair(NULL), 0);
        hoop_rdma_receiver_hears(hoop_rdma_from(pair.receiver), wrong[i]);
        const struct hoop_rdma_message nothing = {.word = wrong[i]};
        hoop_rdma_sender_hears(hoop_rdma_from(pair.sender), wrong[i], &nothing);
        const bool goodbye = wrong[i] >> 30 == HOOP_RDMA_GOODBYE;
        const hoop_result_t code = goodbye ? HOOP_OK : HOOP_REMOTE_ERROR;
        assert_int_equal(pair.receiver->failure.code, code);
        assert_int_equal(pair.sender->failure.code, code);
        assert_true(goodbye || strstr(pair.sender->failure.text, "rank 1 sent the word") != NULL);
        assert_int_equal(close_pair(NULL), 0);
    }
}

/* ---- What goes wrong ------------------------------------------------------------------------- */

static void test_status(void **state)
{
    (void)state;
    static uint8_t byte = 1;
    static struct item send, recv; /* pending to the end */
    fake_break_next = 12;
    assert_int_equal(pair_send(&pair, &send, &byte, 1, 0), HOOP_OK);
    assert_true(pair_until_done(&pair, &send));
    assert_int_equal(pair.sender->failure.code, HOOP_REMOTE_ERROR);
    assert_int_equal(pair.sender->failure.rank, PAIR_RECEIVER);
    assert_string_equal(pair.sender->failure.text,
                        "rank 0 (fake0 port 1) cannot send to rank 1 (lane 2): fake status (verbs "
                        "status 12)");
    assert_int_equal(hoop_link_send(pair.sender, &send.xfer), HOOP_REMOTE_ERROR);
    assert_int_equal(pair_recv(&pair, &recv, &byte, 1, 0), HOOP_OK);
    pair_settle(&pair);
    assert_int_equal(recv.done, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    fake_refuses_memory = true;
    assert_int_equal(pair_open(&pair, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OUT_OF_MEMORY);
    assert_non_null(
        strstr(pair.sender->failure.text, "rank 0 has no RDMA link with rank 1: registering"));
    fake_refuses_memory = false;
    pair_close(&pair);
    struct pair strict = {.transport = &hoop_transport_rdma, .slots = 1, .chunk_bytes = 1};
    strict.check = HOOP_CHECK_AEAD;
    assert_int_equal(pair_make(&strict), HOOP_INVALID_USAGE);
    assert_non_null(strstr(strict.failure.text, "HOOP_CHECK=aead is for TCP only"));
    pair_close(&strict);
}

/* Nothing is sent to an end that is not bound yet; what was sent before the end arrives. */
static void test_bound_and_goodbye(void **state)
{
    (void)state;
    uint8_t from[3] = {7, 8, 9}, to[3];
    struct item send[3], recv[4];
    assert_int_equal(pair_create(&pair, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
    assert_int_equal(pair_bind(pair.sender, &pair.receiver_blob), HOOP_OK);
    assert_int_equal(pair_send(&pair, &send[0], from, 1, 0), HOOP_AGAIN);
    assert_int_equal(pair_bind(pair.receiver, &pair.sender_blob), HOOP_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pair_send(&pair, &send[i], &from[i], 1, i), HOOP_OK);
    }
    hoop_link_destroy(pair.sender);
    pair.sender = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pair_recv(&pair, &recv[i], &to[i % 3], 1, i), HOOP_OK);
    }
    assert_true(pair_until_done(&pair, &recv[3]));
    assert_memory_equal(from, to, 3);
    assert_int_equal(recv[2].result, HOOP_OK);
    assert_int_equal(recv[3].result, HOOP_REMOTE_ERROR);
    assert_non_null(strstr(pair.receiver->failure.text, "rank 0 has left the communicator"));
    pair_close(&pair);
}

/* Nothing arrives any more: the goodbyes of several links wait for a single deadline together. */
static void test_goodbyes_together(void **state)
{
    (void)state;
    const uint64_t patience_ns = 300 * HOOP_NS_PER_MS;
    struct pair pairs[3];
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pair_open(&pairs[i], &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
        move_along(&pairs[i], 0, 8);
    }
    fake_holds = true;
    const uint64_t begin = hoop_now_ns();
    for (uint32_t i = 0; i < 3; i++) {
        hoop_link_leave(pairs[i].sender, begin + patience_ns);
        hoop_link_leave(pairs[i].receiver, begin + patience_ns);
    }
    for (uint32_t i = 0; i < 3; i++) {
        pair_close(&pairs[i]);
    }
    fake_holds = false;
    assert_in_range(hoop_now_ns() - begin, patience_ns, 3 * patience_ns);
}

/* The receiver has left. The sender notices that after a while, and its end does not wait. */
static void test_receiver_leaves(void **state)
{
    (void)state;
    uint8_t byte = 1;
    struct item send;
    move_chunk(0, 1);
    hoop_link_destroy(pair.receiver);
    pair.receiver = NULL;
    assert_int_equal(pair_send(&pair, &send, &byte, 1, 1), HOOP_OK); /* it does not know yet */
    assert_true(pair_until_done(&pair, &send));
    assert_int_equal(hoop_link_send(pair.sender, &send.xfer), HOOP_AGAIN);
    assert_int_equal(pair.sender->failure.code, HOOP_OK);
    hoop_rdma_from(pair.sender)->left_ns -= 2 * HOOP_NS_PER_S;
    assert_int_equal(hoop_link_send(pair.sender, &send.xfer), HOOP_REMOTE_ERROR);
    assert_non_null(strstr(pair.sender->failure.text, "rank 1 has left the communicator"));
}

int main(void)
{
    setenv("HOOP_IB_HCA", "fake", 1);
    hoop_rdma_verbs = &fake_verbs;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cadence, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_both_ways, open_both, close_both),
        cmocka_unit_test(test_both_ways_no_immediate),
        cmocka_unit_test(test_both_ways_apart),
        cmocka_unit_test_setup_teardown(test_both_ways_at_once, open_both, close_both),
        cmocka_unit_test_setup_teardown(test_wrong_credit, open_both, close_both),
        cmocka_unit_test_setup_teardown(test_wrap, open_pair, close_pair),
        cmocka_unit_test(test_no_immediate),
        cmocka_unit_test(test_wrong_words),
        cmocka_unit_test_setup_teardown(test_status, open_pair, close_pair),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_bound_and_goodbye),
        cmocka_unit_test(test_goodbyes_together),
        cmocka_unit_test_setup_teardown(test_receiver_leaves, open_pair, close_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

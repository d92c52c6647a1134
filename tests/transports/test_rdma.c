/*
 * The rdma transport over devices that exist in this process only (fakes/fake_verbs.h): words and
 * credits, devices without immediate data, and what a device may say instead of "well". The choice
 * of ports is in test_rdma_ports.c, the contract in test_transport.c; real verbs are in tests/vm/.
 */
#include "base/clock.h"
#include "base/settings.h"
#include "fakes/fake_verbs.h"
#include "transports/link_pair.h"
#include "transports/rdma/rdma_link.h"
#include "transports/table.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK 10000u
#define SLOTS 4u

static struct pair pair;

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

/* ---- Words ----------------------------------------------------------------------------------- */

/* One chunk from end to end. */
static void move_chunk(uint32_t number, size_t bytes)
{
    static uint8_t from[CHUNK], to[CHUNK];
    struct item send, recv;
    pattern_fill(from, bytes, number);
    assert_int_equal(pair_send(&pair, &send, from, bytes, number), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv, to, bytes, number), HOOP_OK);
    assert_true(pair_until_done(&pair, &recv) && pair_until_done(&pair, &send));
    assert_int_equal(recv.result, HOOP_OK);
    assert_true(pattern_is(to, bytes, number));
}

/*
 * A word for a chunk, a credit for two of four slots; the links of a rank share a device. A
 * software device gets a write for every packet, here of 256 bytes, and 32 of them in a call.
 */
static void test_cadence(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        move_chunk(i, i % 2 == 0 ? 8 : CHUNK);
    }
    assert_int_equal(fake_counts.opened, 2);
    const unsigned pieces = (CHUNK + HOOP_RDMA_HEADER_BYTES + 255) / 256;
    assert_int_equal(fake_counts.writes, 50 + 50 * pieces);
    assert_int_equal(fake_counts.words, 150);
    assert_int_equal(fake_counts.sends, 50 + 50 * 2 + 50);
    struct pair other;
    assert_int_equal(pair_open(&other, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
    assert_int_equal(fake_counts.opened, 2);
    pair_close(&other);
    assert_int_equal(fake_counts.open, 2);
}

/* The count of a word has 30 bits. */
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
    strict.check = HOOP_CHECK_MAC;
    assert_int_equal(pair_make(&strict), HOOP_INVALID_USAGE);
    assert_non_null(strstr(strict.failure.text, "HOOP_CHECK=mac is for TCP only"));
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

/* The receiver has left: the sender believes it after a while, and its end does not wait. */
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
    fake_ports[0].software = fake_ports[1].software = true;
    fake_ports[0].mtu = 1;
    hoop_rdma_verbs = &fake_verbs;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cadence, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_wrap, open_pair, close_pair),
        cmocka_unit_test(test_no_immediate),
        cmocka_unit_test(test_wrong_words),
        cmocka_unit_test_setup_teardown(test_status, open_pair, close_pair),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_bound_and_goodbye),
        cmocka_unit_test_setup_teardown(test_receiver_leaves, open_pair, close_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

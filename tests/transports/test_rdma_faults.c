/*
 * Rare faults of the rdma transport, over fake devices (fakes/fake_verbs.h): which rank a failed
 * work is blamed on, what is left over when any call fails, and a device that dies.
 */
#include "base/clock.h"
#include "fakes/fake_verbs.h"
#include "memory/region.h"
#include "transports/link_pair.h"
#include "transports/rdma/rdma_link.h"
#include "transports/table.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define CHUNK 65536u
#define SLOTS 4u

static void open_pair(struct pair *pair)
{
    assert_int_equal(pair_open(pair, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
}

static void nothing_left(void)
{
    assert_int_equal(fake_counts.open, 0);
    assert_int_equal(fake_counts.queues, 0);
    assert_int_equal(fake_counts.memories, 0);
}

static void move_chunk(struct pair *pair, uint32_t number, size_t bytes)
{
    static uint8_t from[CHUNK], to[CHUNK];
    struct item send, recv;
    pattern_fill(from, bytes, number);
    assert_int_equal(pair_send(pair, &send, from, bytes, number), HOOP_OK);
    assert_int_equal(pair_recv(pair, &recv, to, bytes, number), HOOP_OK);
    assert_true(pair_until_done(pair, &recv) && pair_until_done(pair, &send));
    assert_int_equal(recv.result, HOOP_OK);
    assert_true(pattern_is(to, bytes, number));
}

/* ---- Blame ----------------------------------------------------------------------------------- */

/* Of several writes the first one fails, which is not signaled. The failure belongs to its own
 * link, not to the first of those that share the completion queue. */
static void test_culprit(void **state)
{
    (void)state;
    static uint8_t plain[CHUNK];
    static struct item send;
    struct pair pairs[3];
    for (uint32_t i = 0; i < 3; i++) {
        open_pair(&pairs[i]);
        move_chunk(&pairs[i], 0, 8);
    }
    fake_break_next = 12;
    assert_int_equal(pair_send(&pairs[1], &send, plain, CHUNK, 1), HOOP_OK);
    assert_true(pair_until_done(&pairs[1], &send));
    assert_non_null(strstr(pairs[1].sender->failure.text, "verbs status 12"));
    for (uint32_t i = 0; i < 3; i += 2) {
        move_chunk(&pairs[i], 1, CHUNK);
        assert_int_equal(pairs[i].sender->failure.code, HOOP_OK);
    }
    for (uint32_t i = 0; i < 3; i++) {
        pair_close(&pairs[i]);
    }
    nothing_left();
}

/* ---- Any call fails -------------------------------------------------------------------------- */

/* Opens a link, moves two chunks and closes it, with one call that fails. Returns whether all went
 * well. */
static bool survive(int fails_in)
{
    static uint8_t from[CHUNK], to[CHUNK];
    static struct item send, recv;
    struct pair pair;
    fake_fails_in = fails_in;
    hoop_result_t result = pair_open(&pair, &hoop_transport_rdma, SLOTS, CHUNK);
    for (uint32_t i = 0; i < 2 && result == HOOP_OK; i++) {
        result = pair_send(&pair, &send, from, i == 0 ? 8 : CHUNK, i);
        result = result == HOOP_OK ? pair_recv(&pair, &recv, to, send.xfer.bytes, i) : result;
        if (result == HOOP_OK && pair_until_done(&pair, &recv)) {
            result = recv.result;
        }
        pair_settle(&pair);
    }
    const struct hoop_failure *failures[3] = {
        &pair.failure, pair.sender != NULL ? &pair.sender->failure : &pair.failure,
        pair.receiver != NULL ? &pair.receiver->failure : &pair.failure};
    bool said = false;
    for (int i = 0; i < 3; i++) {
        said = said || (failures[i]->code != HOOP_OK && failures[i]->text[0] != '\0');
    }
    assert_true(said || result == HOOP_OK);
    pair_close(&pair);
    const bool all = fake_fails_in > 0;
    fake_fails_in = 0;
    nothing_left();
    return all;
}

static void test_every_call(void **state)
{
    (void)state;
    int calls = 1;
    while (!survive(calls)) {
        calls++;
    }
    assert_true(calls > 30);
}

/* ---- Limits ---------------------------------------------------------------------------------- */

/* On real adapters queues are locked memory, too, and are made before the slots are registered. */
static void test_limit(void **state)
{
    (void)state;
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    limit = before;
    limit.rlim_cur = 65536;
    if (before.rlim_max < limit.rlim_cur || setrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
        skip();
    }
    for (int call = 1; call <= 3; call += 2) { /* the completion queue, the queue pair */
        struct pair pair;
        fake_fails_in = call;
        assert_int_equal(pair_open(&pair, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OUT_OF_MEMORY);
        assert_non_null(
            strstr(pair.sender->failure.text, "this process may lock 65536 bytes in all (ulimit "));
        pair_close(&pair);
    }
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

/* ---- Devices --------------------------------------------------------------------------------- */

/* Nothing completes any more; a rank that waits for a message is told of it anyway. */
static void test_dies(void **state)
{
    (void)state;
    static struct item send, recv;
    static uint8_t byte;
    struct pair pair;
    open_pair(&pair);
    move_chunk(&pair, 0, 8);
    fake_dies = true;
    assert_int_equal(pair_send(&pair, &send, &byte, 1, 1), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv, &byte, 1, 1), HOOP_OK);
    assert_true(pair_until_done(&pair, &recv));
    assert_int_equal(recv.result, HOOP_SYSTEM_ERROR);
    assert_int_equal(pair.receiver->failure.rank, PAIR_RECEIVER);
    assert_string_equal(pair.receiver->failure.text,
                        "rank 1 (fake0 port 1) cannot receive from rank 0 (lane 2): the device "
                        "said: it dies");
    pair_close(&pair);
    fake_dies = false;
}

/* Where packets go: with a global route whenever one end needs it, with the service level and the
 * partition of the settings. */
static void test_route(void **state)
{
    (void)state;
    struct pair pair;
    const struct hoop_verbs_port before = fake_ports[0];
    for (int kind = 0; kind < 3; kind++) {
        fake_ports[0].ethernet = kind == 0;
        fake_ports[0].global = kind != 1;
        /* ports are read once, so this changes the process's list, which is not really const */
        const struct hoop_verbs_port *ports = NULL;
        uint32_t count = 0;
        assert_non_null(hoop_rdma_ports(&ports, &count));
        memcpy((void *)(uintptr_t)ports, fake_ports, sizeof(fake_ports));
        open_pair(&pair);
        move_chunk(&pair, 0, 8);
        assert_int_equal(fake_route.global, kind != 1);
        assert_int_equal(fake_route.service_level, 5);
        assert_int_equal(fake_route.partition, 2);
        assert_int_equal(fake_route.traffic_class, 96);
        pair_close(&pair);
    }
    fake_ports[0] = before;
}

int main(void)
{
    setenv("HOOP_IB_HCA", "fake0", 1);
    setenv("HOOP_IB_SL", "5", 1);
    setenv("HOOP_IB_PKEY", "2", 1);
    setenv("HOOP_IB_TC", "96", 1);
    hoop_rdma_verbs = &fake_verbs;
    fake_drop_ipc_lock();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_culprit), cmocka_unit_test(test_every_call),
        cmocka_unit_test(test_limit),   cmocka_unit_test(test_dies),
        cmocka_unit_test(test_route),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

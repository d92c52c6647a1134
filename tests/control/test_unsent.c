/*
 * Messages that cannot be sent, because the kernel lacks memory for a long time, or because they
 * cannot be sealed: the connection ends, and this end is to blame. If memory comes in time nothing
 * is lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "control/control_room_tests.h"
#include "fakes/failing_calls.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct room room;
static _Atomic bool seals_fail;

hoop_result_t __real_hoop_hmac(const struct hoop_secret *key, const char *label, const void *a,
                               size_t a_bytes, const void *b, size_t b_bytes,
                               uint8_t ret_mac[HOOP_MAC_BYTES]);
hoop_result_t __wrap_hoop_hmac(const struct hoop_secret *key, const char *label, const void *a,
                               size_t a_bytes, const void *b, size_t b_bytes,
                               uint8_t ret_mac[HOOP_MAC_BYTES]);
hoop_result_t __wrap_hoop_hmac(const struct hoop_secret *key, const char *label, const void *a,
                               size_t a_bytes, const void *b, size_t b_bytes,
                               uint8_t ret_mac[HOOP_MAC_BYTES])
{
    return seals_fail && strcmp(label, "hoop frame") == 0
               ? hoop_error(HOOP_INTERNAL_ERROR, "no MAC")
               : __real_hoop_hmac(key, label, a, a_bytes, b, b_bytes, ret_mac);
}

static void join(struct party *client)
{
    assert_int_equal(party_connect(client, &room, &room.secret), HOOP_OK);
    assert_true(room_await(&room, &client->opened, 1));
    assert_true(room_await(&room, &room.server.opened, 1));
}

static void test_lacks_memory(void **state)
{
    static const int errors[] = {ENOBUFS, ENOMEM, ETOOMANYREFS};
    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        const struct failing failing = {"sendmsg", errors[i], 1, UINT32_MAX};
        struct party client = {.to_send = 1};
        const void *where = NULL;
        join(&client);
        failing_start(&failing);
        party_run(&client, party_send_all);
        assert_true(room_await(&room, &client.closed, 1));
        (void)failing_stop(&where);
        assert_int_equal(client.why.code, hoop_from_errno(errors[i]));
        assert_non_null(strstr(client.why.text, hoop_errno_name(errors[i])));
        assert_true(room_await(&room, &room.server.closed, 1));
        room.server = (struct party){.room = &room};
    }
}

static void test_memory_comes(void **state)
{
    static const struct failing failing = {"sendmsg", ENOBUFS, 1, 20};
    struct party client = {.to_send = 5};
    const void *where = NULL;
    (void)state;
    join(&client);
    failing_start(&failing);
    party_run(&client, party_send_all);
    assert_true(room_await(&room, &room.server.messages, 5));
    assert_true(failing_stop(&where) > 20);
    assert_int_equal(room.server.bad, 0);
    party_destroy(&client);
    assert_true(room_await(&room, &room.server.closed, 1));
}

static void test_unsealed(void **state)
{
    struct party client = {.to_send = 1};
    (void)state;
    if (!room_is_far(&room)) {
        return; /* the kernel vouches for what is sent */
    }
    join(&client);
    seals_fail = true;
    party_run(&client, party_send_all);
    assert_true(room_await(&room, &client.closed, 1));
    seals_fail = false;
    assert_int_equal(client.why.code, HOOP_SYSTEM_ERROR);
    assert_true(room_await(&room, &room.server.closed, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lacks_memory, room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(test_memory_comes, room_setup, room_teardown),
        cmocka_unit_test_setup_teardown(test_unsealed, room_setup, room_teardown),
    };
    (void)setenv("HOOP_DEAD_AFTER_MS", "300", 1);
    (void)setenv("HOOP_CHECK", "sum", 1);
    return room_run(&room, tests, sizeof(tests) / sizeof(tests[0]));
}

/*
 * Control connections between honest ends: proof, messages, refusals, detaching, the end. Dishonest
 * ends are in test_connection_hostile.c. Over abstract names, IPv4 and IPv6.
 */
#include "control/control_room_tests.h"
#include "runtime/watch.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MANY 3000u /* messages of up to 5 KB: more than two sockets hold */

static struct room room;

static void join(struct party *party)
{
    room_settle();
    assert_int_equal(party_connect(party, &room, &room.secret), HOOP_OK);
    assert_true(room_await(&room, &party->opened, 1));
    assert_true(room_await(&room, &room.server.opened, 1));
}

/* ---- Proof -------------------------------------------------------------------------------- */

struct look {
    struct party *party;
    char peer[HOOP_ADDRESS_TEXT_BYTES];
    struct hoop_address local;
    struct hoop_frame_hello hello;
    pid_t pid;
};

static void look_at(void *arg)
{
    struct look *look = arg;
    const struct hoop_connection_about *about = hoop_connection_about(look->party->connection);
    (void)snprintf(look->peer, sizeof(look->peer), "%s", about->peer);
    look->local = about->local;
    look->hello = *about->hello;
    look->pid = about->pid;
}

static void check_look(struct look *look)
{
    hoop_service_run(look_at, look);
    assert_string_equal(look->hello.rendezvous, "in the room");
    assert_int_equal(look->hello.from, 3);
    if (room_is_far(&room)) {
        struct hoop_address peer;
        assert_int_equal(look->pid, 0);
        assert_int_equal(hoop_address_parse(look->peer, &peer), HOOP_OK);
        assert_true(hoop_address_is_loopback(&peer) && peer.port != 0);
        assert_true(hoop_address_is_loopback(&look->local) && look->local.port != 0);
    } else {
        char text[32];
        (void)snprintf(text, sizeof(text), "pid %d", (int)getpid());
        assert_string_equal(look->peer, text);
        assert_int_equal(look->pid, getpid());
        assert_int_equal(look->local.family, 0);
    }
}

static void test_handshake(void **state)
{
    struct party client = {.to_send = 40};
    struct look here = {.party = &client};
    struct look there = {.party = &room.server};
    (void)state;
    room.server.to_send = 40;
    join(&client);
    check_look(&here);
    check_look(&there);
    assert_memory_equal(&here.hello, &there.hello, sizeof(here.hello));
    party_run(&client, party_send_all);
    party_run(&room.server, party_send_all);
    assert_true(room_await(&room, &client.messages, 40));
    assert_true(room_await(&room, &room.server.messages, 40));
    assert_int_equal(client.bad + room.server.bad, 0);
    party_destroy(&client);
    assert_true(room_await(&room, &room.server.closed, 1));
    assert_int_equal(room.server.why.code, HOOP_REMOTE_ERROR);
    assert_int_equal(client.closed, 0); /* a destroyed connection reports nothing more */
}

static void test_secret(void **state)
{
    struct party client = {.room = NULL};
    const struct hoop_secret wrong = {.bytes = {1, 2, 3}};
    (void)state;
    assert_int_equal(party_connect(&client, &room, &wrong), HOOP_OK);
    assert_true(room_await(&room, &client.closed, 1));
    assert_int_equal(client.why.code, HOOP_NOT_AUTHENTICATED);
    assert_non_null(strstr(client.why.text, "could not prove that it knows this job's secret"));
    assert_non_null(strstr(client.why.text, room_is_far(&room) ? ":" : "pid "));
    assert_int_equal(client.opened + room.server.opened, 0);
}

static void test_refused(void **state)
{
    struct party later = {.room = NULL};
    struct party last = {.room = NULL};
    (void)state;
    room_expect(&room, false);
    assert_int_equal(party_connect(&later, &room, &room.secret), HOOP_OK);
    assert_true(room_await(&room, &later.closed, 1));
    assert_int_equal(later.why.code, HOOP_AGAIN);
    assert_non_null(strstr(later.why.text, "nobody here expects this connection"));
    room_expect(&room, true);
    join(&last);
    party_destroy(&last);
}

/* ---- Messages ----------------------------------------------------------------------------- */

static void check_many(struct party *client)
{
    assert_true(room_await(&room, &client->messages, MANY));
    assert_true(room_await(&room, &room.server.messages, MANY));
    assert_int_equal(client->bad + room.server.bad, 0);
    assert_int_equal(client->closed + room.server.closed, 0);
    party_destroy(client);
}

static void test_many_messages(void **state)
{
    struct party client = {.to_send = MANY};
    (void)state;
    room.server.to_send = MANY;
    join(&client);
    party_run(&client, party_send_all);
    party_run(&room.server, party_send_all);
    check_many(&client);
}

/* Messages that are sent as soon as the connection is open. */
static void test_early_messages(void **state)
{
    struct party client = {.to_send = MANY, .on_opened = party_send_all};
    (void)state;
    room.server.to_send = MANY;
    room.server.on_opened = party_send_all;
    join(&client);
    check_many(&client);
}

/* ---- The end ------------------------------------------------------------------------------ */

static void party_refuse(struct party *party)
{
    hoop_connection_refuse(party->connection,
                           hoop_error(HOOP_MISMATCH, "I have heard %u too many", 1u));
    hoop_connection_refuse(party->connection, hoop_error(HOOP_TIMEOUT, "not the first reason"));
}

static void test_refuse(void **state)
{
    struct party client = {.to_send = 1};
    (void)state;
    room.server.on_message = party_refuse;
    join(&client);
    party_run(&client, party_send_all);
    assert_true(room_await(&room, &room.server.closed, 1));
    assert_true(room_await(&room, &client.closed, 1));
    assert_int_equal(room.server.why.code, HOOP_MISMATCH);
    assert_string_equal(room.server.why.text, "I have heard 1 too many");
    assert_int_equal(client.why.code, HOOP_REMOTE_ERROR);
    assert_int_equal(client.messages, 1); /* it was told why */
    assert_int_equal(client.last.header.type, HOOP_FRAME_REJECT);
    assert_int_equal(client.last.reject.code, HOOP_MISMATCH);
    assert_string_equal(client.last.reject.text, "I have heard 1 too many");
}

/* The reason of a refusal gets through even between two halves of a message. */
static void test_refuse_full(void **state)
{
    struct party client = {.to_send = MANY};
    (void)state;
    join(&client);
    party_run(&client, party_send_all);
    party_run(&client, party_refuse);
    assert_true(room_await(&room, &client.closed, 1));
    assert_true(room_await(&room, &room.server.closed, 1));
    assert_int_equal(client.why.code, HOOP_MISMATCH);
    /* all that came was whole; at most the reason is not part of the sequence */
    assert_int_equal(room.server.why.code, HOOP_REMOTE_ERROR);
    assert_true(room.server.bad <= 1);
}

static void send_and_leave(struct party *party)
{
    party_send_all(party);
    party_leave(party);
}

/* Destroys either end in each callback in turn. */
static void test_destroy_anywhere(void **state)
{
    (void)state;
    for (int where = 0; where < 6; where++) {
        party_fn *fn = send_and_leave;
        struct party client = {
            .to_send = 100,
            .on_opened = where == 0 ? fn : party_send_all,
            .on_message = where == 1 ? fn : NULL,
            .on_closed = where == 2 ? fn : NULL,
        };
        room.server.to_send = 100;
        room.server.on_opened = where == 3 ? fn : party_send_all;
        room.server.on_message = where == 4 ? fn : where == 2 ? party_leave : NULL;
        room.server.on_closed = where == 5 ? fn : NULL;
        room.server.opened = room.server.closed = room.server.messages = 0;
        room_settle();
        assert_int_equal(party_connect(&client, &room, &room.secret), HOOP_OK);
        if (where == 0 || where == 1) {
            assert_true(room_await(&room, where == 0 ? &client.opened : &client.messages, 1));
            assert_true(room_await(&room, &room.server.closed, 1));
        } else if (where == 5) {
            assert_true(room_await(&room, &client.messages, 100));
            party_destroy(&client);
            assert_true(room_await(&room, &room.server.closed, 1));
        } else {
            assert_true(room_await(&room, &client.closed, 1));
        }
        party_destroy(&client);
        assert_true(client.closed <= 1 && room.server.closed <= 1);
    }
}

/* ---- Both ends here ----------------------------------------------------------------------- */

static void test_no_socket(void **state)
{
    struct party client = {.to_send = 1};
    const int before = room_fds(&room);
    (void)state;
    join(&client);
    party_run(&client, party_send_all);
    assert_true(room_await(&room, &room.server.messages, 1));
    assert_int_equal(room_fds(&room), before);
    party_destroy(&client);
}

/* ---- Handing on --------------------------------------------------------------------------- */

static const char raw_words[] = "raw words, right behind the welcome";

static void detach_and_say(struct party *party)
{
    party_detach(party);
    (void)!send(party->fd, raw_words, sizeof(raw_words), MSG_NOSIGNAL);
}

static void check_words(int fd)
{
    char text[sizeof(raw_words)];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    size_t got = 0;
    while (got < sizeof(text)) {
        assert_int_equal(poll(&wait, 1, ROOM_PATIENCE_MS), 1);
        const ssize_t more = recv(fd, text + got, sizeof(text) - got, 0);
        assert_true(more > 0);
        got += (size_t)more;
    }
    assert_string_equal(text, raw_words);
    assert_int_equal(recv(fd, text, 1, 0), -1); /* no more bytes, and non-blocking */
    assert_int_equal(errno, EAGAIN);
}

static void test_detach(void **state)
{
    (void)state;
    if (!room_is_far(&room)) {
        return;
    }
    for (int round = 0; round < 20; round++) {
        struct party client = {.on_opened = detach_and_say};
        room.server.on_opened = detach_and_say;
        room.server.opened = 0;
        join(&client);
        check_words(client.fd);
        check_words(room.server.fd);
        hoop_fork_close(client.fd);
        hoop_fork_close(room.server.fd);
    }
}

/* ---- Places ------------------------------------------------------------------------------- */

/* On one machine a client that finds the queue full is to come again, since somebody listens. */
static void test_full_queue(void **state)
{
    struct hoop_place place;
    struct party clients[8] = {{.room = NULL}};
    hoop_result_t result = HOOP_OK;
    size_t count = 0;
    (void)state;
    if (room_is_far(&room)) {
        return;
    }
    const int fd = raw_listen(&room, 0, &place);
    while (result == HOOP_OK && count < 8) {
        result = party_connect_to(&clients[count++], &room, &place, NULL, &room.secret);
    }
    assert_int_equal(result, HOOP_AGAIN);
    for (size_t i = 0; i < count; i++) {
        party_destroy(&clients[i]);
    }
    close(fd);
}

static void test_nobody(void **state)
{
    struct hoop_place place;
    struct party client = {.room = NULL};
    (void)state;
    const int fd = raw_listen(&room, 1, &place);
    close(fd);
    if (!room_is_far(&room)) {
        assert_int_equal(party_connect_to(&client, &room, &place, NULL, &room.secret),
                         HOOP_REMOTE_ERROR);
        return;
    }
    assert_int_equal(party_connect_to(&client, &room, &place, NULL, &room.secret), HOOP_OK);
    assert_true(room_await(&room, &client.closed, 1));
    assert_int_equal(client.why.code, HOOP_REMOTE_ERROR);
    assert_string_equal(client.why.text, "ECONNREFUSED");
    /* destroyed, or refused, before the answer */
    struct party hasty = {.room = NULL};
    assert_int_equal(party_connect_to(&hasty, &room, &place, NULL, &room.secret), HOOP_OK);
    party_destroy(&hasty);
    struct party picky = {.room = NULL};
    assert_int_equal(party_connect(&picky, &room, &room.secret), HOOP_OK);
    party_run(&picky, party_refuse);
    assert_true(room_await(&room, &picky.closed, 1));
    assert_int_equal(picky.why.code, HOOP_MISMATCH);
}

static void test_from(void **state)
{
    struct hoop_address from;
    struct party client = {.room = NULL};
    (void)state;
    if (!room_is_far(&room)) {
        return;
    }
    assert_int_equal(hoop_address_parse(room.kind == ROOM_TCP4 ? "127.0.0.2:77" : "::1", &from),
                     HOOP_OK);
    room_settle();
    assert_int_equal(party_connect_to(&client, &room, &room.place, &from, &room.secret), HOOP_OK);
    assert_true(room_await(&room, &client.opened, 1));
    assert_true(room_await(&room, &room.server.opened, 1));
    struct look there = {.party = &room.server};
    struct hoop_address peer;
    check_look(&there);
    assert_int_equal(hoop_address_parse(there.peer, &peer), HOOP_OK);
    assert_true(hoop_address_same_ip(&peer, &from) && peer.port != 77);
    party_destroy(&client);
    /* not an address of this machine */
    assert_int_equal(
        hoop_address_parse(room.kind == ROOM_TCP4 ? "198.51.100.7" : "2001:db8::7", &from),
        HOOP_OK);
    assert_int_equal(party_connect_to(&client, &room, &room.place, &from, &room.secret),
                     HOOP_SYSTEM_ERROR);
}

struct opening {
    struct hoop_place place;
    struct hoop_ports ports;
    struct hoop_endpoint *endpoint;
    struct hoop_address address;
    struct hoop_failure failure;
    hoop_result_t result;
};

static void open_place(void *arg)
{
    struct opening *opening = arg;
    opening->failure = (struct hoop_failure){.code = HOOP_OK, .rank = -1};
    opening->endpoint = NULL;
    opening->result = hoop_endpoint_open(&opening->place, &opening->ports, &opening->endpoint);
    (void)hoop_failure_take(&opening->failure, opening->result, -1);
    if (opening->result == HOOP_OK) {
        opening->address = *hoop_endpoint_address(opening->endpoint);
    }
}

static void shut_place(void *arg)
{
    struct opening *opening = arg;
    hoop_endpoint_close(opening->endpoint);
}

static void check_taken(struct opening *opening, const char *words)
{
    hoop_service_run(open_place, opening);
    assert_int_equal(opening->result, HOOP_INVALID_USAGE);
    assert_non_null(strstr(opening->failure.text, words));
}

/* All that want the same place in a process share one endpoint, which closes with the last
 * of them. */
static void test_shared(void **state)
{
    struct opening second = {.place = room.place};
    struct party client = {.room = NULL};
    (void)state;
    hoop_service_run(open_place, &second);
    assert_int_equal(second.result, HOOP_OK);
    assert_ptr_equal(second.endpoint, room.endpoint);
    join(&client);
    hoop_service_run(shut_place, &second);
    party_destroy(&client);
    assert_true(room_await(&room, &room.server.closed, 1));
    room.server.opened = 0;
    join(&client);
    party_destroy(&client);
}

/* A range of two ports, the first of which somebody else has: the third endpoint gets none. */
static void test_ports(void **state)
{
    struct hoop_place taken;
    struct opening second = {.place = room.place};
    struct opening third = {.place = room.place};
    (void)state;
    const int fd = raw_listen(&room, 5, &taken);
    if (!room_is_far(&room)) {
        second.place = taken;
        check_taken(&second, "is held by another process");
        close(fd);
        return;
    }
    const uint16_t port = taken.address.port;
    second.place.address.port = third.place.address.port = 0;
    second.ports = third.ports = (struct hoop_ports){.first = port, .last = port};
    check_taken(&second, "cannot listen at port");
    second.place.address.port = port; /* a port of its own takes precedence over the range */
    check_taken(&second, "cannot listen at port");
    second.place.address.port = 0;
    second.ports.last = third.ports.last = port < UINT16_MAX ? port + 1 : port;
    hoop_service_run(open_place, &second);
    if (second.result == HOOP_OK) { /* otherwise somebody else has that port */
        assert_int_equal(second.address.port, port + 1);
        assert_true(hoop_address_same_ip(&second.address, &room.place.address));
        hoop_service_run(shut_place, &second);
    } else {
        assert_non_null(strstr(second.failure.text, "EADDRINUSE"));
    }
    close(fd);
    /* every address, or none of this machine's */
    memset(third.place.address.ip, 0, sizeof(third.place.address.ip));
    hoop_service_run(open_place, &third);
    assert_int_equal(third.result, HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_address_parse(room.kind == ROOM_TCP4 ? "198.51.100.7" : "2001:db8::7",
                                        &third.place.address),
                     HOOP_OK);
    hoop_service_run(open_place, &third);
    assert_int_equal(third.result, HOOP_SYSTEM_ERROR);
    assert_non_null(strstr(third.failure.text, "no address of this machine"));
}

/* A port can be used again at once, though old connections linger there. */
static void test_reopen(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct party client = {.room = NULL};
        assert_int_equal(room_reopen(&room), HOOP_OK);
        room.server.opened = 0;
        join(&client);
        party_destroy(&room.server); /* this end closes first, so it is the one that lingers */
        assert_true(room_await(&room, &client.closed, 1));
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, room_setup, room_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_handshake),     TEST(test_secret),           TEST(test_refused),
        TEST(test_many_messages), TEST(test_early_messages),   TEST(test_refuse),
        TEST(test_refuse_full),   TEST(test_destroy_anywhere), TEST(test_detach),
        TEST(test_nobody),        TEST(test_full_queue),       TEST(test_from),
        TEST(test_ports),         TEST(test_reopen),           TEST(test_shared),
    };
    const struct CMUnitTest here[] = {
        TEST(test_handshake), TEST(test_many_messages), TEST(test_early_messages),
        TEST(test_refuse),    TEST(test_refuse_full),   TEST(test_destroy_anywhere),
        TEST(test_no_socket),
    };
    return room_run(&room, tests, sizeof(tests) / sizeof(tests[0])) +
           room_run_kind(&room, ROOM_HERE, here, sizeof(here) / sizeof(here[0]));
}

/*
 * Control connections with ends that break the rules: strangers, liars, slow ones, and ones that
 * never stop. Raw sockets play them. In all cases their owner hears nothing of them, and afterwards
 * an honest client gets in. Over abstract names, IPv4 and IPv6.
 */
#include "base/clock.h"
#include "base/log.h"
#include "control/control_room_tests.h"
#include "harness/splitmix.h"
#include "runtime/watch.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define STRANGERS 200
#define STRANGERS_PLACES 64

static struct room room;

/* An honest client gets in whatever happened before, and it is the first that does. */
static void check_honest(void)
{
    struct party client = {.to_send = 5};
    assert_int_equal(room.server.opened, 0);
    room.server.to_send = 5;
    room_settle();
    assert_int_equal(party_connect(&client, &room, &room.secret), HOOP_OK);
    assert_true(room_await(&room, &client.opened, 1));
    party_run(&client, party_send_all);
    assert_true(room_await(&room, &room.server.messages, 5));
    party_run(&room.server, party_send_all);
    assert_true(room_await(&room, &client.messages, 5));
    assert_int_equal(client.bad + room.server.bad, 0);
    party_destroy(&client);
    assert_true(room_await(&room, &room.server.closed, 1));
    room.server.opened = room.server.messages = room.server.closed = 0;
    room_settle();
}

/* ---- Strangers at a listener -------------------------------------------------------------- */

static void test_silent(void **state)
{
    int fds[STRANGERS];
    (void)state;
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = raw_connect(&room);
        assert_true(fds[i] >= 0);
        if (i % 2 == 0) { /* half a hello */
            union hoop_frame hello;
            raw_hello(&room, &hello);
            assert_true(raw_send(fds[i], &hello, sizeof(hello.header) + 3, sizeof(hello)));
        }
    }
    check_honest();
    if (room_is_far(&room)) { /* the oldest were closed; this end's sockets are still open */
        assert_true(room_fds(&room) <= STRANGERS + STRANGERS_PLACES + 1);
        assert_true(raw_ended(fds[0]));
        assert_true(raw_ended(fds[100]));
    } else { /* half a hello ends a connection; the others have this uid, and may stay */
        char byte;
        assert_true(raw_ended(fds[0]));
        assert_int_equal(recv(fds[1], &byte, 1, MSG_DONTWAIT), -1);
        assert_int_equal(errno, EAGAIN);
    }
    for (int i = 0; i < STRANGERS; i++) {
        close(fds[i]);
    }
}

/* An address from which a client has proved itself has places of its own, and more of them. */
static void test_known_address(void **state)
{
    int fds[STRANGERS];
    char byte;
    (void)state;
    check_honest();
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = raw_connect(&room);
        assert_true(fds[i] >= 0);
    }
    check_honest();
    assert_int_equal(recv(fds[0], &byte, 1, MSG_DONTWAIT), -1); /* was not closed to make room */
    assert_int_equal(errno, EAGAIN);
    for (int i = 0; i < STRANGERS; i++) {
        close(fds[i]);
    }
}

/* Bytes that are no message, by chance or by design. */
static size_t make_garbage(uint64_t *seed, uint8_t *data, size_t room_bytes)
{
    union hoop_frame frame;
    const uint64_t random = splitmix(seed);
    size_t bytes = 1 + (random >> 8) % (room_bytes - 1);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(splitmix(seed) >> 56);
    }
    hoop_frame_init(&frame, 1 + (random >> 24) % (HOOP_FRAME_TYPE_COUNT - 1));
    switch (random % 4) {
    case 0: /* random bytes */
        break;
    case 1: /* a header of some type, then random bytes */
        memcpy(data, &frame.header, sizeof(frame.header));
        bytes = bytes < sizeof(frame.header) ? sizeof(frame.header) : bytes;
        break;
    case 2: /* the same with any length */
        frame.header.bytes = (uint32_t)(random >> 32);
        memcpy(data, &frame.header, sizeof(frame.header));
        bytes = bytes < sizeof(frame.header) ? sizeof(frame.header) : bytes;
        break;
    default: /* a hello with one byte that no valid hello has */
        raw_hello(&room, &frame);
        ((uint8_t *)&frame)[(random >> 40) % 12] ^= (uint8_t)(1 + (random >> 56) % 255);
        bytes = sizeof(frame.hello);
        memcpy(data, &frame, bytes);
        break;
    }
    return bytes;
}

static void test_garbage(void **state)
{
    uint64_t seed = 20260301;
    (void)state;
    for (int round = 0; round < 400; round++) {
        uint8_t data[2 * sizeof(union hoop_frame)];
        const size_t bytes = make_garbage(&seed, data, sizeof(data));
        const int fd = raw_connect(&room);
        assert_true(fd >= 0);
        (void)raw_send(fd, data, bytes, sizeof(data));
        (void)shutdown(fd, SHUT_WR);
        assert_true(raw_ended(fd));
        close(fd);
    }
    check_honest();
}

/* Valid messages at the wrong time. */
static void test_before_proof(void **state)
{
    union hoop_frame hello;
    union hoop_frame frame;
    (void)state;
    raw_hello(&room, &hello);
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        for (int greeted = 0; greeted < 2; greeted++) {
            hoop_frame_init(&frame, (enum hoop_frame_type)type);
            const int fd = raw_connect(&room);
            if (type == HOOP_FRAME_HELLO) {
                frame = hello;
            }
            if (greeted == 1) {
                union hoop_frame challenge;
                assert_true(raw_send(fd, &hello, hello.header.bytes, sizeof(hello)));
                assert_true(raw_receive(&room, fd, &challenge));
                assert_int_equal(challenge.header.type, HOOP_FRAME_CHALLENGE);
            }
            if (greeted == 1 || type != HOOP_FRAME_HELLO) {
                assert_true(raw_send(fd, &frame, frame.header.bytes, sizeof(frame)));
                assert_true(raw_ended(fd));
            }
            close(fd);
        }
    }
    check_honest();
}

/* A message of a type that is not allowed yet ends the connection at its header; the rest is not
 * awaited. */
static void test_header_is_enough(void **state)
{
    (void)state;
    if (!room_is_far(&room)) {
        return;
    }
    for (int type = 2; type < HOOP_FRAME_TYPE_COUNT; type++) {
        union hoop_frame frame;
        const int fd = raw_connect(&room);
        hoop_frame_init(&frame, (enum hoop_frame_type)type);
        assert_true(raw_send(fd, &frame, sizeof(frame.header), sizeof(frame)));
        assert_true(raw_ended(fd));
        close(fd);
    }
    check_honest();
}

/* What an honest client has sent proves nothing when it is sent again. */
static void test_replay(void **state)
{
    union hoop_frame hello;
    union hoop_frame answer;
    union hoop_frame proof;
    uint8_t nonce[HOOP_NONCE_BYTES];
    (void)state;
    raw_hello(&room, &hello);
    int fd = raw_connect(&room);
    assert_true(raw_send(fd, &hello, hello.header.bytes, sizeof(hello)));
    assert_true(raw_receive(&room, fd, &answer));
    memcpy(nonce, answer.challenge.nonce, sizeof(nonce));
    raw_proof(&room, &hello, &answer, &proof);
    close(fd); /* without sending the proof */
    for (int round = 0; round < 3; round++) {
        fd = raw_connect(&room);
        assert_true(raw_send(fd, &hello, hello.header.bytes, sizeof(hello)));
        assert_true(raw_receive(&room, fd, &answer));
        assert_int_equal(answer.header.type, HOOP_FRAME_CHALLENGE);
        assert_memory_not_equal(answer.challenge.nonce, nonce, sizeof(nonce));
        assert_true(raw_send(fd, &proof, proof.header.bytes, sizeof(proof)));
        assert_true(raw_ended(fd));
        close(fd);
    }
    /* nor does the server's own answer, sent back to it */
    fd = raw_connect(&room);
    assert_true(raw_send(fd, &hello, hello.header.bytes, sizeof(hello)));
    assert_true(raw_receive(&room, fd, &answer));
    memcpy(proof.proof.mac, answer.challenge.mac, sizeof(proof.proof.mac));
    assert_true(raw_send(fd, &proof, proof.header.bytes, sizeof(proof)));
    assert_true(raw_ended(fd));
    close(fd);
    check_honest();
}

static atomic_int version_warnings;

static void count_version_warnings(void *arg, hoop_log_level_t level, const char *subsystem,
                                   const char *line)
{
    (void)arg;
    (void)subsystem;
    if (level == HOOP_LOG_WARN && strstr(line, "libhoops have different versions") != NULL) {
        atomic_fetch_add(&version_warnings, 1);
    }
}

/* A client of another version is told ours; the user of the listener is told, once, that one
 * came. */
static void test_version(void **state)
{
    union hoop_frame frame;
    (void)state;
    version_warnings = 0;
    hoop_log_set_callback(count_version_warnings, NULL);
    for (int newer = 0; newer < 2; newer++) {
        const int fd = raw_connect(&room);
        raw_hello(&room, &frame);
        frame.header.version = newer == 1 ? HOOP_FRAME_VERSION + 1 : HOOP_FRAME_VERSION - 1;
        assert_true(raw_send(fd, &frame, frame.header.bytes, sizeof(frame)));
        assert_true(raw_receive(&room, fd, &frame));
        assert_int_equal(frame.header.type, HOOP_FRAME_REJECT);
        assert_int_equal(frame.header.version, HOOP_FRAME_VERSION);
        assert_int_equal(frame.reject.code, HOOP_MISMATCH);
        assert_non_null(strstr(frame.reject.text, "has protocol version"));
        assert_true(raw_ended(fd));
        close(fd);
    }
    check_honest();
    hoop_log_set_callback(NULL, NULL);
    assert_int_equal(version_warnings, 1);
}

/* An honest client that sends one byte at a time. */
static void test_byte_by_byte(void **state)
{
    union hoop_frame frame;
    (void)state;
    if (!room_is_far(&room)) {
        return;
    }
    const int fd = raw_connect(&room);
    assert_true(raw_shake(&room, fd, 1));
    assert_true(room_await(&room, &room.server.opened, 1));
    for (uint32_t i = 0; i < 8; i++) {
        party_fill(&frame, i);
        raw_seal(&room, &frame);
        assert_true(raw_send(fd, &frame, frame.header.bytes, 1));
    }
    assert_true(room_await(&room, &room.server.messages, 8));
    assert_int_equal(room.server.bad, 0);
    /* half a message, then the end */
    assert_true(raw_send(fd, &frame, frame.header.bytes - 1, sizeof(frame)));
    close(fd);
    assert_true(room_await(&room, &room.server.closed, 1));
    assert_int_equal(room.server.why.code, HOOP_REMOTE_ERROR);
    assert_int_equal(room.server.messages, 8);
}

/* ---- Liars that have proved themselves ---------------------------------------------------- */

static void test_proven_garbage(void **state)
{
    uint64_t seed = 7;
    (void)state;
    for (uint32_t round = 1; round <= 50; round++) {
        uint8_t data[2 * sizeof(union hoop_frame)];
        const size_t bytes = make_garbage(&seed, data, sizeof(data));
        const int fd = raw_connect(&room);
        assert_true(raw_shake(&room, fd, sizeof(data)));
        (void)raw_send(fd, data, bytes, sizeof(data));
        (void)shutdown(fd, SHUT_WR);
        assert_true(raw_ended(fd));
        assert_true(room_await(&room, &room.server.closed, round));
        close(fd);
    }
    room.server.opened = room.server.messages = room.server.bad = 0;
    room.server.closed = 0;
    check_honest();
}

/* An end that reads nothing is closed when too much waits to be sent to it. */
static void test_never_reads(void **state)
{
    (void)state;
    room.server.to_send = 40000;
    room.server.on_opened = party_send_all;
    room_settle();
    const int fd = raw_connect(&room);
    assert_true(raw_shake(&room, fd, 4096));
    assert_true(room_await(&room, &room.server.closed, 1));
    assert_non_null(strstr(room.server.why.text, "messages unread"));
    close(fd);
}

static void refuse_it(struct party *party)
{
    hoop_connection_refuse(party->connection, hoop_error(HOOP_REMOTE_ERROR, "enough"));
}

/* A client that was refused and goes on sending can't keep the connection open. */
static void test_never_stops(void **state)
{
    union hoop_frame frame;
    (void)state;
    room.server.on_opened = refuse_it;
    room_settle();
    const int fd = raw_connect(&room);
    assert_true(raw_shake(&room, fd, 4096));
    party_fill(&frame, 1);
    while (raw_send(fd, &frame, frame.header.bytes, sizeof(frame))) {
    }
    assert_true(room_await(&room, &room.server.closed, 1));
    assert_string_equal(room.server.why.text, "enough");
    close(fd);
}

/* ---- Servers that lie --------------------------------------------------------------------- */

/* Connects a client to a server that answers its hello with these bytes. */
static void client_meets(struct party *client, const void *data, size_t bytes)
{
    struct hoop_place place;
    union hoop_frame hello;
    const int listen_fd = raw_listen(&room, 5, &place);
    assert_true(listen_fd >= 0);
    *client = (struct party){.room = NULL};
    assert_int_equal(party_connect_to(client, &room, &place, NULL, &room.secret), HOOP_OK);
    const int fd = raw_accept(listen_fd);
    assert_true(raw_receive(&room, fd, &hello));
    assert_int_equal(hello.header.type, HOOP_FRAME_HELLO);
    assert_true(raw_send(fd, data, bytes, bytes));
    (void)shutdown(fd, SHUT_WR);
    assert_true(room_await(&room, &client->closed, 1));
    assert_int_equal(client->opened, 0);
    assert_true(raw_ended(fd));
    close(fd);
    close(listen_fd);
}

static void test_lying_server(void **state)
{
    struct party client;
    union hoop_frame frame;
    uint64_t seed = 99;
    (void)state;
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        hoop_frame_init(&frame, (enum hoop_frame_type)type);
        if (type == HOOP_FRAME_REJECT) {
            frame.reject.code = HOOP_TIMEOUT;
            (void)snprintf(frame.reject.text, sizeof(frame.reject.text), "so I say");
        }
        client_meets(&client, &frame, frame.header.bytes);
        assert_int_equal(client.why.code, HOOP_NOT_AUTHENTICATED);
        if (type == HOOP_FRAME_REJECT) {
            assert_string_equal(client.why.text, "so I say");
        }
    }
    raw_hello(&room, &frame);
    frame.header.version++;
    client_meets(&client, &frame, frame.header.bytes);
    assert_int_equal(client.why.code, HOOP_MISMATCH);
    for (int round = 0; round < 50; round++) {
        uint8_t data[2 * sizeof(union hoop_frame)];
        client_meets(&client, data, make_garbage(&seed, data, sizeof(data)));
        assert_true(client.why.code == HOOP_NOT_AUTHENTICATED ||
                    client.why.code == HOOP_REMOTE_ERROR || client.why.code == HOOP_MISMATCH);
    }
}

static void detach_it(struct party *party)
{
    party_detach(party);
}

/*
 * A server that sends its welcome and more at once: what follows the welcome is a message, or
 * belongs to the code that the connection is detached to.
 */
static void test_one_breath(void **state)
{
    struct hoop_place place;
    union hoop_frame frames[2];
    uint8_t breath[2 * sizeof(union hoop_frame)];
    (void)state;
    if (!room_is_far(&room)) {
        return;
    }
    const int listen_fd = raw_listen(&room, 5, &place);
    hoop_frame_init(&frames[0], HOOP_FRAME_WELCOME);
    for (int detach = 0; detach < 2; detach++) {
        struct party client = {.on_opened = detach == 1 ? detach_it : NULL};
        const size_t welcome = frames[0].header.bytes;
        party_fill(&frames[1], 0);
        const size_t more = frames[1].header.bytes;
        assert_int_equal(party_connect_to(&client, &room, &place, NULL, &room.secret), HOOP_OK);
        const int fd = raw_accept(listen_fd);
        assert_true(raw_serve(&room, fd));
        raw_seal(&room, &frames[1]);
        memcpy(breath, &frames[0], welcome);
        memcpy(breath + welcome, &frames[1], more);
        assert_true(raw_send(fd, breath, welcome + more, sizeof(breath)));
        assert_true(room_await(&room, detach == 1 ? &client.opened : &client.messages, 1));
        assert_int_equal(client.bad, 0);
        if (detach == 1) {
            struct pollfd wait = {.fd = client.fd, .events = POLLIN};
            assert_int_equal(poll(&wait, 1, ROOM_PATIENCE_MS), 1);
            assert_int_equal(recv(client.fd, breath, sizeof(breath), 0), more);
            assert_memory_equal(breath, &frames[1], more);
            hoop_fork_close(client.fd);
        }
        party_destroy(&client);
        close(fd);
    }
    close(listen_fd);
}

/* "Come back later" is no valid answer after the welcome. */
static void test_late_later(void **state)
{
    struct party client = {.room = NULL};
    struct hoop_place place;
    union hoop_frame frame;
    (void)state;
    const int listen_fd = raw_listen(&room, 5, &place);
    assert_int_equal(party_connect_to(&client, &room, &place, NULL, &room.secret), HOOP_OK);
    const int fd = raw_accept(listen_fd);
    assert_true(raw_serve(&room, fd));
    hoop_frame_init(&frame, HOOP_FRAME_WELCOME);
    assert_true(raw_send(fd, &frame, frame.header.bytes, sizeof(frame)));
    hoop_frame_init(&frame, HOOP_FRAME_REJECT);
    frame.reject.code = HOOP_IN_PROGRESS;
    frame.reject.rank = -1;
    raw_seal(&room, &frame);
    assert_true(raw_send(fd, &frame, frame.header.bytes, sizeof(frame)));
    assert_true(room_await(&room, &client.closed, 1));
    assert_int_equal(client.why.code, HOOP_REMOTE_ERROR);
    assert_int_equal(client.messages, 0);
    close(fd);
    close(listen_fd);
}

/* ---- Patience ----------------------------------------------------------------------------- */

/* A stranger that sends only a byte now and then is not awaited for ever. */
static void test_patience(void **state)
{
    union hoop_frame hello;
    (void)state;
    const uint64_t since = hoop_now_ns();
    const int stranger = raw_connect(&room);
    raw_hello(&room, &hello);
    assert_true(raw_send(stranger, &hello, sizeof(hello.header) + 1, sizeof(hello)));
    assert_true(raw_ended(stranger));
    if (room_is_far(&room)) { /* on a Unix socket half a hello is not a message */
        assert_true(hoop_now_ns() - since >= 4900 * HOOP_NS_PER_MS);
    }
    close(stranger);
    check_honest();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, room_setup, room_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_silent),       TEST(test_known_address),    TEST(test_garbage),
        TEST(test_before_proof), TEST(test_header_is_enough), TEST(test_replay),
        TEST(test_version),      TEST(test_byte_by_byte),     TEST(test_proven_garbage),
        TEST(test_never_reads),  TEST(test_never_stops),      TEST(test_lying_server),
        TEST(test_one_breath),   TEST(test_late_later),       TEST(test_patience),
    };
    return room_run(&room, tests, sizeof(tests) / sizeof(tests[0]));
}

/*
 * An attacker between the two ends of a connection, without the secret. Without HOOP_NAT it gets
 * nowhere: both ends notice that one dialled another port than the other listens at. With
 * HOOP_NAT=1, which here stands for an attacker on the way between two machines, the connection is
 * made through it, and then it can only read, and end the connection. With HOOP_CHECK=aead it
 * cannot read either, not even once it knows the secret.
 */
#include "base/settings.h"
#include "control/control_room.h"
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MESSAGES 20u
#define VICTIM 7u /* which of the client's messages it manipulates */
#define EARLY 2u  /* hello and proof come first */

enum deed { PASS, FLIP, DROP, REPEAT, REFLECT, FORGE, WEAKEN };

struct relay {
    enum deed deed;
    int listen_fd;
    struct hoop_place place;
    pthread_t thread;
    uint32_t said;     /* frames that the client has sent so far */
    uint32_t readable; /* messages that came in clear */
    /* what was recorded */
    union hoop_frame hello, challenge, message;
};

static enum room_kind kind;
static struct room room;
static struct relay relay;

static bool encrypts(void)
{
    return hoop_settings()->check == HOOP_CHECK_AEAD;
}

static void relay_record(struct relay *r, const union hoop_frame *frame, bool of_client)
{
    switch (frame->header.type) {
    case HOOP_FRAME_HELLO:
        r->hello = *frame;
        break;
    case HOOP_FRAME_CHALLENGE:
        r->challenge = *frame;
        break;
    case HOOP_FRAME_ROSTER_PART:
        r->message = of_client && r->said == EARLY ? *frame : r->message;
        r->readable += hoop_frame_check_far(frame, frame->header.bytes) == HOOP_OK;
        break;
    default:
        break;
    }
}

/* Passes one frame from `from` to `to`. False: the connection has ended. */
static bool relay_frame(struct relay *r, int from, int to, bool of_client)
{
    union hoop_frame frame;
    if (!raw_receive(&room, from, &frame)) {
        return false;
    }
    const bool victim = of_client && r->said == (r->deed == WEAKEN ? 0 : EARLY + VICTIM);
    const size_t bytes = frame.header.bytes;
    relay_record(r, &frame, of_client);
    r->said += of_client ? 1 : 0;
    if (!victim || r->deed == PASS) {
        return raw_send(to, &frame, bytes, bytes);
    }
    switch (r->deed) {
    case FLIP:
        ((uint8_t *)&frame)[bytes - 1] ^= 0x10;
        return raw_send(to, &frame, bytes, bytes);
    case FORGE: /* a well-formed message of the attacker's own */
        party_fill(&frame, VICTIM);
        return raw_send(to, &frame, frame.header.bytes, sizeof(frame));
    case REPEAT:
        return raw_send(to, &frame, bytes, bytes) && raw_send(to, &frame, bytes, bytes);
    case REFLECT:
        return raw_send(from, &frame, bytes, bytes);
    case WEAKEN: /* as if the client did not encrypt */
        frame.hello.encrypts = 0;
        return raw_send(to, &frame, bytes, bytes);
    default: /* DROP */
        return true;
    }
}

static void *relay_main(void *arg)
{
    struct relay *r = arg;
    const int client = raw_accept(r->listen_fd);
    const int server = raw_connect(&room);
    struct pollfd ends[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    bool over = client < 0 || server < 0;
    while (!over && poll(ends, 2, (int)ROOM_PATIENCE_MS) > 0) {
        if (ends[0].revents != 0) {
            over = !relay_frame(r, client, server, true);
        } else {
            over = !relay_frame(r, server, client, false);
        }
    }
    close(client);
    close(server);
    return NULL;
}

static int setup(void **state)
{
    (void)state;
    room_open(&room, kind);
    relay.listen_fd = raw_listen(&room, 5, &relay.place);
    relay.said = relay.readable = 0;
    return relay.listen_fd < 0;
}

static int teardown(void **state)
{
    (void)state;
    close(relay.listen_fd);
    return room_close(&room);
}

static void begin(struct party *client, enum deed deed)
{
    relay.deed = deed;
    room.server.to_send = client->to_send = MESSAGES;
    assert_int_equal(pthread_create(&relay.thread, NULL, relay_main, &relay), 0);
    room_settle();
    assert_int_equal(party_connect_to(client, &room, &relay.place, NULL, &room.secret), HOOP_OK);
}

static void end(struct party *client)
{
    party_destroy(client);
    party_destroy(&room.server);
    assert_int_equal(pthread_join(relay.thread, NULL), 0);
}

/* ---- Not without HOOP_NAT ----------------------------------------------------------------- */

static void test_other_port(void **state)
{
    struct party client = {.room = NULL};
    char dialled[HOOP_ADDRESS_TEXT_BYTES];
    char reached[HOOP_ADDRESS_TEXT_BYTES];
    (void)state;
    begin(&client, PASS);
    assert_true(room_await(&room, &client.closed, 1));
    assert_int_equal(client.why.code, HOOP_NOT_AUTHENTICATED);
    hoop_place_format(&relay.place, dialled, sizeof(dialled));
    hoop_place_format(&room.place, reached, sizeof(reached));
    assert_non_null(strstr(client.why.text, dialled));
    assert_non_null(strstr(client.why.text, reached));
    assert_non_null(strstr(client.why.text, "HOOP_NAT=1"));
    assert_int_equal(client.opened + room.server.opened, 0);
    end(&client);
}

/* It rewrites the hello, so that the server finds its own address there; but the proof covers the
 * hello. */
static void test_rewritten(void **state)
{
    struct party client = {.room = NULL};
    union hoop_frame frame;
    (void)state;
    room_settle();
    assert_int_equal(party_connect_to(&client, &room, &relay.place, NULL, &room.secret), HOOP_OK);
    const int there = raw_accept(relay.listen_fd);
    const int here = raw_connect(&room);
    assert_true(raw_receive(&room, there, &frame));
    assert_int_equal(frame.header.type, HOOP_FRAME_HELLO);
    frame.hello.dialled = room.place.address;
    assert_true(raw_send(here, &frame, frame.header.bytes, sizeof(frame)));
    assert_true(raw_receive(&room, here, &frame)); /* the server has found nothing wrong so far */
    assert_int_equal(frame.header.type, HOOP_FRAME_CHALLENGE);
    assert_true(raw_send(there, &frame, frame.header.bytes, sizeof(frame)));
    assert_true(room_await(&room, &client.closed, 1)); /* the client has */
    assert_int_equal(client.why.code, HOOP_NOT_AUTHENTICATED);
    assert_non_null(strstr(client.why.text, "could not prove"));
    assert_int_equal(client.opened + room.server.opened, 0);
    close(there);
    close(here);
}

/* ---- With it ------------------------------------------------------------------------------ */

static void test_passed_on(void **state)
{
    struct party client = {.room = NULL};
    (void)state;
    begin(&client, PASS);
    assert_true(room_await(&room, &client.opened, 1));
    assert_true(room_await(&room, &room.server.opened, 1));
    party_run(&client, party_send_all);
    party_run(&room.server, party_send_all);
    assert_true(room_await(&room, &room.server.messages, MESSAGES));
    assert_true(room_await(&room, &client.messages, MESSAGES));
    assert_int_equal(client.bad + room.server.bad, 0);
    end(&client);
    assert_int_equal(relay.readable, encrypts() ? 0 : 2 * MESSAGES);
}

/* Who learns the secret afterwards can compute the keys of a connection that was not encrypted from
 * what he recorded, as is shown here; of others he lacks what X25519 gave both ends. */
static void test_recorded(void **state)
{
    struct party client = {.room = NULL};
    struct hoop_secret key;
    uint8_t mac[HOOP_MAC_BYTES];
    uint8_t said[HOOP_FRAME_MAC_BYTES];
    const uint64_t number = 0;
    union hoop_frame *const message = &relay.message;
    (void)state;
    begin(&client, PASS);
    assert_true(room_await(&room, &client.opened, 1));
    party_run(&client, party_send_all);
    assert_true(room_await(&room, &room.server.messages, MESSAGES));
    end(&client);
    assert_int_equal(relay.hello.hello.encrypts, encrypts());
    assert_int_equal(hoop_hmac(&room.secret, "hoop key client", &relay.hello,
                               sizeof(relay.hello.hello), &relay.challenge,
                               sizeof(relay.challenge.challenge), key.bytes),
                     HOOP_OK);
    memcpy(said, message->header.mac, sizeof(said));
    memset(message->header.mac, 0, sizeof(said));
    assert_int_equal(
        hoop_hmac(&key, "hoop frame", &number, sizeof(number), message, message->header.bytes, mac),
        HOOP_OK);
    assert_int_equal(memcmp(mac, said, sizeof(said)) == 0, !encrypts());
}

/* Nor can it make them believe that they need not encrypt. */
static void test_weakened(void **state)
{
    struct party client = {.room = NULL};
    (void)state;
    if (!encrypts()) {
        return;
    }
    begin(&client, WEAKEN);
    assert_true(room_await(&room, &client.closed, 1));
    assert_int_equal(client.why.code, HOOP_NOT_AUTHENTICATED);
    assert_non_null(strstr(client.why.text, "could not prove"));
    assert_int_equal(client.opened + room.server.opened, 0);
    end(&client);
}

/* Not inlined: a compiler that sees both parties might also read the other one, to which its thread
 * still writes. */
__attribute__((noinline)) static void check_victim(const struct party *victim, uint32_t taken)
{
    assert_int_equal(victim->why.code, HOOP_NOT_AUTHENTICATED);
    assert_non_null(strstr(victim->why.text, "ROSTER_PART was changed on the way"));
    assert_int_equal(victim->bad, 0); /* only the other end is sent the reason */
    assert_int_equal(victim->messages, taken);
}

/* Manipulating a message ends the connection at its receiver, which has accepted the messages
 * before. */
static void check_deed(enum deed deed)
{
    struct party client = {.room = NULL};
    struct party *victim = deed == REFLECT ? &client : &room.server;
    begin(&client, deed);
    assert_true(room_await(&room, &client.opened, 1));
    assert_true(room_await(&room, &room.server.opened, 1));
    party_run(&client, party_send_all);
    assert_true(room_await(&room, &victim->closed, 1));
    check_victim(victim, deed == REFLECT ? 0 : deed == REPEAT ? VICTIM + 1 : VICTIM);
    end(&client);
}

static void test_flipped_bit(void **state)
{
    (void)state;
    check_deed(FLIP);
}

static void test_left_out(void **state)
{
    (void)state;
    check_deed(DROP);
}

static void test_repeated(void **state)
{
    (void)state;
    check_deed(REPEAT);
}

static void test_sent_back(void **state)
{
    (void)state;
    check_deed(REFLECT);
}

static void test_forged(void **state)
{
    (void)state;
    check_deed(FORGE);
}

int main(void)
{
    static const char *const names[] = {"unix", "tcp4", "tcp6"};
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest refused[] = {TEST(test_other_port), TEST(test_rewritten)};
    const struct CMUnitTest between[] = {
        TEST(test_passed_on), TEST(test_flipped_bit), TEST(test_left_out), TEST(test_repeated),
        TEST(test_sent_back), TEST(test_forged),      TEST(test_recorded), TEST(test_weakened),
    };
    int failed = 0;
    for (int i = ROOM_TCP4; i <= ROOM_TCP6; i++) {
        kind = (enum room_kind)i;
        if (!room_can(kind)) {
            (void)printf("%s: skipped, this machine has no such address\n", names[i]);
        } else if (hoop_settings()->nat == 0) {
            failed += cmocka_run_group_tests_name(names[i], refused, NULL, NULL);
        } else {
            failed += cmocka_run_group_tests_name(names[i], between, NULL, NULL);
        }
    }
    return failed;
}

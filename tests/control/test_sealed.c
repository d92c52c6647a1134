/*
 * The keys of a connection, and the messages that they seal, in clear and encrypted: without a
 * connection, byte by byte.
 */
#include "control/frame_io.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const struct hoop_secret secret = {.bytes = {1, 2, 3}};

/* ---- Keys --------------------------------------------------------------------------------- */

/* Both ends, until they are done. */
static void shake(bool encrypts, struct hoop_handshake *client, struct hoop_handshake *server)
{
    const struct hoop_frame_hello hello = {.kind = HOOP_HELLO_RANK, .encrypts = encrypts};
    union hoop_frame greeting = {.header = {.type = 0}}, challenge, proof, welcome;
    *client = (struct hoop_handshake){.peer = "the server"};
    *server = (struct hoop_handshake){
        .expects = HOOP_FRAME_HELLO, .peer = "the client", .secret = secret};
    assert_int_equal(hoop_handshake_greet(client, &hello, &secret), HOOP_OK);
    greeting.hello = client->hello;
    assert_int_equal(hoop_handshake_take(server, &greeting, &challenge), HOOP_OK);
    assert_int_equal(hoop_handshake_take(client, &challenge, &proof), HOOP_OK);
    assert_int_equal(hoop_handshake_take(server, &proof, &welcome), HOOP_OK);
    assert_int_equal(hoop_handshake_take(client, &welcome, &proof), HOOP_OK);
}

/* The key for data, with this in the place of what X25519 gives; NULL: nothing. */
static struct hoop_secret key_with(const struct hoop_handshake *end,
                                   const struct hoop_secret *shared)
{
    struct {
        struct hoop_frame_challenge challenge;
        struct hoop_secret shared;
    } said = {.challenge = end->challenge};
    struct hoop_secret ret;
    if (shared != NULL) {
        said.shared = *shared;
    }
    assert_int_equal(hoop_hmac(&secret, "hoop key data", &end->hello, sizeof(end->hello), &said,
                               shared != NULL ? sizeof(said) : sizeof(said.challenge), ret.bytes),
                     HOOP_OK);
    return ret;
}

static bool same(struct hoop_secret a, struct hoop_secret b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

/* Both ends have the same three keys. If they encrypt, nobody without a private key can compute
 * them; and these are wiped. */
static void test_keys(void **state)
{
    static const struct hoop_secret zeros;
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct hoop_handshake client, server;
        struct hoop_secret in[2], out[2], data[2], shared;
        shake(encrypts != 0, &client, &server);
        const struct hoop_secret own = client.own;
        assert_int_equal(hoop_handshake_keys(&client, &in[0], &out[0], &data[0]), HOOP_OK);
        assert_int_equal(hoop_handshake_keys(&server, &in[1], &out[1], &data[1]), HOOP_OK);
        assert_true(same(in[0], out[1]) && same(out[0], in[1]) && same(data[0], data[1]));
        assert_false(same(in[0], out[0]) || same(in[0], data[0]) || same(out[0], data[0]));
        assert_int_equal(same(data[0], key_with(&client, NULL)), !encrypts);
        assert_false(same(data[0], key_with(&client, &zeros)));
        if (encrypts) {
            assert_int_equal(hoop_x25519_shared(&own, client.challenge.nonce, &shared), HOOP_OK);
            assert_true(same(data[0], key_with(&client, &shared)));
            assert_false(same(own, zeros));
        }
        assert_true(same(client.own, zeros) && same(server.own, zeros));
    }
}

/* ---- Messages ----------------------------------------------------------------------------- */

/* Two pairs of sockets, so that what is sent on the one can be changed before it is read from the
 * other. */
struct wire {
    int from[2], to[2];
    struct hoop_frame_seal out, in;
    struct hoop_frame_queue queue;
    struct hoop_frame_reader reader;
};

static void wire_open(struct wire *wire, bool encrypts)
{
    *wire = (struct wire){.out.key = secret, .in.key = secret};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, wire->from), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, wire->to), 0);
    if (encrypts) {
        assert_int_equal(hoop_aead_create(&secret, true, &wire->out.aead), HOOP_OK);
        assert_int_equal(hoop_aead_create(&secret, false, &wire->in.aead), HOOP_OK);
    }
    hoop_frame_queue_init(&wire->queue);
    hoop_frame_reader_init(&wire->reader);
}

static void wire_close(struct wire *wire)
{
    hoop_frame_queue_finish(&wire->queue);
    hoop_frame_reader_clear(&wire->reader);
    hoop_frame_seal_finish(&wire->out);
    hoop_frame_seal_finish(&wire->in);
    for (int i = 0; i < 2; i++) {
        close(wire->from[i]);
        close(wire->to[i]);
    }
}

static union hoop_frame frame_of(enum hoop_frame_type type)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, type);
    if (type == HOOP_FRAME_BEAT) {
        hoop_frame_make_beat(&frame, 70, 90);
    }
    return frame;
}

static void wire_put(struct wire *wire, enum hoop_frame_type type)
{
    const union hoop_frame frame = frame_of(type);
    assert_int_equal(hoop_frame_queue_put(&wire->queue, &frame.header, NULL, 0), HOOP_OK);
}

/* Sends what is queued, and takes it off the wire. Returns its bytes. */
static size_t wire_take(struct wire *wire, union hoop_frame *ret)
{
    assert_int_equal(hoop_frame_queue_send(&wire->queue, wire->from[0], &wire->out), 0);
    const ssize_t got = recv(wire->from[1], ret, sizeof(*ret), 0);
    assert_true(got > 0);
    return (size_t)got;
}

static hoop_result_t wire_read(struct wire *wire, const void *data, size_t bytes)
{
    hoop_result_t result = HOOP_IN_PROGRESS;
    assert_int_equal(send(wire->to[0], data, bytes, 0), bytes);
    while (result == HOOP_IN_PROGRESS) {
        result = hoop_frame_read(&wire->reader, wire->to[1], true, NULL, &wire->in);
    }
    return result;
}

/* No bit may change: not of what is encrypted, not of the header, by which a READY would be a GO.
 * (HOOP_AGAIN: more bytes are expected.) */
static void check_bits(bool encrypts, enum hoop_frame_type type)
{
    union hoop_frame frame;
    size_t bytes = sizeof(frame);
    for (size_t bit = 0; bit <= 8 * bytes; bit++) {
        struct wire wire;
        wire_open(&wire, encrypts);
        wire_put(&wire, type);
        bytes = wire_take(&wire, &frame);
        if (bit < 8 * bytes) {
            ((uint8_t *)&frame)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        const hoop_result_t result = wire_read(&wire, &frame, bytes);
        assert_int_equal(result == HOOP_OK, bit == 8 * bytes);
        wire_close(&wire);
    }
}

static void test_bits(void **state)
{
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        check_bits(encrypts != 0, HOOP_FRAME_READY);
        check_bits(encrypts != 0, HOOP_FRAME_BEAT);
    }
}

static void test_other_type(void **state)
{
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct wire wire;
        union hoop_frame frame;
        wire_open(&wire, encrypts != 0);
        wire_put(&wire, HOOP_FRAME_READY);
        const size_t bytes = wire_take(&wire, &frame);
        frame.header.type = HOOP_FRAME_GO;
        assert_int_equal(wire_read(&wire, &frame, bytes), HOOP_NOT_AUTHENTICATED);
        wire_close(&wire);
    }
}

/* Puts bytes onto the wire until it takes no more; the reverse. */
static void wire_stuff(const struct wire *wire)
{
    static const uint8_t data[4096];
    while (send(wire->from[0], data, sizeof(data), 0) > 0) {
    }
}

static void wire_unstuff(const struct wire *wire)
{
    uint8_t data[4096];
    while (recv(wire->from[1], data, sizeof(data), 0) > 0) {
    }
}

/* A message that could not be sent is sent later, or dropped for another, and is whole then. */
static void check_later(bool encrypts, bool drop)
{
    const enum hoop_frame_type type = drop ? HOOP_FRAME_READY : HOOP_FRAME_BEAT;
    const union hoop_frame expected = frame_of(type);
    struct wire wire;
    union hoop_frame frame;
    wire_open(&wire, encrypts);
    wire_stuff(&wire);
    wire_put(&wire, HOOP_FRAME_BEAT);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hoop_frame_queue_send(&wire.queue, wire.from[0], &wire.out), EAGAIN);
    }
    wire_unstuff(&wire);
    if (drop) {
        hoop_frame_queue_drop(&wire.queue);
        wire_put(&wire, type);
    }
    for (uint64_t number = 1; number < 4; number++) {
        const size_t bytes = wire_take(&wire, &frame);
        assert_int_equal(wire_read(&wire, &frame, bytes), HOOP_OK);
        assert_memory_equal(&wire.reader.frame, &expected, expected.header.bytes);
        assert_int_equal(wire.in.number, number);
        hoop_frame_reader_clear(&wire.reader);
        wire_put(&wire, type);
    }
    wire_close(&wire);
}

static void test_later(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        check_later(i % 2 != 0, i / 2 != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_other_type),
        cmocka_unit_test(test_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The contract of transports/transport.h with hostile peers: forged blobs, and damage in shared
 * memory. What a hostile peer may send over tcp is in test_tcp_broken.c. Usage:
 * `test_transport_hostile inproc|shm|tcp|rdma [faulty]`
 */
#include "harness/splitmix.h"
#include "memory/region.h"
#include "transports/link_stream.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK STREAM_CHUNK
#define SLOTS STREAM_SLOTS

static const struct hoop_transport *transport;

/* ---- Hostile blobs --------------------------------------------------------------------------- */

/* Binds one end with a forged blob. If that is not refused, it must be harmless. */
static void check_blob(bool to_sender, const struct hoop_blob *forged, struct pair *pair)
{
    struct hoop_link *link = to_sender ? pair->sender : pair->receiver;
    uint8_t data[8] = {0};
    struct item item; /* may be pending until the pair is closed */
    const hoop_result_t result = pair_bind(link, forged);
    assert_int_not_equal(result, HOOP_TIMEOUT);
    assert_int_equal(link->bound, result == HOOP_OK);
    if (result != HOOP_OK) {
        assert_int_equal(link->failure.code, result);
        assert_true(strlen(link->failure.text) > 0);
        assert_int_equal(link->failure.rank, to_sender ? PAIR_RECEIVER : PAIR_SENDER);
        assert_int_equal(hoop_link_bind(link, forged), result); /* the result stays the same */
    } else {
        if (to_sender) {
            (void)pair_send(pair, &item, data, sizeof(data), 1);
        } else {
            (void)pair_recv(pair, &item, data, sizeof(data), 1);
        }
        pair_settle(pair);
    }
    pair_close(pair);
    assert_true(pair_nothing_left());
}

static void test_hostile_bytes(void **state)
{
    (void)state;
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    struct pair pair;
    assert_int_equal(pair_create(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    const uint32_t bytes = pair.receiver_blob.bytes;
    pair_close(&pair);
    for (uint32_t i = 0; i < bytes * 2 * 3; i += pair_has_device() ? 17 : 1) {
        assert_int_equal(pair_create(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        const bool to_sender = i % 2 == 0;
        struct hoop_blob forged = to_sender ? pair.receiver_blob : pair.sender_blob;
        forged.data[i / 2 % bytes] ^= flips[i / 2 / bytes];
        check_blob(to_sender, &forged, &pair);
    }
}

static void test_hostile_lengths(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t random = 3;
    for (uint32_t i = 0; i < (pair_has_device() ? 30 : 200); i++) {
        assert_int_equal(pair_create(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        const uint32_t usual = pair.sender_blob.bytes;
        const uint32_t lengths[] = {
            0, 1, usual - 1, usual + 1, HOOP_BLOB_BYTES, HOOP_BLOB_BYTES + 1, UINT32_MAX};
        struct hoop_blob forged = i % 2 == 0 ? pair.receiver_blob : pair.sender_blob;
        if (i / 2 < sizeof(lengths) / sizeof(lengths[0])) {
            forged.bytes = lengths[i / 2];
        } else { /* the magic is right, the rest is random */
            for (uint32_t k = 4; k < usual; k++) {
                forged.data[k] = (uint8_t)splitmix(&random);
            }
        }
        check_blob(i % 2 == 0, &forged, &pair);
    }
}

/* Genuine blobs of other ends. */
static void test_blobs_of_others(void **state)
{
    (void)state;
    struct pair pair, other;
    assert_int_equal(pair_create(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    const struct hoop_blob own = pair.sender_blob;
    check_blob(true, &own, &pair);

    assert_int_equal(pair_create(&other, transport, SLOTS, CHUNK), HOOP_OK);
    const struct hoop_blob gone = other.receiver_blob;
    pair_close(&other);
    assert_int_equal(pair_create(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    /* A network transport only notices later that there is no peer. */
    assert_int_equal(pair_bind(pair.sender, &gone) == HOOP_OK, pair_is_network(&pair));
    pair_close(&pair);

    assert_int_equal(pair_create(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    assert_int_equal(pair_create(&other, transport, SLOTS + 1, CHUNK), HOOP_OK);
    assert_int_equal(pair_bind(pair.sender, &other.receiver_blob), HOOP_MISMATCH);
    pair_close(&pair);
    pair_close(&other);

    if (strcmp(transport->name, "inproc") == 0) { /* a second sender for one receiver */
        assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        assert_int_equal(pair_create(&other, transport, SLOTS, CHUNK), HOOP_OK);
        assert_int_equal(pair_bind(other.sender, &pair.receiver_blob), HOOP_REMOTE_ERROR);
        pair_close(&pair);
        pair_close(&other);
    }

    const struct hoop_transport *const strange =
        strcmp(transport->name, "shm") == 0 ? hoop_transports[0] : hoop_transports[1];
    assert_int_equal(pair_create(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    assert_int_equal(pair_create(&other, strange, SLOTS, CHUNK), HOOP_OK);
    assert_int_equal(pair_bind(pair.sender, &other.receiver_blob), HOOP_INVALID_ARGUMENT);
    pair_close(&pair);
    pair_close(&other);
    assert_true(pair_nothing_left());
}

/* ---- A hostile peer behind shared memory ----------------------------------------------------- */

#define SMALL 32u /* slots for small chunks */

/* The layout that shm.c describes. */
struct fifo {
    _Atomic uint64_t tail;
    _Atomic uint32_t returns, paired;
    uint8_t returned[64];
    uint64_t pad[6];
    struct hoop_chunk_header header; /* of slot 0 */
    _Atomic uint64_t tag;
};

static struct fifo *fifo_of(struct pair *pair)
{
    void *base = NULL;
    uint64_t bytes = 0;
    assert_int_equal(
        hoop_region_use(PAIR_OTHER_PROCESS, pair->region, pair->generation, &base, &bytes),
        HOOP_OK);
    hoop_region_unuse(PAIR_OTHER_PROCESS, pair->region, pair->generation);
    return base;
}

static void check_receiver_fails(struct pair *pair, struct item *item, hoop_result_t code,
                                 const char *words)
{
    assert_true(pair_until_done(pair, item));
    assert_int_equal(item->result, code);
    assert_int_equal(pair->receiver->failure.code, code);
    assert_int_equal(pair->receiver->failure.rank, PAIR_SENDER);
    assert_non_null(strstr(pair->receiver->failure.text, words));
    pair_close(pair);
}

static void test_hostile_counters(void **state)
{
    (void)state;
    if (strcmp(transport->name, "shm") != 0) {
        return;
    }
    static const uint64_t tags[] = {2, SMALL + 1, UINT64_MAX, 1ull << 55};
    struct pair pair;
    struct item send[SMALL + 1], recv;
    uint8_t data[16] = {0};
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
        assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        assert_int_equal(pair_recv(&pair, &recv, data, sizeof(data), 0), HOOP_OK);
        atomic_store(&fifo_of(&pair)->tag, tags[i] << 8);
        check_receiver_fails(&pair, &recv, HOOP_REMOTE_ERROR, "as tag");
    }
    assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    for (uint32_t i = 0; i < SMALL; i++) {
        assert_int_equal(pair_send(&pair, &send[i], data, sizeof(data), i), HOOP_OK);
        assert_int_equal(pair_recv(&pair, &recv, data, sizeof(data), i), HOOP_OK);
        assert_true(pair_until_done(&pair, &recv));
    }
    assert_int_equal(pair_recv(&pair, &recv, data, sizeof(data), SMALL), HOOP_OK);
    atomic_store(&fifo_of(&pair)->tag, 0); /* backwards */
    check_receiver_fails(&pair, &recv, HOOP_REMOTE_ERROR, "as tag");

    assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    for (uint32_t i = 0; i < SMALL; i++) {
        assert_int_equal(pair_send(&pair, &send[i], data, sizeof(data), i), HOOP_OK);
    }
    atomic_store(&fifo_of(&pair)->tail, SMALL + 1);
    assert_int_equal(pair_send(&pair, &send[SMALL], data, sizeof(data), 9), HOOP_REMOTE_ERROR);
    assert_int_equal(pair.sender->failure.rank, PAIR_RECEIVER);
    assert_true(pair_until_done(&pair, &send[SMALL - 1])); /* the rest is reported */
    pair_close(&pair);
    assert_true(pair_nothing_left());
}

/* Cells that do not exist, that are not the other rank's, or too small. */
static void test_hostile_cells(void **state)
{
    (void)state;
    if (strcmp(transport->name, "shm") != 0) {
        return;
    }
    static uint8_t data[CHUNK];
    static const uint8_t wrong[] = {SLOTS, 2 * SLOTS, 254, 255};
    struct pair pair;
    struct item send[SLOTS + 1], recv;
    for (size_t i = 0; i < sizeof(wrong); i++) {
        assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        assert_int_equal(pair_send(&pair, &send[0], data, CHUNK, 0), HOOP_OK);
        assert_int_equal(pair_recv(&pair, &recv, data, CHUNK, 0), HOOP_OK);
        atomic_store(&fifo_of(&pair)->tag, 1 << 8 | wrong[i]);
        check_receiver_fails(&pair, &recv, HOOP_REMOTE_ERROR, "as cell");
    }
    /* none; one of a link in the other direction, where there is none; and one that was returned
     * before */
    for (uint32_t how = 0; how < 3; how++) {
        assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        for (uint32_t i = 0; i < SLOTS; i++) {
            assert_int_equal(pair_send(&pair, &send[i], data, CHUNK, i), HOOP_OK);
        }
        assert_int_equal(pair_recv(&pair, &recv, data, CHUNK, 0), HOOP_OK);
        assert_true(pair_until_done(&pair, &recv));
        struct fifo *fifo = fifo_of(&pair);
        fifo->returned[1] = how == 0 ? 2 * SLOTS : how == 1 ? SLOTS : fifo->returned[0];
        atomic_store(&fifo->returns, 2);
        assert_int_equal(pair_send(&pair, &send[SLOTS], data, CHUNK, SLOTS), HOOP_REMOTE_ERROR);
        assert_non_null(strstr(pair.sender->failure.text, "as a cell given back"));
        pair_close(&pair);
    }
    assert_true(pair_nothing_left());
}

static void test_hostile_headers(void **state)
{
    (void)state;
    if (strcmp(transport->name, "shm") != 0) {
        return;
    }
    for (unsigned field = 0; field < 5; field++) {
        struct pair pair;
        struct item send, recv;
        uint8_t data[16] = {0};
        assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        assert_int_equal(pair_send(&pair, &send, data, sizeof(data), 0), HOOP_OK);
        struct hoop_chunk_header *header = &fifo_of(&pair)->header;
        header->comm_id ^= field == 0;
        header->lane ^= field == 1;
        header->op ^= field == 2;
        header->chunk ^= field == 3 ? 1ull << 40 : 0;
        header->bytes = field == 4 ? UINT64_MAX : header->bytes;
        assert_int_equal(pair_recv(&pair, &recv, NULL, sizeof(data), 0), HOOP_OK);
        check_receiver_fails(&pair, &recv, field < 2 ? HOOP_REMOTE_ERROR : HOOP_MISMATCH,
                             "rank 0 sent");
    }
}

int main(int argc, char **argv)
{
    transport = pair_transport(argc, argv);
    if (transport == NULL) {
        (void)fprintf(stderr, "usage: test_transport_hostile inproc|shm|tcp|rdma [faulty]\n");
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_bytes),   cmocka_unit_test(test_hostile_lengths),
        cmocka_unit_test(test_blobs_of_others), cmocka_unit_test(test_hostile_counters),
        cmocka_unit_test(test_hostile_cells),   cmocka_unit_test(test_hostile_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

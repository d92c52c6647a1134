/*
 * The tcp transport when something is wrong: every bit of a stream flipped, the stream cut off at
 * every byte, peers that send garbage, processes that die. In every case what came before arrives,
 * everything posted is done once, the error names the peer, and nothing hangs.
 */
#include "base/clock.h"
#include "harness/splitmix.h"
#include "runtime/watch.h"
#include "transports/check/checksum.h"
#include "transports/link_raw.h"
#include "transports/link_stream.h"
#include "transports/tcp/tcp_wire.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Damage ---------------------------------------------------------------------------------- */

#define CHUNKS 3u
#define CHECKED (HOOP_TCP_HEADER_BYTES - sizeof(struct hoop_tcp_check))
static const size_t sizes[CHUNKS] = {40, 0, 130};

/* Which chunk of the recorded stream a byte belongs to, and whether to its header. CHUNKS: the
 * goodbye. */
static uint32_t chunk_of(size_t offset, bool *ret_header)
{
    uint32_t chunk = 0;
    while (chunk < CHUNKS && offset >= HOOP_TCP_HEADER_BYTES + sizes[chunk]) {
        offset -= HOOP_TCP_HEADER_BYTES + sizes[chunk];
        chunk++;
    }
    *ret_header = offset < HOOP_TCP_HEADER_BYTES;
    return chunk;
}

/* A receiver that waits for the recorded chunks, and for one more. */
struct reader {
    struct raw raw;
    struct item items[CHUNKS + 1];
    uint8_t to[CHUNKS + 1][256];
};

static void reader_open(struct reader *reader, enum hoop_check check)
{
    assert_true(raw_open(&reader->raw, false, RAW_SOCKETPAIR, check));
    memset(reader->to, 0xee, sizeof(reader->to));
    for (uint32_t i = 0; i <= CHUNKS; i++) {
        uint8_t *to = i % 2 == 0 ? reader->to[i] : NULL;
        assert_int_equal(
            raw_recv(&reader->raw, &reader->items[i], to, i < CHUNKS ? sizes[i] : 100, i), HOOP_OK);
    }
}

/* All is done: `fine` chunks arrived, the others failed, and the error names the peer. */
static void reader_check(struct reader *reader, uint32_t fine, const char *words)
{
    const struct hoop_failure *failure = &reader->raw.link->failure;
    assert_true(raw_until_done(&reader->raw, &reader->items[CHUNKS]));
    for (uint32_t i = 0; i <= CHUNKS; i++) {
        assert_int_equal(reader->items[i].done, 1);
        assert_int_equal(reader->items[i].result, i < fine ? HOOP_OK : HOOP_REMOTE_ERROR);
        assert_true(i >= fine || pattern_is(reader->items[i].xfer.data, sizes[i], i));
        assert_true(i < fine || !reader->items[i].xfer.lent);
    }
    assert_int_equal(failure->code, HOOP_REMOTE_ERROR);
    assert_int_equal(failure->rank, PAIR_SENDER);
    assert_non_null(strstr(failure->text, words));
    assert_non_null(strstr(failure->text, "rank 0"));
}

static void check_flip(const uint8_t *record, size_t bytes, size_t bit, enum hoop_check check)
{
    static struct reader reader;
    uint8_t damaged[1024];
    bool header = false;
    const uint32_t chunk = chunk_of(bit / 8, &header);
    memcpy(damaged, record, bytes);
    damaged[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    reader_open(&reader, check);
    assert_true(raw_write(&reader.raw, damaged, bytes));
    if (check == HOOP_CHECK_OFF && !header) { /* damage is not checked for */
        assert_true(raw_until_done(&reader.raw, &reader.items[chunk]));
        assert_int_equal(reader.items[chunk].result, HOOP_OK);
    } else {
        reader_check(&reader, chunk, "the data were damaged on the way");
        const char *text = reader.raw.link->failure.text;
        assert_non_null(strstr(text, "rank 1"));
        assert_non_null(strstr(text, "lane 2"));
        assert_true(header || strstr(text, hoop_check_name(check)) != NULL);
    }
    raw_close(&reader.raw);
}

static void test_every_flip(void **state)
{
    (void)state;
    static const enum hoop_check checks[] = {HOOP_CHECK_SUM, HOOP_CHECK_CRC32C, HOOP_CHECK_OFF,
                                             HOOP_CHECK_AEAD};
    for (size_t c = 0; c < sizeof(checks) / sizeof(checks[0]); c++) {
        size_t bytes = 0;
        uint8_t *record = raw_record(sizes, CHUNKS, checks[c], &bytes);
        assert_non_null(record);
        assert_int_equal(bytes, 4 * HOOP_TCP_HEADER_BYTES + 170);
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            check_flip(record, bytes, bit, checks[c]);
        }
        free(record);
    }
}

/*
 * A relay that knows the format, but not the key. It repairs every check that it can. Without a key
 * that works; with a key, neither changed chunks nor repeated ones are accepted.
 */
static void check_relay(enum hoop_check check, bool again)
{
    static struct reader reader;
    struct hoop_tcp_header header;
    size_t bytes = 0;
    uint8_t *record = raw_record(sizes, CHUNKS, check, &bytes);
    assert_non_null(record);
    if (again) { /* the first chunk in place of the second, with its number */
        struct hoop_tcp_header second;
        const size_t at = sizeof(header) + sizes[0];
        memcpy(&header, record, sizeof(header));
        memcpy(&second, record + at, sizeof(second));
        header.chunk = second.chunk;
        memcpy(record + at, &header, sizeof(header));
    } else {
        record[sizeof(header)] ^= 0x40;
        memcpy(&header, record, sizeof(header));
        header.payload.words[0] = hoop_checksum(HOOP_CHECK_SUM, record + sizeof(header), sizes[0]);
        header.header.words[0] = hoop_checksum(HOOP_CHECK_SUM, &header, CHECKED);
        memcpy(record, &header, sizeof(header));
    }
    reader_open(&reader, check);
    assert_true(raw_write(&reader.raw, record, bytes));
    if (check == HOOP_CHECK_SUM) {
        assert_true(raw_until_done(&reader.raw, &reader.items[0]));
        assert_int_equal(reader.items[0].result, HOOP_OK);
        assert_false(pattern_is(reader.items[0].xfer.data, sizes[0], 0)); /* unnoticed */
    } else {
        reader_check(&reader, again ? 1 : 0, "the data were damaged on the way");
    }
    raw_close(&reader.raw);
    free(record);
}

static void test_relay(void **state)
{
    (void)state;
    check_relay(HOOP_CHECK_SUM, false);
    check_relay(HOOP_CHECK_AEAD, false);
    check_relay(HOOP_CHECK_AEAD, true);
}

/* Does the stream show anything of what it carries? */
static bool shows(const uint8_t *record, size_t bytes, const void *what, size_t what_bytes)
{
    return memmem(record, bytes, what, what_bytes) != NULL;
}

/* Encrypted, neither kinds nor payloads are seen, and the same chunk looks different the second
 * time. */
static void test_encrypted(void **state)
{
    (void)state;
    static const size_t empty[] = {0, 0};
    uint8_t payload[256];
    size_t bytes = 0;
    uint8_t *record = raw_record(sizes, CHUNKS, HOOP_CHECK_AEAD, &bytes);
    assert_non_null(record);
    assert_int_equal(bytes, 4 * HOOP_TCP_HEADER_BYTES + 170);
    assert_false(shows(record, bytes, "hop-data", 8) || shows(record, bytes, "hop-bye-", 8));
    for (uint32_t i = 0; i < CHUNKS; i++) {
        pattern_fill(payload, sizes[i], i);
        for (size_t at = 0; at + 8 <= sizes[i]; at += 8) {
            assert_false(shows(record, bytes, payload + at, 8));
        }
    }
    free(record);
    record = raw_record(empty, 2, HOOP_CHECK_AEAD, &bytes);
    assert_non_null(record);
    for (size_t at = 0; at < HOOP_TCP_HEADER_BYTES; at += 16) {
        assert_memory_not_equal(record + at, record + HOOP_TCP_HEADER_BYTES + at, 16);
    }
    free(record);
}

/* Chunks that are too large to be sent together with their header: damage at the boundaries. */
static void test_flips_in_large_chunks(void **state)
{
    (void)state;
    static const size_t large[] = {RAW_CHUNK};
    static const size_t offsets[] = {0,    95,   96,   97,   96 + 63, 96 + 64,
                                     4191, 4192, 4193, 5000, 40000,   RAW_CHUNK + 95};
    static uint8_t to[RAW_CHUNK];
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        struct raw raw;
        struct item item;
        size_t bytes = 0;
        static const enum hoop_check checks[] = {HOOP_CHECK_SUM, HOOP_CHECK_CRC32C,
                                                 HOOP_CHECK_AEAD};
        const enum hoop_check check = checks[i % 3];
        uint8_t *record = raw_record(large, 1, check, &bytes);
        assert_non_null(record);
        record[offsets[i]] ^= 0x20;
        assert_true(raw_open(&raw, false, RAW_TCP, check));
        assert_int_equal(raw_recv(&raw, &item, i % 2 == 0 ? NULL : to, RAW_CHUNK, 0), HOOP_OK);
        assert_true(raw_write(&raw, record, bytes));
        assert_true(raw_until_done(&raw, &item));
        assert_int_equal(item.result, HOOP_REMOTE_ERROR);
        assert_non_null(strstr(raw.link->failure.text, "damaged on the way"));
        raw_close(&raw);
        free(record);
    }
}

/* Whole chunks that are missing, duplicated, or in another order. */
static void test_chunks_out_of_order(void **state)
{
    (void)state;
    static const size_t orders[][CHUNKS] = {{1, 0, 2}, {0, 0, 2}, {0, 2, 1}, {1, 2, 2}};
    size_t bytes = 0;
    uint8_t *record = raw_record(sizes, CHUNKS, HOOP_CHECK_SUM, &bytes);
    assert_non_null(record);
    const size_t at[] = {0, HOOP_TCP_HEADER_BYTES + 40, 2 * HOOP_TCP_HEADER_BYTES + 40};
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        static struct reader reader;
        reader_open(&reader, HOOP_CHECK_SUM);
        for (size_t k = 0; k < CHUNKS; k++) {
            const size_t chunk = orders[i][k];
            assert_true(
                raw_write(&reader.raw, record + at[chunk], HOOP_TCP_HEADER_BYTES + sizes[chunk]));
        }
        assert_true(raw_until_done(&reader.raw, &reader.items[CHUNKS]));
        assert_int_equal(reader.items[CHUNKS].result, HOOP_MISMATCH);
        assert_non_null(strstr(reader.raw.link->failure.text, "rank 0 sent chunk"));
        raw_close(&reader.raw);
    }
    free(record);
}

/* ---- Streams that end ------------------------------------------------------------------------ */

#define CUTS 554 /* lengths that cut off at least the last byte of the goodbye */

/* All at the same time, because an end of stream is believed only after a while. */
static void test_cut_everywhere(void **state)
{
    (void)state;
    size_t bytes = 0;
    uint8_t *record = raw_record(sizes, CHUNKS, HOOP_CHECK_SUM, &bytes);
    struct reader *readers = calloc(CUTS, sizeof(*readers));
    assert_non_null(record);
    assert_non_null(readers);
    const uint64_t start = hoop_now_ns();
    for (size_t i = 0; i < CUTS && i < bytes; i++) {
        bool header = false;
        reader_open(&readers[i], HOOP_CHECK_SUM);
        assert_true(raw_write(&readers[i].raw, record, i));
        raw_hang_up(&readers[i].raw);
        while (hoop_link_progress(readers[i].raw.link)) {
        }
        const uint32_t whole = chunk_of(i, &header);
        for (uint32_t k = 0; k <= CHUNKS; k++) { /* complete chunks arrive without a wait */
            assert_int_equal(readers[i].items[k].done, k < whole);
        }
    }
    for (size_t i = 0; i < CUTS && i < bytes; i++) {
        bool header = false;
        reader_check(&readers[i], chunk_of(i, &header),
                     "rank 0 closed its data connection with rank 1 (lane 2) without a goodbye");
        raw_close(&readers[i].raw);
    }
    assert_true(hoop_now_ns() - start >= HOOP_TCP_PATIENCE_NS);
    free(readers);
    free(record);
}

/* The end is noticed at once, but believed only later; until then looks move nothing. */
static void check_patience(struct raw *raw, const struct item *item)
{
    while (hoop_link_progress(raw->link)) {
    }
    const uint64_t start = hoop_now_ns();
    assert_int_equal(item->done, 0);
    assert_true(raw_until_done(raw, item));
    const uint64_t waited = hoop_now_ns() - start;
    assert_in_range(waited, HOOP_TCP_PATIENCE_NS * 9 / 10, HOOP_TCP_PATIENCE_NS * 10);
    assert_int_equal(item->result, HOOP_REMOTE_ERROR);
}

/* A peer resets the connection: what it had sent arrives. */
static void test_reset(void **state)
{
    (void)state;
    struct raw raw;
    struct item items[2];
    uint8_t to[40];
    size_t bytes = 0;
    uint8_t *record = raw_record(sizes, CHUNKS, HOOP_CHECK_SUM, &bytes);
    const struct linger now = {.l_onoff = 1};
    assert_non_null(record);
    assert_true(raw_open(&raw, false, RAW_TCP, HOOP_CHECK_SUM));
    assert_true(raw_write(&raw, record, HOOP_TCP_HEADER_BYTES + 40));
    assert_int_equal(setsockopt(raw.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    raw_hang_up(&raw);
    assert_int_equal(raw_recv(&raw, &items[0], to, 40, 0), HOOP_OK);
    assert_int_equal(raw_recv(&raw, &items[1], to, 0, 1), HOOP_OK);
    assert_true(raw_until_done(&raw, &items[0]));
    assert_int_equal(items[0].result, HOOP_OK);
    check_patience(&raw, &items[1]);
    assert_non_null(strstr(raw.link->failure.text, "ECONNRESET"));
    raw_close(&raw);
    free(record);
}

/* A receiver goes away: the sender's chunks fail after a while, and there is no SIGPIPE. */
static void test_receiver_leaves(void **state)
{
    (void)state;
    static uint8_t data[RAW_CHUNK];
    struct raw raw;
    struct item item;
    assert_true(raw_open(&raw, true, RAW_TCP, HOOP_CHECK_SUM));
    assert_int_equal(raw_send(&raw, &item, data, sizeof(data), 0), HOOP_OK);
    assert_true(raw_until_done(&raw, &item));
    raw_hang_up(&raw);
    for (uint32_t i = 1; item.done == 1; i++) { /* until the connection is known to be broken */
        assert_int_equal(raw_send(&raw, &item, data, sizeof(data), i), HOOP_OK);
        (void)hoop_link_progress(raw.link);
    }
    check_patience(&raw, &item);
    assert_int_equal(raw.link->failure.rank, PAIR_RECEIVER);
    assert_non_null(strstr(raw.link->failure.text, "rank 1 closed its data connection with rank 0 "
                                                   "(lane 2) without a goodbye"));
    item_fill(&item, data, 1, 9);
    assert_int_equal(hoop_link_send(raw.link, &item.xfer), HOOP_REMOTE_ERROR);
    raw_close(&raw);
}

/* A sender is killed in the middle of its work. */
static void test_sender_is_killed(void **state)
{
    (void)state;
    static struct pair pair;
    struct stream stream;
    int sockets[2];
    assert_true(pair_connect(sockets));
    pair = (struct pair){.transport = hoop_transport_named("tcp"),
                         .slots = STREAM_SLOTS,
                         .chunk_bytes = STREAM_CHUNK};
    assert_int_equal(pair_make(&pair), HOOP_OK);
    pair.connected = true;
    memcpy(pair.sockets, sockets, sizeof(sockets));
    assert_true(stream_init(&stream, &pair, UINT32_MAX, 1));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        hoop_fork_close(sockets[PAIR_RECEIVER]);
        if (pair_bind(pair.sender, &pair.receiver_blob) == HOOP_OK) {
            (void)stream_send(&stream);
        }
        _exit(1);
    }
    hoop_fork_close(sockets[PAIR_SENDER]);
    pair.sockets[PAIR_SENDER] = -1;
    assert_int_equal(pair_bind(pair.receiver, &pair.sender_blob), HOOP_OK);
    /* Its first chunk tells that it is at work. */
    struct item item;
    static uint8_t to[STREAM_CHUNK];
    assert_int_equal(pair_recv(&pair, &item, to, stream_bytes(0), 0), HOOP_OK);
    assert_true(pair_until_done(&pair, &item));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    uint32_t number = 0;
    while (item.result == HOOP_OK) { /* what it has given to its kernel still arrives */
        assert_true(pattern_is(to, stream_bytes(number), number));
        number++;
        assert_int_equal(pair_recv(&pair, &item, to, stream_bytes(number), number), HOOP_OK);
        assert_true(pair_until_done(&pair, &item));
    }
    assert_int_equal(item.result, HOOP_REMOTE_ERROR);
    assert_non_null(strstr(pair.receiver->failure.text, "without a goodbye"));
    pair_close(&pair);
    free(stream.data);
}

/* ---- Hostile peers --------------------------------------------------------------------------- */

/* A header with a valid check, whatever else it contains. */
static struct hoop_tcp_header forge(void)
{
    const struct hoop_xfer xfer = {.data = (void *)(uintptr_t) "0123456789", .bytes = 10};
    struct raw raw;
    assert_true(raw_open(&raw, false, RAW_SOCKETPAIR, HOOP_CHECK_SUM));
    const struct hoop_tcp_header header =
        hoop_tcp_header(hoop_tcp_from(raw.link), HOOP_TCP_DATA, &xfer, NULL);
    raw_close(&raw);
    return header;
}

static void check_forged(struct hoop_tcp_header header, hoop_result_t code, const char *words)
{
    struct raw raw;
    struct item item;
    uint8_t to[10];
    header.header.words[0] = hoop_checksum(HOOP_CHECK_SUM, &header, CHECKED);
    assert_true(raw_open(&raw, false, RAW_SOCKETPAIR, HOOP_CHECK_SUM));
    assert_int_equal(raw_recv(&raw, &item, to, sizeof(to), 0), HOOP_OK);
    assert_true(raw_write(&raw, &header, sizeof(header)));
    assert_true(raw_write(&raw, "0123456789", 10));
    assert_true(raw_until_done(&raw, &item));
    assert_int_equal(item.result, code);
    assert_int_equal(raw.link->failure.rank, code == HOOP_OK ? 0 : PAIR_SENDER);
    assert_non_null(strstr(raw.link->failure.text, words));
    raw_close(&raw);
}

static void test_forged_headers(void **state)
{
    (void)state;
    const struct hoop_tcp_header right = forge();
    struct hoop_tcp_header header = right;
    check_forged(header, HOOP_OK, "");
    header.kind++;
    check_forged(header, HOOP_REMOTE_ERROR, "is not known");
    header = right;
    header.payload.words[0]++;
    check_forged(header, HOOP_REMOTE_ERROR, "damaged on the way");
    header = right;
    header.chunk.comm_id++;
    check_forged(header, HOOP_REMOTE_ERROR, "a chunk of another link");
    header = right;
    header.chunk.lane++;
    check_forged(header, HOOP_REMOTE_ERROR, "a chunk of another link");
    header = right;
    header.chunk.signature.collective = UINT32_MAX;
    check_forged(header, HOOP_MISMATCH, "an unknown operation");
    static const uint64_t lengths[] = {9, 11, UINT32_MAX, UINT64_MAX, UINT64_MAX - 95, 1ull << 63};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        header = right;
        header.chunk.bytes = lengths[i];
        check_forged(header, HOOP_MISMATCH, "rank 0 sent chunk");
    }
}

static void test_garbage(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (uint32_t round = 0; round < 300; round++) {
        uint8_t garbage[600], to[100];
        struct raw raw;
        struct item items[2];
        const size_t bytes = HOOP_TCP_HEADER_BYTES + splitmix(&random) % 500;
        for (size_t i = 0; i < bytes; i++) {
            garbage[i] = (uint8_t)splitmix(&random);
        }
        if (round % 3 == 0) { /* valid up to the kind */
            const uint64_t kind = round % 2 == 0 ? HOOP_TCP_DATA : HOOP_TCP_GOODBYE;
            memcpy(garbage, &kind, sizeof(kind));
        }
        assert_true(raw_open(&raw, false, RAW_SOCKETPAIR, round % 4));
        assert_true(raw_write(&raw, garbage, bytes));
        assert_int_equal(raw_recv(&raw, &items[0], round % 2 == 0 ? to : NULL, 100, 0), HOOP_OK);
        assert_int_equal(raw_recv(&raw, &items[1], NULL, 0, 1), HOOP_OK);
        assert_true(raw_until_done(&raw, &items[1]));
        assert_int_equal(items[0].result, HOOP_REMOTE_ERROR);
        assert_int_equal(items[1].result, HOOP_REMOTE_ERROR);
        raw_close(&raw);
    }
}

/* A receiver has nothing to send. If it does anyway the sender ignores that. */
static void test_talking_receiver(void **state)
{
    (void)state;
    struct raw raw;
    uint8_t data[1000] = {1};
    assert_true(raw_open(&raw, true, RAW_TCP, HOOP_CHECK_SUM));
    for (uint32_t i = 0; i < 10; i++) {
        struct item item;
        assert_true(raw_write(&raw, data, sizeof(data)));
        assert_int_equal(raw_send(&raw, &item, data, sizeof(data), i), HOOP_OK);
        assert_true(raw_until_done(&raw, &item));
        assert_int_equal(item.result, HOOP_OK);
    }
    raw_close(&raw);
}

/* ---- A kernel without memory ----------------------------------------------------------------- */

/* A call that fails for it is repeated; after a while the link blames its own rank. */
static void check_starved(int err, hoop_result_t code, bool sending)
{
    struct raw raw;
    assert_true(raw_open(&raw, sending, RAW_SOCKETPAIR, HOOP_CHECK_SUM));
    struct hoop_tcp_link *tcp = hoop_tcp_from(raw.link);
    const struct hoop_failure *failure = &raw.link->failure;
    for (int i = 0; i < 3; i++) {
        hoop_tcp_stopped(tcp, err);
        hoop_tcp_blame(tcp);
        assert_int_equal(failure->code, HOOP_OK);
    }
    tcp->starved_ns -= HOOP_TCP_STARVED_NS;
    hoop_tcp_stopped(tcp, EAGAIN); /* the socket works again */
    hoop_tcp_stopped(tcp, err);
    hoop_tcp_blame(tcp);
    assert_int_equal(failure->code, HOOP_OK);
    tcp->starved_ns -= HOOP_TCP_STARVED_NS;
    hoop_tcp_blame(tcp);
    assert_int_equal(failure->code, code);
    assert_int_equal(failure->rank, sending ? PAIR_SENDER : PAIR_RECEIVER);
    assert_non_null(strstr(failure->text, sending ? "rank 0 cannot send to rank 1 (lane 2)"
                                                  : "rank 1 cannot receive from rank 0 (lane 2)"));
    assert_non_null(strstr(failure->text, hoop_errno_name(err)));
    raw_close(&raw);
}

/* What the kernel takes ends the time for which it has lacked memory. */
static void test_starved(void **state)
{
    (void)state;
    struct raw raw;
    struct item item;
    check_starved(ENOBUFS, HOOP_OUT_OF_MEMORY, true);
    check_starved(ENOMEM, HOOP_OUT_OF_MEMORY, false);
    check_starved(ETOOMANYREFS, HOOP_SYSTEM_ERROR, true);
    assert_true(raw_open(&raw, true, RAW_SOCKETPAIR, HOOP_CHECK_SUM));
    hoop_tcp_stopped(hoop_tcp_from(raw.link), ENOBUFS);
    assert_int_equal(raw_send(&raw, &item, "0123", 4, 0), HOOP_OK);
    assert_int_equal(hoop_tcp_from(raw.link)->starved_ns, 0);
    assert_true(raw_until_done(&raw, &item));
    raw_close(&raw);
}

static uint32_t open_before; /* how many descriptors, before the first test */

static void test_nothing_left_open(void **state)
{
    (void)state;
    assert_int_equal(raw_count_open(), open_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_flip),
        cmocka_unit_test(test_relay),
        cmocka_unit_test(test_encrypted),
        cmocka_unit_test(test_flips_in_large_chunks),
        cmocka_unit_test(test_chunks_out_of_order),
        cmocka_unit_test(test_cut_everywhere),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_receiver_leaves),
        cmocka_unit_test(test_sender_is_killed),
        cmocka_unit_test(test_forged_headers),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_talking_receiver),
        cmocka_unit_test(test_starved),
        cmocka_unit_test(test_nothing_left_open),
    };
    open_before = raw_count_open();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

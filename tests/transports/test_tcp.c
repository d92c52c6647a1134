/*
 * The tcp transport if all goes well: what is sent, large and slow transfers, waiting by
 * descriptors, and ends that leave. Streams that are damaged, cut off or hostile are in
 * test_tcp_broken.c; the contract of all transports is in test_transport*.c.
 */
#include "base/clock.h"
#include "runtime/watch.h"
#include "transports/check/checksum.h"
#include "transports/link_raw.h"
#include "transports/link_stream.h"
#include "transports/tcp/tcp_wire.h"
#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const enum hoop_check checks[] = {HOOP_CHECK_SUM, HOOP_CHECK_CRC32C, HOOP_CHECK_OFF,
                                         HOOP_CHECK_AEAD};
#define PLAIN 3 /* of them do not encrypt */

/* ---- What travels ---------------------------------------------------------------------------- */

static void test_format(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 0, 5000};
    for (size_t c = 0; c < PLAIN; c++) {
        size_t bytes = 0, at = 0;
        uint8_t payload[5000];
        uint8_t *record = raw_record(sizes, 3, checks[c], &bytes);
        assert_non_null(record);
        assert_int_equal(bytes, 4 * HOOP_TCP_HEADER_BYTES + 100 + 5000);
        for (uint32_t i = 0; i < 4; i++) {
            struct hoop_tcp_header header;
            memcpy(&header, record + at, sizeof(header));
            at += sizeof(header);
            assert_memory_equal(&header.kind, i < 3 ? "hop-data" : "hop-bye-", 8);
            assert_int_equal(header.header.words[0], hoop_checksum(HOOP_CHECK_SUM, &header, 80));
            assert_int_equal(header.header.words[1], 0);
            assert_int_equal(header.chunk.comm_id, PAIR_COMM);
            assert_int_equal(header.chunk.lane, PAIR_LANE);
            if (i == 3) {
                continue;
            }
            assert_int_equal(header.chunk.op, i);
            assert_int_equal(header.chunk.chunk, (uint64_t)i << 33);
            assert_int_equal(header.chunk.bytes, sizes[i]);
            pattern_fill(payload, sizes[i], i);
            assert_int_equal(header.payload.words[0], hoop_checksum(checks[c], payload, sizes[i]));
            assert_int_equal(header.payload.words[1], 0);
            assert_true(pattern_is(record + at, sizes[i], i));
            at += sizes[i];
        }
        free(record);
    }
}

/* The same stream a few bytes at a time: nothing depends on where it is cut. */
static void check_dribbled(enum hoop_check check)
{
    static const size_t sizes[] = {100, 0, 5000, 1, 4096, 9000};
    static uint8_t to[6][9000];
    size_t bytes = 0;
    uint8_t *record = raw_record(sizes, 6, check, &bytes);
    assert_non_null(record);
    for (size_t step = 1; step < 8000; step = step * 3 + 1) {
        struct raw raw;
        struct item items[6];
        assert_true(raw_open(&raw, false, RAW_SOCKETPAIR, check));
        for (uint32_t i = 0; i < 6; i++) {
            assert_int_equal(raw_recv(&raw, &items[i], i % 2 == 0 ? to[i] : NULL, sizes[i], i),
                             HOOP_OK);
        }
        for (size_t at = 0; at < bytes; at += step) {
            assert_true(raw_write(&raw, record + at, bytes - at < step ? bytes - at : step));
        }
        assert_true(raw_until_done(&raw, &items[5]));
        for (uint32_t i = 0; i < 6; i++) {
            assert_int_equal(items[i].done, 1);
            assert_int_equal(items[i].result, HOOP_OK);
            assert_true(pattern_is(items[i].xfer.data, sizes[i], i));
        }
        raw_close(&raw);
    }
    free(record);
}

static void test_dribbled(void **state)
{
    (void)state;
    check_dribbled(HOOP_CHECK_SUM);
    check_dribbled(HOOP_CHECK_AEAD);
}

/* While no receive is posted nothing is read from the socket. */
static void test_unread(void **state)
{
    (void)state;
    static const size_t sizes[] = {50};
    size_t bytes = 0;
    struct raw raw;
    struct item item;
    uint8_t to[50];
    int waiting = 0;
    uint8_t *record = raw_record(sizes, 1, HOOP_CHECK_SUM, &bytes);
    assert_non_null(record);
    assert_true(raw_open(&raw, false, RAW_SOCKETPAIR, HOOP_CHECK_SUM));
    assert_true(raw_write(&raw, record, bytes));
    assert_false(hoop_link_progress(raw.link));
    assert_int_equal(ioctl(hoop_link_watch_fd(raw.link), FIONREAD, &waiting), 0);
    assert_int_equal(waiting, bytes);
    assert_int_equal(raw_recv(&raw, &item, to, sizeof(to), 0), HOOP_OK);
    assert_true(hoop_link_progress(raw.link));
    assert_int_equal(item.done, 1);
    assert_true(pattern_is(to, sizeof(to), 0));
    raw_close(&raw);
    free(record);
}

/* 64 MiB in one chunk, through buffers that hold a few thousand bytes. */
static void test_large_chunk(void **state)
{
    (void)state;
    const size_t bytes = (size_t)64 << 20;
    uint8_t *from = malloc(bytes), *to = malloc(bytes);
    assert_true(from != NULL && to != NULL);
    pattern_fill(from, bytes, 7);
    for (int lent = 0; lent < 2; lent++) {
        struct pair pair = {.transport = hoop_transport_named("tcp"),
                            .slots = 1,
                            .chunk_bytes = bytes,
                            .buffer_bytes = 16384};
        struct item send, recv;
        assert_int_equal(pair_make(&pair), HOOP_OK);
        assert_int_equal(pair_join(&pair), HOOP_OK);
        assert_int_equal(pair_send(&pair, &send, from, bytes, 7), HOOP_OK);
        assert_int_equal(pair_recv(&pair, &recv, lent ? NULL : to, bytes, 7), HOOP_OK);
        assert_true(pair_until_done(&pair, &recv) && pair_until_done(&pair, &send));
        assert_int_equal(recv.result, HOOP_OK);
        assert_memory_equal(recv.xfer.data, from, bytes);
        pair_close(&pair);
    }
    free(from);
    free(to);
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define LANES 4

static void test_lanes(void **state)
{
    (void)state;
    struct pair pairs[LANES];
    struct stream send[LANES], recv[LANES];
    pthread_t threads[2 * LANES];
    for (unsigned i = 0; i < LANES; i++) {
        pairs[i] = (struct pair){.transport = hoop_transport_named("tcp"),
                                 .slots = STREAM_SLOTS,
                                 .chunk_bytes = STREAM_CHUNK,
                                 .check = checks[i % 4],
                                 .buffer_bytes = (uint64_t)i * 8192};
        assert_int_equal(pair_make(&pairs[i]), HOOP_OK);
        assert_int_equal(pair_join(&pairs[i]), HOOP_OK);
        assert_true(stream_init(&send[i], &pairs[i], 1500, i));
        assert_true(stream_init(&recv[i], &pairs[i], 1500, i + LANES));
    }
    for (size_t i = 0; i < LANES; i++) {
        assert_int_equal(pthread_create(&threads[2 * i], NULL, stream_send, &send[i]), 0);
        assert_int_equal(pthread_create(&threads[2 * i + 1], NULL, stream_recv, &recv[i]), 0);
    }
    for (size_t i = 0; i < LANES; i++) {
        pthread_join(threads[2 * i], NULL);
        pthread_join(threads[2 * i + 1], NULL);
        assert_int_equal(send[i].result, HOOP_OK);
        assert_int_equal(recv[i].result, HOOP_OK);
        pair_close(&pairs[i]);
        free(send[i].data);
        free(recv[i].data);
    }
}

/*
 * An end that sleeps whenever progress moves nothing, and is woken only by its descriptor. If it
 * missed an edge it would sleep for ever.
 */
struct sleeper {
    struct hoop_link *link;
    bool sending;
    hoop_result_t result;
};

#define SLEEPER_CHUNKS 400u
#define SLEEPER_BYTES 20000u

static hoop_result_t sleeper_one(const struct sleeper *sleeper, int epoll_fd, uint32_t number)
{
    static uint8_t data[2][SLEEPER_BYTES];
    uint8_t *mine = data[sleeper->sending];
    struct item item;
    struct epoll_event event;
    item_fill(&item, mine, 1 + number * 61 % SLEEPER_BYTES, number);
    if (sleeper->sending) {
        pattern_fill(mine, item.xfer.bytes, number);
    }
    hoop_result_t result = sleeper->sending ? hoop_link_send(sleeper->link, &item.xfer)
                                            : hoop_link_recv(sleeper->link, &item.xfer);
    while (result == HOOP_OK && item.done == 0) {
        if (!hoop_link_progress(sleeper->link) && epoll_wait(epoll_fd, &event, 1, 30000) != 1) {
            return HOOP_TIMEOUT;
        }
        result = item.result;
    }
    const bool right = sleeper->sending || pattern_is(mine, item.xfer.bytes, number);
    return result == HOOP_OK && !right ? HOOP_INTERNAL_ERROR : result;
}

static void *sleeper_main(void *arg)
{
    struct sleeper *sleeper = arg;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, hoop_link_watch_fd(sleeper->link), &event) != 0) {
        sleeper->result = HOOP_SYSTEM_ERROR;
    }
    for (uint32_t i = 0; i < SLEEPER_CHUNKS && sleeper->result == HOOP_OK; i++) {
        sleeper->result = sleeper_one(sleeper, epoll_fd, i);
    }
    close(epoll_fd);
    return NULL;
}

static void test_edges(void **state)
{
    (void)state;
    struct pair pair = {.transport = hoop_transport_named("tcp"),
                        .slots = 1,
                        .chunk_bytes = SLEEPER_BYTES,
                        .buffer_bytes = 8192};
    pthread_t thread;
    assert_int_equal(pair_make(&pair), HOOP_OK);
    assert_int_equal(pair_join(&pair), HOOP_OK);
    struct sleeper sender = {.link = pair.sender, .sending = true};
    struct sleeper receiver = {.link = pair.receiver};
    assert_int_equal(pthread_create(&thread, NULL, sleeper_main, &sender), 0);
    (void)sleeper_main(&receiver);
    pthread_join(thread, NULL);
    assert_int_equal(sender.result, HOOP_OK);
    assert_int_equal(receiver.result, HOOP_OK);
    pair_close(&pair);
}

/* ---- What may wait --------------------------------------------------------------------------- */

/* Bytes that the sender's kernel has not begun to send. */
static int kept_bytes(struct pair *pair)
{
    int bytes = -1;
    assert_int_equal(ioctl(hoop_link_watch_fd(pair->sender), SIOCOUTQNSD, &bytes), 0);
    return bytes;
}

/* Sends a chunk without bytes, which may wait in the kernel or not. All have arrived if nothing is
 * kept. */
static void send_nothing(struct pair *pair, uint32_t *number, bool may_wait)
{
    struct item send;
    item_fill(&send, NULL, 0, (*number)++);
    send.xfer.may_wait = may_wait;
    assert_int_equal(hoop_link_send(pair->sender, &send.xfer), HOOP_OK);
    assert_true(pair_until_done(pair, &send));
}

static void receive_nothing(struct pair *pair, uint32_t *number, uint32_t until)
{
    for (; *number < until; ++*number) {
        struct item recv;
        char nowhere = 0;
        assert_int_equal(pair_recv(pair, &recv, &nowhere, 0, *number), HOOP_OK);
        assert_true(pair_until_done(pair, &recv));
        assert_int_equal(recv.result, HOOP_OK);
    }
}

/* Sends until something is kept: on a busy machine a chunk that comes late after the last is not
 * kept. */
static void send_and_keep(struct pair *pair, uint32_t *sent, uint32_t *received)
{
    const uint64_t deadline = hoop_deadline_ns(20000);
    while (kept_bytes(pair) == 0 && hoop_now_ns() < deadline) {
        receive_nothing(pair, received, *sent);
        send_nothing(pair, sent, true);
        send_nothing(pair, sent, true);
    }
    assert_in_range(kept_bytes(pair), 1, 2 * HOOP_TCP_HEADER_BYTES);
}

static void test_may_wait(void **state)
{
    (void)state;
    struct pair pair = {.transport = hoop_transport_named("tcp"), .slots = 1, .chunk_bytes = 100};
    uint32_t sent = 0, received = 0;
    assert_int_equal(pair_make(&pair), HOOP_OK);
    assert_int_equal(pair_join(&pair), HOOP_OK);
    send_nothing(&pair, &sent, true); /* the first of several goes at once */
    receive_nothing(&pair, &received, sent);

    send_and_keep(&pair, &sent, &received);
    hoop_link_push(pair.sender);
    receive_nothing(&pair, &received, sent);

    send_and_keep(&pair, &sent, &received);
    send_nothing(&pair, &sent, false); /* takes the kept one along */
    receive_nothing(&pair, &received, sent);

    send_and_keep(&pair, &sent, &received);
    receive_nothing(&pair, &received, sent); /* the kernel sends the kept one */
    pair_close(&pair);
}

/* A receiver that holds few messages would wait for each one. */
static void test_may_not_wait(void **state)
{
    (void)state;
    struct pair pair = {.transport = hoop_transport_named("tcp"),
                        .slots = 1,
                        .chunk_bytes = 100,
                        .buffer_bytes = (uint64_t)16 * 4096};
    uint32_t sent = 0, received = 0;
    assert_int_equal(pair_make(&pair), HOOP_OK);
    assert_int_equal(pair_join(&pair), HOOP_OK);
    while (sent < 64) {
        send_nothing(&pair, &sent, true);
        assert_int_equal(kept_bytes(&pair), 0);
        receive_nothing(&pair, &received, sent);
    }
    pair_close(&pair);
}

/* ---- Ends that leave ------------------------------------------------------------------------- */

#define LAST_CHUNKS 5u
#define LAST_BYTES 20000u

/* A process that sends, and exits as soon as its sends are done. */
static int leaver_main(struct pair *pair)
{
    static uint8_t data[LAST_BYTES];
    const uint64_t deadline = hoop_deadline_ns(20000);
    hoop_fork_close(pair->sockets[PAIR_RECEIVER]);
    if (pair_bind(pair->sender, &pair->receiver_blob) != HOOP_OK) {
        return 1;
    }
    for (uint32_t i = 0; i < LAST_CHUNKS; i++) {
        struct item item;
        pattern_fill(data, sizeof(data), i);
        item_fill(&item, data, sizeof(data), i);
        if (hoop_link_send(pair->sender, &item.xfer) != HOOP_OK) {
            return 2;
        }
        while (item.done == 0 && hoop_now_ns() < deadline) {
            (void)hoop_link_progress(pair->sender);
        }
        if (item.done != 1 || item.result != HOOP_OK) {
            return 3;
        }
    }
    hoop_link_destroy(pair->sender);
    return 0;
}

/* The receiver looks only when the sender's process has ended. Nothing is lost. */
static void test_last_words(void **state)
{
    (void)state;
    static uint8_t to[LAST_BYTES];
    struct pair pair = {
        .transport = hoop_transport_named("tcp"), .slots = 1, .chunk_bytes = LAST_BYTES};
    struct item item;
    int status = -1;
    assert_int_equal(pair_make(&pair), HOOP_OK);
    pair.connected = pair_connect(pair.sockets);
    assert_true(pair.connected);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(leaver_main(&pair));
    }
    hoop_fork_close(pair.sockets[PAIR_SENDER]);
    pair.sockets[PAIR_SENDER] = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(pair_bind(pair.receiver, &pair.sender_blob), HOOP_OK);
    for (uint32_t i = 0; i < LAST_CHUNKS; i++) {
        assert_int_equal(pair_recv(&pair, &item, to, sizeof(to), i), HOOP_OK);
        assert_true(pair_until_done(&pair, &item));
        assert_int_equal(item.result, HOOP_OK);
        assert_true(pattern_is(to, sizeof(to), i));
    }
    assert_int_equal(pair_recv(&pair, &item, to, sizeof(to), LAST_CHUNKS), HOOP_OK);
    const uint64_t before = hoop_now_ns();
    assert_true(pair_until_done(&pair, &item));
    assert_true(hoop_now_ns() - before < HOOP_TCP_PATIENCE_NS); /* a goodbye needs no patience */
    assert_int_equal(item.result, HOOP_REMOTE_ERROR);
    assert_int_equal(pair.receiver->failure.rank, PAIR_SENDER);
    assert_non_null(strstr(pair.receiver->failure.text, "rank 0 has left the communicator"));
    pair_close(&pair);
}

/* Reads to the end of the stream. False: it does not end. */
static bool read_to_end(int fd, uint8_t *to, size_t room, size_t *bytes)
{
    const struct timeval deadline = {.tv_sec = 20};
    ssize_t came = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
    (void)fcntl(fd, F_SETFL, 0);
    while (came > 0) {
        came = recv(fd, to + *bytes, room - *bytes, 0);
        *bytes += came > 0 ? (size_t)came : 0;
    }
    return came == 0;
}

static uint8_t left_over[(size_t)64 << 20];

/* A sender that leaves with unsent chunks says no goodbye, even if there is room for one by
 * then. */
static void test_no_goodbye(void **state)
{
    (void)state;
    static uint8_t data[RAW_CHUNK];
    struct raw raw;
    struct item items[2];
    size_t bytes = 0;
    assert_true(raw_open(&raw, true, RAW_TCP, HOOP_CHECK_SUM));
    for (uint32_t queued = 0; queued < 2;) { /* chunks wait when the socket is full */
        assert_int_equal(raw_send(&raw, &items[queued], data, sizeof(data), 0), HOOP_OK);
        (void)hoop_link_progress(raw.link);
        queued += items[queued].done == 0;
    }
    for (ssize_t came = 1; came > 0; bytes += came > 0 ? (size_t)came : 0) {
        came = recv(raw.fd, left_over + bytes, sizeof(left_over) - bytes, MSG_DONTWAIT);
    }
    pair_close(&raw.pair);
    assert_int_equal(items[0].result, HOOP_ABORTED);
    assert_int_equal(items[1].result, HOOP_ABORTED);
    assert_true(read_to_end(raw.fd, left_over, sizeof(left_over), &bytes));
    assert_true(bytes > RAW_CHUNK);
    assert_memory_not_equal(left_over + bytes - HOOP_TCP_HEADER_BYTES, "hop-bye-", 8);
    raw_hang_up(&raw);
}

/* Neither does an end that has failed, or whose comm has. */
static void test_no_goodbye_after_failure(void **state)
{
    (void)state;
    for (int abandoned = 0; abandoned < 2; abandoned++) {
        struct raw raw;
        size_t bytes = 0;
        assert_true(raw_open(&raw, true, RAW_TCP, HOOP_CHECK_SUM));
        if (abandoned) {
            hoop_link_abandon(raw.link);
            raw.pair.sender = NULL;
        } else {
            (void)hoop_failure_set(&raw.link->failure, HOOP_REMOTE_ERROR, 5, "rank 5 is dead");
        }
        pair_close(&raw.pair);
        assert_true(read_to_end(raw.fd, left_over, sizeof(left_over), &bytes));
        assert_int_equal(bytes, 0);
        raw_hang_up(&raw);
    }
}

/* ---- Birth ----------------------------------------------------------------------------------- */

static hoop_result_t no_dock(void *arg, uint32_t peer, uint32_t lane, struct hoop_address *ret)
{
    (void)arg;
    (void)peer;
    (void)lane;
    (void)ret;
    return hoop_error(HOOP_SYSTEM_ERROR, "every port is taken");
}

static hoop_result_t no_stream(void *arg, uint32_t peer, uint32_t lane, bool sending,
                               const struct hoop_address *address, int *ret_fd,
                               struct hoop_secret *ret_key)
{
    (void)ret_key;
    (void)arg;
    (void)sending;
    (void)address;
    (void)ret_fd;
    return hoop_error(HOOP_NOT_AUTHENTICATED, "rank %u proved nothing in lane %u", peer, lane);
}

static void test_no_connection(void **state)
{
    (void)state;
    struct pair pair = {.transport = hoop_transport_named("tcp"), .slots = 1, .chunk_bytes = 100};
    struct hoop_link_params params = pair_params(&pair, false);
    struct hoop_link *link = NULL;
    struct hoop_blob blob;
    params.data_address = no_dock;
    assert_int_equal(hoop_link_create(pair.transport, &params, &link, &blob, &pair.failure),
                     HOOP_SYSTEM_ERROR);
    assert_null(link);
    assert_string_equal(pair.failure.text,
                        "rank 1 cannot accept data connections: every port is taken");

    assert_int_equal(pair_make(&pair), HOOP_OK);
    pair.sender->params.stream = no_stream;
    assert_int_equal(pair_bind(pair.sender, &pair.receiver_blob), HOOP_NOT_AUTHENTICATED);
    assert_string_equal(pair.sender->failure.text, "no data connection with rank 1 (lane 2): rank "
                                                   "1 proved nothing in lane 2");
    pair_close(&pair);
}

static void test_checks_differ(void **state)
{
    (void)state;
    struct pair pair = {.transport = hoop_transport_named("tcp"), .slots = 1, .chunk_bytes = 100};
    struct pair other = pair;
    other.check = HOOP_CHECK_CRC32C;
    assert_int_equal(pair_make(&pair), HOOP_OK);
    assert_int_equal(pair_make(&other), HOOP_OK);
    assert_int_equal(pair_bind(pair.sender, &other.receiver_blob), HOOP_MISMATCH);
    assert_non_null(
        strstr(pair.sender->failure.text, "rank 1 checks its data by crc32c, rank 0 by sum"));
    pair_close(&pair);
    pair_close(&other);
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
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_dribbled),
        cmocka_unit_test(test_unread),
        cmocka_unit_test(test_large_chunk),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_may_wait),
        cmocka_unit_test(test_may_not_wait),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_no_goodbye),
        cmocka_unit_test(test_no_goodbye_after_failure),
        cmocka_unit_test(test_no_connection),
        cmocka_unit_test(test_checks_differ),
        cmocka_unit_test(test_nothing_left_open),
    };
    open_before = raw_count_open();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

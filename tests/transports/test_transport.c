/*
 * The contract of transports/transport.h, on one thread: `test_transport inproc|shm|tcp|rdma
 * [faulty]`. With "faulty" the decorator refuses and delays at random, and every promise still
 * holds. Threads and processes are in test_transport_ends.c, hostile peers in
 * test_transport_hostile.c.
 */
#include "base/clock.h"
#include "fakes/faulty.h"
#include "memory/region.h"
#include "transports/link_pair.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

#define CHUNK 4096u
#define SLOTS 4u
#define DEADLINE_MS 20000

static const struct hoop_transport *transport;

static int open_pair(void **state)
{
    static struct pair pair;
    *state = &pair;
    item_turns = 0;
    return pair_open(&pair, transport, SLOTS, CHUNK) == HOOP_OK ? 0 : -1;
}

static int close_pair(void **state)
{
    pair_close(*state);
    return pair_nothing_left() ? 0 : -1;
}

static void test_birth_in_any_order(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        struct pair pair;
        assert_int_equal(pair_create(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        assert_false(hoop_link_progress(pair.sender));
        if (order % 2 == 0) {
            assert_int_equal(pair_bind(pair.sender, &pair.receiver_blob), HOOP_OK);
            assert_int_equal(pair_bind(pair.receiver, &pair.sender_blob), HOOP_OK);
        } else {
            assert_int_equal(pair_bind(pair.receiver, &pair.sender_blob), HOOP_OK);
            assert_int_equal(pair_bind(pair.sender, &pair.receiver_blob), HOOP_OK);
        }
        assert_int_equal(hoop_link_watch_fd(pair.sender) >= 0, pair_is_network(&pair));
        assert_int_equal(hoop_link_watch_fd(pair.receiver) >= 0, pair_is_network(&pair));
        if (order / 2 == 0) {
            hoop_link_destroy(pair.receiver);
            pair.receiver = NULL;
        }
        pair_close(&pair);
        assert_true(pair_nothing_left());
    }
}

static void test_half_built(void **state)
{
    (void)state;
    hoop_link_destroy(NULL);
    struct pair pair;
    for (int bound = 0; bound < 3; bound++) {
        assert_int_equal(pair_create(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        if (bound == 1) {
            assert_int_equal(pair_bind(pair.sender, &pair.receiver_blob), HOOP_OK);
        } else if (bound == 2) {
            assert_int_equal(pair_bind(pair.receiver, &pair.sender_blob), HOOP_OK);
        }
        pair_close(&pair);
        assert_true(pair_nothing_left());
    }
}

static void test_too_large(void **state)
{
    (void)state;
    static const struct {
        uint32_t slots;
        uint64_t chunk_bytes;
    } sizes[] = {{2, UINT64_MAX}, {UINT32_MAX, 1ull << 40}, {3, 1ull << 62}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct pair wanted = {.slots = sizes[i].slots, .chunk_bytes = sizes[i].chunk_bytes};
        const struct hoop_link_params params = pair_params(&wanted, false);
        struct hoop_link *link = NULL;
        struct hoop_blob blob;
        struct hoop_failure failure = {0};
        assert_int_equal(hoop_link_create(transport, &params, &link, &blob, &failure),
                         HOOP_OUT_OF_MEMORY);
        assert_null(link);
        assert_true(strlen(failure.text) > 0);
        assert_true(pair_nothing_left());
    }
}

static void test_sizes(void **state)
{
    struct pair *pair = *state;
    static const size_t sizes[] = {0, 1, 7, 63, 64, 65, 1000, CHUNK - 1, CHUNK};
    uint8_t from[CHUNK + 1], to[CHUNK + 2];
    uint32_t number = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int lent = 0; lent < 2; lent++) {
            struct item send, recv;
            number++;
            memset(to, 0xee, sizeof(to));
            pattern_fill(from + 1, sizes[i], number);
            assert_int_equal(pair_send(pair, &send, from + 1, sizes[i], number), HOOP_OK);
            assert_int_equal(pair_recv(pair, &recv, lent ? NULL : to + 1, sizes[i], number),
                             HOOP_OK);
            assert_int_equal(send.done + recv.done, 0); /* never within a post */
            assert_true(pair_until_done(pair, &recv) && pair_until_done(pair, &send));
            assert_int_equal(send.result, HOOP_OK);
            assert_int_equal(recv.result, HOOP_OK);
            assert_int_equal(recv.xfer.lent, lent);
            assert_true(pattern_is(recv.xfer.data, sizes[i], number));
            assert_int_equal(to[0], 0xee);
            assert_int_equal(to[1 + (lent ? 0 : sizes[i])], 0xee);
            if (lent) {
                hoop_link_release(pair->receiver, &recv.xfer);
                assert_false(recv.xfer.lent);
                assert_null(recv.xfer.data);
            }
        }
    }
}

/* NULL as the buffer of a send and of a receive without bytes. */
static void test_nothing_at_all(void **state)
{
    struct pair *pair = *state;
    struct item send, recv;
    assert_int_equal(pair_recv(pair, &recv, NULL, 0, 9), HOOP_OK);
    assert_int_equal(pair_send(pair, &send, NULL, 0, 9), HOOP_OK);
    assert_true(pair_until_done(pair, &recv) && pair_until_done(pair, &send));
    assert_true(recv.xfer.lent);
    hoop_link_release(pair->receiver, &recv.xfer);
}

#define MANY 41u

/* Sends that find no room wait; at each end xfers are done in order. */
static void test_more_than_slots(void **state)
{
    struct pair *pair = *state;
    static uint8_t from[MANY][CHUNK], to[MANY][CHUNK];
    struct item send[MANY], recv[MANY];
    unsigned sent = 0, received = 0, refused = 0;
    for (unsigned i = 0; i < MANY; i++) {
        pattern_fill(from[i], CHUNK, i);
        item_fill(&send[i], from[i], CHUNK, i);
        item_fill(&recv[i], to[i], CHUNK, i);
    }
    while (sent < MANY && refused < 200) { /* nobody receives */
        const hoop_result_t result = hoop_link_send(pair->sender, &send[sent].xfer);
        assert_true(result == HOOP_OK || result == HOOP_AGAIN);
        sent += result == HOOP_OK;
        refused += result == HOOP_AGAIN;
        (void)hoop_link_progress(pair->sender);
    }
    assert_in_range(sent, SLOTS, MANY - 1);
    const uint64_t deadline = hoop_deadline_ns(DEADLINE_MS); /* a full socket waits for a timer */
    while (recv[MANY - 1].done == 0 && hoop_now_ns() < deadline) {
        if (sent < MANY) {
            sent += hoop_link_send(pair->sender, &send[sent].xfer) == HOOP_OK;
        }
        if (received < MANY) {
            received += hoop_link_recv(pair->receiver, &recv[received].xfer) == HOOP_OK;
        }
        (void)hoop_link_progress(pair->receiver);
        (void)hoop_link_progress(pair->sender);
    }
    assert_true(pair_until_done(pair, &send[MANY - 1]));
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(send[i].done, 1);
        assert_int_equal(recv[i].done, 1);
        assert_int_equal(recv[i].result, HOOP_OK);
        assert_true(pattern_is(to[i], CHUNK, i));
        assert_true(i == 0 || (send[i].turn > send[i - 1].turn && recv[i].turn > recv[i - 1].turn));
    }
}

/* Sends while only the sender's end makes progress. */
static void send_alone(struct pair *pair, struct item *item, uint32_t number)
{
    const uint64_t deadline = hoop_deadline_ns(DEADLINE_MS);
    bool posted = false;
    item_fill(item, NULL, 0, number);
    while ((!posted || item->done == 0) && hoop_now_ns() < deadline) {
        posted = posted || hoop_link_send(pair->sender, &item->xfer) == HOOP_OK;
        (void)hoop_link_progress(pair->sender);
    }
    assert_int_equal(item->done, 1);
    assert_int_equal(item->result, HOOP_OK);
}

/* As many messages without bytes as a link holds can be sent although the receiver does not
 * look. */
static void test_held(void **state)
{
    struct pair pair = {.transport = transport, .slots = SLOTS, .chunk_bytes = CHUNK};
    struct item sent[64], received[64];
    (void)state;
    assert_int_equal(pair_make(&pair), HOOP_OK);
    assert_int_equal(pair_join(&pair), HOOP_OK);
    const uint32_t holds = hoop_link_holds(pair.receiver);
    assert_true(holds <= 64);
    for (uint32_t i = 0; i < holds; i++) {
        send_alone(&pair, &sent[i], i);
    }
    for (uint32_t i = 0; i < holds; i++) {
        assert_int_equal(pair_recv(&pair, &received[i], NULL, 0, i), HOOP_OK);
        assert_true(pair_until_done(&pair, &received[i]));
        if (received[i].xfer.lent) {
            hoop_link_release(pair.receiver, &received[i].xfer);
        }
    }
    pair_close(&pair);
}

/* A refused send leaves the xfer, and what the peer sees, unchanged. */
static void test_again_changes_nothing(void **state)
{
    enum { MOST = 1024 }; /* over TCP the kernel has room for about 25, or over twice as many */
    struct pair *pair = *state;
    static uint8_t data[64];
    static struct item send[MOST];
    struct item last, before, recv;
    unsigned sent = 0;
    hoop_result_t result = HOOP_OK;
    while (sent < MOST && result == HOOP_OK) {
        result = pair_send(pair, &send[sent], data, 0, sent);
        sent += result == HOOP_OK;
    }
    assert_int_equal(result, HOOP_AGAIN);
    item_fill(&last, data, sizeof(data), sent);
    memcpy(&before, &last, sizeof(last));
    for (int i = 0; i < 10; i++) {
        assert_int_equal(hoop_link_send(pair->sender, &last.xfer), HOOP_AGAIN);
        assert_memory_equal(&before, &last, sizeof(last));
    }
    for (unsigned i = 0; i < sent; i++) {
        assert_int_equal(pair_recv(pair, &recv, data, 0, i), HOOP_OK);
        assert_true(pair_until_done(pair, &recv));
    }
    assert_true(pair_until_done(pair, &send[sent - 1]));
    assert_int_equal(pair_recv(pair, &recv, data, sizeof(data), sent), HOOP_OK);
    pair_settle(pair);
    assert_int_equal(recv.done, 0); /* what was refused was not sent */
    assert_int_equal(pair_send(pair, &last, data, sizeof(data), sent), HOOP_OK);
    assert_true(pair_until_done(pair, &recv) && pair_until_done(pair, &last));
}

/* All slots are lent at a time, and returned in every order, again and again. */
static void test_lent_out_of_order(void **state)
{
    struct pair *pair = *state;
    uint8_t from[SLOTS][CHUNK];
    struct item send[SLOTS], recv[SLOTS];
    uint32_t number = 0;
    for (unsigned round = 0; round < 24; round++) {
        for (unsigned i = 0; i < SLOTS; i++) {
            pattern_fill(from[i], CHUNK, number + i);
            assert_int_equal(pair_send(pair, &send[i], from[i], CHUNK, number + i), HOOP_OK);
            assert_int_equal(pair_recv(pair, &recv[i], NULL, CHUNK, number + i), HOOP_OK);
        }
        for (unsigned i = 0; i < SLOTS; i++) {
            assert_true(pair_until_done(pair, &recv[i]) && pair_until_done(pair, &send[i]));
            assert_true(recv[i].xfer.lent);
        }
        memset(from, 0, sizeof(from)); /* sends are done, so lent memory can't be the sender's */
        unsigned left[SLOTS] = {0, 1, 2, 3}, order = round;
        for (unsigned n = SLOTS; n > 0; n--) {
            const unsigned pick = order % n, i = left[pick];
            order /= n;
            left[pick] = left[n - 1];
            assert_true(pattern_is(recv[i].xfer.data, CHUNK, number + i));
            hoop_link_release(pair->receiver, &recv[i].xfer);
        }
        number += SLOTS;
    }
}

/* When all slots are lent a receive waits for one, and goes on when one is returned. */
static void test_lent_all(void **state)
{
    struct pair *pair = *state;
    static uint8_t chunk[CHUNK];
    struct item send[SLOTS + 1], recv[SLOTS + 1];
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(pair_send(pair, &send[i], chunk, CHUNK, i), HOOP_OK);
        assert_int_equal(pair_recv(pair, &recv[i], NULL, CHUNK, i), HOOP_OK);
        assert_true(pair_until_done(pair, &recv[i]));
    }
    assert_int_equal(pair_recv(pair, &recv[SLOTS], NULL, CHUNK, SLOTS), HOOP_OK);
    const bool queued = pair_send(pair, &send[SLOTS], chunk, CHUNK, SLOTS) == HOOP_OK;
    pair_settle(pair);
    assert_int_equal(recv[SLOTS].done, 0);
    hoop_link_release(pair->receiver, &recv[0].xfer);
    if (!queued) {
        assert_int_equal(pair_send(pair, &send[SLOTS], chunk, CHUNK, SLOTS), HOOP_OK);
    }
    assert_true(pair_until_done(pair, &recv[SLOTS]) && pair_until_done(pair, &send[SLOTS]));
    for (unsigned i = 1; i <= SLOTS; i++) {
        hoop_link_release(pair->receiver, &recv[i].xfer);
    }
}

/* ---- done that posts ------------------------------------------------------------------------- */

struct chain {
    struct hoop_xfer xfer;
    struct hoop_link *link;
    bool sending;
    uint32_t number, stop;
    bool refused; /* the post inside done got HOOP_AGAIN; the test posts again */
    uint8_t data[8];
    hoop_result_t result;
};

static hoop_result_t chain_post(struct chain *chain)
{
    chain->xfer.op = chain->number;
    return chain->sending ? hoop_link_send(chain->link, &chain->xfer)
                          : hoop_link_recv(chain->link, &chain->xfer);
}

static void chain_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct chain *chain = (struct chain *)(void *)xfer;
    if (!chain->sending && result == HOOP_OK && chain->data[0] != (uint8_t)chain->number) {
        result = HOOP_INTERNAL_ERROR;
    }
    chain->result = result;
    if (++chain->number < chain->stop) {
        chain->data[0] = (uint8_t)chain->number;
        const hoop_result_t posted = chain_post(chain);
        chain->refused = posted == HOOP_AGAIN;
        chain->result = posted == HOOP_OK || posted == HOOP_AGAIN ? result : posted;
    }
}

static struct chain chain_make(struct hoop_link *link, bool sending)
{
    struct chain chain = {.link = link, .sending = sending, .stop = 100};
    chain.xfer.bytes = sizeof(chain.data);
    chain.xfer.done = chain_done;
    return chain;
}

static void test_done_posts(void **state)
{
    struct pair *pair = *state;
    struct chain chains[2] = {chain_make(pair->sender, true), chain_make(pair->receiver, false)};
    for (int i = 0; i < 2; i++) {
        chains[i].xfer.data = chains[i].data;
        chains[i].refused = true;
    }
    for (int round = 0; round < 100000 && (chains[0].number < 100 || chains[1].number < 100);
         round++) {
        for (int i = 0; i < 2; i++) {
            if (chains[i].refused) {
                chains[i].refused = chain_post(&chains[i]) == HOOP_AGAIN;
            }
            (void)hoop_link_progress(chains[i].link);
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chains[i].number, 100);
        assert_int_equal(chains[i].result, HOOP_OK);
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void test_destroy_with_pending(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct pair pair;
        uint8_t from[3] = {1, 2, 3}, to[3];
        struct item send[3], recv[3];
        assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(pair_send(&pair, &send[i], &from[i], 1, i + (first == 0)), HOOP_OK);
            item_fill(&recv[i], &to[i], 1, i);
        }
        if (first == 0) {
            hoop_link_destroy(pair.sender);
            pair.sender = NULL;
        } else {
            for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(pair_recv(&pair, &recv[i], &to[i], 1, i), HOOP_OK);
            }
            hoop_link_destroy(pair.receiver);
            pair.receiver = NULL;
            for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(recv[i].done, 1);
                assert_true(recv[i].result == HOOP_ABORTED || recv[i].result == HOOP_OK);
            }
        }
        pair_settle(&pair);
        pair_close(&pair);
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(send[i].done, 1);
            assert_true(send[i].result == HOOP_ABORTED || send[i].result == HOOP_OK);
        }
        assert_true(pair_nothing_left());
    }
}

static void test_post_while_destroyed(void **state)
{
    (void)state;
    struct pair pair;
    assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    struct chain chain = chain_make(pair.receiver, false);
    chain.xfer.data = chain.data;
    hoop_result_t posted = HOOP_AGAIN;
    for (int i = 0; i < 100 && posted == HOOP_AGAIN; i++) {
        posted = chain_post(&chain);
    }
    assert_int_equal(posted, HOOP_OK);
    hoop_link_destroy(pair.receiver);
    pair.receiver = NULL;
    assert_int_equal(chain.number, 1);
    assert_int_equal(chain.result, HOOP_ABORTED); /* of done, and of the post inside it */
    pair_close(&pair);
}

/* ---- Differences ----------------------------------------------------------------------------- */

static void test_mismatch(void **state)
{
    (void)state;
    static const struct {
        uint32_t op;
        uint64_t chunk;
        size_t bytes;
    } wrong[] = {{8, 5, 100}, {7, 6, 100}, {7, 5, 99}, {7, 5, 101}, {7, 5, 0}, {7, 5, CHUNK}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct pair pair;
        uint8_t from[CHUNK], to[CHUNK], untouched[CHUNK];
        struct item send, recv, next;
        memset(from, 1, sizeof(from));
        memset(to, 2, sizeof(to));
        memset(untouched, 2, sizeof(untouched));
        assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        item_fill(&send, from, wrong[i].bytes, wrong[i].op);
        send.xfer.chunk = wrong[i].chunk;
        item_fill(&recv, to, 100, 7);
        recv.xfer.chunk = 5;
        for (int tries = 0; tries < 100 && hoop_link_send(pair.sender, &send.xfer) != HOOP_OK;) {
            tries++;
        }
        for (int tries = 0; tries < 100 && hoop_link_recv(pair.receiver, &recv.xfer) != HOOP_OK;) {
            tries++;
        }
        assert_int_equal(pair_recv(&pair, &next, to, 1, 8), HOOP_OK);
        assert_true(pair_until_done(&pair, &recv) && pair_until_done(&pair, &next));
        assert_int_equal(recv.result, HOOP_MISMATCH);
        assert_int_equal(next.result, HOOP_MISMATCH);
        assert_int_equal(pair.receiver->failure.code, HOOP_MISMATCH);
        assert_int_equal(pair.receiver->failure.rank, PAIR_SENDER);
        assert_non_null(strstr(pair.receiver->failure.text, "rank 0 sent chunk"));
        assert_non_null(strstr(pair.receiver->failure.text, "rank 1 expected chunk 5 of operation "
                                                            "7, 100 bytes"));
        assert_memory_equal(to, untouched, sizeof(to));
        item_fill(&next, to, 1, 9);
        assert_int_equal(hoop_link_recv(pair.receiver, &next.xfer), HOOP_MISMATCH);
        pair_close(&pair);
        assert_int_equal(send.done, 1);
    }
}

/* The signature tells that operations differ, even if all else agrees. */
static void test_mismatch_of_operations(void **state)
{
    (void)state;
    struct pair pair;
    struct item send, recv;
    uint8_t data[8] = {0};
    assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    item_fill(&send, data, sizeof(data), 7);
    item_fill(&recv, NULL, sizeof(data), 7);
    send.xfer.signature = (struct hoop_signature){
        .collective = HOOP_COLL_ALL_REDUCE, .type = HOOP_FLOAT32, .root = -1, .count = 12};
    recv.xfer.signature = (struct hoop_signature){.collective = HOOP_COLL_BARRIER, .root = -1};
    for (int tries = 0; tries < 100 && hoop_link_send(pair.sender, &send.xfer) != HOOP_OK;) {
        tries++;
    }
    for (int tries = 0; tries < 100 && hoop_link_recv(pair.receiver, &recv.xfer) != HOOP_OK;) {
        tries++;
    }
    assert_true(pair_until_done(&pair, &recv));
    assert_int_equal(recv.result, HOOP_MISMATCH);
    assert_int_equal(pair.receiver->failure.rank, PAIR_SENDER);
    assert_non_null(strstr(pair.receiver->failure.text, "rank 1 called barrier"));
    assert_non_null(strstr(pair.receiver->failure.text, "rank 0 called all_reduce of 12"));
    pair_close(&pair);
}

static void test_choice(void **state)
{
    (void)state;
    assert_string_equal(hoop_transport_for(true, true)->name, "inproc");
    assert_string_equal(hoop_transport_for(false, true)->name, "shm");
    assert_string_equal(hoop_transport_for(false, false)->name, "tcp");
    assert_ptr_equal(hoop_transport_named("shm"), hoop_transports[1]);
    assert_null(hoop_transport_named("sh"));
    hoop_transport_decorate = faulty_decorate;
    assert_ptr_equal(hoop_transport_for(false, true), faulty_decorate(hoop_transports[1]));
    assert_ptr_equal(hoop_transport_named("tcp"), faulty_decorate(hoop_transports[2]));
    assert_null(hoop_transport_named(""));
    hoop_transport_decorate = NULL;
}

/* Does the descriptor tell, at once or soon, that there is something to do? It was drained
 * before. */
static bool is_told(int epoll_fd)
{
    struct epoll_event event;
    return epoll_wait(epoll_fd, &event, 1, 10000) == 1 && (event.events & EPOLLIN) != 0;
}

/* An end that has news for the other end wakes it; no end wakes itself. */
static void test_wakes(void **state)
{
    (void)state;
    struct pair pair;
    assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    const bool network = pair_is_network(&pair);
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    if (network) {
        const int fd = hoop_link_watch_fd(pair.receiver);
        assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event), 0);
        (void)epoll_wait(epoll_fd, &event, 1, 0); /* the socket was writable */
    }
    struct item send, recv;
    uint8_t from = 5, to = 0;
    assert_int_equal(pair_send(&pair, &send, &from, 1, 0), HOOP_OK);
    assert_true(network ? is_told(epoll_fd) : pair.wakes[PAIR_RECEIVER] == 1);
    assert_int_equal(pair.wakes[PAIR_SENDER], 0);
    assert_int_equal(pair_recv(&pair, &recv, &to, 1, 0), HOOP_OK);
    assert_true(pair_until_done(&pair, &recv) && pair_until_done(&pair, &send));
    assert_int_equal(pair.wakes[PAIR_RECEIVER], !network);
    assert_int_equal(pair.wakes[PAIR_SENDER], !network);
    pair_settle(&pair);
    assert_false(hoop_link_progress(pair.sender));
    assert_false(hoop_link_progress(pair.receiver));
    pair_close(&pair);
    close(epoll_fd);
}

int main(int argc, char **argv)
{
    transport = pair_transport(argc, argv);
    if (transport == NULL) {
        (void)fprintf(stderr, "usage: test_transport inproc|shm|tcp|rdma [faulty]\n");
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_birth_in_any_order),
        cmocka_unit_test(test_half_built),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test_setup_teardown(test_sizes, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_nothing_at_all, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_more_than_slots, open_pair, close_pair),
        cmocka_unit_test(test_held),
        cmocka_unit_test_setup_teardown(test_again_changes_nothing, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_lent_out_of_order, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_lent_all, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_done_posts, open_pair, close_pair),
        cmocka_unit_test(test_destroy_with_pending),
        cmocka_unit_test(test_post_while_destroyed),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_mismatch_of_operations),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_wakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The fault decorator and its purpose: every call of every function of a link fails in turn, and
 * nothing hangs, is done twice, or is left over. Usage: `test_faulty inproc|shm|tcp|rdma`
 */
#include "fakes/faulty.h"
#include "transports/link_pair.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK 512u
#define SLOTS 3u
#define ITEMS 7u
#define MOST_TRIES 80u

static const struct hoop_transport *transport;

/* ---- A failure at every call ----------------------------------------------------------------- */

struct play {
    struct pair pair;
    struct item send[ITEMS], recv[ITEMS];
    bool sent[ITEMS], received[ITEMS]; /* accepted */
    uint8_t *data;                     /* [2 * ITEMS][CHUNK] */
    hoop_result_t first;               /* the first failure of a call or a `done` */
};

static void play_note(struct play *play, hoop_result_t result)
{
    if (result != HOOP_OK && play->first == HOOP_OK) {
        play->first = result;
    }
}

static void play_chunks(struct play *play)
{
    for (uint32_t i = 0; i < ITEMS; i++) {
        uint8_t *from = play->data + (size_t)i * CHUNK, *to = from + (size_t)ITEMS * CHUNK;
        pattern_fill(from, CHUNK, i);
        hoop_result_t result = pair_send(&play->pair, &play->send[i], from, CHUNK, i);
        play->sent[i] = result == HOOP_OK;
        play_note(play, result);
        result = pair_recv(&play->pair, &play->recv[i], i % 2 == 0 ? NULL : to, CHUNK, i);
        play->received[i] = result == HOOP_OK;
        play_note(play, result);
        pair_settle(&play->pair);
        if (play->received[i] && play->recv[i].done != 0) {
            play_note(play, play->recv[i].result);
            if (play->recv[i].result == HOOP_OK && !pattern_is(play->recv[i].xfer.data, CHUNK, i)) {
                play_note(play, HOOP_INTERNAL_ERROR);
            }
        }
        if (play->recv[i].xfer.lent && i + 1 < ITEMS) { /* the last one stays lent to the end */
            hoop_link_release(play->pair.receiver, &play->recv[i].xfer);
        }
        play_note(play, play->pair.sender->failure.code);
        play_note(play, play->pair.receiver->failure.code);
    }
}

/* Runs the whole life of a link. Returns the first failure that showed, or HOOP_OK. */
static hoop_result_t play_all(void)
{
    static struct play play;
    memset(&play, 0, sizeof(play));
    play.data = malloc((size_t)2 * ITEMS * CHUNK);
    assert_non_null(play.data);
    play_note(&play, pair_open(&play.pair, transport, SLOTS, CHUNK));
    if (play.first == HOOP_OK) {
        play_chunks(&play);
    }
    pair_close(&play.pair);
    free(play.data);
    for (unsigned i = 0; i < ITEMS; i++) {
        assert_int_equal(play.send[i].done, play.sent[i]);
        assert_int_equal(play.recv[i].done, play.received[i]);
        assert_true(play.first != HOOP_OK || play.send[i].result == HOOP_OK);
        assert_true(play.first != HOOP_OK || play.recv[i].result == HOOP_OK);
    }
    assert_true(pair_nothing_left());
    return play.first;
}

static void test_failure_at_every_call(void **state)
{
    (void)state;
    static const hoop_result_t codes[] = {HOOP_SYSTEM_ERROR, HOOP_REMOTE_ERROR, HOOP_MISMATCH};
    for (unsigned late = 0; late < 3; late++) {
        for (int call = 0; call < FAULTY_CALLS; call++) {
            struct faulty_config config = {.seed = 1,
                                           .late = late,
                                           .again_every = late == 2 ? 3 : 0,
                                           .fail_call = FAULTY_NONE};
            faulty_configure(&config);
            assert_int_equal(play_all(), HOOP_OK);
            const uint64_t calls = faulty_calls((enum faulty_call)call);
            assert_true(calls > 0);
            config.fail_call = (enum faulty_call)call;
            for (uint64_t at = 1; at <= calls && at <= MOST_TRIES; at++) {
                config.fail_at = at;
                config.fail_code = codes[at % 3];
                faulty_configure(&config);
                assert_int_equal(play_all(), config.fail_code);
            }
        }
    }
}

/* When a link fails, progress reports that for all pending xfers, without waiting for the end of
 * the link. */
static void test_pending_is_told(void **state)
{
    (void)state;
    const struct faulty_config config = {
        .fail_call = FAULTY_RECV, .fail_at = 3, .fail_code = HOOP_REMOTE_ERROR};
    struct pair pair;
    struct item recv[3];
    uint8_t data = 0;
    faulty_configure(&config);
    assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv[0], &data, 1, 0), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv[1], NULL, 1, 1), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv[2], &data, 1, 2), HOOP_REMOTE_ERROR);
    assert_true(pair_until_done(&pair, &recv[0]) && pair_until_done(&pair, &recv[1]));
    assert_int_equal(recv[0].result, HOOP_REMOTE_ERROR);
    assert_int_equal(recv[1].result, HOOP_REMOTE_ERROR);
    assert_int_equal(recv[2].done, 0);
    assert_non_null(strstr(pair.receiver->failure.text, "injected failure of recv, call 3"));
    pair_close(&pair);
}

/* ---- Single faults --------------------------------------------------------------------------- */

static unsigned bits_between(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    unsigned bits = 0;
    for (size_t i = 0; i < bytes; i++) {
        bits += (unsigned)__builtin_popcount(a[i] ^ b[i]);
    }
    return bits;
}

static void test_flip(void **state)
{
    (void)state;
    for (unsigned which = 1; which <= 4; which++) {
        const struct faulty_config config = {.seed = which, .flip = which};
        struct pair pair;
        uint8_t from[CHUNK], to[CHUNK];
        faulty_configure(&config);
        assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
        for (uint32_t i = 1; i <= 5; i++) {
            struct item send, recv;
            pattern_fill(from, CHUNK, i);
            assert_int_equal(pair_send(&pair, &send, from, CHUNK, i), HOOP_OK);
            assert_int_equal(pair_recv(&pair, &recv, i % 2 == 0 ? NULL : to, CHUNK, i), HOOP_OK);
            assert_true(pair_until_done(&pair, &recv) && pair_until_done(&pair, &send));
            assert_int_equal(recv.result, HOOP_OK);
            assert_int_equal(bits_between(recv.xfer.data, from, CHUNK), i == which);
            assert_true(pattern_is(from, CHUNK, i)); /* not the sender's own memory */
            if (recv.xfer.lent) {
                hoop_link_release(pair.receiver, &recv.xfer);
            }
        }
        pair_close(&pair);
    }
}

static void test_late(void **state)
{
    (void)state;
    const struct faulty_config config = {.late = 5};
    struct pair pair;
    struct item send, recv;
    uint8_t from = 1, to = 0;
    faulty_configure(&config);
    assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    assert_int_equal(pair_send(&pair, &send, &from, 1, 0), HOOP_OK);
    assert_int_equal(pair_recv(&pair, &recv, &to, 1, 0), HOOP_OK);
    for (int i = 0; i < 5; i++) {
        assert_true(hoop_link_progress(pair.receiver)); /* something moves, so nobody may sleep */
        assert_int_equal(recv.done, 0);
    }
    assert_true(hoop_link_progress(pair.receiver));
    assert_int_equal(recv.done, 1);
    assert_true(pair_until_done(&pair, &send));
    assert_false(hoop_link_progress(pair.receiver));
    pair_close(&pair);
}

static void test_again(void **state)
{
    (void)state;
    const struct faulty_config config = {.again_every = 2};
    struct pair pair;
    struct item item;
    uint8_t data = 0;
    faulty_configure(&config);
    assert_int_equal(pair_open(&pair, transport, SLOTS, CHUNK), HOOP_OK);
    item_fill(&item, &data, 1, 0);
    assert_int_equal(hoop_link_recv(pair.receiver, &item.xfer), HOOP_OK);
    struct item second;
    item_fill(&second, &data, 1, 1);
    assert_int_equal(hoop_link_recv(pair.receiver, &second.xfer), HOOP_AGAIN);
    assert_true(hoop_link_progress(pair.receiver)); /* not the peer, but the decorator refused */
    assert_int_equal(hoop_link_recv(pair.receiver, &second.xfer), HOOP_OK);
    pair_close(&pair);
    assert_int_equal(item.done + second.done, 2);
}

/* ---- The notation ---------------------------------------------------------------------------- */

static void test_parse(void **state)
{
    (void)state;
    struct faulty_config config;
    assert_true(faulty_parse("flip:17,again:3,late:2,fail:send:40,seed:5", &config));
    assert_int_equal(config.flip, 17);
    assert_int_equal(config.again_every, 3);
    assert_int_equal(config.late, 2);
    assert_int_equal(config.fail_call, FAULTY_SEND);
    assert_int_equal(config.fail_at, 40);
    assert_int_equal(config.seed, 5);
    assert_true(faulty_parse("chance:99", &config));
    assert_int_equal(config.again_chance, 99);
    assert_int_equal(config.flip, 0);
    assert_true(faulty_parse("fail:progress:1", &config));
    assert_int_equal(config.fail_call, FAULTY_PROGRESS);
    assert_true(faulty_parse("", &config));
    static const char *const wrong[] = {
        "flip",       "flip:",       "flip:x",   "flip:1x", "flip:1;late:2", "flop:1",
        "again:1",    "chance:100",  "late:-1",  "late: 1", "fail:send",     "fail:send:",
        "fail:nap:1", "flip:1,,x:1", "late:1e3", "FLIP:1",  ",flip:1",       "late:4294967296",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        config.seed = 99;
        assert_false(faulty_parse(wrong[i], &config));
        assert_int_equal(config.seed, 99);
    }
}

static void test_environment(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("HOOP_TEST_FAULT"), 0);
    assert_true(faulty_from_env());
    assert_null(hoop_transport_decorate);
    assert_int_equal(setenv("HOOP_TEST_FAULT", "nonsense", 1), 0);
    assert_false(faulty_from_env());
    assert_null(hoop_transport_decorate);
    assert_int_equal(setenv("HOOP_TEST_FAULT", "late:1", 1), 0);
    assert_true(faulty_from_env());
    assert_ptr_equal(hoop_transport_decorate, faulty_decorate);
    hoop_transport_decorate = NULL;
    assert_int_equal(unsetenv("HOOP_TEST_FAULT"), 0);
}

int main(int argc, char **argv)
{
    const struct hoop_transport *plain = argc == 2 ? pair_transport(argc, argv) : NULL;
    if (plain == NULL) {
        (void)fprintf(stderr, "usage: test_faulty inproc|shm|tcp|rdma\n");
        return 2;
    }
    transport = faulty_decorate(plain);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failure_at_every_call),
        cmocka_unit_test(test_pending_is_told),
        cmocka_unit_test(test_flip),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

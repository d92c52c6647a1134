/*
 * The dialer finds a server that starts late, goes on whatever strangers answer, gives up at once
 * if the cause is on this side, and reports for every place what happened there.
 */
#include "base/clock.h"
#include "base/log.h"
#include "control/control_room_tests.h"
#include "control/dialer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SOON_MS 400u

/* A search and its notes, which are under the room's lock. */
struct search {
    struct room *room;
    struct hoop_dialer *dialer;
    struct hoop_place places[2];
    uint32_t count;
    bool wrong_secret;
    uint64_t deadline_ns;
    const struct hoop_place *later; /* the place for the next round */
    uint32_t found, failed, rounds;
    hoop_result_t code;
    char why[HOOP_FAILURE_TEXT_BYTES];
};

static struct room room;

static void search_note(struct search *search, uint32_t *note)
{
    pthread_mutex_lock(&search->room->lock);
    ++*note;
    pthread_cond_broadcast(&search->room->changed);
    pthread_mutex_unlock(&search->room->lock);
}

static void search_over(struct search *search)
{
    hoop_dialer_destroy(search->dialer);
    search->dialer = NULL;
}

static void search_found(void *arg, struct hoop_connection *connection)
{
    struct search *search = arg;
    hoop_connection_destroy(connection);
    search_over(search);
    search_note(search, &search->found);
}

static void search_failed(void *arg, hoop_result_t code, const char *why)
{
    struct search *search = arg;
    search->code = code;
    (void)snprintf(search->why, sizeof(search->why), "%s", why);
    search_over(search);
    search_note(search, &search->failed);
}

static void search_round(void *arg)
{
    struct search *search = arg;
    if (search->later != NULL) {
        hoop_dialer_set_places(search->dialer, search->later, 1);
    }
    search_note(search, &search->rounds);
}

static const struct hoop_dialer_owner search_owner = {
    .found = search_found,
    .failed = search_failed,
    .round = search_round,
};

static void search_start(void *arg)
{
    struct search *search = arg;
    struct hoop_secret secret = search->room->secret;
    union hoop_frame hello;
    raw_hello(search->room, &hello);
    secret.bytes[0] ^= search->wrong_secret ? 1 : 0;
    const struct hoop_dialer_order order = {
        .places = search->places,
        .count = search->count,
        .hello = hello.hello,
        .secret = &secret,
        .deadline_ns = search->deadline_ns,
    };
    (void)hoop_dialer_create(&order, &search_owner, search, &search->dialer);
}

static void begin(struct search *search, uint64_t timeout_ms)
{
    search->room = &room;
    search->count = search->count == 0 ? 1 : search->count;
    search->deadline_ns = hoop_deadline_ns(timeout_ms);
    hoop_service_run(search_start, search);
}

static struct hoop_place nobodys(void)
{
    struct hoop_place place;
    close(raw_listen(&room, 1, &place));
    return place;
}

static void expect_words(const struct search *search, const char *words)
{
    if (strstr(search->why, words) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", search->why, words);
    }
}

static void test_found(void **state)
{
    struct search search = {.places = {nobodys(), room.place}, .count = 2};
    (void)state;
    begin(&search, 20000);
    assert_true(room_await(&room, &search.found, 1));
    assert_int_equal(search.failed, 0);
}

/* First nobody serves there; then a server does, but does not expect this client yet; then
 * it does. */
static void test_late(void **state)
{
    struct search search = {.places = {room.place}};
    (void)state;
    room_expect(&room, false);
    begin(&search, 20000);
    assert_true(room_await(&room, &search.rounds, 3));
    assert_int_equal(search.found + search.failed, 0);
    room_expect(&room, true);
    assert_true(room_await(&room, &search.found, 1));
}

static void test_other_places(void **state)
{
    struct search search = {.places = {nobodys()}, .later = &room.place};
    (void)state;
    begin(&search, 20000);
    assert_true(room_await(&room, &search.found, 1));
    assert_true(search.rounds >= 1);
}

static _Atomic unsigned warnings;

static void count_warnings(void *arg, hoop_log_level_t level, const char *subsystem,
                           const char *line)
{
    char where[HOOP_ADDRESS_TEXT_BYTES];
    const struct hoop_place *place = arg;
    (void)subsystem;
    hoop_place_format(place, where, sizeof(where));
    warnings += level == HOOP_LOG_WARN && strstr(line, "found nobody yet: tried ") != NULL &&
                strstr(line, where) != NULL;
}

/* It says once on the way that nobody is there, and in the end. */
static void test_in_vain(void **state)
{
    struct search search = {.places = {nobodys(), nobodys()}, .count = 2};
    const uint64_t start = hoop_now_ns();
    char where[HOOP_ADDRESS_TEXT_BYTES];
    (void)state;
    warnings = 0;
    hoop_log_set_callback(count_warnings, &search.places[1]);
    begin(&search, SOON_MS);
    assert_true(room_await(&room, &search.failed, 1));
    hoop_log_set_callback(NULL, NULL);
    assert_int_equal(warnings, 1);
    assert_true(hoop_now_ns() - start >= SOON_MS * HOOP_NS_PER_MS);
    assert_int_equal(search.code, HOOP_TIMEOUT);
    for (int i = 0; i < 2; i++) {
        hoop_place_format(&search.places[i], where, sizeof(where));
        expect_words(&search, where);
    }
    expect_words(&search, room.kind == ROOM_UNIX ? "nobody is there" : "ECONNREFUSED");
    const char *took = strstr(search.why, " for ");
    assert_non_null(took); /* the dialer's clock began a little later than this one's */
    assert_in_range(strtoull(took + 5, NULL, 10), SOON_MS - SOON_MS / 4, 20 * SOON_MS);
}

/* Over TCP a server that can't prove itself may be anybody: the dialer goes on, and says so in the
 * end. On one machine, where the kernel vouches for the server, it ends at once. */
static void test_unproven(void **state)
{
    struct search search = {.places = {room.place}, .wrong_secret = true};
    const uint64_t start = hoop_now_ns();
    (void)state;
    begin(&search, SOON_MS);
    assert_true(room_await(&room, &search.failed, 1));
    assert_int_equal(search.code, HOOP_NOT_AUTHENTICATED);
    expect_words(&search, "could not prove that it knows this job's secret");
    const bool all_its_time = hoop_now_ns() - start >= SOON_MS * HOOP_NS_PER_MS;
    assert_true(all_its_time || room.kind == ROOM_UNIX);
    assert_true((search.rounds > 1) == (room.kind != ROOM_UNIX));
}

/* What the server of another job says of it arrives as a whole: how it differs may be at the end.
 */
static void test_other_job(void **state)
{
    struct search search = {.places = {room.place}};
    (void)state;
    room_expect(&room, false);
    (void)snprintf(room.expectation.hello.rendezvous, sizeof(room.expectation.hello.rendezvous),
                   "next door");
    room.expectation.label = "4096 ranks, TORCHELASTIC_RUN_ID=0123456789abcdef0123456789abcdef, "
                             "TORCHELASTIC_RESTART_COUNT=1000000";
    room_expect(&room, true);
    begin(&search, SOON_MS);
    assert_true(room_await(&room, &search.failed, 1));
    expect_words(&search, "another job is: 4096 ranks, ");
    expect_words(&search, "TORCHELASTIC_RESTART_COUNT=1000000)");
    expect_words(&search, " ms");
}

/* Running out of descriptors is a problem of this side, and waiting does not solve it. */
static void test_own_limit(void **state)
{
    struct search search = {.places = {room.place}};
    struct rlimit before;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    begin(&search, 20000);
    const bool failed = room_await(&room, &search.failed, 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(failed);
    assert_int_equal(search.code, HOOP_SYSTEM_ERROR);
    expect_words(&search, "raise ulimit -n");
}

struct until {
    struct search *search;
    uint64_t deadline_ns;
};

static void set_until(void *arg)
{
    const struct until *until = arg;
    hoop_dialer_until(until->search->dialer, until->deadline_ns);
}

/* While a server is dialled that does not answer, the deadline may be moved nearer, or removed.
 * full: not even TCP answers. */
static void check_until(bool full)
{
    struct search search = {.count = 1};
    struct until until = {.search = &search};
    const int silent = raw_listen(&room, full ? 0 : 5, &search.places[0]);
    struct room its = {.kind = room.kind, .place = search.places[0]};
    const int first = full ? raw_connect(&its) : -1; /* all that a backlog of 0 takes */
    const uint64_t start = hoop_now_ns();
    begin(&search, 100);
    until.deadline_ns = hoop_deadline_ns(60000);
    hoop_service_run(set_until, &until);
    until.deadline_ns = hoop_deadline_ns(SOON_MS);
    hoop_service_run(set_until, &until);
    assert_true(room_await(&room, &search.failed, 1));
    assert_true(hoop_now_ns() - start >= SOON_MS * HOOP_NS_PER_MS);
    assert_int_equal(search.code, HOOP_TIMEOUT);
    expect_words(&search, "no answer");
    close(silent);
    if (full) {
        close(first);
    }
}

static void test_until(void **state)
{
    (void)state;
    check_until(false);
    if (room_is_far(&room)) {
        check_until(true);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, room_setup, room_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_found),    TEST(test_late),      TEST(test_other_places), TEST(test_in_vain),
        TEST(test_unproven), TEST(test_other_job), TEST(test_own_limit),    TEST(test_until),
    };
    return room_run(&room, tests, sizeof(tests) / sizeof(tests[0]));
}

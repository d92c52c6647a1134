/*
 * Docks, where members take in data connections. Members of one comm in this process, which never
 * joined, dial each other's docks. What they are told is kept for the main thread, which waits for
 * it with a deadline.
 */
#include "base/clock.h"
#include "control/endpoint.h"
#include "harness/fds.h"
#include "membership/membership_inside.h"
#include "runtime/wait.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3u
#define LANES HOOP_FRAME_MAX_LANES
#define DEAD_AFTER_MS 1500u
#define LONG_MS 20000u

/* What a rank was told about one connection. */
struct told {
    uint32_t count;
    struct hoop_secret key;
    int fd;
    struct hoop_failure failure;
};

struct rank {
    struct hoop_member member;
    struct hoop_peer peers[RANKS];
    struct told told[RANKS][LANES][2]; /* by peer, lane, sending; under the lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rank ranks[RANKS];

static void rank_event(void *arg, const struct hoop_event *event)
{
    struct rank *rank = arg;
    pthread_mutex_lock(&lock);
    struct told *told = &rank->told[event->rank][event->id][event->part];
    told->count++;
    told->fd = event->fd;
    told->key = event->key;
    told->failure = event->failure;
    pthread_mutex_unlock(&lock);
}

static void call_begin(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < RANKS; i++) {
        hoop_list_push_back(&hoop_members, &ranks[i].member.node);
    }
}

static void begin(void)
{
    uint64_t comm_id = 0;
    struct hoop_secret secret;
    assert_int_equal(hoop_random(&comm_id, sizeof(comm_id)), HOOP_OK);
    assert_int_equal(hoop_random(&secret, sizeof(secret)), HOOP_OK);
    memset(ranks, 0, sizeof(ranks));
    for (uint32_t i = 0; i < RANKS; i++) {
        struct hoop_member *member = &ranks[i].member;
        hoop_list_init(&member->data_links);
        member->state = HOOP_MEMBER_IN;
        member->join.rank = i;
        member->join.n = RANKS;
        member->secret = secret;
        member->roster.comm_id = comm_id;
        member->roster.n = RANKS;
        member->roster.machines = 1;
        member->roster.dead_after_ms = DEAD_AFTER_MS;
        member->roster.peers = ranks[i].peers;
        member->told = RANKS;
        member->events.event = rank_event;
        member->events.arg = &ranks[i];
        for (uint32_t peer = 0; peer < RANKS; peer++) {
            ranks[i].peers[peer].pid = 100 + (int32_t)peer;
            (void)snprintf(ranks[i].peers[peer].host, sizeof(ranks[i].peers[peer].host), "h%u",
                           peer);
        }
    }
    hoop_service_run(call_begin, NULL);
}

static void call_finish(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < RANKS; i++) {
        hoop_list_remove(&ranks[i].member.node);
        hoop_data_connection_finish(&ranks[i].member);
        hoop_data_connection_finish(&ranks[i].member);
    }
}

static void finish(void)
{
    hoop_service_run(call_finish, NULL);
    for (uint32_t i = 0; i < RANKS * RANKS * LANES * 2; i++) {
        struct told *told = &ranks[i / (RANKS * LANES * 2)].told[0][0][0] + i % (RANKS * LANES * 2);
        if (told->count > 0) {
            hoop_fork_close(told->fd);
        }
    }
}

static void call_nothing(void *arg)
{
    (void)arg;
}

/* Makes the rank expect that connection. Returns the address of its dock. */
static struct hoop_address expecting(uint32_t rank, uint32_t from, uint32_t lane)
{
    struct hoop_address address;
    if (hoop_member_data_address(&ranks[rank].member, from, lane, &address) != HOOP_OK) {
        fail_msg("%s", hoop_thread_error());
    }
    assert_int_not_equal(address.port, 0);
    return address;
}

static struct told await(uint32_t rank, uint32_t peer, uint32_t lane, bool sending, uint32_t count)
{
    const uint64_t deadline = hoop_deadline_ns(LONG_MS);
    struct told told;
    do {
        pthread_mutex_lock(&lock);
        told = ranks[rank].told[peer][lane][sending ? 1 : 0];
        pthread_mutex_unlock(&lock);
        if (told.count < count) {
            hoop_wait_briefly();
        }
    } while (told.count < count && hoop_now_ns() < deadline);
    assert_int_equal(told.count, count);
    return told;
}

static void expect_failure(uint32_t rank, uint32_t peer, uint32_t lane, uint32_t count,
                           hoop_result_t code, const char *words)
{
    const struct told told = await(rank, peer, lane, true, count);
    assert_int_equal(told.fd, -1);
    assert_int_equal(told.failure.code, code);
    assert_int_equal(told.failure.rank, peer);
    if (strstr(told.failure.text, words) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", told.failure.text, words);
    }
}

/* The two ends are of one connection, in both directions. */
static void expect_joined(uint32_t from, uint32_t to, uint32_t lane)
{
    const struct told out = await(from, to, lane, true, 1);
    const struct told in = await(to, from, lane, false, 1);
    assert_true(out.fd >= 0 && in.fd >= 0);
    assert_memory_equal(&out.key, &in.key, sizeof(out.key));
    assert_memory_not_equal(&out.key, &ranks[from].member.secret, sizeof(out.key));
    const int ends[2] = {out.fd, in.fd};
    for (int i = 0; i < 2; i++) {
        const uint64_t word = (uint64_t)from << 32 | to << 16 | lane << 1 | (uint32_t)i;
        uint64_t got = 0;
        ssize_t bytes = -1;
        const uint64_t deadline = hoop_deadline_ns(LONG_MS);
        assert_int_equal(send(ends[i], &word, sizeof(word), MSG_NOSIGNAL), sizeof(word));
        while (bytes < 0 && hoop_now_ns() < deadline) { /* the descriptors are non-blocking */
            bytes = recv(ends[1 - i], &got, sizeof(got), 0);
        }
        assert_int_equal(bytes, sizeof(got));
        assert_true(got == word);
    }
}

static void test_all_lanes(void **state)
{
    const int fds = fds_count(0);
    struct hoop_address docks[RANKS];
    (void)state;
    begin();
    for (uint32_t pair = 0; pair < RANKS * RANKS * LANES; pair++) {
        const uint32_t from = pair % RANKS;
        const uint32_t to = pair / RANKS % RANKS;
        if (from != to) {
            docks[to] = expecting(to, from, pair / (RANKS * RANKS));
            const struct hoop_address again = expecting(to, from, pair / (RANKS * RANKS));
            assert_memory_equal(&docks[to], &again, sizeof(again));
        }
    }
    assert_memory_equal(&docks[0], &docks[RANKS - 1], sizeof(docks[0])); /* all share an endpoint */
    for (uint32_t pair = 0; pair < RANKS * RANKS * LANES; pair++) {
        const uint32_t from = pair % RANKS;
        const uint32_t to = pair / RANKS % RANKS;
        if (from != to) {
            hoop_member_dial(&ranks[from].member, to, pair / (RANKS * RANKS), &docks[to]);
        }
    }
    for (uint32_t pair = 0; pair < RANKS * RANKS * LANES; pair++) {
        const uint32_t from = pair % RANKS;
        const uint32_t to = pair / RANKS % RANKS;
        if (from != to) {
            expect_joined(from, to, pair / (RANKS * RANKS));
        }
    }
    finish();
    assert_true(fds_await(fds, hoop_deadline_ns(LONG_MS)));
}

/* A connection that has come is no longer expected. One that is not expected is asked to come back,
 * again and again, until it fails. */
static void test_unexpected(void **state)
{
    struct hoop_address bad = {.family = 4, .ip = {127, 0, 0, 1}};
    (void)state;
    begin();
    hoop_member_dial(&ranks[0].member, 1, 0, &bad);
    expect_failure(0, 1, 0, 1, HOOP_REMOTE_ERROR, "at nowhere for data: it gave no valid address");
    bad.family = 9;
    hoop_member_dial(&ranks[0].member, 1, 0, &bad);
    expect_failure(0, 1, 0, 2, HOOP_REMOTE_ERROR, "it gave no valid address");
    /* with another comm's secret */
    const struct hoop_address to = expecting(1, 0, 2);
    ranks[0].member.secret.bytes[3] ^= 1;
    hoop_member_dial(&ranks[0].member, 1, 2, &to);
    expect_failure(0, 1, 2, 1, HOOP_NOT_AUTHENTICATED, "could not prove");
    ranks[0].member.secret.bytes[3] ^= 1;
    /* of another comm, lane, or rank, and the second of its kind */
    (void)expecting(1, 0, 7);
    (void)expecting(1, 0, 5);
    hoop_member_dial(&ranks[0].member, 1, 7, &to);
    expect_joined(0, 1, 7);
    ranks[0].member.roster.comm_id++;
    hoop_member_dial(&ranks[0].member, 1, 5, &to);
    hoop_service_run(call_nothing, NULL);
    ranks[0].member.roster.comm_id--;
    hoop_member_dial(&ranks[0].member, 1, 6, &to);
    hoop_member_dial(&ranks[2].member, 1, 7, &to);
    hoop_member_dial(&ranks[0].member, 1, 7, &to);
    expect_failure(0, 1, 6, 1, HOOP_REMOTE_ERROR, "nobody here expects this connection");
    expect_failure(2, 1, 7, 1, HOOP_REMOTE_ERROR, "nobody here expects this connection");
    expect_failure(0, 1, 7, 2, HOOP_REMOTE_ERROR,
                   "rank 1 (pid 101, host h1) cannot be reached at 127.0.0.1:");
    assert_int_equal(send(ranks[1].told[0][7][0].fd, "x", 1, MSG_NOSIGNAL), 1);
    expect_failure(0, 1, 5, 1, HOOP_REMOTE_ERROR, "nobody here expects this connection");
    finish();
}

/* A port of this machine at which nobody listens, or a listener that never answers. */
static int a_socket(bool listening, struct hoop_address *ret)
{
    const struct hoop_address any = {.family = 4, .ip = {127, 0, 0, 1}};
    struct sockaddr_storage at;
    socklen_t bytes = hoop_address_to_sockaddr(&any, &at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    assert_true(hoop_address_from_sockaddr((struct sockaddr *)&at, ret));
    if (listening) {
        assert_int_equal(listen(fd, 10), 0);
    }
    return fd;
}

static void test_patience(void **state)
{
    struct hoop_address silent;
    struct hoop_address closed;
    const int fds[2] = {a_socket(true, &silent), a_socket(false, &closed)};
    const uint64_t start = hoop_now_ns();
    (void)state;
    begin();
    hoop_member_dial(&ranks[0].member, 1, 0, &silent);
    hoop_member_dial(&ranks[0].member, 2, 0, &closed);
    expect_failure(0, 1, 0, 1, HOOP_REMOTE_ERROR, "no answer");
    expect_failure(0, 2, 0, 1, HOOP_REMOTE_ERROR, "ECONNREFUSED");
    assert_true(hoop_now_ns() - start >= DEAD_AFTER_MS * HOOP_NS_PER_MS);
    finish();
    close(fds[0]);
    close(fds[1]);
}

struct opening {
    struct hoop_address address;
    struct hoop_endpoint *endpoint;
    hoop_result_t result;
};

static void call_open(void *arg)
{
    struct opening *opening = arg;
    const struct hoop_ports any = {.first = 0};
    const struct hoop_place place = {.address = opening->address};
    opening->result = hoop_endpoint_open(&place, &any, &opening->endpoint);
}

static void call_close(void *arg)
{
    struct opening *opening = arg;
    hoop_endpoint_close(opening->endpoint);
}

/* The machine's address is where its docks listen, and where its dials come from. */
static void test_address_of_machine(void **state)
{
    const struct hoop_address here = {.family = 4, .ip = {127, 0, 0, 2}};
    struct sockaddr_storage from;
    struct hoop_address seen;
    socklen_t bytes = sizeof(from);
    (void)state;
    begin();
    ranks[0].member.address = here;
    const struct hoop_address mine = expecting(0, 1, 5);
    assert_true(hoop_address_same_ip(&mine, &here));
    const struct hoop_address to = expecting(1, 0, 5);
    assert_false(hoop_address_same_ip(&to, &here));
    hoop_member_dial(&ranks[0].member, 1, 5, &to);
    expect_joined(0, 1, 5);
    assert_int_equal(getpeername(ranks[1].told[0][5][0].fd, (struct sockaddr *)&from, &bytes), 0);
    assert_true(hoop_address_from_sockaddr((struct sockaddr *)&from, &seen));
    assert_true(hoop_address_same_ip(&seen, &here));
    hoop_member_dial(&ranks[1].member, 0, 5, &mine);
    expect_joined(1, 0, 5);
    finish();
}

/* An address that this machine does not have. */
static void test_no_dock(void **state)
{
    struct hoop_address address;
    (void)state;
    begin();
    ranks[0].member.address = (struct hoop_address){.family = 4, .ip = {203, 0, 113, 7}};
    assert_int_not_equal(hoop_member_data_address(&ranks[0].member, 1, 0, &address), HOOP_OK);
    assert_non_null(strstr(hoop_thread_error(), "203.0.113.7"));
    ranks[0].member.address.family = 0;
    (void)expecting(0, 1, 0);
    finish();
}

/* The dock opens only after it was dialled. */
static void test_late_dock(void **state)
{
    struct opening opening;
    const int fd = a_socket(false, &opening.address);
    (void)state;
    begin();
    hoop_member_dial(&ranks[0].member, 1, 0, &opening.address);
    hoop_service_run(call_nothing, NULL); /* after this the dialer has found nobody */
    close(fd);
    hoop_service_run(call_open, &opening);
    assert_int_equal(opening.result, HOOP_OK);
    const struct hoop_address at = expecting(1, 0, 0);
    assert_memory_equal(&at, &opening.address, sizeof(at));
    expect_joined(0, 1, 0);
    hoop_service_run(call_close, &opening);
    finish();
}

static void test_finish_while_dialling(void **state)
{
    const int before = fds_count(0);
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct hoop_address silent;
        struct hoop_address closed;
        const int fds[2] = {a_socket(true, &silent), a_socket(false, &closed)};
        begin();
        struct hoop_address open;
        for (uint32_t lane = 0; lane < 10; lane++) {
            open = expecting(2, 1, lane);
            hoop_member_dial(&ranks[0].member, 1, lane, &silent);
            hoop_member_dial(&ranks[0].member, 2, lane, &closed);
            hoop_member_dial(&ranks[1].member, 2, lane, &open);
        }
        for (int i = 0; i < round * 10; i++) {
            hoop_wait_briefly();
        }
        finish();
        close(fds[0]);
        close(fds[1]);
        assert_true(fds_await(before, hoop_deadline_ns(LONG_MS)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_lanes), cmocka_unit_test(test_unexpected),
        cmocka_unit_test(test_late_dock), cmocka_unit_test(test_address_of_machine),
        cmocka_unit_test(test_no_dock),   cmocka_unit_test(test_finish_while_dialling),
        cmocka_unit_test(test_patience),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (hoop_service_start() != HOOP_OK) {
        (void)fprintf(stderr, "%s\n", hoop_thread_error());
        return 1;
    }
    return cmocka_run_group_tests_name("data_connection", tests, NULL, NULL);
}

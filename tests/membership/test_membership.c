/*
 * Bootstrap: joining, and what members are told afterwards. The first half joins ranks of this
 * process (a join is asynchronous, so one thread can start them all). The second half has ranks in
 * processes of their own, which it kills, stops, and asks for regions.
 */
#include "base/clock.h"
#include "control/connection.h"
#include "control/endpoint.h"
#include "harness/fds.h"
#include "membership/member_rank.h"
#include "membership/membership_inside.h"
#include "membership/serve.h"
#include "memory/region.h"
#include "runtime/process.h"
#include "runtime/wait.h"
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_MS 20000
#define MANY 8u

static struct hoop_rendezvous a_meeting(void)
{
    struct hoop_rendezvous rendezvous;
    assert_int_equal(hoop_rendezvous_random(&rendezvous), HOOP_OK);
    return rendezvous;
}

static void start_all(struct rank *ranks, uint32_t n, const struct hoop_rendezvous *rendezvous)
{
    for (uint32_t i = 0; i < n; i++) { /* the last rank first, so that the leader comes late */
        const uint32_t me = n - 1 - i;
        rank_init(&ranks[me], rendezvous, n, me);
        assert_int_equal(rank_start(&ranks[me]), HOOP_OK);
    }
}

static void join_all(struct rank *ranks, uint32_t n, const struct hoop_rendezvous *rendezvous)
{
    start_all(ranks, n, rendezvous);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(rank_join(&ranks[i]), HOOP_OK);
    }
}

static void finish_all(struct rank *ranks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        rank_finish(&ranks[i]);
    }
}

/* ---- Ranks of one process ----------------------------------------------------------------- */

static void check_roster(const struct rank *ranks, uint32_t n, uint32_t me)
{
    const struct hoop_roster *first = hoop_member_roster(ranks[0].member);
    const struct hoop_roster *roster = hoop_member_roster(ranks[me].member);
    assert_true(roster->comm_id == first->comm_id && roster->comm_id != 0);
    assert_int_equal(roster->n, n);
    assert_int_equal(roster->segment_bytes, RANK_SEGMENT_BYTES);
    /* the comm has its own secret, which can't be known from the rendezvous */
    const struct hoop_secret *secret = &ranks[me].member->secret;
    assert_memory_equal(secret, &ranks[0].member->secret, sizeof(*secret));
    assert_memory_not_equal(secret, &ranks[me].join.rendezvous.secret, sizeof(*secret));
    ((_Atomic uint32_t *)roster->segment)[1000 + me] = me + 1;
    for (uint32_t peer = 0; peer < n; peer++) {
        uint64_t value = 1;
        assert_true(roster->peers[peer].same_process);
        assert_true(roster->peers[peer].process == hoop_process_id());
        assert_int_equal(roster->peers[peer].pid, getpid());
        assert_int_equal(write(roster->peers[peer].wake_fd, &value, sizeof(value)), 8);
        assert_int_equal(read(ranks[peer].join.wake_fd, &value, sizeof(value)), 8);
        assert_int_equal(value, 1);
        assert_int_equal(((_Atomic uint32_t *)roster->segment)[1000 + peer],
                         peer <= me ? peer + 1 : 0);
    }
}

static void test_join(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, MANY, 40};
    static struct rank ranks[40];
    (void)state;
    assert_int_equal(hoop_service_start(), HOOP_OK);
    const int fds = fds_count(0);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const struct hoop_rendezvous rendezvous = a_meeting();
        join_all(ranks, counts[i], &rendezvous);
        for (uint32_t me = 0; me < counts[i]; me++) {
            check_roster(ranks, counts[i], me);
        }
        finish_all(ranks, counts[i]);
        assert_true(fds_await(fds, hoop_deadline_ns(LONG_MS)));
    }
}

/* Two ranks of one machine, which may use these CPUs. shared_by: 0, or how many share a CPU. */
static void check_cpus(const struct hoop_cpus cpus[2], uint32_t shared_by)
{
    struct rank ranks[2];
    const struct hoop_rendezvous rendezvous = a_meeting();
    for (uint32_t me = 0; me < 2; me++) {
        rank_init(&ranks[me], &rendezvous, 2, me);
        ranks[me].join.cpus = cpus[me];
        assert_int_equal(rank_start(&ranks[me]), HOOP_OK);
    }
    for (uint32_t me = 0; me < 2; me++) {
        assert_int_equal(rank_join(&ranks[me]), HOOP_OK);
        assert_int_equal(hoop_member_roster(ranks[me].member)->crowded, shared_by > 0);
        assert_int_equal(hoop_member_roster(ranks[me].member)->oversubscribed, shared_by);
    }
    finish_all(ranks, 2);
}

/* The caller's thread may be late: events come when it has not returned from the call yet. */
static void test_first_event(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        const struct hoop_rendezvous rendezvous = a_meeting();
        struct rank rank;
        join_all(&rank, 1, &rendezvous);
        assert_false(rank.unmade);
        rank_finish(&rank);
    }
}

static void test_cpus(void **state)
{
    (void)state;
    check_cpus((struct hoop_cpus[]){{.set = 1, .count = 2}, {.set = 1, .count = 2}}, 0);
    check_cpus((struct hoop_cpus[]){{.set = 1, .count = 1}, {.set = 1, .count = 1}}, 2);
    check_cpus((struct hoop_cpus[]){{.set = 1, .count = 1}, {.set = 2, .count = 1}}, 0);
    check_cpus((struct hoop_cpus[]){{.count = 2, .local_n = 3}, {.count = 2}}, 1);
}

static void test_unique_id(void **state)
{
    struct rank ranks[3];
    struct rank others[2];
    struct hoop_rendezvous rendezvous;
    struct hoop_rendezvous other;
    hoop_unique_id_t id;
    (void)state;
    assert_int_equal(hoop_rendezvous_create(false, &id), HOOP_OK);
    assert_int_equal(hoop_rendezvous_from_id(&id, &rendezvous), HOOP_OK);
    /* two comms at the same time, one of whose leaders exists already */
    other = a_meeting();
    join_all(ranks, 3, &rendezvous);
    join_all(others, 2, &other);
    assert_true(hoop_member_roster(ranks[0].member)->comm_id !=
                hoop_member_roster(others[0].member)->comm_id);
    finish_all(ranks, 3);
    finish_all(others, 2);
    id.internal[40] ^= 1;
    assert_int_equal(hoop_rendezvous_from_id(&id, &rendezvous), HOOP_INVALID_ARGUMENT);
    memset(&id, 0, sizeof(id));
    assert_int_equal(hoop_rendezvous_from_id(&id, &rendezvous), HOOP_INVALID_ARGUMENT);
}

/* All ranks fail with this code, and an error text that contains a and b. */
static void expect_failure(struct rank *ranks, uint32_t n, hoop_result_t code, const char *a,
                           const char *b)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(rank_join(&ranks[i]), code);
        if (strstr(ranks[i].line, a) == NULL || strstr(ranks[i].line, b) == NULL) {
            fail_msg("\"%s\" has no \"%s\" or \"%s\"", ranks[i].line, a, b);
        }
        rank_finish(&ranks[i]);
    }
}

static void test_contradictions(void **state)
{
    struct rank ranks[3];
    (void)state;
    for (int what = 0; what < 5; what++) {
        const struct hoop_rendezvous rendezvous = a_meeting();
        for (uint32_t i = 0; i < 3; i++) {
            rank_init(&ranks[i], &rendezvous, 3, i);
        }
        switch (what) {
        case 0:
            ranks[2].join.rank = 1;
            break;
        case 1:
            ranks[1].join.n = 4;
            break;
        case 2:
            ranks[2].join.agreement.algo = HOOP_ALGO_RING;
            break;
        case 3:
            ranks[1].join.agreement.chunk_bytes = 4096;
            break;
        default:
            ranks[1].join.segment_bytes *= 2;
            break;
        }
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(rank_start(&ranks[i]), HOOP_OK);
        }
        static const struct {
            hoop_result_t code;
            const char *a, *b;
        } expected[] = {
            {HOOP_INVALID_USAGE, "rank 1 joined twice", "pid"},
            {HOOP_MISMATCH, "rank 1 (", "joined with 4 ranks"},
            {HOOP_MISMATCH, "HOOP_ALGO", "it is ring on rank 2"},
            {HOOP_MISMATCH, "HOOP_CHUNK_BYTES", "131072"},
            {HOOP_MISMATCH, "the shared memory", "65536"},
        };
        expect_failure(ranks, 3, expected[what].code, expected[what].a, expected[what].b);
    }
}

static void test_missing_rank(void **state)
{
    struct rank ranks[4];
    const struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        rank_init(&ranks[i], &rendezvous, 5, i);
        ranks[i].join.timeout_ms = i == 0 ? 200 : 10000;
    }
    assert_int_equal(rank_start(&ranks[0]), HOOP_OK);
    assert_int_equal(rank_start(&ranks[2]), HOOP_OK);
    expect_failure(ranks, 1, HOOP_TIMEOUT, "ranks 1, 3, 4 of 5", "within 200 ms");
    expect_failure(ranks + 2, 1, HOOP_TIMEOUT, "ranks 1, 3, 4 of 5", "did not arrive");
    /* ranks that come late are told why at once */
    assert_int_equal(rank_start(&ranks[3]), HOOP_OK);
    expect_failure(ranks + 3, 1, HOOP_TIMEOUT, "ranks 1, 3, 4 of 5", "did not arrive");
}

static void test_nobody_serves(void **state)
{
    struct rank rank;
    const struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    rank_init(&rank, &rendezvous, 2, 1);
    rank.join.timeout_ms = 100;
    assert_int_equal(rank_start(&rank), HOOP_OK);
    expect_failure(&rank, 1, HOOP_TIMEOUT, "no leader answers: rank 1 of 2 tried hoop-",
                   "(nobody is there) for ");
}

static void test_bad_calls(void **state)
{
    struct rank rank;
    struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    rank_init(&rank, &rendezvous, 2, 2);
    assert_int_equal(rank_start(&rank), HOOP_INVALID_ARGUMENT);
    rank_finish(&rank);
    rendezvous.name[0] = 0;
    rank_init(&rank, &rendezvous, 2, 0);
    assert_int_equal(rank_start(&rank), HOOP_INVALID_ARGUMENT);
    rank_finish(&rank);
}

static void test_wrong_secret(void **state)
{
    struct rank ranks[2];
    struct rank stranger;
    const struct hoop_rendezvous rendezvous = a_meeting();
    struct hoop_rendezvous wrong = rendezvous;
    (void)state;
    rank_init(&ranks[0], &rendezvous, 2, 0);
    assert_int_equal(rank_start(&ranks[0]), HOOP_OK);
    wrong.secret.bytes[31] ^= 1;
    rank_init(&stranger, &wrong, 2, 1);
    assert_int_equal(rank_start(&stranger), HOOP_OK);
    expect_failure(&stranger, 1, HOOP_NOT_AUTHENTICATED, "leader", "could not prove");
    /* the join was not disturbed */
    rank_init(&ranks[1], &rendezvous, 2, 1);
    assert_int_equal(rank_start(&ranks[1]), HOOP_OK);
    assert_int_equal(rank_join(&ranks[0]), HOOP_OK);
    assert_int_equal(rank_join(&ranks[1]), HOOP_OK);
    finish_all(ranks, 2);
}

/* Connects to the leader knowing nothing but its name. */
static int strange_connection(const struct hoop_rendezvous *rendezvous)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, rendezvous->name, strlen(rendezvous->name));
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(
        connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(rendezvous->name))),
        0);
    return fd;
}

static void test_strangers(void **state)
{
    struct rank ranks[2];
    const struct hoop_rendezvous rendezvous = a_meeting();
    union hoop_frame frame;
    int silent[100];
    (void)state;
    rank_init(&ranks[0], &rendezvous, 2, 0);
    assert_int_equal(rank_start(&ranks[0]), HOOP_OK);
    for (int i = 0; i < 100; i++) {
        silent[i] = strange_connection(&rendezvous);
    }
    for (int i = 0; i < 200; i++) {
        const int fd = strange_connection(&rendezvous);
        assert_int_equal(hoop_random(&frame, sizeof(frame)), HOOP_OK);
        if (i % 2 == 0) { /* well-formed, but out of place, or with a wrong proof */
            hoop_frame_init(&frame, i % 4 == 0 ? HOOP_FRAME_PROOF : HOOP_FRAME_HELLO);
            frame.hello.kind = HOOP_HELLO_RANK;
            memcpy(frame.hello.rendezvous, rendezvous.name, sizeof(frame.hello.rendezvous));
            (void)send(fd, &frame, frame.header.bytes, MSG_NOSIGNAL);
            hoop_frame_init(&frame, HOOP_FRAME_PROOF);
        }
        (void)send(fd, &frame, i % 2 == 0 ? frame.header.bytes : (size_t)i + 1, MSG_NOSIGNAL);
        close(fd);
    }
    rank_init(&ranks[1], &rendezvous, 2, 1);
    assert_int_equal(rank_start(&ranks[1]), HOOP_OK);
    assert_int_equal(rank_join(&ranks[0]), HOOP_OK);
    assert_int_equal(rank_join(&ranks[1]), HOOP_OK);
    for (int i = 0; i < 100; i++) {
        close(silent[i]);
    }
    finish_all(ranks, 2);
}

static void test_destroy_while_joining(void **state)
{
    struct rank ranks[3];
    const struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        rank_init(&ranks[i], &rendezvous, 3, i);
        assert_int_equal(rank_start(&ranks[i]), HOOP_OK);
    }
    hoop_member_destroy(ranks[1].member);
    ranks[1].member = NULL;
    assert_int_equal(rank_join(&ranks[1]), HOOP_ABORTED);
    rank_finish(&ranks[1]); /* without a word: the next line, although rank 2 ended first */
    rank_init(&ranks[2], &rendezvous, 3, 1);
    ranks[2].join.timeout_ms = 300;
    assert_int_equal(rank_start(&ranks[2]), HOOP_OK);
    const hoop_result_t result = rank_join(&ranks[0]);
    assert_true(result == HOOP_ABORTED || result == HOOP_TIMEOUT);
    rank_finish(&ranks[0]);
    assert_int_equal(rank_join(&ranks[2]), result);
    rank_finish(&ranks[2]);
}

static void test_goodbye(void **state)
{
    struct rank ranks[3];
    const struct hoop_rendezvous rendezvous = a_meeting();
    const struct hoop_blob blob = {.bytes = 5, .data = "hello"};
    (void)state;
    join_all(ranks, 3, &rendezvous);
    rank_say_left(&ranks[2]);
    rank_finish(&ranks[2]);
    hoop_member_send_blob(ranks[0].member, 1, 3, true, &blob);
    assert_true(rank_line(&ranks[1], "blob 0 3 1 hello", LONG_MS));
    rank_finish(&ranks[1]); /* leaves without a word: the next line is about it, although rank 2
                               ended first */
    assert_true(rank_line(&ranks[0], "lost 1 closed its connection without a goodbye", LONG_MS));
    hoop_member_fetch(ranks[0].member, 1, 7, 1); /* a region of this process: the memory itself */
    assert_true(rank_line(&ranks[0], "fetched 1 7 1 ", LONG_MS));
    rank_finish(&ranks[0]);
}

/* ---- Ranks in processes ------------------------------------------------------------------- */

static void spawn_all(struct rank *ranks, uint32_t n, uint64_t dead_after_ms)
{
    const struct hoop_rendezvous rendezvous = a_meeting();
    for (uint32_t i = 0; i < n; i++) {
        rank_init(&ranks[i], &rendezvous, n, i);
        ranks[i].join.dead_after_ms = dead_after_ms;
        assert_int_equal(rank_spawn(&ranks[i], NULL), 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_true(rank_line(&ranks[i], "joined", LONG_MS));
    }
}

static void kill_and_expect(struct rank *ranks, uint32_t n, uint32_t victim)
{
    char line[32];
    const uint64_t start = hoop_now_ns();
    (void)snprintf(line, sizeof(line), "lost %u died", victim);
    kill(ranks[victim].pid, SIGKILL);
    for (uint32_t i = 0; i < n; i++) {
        if (i != victim) {
            assert_true(rank_line(&ranks[i], line, LONG_MS));
        }
    }
    print_message("rank %u of %u: its death was known everywhere after %" PRIu64 " us\n", victim, n,
                  (hoop_now_ns() - start) / 1000);
}

static void test_kill(void **state)
{
    static const uint32_t cases[][2] = {{2, 1}, {3, 0}, {MANY, 5}};
    struct rank ranks[MANY];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        spawn_all(ranks, cases[i][0], 60000);
        kill_and_expect(ranks, cases[i][0], cases[i][1]);
        finish_all(ranks, cases[i][0]);
    }
}

static void test_kill_with_live_child(void **state)
{
    struct rank ranks[3];
    (void)state;
    spawn_all(ranks, 3, 60000);
    rank_command(&ranks[1], "blob 0 0 x"); /* so that the child keeps a connection open */
    assert_true(rank_line(&ranks[0], "blob 1 0 1 x", LONG_MS));
    for (uint32_t i = 0; i < 2; i++) {
        rank_command(&ranks[i], "fork");
        assert_true(rank_line(&ranks[i], "forked", LONG_MS));
    }
    kill_and_expect(ranks, 3, 1);
    kill(ranks[0].pid, SIGKILL); /* now the process that serves the leader */
    assert_true(rank_line(&ranks[2], "lost 0 died", LONG_MS));
    finish_all(ranks, 3);
}

static void test_stop(void **state)
{
    struct rank ranks[3];
    (void)state;
    spawn_all(ranks, 3, 300);
    kill(ranks[2].pid, SIGSTOP);
    assert_true(rank_is_silent(&ranks[1], 700)); /* no rank waits for it yet */
    rank_command(&ranks[1], "wait");
    assert_true(rank_line(&ranks[1], "lost 2 gave no sign of life for", LONG_MS));
    kill(ranks[2].pid, SIGCONT);
    rank_command(&ranks[2], "blob 0 1 back");
    assert_true(rank_line(&ranks[0], "blob 2 1 1 back", LONG_MS));
    finish_all(ranks, 3);
}

static void test_processes_leave(void **state)
{
    struct rank ranks[3];
    int status = -1;
    (void)state;
    spawn_all(ranks, 3, 60000);
    for (uint32_t leaver = 2; leaver < 4; leaver--) { /* 2, 1, 0: never a loss */
        rank_command(&ranks[leaver], "left");
        rank_command(&ranks[leaver], "quit");
        assert_int_equal(waitpid(ranks[leaver].pid, &status, 0), ranks[leaver].pid);
        assert_int_equal(status, 0);
        ranks[leaver].pid = -1;
        if (leaver == 2) {
            rank_command(&ranks[1], "blob 0 0 here");
            assert_true(rank_line(&ranks[0], "blob 1 0 1 here", LONG_MS));
        }
    }
    finish_all(ranks, 3);
}

static void test_regions(void **state)
{
    struct rank ranks[2];
    unsigned generation = 0;
    uint64_t id = 0;
    char line[64];
    (void)state;
    spawn_all(ranks, 2, 60000);
    for (uint32_t owner = 0; owner < 2; owner++) {
        struct rank *mine = &ranks[owner];
        struct rank *other = &ranks[1 - owner];
        rank_command(mine, "share treasure");
        assert_true(rank_line(mine, "region ", LONG_MS));
        assert_int_equal(sscanf(mine->line, "region %" SCNu64 " %u", &id, &generation), 2);
        assert_true(id != 0);
        rank_command(other, "fetch %u %" PRIu64 " %u", owner, id, generation);
        (void)snprintf(line, sizeof(line), "fetched %u %" PRIu64 " %u 0 treasure", owner, id,
                       generation);
        assert_true(rank_line(other, line, LONG_MS));
        rank_command(other, "fetch %u %" PRIu64 " %u", owner, id, generation + 1);
        (void)snprintf(line, sizeof(line), "fetched %u %" PRIu64 " %u %d ", owner, id,
                       generation + 1, (int)HOOP_REMOTE_ERROR);
        assert_true(rank_line(other, line, LONG_MS));
        rank_command(mine, "free");
        const uint64_t deadline = hoop_deadline_ns(LONG_MS);
        do {
            rank_command(other, "imports");
            assert_true(rank_line(other, "imports ", LONG_MS));
        } while (strcmp(other->line, "imports 0") != 0 && hoop_now_ns() < deadline);
        assert_string_equal(other->line, "imports 0");
    }
    rank_command(&ranks[0], "blob 1 15 across"); /* uses the same connection as the regions */
    assert_true(rank_line(&ranks[1], "blob 0 15 1 across", LONG_MS));
    kill(ranks[1].pid, SIGKILL);
    assert_true(rank_line(&ranks[0], "lost 1 died", LONG_MS));
    rank_command(&ranks[0], "fetch 1 %" PRIu64 " %u", id, generation);
    assert_true(rank_line(&ranks[0], "fetched 1 ", LONG_MS));
    assert_non_null(strstr(ranks[0].line, " 6 ")); /* HOOP_REMOTE_ERROR */
    finish_all(ranks, 2);
}

/* ---- Launchers ---------------------------------------------------------------------------- */

static void expect_env(const char *const *first, const char *const *second, const char *line)
{
    struct rank ranks[2];
    const struct hoop_rendezvous rendezvous = {.name = "unused"};
    for (uint32_t i = 0; i < 2; i++) {
        rank_init(&ranks[i], &rendezvous, 1, 0);
        ranks[i].join.timeout_ms = 10000;
        assert_int_equal(rank_spawn(&ranks[i], i == 0 ? first : second), 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(rank_line(&ranks[i], line, LONG_MS));
    }
    finish_all(ranks, 2);
}

#define SECRET "HOOP_SECRET=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static void test_env(void **state)
{
    static const char *const none[] = {NULL};
    static const char *const hoop0[] = {"WORLD_SIZE=2", "RANK=0", SECRET, NULL};
    static const char *const hoop1[] = {"WORLD_SIZE=2", "RANK=1", SECRET, NULL};
    static const char *const torch0[] = {"WORLD_SIZE=2", "RANK=0", "MASTER_PORT=61234", NULL};
    static const char *const torch1[] = {"WORLD_SIZE=2", "RANK=1", "MASTER_PORT=61234", NULL};
    static const char *const mpi0[] = {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0",
                                       "PMIX_NAMESPACE=test-env", NULL};
    static const char *const mpi1[] = {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1",
                                       "PMIX_NAMESPACE=test-env", NULL};
    static const char *const nowhere[] = {"PMI_SIZE=2", "PMI_RANK=1", NULL};
    static const char *const half[] = {"WORLD_SIZE=2", NULL};
    static const char *const high[] = {"WORLD_SIZE=2", "RANK=2", SECRET, NULL};
    static const char *const word[] = {"WORLD_SIZE=two", "RANK=0", SECRET, NULL};
    (void)state;
    expect_env(none, none, "joined");
    expect_env(hoop0, hoop1, "joined");
    expect_env(torch0, torch1, "joined");
    expect_env(mpi0, mpi1, "joined");
    expect_env(nowhere, nowhere, "failed 5 nothing tells where");
    expect_env(half, half, "failed 5 WORLD_SIZE is \"2\" but RANK is not set");
    expect_env(high, high, "failed 5 RANK is 2: expected less than WORLD_SIZE, which is 2");
    expect_env(word, word, "failed 5 WORLD_SIZE is \"two\": expected a number");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_first_event),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_unique_id),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_missing_rank),
        cmocka_unit_test(test_nobody_serves),
        cmocka_unit_test(test_bad_calls),
        cmocka_unit_test(test_wrong_secret),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_destroy_while_joining),
        cmocka_unit_test(test_goodbye),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_kill_with_live_child),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_processes_leave),
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_env),
    };
    if (argc > 1) {
        return rank_main(argc, argv);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("bootstrap", tests, NULL, NULL);
}

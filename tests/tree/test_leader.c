/*
 * The leader of one machine, as seen by ranks that connect to its name: joins that succeed, joins
 * that fail for any reason, and what is left then. Every rank is told the same, and so are late
 * ones.
 */
#include "base/clock.h"
#include "runtime/service.h"
#include "runtime/wait.h"
#include "tree/tree_client.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 70u

/* In the place of recvmsg(): fails so often for lack of memory. */
static _Atomic int poor_reads;
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    if (atomic_fetch_sub(&poor_reads, 1) > 0) {
        errno = ENOMEM;
        return -1;
    }
    atomic_store(&poor_reads, 0);
    return __real_recvmsg(fd, message, flags);
}

/* ---- A join that succeeds ----------------------------------------------------------------- */

static void complete(struct client *ranks, uint32_t n)
{
    for (uint32_t rank = 0; rank < n; rank++) { /* one after the other, to save descriptors */
        rank_expect_roster(&ranks[rank], n);
        client_say_plain(&ranks[rank], HOOP_FRAME_READY);
    }
    for (uint32_t rank = 0; rank < n; rank++) {
        (void)client_expect_frame(&ranks[rank], HOOP_FRAME_GO);
    }
}

static void test_join(void **state)
{
    static const uint32_t numbers[] = {1, 2, 3, 8, RANKS};
    static struct client ranks[RANKS];
    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const uint32_t n = numbers[i];
        const struct hoop_rendezvous rendezvous = a_local_meeting();
        serve_leader(&rendezvous); /* is served already */
        ranks_gather(ranks, n, n, &rendezvous);
        complete(ranks, n);
        assert_false(is_led(&rendezvous)); /* no rank can join any more */
        for (uint32_t gone = 0; gone < n; gone++) {
            client_leave(&ranks[gone]);
            for (uint32_t rank = gone + 1; rank < n; rank++) {
                assert_int_equal(client_expect_frame(&ranks[rank], HOOP_FRAME_DEAD)->fate.rank,
                                 gone);
                assert_string_equal(ranks[rank].heard.frame.fate.why, "");
            }
        }
    }
}

/* A leader that lacks memory to read for a moment reads a little later. */
static void test_no_memory_to_read(void **state)
{
    struct client ranks[2];
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    const union hoop_frame join = client_join(2, 1);
    (void)state;
    ranks_gather(ranks, 1, 2, &rendezvous);
    rank_enter(&ranks[1], &rendezvous, 1);
    atomic_store(&poor_reads, 3);
    rank_say_join(&ranks[1], &join);
    complete(ranks, 2);
    client_leave(&ranks[0]);
    client_leave(&ranks[1]);
}

/* A client that never said which rank it is disturbs no others. */
static void test_without_a_rank(void **state)
{
    struct client ranks[2];
    struct client other;
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    struct hoop_rendezvous wrong = rendezvous;
    (void)state;
    ranks_gather(ranks, 1, 2, &rendezvous);
    rank_enter(&other, &rendezvous, 1);
    client_leave(&other);
    wrong.secret.bytes[0] ^= 1;
    assert_true(rank_dial(&other, &wrong, 1));
    client_expect_closed(&other, HOOP_NOT_AUTHENTICATED);
    rank_enter(&other, &rendezvous, 0); /* not the rank of its hello */
    const union hoop_frame another = client_join(2, 1);
    rank_say_join(&other, &another);
    client_expect_reject(&other, HOOP_REMOTE_ERROR, -1, "it sent an unexpected JOIN");
    rank_enter(&other, &rendezvous, 1);
    rank_enter(&ranks[1], &rendezvous, 1);
    rank_say_join(&ranks[1], &another);
    complete(ranks, 2);
    client_leave(&ranks[0]);
    client_leave(&ranks[1]);
    client_leave(&other);
}

/* ---- Contradictions ----------------------------------------------------------------------- */

static void test_contradictions(void **state)
{
    static const struct {
        uint32_t n, rank, lanes;
        hoop_result_t code;
        const char *text;
    } cases[] = {
        {5, 0, 0, HOOP_INVALID_USAGE,
         "rank 0 joined twice: as pid 1000 on host here and as pid 1000 on host here"},
        {6, 5, 0, HOOP_MISMATCH,
         "rank 5 (pid 1005, host here) joined with 6 ranks, rank 0 (pid 1000, host here) with 5"},
        {5, 4, 3, HOOP_MISMATCH,
         "HOOP_LANES must be the same on all ranks: it is 3 on rank 4 (pid 1004, host here) and 0 "
         "on rank 0 (pid 1000, host here)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client ranks[5];
        struct client other;
        const struct hoop_rendezvous rendezvous = a_local_meeting();
        union hoop_frame join = client_join(cases[i].n, cases[i].rank);
        join.join.agreed.lanes = cases[i].lanes;
        ranks_gather(ranks, 3, 5, &rendezvous);
        rank_enter(&other, &rendezvous, cases[i].rank);
        rank_say_join(&other, &join);
        client_expect_reject(&other, cases[i].code, (int)cases[i].rank, cases[i].text);
        ranks_expect_failure(ranks, 3, cases[i].rank == 4 ? 4 : 5, &rendezvous, cases[i].code,
                             (int)cases[i].rank, cases[i].text);
    }
}

/* After the roster was sent no rank can join. One that tries ends the join of all. */
static void test_one_too_many(void **state)
{
    struct client ranks[3];
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    const union hoop_frame join = client_join(2, 1);
    (void)state;
    ranks_gather(ranks, 2, 2, &rendezvous);
    rank_expect_roster(&ranks[0], 2);
    rank_expect_roster(&ranks[1], 2);
    rank_enter(&ranks[2], &rendezvous, 1);
    rank_say_join(&ranks[2], &join);
    ranks_expect_failure(ranks, 3, 3, &rendezvous, HOOP_INVALID_USAGE, 1, "rank 1 joined twice");
}

/* ---- Deadlines ---------------------------------------------------------------------------- */

static void test_missing(void **state)
{
    struct client ranks[6];
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    union hoop_frame join = client_join(6, 1);
    (void)state;
    ranks_gather(ranks, 1, 6, &rendezvous);
    join.join.timeout_ms = 30000; /* mostly over already: this rank ends the wait of all */
    join.join.left_ms = 100;
    rank_enter(&ranks[1], &rendezvous, 1);
    rank_say_join(&ranks[1], &join);
    ranks_expect_failure(ranks, 2, 6, &rendezvous, HOOP_TIMEOUT, -1,
                         "ranks 2, 3, 4, 5 of 6 did not arrive within 30000 ms, the others are on "
                         "host here");
}

static void test_unready(void **state)
{
    struct client ranks[3];
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    union hoop_frame join = client_join(3, 2);
    (void)state;
    ranks_gather(ranks, 2, 3, &rendezvous);
    join.join.timeout_ms = 30000;
    join.join.left_ms = 200;
    rank_enter(&ranks[2], &rendezvous, 2);
    rank_say_join(&ranks[2], &join);
    for (uint32_t rank = 0; rank < 3; rank++) {
        rank_expect_roster(&ranks[rank], 3);
    }
    client_say_plain(&ranks[1], HOOP_FRAME_READY);
    ranks_expect_failure(ranks, 3, 3, &rendezvous, HOOP_TIMEOUT, -1,
                         "ranks 0, 2 of 3 arrived, but did not get ready within 30000 ms");
}

/* Ranks that never come do not keep the leader for ever. */
static void test_stays_only_so_long(void **state)
{
    struct client rank;
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    union hoop_frame join = client_join(2, 0);
    (void)state;
    join.join.timeout_ms = 100;
    join.join.left_ms = 0;
    rank_enter(&rank, &rendezvous, 0);
    rank_say_join(&rank, &join);
    client_expect_reject(&rank, HOOP_TIMEOUT, -1, "rank 1 of 2 did not arrive within 100 ms");
    await_leader_end(&rendezvous);
}

/* ---- A rank that cannot go on ------------------------------------------------------------- */

static void test_reject(void **state)
{
    struct client ranks[3];
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    union hoop_frame reject;
    (void)state;
    ranks_gather(ranks, 3, 3, &rendezvous);
    for (uint32_t rank = 0; rank < 3; rank++) {
        rank_expect_roster(&ranks[rank], 3);
    }
    hoop_frame_init(&reject, HOOP_FRAME_REJECT);
    reject.reject.code = HOOP_OUT_OF_MEMORY;
    reject.reject.rank = -1;
    (void)snprintf(reject.reject.text, sizeof(reject.reject.text), "it is too small");
    client_say(&ranks[1], &reject);
    ranks_expect_failure(ranks, 3, 3, &rendezvous, HOOP_OUT_OF_MEMORY, 1,
                         "rank 1 (pid 1001, host here): it is too small");
}

/* The same when others may be in already: then the comm has failed, and the rank that said so
 * counts as alive. The next one that ends is lost. */
static void test_reject_late(void **state)
{
    struct client ranks[3];
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    union hoop_frame reject;
    (void)state;
    ranks_gather(ranks, 3, 3, &rendezvous);
    complete(ranks, 3);
    hoop_frame_init(&reject, HOOP_FRAME_REJECT);
    reject.reject.code = HOOP_REMOTE_ERROR;
    (void)snprintf(reject.reject.text, sizeof(reject.reject.text), "it cannot go on");
    client_say(&ranks[1], &reject);
    client_leave(&ranks[1]);
    assert_string_equal(client_expect_frame(&ranks[0], HOOP_FRAME_FAIL)->reject.text,
                        "it cannot go on");
    client_leave(&ranks[0]);
    assert_string_equal(client_expect_frame(&ranks[2], HOOP_FRAME_FAIL)->reject.text,
                        "it cannot go on");
    assert_int_equal(client_expect_frame(&ranks[2], HOOP_FRAME_DEAD)->fate.rank, 0);
    client_leave(&ranks[2]);
}

/* A rank that could not even send its join: the others do not wait for it. */
static void test_reject_early(void **state)
{
    struct client ranks[3];
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    union hoop_frame reject;
    (void)state;
    ranks_gather(ranks, 2, 3, &rendezvous);
    rank_enter(&ranks[2], &rendezvous, 2);
    hoop_frame_init(&reject, HOOP_FRAME_REJECT);
    reject.reject.code = HOOP_SYSTEM_ERROR;
    reject.reject.rank = -1;
    (void)snprintf(reject.reject.text, sizeof(reject.reject.text), "it has no descriptor");
    client_say(&ranks[2], &reject);
    ranks_expect_failure(ranks, 2, 2, &rendezvous, HOOP_SYSTEM_ERROR, 2,
                         "rank 2: it has no descriptor");
    client_leave(&ranks[2]);
}

/* The same if the leader has none for what comes with the join. */
static void test_no_descriptor(void **state)
{
    struct client ranks[3];
    struct rlimit before;
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    const union hoop_frame join = client_join(3, 2);
    const int wake_fd = eventfd(0, EFD_CLOEXEC);
    (void)state;
    ranks_gather(ranks, 2, 3, &rendezvous);
    rank_enter(&ranks[2], &rendezvous, 2);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    client_say_with(&ranks[2], &join, wake_fd);
    client_expect_reject(&ranks[2], HOOP_SYSTEM_ERROR, -1, "descriptors were lost");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    ranks_expect_failure(ranks, 2, 2, &rendezvous, HOOP_SYSTEM_ERROR, -1, "the leader (pid ");
    close(wake_fd);
}

/* Messages that no rank may send, or not yet: the join fails, because it can't do without the rank
 * that sent one. */
static void test_nonsense(void **state)
{
    static const enum hoop_frame_type types[] = {HOOP_FRAME_READY, HOOP_FRAME_GO,
                                                 HOOP_FRAME_DEAD,  HOOP_FRAME_LEFT,
                                                 HOOP_FRAME_BEAT,  HOOP_FRAME_WELCOME};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(types) / sizeof(types[0]); i++) {
        struct client ranks[3];
        struct client other;
        const struct hoop_rendezvous rendezvous = a_local_meeting();
        char text[HOOP_FAILURE_TEXT_BYTES];
        const char *name = hoop_frame_name(types[i / 2]);
        ranks_gather(ranks, 2, 3, &rendezvous);
        (void)snprintf(text, sizeof(text), "it sent an unexpected %s", name);
        if (i % 2 == 0) { /* has not even said its rank */
            rank_enter(&other, &rendezvous, 2);
            client_say_plain(&other, types[i / 2]);
            client_expect_reject(&other, HOOP_REMOTE_ERROR, -1, text);
        }
        client_say_plain(&ranks[1], types[i / 2]);
        client_expect_reject(&ranks[1], HOOP_REMOTE_ERROR, -1, text);
        (void)snprintf(text, sizeof(text),
                       "rank 1 (pid 1001, host here) ended during the join: it sent an unexpected "
                       "%s",
                       name);
        client_expect_reject(&ranks[0], HOOP_REMOTE_ERROR, 1, text);
        rank_expect_late(&ranks[2], &rendezvous, 3, 2, HOOP_REMOTE_ERROR, 1, text);
        await_leader_end(&rendezvous);
    }
}

/* A rank that says READY twice may have said it for another. */
static void test_ready_twice(void **state)
{
    struct client ranks[3];
    const struct hoop_rendezvous rendezvous = a_local_meeting();
    (void)state;
    ranks_gather(ranks, 3, 3, &rendezvous);
    for (uint32_t rank = 0; rank < 3; rank++) {
        rank_expect_roster(&ranks[rank], 3);
    }
    client_say_plain(&ranks[2], HOOP_FRAME_READY);
    client_say_plain(&ranks[2], HOOP_FRAME_READY);
    client_expect_reject(&ranks[2], HOOP_REMOTE_ERROR, -1, "it sent an unexpected READY");
    ranks_expect_failure(ranks, 2, 2, &rendezvous, HOOP_REMOTE_ERROR, 2,
                         "rank 2 (pid 1002, host here) ended during the join");
}

/* ---- Ranks that die ----------------------------------------------------------------------- */

static void test_death_while_gathering(void **state)
{
    (void)state;
    for (uint32_t dead = 0; dead < 3; dead++) {
        struct client ranks[5];
        const struct hoop_rendezvous rendezvous = a_local_meeting();
        char text[HOOP_FAILURE_TEXT_BYTES];
        ranks_gather(ranks, 3, 5, &rendezvous);
        client_leave(&ranks[dead]);
        (void)snprintf(text, sizeof(text), "rank %u (pid %u, host here) ended during the join",
                       dead, 1000 + dead);
        for (uint32_t rank = 0; rank < 3; rank++) {
            if (rank != dead) {
                client_expect_reject(&ranks[rank], HOOP_REMOTE_ERROR, (int)dead, text);
            }
        }
        for (uint32_t rank = 3; rank < 5; rank++) {
            rank_expect_late(&ranks[rank], &rendezvous, 5, rank, HOOP_REMOTE_ERROR, (int)dead,
                             text);
        }
        await_leader_end(&rendezvous);
    }
}

/* Before GO all ranks must be there, whether they have been told the roster or are ready. */
static void test_death_while_telling(void **state)
{
    (void)state;
    for (uint32_t ready = 0; ready < 2; ready++) {
        struct client ranks[3];
        const struct hoop_rendezvous rendezvous = a_local_meeting();
        ranks_gather(ranks, 3, 3, &rendezvous);
        for (uint32_t rank = 0; rank < 3; rank++) {
            rank_expect_roster(&ranks[rank], 3);
        }
        if (ready == 1) {
            client_say_plain(&ranks[0], HOOP_FRAME_READY);
        }
        client_leave(&ranks[0]);
        for (uint32_t rank = 1; rank < 3; rank++) {
            client_expect_reject(&ranks[rank], HOOP_REMOTE_ERROR, 0,
                                 "rank 0 (pid 1000, host here) ended during the join");
        }
        await_leader_end(&rendezvous);
    }
}

/* ---- Anything, in any order --------------------------------------------------------------- */

static uint32_t draw(uint32_t below)
{
    static uint64_t seed = 21;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* A client says nothing before its connection is open. */
static void come(struct client *rank, const struct hoop_rendezvous *rendezvous, uint32_t me)
{
    (void)(rank_dial(rank, rendezvous, me) && client_opens(rank));
}

static void do_anything(struct client *rank, uint32_t me, const struct hoop_rendezvous *rendezvous)
{
    const uint32_t what = draw(16);
    union hoop_frame frame = client_join(draw(20) == 0 ? 4 : 3, me);
    if (what < 8) {
        frame.join.left_ms = draw(10) == 0 ? draw(3) : frame.join.left_ms;
        rank_say_join(rank, &frame);
    } else if (what < 13) {
        client_say_plain(rank, what == 12 ? HOOP_FRAME_GO : HOOP_FRAME_READY);
    } else if (what == 13) {
        hoop_frame_init(&frame, HOOP_FRAME_REJECT);
        frame.reject.code = HOOP_SYSTEM_ERROR;
        client_say(rank, &frame);
    } else {
        client_leave(rank);
        come(rank, rendezvous, me);
    }
}

/* The results are checked by the tests above; here nothing may break, and nothing may be left. */
static void test_any_order(void **state)
{
    struct client ranks[3];
    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        const struct hoop_rendezvous rendezvous = a_local_meeting();
        for (uint32_t i = 0; i < 3; i++) {
            come(&ranks[i], &rendezvous, i);
        }
        for (uint32_t i = 0; i < 30; i++) {
            const uint32_t who = draw(3);
            do_anything(&ranks[who], who, &rendezvous);
        }
        for (uint32_t i = 0; i < 3; i++) {
            client_leave(&ranks[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_no_memory_to_read),
        cmocka_unit_test(test_without_a_rank),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_one_too_many),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_unready),
        cmocka_unit_test(test_stays_only_so_long),
        cmocka_unit_test(test_reject),
        cmocka_unit_test(test_reject_late),
        cmocka_unit_test(test_reject_early),
        cmocka_unit_test(test_no_descriptor),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_ready_twice),
        cmocka_unit_test(test_death_while_gathering),
        cmocka_unit_test(test_death_while_telling),
        cmocka_unit_test(test_any_order),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (hoop_service_start() != HOOP_OK) {
        (void)fprintf(stderr, "%s\n", hoop_thread_error());
        return 1;
    }
    return cmocka_run_group_tests_name("leader", tests, NULL, NULL);
}

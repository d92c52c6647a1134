/*
 * The leader of one of several machines, as seen by its ranks, its children in the tree, and the
 * root. Ranks 0 and 1 of four are here, so this machine is number 0 in the tree. Ranks 2 and 3 are
 * on machines 1 and 2, which the test plays, first at the root and then at the leader.
 */
#include "base/clock.h"
#include "runtime/service.h"
#include "runtime/wait.h"
#include "tree/tree_client.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HERE 2u
#define FAR 2u
#define N (HERE + FAR)

struct world {
    struct hoop_rendezvous rendezvous;
    struct client ranks[HERE];
    struct client machines[FAR]; /* their connections to the root */
    struct client children[FAR]; /* their connections to the leader */
    struct hoop_address parent;  /* the leader's address, as told by the root */
};

/* ---- The join ----------------------------------------------------------------------------- */

static void start(struct world *world, uint64_t dead_after_ms)
{
    world->rendezvous = a_meeting();
    const struct hoop_address address = serve(&world->rendezvous);
    serve_leader(&world->rendezvous);
    for (uint32_t i = 0; i < FAR; i++) {
        union hoop_frame join = machine_join(i + 1, N, HERE + i);
        join.join.dead_after_ms = dead_after_ms;
        machine_enter(&world->machines[i], &world->rendezvous, &address);
        machine_say_place(&world->machines[i], i + 1);
        client_say(&world->machines[i], &join);
    }
    for (uint32_t rank = 0; rank < HERE; rank++) {
        union hoop_frame join = client_join(N, rank);
        join.join.dead_after_ms = dead_after_ms;
        rank_enter(&world->ranks[rank], &world->rendezvous, rank);
        rank_say_join(&world->ranks[rank], &join);
    }
    for (uint32_t i = 0; i < FAR; i++) {
        const struct hoop_frame_place *tree =
            &client_expect_frame(&world->machines[i], HOOP_FRAME_PLACE)->place;
        assert_int_equal(tree->machine, i + 1);
        assert_int_equal(tree->machines, FAR + 1);
        world->parent = tree->parent;
    }
}

static void say_who(struct client *child, uint32_t machine)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_INFO);
    frame.info.machine = machine;
    frame.info.pid = 77;
    frame.info.process = 100 + machine;
    (void)snprintf(frame.info.host, sizeof(frame.info.host), "m%u", machine);
    client_say(child, &frame);
}

static void child_enter(struct world *world, uint32_t i)
{
    struct client *child = &world->children[i];
    child_dial(child, &world->rendezvous, &world->parent, i + 1);
    client_expect(child, CLIENT_OPENED);
    say_who(child, i + 1);
    rank_expect_roster(child, N);
    const struct hoop_frame_entry *entries = child->heard.frame.part.entries;
    for (uint32_t rank = 0; rank < N; rank++) {
        assert_int_equal(entries[rank].machine, rank < HERE ? 0 : rank - 1);
    }
}

static void ready(struct world *world)
{
    for (uint32_t i = 0; i < FAR; i++) {
        child_enter(world, i);
    }
    for (uint32_t rank = 0; rank < HERE; rank++) {
        rank_expect_roster(&world->ranks[rank], N);
        client_say_plain(&world->ranks[rank], HOOP_FRAME_READY);
    }
}

static void complete(struct world *world)
{
    ready(world);
    for (uint32_t i = 0; i < FAR; i++) {
        assert_true(is_served(&world->rendezvous)); /* until all are ready */
        client_say_plain(&world->children[i], HOOP_FRAME_READY);
    }
    for (uint32_t i = 0; i < FAR; i++) {
        (void)client_expect_frame(&world->children[i], HOOP_FRAME_GO);
    }
    for (uint32_t rank = 0; rank < HERE; rank++) {
        (void)client_expect_frame(&world->ranks[rank], HOOP_FRAME_GO);
    }
    await_end(&world->rendezvous); /* no root is needed any more */
    assert_false(is_led(&world->rendezvous));
    for (uint32_t i = 0; i < FAR; i++) {
        client_leave(&world->machines[i]);
    }
}

static void join(struct world *world, uint64_t dead_after_ms)
{
    start(world, dead_after_ms);
    complete(world);
}

static void leave(struct world *world)
{
    for (uint32_t i = 0; i < HERE; i++) {
        client_leave(&world->ranks[i]);
    }
    for (uint32_t i = 0; i < FAR; i++) {
        client_leave(&world->children[i]);
    }
}

/* ---- What passes by ----------------------------------------------------------------------- */

/* The next message that is not a sign of life. */
static const union hoop_frame *expect(struct client *client, enum hoop_frame_type type)
{
    do {
        client_expect(client, CLIENT_MESSAGE);
    } while (client->heard.frame.header.type == HOOP_FRAME_BEAT);
    assert_string_equal(hoop_frame_name(client->heard.frame.header.type), hoop_frame_name(type));
    return &client->heard.frame;
}

static union hoop_frame a_goodbye(uint32_t rank)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_LEFT);
    frame.fate.rank = rank;
    frame.fate.how = 1;
    return frame;
}

static union hoop_frame a_fail(const char *text)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_FAIL);
    frame.reject.code = HOOP_REMOTE_ERROR;
    frame.reject.rank = 3;
    (void)snprintf(frame.reject.text, sizeof(frame.reject.text), "%s", text);
    return frame;
}

/* A failure is told to all others, once; the machine of the failed rank knows it. */
static void test_fail(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world world;
        const union hoop_frame first = a_fail("the first");
        const union hoop_frame second = a_fail("the second");
        const union hoop_frame left = a_goodbye(2);
        join(&world, 5000);
        client_say(i == 0 ? &world.ranks[0] : &world.children[1], &first);
        assert_string_equal(expect(&world.children[0], HOOP_FRAME_FAIL)->reject.text, "the first");
        client_say(&world.children[0], &second);
        client_say(&world.children[0], &left);
        if (i == 0) {
            assert_string_equal(expect(&world.children[1], HOOP_FRAME_FAIL)->reject.text,
                                "the first");
        } else {
            for (uint32_t rank = 0; rank < HERE; rank++) {
                assert_string_equal(expect(&world.ranks[rank], HOOP_FRAME_FAIL)->reject.text,
                                    "the first");
            }
        }
        (void)expect(&world.ranks[0], HOOP_FRAME_LEFT);
        leave(&world);
    }
}

static void test_goodbye_and_losses(void **state)
{
    struct world world;
    const union hoop_frame left = a_goodbye(0);
    (void)state;
    join(&world, 5000);
    client_say(&world.ranks[0], &left);
    for (uint32_t i = 0; i < FAR; i++) {
        assert_int_equal(expect(&world.children[i], HOOP_FRAME_LEFT)->fate.rank, 0);
    }
    client_leave(&world.ranks[0]); /* after a goodbye its end is no loss elsewhere */
    assert_string_equal(expect(&world.ranks[1], HOOP_FRAME_DEAD)->fate.why, "");
    /* the process at a child's other end: the ranks on that machine are lost with it */
    client_leave(&world.children[0]);
    const struct hoop_frame_fate *lost = &expect(&world.ranks[1], HOOP_FRAME_DEAD)->fate;
    assert_int_equal(lost->rank, 2);
    assert_string_equal(lost->why, "died, or its machine cannot be reached");
    assert_int_equal(expect(&world.children[1], HOOP_FRAME_DEAD)->fate.rank, 2);
    /* a rank of this machine: its process lives on, but can't be reached any more */
    client_leave(&world.ranks[1]);
    lost = &expect(&world.children[1], HOOP_FRAME_DEAD)->fate;
    assert_int_equal(lost->rank, 1);
    assert_string_equal(lost->why, "closed its connection without a goodbye");
    leave(&world);
}

static void say_reject(struct client *client, const char *text)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_REJECT);
    frame.reject.code = HOOP_REMOTE_ERROR;
    (void)snprintf(frame.reject.text, sizeof(frame.reject.text), "%s", text);
    client_say(client, &frame);
}

/* While GO spreads a join may fail at some ranks when others are in already. Then the comm
 * has failed. The rank that says so counts as alive, and its end is no loss; that of the
 * next one is. */
static void test_failed_between(void **state)
{
    struct world world;
    (void)state;
    join(&world, 5000);
    say_reject(&world.ranks[1], "a rank");
    client_leave(&world.ranks[1]);
    client_leave(&world.ranks[0]);
    for (uint32_t i = 0; i < FAR; i++) { /* it may be the process that speaks for its machine */
        assert_string_equal(expect(&world.children[i], HOOP_FRAME_REJECT)->reject.text, "a rank");
        assert_string_equal(expect(&world.children[i], HOOP_FRAME_FAIL)->reject.text, "a rank");
        assert_int_equal(expect(&world.children[i], HOOP_FRAME_DEAD)->fate.rank, 0);
    }
    leave(&world);
    join(&world, 5000);
    say_reject(&world.children[0], "a machine");
    client_leave(&world.children[0]);
    assert_string_equal(expect(&world.children[1], HOOP_FRAME_FAIL)->reject.text, "a machine");
    client_leave(&world.children[1]);
    for (uint32_t rank = 0; rank < HERE; rank++) {
        assert_string_equal(expect(&world.ranks[rank], HOOP_FRAME_FAIL)->reject.text, "a machine");
        assert_int_equal(expect(&world.ranks[rank], HOOP_FRAME_DEAD)->fate.rank, 3);
    }
    leave(&world);
}

static void beat(struct client *client, uint64_t waiting_since)
{
    union hoop_frame frame;
    hoop_frame_make_beat(&frame, waiting_since, hoop_now_ns());
    client_say(client, &frame);
}

/* A silent rank is lost, but only while another waits. */
static void test_silence(void **state)
{
    struct world world;
    struct hoop_frame_fate lost = {.rank = N};
    (void)state;
    join(&world, 200);
    uint64_t deadline = hoop_deadline_ns(600);
    while (hoop_now_ns() < deadline) {
        hoop_wait_briefly(); /* no rank waits: all are silent, and nothing happens */
    }
    const uint64_t since = hoop_now_ns();
    deadline = hoop_deadline_ns(TREE_TEST_LONG_MS);
    while (lost.rank == N && hoop_now_ns() < deadline) {
        beat(&world.ranks[0], since);
        beat(&world.ranks[1], HOOP_NEVER);
        beat(&world.children[0], HOOP_NEVER);
        client_expect(&world.children[0], CLIENT_MESSAGE);
        if (world.children[0].heard.frame.header.type == HOOP_FRAME_DEAD) {
            lost = world.children[0].heard.frame.fate;
        }
    }
    assert_int_equal(lost.rank, 3);
    assert_int_equal(strncmp(lost.why, "gave no sign of life for ", 25), 0);
    leave(&world);
}

/* ---- Joins that fail ---------------------------------------------------------------------- */

static void expect_all(struct world *world, hoop_result_t code, int rank, const char *words)
{
    for (uint32_t i = 0; i < HERE; i++) {
        rank_expect_roster(&world->ranks[i], N);
        client_expect_reject(&world->ranks[i], code, rank, words);
    }
    for (uint32_t i = 0; i < FAR; i++) {
        client_expect_reject(&world->machines[i], code, rank, words);
    }
    await_end(&world->rendezvous);
}

/* A rank of this machine can't go on, or ends: the root tells all. This leader also tells its
 * neighbours before it ends: they might be in, and would take it for dead. */
static void test_rank_fails(void **state)
{
    (void)state;
    for (uint32_t how = 0; how < 2; how++) {
        struct world world;
        char text[HOOP_FAILURE_TEXT_BYTES] = "rank 1 (pid 1001, host here) ended during the join";
        start(&world, 5000);
        ready(&world);
        if (how == 0) {
            (void)snprintf(text, sizeof(text), "rank 0 (pid 1000, host here): no room");
            say_reject(&world.ranks[0], "no room");
            client_expect_reject(&world.ranks[1], HOOP_REMOTE_ERROR, 0, text);
        } else {
            client_leave(&world.ranks[1]);
        }
        client_expect_reject(&world.ranks[0], HOOP_REMOTE_ERROR, how == 0 ? 0 : 1, text);
        for (uint32_t i = 0; i < FAR; i++) {
            client_expect_reject(&world.machines[i], HOOP_REMOTE_ERROR, how == 0 ? 0 : 1, text);
            client_expect_reject(&world.children[i], HOOP_REMOTE_ERROR, how == 0 ? 0 : 1, text);
        }
        await_end(&world.rendezvous);
    }
}

/* A machine fails: all ranks are told what the root says. */
static void test_machine_fails(void **state)
{
    (void)state;
    for (uint32_t how = 0; how < 2; how++) {
        struct world world;
        union hoop_frame reject;
        start(&world, 5000);
        if (how == 0) {
            hoop_frame_init(&reject, HOOP_FRAME_REJECT);
            reject.reject.code = HOOP_OUT_OF_MEMORY;
            reject.reject.rank = 3;
            (void)snprintf(reject.reject.text, sizeof(reject.reject.text), "no room for rank 3");
            client_say(&world.machines[1], &reject);
            expect_all(&world, HOOP_OUT_OF_MEMORY, 3, "no room for rank 3");
        } else {
            ready(&world);
            client_leave(&world.children[1]); /* the tree breaks, with no other reason known */
            for (uint32_t i = 0; i < HERE; i++) {
                client_expect_reject(&world.ranks[i], HOOP_REMOTE_ERROR, -1,
                                     "the leader of machine 2 (host m2, pid 77) ended during the "
                                     "join");
            }
            for (uint32_t i = 0; i < FAR; i++) {
                client_expect_reject(&world.machines[i], HOOP_REMOTE_ERROR, -1,
                                     "the leader of machine 2 (host m2, pid 77) ended during the "
                                     "join");
            }
            client_leave(&world.children[0]);
            await_end(&world.rendezvous);
        }
    }
}

/* A rank is let in before all are in, and joins after that. */
static void test_one_too_many(void **state)
{
    struct world world;
    struct client other;
    (void)state;
    start(&world, 5000);
    rank_enter(&other, &world.rendezvous, 1);
    complete(&world);
    const union hoop_frame again = client_join(N, 1);
    rank_say_join(&other, &again);
    client_expect_reject(&other, HOOP_INVALID_USAGE, 1, "all 4 ranks have joined, and rank 1 came");
    leave(&world);
}

/* A child ends, and another one comes, which is no reason to forget the first. */
static void test_another_child_comes(void **state)
{
    struct world world;
    (void)state;
    start(&world, 5000);
    child_enter(&world, 0);
    client_leave(&world.children[0]);
    child_enter(&world, 1);
    for (uint32_t i = 0; i < HERE; i++) {
        rank_expect_roster(&world.ranks[i], N);
        client_expect_reject(&world.ranks[i], HOOP_REMOTE_ERROR, -1,
                             "the leader of machine 1 (host m1, pid 77) ended during the join");
    }
    for (uint32_t i = 0; i < FAR; i++) {
        client_leave(&world.machines[i]);
    }
    client_leave(&world.children[1]);
    await_end(&world.rendezvous);
}

/* A machine that is not a child is not let in. A child that comes again replaces its old
 * connection. */
static void test_children(void **state)
{
    struct world world;
    struct client other;
    (void)state;
    start(&world, 5000);
    /* a child of another parent: its hello does not fit */
    child_dial(&other, &world.rendezvous, &world.parent, 5);
    client_expect(&other, CLIENT_OPENED);
    client_expect(&other, CLIENT_CLOSED);
    client_leave(&other);
    /* a child of this parent, but too late: it ends before it has said anything */
    child_dial(&other, &world.rendezvous, &world.parent, 1);
    client_expect(&other, CLIENT_OPENED);
    ready(&world);
    client_leave(&other);
    for (uint32_t i = 0; i < FAR; i++) {
        client_say_plain(&world.children[i], HOOP_FRAME_READY);
    }
    for (uint32_t rank = 0; rank < HERE; rank++) {
        (void)client_expect_frame(&world.ranks[rank], HOOP_FRAME_GO);
    }
    for (uint32_t i = 0; i < FAR; i++) {
        client_leave(&world.machines[i]);
    }
    leave(&world);
}

/* The root ends: nobody could tell all ranks any more, so the whole tree ends. */
static void test_root_ends(void **state)
{
    struct world world;
    (void)state;
    start(&world, 5000);
    for (uint32_t i = 0; i < FAR; i++) {
        child_enter(&world, i);
    }
    retire(&world.rendezvous);
    for (uint32_t i = 0; i < HERE; i++) {
        rank_expect_roster(&world.ranks[i], N);
    }
    for (uint32_t i = 0; i < HERE; i++) {
        client_expect_reject(&world.ranks[i], HOOP_REMOTE_ERROR, -1, "the process (pid ");
    }
    for (uint32_t i = 0; i < FAR; i++) {
        client_expect_reject(&world.children[i], HOOP_REMOTE_ERROR, -1, "the process (pid ");
        client_leave(&world.machines[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail),           cmocka_unit_test(test_goodbye_and_losses),
        cmocka_unit_test(test_failed_between), cmocka_unit_test(test_silence),
        cmocka_unit_test(test_rank_fails),     cmocka_unit_test(test_machine_fails),
        cmocka_unit_test(test_children),       cmocka_unit_test(test_root_ends),
        cmocka_unit_test(test_one_too_many),   cmocka_unit_test(test_another_child_comes),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (hoop_service_start() != HOOP_OK) {
        (void)fprintf(stderr, "%s\n", hoop_thread_error());
        return 1;
    }
    return cmocka_run_group_tests_name("leader in a tree", tests, NULL, NULL);
}

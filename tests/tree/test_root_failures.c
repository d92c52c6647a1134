/*
 * Joins by way of a root that fail: whatever the reason, every machine is told the same, late ones
 * too, and then nothing of the root is left.
 */
#include "runtime/service.h"
#include "tree/tree_client.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* ---- Contradictions ----------------------------------------------------------------------- */

static void test_contradictions(void **state)
{
    static const struct {
        uint32_t n, rank, lanes;
        hoop_result_t code;
        const char *text;
    } cases[] = {
        {5, 0, 0, HOOP_INVALID_USAGE,
         "rank 0 joined twice: as pid 1000 on host m0 and as pid 1000 on host m0"},
        {6, 5, 0, HOOP_MISMATCH,
         "rank 5 (pid 1005, host m0) joined with 6 ranks, rank 0 (pid 1000, host m0) with 5"},
        {5, 4, 3, HOOP_MISMATCH,
         "HOOP_LANES must be the same on all ranks: it is 3 on rank 4 (pid 1004, host m0) and 0 on "
         "rank 0 (pid 1000, host m0)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client machines[3];
        const struct hoop_rendezvous rendezvous = a_meeting();
        union hoop_frame join = machine_join(0, cases[i].n, cases[i].rank);
        join.join.agreed.lanes = cases[i].lanes;
        machines_gather(machines, 3, 5, 3, &rendezvous);
        client_say(&machines[0], &join);
        machines_expect_failure(machines, 3, &rendezvous, cases[i].code, (int)cases[i].rank,
                                cases[i].text);
    }
}

/* After the roster was sent no rank can join. */
static void test_one_too_many(void **state)
{
    struct client machines[3];
    const struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    machines_gather(machines, 2, 2, 2, &rendezvous);
    machines_expect_roster(machines, 2);
    const struct hoop_address address = serve(&rendezvous);
    machine_enter(&machines[2], &rendezvous, &address);
    machine_say_place(&machines[2], 2);
    machine_say_join(&machines[2], 2, 2, 1);
    for (uint32_t i = 0; i < 3; i++) {
        client_expect_reject(&machines[i], HOOP_INVALID_USAGE, 1,
                             "rank 1 joined twice: as pid 1001 on host m1 and as pid 1001 on host "
                             "m2");
    }
    await_end(&rendezvous); /* both ranks have been told */
}

/* Once all have been told, even those that were just coming, the root need not stay. */
static void test_all_told(void **state)
{
    struct client machines[2];
    const struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    machines_gather(machines, 2, 4, 2, &rendezvous);
    machine_say_join(&machines[0], 0, 4, 0);
    machine_say_join(&machines[0], 0, 4, 2);
    client_expect_reject(&machines[0], HOOP_INVALID_USAGE, 0, "rank 0 joined twice");
    client_expect_reject(&machines[1], HOOP_INVALID_USAGE, 0, "rank 0 joined twice");
    assert_true(is_served(&rendezvous));
    const struct hoop_address address = serve(&rendezvous);
    machine_enter(&machines[1], &rendezvous, &address);
    machine_say_place(&machines[1], 1);
    machine_say_join(&machines[1], 1, 4, 3);
    client_expect_reject(&machines[1], HOOP_INVALID_USAGE, 0, "rank 0 joined twice");
    await_end(&rendezvous);
}

/* ---- Deadlines ---------------------------------------------------------------------------- */

static void test_missing(void **state)
{
    struct client machines[2];
    const struct hoop_rendezvous rendezvous = a_meeting();
    union hoop_frame join = machine_join(0, 6, 3);
    char address[HOOP_ADDRESS_TEXT_BYTES];
    char text[HOOP_FAILURE_TEXT_BYTES];
    (void)state;
    machines_gather(machines, 2, 6, 2, &rendezvous);
    const struct hoop_address at = serve(&rendezvous);
    join.join.timeout_ms = 30000; /* mostly over already: this rank ends the wait of all */
    join.join.left_ms = 100;
    client_say(&machines[0], &join);
    hoop_address_format(&at, address, sizeof(address));
    (void)snprintf(text, sizeof(text),
                   "ranks 2, 4, 5 of 6 did not arrive within 30000 ms, the others are on hosts m0, "
                   "m1; 2 machines connected to %s",
                   address);
    machines_expect_failure(machines, 2, &rendezvous, HOOP_TIMEOUT, -1, text);
}

static void test_unready(void **state)
{
    struct client machines[4];
    const struct hoop_rendezvous rendezvous = a_meeting();
    union hoop_frame join = machine_join(3, 4, 3);
    (void)state;
    machines_gather(machines, 4, 4, 3, &rendezvous);
    join.join.timeout_ms = 30000;
    join.join.left_ms = 100;
    client_say(&machines[3], &join);
    machines_expect_roster(machines, 4);
    for (uint32_t i = 0; i < 4; i++) {
        client_expect_reject(&machines[i], HOOP_TIMEOUT, -1,
                             "all 4 ranks arrived, but their machines did not get ready within "
                             "30000 ms; can they reach each other? host m0 (10.0.0.0:4000), host "
                             "m1 (10.0.0.1:4001), host m2 (10.0.0.2:4002) and 1 more");
    }
    await_end(&rendezvous); /* all have been told */
}

/* Machines that do not close their connections, or never come, do not keep the root for ever. */
static void test_stays_only_so_long(void **state)
{
    struct client machine;
    const struct hoop_rendezvous rendezvous = a_meeting();
    union hoop_frame join = machine_join(0, 2, 0);
    (void)state;
    machines_gather(&machine, 1, 2, 0, &rendezvous);
    join.join.timeout_ms = 100;
    join.join.left_ms = 0;
    client_say(&machine, &join);
    (void)client_expect_frame(&machine, HOOP_FRAME_REJECT);
    client_expect_closed(&machine, HOOP_REMOTE_ERROR);
    await_end(&rendezvous);
}

/* ---- A machine that cannot go on ---------------------------------------------------------- */

static void test_reject(void **state)
{
    static const struct {
        uint32_t ranks; /* how many of 5 have joined */
        int32_t rank, blamed;
    } cases[] = {{3, 2, 2}, {3, 5, -1}, {3, -1, -1}, {0, 4, 4}, {5, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client machines[2];
        const struct hoop_rendezvous rendezvous = a_meeting();
        union hoop_frame reject;
        machines_gather(machines, 2, 5, cases[i].ranks, &rendezvous);
        if (cases[i].ranks == 5) {
            machines_expect_roster(machines, 2);
        }
        hoop_frame_init(&reject, HOOP_FRAME_REJECT);
        reject.reject.code = HOOP_OUT_OF_MEMORY;
        reject.reject.rank = cases[i].rank;
        (void)snprintf(reject.reject.text, sizeof(reject.reject.text), "rank 2 is too small");
        client_say(&machines[0], &reject);
        for (uint32_t m = 0; m < 2; m++) {
            client_expect_reject(&machines[m], HOOP_OUT_OF_MEMORY, cases[i].blamed,
                                 "rank 2 is too small");
        }
        if (cases[i].ranks == 5) { /* all have been told */
            await_end(&rendezvous);
        } else {
            machines_expect_failure(machines, 0, &rendezvous, HOOP_OUT_OF_MEMORY, cases[i].blamed,
                                    "rank 2 is too small");
        }
    }
}

/* The process that serves the root gives up the join. In a moment all are told, unless a better
 * reason comes before; if all are in, nobody is. */
static void test_given_up(void **state)
{
    static const char *const words[] = {"the root (pid ", "rank 2 is too small"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const hoop_result_t code = i == 0 ? HOOP_REMOTE_ERROR : HOOP_OUT_OF_MEMORY;
        struct client machines[2];
        const struct hoop_rendezvous rendezvous = a_meeting();
        union hoop_frame reject;
        machines_gather(machines, 2, 5, 3, &rendezvous);
        give_up(&rendezvous);
        if (i == 1) {
            hoop_frame_init(&reject, HOOP_FRAME_REJECT);
            reject.reject.code = code;
            reject.reject.rank = -1;
            (void)snprintf(reject.reject.text, sizeof(reject.reject.text), "%s", words[i]);
            client_say(&machines[0], &reject);
        }
        machines_expect_failure(machines, 2, &rendezvous, code, -1, words[i]);
    }
    struct client machines[2];
    const struct hoop_rendezvous rendezvous = a_meeting();
    machines_gather(machines, 2, 2, 2, &rendezvous);
    machines_expect_roster(machines, 2);
    give_up(&rendezvous);
    client_say_plain(&machines[0], HOOP_FRAME_READY);
    await_end(&rendezvous);
    client_leave(&machines[0]);
    client_leave(&machines[1]);
}

/* An invalid message from a machine with ranks: the join fails, because it can't do without
 * them. */
static void test_nonsense(void **state)
{
    struct client machines[2];
    const struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    machines_gather(machines, 2, 3, 2, &rendezvous);
    client_say_plain(&machines[1], HOOP_FRAME_GO);
    client_expect_reject(&machines[1], HOOP_REMOTE_ERROR, -1, "it sent an unexpected GO");
    machines_expect_failure(machines, 1, &rendezvous, HOOP_REMOTE_ERROR, 1,
                            "host m1 (10.0.0.1:4001), with rank 1, ended during the join: it sent "
                            "an unexpected GO");
}

/* Only machine 0 knows when all are ready. */
static void test_ready_from_another(void **state)
{
    struct client machines[2];
    const struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    machines_gather(machines, 2, 2, 2, &rendezvous);
    machines_expect_roster(machines, 2);
    client_say_plain(&machines[1], HOOP_FRAME_READY);
    client_expect_reject(&machines[1], HOOP_REMOTE_ERROR, -1, "it sent an unexpected READY");
    client_expect_reject(&machines[0], HOOP_REMOTE_ERROR, 1,
                         "host m1 (10.0.0.1:4001), with rank 1, ended during the join");
    await_end(&rendezvous);
}

/* ---- Machines that die -------------------------------------------------------------------- */

/* A machine that has not brought a rank yet is missed only if its ranks are. */
static void test_death_without_ranks(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        struct client machines[2];
        struct client dead;
        const struct hoop_rendezvous rendezvous = a_meeting();
        const struct hoop_address address = serve(&rendezvous);
        machine_enter(&dead, &rendezvous, &address);
        if (known == 1) {
            machine_say_place(&dead, 5);
        }
        machines_gather(machines, 2, 3, 2, &rendezvous);
        client_leave(&dead);
        machine_say_join(&machines[0], 0, 3, 2);
        machines_expect_roster(machines, 2);
        client_say_plain(&machines[0], HOOP_FRAME_READY);
        await_end(&rendezvous);
        client_leave(&machines[0]);
        client_leave(&machines[1]);
    }
}

/* The error names the rank in whose process the machine's leader was, if it names any. */
static void test_death_while_gather(void **state)
{
    static const int blamed[] = {1, 7, -1};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct client machines[3];
        const struct hoop_rendezvous rendezvous = a_meeting();
        machines_gather(machines, 3, 9, 1, &rendezvous);
        for (uint32_t rank = 1; rank <= 7; rank += 3) {
            union hoop_frame join = machine_join(1, 9, rank);
            join.join.who.process = (int)rank == blamed[i] ? 101 : 5;
            client_say(&machines[1], &join);
        }
        client_leave(&machines[1]);
        client_expect_reject(&machines[0], HOOP_REMOTE_ERROR, blamed[i],
                             "host m1 (10.0.0.1:4001), with ranks 1, 4, 7, ended during the join");
        machines_expect_failure(
            &machines[2], 1, &rendezvous, HOOP_REMOTE_ERROR, blamed[i],
            "host m1 (10.0.0.1:4001), with ranks 1, 4, 7, ended during the join");
    }
}

static void test_death_while_telling(void **state)
{
    (void)state;
    for (uint32_t dead = 0; dead < 3; dead++) {
        struct client machines[3];
        const struct hoop_rendezvous rendezvous = a_meeting();
        char text[HOOP_FAILURE_TEXT_BYTES];
        machines_gather(machines, 3, 3, 3, &rendezvous);
        machines_expect_roster(machines, 3);
        client_leave(&machines[dead]);
        (void)snprintf(text, sizeof(text), "host m%u (10.0.0.%u:400%u), with rank %u, ended", dead,
                       dead, dead, dead);
        for (uint32_t i = 0; i < 3; i++) {
            if (i != dead) {
                client_expect_reject(&machines[i], HOOP_REMOTE_ERROR, (int)dead, text);
            }
        }
        await_end(&rendezvous);
    }
}

/* The only machine so far ends before it has brought all ranks: those that come later are told. */
static void test_death_of_the_only_one(void **state)
{
    struct client machine;
    const struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    machines_gather(&machine, 1, 3, 2, &rendezvous);
    client_leave(&machine);
    machines_expect_failure(&machine, 0, &rendezvous, HOOP_REMOTE_ERROR, 0,
                            "host m0 (10.0.0.0:4000), with ranks 0, 1, ended during the join");
}

/* ---- Anything, in any order --------------------------------------------------------------- */

static uint32_t draw(uint32_t below)
{
    static uint64_t seed = 20;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* A client says nothing before its connection is open. */
static void come(struct client *machine, const struct hoop_rendezvous *rendezvous,
                 const struct hoop_address *address)
{
    const union hoop_frame hello = machine_hello(rendezvous);
    machine_dial(machine, rendezvous, address, &hello, false);
    (void)client_opens(machine);
}

/* One valid message, perhaps at the wrong time; or the machine leaves, or comes again. */
static void do_anything(struct client *machine, uint32_t who,
                        const struct hoop_rendezvous *rendezvous,
                        const struct hoop_address *address)
{
    const uint32_t what = draw(20);
    const uint32_t rank = draw(4) == 0 ? draw(4) : who;
    union hoop_frame frame = machine_join(who, draw(20) == 0 ? 5 : 4, rank);
    if (what < 10) {
        frame.join.left_ms = draw(10) == 0 ? draw(3) : frame.join.left_ms;
        client_say(machine, &frame);
    } else if (what < 14) {
        machine_say_place(machine, who);
    } else if (what == 14) {
        client_say_plain(machine, HOOP_FRAME_READY);
    } else if (what == 15) {
        hoop_frame_init(&frame, HOOP_FRAME_REJECT);
        frame.reject.code = HOOP_SYSTEM_ERROR;
        frame.reject.rank = (int32_t)draw(5) - 1;
        client_say(machine, &frame);
    } else if (what == 16) {
        client_say_plain(machine, HOOP_FRAME_GO);
    } else {
        client_leave(machine);
        come(machine, rendezvous, address);
    }
}

/* The results are checked by the tests above; here nothing may break, and nothing may be left. */
static void test_any_order(void **state)
{
    struct client machines[4];
    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        struct hoop_rendezvous rendezvous = a_meeting();
        const struct hoop_address address = serve(&rendezvous);
        for (uint32_t i = 0; i < 4; i++) {
            come(&machines[i], &rendezvous, &address);
            machine_say_place(&machines[i], i);
        }
        for (uint32_t i = 0; i < 40; i++) {
            const uint32_t who = draw(4);
            do_anything(&machines[who], who, &rendezvous, &address);
        }
        for (uint32_t i = 0; i < 4; i++) {
            client_leave(&machines[i]);
        }
        retire(&rendezvous);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_one_too_many),
        cmocka_unit_test(test_all_told),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_unready),
        cmocka_unit_test(test_stays_only_so_long),
        cmocka_unit_test(test_reject),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_ready_from_another),
        cmocka_unit_test(test_death_without_ranks),
        cmocka_unit_test(test_death_while_gather),
        cmocka_unit_test(test_death_while_telling),
        cmocka_unit_test(test_death_of_the_only_one),
        cmocka_unit_test(test_any_order),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (hoop_service_start() != HOOP_OK) {
        (void)fprintf(stderr, "%s\n", hoop_thread_error());
        return 1;
    }
    return cmocka_run_group_tests_name("root failures", tests, NULL, NULL);
}

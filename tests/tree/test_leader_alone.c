/* The leader of a machine that turns out to have all ranks, though there might have been other
 * machines. */
#include "runtime/process.h"
#include "runtime/service.h"
#include "tree/tree_client.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void join_here(struct client *client, const struct hoop_rendezvous *rendezvous, uint32_t n,
                      uint32_t rank, uint64_t timeout_ms)
{
    union hoop_frame join = client_join(n, rank);
    join.join.timeout_ms = timeout_ms;
    join.join.left_ms = timeout_ms;
    rank_enter(client, rendezvous, rank);
    rank_say_join(client, &join);
}

static struct hoop_rendezvous gather_here(struct client *ranks, uint32_t n, uint32_t local_n,
                                          uint64_t timeout_ms, bool served)
{
    struct hoop_rendezvous rendezvous = a_meeting();
    rendezvous.local_n = local_n;
    if (served) {
        (void)serve(&rendezvous);
    }
    serve_leader(&rendezvous);
    for (uint32_t rank = 0; rank < n; rank++) {
        join_here(&ranks[rank], &rendezvous, n, rank, timeout_ms);
    }
    return rendezvous;
}

static void complete_here(struct client *ranks, uint32_t n)
{
    for (uint32_t rank = 0; rank < n; rank++) {
        rank_expect_roster(&ranks[rank], n);
        client_say_plain(&ranks[rank], HOOP_FRAME_READY);
    }
    for (uint32_t rank = 0; rank < n; rank++) {
        (void)client_expect_frame(&ranks[rank], HOOP_FRAME_GO);
        client_leave(&ranks[rank]);
    }
}

/* The ranks need no root. If there is one it is told so, and ends, whatever it had heard before. */
static void test_alone(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        for (int served = 0; served < 2; served++) {
            struct client ranks[3];
            const struct hoop_rendezvous rendezvous =
                gather_here(ranks, n, served == 1 ? 0 : n, 60000, served == 1);
            complete_here(ranks, n);
            await_end(&rendezvous);
        }
    }
}

/* A child dials the leader before that knows its number in the tree, which it will never get: the
 * child is asked to come again. */
static void test_child_of_nobody(void **state)
{
    struct client ranks[2], child;
    struct hoop_rendezvous rendezvous = a_meeting();
    (void)state;
    (void)serve(&rendezvous);
    serve_leader(&rendezvous);
    join_here(&ranks[0], &rendezvous, 2, 0, 60000);
    /* one port serves all of this process */
    const struct hoop_address *parent = &rendezvous.addresses[0];
    for (int i = 0; i < 50; i++) { /* in the meantime the leader finds the root */
        child_dial(&child, &rendezvous, parent, 1);
        client_expect_closed(&child, HOOP_AGAIN);
    }
    join_here(&ranks[1], &rendezvous, 2, 1, 60000);
    complete_here(ranks, 2);
    child_dial(&child, &rendezvous, parent, 1);
    client_expect(&child, CLIENT_CLOSED);
    await_end(&rendezvous);
}

/* The launcher says that there are other machines. So the root is asked, and the leader alone
 * decides nothing. */
static void test_never_alone(void **state)
{
    struct client ranks[3];
    char host[HOOP_NAME_BYTES], words[160];
    (void)state;
    const struct hoop_rendezvous rendezvous = gather_here(ranks, 3, 2, 60000, true);
    complete_here(ranks, 3);
    await_end(&rendezvous);
    (void)gather_here(ranks, 3, 2, 400, false);
    hoop_process_host(host);
    (void)snprintf(words, sizeof(words),
                   "ranks 0, 1, 2 of 3 (host %s) did not find the root: tried ", host);
    for (uint32_t rank = 0; rank < 3; rank++) {
        client_expect_reject(&ranks[rank], HOOP_TIMEOUT, -1, words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_child_of_nobody),
        cmocka_unit_test(test_never_alone),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (hoop_service_start() != HOOP_OK) {
        (void)fprintf(stderr, "%s\n", hoop_thread_error());
        return 1;
    }
    return cmocka_run_group_tests_name("leader alone", tests, NULL, NULL);
}

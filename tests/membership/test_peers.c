/*
 * Two processes with two comms, of which one ends while something is asked of it: that must not
 * keep back what is asked for the other comm, since the processes have one connection for both.
 *
 * Rank 1 leaves the first comm, or was never in it, since its join failed when rank 0's did not any
 * more (that is tried until it is so); and rank 0 asks it there for a region all the same.
 * Then rank 0 asks for a region in the second comm, by whose segment the two tell each other how
 * far they are.
 */
#include "base/clock.h"
#include "harness/family.h"
#include "membership/member_rank.h"
#include "memory/region.h"
#include "runtime/wait.h"
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_MS 20000

/* In the second comm's segment, behind what member_rank.c uses. */
struct board {
    _Atomic uint32_t gone, done;
    struct hoop_region_ref treasure;
};

/* How rank 1 ends the first comm. */
enum end {
    GOODBYE, /* it says so */
    SILENT,  /* the detector finds that it left */
    UNBORN   /* its join fails: rank 0 hears of a failure, and is not answered */
};

struct plan {
    struct hoop_rendezvous meetings[2];
    enum end end;
};

static struct board *board_of(const struct rank *rank)
{
    return (struct board *)hoop_member_roster(rank->member)->segment + 100;
}

static bool await(const _Atomic uint32_t *flag)
{
    const uint64_t deadline = hoop_deadline_ns(LONG_MS);
    while (*flag == 0 && hoop_now_ns() < deadline) {
        hoop_wait_yield();
    }
    return *flag != 0;
}

/* Each returns what went wrong, or NULL. */
static const char *owner_run(struct rank ranks[2], enum end end)
{
    struct board *board = board_of(&ranks[1]);
    void *memory = NULL;
    if (hoop_region_alloc(RANK_SEGMENT_BYTES, HOOP_MEM_HOST, &memory) != HOOP_OK ||
        !hoop_region_find(memory, 1, &board->treasure)) {
        return "no region";
    }
    (void)snprintf(memory, RANK_SEGMENT_BYTES, "treasure");
    if (end == GOODBYE) {
        rank_say_left(&ranks[0]);
    }
    rank_finish(&ranks[0]);
    board->gone = 1;
    const bool done = await(&board->done);
    (void)hoop_region_free(memory);
    return done ? NULL : "rank 0 did not get the region";
}

static const char *asker_run(struct rank ranks[2], enum end end)
{
    struct board *board = board_of(&ranks[1]);
    static const char fetched[] = "fetched 1 7 1 6 ";
    char line[80];
    if (!await(&board->gone)) {
        return "rank 1 did not leave";
    }
    if (end == GOODBYE) {
        usleep(100 * 1000); /* the detector has seen the end of its connection, and drops no more */
    }
    if (end != UNBORN) {
        hoop_member_fetch(ranks[0].member, 1, 7, 1);
    }
    while (end != UNBORN && strncmp(ranks[0].line, fetched, strlen(fetched)) != 0) {
        if (!rank_any_line(&ranks[0], LONG_MS)) {
            return "no answer in the first comm";
        }
    } /* a loss may come first */
    hoop_member_fetch(ranks[1].member, 1, board->treasure.id, board->treasure.generation);
    (void)snprintf(line, sizeof(line), "fetched 1 %" PRIu64 " %u 0 treasure", board->treasure.id,
                   board->treasure.generation);
    const bool got = rank_line(&ranks[1], line, LONG_MS);
    board->done = 1;
    rank_finish(&ranks[0]);
    return got ? NULL : "no region in the second comm";
}

#define ALIKE "both ranks were in the first comm, or none was"

/* Makes the first comm. *ret_in: this rank is in it. Returns what went wrong, or NULL. */
static const char *first_run(struct rank *rank, enum end end, bool *ret_in)
{
    rank->spoils = rank->join.rank == 1 && end == UNBORN;
    if (rank_start(rank) != HOOP_OK) {
        return "no first comm";
    }
    *ret_in = rank_join(rank) == HOOP_OK;
    if (end != UNBORN) {
        return *ret_in ? NULL : "no first comm";
    }
    if (*ret_in && rank->join.rank == 0) {
        hoop_member_fetch(rank->member, 1, 7, 1); /* in vain, as long as the comm is there */
    }
    return NULL;
}

static void process_run(const struct family_self *self, const void *arg)
{
    const struct plan *plan = arg;
    struct rank ranks[2];
    bool in = false;
    for (uint32_t i = 0; i < 2; i++) {
        rank_init(&ranks[i], &plan->meetings[i], 2, (uint32_t)self->rank);
    }
    const char *wrong = first_run(&ranks[0], plan->end, &in);
    if (wrong == NULL && (rank_start(&ranks[1]) != HOOP_OK || rank_join(&ranks[1]) != HOOP_OK)) {
        wrong = ranks[1].line;
    }
    if (wrong == NULL) {
        wrong = self->rank == 0 ? asker_run(ranks, plan->end) : owner_run(ranks, plan->end);
        rank_finish(&ranks[1]);
    }
    if (wrong == NULL && in == ranks[0].spoils) {
        wrong = ALIKE;
    }
    char report[sizeof(ranks[1].line)] = "";
    (void)snprintf(report, sizeof(report), "%s", wrong != NULL ? wrong : "");
    (void)family_say(self, report, sizeof(report));
}

/* False: rank 0's join failed, too, or rank 1's did not, as what fails it came too late. */
static bool check(enum end end)
{
    struct plan plan = {.end = end};
    struct family family;
    bool in = true;
    assert_int_equal(hoop_rendezvous_random(&plan.meetings[0]), HOOP_OK);
    assert_int_equal(hoop_rendezvous_random(&plan.meetings[1]), HOOP_OK);
    family_init(&family, 2);
    assert_true(family_fork_all(&family, process_run, &plan));
    for (int rank = 0; rank < 2; rank++) {
        char report[sizeof(((struct rank *)0)->line)] = "it says nothing";
        (void)family_hear(&family, rank, report, sizeof(report), hoop_deadline_ns(2L * LONG_MS));
        const bool alike = strcmp(report, ALIKE) == 0;
        in &= !alike;
        if (report[0] != 0 && !alike) {
            family_finish(&family);
            fail_msg("rank %d: %s", rank, report);
        }
    }
    family_finish(&family);
    return in;
}

static void test_asks_who_has_left(void **state)
{
    (void)state;
    assert_true(check(GOODBYE));
}

static void test_asks_who_leaves(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) { /* the smaller of two random numbers dials at once */
        assert_true(check(SILENT));
    }
}

static void test_asks_who_was_not_in(void **state)
{
    (void)state;
    for (int i = 0, in = 0; in < 3; i++) {
        in += check(UNBORN);
        assert_true(i < 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asks_who_has_left),
        cmocka_unit_test(test_asks_who_leaves),
        cmocka_unit_test(test_asks_who_was_not_in),
    };
    return cmocka_run_group_tests_name("peers", tests, NULL, NULL);
}

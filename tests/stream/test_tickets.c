/* Tickets: their numbers and results, and which are forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "stream/tickets.h"

static void test_in_order(void **state)
{
    (void)state;
    struct hoop_tickets tickets = {.given = 3};
    assert_int_equal(hoop_tickets_result(&tickets, 1), HOOP_IN_PROGRESS);
    hoop_tickets_complete(&tickets, 2);
    assert_int_equal(hoop_tickets_result(&tickets, 1), HOOP_OK);
    assert_int_equal(hoop_tickets_result(&tickets, 2), HOOP_OK);
    assert_int_equal(hoop_tickets_result(&tickets, 3), HOOP_IN_PROGRESS);
    assert_null(tickets.results); /* successes are not kept */
    hoop_tickets_finish(&tickets);
}

/* Of several failures before a ticket, the first counts; of several tickets behind one, too. */
static void test_first_failure(void **state)
{
    (void)state;
    struct hoop_tickets tickets = {.given = 4};
    hoop_tickets_complete(&tickets, 1);
    hoop_tickets_fail(&tickets, HOOP_TIMEOUT);
    hoop_tickets_fail(&tickets, HOOP_ABORTED);
    hoop_tickets_complete(&tickets, 2);
    assert_int_equal(hoop_tickets_result(&tickets, 1), HOOP_OK);
    assert_int_equal(hoop_tickets_result(&tickets, 2), HOOP_TIMEOUT);
    assert_int_equal(hoop_tickets_result(&tickets, 3), HOOP_OK);
    hoop_tickets_fail(&tickets, HOOP_OUT_OF_MEMORY);
    assert_int_equal(hoop_tickets_result(&tickets, 4), HOOP_IN_PROGRESS);
    hoop_tickets_complete(&tickets, 1);
    assert_int_equal(hoop_tickets_result(&tickets, 4), HOOP_OUT_OF_MEMORY);
    hoop_tickets_finish(&tickets);
}

/* The last 65536 are kept. Of older failures only the fact that there was one. */
static void test_forgotten(void **state)
{
    (void)state;
    struct hoop_tickets tickets = {.given = (uint64_t)3 * HOOP_TICKETS_KEPT};
    hoop_tickets_complete(&tickets, 9);
    hoop_tickets_fail(&tickets, HOOP_ABORTED);
    hoop_tickets_complete(&tickets, 1);
    hoop_tickets_complete(&tickets, HOOP_TICKETS_KEPT - 1);
    assert_int_equal(hoop_tickets_result(&tickets, 9), HOOP_OK);
    assert_int_equal(hoop_tickets_result(&tickets, 10), HOOP_ABORTED);
    assert_int_equal(hoop_tickets_result(&tickets, 11), HOOP_OK);
    hoop_tickets_complete(&tickets, 1);
    assert_int_equal(hoop_tickets_result(&tickets, 10), HOOP_ABORTED);
    assert_int_equal(hoop_tickets_result(&tickets, 11), HOOP_OK);
    hoop_tickets_complete(&tickets, HOOP_TICKETS_KEPT);
    assert_int_equal(hoop_tickets_result(&tickets, 11), HOOP_ABORTED);
    assert_int_equal(hoop_tickets_result(&tickets, HOOP_TICKETS_KEPT + 11), HOOP_OK);
    hoop_tickets_finish(&tickets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_first_failure),
        cmocka_unit_test(test_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

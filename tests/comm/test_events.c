/*
 * The event queue between service thread and driver, and the line for a comm's turn, by themselves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/events.h"
#include "comm/turn.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- Events ---------------------------------------------------------------------------------- */

static struct hoop_event answer(uint32_t rank, uint64_t region, hoop_result_t code)
{
    return (struct hoop_event){
        .kind = HOOP_EVENT_ANSWER, .rank = rank, .id = region, .part = 1, .failure.code = code};
}

static bool is_empty(const struct hoop_events *events)
{
    return hoop_list_is_empty(&events->queue);
}

/* Each event is taken once, the oldest of its kind first, and wakes the driver. */
static void test_taken_once(void **state)
{
    (void)state;
    struct hoop_events events;
    uint64_t count = 0;
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    hoop_events_init(&events);
    events.wake_fd = fd;
    const struct hoop_event pushed[] = {answer(1, 7, HOOP_TIMEOUT), answer(1, 7, HOOP_OK),
                                        answer(2, 7, HOOP_ABORTED)};
    for (int i = 0; i < 3; i++) {
        assert_true(hoop_events_push(&events, &pushed[i]));
    }
    assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
    assert_int_equal(count, 3);
    const int order[] = {0, 2, 1};
    for (int i = 0; i < 3; i++) {
        struct hoop_event *event = hoop_events_take(&events, &pushed[order[i]]);
        assert_non_null(event);
        assert_int_equal(event->failure.code, pushed[order[i]].failure.code);
        free(event);
        assert_int_equal(is_empty(&events), i == 2);
    }
    assert_null(hoop_events_take(&events, &pushed[0]));
    hoop_events_finish(&events);
    close(fd);
}

/* Events that are not wanted are dropped, whether they are there already or come later; nothing
 * piles up. */
static void test_unwanted_goes(void **state)
{
    (void)state;
    struct hoop_events events;
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    hoop_events_init(&events);
    events.wake_fd = fd;
    for (uint64_t region = 1; region <= 100; region++) {
        const struct hoop_event event = answer(1, region, HOOP_OK);
        if (region % 2 == 0) {
            assert_true(hoop_events_push(&events, &event));
            hoop_events_drop(&events, &event);
        } else {
            hoop_events_drop(&events, &event);
            assert_null(hoop_events_take(&events, &event));
            assert_true(hoop_events_push(&events, &event));
        }
        assert_true(is_empty(&events));
    }
    hoop_events_finish(&events);
    close(fd);
}

/* A connection that the driver did not take, or does not want, is closed. */
static void test_sockets_are_closed(void **state)
{
    (void)state;
    struct hoop_events events;
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int sockets[] = {dup(fd), dup(fd)};
    hoop_events_init(&events);
    events.wake_fd = fd;
    for (uint32_t i = 0; i < 2; i++) {
        const struct hoop_event event = {.kind = HOOP_EVENT_SOCKET, .rank = i, .fd = sockets[i]};
        assert_true(hoop_events_push(&events, &event));
    }
    hoop_events_drop(&events, &(struct hoop_event){.kind = HOOP_EVENT_SOCKET, .rank = 0});
    hoop_events_finish(&events);
    assert_int_equal(close(sockets[0]), -1);
    assert_int_equal(close(sockets[1]), -1);
    close(fd);
}

/* ---- The line -------------------------------------------------------------------------------- */

static void *hold(void *arg)
{
    struct hoop_turn *turn = arg;
    (void)hoop_turn_enter(turn, 0);
    return NULL;
}

/* A thread stays inside. The first in line gives up after its patience; the one behind it has more.
 * When the thread inside moves, the patience of those in line begins again. */
static void test_line_loses_patience(void **state)
{
    (void)state;
    struct hoop_turn turn = {.held = false};
    struct hoop_turn_place patient, impatient;
    pthread_t thread;
    hoop_turn_init(&turn);
    pthread_create(&thread, NULL, hold, &turn); /* ends while it has the turn */
    pthread_join(thread, NULL);
    turn.owner = 1; /* no thread's: a later thread may have the number of that one */
    hoop_turn_queue(&turn, &impatient, 50);
    hoop_turn_queue(&turn, &patient, 60000);
    const uint64_t begun = hoop_now_ns();
    hoop_result_t result = HOOP_AGAIN;
    bool moved = false;
    while (result == HOOP_AGAIN) {
        assert_int_equal(hoop_turn_poll(&patient), HOOP_AGAIN);
        result = hoop_turn_poll(&impatient);
        if (!moved && hoop_now_ns() - begun > 30 * HOOP_NS_PER_MS) {
            moved = true;
            hoop_turn_move(&turn);
        }
    }
    assert_int_equal(result, HOOP_TIMEOUT);
    assert_true(hoop_now_ns() - begun >= (moved ? 80 : 50) * HOOP_NS_PER_MS);
    turn.inside = 0; /* it leaves after all */
    assert_int_equal(hoop_turn_poll(&patient), HOOP_OK);
    hoop_turn_leave(&turn);
    hoop_turn_finish(&turn);
}

/* The turn goes to those in line in the order in which they came. */
static void test_line_is_fair(void **state)
{
    (void)state;
    struct hoop_turn turn = {.held = false};
    struct hoop_turn_place places[5];
    hoop_turn_init(&turn);
    assert_true(hoop_turn_take(&turn));
    for (int i = 0; i < 5; i++) {
        hoop_turn_queue(&turn, &places[i], 0);
    }
    assert_int_equal(hoop_turn_poll(&places[0]), HOOP_AGAIN);
    hoop_turn_leave(&turn);
    for (int i = 0; i < 5; i++) {
        for (int other = 4; other > i; other--) {
            assert_int_equal(hoop_turn_poll(&places[other]), HOOP_AGAIN);
        }
        assert_int_equal(hoop_turn_poll(&places[i]), HOOP_OK);
        hoop_turn_leave(&turn);
    }
    assert_false(hoop_turn_take(&turn)); /* from now on the owner stands in line like all others */
    hoop_turn_finish(&turn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken_once),         cmocka_unit_test(test_unwanted_goes),
        cmocka_unit_test(test_sockets_are_closed), cmocka_unit_test(test_line_loses_patience),
        cmocka_unit_test(test_line_is_fair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

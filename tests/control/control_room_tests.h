/* Runs a program's tests in a room, once for every kind of room that this machine can have. */
#ifndef CONTROL_ROOM_TESTS_H
#define CONTROL_ROOM_TESTS_H

#include "control/control_room.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct room *room_of_tests;

static inline int room_setup(void **state)
{
    (void)state;
    room_open(room_of_tests, room_of_tests->kind);
    return 0;
}

static inline int room_teardown(void **state)
{
    (void)state;
    return room_close(room_of_tests);
}

/* Opens this room for each test, which must leave no descriptor behind. Returns how many failed. */
static inline int room_run_kind(struct room *of_tests, enum room_kind kind,
                                const struct CMUnitTest *tests, size_t count)
{
    static const char *const names[] = {"unix", "tcp4", "tcp6", "here"};
    room_of_tests = of_tests;
    of_tests->kind = kind;
    if (room_can(kind)) {
        return _cmocka_run_group_tests(names[kind], tests, count, NULL, NULL);
    }
    (void)printf("%s: skipped, this machine has no such address\n", names[kind]);
    return 0;
}

/* The same for each kind of socket. */
static inline int room_run(struct room *of_tests, const struct CMUnitTest *tests, size_t count)
{
    int failed = 0;
    for (int i = ROOM_UNIX; i <= ROOM_TCP6; i++) {
        failed += room_run_kind(of_tests, (enum room_kind)i, tests, count);
    }
    return failed;
}

#endif

/*
 * What a rank of a family (family.h) tells its parent: a result, when, and hoop's sentence about
 * it.
 */
#ifndef HOOP_TESTS_RANK_REPORT_H
#define HOOP_TESTS_RANK_REPORT_H

#include "base/clock.h"
#include "harness/family.h"
#include "hoop.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct rank_report {
    int result;       /* hoop_result_t, or a line number below zero: an expectation failed there */
    uint64_t value;   /* the test's own */
    uint64_t time_ns; /* CLOCK_MONOTONIC when it was known */
    char text[480];   /* hoop_get_last_error() */
};

static inline void rank_tell(const struct family_self *self, int result, uint64_t value)
{
    struct rank_report report = {.result = result, .value = value, .time_ns = hoop_now_ns()};
    strncpy(report.text, hoop_get_last_error(NULL), sizeof(report.text) - 1);
    if (!family_say(self, &report, sizeof(report))) {
        _exit(3);
    }
}

/* Ends the rank when something unexpected is seen. */
#define EXPECT(self, condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            rank_tell(self, -__LINE__, 0);                                                         \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#endif

/*
 * What a rank of a family (family.h) tells its parent: a result, when, and hoop's sentence about
 * it; and how the parent hears it.
 */
#ifndef HOOP_TESTS_RANK_REPORT_H
#define HOOP_TESTS_RANK_REPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/family.h"
#include "hoop.h"

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

/* In the parent: fails the test if the rank is silent, has ended, or saw something unexpected. */
static inline struct rank_report rank_hear(struct family *family, int rank, unsigned patience_ms)
{
    struct rank_report report = {.result = -1};
    const enum family_heard heard =
        family_hear(family, rank, &report, sizeof(report), hoop_deadline_ns(patience_ms));
    if (heard != FAMILY_HEARD || report.result < 0) {
        family_finish(family);
        fail_msg("rank %d of %d %s line %d: %s", rank, family->n,
                 heard == FAMILY_HEARD    ? "failed in"
                 : heard == FAMILY_SILENT ? "said nothing in time;"
                                          : "ended and said nothing;",
                 -report.result, report.text);
    }
    return report;
}

/* All end well, but those that were killed. */
static inline void rank_end_all(struct family *family, unsigned patience_ms)
{
    for (int r = 0; r < family->n; r++) {
        assert_true(family->ranks[r].pid == 0 ||
                    family_reap(family, r, hoop_deadline_ns(patience_ms)));
    }
    family_finish(family);
}

#endif

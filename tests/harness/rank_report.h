/*
 * What a rank of a family (family.h) reports to its parent: a result, its time, and hoop's error
 * text; and how the parent receives it.
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

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct rank_report {
    int result;       /* hoop_result_t; below 0: minus the line of an expectation that failed */
    uint64_t value;   /* the test's */
    uint64_t time_ns; /* CLOCK_MONOTONIC when the result was known */
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

/* Ends the rank if the condition is false. */
#define EXPECT(self, condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            rank_tell(self, -__LINE__, 0);                                                         \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* In the parent: starts n ranks; each of their reports may take patience_ms. Fails the test if the
 * machine lacks resources for them. */
static inline void rank_start_all(struct family *family, int n, family_run *run, const void *arg,
                                  unsigned patience_ms)
{
    family_init(family, n);
    family->patience_ms = patience_ms;
    if (!family_fork_all(family, run, arg)) {
        family_finish(family);
        fail_msg("cannot start %d ranks: %s", n, strerror(errno));
    }
}

/* Fails the test if the rank is silent, has ended, or saw something unexpected. */
static inline struct rank_report rank_hear(struct family *family, int rank)
{
    struct rank_report report = {.result = -1};
    const enum family_heard heard =
        family_hear(family, rank, &report, sizeof(report), hoop_deadline_ns(family->patience_ms));
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

static inline void rank_hear_all_well(struct family *family)
{
    for (int r = 0; r < family->n; r++) {
        assert_int_equal(rank_hear(family, r).result, HOOP_OK);
    }
}

/* All must end well, except those that were killed. */
static inline void rank_end_all(struct family *family)
{
    for (int r = 0; r < family->n; r++) {
        assert_true(family->ranks[r].pid == 0 ||
                    family_reap(family, r, hoop_deadline_ns(family->patience_ms)));
    }
    family_finish(family);
}

#endif

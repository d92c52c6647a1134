/*
 * A rank cannot take part in a birth. It lacks memory for a split: every call of calloc() in it
 * fails once; or descriptors to ask in a shrink whether a rank that has not come is there. The
 * others hear of it, though the comm stays and its timeout is far, and are not told only that
 * somebody has left. A shrink goes on if the descriptors are there a moment later. A rank that
 * could not begin to join may try again with the same id.
 */
#include "fakes/failing_calls.h"
#include "harness/meeting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define PAIR 2
#define SOON_MS 20000 /* the comm's timeout is a minute and more */
#define MOST_CALLS 100u

struct trial {
    struct meeting meeting;
    unsigned from;
    bool behind;
};

static struct trial *trial_map(void)
{
    struct trial *trial =
        mmap(NULL, sizeof(*trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(trial, MAP_FAILED);
    return trial;
}

struct report {
    hoop_result_t result;
    bool failed; /* a call has */
    char text[400];
};

/* The result of a split, waited for, or of the first operation: this rank may have been in when the
 * other one failed. */
static hoop_result_t split(hoop_comm_t comm, int rank, hoop_comm_t *ret, bool behind)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.init_timeout_ms = 1000;
    config.blocking = behind ? 0 : 1;
    hoop_result_t result = hoop_comm_split(comm, 0, rank, ret, &config);
    while (result == HOOP_IN_PROGRESS) {
        usleep(100);
        if (hoop_comm_get_async_error(*ret, &result) != HOOP_OK) {
            _exit(13);
        }
    }
    return result == HOOP_OK ? hoop_barrier(*ret, NULL) : result;
}

static void split_unable(const struct family_self *self, const void *arg)
{
    const struct trial *trial = arg;
    const struct failing failing = {"calloc", ENOMEM, trial->from, 1};
    struct report report = {.failed = false};
    const void *where = NULL;
    hoop_comm_t comm = NULL, child = NULL;
    (void)meeting_open(self, &trial->meeting);
    if (hoop_comm_init_rank(&comm, PAIR, trial->meeting.ids[0], self->rank) != HOOP_OK) {
        _exit(11);
    }
    if (self->rank == 1) {
        failing_start(&failing);
    }
    report.result = split(comm, self->rank, &child, trial->behind);
    (void)failing_stop(&where);
    report.failed = where != NULL;
    (void)snprintf(report.text, sizeof(report.text), "%s",
                   hoop_get_last_error(child != NULL ? child : comm));
    if (!family_say(self, &report, sizeof(report))) {
        _exit(12);
    }
    (void)family_order(self); /* both have been heard */
    _exit(0);
}

/* Returns whether a call has failed. */
static bool try_split(struct trial *trial)
{
    struct family family;
    struct report reports[PAIR];
    trial->meeting.ready = 0;
    family_init(&family, PAIR);
    assert_true(family_fork_all(&family, split_unable, trial));
    for (int rank = 0; rank < PAIR; rank++) {
        assert_int_equal(family_hear(&family, rank, &reports[rank], sizeof(reports[rank]),
                                     hoop_deadline_ns(SOON_MS)),
                         FAMILY_HEARD);
    }
    if (reports[1].result != HOOP_OK &&
        (reports[0].result == HOOP_OK || strstr(reports[0].text, "rank") == NULL ||
         strstr(reports[0].text, " 1") == NULL)) {
        fail_msg("call %u: %s; the other rank: %s", trial->from, reports[1].text, reports[0].text);
    }
    family_finish(&family);
    return reports[1].failed;
}

static void try_all(bool behind)
{
    struct trial *trial = trial_map();
    trial->behind = behind;
    trial->from = 1;
    while (try_split(trial)) {
        assert_in_range(++trial->from, 2, MOST_CALLS);
    }
    assert_in_range(trial->from, 2, MOST_CALLS);
    munmap(trial, sizeof(*trial));
}

static void test_waited_for(void **state)
{
    (void)state;
    try_all(false);
}

static void test_in_background(void **state)
{
    (void)state;
    try_all(true);
}

/* ---- Descriptors ---------------------------------------------------------------------------- */

#define THREE 3

static void shrink_unable(const struct family_self *self, const void *arg)
{
    static const struct failing failing = {"socket", EMFILE, 1, UINT32_MAX};
    const struct meeting *meeting = meeting_open(self, arg);
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    struct report report = {.result = HOOP_OK};
    hoop_comm_t comm = NULL, child = NULL;
    config.init_timeout_ms = 10000;
    if (hoop_comm_init_rank(&comm, THREE, meeting->ids[0], self->rank) != HOOP_OK ||
        hoop_barrier(comm, NULL) != HOOP_OK) {
        _exit(11);
    }
    if (self->rank == 0) {
        failing_start(&failing);
    }
    if (self->rank < 2) { /* the other one is there, but does not call */
        report.result = hoop_comm_shrink(comm, NULL, 0, &child, &config, HOOP_SHRINK_DEFAULT);
        (void)snprintf(report.text, sizeof(report.text), "%s", hoop_get_last_error(NULL));
    }
    if (!family_say(self, &report, sizeof(report))) {
        _exit(12);
    }
    (void)family_order(self);
    _exit(0);
}

static void test_no_descriptors(void **state)
{
    struct family family;
    struct meeting *meeting = meeting_start(&family, THREE, shrink_unable);
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct report report;
        assert_int_equal(
            family_hear(&family, rank, &report, sizeof(report), hoop_deadline_ns(SOON_MS)),
            FAMILY_HEARD);
        if (report.result == HOOP_OK || strstr(report.text, "ulimit -n") == NULL) {
            fail_msg("rank %d: %s: %s", rank, hoop_get_error_name(report.result), report.text);
        }
    }
    family_finish(&family);
    munmap(meeting, sizeof(*meeting));
}

/* One rank, which leads the shrink or not, lacks descriptors for a moment. */
static void shrink_late(const struct family_self *self, const void *arg)
{
    static const struct failing failing = {"socket", EMFILE, 1, 3};
    const struct trial *trial = arg;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    const void *where = NULL;
    hoop_comm_t comm = NULL, child = NULL;
    (void)meeting_open(self, &trial->meeting);
    config.init_timeout_ms = 10000;
    if (hoop_comm_init_rank(&comm, PAIR, trial->meeting.ids[0], self->rank) != HOOP_OK) {
        _exit(11);
    }
    if (self->rank == (int)trial->from) {
        failing_start(&failing);
    }
    if (hoop_comm_shrink(comm, NULL, 0, &child, &config, HOOP_SHRINK_DEFAULT) != HOOP_OK) {
        (void)fprintf(stderr, "rank %d: %s\n", self->rank, hoop_get_last_error(NULL));
        _exit(12);
    }
    (void)failing_stop(&where);
    _exit(self->rank != (int)trial->from || where != NULL ? 0 : 13);
}

/* Once with each rank as the one that lacks them. */
static void try_each(family_run *run)
{
    struct trial *trial = trial_map();
    for (trial->from = 0; trial->from < PAIR; trial->from++) {
        struct family family;
        trial->meeting.ready = 0;
        family_init(&family, PAIR);
        assert_true(family_fork_all(&family, run, trial));
        for (int rank = 0; rank < PAIR; rank++) {
            assert_true(family_reap(&family, rank, hoop_deadline_ns(SOON_MS)));
        }
        family_finish(&family);
    }
    munmap(trial, sizeof(*trial));
}

static void test_few_descriptors(void **state)
{
    (void)state;
    try_each(shrink_late);
}

/* Rank 0, which serves the id, or the other rank cannot begin to join at first. */
static void join_again(const struct family_self *self, const void *arg)
{
    static const struct failing failing = {"eventfd", EMFILE, 1, 1};
    const struct trial *trial = arg;
    const void *where = NULL;
    hoop_comm_t comm = NULL;
    (void)meeting_open(self, &trial->meeting);
    if (self->rank == (int)trial->from) {
        failing_start(&failing);
        if (hoop_comm_init_rank(&comm, PAIR, trial->meeting.ids[0], self->rank) == HOOP_OK) {
            _exit(11);
        }
        (void)failing_stop(&where);
    }
    _exit(hoop_comm_init_rank(&comm, PAIR, trial->meeting.ids[0], self->rank) == HOOP_OK ? 0 : 13);
}

static void test_again(void **state)
{
    (void)state;
    try_each(join_again);
}

/* ---- Settings ------------------------------------------------------------------------------- */

static const struct unusable {
    const char *name, *value;
} unusable[] = {{"HOOP_CHECK", "aes"}, {"HOOP_PROFILE", "/none"}};

static void join_unusable(const struct family_self *self, const void *arg)
{
    const struct trial *trial = arg;
    const struct unusable *setting = &unusable[trial->from];
    struct report report = {.failed = false};
    hoop_comm_t comm = NULL;
    if (self->rank == 1) {
        (void)setenv(setting->name, setting->value, 1);
    }
    (void)meeting_open(self, &trial->meeting);
    report.result = hoop_comm_init_rank(&comm, PAIR, trial->meeting.ids[0], self->rank);
    (void)snprintf(report.text, sizeof(report.text), "%s", hoop_get_last_error(NULL));
    _exit(family_say(self, &report, sizeof(report)) ? 0 : 12);
}

/* Runs both ranks of a trial, and hears what they report. */
static void run_pair(const struct trial *trial,
                     void run(const struct family_self *self, const void *arg),
                     struct report reports[PAIR])
{
    struct family family;
    family_init(&family, PAIR);
    assert_true(family_fork_all(&family, run, trial));
    for (int rank = 0; rank < PAIR; rank++) {
        int status = 0;
        const enum family_heard heard = family_hear(
            &family, rank, &reports[rank], sizeof(reports[rank]), hoop_deadline_ns(SOON_MS));
        if (heard == FAMILY_ENDED) {
            (void)waitpid(family.ranks[rank].pid, &status, 0);
            fail_msg("call %u: rank %d ended without a word, with status %#x", trial->from, rank,
                     (unsigned)status);
        }
        assert_int_equal(heard, FAMILY_HEARD);
    }
    family_finish(&family);
}

static void assert_unusable(const struct report *report, int rank, const char *setting)
{
    if (report->result == HOOP_OK || strstr(report->text, setting) == NULL ||
        strstr(report->text, rank == 0 ? "unusable on rank 1 " : "expected") == NULL) {
        fail_msg("rank %d: %s: %s", rank, hoop_get_error_name(report->result), report->text);
    }
}

/* A rank has a setting with which it cannot go on: it says what is wrong, the other one where. */
static void test_unusable(void **state)
{
    struct trial *trial = trial_map();
    struct report reports[PAIR];
    (void)state;
    for (trial->from = 0; trial->from < sizeof(unusable) / sizeof(unusable[0]); trial->from++) {
        trial->meeting.ready = 0;
        run_pair(trial, join_unusable, reports);
        for (int rank = 0; rank < PAIR; rank++) {
            assert_unusable(&reports[rank], rank, unusable[trial->from].name);
        }
    }
    munmap(trial, sizeof(*trial));
}

/* ---- Addresses ------------------------------------------------------------------------------ */

static void join_nameless(const struct family_self *self, const void *arg)
{
    const struct trial *trial = arg;
    const struct failing failing = trial->behind
                                       ? (struct failing){"connect", EINTR, trial->from, 1}
                                       : (struct failing){"getsockname", ENOBUFS, trial->from, 1};
    struct report report = {.failed = false};
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.init_timeout_ms = 4900; /* a dialer waits a little longer for an answer */
    const void *where = NULL;
    hoop_comm_t comm = NULL;
    (void)setenv("HOOP_HOSTID", self->rank == 0 ? "a" : "b", 1);
    (void)meeting_open(self, &trial->meeting);
    if (self->rank == 1) {
        failing_start(&failing);
    }
    report.result =
        hoop_comm_init_rank_config(&comm, PAIR, trial->meeting.ids[0], self->rank, &config);
    (void)failing_stop(&where);
    report.failed = where != NULL;
    (void)snprintf(report.text, sizeof(report.text), "%s", hoop_get_last_error(NULL));
    _exit(family_say(self, &report, sizeof(report)) ? 0 : 12);
}

static void assert_says(const struct report *report, int rank, const char *what)
{
    if (report->result != HOOP_OK && strstr(report->text, what) == NULL) {
        fail_msg("rank %d: %s", rank, report->text);
    }
}

/* interrupted: calls are, and go on. Else sockets do not tell their addresses, one after the other:
 * the rank dials again, or says so. */
static void try_sockets(bool interrupted)
{
    struct trial *trial = trial_map();
    struct report reports[PAIR] = {{.failed = true}, {.failed = true}};
    const char *says = interrupted ? "no call is at fault" : "ENOBUFS";
    trial->behind = interrupted;
    for (trial->from = 1; reports[1].failed; trial->from++) {
        trial->meeting.ready = 0;
        run_pair(trial, join_nameless, reports);
        for (int rank = 0; rank < PAIR; rank++) {
            assert_says(&reports[rank], rank, says);
        }
    }
    munmap(trial, sizeof(*trial));
}

static void test_nameless(void **state)
{
    (void)state;
    try_sockets(false);
}

static void test_interrupted(void **state)
{
    (void)state;
    try_sockets(true);
}

int main(void)
{
    (void)setenv("HOOP_DEAD_AFTER_MS", "2000", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waited_for),     cmocka_unit_test(test_in_background),
        cmocka_unit_test(test_no_descriptors), cmocka_unit_test(test_few_descriptors),
        cmocka_unit_test(test_unusable),       cmocka_unit_test(test_nameless),
        cmocka_unit_test(test_interrupted),    cmocka_unit_test(test_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

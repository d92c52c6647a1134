/*
 * Profiles: what is read, what is refused and with which text; that the cost model's choices in
 * memory follow their numbers, and those over links do not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cost/profile.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *key, *value;
} lines[] = {
    {"version", "2"},
    {"machine", "host, a CPU = fast"},
    {"date", "2026-11-22T12:00:00Z"},
    {"hoop", "0.1.0"},
    {"memory_sync_ns", "113"},
    {"memory_sync_ns_per_rank", "0"},
    {"memory_barrier_ns", "230"},
    {"memory_barrier_ns_per_rank", "17"},
    {"memory_moved_ns_per_kib", "3"},
    {"memory_folded_ns_per_kib", "19"},
    {"memory_call_ns", "700"},
    {"memory_read_ns_per_kib", "80"},
    {"oversubscribed_sync_ns", "10000000"},
    {"oversubscribed_sync_ns_per_rank", "2500"},
    {"oversubscribed_barrier_ns", "7000"},
    {"oversubscribed_barrier_ns_per_rank", "default"},
    {"oversubscribed_moved_ns_per_kib", "10000"},
    {"oversubscribed_folded_ns_per_kib", "default"},
    {"oversubscribed_call_ns", "default"},
    {"oversubscribed_read_ns_per_kib", "81"},
};
#define LINES COUNT_OF(lines)

/* Writes all lines; line `other` gets this value (NULL: it is left out). */
static size_t write_lines(char text[4096], size_t other, const char *value)
{
    size_t at = 0;
    for (size_t i = 0; i < LINES; i++) {
        const char *its = i == other ? value : lines[i].value;
        if (its != NULL) {
            at += (size_t)snprintf(text + at, 4096 - at, "%s = %s\n", lines[i].key, its);
        }
    }
    return at;
}

static hoop_result_t parse(const char *text, size_t bytes, struct hoop_profile *ret)
{
    char copy[4096];
    assert_true(bytes < sizeof(copy));
    memcpy(copy, text, bytes);
    return hoop_profile_parse("the file", copy, bytes, ret);
}

static void check_error(const char *what)
{
    if (strstr(hoop_thread_error(), what) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", hoop_thread_error(), what);
    }
}

static void refuse(const char *text, size_t bytes, const char *what)
{
    struct hoop_profile profile = {.version = 77};
    assert_int_equal(parse(text, bytes, &profile), HOOP_INVALID_USAGE);
    assert_int_equal(profile.version, 77);
    check_error("the file");
    check_error(what);
}

static void test_right(void **state)
{
    (void)state;
    struct hoop_cost_constants builtin[HOOP_COST_MEMORIES];
    struct hoop_profile profile, again;
    char text[4096], loose[4096];
    const size_t bytes = write_lines(text, LINES, NULL);
    hoop_cost_get_memory(builtin);
    assert_int_equal(parse(text, bytes, &profile), HOOP_OK);
    assert_int_equal(profile.memory[HOOP_COST_MEMORY].sync, 113);
    assert_int_equal(profile.memory[HOOP_COST_MEMORY].sync_per, 0);
    assert_int_equal(profile.memory[HOOP_COST_MEMORY].folded, 19);
    assert_int_equal(profile.memory[HOOP_COST_MEMORY].call, 700);
    assert_int_equal(profile.memory[HOOP_COST_MEMORY].read, 80);
    assert_int_equal(profile.memory[HOOP_COST_OVERSUBSCRIBED].sync, 10000000);
    assert_int_equal(profile.memory[HOOP_COST_OVERSUBSCRIBED].barrier_per,
                     builtin[HOOP_COST_OVERSUBSCRIBED].barrier_per);
    assert_int_equal(profile.memory[HOOP_COST_OVERSUBSCRIBED].folded,
                     builtin[HOOP_COST_OVERSUBSCRIBED].folded);
    /* the last line first, with blanks, comments, and other systems' line ends */
    size_t at = (size_t)snprintf(loose, sizeof(loose), "# 1\n\n \t\r\n  # version = 2\n");
    for (size_t i = LINES; i-- > 0;) {
        at += (size_t)snprintf(loose + at, sizeof(loose) - at, "\t%s=%s  \r\n", lines[i].key,
                               lines[i].value);
    }
    assert_int_equal(parse(loose, at, &again), HOOP_OK);
    assert_memory_equal(&again, &profile, sizeof(profile));
}

static void test_every_value(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "-5",
        "-1e-3",
        "nan",
        "inf",
        "1e300",
        "1.5",
        "0x10",
        "12 3",
        "1,5",
        "10000001",
        "Default",
        "1\0332",
        "1e3",
        "18446744073709551617",
        "99999999999999999999999999999999999999999999999999999999999999999999999999999999"};
    for (size_t i = 4; i < LINES; i++) {
        for (size_t j = 0; j < COUNT_OF(bad); j++) {
            char text[4096], what[128], place[64];
            const size_t bytes = write_lines(text, i, bad[j]);
            (void)snprintf(what, sizeof(what), "%s is \"%.10s", lines[i].key,
                           strchr(bad[j], '\033') != NULL ? "1 2\"" : bad[j]);
            (void)snprintf(place, sizeof(place), "line %zu: ", i + 1);
            refuse(text, bytes, what);
            check_error(place);
            check_error(", expected default or a whole number from ");
        }
    }
}

static void test_zeros(void **state)
{
    (void)state;
    for (size_t i = 4; i < LINES; i++) {
        char text[4096];
        struct hoop_profile profile;
        const size_t bytes = write_lines(text, i, "0");
        if (strstr(lines[i].key, "_per_rank") != NULL) {
            assert_int_equal(parse(text, bytes, &profile), HOOP_OK);
        } else {
            refuse(text, bytes, "is \"0\", expected default or a whole number from 1 to ");
        }
    }
}

static void test_other_versions(void **state)
{
    (void)state;
    static const char *const bad[] = {"1", "3", "0", "", "one", "default", "2.0"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char text[4096];
        refuse(text, write_lines(text, 0, bad[i]), "line 1: version is \"");
        check_error("expected 2, which this hoop reads");
    }
}

/* A profile that is cut off at any byte is refused. */
static void test_cut_off(void **state)
{
    (void)state;
    char text[4096];
    const size_t bytes = write_lines(text, LINES, NULL);
    for (size_t length = 0; length < bytes; length++) {
        refuse(text, length, "it may be cut off");
    }
    for (size_t i = 0; i < LINES; i++) {
        char what[128];
        (void)snprintf(what, sizeof(what), "expected %s as well", lines[i].key);
        refuse(text, write_lines(text, i, NULL), what);
    }
}

static void test_other_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *what;
        size_t bytes; /* 0: the whole text */
    } cases[] = {
        {"version=2\nnonsense\n", "line 2: \"nonsense\", expected key = value", 0},
        {"version=2\n\x1b[31m=\n", "line 2: \"[31m\" is not a key of a profile", 0},
        {"version=2\n#\nsync = 5\n", "line 3: \"sync\" is not a key of a profile", 0},
        {"version=2\n = 5\n", "line 2: \"\" is not a key of a profile", 0},
        /* text that may be a secret is not repeated */
        {"root:x:0\n", "line 1: \"...\", expected key = value", 0},
        {"#\nroot = x\n", "line 2: \"...\" is not a key of a profile", 0},
        {"memory_sync_ns = x\n", "memory_sync_ns is \"...\", expected default or", 0},
        {"version = x\n", "version is \"...\", expected 2", 0},
        {"hoop = 1\nhoop = 1\n", "line 2: hoop is set a second time", 0},
        {"#\0\n", "line 1 holds a NUL byte", 3},
        {"{\"version\": 1}\n", "expected key = value", 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        refuse(cases[i].text, cases[i].bytes > 0 ? cases[i].bytes : strlen(cases[i].text),
               cases[i].what);
    }
}

/* The digest depends on the numbers and on nothing else. */
static void test_digest(void **state)
{
    (void)state;
    char text[4096];
    struct hoop_profile profile, other;
    assert_int_equal(parse(text, write_lines(text, LINES, NULL), &profile), HOOP_OK);
    const uint64_t digest = hoop_profile_digest(&profile);
    assert_true(digest != 0);
    for (size_t i = 1; i < LINES; i++) {
        assert_int_equal(parse(text, write_lines(text, i, "4"), &other), HOOP_OK);
        assert_int_equal(hoop_profile_digest(&other) == digest, i < 4);
    }
}

static uint64_t oneshot_most(uint32_t n, uint64_t oversubscribed)
{
    const struct hoop_agreement agreed = {.oneshot_bytes = 65536,
                                          .chunk_bytes = 131072,
                                          .lanes = 2,
                                          .oversubscribed = oversubscribed,
                                          .no_cma = 1};
    return hoop_plan_oneshot_most(&agreed, n, HOOP_COLL_ALL_REDUCE);
}

static uint64_t links_cost(void)
{
    const struct hoop_plan plan = {.collective = HOOP_COLL_ALL_REDUCE,
                                   .algo = HOOP_ALGO_RING,
                                   .n = 4,
                                   .type_bytes = 4,
                                   .count = 1000};
    return hoop_cost(HOOP_COST_LINKS, 0, &plan, 131072);
}

/* The size at which oneshot costs as much as slab: sync + (moved + n folded) S = 3 barrier + (2 (n
 * - 1) / n moved + folded) S. */
static void test_choice(void **state)
{
    (void)state;
    struct hoop_cost_constants builtin[HOOP_COST_MEMORIES], mine[HOOP_COST_MEMORIES];
    hoop_cost_get_memory(builtin);
    const uint64_t before[] = {oneshot_most(2, 0), oneshot_most(4, 2), links_cost()};
    assert_in_range(before[0], 43154 - 73, 43154 + 73); /* 3 * 230 - 100 = 14 KiB S, to a ns */
    memcpy(mine, builtin, sizeof(mine));
    mine[HOOP_COST_MEMORY] = (struct hoop_cost_constants){
        .sync = 1000, .barrier = 2000, .moved = 10, .folded = 500}; /* 5000 = 500 KiB S */
    hoop_cost_set_memory(mine);
    assert_in_range(oneshot_most(2, 0), 10 * 1024 - 8, 10 * 1024 + 8);
    assert_int_equal(oneshot_most(4, 2), before[1]);
    mine[HOOP_COST_OVERSUBSCRIBED] =
        (struct hoop_cost_constants){.sync = 4000, .barrier = 3000, .moved = 200, .folded = 200};
    hoop_cost_set_memory(mine);
    assert_in_range(oneshot_most(4, 2), 10 * 1024 - 8, 10 * 1024 + 8); /* 5000 = 500 S */
    assert_in_range(oneshot_most(4, 6), 5 * 1024 - 8, 5 * 1024 + 8);   /* 5000 = 2 * 500 S */
    assert_int_equal(links_cost(), before[2]);
    hoop_cost_set_memory(builtin);
    assert_int_equal(oneshot_most(2, 0), before[0]);
    assert_int_equal(oneshot_most(4, 2), before[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),   cmocka_unit_test(test_every_value),
        cmocka_unit_test(test_zeros),   cmocka_unit_test(test_other_versions),
        cmocka_unit_test(test_cut_off), cmocka_unit_test(test_other_lines),
        cmocka_unit_test(test_digest),  cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}

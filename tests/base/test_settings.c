/* lib/base/settings: parsing an environment. The settings in force are in test_log.c. */
#include "base/settings.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct reports {
    int count;
    char last[1024];
};

static void keep_report(void *arg, const char *line)
{
    struct reports *reports = arg;
    reports->count++;
    snprintf(reports->last, sizeof(reports->last), "%s", line);
}

/* Parses an environment of one entry, or of none (NULL). The caller finishes *ret_settings. */
static struct reports parse_one(char *entry, struct hoop_settings *ret_settings)
{
    struct reports reports = {0};
    char *env[] = {entry, NULL};
    hoop_settings_parse(env, ret_settings, keep_report, &reports);
    return reports;
}

static void test_settings_defaults(void **state)
{
    (void)state;
    struct hoop_settings s;
    assert_int_equal(parse_one(NULL, &s).count, 0);
#define CHECK_NUMBER(field, variable, preset, least, most, text)                                   \
    assert_int_equal(s.field, preset);                                                             \
    assert_in_range(preset, least, most);
#define CHECK_CHOICE(field, variable, preset, choices, text) assert_int_equal(s.field, preset);
#define CHECK_STRING(field, variable, text) assert_null(s.field);
    HOOP_SETTINGS(CHECK_NUMBER, CHECK_CHOICE, CHECK_STRING, CHECK_STRING)
    assert_int_equal(s.from_environment, 0);
    hoop_settings_finish(&s);
}

struct number_case {
    const char *value;
    uint64_t expected; /* of HOOP_ONESHOT_BYTES, which may be 0 to 262144 */
    bool good;
};

static void test_settings_numbers(void **state)
{
    (void)state;
    static const struct number_case cases[] = {
        {"0", 0, true},
        {"007", 7, true},
        {"262144", 262144, true},
        {"1K", 1024, true},
        {"256k", 262144, true},
        {"0G", 0, true},
        {"262145", 0, false},
        {"257K", 0, false},
        {"1M", 0, false},
        {"18446744073709551615", 0, false},
        {"18446744073709551616", 0, false}, /* 2^64 */
        {"18014398509481984K", 0, false},   /* 2^64 */
        {"17179869184G", 0, false},         /* 2^64 */
        {"99999999999999999999999", 0, false},
        {"-1", 0, false},
        {"+1", 0, false},
        {"1e3", 0, false},
        {"0x10", 0, false},
        {" 5", 0, false},
        {"5 ", 0, false},
        {"K", 0, false},
        {"1KB", 0, false},
        {"1T", 0, false},
        {"1.5K", 0, false},
        {"", 0, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char entry[64];
        struct hoop_settings s;
        snprintf(entry, sizeof(entry), "HOOP_ONESHOT_BYTES=%s", cases[i].value);
        const struct reports reports = parse_one(entry, &s);
        assert_int_equal(s.oneshot_bytes, cases[i].good ? cases[i].expected : 262144);
        assert_int_equal(reports.count, cases[i].good ? 0 : 1);
        assert_int_equal(s.from_environment != 0, cases[i].good);
        if (!cases[i].good) {
            snprintf(entry, sizeof(entry), "using 262144 in place of \"%s\"", cases[i].value);
            assert_non_null(strstr(reports.last, entry));
            assert_non_null(strstr(reports.last, "HOOP_ONESHOT_BYTES: "));
            assert_non_null(strstr(reports.last, "0 to 262144"));
        }
        hoop_settings_finish(&s);
    }
}

static void test_settings_suffix_is_for_bytes(void **state)
{
    (void)state;
    struct hoop_settings s;
    char with_suffix[] = "HOOP_SPIN_US=1K";
    assert_int_equal(parse_one(with_suffix, &s).count, 1);
    assert_int_equal(s.spin_us, 50);
    hoop_settings_finish(&s);
}

/* The variable that hooprun sets is a setting like any other. */
static void test_settings_local_size(void **state)
{
    (void)state;
    struct hoop_settings s;
    char words[] = "HOOP_LOCAL_SIZE=two", beyond[] = "HOOP_LOCAL_SIZE=4097";
    const struct reports reports = parse_one(words, &s);
    assert_int_equal(reports.count, 1);
    assert_non_null(strstr(reports.last, "\"two\""));
    assert_int_equal(parse_one(beyond, &s).count, 1);
    assert_int_equal(s.local_size, 0);
}

static void test_settings_choices(void **state)
{
    (void)state;
    static const char *const bad[] = {"", " ", "rin", "rings", "auto oneshot", "4", "ring "};
    struct hoop_settings s;
    for (int i = 0; i < HOOP_ALGO_COUNT; i++) {
        char entry[64];
        snprintf(entry, sizeof(entry), "HOOP_ALGO=%s", hoop_algo_name((enum hoop_algo)i));
        assert_int_equal(parse_one(entry, &s).count, 0);
        assert_int_equal(s.algo, i);
        assert_int_equal(hoop_algo_parse(hoop_algo_name((enum hoop_algo)i)), i);
        hoop_settings_finish(&s);
    }
    char capitals[] = "HOOP_ALGO=RING";
    assert_int_equal(parse_one(capitals, &s).count, 0);
    assert_int_equal(s.algo, HOOP_ALGO_RING);
    assert_int_equal(hoop_algo_parse("RING"), HOOP_ALGO_RING); /* config.algo is as HOOP_ALGO */
    hoop_settings_finish(&s);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char entry[64];
        snprintf(entry, sizeof(entry), "HOOP_ALGO=%s", bad[i]);
        const struct reports reports = parse_one(entry, &s);
        assert_int_equal(reports.count, 1);
        assert_int_equal(s.algo, HOOP_ALGO_AUTO);
        assert_non_null(strstr(reports.last, "torus hierarchical; using auto"));
        assert_int_equal(hoop_algo_parse(bad[i]), HOOP_ALGO_COUNT);
        hoop_settings_finish(&s);
    }
}

/* A misspelt HOOP_CHECK must not mean that nothing is encrypted. */
static void test_settings_check(void **state)
{
    (void)state;
    static const char *const good[] = {"sum", "crc32c", "off", "aead", "AEAD"};
    static const char *const bad[] = {"", "aes", "aead ", "a\nb"};
    struct hoop_settings s;
    assert_int_equal(parse_one(NULL, &s).count, 0);
    assert_int_equal(hoop_settings_accepted(&s), HOOP_OK);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        char entry[64];
        snprintf(entry, sizeof(entry), "HOOP_CHECK=%s", good[i]);
        assert_int_equal(parse_one(entry, &s).count, 0);
        assert_int_equal(hoop_settings_accepted(&s), HOOP_OK);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char entry[64];
        snprintf(entry, sizeof(entry), "HOOP_CHECK=%s", bad[i]);
        assert_int_equal(parse_one(entry, &s).count, 1);
        assert_int_equal(hoop_settings_accepted(&s), HOOP_INVALID_ARGUMENT);
        snprintf(entry, sizeof(entry), "HOOP_CHECK is \"%s\", expected one of: sum ",
                 bad[i][0] == 'a' && bad[i][1] == '\n' ? "a b" : bad[i]);
        assert_non_null(strstr(hoop_thread_error(), entry));
    }
}

static void test_settings_strings(void **state)
{
    (void)state;
    struct reports reports = {0};
    struct hoop_settings s;
    char file[] = "HOOP_DEBUG_FILE=a";
    char again[] = "HOOP_DEBUG_FILE=b";
    char subsys[] = "HOOP_DEBUG_SUBSYS=";
    char secret[] = "HOOP_SECRET=";
    char no_value[] = "HOOP_NOTHING";
    char *env[] = {no_value, file, again, subsys, secret, NULL};
    hoop_settings_parse(env, &s, keep_report, &reports);
    assert_int_equal(reports.count, 0);
    memset(file, 'x', sizeof(file) - 1);
    assert_string_equal(s.debug_file, "a");
    assert_null(s.debug_subsys);
    assert_string_equal(s.secret, "");
    hoop_settings_finish(&s);
    assert_null(s.debug_file);
}

static void test_settings_unknown(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"HOOP_LANE=xyzzy", "did you mean HOOP_LANES?"},
        {"HOOP_ALGOS=xyzzy", "did you mean HOOP_ALGO?"},
        {"HOOP_CHUNKBYTE=xyzzy", "did you mean HOOP_CHUNK_BYTES?"},
        {"HOOP_debug=xyzzy", "lists them"},
        {"HOOP_SOMETHING_ELSE=xyzzy", "HOOP_SOMETHING_ELSE is not a setting of hoop; `hoopinfo"},
        {"HOOP_=xyzzy", "HOOP_ is not a setting of hoop"},
        {"HOOP_TEST_X=xyzzy", NULL},
        {"HOOPLA=xyzzy", NULL},
        {"hoop_lanes=xyzzy", NULL},
    };
    struct hoop_settings s;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char entry[64];
        snprintf(entry, sizeof(entry), "%s", cases[i][0]);
        const struct reports reports = parse_one(entry, &s);
        assert_int_equal(reports.count, cases[i][1] != NULL);
        assert_null(strstr(reports.last, "xyzzy"));
        if (cases[i][1] != NULL) {
            assert_non_null(strstr(reports.last, cases[i][1]));
        }
        hoop_settings_finish(&s);
    }
    static char huge[100000] = "HOOP_";
    memset(huge + 5, 'A', sizeof(huge) - 8);
    memcpy(huge + sizeof(huge) - 3, "=1", 3);
    assert_int_equal(parse_one(huge, &s).count, 1);
    hoop_settings_finish(&s);
}

static void test_settings_next(void **state)
{
    (void)state;
    size_t cursor = 0;
    size_t count = 0;
    hoop_setting_t s;
    while (hoop_settings_next(&cursor, &s) == HOOP_OK) {
        count++;
        assert_int_equal(cursor, count);
        assert_int_equal(strncmp(s.name, "HOOP_", 5), 0);
        assert_true(s.text[0] != '\0' && s.range[0] != '\0');
        assert_string_equal(s.value, s.preset);
        assert_string_equal(s.origin, "default");
    }
#define COUNT_NUMBER(field, variable, preset, least, most, text) count--;
#define COUNT_CHOICE(field, variable, preset, choices, text) count--;
#define COUNT_STRING(field, variable, text) count--;
    HOOP_SETTINGS(COUNT_NUMBER, COUNT_CHOICE, COUNT_STRING, COUNT_STRING)
    assert_int_equal(count, 0);
    const size_t end = cursor;
    assert_int_equal(hoop_settings_next(&cursor, &s), HOOP_INVALID_ARGUMENT);
    assert_int_equal(cursor, end);
}

int main(void)
{
#define CLEAR_NUMBER(field, variable, preset, least, most, text) unsetenv(variable);
#define CLEAR_CHOICE(field, variable, preset, choices, text) unsetenv(variable);
#define CLEAR_STRING(field, variable, text) unsetenv(variable);
    HOOP_SETTINGS(CLEAR_NUMBER, CLEAR_CHOICE, CLEAR_STRING, CLEAR_STRING)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_defaults),
        cmocka_unit_test(test_settings_numbers),
        cmocka_unit_test(test_settings_suffix_is_for_bytes),
        cmocka_unit_test(test_settings_local_size),
        cmocka_unit_test(test_settings_choices),
        cmocka_unit_test(test_settings_check),
        cmocka_unit_test(test_settings_strings),
        cmocka_unit_test(test_settings_unknown),
        cmocka_unit_test(test_settings_next),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}

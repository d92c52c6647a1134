/*
 * lib/base: the JSON writer. Every text is written into buffers of every size, so that each cut
 * falls everywhere; the byte behind each buffer must stay.
 */
#include "inspect/json.h"
#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef void (*write_fn_t)(struct hoop_json *json);

static void assert_json(write_fn_t write, const char *expected)
{
    const size_t needed = strlen(expected) + 1;
    for (size_t bytes = 0; bytes <= needed + 1; bytes++) {
        char *buf = test_malloc(bytes + 1);
        memset(buf, 'Z', bytes + 1);
        struct hoop_json json;
        size_t told = 0;
        hoop_json_init(&json, bytes > 0 ? buf : NULL, bytes);
        write(&json);
        const hoop_result_t rc = hoop_json_finish(&json, &told);
        assert_int_equal(told, needed);
        assert_int_equal(rc, bytes >= needed ? HOOP_OK : HOOP_INVALID_ARGUMENT);
        if (bytes > 0) {
            assert_string_equal(buf, bytes >= needed ? expected : "");
        }
        assert_int_equal(buf[bytes], 'Z');
        test_free(buf);
    }
}

static void write_nothing(struct hoop_json *json)
{
    (void)json;
}

static void write_nested(struct hoop_json *json)
{
    hoop_json_object(json);
    hoop_json_key(json, "ranks");
    hoop_json_int(json, -4);
    hoop_json_key(json, "lanes");
    hoop_json_array(json);
    hoop_json_array(json);
    hoop_json_array_end(json);
    hoop_json_object(json);
    hoop_json_key(json, "on");
    hoop_json_bool(json, true);
    hoop_json_object_end(json);
    hoop_json_bool(json, false);
    hoop_json_string(json, NULL);
    hoop_json_array_end(json);
    hoop_json_key(json, "last \"one\"");
    hoop_json_object(json);
    hoop_json_object_end(json);
    hoop_json_object_end(json);
}

static void write_numbers(struct hoop_json *json)
{
    static const double values[] = {0.0,     -0.0,   0.1,         1.0 / 3, 1e300,
                                    DBL_MIN, 5e-324, 123456789.0, NAN,     INFINITY};
    hoop_json_array(json);
    hoop_json_int(json, INT64_MIN);
    hoop_json_int(json, INT64_MAX);
    hoop_json_uint(json, UINT64_MAX);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        hoop_json_double(json, values[i]);
    }
    hoop_json_array_end(json);
}

static const char numbers_text[] =
    "[-9223372036854775808,9223372036854775807,18446744073709551615,0,-0,0.1,0.3333333333333333,"
    "1e+300,2.2250738585072014e-308,4.94065645841247e-324,123456789,null,null]";

static void write_escapes(struct hoop_json *json)
{
    hoop_json_string(json, "\"\\/\b\f\n\r\t\x01\x1f\x7f");
}

static void write_utf8(struct hoop_json *json)
{
    hoop_json_array(json);
    hoop_json_string(json, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xa7\xed\x9f\xbf\xf4\x8f\xbf\xbf");
    hoop_json_string(json, "a\xff"
                           "b\x80");                /* no lead */
    hoop_json_string(json, "\xc0\xaf\xe0\x80\x80"); /* longer than needed */
    hoop_json_string(json, "\xed\xa0\x80");         /* a surrogate */
    hoop_json_string(json, "\xf4\x90\x80\x80");     /* above U+10FFFF */
    hoop_json_string(json, "\xf0\x9f\x90");         /* ends too early */
    hoop_json_string(json, "\xe2\x82"
                           "\"");
    hoop_json_array_end(json);
}

#define BAD "\xef\xbf\xbd"

static void test_json_structure(void **state)
{
    (void)state;
    assert_json(write_nothing, "");
    assert_json(write_nested, "{\"ranks\":-4,\"lanes\":[[],{\"on\":true},false,null],"
                              "\"last \\\"one\\\"\":{}}");
}

static void test_json_strings(void **state)
{
    (void)state;
    assert_json(write_escapes, "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"");
    assert_json(write_utf8, "[\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xa7\xed\x9f\xbf\xf4\x8f\xbf\xbf\","
                            "\"a" BAD "b" BAD "\",\"" BAD BAD BAD BAD BAD "\","
                            "\"" BAD BAD BAD "\",\"" BAD BAD BAD BAD "\","
                            "\"" BAD BAD BAD "\",\"" BAD BAD "\\\"\"]");
}

static void test_json_numbers(void **state)
{
    (void)state;
    assert_json(write_numbers, numbers_text);
}

/* A program's locale must not put a comma into a number. Where no such locale is installed, the
 * test says so and passes: there is nothing to see. */
static void test_json_locale(void **state)
{
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL && setlocale(LC_NUMERIC, "de_DE") == NULL) {
        print_message("no locale with a decimal comma here\n");
        return;
    }
    assert_json(write_numbers, numbers_text);
    setlocale(LC_NUMERIC, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_structure),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_numbers),
        cmocka_unit_test(test_json_locale),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}

/*
 * lib/inspect: the JSON writer. Every text is written to buffers of every size, so that it is cut
 * at every place; the byte behind each buffer must stay unchanged.
 */
#include "inspect/json.h"
#include <setjmp.h>
#include <stdarg.h>
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
    hoop_json_object(json, NULL);
    hoop_json_int(json, "ranks", -4);
    hoop_json_array(json, "lanes");
    hoop_json_array(json, NULL);
    hoop_json_array_end(json);
    hoop_json_object(json, NULL);
    hoop_json_bool(json, "on", true);
    hoop_json_object_end(json);
    hoop_json_bool(json, NULL, false);
    hoop_json_string(json, NULL, NULL);
    hoop_json_array_end(json);
    hoop_json_object(json, "last \"one\"");
    hoop_json_object_end(json);
    hoop_json_object_end(json);
}

static void write_numbers(struct hoop_json *json)
{
    hoop_json_array(json, NULL);
    hoop_json_int(json, NULL, INT64_MIN);
    hoop_json_int(json, NULL, INT64_MAX);
    hoop_json_uint(json, NULL, UINT64_MAX);
    hoop_json_array_end(json);
}

static const char numbers_text[] =
    "[-9223372036854775808,9223372036854775807,18446744073709551615]";

static void write_escapes(struct hoop_json *json)
{
    hoop_json_string(json, NULL, "\"\\/\b\f\n\r\t\x01\x1f\x7f");
}

static void write_utf8(struct hoop_json *json)
{
    hoop_json_array(json, NULL);
    hoop_json_string(json, NULL,
                     "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xa7\xed\x9f\xbf\xf4\x8f\xbf\xbf");
    hoop_json_string(json, NULL,
                     "a\xff"
                     "b\x80");                            /* not a lead byte */
    hoop_json_string(json, NULL, "\xc0\xaf\xe0\x80\x80"); /* longer than necessary */
    hoop_json_string(json, NULL, "\xed\xa0\x80");         /* a surrogate */
    hoop_json_string(json, NULL, "\xf4\x90\x80\x80");     /* above U+10FFFF */
    hoop_json_string(json, NULL, "\xf0\x9f\x90");         /* ends too early */
    hoop_json_string(json, NULL,
                     "\xe2\x82"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_structure),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_numbers),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}

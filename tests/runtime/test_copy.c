/* Copies that bypass the caches, or are done by string instructions, write the bytes that memcpy()
 * would, and no others, at every offset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/copy.h"

#include <stdlib.h>

#define ROOM 1024u

static uint8_t from[ROOM], to[ROOM], expected[ROOM];

static void copy(size_t to_off, size_t from_off, size_t bytes)
{
    memset(to, 0xee, ROOM);
    memset(expected, 0xee, ROOM);
    memcpy(expected + to_off, from + from_off, bytes);
    hoop_copy_past(to + to_off, from + from_off, bytes);
    assert_memory_equal(to, expected, ROOM);
    memset(to + to_off, 0xee, bytes);
    hoop_copy_string(to + to_off, from + from_off, bytes);
    assert_memory_equal(to, expected, ROOM);
    memset(to + to_off, 0xee, bytes);
    hoop_copy(to + to_off, from + from_off, bytes, false);
    assert_memory_equal(to, expected, ROOM);
}

static void test_offsets(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROOM; i++) {
        from[i] = (uint8_t)(i * 37 + i / 256);
    }
    for (size_t to_off = 0; to_off < 66; to_off++) {
        for (size_t bytes = 0; bytes < 200; bytes++) {
            copy(to_off, bytes % 67, bytes);
        }
    }
    copy(1, 0, ROOM - 1);
    copy(0, 1, ROOM - 1);
}

static void test_large(void **state)
{
    (void)state;
    const size_t bytes = ((size_t)3 << 20) + 5;
    uint8_t *source = malloc(bytes + 3), *target = malloc(bytes + 7);
    assert_true(source != NULL && target != NULL);
    for (size_t i = 0; i < bytes; i++) {
        source[3 + i] = (uint8_t)(i >> 3);
    }
    hoop_copy_past(target + 7, source + 3, bytes);
    assert_memory_equal(target + 7, source + 3, bytes);
    memset(target, 0, bytes + 7);
    hoop_copy_string(target + 7, source + 3, bytes);
    assert_memory_equal(target + 7, source + 3, bytes);
    free(source);
    free(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}

/* lib/base: lists, and other small things: deadlines, hexadecimal digits. */
#include "base/clock.h"
#include "base/crypto.h"
#include "base/list.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define THINGS 4

struct thing {
    int number;
    struct hoop_list_node node;
};

static struct hoop_list_node list_static = HOOP_LIST_EMPTY(list_static);

/* The numbers in the list as decimal digits. */
static int sequence(const struct hoop_list_node *list)
{
    int digits = 0;
    HOOP_LIST_EACH(const struct thing, thing, list, node) {
        digits = digits * 10 + thing->number;
    }
    return digits;
}

static void test_list_order(void **state)
{
    (void)state;
    struct thing things[THINGS] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    struct hoop_list_node list;
    hoop_list_init(&list);
    assert_true(hoop_list_is_empty(&list));
    assert_true(hoop_list_is_empty(&list_static));
    assert_null(hoop_list_first(&list));
    hoop_list_push_back(&list, &things[0].node);
    hoop_list_push_back(&list, &things[1].node);
    hoop_list_insert(&things[1].node, &things[2].node);
    assert_int_equal(sequence(&list), 132);
    assert_int_equal(HOOP_CONTAINER_OF(hoop_list_first(&list), struct thing, node)->number, 1);
    hoop_list_insert(list.next, &things[3].node);
    assert_int_equal(sequence(&list), 4132);
}

static void test_list_remove(void **state)
{
    (void)state;
    struct thing things[THINGS] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    struct hoop_list_node list;
    hoop_list_init(&list);
    hoop_list_remove(&things[0].node); /* was never in a list */
    for (int i = 0; i < THINGS; i++) {
        hoop_list_push_back(&list, &things[i].node);
        assert_true(hoop_list_is_linked(&things[i].node));
    }
    hoop_list_remove(&things[2].node);
    hoop_list_remove(&things[2].node);
    assert_false(hoop_list_is_linked(&things[2].node));
    assert_int_equal(sequence(&list), 124);
    hoop_list_push_back(&list, &things[2].node);
    assert_int_equal(sequence(&list), 1243);
}

static void test_list_remove_on_the_way(void **state)
{
    (void)state;
    for (int gone = 0; gone < 1 << THINGS; gone++) {
        struct hoop_list_node list;
        int expected = 0;
        hoop_list_init(&list);
        for (int i = 0; i < THINGS; i++) {
            struct thing *thing = calloc(1, sizeof(*thing));
            thing->number = i + 1;
            hoop_list_push_back(&list, &thing->node);
            expected = (gone >> i & 1) != 0 ? expected : expected * 10 + i + 1;
        }
        HOOP_LIST_EACH(struct thing, thing, &list, node) {
            if ((gone >> (thing->number - 1) & 1) != 0) {
                hoop_list_remove(&thing->node);
                free(thing);
            }
        }
        assert_int_equal(sequence(&list), expected);
        HOOP_LIST_EACH(struct thing, thing, &list, node) {
            hoop_list_remove(&thing->node);
            free(thing);
        }
        assert_true(hoop_list_is_empty(&list));
    }
}

static void test_left(void **state)
{
    (void)state;
    const uint64_t now = hoop_now_ns();
    assert_int_equal(hoop_left_ms(0), 0);
    assert_int_equal(hoop_left_ms(now), 0);
    const uint64_t left = hoop_left_ms(now + 60 * HOOP_NS_PER_S);
    assert_true(left <= 60000 && left > 30000);
    /* rounded up, so that a timer of so many milliseconds does not end early */
    uint64_t deadline = 0;
    uint64_t ms = 0;
    do {
        deadline = hoop_now_ns() + HOOP_NS_PER_MS / 2;
        ms = hoop_left_ms(deadline);
    } while (hoop_now_ns() >= deadline);
    assert_int_equal(ms, 1);
    assert_true(hoop_left_ms(HOOP_NEVER) > 86400000ull);
}

static void test_hex(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {0x00, 0x09, 0x1a, 0xff};
    char text[2 * sizeof(bytes) + 1];
    hoop_hex_format(bytes, sizeof(bytes), text);
    assert_string_equal(text, "00091aff");
    hoop_hex_format(bytes, 0, text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_order),
        cmocka_unit_test(test_list_remove),
        cmocka_unit_test(test_list_remove_on_the_way),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_hex),
    };
    return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}

/* Which stores copy to others: all ranks time the same calls, and each follows what it heard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cost/copies.h"

#include <string.h>

static struct hoop_copies copies;

static struct hoop_copies_row *row_of(uint64_t bytes)
{
    return hoop_copies_row(&copies, HOOP_COLL_GATHER, bytes);
}

struct count {
    uint32_t past, timed;
};

/* So many calls, which take one time with ordinary stores and another without. */
static struct count run(struct hoop_copies_row *row, uint32_t around, uint32_t calls,
                        uint64_t plain, uint64_t past)
{
    struct count ret = {0};
    for (uint32_t i = 0; i < calls; i++) {
        bool timed = false;
        const bool by = hoop_copies_next(row, around, &timed);
        if (timed) {
            hoop_copies_add(row, by, by ? past : plain);
        }
        ret.past += by;
        ret.timed += timed;
    }
    return ret;
}

static int forget(void **state)
{
    (void)state;
    memset(&copies, 0, sizeof(copies));
    return 0;
}

/* First a round by either; then the faster; and a round by either in each period. */
static void test_rounds(void **state)
{
    (void)state;
    for (uint32_t around = 1; around <= 32; around *= 2) {
        forget(NULL);
        struct hoop_copies_row *row = row_of(8192);
        assert_int_equal(run(row, around, around, 9000, 1000).past, 0);
        assert_int_equal(run(row, around, around, 9000, 1000).past, around);
        assert_int_equal(run(row, around, 62 * around, 9000, 1000).past, 62 * around);
        assert_int_equal(run(row, around, 64 * around, 9000, 1000).past, 63 * around);
        assert_int_equal(run(row, around, 64 * around, 1000, 9000).timed, 2);
        assert_int_equal(run(row, around, 64 * around, 1000, 9000).past, around);
    }
}

/* When a call is timed, and how, does not depend on what was heard: so all ranks time the same. */
static void test_together(void **state)
{
    (void)state;
    struct hoop_copies_row one = {0}, other = {0};
    for (uint32_t i = 0; i < 5000; i++) {
        bool timed = false, too = false;
        const bool by = hoop_copies_next(&one, 5, &timed),
                   by_too = hoop_copies_next(&other, 5, &too);
        assert_int_equal(timed, too);
        if (timed) {
            assert_int_equal(by, by_too);
            hoop_copies_add(&one, by, by ? 1000 : 2000);
            hoop_copies_add(&other, by, by ? 2000 : i);
        }
    }
}

/* One call that took long changes little, a machine that has changed all. */
static void test_change(void **state)
{
    (void)state;
    struct hoop_copies_row *row = row_of(65536);
    assert_true(run(row, 1, 1000, 9000, 1000).past > 900);
    hoop_copies_add(row, true, UINT64_MAX);
    assert_true(run(row, 1, 640, 9000, 1000).past > 600);
    assert_true(run(row, 1, 2000, 1000, 9000).past < 500);
    assert_true(run(row, 1, 640, 1000, 9000).past < 20);
}

static void test_apart(void **state)
{
    (void)state;
    assert_ptr_equal(row_of(8192), row_of(16383));
    assert_ptr_not_equal(row_of(8192), row_of(16384));
    assert_ptr_not_equal(row_of(8192), hoop_copies_row(&copies, HOOP_COLL_SCATTER, 8192));
    const struct hoop_copies_row *end = &copies.rows[HOOP_COLL_GATHER][HOOP_COPIES_SIZES];
    for (uint64_t bytes = HOOP_COPIES_LEAST; bytes != 0; bytes <<= 1) {
        assert_true(row_of(bytes) < end);
    }
    assert_ptr_equal(row_of(UINT64_MAX), end - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_rounds, forget),
        cmocka_unit_test_setup(test_together, forget),
        cmocka_unit_test_setup(test_change, forget),
        cmocka_unit_test_setup(test_apart, forget),
    };
    return cmocka_run_group_tests_name("copies", tests, NULL, NULL);
}

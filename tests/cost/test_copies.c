/* Which kind of stores copies to others: all ranks time the same calls, and each follows the times
 * that it has heard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cost/copies.h"

#include <string.h>

static struct hoop_copies copies;

static struct hoop_copies_row *row_of(uint64_t bytes)
{
    return &copies.rows[HOOP_COLL_GATHER][hoop_copies_size(bytes)];
}

#define BOTH (1u << HOOP_COPY_ORDINARY | 1u << HOOP_COPY_NONTEMPORAL)
#define ALL (BOTH | 1u << HOOP_COPY_READ)

struct count {
    uint32_t how[HOOP_COPY_COUNT], past, timed;
};

/* Makes so many calls, which take ns[] in each way. 0: the time of that way is never told. */
static struct count run_ways(struct hoop_copies_row *row, uint32_t around, uint32_t calls,
                             uint32_t may, const uint64_t ns[HOOP_COPY_COUNT])
{
    struct count ret = {0};
    for (uint32_t i = 0; i < calls; i++) {
        bool timed = false;
        const enum hoop_copy how = hoop_copies_next(row, around, may, &timed);
        if (timed && ns[how] > 0) {
            hoop_copies_add(row, how, ns[how]);
        }
        assert_true((may >> how & 1) != 0);
        ret.how[how]++;
        ret.timed += timed;
    }
    ret.past = ret.how[HOOP_COPY_NONTEMPORAL];
    return ret;
}

static struct count run(struct hoop_copies_row *row, uint32_t around, uint32_t calls,
                        uint64_t plain, uint64_t past)
{
    return run_ways(row, around, calls, BOTH, (uint64_t[HOOP_COPY_COUNT]){plain, past});
}

static int forget(void **state)
{
    (void)state;
    memset(&copies, 0, sizeof(copies));
    return 0;
}

/* First a round without timing and one in each way, then the faster way, and in each period one
 * more round in each way. */
static void test_rounds(void **state)
{
    (void)state;
    for (uint32_t around = 1; around <= 32; around *= 2) {
        forget(NULL);
        struct hoop_copies_row *row = row_of(8192);
        assert_int_equal(run(row, around, around, 9000, 1000).timed, 0);
        assert_int_equal(run(row, around, around, 9000, 1000).past, 0);
        assert_int_equal(run(row, around, around, 9000, 1000).past, around);
        assert_int_equal(run(row, around, 61 * around, 9000, 1000).past, 61 * around);
        assert_int_equal(run(row, around, 64 * around, 9000, 1000).past, 63 * around);
        assert_int_equal(run(row, around, 64 * around, 1000, 9000).timed, 2);
        assert_int_equal(run(row, around, 64 * around, 1000, 9000).past, around);
    }
}

/* A call that tries a way, and the first that only touch the memory, are said to be no measure. */
static void test_tries(void **state)
{
    (void)state;
    struct hoop_copies_row *row = row_of(8192);
    uint32_t tries = 0;
    for (uint32_t i = 0; i < 64 * 4; i++) {
        const bool past = run(row, 4, 1, 1000, 9000).past > 0;
        assert_true(!past || row->tries);
        tries += row->tries;
    }
    assert_int_equal(tries, 3 * 4);
}

/* When a call is timed, and how, does not depend on what was heard: so all ranks time the same. */
static void test_together(void **state)
{
    (void)state;
    struct hoop_copies_row one = {0}, other = {0};
    for (uint32_t i = 0; i < 5000; i++) {
        bool timed = false, too = false;
        const enum hoop_copy by = hoop_copies_next(&one, 5, BOTH, &timed),
                             by_too = hoop_copies_next(&other, 5, BOTH, &too);
        assert_int_equal(timed, too);
        if (timed) {
            assert_int_equal(by, by_too);
            const bool past = by == HOOP_COPY_NONTEMPORAL;
            hoop_copies_add(&one, by, past ? 1000 : 2000);
            hoop_copies_add(&other, by, past ? 2000 : i);
        }
    }
}

/* One call that took long changes little; a machine that has become different changes the
 * choice. */
static void test_change(void **state)
{
    (void)state;
    struct hoop_copies_row *row = row_of(65536);
    assert_true(run(row, 1, 1000, 9000, 1000).past > 900);
    hoop_copies_add(row, HOOP_COPY_NONTEMPORAL, UINT64_MAX);
    assert_true(run(row, 1, 640, 9000, 1000).past > 600);
    assert_true(run(row, 1, 2000, 1000, 9000).past < 500);
    assert_true(run(row, 1, 640, 1000, 9000).past < 20);
}

/* With three ways, and with one. A way whose time is never told is only used for trials. */
static void test_ways(void **state)
{
    (void)state;
    for (uint32_t best = 0; best < HOOP_COPY_COUNT; best++) {
        for (uint32_t around = 1; around <= 5; around++) {
            struct hoop_copies_row row = {0};
            uint64_t ns[HOOP_COPY_COUNT] = {3000, 3000, 3000};
            ns[best] = 1000;
            const struct count first = run_ways(&row, around, 4 * around, ALL, ns);
            assert_int_equal(first.timed, 3);
            assert_int_equal(first.how[best], (best == 0 ? 2 : 1) * around);
            assert_int_equal(run_ways(&row, around, 60 * around, ALL, ns).how[best], 60 * around);
            const struct count later = run_ways(&row, around, 640 * around, ALL, ns);
            assert_int_equal(later.how[best], 630 * around);
            assert_int_equal(later.timed, 15);
        }
    }
    struct hoop_copies_row row = {0}, one = {0};
    const uint64_t unread[HOOP_COPY_COUNT] = {3000, 5000, 0};
    assert_int_equal(run_ways(&row, 1, 64, ALL, unread).how[HOOP_COPY_READ], 1);
    assert_int_equal(run_ways(&one, 2, 100, 1u << HOOP_COPY_READ, unread).how[HOOP_COPY_READ], 100);
}

/* A rank that times alone begins with the first way, and takes the least of the times of that. */
static void test_alone_warm(void **state)
{
    (void)state;
    for (uint32_t warm = 1; warm <= 50; warm++) {
        struct hoop_copies_row row = {.warm = warm};
        const uint32_t first = 3 + (warm > 3 ? warm : 3);
        assert_int_equal(run(&row, 3, first - 3, 90000, 20000).past, 0);
        assert_int_equal(run(&row, 3, 3, 10000, 20000).past, 0);
        assert_int_equal(run(&row, 3, 3, 10000, 20000).past, 3);
        assert_int_equal(run(&row, 3, 45, 10000, 20000).past, 0);
    }
}

/* A way that is slower is tried the more seldom the slower it is: all tries together cost at most a
 * fiftieth of the time. */
static void test_alone_cost(void **state)
{
    (void)state;
    uint32_t before = UINT32_MAX;
    for (uint64_t slow = 1100; slow <= 5000; slow += 100) {
        struct hoop_copies_row row = {.warm = 48};
        const uint64_t ns[HOOP_COPY_COUNT] = {1000, slow, slow};
        assert_int_equal(run_ways(&row, 3, 57, ALL, ns).how[HOOP_COPY_READ], 3);
        const struct count count = run_ways(&row, 3, 100000, ALL, ns);
        const uint32_t tries = count.past + count.how[HOOP_COPY_READ];
        assert_true(tries > 0 && tries <= before && tries * (slow - 1000) <= 100000 * 1000 / 50);
        assert_true(count.timed * 3 - tries > 1500);
        before = tries;
    }
}

/* The best way has become slower, which shows soon; or another has become faster, which shows when
 * it is tried again. */
static void test_alone_change(void **state)
{
    (void)state;
    for (uint64_t slow = 1100; slow <= 10000; slow += 100) {
        struct hoop_copies_row row = {.warm = 48};
        run(&row, 3, 10000, 1000, slow);
        assert_true(run(&row, 3, 10000, 10 * slow, slow).past >= 10000 - 3 * 64 * 8);
        run(&row, 3, 10000, 1000, slow);
        assert_true(run(&row, 3, 10000, 1000, 500).past >= 10000 - 3 * 550);
    }
}

/* The first times were wrong, of ways that are near to each other: not for long. */
static void test_alone_wrong(void **state)
{
    (void)state;
    struct hoop_copies_row row = {.warm = 48};
    assert_int_equal(run(&row, 3, 54, 1100, 1000).past, 3);
    assert_true(run(&row, 3, 1000, 500, 1000).past <= 3 * 128);
}

static void test_apart(void **state)
{
    (void)state;
    assert_ptr_equal(row_of(8192), row_of(16383));
    assert_ptr_not_equal(row_of(8192), row_of(16384));
    const struct hoop_copies_row *end = &copies.rows[HOOP_COLL_GATHER][HOOP_COPIES_SIZES];
    for (uint64_t bytes = HOOP_COPIES_LEAST; bytes != 0; bytes <<= 1) {
        assert_true(row_of(bytes) < end);
    }
    assert_ptr_equal(row_of(UINT64_MAX), end - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_rounds, forget), cmocka_unit_test_setup(test_together, forget),
        cmocka_unit_test_setup(test_change, forget), cmocka_unit_test_setup(test_ways, forget),
        cmocka_unit_test_setup(test_apart, forget),  cmocka_unit_test_setup(test_tries, forget),
        cmocka_unit_test(test_alone_warm),           cmocka_unit_test(test_alone_cost),
        cmocka_unit_test(test_alone_change),         cmocka_unit_test(test_alone_wrong),
    };
    return cmocka_run_group_tests_name("copies", tests, NULL, NULL);
}

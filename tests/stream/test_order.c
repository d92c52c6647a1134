/* Work that is sorted into parts: which keeps each comm's order (stream/batch.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "stream/batch.h"

#define MOST 5u           /* calls, */
#define KINDS ((size_t)3) /* comms, and parts: all combinations are tried */
#define MANY ((size_t)1 << 19)

/* Only addresses count: there is no comm. */
static struct hoop_comm *comm_at(size_t i)
{
    return (struct hoop_comm *)(uintptr_t)(4096 * (i + 1));
}

static bool keeps(const struct hoop_work *work, const size_t *part, size_t count)
{
    bool does = true;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            does &= work[i].comm != work[j].comm || part[i] == part[j];
        }
    }
    return does;
}

static void test_all(void **state)
{
    (void)state;
    struct hoop_work work[MOST] = {{.comm = NULL}};
    size_t part[MOST] = {0}, all = 1;
    for (size_t count = 0; count <= MOST; count++, all *= KINDS * KINDS) {
        for (size_t at = 0; at < all; at++) {
            size_t left = at;
            for (size_t i = 0; i < count; i++, left /= KINDS * KINDS) {
                work[i].comm = comm_at(left % KINDS);
                part[i] = left / KINDS % KINDS;
            }
            assert_int_equal(hoop_work_keeps_order(work, part, count), keeps(work, part, count));
        }
    }
}

/* Half a million calls, of as many comms or of one: each with each would take a minute. */
static void test_many(void **state)
{
    (void)state;
    static struct hoop_work work[MANY];
    static size_t part[MANY];
    const uint64_t began_ns = hoop_now_ns();
    for (size_t i = 0; i < MANY; i++) {
        work[i].comm = comm_at(i);
        part[i] = i % KINDS;
    }
    assert_true(hoop_work_keeps_order(work, part, MANY));
    work[MANY - 1].comm = comm_at(0);
    assert_int_equal(hoop_work_keeps_order(work, part, MANY), (MANY - 1) % KINDS == 0);
    part[MANY - 1] = 1;
    assert_false(hoop_work_keeps_order(work, part, MANY));
    for (size_t i = 0; i < MANY; i++) {
        work[i].comm = comm_at(0);
        part[i] = 2;
    }
    assert_true(hoop_work_keeps_order(work, part, MANY));
    assert_true(hoop_now_ns() - began_ns < 5 * HOOP_NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

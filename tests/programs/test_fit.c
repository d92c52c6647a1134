/* The fit of hoopinfo --calibrate: from times that follow the model it recovers the constants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "hoopinfo/fit.h"

/* noise: relative, added to every second time. */
static bool solve(const struct fit *from, double noise, bool crowded, struct fit *ret)
{
    double ns[FIT_ALGOS][FIT_SIZES];
    for (size_t i = 0; i < FIT_SIZES; i++) {
        const double kib = (double)fit_kib[i], more = i % 2 == 0 ? 1.0 : 1.0 + noise;
        const double n = from->ranks, gets = from->moved + (n - 1.0) * from->read;
        const double gives = 2.0 * (n - 1.0) / n * from->moved;
        ns[FIT_ONESHOT][i] = more * (from->sync + (from->moved + n * from->folded) * kib);
        ns[FIT_SLAB][i] = more * (3.0 * from->barrier + (gives + from->folded) * kib);
        ns[FIT_CMA][i] = from->read == 0.0
                             ? 0.0
                             : more * (2.0 * from->barrier + (n - 1.0) * from->call + gets * kib);
    }
    return fit_solve(ns, from->ranks, crowded, ret);
}

static void check(double is, double expected, double part)
{
    if (is < expected * (1.0 - part) || is > expected * (1.0 + part)) {
        fail_msg("%g, expected %g", is, expected);
    }
}

static void test_constants_come_back(void **state)
{
    (void)state;
    static const struct fit from[] = {{2, 100.0, 230.0, 3.0, 19.0, 600.0, 50.0},
                                      {2, 100.0, 230.0, 3.0, 19.0, 0.0, 0.0},
                                      {3, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0},
                                      {8, 900.0, 4000.0, 500.0, 2.0, 19000.0, 900.0},
                                      {4, 9000.0, 12000.0, 14.0, 900.0, 3.0, 7.0}};
    for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        struct fit fit;
        assert_true(solve(&from[i], 0.0, false, &fit));
        assert_int_equal(fit.ranks, from[i].ranks);
        check(fit.sync, from[i].sync, 1e-6);
        check(fit.barrier, from[i].barrier, 1e-6);
        check(fit.moved, from[i].moved, 1e-6);
        check(fit.folded, from[i].folded, 1e-6);
        check(fit.call, from[i].call, 1e-6);
        check(fit.read, from[i].read, 1e-6);
    }
}

/* With noise, the two lines still cross at about the same place. */
static void test_noise(void **state)
{
    (void)state;
    const struct fit from = {2, 100.0, 230.0, 3.0, 19.0, 600.0, 50.0};
    struct fit fit;
    assert_true(solve(&from, 0.1, false, &fit));
    const double meet = (3.0 * fit.barrier - fit.sync) / fit.folded;
    check(meet, (3.0 * 230.0 - 100.0) / 19.0, 0.25);
}

/* A constant that would be negative becomes the least that a profile may hold. */
static void test_least(void **state)
{
    (void)state;
    double flat[FIT_ALGOS][FIT_SIZES] = {
        {10.0, 300.0, 1500.0, 6400.0}, {5.0, 4.0, 3.0, 2.0}, {9.0, 6.0, 4.0, 1.0}};
    struct fit fit;
    assert_true(fit_solve(flat, 2, false, &fit));
    assert_true(fit.sync >= 1.0 && fit.barrier >= 1.0 && fit.moved >= 1.0 && fit.folded >= 1.0);
    assert_true(fit.call >= 1.0 && fit.read >= 1.0);
    double steep[FIT_ALGOS][FIT_SIZES] = {{5.0, 4.0, 3.0, 2.0}, {10.0, 300.0, 1500.0, 6400.0}};
    assert_true(fit_solve(steep, 2, false, &fit));
    assert_true(fit.sync >= 1.0 && fit.barrier >= 1.0 && fit.moved >= 1.0 && fit.folded >= 1.0);
}

static void test_busy_machine(void **state)
{
    (void)state;
    const struct fit slow = {2, 100.0, 50000.0, 3.0, 19.0, 0.0, 0.0};
    const struct fit slower = {4, 100.0, 2e6, 3.0, 19.0, 0.0, 0.0};
    const struct fit narrow = {2, 100.0, 230.0, 3.0, 5000.0, 0.0, 0.0};
    const struct fit calls = {2, 100.0, 230.0, 3.0, 19.0, 5e5, 3.0};
    const struct fit reads = {2, 100.0, 230.0, 3.0, 19.0, 600.0, 5000.0};
    struct fit fit;
    assert_false(solve(&slow, 0.0, false, &fit));
    assert_true(solve(&slow, 0.0, true, &fit));
    assert_false(solve(&slower, 0.0, true, &fit));
    assert_false(solve(&narrow, 0.0, false, &fit));
    assert_false(solve(&calls, 0.0, false, &fit));
    assert_true(solve(&calls, 0.0, true, &fit));
    assert_false(solve(&reads, 0.0, false, &fit));
}

/* Follows the latencies for both numbers of ranks, if they grow; never below zero. */
static void test_growth(void **state)
{
    (void)state;
    const struct fit few = {4, 3000.0, 9000.0, 3.0, 19.0, 600.0, 50.0};
    const struct fit many = {8, 5000.0, 90000.0, 1.0, 1.0, 1.0, 1.0};
    const struct fit none = {.ranks = 0}, less = {8, 1000.0, 9000.0, 1.0, 1.0, 1.0, 1.0};
    struct constants got = fit_constants(&few, &many);
    assert_true(got.measured);
    check(got.sync_per, 500.0, 1e-9);
    check(got.sync, 2000.0, 1e-9);
    check(got.barrier + 2.0 * got.barrier_per, 9000.0, 1e-9); /* not -31500 for two ranks */
    check(got.barrier, 1.0, 1e-9);
    check(got.folded, 19.0, 1e-9);
    check(got.call, 600.0, 1e-9);
    check(got.read, 50.0, 1e-9);
    got = fit_constants(&few, &less);
    check(got.sync, 3000.0, 1e-9);
    assert_true(got.sync_per == 0.0);
    got = fit_constants(&few, &none);
    check(got.sync, 1000.0, 1e-9);
    check(got.sync_per, 1000.0, 1e-9);
    assert_false(fit_constants(&none, &none).measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constants_come_back),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_least),
        cmocka_unit_test(test_busy_machine),
        cmocka_unit_test(test_growth),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}

/* Which CPUs ranks get with --bind-to core, on machines that this test describes. */
#include "hooprun/hooprun_cpus.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CPUS 16

/* Two packages of four cores with two threads each, numbered as Linux often does: first the first
 * threads of all cores, alternating between the packages. */
static struct hooprun_cpus a_machine(void)
{
    static struct hooprun_cpu all[CPUS];
    struct hooprun_cpus cpus = {.all = all, .count = CPUS};
    for (int cpu = 0; cpu < CPUS; cpu++) {
        all[cpu] = (struct hooprun_cpu){.package = cpu % 2, .core = cpu % 8, .cpu = cpu};
    }
    hooprun_cpus_sort(&cpus);
    return cpus;
}

/* The CPUs of a rank, as "0 8". */
static const char *share(const struct hooprun_cpus *cpus, int rank, int ranks)
{
    static char text[128];
    cpu_set_t set;
    size_t at = 0;
    text[0] = 0;
    hooprun_cpus_share(cpus, rank, ranks, &set);
    for (int cpu = 0; cpu < CPUS; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d", at > 0 ? " " : "", cpu);
        }
    }
    return text;
}

static void test_shares(void **state)
{
    const struct hooprun_cpus cpus = a_machine();
    (void)state;
    assert_int_equal(cpus.cores, 8);
    assert_int_equal(hooprun_cpus_each(&cpus, 2), 4);
    assert_string_equal(share(&cpus, 0, 2), "0 2 4 6 8 10 12 14"); /* each rank gets a package */
    assert_string_equal(share(&cpus, 1, 2), "1 3 5 7 9 11 13 15");
    assert_int_equal(hooprun_cpus_each(&cpus, 3), 2);
    assert_string_equal(share(&cpus, 0, 3), "0 2 8 10");
    assert_string_equal(share(&cpus, 2, 3), "3 5 7 11 13 15");
    assert_int_equal(hooprun_cpus_each(&cpus, 8), 1);
    assert_string_equal(share(&cpus, 1, 8), "2 10");
    assert_string_equal(share(&cpus, 4, 8), "1 9");
}

/* If ranks outnumber cores, those that communicate most do not share one. */
static void test_crowded(void **state)
{
    const struct hooprun_cpus cpus = a_machine();
    (void)state;
    assert_int_equal(hooprun_cpus_each(&cpus, 20), 1);
    for (int rank = 0; rank < 20; rank++) {
        char own[128];
        (void)snprintf(own, sizeof(own), "%s", share(&cpus, rank % 8, 8));
        assert_string_equal(share(&cpus, rank, 20), own);
    }
}

/* Every CPU belongs to one rank, and every rank has a CPU. */
static void test_all(void **state)
{
    const struct hooprun_cpus cpus = a_machine();
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++) {
        cpu_set_t all, set;
        CPU_ZERO(&all);
        for (int rank = 0; rank < ranks; rank++) {
            cpu_set_t both;
            hooprun_cpus_share(&cpus, rank, ranks, &set);
            CPU_AND(&both, &all, &set);
            assert_int_equal(CPU_COUNT(&both), 0);
            assert_true(CPU_COUNT(&set) >= 2 * hooprun_cpus_each(&cpus, ranks));
            CPU_OR(&all, &all, &set);
        }
        assert_int_equal(CPU_COUNT(&all), CPUS);
    }
}

static void test_this_machine(void **state)
{
    struct hooprun_cpus cpus;
    cpu_set_t mine, set;
    (void)state;
    assert_true(hooprun_cpus_read(&cpus));
    assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
    hooprun_cpus_share(&cpus, 0, 1, &set);
    assert_true(CPU_EQUAL(&mine, &set));
    hooprun_cpus_finish(&cpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests_name("hooprun cpus", tests, NULL, NULL);
}

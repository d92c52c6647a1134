/* Which CPUs ranks get with --bind-to core, on machines that this test describes. */
#include "hooprun/hooprun_cpus.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    struct hooprun_cpu_set set;
    size_t at = 0;
    text[0] = 0;
    hooprun_cpus_share(cpus, rank, ranks, &set);
    for (int cpu = 0; cpu < CPUS; cpu++) {
        if (CPU_ISSET(cpu, set.parts)) {
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
        struct hooprun_cpu_set set;
        cpu_set_t all;
        CPU_ZERO(&all);
        for (int rank = 0; rank < ranks; rank++) {
            cpu_set_t both;
            hooprun_cpus_share(&cpus, rank, ranks, &set);
            CPU_AND(&both, &all, set.parts);
            assert_int_equal(CPU_COUNT(&both), 0);
            assert_true(CPU_COUNT(set.parts) >= 2 * hooprun_cpus_each(&cpus, ranks));
            CPU_OR(&all, &all, set.parts);
        }
        assert_int_equal(CPU_COUNT(&all), CPUS);
    }
}

/* What the kernel says: these may be used, of `possible` CPUs; 0: what this machine's kernel says.
 */
static int possible, usable[2];

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    if (possible == 0) {
        memset(set, 0, bytes);
        return syscall(SYS_sched_getaffinity, pid, bytes, set) > 0 ? 0 : -1;
    }
    if (bytes * 8 < (size_t)possible) {
        errno = EINVAL;
        return -1;
    }
    memset(set, 0, bytes);
    for (int i = 0; i < 2; i++) {
        CPU_SET_S(usable[i], bytes, set);
    }
    return 0;
}

static void test_this_machine(void **state)
{
    struct hooprun_cpus cpus;
    struct hooprun_cpu_set mine, set;
    (void)state;
    possible = 0;
    assert_true(hooprun_cpus_read(&cpus));
    assert_int_equal(sched_getaffinity(0, sizeof(mine), mine.parts), 0);
    hooprun_cpus_share(&cpus, 0, 1, &set);
    assert_true(CPU_EQUAL_S(sizeof(mine), mine.parts, set.parts));
    hooprun_cpus_finish(&cpus);
}

static void check_kernel(int cpus_possible, int first, int second)
{
    struct hooprun_cpus cpus;
    struct hooprun_cpu_set set;
    possible = cpus_possible;
    usable[0] = first;
    usable[1] = second;
    assert_true(hooprun_cpus_read(&cpus));
    assert_int_equal(cpus.count, 2);
    hooprun_cpus_share(&cpus, 0, 1, &set);
    assert_int_equal(CPU_COUNT_S(sizeof(set), set.parts), 2);
    assert_true(CPU_ISSET_S(first, sizeof(set), set.parts));
    assert_true(CPU_ISSET_S(second, sizeof(set), set.parts));
    hooprun_cpus_finish(&cpus);
}

/* A kernel that has room for more CPUs than a cpu_set_t refuses that. */
static void test_kernels(void **state)
{
    (void)state;
    check_kernel(2, 0, 1);
    check_kernel(1500, 3, 1400);
    check_kernel(8192, 1024, 8191);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),  cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_all),     cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_kernels),
    };
    return cmocka_run_group_tests_name("hooprun cpus", tests, NULL, NULL);
}

/* How long a wait spins depends on what ended earlier spins; a thread that has work does not yield,
 * but looks; and two threads that hand one CPU to each other are separated. */
#include "base/clock.h"
#include "runtime/process.h"
#include "runtime/wait.h"
#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cmocka.h>

/* As in wait.c: polls before the clock is read, and polls of the first spin after them. */
#define EAGER 64u
#define FIRST_SPIN 32u
#define SPIN_LEAST_NS 500u

/* Idle for so many polls, then busy for so many, then done. */
struct script {
    uint32_t idle, busy;
};

static enum hoop_poll play(void *arg, bool look)
{
    struct script *script = arg;
    (void)look;
    if (script->idle > 0) {
        script->idle--;
        return HOOP_POLL_IDLE;
    }
    if (script->busy > 0) {
        script->busy--;
        return HOOP_POLL_BUSY;
    }
    return HOOP_POLL_DONE;
}

static void wait_once(uint32_t idle, uint32_t busy, struct hoop_spin *spin)
{
    struct script script = {idle, busy};
    const struct hoop_wait wait = {.poll = play, .arg = &script, .spin = spin, .timeout_ms = 60000};
    assert_int_equal(hoop_wait(&wait), HOOP_OK);
}

static uint64_t spin_after(uint32_t idle, uint32_t busy, uint64_t spin_ns)
{
    struct hoop_spin spin = {.ns = spin_ns};
    wait_once(idle, busy, &spin);
    return spin.ns;
}

static void test_met(void **state)
{
    (void)state;
    assert_int_equal(spin_after(EAGER - 1, 5, 1000), 1000); /* it ended before a spin began */
    assert_int_equal(spin_after(EAGER, 0, 1000), 2000);
    assert_int_equal(spin_after(EAGER + 5, 0, 1000), 2000);
    /* Progress right after the spin was not what the spin waited for. */
    assert_int_equal(spin_after(EAGER + 5, 5, 1000), 2000);
}

static void test_in_vain(void **state)
{
    (void)state;
    assert_int_equal(spin_after(EAGER + FIRST_SPIN, 0, 1), SPIN_LEAST_NS);
    assert_int_equal(spin_after(EAGER + FIRST_SPIN, 1, 1), SPIN_LEAST_NS);
    assert_int_equal(spin_after(EAGER + FIRST_SPIN, 5, 1), SPIN_LEAST_NS);
}

static uint32_t yields;

/* Replaces the C library's function in this program. */
int sched_yield(void)
{
    yields++;
    return 0;
}

/* If ranks outnumber CPUs no thread spins. */
static void test_yields(void **state)
{
    struct script script = {3, 1000};
    const struct hoop_wait wait = {.poll = play, .arg = &script, .timeout_ms = 60000};
    (void)state;
    yields = 0;
    assert_int_equal(hoop_wait(&wait), HOOP_OK);
    assert_in_range(yields, 2, 3); /* the first look comes before the first yield */
}

/* A thread that nobody will wake looks again soon; otherwise this would take a minute. */
static void test_naps(void **state)
{
    _Atomic uint8_t sleeping = 0;
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct hoop_sleeper sleeper = {
        .poll_fd = fd, .wake_fd = fd, .sleeping = &sleeping, .naps = true};
    struct hoop_sleeper *sleepers[] = {&sleeper};
    struct script script = {EAGER + 600, 0};
    const struct hoop_wait wait = {.poll = play,
                                   .arg = &script,
                                   .sleepers = sleepers,
                                   .n_sleepers = 1,
                                   .no_yield = true,
                                   .timeout_ms = 20000};
    (void)state;
    assert_int_equal(hoop_wait(&wait), HOOP_OK);
    close(fd);
}

/* Idle for so many polls, then busy until it is told to look, or for ever. */
struct worker {
    uint32_t idle, busy;
};

static enum hoop_poll work(void *arg, bool look)
{
    struct worker *worker = arg;
    if (worker->idle > 0) {
        worker->idle--;
        return HOOP_POLL_IDLE;
    }
    worker->busy++;
    return look || worker->busy == 1000000 ? HOOP_POLL_DONE : HOOP_POLL_BUSY;
}

/* Several ranks wait in one poll. Progress of one of them must not keep the others from seeing that
 * they have failed. */
static void test_looks(void **state)
{
    (void)state;
    for (uint32_t idle = 0; idle < 2 * EAGER; idle += 3) {
        struct worker worker = {idle, 0};
        struct hoop_spin spin = {.ns = 1000000};
        const struct hoop_wait wait = {
            .poll = work, .arg = &worker, .spin = idle % 2 == 0 ? &spin : NULL};
        assert_int_equal(hoop_wait(&wait), HOOP_OK);
        assert_in_range(worker.busy, 1, 2000);
    }
}

#define CPUS 512 /* so many that one is surely idle */
static int bound_to = CPUS;
static uint32_t moves;
static cpu_set_t moved_to;

/* Replaces the C library's function in this program. */
int get_nprocs(void)
{
    return CPUS;
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    if (bytes * 8 < (size_t)bound_to) {
        errno = EINVAL;
        return -1;
    }
    memset(set, 0, bytes);
    for (int cpu = 0; cpu < bound_to; cpu++) {
        CPU_SET_S(cpu, bytes, set);
    }
    return 0;
}

int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    (void)pid;
    (void)bytes;
    moved_to = *set;
    moves++;
    return 0;
}

/* Runs some waits, each ended by its first yield; with polls_behind, later. */
static void handed(struct hoop_spin *spin, uint32_t waits, uint32_t polls_behind)
{
    for (uint32_t i = 0; i < waits; i++) {
        spin->ns = 1;
        wait_once(EAGER + FIRST_SPIN + polls_behind, 0, spin);
    }
}

/* If each wait is ended by its first yield, the thread that this one waits for runs on the same
 * CPU. This thread then moves to another, but only at a later yield: the other thread would move,
 * too. */
static void test_parts(void **state)
{
    struct hoop_spin spin = {0};
    (void)state;
    handed(&spin, 100, 1);
    assert_int_equal(moves, 0);
    bound_to = CPUS - 1;
    handed(&spin, 9, 0);
    assert_int_equal(moves, 0);
    bound_to = CPUS;
    spin = (struct hoop_spin){0};
    handed(&spin, 7, 0);
    handed(&spin, 1, 1);
    handed(&spin, 7, 0);
    assert_int_equal(moves, 0);
    handed(&spin, 1, 0);
    assert_int_equal(moves, 2);
    assert_true(CPU_COUNT(&moved_to) >= CPUS); /* bound to no CPU */
    /* It does not move again at once. */
    spin.calm_until_ns = hoop_deadline_ns(60000);
    handed(&spin, 100, 0);
    assert_int_equal(moves, 2);
}

static void test_usable(void **state)
{
    (void)state;
    bound_to = 3;
    const struct hoop_cpus three = hoop_cpus_usable(7), same = hoop_cpus_usable(7);
    bound_to = 2;
    const struct hoop_cpus two = hoop_cpus_usable(0);
    bound_to = 2000;
    const struct hoop_cpus many = hoop_cpus_usable(0);
    bound_to = CPUS;
    assert_true(many.count == 2000 || many.set == 0); /* with a quota */
    assert_true(many.set != 0 || three.set == 0);
    assert_in_range(three.count, 1, 3); /* fewer with a quota */
    assert_in_range(two.count, 1, 2);
    assert_int_equal(three.local_n, 7);
    assert_int_equal(three.set, same.set);
    assert_true(three.set != two.set || three.set == 0);
}

/* Writes a file of a tree below `root`, with the folders that it needs. */
static void put(const char *root, const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        (void)mkdir(path, 0700);
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int drop(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about, (void)kind, (void)at;
    return remove(path);
}

/* The quota of a process in these cgroups. */
static uint32_t quota(const char *root, const char *groups)
{
    char path[512];
    put(root, "groups", groups);
    (void)snprintf(path, sizeof(path), "%s/groups", root);
    return hoop_process_cpu_quota(path, root);
}

/* A quota counts on whatever level it is set, in either version of cgroups. */
static void test_quota(void **state)
{
    char root[] = "/tmp/hoop-quota-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(hoop_process_cpu_quota("/no/such", root), UINT32_MAX);
    put(root, "cpu.max", "900000 100000\n");
    assert_int_equal(hoop_process_cpu_quota("/no/such", root), 9);
    put(root, "pod/cpu.max", "150000 100000\n");
    put(root, "pod/one/cpu.max", "max 100000\n");
    put(root, "pod/two/cpu.max", "50000 100000\n");
    put(root, "free/cpu.max", "max 100000\n");
    assert_int_equal(quota(root, "0::/pod/one\n"), 2);
    assert_int_equal(quota(root, "0::/pod/two\n"), 1);
    assert_int_equal(quota(root, "0::/pod/three/unseen\n"), 2);
    assert_int_equal(quota(root, "0::/free\n"), 9);
    assert_int_equal(quota(root, "0::/\n"), 9);
    assert_int_equal(quota(root, "1:name=systemd:/pod\n2:cpuset:/pod\n3:cpuacct:/pod\n"), 9);
    put(root, "cpu/box/cpu.cfs_quota_us", "300000\n");
    put(root, "cpu/box/cpu.cfs_period_us", "100000\n");
    put(root, "cpu/box/in/cpu.cfs_quota_us", "-1\n");
    put(root, "cpu/box/in/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(root, "4:cpu,cpuacct:/box/in\n0::/\n"), 3);
    assert_int_equal(quota(root, "0::/pod\n4:cpuset,cpu:/box/in\n"), 2);
    assert_int_equal(quota(root, "cpu\n:\n4:cpuset:/box/in\n4:cpuacct,cpuset:/box\n"), 9);
    assert_int_equal(nftw(root, drop, 4, FTW_DEPTH | FTW_PHYS), 0);
}

/* hoop_cpus_shared_by() for the ranks of one machine, each with {set, count, local_n}. */
static uint32_t shared_by(uint32_t n, const struct hoop_cpus *given)
{
    struct hoop_cpus ranks[8];
    memcpy(ranks, given, n * sizeof(*ranks));
    return hoop_cpus_shared_by(ranks, n);
}

static void test_shared(void **state)
{
    (void)state;
    /* all ranks may use the same CPUs */
    assert_int_equal(shared_by(1, (struct hoop_cpus[]){{5, 1, 0}}), 0);
    assert_int_equal(shared_by(2, (struct hoop_cpus[]){{5, 2, 0}, {5, 2, 2}}), 0);
    assert_int_equal(shared_by(3, (struct hoop_cpus[]){{5, 2, 0}, {5, 2, 0}, {5, 2, 0}}), 2);
    assert_int_equal(shared_by(4, (struct hoop_cpus[]){{5, 1, 0}, {5, 1, 0}, {5, 1, 0}, {5, 1, 0}}),
                     4);
    /* two more ranks in no comm */
    assert_int_equal(shared_by(2, (struct hoop_cpus[]){{5, 2, 0}, {5, 2, 4}}), 1);
    /* with a quota */
    assert_int_equal(shared_by(2, (struct hoop_cpus[]){{0, 1, 0}, {0, 1, 0}}), 2);
    /* each rank is bound to one CPU, to two hardware threads of a core, or all ranks of a package
     * to that */
    assert_int_equal(shared_by(3, (struct hoop_cpus[]){{7, 1, 3}, {5, 1, 3}, {6, 1, 3}}), 0);
    assert_int_equal(shared_by(3, (struct hoop_cpus[]){{7, 2, 8}, {5, 2, 8}, {6, 2, 8}}), 0);
    assert_int_equal(shared_by(4, (struct hoop_cpus[]){{7, 2, 4}, {5, 2, 4}, {7, 2, 4}, {5, 2, 4}}),
                     0);
    /* two ranks bound to each of two CPUs */
    assert_int_equal(shared_by(4, (struct hoop_cpus[]){{7, 1, 4}, {5, 1, 4}, {7, 1, 4}, {5, 1, 4}}),
                     2);
}

int main(void)
{
    /* What ends after sleeping says nothing about the spin; and on a busy machine a yield may take
     * long. */
    setenv("HOOP_SLEEP_AFTER_US", "1000000000", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_met),    cmocka_unit_test(test_in_vain),
        cmocka_unit_test(test_yields), cmocka_unit_test(test_naps),
        cmocka_unit_test(test_looks),  cmocka_unit_test(test_parts),
        cmocka_unit_test(test_usable), cmocka_unit_test(test_quota),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}

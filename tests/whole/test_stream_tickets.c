/* Tickets and a stream's descriptor: the ways to wait for what is queued. */
#include "base/clock.h"
#include "whole/stream_world.h"

#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_tickets(void **state)
{
    (void)state;
    struct world world;
    hoop_ticket_t before, behind, last;
    int64_t x[RANKS] = {1, 1, 1};
    world_make(&world);
    before = stream_record(world.streams[0]);
    assert_int_equal(hoop_ticket_query(before), HOOP_OK);
    assert_int_equal(stream_sum(&x[0], world.comms[0], world.streams[0]), HOOP_OK);
    behind = stream_record(world.streams[0]);
    assert_int_equal(hoop_ticket_query(before), HOOP_OK);
    assert_int_equal(hoop_ticket_query(behind), HOOP_IN_PROGRESS);
    assert_int_equal(hoop_ticket_wait(behind, 0), HOOP_TIMEOUT);
    assert_int_equal(hoop_ticket_wait(behind, 20), HOOP_TIMEOUT);
    assert_non_null(strstr(hoop_get_last_error(NULL), "20 ms"));
    for (int r = 1; r < RANKS; r++) {
        assert_int_equal(stream_sum(&x[r], world.comms[r], world.streams[r]), HOOP_OK);
    }
    assert_int_equal(hoop_ticket_wait(behind, -1), HOOP_OK);
    assert_int_equal(x[0], RANKS);
    assert_int_equal(hoop_ticket_wait(behind, 0), HOOP_OK);
    last = stream_record(world.streams[0]);
    assert_int_equal(hoop_ticket_query(last), HOOP_OK);
    world_synchronize(&world);
    world_end(&world);
    assert_int_equal(hoop_ticket_query(behind), HOOP_OK); /* of a stream that no longer exists */
    assert_int_equal(hoop_ticket_wait(last, -1), HOOP_OK);
}

/* A thread that queries has the work done at once, if possible: the progress thread would leave it
 * to that thread for longer. */
static void test_looking_in(void **state)
{
    (void)state;
    const int rounds = 100, looks = 8;
    int done = 0;
    struct world world;
    world_make(&world);
    for (int i = 0; i < rounds; i++) {
        int64_t x[RANKS] = {1, 1, 1};
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(stream_sum(&x[r], world.comms[r], world.streams[r]), HOOP_OK);
        }
        const hoop_ticket_t ticket = stream_record(world.streams[0]);
        hoop_result_t result = HOOP_TIMEOUT;
        for (int look = 0; look < looks && result == HOOP_TIMEOUT; look++) {
            result = hoop_ticket_wait(ticket, 0);
        }
        done += result == HOOP_OK;
        world_synchronize(&world);
        assert_int_equal(x[0], RANKS);
    }
    assert_in_range(done, rounds / 2, rounds);
    world_end(&world);
}

/* Several threads wait for tickets of all streams while one queues. */
struct waiter {
    pthread_t thread;
    hoop_ticket_t ticket;
    hoop_result_t result;
};

static void *await(void *arg)
{
    struct waiter *waiter = arg;
    waiter->result = hoop_ticket_wait(waiter->ticket, MINUTE_MS);
    return NULL;
}

static void queue_and_await(hoop_comm_t comm, hoop_stream_t stream, int64_t *x,
                            struct waiter *waiters)
{
    for (int i = 0; i < 100; i++) {
        x[i] = i;
        assert_int_equal(stream_sum(&x[i], comm, stream), HOOP_OK);
        if (i % 40 == 10) {
            struct waiter *waiter = &waiters[i / 40];
            waiter->ticket = stream_record(stream);
            assert_int_equal(pthread_create(&waiter->thread, NULL, await, waiter), 0);
        }
    }
}

static void test_many_wait(void **state)
{
    (void)state;
    struct world world;
    struct waiter waiters[RANKS][3];
    static int64_t x[RANKS][100];
    world_make(&world);
    for (int round = 0; round < 20; round++) {
        for (int r = 0; r < RANKS; r++) {
            queue_and_await(world.comms[r], world.streams[r], x[r], waiters[r]);
        }
        world_synchronize(&world);
        for (int w = 0; w < RANKS * 3; w++) {
            pthread_join(waiters[w / 3][w % 3].thread, NULL);
            assert_int_equal(waiters[w / 3][w % 3].result, HOOP_OK);
        }
        assert_int_equal(x[2][99], RANKS * 99);
    }
    world_end(&world);
}

/* ---- Time ----------------------------------------------------------------------------------- */

static _Thread_local int looks_before; /* reads of the clock before it leaps */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    static _Atomic int leaps_s;
    leaps_s += looks_before > 0 && --looks_before == 0;
    const int result = __real_clock_gettime(clock, ret);
    ret->tv_sec += leaps_s;
    return result;
}

/* The deadline passes between any two reads of the clock, as for a thread that gets no CPU at that
 * moment. */
static void test_late(void **state)
{
    (void)state;
    struct world world;
    int64_t x[RANKS] = {1, 1, 1};
    world_make(&world);
    assert_int_equal(stream_sum(&x[0], world.comms[0], world.streams[0]), HOOP_OK);
    const hoop_ticket_t ticket = stream_record(world.streams[0]);
    for (int looks = 1; looks <= 10; looks++) {
        looks_before = looks;
        assert_int_equal(hoop_ticket_wait(ticket, 500), HOOP_TIMEOUT);
    }
    looks_before = 0;
    for (int r = 1; r < RANKS; r++) {
        assert_int_equal(stream_sum(&x[r], world.comms[r], world.streams[r]), HOOP_OK);
    }
    world_synchronize(&world);
    world_end(&world);
}

/* A thread that is cancelled while it waits ends when the wait is over, and leaves all intact. */
static void test_cancelled(void **state)
{
    (void)state;
    struct world world;
    struct waiter waiter;
    int64_t x[RANKS] = {1, 1, 1};
    world_make(&world);
    assert_int_equal(stream_sum(&x[0], world.comms[0], world.streams[0]), HOOP_OK);
    waiter.ticket = stream_record(world.streams[0]);
    assert_int_equal(pthread_create(&waiter.thread, NULL, await, &waiter), 0);
    usleep(5000);
    pthread_cancel(waiter.thread);
    for (int r = 1; r < RANKS; r++) {
        assert_int_equal(stream_sum(&x[r], world.comms[r], world.streams[r]), HOOP_OK);
    }
    pthread_join(waiter.thread, NULL);
    world_synchronize(&world);
    assert_int_equal(x[0], RANKS);
    world_end(&world);
}

static bool readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

static void test_descriptor(void **state)
{
    (void)state;
    struct world world;
    hoop_ticket_t ticket;
    int64_t x[RANKS] = {1, 1, 1};
    uint64_t count = 0;
    int fd = -1, again = -1;
    world_make(&world);
    assert_int_equal(hoop_stream_get_fd(world.streams[0], &fd), HOOP_OK);
    assert_int_equal(hoop_stream_get_fd(world.streams[0], &again), HOOP_OK);
    assert_int_equal(fd, again);
    assert_int_equal(stream_sum(&x[0], world.comms[0], world.streams[0]), HOOP_OK);
    ticket = stream_record(world.streams[0]);
    assert_false(readable(fd));
    for (int r = 1; r < RANKS; r++) {
        assert_int_equal(stream_sum(&x[r], world.comms[r], world.streams[r]), HOOP_OK);
    }
    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, MINUTE_MS), 1);
    assert_int_equal(hoop_ticket_query(ticket), HOOP_OK);
    assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
    assert_false(readable(fd));
    (void)stream_record(world.streams[0]); /* complete at once */
    assert_true(readable(fd));
    assert_int_equal(hoop_stream_get_fd(world.streams[1], &fd), HOOP_OK);
    assert_false(readable(fd)); /* nothing was ever recorded there */
    world_synchronize(&world);
    world_end(&world);
}

static void spin_us(uint64_t us)
{
    const uint64_t until = hoop_now_ns() + us * 1000;
    while (hoop_now_ns() < until) {
    }
}

/* If results were often awaited at once, the progress thread is not woken for the next one. A
 * thread that then only queries gets its result anyway. */
static void test_asked_for_only(void **state)
{
    (void)state;
    struct world world;
    int64_t x = 1;
    hoop_comm_t comm;
    world_make(&world);
    assert_int_equal(hoop_comm_init_all(&comm, 1, NULL), HOOP_OK);
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        for (int i = 0; i < 10; i++) {
            assert_int_equal(stream_sum(&x, comm, world.streams[0]), HOOP_OK);
            assert_int_equal(hoop_stream_synchronize(world.streams[0]), HOOP_OK);
        }
        assert_int_equal(stream_sum(&x, comm, world.streams[0]), HOOP_OK);
        spin_us(attempt % 100);
        assert_int_equal(hoop_stream_synchronize(world.streams[0]), HOOP_OK);
        assert_int_equal(stream_sum(&x, comm, world.streams[1]), HOOP_OK);
        const hoop_ticket_t ticket = stream_record(world.streams[1]);
        const uint64_t until = hoop_deadline_ns(MINUTE_MS / 10);
        while (hoop_ticket_query(ticket) == HOOP_IN_PROGRESS && hoop_now_ns() < until) {
            spin_us(1);
        }
        assert_int_equal(hoop_ticket_query(ticket), HOOP_OK);
    }
    hoop_comm_destroy(comm);
    world_end(&world);
}

/* How often the progress thread has gone to sleep. */
static long progress_sleeps(void)
{
    long sleeps = -1;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], line[128];
        bool its = false;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        FILE *file = fopen(path, "re");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            its |= strcmp(line, "Name:\thoop-progress\n") == 0;
            if (its && strncmp(line, "voluntary", 9) == 0) {
                sleeps = strtol(strchr(line, ':') + 1, NULL, 10);
            }
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(tasks);
    return sleeps;
}

/* Nor is a caller disturbed that computes in between, as a trainer does between two steps. */
static void test_left_alone(void **state)
{
    (void)state;
    struct world world;
    int64_t x = 1;
    hoop_comm_t comm;
    world_make(&world);
    assert_int_equal(hoop_comm_init_all(&comm, 1, NULL), HOOP_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(stream_sum(&x, comm, world.streams[0]), HOOP_OK);
        assert_int_equal(hoop_stream_synchronize(world.streams[0]), HOOP_OK);
    }
    const long before = progress_sleeps();
    spin_us(20000);
    assert_in_range(before, 0, LONG_MAX);
    assert_in_range(progress_sleeps() - before, 0, 10);
    hoop_comm_destroy(comm);
    world_end(&world);
}

/*
 * Nor does the progress thread wake up for each result that is awaited at once, when some are
 * awaited late. It looks by itself then, every 50 us at most, and is only woken if nothing came for
 * as long. So how often it sleeps depends on the total time, not on the number of calls.
 */
static void test_late_now_and_then(void **state)
{
    (void)state;
    const int calls = 8000, period = 32;
    const uint64_t nap_ns = 50000;
    struct world world;
    int64_t x = 1;
    uint64_t late = 0;
    hoop_comm_t comm;
    world_make(&world);
    assert_int_equal(hoop_comm_init_all(&comm, 1, NULL), HOOP_OK);
    const long before = progress_sleeps();
    const uint64_t begun = hoop_now_ns();
    for (int i = 0; i < calls; i++) {
        const uint64_t called = hoop_now_ns();
        assert_int_equal(stream_sum(&x, comm, world.streams[0]), HOOP_OK);
        spin_us(i % period == 0 ? 100 : 5);
        assert_int_equal(hoop_stream_synchronize(world.streams[0]), HOOP_OK);
        late += hoop_now_ns() - called >= nap_ns;
    }
    const uint64_t took_ns = hoop_now_ns() - begun;
    assert_in_range(progress_sleeps() - before, 0, took_ns / nap_ns + late);
    hoop_comm_destroy(comm);
    world_end(&world);
}

/* Binds all threads of this process. */
static void bind_to(const cpu_set_t *cpus)
{
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        const pid_t id = (pid_t)strtol(task->d_name, NULL, 10);
        if (id > 0) {
            assert_int_equal(sched_setaffinity(id, sizeof(*cpus), cpus), 0);
        }
    }
    closedir(tasks);
}

/* A thread that queries in a loop does not keep the CPU from those that do the work; all have only
 * one. */
static void test_asked_in_a_loop(void **state)
{
    (void)state;
    const uint64_t times = 50, most = 1000; /* a time slice has room for some 50000 queries */
    struct world world;
    cpu_set_t before, one;
    int64_t x[RANKS] = {1, 1, 1};
    uint64_t asked = 0;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    world_make(&world);
    bind_to(&one);
    for (uint64_t i = 0; i < times; i++) {
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(stream_sum(&x[r], world.comms[r], world.streams[r]), HOOP_OK);
        }
        const hoop_ticket_t ticket = stream_record(world.streams[0]);
        for (; hoop_ticket_query(ticket) == HOOP_IN_PROGRESS; asked++) {
        }
        for (; hoop_stream_query(world.streams[1]) == HOOP_IN_PROGRESS; asked++) {
        }
    }
    assert_in_range(asked, 0, times * most);
    bind_to(&before);
    world_synchronize(&world);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {

        cmocka_unit_test(test_tickets),           cmocka_unit_test(test_looking_in),
        cmocka_unit_test(test_many_wait),         cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_descriptor),        cmocka_unit_test(test_asked_for_only),
        cmocka_unit_test(test_left_alone),        cmocka_unit_test(test_asked_in_a_loop),
        cmocka_unit_test(test_late_now_and_then), cmocka_unit_test(test_late), /* its leap stays */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Ranks as processes: results, deaths, stops, departures, mismatches. Each test forks its ranks,
 * which report to the parent through pipes; the parent alone asserts. The parent never calls hoop.
 *
 *     test_ranks [machines [blocks]]
 *
 * The ranks count as on so many machines, in turn or in blocks; HOOP_TRANSPORT is heeded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/rank_report.h"
#include "hoop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_RANKS 8
#define PATIENCE_MS 60000

typedef void rank_fn(const struct family_self *self);

/* What a family runs, and where it meets. */
struct job {
    rank_fn *fn;
    int port;
    char secret[65];
};

static int machines = 1;
static bool in_blocks; /* the ranks of a machine have consecutive numbers */

static void listen_to_parent(const struct family_self *self)
{
    EXPECT(self, family_order(self) >= 0);
}

/* A port that is not in use now. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void rank_main(const struct family_self *self, const void *arg)
{
    const struct job *job = arg;
    setenv("HOOP_SECRET", job->secret, 1);
    setenv("HOOP_DEBUG", "none", 0);
    family_set_number("RANK", self->rank);
    family_set_number("WORLD_SIZE", self->n);
    if (machines > 1 && self->n > 1) {
        family_set_number("HOOP_HOSTID",
                          in_blocks ? self->rank * machines / self->n : self->rank % machines);
        family_set_number("LOCAL_WORLD_SIZE", 1);
        family_set_number("MASTER_PORT", job->port);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
    }
    job->fn(self);
    exit(0); /* not _exit(): it may speak for its machine, while others are not through */
}

static void start(struct family *family, int n, rank_fn *fn)
{
    static unsigned serial;
    struct job job = {.fn = fn, .port = free_port()};
    snprintf(job.secret, sizeof(job.secret), "%032x%016lx%016x", (unsigned)getpid(),
             (unsigned long)time(NULL), ++serial);
    rank_start_all(family, n, rank_main, &job, PATIENCE_MS);
}

static void tell_all(struct family *family)
{
    for (int r = 0; r < family->n; r++) {
        assert_true(family_tell(family, r, "x", 1));
    }
}

static hoop_comm_t join(const struct family_self *self, const char *algo, int op_timeout_ms)
{
    hoop_comm_t comm = NULL;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.algo = algo;
    config.op_timeout_ms = op_timeout_ms;
    config.dead_after_ms = op_timeout_ms;
    EXPECT(self, hoop_comm_init_env(&comm, &config) == HOOP_OK);
    return comm;
}

/* ---- Results -------------------------------------------------------------------------------- */

static const char *const algos[] = {"auto", "oneshot", "direct",   "slab",  "cma",
                                    "ring", "bruck",   "pairwise", "torus", "hierarchical"};
static const char *algo_now;

/* One sum of count numbers at x, in place. */
static void sum_once(const struct family_self *self, hoop_comm_t comm, int32_t *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (int32_t)i * (self->rank + 1);
    }
    EXPECT(self, hoop_all_reduce(x, x, count, HOOP_INT32, HOOP_SUM, comm, NULL) == HOOP_OK);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += x[i] != (int32_t)i * self->n * (self->n + 1) / 2;
    }
    EXPECT(self, wrong == 0);
}

static void sum_everything(const struct family_self *self)
{
    static const size_t counts[] = {0, 1, 3, 14, 15, 100, 1000, 4097, 16000, 300001};
    hoop_comm_t comm = join(self, algo_now, 30000);
    void *blocks[2] = {malloc((size_t)300002 * 4)};
    EXPECT(self, blocks[0] != NULL);
    EXPECT(self, hoop_mem_alloc(&blocks[1], (size_t)300002 * 4, HOOP_MEM_HOST) == HOOP_OK);
    for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        if (strcmp(algo_now, "oneshot") != 0 || counts[c] <= 16000) {
            sum_once(self, comm, (int32_t *)blocks[0] + (c & 1), counts[c]);
            sum_once(self, comm, (int32_t *)blocks[1] + (c & 1), counts[c]);
        }
    }
    free(blocks[0]);
    EXPECT(self, hoop_mem_free(blocks[1]) == HOOP_OK);
    EXPECT(self, hoop_barrier(comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

static void test_sums(void **state)
{
    (void)state;
    for (unsigned a = 0; a < sizeof(algos) / sizeof(algos[0]); a++) {
        for (int n = 1; n <= 5; n += 2) {
            struct family family;
            algo_now = algos[a];
            start(&family, n, sum_everything);
            rank_hear_all_well(&family);
            rank_end_all(&family);
        }
    }
}

/* ---- Deaths --------------------------------------------------------------------------------- */

static bool with_child;
static double slowest_s; /* the longest time from a kill to a survivor's error */

/* Works until an operation fails, and reports the failure. */
static void work_until_failure(const struct family_self *self)
{
    hoop_comm_t comm = join(self, algo_now, 30000);
    float *x = NULL;
    const size_t count = 100000;
    EXPECT(self, hoop_mem_alloc((void **)&x, count * 4, HOOP_MEM_HOST) == HOOP_OK);
    if (with_child && self->rank == self->n / 2) {
        /* A child that lives on when its parent is killed, with all that it has inherited. */
        if (fork() == 0) {
            _exit(family_order(self) < 0 ? 0 : 1); /* until the test is over */
        }
    }
    rank_tell(self, HOOP_OK, 0);
    hoop_result_t result = HOOP_OK;
    for (unsigned i = 0; result == HOOP_OK; i++) {
        result = hoop_all_reduce(x, x, i % 2 == 0 ? count : 3, HOOP_FLOAT32, HOOP_MAX, comm, NULL);
    }
    rank_tell(self, result, 0);
    EXPECT(self, hoop_all_reduce(x, x, 1, HOOP_FLOAT32, HOOP_MAX, comm, NULL) == result);
    hoop_result_t async = HOOP_OK;
    EXPECT(self, hoop_comm_get_async_error(comm, &async) == HOOP_OK && async == result);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    EXPECT(self, hoop_mem_free(x) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

static void pause_ms(long ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* A survivor's own error names the dead rank, soon, and the survivor ends in order. */
static void hear_of_death(struct family *family, int rank, int victim, uint64_t killed_ns)
{
    char name[32];
    snprintf(name, sizeof(name), "rank %d ", victim);
    const struct rank_report report = rank_hear(family, rank);
    assert_int_equal(report.result, HOOP_REMOTE_ERROR);
    if (strstr(report.text, name) == NULL) {
        fail_msg("rank %d does not name rank %d: %s", rank, victim, report.text);
    }
    const double took_s = ((double)report.time_ns - (double)killed_ns) / 1e9;
    slowest_s = took_s > slowest_s ? took_s : slowest_s;
    if (took_s > 5) {
        fail_msg("rank %d took %.3f s to see it", rank, took_s);
    }
    assert_int_equal(rank_hear(family, rank).result, HOOP_OK);
}

static void kill_one(int n, long after_ms)
{
    struct family family;
    const int victim = n / 2;
    start(&family, n, work_until_failure);
    for (int r = 0; r < n; r++) {
        rank_hear(&family, r);
    }
    pause_ms(after_ms); /* any moment of a running sweep */
    const uint64_t killed_ns = hoop_now_ns();
    family_kill(&family, victim);
    for (int r = 0; r < n; r++) {
        if (r != victim) {
            hear_of_death(&family, r, victim, killed_ns);
        }
    }
    rank_end_all(&family);
}

static void test_kill(void **state)
{
    (void)state;
    with_child = false;
    for (unsigned a = 0; a < sizeof(algos) / sizeof(algos[0]); a++) {
        algo_now = strcmp(algos[a], "oneshot") == 0 ? "auto" : algos[a];
        kill_one(4, 20 + 7 * (long)a);
        kill_one(2, 3 + 5 * (long)a);
    }
    print_message("slowest survivor: %.1f ms after the kill\n", slowest_s * 1000);
}

static void test_kill_with_a_living_child(void **state)
{
    (void)state;
    with_child = true;
    algo_now = "auto";
    kill_one(4, 30);
    with_child = false;
}

/* ---- A stopped writer ----------------------------------------------------------------------- */

#define STOP_COUNT ((size_t)2 << 20)

/* Sums until one rank is stopped, takes its buffer back, and watches it while that rank goes on. */
static void reuse_after_stop(const struct family_self *self)
{
    hoop_comm_t comm = join(self, "direct", 700);
    uint32_t *x = NULL;
    EXPECT(self, hoop_mem_alloc((void **)&x, STOP_COUNT * 4 + 64, HOOP_MEM_HOST) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
    hoop_result_t result = HOOP_OK;
    while (result == HOOP_OK) {
        result = hoop_all_reduce(x + 5, x + 5, STOP_COUNT, HOOP_UINT32, HOOP_SUM, comm, NULL);
    }
    for (size_t i = 0; i < STOP_COUNT + 16; i++) {
        x[i] = (uint32_t)i ^ 0x5aa5c33cu;
    }
    rank_tell(self, result, 0);
    listen_to_parent(self); /* by now the stopped rank has gone on and ended */
    for (size_t i = 0; i < STOP_COUNT + 16; i++) {
        EXPECT(self, x[i] == ((uint32_t)i ^ 0x5aa5c33cu));
    }
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    EXPECT(self, hoop_mem_free(x) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

static void stop_one(int n, int victim, long after_ms)
{
    struct family family;
    start(&family, n, reuse_after_stop);
    for (int r = 0; r < n; r++) {
        rank_hear(&family, r);
    }
    pause_ms(after_ms);
    kill(family.ranks[victim].pid, SIGSTOP);
    for (int r = 0; r < n; r++) {
        if (r != victim) {
            const struct rank_report report = rank_hear(&family, r);
            assert_true(report.result == HOOP_TIMEOUT || report.result == HOOP_REMOTE_ERROR);
        }
    }
    kill(family.ranks[victim].pid, SIGCONT);
    const int result = rank_hear(&family, victim).result;
    assert_true(result == HOOP_TIMEOUT || result == HOOP_REMOTE_ERROR);
    tell_all(&family);
    rank_hear_all_well(&family);
    rank_end_all(&family);
}

static void test_stop(void **state)
{
    (void)state;
    for (long i = 0; i < 6; i++) {
        stop_one(2 + (int)(i % 3), (int)(i % 2), 10 + 13 * i);
    }
}

/* ---- Departures and mismatches -------------------------------------------------------------- */

/* All data of the last operation are delivered when the others leave: no rank may see a failure. */
static void leave_early(const struct family_self *self)
{
    hoop_comm_t comm = join(self, algo_now, 30000);
    int32_t *x = NULL;
    const size_t count = 50000;
    EXPECT(self, hoop_mem_alloc((void **)&x, count * 4, HOOP_MEM_HOST) == HOOP_OK);
    for (size_t i = 0; i < count; i++) {
        x[i] = self->rank;
    }
    EXPECT(self, hoop_all_reduce(x, x, count, HOOP_INT32, HOOP_SUM, comm, NULL) == HOOP_OK);
    EXPECT(self, x[count - 1] == self->n * (self->n - 1) / 2);
    if (self->rank == 0) {
        pause_ms(30); /* by now the others have left */
        EXPECT(self,
               hoop_all_reduce(x, x, 1, HOOP_INT32, HOOP_SUM, comm, NULL) == HOOP_REMOTE_ERROR);
        EXPECT(self, strstr(hoop_get_last_error(comm), "has left") != NULL);
    }
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

static void test_leave(void **state)
{
    (void)state;
    for (unsigned a = 0; a < sizeof(algos) / sizeof(algos[0]); a++) {
        struct family family;
        algo_now = strcmp(algos[a], "oneshot") == 0 ? "auto" : algos[a];
        start(&family, 3, leave_early);
        rank_hear_all_well(&family);
        rank_end_all(&family);
    }
}

static int mismatch_kind;

static void call_differently(const struct family_self *self)
{
    hoop_comm_t comm = join(self, "auto", 10000);
    static float x[100000];
    const bool odd = self->rank == 1;
    hoop_result_t result = HOOP_OK;
    switch (mismatch_kind) {
    case 0:
        result = hoop_all_reduce(x, x, odd ? 7 : 8, HOOP_FLOAT32, HOOP_SUM, comm, NULL);
        break;
    case 1:
        result =
            hoop_all_reduce(x, x, 100000, odd ? HOOP_INT32 : HOOP_FLOAT32, HOOP_SUM, comm, NULL);
        break;
    case 2:
        result = hoop_all_reduce(x, x, 5, HOOP_FLOAT32, odd ? HOOP_MAX : HOOP_SUM, comm, NULL);
        break;
    default:
        result = odd ? hoop_barrier(comm, NULL)
                     : hoop_all_reduce(x, x, 100000, HOOP_FLOAT32, HOOP_SUM, comm, NULL);
    }
    rank_tell(self, result, 0);
    listen_to_parent(self);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
}

static void hear_of_mismatch(struct family *family, int rank)
{
    const struct rank_report report = rank_hear(family, rank);
    assert_int_equal(report.result, HOOP_MISMATCH);
    if (strstr(report.text, "rank 1 called") == NULL ||
        (strstr(report.text, "rank 0 called") == NULL &&
         strstr(report.text, "rank 2 called") == NULL)) {
        fail_msg("rank %d does not name both sides: %s", rank, report.text);
    }
    /* of another machine's ranks only those are known that the finder could ask */
    const int known = (strstr(report.text, " rank 0 at ") != NULL) +
                      (strstr(report.text, " rank 1 at ") != NULL) +
                      (strstr(report.text, " rank 2 at ") != NULL);
    if (known < (machines > 1 ? 1 : 2) || strstr(report.text, "(test_ranks+0x") == NULL) {
        fail_msg("rank %d does not say where: %s", rank, report.text);
    }
}

static void test_mismatch(void **state)
{
    (void)state;
    for (mismatch_kind = 0; mismatch_kind < 4; mismatch_kind++) {
        struct family family;
        start(&family, 3, call_differently);
        for (int r = 0; r < 3; r++) {
            hear_of_mismatch(&family, r);
        }
        tell_all(&family);
        rank_end_all(&family);
    }
}

/* A bit for each of four ranks that make the second of two calls. */
static unsigned mismatch_who;

static hoop_result_t one_of_two(hoop_comm_t comm, int kind, bool second)
{
    static const size_t counts[][2] = {{2, 3}, {2, 0}, {2, 50000}, {50000, 2}, {0, 50000}};
    static float x[50000], y[50000];
    if (kind == 5) {
        return hoop_broadcast(x, x, 2, HOOP_FLOAT32, second ? 3 : 0, comm, NULL);
    }
    if (kind == 6) {
        return second ? hoop_broadcast(x, x, 2, HOOP_FLOAT32, 2, comm, NULL)
                      : hoop_reduce(x, y, 2, HOOP_FLOAT32, HOOP_SUM, 1, comm, NULL);
    }
    const size_t count = counts[kind][second];
    return count > 0 ? hoop_all_reduce(x, x, count, HOOP_FLOAT32, HOOP_SUM, comm, NULL)
                     : hoop_barrier(comm, NULL);
}

static void call_one_of_two(const struct family_self *self)
{
    hoop_comm_t comm = join(self, "auto", 10000);
    const bool second = (mismatch_who >> self->rank & 1) != 0;
    /* Only when all ranks are in. A rank that is still in this barrier may be told there. */
    hoop_result_t result = hoop_barrier(comm, NULL);
    result = result == HOOP_OK ? one_of_two(comm, mismatch_kind, second) : result;
    /* A root may be done with the call. */
    rank_tell(self, result == HOOP_OK ? hoop_barrier(comm, NULL) : result, 0);
    listen_to_parent(self);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
}

/* Whichever ranks differ: neighbours, all on a machine, or every other one. */
static void test_mismatch_of_any(void **state)
{
    (void)state;
    for (mismatch_kind = 0; mismatch_kind < 7; mismatch_kind++) {
        for (mismatch_who = 1; mismatch_who < 15; mismatch_who++) {
            struct family family;
            start(&family, 4, call_one_of_two);
            for (int r = 0; r < 4; r++) {
                assert_int_equal(rank_hear(&family, r).result, HOOP_MISMATCH);
            }
            tell_all(&family);
            rank_end_all(&family);
        }
    }
}

static void abort_it(const struct family_self *self)
{
    hoop_comm_t comm = join(self, "auto", 30000);
    if (self->rank == 1) {
        pause_ms(20);
        EXPECT(self, hoop_comm_abort(comm) == HOOP_OK);
        rank_tell(self, HOOP_OK, 0);
        return;
    }
    float x = 1;
    const hoop_result_t result = hoop_all_reduce(&x, &x, 1, HOOP_FLOAT32, HOOP_SUM, comm, NULL);
    EXPECT(self, result == HOOP_ABORTED);
    EXPECT(self, strstr(hoop_get_last_error(comm), "rank 1 aborted") != NULL);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

static void test_abort(void **state)
{
    (void)state;
    struct family family;
    start(&family, 3, abort_it);
    rank_hear_all_well(&family);
    rank_end_all(&family);
}

/* ---- Splits ---------------------------------------------------------------------------------- */

/* Halves in which the ranks are in reverse order, and rank 0 in none of them; then one of each
 * again. */
/* NOLINTNEXTLINE(readability-function-size): every EXPECT counts as branches */
static void split_it(const struct family_self *self)
{
    hoop_comm_t comm = join(self, "auto", 30000), half = NULL, part = NULL;
    for (int i = 0; i < 5; i++) {
        const int color = self->rank == 0 ? HOOP_SPLIT_NOCOLOR : self->rank % 2;
        int64_t x = self->rank, sum = 0;
        int n = 0;
        EXPECT(self, hoop_comm_split(comm, color, -self->rank, &half, NULL) == HOOP_OK);
        EXPECT(self, (half == NULL) == (self->rank == 0));
        if (half != NULL) {
            EXPECT(self, hoop_broadcast(&x, &sum, 1, HOOP_INT64, 0, half, NULL) == HOOP_OK);
            EXPECT(self, sum == (self->rank % 2 == 1 ? 5 : 6));
            EXPECT(self, hoop_comm_split(half, 0, 0, &part, NULL) == HOOP_OK);
            EXPECT(self, hoop_comm_destroy(half) == HOOP_OK);
            EXPECT(self, hoop_comm_count(part, &n) == HOOP_OK && n == 3);
            EXPECT(self, hoop_all_reduce(&x, &sum, 1, HOOP_INT64, HOOP_SUM, part, NULL) == HOOP_OK);
            EXPECT(self, sum == (color == 1 ? 9 : 12));
            EXPECT(self, hoop_comm_destroy(part) == HOOP_OK);
        }
        EXPECT(self, hoop_all_reduce(&x, &sum, 1, HOOP_INT64, HOOP_SUM, comm, NULL) == HOOP_OK);
        EXPECT(self, sum == 21);
    }
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

static void test_split(void **state)
{
    (void)state;
    struct family family;
    start(&family, 7, split_it);
    rank_hear_all_well(&family);
    rank_end_all(&family);
}

/* The first two ranks grow to all; new ranks get the invitation over the comm of all. */
static void grow_it(const struct family_self *self)
{
    hoop_comm_t all = join(self, "auto", 30000), two = NULL, grown = NULL;
    const bool member = self->rank < 2;
    int64_t x = self->rank, sum = 0;
    int rank = -1;
    hoop_unique_id_t id = {{0}};
    EXPECT(self, hoop_comm_split(all, member ? 0 : -1, 0, &two, NULL) == HOOP_OK);
    EXPECT(self, self->rank != 0 || hoop_comm_get_unique_id(two, &id) == HOOP_OK);
    EXPECT(self, hoop_bcast(&id, sizeof(id), HOOP_UINT8, 0, all, NULL) == HOOP_OK);
    EXPECT(self, hoop_comm_grow(two, self->n, self->rank == 1 ? NULL : &id,
                                member ? -1 : self->rank, &grown, NULL) == HOOP_OK);
    EXPECT(self, hoop_comm_destroy(two) == HOOP_OK && hoop_comm_destroy(all) == HOOP_OK);
    EXPECT(self, hoop_comm_user_rank(grown, &rank) == HOOP_OK && rank == self->rank);
    EXPECT(self, hoop_all_reduce(&x, &sum, 1, HOOP_INT64, HOOP_SUM, grown, NULL) == HOOP_OK);
    EXPECT(self, sum == self->n * (self->n - 1) / 2);
    EXPECT(self, hoop_comm_destroy(grown) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

static void test_grow(void **state)
{
    (void)state;
    struct family family;
    start(&family, 5, grow_it);
    rank_hear_all_well(&family);
    rank_end_all(&family);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_kill_with_a_living_child),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_leave),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_mismatch_of_any),
        cmocka_unit_test(test_abort),
    };
    machines = argc > 1 ? atoi(argv[1]) : 1;
    in_blocks = argc > 2;
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

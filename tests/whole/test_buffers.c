/*
 * The ranks' memory in the case of failures and departures: a rank that is stuck writing to a
 * buffer that was given back, what the failure of one comm does to buffers of another, and mappings
 * that outlive their use. Ranks are processes, which report to the parent; only the parent asserts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/rank_report.h"
#include "hoop.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PATIENCE_MS 30000
#define COUNT ((size_t)1 << 20)
#define BYTES (COUNT * sizeof(uint32_t))

/* ---- What ranks and parent tell each other -------------------------------------------------- */

static void tell(const struct family *family, int rank)
{
    assert_true(family_tell(family, rank, "g", 1));
}

static void await_parent(const struct family_self *self)
{
    EXPECT(self, family_order(self) >= 0);
}

/* Joins a comm of n ranks as `rank`. Rank 0 makes its id. */
static hoop_comm_t join(const struct family_self *self, int n, int rank, int dead_after_ms)
{
    hoop_comm_t comm = HOOP_COMM_NULL;
    hoop_unique_id_t id;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.dead_after_ms = dead_after_ms;
    if (rank == 0) {
        EXPECT(self, hoop_get_unique_id(&id) == HOOP_OK);
        EXPECT(self, family_say(self, &id, sizeof(id)));
    } else {
        EXPECT(self, read(self->from_parent, &id, sizeof(id)) == (ssize_t)sizeof(id));
    }
    EXPECT(self, hoop_comm_init_rank_config(&comm, n, id, rank, &config) == HOOP_OK);
    return comm;
}

/* The parent's part of join(): passes the id from one rank to the other. */
static void introduce(const struct family *family, int first, int second)
{
    hoop_unique_id_t id;
    assert_int_equal(family_hear(family, first, &id, sizeof(id), hoop_deadline_ns(PATIENCE_MS)),
                     FAMILY_HEARD);
    assert_true(family_tell(family, second, &id, sizeof(id)));
}

static void info_has(const struct family_self *self, hoop_comm_t comm, const char *what)
{
    static char json[65536];
    const uint64_t deadline = hoop_deadline_ns(PATIENCE_MS);
    size_t needed = 0;
    do {
        EXPECT(self, hoop_now_ns() < deadline);
        EXPECT(self, hoop_info_json(comm, json, sizeof(json), &needed) == HOOP_OK);
    } while (strstr(json, what) == NULL && usleep(1000) == 0);
}

static uint32_t *block(const struct family_self *self, size_t bytes)
{
    void *ptr = NULL;
    EXPECT(self, hoop_mem_alloc(&ptr, bytes, HOOP_MEM_HOST) == HOOP_OK);
    return ptr;
}

static hoop_result_t add_up(const uint32_t *in, uint32_t *out, hoop_comm_t comm)
{
    return hoop_all_reduce(in, out, COUNT, HOOP_UINT32, HOOP_SUM, comm, NULL);
}

/* Half of `out` from each of two ranks, to rank 0. */
static hoop_result_t collect(const uint32_t *in, uint32_t *out, hoop_comm_t comm)
{
    return hoop_gather(in, out, COUNT / 2, HOOP_UINT32, 0, comm, NULL);
}

/* A call in which rank 1 writes to rank 0's buffer, and what of its input it reads then. */
struct writes {
    hoop_result_t (*call)(const uint32_t *in, uint32_t *out, hoop_comm_t comm);
    size_t read;
};
static const struct writes adds_up = {add_up, COUNT / 2 + COUNT / 4};
static const struct writes collects = {collect, COUNT / 4};

/* ---- A writer that is stuck ----------------------------------------------------------------- */

/*
 * Rank 1 of a comm of two stops while it writes to rank 0's buffer: the page of its input that it
 * reads next is gone, and the handler of SIGSEGV stops the process. When it continues the page is
 * there again, and it writes.
 */
static struct {
    const struct family_self *self;
    void *page;
} stuck;

/* NOLINTBEGIN(bugprone-signal-handler): the thread itself faults, and each is one system call */
static void on_fault(int signal_number)
{
    (void)signal_number;
    const struct rank_report report = {.result = HOOP_OK};
    (void)family_say(stuck.self, &report, sizeof(report));
    (void)raise(SIGSTOP);
    (void)mprotect(stuck.page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE);
}
/* NOLINTEND(bugprone-signal-handler) */

static void get_stuck(const struct family_self *self, const struct writes *writes, hoop_comm_t comm)
{
    uint32_t *in = block(self, BYTES), *out = block(self, BYTES);
    EXPECT(self, writes->call(in, out, comm) == HOOP_OK); /* all is mapped now */
    stuck.self = self;
    stuck.page = in + writes->read;
    EXPECT(self, signal(SIGSEGV, on_fault) != SIG_ERR);
    EXPECT(self, mprotect(stuck.page, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE) == 0);
    const hoop_result_t result = writes->call(in, out, comm);
    rank_tell(self, (int)result, 0);
    await_parent(self);
}

static void no_more_files(void)
{
    struct rlimit limit;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 0;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static uint64_t damaged(const uint32_t *buffer)
{
    uint64_t count = 0;
    for (size_t i = 0; i < COUNT; i++) {
        count += buffer[i] != (uint32_t)(i ^ 0x5aa5c33cu);
    }
    return count;
}

static void rank_of_stuck_writer(const struct family_self *self, const void *arg)
{
    hoop_comm_t comm = join(self, 2, self->rank, 300);
    const struct writes *writes = arg;
    if (self->rank == 1) {
        get_stuck(self, writes, comm);
        return;
    }
    uint32_t *in = block(self, BYTES), *out = block(self, BYTES);
    EXPECT(self, writes->call(in, out, comm) == HOOP_OK);
    no_more_files();
    const hoop_result_t result = writes->call(in, out, comm);
    for (size_t i = 0; i < COUNT; i++) {
        out[i] = (uint32_t)(i ^ 0x5aa5c33cu);
    }
    rank_tell(self, (int)result, 0);
    await_parent(self);
    rank_tell(self, HOOP_OK, damaged(out));
}

/* Nothing is written to a buffer that was given back, even if its owner has no descriptor left. */
static void run_stuck_writer(const struct writes *writes)
{
    struct family family;
    rank_start_all(&family, 2, rank_of_stuck_writer, writes, PATIENCE_MS);
    introduce(&family, 0, 1);
    const pid_t writer = family.ranks[1].pid;
    (void)rank_hear(&family, 1); /* it is about to stop */
    assert_int_equal(rank_hear(&family, 0).result, HOOP_REMOTE_ERROR);
    assert_int_equal(kill(writer, SIGCONT), 0);
    assert_int_equal(rank_hear(&family, 1).result, HOOP_REMOTE_ERROR);
    tell(&family, 0);
    assert_int_equal(rank_hear(&family, 0).value, 0);
    family_finish(&family);
}

static void test_stuck_writer(void **state)
{
    (void)state;
    run_stuck_writer(&adds_up);
    run_stuck_writer(&collects);
}

/* ---- One block, two comms -------------------------------------------------------------------- */

struct shared_block {
    hoop_comm_t comm;
    uint32_t *buffer;
};

static void *add_up_second(void *arg)
{
    const struct shared_block *block = arg;
    return (void *)(uintptr_t)add_up(block->buffer, block->buffer, block->comm);
}

/* Comm A has ranks 0 and 1, comm B ranks 0 and 2. Rank 0 uses the two halves of one block in
 * them. */
static void rank_of_two_comms(const struct family_self *self, const void *arg)
{
    (void)arg;
    if (self->rank == 1) {
        get_stuck(self, &adds_up, join(self, 2, 1, 300));
        return;
    }
    if (self->rank == 2) {
        hoop_comm_t b = join(self, 2, 1, 20000);
        uint32_t *buffer = block(self, BYTES);
        buffer[COUNT - 1] = 5;
        await_parent(self); /* A has failed */
        const hoop_result_t result = add_up(buffer, buffer, b);
        rank_tell(self, (int)result, buffer[COUNT - 1]);
        return;
    }
    hoop_comm_t a = join(self, 2, 0, 300);
    struct shared_block second = {.comm = join(self, 2, 0, 20000)};
    uint32_t *in = block(self, BYTES), *both = block(self, 2 * BYTES);
    second.buffer = both + COUNT;
    second.buffer[COUNT - 1] = 7;
    EXPECT(self, add_up(in, both, a) == HOOP_OK);
    pthread_t thread;
    EXPECT(self, pthread_create(&thread, NULL, add_up_second, &second) == 0);
    info_has(self, second.comm, "HOOP_IN_PROGRESS");
    rank_tell(self, (int)add_up(in, both, a), 0);
    void *result = NULL;
    (void)pthread_join(thread, &result);
    rank_tell(self, (int)(uintptr_t)result, second.buffer[COUNT - 1]);
}

/* A comm that fails because of a stuck writer takes nothing from another comm. */
static void test_failure_beside_another_comm(void **state)
{
    (void)state;
    struct family family;
    rank_start_all(&family, 3, rank_of_two_comms, NULL, PATIENCE_MS);
    introduce(&family, 0, 1);
    introduce(&family, 0, 2);
    (void)rank_hear(&family, 1); /* it is about to stop */
    assert_int_equal(rank_hear(&family, 0).result, HOOP_REMOTE_ERROR);
    tell(&family, 2);
    for (int rank = 0; rank <= 2; rank += 2) {
        const struct rank_report report = rank_hear(&family, rank);
        assert_string_equal(report.result == HOOP_OK ? "" : report.text, "");
        assert_int_equal(report.value, 12);
    }
    family_finish(&family);
}

/* ---- Mappings of what peers had -------------------------------------------------------------- */

/* Comms come and go beside one that stays; the memory that they used is freed before or
 * after them. */
/* NOLINTNEXTLINE(readability-function-size): every EXPECT counts as branches */
static void rank_of_imports(const struct family_self *self, const void *arg)
{
    (void)arg;
    hoop_comm_t stays = join(self, 2, self->rank, 20000);
    for (int round = 0; round < 4; round++) {
        hoop_comm_t comm = join(self, 2, self->rank, 20000);
        uint32_t *buffer = block(self, BYTES);
        EXPECT(self, add_up(buffer, buffer, comm) == HOOP_OK);
        if (round % 2 == 0) {
            EXPECT(self, hoop_mem_free(buffer) == HOOP_OK);
        }
        EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
        if (round % 2 != 0) {
            EXPECT(self, hoop_mem_free(buffer) == HOOP_OK);
        }
    }
    info_has(self, HOOP_COMM_NULL, "\"imports\":0,");
    EXPECT(self, hoop_barrier(stays, NULL) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

static void test_imports_end(void **state)
{
    (void)state;
    struct family family;
    rank_start_all(&family, 2, rank_of_imports, NULL, PATIENCE_MS);
    for (int comm = 0; comm < 5; comm++) {
        introduce(&family, 0, 1);
    }
    (void)rank_hear(&family, 0);
    (void)rank_hear(&family, 1);
    family_finish(&family);
}

/* ---- Whoever has gone, and is not needed ----------------------------------------------------- */

struct broadcast_all {
    hoop_comm_t comm;
    uint32_t *buffer;
};

static void *broadcast_all(void *arg)
{
    const struct broadcast_all *all = arg;
    return (void *)(uintptr_t)hoop_bcast(all->buffer, COUNT, HOOP_UINT32, 2, all->comm, NULL);
}

/* Rank 2 is the root, and is stopped when it has announced its buffer. Rank 0 has mapped that
 * before: it copies, and leaves. Rank 1 has to ask for it first. */
/* NOLINTNEXTLINE(readability-function-size): every EXPECT counts as branches */
static void rank_of_early_leave(const struct family_self *self, const void *arg)
{
    (void)arg;
    struct broadcast_all all = {.comm = join(self, 3, self->rank, 20000)};
    hoop_comm_t pair = HOOP_COMM_NULL;
    pthread_t thread;
    void *result = NULL;
    all.buffer = block(self, BYTES);
    EXPECT(self, hoop_comm_split(all.comm, self->rank == 1 ? HOOP_SPLIT_NOCOLOR : 0, 0, &pair,
                                 NULL) == HOOP_OK);
    EXPECT(self,
           self->rank == 1 || hoop_bcast(all.buffer, COUNT, HOOP_UINT32, 1, pair, NULL) == HOOP_OK);
    all.buffer[COUNT - 1] = (uint32_t)self->rank;
    if (self->rank != 2) {
        await_parent(self);
    }
    EXPECT(self, pthread_create(&thread, NULL, broadcast_all, &all) == 0);
    if (self->rank == 2) {
        info_has(self, all.comm, "HOOP_IN_PROGRESS");
        rank_tell(self, HOOP_OK, 0);
    }
    (void)pthread_join(thread, &result);
    if (self->rank == 0) {
        EXPECT(self, hoop_comm_destroy(all.comm) == HOOP_OK);
    }
    rank_tell(self, (int)(uintptr_t)result, all.buffer[COUNT - 1]);
    await_parent(self);
}

static void test_early_leave(void **state)
{
    (void)state;
    struct family family;
    hoop_unique_id_t id;
    rank_start_all(&family, 3, rank_of_early_leave, NULL, PATIENCE_MS);
    assert_int_equal(family_hear(&family, 0, &id, sizeof(id), hoop_deadline_ns(PATIENCE_MS)),
                     FAMILY_HEARD);
    assert_true(family_tell(&family, 1, &id, sizeof(id)) &&
                family_tell(&family, 2, &id, sizeof(id)));
    (void)rank_hear(&family, 2); /* it waits in its broadcast */
    assert_int_equal(kill(family.ranks[2].pid, SIGSTOP), 0);
    tell(&family, 1);
    tell(&family, 0);
    assert_int_equal(rank_hear(&family, 0).value, 2); /* it has left */
    usleep(50000);                                    /* time for rank 1 to notice that */
    assert_int_equal(kill(family.ranks[2].pid, SIGCONT), 0);
    for (int rank = 1; rank <= 2; rank++) {
        const struct rank_report report = rank_hear(&family, rank);
        assert_string_equal(report.result == HOOP_OK ? "" : report.text, "");
        assert_int_equal(report.value, 2);
    }
    family_finish(&family);
}

/* Rank 0 has no descriptor left by which the others could map its memory. */
static void rank_of_sharing(const struct family_self *self, const void *arg)
{
    (void)arg;
    hoop_comm_t comm = join(self, 2, self->rank, 5000);
    uint32_t *in = block(self, BYTES), *out = block(self, BYTES);
    EXPECT(self, hoop_barrier(comm, NULL) == HOOP_OK);
    if (self->rank == 0) {
        no_more_files();
    }
    rank_tell(self, (int)add_up(in, out, comm), 0);
}

static void test_unshared(void **state)
{
    (void)state;
    struct family family;
    rank_start_all(&family, 2, rank_of_sharing, NULL, PATIENCE_MS);
    introduce(&family, 0, 1);
    for (int rank = 0; rank < 2; rank++) {
        assert_non_null(strstr(rank_hear(&family, rank).text, "raise ulimit -n"));
    }
    family_finish(&family);
}

int main(void)
{
    /* One machine with all ranks, and memory that is reduced in place. */
    setenv("HOOP_ALGO", "direct", 1);
    setenv("HOOP_DEBUG", "none", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stuck_writer), cmocka_unit_test(test_failure_beside_another_comm),
        cmocka_unit_test(test_imports_end),  cmocka_unit_test(test_early_leave),
        cmocka_unit_test(test_unshared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

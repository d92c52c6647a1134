/*
 * Reading another process's memory (cross-memory attach): what hoop_process_read() reports about
 * processes that are gone, that are others, or have no such memory; whether all ranks agree on what
 * the kernel permits; a buffer that can't be read; and more than 4 GiB in one call. test_stress.sh
 * shows that results are right, and kill_fuzz that they are with kills.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/rank_report.h"
#include "plan/plan.h"
#include "runtime/process.h"
#include "runtime/wait.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PATIENCE_MS 240000
#define COUNT ((size_t)1 << 20) /* bytes that go by cma, in several slices */

/* ---- Ranks ---------------------------------------------------------------------------------- */

typedef void rank_fn(const struct family_self *self);

static void rank_main(const struct family_self *self, const void *arg)
{
    setenv("HOOP_DEBUG", "none", 0);
    family_set_number("RANK", self->rank);
    family_set_number("WORLD_SIZE", self->n);
    (*(rank_fn *const *)arg)(self);
    exit(0);
}

static void start(struct family *family, int n, rank_fn *fn)
{
    static unsigned serial;
    char job[48];
    (void)snprintf(job, sizeof(job), "cma-%d-%u", (int)getpid(), ++serial);
    setenv("TORCHELASTIC_RUN_ID", job, 1);
    setenv("MASTER_PORT", "29500", 1);
    rank_start_all(family, n, rank_main, &fn, PATIENCE_MS);
}

static hoop_comm_t join(const struct family_self *self)
{
    hoop_comm_t comm = NULL;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.algo = "cma";
    config.op_timeout_ms = PATIENCE_MS;
    EXPECT(self, hoop_comm_init_env(&comm, &config) == HOOP_OK);
    return comm;
}

static bool info_has(const struct family_self *self, hoop_comm_t comm, const char *what)
{
    static char json[65536];
    size_t needed = 0;
    EXPECT(self, hoop_info_json(comm, json, sizeof(json), &needed) == HOOP_OK);
    return strstr(json, what) != NULL;
}

/* Byte i of rank r's input. */
static uint8_t byte_of(int rank, size_t i)
{
    return (uint8_t)(i * 7 + i / 251 + (size_t)rank * 31);
}

/* Sends to the next rank; a small rest is copied. */
static void pass_round(const struct family_self *self, hoop_comm_t comm)
{
    const int next = (self->rank + 1) % self->n, before = (self->rank + self->n - 1) % self->n;
    uint8_t *out = malloc(COUNT), *in = malloc(COUNT), little[2] = {(uint8_t)self->rank, 0xff};
    EXPECT(self, out != NULL && in != NULL);
    for (size_t i = 0; i < COUNT; i++) {
        out[i] = byte_of(self->rank, i);
    }
    EXPECT(self, hoop_group_start() == HOOP_OK);
    EXPECT(self, hoop_send(out + 1, COUNT - 1, HOOP_UINT8, next, comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_send(little, 1, HOOP_UINT8, next, comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_recv(in + 1, COUNT - 1, HOOP_UINT8, before, comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_recv(little + 1, 1, HOOP_UINT8, before, comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_group_end() == HOOP_OK);
    size_t wrong = little[1] != before;
    for (size_t i = 1; i < COUNT; i++) {
        wrong += in[i] != byte_of(before, i);
    }
    EXPECT(self, wrong == 0);
    free(out);
    free(in);
}

static void gather_from(const struct family_self *self, hoop_comm_t comm, uint8_t *in)
{
    uint8_t *out = malloc((size_t)self->n * COUNT + 3);
    EXPECT(self, out != NULL);
    for (size_t i = 0; i < COUNT; i++) {
        in[i] = byte_of(self->rank, i);
    }
    EXPECT(self, hoop_all_gather(in, out + 3, COUNT, HOOP_UINT8, comm, NULL) == HOOP_OK);
    size_t wrong = 0;
    for (size_t i = 0; i < (size_t)self->n * COUNT; i++) {
        wrong += out[3 + i] != byte_of((int)(i / COUNT), i % COUNT);
    }
    EXPECT(self, wrong == 0);
    free(out);
}

/* From an odd address. */
static void gather_all(const struct family_self *self, hoop_comm_t comm)
{
    uint8_t *in = malloc(COUNT + 1);
    EXPECT(self, in != NULL);
    gather_from(self, comm, in + 1);
    free(in);
    pass_round(self, comm);
}

/* ---- What the kernel permits ---------------------------------------------------------------- */

static void deny(const struct family_self *self)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = 4, .filter = code};
    EXPECT(self, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    EXPECT(self, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* value: 1 if memory is read. */
static void work_and_tell_of(const struct family_self *self, hoop_comm_t comm)
{
    gather_all(self, comm);
    rank_tell(self, HOOP_OK, info_has(self, comm, "\"cma\":true"));
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
}

static void work_and_tell(const struct family_self *self)
{
    work_and_tell_of(self, join(self));
}

static void one_is_denied(const struct family_self *self)
{
    if (self->rank == 1) {
        deny(self);
    }
    hoop_comm_t comm = join(self);
    gather_all(self, comm);
    EXPECT(self, info_has(self, comm, "\"cma\":false"));
    EXPECT(self, info_has(self, comm, self->rank == 1 ? "EPERM" : "rank 1 cannot read"));
    rank_tell(self, HOOP_OK, 0);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
}

static void one_turns_it_off(const struct family_self *self)
{
    if (self->rank == 2) {
        setenv("HOOP_CMA", "0", 1);
    }
    work_and_tell(self);
}

/* Memory that could be read at the join, but no longer can, is copied instead. */
static void denied_later(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    gather_all(self, comm);
    if (self->rank == 1) {
        deny(self);
    }
    void *place = malloc(COUNT + 1); /* where the input was that was tried */
    gather_all(self, comm);
    free(place);
    rank_tell(self, HOOP_OK, 0);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
}

static uint8_t *map_at(const struct family_self *self, void *place, int protection)
{
    const int fixed = place != NULL ? MAP_FIXED : 0;
    uint8_t *at = mmap(place, COUNT, protection, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    EXPECT(self, at != MAP_FAILED);
    return at;
}

/*
 * At the address of a buffer that others have read there is now another, which only its own process
 * can read, such as secret memory. A comm that has read the first one takes the second for
 * readable, too, and fails with an error that tells how to avoid that; another comm tries for
 * itself.
 */
static void mapped_anew(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    uint8_t *in = map_at(self, NULL, PROT_READ | PROT_WRITE), *out = malloc(3 * COUNT);
    EXPECT(self, out != NULL);
    gather_from(self, comm, in);
    if (self->rank == 1) {
        (void)map_at(self, in, PROT_WRITE);
    }
    EXPECT(self, hoop_all_gather(in, out, COUNT, HOOP_UINT8, comm, NULL) == HOOP_REMOTE_ERROR);
    EXPECT(self, strstr(hoop_get_last_error(comm), "HOOP_CMA=0 avoids such reads") != NULL);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    comm = join(self);
    gather_from(self, comm, in);
    EXPECT(self, munmap(in, COUNT) == 0);
    free(out);
    work_and_tell_of(self, comm);
}

static void all_say(rank_fn *fn, uint64_t value)
{
    struct family family;
    start(&family, 3, fn);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(rank_hear(&family, r).value, value);
    }
    rank_end_all(&family);
}

static void test_permission(void **state)
{
    (void)state;
    all_say(work_and_tell, 1);
    all_say(one_is_denied, 0);
    all_say(one_turns_it_off, 0);
    all_say(denied_later, 0);
    all_say(mapped_anew, 1);
}

/* The choice for memory that is not mapped, with 2 ranks and blocks of so many bytes. */
static enum hoop_algo chosen(enum hoop_collective collective, uint64_t bytes, bool no_cma)
{
    const struct hoop_agreement agreed = {.oneshot_bytes = 65536,
                                          .chunk_bytes = 131072,
                                          .bruck_bytes = 65536,
                                          .lanes = 2,
                                          .no_cma = no_cma};
    const struct hoop_reach reach = {.mapped = false};
    const struct hoop_signature signature = {
        .collective = collective, .type = HOOP_UINT8, .count = bytes, .root = -1};
    struct hoop_plan plan;
    hoop_plan_begin(&plan, &signature, 0, 2, false);
    hoop_plan_choose(&agreed, &reach, &plan);
    return plan.algo;
}

static void test_choice(void **state)
{
    const struct hoop_agreement roomy = {.no_cma = 0}, crowded = {.oversubscribed = true},
                                forbidden = {.no_cma = 1};
    (void)state;
    assert_int_equal(hoop_plan_read_least(&roomy), 16384);
    assert_int_equal(hoop_plan_read_least(&crowded), 262144);
    assert_int_equal(hoop_plan_read_least(&forbidden), UINT64_MAX);
    assert_int_equal(chosen(HOOP_COLL_ALL_GATHER, COUNT, false), HOOP_ALGO_CMA);
    assert_int_equal(chosen(HOOP_COLL_REDUCE_SCATTER, COUNT, false), HOOP_ALGO_CMA);
    assert_int_equal(chosen(HOOP_COLL_ALL_GATHER, COUNT, true), HOOP_ALGO_SLAB);
    assert_int_equal(chosen(HOOP_COLL_ALL_GATHER, 1000, false), HOOP_ALGO_SLAB);
    assert_int_equal(chosen(HOOP_COLL_ALL_REDUCE, COUNT, false), HOOP_ALGO_SLAB);
    assert_int_equal(chosen(HOOP_COLL_REDUCE, COUNT, false), HOOP_ALGO_SLAB);
}

/* ---- Memory that is not there --------------------------------------------------------------- */

/* Rank 1's input has a hole in about the second slice: all ranks fail, and the error names it. */
static void read_a_hole(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *in = mmap(NULL, COUNT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *out = malloc(3 * COUNT);
    EXPECT(self, in != MAP_FAILED && out != NULL);
    gather_all(self, comm);
    if (self->rank == 1) {
        EXPECT(self, mprotect(in + COUNT / 2, page, PROT_NONE) == 0);
    }
    const hoop_result_t result = hoop_gather(in, out, COUNT, HOOP_UINT8, 0, comm, NULL);
    rank_tell(self, (int)result, 0);
    EXPECT(self, hoop_comm_abort(comm) == HOOP_OK && hoop_comm_destroy(comm) == HOOP_OK);
    free(out);
}

static void test_hole(void **state)
{
    struct family family;
    (void)state;
    start(&family, 3, read_a_hole);
    for (int r = 0; r < 3; r++) {
        const struct rank_report report = rank_hear(&family, r);
        assert_int_equal(report.result, HOOP_REMOTE_ERROR);
        assert_non_null(strstr(report.text, "the memory of rank 1"));
    }
    rank_end_all(&family);
}

/* ---- What is mapped instead ----------------------------------------------------------------- */

#define MAPPED_COUNT (3 * COUNT + 5) /* several slices */

/* Sends from inside a region to the next rank. */
static void pass_mapped(const struct family_self *self, hoop_comm_t comm, uint8_t *out)
{
    const int next = (self->rank + 1) % self->n, before = (self->rank + self->n - 1) % self->n;
    uint8_t *in = malloc(MAPPED_COUNT);
    EXPECT(self, in != NULL);
    for (size_t i = 0; i < MAPPED_COUNT; i++) {
        out[i] = byte_of(self->rank, i);
    }
    EXPECT(self, hoop_group_start() == HOOP_OK);
    EXPECT(self, hoop_send(out, MAPPED_COUNT, HOOP_UINT8, next, comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_recv(in, MAPPED_COUNT, HOOP_UINT8, before, comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_group_end() == HOOP_OK);
    size_t wrong = 0;
    for (size_t i = 0; i < MAPPED_COUNT; i++) {
        wrong += in[i] != byte_of(before, i);
    }
    EXPECT(self, wrong == 0);
    free(in);
}

/* How many regions of peers are mapped in this process. */
static int imports(const struct family_self *self)
{
    static char json[65536];
    static const char key[] = "\"imports\":";
    size_t needed = 0;
    EXPECT(self, hoop_info_json(NULL, json, sizeof(json), &needed) == HOOP_OK);
    const char *at = strstr(json, key);
    EXPECT(self, at != NULL);
    return atoi(at + strlen(key));
}

/* Although the kernel lets nobody read. The second region mostly has the address of the first.
 * Memory of hoop_mem_alloc() is mapped only by its receiver. */
static void pass_regions(const struct family_self *self)
{
    void *memory = NULL;
    setenv("HOOP_LEARN", "0", 1);
    deny(self);
    hoop_comm_t comm = join(self);
    pass_round(self, comm);
    const int before = imports(self);
    for (size_t round = 0; round < 3; round++) {
        EXPECT(self, hoop_mem_alloc(&memory, MAPPED_COUNT + round, HOOP_MEM_HOST) == HOOP_OK);
        pass_mapped(self, comm, (uint8_t *)memory + round);
        pass_mapped(self, comm, (uint8_t *)memory + round);
        EXPECT(self, imports(self) > before);
        EXPECT(self, hoop_barrier(comm, NULL) == HOOP_OK);
        EXPECT(self, hoop_mem_free(memory) == HOOP_OK);
    }
    rank_tell(self, HOOP_OK, 0);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
}

/* Allows as many descriptors as are in use (full), or all that may be. */
static void limit_descriptors(const struct family_self *self, bool full)
{
    struct rlimit limit;
    const int next = full ? dup(0) : -1;
    EXPECT(self, getrlimit(RLIMIT_NOFILE, &limit) == 0);
    EXPECT(self, !full || (next >= 0 && close(next) == 0));
    limit.rlim_cur = full ? (rlim_t)next : limit.rlim_max;
    EXPECT(self, setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* A rank without descriptors can map nothing, and nothing of it can be mapped; all arrives. */
static void pass_without_descriptors(const struct family_self *self)
{
    void *memory = NULL;
    setenv("HOOP_LEARN", "0", 1);
    deny(self);
    hoop_comm_t comm = join(self);
    EXPECT(self, hoop_mem_alloc(&memory, MAPPED_COUNT, HOOP_MEM_HOST) == HOOP_OK);
    pass_round(self, comm);
    const int before = imports(self);
    for (int full = 1; full >= 0; full--) {
        if (self->rank == 1) {
            limit_descriptors(self, full != 0);
        }
        pass_mapped(self, comm, memory);
        EXPECT(self, full != 0 || imports(self) > before);
        EXPECT(self, hoop_barrier(comm, NULL) == HOOP_OK);
    }
    rank_tell(self, HOOP_OK, 0);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    EXPECT(self, hoop_mem_free(memory) == HOOP_OK);
}

static void test_regions(void **state)
{
    (void)state;
    all_say(pass_regions, 0);
    all_say(pass_without_descriptors, 0);
}

/* ---- More than 4 GiB ------------------------------------------------------------------------ */

#define WINDOW ((size_t)32 << 20)
#define WINDOWS ((size_t)130)

/* So many bytes of address space, in which one window of memory repeats. */
static uint8_t *windows(const struct family_self *self)
{
    const int fd = memfd_create("windows", MFD_CLOEXEC);
    uint8_t *all =
        mmap(NULL, WINDOWS * WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(self, fd >= 0 && all != MAP_FAILED && ftruncate(fd, (off_t)WINDOW) == 0);
    for (size_t i = 0; i < WINDOWS; i++) {
        EXPECT(self, mmap(all + i * WINDOW, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          fd, 0) == all + i * WINDOW);
    }
    close(fd);
    return all;
}

static void expect_window(const struct family_self *self, const uint8_t *buffer)
{
    size_t wrong = 0;
    for (size_t i = 0; i < WINDOW; i++) {
        wrong += buffer[i] != byte_of(0, i);
    }
    EXPECT(self, wrong == 0);
}

static void move_much(const struct family_self *self)
{
    const size_t count = WINDOWS * WINDOW - 5; /* the bytes of the last window remain */
    hoop_comm_t comm = join(self);
    uint8_t *buffer = windows(self);
    for (size_t i = 0; i < WINDOW; i++) {
        buffer[i] = self->rank == 0 ? byte_of(0, i) : 0;
    }
    EXPECT(self, hoop_broadcast(buffer, buffer, count, HOOP_UINT8, 0, comm, NULL) == HOOP_OK);
    expect_window(self, buffer);
    if (self->rank == 0) {
        EXPECT(self, hoop_send(buffer, count, HOOP_UINT8, 1, comm, NULL) == HOOP_OK);
    } else {
        memset(buffer, 0, WINDOW);
        EXPECT(self, hoop_recv(buffer, count, HOOP_UINT8, 0, comm, NULL) == HOOP_OK);
    }
    expect_window(self, buffer);
    rank_tell(self, HOOP_OK, info_has(self, comm, "\"cma\":true"));
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
}

static void test_huge(void **state)
{
    struct family family;
    (void)state;
    start(&family, 2, move_much);
    assert_int_equal(rank_hear(&family, 0).value, 1);
    assert_int_equal(rank_hear(&family, 1).value, 1);
    rank_end_all(&family);
}

/* ---- Without hoop --------------------------------------------------------------------------- */

static uint8_t *seen; /* at the same address in parent and child: two pages followed by a hole */

static void show(const struct family_self *self, const void *arg)
{
    (void)arg;
    memset(seen, 'x', (size_t)sysconf(_SC_PAGESIZE));
    rank_tell(self, HOOP_OK, hoop_process_id());
    (void)family_order(self);
}

static void test_read(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t here[64] = {0};
    struct family family;
    (void)state;
    seen = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(seen != MAP_FAILED && munmap(seen + 2 * page, page) == 0);
    rank_start_all(&family, 1, show, NULL, PATIENCE_MS);
    struct hoop_process_memory its = {.pid = family.ranks[0].pid,
                                      .id = rank_hear(&family, 0).value,
                                      .id_at = hoop_process_id_at()};
    const uint64_t at = (uintptr_t)seen;

    assert_int_equal(hoop_process_read(&its, NULL, 0, 0), HOOP_OK);
    assert_int_equal(hoop_process_read(&its, here, at + page - 32, sizeof(here)), HOOP_OK);
    assert_int_equal(here[31], 'x');
    assert_int_equal(here[32], 0);
    assert_int_equal(hoop_process_read(&its, here, at + 2 * page - 32, sizeof(here)),
                     HOOP_REMOTE_ERROR);
    assert_non_null(strstr(hoop_thread_error(), "HOOP_CMA=0"));

    its.id++; /* as if another process had its pid */
    assert_int_equal(hoop_process_read(&its, here, at, sizeof(here)), HOOP_REMOTE_ERROR);
    assert_non_null(strstr(hoop_thread_error(), "has ended"));
    its.id--;
    family_kill(&family, 0);
    assert_int_equal(hoop_process_read(&its, here, at, sizeof(here)), HOOP_REMOTE_ERROR);
    assert_non_null(strstr(hoop_thread_error(), "has ended"));
    its.id_at = 0;
    assert_int_equal(hoop_process_read(&its, NULL, 0, 0), HOOP_SYSTEM_ERROR);
    family_finish(&family);
    assert_int_equal(munmap(seen, 2 * page), 0);
}

static void *stay(void *arg)
{
    (void)pause();
    return arg;
}

/* A process whose main thread has ended goes on with its others, and so can be read. */
static void test_main_thread_ended(void **state)
{
    static uint8_t there = 'x';
    uint8_t here = 0;
    (void)state;
    const uint64_t id = hoop_process_id();
    const pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        there = 'y';
        (void)pthread_create(&thread, NULL, stay, NULL);
        pthread_exit(NULL);
    }
    assert_true(child > 0);
    const struct hoop_process_memory its = {child, id, hoop_process_id_at()};
    for (int i = 0; i < 500; i++) { /* the child's main thread ends meanwhile */
        assert_int_equal(hoop_process_read(&its, &here, (uintptr_t)&there, 1), HOOP_OK);
        hoop_wait_briefly();
    }
    assert_int_equal(here, 'y');
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(hoop_process_read(&its, &here, (uintptr_t)&there, 1), HOOP_REMOTE_ERROR);
}

/* As between two ranks, neither of which is the other's parent. */
static bool permitted(void)
{
    struct family family;
    start(&family, 2, work_and_tell);
    const bool permits = rank_hear(&family, 0).value != 0 && rank_hear(&family, 1).value != 0;
    rank_end_all(&family);
    return permits;
}

int main(void)
{
    /* comes last: processes that are forked after it would have its id */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_permission),
        cmocka_unit_test(test_hole),
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_huge),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_main_thread_ended),
    };
    if (!permitted()) {
        (void)fprintf(stderr, "processes may not read each other's memory here\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Memory of cudaMalloc() between processes, over the fake driver that HOOP_CUDA names: they open
 * each other's memory, and nothing goes through the host. If they can't, everything does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/sizes.h"
#include "memory/cuda.h"
#include "memory/ipc.h"
#include "memory/memfd.h"
#include "memory/region.h"
#include "whole/device_ranks.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAID "memory of cudaMalloc() goes through the host"

/* ---- In a rank ---- */

static int32_t *plain(const struct family_self *self, size_t count)
{
    hoop_cu_address_t at = 0;
    EXPECT(self, hoop_cuda.alloc(&at, count * sizeof(int32_t)) == 0);
    return (int32_t *)(uintptr_t)at;
}

static void drop(const struct family_self *self, const int32_t *memory)
{
    EXPECT(self, hoop_cuda.free((uintptr_t)memory) == 0);
}

/* Sums until so many are open, because it takes a while until the news of freed memory arrives. */
static void sum_until_open(const struct family_self *self, hoop_comm_t comm, int32_t *x,
                           size_t least, size_t most)
{
    int32_t some_differ = 1;
    const uint64_t deadline = hoop_deadline_ns(PATIENCE_MS / 2);
    while (some_differ != 0) {
        sum(self, comm, x, x, 0, 1000);
        some_differ = opened() < least || opened() > most;
        EXPECT(self, hoop_now_ns() < deadline);
        EXPECT(self, hoop_all_reduce(&some_differ, &some_differ, 1, HOOP_INT32, HOOP_MAX, comm,
                                     NULL) == HOOP_OK);
    }
}

static void work(const struct family_self *self, hoop_comm_t comm)
{
    for (unsigned round = 0; round < 2; round++) {
        int32_t *in = plain(self, MOST + round), *out = plain(self, MOST);
        exchange(self, comm, in, out);
        sum_many(self, comm, in, out);
        drop(self, in);
        drop(self, out);
    }
}

static int (*range_of)(hoop_cu_address_t *ret_base, size_t *ret_bytes, hoop_cu_address_t at);
static _Atomic unsigned looked;

static int range_and_count(hoop_cu_address_t *ret_base, size_t *ret_bytes, hoop_cu_address_t at)
{
    atomic_fetch_add(&looked, 1);
    return range_of(ret_base, ret_bytes, at);
}

/* An operation looks up each of its own buffers once, and one other allocation. */
static void work_and_look(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    int32_t *in = plain(self, MOST), *out = plain(self, MOST);
    sum(self, comm, in, out, 0, MOST);
    range_of = hoop_cuda.address_range;
    hoop_cuda.address_range = range_and_count;
    sum(self, comm, in, out, 0, MOST);
    EXPECT(self, atomic_exchange(&looked, 0) == 4);
    sum(self, comm, in, in, 0, MOST);
    EXPECT(self, atomic_exchange(&looked, 0) == 2);
    EXPECT(self, host_copies() == 0 && launches() == 3 * (self->rank == 0));
    leave(self, comm);
}

static void work_there(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    work(self, comm);
    EXPECT(self, host_copies() == 0 && (launches() > 0 || self->rank != 0));
    EXPECT(self, (opened() > 0) == (self->n > 1));
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    EXPECT(self, opened() == 0);
    rank_tell(self, HOOP_OK, 0);
}

static void work_by_host(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    work(self, comm);
    EXPECT(self, host_copies() > 0 && launches() == 0 && opened() == 0);
    int32_t *mine = make(self, MOST); /* an allocation that is not used */
    sum(self, comm, mine, mine, 0, MOST);
    EXPECT(self, launches() == (self->rank == 0) && hoop_mem_free(mine) == HOOP_OK);
    leave(self, comm);
}

static void work_on_devices(const struct family_self *self)
{
    take_device(self, self->rank == 1 ? "2,1,0" : "0,1,2", self->rank % 3);
    work_there(self);
}

/* Freed memory is closed, whether other memory takes its address or not. */
static void work_and_free(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    const size_t others = (size_t)self->n - 1;
    int32_t *x = plain(self, 1000), *y = plain(self, 3000);
    for (unsigned round = 0; round < 5; round++) {
        sum(self, comm, x, x, 0, 1000);
        EXPECT(self, opened() >= others);
        const int32_t *before = x;
        drop(self, x);
        x = plain(self, 1000);
        EXPECT(self, x == before);
    }
    sum_until_open(self, comm, x, others, others);
    sum(self, comm, y, y, 1, 2000);
    EXPECT(self, opened() == 2 * others);
    drop(self, x);
    sum_until_open(self, comm, y, others, others);
    const unsigned before = launches();
    sum(self, comm, y, y, 1, 2000);
    EXPECT(self,
           host_copies() == 0 && launches() == before + (self->rank == 0) && opened() == others);
    drop(self, y);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    EXPECT(self, opened() == 0);
    rank_tell(self, HOOP_OK, 0);
}

/* CUDA closes nothing while a kernel runs, but destroying a comm does not wait for that. */
static void work_and_destroy(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    int32_t *x = plain(self, 1000), *y = plain(self, 1000);
    sum(self, comm, x, x, 0, 1000);
    EXPECT(self, opened() > 0);
    fill(NULL, y, 1, 4000, 3500000);
    const uint64_t start = hoop_now_ns();
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    EXPECT(self, hoop_now_ns() - start < 2500 * HOOP_NS_PER_MS && opened() > 0);
    settle(self);
    const uint64_t deadline = hoop_deadline_ns(PATIENCE_MS / 2);
    while (opened() > 0) {
        hoop_ipc_close_forgotten(true);
        EXPECT(self, hoop_now_ns() < deadline);
    }
    rank_tell(self, HOOP_OK, 0);
}

/* Several buffers in one page, all of which are opened when one is. */
static void work_side_by_side(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    int32_t *in = plain(self, 50 + 30 * (size_t)self->rank), *out = plain(self, 40);
    int32_t *between = plain(self, 64), *last = plain(self, 40);
    memset(seen(between), 0x5a, 256);
    for (size_t count = 1; count <= 40; count += 3) {
        sum(self, comm, in, out, 0, count);
        sum(self, comm, last, last, 0, count);
    }
    for (int i = 0; i < 64; i++) {
        EXPECT(self, seen(between)[i] == 0x5a5a5a5a);
    }
    EXPECT(self, host_copies() == 0 && (launches() > 0) == (self->rank == 0));
    leave(self, comm);
}

/* Three kinds of memory: if one rank has one that can't be opened, all goes through the host. */
static void work_mixed(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    int32_t *mine = make(self, MOST), *x = plain(self, MOST), *pooled = plain(self, MOST);
    pool(pooled);
    sum(self, comm, self->rank == 1 ? x : mine, self->rank == 0 ? x : mine, 0, MOST);
    EXPECT(self, launches() == (self->rank == 0) && host_copies() == 0);
    sum(self, comm, self->rank == 1 ? pooled : mine, x, 0, MOST);
    EXPECT(self, launches() == (self->rank == 0) && host_copies() > 0);
    sum(self, comm, x, mine, 0, MOST);
    EXPECT(self, launches() == 2 * (self->rank == 0));
    leave(self, comm);
}

static void work_refused(const struct family_self *self)
{
    if (self->rank == 1) {
        setenv("FAKE_CUDA_IPC_REFUSED", "1", 1);
    }
    work_by_host(self);
}

static void work_refused_by_all(const struct family_self *self)
{
    setenv("FAKE_CUDA_IPC_REFUSED", "1", 1);
    work_by_host(self);
}

static void work_with_less(const struct family_self *self)
{
    if (self->rank == 2) {
        setenv("FAKE_CUDA_IPC_SHORT", "1", 1);
    }
    work_by_host(self);
}

static void work_not_shown(const struct family_self *self)
{
    if (self->rank == 0) {
        setenv("FAKE_CUDA_NO_IPC", "1", 1);
    }
    hoop_comm_t comm = join(self);
    int32_t *x = plain(self, MOST), *y = plain(self, MOST);
    sum(self, comm, x, y, 0, MOST);
    EXPECT(self, host_copies() > 0 && launches() == 0 && opened() == 0);
    exchange(self, comm, x, y); /* some of these access only other ranks' memory */
    leave(self, comm);
}

/* Opening is refused in the middle: what was opened before does not stay in use. */
static void work_until_refused(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    int32_t *x = plain(self, MOST), *y = plain(self, MOST);
    sum(self, comm, x, x, 0, MOST);
    EXPECT(self, launches() == (self->rank == 0));
    if (self->rank == 2) {
        setenv("FAKE_CUDA_IPC_REFUSED", "1", 1);
    }
    sum(self, comm, y, y, 0, MOST);
    sum(self, comm, x, x, 0, MOST);
    EXPECT(self, launches() == (self->rank == 0) && host_copies() > 0);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    EXPECT(self, opened() == 0);
    rank_tell(self, HOOP_OK, 0);
}

/* Two ranks in each process: one accesses the other's memory by its address, and other processes
 * open it. */
struct two {
    const struct family_self *self;
    hoop_unique_id_t id;
    hoop_cu_context_t context;
    int which, failed;
};

static void *work_as_one_of_two(void *arg)
{
    struct two *two = arg;
    const int n = 2 * two->self->n, rank = 2 * two->self->rank + two->which;
    hoop_comm_t comm = NULL;
    hoop_cu_address_t at = 0;
    two->failed = hoop_cuda.context_push(two->context) != 0 ||
                  hoop_comm_init_rank(&comm, n, two->id, rank) != HOOP_OK ||
                  hoop_cuda.alloc(&at, MOST * sizeof(int32_t)) != 0;
    int32_t *x = (int32_t *)(uintptr_t)at;
    for (size_t i = 0; i < MOST && !two->failed; i++) {
        seen(x)[i] = (int32_t)i + rank;
    }
    for (int round = 0; round < 2 && !two->failed; round++) {
        two->failed = hoop_all_reduce(x, x, MOST, HOOP_INT32, HOOP_MAX, comm, NULL) != HOOP_OK ||
                      hoop_cuda.stream_synchronize(NULL) != 0 || seen(x)[MOST - 1] != 30000 + n - 1;
    }
    two->failed |= comm != NULL && hoop_comm_destroy(comm) != HOOP_OK;
    return NULL;
}

static void work_in_twos(const struct family_self *self)
{
    struct two two[2] = {{.self = self, .which = 0}, {.self = self, .which = 1}};
    hoop_comm_t comm = join(self);
    pthread_t threads[2];
    if (self->rank == 0) {
        EXPECT(self, hoop_get_unique_id(&two[0].id) == HOOP_OK);
    }
    EXPECT(self, hoop_bcast(&two[0].id, sizeof(two[0].id), HOOP_UINT8, 0, comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_cuda.context_get(&two[0].context) == 0);
    two[1].id = two[0].id;
    two[1].context = two[0].context;
    for (int i = 0; i < 2; i++) {
        EXPECT(self, pthread_create(&threads[i], NULL, work_as_one_of_two, &two[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        EXPECT(self, pthread_join(threads[i], NULL) == 0 && two[i].failed == 0);
    }
    EXPECT(self, launches() == 2 * (self->rank == 0) && host_copies() == 0);
    leave(self, comm);
}

static void work_until_failure(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    int32_t *x = plain(self, MOST);
    sum_until_failure(self, comm, x);
    EXPECT(self, opened() == 0);
    rank_tell(self, HOOP_OK, 0);
}

static int handle_with(const struct family_self *self, int byte, size_t bytes)
{
    unsigned char handle[128];
    int fd = -1;
    memset(handle, byte, sizeof(handle));
    EXPECT(self, hoop_memfd_create("lie", bytes, &fd) == HOOP_OK);
    EXPECT(self, pwrite(fd, handle, bytes, 0) == (ssize_t)bytes);
    return fd;
}

/* What a peer says about memory is checked before it is used. */
static void import_lies(const struct family_self *self)
{
    const uint32_t shown = HOOP_IPC_GENERATION;
    struct hoop_region_ref ref;
    void *base = NULL;
    uint64_t bytes = 0;
    uint32_t kind = 0;
    int fd = -1;
    int32_t *x = plain(self, 1000);
    EXPECT(self, !hoop_region_find(x, 4000, &ref) && !hoop_region_show(x + 1, 4000, &ref));
    EXPECT(self, hoop_region_show(x + 1, 3996, &ref) && ref.offset == 4 && ref.bytes == 4000);
    EXPECT(self, hoop_region_export(ref.id, ref.generation, &fd, &bytes, &kind) == HOOP_OK);
    EXPECT(self, kind == HOOP_MEM_PLAIN && bytes == 4000);
    EXPECT(self, hoop_region_import(1, 1, 1, kind, bytes, dup(fd)) == HOOP_REMOTE_ERROR);
    EXPECT(self, hoop_region_import(1, 1, shown, HOOP_MEM_DEVICE, bytes, fd) == HOOP_REMOTE_ERROR);
    fd = handle_with(self, 0, 63);
    EXPECT(self, hoop_region_import(1, 1, shown, kind, bytes, fd) == HOOP_REMOTE_ERROR);
    fd = handle_with(self, 7, 64);
    EXPECT(self, hoop_region_import(1, 1, shown, kind, bytes, fd) == HOOP_OK);
    EXPECT(self, hoop_region_use(1, 1, shown, &base, &bytes) == HOOP_OK);
    EXPECT(self, hoop_region_grant(1, 1, shown, 0, &base) == HOOP_CUDA_ERROR);
    EXPECT(self, strstr(hoop_get_last_error(NULL), "cuIpcOpenMemHandle") != NULL);
    EXPECT(self, hoop_region_grant(1, 1, shown, 64, &base) == HOOP_UNSUPPORTED);
    hoop_region_unuse(1, 1, shown);
    hoop_region_forget(1, 1, shown);
    hoop_ipc_close_forgotten(true);
    /* Its own memory is known until other memory has that address. */
    EXPECT(self, hoop_ipc_own(ref.id, &base, &bytes) == HOOP_OK && base == x && bytes == 4000);
    drop(self, x);
    EXPECT(self, plain(self, 1000) == x && hoop_region_show(x, 4000, &ref));
    EXPECT(self, hoop_ipc_own(ref.id - 1, &base, &bytes) == HOOP_REMOTE_ERROR);
    EXPECT(self,
           hoop_region_export(ref.id - 1, shown, &fd, &bytes, &kind) == HOOP_INVALID_ARGUMENT);
    rank_tell(self, HOOP_OK, 0);
}

/* Imports a region of another rank, by a handle that it has sent. */
static void *open_told(const struct family_self *self, uint64_t id, const unsigned char *handle)
{
    int fd = -1;
    void *base = NULL, *again = NULL;
    uint64_t bytes = 0;
    EXPECT(self, hoop_memfd_create("told", 64, &fd) == HOOP_OK);
    EXPECT(self, pwrite(fd, handle, 64, 0) == 64);
    EXPECT(self,
           hoop_region_import(1, id, HOOP_IPC_GENERATION, HOOP_MEM_PLAIN, 4000, fd) == HOOP_OK);
    EXPECT(self, hoop_region_use(1, id, HOOP_IPC_GENERATION, &base, &bytes) == HOOP_OK);
    EXPECT(self, !hoop_region_is_granted(1, id, HOOP_IPC_GENERATION, 0, &again));
    EXPECT(self, hoop_region_grant(1, id, HOOP_IPC_GENERATION, 0, &base) == HOOP_OK);
    EXPECT(self, hoop_region_is_granted(1, id, HOOP_IPC_GENERATION, 0, &again) && again == base);
    EXPECT(self, !hoop_region_is_granted(1, id, HOOP_IPC_GENERATION, 1, &again));
    return base;
}

static void forget_told(uint64_t id)
{
    hoop_region_unuse(1, id, HOOP_IPC_GENERATION);
    hoop_region_forget(1, id, HOOP_IPC_GENERATION);
}

/* Opening does not wait until something else is closed. */
static void open_beside_closing(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    unsigned char handles[2][64];
    for (int i = 0; i < 2 && self->rank == 0; i++) {
        struct hoop_region_ref ref;
        uint64_t bytes = 0;
        uint32_t kind = 0;
        int fd = -1;
        EXPECT(self, hoop_region_show(plain(self, 1000), 4000, &ref));
        EXPECT(self, hoop_region_export(ref.id, ref.generation, &fd, &bytes, &kind) == HOOP_OK);
        EXPECT(self, pread(fd, handles[i], 64, 0) == 64 && close(fd) == 0);
    }
    EXPECT(self, hoop_bcast(handles, sizeof(handles), HOOP_UINT8, 0, comm, NULL) == HOOP_OK);
    if (self->rank == 1) {
        setenv("FAKE_CUDA_IPC_CLOSE_US", "900000", 1);
        EXPECT(self, open_told(self, 1, handles[0]) != NULL && opened() == 1);
        forget_told(1);
        EXPECT(self, open_told(self, 2, handles[1]) != NULL && opened() == 2);
        forget_told(2);
        unsetenv("FAKE_CUDA_IPC_CLOSE_US");
    }
    EXPECT(self, hoop_barrier(comm, NULL) == HOOP_OK);
    leave(self, comm);
}

/* ---- In the parent ---- */

static void test_there(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n += n < 3 ? 1 : 2) {
        run(n, work_there);
    }
    run(2, work_and_look);
    run(4, work_on_devices);
    run(2, work_in_twos);
}

static void test_freed(void **state)
{
    (void)state;
    run(2, work_and_free);
    run(3, work_and_free);
    run(3, work_side_by_side);
    run(2, work_and_destroy);
}

/* Counts the lines in a job's logs that report this, and those of them that give the reason. */
static void count_lines(const char *folder, const char *why, int *ret_said, int *ret_why)
{
    DIR *dir = opendir(folder);
    char line[1024], path[512];
    assert_non_null(dir);
    for (const struct dirent *at = readdir(dir); at != NULL; at = readdir(dir)) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, at->d_name);
        FILE *file = at->d_name[0] != '.' ? fopen(path, "r") : NULL;
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            const bool says = strstr(line, SAID) != NULL;
            *ret_said += says;
            *ret_why += says && strstr(line, why) != NULL;
        }
        if (file != NULL) {
            assert_int_equal(fclose(file) | unlink(path), 0);
        }
    }
    closedir(dir);
}

/* Everything goes through the host; so many processes report that, and some of them know why. */
static void run_by_host(int n, rank_fn *fn, int says, const char *why, int knows)
{
    char folder[] = "/tmp/hoop_ipc_XXXXXX", log[64];
    int said = 0, known = 0;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(log, sizeof(log), "%s/%%p", folder);
    assert_int_equal(setenv("HOOP_DEBUG", "info", 1) | setenv("HOOP_DEBUG_FILE", log, 1), 0);
    run(n, fn);
    assert_int_equal(unsetenv("HOOP_DEBUG") | unsetenv("HOOP_DEBUG_FILE"), 0);
    count_lines(folder, why, &said, &known);
    assert_int_equal(said, says);
    assert_int_equal(known, knows);
    assert_int_equal(rmdir(folder), 0);
}

static void test_by_host(void **state)
{
    (void)state;
    run(2, work_mixed);
    run(3, work_until_refused);
    run_by_host(3, work_refused, 1, "cuIpcOpenMemHandle", 1);
    run_by_host(3, work_refused_by_all, 3, "cuIpcOpenMemHandle", 3);
    run_by_host(3, work_with_less, 1, "are there", 1);
    run_by_host(3, work_not_shown, 1, "cuIpcGetMemHandle", 1);
    without_ipc = 1;
    run_by_host(3, work_by_host, 1, "rank 1 has HOOP_CUDA_IPC=0", 1);
    without_ipc = -1;
}

static void test_import(void **state)
{
    (void)state;
    run(1, import_lies);
    run(2, open_beside_closing);
}

/* A rank dies while kernels read and write its memory: the survivors report that, and none
 * hangs. */
static void test_kill(void **state)
{
    (void)state;
    run_and_kill(work_until_failure, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there),  cmocka_unit_test(test_freed), cmocka_unit_test(test_by_host),
        cmocka_unit_test(test_import), cmocka_unit_test(test_kill),
    };
    return cmocka_run_group_tests_name("device ipc", tests, NULL, NULL);
}

/*
 * Ranks as processes whose buffers are on one device, over the fake driver that HOOP_CUDA names:
 * they map each other's memory, and nothing goes through the host. If they can't, everything does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "hoop.h"
#include "memory/cuda.h"
#include "memory/memfd.h"
#include "memory/region.h"
#include "whole/device_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- In a rank ---- */

/* Sums and copies; others do not find freed memory in place of what is at its address now. */
static void work(const struct family_self *self, hoop_comm_t comm)
{
    for (unsigned round = 0; round < 3; round++) {
        int32_t *in = make(self, MOST), *out = make(self, MOST);
        sum_many(self, comm, in, out);
        exchange(self, comm, in, out);
        EXPECT(self, hoop_mem_free(in) == HOOP_OK && hoop_mem_free(out) == HOOP_OK);
    }
}

static void work_there(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    work(self, comm);
    EXPECT(self, host_copies() == 0);
    EXPECT(self, launches() > 0 || self->rank != 0); /* on one device rank 0 folds for all */
    leave(self, comm);
}

/* The rank that folds for all on one device maps the others' memory; other ranks map none until
 * they need it. */
static void work_for_others(const struct family_self *self)
{
    struct hoop_region_stats stats;
    hoop_comm_t comm = join(self);
    int32_t *in = make(self, MOST), *out = make(self, MOST);
    sum(self, comm, in, out, 0, MOST);
    EXPECT(self, hoop_reduce(in, out, MOST, HOOP_INT32, HOOP_SUM, 0, comm, NULL) == HOOP_OK);
    hoop_region_stats(&stats);
    EXPECT(self, stats.imports == (self->rank == 0 ? 2 * ((unsigned)self->n - 1) : 0));
    EXPECT(self, hoop_reduce(in, out, MOST, HOOP_INT32, HOOP_SUM, 1, comm, NULL) == HOOP_OK);
    sum(self, comm, in, out, 0, MOST);
    exchange(self, comm, in, out);
    leave(self, comm);
}

static void work_by_host(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    work(self, comm);
    EXPECT(self, host_copies() > 0);
    EXPECT(self, launches() == 0);
    leave(self, comm);
}

/* ---- Several devices ---- */

/* Each rank has its own device, as long as there are any; the ranks see them in different
 * orders. */
static void work_on_devices(const struct family_self *self)
{
    take_device(self,
                self->rank == 0   ? "0,1,2"
                : self->rank == 1 ? "2,1,0"
                                  : "1,0,2,3",
                self->rank % 3);
    work_there(self);
}

static void work_on_devices_unseen(const struct family_self *self)
{
    take_device(self, self->rank == 1 ? "1" : "0", self->rank == 1);
    work_by_host(self);
}

/* One process does not see the others' devices, but these see its device. */
static void work_on_devices_half_seen(const struct family_self *self)
{
    take_device(self, self->rank == 2 ? "2" : "0,1,2", self->rank);
    work_by_host(self);
}

/* All ranks are on one device; one of them sees others, too. */
static void work_on_one_of_devices(const struct family_self *self)
{
    take_device(self, self->rank == 1 ? "3,2,1" : "2", 2);
    work_there(self);
}

static void work_on_devices_apart(const struct family_self *self)
{
    setenv("FAKE_CUDA_APART", "12", 1);
    take_device(self, "0,1,2", self->rank);
    work_by_host(self);
}

/* Two devices do not reach each other, but no rank uses one of them. */
static void work_on_others_than_apart(const struct family_self *self)
{
    setenv("FAKE_CUDA_APART", "12,03", 1);
    take_device(self, "0,1,2,3", self->rank == 1 ? 1 : self->rank);
    hoop_comm_t all = join(self), some = NULL;
    const int color = self->rank == 0 || self->rank == 2 ? 0 : 1; /* 0 and 2; 1 and 3 */
    EXPECT(self, hoop_comm_split(all, color, self->rank, &some, NULL) == HOOP_OK);
    int32_t *x = make(self, MOST);
    EXPECT(self, hoop_all_reduce(x, x, MOST, HOOP_INT32, HOOP_SUM, some, NULL) == HOOP_OK);
    settle(self);
    EXPECT(self, launches() == 1 && host_copies() == 0);
    sum(self, all, x, x, 0, MOST);
    EXPECT(self, launches() == 1 && host_copies() > 0);
    EXPECT(self, hoop_mem_free(x) == HOOP_OK && hoop_comm_destroy(some) == HOOP_OK);
    leave(self, all);
}

static void work_on_devices_switched_off(const struct family_self *self)
{
    take_device(self, "0,1,2", self->rank);
    work_by_host(self);
}

/* The driver refuses what it has promised: no rank takes what is there then for a sum. */
static void work_on_devices_refused(const struct family_self *self)
{
    if (self->rank == 1) {
        setenv("FAKE_CUDA_NO_ACCESS", "1", 1);
    }
    take_device(self, "0,1,2", self->rank);
    hoop_comm_t comm = join(self);
    int32_t *x = make(self, MOST);
    hoop_result_t result = hoop_all_reduce(x, x, MOST, HOOP_INT32, HOOP_SUM, comm, NULL);
    settle(self);
    EXPECT(self, result != HOOP_OK);
    EXPECT(self,
           strstr(hoop_get_last_error(comm), "rank 1 cannot map the buffer of rank ") != NULL);
    EXPECT(self, strstr(hoop_get_last_error(comm), "cuMemSetAccess") != NULL);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK && hoop_mem_free(x) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

static void work_without_mapping(const struct family_self *self)
{
    if (self->rank == 0) {
        setenv("FAKE_CUDA_NO_MAPPING", "1", 1);
    }
    work_by_host(self);
}

/* Memory of cudaMalloc() is not opened by others. */
static void work_with_plain_memory(const struct family_self *self)
{
    hoop_cu_address_t at = 0;
    hoop_comm_t comm = join(self);
    int32_t *mine = make(self, MOST);
    EXPECT(self, hoop_cuda.alloc(&at, MOST * sizeof(int32_t)) == 0);
    int32_t *plain = (int32_t *)(uintptr_t)at;
    sum(self, comm, self->rank == 1 ? plain : mine, mine, 0, 20000);
    sum(self, comm, mine, plain, 0, 20000);
    EXPECT(self, launches() == 0);
    sum(self, comm, mine, mine, 0, 20000);
    EXPECT(self, launches() == (self->rank == 0));
    EXPECT(self, hoop_cuda.free(at) == 0 && hoop_mem_free(mine) == HOOP_OK);
    leave(self, comm);
}

static void work_until_failure(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    int32_t *x = make(self, MOST);
    sum_until_failure(self, comm, x);
    EXPECT(self, hoop_mem_free(x) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

#define LATE_US 300000

/* Calls return at once, whatever another rank does: rank 1 calls when the others' calls have
 * returned, or never; and it does not wait for its own input, which is late. */
static int32_t *call_ahead(const struct family_self *self, hoop_comm_t comm, bool all)
{
    int32_t *x = make(self, MOST);
    sum(self, comm, x, x, 0, MOST);
    if (self->rank == 1 && !all) {
        rank_tell(self, HOOP_OK, 0);
        (void)pause();
    }
    if (self->rank == 1) {
        (void)family_order(self);
    }
    const uint64_t start = hoop_now_ns();
    fill(NULL, x, 1, MOST * sizeof(int32_t), self->rank == 1 ? LATE_US : 0);
    EXPECT(self, hoop_all_reduce(x, x, MOST, HOOP_INT32, HOOP_SUM, comm, NULL) == HOOP_OK);
    EXPECT(self, self->rank != 1 || hoop_now_ns() - start < LATE_US * UINT64_C(1000));
    rank_tell(self, HOOP_OK, 0);
    return x;
}

static void work_ahead(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    int32_t *x = call_ahead(self, comm, true);
    settle(self);
    EXPECT(self, ((unsigned char *)seen(x))[MOST - 1] == self->n);
    EXPECT(self, hoop_mem_free(x) == HOOP_OK);
    leave(self, comm);
}

static void wait_for_the_dead(const struct family_self *self)
{
    hoop_comm_t comm = join(self);
    hoop_result_t failed = HOOP_OK;
    int32_t *x = call_ahead(self, comm, false);
    settle(self); /* the stream goes on */
    EXPECT(self, hoop_comm_get_async_error(comm, &failed) == HOOP_OK);
    EXPECT(self, strstr(hoop_get_last_error(comm), "rank 1 ") != NULL);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    EXPECT(self, hoop_mem_free(x) == HOOP_OK);
    rank_tell(self, failed, 0);
}

/* What a peer says about memory is checked before it is used. */
static void import_lies(const struct family_self *self)
{
    struct hoop_region_ref ref;
    int fd = -1, host = -1;
    uint32_t kind = 0;
    uint64_t bytes = 0, found = 0;
    void *base = NULL;
    int32_t *mine = make(self, 1000);
    EXPECT(self, hoop_region_find(mine, 4000, &ref));
    EXPECT(self, hoop_region_export(ref.id, ref.generation, &fd, &bytes, &kind) == HOOP_OK);
    EXPECT(self, kind == HOOP_MEM_DEVICE && bytes == 65536);
    EXPECT(self, hoop_region_import(1, 1, 1, kind, 2 * bytes, dup(fd)) == HOOP_CUDA_ERROR);
    EXPECT(self, strstr(hoop_get_last_error(NULL), "131072 bytes of a peer's device memory"));
    EXPECT(self, hoop_region_import(1, 1, 1, kind, bytes - 1, dup(fd)) == HOOP_CUDA_ERROR);
    EXPECT(self, hoop_memfd_create("host", 65536, &host) == HOOP_OK);
    EXPECT(self, hoop_region_import(1, 1, 1, kind, 65536, host) == HOOP_CUDA_ERROR);
    EXPECT(self, hoop_region_import(1, 1, 1, HOOP_MEM_HOST, bytes, dup(fd)) == HOOP_REMOTE_ERROR);
    EXPECT(self, hoop_region_use(1, 1, 1, &base, &found) == HOOP_AGAIN);
    /* What is true is accepted, and stays when its exporter frees it. */
    EXPECT(self, hoop_region_import(1, 1, 1, kind, bytes, fd) == HOOP_OK);
    EXPECT(self, hoop_region_use(1, 1, 1, &base, &found) == HOOP_OK && found == bytes);
    EXPECT(self, hoop_region_grant(1, 1, 1, 0, &base) == HOOP_OK);
    seen(mine)[7] = 4711;
    EXPECT(self, seen(base)[7] == 4711 && base != mine);
    EXPECT(self, hoop_mem_free(mine) == HOOP_OK);
    EXPECT(self, seen(base)[7] == 4711);
    hoop_region_forget(1, 1, 1);
    EXPECT(self, hoop_cuda_owns(base, &(hoop_cu_context_t){NULL}));
    hoop_region_unuse(1, 1, 1);
    EXPECT(self, !hoop_cuda_owns(base, &(hoop_cu_context_t){NULL}));
    rank_tell(self, HOOP_OK, 0);
}

/* ---- In the parent ---- */

static void test_there(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        run(n, work_there);
    }
    run(3, work_for_others);
}

static void test_by_host(void **state)
{
    (void)state;
    run(3, work_without_mapping);
    run(2, work_with_plain_memory);
}

static void test_devices(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        run(n, work_on_devices);
    }
    run(3, work_on_one_of_devices);
    run(4, work_on_others_than_apart);
}

static void test_devices_by_host(void **state)
{
    (void)state;
    run(2, work_on_devices_unseen);
    run(3, work_on_devices_half_seen);
    run(3, work_on_devices_apart);
    without_p2p = 2;
    run(3, work_on_devices_switched_off);
    without_p2p = -1;
}

static void test_devices_refused(void **state)
{
    (void)state;
    run(3, work_on_devices_refused);
}

static void test_import(void **state)
{
    (void)state;
    run(1, import_lies);
}

/* A rank dies while kernels run: the survivors report that, and none hangs. */
static void test_kill(void **state)
{
    (void)state;
    run_and_kill(work_until_failure, true);
}

static void test_ahead(void **state)
{
    (void)state;
    struct family family;
    start(&family, 3, work_ahead);
    assert_int_equal(rank_hear(&family, 0).result, HOOP_OK);
    assert_int_equal(rank_hear(&family, 2).result, HOOP_OK);
    assert_true(family_tell(&family, 1, "g", 1));
    assert_int_equal(rank_hear(&family, 1).result, HOOP_OK);
    rank_hear_all_well(&family);
    rank_end_all(&family);
}

/* A rank dies for which others' streams wait. */
static void test_kill_awaited(void **state)
{
    (void)state;
    run_and_kill(wait_for_the_dead, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there),
        cmocka_unit_test(test_by_host),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_devices_by_host),
        cmocka_unit_test(test_devices_refused),
        cmocka_unit_test(test_import),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_kill_awaited),
    };
    return cmocka_run_group_tests_name("device processes", tests, NULL, NULL);
}

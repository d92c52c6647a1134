/*
 * Regions: finding, exporting, importing, fencing, forgetting; and what a hostile peer may send.
 * Another process is played by importing this process's own descriptors under a made-up id.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "device.h"
#include "memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PEER 0x1234567812345678ull
#define BYTES (4 * HOOP_PAGE_BYTES)

static uint8_t *alloc(uint64_t bytes)
{
    void *ptr = NULL;
    assert_int_equal(hoop_region_alloc(bytes, HOOP_MEM_HOST, &ptr), HOOP_OK);
    assert_non_null(ptr);
    return ptr;
}

static struct hoop_region_ref ref_of(const void *ptr)
{
    struct hoop_region_ref ref;
    assert_true(hoop_region_find(ptr, 1, &ref));
    return ref;
}

/* Maps an own region a second time, as a peer would. */
static uint8_t *import(const struct hoop_region_ref *ref)
{
    int fd = -1;
    uint64_t bytes = 0, mapped = 0;
    uint32_t kind = 99;
    void *base = NULL;
    assert_int_equal(hoop_region_export(ref->id, ref->generation, &fd, &bytes, &kind), HOOP_OK);
    assert_int_equal(hoop_region_import(PEER, ref->id, ref->generation, kind, bytes, fd), HOOP_OK);
    assert_int_equal(hoop_region_use(PEER, ref->id, ref->generation, &base, &mapped), HOOP_OK);
    assert_int_equal(mapped, bytes);
    return base;
}

static void test_find(void **state)
{
    (void)state;
    uint8_t *a = alloc(BYTES), *b = alloc(1);
    struct hoop_region_ref ref;
    assert_true(hoop_region_find(a + 17, BYTES - 17, &ref));
    assert_int_equal(ref.offset, 17);
    assert_int_equal(ref.id, ref_of(a).id);
    assert_true(ref_of(b).id != ref.id);
    assert_false(hoop_region_find(a, BYTES + 1, &ref));
    assert_int_equal(ref.id, 0);
    assert_false(hoop_region_find(a - 1, 2, &ref));
    assert_false(hoop_region_find(&ref, sizeof(ref), &ref));
    assert_false(hoop_region_find(NULL, 0, &ref));
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(a[i], 0);
    }
    assert_int_equal(hoop_region_free(a), HOOP_OK);
    assert_int_equal(hoop_region_free(b), HOOP_OK);
    assert_false(hoop_region_find(a, 1, &ref));
}

static void test_free_of_what_is_none(void **state)
{
    (void)state;
    int local = 0;
    uint8_t *a = alloc(BYTES);
    assert_int_equal(hoop_region_free(&local), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_region_free(a + HOOP_PAGE_BYTES), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_region_free(a), HOOP_OK);
    assert_int_equal(hoop_region_free(a), HOOP_INVALID_ARGUMENT);
}

static void test_large_is_lazy(void **state)
{
    (void)state;
    const uint64_t bytes = 64ull << 30; /* more than the machine has */
    uint8_t *a = alloc(bytes);
    a[bytes - 1] = 1;
    assert_int_equal(a[bytes - 2], 0);
    assert_int_equal(hoop_region_free(a), HOOP_OK);
    void *ptr = NULL;
    assert_true(hoop_region_alloc(UINT64_MAX, HOOP_MEM_HOST, &ptr) != HOOP_OK);
    assert_int_equal(hoop_region_alloc(1, HOOP_MEM_DEVICE, &ptr), HOOP_UNSUPPORTED);
    assert_null(ptr);
}

static void test_import(void **state)
{
    (void)state;
    uint8_t *a = alloc(BYTES);
    const struct hoop_region_ref ref = ref_of(a);
    void *base = NULL;
    uint64_t bytes = 0;
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes), HOOP_AGAIN);
    uint8_t *theirs = import(&ref);
    assert_true(theirs != a);
    theirs[5] = 55;
    assert_int_equal(a[5], 55);
    assert_int_equal(hoop_region_use(hoop_process_id(), ref.id, ref.generation, &base, &bytes),
                     HOOP_OK);
    assert_ptr_equal(base, a);
    /* A second import of the same changes nothing; the mapping lives while it is used. */
    assert_ptr_equal(import(&ref), theirs);
    hoop_region_forget(PEER, ref.id, ref.generation);
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes),
                     HOOP_INVALID_ARGUMENT);
    theirs[6] = 66;
    assert_int_equal(a[6], 66);
    hoop_region_unuse(PEER, ref.id, ref.generation);
    hoop_region_unuse(PEER, ref.id, ref.generation);
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes), HOOP_AGAIN);
    import(&ref);
    hoop_region_unuse(PEER, ref.id, ref.generation);
    hoop_region_forget_process(PEER);
    struct hoop_region_stats stats;
    hoop_region_stats(&stats);
    assert_int_equal(stats.imports, 0);
    assert_int_equal(hoop_region_free(a), HOOP_OK);
    int fd = -1;
    uint32_t kind = 0;
    assert_int_equal(hoop_region_export(ref.id, ref.generation, &fd, &bytes, &kind),
                     HOOP_INVALID_ARGUMENT);
    hoop_region_stats(&stats);
    assert_int_equal(stats.regions, 0);
}

static uint64_t died_id;

static void on_death(uint64_t id, uint32_t generation)
{
    (void)generation;
    died_id = id;
}

static void test_fence(void **state)
{
    (void)state;
    uint8_t *a = alloc(BYTES);
    const struct hoop_region_ref ref = ref_of(a);
    uint8_t *theirs = import(&ref);
    struct hoop_region_ref none;
    memset(a, 7, BYTES);
    hoop_region_on_death(on_death);
    assert_int_equal(hoop_region_fence(a + HOOP_PAGE_BYTES, HOOP_PAGE_BYTES), HOOP_OK);
    assert_int_equal(died_id, ref.id);
    memset(theirs, 9, BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(a[i], i / HOOP_PAGE_BYTES == 1 ? 7 : 9);
    }
    assert_false(hoop_region_find(a, 1, &none));
    assert_int_equal(hoop_region_fence(&none, HOOP_PAGE_BYTES), HOOP_INVALID_ARGUMENT);
    hoop_region_unuse(PEER, ref.id, ref.generation);
    hoop_region_forget_process(PEER);
    assert_int_equal(hoop_region_free(a), HOOP_OK);
    hoop_region_on_death(NULL);
}

static void test_hostile_descriptors(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(hoop_region_import(PEER, 1, 1, HOOP_MEM_HOST, BYTES, ends[1]),
                     HOOP_REMOTE_ERROR);
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    const int unsealed = dup(fd);
    assert_int_equal(hoop_region_import(PEER, 1, 1, HOOP_MEM_HOST, BYTES, unsealed),
                     HOOP_REMOTE_ERROR);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    const int sealed = dup(fd);
    assert_int_equal(hoop_region_import(PEER, 1, 1, HOOP_MEM_HOST, BYTES + 1, sealed),
                     HOOP_REMOTE_ERROR);
    assert_int_equal(hoop_region_import(PEER, 1, 1, HOOP_MEM_HOST, 0, dup(fd)), HOOP_REMOTE_ERROR);
    assert_int_equal(hoop_region_import(PEER, 1, 1, 77, BYTES, dup(fd)), HOOP_REMOTE_ERROR);
    assert_int_equal(hoop_region_import(PEER, 1, 1, HOOP_MEM_HOST, BYTES, fd), HOOP_OK);
    hoop_region_forget_process(PEER);
}

static void *churn(void *arg)
{
    uintptr_t failures = 0;
    for (int i = 0; i < 300; i++) {
        void *ptr = NULL;
        struct hoop_region_ref ref;
        failures += hoop_region_alloc((uint64_t)(i % 7 + 1) * 1000, HOOP_MEM_HOST, &ptr) != HOOP_OK;
        failures += !hoop_region_find(ptr, 1000, &ref);
        failures += hoop_region_free(ptr) != HOOP_OK;
    }
    (void)arg;
    return (void *)failures;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failures = NULL;
        pthread_join(threads[i], &failures);
        assert_null(failures);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),          cmocka_unit_test(test_free_of_what_is_none),
        cmocka_unit_test(test_large_is_lazy), cmocka_unit_test(test_import),
        cmocka_unit_test(test_fence),         cmocka_unit_test(test_hostile_descriptors),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* lib/memory/region.c and the kinds of memory below it. Fences are in test_fence.c. */
#include "base/clock.h"
#include "memory/device.h"
#include "memory/region_peer.h"
#include "runtime/process.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static unsigned deaths;
static uint64_t died;

static void note_death(uint64_t id, uint32_t generation)
{
    deaths++;
    died = id;
    (void)generation;
}

/* ---- Own regions ----------------------------------------------------------------------------- */

static void test_find(void **state)
{
    (void)state;
    static const struct hoop_region_ref nothing = {0};
    struct hoop_region_ref ref;
    uint8_t *const a = peer_make(3 * PAGE), *const b = peer_make(1), *const c = peer_make(PAGE + 1);
    assert_true(hoop_region_find(a, 3 * PAGE, &ref));
    assert_int_equal(ref.offset, 0);
    assert_int_equal(ref.kind, HOOP_MEM_HOST);
    const uint64_t id = ref.id;
    assert_true(hoop_region_find(a + 1001, 3 * PAGE - 1001, &ref));
    assert_int_equal(ref.offset, 1001);
    assert_int_equal(ref.id, id);
    assert_true(hoop_region_find(a + 3 * PAGE - 1, 1, &ref));
    assert_true(hoop_region_find(a + 5, 0, &ref));
    assert_false(hoop_region_find(a + 1001, 3 * PAGE - 1000, &ref));
    assert_memory_equal(&ref, &nothing, sizeof(ref));
    assert_false(hoop_region_find(a + 1, UINT64_MAX, &ref));
    assert_true(peer_ref(b).id != id && peer_ref(c).id != id && peer_ref(b).id != peer_ref(c).id);
    uint8_t stack[16];
    uint8_t *const heap = malloc(16);
    assert_false(hoop_region_find(stack, sizeof(stack), &ref));
    assert_false(hoop_region_find(heap, 16, &ref));
    assert_false(hoop_region_find(NULL, 0, &ref));
    free(heap);
    for (size_t i = 0; i < 3 * PAGE; i++) {
        assert_int_equal(a[i], 0);
    }
    assert_int_equal(hoop_region_free(a), HOOP_OK);
    assert_false(hoop_region_find(a, 1, &ref));
    assert_true(hoop_region_find(b, 1, &ref));
    assert_int_equal(hoop_region_free(c), HOOP_OK);
    assert_int_equal(hoop_region_free(b), HOOP_OK);
}

/* What is printed by a program that was started without descriptors 0 to 2 ends up in no region. */
static void test_no_streams(void **state)
{
    (void)state;
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        void *memory = NULL;
        const bool closed = close(0) == 0 && close(1) == 0 && close(2) == 0;
        const bool made = closed && hoop_region_alloc(PAGE, HOOP_MEM_HOST, &memory) == HOOP_OK;
        (void)!write(STDIN_FILENO, "lost", 4);
        _exit(made && *(const uint8_t *)memory == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_many_regions(void **state)
{
    (void)state;
    enum { MANY = 200 };
    static uint8_t *regions[MANY];
    static uint64_t ids[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        regions[i] = peer_make((i % 3 + 1) * PAGE);
        ids[i] = peer_ref(regions[i]).id;
    }
    for (unsigned step = 0; step < MANY; step++) { /* 83 and 200 have no common factor */
        const unsigned i = step * 83 % MANY;
        assert_int_equal(peer_ref(regions[i] + PAGE - 1).id, ids[i]);
        assert_int_equal(hoop_region_free(regions[i]), HOOP_OK);
        struct hoop_region_ref ref;
        assert_false(hoop_region_find(regions[i], 1, &ref));
    }
}

static void test_free_of_strangers(void **state)
{
    (void)state;
    uint8_t *const a = peer_make(2 * PAGE);
    uint8_t stack = 0;
    assert_int_equal(hoop_region_free(&stack), HOOP_INVALID_ARGUMENT);
    assert_true(strlen(hoop_thread_error()) > 0);
    assert_int_equal(hoop_region_free(NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_region_free(a + 1), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_region_free(a + PAGE), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_region_free(a), HOOP_OK);
    assert_int_equal(hoop_region_free(a), HOOP_INVALID_ARGUMENT);
}

/* As large as the machine's memory: its pages do not exist before they are touched. */
static void test_large(void **state)
{
    (void)state;
    struct sysinfo info;
    assert_int_equal(sysinfo(&info), 0);
    const uint64_t bytes = ((uint64_t)info.totalram * info.mem_unit / PAGE - 1) * PAGE;
    const uint64_t before = hoop_now_ns();
    uint8_t *const a = peer_make(bytes + 5);
    a[0] = 1;
    a[bytes + 4] = 2;
    struct hoop_region_ref ref;
    assert_true(hoop_region_find(a + 17, bytes - 17, &ref));
    assert_int_equal(hoop_region_free(a), HOOP_OK);
    assert_true(hoop_now_ns() - before < 5 * HOOP_NS_PER_S); /* clearing it would take as long */
}

static void test_too_large(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {UINT64_MAX, INT64_MAX, 1ull << 60, 1ull << 46};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *ptr = &ptr;
        assert_int_equal(hoop_region_alloc(sizes[i], HOOP_MEM_HOST, &ptr), HOOP_OUT_OF_MEMORY);
        assert_ptr_equal(ptr, &ptr);
        assert_non_null(strstr(hoop_thread_error(), "bytes"));
    }
}

/* Calls alloc with one limit set to few. The error text must contain hint. */
static void check_limit(int resource, rlim_t few, hoop_result_t expected, const char *hint)
{
    void *ptr = NULL;
    const rlim_t usual = peer_limit(resource, few);
    const hoop_result_t result = hoop_region_alloc(5 * PAGE, HOOP_MEM_HOST, &ptr);
    (void)peer_limit(resource, usual);
    assert_int_equal(result, expected);
    char size[32];
    (void)snprintf(size, sizeof(size), "%zu bytes", 5 * PAGE);
    assert_non_null(strstr(hoop_thread_error(), size));
    assert_non_null(strstr(hoop_thread_error(), hint));
}

static void test_limits(void **state)
{
    (void)state;
    check_limit(RLIMIT_FSIZE, PAGE, HOOP_OUT_OF_MEMORY, "ulimit -f");
    check_limit(RLIMIT_NOFILE, 0, HOOP_SYSTEM_ERROR, "ulimit -n");
}

static void test_kinds(void **state)
{
    (void)state;
    void *ptr = NULL;
    static const int kinds[] = {HOOP_MEM_DEVICE, 77, -1};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        assert_non_null(hoop_device((hoop_mem_kind_t)kinds[i]));
    }
    (void)hoop_error(HOOP_OK, "%s", "");
    assert_int_equal(hoop_region_alloc(PAGE, HOOP_MEM_DEVICE, &ptr), HOOP_UNSUPPORTED);
    assert_true(strlen(hoop_thread_error()) > 0);
    assert_null(ptr);
}

static void export_to_nobody(const void *ptr)
{
    const struct hoop_region_ref ref = peer_ref(ptr);
    uint64_t bytes = 0;
    uint32_t kind = 0;
    int fd = -1;
    assert_int_equal(hoop_region_export(ref.id, ref.generation, &fd, &bytes, &kind), HOOP_OK);
    close(fd);
}

static void test_death_is_told_once(void **state)
{
    (void)state;
    deaths = 0;
    hoop_region_on_death(note_death);
    uint8_t *const a = peer_make(PAGE), *const b = peer_make(2 * PAGE);
    const uint64_t id_a = peer_ref(a).id, id_b = peer_ref(b).id;
    uint8_t *const never = peer_make(PAGE);
    export_to_nobody(a);
    export_to_nobody(b);
    assert_int_equal(hoop_region_free(never), HOOP_OK);
    assert_int_equal(deaths, 0); /* no peer has it */
    assert_int_equal(hoop_region_free(a), HOOP_OK);
    assert_int_equal(deaths, 1);
    assert_int_equal(died, id_a);
    assert_int_equal(hoop_region_fence(b, PAGE), HOOP_OK);
    assert_int_equal(deaths, 1); /* the rest of it is still in use */
    assert_int_equal(hoop_region_free(b), HOOP_OK);
    assert_int_equal(deaths, 2);
    assert_int_equal(died, id_b);
    hoop_region_on_death(NULL);
}

/* ---- Peers ----------------------------------------------------------------------------------- */

static void test_import(void **state)
{
    (void)state;
    uint8_t *const mine = peer_make(2 * PAGE);
    const struct hoop_region_ref ref = peer_ref(mine);
    void *base = NULL;
    uint64_t bytes = 0;
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes), HOOP_AGAIN);
    assert_int_equal(peer_bring(PEER, &ref), HOOP_OK);
    assert_int_equal(peer_bring(PEER, &ref), HOOP_OK); /* as if two comms had asked for it */
    assert_int_equal(hoop_region_use(OTHER_PEER, ref.id, ref.generation, &base, &bytes),
                     HOOP_AGAIN);
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation + 1, &base, &bytes), HOOP_AGAIN);
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes), HOOP_OK);
    assert_int_equal(bytes, 2 * PAGE);
    uint8_t *const theirs = base;
    assert_ptr_not_equal(theirs, mine);
    theirs[PAGE + 3] = 7;
    assert_int_equal(mine[PAGE + 3], 7);
    mine[1] = 8;
    assert_int_equal(theirs[1], 8);

    hoop_region_forget(PEER, ref.id, ref.generation);
    assert_int_equal(theirs[1], 8); /* still in use */
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes), HOOP_AGAIN);
    assert_int_equal(peer_bring(PEER, &ref), HOOP_OK); /* another comm asked: the same mapping */
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes), HOOP_OK);
    assert_ptr_equal(base, theirs);
    hoop_region_forget(PEER, ref.id, ref.generation);
    hoop_region_unuse(PEER, ref.id, ref.generation);
    assert_int_equal(theirs[1], 8);
    hoop_region_unuse(PEER, ref.id, ref.generation);
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes), HOOP_AGAIN);
    hoop_region_forget(PEER, ref.id, ref.generation); /* there is nothing left to forget */

    assert_int_equal(peer_bring(PEER, &ref), HOOP_OK);
    assert_int_equal(hoop_region_free(mine), HOOP_OK); /* the peer's mapping lives on */
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes), HOOP_OK);
    assert_int_equal(((uint8_t *)base)[1], 8);
    hoop_region_unuse(PEER, ref.id, ref.generation);
    hoop_region_forget(PEER, ref.id, ref.generation);
}

static void test_forget_process(void **state)
{
    (void)state;
    enum { MANY = 9 };
    uint8_t *regions[MANY];
    struct hoop_region_ref refs[MANY];
    void *base = NULL;
    uint64_t bytes = 0;
    struct hoop_region_stats stats;
    for (unsigned i = 0; i < MANY; i++) {
        regions[i] = peer_make(PAGE);
        refs[i] = peer_ref(regions[i]);
        assert_int_equal(peer_bring(i % 3 == 0 ? OTHER_PEER : PEER, &refs[i]), HOOP_OK);
    }
    assert_int_equal(hoop_region_use(PEER, refs[4].id, refs[4].generation, &base, &bytes), HOOP_OK);
    hoop_region_forget_process(PEER);
    hoop_region_stats(&stats);
    assert_int_equal(stats.imports, 4); /* three of the other peer's, one of them in use */
    regions[4][0] = 9;
    assert_int_equal(*(uint8_t *)base, 9);
    hoop_region_unuse(PEER, refs[4].id, refs[4].generation);
    hoop_region_stats(&stats);
    assert_int_equal(stats.imports, 3);
    assert_int_equal(stats.import_bytes, 3 * PAGE);
    hoop_region_forget_process(OTHER_PEER);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(hoop_region_free(regions[i]), HOOP_OK);
    }
}

static void test_own_process(void **state)
{
    (void)state;
    const uint64_t me = hoop_process_id();
    assert_true(me != 0 && me == hoop_process_id());
    uint8_t *const mine = peer_make(PAGE);
    const struct hoop_region_ref ref = peer_ref(mine);
    void *base = NULL;
    uint64_t bytes = 0;
    assert_int_equal(hoop_region_use(me, ref.id, ref.generation + 1, &base, &bytes),
                     HOOP_REMOTE_ERROR);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hoop_region_use(me, ref.id, ref.generation, &base, &bytes), HOOP_OK);
        assert_ptr_equal(base, mine);
        assert_int_equal(bytes, PAGE);
    }
    assert_int_equal(hoop_region_fence(mine, PAGE), HOOP_OK); /* torn, but the memory itself */
    assert_int_equal(hoop_region_use(me, ref.id, ref.generation, &base, &bytes), HOOP_OK);
    hoop_region_unuse(me, ref.id, ref.generation);
    mine[0] = 1;
    assert_int_equal(hoop_region_free(mine), HOOP_OK);
    assert_int_equal(hoop_region_free(mine), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_region_use(me, ref.id, ref.generation, &base, &bytes), HOOP_REMOTE_ERROR);
    hoop_region_unuse(me, ref.id, ref.generation);
    assert_int_equal(mine[0], 1); /* another rank of this process still uses it */
    hoop_region_unuse(me, ref.id, ref.generation);
}

static void test_export_of_nothing(void **state)
{
    (void)state;
    uint8_t *const mine = peer_make(PAGE);
    struct hoop_region_ref ref = peer_ref(mine);
    int fd = -7;
    uint64_t bytes = 0;
    uint32_t kind = 0;
    assert_int_equal(hoop_region_export(ref.id + 1, ref.generation, &fd, &bytes, &kind),
                     HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_region_export(ref.id, ref.generation + 1, &fd, &bytes, &kind),
                     HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_region_export(0, 0, &fd, &bytes, &kind), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_region_free(mine), HOOP_OK);
    assert_int_equal(peer_bring(PEER, &ref), HOOP_INVALID_ARGUMENT);
    assert_int_equal(fd, -7);
}

/* ---- Hostile descriptors --------------------------------------------------------------------- */

static int memfd(uint64_t bytes, int seals, int flags)
{
    const int fd = memfd_create("test", MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    if (seals != 0) {
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    }
    if (flags == O_RDWR) {
        return fd;
    }
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int other = open(path, flags | O_CLOEXEC);
    close(fd);
    assert_true(other >= 0);
    return other;
}

/* Imports the descriptor, which must be refused with an error text, and closes it. */
static void refuse(int fd, uint32_t kind, uint64_t bytes)
{
    (void)hoop_error(HOOP_OK, "%s", "");
    assert_int_not_equal(hoop_region_import(PEER, 5, 1, kind, bytes, fd), HOOP_OK);
    assert_true(strlen(hoop_thread_error()) > 0);
    assert_true(fd < 0 || (fcntl(fd, F_GETFD) == -1 && errno == EBADF));
}

static void test_hostile_descriptors(void **state)
{
    (void)state;
    int ends[2];
    const int sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    assert_int_equal(pipe(ends), 0);
    refuse(ends[0], HOOP_MEM_HOST, PAGE);
    refuse(ends[1], HOOP_MEM_HOST, PAGE);
    refuse(open("/dev/zero", O_RDWR | O_CLOEXEC), HOOP_MEM_HOST, PAGE);
    refuse(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), HOOP_MEM_HOST, PAGE);
    refuse(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), HOOP_MEM_HOST, PAGE);
    refuse(-1, HOOP_MEM_HOST, PAGE);
    refuse(memfd(PAGE, 0, O_RDWR), HOOP_MEM_HOST, PAGE);
    refuse(memfd(PAGE, F_SEAL_GROW, O_RDWR), HOOP_MEM_HOST, PAGE);
    refuse(memfd(PAGE, sealed, O_RDWR), HOOP_MEM_HOST, 2 * PAGE);
    refuse(memfd(PAGE - 1, sealed, O_RDWR), HOOP_MEM_HOST, PAGE);
    refuse(memfd(2 * PAGE, sealed, O_RDWR), HOOP_MEM_HOST, PAGE);
    refuse(memfd(PAGE, F_SEAL_SHRINK | F_SEAL_GROW, O_RDWR), HOOP_MEM_HOST, PAGE);
    refuse(memfd(PAGE, sealed, O_RDWR), HOOP_MEM_HOST, 0);
    refuse(memfd(PAGE, sealed, O_RDWR), HOOP_MEM_HOST, UINT64_MAX);
    refuse(memfd(PAGE, sealed, O_RDONLY), HOOP_MEM_HOST, PAGE);
    refuse(memfd(PAGE, sealed | F_SEAL_WRITE, O_RDWR), HOOP_MEM_HOST, PAGE);
    refuse(memfd(1ull << 62, sealed, O_RDWR), HOOP_MEM_HOST, 1ull << 62);
    refuse(memfd(PAGE, sealed, O_RDWR), HOOP_MEM_DEVICE, PAGE);
    refuse(memfd(PAGE, sealed, O_RDWR), 77, PAGE);
    refuse(memfd(PAGE, sealed, O_RDWR), UINT32_MAX, PAGE);
    assert_int_equal(
        hoop_region_import(PEER, 5, 1, HOOP_MEM_HOST, PAGE, memfd(PAGE, sealed, O_RDWR)), HOOP_OK);
    hoop_region_forget(PEER, 5, 1);
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 60

static struct {
    _Atomic uint64_t id;    /* of the region that all threads use; 0: it is being changed */
    _Atomic unsigned ready; /* threads that have started */
    uint8_t *base;
} shared;

/* Uses the shared region as a peer does: whatever others do to it, memory that is in use can be
 * read. */
static bool storm_use(uint64_t process)
{
    const struct hoop_region_ref ref = {.id = atomic_load(&shared.id), .generation = 1};
    void *base = NULL;
    uint64_t bytes = 0;
    hoop_result_t result = hoop_region_use(process, ref.id, ref.generation, &base, &bytes);
    if (result == HOOP_AGAIN) {
        result = peer_bring(process, &ref);
        return result == HOOP_OK || result == HOOP_INVALID_ARGUMENT;
    }
    if (result == HOOP_OK) {
        const bool right = *(volatile uint8_t *)base == 1 && bytes == PAGE;
        hoop_region_unuse(process, ref.id, ref.generation);
        return right;
    }
    return result == HOOP_INVALID_ARGUMENT;
}

static bool storm_round(unsigned round)
{
    void *ptr = NULL;
    struct hoop_region_ref ref;
    if (hoop_region_alloc((round % 4 + 1) * PAGE, HOOP_MEM_HOST, &ptr) != HOOP_OK ||
        !hoop_region_find(ptr, PAGE, &ref) || peer_bring(OTHER_PEER, &ref) != HOOP_OK) {
        return false;
    }
    bool fine = true;
    for (unsigned i = 0; i < 8; i++) {
        fine &= storm_use(PEER) && storm_use(hoop_process_id());
    }
    if (round % 3 == 0) {
        hoop_region_forget(PEER, atomic_load(&shared.id), 1);
    }
    if (round % 5 == 0) {
        fine &= hoop_region_fence(ptr, PAGE) == HOOP_OK && !hoop_region_find(ptr, PAGE, &ref);
    } else {
        hoop_region_forget(OTHER_PEER, ref.id, ref.generation);
    }
    struct hoop_region_stats stats;
    hoop_region_stats(&stats);
    return hoop_region_free(ptr) == HOOP_OK && fine && stats.regions > 0;
}

static void *storm_thread(void *arg)
{
    (void)arg;
    atomic_fetch_add(&shared.ready, 1);
    while (atomic_load(&shared.ready) < THREADS) {
        sched_yield();
    }
    bool fine = true;
    for (unsigned round = 0; round < ROUNDS; round++) {
        fine &= storm_round(round);
    }
    return fine ? &shared : NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    bool fine = true;
    shared.base = peer_make(PAGE);
    shared.base[0] = 1;
    atomic_store(&shared.id, peer_ref(shared.base).id);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, storm_thread, NULL), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        fine &= result != NULL;
    }
    assert_true(fine);
    hoop_region_forget_process(PEER);
    hoop_region_forget_process(OTHER_PEER);
    assert_int_equal(hoop_region_free(shared.base), HOOP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_streams), /* forks, and comes first of those that allocate */
        cmocka_unit_test_setup_teardown(test_find, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_many_regions, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_free_of_strangers, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_large, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_too_large, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_limits, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_kinds, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_death_is_told_once, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_import, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_forget_process, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_own_process, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_export_of_nothing, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_hostile_descriptors, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_threads, peer_begin, peer_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* See region_peer.h. */
#include "memory/region_peer.h"
#include "harness/fds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

void *peer_make(uint64_t bytes)
{
    void *ptr = NULL;
    assert_int_equal(hoop_region_alloc(bytes, HOOP_MEM_HOST, &ptr), HOOP_OK);
    assert_non_null(ptr);
    return ptr;
}

struct hoop_region_ref peer_ref(const void *ptr)
{
    struct hoop_region_ref ref;
    assert_true(hoop_region_find(ptr, 1, &ref));
    return ref;
}

hoop_result_t peer_bring(uint64_t process, const struct hoop_region_ref *ref)
{
    int fd = -1;
    uint64_t bytes = 0;
    uint32_t kind = 99;
    const hoop_result_t result = hoop_region_export(ref->id, ref->generation, &fd, &bytes, &kind);
    return result != HOOP_OK
               ? result
               : hoop_region_import(process, ref->id, ref->generation, kind, bytes, fd);
}

rlim_t peer_limit(int resource, rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit((__rlimit_resource_t)resource, &limit), 0);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = most;
    assert_int_equal(setrlimit((__rlimit_resource_t)resource, &limit), 0);
    return before;
}

static int files_before;

int peer_begin(void **state)
{
    (void)state;
    files_before = fds_count(0);
    return 0;
}

int peer_end(void **state)
{
    (void)state;
    struct hoop_region_stats stats;
    hoop_region_stats(&stats);
    return stats.regions + stats.imports + stats.region_bytes + stats.import_bytes == 0 &&
                   fds_count(0) == files_before
               ? 0
               : -1;
}

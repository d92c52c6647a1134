/* Fences of lib/memory/region.c: no peer can reach memory behind a fence. */
#include "memory/region_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_fence(void **state)
{
    (void)state;
    enum { PAGES = 8 };
    uint8_t *const mine = peer_make(PAGES * PAGE);
    const struct hoop_region_ref ref = peer_ref(mine);
    struct hoop_region_ref again;
    void *base = NULL;
    uint64_t bytes = 0;
    for (size_t i = 0; i < PAGES * PAGE; i++) {
        mine[i] = (uint8_t)(i % 251);
    }
    assert_int_equal(peer_bring(PEER, &ref), HOOP_OK);
    assert_int_equal(hoop_region_use(PEER, ref.id, ref.generation, &base, &bytes), HOOP_OK);
    uint8_t *const theirs = base;
    assert_int_equal(hoop_region_fence(mine + 2 * PAGE, 3 * PAGE), HOOP_OK);
    assert_false(hoop_region_find(mine + 2 * PAGE, 1, &again)); /* torn */
    assert_false(hoop_region_find(mine + 5 * PAGE - 1, 2, &again));
    assert_false(hoop_region_find(mine, PAGES * PAGE, &again));
    assert_true(hoop_region_find(mine, 2 * PAGE, &again)); /* whole */
    assert_true(hoop_region_find(mine + 5 * PAGE, 3 * PAGE, &again));
    assert_int_equal(again.generation, ref.generation);
    for (size_t i = 0; i < PAGES * PAGE; i++) {
        assert_int_equal(mine[i], i % 251);
    }
    memset(theirs, 0xff, PAGES * PAGE);
    for (size_t i = 0; i < PAGES * PAGE; i++) {
        const bool fenced = i / PAGE >= 2 && i / PAGE < 5;
        assert_int_equal(mine[i], fenced ? i % 251 : 0xff);
    }
    assert_int_equal(peer_bring(OTHER_PEER, &ref), HOOP_OK); /* a late peer gets what is whole */
    hoop_region_forget(OTHER_PEER, ref.id, ref.generation);
    mine[3 * PAGE] = 5; /* the fresh pages can be written */
    assert_int_equal(theirs[3 * PAGE], 0xff);
    assert_int_equal(hoop_region_fence(mine + 4 * PAGE, 4 * PAGE),
                     HOOP_OK); /* against a second writer */
    theirs[7 * PAGE] = 1;
    assert_int_equal(mine[7 * PAGE], 0xff);
    assert_true(hoop_region_find(mine, 2 * PAGE, &again));
    assert_false(hoop_region_find(mine + 7 * PAGE, PAGE, &again));
    assert_int_equal(hoop_region_fence(mine + PAGE, PAGES * PAGE), HOOP_INVALID_ARGUMENT);
    hoop_region_unuse(PEER, ref.id, ref.generation);
    hoop_region_forget(PEER, ref.id, ref.generation);
    assert_int_equal(hoop_region_free(mine), HOOP_OK);
}

/* A fence is needed when something has gone wrong already, so it must not need a descriptor or a
 * file. */
static void test_fence_under_limits(void **state)
{
    (void)state;
    uint8_t *const mine = peer_make(2 * PAGE);
    mine[PAGE] = 3;
    const rlim_t files = peer_limit(RLIMIT_NOFILE, 0), bytes = peer_limit(RLIMIT_FSIZE, 0);
    const hoop_result_t result = hoop_region_fence(mine + PAGE, PAGE);
    (void)peer_limit(RLIMIT_FSIZE, bytes);
    (void)peer_limit(RLIMIT_NOFILE, files);
    assert_int_equal(result, HOOP_OK);
    assert_int_equal(mine[PAGE], 3);
    assert_int_equal(hoop_region_free(mine), HOOP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fence, peer_begin, peer_end),
        cmocka_unit_test_setup_teardown(test_fence_under_limits, peer_begin, peer_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * lib/plan/buffers.c with a rank whose announcements are wrong, or change after they were read. The
 * two ranks are views of one board in this thread; rank 1 counts as another process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "memory/region.h"
#include "plan/buffers_inside.h"
#include "runtime/process.h"
#include <string.h>
#include <sys/mman.h>

#define N 2u

struct world {
    struct hoop_roster roster;
    struct hoop_peer peers[N];
    struct hoop_board boards[N]; /* each rank's view */
    struct hoop_buffers buffers; /* rank 0's */
    struct hoop_region_ref ref;  /* a region, of all of which rank 1's output consists */
    struct hoop_plan plan;
    struct hoop_failure failure;
};

static int begin(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    void *memory = NULL;
    world->roster.n = N;
    world->roster.segment_bytes = hoop_board_bytes(N);
    world->roster.segment = mmap(NULL, world->roster.segment_bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    world->roster.peers = world->peers;
    hoop_result_t result = hoop_region_alloc(4096, HOOP_MEM_HOST, &memory);
    for (uint32_t rank = 0; rank < N; rank++) {
        world->peers[rank] = (struct hoop_peer){
            .process = hoop_process_id(), .wake_fd = -1, .same_process = rank == 0};
        result |= hoop_board_init(&world->boards[rank], &world->roster, rank);
    }
    world->buffers.board = &world->boards[0];
    world->buffers.maps.peers = world->peers;
    result |= hoop_buffers_init(&world->buffers);
    *state = world;
    return result == HOOP_OK && hoop_region_find(memory, 4096, &world->ref) ? 0 : -1;
}

static int end(void **state)
{
    struct world *world = *state;
    hoop_buffers_release(&world->buffers);
    hoop_buffers_finish(&world->buffers);
    for (uint32_t rank = 0; rank < N; rank++) {
        hoop_board_finish(&world->boards[rank]);
    }
    munmap(world->roster.segment, world->roster.segment_bytes);
    free(world);
    return 0;
}

/* Both ranks call this, in place; rank 1's buffers begin at the start of the region. */
static struct hoop_announce *announce(struct world *world, enum hoop_collective collective)
{
    const uint64_t count = world->ref.bytes / sizeof(float);
    const struct hoop_signature signature = {
        .collective = collective, .type = HOOP_FLOAT32, .root = -1, .count = count};
    const struct hoop_announce theirs = {.in_region = world->ref.id,
                                         .in_generation = world->ref.generation,
                                         .out_region = world->ref.id,
                                         .out_generation = world->ref.generation,
                                         .count = count};
    for (uint32_t rank = 0; rank < N; rank++) {
        hoop_board_begin(&world->boards[rank], &signature, NULL);
        hoop_board_post(&world->boards[rank], &theirs, sizeof(theirs));
    }
    hoop_plan_begin(&world->plan, &signature, 0, N, true);
    return hoop_board_cell(&world->boards[1], 1, 0);
}

static hoop_result_t resolve(struct world *world)
{
    uint32_t awaited = 0;
    return hoop_buffers_resolve(&world->buffers, &world->plan, NULL, NULL, &awaited,
                                &world->failure);
}

/* What was a region when the algorithm was chosen is then an address. It is one in rank 1's
 * process, and must not be taken for one in this. */
static void test_changed(void **state)
{
    struct world *world = *state;
    const struct hoop_agreement agreed = {.lanes = 2, .chunk_bytes = 131072};
    struct hoop_announce *theirs = announce(world, HOOP_COLL_ALL_REDUCE);
    const struct hoop_reach reach = hoop_buffers_reach(&world->buffers, &world->plan);
    hoop_plan_choose(&agreed, &reach, &world->plan);
    assert_int_equal(world->plan.algo, HOOP_ALGO_DIRECT);
    theirs->out_region = 0;
    theirs->out_offset = (uintptr_t)world;
    assert_int_equal(resolve(world), HOOP_REMOTE_ERROR);
    assert_int_equal(world->failure.rank, 1);
    assert_non_null(strstr(world->failure.text, "rank 1 announced"));
}

/* In place, with an input that does not end where the output does. */
static void test_larger_input(void **state)
{
    struct world *world = *state;
    (void)announce(world, HOOP_COLL_REDUCE_SCATTER);
    world->plan.algo = HOOP_ALGO_DIRECT;
    world->plan.one_acts = true;
    world->plan.actor = 0;
    assert_int_equal(resolve(world), HOOP_REMOTE_ERROR);
    assert_int_equal(world->failure.rank, 1);
    assert_non_null(strstr(world->failure.text, "of a region of"));
}

/* Both say that their buffers are on the same device; rank 1's have no region. */
static void test_device_without_region(void **state)
{
    struct world *world = *state;
    struct hoop_announce *theirs = announce(world, HOOP_COLL_ALL_REDUCE);
    struct hoop_announce *mine = hoop_board_cell(&world->boards[0], 0, 0);
    mine->device = theirs->device = 7;
    world->buffers.device = 7;
    theirs->in_region = theirs->out_region = 0;
    theirs->in_offset = theirs->out_offset = (uintptr_t)world;
    const struct hoop_reach reach = hoop_buffers_reach(&world->buffers, &world->plan);
    assert_int_equal(reach.place, HOOP_REACH_MIXED);
}

int main(void)
{
    setenv("HOOP_DEBUG", "none", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_changed, begin, end),
        cmocka_unit_test_setup_teardown(test_larger_input, begin, end),
        cmocka_unit_test_setup_teardown(test_device_without_region, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

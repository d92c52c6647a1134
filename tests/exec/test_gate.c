/*
 * lib/exec/gate.c, and the board's failure record, over a board of plain memory. The ranks are
 * views of one board in this thread. A rank is stuck in a buffer until the test lets it leave.
 */
#include "exec/board_steps.h"
#include "exec/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "memory/region.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 3u
#define STEP 5u
#define NOBODY (-1)

/* While this is set no fresh pages can be had: see mremap() below. */
static bool no_pages;

struct world {
    struct hoop_roster roster;
    struct hoop_peer peers[N];
    struct hoop_board board[N]; /* each rank's view */
};

static int begin(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    no_pages = false;
    world->roster.n = N;
    world->roster.segment_bytes = hoop_board_bytes(N);
    world->roster.segment = mmap(NULL, world->roster.segment_bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    world->roster.peers = world->peers;
    for (uint32_t rank = 0; rank < N; rank++) {
        world->peers[rank] = (struct hoop_peer){.pid = getpid(), .wake_fd = -1};
        if (hoop_board_init(&world->board[rank], &world->roster, rank) != HOOP_OK) {
            return -1;
        }
    }
    *state = world;
    return 0;
}

static int end(void **state)
{
    struct world *world = *state;
    for (uint32_t rank = 0; rank < N; rank++) {
        hoop_board_finish(&world->board[rank]);
    }
    munmap(world->roster.segment, world->roster.segment_bytes);
    free(world);
    return 0;
}

/* ---- The steps that everybody follows -------------------------------------------------------- */

#define SLICE ((uint64_t)10000)

/* In every step rank r writes the elements from r * SLICE on. */
static bool write_slice(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                        struct hoop_step *ret)
{
    *ret = hoop_step_none();
    (void)lane;
    ret->local.op = k == STEP ? HOOP_LOCAL_SPREAD : HOOP_LOCAL_REDUCE;
    ret->local.dst = (struct hoop_ref){HOOP_SPACE_OUT, k == STEP ? HOOP_EVERY : plan->me,
                                       plan->me * SLICE, SLICE};
    return true;
}

static const struct hoop_plan plan = {.algo = HOOP_ALGO_DIRECT, .n = N, .type_bytes = 4};

static uint32_t *make_out(void)
{
    void *out = NULL;
    assert_int_equal(hoop_region_alloc(N * SLICE * 4, HOOP_MEM_HOST, &out), HOOP_OK);
    return out;
}

static bool is_whole(const uint32_t *out, uint64_t first, uint64_t count)
{
    struct hoop_region_ref ref;
    return hoop_region_find(out + first, count * 4, &ref);
}

/* Fills the scratch memory, and then fills it from its second element on. */
static bool fill_scratch(const struct hoop_plan *its, uint32_t lane, uint64_t k,
                         struct hoop_step *ret)
{
    const uint64_t most = hoop_scratch_bytes() / its->type_bytes;
    *ret = hoop_step_none();
    (void)lane;
    ret->local.op = HOOP_LOCAL_COPY;
    ret->local.dst = (struct hoop_ref){HOOP_SPACE_SCRATCH, its->me, k, most};
    ret->local.src = (struct hoop_ref){HOOP_SPACE_IN, its->me, 0, most};
    return k < 2;
}

/* The linker redirects the library's calls to this function (meson.build). */
void *__real_mremap(void *from, size_t old_bytes, size_t bytes, int flags, void *to);
void *__wrap_mremap(void *from, size_t old_bytes, size_t bytes, int flags, void *to);
void *__wrap_mremap(void *from, size_t old_bytes, size_t bytes, int flags, void *to)
{
    if (__atomic_load_n(&no_pages, __ATOMIC_RELAXED)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mremap(from, old_bytes, bytes, flags, to);
}

/* ---- Tests ------------------------------------------------------------------------------------
 */

static void test_open(void **state)
{
    struct world *world = *state;
    for (uint64_t k = 0; k < 3; k++) {
        for (uint32_t rank = 0; rank < N; rank++) {
            assert_true(hoop_gates_enter(&world->board[rank], HOOP_EVERY, k));
        }
        for (uint32_t rank = 0; rank < N; rank++) {
            assert_true(hoop_gates_leave(&world->board[rank], HOOP_EVERY, k));
        }
    }
    assert_true(hoop_gates_enter(&world->board[1], 2, STEP));
    assert_false(hoop_gates_close(&world->board[0], NOBODY)); /* rank 1 is not in rank 0's */
    assert_true(hoop_gates_leave(&world->board[1], 2, STEP));
}

static void test_scratch(void **state)
{
    struct world *world = *state;
    struct hoop_failure failure = {.code = HOOP_OK};
    uint32_t *in = calloc(hoop_scratch_bytes(), 1);
    assert_non_null(in);
    struct hoop_board_op op = {.steps = fill_scratch, .plan = &plan, .in = in};
    assert_int_equal(hoop_board_poll(&world->board[0], &op, &failure), HOOP_POLL_BUSY);
    assert_int_equal(failure.code, HOOP_OK);
    assert_int_equal(hoop_board_poll(&world->board[0], &op, &failure), HOOP_POLL_DONE);
    assert_int_equal(failure.code, HOOP_INTERNAL_ERROR);
    assert_non_null(strstr(failure.text, "scratch"));
    free(in);
}

static void test_closed(void **state)
{
    struct world *world = *state;
    assert_false(hoop_gate_is_closed(&world->board[0], 1));
    assert_false(hoop_gates_close(&world->board[1], NOBODY));
    assert_false(hoop_gates_close(&world->board[1], NOBODY)); /* again */
    assert_true(hoop_gate_is_closed(&world->board[0], 1));
    assert_true(hoop_gate_is_closed(&world->board[2], 1));
    assert_false(hoop_gate_is_closed(&world->board[0], 2));
    assert_false(hoop_gates_enter(&world->board[0], HOOP_EVERY, STEP));
    assert_false(hoop_gates_enter(&world->board[0], 1, STEP));
    assert_false(hoop_gates_enter(&world->board[2], HOOP_EVERY, STEP));
    /* a rank that was refused holds no gate */
    assert_false(hoop_gates_close(&world->board[0], NOBODY));
    assert_false(hoop_gates_close(&world->board[2], NOBODY));
}

/* A rank that is stuck and then leaves learns that the buffer is no longer shared. */
static void test_leaves_late(void **state)
{
    struct world *world = *state;
    struct hoop_board *me = &world->board[0];
    uint32_t *out = make_out();
    no_pages = true;
    assert_true(hoop_gates_enter(&world->board[1], HOOP_EVERY, STEP));
    assert_true(hoop_gates_close(me, NOBODY));
    assert_int_equal(hoop_gates_fence(me, &plan, write_slice, out, 20), HOOP_TIMEOUT);
    assert_non_null(strstr(hoop_thread_error(), "rank 1 may still write"));
    assert_non_null(strstr(hoop_thread_error(), "ENOMEM"));
    assert_false(hoop_gates_leave(&world->board[1], HOOP_EVERY, STEP));
    assert_int_equal(hoop_gates_fence(me, &plan, write_slice, out, 20), HOOP_OK);
    assert_false(hoop_gates_enter(&world->board[1], 0, STEP));
    assert_int_equal(hoop_region_free(out), HOOP_OK);
}

/* The slice of a rank of another process is fenced, and nothing else. */
static void test_fenced(void **state)
{
    struct world *world = *state;
    struct hoop_board *me = &world->board[0];
    uint32_t *out = make_out();
    assert_true(hoop_gates_enter(&world->board[2], HOOP_EVERY, STEP));
    assert_true(hoop_gates_close(me, 2));
    assert_int_equal(hoop_gates_fence(me, &plan, write_slice, out, 20), HOOP_OK);
    assert_true(is_whole(out, 0, SLICE));
    assert_false(is_whole(out, 2 * SLICE, 1));
    assert_false(hoop_gates_leave(&world->board[2], HOOP_EVERY, STEP));
    assert_int_equal(hoop_region_free(out), HOOP_OK);
}

/* A rank that reads from another process writes only its own memory: there is nothing to fence, and
 * nobody to wait for. */
static void test_reader(void **state)
{
    struct world *world = *state;
    uint32_t *out = make_out();
    assert_true(hoop_gates_enter(&world->board[2], HOOP_EVERY, STEP + 1));
    assert_true(hoop_gates_close(&world->board[0], 2));
    assert_int_equal(hoop_gates_fence(&world->board[0], &plan, write_slice, out, 20), HOOP_OK);
    assert_true(is_whole(out, 0, N * SLICE));
    assert_int_equal(hoop_region_free(out), HOOP_OK);
}

/* Makes pages available again while the main thread waits. */
static void *give_pages(void *arg)
{
    (void)arg;
    usleep(20000);
    __atomic_store_n(&no_pages, false, __ATOMIC_RELAXED);
    return NULL;
}

static void test_pages_come(void **state)
{
    struct world *world = *state;
    uint32_t *out = make_out();
    pthread_t thread;
    no_pages = true;
    assert_true(hoop_gates_enter(&world->board[1], HOOP_EVERY, STEP));
    assert_true(hoop_gates_close(&world->board[0], 1));
    assert_int_equal(pthread_create(&thread, NULL, give_pages, NULL), 0);
    assert_int_equal(hoop_gates_fence(&world->board[0], &plan, write_slice, out, 30000), HOOP_OK);
    pthread_join(thread, NULL);
    assert_false(is_whole(out, SLICE, 1));
    assert_int_equal(hoop_region_free(out), HOOP_OK);
}

/* The writer is a thread of the same process and uses the same address: fresh pages would
 * not help. */
static void *leave(void *arg)
{
    struct world *world = arg;
    usleep(50000);
    return hoop_gates_leave(&world->board[1], HOOP_EVERY, STEP) ? NULL : world;
}

static void test_own_process(void **state)
{
    struct world *world = *state;
    uint32_t *out = make_out();
    pthread_t thread;
    void *refused = NULL;
    world->peers[1].same_process = true;
    assert_true(hoop_gates_enter(&world->board[1], HOOP_EVERY, STEP));
    assert_true(hoop_gates_close(&world->board[0], 1));
    assert_int_equal(hoop_gates_fence(&world->board[0], &plan, write_slice, out, 5), HOOP_TIMEOUT);
    assert_non_null(strstr(hoop_thread_error(), "rank 1 may still write"));
    assert_int_equal(pthread_create(&thread, NULL, leave, world), 0);
    assert_int_equal(hoop_gates_fence(&world->board[0], &plan, write_slice, out, 30000), HOOP_OK);
    pthread_join(thread, &refused);
    assert_non_null(refused);
    assert_true(is_whole(out, 0, N * SLICE));
    assert_int_equal(hoop_region_free(out), HOOP_OK);
}

/* Dead ranks write nothing, whatever their gates say. */
static void test_dead(void **state)
{
    struct world *world = *state;
    uint32_t *out = make_out();
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(hoop_gates_enter(&world->board[1], HOOP_EVERY, STEP) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    world->peers[1].pid = pid;
    no_pages = true;
    assert_true(hoop_gates_close(&world->board[0], 1));
    assert_int_equal(hoop_gates_fence(&world->board[0], &plan, write_slice, out, 0), HOOP_OK);
    assert_int_equal(hoop_gates_fence(&world->board[0], NULL, NULL, NULL, 0), HOOP_OK);
    assert_int_equal(hoop_region_free(out), HOOP_OK);
}

/* ---- Threads: whatever the order, who was let in was waited for -------------------------------
 */

#define ROUNDS 2000

static void *visit(void *arg)
{
    struct world *world = arg;
    uint64_t *buffer = (uint64_t *)(void *)world->board[0].scratch;
    while (hoop_gates_enter(&world->board[1], 0, STEP)) {
        buffer[0]++; /* not atomic: ordered by the gate */
        if (!hoop_gates_leave(&world->board[1], 0, STEP)) {
            break;
        }
    }
    return NULL;
}

static void test_race(void **state)
{
    struct world *world = *state;
    world->peers[1].same_process = true;
    uint64_t *buffer = (uint64_t *)(void *)world->board[0].scratch;
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, visit, world), 0);
        const bool stuck = hoop_gates_close(&world->board[0], round % 2 == 0 ? 1 : NOBODY);
        if (stuck) {
            assert_int_equal(hoop_gates_fence(&world->board[0], NULL, NULL, NULL, 0), HOOP_OK);
        }
        const uint64_t seen = buffer[0];
        pthread_join(thread, NULL);
        assert_int_equal(buffer[0], seen);
        memset(hoop_board_rank(&world->board[0], 1), 0, world->board[0].rank_stride);
    }
}

/* ---- The record of the failure --------------------------------------------------------------- */

static void *write_late(void *arg)
{
    struct hoop_board_head *head = arg;
    usleep(200000);
    atomic_store_explicit(&head->failed, HOOP_FAILED_WRITTEN, memory_order_release);
    return NULL;
}

/* The thread that writes the record has lost its CPU in the middle; it is not dead. */
static void test_failure_written_late(void **state)
{
    struct world *world = *state;
    struct hoop_board_head *head = world->board[0].head;
    struct hoop_failure cause = {.code = HOOP_ABORTED, .rank = 1, .text = "rank 1 aborted"}, seen;
    pthread_t thread;
    assert_true(hoop_board_fail(&world->board[1], &cause));
    atomic_store_explicit(&head->failed, HOOP_FAILED_CLAIMED, memory_order_release);
    assert_int_equal(hoop_board_failure(&world->board[0], &seen), HOOP_OK); /* does not wait */
    assert_int_equal(pthread_create(&thread, NULL, write_late, head), 0);
    assert_int_equal(hoop_board_failed(&world->board[0], &seen), HOOP_ABORTED);
    assert_string_equal(seen.text, cause.text);
    pthread_join(thread, NULL);
}

/* Any rank can write the record: what it says is checked before it becomes a result or a rank. */
static void test_failure_damaged(void **state)
{
    struct world *world = *state;
    static const int32_t codes[] = {HOOP_OK, HOOP_IN_PROGRESS, HOOP_AGAIN, 999, -1};
    static const int32_t ranks[] = {N, INT32_MAX, -2, INT32_MIN, -1};
    struct hoop_failure cause = {.code = HOOP_ABORTED, .rank = N - 1}, seen;
    assert_true(hoop_board_fail(&world->board[1], &cause));
    assert_int_equal(hoop_board_failure(&world->board[0], &seen), HOOP_ABORTED);
    assert_int_equal(seen.rank, N - 1);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        memcpy(&world->board[0].head->failure.code, &codes[i], sizeof(codes[i]));
        world->board[0].head->failure.rank = ranks[i];
        assert_int_equal(hoop_board_failure(&world->board[0], &seen), HOOP_REMOTE_ERROR);
        assert_int_equal(seen.code, HOOP_REMOTE_ERROR);
        assert_int_equal(seen.rank, -1);
    }
}

static void *abort_often(void *arg)
{
    struct hoop_board *board = arg;
    const struct hoop_failure cause = {.code = HOOP_ABORTED, .rank = 1};
    for (unsigned round = 0; round < ROUNDS; round++) {
        while (!hoop_board_fail(board, &cause)) {
            sched_yield();
        }
    }
    return NULL;
}

/* Whoever looks while the record is being written gets its contents. */
static void test_failure_read_meanwhile(void **state)
{
    struct world *world = *state;
    struct hoop_failure seen;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, abort_often, &world->board[1]), 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        hoop_result_t result = HOOP_OK;
        for (unsigned looks = 1; result == HOOP_OK; looks++) {
            result = hoop_board_failed(&world->board[0], &seen);
            if (looks % 1000 == 0) {
                sched_yield();
            }
        }
        assert_int_equal(result, HOOP_ABORTED);
        atomic_store(&world->board[0].head->failed, HOOP_FAILED_NOT);
    }
    pthread_join(thread, NULL);
}

int main(void)
{
    setenv("HOOP_DEBUG", "none", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_open, begin, end),
        cmocka_unit_test_setup_teardown(test_scratch, begin, end),
        cmocka_unit_test_setup_teardown(test_closed, begin, end),
        cmocka_unit_test_setup_teardown(test_leaves_late, begin, end),
        cmocka_unit_test_setup_teardown(test_fenced, begin, end),
        cmocka_unit_test_setup_teardown(test_reader, begin, end),
        cmocka_unit_test_setup_teardown(test_pages_come, begin, end),
        cmocka_unit_test_setup_teardown(test_own_process, begin, end),
        cmocka_unit_test_setup_teardown(test_dead, begin, end),
        cmocka_unit_test_setup_teardown(test_race, begin, end),
        cmocka_unit_test_setup_teardown(test_failure_written_late, begin, end),
        cmocka_unit_test_setup_teardown(test_failure_read_meanwhile, begin, end),
        cmocka_unit_test_setup_teardown(test_failure_damaged, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

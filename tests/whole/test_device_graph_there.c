/*
 * Captured calls that run on the device that all ranks share, or on several (lib/device/capture.h),
 * over the fake driver that HOOP_CUDA names: whether they run there, their order, other ranks whose
 * calls are not captured or go through the host, and what becomes of a graph when something fails.
 * Ranks are processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "memory/cuda.h"
#include "whole/graph_scene.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Order ---- */

/* Nothing goes through the host. */
static void replay_often(const struct family_self *self, size_t bytes, bool in_place)
{
    const struct scene scene = scene_known(self);
    const unsigned fetched = fetches();
    scene_replay_often(&scene, bytes, in_place);
    EXPECT(self, fetches() == fetched);
    scene_end(&scene);
}

static void replay_large(const struct family_self *self)
{
    replay_often(self, BYTES, false);
}

static void replay_in_place(const struct family_self *self)
{
    replay_often(self, BYTES - 2, true);
}

static void replay_among_calls(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    scene_replay_among_calls(&scene);
    scene_end(&scene);
}

#define PART ((size_t)9973)

/* Every kind of call in one group, each of which needs the one before. */
static void call_each(const struct scene *scene, int root)
{
    const size_t n = (size_t)scene->self->n;
    unsigned char *in = scene->in, *out = scene->out;
    EXPECT(scene->self, hoop_group_start() == HOOP_OK);
    (void)hoop_all_reduce(in, out, BYTES, HOOP_UINT8, HOOP_SUM, scene->comm, scene->stream);
    (void)hoop_reduce_scatter(out, in, PART, HOOP_UINT8, HOOP_MAX, scene->comm, scene->stream);
    (void)hoop_all_gather(in, out, PART, HOOP_UINT8, scene->comm, scene->stream);
    (void)hoop_broadcast(out, in, n * PART, HOOP_UINT8, root, scene->comm, scene->stream);
    (void)hoop_reduce(in, out, BYTES, HOOP_UINT8, HOOP_SUM, root, scene->comm, scene->stream);
    (void)hoop_scatter(out, in, PART, HOOP_UINT8, root, scene->comm, scene->stream);
    EXPECT(scene->self, hoop_group_end() == HOOP_OK);
}

static void fill_for(const struct scene *scene, int root, unsigned delay_us)
{
    fill_in(scene, root, delay_us);
    fill(scene->stream, scene->out, 0, BYTES, 0);
}

/* Two groups in one graph. */
static void replay_each(const struct scene *scene, int root, const unsigned char *expected)
{
    const unsigned fetched = fetches();
    capture(scene->stream, 1);
    call_each(scene, root);
    call_each(scene, root);
    hoop_cu_graph_t graph = graph_end(scene->stream);
    for (int round = 0; round < 3; round++) {
        fill_for(scene, root, 1000);
        replay(scene, graph);
        scene_settle(scene);
        EXPECT(scene->self, memcmp(expected, at_host(scene->in), BYTES) == 0);
    }
    EXPECT(scene->self, fetches() == fetched);
    graph_drop(graph);
}

/* Groups of several calls, with each root, captured and not. */
static void replay_groups(const struct family_self *self)
{
    static unsigned char expected[BYTES];
    const struct scene scene = scene_known(self);
    for (int root = 0; root < self->n; root++) {
        fill_for(&scene, root, 0);
        call_each(&scene, root);
        call_each(&scene, root);
        scene_settle(&scene);
        memcpy(expected, at_host(scene.in), BYTES);
        replay_each(&scene, root, expected);
    }
    scene_end(&scene);
}

static atomic_uint told_slow;

static void keep_log(void *arg, hoop_log_level_t level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)level;
    (void)subsystem;
    atomic_fetch_add(&told_slow, strstr(line, "captured calls go through the host") != NULL);
}

/* The log says which captures will be slow. */
static void capture_new_memory(const struct family_self *self)
{
    const struct scene scene = scene_make_there(self);
    hoop_set_log_callback(keep_log, NULL);
    for (int known = 0; known < 2; known++) {
        hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
        EXPECT(self, atomic_load(&told_slow) == 1);
        graph_drop(graph);
        scene_make_known(&scene);
    }
    scene_end(&scene);
}

/* What captures have allocated is freed once their graph is gone. */
static void drop_graphs(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    size_t bytes = 0, before = 0, pinned = 0, pinned_before = 0;
    EXPECT(self, hoop_barrier(scene.comm, NULL) == HOOP_OK);
    use(&before, &pinned_before);
    for (int round = 0; round < 5; round++) {
        hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
        fill_in(&scene, round, 0);
        replay(&scene, graph);
        scene_settle(&scene);
        use(&bytes, &pinned);
        EXPECT(self, pinned == pinned_before + 1);
        graph_drop(graph);
    }
    EXPECT(self, hoop_barrier(scene.comm, NULL) == HOOP_OK);
    capture(scene.stream, 1);
    (void)hoop_barrier(scene.comm, scene.stream);
    hoop_cu_graph_t graph = graph_end(scene.stream);
    EXPECT(self, hoop_barrier(scene.comm, NULL) == HOOP_OK);
    use(&bytes, &pinned);
    EXPECT(self, bytes <= before && pinned == pinned_before + 1);
    graph_drop(graph);
    scene_end(&scene);
}

/* ---- Ranks that differ ---- */

static void call_or_replay(const struct scene *scene, hoop_cu_graph_t graph)
{
    if (graph != NULL) {
        replay(scene, graph);
    } else {
        EXPECT(scene->self, reduce(scene, scene->in, scene->out, BYTES) == HOOP_OK);
    }
}

/* Rank 1's call is not captured: it waits, and does the work. */
static void meet_who_waits(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    hoop_cu_graph_t graph =
        self->rank != 1 ? capture_sum(&scene, scene.in, scene.out, BYTES) : NULL;
    for (int round = 0; round < ROUNDS; round++) {
        fill_in(&scene, round, round % 3 == self->rank ? 2000 : 0);
        call_or_replay(&scene, graph);
        copy(&scene, scene.log + round, scene.out + BYTES - 1, 1);
    }
    scene_settle(&scene);
    assert_log(&scene);
    graph_drop(graph);
    scene_end(&scene);
}

/* Rank 1's buffers are on the host, or were not known when it captured: all go through the host. */
static void meet_from_elsewhere(const struct family_self *self, bool from_host)
{
    static unsigned char host[2][BYTES];
    const struct scene scene = scene_known(self);
    unsigned char *in = scene.in, *out = scene.out;
    if (self->rank == 1) {
        in = from_host ? host[0] : plain(self, BYTES);
        out = from_host ? host[1] : plain(self, BYTES);
    }
    hoop_cu_graph_t graph = capture_sum(&scene, in, out, BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        if (self->rank != 1 || !from_host) {
            fill(scene.stream, in, round + self->rank, BYTES, 500);
        } else {
            memset(in, round + self->rank, BYTES);
        }
        replay(&scene, graph);
        scene_settle(&scene);
        const unsigned char *seen_out = out == host[1] ? out : at_host(out);
        EXPECT(self, seen_out[0] == sum_of(&scene, round));
        EXPECT(self, seen_out[BYTES - 1] == sum_of(&scene, round));
    }
    graph_drop(graph);
    scene_end(&scene);
}

static void meet_from_host(const struct family_self *self)
{
    meet_from_elsewhere(self, true);
}

static void meet_from_new_memory(const struct family_self *self)
{
    meet_from_elsewhere(self, false);
}

/* ---- Failures ---- */

/* Rank 1's graph never runs. */
static void abort_waiting(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    fill(scene.stream, scene.out, 0x55, BYTES, 0);
    if (self->rank != 1) {
        replay(&scene, graph);
    }
    usleep(50000);
    if (self->rank == 0) {
        EXPECT(self, is_busy(scene.stream));
        EXPECT(self, hoop_comm_abort(scene.comm) == HOOP_OK);
    }
    const uint64_t start = hoop_now_ns();
    scene_settle(&scene);
    EXPECT(self, hoop_now_ns() - start < 5 * HOOP_NS_PER_S);
    EXPECT(self, scene_failure(&scene) == HOOP_ABORTED);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    replay(&scene, graph); /* of a comm that has ended: does nothing */
    scene_settle(&scene);
    EXPECT(self, are_all(scene.out, 0x55, BYTES));
    graph_drop(graph);
    rank_tell(self, HOOP_OK, 0);
}

/* Rank 1 dies while the others' graphs wait for it. */
static void wait_for_the_dead(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    hoop_result_t failed = HOOP_OK;
    fill(scene.stream, scene.out, 0x55, BYTES, 0);
    scene_settle(&scene);
    rank_tell(self, HOOP_OK, 0);
    if (self->rank == 1) {
        (void)pause();
    }
    replay(&scene, graph);
    scene_settle(&scene);
    EXPECT(self, are_all(scene.out, 0x55, BYTES));
    EXPECT(self, hoop_comm_get_async_error(scene.comm, &failed) == HOOP_OK);
    EXPECT(self, strstr(hoop_get_last_error(scene.comm), "rank 1 ") != NULL);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    rank_tell(self, failed, 0);
}

/* Rank 0's device fails while the kernel of its graph runs, which thus never ends: all are told,
 * and nobody waits for the kernel until a time limit. */
static void break_at_work(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    delay(SLOW_US);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    replay(&scene, graph);
    if (self->rank == 0) {
        usleep(SLOW_US / 4);
        break_device(1);
        (void)hoop_cuda.copy((uintptr_t)scene.log, (uintptr_t)scene.in, 1, scene.stream);
    }
    EXPECT(self, scene_failure(&scene) == HOOP_CUDA_ERROR);
    EXPECT(self, strstr(hoop_get_last_error(scene.comm), "rank 0: ") != NULL);
    EXPECT(self,
           strstr(hoop_get_last_error(scene.comm), "CUDA_ERROR_ILLEGAL_ADDRESS (700)") != NULL);
    if (self->rank != 0) {
        scene_settle(&scene);
    }
    EXPECT(self, hoop_barrier(scene.comm, NULL) == HOOP_CUDA_ERROR); /* behind the graph's call */
    EXPECT(self, strstr(hoop_get_last_error(scene.comm), "has not ended") == NULL);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    graph_drop(graph);
    rank_tell(self, HOOP_OK, 0);
}

/* Rank 0 runs one graph twice at the same time, the second time while the first waits for rank 1.
 */
static void replay_at_once(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    hoop_stream_t other = NULL;
    EXPECT(self, hoop_cuda.stream_create(&other, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    fill(scene.stream, scene.out, 0x55, BYTES, self->rank == 1 ? 2 * SLOW_US : 0);
    replay(&scene, graph);
    if (self->rank == 0) {
        fill(other, scene.log, 1, 1, SLOW_US / 2);
        EXPECT(self, graph_replay(graph, other) == 0);
        EXPECT(self, hoop_cuda.stream_synchronize(other) == 0);
    }
    scene_settle(&scene);
    EXPECT(self, scene_failure(&scene) == HOOP_INVALID_USAGE);
    EXPECT(self,
           strstr(hoop_get_last_error(scene.comm), "rank 0: two graphs with the same") != NULL);
    EXPECT(self, are_all(scene.out, 0x55, BYTES));
    graph_drop(graph);
    scene_end(&scene);
}

/* ---- In the parent ---- */

static void test_replay(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        run(n, replay_large);
    }
    run(3, replay_in_place);
    run(3, replay_among_calls);
}

static void test_groups(void **state)
{
    (void)state;
    run(2, replay_groups);
    run(4, replay_groups);
}

static void test_ends(void **state)
{
    (void)state;
    run(2, drop_graphs);
    setenv("HOOP_DEBUG", "info", 1);
    run(2, capture_new_memory);
    unsetenv("HOOP_DEBUG");
}

static void test_meet(void **state)
{
    (void)state;
    run(3, meet_who_waits);
    run(3, meet_from_host);
    run(3, meet_from_new_memory);
}

static void test_wrong(void **state)
{
    (void)state;
    run(3, abort_waiting);
    run(2, replay_at_once);
    run(3, break_at_work);
    run_and_kill(wait_for_the_dead, false);
}

/* With the argument `apart` each rank has a device of its own. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay), cmocka_unit_test(test_groups), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_meet),   cmocka_unit_test(test_wrong),
    };
    apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    return cmocka_run_group_tests_name("device graph there", tests, NULL, NULL);
}

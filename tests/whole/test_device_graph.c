/*
 * Calls that are captured into graphs, over the fake driver that HOOP_CUDA names: replayed many
 * times, in the order of the stream, and what becomes of a graph that waits when something fails.
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

#include <string.h>
#include <unistd.h>

/* ---- In a rank ---- */

static void replay_often(const struct family_self *self, size_t bytes, bool in_place)
{
    const struct scene scene = scene_make(self);
    scene_replay_often(&scene, bytes, in_place);
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

static void replay_small(const struct family_self *self)
{
    replay_often(self, 3, false);
}

static void replay_among_calls(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    scene_replay_among_calls(&scene);
    scene_end(&scene);
}

/* A group: messages, alltoallv, and host buffers. */
#define EACH 700

static hoop_cu_graph_t capture_group(const struct scene *scene, unsigned char *host)
{
    enum { MOST_RANKS = 4 };
    static size_t counts[MOST_RANKS], displs[MOST_RANKS];
    const int n = scene->self->n, rank = scene->self->rank;
    for (int r = 0; r < n; r++) {
        counts[r] = EACH;
        displs[r] = (size_t)r * EACH;
    }
    capture(scene->stream, 1);
    EXPECT(scene->self, hoop_group_start() == HOOP_OK);
    hoop_send(scene->in, EACH, HOOP_UINT8, (rank + 1) % n, scene->comm, scene->stream);
    hoop_recv(scene->out, EACH, HOOP_UINT8, (rank + n - 1) % n, scene->comm, scene->stream);
    hoop_alltoallv(scene->in, counts, displs, scene->out + EACH, counts, displs, HOOP_UINT8,
                   scene->comm, scene->stream);
    hoop_broadcast(scene->in, host, EACH, HOOP_UINT8, 0, scene->comm, scene->stream);
    hoop_barrier(scene->comm, scene->stream);
    EXPECT(scene->self, hoop_group_end() == HOOP_OK);
    return graph_end(scene->stream);
}

static void replay_group(const struct family_self *self)
{
    static unsigned char host[EACH];
    const struct scene scene = scene_make(self);
    hoop_cu_graph_t graph = capture_group(&scene, host);
    const unsigned char *out = at_host(scene.out);
    int wrong = 0;
    for (int value = 0; value < 30; value += 10) {
        fill_in(&scene, value, 1000);
        replay(&scene, graph);
        scene_settle(&scene);
        wrong += out[EACH - 1] != value + (self->rank + self->n - 1) % self->n;
        wrong += host[EACH - 1] != value;
        for (int r = 0; r < self->n; r++) {
            wrong += out[EACH + r * EACH] != value + r;
        }
    }
    EXPECT(self, wrong == 0);
    graph_drop(graph);
    scene_end(&scene);
}

/* Many calls of two sizes in one graph, each depending on the one before: in two rooms. */
static void replay_chain(const struct family_self *self)
{
    enum { CALLS = 20 };
    const struct scene scene = scene_make(self);
    size_t bytes = 0, before = 0, pinned = 0;
    use(&bytes, &before);
    capture(scene.stream, 1);
    for (int i = 0; i < CALLS; i++) {
        const size_t part = i % 2 ? BYTES : BYTES / 3;
        EXPECT(self, hoop_all_reduce(scene.in, scene.out, part, HOOP_UINT8, HOOP_SUM, scene.comm,
                                     scene.stream) == HOOP_OK);
        EXPECT(self, hoop_all_reduce(scene.out, scene.in, part, HOOP_UINT8, HOOP_MAX, scene.comm,
                                     scene.stream) == HOOP_OK);
    }
    hoop_cu_graph_t graph = graph_end(scene.stream);
    use(&bytes, &pinned);
    EXPECT(self, pinned == before + 2);
    unsigned char first = 1, last = 1;
    for (int i = 0; i < CALLS; i++) {
        first = (unsigned char)(first * self->n);
        last = (unsigned char)(i % 2 ? last * self->n : last);
    }
    for (int round = 0; round < 3; round++) {
        fill_in(&scene, 1 - self->rank, 500);
        replay(&scene, graph);
        scene_settle(&scene);
        EXPECT(self, at_host(scene.in)[0] == first && at_host(scene.in)[BYTES - 1] == last);
    }
    graph_drop(graph);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    use(&bytes, &pinned);
    EXPECT(self, pinned == before);
    rank_tell(self, HOOP_OK, 0);
}

/* What calls have pinned is freed once their graph is gone, by the next call that captures, or with
 * the comm. */
static void drop_graphs(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    size_t bytes = 0, before = 0, pinned = 0;
    use(&bytes, &before);
    for (int round = 0; round < 5; round++) {
        hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
        fill_in(&scene, round, 0);
        replay(&scene, graph);
        scene_settle(&scene);
        use(&bytes, &pinned);
        EXPECT(self, pinned == before + 1);
        graph_drop(graph);
    }
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    use(&bytes, &pinned);
    EXPECT(self, pinned == before);
    rank_tell(self, HOOP_OK, 0);
}

/* Rank 1's graph never runs. */
static void abort_waiting(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    hoop_result_t failed = HOOP_OK;
    if (self->rank != 1) {
        replay(&scene, graph);
    }
    usleep(50000);
    if (self->rank == 0) {
        EXPECT(self, hoop_cuda.stream_query(scene.stream) == HOOP_CU_NOT_READY);
        EXPECT(self, hoop_comm_abort(scene.comm) == HOOP_OK);
    }
    if (self->rank != 1) {
        const uint64_t start = hoop_now_ns();
        scene_settle(&scene);
        EXPECT(self, hoop_now_ns() - start < 5 * HOOP_NS_PER_S);
    }
    while (failed == HOOP_OK) {
        EXPECT(self, hoop_comm_get_async_error(scene.comm, &failed) == HOOP_OK);
    }
    EXPECT(self, failed == HOOP_ABORTED);
    fill_in(&scene, 1, 0);
    replay(&scene, graph);
    scene_settle(&scene);
    assert_spoilt(&scene);
    graph_drop(graph);
    scene_end(&scene);
}

/* Rank 1 dies while the others' graphs wait for it. */
static void wait_for_the_dead(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    hoop_result_t failed = HOOP_OK;
    rank_tell(self, HOOP_OK, 0);
    if (self->rank == 1) {
        (void)pause();
    }
    replay(&scene, graph);
    scene_settle(&scene);
    EXPECT(self, hoop_comm_get_async_error(scene.comm, &failed) == HOOP_OK);
    EXPECT(self, strstr(hoop_get_last_error(scene.comm), "rank 1 ") != NULL);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    rank_tell(self, failed, 0);
}

/* Refused calls leave a comm of one rank unchanged. (With several: test_device_graph_misuse.c.) */
static void refuse_mixed(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    hoop_stream_t other = NULL, host = NULL;
    EXPECT(self, hoop_cuda.stream_create(&other, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    EXPECT(self, hoop_stream_create(&host) == HOOP_OK);
    hoop_stream_t others[] = {other, host};
    capture(scene.stream, 1);
    for (size_t i = 0; i < 2; i++) {
        static unsigned char byte;
        EXPECT(self, hoop_group_start() == HOOP_OK);
        (void)reduce(&scene, scene.in, scene.out, BYTES);
        (void)hoop_bcast(&byte, 1, HOOP_UINT8, 0, scene.comm, others[i]);
        EXPECT(self, hoop_group_end() == HOOP_INVALID_USAGE);
        EXPECT(self, strstr(hoop_get_last_error(NULL), "captures a graph") != NULL);
    }
    capture(scene.stream, 0);
    EXPECT(self, hoop_stream_destroy(host) == HOOP_OK);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    scene_settle(&scene);
    scene_end(&scene);
}

/* ---- In the parent ---- */

static void test_replay(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        run(n, replay_large);
    }
    run(3, replay_in_place);
    run(2, replay_small);
    run(3, replay_chain);
}

static void test_among_calls(void **state)
{
    (void)state;
    run(3, replay_among_calls);
}

static void test_group(void **state)
{
    (void)state;
    run(3, replay_group);
}

static void test_ends(void **state)
{
    (void)state;
    run(2, drop_graphs);
    run(1, refuse_mixed);
}

static void test_abort(void **state)
{
    (void)state;
    run(3, abort_waiting);
}

static void test_kill(void **state)
{
    (void)state;
    run_and_kill(wait_for_the_dead, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay), cmocka_unit_test(test_among_calls),
        cmocka_unit_test(test_group),  cmocka_unit_test(test_ends),
        cmocka_unit_test(test_abort),  cmocka_unit_test(test_kill),
    };
    return cmocka_run_group_tests_name("device graph", tests, NULL, NULL);
}

/*
 * Graphs whose capture fails, graphs that are replayed at the wrong time, and calls beside them,
 * over the fake driver that HOOP_CUDA names. Ranks are processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "fakes/failing_cuda.h"
#include "memory/cuda.h"
#include "whole/graph_scene.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- In a rank ---- */

/* The driver refuses the n-th call of this name, so that the sum can't be captured. */
static void refuse_to_capture(const struct scene *scene, const char *call, unsigned n)
{
    capture(scene->stream, 1);
    failing_cuda_start(call, n, 1, HOOP_CU_NOT_READY);
    EXPECT(scene->self, reduce(scene, scene->in, scene->out, BYTES) == HOOP_CUDA_ERROR);
    EXPECT(scene->self, failing_cuda_stop() >= n);
    hoop_cu_graph_t graph = graph_end(scene->stream);
    replay(scene, graph); /* which must not be, and does nothing */
    scene_settle(scene);
    graph_drop(graph);
    EXPECT(scene->self, atomic_load(&scene->comm->captured) == 0);
}

/* Rank 0's capture fails. The others, whose graphs wait for its call, are told, and not by a time
 * limit. What it has pinned is freed. */
static void fail_to_capture(const struct family_self *self)
{
    static const struct {
        const char *call;
        unsigned n;
    } each[] = {{"host_function", 1},     {"copy", 1},         {"host_function", 2},
                {"stream_wait_value", 1}, {"copy", 2},         {"stream_write_value", 1},
                {"host_register", 1},     {"host_pointer", 1}, {"capture_info", 1},
                {"object_create", 1},     {"graph_retain", 1}};
    struct scene scene = scene_make(self);
    size_t bytes = 0, before = 0, pinned = 0;
    use(&bytes, &before);
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        hoop_cu_graph_t graph =
            self->rank != 0 ? capture_sum(&scene, scene.in, scene.out, BYTES) : NULL;
        EXPECT(self, hoop_barrier(scene.comm, NULL) == HOOP_OK);
        if (self->rank == 0) {
            refuse_to_capture(&scene, each[i].call, each[i].n);
        } else {
            replay(&scene, graph);
            scene_settle(&scene);
            graph_drop(graph);
        }
        EXPECT(self, scene_failure(&scene) == HOOP_CUDA_ERROR);
        EXPECT(self, strstr(hoop_get_last_error(scene.comm), "rank 0: cu") != NULL);
        EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
        use(&bytes, &pinned);
        EXPECT(self, pinned == before);
        scene.comm = join(self);
    }
    scene_end(&scene);
}

/* As of a capture that another thread has invalidated: the driver fills in nothing else. */
static int info_of_invalidated(hoop_stream_t stream, int *ret_status, unsigned long long *ret_id,
                               hoop_cu_graph_t *ret_graph, const void **ret_nodes,
                               size_t *ret_count)
{
    (void)stream, (void)ret_id, (void)ret_graph, (void)ret_nodes, (void)ret_count;
    *ret_status = HOOP_CU_CAPTURE_ACTIVE + 1;
    return HOOP_CU_SUCCESS;
}

/* That happens when the call has looked at the stream already: there is no graph to put it in. */
static void invalidate_within(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    capture(scene.stream, 1);
    hoop_cuda.capture_info = info_of_invalidated;
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_CUDA_ERROR);
    EXPECT(self, strstr(hoop_get_last_error(NULL), "cuStreamGetCaptureInfo: ") != NULL);
    EXPECT(self, strstr(hoop_get_last_error(NULL), "(901)") != NULL);
    EXPECT(self, scene_failure(&scene) == HOOP_CUDA_ERROR);
    capture(scene.stream, 0);
    scene_end(&scene);
}

static hoop_result_t async_error(const struct scene *scene)
{
    hoop_result_t failed = HOOP_OK;
    EXPECT(scene->self, hoop_comm_get_async_error(scene->comm, &failed) == HOOP_OK);
    return failed;
}

/* On its own rank a group that was a mistake fails the comm, too. */
static void assert_refused(const struct scene *scene, hoop_result_t result, const char *why)
{
    EXPECT(scene->self, result == HOOP_INVALID_USAGE);
    EXPECT(scene->self, strstr(hoop_get_last_error(NULL), why) != NULL);
    EXPECT(scene->self, async_error(scene) == HOOP_REMOTE_ERROR);
}

/* A capture that fails between a call of a group and the group's end. */
static void fail_in_the_group(const struct scene *scene)
{
    EXPECT(scene->self, hoop_group_start() == HOOP_OK);
    EXPECT(scene->self, reduce(scene, scene->in, scene->out, BYTES) == HOOP_OK);
    EXPECT(scene->self, hoop_cuda.context_synchronize() != HOOP_CU_SUCCESS); /* not allowed now */
    assert_refused(scene, hoop_group_end(), "the capture has failed");
}

/* A call on another stream. */
static void leave_the_stream(const struct scene *scene)
{
    hoop_stream_t other = NULL;
    EXPECT(scene->self, hoop_cuda.stream_create(&other, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    EXPECT(scene->self, hoop_group_start() == HOOP_OK);
    EXPECT(scene->self, reduce(scene, scene->in, scene->out, BYTES) == HOOP_OK);
    EXPECT(scene->self, hoop_barrier(scene->comm, other) == HOOP_OK);
    assert_refused(scene, hoop_group_end(), "all calls of the group on that stream");
}

/* A call on a host stream. */
static void name_a_host_stream(const struct scene *scene)
{
    hoop_stream_t host = NULL;
    EXPECT(scene->self, hoop_stream_create(&host) == HOOP_OK);
    EXPECT(scene->self, hoop_group_start() == HOOP_OK);
    EXPECT(scene->self, reduce(scene, scene->in, scene->out, BYTES) == HOOP_OK);
    EXPECT(scene->self, hoop_barrier(scene->comm, host) == HOOP_OK);
    assert_refused(scene, hoop_group_end(), "others are host streams");
    EXPECT(scene->self, hoop_stream_destroy(host) == HOOP_OK);
}

/* Rank 0 makes a mistake that shows only at the end of a group: the others, which wait for its
 * calls, are told, long before their time limit. */
static void tell_of_mistake(const struct scene *scene, void (*mistake)(const struct scene *scene),
                            bool leaves_a_graph)
{
    if (scene->self->rank > 0) {
        EXPECT(scene->self, reduce(scene, scene->in, scene->out, BYTES) == HOOP_REMOTE_ERROR);
        EXPECT(scene->self, strstr(hoop_get_last_error(scene->comm),
                                   "rank 0 ran no call of a group, because of a mistake") != NULL);
        return;
    }
    capture(scene->stream, 1);
    mistake(scene);
    hoop_cu_graph_t graph = graph_end(scene->stream);
    EXPECT(scene->self, (graph != NULL) == leaves_a_graph);
    graph_drop(graph);
}

static void fail_in_a_group(const struct family_self *self)
{
    static void (*const mistakes[])(const struct scene *scene) = {
        fail_in_the_group, leave_the_stream, name_a_host_stream};
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        const struct scene scene = scene_make(self);
        tell_of_mistake(&scene, mistakes[i], i > 0);
        EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    }
    rank_tell(self, HOOP_OK, 0);
}

static atomic_bool fed_enough;

/* Keeps the stream busy for ten seconds, or until it is told to stop. */
static void *feed(void *arg)
{
    const struct scene *scene = arg;
    const uint64_t start = hoop_now_ns();
    while (!atomic_load(&fed_enough) && hoop_now_ns() - start < 10 * HOOP_NS_PER_S) {
        for (int i = 0; i < 3; i++) {
            fill(scene->stream, scene->log, 1, 1, 5000);
        }
        usleep(10000);
    }
    return NULL;
}

/* A call beside a graph waits only for what was on its stream before it, not until the stream is
 * idle; for graphs that are gone it does not wait at all. */
static void call_on_busy_stream(const struct family_self *self)
{
    struct scene scene = scene_make(self);
    pthread_t feeder;
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    replay(&scene, graph);
    for (int i = 0; i < 40; i++) {
        fill(scene.stream, scene.log, 1, 1, 5000);
    }
    EXPECT(self, pthread_create(&feeder, NULL, feed, &scene) == 0);
    const uint64_t start = hoop_now_ns();
    EXPECT(self, reduce(&scene, scene.in, scene.in, BYTES) == HOOP_OK);
    EXPECT(self, hoop_now_ns() - start < 9 * HOOP_NS_PER_S);
    atomic_store(&fed_enough, true);
    EXPECT(self, pthread_join(feeder, NULL) == 0);
    scene_settle(&scene);
    EXPECT(self, atomic_load(&scene.comm->captured) == 1);
    graph_drop(graph);
    EXPECT(self, atomic_load(&scene.comm->captured) == 0);
    scene_end(&scene);
}

/* CUDA 11.7 has the symbols, but is too old. */
static void refuse_old_driver(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    setenv("FAKE_CUDA_VERSION", "11070", 1);
    capture(scene.stream, 1);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_UNSUPPORTED);
    EXPECT(self, strstr(hoop_get_last_error(NULL), "version 11.7, expected 12.0") != NULL);
    capture(scene.stream, 0);
    unsetenv("FAKE_CUDA_VERSION");
    graph_drop(capture_sum(&scene, scene.in, scene.out, BYTES));
    scene_end(&scene);
}

struct branch {
    const struct scene *scene;
    hoop_cu_context_t context;
    hoop_cu_event_t fork;
};

static void *capture_branch(void *arg)
{
    const struct branch *branch = arg;
    const struct scene *scene = branch->scene;
    EXPECT(scene->self, hoop_cuda.context_push(branch->context) == 0);
    EXPECT(scene->self, hoop_cuda.stream_wait(FAKE_STREAM_OF_THREAD, branch->fork, 0) == 0);
    EXPECT(scene->self, hoop_all_reduce(scene->out, scene->in, BYTES, HOOP_UINT8, HOOP_SUM,
                                        scene->comm, FAKE_STREAM_OF_THREAD) == HOOP_OK);
    return NULL;
}

/* Streams of two threads that have the same name, in one graph, whose branches share no memory. */
static void capture_in_threads(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    struct branch branch = {.scene = &scene};
    size_t bytes = 0, before = 0, pinned = 0;
    pthread_t other;
    use(&bytes, &before);
    EXPECT(self, hoop_cuda.context_get(&branch.context) == 0);
    EXPECT(self, hoop_cuda.event_create(&branch.fork, HOOP_CU_EVENT_DISABLE_TIMING) == 0);
    capture(FAKE_STREAM_OF_THREAD, 1);
    EXPECT(self, hoop_all_reduce(scene.in, scene.out, BYTES, HOOP_UINT8, HOOP_SUM, scene.comm,
                                 FAKE_STREAM_OF_THREAD) == HOOP_OK);
    EXPECT(self, hoop_cuda.event_record(branch.fork, FAKE_STREAM_OF_THREAD) == 0);
    EXPECT(self, pthread_create(&other, NULL, capture_branch, &branch) == 0);
    EXPECT(self, pthread_join(other, NULL) == 0);
    hoop_cu_graph_t graph = graph_end(FAKE_STREAM_OF_THREAD);
    use(&bytes, &pinned);
    EXPECT(self, pinned == before + 2);
    fill_in(&scene, 1, 0);
    replay(&scene, graph);
    scene_settle(&scene);
    EXPECT(self, at_host(scene.in)[BYTES - 1] == (unsigned char)(self->n * sum_of(&scene, 1)));
    graph_drop(graph);
    EXPECT(self, hoop_cuda.event_destroy(branch.fork) == 0);
    scene_end(&scene);
}

static void await_failure(const struct scene *scene, hoop_result_t expected, const char *why)
{
    const uint64_t deadline = hoop_now_ns() + 10 * HOOP_NS_PER_S;
    while (async_error(scene) == HOOP_OK && hoop_now_ns() < deadline) {
        usleep(1000);
    }
    EXPECT(scene->self, async_error(scene) == expected);
    EXPECT(scene->self, strstr(hoop_get_last_error(scene->comm), why) != NULL);
}

/* Rank 0 runs one graph twice at the same time. The second run begins while the first copies to the
 * host, whose memory it then no longer has for itself. */
static void replay_at_once(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    hoop_stream_t other = NULL;
    EXPECT(self, hoop_cuda.stream_create(&other, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    copy_delay(300000);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    copy_delay(0);
    replay(&scene, graph);
    if (self->rank == 0) {
        fill(other, scene.log, 1, 1, 150000);
        EXPECT(self, graph_replay(graph, other) == 0);
        EXPECT(self, hoop_cuda.stream_synchronize(other) == 0);
    }
    scene_settle(&scene);
    await_failure(&scene, HOOP_INVALID_USAGE, "rank 0: two graphs with the same captured");
    graph_drop(graph);
    scene_end(&scene);
}

/* Rank 0's device fails while its graph copies to the host: all are told. */
static void break_while_copying(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    copy_delay(SLOW_US);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    copy_delay(0);
    replay(&scene, graph);
    if (self->rank == 0) {
        usleep(SLOW_US / 4);
        break_device(1);
        (void)hoop_cuda.copy((uintptr_t)scene.log, (uintptr_t)scene.in, 1, scene.stream);
    }
    await_failure(&scene, HOOP_CUDA_ERROR, "rank 0: ");
    await_failure(&scene, HOOP_CUDA_ERROR, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    graph_drop(graph);
    rank_tell(self, HOOP_OK, 0);
}

static char logged[512];
static atomic_uint log_lines;

static void keep_log(void *arg, hoop_log_level_t level, const char *subsystem, const char *line)
{
    (void)level;
    (void)subsystem;
    (void)arg;
    if (strstr(line, "captured call was replayed") != NULL) {
        (void)snprintf(logged, sizeof(logged), "%s", line);
        atomic_fetch_add(&log_lines, 1);
    }
}

static void replay_in_vain(const struct scene *scene, hoop_cu_graph_t graph, const char *why)
{
    hoop_set_log_callback(keep_log, NULL);
    for (int i = 0; i < 2; i++) {
        fill_in(scene, 1, 0);
        fill(scene->stream, scene->out, 0, BYTES, 0);
        replay(scene, graph);
        scene_settle(scene);
        assert_spoilt(scene);
    }
    EXPECT(scene->self, atomic_load(&log_lines) == 1 && strstr(logged, why) != NULL);
}

/* A graph that is replayed after its comm has ended logs that, and ends. */
static void replay_too_late(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    replay(&scene, graph);
    scene_settle(&scene);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    replay_in_vain(&scene, graph, "its communicator has ended");
    graph_drop(graph);
    rank_tell(self, HOOP_OK, 0);
}

/* Rank 0 has finalized the comm: the others are told of the replay. */
static void replay_finalized(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    hoop_cu_graph_t graph = capture_sum(&scene, scene.in, scene.out, BYTES);
    replay(&scene, graph);
    scene_settle(&scene);
    if (self->rank == 0) {
        EXPECT(self, hoop_comm_finalize(scene.comm) == HOOP_OK);
        replay_in_vain(&scene, graph, "its communicator was finalized");
    }
    await_failure(&scene, HOOP_INVALID_USAGE, "rank 0: a captured call was replayed");
    graph_drop(graph);
    scene_end(&scene);
}

/* One of two comms in a group has ended on rank 0: the ranks of the other are told of the
 * replay. */
static void replay_half_ended(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    hoop_comm_t second = NULL;
    EXPECT(self, hoop_comm_split(scene.comm, 0, self->rank, &second, NULL) == HOOP_OK);
    capture(scene.stream, 1);
    EXPECT(self, hoop_group_start() == HOOP_OK);
    (void)reduce(&scene, scene.in, scene.out, BYTES);
    (void)hoop_barrier(second, scene.stream);
    EXPECT(self, hoop_group_end() == HOOP_OK);
    hoop_cu_graph_t graph = graph_end(scene.stream);
    EXPECT(self, hoop_barrier(scene.comm, NULL) == HOOP_OK);
    if (self->rank == 0) {
        EXPECT(self, hoop_comm_destroy(second) == HOOP_OK);
        replay_in_vain(&scene, graph, "communicator");
    }
    await_failure(&scene, HOOP_INVALID_USAGE, "another communicator");
    graph_drop(graph);
    EXPECT(self, self->rank == 0 || hoop_comm_destroy(second) == HOOP_OK);
    scene_end(&scene);
}

/* What hoop allocates for others does not disturb a capture. */
static void allocate_beside_capture(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    hoop_stream_t blocking = NULL;
    hoop_red_op_t op;
    EXPECT(self, hoop_cuda.stream_create(&blocking, 0) == 0);
    capture(blocking, 1);
    EXPECT(self, hoop_all_reduce(scene.in, scene.out, BYTES, HOOP_UINT8, HOOP_SUM, scene.comm,
                                 blocking) == HOOP_OK);
    const int32_t *more = make(self, BYTES);
    EXPECT(self, seen(more)[0] == 0 && seen(more)[BYTES - 1] == 0);
    EXPECT(self, hoop_red_op_create_pre_mul_sum(&op, scene.in, HOOP_UINT8, HOOP_SCALAR_DEVICE,
                                                scene.comm) == HOOP_INVALID_USAGE);
    EXPECT(self, strstr(hoop_get_last_error(NULL), "captures a graph") != NULL);
    hoop_cu_graph_t graph = graph_end(blocking);
    EXPECT(self, graph != NULL);
    fill_in(&scene, 1, 0);
    scene_settle(&scene);
    replay(&scene, graph);
    scene_settle(&scene);
    EXPECT(self, at_host(scene.out)[BYTES - 1] == sum_of(&scene, 1));
    graph_drop(graph);
    scene_end(&scene);
}

/* Calls hold a stream while another stream captures, for which memory is pinned: the driver lets no
 * other thread do anything then before all streams are idle. */
static void capture_beside_held(const struct family_self *self)
{
    struct scene scene = scene_make(self);
    hoop_comm_t second = NULL;
    EXPECT(self, hoop_comm_split(scene.comm, 0, self->rank, &second, NULL) == HOOP_OK);
    for (int i = 0; i < 4; i++) {
        EXPECT(self, reduce(&scene, scene.in, scene.in, BYTES) == HOOP_OK);
    }
    scene_settle(&scene);
    setenv("FAKE_CUDA_PIN_WAITS", "1", 1);
    const struct scene other = {.self = self, .comm = second, .stream = scene.stream};
    EXPECT(self, hoop_cuda.stream_create(&scene.stream, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    fill(other.stream, scene.in, 1, BYTES, 200000);
    const uint64_t start = hoop_now_ns();
    EXPECT(self, hoop_all_reduce(scene.in, scene.in, BYTES, HOOP_UINT8, HOOP_SUM, scene.comm,
                                 other.stream) == HOOP_OK);
    scene.comm = second;
    graph_drop(capture_sum(&scene, scene.out, scene.out, BYTES));
    scene_settle(&other);
    EXPECT(self, hoop_now_ns() - start < 20 * HOOP_NS_PER_S);
    EXPECT(self, at_host(scene.in)[BYTES - 1] == self->n);
    unsetenv("FAKE_CUDA_PIN_WAITS");
    scene_end(&scene);
}

/* ---- In the parent ---- */

static void test_refused(void **state)
{
    (void)state;
    run(2, fail_to_capture);
    run(2, invalidate_within);
    run(2, fail_in_a_group);
    run(1, refuse_old_driver);
}

static void test_in_vain(void **state)
{
    (void)state;
    setenv("HOOP_DEBUG", "warn", 1);
    run(2, replay_too_late);
    run(2, replay_finalized);
    run(2, replay_half_ended);
    unsetenv("HOOP_DEBUG");
}

static void test_beside(void **state)
{
    (void)state;
    run(2, allocate_beside_capture);
    setenv("HOOP_CUDA_AHEAD", "1", 1);
    run(2, capture_beside_held);
    setenv("HOOP_CUDA_AHEAD", "0", 1);
}

static void test_at_once(void **state)
{
    (void)state;
    run(2, call_on_busy_stream);
    run(2, capture_in_threads);
    run(2, replay_at_once);
    run(2, break_while_copying);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_in_vain),
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_beside),
    };
    return cmocka_run_group_tests_name("device graph misuse", tests, NULL, NULL);
}

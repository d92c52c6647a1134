/*
 * Calls that are launched or captured in pieces, which overlap with the network
 * (lib/device/pieces.h), over the fake driver that HOOP_CUDA names and TCP, with pieces and chunks
 * of 4 KiB. Ranks are processes.
 *
 * In most tests rank 0's stream stops after its fourth piece, until it is told to go on: what the
 * others have by then was copied, sent and delivered before the rest. (Every call in pieces is
 * tested by test_device_launch.)
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
#include <sys/mman.h>
#include <unistd.h>

#define VALUE 0x35

static atomic_int *met; /* how many ranks have come so far; shared by them */
static bool by_graph;   /* the call is captured and replayed */

static struct scene make_by(const struct family_self *self, const char *algo, uint64_t timeout_ms)
{
    struct scene scene = scene_make(self);
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.algo = algo;
    config.op_timeout_ms = timeout_ms;
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    EXPECT(self, hoop_comm_init_env(&scene.comm, &config) == HOOP_OK);
    return scene;
}

/* ---- A stream that stops -------------------------------------------------------------------- */

/* Reads memory that a stream is writing. */
__attribute__((no_sanitize("thread"))) static bool await_first_byte(const struct scene *scene)
{
    const volatile unsigned char *first = at_host(scene->out);
    const uint64_t start = hoop_now_ns();
    while (*first != VALUE && hoop_now_ns() - start < 20 * HOOP_NS_PER_S) {
        usleep(1000);
    }
    return *first == VALUE;
}

static void call(const struct scene *scene)
{
    if (by_graph) {
        capture(scene->stream, 1);
    }
    EXPECT(scene->self,
           hoop_bcast(scene->out, BYTES, HOOP_UINT8, 0, scene->comm, scene->stream) == HOOP_OK);
    if (by_graph) {
        replay(scene, graph_end(scene->stream));
    }
}

/* Returns when every rank but the first has its beginning of what rank 0 sends. */
static void call_stopping(const struct scene *scene)
{
    const struct family_self *self = scene->self;
    fill(scene->stream, scene->out, self->rank == 0 ? VALUE : 0, BYTES, 0);
    scene_settle(scene);
    EXPECT(self, hoop_barrier(scene->comm, NULL) == HOOP_OK);
    if (self->rank == 0) {
        hold();
    }
    call(scene);
    EXPECT(self, self->rank == 0 || await_first_byte(scene));
    EXPECT(self, is_busy(scene->stream));
    (void)atomic_fetch_add(met, 1);
    for (const uint64_t start = hoop_now_ns();
         atomic_load(met) < self->n && hoop_now_ns() - start < 20 * HOOP_NS_PER_S;) {
        usleep(1000);
    }
    EXPECT(self, atomic_load(met) == self->n);
}

/* Rank 0's stream goes on when another one is given a copy. */
static void go_on(const struct scene *scene)
{
    static unsigned char page[4096] __attribute__((aligned(4096)));
    hoop_stream_t other = NULL;
    if (scene->self->rank == 0) {
        EXPECT(scene->self, hoop_cuda.host_register(page, sizeof(page), 0) == 0);
        EXPECT(scene->self, hoop_cuda.stream_create(&other, HOOP_CU_STREAM_NON_BLOCKING) == 0);
        (void)hoop_cuda.copy((uintptr_t)scene->in, (uintptr_t)page, 1, other);
    }
}

/* What was delivered is right, and the rest is marked, above all the end. */
static void expect_part(const struct scene *scene)
{
    const unsigned char *out = at_host(scene->out);
    size_t wrong = 0;
    for (size_t i = 0; i < BYTES; i++) {
        wrong += out[i] != VALUE && out[i] != 0xff;
    }
    EXPECT(scene->self, wrong == 0 && out[BYTES - 1] == 0xff);
}

static void stop_and_go_on(const struct family_self *self)
{
    const struct scene scene = make_by(self, "chain", 30000);
    call_stopping(&scene);
    go_on(&scene);
    scene_settle(&scene);
    EXPECT(self, are_all(scene.out, VALUE, BYTES));
    scene_end(&scene);
}

static void stop_and_abort(const struct family_self *self)
{
    const struct scene scene = make_by(self, "chain", 30000);
    call_stopping(&scene);
    if (self->rank == 0) {
        EXPECT(self, hoop_comm_abort(scene.comm) == HOOP_OK && is_busy(scene.stream));
        go_on(&scene);
    } else {
        EXPECT(self, scene_failure(&scene) == HOOP_ABORTED);
    }
    scene_settle(&scene);
    if (self->rank != 0) {
        expect_part(&scene);
    }
    scene_end(&scene);
}

/* Stops for longer than the timeout of calls. */
static void stop_too_long(const struct family_self *self)
{
    const struct scene scene = make_by(self, "chain", 500);
    call_stopping(&scene);
    EXPECT(self, scene_failure(&scene) == HOOP_TIMEOUT);
    EXPECT(self, self->rank != 0 || is_busy(scene.stream));
    go_on(&scene);
    scene_settle(&scene);
    if (self->rank != 0) {
        expect_part(&scene);
    }
    scene_end(&scene);
}

static void stop_and_break(const struct family_self *self)
{
    const struct scene scene = make_by(self, "chain", 30000);
    call_stopping(&scene);
    if (self->rank == 0) {
        break_device(1);
        go_on(&scene);
    }
    EXPECT(self, scene_failure(&scene) == HOOP_CUDA_ERROR);
    EXPECT(self, strstr(hoop_get_last_error(scene.comm), "rank 0: ") != NULL);
    if (self->rank != 0) {
        scene_settle(&scene);
        expect_part(&scene);
    }
    scene_end(&scene);
}

/* Rank 1, which passes on what rank 0 sends to rank 2, is killed. */
static void stop_and_lose(const struct family_self *self)
{
    const struct scene scene = make_by(self, "chain", 30000);
    call_stopping(&scene);
    rank_tell(self, HOOP_OK, 0);
    if (self->rank == 1) {
        (void)pause();
    }
    const hoop_result_t failed = scene_failure(&scene);
    EXPECT(self, strstr(hoop_get_last_error(scene.comm), "rank 1 ") != NULL);
    go_on(&scene);
    scene_settle(&scene);
    if (self->rank == 2) {
        expect_part(&scene);
    }
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    rank_tell(self, failed, 0);
}

/* ---- Others --------------------------------------------------------------------------------- */

/* Calls one after the other, in place and not, each kind several times, with buffers that
 * change. */
static void call_rounds(const struct scene *scene)
{
    const struct family_self *self = scene->self;
    unsigned char *outs[] = {scene->out, scene->in, plain(self, BYTES), scene->in};
    for (int round = 0; round < ROUNDS; round++) {
        const size_t bytes = BYTES - (size_t)(round % 4) * 10001;
        unsigned char *out = outs[(round + round / 4 * 2) % 4];
        fill_in(scene, round, round % 3 == self->rank ? 3000 : 0);
        fill(scene->stream, scene->out, 0xee, BYTES, 0);
        EXPECT(self, reduce(scene, scene->in, out, bytes) == HOOP_OK);
        copy(scene, scene->log + round, out + bytes - 1, 1);
    }
    EXPECT(self, is_busy(scene->stream));
    scene_settle(scene);
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT(self, at_host(scene->log)[round] == sum_of(scene, round));
    }
    EXPECT(self, are_all(scene->in, sum_of(scene, ROUNDS - 1), BYTES - 30003));
}

static void call_often(const struct family_self *self)
{
    static const char *const algos[] = {"ring", "pairwise", "chain"};
    for (size_t a = 0; a < 3; a++) {
        const struct scene scene = make_by(self, algos[a], 30000);
        call_rounds(&scene);
        EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    }
    rank_tell(self, HOOP_OK, 0);
}

/* Replays a graph's calls again and again without waiting; large ones and a small one, in
 * one room. */
static void replay_often(const struct family_self *self)
{
    const struct scene scene = make_by(self, "ring", 30000);
    capture(scene.stream, 1);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    EXPECT(self, reduce(&scene, scene.out, scene.out, 3) == HOOP_OK);
    EXPECT(self, reduce(&scene, scene.in, scene.in, BYTES) == HOOP_OK);
    hoop_cu_graph_t graph = graph_end(scene.stream);
    for (int round = 0; round < ROUNDS; round++) {
        fill_in(&scene, round, round % 3 == self->rank ? 3000 : 0);
        fill(scene.stream, scene.out, 0xee, BYTES, 0);
        replay(&scene, graph);
        copy(&scene, scene.log + round, scene.in + BYTES - 1, 1);
    }
    scene_settle(&scene);
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT(self, at_host(scene.log)[round] == sum_of(&scene, round));
    }
    const unsigned char last = sum_of(&scene, ROUNDS - 1);
    EXPECT(self, are_all(scene.out, self->n * last, 3) && are_all(scene.in, last, BYTES));
    EXPECT(self, are_all(scene.out + 3, last, BYTES - 3));
    graph_drop(graph);
    scene_end(&scene);
}

/* A group has more such calls than there are words, on two comms, with small ones in between. */
#define CALLS 17

static size_t call_bytes(int i)
{
    return i % 5 == 4 ? 3 : BYTES - (size_t)(i % 7) * 100;
}

static void call_group(const struct scene *scene, const hoop_comm_t comms[2], unsigned char *at)
{
    const struct family_self *self = scene->self;
    EXPECT(self, hoop_group_start() == HOOP_OK);
    for (int i = 0; i < CALLS; i++) {
        unsigned char *mine = at + (size_t)i * BYTES;
        EXPECT(self, hoop_all_reduce(mine, mine, call_bytes(i), HOOP_UINT8, HOOP_SUM,
                                     comms[i % 3 == 0], scene->stream) == HOOP_OK);
    }
    EXPECT(self, hoop_group_end() == HOOP_OK && is_busy(scene->stream));
}

static void fill_group(const struct scene *scene, int round, unsigned char *at)
{
    for (int i = 0; i < CALLS; i++) {
        fill(scene->stream, at + (size_t)i * BYTES, scene->self->rank + i + round, BYTES,
             i == 0 ? SLOW_US / 4 : 0);
    }
}

static void call_in_groups(const struct family_self *self)
{
    const struct scene scene = make_by(self, "ring", 30000);
    const hoop_comm_t comms[2] = {scene.comm, join(self)};
    unsigned char *at = plain(self, CALLS * BYTES);
    for (int round = 0; round < 2; round++) {
        fill_group(&scene, round, at);
        call_group(&scene, comms, at);
        scene_settle(&scene);
        bool right = true;
        for (int i = 0; i < CALLS; i++) {
            right &= are_all(at + (size_t)i * BYTES, sum_of(&scene, i + round), call_bytes(i));
        }
        EXPECT(self, right);
    }
    EXPECT(self, hoop_comm_destroy(comms[1]) == HOOP_OK);
    scene_end(&scene);
}

/* A call is launched if there is room for its copies. */
static void expect_launch(const struct scene *scene, unsigned char *at, size_t bytes, bool launched)
{
    fill(scene->stream, at, scene->self->rank, bytes, SLOW_US / 4);
    EXPECT(scene->self, reduce(scene, at, at, bytes) == HOOP_OK);
    EXPECT(scene->self, is_busy(scene->stream) == launched);
    scene_settle(scene);
    EXPECT(scene->self, are_all(at, sum_of(scene, 0), bytes));
}

/* Room for one and a half calls. */
static void need_room(const struct family_self *self)
{
    struct scene scene = make_by(self, "ring", 30000);
    unsigned char *at = plain(self, 2 * BYTES);
    size_t bytes = 0, before = 0, pinned = 0;
    use(&bytes, &before);
    expect_launch(&scene, at, BYTES, true);
    expect_launch(&scene, at, 2 * BYTES, false);
    expect_launch(&scene, at, BYTES, true); /* the room that was too small has been freed */
    EXPECT(self, hoop_cuda.stream_create(&scene.stream, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    expect_launch(&scene, at, BYTES, false);
    expect_launch(&scene, at, BYTES, true); /* and the one that nobody uses */
    use(&bytes, &pinned);
    /* a room, the memory to which waiting calls were copied, and the words of marks */
    EXPECT(self, pinned <= before + 3);
    scene_end(&scene);
}

/* Breaks rank 1's device at this copy or launch. */
static void break_at(const struct family_self *self, unsigned at)
{
    const struct scene scene = make_by(self, "ring", 30000);
    fill_in(&scene, 1, 0);
    scene_settle(&scene);
    EXPECT(self, hoop_barrier(scene.comm, NULL) == HOOP_OK);
    if (self->rank == 1) {
        break_device(at);
    }
    const hoop_result_t result = reduce(&scene, scene.in, scene.out, BYTES);
    EXPECT(self, result == HOOP_OK || result == HOOP_CUDA_ERROR);
    if (self->rank == 1) {
        EXPECT(self, scene_failure(&scene) == HOOP_CUDA_ERROR);
    } else {
        scene_settle(&scene);
    }
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    break_device(0);
}

static void break_within(const struct family_self *self)
{
    for (unsigned at = 1; at <= 20; at++) {
        break_at(self, at);
    }
    rank_tell(self, HOOP_OK, 0);
}

/* ---- In the parent -------------------------------------------------------------------------- */

static void run_again(int n, rank_fn *fn)
{
    atomic_store(met, 0);
    run(n, fn);
}

static void test_overlap(void **state)
{
    (void)state;
    for (int graph = 0; graph < 2; graph++) {
        by_graph = graph != 0;
        run_again(2, stop_and_go_on);
        run_again(3, stop_and_go_on);
    }
    by_graph = false;
}

static void test_fails(void **state)
{
    (void)state;
    for (int graph = 0; graph < 2; graph++) {
        by_graph = graph != 0;
        run_again(3, stop_and_abort);
        run_again(3, stop_too_long);
        atomic_store(met, 0);
        run_and_kill(stop_and_lose, false);
    }
    by_graph = false;
    run_again(3, stop_and_break);
    run_again(2, break_within);
}

static void test_calls(void **state)
{
    (void)state;
    run(2, call_often);
    run(3, call_often);
    run(2, replay_often);
    run(3, replay_often);
    run(2, call_in_groups);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    run(3, call_often);
    run(3, replay_often);
    run(3, call_in_groups);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

static void test_room(void **state)
{
    (void)state;
    setenv("HOOP_CUDA_ROOM_BYTES", "60000", 1);
    run(2, need_room);
    unsetenv("HOOP_CUDA_ROOM_BYTES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_fails),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_room),
    };
    met = mmap(NULL, sizeof(*met), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (met == MAP_FAILED) {
        return 1;
    }
    setenv("HOOP_TRANSPORT", "tcp", 1);
    setenv("HOOP_CHUNK_BYTES", "4096", 1);
    setenv("HOOP_CUDA_PIECE_BYTES", "4096", 1);
    setenv("HOOP_LANES", "1", 1);
    without_ipc = EVERY_RANK;
    return cmocka_run_group_tests_name("device pieces", tests, NULL, NULL);
}

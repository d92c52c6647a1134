/*
 * Calls that are launched on the device that all ranks share, or on several (lib/device/launch.h),
 * over the fake driver that HOOP_CUDA names: whether they run there, their order, what a program
 * may do meanwhile, which kinds of calls meet, and what becomes of a stream when something fails.
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

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Has anything gone through the host? What kernels are told is copied from there only. */
static bool by_host(void)
{
    return fetches() > 0;
}

/* Does this rank fold in a call with this root? */
static bool acts(const struct family_self *self, int root)
{
    return apart || self->rank == root;
}

/* ---- Order ---- */

/* The call returns before its input is there; what follows on the stream sees the result. Nothing
 * goes through the host, and on one device the root's kernel is the only one. */
static void return_at_once(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    const unsigned before = launches();
    for (int round = 0; round < 4; round++) {
        unsigned char *in = round % 2 == 0 ? scene.in : scene.out;
        fill(scene.stream, scene.out, 0x11, BYTES, 0);
        scene_stop(&scene);
        fill(scene.stream, in, round + self->rank, BYTES, 0);
        EXPECT(self, reduce(&scene, in, scene.out, BYTES) == HOOP_OK);
        scene_go();
        copy(&scene, scene.in, scene.out, BYTES);
        fill(scene.stream, scene.out, 0x22, BYTES, 0);
        scene_settle(&scene);
        EXPECT(self, are_all(scene.in, sum_of(&scene, round), BYTES));
    }
    EXPECT(self, !by_host() && launches() == before + 4 * acts(self, 0));
    scene_end(&scene);
}

/* Many calls without waiting in between; small ones go through the host. */
static void call_often(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t bytes = round % 3 == 0 ? 3 : BYTES - (size_t)round;
        unsigned char *out = round % 2 == 0 ? scene.out : scene.in;
        fill_in(&scene, round, round % 4 == self->rank ? 3000 : 0);
        fill(scene.stream, scene.out, 0xee, BYTES, 0);
        EXPECT(self, reduce(&scene, scene.in, out, bytes) == HOOP_OK);
        copy(&scene, scene.log + round, out + bytes - 1, 1);
    }
    scene_settle(&scene);
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT(self, at_host(scene.log)[round] == sum_of(&scene, round));
    }
    scene_end(&scene);
}

/* The root of a reduce folds, whichever rank it is, and no other rank's output is written. */
static void reduce_to_each(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    for (int round = 0; round < 4 * self->n; round++) {
        const int root = round % self->n;
        const unsigned before = launches();
        if (round >= self->n) {
            scene_stop(&scene);
        }
        fill_in(&scene, round, 0);
        fill(scene.stream, scene.out, 0x33, BYTES, 0);
        EXPECT(self, hoop_reduce(scene.in, scene.out, BYTES, HOOP_UINT8, HOOP_SUM, root, scene.comm,
                                 scene.stream) == HOOP_OK);
        scene_go();
        scene_settle(&scene);
        EXPECT(self, are_all(scene.out, self->rank == root ? sum_of(&scene, round) : 0x33, BYTES));
        EXPECT(self, launches() == before + acts(self, root));
    }
    scene_end(&scene);
}

#define COUNT ((size_t)5003)

/* Returns the first bytes of the output of a call, which is launched or waited for. */
static void call_as(const struct scene *scene, hoop_stream_t stream, hoop_datatype_t type,
                    hoop_red_op_t op, unsigned char *const buffers[2], unsigned char *ret)
{
    unsigned char *out = at_host(buffers[1]);
    memset(out, 0, COUNT);
    EXPECT(scene->self, hoop_all_reduce(buffers[0], buffers[1], COUNT, type, op, scene->comm,
                                        stream) == HOOP_OK);
    scene_settle(scene);
    memcpy(ret, out, COUNT);
}

/* All types and operations give the same as when they are waited for. */
static void call_all_types(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    unsigned char *in = plain(self, COUNT * 8 + 16), *out = plain(self, COUNT * 8);
    static unsigned char waited[COUNT], launched[COUNT];
    for (size_t i = 0; i < COUNT * 8 + 16; i++) {
        at_host(in)[i] = (unsigned char)((i * 31 + (size_t)self->rank * 7) & 0x3f);
    }
    for (int i = 0; i < HOOP_NUM_DATATYPES * HOOP_NUM_OPS; i++) {
        const hoop_datatype_t type = (hoop_datatype_t)(i / HOOP_NUM_OPS);
        const hoop_red_op_t op = (hoop_red_op_t)(i % HOOP_NUM_OPS);
        unsigned char *const buffers[2] = {in + (size_t)i % 3 * 8, out};
        call_as(&scene, NULL, type, op, buffers, waited);
        call_as(&scene, scene.stream, type, op, buffers, launched);
        EXPECT(self, memcmp(waited, launched, COUNT) == 0);
    }
    EXPECT(self, !by_host());
    scene_end(&scene);
}

enum { GROUP_MOST = 15 };

/* Call i is on comm i mod 2. In every other round those of a comm follow each other. */
static void call_group(const struct scene on[2], unsigned char *const x[GROUP_MOST], int round,
                       int calls)
{
    const struct family_self *self = on[0].self;
    const int half = (calls + 1) / 2;
    for (int i = 0; i < calls; i++) {
        fill(on[0].stream, x[i], round + i + self->rank, BYTES, i == 0 ? SLOW_US / 10 : 0);
    }
    delay(SLOW_US / 40);
    hoop_group_start();
    for (int k = 0; k < calls; k++) {
        const int i = round % 2 == 0 ? k : k < half ? 2 * k : 2 * (k - half) + 1;
        (void)reduce(&on[i % 2], x[i], x[i], BYTES);
    }
    EXPECT(self, hoop_group_end() == HOOP_OK);
    EXPECT(self, is_busy(on[0].stream) == (calls < GROUP_MOST));
    scene_settle(&on[0]);
    delay(0);
    for (int i = 0; i < calls; i++) {
        EXPECT(self, are_all(x[i], sum_of(&on[0], round + i), BYTES));
    }
}

/* Groups on two comms, with several calls on both; if there are too many they are waited for. */
static void call_in_groups(const struct family_self *self)
{
    struct scene scene = scene_known(self), on[2] = {scene, scene};
    unsigned char *x[GROUP_MOST];
    on[1].comm = join(self);
    scene_make_known(&on[1]);
    for (int i = 0; i < GROUP_MOST; i++) {
        x[i] = plain(self, BYTES);
    }
    for (int round = 0; round < 6; round++) {
        call_group(on, x, round, round % 3 == 0 ? GROUP_MOST : 5);
    }
    EXPECT(self, !by_host() && hoop_comm_destroy(on[1].comm) == HOOP_OK);
    scene_end(&scene);
}

/* Allocates all device memory that this rank can get. Returns a part of it. */
static hoop_cu_address_t use_up(const struct family_self *self)
{
    hoop_cu_address_t at = 0, large = 0;
    for (size_t bytes = (size_t)128 << 20; bytes >= 256; bytes /= 2) {
        while (hoop_cuda.alloc(&at, bytes) == 0) {
            large = bytes >= BYTES ? at : large;
        }
    }
    EXPECT(self, large != 0);
    return large;
}

/* The folding rank has no memory to tell its kernel what to fold: it waits for its results until
 * there is some. */
static void lack_memory(const struct family_self *self)
{
    const struct scene scene = scene_make_there(self);
    fill_in(&scene, 7, 0);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    const hoop_cu_address_t used = self->rank == 0 ? use_up(self) : 0;
    for (int round = 0; round < 4; round++) {
        EXPECT(self, round != 2 || self->rank != 0 || hoop_cuda.free(used) == 0);
        fill_in(&scene, round, SLOW_US / 4);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        EXPECT(self, self->rank != 0 || apart || is_busy(scene.stream) == (round >= 2));
        scene_settle(&scene);
        EXPECT(self, are_all(scene.out, sum_of(&scene, round), BYTES));
    }
    scene_end(&scene);
}

/* ---- What a program may do meanwhile ---- */

/* Everything that waits for all streams is called while they are held, because the other ranks come
 * later. */
static void do_meanwhile(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    hoop_cu_module_t module = NULL;
    static unsigned char page[16384] __attribute__((aligned(4096)));
    setenv("FAKE_CUDA_PIN_WAITS", "1", 1);
    for (int round = 0; round < 6; round++) {
        unsigned char *mine = plain(self, BYTES);
        usleep(self->rank == round % self->n ? 50000 : 0);
        fill_in(&scene, round, 0);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        EXPECT(self, hoop_cuda.free((uintptr_t)mine) == 0);
        EXPECT(self, are_all(scene.out, sum_of(&scene, round), BYTES)); /* all were waited for */
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        EXPECT(self, hoop_cuda.module_load(&module, page) == 0);
        EXPECT(self, hoop_cuda.host_register(page, sizeof(page), 0) == 0);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        EXPECT(self, hoop_cuda.host_unregister(page) == 0);
    }
    EXPECT(self, !by_host());
    scene_end(&scene);
}

/* ---- Two threads ---- */

struct thread_call {
    struct scene scene;
    unsigned char *x;
    hoop_cu_context_t context;
};

static struct thread_call thread_call(const struct scene *scene)
{
    struct thread_call call = {*scene, plain(scene->self, BYTES), NULL};
    EXPECT(scene->self, hoop_cuda_context(&call.context) == HOOP_OK);
    return call;
}

static void *call_all_alike(void *arg)
{
    const struct thread_call *call = arg;
    const struct scene *scene = &call->scene;
    EXPECT(scene->self, hoop_cuda.context_push(call->context) == 0);
    for (int round = 0; round < 40; round++) {
        fill(scene->stream, call->x, 1, BYTES, 0);
        EXPECT(scene->self, reduce(scene, call->x, call->x, BYTES) == HOOP_OK);
    }
    scene_settle(scene);
    EXPECT(scene->self, are_all(call->x, scene->self->n, BYTES));
    return NULL;
}

static int (*wait_of)(hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags);

/* Gives another thread time between a call's place in line and its hold. */
static int wait_late(hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags)
{
    usleep(value % 3 * 500);
    return wait_of(stream, at, value, flags);
}

/* Both threads make the same calls, on streams of their own, so it does not matter whose calls
 * meet. With one queue a kernel must not be behind the hold of a later call. */
static void call_from_two_threads(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    struct thread_call calls[2] = {thread_call(&scene), thread_call(&scene)};
    pthread_t thread;
    wait_of = hoop_cuda.stream_wait_value;
    hoop_cuda.stream_wait_value = wait_late;
    EXPECT(self, hoop_cuda.stream_create(&calls[1].scene.stream, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    EXPECT(self, pthread_create(&thread, NULL, call_all_alike, &calls[1]) == 0);
    (void)call_all_alike(&calls[0]);
    EXPECT(self, pthread_join(thread, NULL) == 0);
    scene_end(&scene);
}

/* One of the two threads waits for its results: its calls are before or behind the other's
 * in line. */
static void wait_beside_launched(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    struct thread_call calls[2] = {thread_call(&scene), thread_call(&scene)};
    pthread_t thread;
    calls[1].scene.stream = NULL;
    EXPECT(self, pthread_create(&thread, NULL, call_all_alike, &calls[1]) == 0);
    (void)call_all_alike(&calls[0]);
    EXPECT(self, pthread_join(thread, NULL) == 0);
    scene_end(&scene);
}

/* ---- Who meets ---- */

/* One rank waits for its results, the others launch: results are right. */
static void meet_who_waits(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        const bool waits = round / 4 % self->n == self->rank;
        fill_in(&scene, round, 1000);
        scene_settle(&scene);
        EXPECT(self, hoop_all_reduce(scene.in, scene.out, BYTES, HOOP_UINT8, HOOP_SUM, scene.comm,
                                     waits ? NULL : scene.stream) == HOOP_OK);
        scene_settle(&scene);
        EXPECT(self, are_all(scene.out, sum_of(&scene, round), BYTES));
    }
    EXPECT(self, !by_host());
    scene_end(&scene);
}

/* Checks the last bytes of calls up to this round. */
static void expect_log(const struct scene *scene, int round)
{
    scene_settle(scene);
    for (int i = 0; i < ROUNDS; i++) {
        EXPECT(scene->self, at_host(scene->log)[i] == sum_of(scene, round - ROUNDS + 1 + i));
    }
}

/* Each rank has new memory at another time, which the others have to open; then all calls are
 * launched again. */
static void bring_new_memory(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    unsigned char *x = scene.out;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        if (round < 2 * ROUNDS && round % self->n == self->rank) {
            x = plain(self, BYTES + (size_t)round);
        }
        fill(scene.stream, x, round + self->rank, BYTES, 1000);
        EXPECT(self, reduce(&scene, x, x, BYTES) == HOOP_OK);
        copy(&scene, scene.log + round % ROUNDS, x + BYTES - 1, 1);
        if (round % ROUNDS == ROUNDS - 1) {
            expect_log(&scene, round);
        }
    }
    scene_stop(&scene);
    fill(scene.stream, x, self->rank, BYTES, 0);
    EXPECT(self, reduce(&scene, x, x, BYTES) == HOOP_OK);
    scene_go();
    scene_settle(&scene);
    EXPECT(self, !by_host());
    scene_end(&scene);
}

/* Once in a while the memory of one rank lies elsewhere: all goes through the host, and the next
 * calls wait; later ones do not. */
static void meet_from_elsewhere(const struct family_self *self, bool from_pool)
{
    static unsigned char out[BYTES];
    const struct scene scene = scene_known(self);
    unsigned char *elsewhere = from_pool ? plain(self, BYTES) : NULL;
    pool(elsewhere);
    for (int round = 0; round < 14; round++) {
        const bool goes = round == 1 && self->rank == 1;
        if (round == 0 || round >= 10) {
            scene_stop(&scene);
        }
        fill_in(&scene, round, SLOW_US / 10);
        if (goes && elsewhere != NULL) {
            fill(scene.stream, elsewhere, round + self->rank, BYTES, 0);
        } else if (goes) {
            memset(out, round + self->rank, BYTES);
        }
        EXPECT(self, reduce(&scene,
                            !goes               ? scene.in
                            : elsewhere != NULL ? elsewhere
                                                : out,
                            scene.out, BYTES) == HOOP_OK);
        scene_go();
        copy(&scene, scene.log, scene.out, 1);
        scene_settle(&scene);
        EXPECT(self, are_all(scene.out, sum_of(&scene, round), BYTES));
        EXPECT(self, self->rank == 1 || by_host() == (round > 0));
    }
    scene_end(&scene);
}

static void meet_from_host(const struct family_self *self)
{
    meet_from_elsewhere(self, false);
}

static void meet_from_pool(const struct family_self *self)
{
    meet_from_elsewhere(self, true);
}

/* One rank's memory can't be opened, when others are launched. */
static void refuse_new_memory(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    setenv("FAKE_CUDA_IPC_REFUSED", "1", 1);
    unsigned char *x = self->rank == 2 ? plain(self, BYTES) : scene.out;
    for (int round = 0; round < 4; round++) {
        fill(scene.stream, x, round + self->rank, BYTES, SLOW_US / 10);
        EXPECT(self, reduce(&scene, x, x, BYTES) == HOOP_OK);
        scene_settle(&scene);
        EXPECT(self, are_all(x, sum_of(&scene, round), BYTES));
    }
    EXPECT(self, by_host());
    scene_end(&scene);
}

/* One rank's calls are in a graph, so they go through the host, and with them those of all
 * others. */
static void meet_a_graph(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    const bool captures = self->rank == 1;
    hoop_cu_graph_t graph = captures ? capture_sum(&scene, scene.in, scene.out, BYTES) : NULL;
    for (int round = 0; round < 4; round++) {
        fill_in(&scene, round, SLOW_US / 20);
        if (captures) {
            replay(&scene, graph);
        }
        EXPECT(self, captures || reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        scene_settle(&scene);
        EXPECT(self, are_all(scene.out, sum_of(&scene, round), BYTES));
    }
    if (captures) {
        graph_drop(graph);
    }
    scene_end(&scene);
}

/* ---- What goes wrong ---- */

/* The other ranks never call: an abort lets this one go, even before its stream comes. */
static void abort_waiting(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    if (self->rank != 1) {
        if (self->rank != 0) {
            scene_stop(&scene);
        }
        fill_in(&scene, 1, 0);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    }
    usleep(SLOW_US / 4);
    if (self->rank == 0) {
        EXPECT(self, is_busy(scene.stream));
        EXPECT(self, hoop_comm_abort(scene.comm) == HOOP_OK);
    } else {
        EXPECT(self, scene_failure(&scene) == HOOP_ABORTED);
    }
    if (self->rank == 2) {
        EXPECT(self, is_busy(scene.stream)); /* the abort does not wait for it */
    }
    scene_go();
    scene_settle(&scene);
    scene_end(&scene);
}

/* An abort while a kernel runs waits for it. */
static void abort_working(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    delay(SLOW_US);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    usleep(SLOW_US / 2);
    if (self->rank == 0) {
        EXPECT(self, hoop_comm_abort(scene.comm) == HOOP_OK);
    }
    scene_settle(&scene);
    memset(at_host(scene.in), 0x5a, BYTES); /* no kernel uses it any more */
    scene_end(&scene);
}

/* Rank 1 dies while the others' streams wait for it. */
static void wait_for_the_dead(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    rank_tell(self, HOOP_OK, 0);
    if (self->rank == 1) {
        (void)pause();
    }
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    scene_settle(&scene);
    const hoop_result_t failed = scene_failure(&scene);
    rank_tell(self, failed, 0);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
}

/* The device fails before the stream comes, or in the kernel: all ranks are told. */
static void break_waiting(const struct family_self *self)
{
    const struct scene scene = scene_known(self);
    fill_in(&scene, 1, SLOW_US);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    if (self->rank == 0) {
        break_device(1);
        (void)hoop_cuda.copy((uintptr_t)scene.log, (uintptr_t)scene.in, 1, NULL);
    }
    const hoop_result_t failed = scene_failure(&scene);
    EXPECT(self, failed == (self->rank == 0 ? HOOP_CUDA_ERROR : HOOP_REMOTE_ERROR) ||
                     failed == HOOP_CUDA_ERROR);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

/* ---- In the parent ---- */

static void test_order(void **state)
{
    (void)state;
    run(2, return_at_once);
    run(3, call_often);
    run(3, reduce_to_each);
    run(2, call_all_types);
    run(2, lack_memory);
}

/* One queue for all streams of a process: a held stream keeps the others back. */
static void test_queues(void **state)
{
    (void)state;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    run(2, return_at_once);
    run(3, call_often);
    run(3, reduce_to_each);
    run(3, do_meanwhile);
    run(2, call_from_two_threads);
    run(2, wait_beside_launched);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

static void test_groups(void **state)
{
    (void)state;
    run(3, call_in_groups);
}

static void test_meanwhile(void **state)
{
    (void)state;
    run(2, do_meanwhile);
    run(3, do_meanwhile);
    run(2, call_from_two_threads);
    run(2, wait_beside_launched);
}

static void test_meet(void **state)
{
    (void)state;
    run(3, meet_who_waits);
    run(3, bring_new_memory);
    run(3, meet_from_host);
    run(3, meet_from_pool);
    run(3, refuse_new_memory);
    run(3, meet_a_graph);
}

static void test_wrong(void **state)
{
    (void)state;
    run(3, abort_waiting);
    run(2, abort_working);
    run(2, break_waiting);
    run_and_kill(wait_for_the_dead, false);
}

/* With the argument `apart` each rank has a device of its own. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),  cmocka_unit_test(test_queues),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_meanwhile),
        cmocka_unit_test(test_meet),   cmocka_unit_test(test_wrong),
    };
    apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    return cmocka_run_group_tests_name("device launched", tests, NULL, NULL);
}

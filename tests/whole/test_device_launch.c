/*
 * Calls that return when they are launched (lib/device/launch.h), over the fake driver that
 * HOOP_CUDA names: their order, what a program may do meanwhile, and what becomes of a stream when
 * something fails. Ranks are processes. Memory of cudaMalloc() is not opened, so calls on it go
 * through the host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "memory/cuda.h"
#include "whole/graph_scene.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Order ---- */

/* The call returns before its input is there; what follows on the stream sees the result. */
static void return_at_once(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    for (int round = 0; round < 3; round++) {
        fill(scene.stream, scene.out, 0x11, BYTES, 0);
        fill_in(&scene, round, SLOW_US);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        EXPECT(self, is_busy(scene.stream));
        copy(&scene, scene.in, scene.out, BYTES);
        fill(scene.stream, scene.out, 0x22, BYTES, 0);
        scene_settle(&scene);
        EXPECT(self, are_all(scene.in, sum_of(&scene, round), BYTES));
    }
    scene_end(&scene);
}

/* A call on memory that all ranks can access runs on the device, and is waited for. */
static void stay_on_device(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    unsigned char *out = (unsigned char *)make(self, BYTES);
    const unsigned before = launches();
    fill_in(&scene, 1, SLOW_US / 4);
    EXPECT(self, reduce(&scene, scene.in, out, BYTES) == HOOP_OK);
    EXPECT(self,
           are_all(out, sum_of(&scene, 1), BYTES) && (launches() > before) == (self->rank == 0));
    scene_end(&scene);
}

/* But not without kernels. */
static void leave_device(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    unsigned char *out = (unsigned char *)make(self, BYTES);
    fill_in(&scene, 1, SLOW_US / 4);
    EXPECT(self, reduce(&scene, scene.in, out, BYTES) == HOOP_OK && is_busy(scene.stream));
    scene_settle(&scene);
    EXPECT(self, are_all(out, sum_of(&scene, 1), BYTES));
    scene_end(&scene);
}

/* Calls that are told to wait do. */
static void wait_for_result(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    fill_in(&scene, 1, SLOW_US / 4);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    EXPECT(self, are_all(scene.out, sum_of(&scene, 1), BYTES) && !is_busy(scene.stream));
    scene_end(&scene);
}

/* Only a call that waits can find out whether memory of cudaMalloc() can be opened; here it
 * can't. */
static void find_out(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    fill_in(&scene, 1, SLOW_US / 4);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK && !is_busy(scene.stream));
    fill_in(&scene, 2, SLOW_US);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK && is_busy(scene.stream));
    scene_settle(&scene);
    EXPECT(self, are_all(scene.out, sum_of(&scene, 2), BYTES));
    scene_end(&scene);
}

/* Many calls without waiting in between. */
static void call_often(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t bytes = round % 3 == 0 ? 3 : BYTES;
        unsigned char *out = round % 2 == 0 ? scene.out : scene.in; /* the next input */
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

/* Two comms, three streams, each call behind what is on its own stream. */
static void call_crosswise(const struct family_self *self)
{
    struct scene scene = scene_make(self), other = scene;
    unsigned char *out[3];
    hoop_stream_t streams[3];
    other.comm = join(self);
    for (int s = 0; s < 3; s++) {
        out[s] = plain(self, 2 * BYTES);
        EXPECT(self, hoop_cuda.stream_create(&streams[s], HOOP_CU_STREAM_NON_BLOCKING) == 0);
    }
    for (int round = 0; round < 30; round++) {
        const int s = round % 3;
        scene.stream = other.stream = streams[s];
        const struct scene *on = round % 2 == 0 ? &scene : &other;
        fill(streams[s], out[s], round + self->rank, BYTES, round % 5 == self->rank ? 2000 : 0);
        EXPECT(self, reduce(on, out[s], out[s] + BYTES, BYTES) == HOOP_OK);
    }
    for (int s = 0; s < 3; s++) {
        EXPECT(self, hoop_cuda.stream_synchronize(streams[s]) == 0);
        EXPECT(self, are_all(out[s] + BYTES, sum_of(&scene, 27 + s), BYTES));
    }
    EXPECT(self, hoop_comm_destroy(other.comm) == HOOP_OK);
    scene_end(&scene);
}

/* On the default stream by its names; a call without a stream waits. */
static void call_on_default(const struct family_self *self)
{
    static const hoop_stream_t names[] = {NULL, FAKE_STREAM_LEGACY, FAKE_STREAM_OF_THREAD};
    struct scene scene = scene_make(self);
    for (size_t i = 0; i < 3; i++) {
        scene.stream = names[i];
        fill_in(&scene, (int)i, SLOW_US / 4);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        EXPECT(self, is_busy(names[i]) == (names[i] != NULL));
        scene_settle(&scene);
        EXPECT(self, are_all(scene.out, sum_of(&scene, (int)i), BYTES));
    }
    scene_end(&scene);
}

/* A call from the host waits for what is launched, and so does one that is waited for. */
static void call_behind(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    static unsigned char host[BYTES];
    fill_in(&scene, 1, SLOW_US / 4);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    EXPECT(self, hoop_bcast(scene.out, BYTES, HOOP_UINT8, 0, scene.comm, scene.stream) == HOOP_OK);
    EXPECT(self, hoop_all_reduce(scene.out, host, BYTES, HOOP_UINT8, HOOP_SUM, scene.comm,
                                 scene.stream) == HOOP_OK);
    EXPECT(self, host[BYTES - 1] == (unsigned char)(self->n * sum_of(&scene, 1)));
    fill_in(&scene, 2, SLOW_US / 4);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    EXPECT(self, hoop_barrier(scene.comm, NULL) == HOOP_OK);
    scene_settle(&scene);
    EXPECT(self, are_all(scene.out, sum_of(&scene, 2), BYTES));
    scene_end(&scene);
}

/* ---- Two threads ---- */

struct threads_call {
    struct scene scene;
    unsigned char *out;
    _Atomic bool over;
};

static void *sum_on_device(void *arg)
{
    struct threads_call *call = arg;
    const struct scene *scene = &call->scene;
    hoop_cu_context_t context = NULL;
    EXPECT(scene->self, hoop_cuda_context(&context) == HOOP_OK);
    EXPECT(scene->self, hoop_cuda.context_push(context) == 0);
    fill_in(scene, 1, 0);
    EXPECT(scene->self, reduce(scene, scene->in, call->out, BYTES) == HOOP_OK);
    atomic_store(&call->over, true);
    return NULL;
}

/* One thread waits for a sum on the device, and another launches a small call behind it.
 * What rank 0 puts on the device when the last rank has come must not be stuck behind the
 * hold of that call. */
static void call_from_two_threads(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    struct threads_call call = {.scene = scene, .out = (unsigned char *)make(self, BYTES)};
    pthread_t thread;
    EXPECT(self, hoop_cuda.stream_create(&call.scene.stream, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    for (int round = 0; round < 3; round++) {
        (void)sum_on_device(&call);
        fill(scene.stream, scene.out, self->rank, 3, 0);
        EXPECT(self, reduce(&scene, scene.out, scene.out, 3) == HOOP_OK);
        scene_settle(&scene);
        atomic_store(&call.over, false);
        usleep(self->rank == self->n - 1 ? SLOW_US : 0); /* by then the others have launched */
        EXPECT(self, pthread_create(&thread, NULL, sum_on_device, &call) == 0);
        while (atomic_load(&scene.comm->waiting) == 0 && !atomic_load(&call.over)) {
            usleep(100);
        }
        fill(scene.stream, scene.out, self->rank + 1, 3, 0);
        EXPECT(self, reduce(&scene, scene.out, scene.out, 3) == HOOP_OK);
        scene_settle(&scene);
        EXPECT(self, pthread_join(thread, NULL) == 0);
        EXPECT(self, are_all(scene.out, sum_of(&scene, 1), 3));
        EXPECT(self, are_all(call.out, sum_of(&scene, 1), BYTES));
    }
    scene_end(&scene);
}

/* ---- Every call ---- */

#define EACH ((size_t)3001)

struct calls {
    const struct scene *scene;
    hoop_red_op_t twice;
    unsigned char *in, *out; /* n blocks; where a block is given, rank 0 has n of them: 1, 2, ... */
    size_t counts[4], displs[4];
};

static void call_all_reduce(const struct calls *c)
{
    hoop_all_reduce(c->in, c->out, EACH, HOOP_UINT8, HOOP_MAX, c->scene->comm, c->scene->stream);
}
static void call_factor(const struct calls *c)
{
    hoop_all_reduce(c->in, c->out, EACH, HOOP_UINT8, c->twice, c->scene->comm, c->scene->stream);
}
static void call_reduce(const struct calls *c)
{
    hoop_reduce(c->in, c->out, EACH, HOOP_UINT8, HOOP_SUM, 1, c->scene->comm, c->scene->stream);
}
static void call_broadcast(const struct calls *c)
{
    hoop_broadcast(c->in, c->out, EACH, HOOP_UINT8, 1, c->scene->comm, c->scene->stream);
}
static void call_all_gather(const struct calls *c)
{
    hoop_all_gather(c->in, c->out, EACH, HOOP_UINT8, c->scene->comm, c->scene->stream);
}
static void call_reduce_scatter(const struct calls *c)
{
    hoop_reduce_scatter(c->in, c->out, EACH, HOOP_UINT8, HOOP_SUM, c->scene->comm,
                        c->scene->stream);
}
static void call_alltoall(const struct calls *c)
{
    hoop_alltoall(c->in, c->out, EACH, HOOP_UINT8, c->scene->comm, c->scene->stream);
}
static void call_gather(const struct calls *c)
{
    hoop_gather(c->in, c->out, EACH, HOOP_UINT8, 1, c->scene->comm, c->scene->stream);
}
static void call_scatter(const struct calls *c)
{
    hoop_scatter(c->in, c->out, EACH, HOOP_UINT8, 1, c->scene->comm, c->scene->stream);
}
static void call_alltoallv(const struct calls *c)
{
    hoop_alltoallv(c->in, c->counts, c->displs, c->out, c->counts, c->displs, HOOP_UINT8,
                   c->scene->comm, c->scene->stream);
}
/* In a group with a barrier, which moves no data. */
static void call_around(const struct calls *c)
{
    const int n = c->scene->self->n, rank = c->scene->self->rank;
    hoop_group_start();
    hoop_send(c->in, EACH, HOOP_UINT8, (rank + 1) % n, c->scene->comm, c->scene->stream);
    hoop_recv(c->out, EACH, HOOP_UINT8, (rank + n - 1) % n, c->scene->comm, c->scene->stream);
    hoop_barrier(c->scene->comm, c->scene->stream);
    hoop_group_end();
}

/* Block b of rank r has r + 1 in all bytes. ret: the first bytes of the output's blocks; 0: any. */
static void expect_blocks(int call, int rank, int n, int ret[4])
{
    const int sum = n * (n + 1) / 2;
    for (int b = 0; b < 4; b++) {
        const bool all = call == 4 || call == 6 || call == 9 || (call == 7 && rank == 1);
        ret[b] = all && b < n ? b + 1 : 0;
    }
    ret[0] = call == 0                ? n
             : call == 1              ? 2 * sum
             : call == 2              ? (rank == 1 ? sum : 0)
             : call == 3 || call == 8 ? 2
             : call == 5              ? sum
             : call == 10             ? (rank + n - 1) % n + 1
                                      : ret[0];
}

/* A rank that receives a broadcast or scatter, or gathers, has no memory that others touch. So it
 * can't know whether the operation runs on the devices, and waits. Not over links. */
static bool is_unsure(int call, int rank)
{
    return getenv("HOOP_TRANSPORT") == NULL &&
           (call == 3 || call == 8 ? rank != 1 : call == 7 && rank == 1);
}

static void call_each(const struct family_self *self)
{
    void (*const fns[])(const struct calls *) = {
        call_all_reduce, call_factor,         call_reduce,   call_broadcast,
        call_all_gather, call_reduce_scatter, call_alltoall, call_gather,
        call_scatter,    call_alltoallv,      call_around};
    const struct scene scene = scene_make(self);
    struct calls calls = {.scene = &scene,
                          .in = plain(self, 4 * EACH),
                          .out = plain(self, 4 * EACH),
                          .counts = {EACH, EACH, EACH, EACH},
                          .displs = {0, EACH, 2 * EACH, 3 * EACH}};
    unsigned char two = 2;
    EXPECT(self, hoop_red_op_create_pre_mul_sum(&calls.twice, &two, HOOP_UINT8,
                                                HOOP_SCALAR_HOST_IMMEDIATE, scene.comm) == HOOP_OK);
    unsigned early = 0;
    for (int i = 0; i < 11; i++) {
        int expected[4];
        fill(scene.stream, calls.out, 0, 4 * EACH, 0);
        const uint64_t start = hoop_now_ns();
        fill(scene.stream, calls.in, self->rank + 1, 4 * EACH, 30000);
        fns[i](&calls);
        early += !is_unsure(i, self->rank) && is_busy_since(&scene, start, 30000);
        scene_settle(&scene);
        expect_blocks(i, self->rank, self->n, expected);
        int wrong = 0;
        for (int b = 0; b < 4; b++) {
            wrong += expected[b] != 0 && !are_all(calls.out + (size_t)b * EACH, expected[b], EACH);
        }
        EXPECT(self, wrong == 0);
    }
    EXPECT(self, early > 0);
    scene_end(&scene);
}

/* ---- Who meets ---- */

static void meet_from_host(const struct scene *scene)
{
    static unsigned char in[BYTES], out[BYTES];
    for (int round = 0; round < ROUNDS; round++) {
        memset(in, round + scene->self->rank, BYTES);
        EXPECT(scene->self,
               hoop_all_reduce(in, out, BYTES, HOOP_UINT8, HOOP_SUM, scene->comm, NULL) == HOOP_OK);
        EXPECT(scene->self, out[BYTES - 1] == sum_of(scene, round));
    }
}

static void meet_from_device(const struct scene *scene)
{
    for (int round = 0; round < ROUNDS; round++) {
        fill_in(scene, round, 1000);
        EXPECT(scene->self, reduce(scene, scene->in, scene->out, BYTES) == HOOP_OK);
        copy(scene, scene->log + round, scene->out + BYTES - 1, 1);
    }
    scene_settle(scene);
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT(scene->self, at_host(scene->log)[round] == sum_of(scene, round));
    }
}

/* One rank waits for its results, one launches everything from hoop's own stream, one has no device
 * memory, and one has the defaults. */
static void meet(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    if (self->rank == 2) {
        meet_from_host(&scene);
    } else {
        meet_from_device(&scene);
    }
    scene_end(&scene);
}

/* ---- What a program may do meanwhile ---- */

/* Everything that waits for all streams is called while they are held, because the other ranks come
 * later. */
static void do_meanwhile(const struct family_self *self)
{
    struct scene scene = scene_make(self);
    const hoop_stream_t first = scene.stream;
    hoop_cu_module_t module = NULL;
    static unsigned char page[16384] __attribute__((aligned(4096)));
    setenv("FAKE_CUDA_PIN_WAITS", "1", 1);
    for (int round = 0; round < 3; round++) {
        unsigned char *mine = plain(self, BYTES), *large = plain(self, 8 * BYTES << round);
        usleep(self->rank == 1 ? 50000 : 0);
        fill_in(&scene, round, 0);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        EXPECT(self, hoop_cuda.free((uintptr_t)mine) == 0);
        EXPECT(self, are_all(scene.out, sum_of(&scene, round), BYTES)); /* all were waited for */
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        EXPECT(self, hoop_cuda.module_load(&module, page) == 0);
        EXPECT(self, hoop_cuda.host_register(page, sizeof(page), 0) == 0);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
        EXPECT(self, hoop_cuda.host_unregister(page) == 0);
        /* another stream, whose room is pinned while the first is held, and grows */
        EXPECT(self, hoop_cuda.stream_create(&scene.stream, HOOP_CU_STREAM_NON_BLOCKING) == 0);
        fill(scene.stream, large, self->rank, 8 * BYTES << round, 0);
        EXPECT(self, reduce(&scene, large, large, 8 * BYTES << round) == HOOP_OK);
        EXPECT(self, hoop_mem_free(make(self, 100)) == HOOP_OK);
        scene_settle(&scene);
        EXPECT(self, are_all(large, sum_of(&scene, 0), 8 * BYTES << round));
        scene.stream = first;
        scene_settle(&scene);
        EXPECT(self, hoop_cuda.free((uintptr_t)large) == 0);
    }
    scene_end(&scene);
}

/* Buffers are freed in the order of their stream: CUDA does not know them any more when the call
 * runs. */
static void forget_meanwhile(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    fill_in(&scene, 1, SLOW_US / 4);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    forget(1);
    scene_settle(&scene);
    forget(0);
    EXPECT(self, are_all(scene.out, sum_of(&scene, 1), BYTES));
    scene_end(&scene);
}

/* A stream has one pinned room, or two while it grows, and they are freed. */
static void give_back(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    unsigned char *large = plain(self, 16 * BYTES);
    size_t bytes = 0, before = 0, pinned = 0;
    use(&bytes, &before);
    for (size_t part = 1; part <= 16; part++) {
        EXPECT(self, reduce(&scene, large, large, part * BYTES) == HOOP_OK);
        scene_settle(&scene);
        use(&bytes, &pinned);
        EXPECT(self, pinned <= before + 2);
    }
    EXPECT(self, hoop_barrier(scene.comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    use(&bytes, &pinned);
    EXPECT(self, pinned == before);
    rank_tell(self, HOOP_OK, 0);
}

static int (*register_of)(void *ptr, size_t bytes, unsigned flags);
static pthread_barrier_t registering;

static int register_together(void *ptr, size_t bytes, unsigned flags)
{
    (void)pthread_barrier_wait(&registering);
    return register_of(ptr, bytes, flags);
}

static void *reduce_once(void *arg)
{
    const struct scene *scene = arg;
    EXPECT(scene->self, reduce(scene, scene->out, scene->out, BYTES) == HOOP_OK);
    return NULL;
}

/* The first calls on a stream are made by two threads at once, which both pin memory for it: that
 * is freed, too. */
static void pin_twice(const struct family_self *self)
{
    struct scene scene = scene_make(self), other = scene;
    size_t bytes = 0, before = 0, pinned = 0;
    pthread_t thread;
    other.out = plain(self, BYTES);
    use(&bytes, &before);
    EXPECT(self, pthread_barrier_init(&registering, NULL, 2) == 0);
    register_of = hoop_cuda.host_register;
    hoop_cuda.host_register = register_together;
    EXPECT(self, pthread_create(&thread, NULL, reduce_once, &other) == 0);
    (void)reduce_once(&scene);
    EXPECT(self, pthread_join(thread, NULL) == 0);
    hoop_cuda.host_register = register_of;
    (void)reduce_once(&scene);
    scene_settle(&scene);
    use(&bytes, &pinned);
    EXPECT(self, pinned == before + 2);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    use(&bytes, &pinned);
    EXPECT(self, pinned == before);
    rank_tell(self, HOOP_OK, 0);
}

/* ---- In the parent ---- */

static void test_order(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        run(n, n == 1 ? stay_on_device : return_at_once);
    }
    run(3, stay_on_device);
    run(3, call_often);
    run(3, call_crosswise);
    run(2, call_on_default);
    run(3, call_behind);
}

static void test_each(void **state)
{
    (void)state;
    run(2, call_each);
    run(3, call_each);
    run(4, call_each);
}

static void test_others(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_NO_KERNELS", "1", 1);
    run(2, leave_device);
    unsetenv("FAKE_CUDA_NO_KERNELS");
    setenv("HOOP_CUDA_AHEAD", "0", 1);
    run(2, wait_for_result);
    setenv("HOOP_CUDA_AHEAD", "auto", 1);
    setenv("FAKE_CUDA_IPC_REFUSED", "1", 1);
    without_ipc = -1;
    run(2, find_out);
    without_ipc = EVERY_RANK;
    unsetenv("FAKE_CUDA_IPC_REFUSED");
}

/* Over links, as between machines; copies as a whole, and in pieces during the operation. */
static void test_links(void **state)
{
    static const char *const pieces[] = {"0", "1000"};
    (void)state;
    setenv("HOOP_TRANSPORT", "tcp", 1);
    for (size_t i = 0; i < 2; i++) {
        setenv("HOOP_CUDA_PIECE_BYTES", pieces[i], 1);
        run(2, return_at_once);
        run(3, call_each);
        run(3, call_crosswise);
        run(2, do_meanwhile);
    }
    unsetenv("HOOP_CUDA_PIECE_BYTES");
    unsetenv("HOOP_TRANSPORT");
}

static void test_queues(void **state)
{
    static const char *const queues[] = {"1", "4"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues[i], 1);
        run(3, return_at_once);
        run(3, call_often);
        run(3, call_crosswise);
        run(2, do_meanwhile);
        run(3, call_from_two_threads);
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    }
}

static void test_meet(void **state)
{
    static const char *const all[] = {"0", "1", "auto", "auto"};
    (void)state;
    memcpy(ahead_of, all, sizeof(all));
    run(4, meet);
    memset(ahead_of, 0, sizeof(ahead_of));
}

static void test_meanwhile(void **state)
{
    (void)state;
    run(2, do_meanwhile);
    run(3, forget_meanwhile);
    run(2, give_back);
    run(2, pin_twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),     cmocka_unit_test(test_each),
        cmocka_unit_test(test_others),    cmocka_unit_test(test_links),
        cmocka_unit_test(test_queues),    cmocka_unit_test(test_meet),
        cmocka_unit_test(test_meanwhile),
    };
    without_ipc = EVERY_RANK;
    return cmocka_run_group_tests_name("device launch", tests, NULL, NULL);
}

/* What the tests of graphs have in each rank (see graph_scene.h). */
#include "whole/graph_scene.h"

#include "base/clock.h"
#include "memory/cuda.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

unsigned char *at_host(const unsigned char *device)
{
    return (unsigned char *)seen((const int32_t *)(const void *)device);
}

struct scene scene_make(const struct family_self *self)
{
    struct scene scene = {.self = self, .comm = join(self)};
    hoop_cu_address_t at = 0;
    EXPECT(self, hoop_cuda.stream_create(&scene.stream, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    scene.in = (unsigned char *)make(self, BYTES);
    EXPECT(self, hoop_cuda.alloc(&at, BYTES) == 0);
    scene.out = (unsigned char *)(uintptr_t)at;
    scene.log = (unsigned char *)make(self, ROUNDS);
    return scene;
}

bool apart;

struct scene scene_make_there(const struct family_self *self)
{
    if (apart) {
        take_device(self, self->rank % 2 == 0 ? "1,0,2" : "2,3,1,0", self->rank % 3);
    }
    return scene_make(self);
}

void scene_make_known(const struct scene *scene)
{
    fill_in(scene, 7, 0);
    EXPECT(scene->self, reduce(scene, scene->in, scene->out, BYTES) == HOOP_OK);
    EXPECT(scene->self, reduce(scene, scene->in, scene->in, BYTES) == HOOP_OK);
    EXPECT(scene->self, reduce(scene, scene->out, scene->out, BYTES) == HOOP_OK);
    scene_settle(scene);
}

struct scene scene_known(const struct family_self *self)
{
    const struct scene scene = scene_make_there(self);
    scene_make_known(&scene);
    return scene;
}

void scene_settle(const struct scene *scene)
{
    EXPECT(scene->self, hoop_cuda.stream_synchronize(scene->stream) == 0);
}

void scene_end(const struct scene *scene)
{
    EXPECT(scene->self, hoop_comm_destroy(scene->comm) == HOOP_OK);
    rank_tell(scene->self, HOOP_OK, 0);
}

void copy(const struct scene *scene, void *to, const void *from, size_t bytes)
{
    EXPECT(scene->self, hoop_cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, scene->stream) == 0);
}

hoop_result_t reduce(const struct scene *scene, const void *in, void *out, size_t bytes)
{
    return hoop_all_reduce(in, out, bytes, HOOP_UINT8, HOOP_SUM, scene->comm, scene->stream);
}

hoop_cu_graph_t capture_sum(const struct scene *scene, const void *in, void *out, size_t bytes)
{
    capture(scene->stream, 1);
    EXPECT(scene->self, reduce(scene, in, out, bytes) == HOOP_OK);
    hoop_cu_graph_t graph = graph_end(scene->stream);
    EXPECT(scene->self, graph != NULL);
    return graph;
}

void replay(const struct scene *scene, hoop_cu_graph_t graph)
{
    EXPECT(scene->self, graph_replay(graph, scene->stream) == 0);
}

unsigned char sum_of(const struct scene *scene, int value)
{
    const int n = scene->self->n;
    return (unsigned char)(n * value + n * (n - 1) / 2);
}

void fill_in(const struct scene *scene, int value, unsigned delay_us)
{
    fill(scene->stream, scene->in, value + scene->self->rank, BYTES, delay_us);
}

void assert_log(const struct scene *scene)
{
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT(scene->self, at_host(scene->log)[round] == sum_of(scene, round));
    }
}

void scene_replay_often(const struct scene *scene, size_t bytes, bool in_place)
{
    unsigned char *out = in_place ? scene->in : scene->out;
    const unsigned before = launches();
    hoop_cu_graph_t graph = capture_sum(scene, scene->in, out, bytes);
    EXPECT(scene->self, launches() == before);
    for (int round = 0; round < ROUNDS; round++) {
        fill_in(scene, round, round % 4 == scene->self->rank ? 3000 : 0);
        fill(scene->stream, scene->out, 0xee, BYTES, 0);
        replay(scene, graph);
        copy(scene, scene->log + round, out + bytes - 1, 1);
    }
    scene_settle(scene);
    assert_log(scene);
    graph_drop(graph);
}

void scene_replay_among_calls(const struct scene *scene)
{
    hoop_cu_graph_t graph = capture_sum(scene, scene->in, scene->out, BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        fill_in(scene, round, 2000);
        replay(scene, graph);
        EXPECT(scene->self, hoop_bcast(scene->out, BYTES, HOOP_UINT8, round % scene->self->n,
                                       scene->comm, scene->stream) == HOOP_OK);
        copy(scene, scene->log + round, scene->out + BYTES - 1, 1);
    }
    scene_settle(scene);
    assert_log(scene);
    graph_drop(graph);
}

void assert_spoilt(const struct scene *scene)
{
    const unsigned char *out = at_host(scene->out);
    EXPECT(scene->self, out[0] == 0xff && memcmp(out, out + 1, BYTES - 1) == 0);
}

static _Atomic uint32_t gate[4096 / sizeof(uint32_t)] __attribute__((aligned(4096)));
static uint32_t stops;

void scene_stop(const struct scene *scene)
{
    static hoop_cu_address_t at;
    if (at == 0) {
        EXPECT(scene->self, hoop_cuda.host_register((void *)gate, sizeof(gate),
                                                    HOOP_CU_HOST_REGISTER_MAPPED) == 0);
        EXPECT(scene->self, hoop_cuda.host_pointer(&at, (void *)gate, 0) == 0);
    }
    EXPECT(scene->self,
           hoop_cuda.stream_wait_value(scene->stream, at, ++stops, HOOP_CU_WAIT_VALUE_GEQ) == 0);
}

void scene_go(void)
{
    atomic_store(&gate[0], stops);
}

bool is_busy_since(const struct scene *scene, uint64_t start_ns, unsigned us)
{
    const bool busy = is_busy(scene->stream);
    EXPECT(scene->self, busy || hoop_now_ns() - start_ns >= (uint64_t)us * 1000);
    return busy;
}

bool is_busy(hoop_stream_t stream)
{
    return hoop_cuda.stream_query(stream) == HOOP_CU_NOT_READY;
}

bool are_all(const unsigned char *device, int value, size_t bytes)
{
    const unsigned char *at = at_host(device);
    return at[0] == (unsigned char)value && memcmp(at, at + 1, bytes - 1) == 0;
}

unsigned char *plain(const struct family_self *self, size_t bytes)
{
    hoop_cu_address_t at = 0;
    EXPECT(self, hoop_cuda.alloc(&at, bytes) == 0);
    return (unsigned char *)(uintptr_t)at;
}

hoop_result_t scene_failure(const struct scene *scene)
{
    hoop_result_t failed = HOOP_OK;
    const uint64_t start = hoop_now_ns();
    while (failed == HOOP_OK && hoop_now_ns() - start < 20 * HOOP_NS_PER_S) {
        EXPECT(scene->self, hoop_comm_get_async_error(scene->comm, &failed) == HOOP_OK);
        usleep(1000);
    }
    return failed;
}

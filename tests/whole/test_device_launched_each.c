/*
 * Collectives besides all_reduce that are launched on the device that all ranks share (see
 * test_device_launched.c): one rank acts for all, by a kernel. Ranks are processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/collective.h"
#include "memory/cuda.h"
#include "whole/graph_scene.h"

#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 4u
#define COUNT ((size_t)9001) /* bytes of a block */
#define ALL (MOST_RANKS * COUNT)

static const enum hoop_collective each[] = {HOOP_COLL_REDUCE_SCATTER, HOOP_COLL_ALL_GATHER,
                                            HOOP_COLL_BROADCAST,      HOOP_COLL_GATHER,
                                            HOOP_COLL_SCATTER,        HOOP_COLL_ALLTOALL};

struct call {
    enum hoop_collective collective;
    int root;
    size_t count;
    unsigned char *in, *out;
};

static hoop_result_t call(const struct scene *scene, const struct call *c, hoop_stream_t stream)
{
    const hoop_datatype_t type = HOOP_UINT8;
    switch (c->collective) {
    case HOOP_COLL_REDUCE_SCATTER:
        return hoop_reduce_scatter(c->in, c->out, c->count, type, HOOP_SUM, scene->comm, stream);
    case HOOP_COLL_ALL_GATHER:
        return hoop_all_gather(c->in, c->out, c->count, type, scene->comm, stream);
    case HOOP_COLL_BROADCAST:
        return hoop_broadcast(c->in, c->out, c->count, type, c->root, scene->comm, stream);
    case HOOP_COLL_GATHER:
        return hoop_gather(c->in, c->out, c->count, type, c->root, scene->comm, stream);
    case HOOP_COLL_ALLTOALL:
        return hoop_alltoall(c->in, c->out, c->count, type, scene->comm, stream);
    default:
        return hoop_scatter(c->in, c->out, c->count, type, c->root, scene->comm, stream);
    }
}

/* Gives every byte of both buffers a value that depends on its place and its rank. */
static void refill(const struct scene *scene, const struct call *c)
{
    for (size_t i = 0; i < ALL; i++) {
        at_host(c->in)[i] = (unsigned char)(i / 7 + i % 251 + (size_t)scene->self->rank * 59);
        at_host(c->out)[i] = (unsigned char)(i % 13 + 7);
    }
}

/* The same call with buffers `a` and `b`, apart or in place. */
static struct call call_at(const struct scene *scene, const struct call *c, unsigned char *a,
                           unsigned char *b, bool in_place)
{
    const struct hoop_collective_row *row = &hoop_collectives[c->collective];
    const size_t off = (size_t)scene->self->rank * c->count;
    struct call ret = *c;
    ret.in = a;
    ret.out = !in_place ? b : hoop_extent_is_each(row->in) ? a + off : a;
    if (in_place && hoop_extent_is_each(row->out)) {
        ret.in = a + off;
        ret.out = a;
    }
    return ret;
}

/* Waits for the call, and then launches it: both must have the same result, and the launched one
 * returns before its input is there: true if that was seen. */
static bool call_both(const struct scene *scene, const struct call *c, bool in_place)
{
    static unsigned char waited[2][ALL];
    unsigned char *a = scene->in, *b = scene->out;
    const struct call buffers = {.in = a, .out = b};
    const struct call now = call_at(scene, c, a, b, in_place);
    refill(scene, &buffers);
    EXPECT(scene->self, call(scene, &now, NULL) == HOOP_OK);
    scene_settle(scene);
    memcpy(waited[0], at_host(a), ALL);
    memcpy(waited[1], at_host(b), ALL);
    refill(scene, &buffers);
    const uint64_t start = hoop_now_ns();
    fill(scene->stream, scene->log, 1, 1, SLOW_US / 8);
    EXPECT(scene->self, call(scene, &now, scene->stream) == HOOP_OK);
    const bool early = is_busy_since(scene, start, SLOW_US / 8);
    scene_settle(scene);
    EXPECT(scene->self, memcmp(waited[0], at_host(a), ALL) == 0);
    EXPECT(scene->self, memcmp(waited[1], at_host(b), ALL) == 0);
    return early;
}

static struct scene each_scene(const struct family_self *self)
{
    struct scene scene = scene_make_there(self);
    scene.in = plain(self, ALL);
    scene.out = plain(self, ALL);
    return scene;
}

static void call_each(const struct family_self *self)
{
    const struct scene scene = each_scene(self);
    unsigned early = 0;
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        const bool rooted = hoop_collective_is_rooted(each[i]);
        for (int k = 0; k < 4 * (rooted ? self->n : 1); k++) {
            const struct call c = {
                .collective = each[i], .root = k / 4, .count = COUNT - (size_t)(k / 2 % 2)};
            early += call_both(&scene, &c, k % 2 != 0 && each[i] != HOOP_COLL_ALLTOALL);
        }
    }
    EXPECT(self, early > 0);
    scene_end(&scene);
}

/* After a call with root 1 whose inputs were all round + rank: checks the first block. */
static void expect_first(const struct scene *scene, const struct call *c, int round)
{
    const bool gathers = c->collective == HOOP_COLL_GATHER;
    const int value = c->collective == HOOP_COLL_REDUCE_SCATTER          ? sum_of(scene, round)
                      : gathers || c->collective == HOOP_COLL_ALL_GATHER ? round
                                                                         : round + 1;
    EXPECT(scene->self, (gathers && scene->self->rank != 1) || are_all(c->out, value, c->count));
}

/* One rank brings memory that the others have not opened, so it waits, and acts for all. */
static void bring_new_memory(const struct family_self *self)
{
    const struct scene scene = each_scene(self);
    struct call c = {.root = 1, .count = COUNT, .in = scene.in, .out = scene.out};
    for (int round = 0; round < 30; round++) {
        c.collective = each[round % 5];
        if (round >= 5 && round % self->n == self->rank) {
            c.in = plain(self, ALL);
            c.out = plain(self, ALL);
        }
        refill(&scene, &c);
        memset(at_host(c.in), round + self->rank, ALL);
        EXPECT(self, call(&scene, &c, scene.stream) == HOOP_OK);
        scene_settle(&scene);
        expect_first(&scene, &c, round);
    }
    scene_end(&scene);
}

/* Devices that do not reach each other: the first call finds that out, and all later ones are
 * launched through the host. */
static void call_unreached(const struct family_self *self)
{
    setenv("FAKE_CUDA_APART", "01,02,12", 1);
    const struct scene scene = each_scene(self);
    struct call c = {.root = 1, .count = COUNT, .in = scene.in, .out = scene.out};
    unsigned early = 0;
    for (int round = 0; round < 10; round++) {
        c.collective = each[round % 5];
        memset(at_host(c.in), round + self->rank, ALL);
        const uint64_t start = hoop_now_ns();
        fill(scene.stream, scene.log, 1, 1, SLOW_US / 10);
        EXPECT(self, call(&scene, &c, scene.stream) == HOOP_OK);
        const bool busy = is_busy_since(&scene, start, SLOW_US / 10);
        EXPECT(self, round > 0 || !busy);
        early += busy;
        scene_settle(&scene);
        expect_first(&scene, &c, round);
    }
    EXPECT(self, early > 0);
    scene_end(&scene);
}

/* The output of one rank is of a pool of CUDA's, which nobody else can reach: each rank takes what
 * it needs itself, and nobody is launched. */
static void output_of_pool(const struct family_self *self)
{
    const struct scene scene = each_scene(self);
    if (self->rank == 1) {
        pool(scene.out);
    }
    for (int round = 0; round < 6; round++) {
        memset(at_host(scene.in), round + self->rank, COUNT);
        EXPECT(self, hoop_all_gather(scene.in, scene.out, COUNT, HOOP_UINT8, scene.comm,
                                     scene.stream) == HOOP_OK);
        scene_settle(&scene);
        bool right = true;
        for (int r = 0; r < self->n; r++) {
            right &= are_all(scene.out + (size_t)r * COUNT, round + r, COUNT);
        }
        EXPECT(self, right);
    }
    EXPECT(self, fetches() == 0);
    scene_end(&scene);
}

static void test_each(void **state)
{
    (void)state;
    run(2, call_each);
    run(3, call_each);
    run(4, call_each);
}

static void test_new_memory(void **state)
{
    (void)state;
    run(3, bring_new_memory);
}

static void test_unreached(void **state)
{
    const bool before = apart;
    (void)state;
    apart = true;
    run(3, call_unreached);
    apart = before;
}

static void test_pool(void **state)
{
    (void)state;
    run(3, output_of_pool);
}

/* With the argument `apart` ranks have devices of their own, each acting for itself. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each),
        cmocka_unit_test(test_new_memory),
        cmocka_unit_test(test_unreached),
        cmocka_unit_test(test_pool),
    };
    apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    return cmocka_run_group_tests_name("device launched each", tests, NULL, NULL);
}

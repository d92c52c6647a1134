/*
 * Calls with a root whose ranks find together, from one call to the next, whether the data travel
 * with the announcement (cost/learned.h): from plain memory and mapped, by each rank as it likes,
 * roots and sizes in any order, from streams and without. What arrives is right, and of two ranks
 * with CPUs of their own some calls are granted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "harness/rank_report.h"

#include <stdio.h>
#include <stdlib.h>

#define PATIENCE_MS 240000
#define MOST ((size_t)1000000) /* bytes of a block */
#define ROUNDS 12u
#define CALLS 50u /* of one collective and about one size */

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static uint8_t byte_of(uint32_t call, int rank, size_t i)
{
    return (uint8_t)((i ^ i >> 9) * 5 + (size_t)call * 13 + (size_t)rank * 31);
}

struct call {
    enum hoop_collective collective;
    uint32_t number;
    int root;
    size_t bytes; /* of a block */
};

static hoop_result_t make(const struct call *call, const uint8_t *in, uint8_t *out,
                          hoop_comm_t comm, hoop_stream_t stream)
{
    switch (call->collective) {
    case HOOP_COLL_BROADCAST:
        return hoop_broadcast(in, out, call->bytes, HOOP_UINT8, call->root, comm, stream);
    case HOOP_COLL_REDUCE:
        return hoop_reduce(in, out, call->bytes, HOOP_UINT8, HOOP_SUM, call->root, comm, stream);
    case HOOP_COLL_GATHER:
        return hoop_gather(in, out, call->bytes, HOOP_UINT8, call->root, comm, stream);
    default:
        return hoop_scatter(in, out, call->bytes, HOOP_UINT8, call->root, comm, stream);
    }
}

/* Byte i of this rank's output. */
static uint8_t expected(const struct family_self *self, const struct call *call, size_t i)
{
    uint8_t sum = 0;
    switch (call->collective) {
    case HOOP_COLL_BROADCAST:
        return byte_of(call->number, call->root, i);
    case HOOP_COLL_GATHER:
        return byte_of(call->number, (int)(i / call->bytes), i % call->bytes);
    case HOOP_COLL_SCATTER:
        return byte_of(call->number, call->root, (size_t)self->rank * call->bytes + i);
    default:
        for (int r = 0; r < self->n; r++) {
            sum = (uint8_t)(sum + byte_of(call->number, r, i));
        }
        return sum;
    }
}

static void call_and_check(const struct family_self *self, const struct call *call, uint8_t *in,
                           uint8_t *out, hoop_comm_t comm, hoop_stream_t stream)
{
    const size_t n = (size_t)self->n;
    const bool gathers = call->collective == HOOP_COLL_GATHER;
    const bool has = self->rank == call->root || call->collective == HOOP_COLL_BROADCAST ||
                     call->collective == HOOP_COLL_SCATTER;
    const size_t ins = call->bytes * (call->collective == HOOP_COLL_SCATTER ? n : 1);
    const size_t outs = has ? call->bytes * (gathers ? n : 1) : 0;
    for (size_t i = 0; i < ins; i++) {
        in[i] = byte_of(call->number, self->rank, i);
    }
    EXPECT(self, make(call, in, out, comm, stream) == HOOP_OK);
    EXPECT(self, stream == NULL || hoop_stream_synchronize(stream) == HOOP_OK);
    size_t wrong = 0;
    for (size_t i = 0; i < outs; i++) {
        wrong += out[i] != expected(self, call, i);
    }
    EXPECT(self, wrong == 0);
}

/* How many calls are granted, of any collective and size. */
static uint64_t granted(hoop_comm_t comm)
{
    uint64_t ret = 0;
    for (int c = 0; c < HOOP_COLL_COUNT; c++) {
        for (uint32_t size = 0; size < HOOP_LEARNED_SIZES; size++) {
            ret += comm->operation.granted[c][size];
        }
    }
    return ret;
}

static void rank_main(const struct family_self *self, const void *arg)
{
    static const enum hoop_collective rooted[] = {HOOP_COLL_BROADCAST, HOOP_COLL_REDUCE,
                                                  HOOP_COLL_GATHER, HOOP_COLL_SCATTER};
    uint32_t all = 1, mine = 77u + (uint32_t)self->rank;
    hoop_comm_t comm = NULL;
    hoop_stream_t stream = NULL;
    void *in[2] = {malloc(MOST * (size_t)self->n), NULL};
    void *out[2] = {malloc(MOST * (size_t)self->n), NULL};
    const bool learns = self->rank == *(const int *)arg;
    setenv("HOOP_LEARN", learns ? "1" : "0", 1);
    setenv("HOOP_DEBUG", "none", 0);
    family_set_number("RANK", self->rank);
    family_set_number("WORLD_SIZE", self->n);
    EXPECT(self, in[0] != NULL && out[0] != NULL);
    EXPECT(self, hoop_comm_init_env(&comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_stream_create(&stream) == HOOP_OK);
    EXPECT(self, hoop_mem_alloc(&in[1], MOST * (size_t)self->n, HOOP_MEM_HOST) == HOOP_OK);
    EXPECT(self, hoop_mem_alloc(&out[1], MOST * (size_t)self->n, HOOP_MEM_HOST) == HOOP_OK);
    uint64_t seen = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t size = 60000u << draw(&all, 5), way = draw(&all, 4);
        for (uint32_t i = 0; i < CALLS; i++) {
            const struct call call = {.collective = rooted[round % 4],
                                      .number = round * CALLS + i,
                                      .root = (int)draw(&all, (uint32_t)self->n),
                                      .bytes = size + draw(&all, 40000)};
            /* mapped always, by some rank or other, or seldom */
            const uint32_t one = draw(&mine, way == 1 ? 2 : 50), other = draw(&mine, 50);
            call_and_check(self, &call, in[way == 0 || one == 1], out[way == 0 || other == 1], comm,
                           draw(&mine, 3) == 0 ? stream : NULL);
            seen += granted(comm);
        }
    }
    rank_tell(self, comm->agreed.oversubscribed == 0, seen);
    EXPECT(self, hoop_stream_destroy(stream) == HOOP_OK && hoop_comm_destroy(comm) == HOOP_OK);
    EXPECT(self, hoop_mem_free(in[1]) == HOOP_OK && hoop_mem_free(out[1]) == HOOP_OK);
    free(in[0]);
    free(out[0]);
    exit(0);
}

/* What rank 0 learns counts, whatever the others' HOOP_LEARN. */
static void run(int n, int learns)
{
    struct family family;
    char job[48];
    (void)snprintf(job, sizeof(job), "granted-%d-%d-%d", (int)getpid(), n, learns);
    setenv("TORCHELASTIC_RUN_ID", job, 1);
    setenv("MASTER_PORT", "29500", 1);
    rank_start_all(&family, n, rank_main, &learns, PATIENCE_MS);
    for (int r = 0; r < n; r++) {
        const struct rank_report report = rank_hear(&family, r);
        assert_int_equal(report.value > 0, learns == 0 && report.result != 0);
    }
    family_finish(&family);
}

static void test_two(void **state)
{
    (void)state;
    run(2, 0);
    run(2, 1);
}

static void test_three(void **state)
{
    (void)state;
    run(3, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two), cmocka_unit_test(test_three)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

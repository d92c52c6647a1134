/*
 * lib/transfer/exchange.c: two ranks in one thread, over real links through shared memory and a
 * board of plain memory. Each rank takes the other for another process, and reads its memory, which
 * is in fact this process's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "exec/gate.h"
#include "memory/region.h"
#include "runtime/process.h"
#include "transfer/exchange.h"
#include "transports/link_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define N 2u
#define CHUNK ((uint64_t)4096)
#define LEAST ((size_t)10000)
#define MOST 8 /* the most transfers of a rank */
#define POLLS 100000

#define AWAY_NS (2 * HOOP_NS_PER_MS)

static const struct hoop_transport *shm;
static uint64_t own_ns; /* not 0: what the clock shows next; it goes on by 1 with each look */

struct world {
    struct hoop_roster roster;
    struct hoop_peer peers[N];
    struct hoop_mapping_env maps;
    struct pair pairs[N]; /* by sending rank */
    struct end {
        struct world *world;
        uint32_t rank;
        struct hoop_board board;
        struct hoop_exchange exchange;
        struct hoop_failure failure;
        struct hoop_transfer transfers[MOST];
        uint32_t count;
    } ends[N];
};

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (own_ns == 0) {
        return __real_clock_gettime(clock, ret);
    }
    *ret = (struct timespec){.tv_sec = (time_t)(own_ns / HOOP_NS_PER_S),
                             .tv_nsec = (long)(own_ns % HOOP_NS_PER_S)};
    own_ns++;
    return 0;
}

static hoop_result_t get_link(void *arg, uint32_t peer, uint32_t lane, bool sending,
                              struct hoop_link **ret)
{
    const struct end *end = arg;
    assert_int_equal(lane, HOOP_TRANSFER_LANE);
    *ret = sending ? end->world->pairs[end->rank].sender : end->world->pairs[peer].receiver;
    return HOOP_OK;
}

static int begin(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    own_ns = 0;
    world->roster.n = N;
    world->roster.segment_bytes = hoop_board_bytes(N);
    world->roster.segment = mmap(NULL, world->roster.segment_bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    world->roster.peers = world->peers;
    world->maps.peers = world->peers;
    for (uint32_t rank = 0; rank < N; rank++) {
        struct end *end = &world->ends[rank];
        struct pair *pair = &world->pairs[rank];
        *end = (struct end){.world = world, .rank = rank};
        *pair =
            (struct pair){.transport = shm, .slots = 3, .chunk_bytes = CHUNK, .back = rank == 1};
        world->peers[rank] = (struct hoop_peer){.pid = getpid(),
                                                .process = hoop_process_id(),
                                                .process_at = hoop_process_id_at(),
                                                .wake_fd = -1};
        end->exchange = (struct hoop_exchange){.me = rank,
                                               .n = N,
                                               .chunk_bytes = CHUNK,
                                               .board = &end->board,
                                               .maps = &world->maps,
                                               .notice_least_bytes = LEAST,
                                               .read_least_bytes = LEAST,
                                               .link = get_link,
                                               .arg = end};
        if (hoop_board_init(&end->board, &world->roster, rank) != HOOP_OK ||
            hoop_exchange_init(&end->exchange) != HOOP_OK || pair_make(pair) != HOOP_OK ||
            pair_join(pair) != HOOP_OK) {
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
        pair_close(&world->pairs[rank]);
        hoop_exchange_finish(&world->ends[rank].exchange);
        hoop_board_finish(&world->ends[rank].board);
    }
    munmap(world->roster.segment, world->roster.segment_bytes);
    free(world);
    return pair_nothing_left() ? 0 : -1;
}

/* ---- What is exchanged ----------------------------------------------------------------------- */

static void add(struct world *world, uint32_t rank, bool sending, void *data, size_t bytes)
{
    struct end *end = &world->ends[rank];
    struct hoop_transfer *transfer = &end->transfers[end->count];
    *transfer = (struct hoop_transfer){
        .data = data,
        .bytes = bytes,
        .peer = 1 - rank,
        .sending = sending,
        .signature = {.collective = HOOP_TRANSFER, .type = HOOP_UINT8, .root = -1, .count = bytes}};
    if (end->count > 0) {
        end->transfers[end->count - 1].next = transfer;
    }
    end->count++;
}

static void start(struct world *world)
{
    for (uint32_t rank = 0; rank < N; rank++) {
        struct end *end = &world->ends[rank];
        hoop_exchange_start(&end->exchange, end->count > 0 ? end->transfers : NULL, &end->failure);
        end->count = 0;
    }
}

/* Runs until both are done, or have failed. */
static void run(struct world *world)
{
    bool over = false;
    for (int i = 0; i < POLLS && !over; i++) {
        over = true;
        for (uint32_t rank = 0; rank < N; rank++) {
            over &= hoop_exchange_poll(&world->ends[rank].exchange) == HOOP_POLL_DONE;
        }
    }
    assert_true(over);
}

static void assert_well(const struct world *world)
{
    for (uint32_t rank = 0; rank < N; rank++) {
        assert_string_equal(world->ends[rank].failure.text, "");
        assert_int_equal(world->ends[rank].failure.code, HOOP_OK);
    }
}

static uint64_t taken(struct world *world, uint32_t by)
{
    return atomic_load(hoop_board_taken(&world->ends[by].board, by, 1 - by));
}

/* A block at an odd address, with a guard byte behind it. */
static uint8_t *block(size_t bytes)
{
    uint8_t *whole = malloc(bytes + 2);
    assert_non_null(whole);
    memset(whole, 0xee, bytes + 2);
    return whole + 1;
}

static void drop(uint8_t *data)
{
    free(data - 1);
}

static void drop_checked(uint8_t *data, size_t bytes, uint64_t number)
{
    assert_true(pattern_is(data, bytes, number));
    assert_int_equal(data[bytes], 0xee);
    assert_int_equal(data[-1], 0xee);
    drop(data);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static const size_t sizes[] = {0,         1,         CHUNK,   2 * CHUNK + 1, LEAST - 1, LEAST,
                               LEAST + 1, 5 * CHUNK, 1 << 20, (1 << 20) - 1, 1048577,   3000001};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* One transfer in each direction at once, of different sizes. */
static void test_sizes(void **state)
{
    struct world *world = *state;
    for (uint32_t i = 0; i < SIZES; i++) {
        uint8_t *out[N], *in[N];
        size_t bytes[N];
        for (uint32_t rank = 0; rank < N; rank++) {
            bytes[rank] = sizes[(i + rank * 5) % SIZES];
            out[rank] = block(bytes[rank]);
            in[1 - rank] = block(bytes[rank]);
            pattern_fill(out[rank], bytes[rank], i * N + rank);
            add(world, rank, true, out[rank], bytes[rank]);
        }
        for (uint32_t rank = 0; rank < N; rank++) {
            add(world, rank, false, in[rank], bytes[1 - rank]);
        }
        start(world);
        run(world);
        assert_well(world);
        for (uint32_t rank = 0; rank < N; rank++) {
            const uint64_t sequence = i + 1;
            assert_int_equal(taken(world, rank) == sequence << 1, bytes[1 - rank] >= LEAST);
            drop_checked(in[rank], bytes[1 - rank], i * N + 1 - rank);
            drop(out[rank]);
        }
    }
}

/* From the middle of a region, which is found without the kernel. */
static void test_region(void **state)
{
    struct world *world = *state;
    const size_t bytes = 3000001;
    uint8_t *in = block(bytes);
    void *region = NULL;
    world->peers[0].process_at = world->peers[1].process_at = 0;
    assert_int_equal(hoop_region_alloc(bytes + 9, HOOP_MEM_HOST, &region), HOOP_OK);
    for (uint32_t i = 0; i < 3; i++) {
        uint8_t *out = (uint8_t *)region + (size_t)i * 4;
        pattern_fill(out, bytes, i);
        add(world, 0, true, out, bytes);
        add(world, 1, false, in, bytes);
        start(world);
        run(world);
        assert_well(world);
        assert_int_equal(taken(world, 1), (i + 1) << 1);
        assert_true(pattern_is(in, bytes, i));
    }
    /* memory that peers can no longer map is not announced as a region */
    uint8_t *torn = (uint8_t *)(((uintptr_t)region + 9999) / 4096 * 4096);
    assert_int_equal(hoop_region_fence(torn, 4096), HOOP_OK);
    pattern_fill(region, bytes, 3);
    add(world, 0, true, region, bytes);
    add(world, 1, false, in, bytes);
    start(world);
    run(world);
    assert_well(world);
    assert_int_equal(taken(world, 1), 4 << 1 | 1); /* read by way of the kernel, which refused */
    assert_true(pattern_is(in, bytes, 3));
    assert_int_equal(hoop_region_free(region), HOOP_OK);
    drop(in);
}

/* Several transfers of one pair in one exchange, some of them read by the receiver. */
static void test_in_a_row(void **state)
{
    struct world *world = *state;
    static const size_t row[] = {LEAST, 5, 3 * LEAST, LEAST, 0, LEAST - 1, 5 * LEAST, 1};
    uint8_t *out[MOST], *in[MOST];
    for (uint32_t i = 0; i < MOST; i++) {
        out[i] = block(row[i]);
        in[i] = block(row[i]);
        pattern_fill(out[i], row[i], i);
        add(world, 0, true, out[i], row[i]);
        add(world, 1, false, in[i], row[i]);
    }
    start(world);
    run(world);
    assert_well(world);
    for (uint32_t i = 0; i < MOST; i++) {
        drop_checked(in[i], row[i], i);
        drop(out[i]);
    }
}

/* Rank 1 sends to rank 0, and with `both` rank 0 to rank 1. Who sends tries all ways, and is told
 * by the other what came of them; if both send, rank 0 does, and rank 1 sends as it does in the
 * same call. If no memory may be read, reading stays one of the tries. Each size is learned
 * separately. */
static void run_learning(struct world *world, bool refused, bool both)
{
    static const size_t row[] = {LEAST, 4 * LEAST, 40 * LEAST};
    uint32_t how[N][HOOP_COPY_COUNT] = {{0}};
    for (uint32_t rank = 0; rank < N; rank++) {
        world->ends[rank].exchange.learns = true;
        world->peers[rank].process_at = refused ? 0 : world->peers[rank].process_at;
    }
    for (uint32_t i = 0; i < 3600; i++) {
        const size_t bytes = row[i % 3];
        uint8_t *out[N], *in[N];
        for (uint32_t rank = both ? 0 : 1; rank < N; rank++) {
            out[rank] = block(bytes);
            in[rank] = block(bytes);
            pattern_fill(out[rank], bytes, i * N + rank);
            add(world, rank, true, out[rank], bytes);
            add(world, 1 - rank, false, in[rank], bytes);
        }
        start(world);
        run(world);
        assert_well(world);
        for (uint32_t rank = both ? 0 : 1; rank < N; rank++) {
            how[rank][world->ends[rank].transfers[both ? rank : 0].how]++;
            drop_checked(in[rank], bytes, i * N + rank);
            drop(out[rank]);
        }
        assert_true(!both || memcmp(how[0], how[1], sizeof(how[0])) == 0);
    }
    for (uint32_t rank = both ? 0 : 1; rank < (both ? 1 : N); rank++) {
        const struct hoop_exchange_ways *ways = world->ends[rank].exchange.ways[1 - rank];
        for (uint32_t way = 0; way < HOOP_COPY_COUNT; way++) {
            const bool may = (hoop_copies_may() | 1u << HOOP_COPY_READ) >> way & 1;
            assert_int_equal(how[rank][way] > 0, may);
            for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(ways->ways[0][hoop_copies_size(row[i])].row.ns[way] > 0,
                                 may && !(refused && way == HOOP_COPY_READ));
            }
        }
        assert_true(!refused || how[rank][HOOP_COPY_READ] < 300);
    }
}

static void test_learning(void **state)
{
    run_learning(*state, false, true);
}

static void test_learning_refused(void **state)
{
    run_learning(*state, true, true);
}

static void test_learning_one_way(void **state)
{
    run_learning(*state, false, false);
}

/* What is learned is the work of both ends: time that one waits for the other, which is away, does
 * not count. */
static void test_learning_waits(void **state)
{
    struct world *world = *state;
    const size_t bytes = 100 * LEAST;
    uint8_t *out = block(bytes), *in = block(bytes);
    world->ends[0].exchange.learns = true;
    own_ns = HOOP_NS_PER_S;
    for (uint32_t i = 0; i < 16; i++) {
        bool over = false;
        add(world, 0, true, out, bytes);
        add(world, 1, false, in, bytes);
        start(world);
        while (!over) {
            over = hoop_exchange_poll(&world->ends[0].exchange) == HOOP_POLL_DONE;
            own_ns += AWAY_NS;
            over &= hoop_exchange_poll(&world->ends[1].exchange) == HOOP_POLL_DONE;
        }
        assert_well(world);
    }
    const struct hoop_exchange_ways *ways = world->ends[0].exchange.ways[1];
    for (uint32_t way = 0; way < HOOP_COPY_COUNT; way++) {
        const uint32_t ns = ways->ways[0][hoop_copies_size(bytes)].row.ns[way];
        const bool may = (hoop_copies_may() | 1u << HOOP_COPY_READ) >> way & 1;
        assert_in_range(ns, may ? 1 : 0, may ? AWAY_NS - 1 : 0);
    }
    drop(in);
    drop(out);
}

/* What rank 0 learns if it worked 5 ms and rank 1 worked 3, in the first transfer that is timed. */
static uint32_t learn_times(struct world *world, bool both)
{
    const size_t bytes = 100 * LEAST;
    uint8_t *out = block(bytes), *in = block(bytes);
    const struct hoop_exchange *exchange = &world->ends[0].exchange;
    const struct hoop_copies_row *row = NULL;
    world->ends[0].exchange.learns = true;
    while (row == NULL || row->ns[HOOP_COPY_ORDINARY] == 0) {
        add(world, 0, true, out, bytes);
        add(world, 1, false, in, bytes);
        if (both) {
            add(world, 1, true, out, 1);
            add(world, 0, false, in, 1);
        }
        start(world);
        run(world);
        assert_well(world);
        struct hoop_exchange_ways *ways = exchange->ways[1];
        row = &ways->ways[0][hoop_copies_size(bytes)].row;
        if (ways->timed != NULL) {
            ways->ns = 5000000;
            atomic_store(hoop_board_took(exchange->board, 1, 0), ways->sequence << 40 | 3000000);
        }
    }
    drop(in);
    drop(out);
    return row->ns[HOOP_COPY_ORDINARY];
}

/* Ranks of which one sends work at the same time, ranks that send to each other in turn. */
static void test_learning_times(void **state)
{
    assert_int_equal(learn_times(*state, false), 5000000);
}

static void test_learning_times_both(void **state)
{
    assert_int_equal(learn_times(*state, true), 8000000);
}

/* Rank 0's memory may not be read, and rank 1's pid belongs to another process by now. All
 * arrives. */
static void test_refused(void **state)
{
    struct world *world = *state;
    static const size_t row[] = {LEAST, 5, 300 * LEAST};
    world->peers[0].process_at = 0;
    world->peers[1].process++;
    uint8_t *out[N][3], *in[N][3];
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t rank = 0; rank < N; rank++) {
            out[rank][i] = block(row[i]);
            in[rank][i] = block(row[i]);
            pattern_fill(out[rank][i], row[i], i + 7 * rank);
            add(world, rank, true, out[rank][i], row[i]);
            add(world, rank, false, in[rank][i], row[i]);
        }
    }
    start(world);
    run(world);
    assert_well(world);
    for (uint32_t rank = 0; rank < N; rank++) {
        assert_int_equal(taken(world, rank), 3 << 1 | 1);
        for (uint32_t i = 0; i < 3; i++) {
            drop_checked(in[rank][i], row[i], i + 7 * (1 - rank));
            drop(out[rank][i]);
        }
    }
}

/* Ranks of one process have links that copy only once. */
static void test_same_process(void **state)
{
    struct world *world = *state;
    uint8_t *out = block(LEAST), *in = block(LEAST);
    world->peers[0].same_process = world->peers[1].same_process = true;
    pattern_fill(out, LEAST, 1);
    add(world, 0, true, out, LEAST);
    add(world, 1, false, in, LEAST);
    start(world);
    run(world);
    assert_well(world);
    assert_int_equal(taken(world, 1), 0);
    drop_checked(in, LEAST, 1);
    drop(out);
}

/* A sender fails before all was read: what was read is not a result. */
static void test_given_up(void **state)
{
    struct world *world = *state;
    const size_t bytes = (size_t)4 << 20;
    uint8_t *out = block(bytes), *in = block(bytes);
    pattern_fill(out, bytes, 1);
    add(world, 0, true, out, bytes);
    add(world, 1, false, in, bytes);
    start(world);
    for (int i = 0; i < 10 && world->ends[1].transfers[0].moved == 0; i++) {
        (void)hoop_exchange_poll(&world->ends[0].exchange);
        (void)hoop_exchange_poll(&world->ends[1].exchange);
    }
    assert_true(world->ends[1].transfers[0].moved > 0);
    assert_false(hoop_gates_close(&world->ends[0].board, -1));
    assert_int_equal(hoop_exchange_poll(&world->ends[1].exchange), HOOP_POLL_DONE);
    assert_int_equal(world->ends[1].failure.code, HOOP_REMOTE_ERROR);
    assert_int_equal(world->ends[1].failure.rank, 0);
    assert_non_null(strstr(world->ends[1].failure.text, "rank 0 gave up"));
    assert_int_equal(hoop_exchange_poll(&world->ends[0].exchange), HOOP_POLL_IDLE);
    assert_int_equal(taken(world, 1), 0);
    drop(out);
    drop(in);
}

/* The two counts differ, below and above the size at which reading begins. */
static void mismatch(struct world *world, size_t sent, size_t received)
{
    uint8_t *out = block(sent), *in = block(received);
    char says[64];
    add(world, 0, true, out, sent);
    add(world, 1, false, in, received);
    start(world);
    for (int i = 0; i < 10; i++) {
        (void)hoop_exchange_poll(&world->ends[0].exchange);
        (void)hoop_exchange_poll(&world->ends[1].exchange);
    }
    assert_int_equal(world->ends[1].failure.code, HOOP_MISMATCH);
    (void)snprintf(says, sizeof(says), "rank 1 called send/recv of %zu uint8", received);
    assert_non_null(strstr(world->ends[1].failure.text, says));
    (void)snprintf(says, sizeof(says), "rank 0 called send/recv of %zu uint8", sent);
    assert_non_null(strstr(world->ends[1].failure.text, says));
    drop(out);
    drop(in);
}

static void test_mismatch_more(void **state)
{
    mismatch(*state, LEAST - 1, LEAST);
}

static void test_mismatch_less(void **state)
{
    mismatch(*state, 3 * LEAST, LEAST);
}

static void test_mismatch_read(void **state)
{
    mismatch(*state, LEAST, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sizes, begin, end),
        cmocka_unit_test_setup_teardown(test_region, begin, end),
        cmocka_unit_test_setup_teardown(test_in_a_row, begin, end),
        cmocka_unit_test_setup_teardown(test_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_learning, begin, end),
        cmocka_unit_test_setup_teardown(test_learning_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_learning_one_way, begin, end),
        cmocka_unit_test_setup_teardown(test_learning_waits, begin, end),
        cmocka_unit_test_setup_teardown(test_learning_times, begin, end),
        cmocka_unit_test_setup_teardown(test_learning_times_both, begin, end),
        cmocka_unit_test_setup_teardown(test_same_process, begin, end),
        cmocka_unit_test_setup_teardown(test_given_up, begin, end),
        cmocka_unit_test_setup_teardown(test_mismatch_more, begin, end),
        cmocka_unit_test_setup_teardown(test_mismatch_less, begin, end),
        cmocka_unit_test_setup_teardown(test_mismatch_read, begin, end),
    };
    uint8_t byte = 0;
    char program[] = "test_exchange", name[] = "shm", *arguments[] = {program, name};
    shm = pair_transport(2, arguments);
    if (!hoop_process_can_be_read(&byte, 1)) {
        (void)fprintf(stderr, "a process may not read its own memory by process_vm_readv here\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

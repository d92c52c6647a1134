/*
 * Which ranks have joined, and whether they agree. It is pure memory, so every order of a few ranks
 * and every kind of contradiction can be tested.
 */
#include "base/clock.h"
#include "base/settings.h"
#include "tree/gather.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TIMEOUT_MS 60000u

static struct hoop_frame_join a_join(uint32_t n, uint32_t rank)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_JOIN);
    struct hoop_frame_join *join = &frame.join;
    join->rank = rank;
    join->n = n;
    join->who.process = 1000 + rank;
    join->who.start_time = 2000 + rank;
    join->who.pid = 100 + (int32_t)rank;
    join->who.cpus.count = 1;
    join->timeout_ms = TIMEOUT_MS;
    join->left_ms = TIMEOUT_MS;
    join->dead_after_ms = 5000;
    join->segment_bytes = 65536;
    join->agreed.lanes = 2;
    join->agreed.chunk_bytes = 131072;
    join->agreed.oneshot_bytes = 2048;
    join->agreed.bruck_bytes = 32768;
    (void)snprintf(join->who.host, sizeof(join->who.host), "h%u", rank);
    (void)snprintf(join->who.listener, sizeof(join->who.listener), "listener-%u", rank);
    return frame.join;
}

static void add(struct hoop_gather *gather, const struct hoop_frame_join *join)
{
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    assert_int_equal(hoop_gather_add(gather, join, &failure), HOOP_OK);
    assert_int_equal(failure.code, HOOP_OK);
}

/* The join is refused with this text, and nothing has changed. */
static void expect_refusal(struct hoop_gather *gather, const struct hoop_frame_join *join,
                           hoop_result_t code, const char *sentence)
{
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    const struct hoop_gather before = *gather;
    const struct hoop_frame_join *const there = gather->joins[join->rank % gather->n];
    assert_int_equal(hoop_gather_add(gather, join, &failure), code);
    assert_int_equal(failure.code, code);
    assert_int_equal(failure.rank, (int)join->rank);
    assert_string_equal(failure.text, sentence);
    assert_memory_equal(&before, gather, sizeof(before));
    assert_ptr_equal(there, gather->joins[join->rank % gather->n]);
}

/* ---- Order -------------------------------------------------------------------------------- */

/* Permutation number `which` of n ranks. */
static void permute(uint32_t n, uint32_t which, uint32_t *ret_order)
{
    for (uint32_t i = 0; i < n; i++) {
        ret_order[i] = i;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = i + which % (n - i);
        const uint32_t rank = ret_order[at];
        which /= n - i;
        ret_order[at] = ret_order[i];
        ret_order[i] = rank;
    }
}

static void test_every_order(void **state)
{
    uint32_t orders = 1;
    (void)state;
    for (uint32_t n = 1; n <= 6; n++) {
        orders *= n;
        for (uint32_t which = 0; which < orders; which++) {
            struct hoop_gather gather = {.n = 0};
            uint32_t order[6];
            permute(n, which, order);
            assert_false(hoop_gather_is_complete(&gather));
            for (uint32_t i = 0; i < n; i++) {
                const struct hoop_frame_join join = a_join(n, order[i]);
                assert_false(hoop_gather_is_complete(&gather));
                add(&gather, &join);
                assert_int_equal(gather.n, n);
                assert_int_equal(gather.arrived, i + 1);
                assert_memory_equal(gather.joins[order[i]], &join, sizeof(join));
            }
            assert_true(hoop_gather_is_complete(&gather));
            hoop_gather_finish(&gather);
            assert_int_equal(gather.n, 0);
            hoop_gather_finish(&gather);
        }
    }
}

static void test_largest(void **state)
{
    struct hoop_gather gather = {.n = 0};
    const uint32_t n = HOOP_MAX_RANKS;
    (void)state;
    for (uint32_t i = 0; i < n; i++) {
        const struct hoop_frame_join join = a_join(n, n - 1 - i);
        assert_false(hoop_gather_is_complete(&gather));
        add(&gather, &join);
    }
    assert_true(hoop_gather_is_complete(&gather));
    hoop_gather_finish(&gather);
}

/* ---- Contradictions ----------------------------------------------------------------------- */

static void test_numbers_of_ranks(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        struct hoop_gather gather = {.n = 0};
        char sentence[200];
        struct hoop_frame_join join = a_join(5, 4);
        add(&gather, &join);
        join = a_join(n, n - 1);
        if (n == 5) { /* one rank came twice, and from elsewhere */
            join.who.pid = 7;
            expect_refusal(&gather, &join, HOOP_INVALID_USAGE,
                           "rank 4 joined twice: as pid 104 on host h4 and as pid 7 on host h4");
        } else {
            (void)snprintf(sentence, sizeof(sentence),
                           "rank %u (pid %u, host h%u) joined with %u ranks, rank 4 (pid 104, host "
                           "h4) with 5",
                           n - 1, 99 + n, n - 1, n);
            expect_refusal(&gather, &join, HOOP_MISMATCH, sentence);
        }
        hoop_gather_finish(&gather);
    }
    /* more ranks than the first ones said, so no valid index */
    struct hoop_gather gather = {.n = 0};
    struct hoop_frame_join join = a_join(1, 0);
    add(&gather, &join);
    join = a_join(HOOP_MAX_RANKS, HOOP_MAX_RANKS - 1);
    expect_refusal(&gather, &join, HOOP_MISMATCH,
                   "rank 4095 (pid 4195, host h4095) joined with 4096 ranks, rank 0 (pid 100, host "
                   "h0) with 1");
    hoop_gather_finish(&gather);
}

/* A rank comes twice: any rank, before all are there and afterwards. */
static void test_twice(void **state)
{
    (void)state;
    for (uint32_t again = 0; again < 3; again++) {
        for (uint32_t after = again; after < 3; after++) {
            struct hoop_gather gather = {.n = 0};
            char sentence[100];
            for (uint32_t rank = 0; rank <= after; rank++) {
                const struct hoop_frame_join join = a_join(3, rank);
                add(&gather, &join);
            }
            struct hoop_frame_join join = a_join(3, again);
            join.who.pid = 9;
            (void)snprintf(join.who.host, sizeof(join.who.host), "other");
            (void)snprintf(sentence, sizeof(sentence),
                           "rank %u joined twice: as pid %u on host h%u and as pid 9 on host other",
                           again, 100 + again, again);
            expect_refusal(&gather, &join, HOOP_INVALID_USAGE, sentence);
            assert_int_equal(hoop_gather_is_complete(&gather), after == 2);
            hoop_gather_finish(&gather);
        }
    }
}

static void test_settings(void **state)
{
    static const struct {
        const char *differs;
        size_t offset;
        uint32_t bytes;
        uint64_t value;
    } cases[] = {
#define FIELD(field)                                                                               \
    offsetof(struct hoop_frame_join, field), sizeof(((union hoop_frame *)0)->join.field)
        {"HOOP_ALGO must be the same on all ranks: it is ring on", FIELD(agreed.algo),
         HOOP_ALGO_RING},
        {"HOOP_ALGO must be the same on all ranks: it is 4000000000 on", FIELD(agreed.algo),
         4000000000u},
        {"HOOP_ORDER must be the same on all ranks: it is rank on", FIELD(agreed.order),
         HOOP_ORDER_RANK},
        {"HOOP_LANES must be the same on all ranks: it is 16 on", FIELD(agreed.lanes), 16},
        {"HOOP_CHUNK_BYTES must be the same on all ranks: it is 4096 on", FIELD(agreed.chunk_bytes),
         4096},
        {"HOOP_ONESHOT_BYTES must be the same on all ranks: it is 0 on",
         FIELD(agreed.oneshot_bytes), 0},
        {"HOOP_BRUCK_BYTES must be the same on all ranks: it is 0 on", FIELD(agreed.bruck_bytes),
         0},
        {"HOOP_BRUCK_RADIX must be the same on all ranks: it is 3 on", FIELD(agreed.bruck_radix),
         2},
        {"HOOP_TRANSPORT must be the same on all ranks: it is tcp on", FIELD(agreed.transport),
         HOOP_TRANSPORT_TCP},
        {"HOOP_CHECK must be the same on all ranks: it is off on", FIELD(agreed.check),
         HOOP_CHECK_OFF},
        {"HOOP_PROFILE must be the same on all ranks: it is 0000000000c0ffee on",
         FIELD(agreed.profile), 0xc0ffee},
        {"the size of the shared memory must be the same on all ranks: it is 1 on",
         FIELD(segment_bytes), 1},
#undef FIELD
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hoop_gather gather = {.n = 0};
        struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
        struct hoop_frame_join join = a_join(4, 2);
        add(&gather, &join);
        join = a_join(4, 1);
        memcpy((char *)&join + cases[i].offset, &cases[i].value, cases[i].bytes);
        assert_int_equal(hoop_gather_add(&gather, &join, &failure), HOOP_MISMATCH);
        assert_int_equal(failure.rank, 1);
        if (strncmp(failure.text, cases[i].differs, strlen(cases[i].differs)) != 0 ||
            strstr(failure.text, " on rank 1 (pid 101, host h1) and ") == NULL ||
            strstr(failure.text, " on rank 2 (pid 102, host h2)") == NULL) {
            fail_msg("\"%s\" is not about %s", failure.text, cases[i].differs);
        }
        assert_int_equal(gather.arrived, 1);
        assert_null(gather.joins[1]);
        hoop_gather_finish(&gather);
    }
}

/* Fields that may differ do. */
static void test_may_differ(void **state)
{
    struct hoop_gather gather = {.n = 0};
    struct hoop_frame_join join = a_join(2, 0);
    (void)state;
    add(&gather, &join);
    join = a_join(2, 1);
    join.agreed.no_rdma = 1;
    join.no_membarrier = 1;
    join.timeout_ms = 1;
    join.left_ms = 0;
    join.dead_after_ms = 1;
    add(&gather, &join);
    hoop_gather_finish(&gather);
}

/* ---- Deadline ----------------------------------------------------------------------------- */

static void test_deadline(void **state)
{
    /* what is left of each rank's patience, and whose deadline holds after it has joined */
    static const uint64_t left_ms[] = {40000, 50000, 30000, 30000 + TIMEOUT_MS, 0};
    static const uint32_t holds[] = {0, 0, 2, 2, 4};
    struct hoop_gather gather = {.n = 0};
    (void)state;
    for (uint32_t rank = 0; rank < 5; rank++) {
        struct hoop_frame_join join = a_join(5, rank);
        join.timeout_ms = 100000 + rank;
        join.left_ms = left_ms[rank];
        const uint64_t early = hoop_now_ns() + left_ms[holds[rank]] * HOOP_NS_PER_MS;
        const uint64_t before = gather.deadline_ns;
        add(&gather, &join);
        assert_int_equal(gather.timeout_ms, 100000 + holds[rank]);
        if (holds[rank] == rank) {
            const uint64_t late = hoop_now_ns() + left_ms[rank] * HOOP_NS_PER_MS;
            assert_true(gather.deadline_ns >= early && gather.deadline_ns <= late);
        } else {
            assert_true(gather.deadline_ns == before);
        }
    }
    hoop_gather_finish(&gather);
}

/* ---- In words ----------------------------------------------------------------------------- */

static void expect_missing(uint32_t n, const uint32_t *ranks, const char *const *hosts,
                           uint32_t count, const char *sentence)
{
    struct hoop_gather gather = {.n = 0};
    char text[HOOP_FAILURE_TEXT_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        struct hoop_frame_join join = a_join(n, ranks[i]);
        (void)snprintf(join.who.host, sizeof(join.who.host), "%s", hosts[i]);
        add(&gather, &join);
    }
    hoop_gather_describe_missing(&gather, text, sizeof(text));
    assert_string_equal(text, sentence);
    hoop_gather_finish(&gather);
}

static void test_missing(void **state)
{
    static const uint32_t ranks[] = {2, 0, 5, 11, 10};
    static const char *const hosts[] = {"a", "b", "a", "c", "d"};
    char longest[sizeof(((union hoop_frame *)0)->join.who.host)];
    const char *long_hosts[3] = {longest, longest, longest};
    (void)state;
    expect_missing(3, ranks, hosts, 2,
                   "rank 1 of 3 did not arrive within 60000 ms, the others are on hosts b, a");
    expect_missing(3, ranks, hosts, 1,
                   "ranks 0, 1 of 3 did not arrive within 60000 ms, the others are on host a");
    expect_missing(12, ranks, hosts, 3,
                   "ranks 1, 3, 4, 6, 7, 8, 9, 10 and 1 more of 12 did not arrive within 60000 ms, "
                   "the others are on hosts b, a");
    expect_missing(
        4096, ranks, hosts, 5,
        "ranks 1, 3, 4, 6, 7, 8, 9, 12 and 4083 more of 4096 did not arrive within 60000 "
        "ms, the others are on hosts b, a, d and 1 more");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = 0;
    char sentence[HOOP_FAILURE_TEXT_BYTES];
    (void)snprintf(sentence, sizeof(sentence),
                   "rank 1 of 4 did not arrive within 60000 ms, the others are on host %s",
                   longest);
    expect_missing(4, (const uint32_t[]){0, 2, 3}, long_hosts, 3, sentence);
}

/* Whatever room there is for the text, it ends within it. */
static void test_short_of_room(void **state)
{
    struct hoop_gather gather = {.n = 0};
    (void)state;
    for (uint32_t rank = 0; rank < 40; rank += 2) {
        const struct hoop_frame_join join = a_join(40, rank);
        add(&gather, &join);
    }
    for (size_t bytes = 4; bytes < 300; bytes++) {
        char *text = malloc(bytes);
        assert_non_null(text);
        hoop_gather_describe_missing(&gather, text, bytes);
        assert_true(strnlen(text, bytes) < bytes);
        free(text);
    }
    hoop_gather_finish(&gather);
}

static bool is_even(const void *arg, uint32_t rank)
{
    (void)arg;
    return rank % 2 == 0;
}

static bool is_that(const void *arg, uint32_t rank)
{
    return rank == *(const uint32_t *)arg;
}

static void test_list(void **state)
{
    char text[64];
    const uint32_t last = 4095;
    (void)state;
    hoop_gather_list(4096, is_that, &last, text, sizeof(text));
    assert_string_equal(text, "rank 4095");
    hoop_gather_list(4, is_even, NULL, text, sizeof(text));
    assert_string_equal(text, "ranks 0, 2");
    hoop_gather_list(16, is_even, NULL, text, sizeof(text));
    assert_string_equal(text, "ranks 0, 2, 4, 6, 8, 10, 12, 14");
    hoop_gather_list(18, is_even, NULL, text, sizeof(text));
    assert_string_equal(text, "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 1 more");
}

/* ---- What all are told -------------------------------------------------------------------- */

static void test_roster(void **state)
{
    uint64_t last_id = 0;
    (void)state;
    /* each of these is set for all as soon as one rank sets it; bit i: rank i does */
    for (uint32_t who = 0; who < 64; who++) {
        struct hoop_gather gather = {.n = 0};
        union hoop_frame frame;
        for (uint32_t rank = 0; rank < 3; rank++) {
            struct hoop_frame_join join = a_join(3, rank);
            join.no_membarrier = who >> rank & 1;
            join.agreed.no_rdma = who >> (5 - rank) & 1;
            join.dead_after_ms = 1000 + (rank + who) % 3;
            add(&gather, &join);
        }
        assert_int_equal(hoop_gather_roster(&gather, 2, &frame.roster), HOOP_OK);
        assert_int_equal(hoop_frame_check_far(&frame, sizeof(frame.roster)), HOOP_OK);
        assert_true(frame.roster.comm_id != 0 && frame.roster.comm_id != last_id);
        last_id = frame.roster.comm_id;
        assert_int_equal(frame.roster.n, 3);
        assert_int_equal(frame.roster.machines, 2);
        assert_int_equal(frame.roster.need_fence, (who & 7) != 0);
        assert_int_equal(frame.roster.no_rdma, who >> 3 != 0);
        assert_int_equal(frame.roster.segment_bytes, 65536);
        assert_int_equal(frame.roster.server, 0);
        assert_int_equal(frame.roster.dead_after_ms, 1000);
        hoop_gather_finish(&gather);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_order),      cmocka_unit_test(test_largest),
        cmocka_unit_test(test_numbers_of_ranks), cmocka_unit_test(test_twice),
        cmocka_unit_test(test_settings),         cmocka_unit_test(test_may_differ),
        cmocka_unit_test(test_deadline),         cmocka_unit_test(test_missing),
        cmocka_unit_test(test_short_of_room),    cmocka_unit_test(test_list),
        cmocka_unit_test(test_roster),
    };
    return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}

/*
 * Point-to-point through the public API: a thread per rank, seeded programs of sends and receives,
 * alone and in groups, and of alltoallv, with collectives in between. Every element tells its
 * sender, its receiver, and the number of the transfer between these two.
 *
 *     test_transfers [seed]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "hoop.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 5
#define ROUNDS 40
#define MOST 100000u

static uint64_t seed = 1;

struct rank {
    pthread_t thread;
    hoop_comm_t comm;
    int rank, n;
    uint32_t *buffers[2][MAX_RANKS]; /* received and sent, by peer */
    char failure[512];
};

static uint64_t next_random(uint64_t *random)
{
    *random = *random * 6364136223846793005ull + 1442695040888963407ull;
    return *random >> 33;
}

static uint32_t element(int from, int to, unsigned round, size_t i)
{
    return (uint32_t)from << 28 | (uint32_t)to << 24 | (round & 0xff) << 16 | (i & 0xffff);
}

static void fill(uint32_t *buffer, int from, int to, unsigned round, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        buffer[i] = element(from, to, round, i);
    }
}

static void check(struct rank *rank, hoop_result_t result, const char *what)
{
    if (result != HOOP_OK && rank->failure[0] == '\0') {
        snprintf(rank->failure, sizeof(rank->failure), "rank %d, %s: %s", rank->rank, what,
                 hoop_get_last_error(rank->comm));
    }
}

static void check_received(struct rank *rank, int from, unsigned round, size_t count)
{
    for (size_t i = 0; i < count && rank->failure[0] == '\0'; i++) {
        if (rank->buffers[0][from][i] != element(from, rank->rank, round, i)) {
            snprintf(rank->failure, sizeof(rank->failure),
                     "rank %d from %d, round %u: element %zu is %08x", rank->rank, from, round, i,
                     rank->buffers[0][from][i]);
        }
    }
}

/* How many elements rank a sends to rank b in a round; may be 0. The same on all ranks. */
static size_t count_of(unsigned round, int a, int b)
{
    uint64_t random = seed + round * 977ull + (unsigned)a * 131ull + (unsigned)b;
    (void)next_random(&random);
    return next_random(&random) % 3 == 0 ? next_random(&random) % MOST : next_random(&random) % 20;
}

/* All ranks exchange with all, including themselves, in one group with an all_reduce in the
 * middle. */
static void exchange_all(struct rank *rank, unsigned round)
{
    int64_t one = 1;
    hoop_group_start();
    for (int i = 0; i < rank->n; i++) {
        const int to = (rank->rank + i) % rank->n, from = (rank->rank + 2 * i) % rank->n;
        const size_t out = count_of(round, rank->rank, to), in = count_of(round, from, rank->rank);
        fill(rank->buffers[1][to], rank->rank, to, round, out);
        if ((rank->rank + (int)round) % rank->n == i) {
            check(rank, hoop_all_reduce(&one, &one, 1, HOOP_INT64, HOOP_SUM, rank->comm, NULL),
                  "all_reduce");
        }
        check(rank, hoop_send(rank->buffers[1][to], out, HOOP_UINT32, to, rank->comm, NULL),
              "send");
        if (rank->n % 2 != 0) { /* 2 i takes all values */
            check(rank, hoop_recv(rank->buffers[0][from], in, HOOP_UINT32, from, rank->comm, NULL),
                  "recv");
        }
    }
    for (int from = 0; from < rank->n && rank->n % 2 == 0; from++) {
        check(rank,
              hoop_recv(rank->buffers[0][from], count_of(round, from, rank->rank), HOOP_UINT32,
                        from, rank->comm, NULL),
              "recv");
    }
    check(rank, hoop_group_end(), "group");
    for (int from = 0; from < rank->n; from++) {
        check_received(rank, from, round, count_of(round, from, rank->rank));
    }
    if (one != rank->n) {
        check(rank, HOOP_INTERNAL_ERROR, "the sum in the group is wrong");
    }
}

/* Passed on from rank to rank, without a group. */
static void pass_on(struct rank *rank, unsigned round)
{
    const int to = rank->rank + 1, from = rank->rank - 1;
    if (from >= 0) {
        const size_t count = count_of(round, from, rank->rank);
        check(rank, hoop_recv(rank->buffers[0][from], count, HOOP_UINT32, from, rank->comm, NULL),
              "recv");
        check_received(rank, from, round, count);
    }
    if (to < rank->n) {
        const size_t count = count_of(round, rank->rank, to);
        fill(rank->buffers[1][to], rank->rank, to, round, count);
        check(rank, hoop_send(rank->buffers[1][to], count, HOOP_UINT32, to, rank->comm, NULL),
              "send");
    }
}

/* An alltoallv of which many blocks are empty or small; in a group behind a transfer. */
static void exchange_vector(struct rank *rank, unsigned round, bool grouped)
{
    size_t out[MAX_RANKS], in[MAX_RANKS], at[MAX_RANKS];
    const int self = rank->rank;
    uint32_t token = 0;
    for (int q = 0; q < rank->n; q++) {
        out[q] = count_of(round, self, q);
        in[q] = count_of(round, q, self);
        at[q] = (size_t)q * MOST;
        fill(rank->buffers[1][q], self, q, round, out[q]);
    }
    if (grouped) {
        hoop_group_start();
        check(rank, hoop_recv(&token, 1, HOOP_UINT32, self, rank->comm, NULL), "recv");
    }
    check(rank,
          hoop_alltoallv(rank->buffers[1][0], out, at, rank->buffers[0][0], in, at, HOOP_UINT32,
                         rank->comm, NULL),
          "alltoallv");
    if (grouped) {
        memset(out, 0, sizeof(out)); /* the input was read already */
        check(rank, hoop_send(&round, 1, HOOP_UINT32, self, rank->comm, NULL), "send");
        check(rank, hoop_group_end(), "group");
        check(rank, token == round ? HOOP_OK : HOOP_INTERNAL_ERROR, "the group's transfer");
    }
    for (int q = 0; q < rank->n; q++) {
        check_received(rank, q, round, in[q]);
    }
}

static void *program(void *arg)
{
    struct rank *rank = arg;
    uint64_t random = seed;
    for (unsigned round = 0; round < ROUNDS && rank->failure[0] == '\0'; round++) {
        const uint64_t what = next_random(&random) % 5;
        if (what == 0) {
            pass_on(rank, round);
        } else if (what == 1) {
            exchange_all(rank, round);
        } else if (what == 2) {
            check(rank, hoop_barrier(rank->comm, NULL), "barrier");
        } else {
            exchange_vector(rank, round, what == 4);
        }
    }
    return NULL;
}

static void make(struct rank *ranks, int n)
{
    hoop_unique_id_t id;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.op_timeout_ms = 60000;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    hoop_group_start();
    for (int r = 0; r < n; r++) {
        ranks[r] = (struct rank){.rank = r, .n = n};
        hoop_comm_init_rank_config(&ranks[r].comm, n, id, r, &config);
        for (int way = 0; way < 2; way++) {
            uint32_t *all = calloc((size_t)n * MOST, sizeof(uint32_t));
            assert_non_null(all);
            for (int q = 0; q < n; q++) {
                ranks[r].buffers[way][q] = all + (size_t)q * MOST;
            }
        }
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
}

static void end(struct rank *ranks, int n)
{
    for (int r = 0; r < n; r++) {
        assert_int_equal(hoop_comm_destroy(ranks[r].comm), HOOP_OK);
        free(ranks[r].buffers[0][0]);
        free(ranks[r].buffers[1][0]);
    }
}

static void run_programs(int n)
{
    struct rank ranks[MAX_RANKS];
    make(ranks, n);
    for (int r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, program, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(ranks[r].thread, NULL);
    }
    for (int r = 0; r < n; r++) {
        if (ranks[r].failure[0] != '\0') {
            fail_msg("%s", ranks[r].failure);
        }
    }
    end(ranks, n);
}

static void test_programs(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++) {
        run_programs(n);
    }
}

/* One thread calls for both ranks: the first call of each differs from the other's second. */
static void test_mismatch(void **state)
{
    (void)state;
    struct rank ranks[MAX_RANKS];
    make(ranks, 2);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    hoop_send(ranks[0].buffers[1][1], 7, HOOP_UINT32, 1, ranks[0].comm, NULL);
    hoop_recv(ranks[1].buffers[0][0], 8, HOOP_UINT32, 0, ranks[1].comm, NULL);
    assert_int_equal(hoop_group_end(), HOOP_MISMATCH);
    assert_non_null(strstr(hoop_get_last_error(NULL), "send/recv of 7 uint32"));
    assert_non_null(strstr(hoop_get_last_error(NULL), "send/recv of 8 uint32"));
    end(ranks, 2);
}

/* The counts of one pair differ; then another collective meets an alltoallv. */
static void test_vector_mismatch(void **state)
{
    (void)state;
    static const size_t at[] = {0, 100};
    const size_t counts[3][2] = {{1, 7}, {8, 0}, {7, 0}};
    struct rank ranks[MAX_RANKS];
    for (int other = 0; other < 2; other++) {
        make(ranks, 2);
        uint32_t *out = ranks[0].buffers[1][0], *in = ranks[0].buffers[0][0];
        assert_int_equal(hoop_group_start(), HOOP_OK);
        hoop_alltoallv(out, counts[0], at, in, counts[0], at, HOOP_UINT32, ranks[0].comm, NULL);
        out = ranks[1].buffers[1][0];
        in = ranks[1].buffers[0][0];
        if (other == 0) {
            hoop_alltoallv(out, counts[2], at, in, counts[1], at, HOOP_UINT32, ranks[1].comm, NULL);
        } else {
            hoop_all_gather(out, in, 3, HOOP_UINT32, ranks[1].comm, NULL);
        }
        assert_int_equal(hoop_group_end(), HOOP_MISMATCH);
        const char *says = hoop_get_last_error(NULL);
        assert_non_null(
            strstr(says, other == 0 ? "alltoallv with 7 uint32" : "alltoallv of uint32"));
        assert_non_null(strstr(says, other == 0 ? "alltoallv with 8 uint32" : "all_gather of 3"));
        end(ranks, 2);
    }
}

/* Each argument of alltoallv wrong once; the comm works afterwards. */
static void test_vector_arguments(void **state)
{
    (void)state;
    static const size_t none[] = {0, 0}, some[] = {2, 2}, at[] = {0, 2}, over[] = {1, 2};
    static const size_t much[] = {2, SIZE_MAX / 4}, far[] = {0, SIZE_MAX / 8 - 1};
    static const size_t less[] = {1, 2}, same[] = {0, 0};
    struct rank ranks[MAX_RANKS];
    make(ranks, 2);
    uint32_t *out = ranks[0].buffers[1][0], *in = ranks[0].buffers[0][0];
    const struct {
        const void *out;
        const size_t *counts, *displs;
        void *in;
        const size_t *in_counts, *in_displs;
        int type;
        bool no_comm, stream;
        const char *says;
    } wrongs[] = {
        {out, some, at, in, some, at, HOOP_UINT32, true, false, "comm is NULL"},
        {out, some, at, in, some, at, HOOP_UINT32, false, true,
         "is neither from hoop_stream_create() nor a CUDA stream"},
        {out, some, at, in, some, at, HOOP_NUM_DATATYPES, false, false, "datatype is 12"},
        {out, some, at, in, some, at, -1, false, false, "datatype is -1"},
        {NULL, some, at, in, some, at, HOOP_UINT32, false, false, "sendbuff is NULL"},
        {out, some, at, NULL, some, at, HOOP_UINT32, false, false, "recvbuff is NULL"},
        {out, NULL, at, in, some, at, HOOP_UINT32, false, false, "sendcounts is NULL"},
        {out, some, NULL, in, some, at, HOOP_UINT32, false, false, "sdispls is NULL"},
        {out, some, at, in, NULL, at, HOOP_UINT32, false, false, "recvcounts is NULL"},
        {out, some, at, in, some, NULL, HOOP_UINT32, false, false, "rdispls is NULL"},
        {out, much, at, in, some, at, HOOP_UINT32, false, false, "sendcounts[1] is"},
        {out, some, far, in, some, at, HOOP_UINT32, false, false, "sdispls[1] is"},
        {out, some, at, in, less, at, HOOP_UINT32, false, false, "recvcounts[0] is 1"},
        {out, some, at, in, some, same, HOOP_UINT32, false, false, "overlap"},
        {out, some, at, in, some, over, HOOP_UINT32, false, false, "overlap"},
        {out, some, at, out + 3, some, at, HOOP_UINT32, false, false, "overlap"},
    };
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        const hoop_result_t result = hoop_alltoallv(
            wrongs[i].out, wrongs[i].counts, wrongs[i].displs, wrongs[i].in, wrongs[i].in_counts,
            wrongs[i].in_displs, (hoop_datatype_t)wrongs[i].type,
            wrongs[i].no_comm ? NULL : ranks[0].comm,
            wrongs[i].stream ? (hoop_stream_t)(void *)out : NULL);
        assert_int_equal(result, wrongs[i].stream ? HOOP_UNSUPPORTED : HOOP_INVALID_ARGUMENT);
        assert_non_null(strstr(hoop_get_last_error(NULL), "hoop_alltoallv"));
        if (strstr(hoop_get_last_error(NULL), wrongs[i].says) == NULL) {
            fail_msg("\"%s\" has no \"%s\"", hoop_get_last_error(NULL), wrongs[i].says);
        }
    }
    /* Data may be sent twice; a rank without data needs no memory. */
    hoop_group_start();
    hoop_alltoallv(out, some, same, in, some, at, HOOP_UINT32, ranks[0].comm, NULL);
    hoop_alltoallv(out, some, at, ranks[1].buffers[0][0], some, at, HOOP_UINT32, ranks[1].comm,
                   NULL);
    for (int r = 0; r < 2; r++) {
        hoop_alltoallv(NULL, none, none, NULL, none, none, HOOP_UINT32, ranks[r].comm, NULL);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    end(ranks, 2);
}

static void test_alone(void **state)
{
    (void)state;
    struct rank ranks[MAX_RANKS];
    uint32_t *buffer = NULL;
    make(ranks, 2);
    buffer = ranks[0].buffers[1][0];
    /* Nothing, from nowhere to nowhere, more often than a link has slots. */
    for (int i = 0; i < 20; i++) {
        hoop_group_start();
        hoop_send(NULL, 0, HOOP_UINT32, 1, ranks[0].comm, NULL);
        hoop_recv(NULL, 0, HOOP_UINT32, 0, ranks[1].comm, NULL);
        assert_int_equal(hoop_group_end(), HOOP_OK);
    }
    assert_int_equal(hoop_send(buffer, 1, HOOP_UINT32, 0, ranks[0].comm, NULL), HOOP_INVALID_USAGE);
    hoop_group_start();
    assert_int_equal(hoop_recv(buffer, 3, HOOP_UINT32, 0, ranks[0].comm, NULL), HOOP_OK);
    assert_int_equal(hoop_group_end(), HOOP_INVALID_USAGE);
    assert_non_null(strstr(hoop_get_last_error(NULL), "rank 0 receives from itself"));
    assert_int_equal(hoop_send(buffer, 1, HOOP_UINT32, 2, ranks[0].comm, NULL),
                     HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_recv(NULL, 1, HOOP_UINT32, 1, ranks[0].comm, NULL),
                     HOOP_INVALID_ARGUMENT);
    end(ranks, 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_vector_mismatch), cmocka_unit_test(test_vector_arguments),
        cmocka_unit_test(test_alone),
    };
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

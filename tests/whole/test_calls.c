/*
 * Wrong calls of collectives. From a table, every function has every argument wrong once: the code
 * is right, the text names what is wrong, and the comm works as before. And calls that differ
 * between ranks, however little: HOOP_MISMATCH with both calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/collective.h"
#include "hoop.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 4096

static uint8_t memory[2][2 * ROOM]; /* for each rank: in, out */

struct call {
    enum hoop_collective collective;
    const void *in;
    void *out;
    size_t count;
    int type, op, root;
    hoop_comm_t comm;
    hoop_stream_t stream;
};

static hoop_result_t make(const struct call *c)
{
    const hoop_datatype_t type = (hoop_datatype_t)c->type;
    const hoop_red_op_t op = (hoop_red_op_t)c->op;
    switch (c->collective) {
    case HOOP_COLL_ALL_REDUCE:
        return hoop_all_reduce(c->in, c->out, c->count, type, op, c->comm, c->stream);
    case HOOP_COLL_REDUCE_SCATTER:
        return hoop_reduce_scatter(c->in, c->out, c->count, type, op, c->comm, c->stream);
    case HOOP_COLL_ALL_GATHER:
        return hoop_all_gather(c->in, c->out, c->count, type, c->comm, c->stream);
    case HOOP_COLL_BROADCAST:
        return hoop_broadcast(c->in, c->out, c->count, type, c->root, c->comm, c->stream);
    case HOOP_COLL_REDUCE:
        return hoop_reduce(c->in, c->out, c->count, type, op, c->root, c->comm, c->stream);
    case HOOP_COLL_GATHER:
        return hoop_gather(c->in, c->out, c->count, type, c->root, c->comm, c->stream);
    case HOOP_COLL_SCATTER:
        return hoop_scatter(c->in, c->out, c->count, type, c->root, c->comm, c->stream);
    case HOOP_COLL_ALLTOALL:
        return hoop_alltoall(c->in, c->out, c->count, type, c->comm, c->stream);
    case HOOP_COLL_ALLTOALLV: {
        const size_t counts[] = {c->count, c->count}, displs[] = {0, c->count};
        return hoop_alltoallv(c->in, counts, displs, c->out, counts, displs, type, c->comm,
                              c->stream);
    }
    default:
        return hoop_barrier(c->comm, c->stream);
    }
}

static struct call right(enum hoop_collective collective, hoop_comm_t comm, int rank)
{
    return (struct call){.collective = collective,
                         .in = memory[rank],
                         .out = memory[rank] + ROOM,
                         .count = 3,
                         .type = HOOP_INT32,
                         .op = HOOP_SUM,
                         .comm = comm};
}

static void comms_make(hoop_comm_t comms[2])
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_unique_id_t id;
    config.op_timeout_ms = 30000;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    hoop_group_start();
    hoop_comm_init_rank_config(&comms[0], 2, id, 0, &config);
    hoop_comm_init_rank_config(&comms[1], 2, id, 1, &config);
    assert_int_equal(hoop_group_end(), HOOP_OK);
}

/* The argument that is wrong, and what the text says then. */
enum wrong {
    COMM,
    STREAM,
    TYPE,
    TYPE_LOW,
    OP,
    OP_LOW,
    ROOT,
    ROOT_LOW,
    COUNT,
    IN,
    OUT,
    PART,
    WRONGS
};

static const char *const says[WRONGS] = {
    [COMM] = "comm is NULL",    [STREAM] = "hoop_stream_create()",
    [TYPE] = "datatype is 12",  [TYPE_LOW] = "datatype is -1",
    [OP] = "op is 5",           [OP_LOW] = "op is -1",
    [ROOT] = "root is 2",       [ROOT_LOW] = "root is -1",
    [COUNT] = "count is",       [IN] = "sendbuff is NULL",
    [OUT] = "recvbuff is NULL", [PART] = "overlap",
};

static bool applies(enum hoop_collective collective, enum wrong wrong)
{
    const struct hoop_collective_row *row = &hoop_collectives[collective];
    const bool op = wrong == OP || wrong == OP_LOW, root = wrong == ROOT || wrong == ROOT_LOW;
    const bool barrier = row->in == HOOP_EXTENT_NONE;
    return (!op || row->folds) && (!root || hoop_collective_is_rooted(collective)) &&
           (!barrier || wrong <= STREAM);
}

static void spoil(struct call *call, enum wrong wrong)
{
    switch (wrong) {
    case COMM:
        call->comm = NULL;
        break;
    case STREAM:
        call->stream = (hoop_stream_t)(void *)memory;
        break;
    case TYPE:
    case TYPE_LOW:
        call->type = wrong == TYPE ? HOOP_NUM_DATATYPES : -1;
        break;
    case OP:
    case OP_LOW:
        call->op = wrong == OP ? HOOP_NUM_OPS : -1;
        break;
    case ROOT:
    case ROOT_LOW:
        call->root = wrong == ROOT ? 2 : -1;
        break;
    case COUNT:
        call->count = SIZE_MAX / 4;
        break;
    case IN:
        call->in = NULL;
        break;
    case OUT:
        call->out = NULL;
        break;
    default:
        call->out = (uint8_t *)(uintptr_t)call->in + 4; /* as if for a count of 3 more, or fewer */
        break;
    }
}

static void check_works(hoop_comm_t comms[2])
{
    int32_t sums[2] = {1, 2};
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < 2; r++) {
        hoop_all_reduce(&sums[r], &sums[r], 1, HOOP_INT32, HOOP_SUM, comms[r], NULL);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    assert_int_equal(sums[0], 3);
    assert_int_equal(sums[1], 3);
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    comms_make(comms);
    for (int i = 0; i < HOOP_COLL_COUNT * WRONGS; i++) {
        const enum hoop_collective collective = (enum hoop_collective)(i / WRONGS);
        const enum wrong wrong = (enum wrong)(i % WRONGS);
        struct call call = right(collective, comms[0], 0);
        if (!applies(collective, wrong)) {
            continue;
        }
        spoil(&call, wrong);
        const hoop_result_t expected = wrong == STREAM ? HOOP_UNSUPPORTED : HOOP_INVALID_ARGUMENT;
        const hoop_result_t result = make(&call);
        const char *sentence = hoop_get_last_error(NULL);
        if (result != expected || strstr(sentence, says[wrong]) == NULL ||
            strstr(sentence, hoop_collectives[collective].name) == NULL) {
            fail_msg("%s, wrong %d: %s: %s", hoop_collectives[collective].name, wrong,
                     hoop_get_error_name(result), sentence);
        }
    }
    check_works(comms);
    hoop_comm_destroy(comms[0]);
    hoop_comm_destroy(comms[1]);
}

/* Two calls, one by each rank, with a single difference. */
static void check_mismatch(const struct call *a, const struct call *b)
{
    hoop_comm_t comms[2];
    struct call calls[2] = {*a, *b};
    comms_make(comms);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < 2; r++) {
        calls[r].comm = comms[r];
        if (make(&calls[r]) != HOOP_OK) {
            fail_msg("%s", hoop_get_last_error(NULL));
        }
    }
    /* A root may be done with its part: it is told in its next operation. */
    for (int r = 0; r < 2; r++) {
        hoop_barrier(comms[r], NULL);
    }
    const hoop_result_t result = hoop_group_end();
    const char *sentence = hoop_get_last_error(NULL);
    if (result != HOOP_MISMATCH || strstr(sentence, " differs: rank ") == NULL ||
        strstr(sentence, " rank 0 at ") == NULL || strstr(sentence, " rank 1 at ") == NULL ||
        strstr(sentence, "(test_calls+0x") == NULL) {
        fail_msg("%s of %zu against %s of %zu: %s: %s", hoop_collectives[a->collective].name,
                 a->count, hoop_collectives[b->collective].name, b->count,
                 hoop_get_error_name(result), hoop_get_last_error(NULL));
    }
    hoop_comm_destroy(comms[0]);
    hoop_comm_destroy(comms[1]);
}

static void test_mismatches(void **state)
{
    (void)state;
    for (int i = 0; i < HOOP_COLL_COUNT; i++) {
        const struct hoop_collective_row *row = &hoop_collectives[i];
        const struct call a = right((enum hoop_collective)i, NULL, 0);
        struct call b = right((enum hoop_collective)((i + 1) % HOOP_COLL_COUNT), NULL, 1);
        check_mismatch(&a, &b);
        b = right((enum hoop_collective)i, NULL, 1);
        b.count = 4;
        if (row->in != HOOP_EXTENT_NONE) {
            check_mismatch(&a, &b);
            b.count = 3;
            b.type = HOOP_UINT32;
            check_mismatch(&a, &b);
        }
        b = right((enum hoop_collective)i, NULL, 1);
        b.op = HOOP_MAX;
        if (row->folds) {
            check_mismatch(&a, &b);
        }
        b.op = HOOP_SUM;
        b.root = 1;
        if (hoop_collective_is_rooted((enum hoop_collective)i)) {
            check_mismatch(&a, &b);
        }
    }
}

/* Pairs whose 32-bit hashes were once equal, and counts whose low bits are equal. */
static void test_near_mismatches(void **state)
{
    (void)state;
    static const struct {
        size_t count;
        int type, op;
    } pairs[][2] = {
        {{2340, HOOP_UINT8, HOOP_SUM}, {62714, HOOP_UINT8, HOOP_SUM}},
        {{13407, HOOP_FLOAT16, HOOP_PROD}, {21995, HOOP_FLOAT16, HOOP_PROD}},
        {{3279, HOOP_UINT32, HOOP_MIN}, {2889, HOOP_UINT64, HOOP_AVG}},
        {{(size_t)1 << 17, HOOP_UINT8, HOOP_SUM}, {(size_t)1 << 18, HOOP_UINT8, HOOP_SUM}},
        {{((size_t)1 << 17) + 5, HOOP_UINT8, HOOP_MAX}, {5, HOOP_UINT8, HOOP_MAX}},
    };
    uint8_t *buffers[4];
    for (int i = 0; i < 4; i++) {
        buffers[i] = calloc(1, (size_t)1 << 19);
        assert_non_null(buffers[i]);
    }
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct call calls[2];
        for (int r = 0; r < 2; r++) {
            calls[r] = (struct call){.collective = HOOP_COLL_ALL_REDUCE,
                                     .in = buffers[r],
                                     .out = buffers[2 + r],
                                     .count = pairs[i][r].count,
                                     .type = pairs[i][r].type,
                                     .op = pairs[i][r].op};
        }
        check_mismatch(&calls[0], &calls[1]);
    }
    for (int i = 0; i < 4; i++) {
        free(buffers[i]);
    }
}

/* ---- Groups --------------------------------------------------------------------------------- */

struct waiter {
    pthread_t thread;
    hoop_comm_t comm;
    hoop_result_t result;
    char sentence[512];
};

static void *waiter_main(void *arg)
{
    struct waiter *waiter = arg;
    int32_t value = 1;
    waiter->result = hoop_all_reduce(&value, &value, 1, HOOP_INT32, HOOP_SUM, waiter->comm, NULL);
    snprintf(waiter->sentence, sizeof(waiter->sentence), "%s", hoop_get_last_error(waiter->comm));
    return NULL;
}

/* Rank 0 makes a mistake in a group, on its comm or on none, while rank 1 waits in its call. */
static void check_told(bool on_comm)
{
    hoop_comm_t comms[2];
    int32_t value = 2;
    comms_make(comms);
    struct waiter waiter = {.comm = comms[1]};
    assert_int_equal(pthread_create(&waiter.thread, NULL, waiter_main, &waiter), 0);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    if (!on_comm) {
        hoop_all_reduce(&value, &value, 1, HOOP_INT32, HOOP_SUM, comms[0], NULL);
    }
    assert_int_equal(hoop_all_reduce(&value, &value, 1, on_comm ? (hoop_datatype_t)77 : HOOP_INT32,
                                     HOOP_SUM, on_comm ? comms[0] : NULL, NULL),
                     HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_INVALID_USAGE); /* the group still uses it */
    assert_int_equal(hoop_group_end(), HOOP_INVALID_ARGUMENT);
    const char *named = on_comm ? "datatype is 77" : "comm is NULL";
    assert_non_null(strstr(hoop_get_last_error(NULL), named));
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.result, HOOP_REMOTE_ERROR);
    assert_non_null(strstr(waiter.sentence, "rank 0 ran no call of a group"));
    assert_non_null(strstr(waiter.sentence, named));
    assert_int_equal(value, 2);
    hoop_comm_destroy(comms[0]);
    hoop_comm_destroy(comms[1]);
}

static void test_mistake_in_group(void **state)
{
    (void)state;
    check_told(true);
    check_told(false);
}

/* The stream of a call in a group is destroyed before the end of the group. */
static void test_no_stream_in_group(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    hoop_stream_t stream = NULL;
    int32_t value = 2;
    comms_make(comms);
    struct waiter waiter = {.comm = comms[1]};
    assert_int_equal(pthread_create(&waiter.thread, NULL, waiter_main, &waiter), 0);
    assert_int_equal(hoop_stream_create(&stream), HOOP_OK);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    assert_int_equal(hoop_all_reduce(&value, &value, 1, HOOP_INT32, HOOP_SUM, comms[0], stream),
                     HOOP_OK);
    assert_int_equal(hoop_stream_destroy(stream), HOOP_OK);
    assert_int_equal(hoop_group_end(), HOOP_INVALID_ARGUMENT);
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.result, HOOP_REMOTE_ERROR);
    assert_non_null(strstr(waiter.sentence, "was destroyed"));
    assert_int_equal(value, 2);
    hoop_comm_destroy(comms[0]);
    hoop_comm_destroy(comms[1]);
}

/* How long a group with so many calls of so many elements on both comms would take. */
static float simulated(hoop_comm_t comms[2], int calls, size_t count)
{
    hoop_sim_info_t info = HOOP_SIM_INFO_INITIALIZER;
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < 2; r++) {
        struct call call = right(HOOP_COLL_ALL_REDUCE, comms[r], r);
        call.count = count;
        for (int i = 0; i < calls; i++) {
            assert_int_equal(make(&call), HOOP_OK);
        }
    }
    assert_int_equal(hoop_group_simulate_end(&info), HOOP_OK);
    return info.estimated_time;
}

static void test_simulation(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    hoop_sim_info_t info = HOOP_SIM_INFO_INITIALIZER, wrong = {.size = 3};
    comms_make(comms);
    memset(memory, 7, sizeof(memory));
    assert_int_equal(hoop_group_simulate_end(&info), HOOP_INVALID_USAGE); /* there is no group */
    const float one = simulated(comms, 1, 100), three = simulated(comms, 3, 100);
    assert_true(one > 1e-9f && one < 1e-3f);
    assert_true(three > 2.9f * one && three < 3.1f * one);
    assert_true(simulated(comms, 1, 1000) > one);
    assert_true(simulated(comms, 0, 0) == 0);
    assert_int_equal(memory[0][ROOM], 7); /* nothing has run */
    /* Calls that can't be simulated, and wrong ones: the group stays open. */
    hoop_group_start();
    hoop_send(memory[0], 100, HOOP_UINT8, 1, comms[0], NULL);
    assert_int_equal(hoop_group_simulate_end(NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_group_simulate_end(&wrong), HOOP_INVALID_ARGUMENT);
    hoop_group_start();
    assert_int_equal(hoop_group_simulate_end(&info), HOOP_INVALID_USAGE);
    hoop_group_end();
    assert_int_equal(hoop_group_simulate_end(&info), HOOP_OK);
    assert_true(info.estimated_time > 1e-9f);
    /* After a mistake its text is returned, whatever has failed since. */
    hoop_group_start();
    assert_int_equal(hoop_send(memory[0], 1, HOOP_UINT8, 9, comms[0], NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_mem_free(&info), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_group_simulate_end(&info), HOOP_INVALID_ARGUMENT);
    assert_non_null(strstr(hoop_get_last_error(NULL), "hoop_send: peer is 9"));
    check_works(comms);
    hoop_comm_destroy(comms[0]);
    hoop_comm_destroy(comms[1]);
}

static void test_factors(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    hoop_red_op_t ops[2], other;
    float factors[2] = {0.5f, 3}, in[2][200], out[2][200];
    comms_make(comms);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(hoop_red_op_create_pre_mul_sum(&other, &factors[r], HOOP_INT32,
                                                        HOOP_SCALAR_HOST_IMMEDIATE, comms[r]),
                         HOOP_OK);
        assert_int_equal(hoop_red_op_create_pre_mul_sum(&ops[r], &factors[r], HOOP_FLOAT32,
                                                        HOOP_SCALAR_HOST_IMMEDIATE, comms[r]),
                         HOOP_OK);
        for (int i = 0; i < 200; i++) {
            in[r][i] = (float)(i + 100 * r);
        }
    }
    /* The factors were read when the operations were created, which may be destroyed once they are
     * used. */
    factors[0] = factors[1] = 9;
    hoop_group_start();
    for (int r = 0; r < 2; r++) {
        hoop_reduce_scatter(in[r], out[r], 100, HOOP_FLOAT32, ops[r], comms[r], NULL);
        assert_int_equal(hoop_red_op_destroy(ops[r], comms[r]), HOOP_OK);
        assert_int_equal(hoop_red_op_destroy(ops[r], comms[r]), HOOP_INVALID_ARGUMENT);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int i = 0; i < 200; i++) {
        assert_true(out[i / 100][i % 100] == in[0][i] * 0.5f + in[1][i] * 3);
        assert_true(in[1][i] == (float)(i + 100));
    }
    assert_int_equal(hoop_all_reduce(in[0], in[0], 1, HOOP_FLOAT32, other, comms[0], NULL),
                     HOOP_INVALID_ARGUMENT);
    assert_non_null(strstr(hoop_get_last_error(NULL), "was made for int32, not for float"));
    assert_int_equal(
        hoop_red_op_create_pre_mul_sum(&other, factors, HOOP_FLOAT32, HOOP_SCALAR_DEVICE, comms[0]),
        HOOP_INVALID_ARGUMENT);
    check_works(comms);
    hoop_comm_destroy(comms[0]);
    hoop_comm_destroy(comms[1]);
}

/* What a thread has collected in an open group is freed when it ends. */
static void *end_in_group(void *arg)
{
    hoop_comm_t *comms = arg;
    hoop_comm_t other = NULL;
    float x = 1;
    hoop_group_start();
    hoop_all_reduce(&x, &x, 1, HOOP_FLOAT32, HOOP_SUM, comms[0], NULL);
    hoop_send(&x, 1, HOOP_FLOAT32, 1, comms[0], NULL);
    hoop_comm_split(comms[0], 0, 0, &other, NULL);
    hoop_all_reduce(&x, &x, 1, HOOP_FLOAT32, (hoop_red_op_t)99, comms[0], NULL);
    return NULL;
}

static void test_thread_ends_in_group(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    size_t before = 0;
    assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
    for (int i = 0; i < 101; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, end_in_group, comms), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        before = i == 0 ? mallinfo2().uordblks : before;
    }
    assert_in_range(mallinfo2().uordblks, 0, before + 10000);
    check_works(comms);
    hoop_comm_destroy(comms[0]);
    hoop_comm_destroy(comms[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_arguments),    cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_near_mismatches),    cmocka_unit_test(test_mistake_in_group),
        cmocka_unit_test(test_no_stream_in_group), cmocka_unit_test(test_thread_ends_in_group),
        cmocka_unit_test(test_simulation),         cmocka_unit_test(test_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

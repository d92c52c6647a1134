/*
 * Wrong arguments of every function except the operations on buffers (tests/whole/test_calls.c,
 * test_transfers.c). One list has every argument wrong once, and the result: the code, a text that
 * names what is wrong, and unchanged outputs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "hoop.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void check(const char *call, hoop_result_t expected, const char *says, hoop_result_t result)
{
    const char *sentence = hoop_get_last_error(NULL);
    if (result != expected || sentence[0] == '\0' || strstr(sentence, says) == NULL) {
        fail_msg("%s: %s: \"%s\"; expected %s and \"%s\"", call, hoop_get_error_name(result),
                 sentence, hoop_get_error_name(expected), says);
    }
}

#define ARGUMENT(says, call) check(#call, HOOP_INVALID_ARGUMENT, says, call)
#define USAGE(says, call) check(#call, HOOP_INVALID_USAGE, says, call)
#define LACKING(says, call) check(#call, HOOP_UNSUPPORTED, says, call)

/* No call below may write to these. */
static struct outputs {
    hoop_comm_t comm;
    hoop_red_op_t op;
    hoop_unique_id_t id;
    hoop_stream_t stream;
    hoop_ticket_t ticket;
    void *memory, *handle;
    size_t needed, cursor;
    int number;
} out;

static hoop_comm_t comm;

static void test_births(void **state)
{
    (void)state;
    hoop_unique_id_t id, nonsense;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER, wrong = config;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    memset(&nonsense, 0x5a, sizeof(nonsense));
    ARGUMENT("NULL", hoop_get_version(NULL));
    ARGUMENT("NULL", hoop_get_unique_id(NULL));
    ARGUMENT("hoop_comm_init_rank: comm", hoop_comm_init_rank(NULL, 1, id, 0));
    ARGUMENT("nranks is 0", hoop_comm_init_rank(&out.comm, 0, id, 0));
    ARGUMENT("nranks is -1", hoop_comm_init_rank(&out.comm, -1, id, 0));
    ARGUMENT("nranks is 5000", hoop_comm_init_rank(&out.comm, 5000, id, 0));
    ARGUMENT("rank is 1", hoop_comm_init_rank(&out.comm, 1, id, 1));
    ARGUMENT("rank is -1", hoop_comm_init_rank(&out.comm, 1, id, -1));
    ARGUMENT("id", hoop_comm_init_rank(&out.comm, 1, nonsense, 0));
    ARGUMENT("comm", hoop_comm_init_rank_config(NULL, 1, id, 0, &config));
    wrong.magic = 7;
    ARGUMENT("magic", hoop_comm_init_rank_config(&out.comm, 1, id, 0, &wrong));
    wrong = config;
    wrong.size = 3;
    ARGUMENT("size", hoop_comm_init_rank_config(&out.comm, 1, id, 0, &wrong));
    wrong = config;
    wrong.init_timeout_ms = -4;
    ARGUMENT("init_timeout_ms", hoop_comm_init_rank_config(&out.comm, 1, id, 0, &wrong));
    wrong = config;
    wrong.op_timeout_ms = -4;
    ARGUMENT("op_timeout_ms", hoop_comm_init_rank_config(&out.comm, 1, id, 0, &wrong));
    wrong = config;
    wrong.dead_after_ms = -4;
    ARGUMENT("dead_after_ms", hoop_comm_init_rank_config(&out.comm, 1, id, 0, &wrong));
    wrong = config;
    wrong.algo = "fastest";
    ARGUMENT("fastest", hoop_comm_init_rank_config(&out.comm, 1, id, 0, &wrong));
    ARGUMENT("comm", hoop_comm_init_env(NULL, NULL));
    ARGUMENT("comm", hoop_comm_init_url(NULL, "file:///tmp/x", 1, 0, NULL));
    ARGUMENT("url", hoop_comm_init_url(&out.comm, NULL, 1, 0, NULL));
    ARGUMENT("http", hoop_comm_init_url(&out.comm, "http://x", 1, 0, NULL));
    ARGUMENT("nranks is 0", hoop_comm_init_url(&out.comm, "file:///tmp/x", 0, 0, NULL));
    ARGUMENT("rank is 2", hoop_comm_init_url(&out.comm, "file:///tmp/x", 2, 2, NULL));
    ARGUMENT("comms", hoop_comm_init_all(NULL, 1, NULL));
    ARGUMENT("ndev is 0", hoop_comm_init_all(&out.comm, 0, NULL));
    LACKING("", hoop_comm_init_all(&out.comm, 1, &out.number));
    ARGUMENT("hoop_comm_init_rank_scalable: comm",
             hoop_comm_init_rank_scalable(NULL, 1, 0, 1, &id, NULL));
    ARGUMENT("hoop_comm_grow: newcomm", hoop_comm_grow(NULL, 1, &id, 0, NULL, NULL));
    ARGUMENT("ids", hoop_comm_init_rank_scalable(&out.comm, 1, 0, 1, NULL, NULL));
    ARGUMENT("n_id is 2", hoop_comm_init_rank_scalable(&out.comm, 1, 0, 2, &id, NULL));
    ARGUMENT("nranks is 0", hoop_comm_init_rank_scalable(&out.comm, 0, 0, 1, &id, NULL));
    hoop_unique_id_t two[2] = {id, {{0}}};
    ARGUMENT("ids[1]: this is not", hoop_comm_init_rank_scalable(&out.comm, 2, 0, 2, two, NULL));
}

static void test_comms(void **state)
{
    (void)state;
    hoop_result_t result = HOOP_OK;
    ARGUMENT("comm", hoop_comm_finalize(NULL));
    ARGUMENT("comm", hoop_comm_revoke(NULL, HOOP_REVOKE_DEFAULT));
    ARGUMENT("flags", hoop_comm_revoke(comm, 8));
    ARGUMENT("comm", hoop_comm_get_async_error(NULL, &result));
    ARGUMENT("NULL", hoop_comm_get_async_error(comm, NULL));
    ARGUMENT("comm", hoop_comm_count(NULL, &out.number));
    ARGUMENT("count", hoop_comm_count(comm, NULL));
    ARGUMENT("comm", hoop_comm_user_rank(NULL, &out.number));
    ARGUMENT("rank", hoop_comm_user_rank(comm, NULL));
    ARGUMENT("comm", hoop_comm_cu_device(NULL, &out.number));
    ARGUMENT("device", hoop_comm_cu_device(comm, NULL));
    hoop_comm_t gone = NULL;
    assert_int_equal(hoop_comm_init_all(&gone, 1, NULL), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(gone), HOOP_OK);
    ARGUMENT("hoop_comm_destroy: comm is", hoop_comm_destroy(gone));
    ARGUMENT("hoop_comm_finalize: comm is", hoop_comm_finalize(gone));
    ARGUMENT("hoop_comm_abort: comm is", hoop_comm_abort(gone));
    ARGUMENT("hoop_comm_leave: comm is", hoop_comm_leave(gone));
    ARGUMENT("hoop_comm_revoke: comm is", hoop_comm_revoke(gone, HOOP_REVOKE_DEFAULT));
    USAGE("hoop_group_end", hoop_group_end());
}

static void test_scalars(void **state)
{
    (void)state;
    float two = 2;
    const hoop_scalar_residence_t here = HOOP_SCALAR_HOST_IMMEDIATE;
    ARGUMENT("op is NULL", hoop_red_op_create_pre_mul_sum(NULL, &two, HOOP_FLOAT, here, comm));
    ARGUMENT("scalar is NULL",
             hoop_red_op_create_pre_mul_sum(&out.op, NULL, HOOP_FLOAT, here, comm));
    ARGUMENT("datatype is 99",
             hoop_red_op_create_pre_mul_sum(&out.op, &two, (hoop_datatype_t)99, here, comm));
    ARGUMENT("residence is 9", hoop_red_op_create_pre_mul_sum(&out.op, &two, HOOP_FLOAT,
                                                              (hoop_scalar_residence_t)9, comm));
    ARGUMENT("comm is NULL", hoop_red_op_create_pre_mul_sum(&out.op, &two, HOOP_FLOAT, here, NULL));
    ARGUMENT("is not device memory",
             hoop_red_op_create_pre_mul_sum(&out.op, &two, HOOP_FLOAT, HOOP_SCALAR_DEVICE, comm));
    ARGUMENT("comm is NULL", hoop_red_op_destroy((hoop_red_op_t)5, NULL));
    ARGUMENT("op is 5", hoop_red_op_destroy((hoop_red_op_t)5, comm));
    ARGUMENT("op is 0", hoop_red_op_destroy(HOOP_SUM, comm));
}

static void test_memory(void **state)
{
    (void)state;
    char mine[64];
    ARGUMENT("ptr", hoop_mem_alloc(NULL, 1, HOOP_MEM_HOST));
    ARGUMENT("kind is 7", hoop_mem_alloc(&out.memory, 1, (hoop_mem_kind_t)7));
    LACKING("", hoop_mem_alloc(&out.memory, 1, HOOP_MEM_DEVICE));
    check("hoop_mem_alloc, more than there is", HOOP_OUT_OF_MEMORY, "bytes",
          hoop_mem_alloc(&out.memory, SIZE_MAX / 4, HOOP_MEM_HOST));
    ARGUMENT("0x", hoop_mem_free(mine));
    ARGUMENT("comm", hoop_comm_register(NULL, mine, 1, &out.handle));
    ARGUMENT("buff", hoop_comm_register(comm, NULL, 1, &out.handle));
    ARGUMENT("handle", hoop_comm_register(comm, mine, 1, NULL));
    ARGUMENT("comm", hoop_comm_deregister(NULL, mine));
}

/* A handle can be deregistered once, and only on its own comm, however many others exist. */
static void test_registrations(void **state)
{
    (void)state;
    char mine[64];
    void *handles[4];
    hoop_comm_t other = NULL;
    assert_int_equal(hoop_comm_init_all(&other, 1, NULL), HOOP_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hoop_comm_register(comm, mine, sizeof(mine), &handles[i]), HOOP_OK);
    }
    USAGE("0x", hoop_comm_deregister(other, handles[1]));
    assert_int_equal(hoop_comm_deregister(comm, handles[1]), HOOP_OK);
    USAGE("0x", hoop_comm_deregister(comm, handles[1]));
    assert_int_equal(hoop_comm_register(comm, mine, sizeof(mine), &handles[3]), HOOP_OK);
    USAGE("0x", hoop_comm_deregister(comm, handles[1]));
    USAGE("0x", hoop_comm_deregister(comm, mine));
    assert_int_equal(hoop_comm_deregister(comm, handles[0]), HOOP_OK);
    assert_int_equal(hoop_comm_deregister(comm, handles[2]), HOOP_OK);
    assert_int_equal(hoop_comm_deregister(comm, NULL), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(other), HOOP_OK);
    assert_int_equal(hoop_comm_deregister(comm, handles[3]), HOOP_OK);
}

/* A thread whose calls all succeeded: its last result, and then its error text. */
static void *make_no_mistake(void *arg)
{
    char *sentence = arg;
    hoop_comm_t own = NULL, part = NULL;
    hoop_stream_t stream = NULL;
    void *memory = NULL;
    int x = 1;
    const bool good = hoop_comm_init_all(&own, 1, NULL) == HOOP_OK &&
                      hoop_comm_split(own, 0, 0, &part, NULL) == HOOP_OK &&
                      hoop_mem_alloc(&memory, 5000, HOOP_MEM_HOST) == HOOP_OK &&
                      hoop_mem_free(memory) == HOOP_OK && hoop_stream_create(&stream) == HOOP_OK &&
                      hoop_all_reduce(&x, &x, 1, HOOP_INT, HOOP_SUM, part, stream) == HOOP_OK &&
                      hoop_stream_destroy(stream) == HOOP_OK &&
                      hoop_comm_destroy(part) == HOOP_OK && hoop_comm_destroy(own) == HOOP_OK;
    (void)snprintf(sentence, 200, "%s", hoop_get_last_error(NULL));
    return good ? arg : NULL;
}

static void test_no_mistake(void **state)
{
    (void)state;
    char sentence[200];
    void *good = NULL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_no_mistake, sentence), 0);
    assert_int_equal(pthread_join(thread, &good), 0);
    assert_non_null(good);
    assert_string_equal(sentence, "");
}

static void test_streams(void **state)
{
    (void)state;
    hoop_stream_t foreign = (hoop_stream_t)(void *)&out;
    const hoop_ticket_t none = {.opaque = {77, 78}};
    ARGUMENT("stream is NULL", hoop_stream_create(NULL));
    LACKING("hoop_stream_create", hoop_stream_destroy(foreign));
    ARGUMENT("stream is NULL", hoop_stream_synchronize(NULL));
    LACKING("hoop_stream_create", hoop_stream_synchronize(foreign));
    ARGUMENT("stream is NULL", hoop_stream_query(NULL));
    LACKING("hoop_stream_create", hoop_stream_query(foreign));
    ARGUMENT("stream is NULL", hoop_stream_get_fd(NULL, &out.number));
    ARGUMENT("fd is NULL", hoop_stream_get_fd(foreign, NULL));
    ARGUMENT("stream is NULL", hoop_stream_record(NULL, &out.ticket));
    ARGUMENT("ticket is NULL", hoop_stream_record(foreign, NULL));
    ARGUMENT("is not a ticket", hoop_ticket_wait(none, 0));
    ARGUMENT("is not a ticket", hoop_ticket_query(none));
    ARGUMENT("stream is NULL", hoop_stream_wait_ticket(NULL, none));
}

static void test_inspection(void **state)
{
    (void)state;
    char text[64] = "as it was";
    ARGUMENT("needed", hoop_info_json(NULL, text, sizeof(text), NULL));
    ARGUMENT("buf", hoop_info_json(NULL, NULL, 5, &out.needed));
    ARGUMENT("needed",
             hoop_explain_json(comm, "all_reduce", 1, HOOP_FLOAT, HOOP_SUM, NULL, 0, NULL));
    ARGUMENT("buf",
             hoop_explain_json(comm, "all_reduce", 1, HOOP_FLOAT, HOOP_SUM, NULL, 5, &out.needed));
    ARGUMENT("(NULL)", hoop_explain_json(comm, NULL, 1, HOOP_FLOAT, HOOP_SUM, text, sizeof(text),
                                         &out.needed));
    ARGUMENT("'all_produce'", hoop_explain_json(comm, "all_produce", 1, HOOP_FLOAT, HOOP_SUM, text,
                                                sizeof(text), &out.needed));
    ARGUMENT("alltoallv", hoop_explain_json(comm, "alltoallv", 1, HOOP_FLOAT, HOOP_SUM, text,
                                            sizeof(text), &out.needed));
    ARGUMENT("comm is NULL", hoop_explain_json(NULL, "all_reduce", 1, HOOP_FLOAT, HOOP_SUM, text,
                                               sizeof(text), &out.needed));
    ARGUMENT("datatype is 55, expected 0 to 11",
             hoop_explain_json(comm, "all_reduce", 1, (hoop_datatype_t)55, HOOP_SUM, text,
                               sizeof(text), &out.needed));
    ARGUMENT("op is 55, expected 0 to 4",
             hoop_explain_json(comm, "all_reduce", 1, HOOP_FLOAT, (hoop_red_op_t)55, text,
                               sizeof(text), &out.needed));
    ARGUMENT("address space", hoop_explain_json(comm, "all_reduce", SIZE_MAX, HOOP_FLOAT, HOOP_SUM,
                                                text, sizeof(text), &out.needed));
    assert_string_equal(text, "as it was");
    hoop_setting_t setting;
    size_t behind = 100000;
    ARGUMENT("cursor", hoop_setting_next(NULL, &setting));
    ARGUMENT("setting", hoop_setting_next(&out.cursor, NULL));
    assert_int_equal(hoop_setting_next(&behind, &setting), HOOP_INVALID_ARGUMENT);
    assert_int_equal(behind, 100000);
}

static int prepare(void **state)
{
    (void)state;
    memset(&out, 0x33, sizeof(out));
    return 0;
}

/* Nothing was written, and the comm still works. */
static int verify(void **state)
{
    (void)state;
    const unsigned char *bytes = (const unsigned char *)&out;
    int value = 3;
    for (size_t i = 0; i < sizeof(out); i++) {
        assert_int_equal(bytes[i], 0x33);
    }
    assert_int_equal(hoop_all_reduce(&value, &value, 1, HOOP_INT32, HOOP_SUM, comm, NULL), HOOP_OK);
    return value == 3 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_births, prepare, verify),
        cmocka_unit_test_setup_teardown(test_comms, prepare, verify),
        cmocka_unit_test_setup_teardown(test_scalars, prepare, verify),
        cmocka_unit_test_setup_teardown(test_memory, prepare, verify),
        cmocka_unit_test_setup_teardown(test_registrations, prepare, verify),
        cmocka_unit_test_setup_teardown(test_no_mistake, prepare, verify),
        cmocka_unit_test_setup_teardown(test_streams, prepare, verify),
        cmocka_unit_test_setup_teardown(test_inspection, prepare, verify),
    };
    if (hoop_comm_init_all(&comm, 1, NULL) != HOOP_OK) {
        (void)fprintf(stderr, "no comm: %s\n", hoop_get_last_error(NULL));
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return hoop_comm_destroy(comm) == HOOP_OK ? failed : 1;
}

/*
 * Threads with a pending cancellation, which acts at the next cancellation point, call every
 * function that may make system calls: none of them is a cancellation point. Otherwise locks would
 * stay taken, and neither rank nor process would ever end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "hoop.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RANKS 2
#define COUNT 100000      /* floats: more than a rank publishes at once */
#define PATIENCE_MS 30000 /* for both ranks to return */

/* Shared by both ranks, which are threads. */
static struct world {
    hoop_unique_id_t id;
    char url[64];
    hoop_comm_t comms[RANKS], others[RANKS];
    hoop_stream_t streams[RANKS];
    hoop_ticket_t tickets[RANKS];
    float *in[RANKS], *out[RANKS];
    float plain[RANKS][COUNT];
} world;

struct caller {
    pthread_t thread;
    hoop_result_t (*call)(int rank);
    int rank;
    hoop_result_t result;
    bool back;         /* the call has returned */
    _Atomic bool over; /* the thread has ended, in either way */
};

static void caller_over(void *arg)
{
    struct caller *caller = arg;
    atomic_store(&caller->over, true);
}

static void *caller_main(void *arg)
{
    struct caller *caller = arg;
    pthread_cleanup_push(caller_over, caller);
    (void)pthread_cancel(pthread_self());
    caller->result = caller->call(caller->rank);
    caller->back = true;
    pthread_cleanup_pop(1);
    return NULL;
}

/* Calls the function on both ranks at the same time. */
static void call(const char *name, hoop_result_t (*function)(int rank))
{
    static struct caller callers[RANKS];
    const uint64_t deadline = hoop_deadline_ns(PATIENCE_MS);
    for (int r = 0; r < RANKS; r++) {
        callers[r] = (struct caller){.call = function, .rank = r};
        assert_int_equal(pthread_create(&callers[r].thread, NULL, caller_main, &callers[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        while (!atomic_load(&callers[r].over) && hoop_now_ns() < deadline) {
            usleep(100);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        if (atomic_load(&callers[r].over)) {
            pthread_join(callers[r].thread, NULL);
        }
        if (!callers[r].back || callers[r].result != HOOP_OK) {
            fail_msg("%s, rank %d: %s", name, r,
                     callers[r].back                 ? hoop_get_error_name(callers[r].result)
                     : atomic_load(&callers[r].over) ? "was cancelled inside"
                                                     : "hangs");
        }
    }
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static hoop_result_t get_unique_id(int rank)
{
    hoop_unique_id_t another;
    return hoop_get_unique_id(rank == 0 ? &world.id : &another);
}

static hoop_result_t init_rank(int rank)
{
    return hoop_comm_init_rank(&world.comms[rank], RANKS, world.id, rank);
}

static hoop_result_t init_url(int rank)
{
    return hoop_comm_init_url(&world.others[rank], world.url, RANKS, rank, NULL);
}

static hoop_result_t init_all(int rank)
{
    hoop_comm_t comms[RANKS];
    hoop_result_t result = hoop_comm_init_all(comms, RANKS, NULL);
    for (int r = 0; r < RANKS && result == HOOP_OK; r++) {
        result = rank == 0 ? hoop_comm_abort(comms[r]) : HOOP_OK;
        result = result == HOOP_OK ? hoop_comm_destroy(comms[r]) : result;
    }
    return result;
}

static hoop_result_t split(int rank)
{
    return hoop_comm_split(world.comms[rank], 0, rank, &world.others[rank], NULL);
}

static hoop_result_t shrink(int rank)
{
    return hoop_comm_shrink(world.comms[rank], NULL, 0, &world.others[rank], NULL,
                            HOOP_SHRINK_DEFAULT);
}

static hoop_result_t grow(int rank)
{
    hoop_unique_id_t id;
    hoop_result_t result = rank == 0 ? hoop_comm_get_unique_id(world.comms[rank], &id) : HOOP_OK;
    return result == HOOP_OK ? hoop_comm_grow(world.comms[rank], RANKS, rank == 0 ? &id : NULL, -1,
                                              &world.others[rank], NULL)
                             : result;
}

static hoop_result_t destroy(int rank)
{
    return hoop_comm_destroy(world.others[rank]);
}

static hoop_result_t finalize(int rank)
{
    const hoop_result_t result = hoop_comm_finalize(world.others[rank]);
    return result == HOOP_OK ? destroy(rank) : result;
}

/* Each rank names itself as root. The one that compares last finds out where both were called. */
static hoop_result_t finalize_mismatch(int rank)
{
    float x = 1;
    (void)hoop_bcast(&x, 1, HOOP_FLOAT, rank, world.others[rank], NULL);
    (void)hoop_comm_finalize(world.others[rank]);
    return destroy(rank);
}

static hoop_result_t leave(int rank)
{
    const hoop_result_t result = hoop_comm_leave(world.others[rank]);
    return result == HOOP_OK ? destroy(rank) : result;
}

static hoop_result_t abort_both(int rank)
{
    const hoop_result_t result = hoop_comm_abort(world.others[rank]);
    return result == HOOP_OK ? destroy(rank) : result;
}

static hoop_result_t revoke_both(int rank)
{
    const hoop_result_t result = hoop_comm_revoke(world.others[rank], HOOP_REVOKE_DEFAULT);
    return result == HOOP_OK ? destroy(rank) : result;
}

static hoop_result_t mem_alloc(int rank)
{
    void *in = NULL, *out = NULL;
    hoop_result_t result = hoop_mem_alloc(&in, COUNT * sizeof(float), HOOP_MEM_HOST);
    result =
        result == HOOP_OK ? hoop_mem_alloc(&out, COUNT * sizeof(float), HOOP_MEM_HOST) : result;
    world.in[rank] = in;
    world.out[rank] = out;
    return result;
}

static hoop_result_t free_memory(int rank)
{
    const hoop_result_t result = hoop_mem_free(world.in[rank]);
    return result == HOOP_OK ? hoop_mem_free(world.out[rank]) : result;
}

static hoop_result_t sum(int rank, float *in, float *out, size_t count, hoop_stream_t stream)
{
    return hoop_all_reduce(in, out, count, HOOP_FLOAT, HOOP_SUM, world.comms[rank], stream);
}

static hoop_result_t all_reduce(int rank)
{
    float x = 1;
    hoop_result_t result = sum(rank, &x, &x, 1, NULL);
    result = result == HOOP_OK ? sum(rank, world.in[rank], world.out[rank], COUNT, NULL) : result;
    return result == HOOP_OK ? sum(rank, world.plain[rank], world.plain[rank], COUNT, NULL)
                             : result;
}

/* A group with both kinds of operation: an exchange, and a sum. */
static hoop_result_t put(int rank, hoop_stream_t stream)
{
    hoop_comm_t comm = world.comms[rank];
    hoop_result_t result = hoop_group_start();
    result = result == HOOP_OK
                 ? hoop_send(world.plain[rank], COUNT / 2, HOOP_FLOAT, 1 - rank, comm, stream)
                 : result;
    result = result == HOOP_OK
                 ? hoop_recv(world.out[rank], COUNT / 2, HOOP_FLOAT, 1 - rank, comm, stream)
                 : result;
    result = result == HOOP_OK ? sum(rank, world.in[rank], world.in[rank], COUNT, stream) : result;
    const hoop_result_t ended = hoop_group_end();
    return result == HOOP_OK ? ended : result;
}

static hoop_result_t group(int rank)
{
    return put(rank, NULL);
}

static hoop_result_t stream_create(int rank)
{
    return hoop_stream_create(&world.streams[rank]);
}

static hoop_result_t stream_get_fd(int rank)
{
    int fd = -1;
    return hoop_stream_get_fd(world.streams[rank], &fd);
}

static hoop_result_t stream_group(int rank)
{
    const hoop_result_t result = put(rank, world.streams[rank]);
    return result == HOOP_OK ? hoop_stream_record(world.streams[rank], &world.tickets[rank])
                             : result;
}

static hoop_result_t stream_wait_ticket(int rank)
{
    return hoop_stream_wait_ticket(world.streams[1 - rank], world.tickets[rank]);
}

static hoop_result_t ticket_query(int rank)
{
    hoop_result_t result = HOOP_IN_PROGRESS;
    while (result == HOOP_IN_PROGRESS) {
        result = hoop_ticket_query(world.tickets[rank]);
    }
    return result;
}

static hoop_result_t ticket_wait(int rank)
{
    return hoop_ticket_wait(world.tickets[rank], -1);
}

static hoop_result_t stream_synchronize(int rank)
{
    return hoop_stream_synchronize(world.streams[rank]);
}

static hoop_result_t stream_destroy(int rank)
{
    return hoop_stream_destroy(world.streams[rank]);
}

static hoop_result_t inform(int rank)
{
    static char texts[RANKS][1 << 20];
    size_t needed = 0;
    char *text = texts[rank];
    hoop_result_t result = hoop_info_json(NULL, text, sizeof(texts[0]), &needed);
    result = result == HOOP_OK ? hoop_info_json(world.comms[rank], text, sizeof(texts[0]), &needed)
                               : result;
    return result == HOOP_OK ? hoop_explain_json(world.comms[rank], "all_reduce", COUNT, HOOP_FLOAT,
                                                 HOOP_SUM, text, sizeof(texts[0]), &needed)
                             : result;
}

static hoop_result_t settings(int rank)
{
    size_t cursor = 0;
    hoop_setting_t setting;
    (void)rank;
    return hoop_setting_next(&cursor, &setting);
}

static hoop_result_t linger(int rank)
{
    (void)rank;
    return hoop_linger();
}

/* ---- Tests ---------------------------------------------------------------------------------- */

static void test_births(void **state)
{
    (void)state;
    call("hoop_setting_next", settings); /* the first call of all: it opens the log */
    call("hoop_get_unique_id", get_unique_id);
    call("hoop_comm_init_all", init_all); /* also counts CPUs */
    call("hoop_comm_init_rank", init_rank);
    call("hoop_comm_init_url", init_url);
    call("hoop_comm_destroy", destroy);
    call("hoop_comm_split", split);
    call("hoop_comm_finalize", finalize);
    call("hoop_comm_shrink", shrink);
    call("hoop_comm_leave", leave);
    call("hoop_comm_grow", grow);
    call("hoop_comm_abort", abort_both);
    call("hoop_comm_split", split);
    call("hoop_comm_revoke", revoke_both);
    call("hoop_comm_split", split);
    call("hoop_comm_finalize behind a mismatch", finalize_mismatch);
}

static void test_operations(void **state)
{
    (void)state;
    call("hoop_mem_alloc", mem_alloc);
    call("hoop_all_reduce", all_reduce);
    call("hoop_group_end", group);
    call("hoop_stream_create", stream_create);
    call("hoop_stream_get_fd", stream_get_fd);
    call("hoop_group_end on a stream", stream_group);
    call("hoop_stream_wait_ticket", stream_wait_ticket);
    call("hoop_ticket_wait", ticket_wait);
    call("hoop_ticket_query", ticket_query);
    call("hoop_stream_synchronize", stream_synchronize);
    call("hoop_stream_destroy", stream_destroy);
    call("hoop_mem_free", free_memory);
}

static void test_information(void **state)
{
    (void)state;
    call("hoop_info_json", inform);
    call("hoop_linger", linger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_births),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_information),
    };
    char file[] = "/tmp/hoop-cancelled-XXXXXX";
    const int fd = mkstemp(file);
    if (fd < 0) {
        return 1;
    }
    close(fd);
    (void)snprintf(world.url, sizeof(world.url), "file://%s.url", file);
    setenv("HOOP_DEBUG_FILE", "/dev/stderr", 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return failed;
}

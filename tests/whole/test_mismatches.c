/*
 * Calls that differ between ranks, and what every rank is told. For each collective and for
 * messages, each rank in turn is the one that differs, with 2, 3 and 5 ranks: which rank reports
 * it, which two ranks differ, and what both of them really called. Also when a root is operations
 * ahead of the others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/collective.h"
#include "harness/sanitizer.h"
#include "hoop.h"
#include "transports/signature.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MOST 5
#define ROOM (4 * MOST)
#define CASES (HOOP_COLL_COUNT + 1) /* the last one: messages */

struct caller {
    pthread_t thread;
    const hoop_unique_id_t *id;
    int rank, n;
    unsigned which, around; /* broadcasts from rank 0 before it, and after it */
    size_t count;
    hoop_result_t result;
    char called[96], sentence[512];
    int32_t in[ROOM], out[ROOM];
    hoop_comm_t comm; /* for small_main() */
};

/* Error texts name the function below from which a rank made a call. */
#define NOINLINE __attribute__((noinline))

/* Sends to the next rank and receives from the one before; only what is received differs. */
static NOINLINE hoop_result_t pass_on(struct caller *me, hoop_comm_t comm)
{
    hoop_group_start();
    hoop_send(me->in, 3, HOOP_INT32, (me->rank + 1) % me->n, comm, NULL);
    hoop_recv(me->out, me->count, HOOP_INT32, (me->rank + me->n - 1) % me->n, comm, NULL);
    return hoop_group_end();
}

static NOINLINE void make_call(struct caller *me, hoop_comm_t comm)
{
    size_t counts[MOST], displs[MOST];
    for (int i = 0; i < me->n; i++) {
        counts[i] = me->count;
        displs[i] = (size_t)i * me->count;
    }
    switch (me->which) {
    case HOOP_COLL_ALL_REDUCE:
        me->result = hoop_all_reduce(me->in, me->out, me->count, HOOP_INT32, HOOP_SUM, comm, NULL);
        break;
    case HOOP_COLL_REDUCE_SCATTER:
        me->result =
            hoop_reduce_scatter(me->in, me->out, me->count, HOOP_INT32, HOOP_SUM, comm, NULL);
        break;
    case HOOP_COLL_ALL_GATHER:
        me->result = hoop_all_gather(me->in, me->out, me->count, HOOP_INT32, comm, NULL);
        break;
    case HOOP_COLL_BROADCAST:
        me->result = hoop_broadcast(me->in, me->out, me->count, HOOP_INT32, 0, comm, NULL);
        break;
    case HOOP_COLL_REDUCE:
        me->result = hoop_reduce(me->in, me->out, me->count, HOOP_INT32, HOOP_SUM, 0, comm, NULL);
        break;
    case HOOP_COLL_GATHER:
        me->result = hoop_gather(me->in, me->out, me->count, HOOP_INT32, 0, comm, NULL);
        break;
    case HOOP_COLL_SCATTER:
        me->result = hoop_scatter(me->in, me->out, me->count, HOOP_INT32, 0, comm, NULL);
        break;
    case HOOP_COLL_ALLTOALL:
        me->result = hoop_alltoall(me->in, me->out, me->count, HOOP_INT32, comm, NULL);
        break;
    case HOOP_COLL_ALLTOALLV:
        me->result =
            hoop_alltoallv(me->in, counts, displs, me->out, counts, displs, HOOP_INT32, comm, NULL);
        break;
    case HOOP_COLL_BARRIER:
        me->result = hoop_barrier(comm, NULL);
        break;
    default:
        me->result = pass_on(me, comm);
        break;
    }
}

static NOINLINE void end_with_barrier(struct caller *me, hoop_comm_t comm)
{
    me->result = hoop_barrier(comm, NULL);
}

/* Without the count, which alltoallv may name or not: one pair differs, or all do. */
static void describe(struct caller *me)
{
    const bool alltoallv = me->which == HOOP_COLL_ALLTOALLV;
    const struct hoop_signature signature = {
        .collective = me->which,
        .type = HOOP_INT32,
        .op = HOOP_SUM,
        .count = me->count,
    };
    if (alltoallv) {
        (void)snprintf(me->called, sizeof(me->called), "alltoallv ");
    } else {
        hoop_signature_describe(&signature, me->called, sizeof(me->called));
    }
}

static void *caller_main(void *arg)
{
    struct caller *me = arg;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_comm_t comm = HOOP_COMM_NULL;
    config.op_timeout_ms = 60000;
    me->result = hoop_comm_init_rank_config(&comm, me->n, *me->id, me->rank, &config);
    for (unsigned i = 0; i < 2 * me->around + 1 && me->result == HOOP_OK; i++) {
        if (i == me->around) {
            make_call(me, comm);
        } else {
            me->result = hoop_broadcast(me->in, me->out, 1, HOOP_INT32, 0, comm, NULL);
        }
    }
    /* A rank whose part is over is told in one of its next operations, at the latest in a
     * barrier. */
    if (me->result == HOOP_OK) {
        end_with_barrier(me, comm);
    }
    (void)snprintf(me->sentence, sizeof(me->sentence), "%s", hoop_get_last_error(NULL));
    hoop_comm_destroy(comm);
    return NULL;
}

/* The rank in ", rank 3 called " at `at`; *ret_rest: what follows. -1: there is no such text. */
static int named(const char *at, const char *before, const char **ret_rest)
{
    int rank = -1, bytes = 0;
    const size_t skip = strlen(before);
    if (strncmp(at, before, skip) != 0 || sscanf(at + skip, "%d called %n", &rank, &bytes) != 1) {
        return -1;
    }
    *ret_rest = at + skip + bytes;
    return rank;
}

/* Did this rank make that call? Also true for the barrier behind it, if the text says that the
 * other rank's operation is an earlier one. */
static bool did_call(const struct caller *all, const char *what, bool later)
{
    static const char barrier[] = "barrier";
    return strncmp(what, all->called, strlen(all->called)) == 0 ||
           (later && strncmp(what, barrier, strlen(barrier)) == 0);
}

/* If the text says where that rank made this call, the place is right. */
static bool site_is_true(const struct caller *all, int rank, const char *what, const char *sentence)
{
    const struct caller *who = &all[rank];
    const bool first = strncmp(what, who->called, strlen(who->called)) == 0;
    const char *function = who->which < HOOP_COLL_COUNT ? "make_call" : "pass_on";
    char at[64];
    (void)snprintf(at, sizeof(at), " rank %d at ", rank);
    const char *said = strstr(sentence, at);
    if (said == NULL) {
        return true;
    }
    said += strlen(at);
    return (first && strncmp(said, function, strlen(function)) == 0) ||
           (strncmp(what, "barrier", 7) == 0 && strncmp(said, "end_with_barrier", 16) == 0);
}

/* "rank R: operation K differs: rank A called X, rank B called Y": A and B really did, and X is not
 * Y. (Transfers have numbers of their own.) */
static bool is_true(const struct caller *all, const struct caller *me)
{
    static const char heard[] = "the communicator has failed: ";
    const char *at = me->sentence, *rest = NULL;
    char earlier[32], behind[32]; /* when one of the two is in the barrier that follows */
    (void)snprintf(earlier, sizeof(earlier), " as operation %u", me->around + 1);
    (void)snprintf(behind, sizeof(behind), " as operation %u", me->around + 2);
    const bool later =
        strstr(me->sentence, earlier) != NULL || strstr(me->sentence, behind) != NULL;
    unsigned operation = 0;
    int rank = -1, bytes = 0;
    if (sscanf(at, "rank %d: %n", &rank, &bytes) != 1 || rank != me->rank) {
        return false;
    }
    at += bytes;
    at += strncmp(at, heard, strlen(heard)) == 0 ? strlen(heard) : 0;
    bytes = 0;
    if (sscanf(at, "operation %u differs: %n", &operation, &bytes) != 1 || bytes == 0 ||
        (me->which < HOOP_COLL_ALLTOALLV && operation != me->around + 1 && !later)) {
        return false;
    }
    const int a = named(at + bytes, "rank ", &rest);
    if (a < 0 || a >= me->n || !did_call(&all[a], rest, later) ||
        !site_is_true(all, a, rest, me->sentence)) {
        return false;
    }
    const char *next = strstr(rest, ", rank ");
    const int b = next != NULL ? named(next, ", rank ", &rest) : -1;
    return b >= 0 && b < me->n && b != a && did_call(&all[b], rest, later) &&
           site_is_true(all, b, rest, me->sentence) &&
           (all[a].which != all[b].which || all[a].count != all[b].count);
}

static void check(int n, int differs, unsigned which, unsigned around, bool count_only)
{
    struct caller all[MOST];
    hoop_unique_id_t id;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    memset(all, 0, sizeof(all));
    for (int r = 0; r < n; r++) {
        all[r].id = &id;
        all[r].rank = r;
        all[r].n = n;
        all[r].around = around;
        all[r].which = r == differs && !count_only ? (which + 1) % HOOP_COLL_COUNT : which;
        all[r].count = r == differs && count_only ? 4 : 3;
        describe(&all[r]);
    }
    for (int r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&all[r].thread, NULL, caller_main, &all[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(all[r].thread, NULL);
    }
    for (int r = 0; r < n; r++) {
        if (all[r].result != HOOP_MISMATCH || !is_true(all, &all[r])) {
            fail_msg("rank %d of %d, where rank %d called %s and the others %s, says: %s: %s", r, n,
                     differs, all[differs].called, all[(differs + 1) % n].called,
                     hoop_get_error_name(all[r].result), all[r].sentence);
        }
    }
}

static void check_all(int n, unsigned which, unsigned around)
{
    for (int differs = 0; differs < n; differs++) {
        if (which < HOOP_COLL_COUNT) {
            check(n, differs, which, around, false);
        }
        if (which != HOOP_COLL_BARRIER) {
            check(n, differs, which, around, true);
        }
    }
}

static void test_sentences(void **state)
{
    static const int sizes[] = {2, 3, 5};
    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (unsigned which = 0; which < CASES; which++) {
            check_all(sizes[s], which, 0);
        }
    }
}

static void test_ahead(void **state)
{
    (void)state;
    for (unsigned which = 0; which < CASES; which++) {
        check_all(3, which, 5);
    }
}

/* ---- Threads that have little room ----------------------------------------------------------- */

#define SMALL_STACK 20480 /* bytes; to find out about a mismatch takes more */

static void *small_main(void *arg)
{
    struct caller *me = arg;
    me->result = hoop_all_reduce(me->in, me->out, me->count, HOOP_INT32, HOOP_SUM, me->comm, NULL);
    return NULL;
}

static void test_small_stacks(void **state)
{
    struct caller all[2] = {{.count = 1}, {.count = 2}};
    hoop_comm_t comms[2];
    pthread_attr_t attributes;
    (void)state;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    if (!MEMORY_IS_PLAIN || pthread_attr_setstacksize(&attributes, SMALL_STACK) != 0) {
        pthread_attr_destroy(&attributes);
        skip();
    }
    assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
    for (int rank = 0; rank < 2; rank++) {
        all[rank].comm = comms[rank];
        assert_int_equal(pthread_create(&all[rank].thread, &attributes, small_main, &all[rank]), 0);
    }
    for (int rank = 0; rank < 2; rank++) {
        pthread_join(all[rank].thread, NULL);
        assert_int_equal(all[rank].result, HOOP_MISMATCH);
        assert_int_equal(hoop_comm_destroy(comms[rank]), HOOP_OK);
    }
    pthread_attr_destroy(&attributes);
}

/* Comms are made of others by an all_gather that no rank has called by that name. */
static void *split_or_sum(void *arg)
{
    struct caller *me = arg;
    hoop_comm_t part = HOOP_COMM_NULL;
    me->result = me->rank == 0
                     ? hoop_comm_split(me->comm, 0, 0, &part, NULL)
                     : hoop_all_reduce(me->in, me->out, 12, HOOP_INT32, HOOP_SUM, me->comm, NULL);
    snprintf(me->sentence, sizeof(me->sentence), "%s", hoop_get_last_error(NULL));
    return NULL;
}

static void test_births(void **state)
{
    (void)state;
    static struct caller callers[2];
    hoop_comm_t comms[2];
    assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
    for (int r = 0; r < 2; r++) {
        callers[r] = (struct caller){.rank = r, .comm = comms[r]};
        assert_int_equal(pthread_create(&callers[r].thread, NULL, split_or_sum, &callers[r]), 0);
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(callers[r].thread, NULL);
        assert_int_equal(callers[r].result, HOOP_MISMATCH);
        assert_non_null(strstr(callers[r].sentence, "rank 0 called hoop_comm_split() or the like"));
        assert_non_null(strstr(callers[r].sentence, "rank 1 called all_reduce of 12 int32 sum"));
        assert_int_equal(hoop_comm_destroy(comms[r]), HOOP_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sentences),
                                       cmocka_unit_test(test_ahead), cmocka_unit_test(test_births),
                                       cmocka_unit_test(test_small_stacks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Comms made in one process: splits by several threads, and by one thread in a group; births that
 * are not waited for; configs of other versions; and that nothing leaks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/fds.h"
#include "harness/sanitizer.h"
#include "hoop.h"
#include "membership/membership_inside.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define N 5
#define PATIENCE_MS 30000

static hoop_result_t sum(hoop_comm_t comm, int64_t mine, int64_t *ret)
{
    return hoop_all_reduce(&mine, ret, 1, HOOP_INT64, HOOP_SUM, comm, NULL);
}

/* The color with which a rank splits; rank 4 gets no comm. */
static int color_of(int rank)
{
    return rank == 4 ? HOOP_SPLIT_NOCOLOR : rank % 2;
}

static int check_child(hoop_comm_t child, int rank)
{
    int n = -1, me = -1;
    if (color_of(rank) < 0) {
        return child == HOOP_COMM_NULL ? 0 : __LINE__;
    }
    if (child == HOOP_COMM_NULL || hoop_comm_count(child, &n) != HOOP_OK ||
        hoop_comm_user_rank(child, &me) != HOOP_OK) {
        return __LINE__;
    }
    return n == 2 && me == (rank < 2 ? 1 : 0) ? 0 : __LINE__; /* the keys are -rank */
}

/* ---- By threads --------------------------------------------------------------------------------
 */

struct splitter {
    pthread_t thread;
    int rank, wrong;
    hoop_comm_t comm;
};

/* Splits, and splits the part again; the old comms still work. */
static int split_twice(const struct splitter *me)
{
    hoop_comm_t half = NULL, one = NULL;
    int64_t got = 0;
    if (hoop_comm_split(me->comm, color_of(me->rank), -me->rank, &half, NULL) != HOOP_OK) {
        return __LINE__;
    }
    const int wrong = check_child(half, me->rank);
    if (wrong != 0) {
        return wrong;
    }
    if (half != NULL) {
        if (sum(half, me->rank, &got) != HOOP_OK || got != (me->rank % 2 ? 4 : 2) ||
            hoop_comm_split(half, me->rank, 0, &one, NULL) != HOOP_OK ||
            sum(one, me->rank, &got) != HOOP_OK || got != me->rank ||
            hoop_comm_destroy(half) != HOOP_OK || sum(one, 7, &got) != HOOP_OK || got != 7 ||
            hoop_comm_destroy(one) != HOOP_OK) {
            return __LINE__;
        }
    }
    return sum(me->comm, 1, &got) == HOOP_OK && got == N ? 0 : __LINE__;
}

static void *splitter_main(void *arg)
{
    struct splitter *me = arg;
    for (int i = 0; i < 10 && me->wrong == 0; i++) {
        me->wrong = split_twice(me);
    }
    return NULL;
}

static void test_split_by_threads(void **state)
{
    struct splitter all[N];
    hoop_comm_t comms[N];
    (void)state;
    assert_int_equal(hoop_comm_init_all(comms, N, NULL), HOOP_OK);
    for (int rank = 0; rank < N; rank++) {
        all[rank] = (struct splitter){.rank = rank, .comm = comms[rank]};
        assert_int_equal(pthread_create(&all[rank].thread, NULL, splitter_main, &all[rank]), 0);
    }
    for (int rank = 0; rank < N; rank++) {
        pthread_join(all[rank].thread, NULL);
        assert_int_equal(all[rank].wrong, 0);
    }
    for (int rank = 0; rank < N; rank++) {
        assert_int_equal(hoop_comm_destroy(comms[rank]), HOOP_OK);
    }
}

/* ---- By one thread -----------------------------------------------------------------------------
 */

static void split_in_group(hoop_comm_t *comms, hoop_comm_t *children, const hoop_config_t *config,
                           hoop_result_t expected)
{
    hoop_group_start();
    for (int rank = 0; rank < N; rank++) {
        assert_int_equal(
            hoop_comm_split(comms[rank], color_of(rank), -rank, &children[rank], config), HOOP_OK);
    }
    assert_int_equal(hoop_group_end(), expected);
}

static void sum_in_group(hoop_comm_t *comms, int64_t expected)
{
    int64_t in[N], out[N] = {0};
    hoop_group_start();
    for (int rank = 0; rank < N; rank++) {
        in[rank] = rank;
        if (comms[rank] != NULL) {
            assert_int_equal(
                hoop_all_reduce(&in[rank], &out[rank], 1, HOOP_INT64, HOOP_SUM, comms[rank], NULL),
                HOOP_OK);
        }
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int rank = 0; rank < N; rank++) {
        const int64_t want = expected >= 0 ? expected : rank % 2 ? 4 : 2;
        assert_true(comms[rank] == NULL || out[rank] == want);
    }
}

static void destroy(hoop_comm_t *comms, int n)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(hoop_comm_destroy(comms[i]), HOOP_OK);
    }
}

static long status_kib(const char *what)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, what, strlen(what)) == 0) {
            (void)sscanf(line + strlen(what), ": %ld", &kib);
        }
    }
    fclose(file);
    return kib;
}

/* Waits, because both ends of a closed connection are gone only a little later. */
static bool fds_fall_to(int most)
{
    const uint64_t deadline = hoop_deadline_ns(PATIENCE_MS);
    const struct timespec nap = {.tv_nsec = 1000000};
    while (fds_count(0) > most && hoop_now_ns() < deadline) {
        nanosleep(&nap, NULL);
    }
    return fds_count(0) <= most;
}

/* The first rounds fill caches; from then on nothing grows. */
static void test_churn(void **state)
{
    hoop_comm_t comms[N], children[N];
    long rss = 0, threads = 0;
    int fds = 0;
    (void)state;
    assert_int_equal(hoop_comm_init_all(comms, N, NULL), HOOP_OK);
    for (int i = 0; i < 300; i++) {
        split_in_group(comms, children, NULL, HOOP_OK);
        for (int rank = 0; rank < N; rank++) {
            assert_int_equal(check_child(children[rank], rank), 0);
        }
        sum_in_group(children, -1);
        destroy(children, N);
        if (i == 99) {
            rss = status_kib("VmRSS");
            threads = status_kib("Threads");
            fds = fds_count(0);
        }
    }
    assert_true(fds_fall_to(fds));
    assert_int_equal(status_kib("Threads"), threads);
    assert_true(!MEMORY_IS_PLAIN || status_kib("VmRSS") < rss + 1024);
    sum_in_group(comms, 10);
    destroy(comms, N);
}

/* Splits of one comm and births by ids, all in one group. */
static void test_many_in_a_group(void **state)
{
    hoop_comm_t comms[N], one[N], other[N], fresh[2];
    hoop_unique_id_t ids[2];
    (void)state;
    assert_int_equal(hoop_comm_init_all(comms, N, NULL), HOOP_OK);
    assert_int_equal(hoop_get_unique_id(&ids[0]), HOOP_OK);
    assert_int_equal(hoop_get_unique_id(&ids[1]), HOOP_OK);
    hoop_group_start();
    for (int rank = 0; rank < N; rank++) {
        hoop_comm_split(comms[rank], 0, 0, &one[rank], NULL);
        hoop_comm_split(comms[rank], color_of(rank), -rank, &other[rank], NULL);
    }
    for (int rank = 0; rank < 2; rank++) {
        hoop_comm_init_rank_scalable(&fresh[rank], 2, rank, 2, ids, NULL);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    sum_in_group(one, 10);
    sum_in_group(other, -1);
    for (int rank = 0; rank < N; rank++) {
        assert_int_equal(check_child(other[rank], rank), 0);
        assert_int_equal(hoop_comm_finalize(one[rank]), HOOP_OK);
    }
    destroy(fresh, 2);
    destroy(other, N);
    destroy(one, N);
    destroy(comms, N);
}

/* A split fails if its comm has failed; a bad argument has no effect. */
static void test_refused(void **state)
{
    hoop_comm_t comms[2], child = NULL;
    (void)state;
    assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
    assert_int_equal(hoop_comm_split(comms[0], -2, 0, &child, NULL), HOOP_INVALID_ARGUMENT);
    assert_non_null(strstr(hoop_get_last_error(NULL), "color is -2"));
    assert_int_equal(hoop_comm_split(NULL, 0, 0, &child, NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_split(comms[0], 0, 0, NULL, NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_revoke(comms[1], HOOP_REVOKE_DEFAULT), HOOP_OK);
    assert_int_equal(hoop_comm_split(comms[0], 0, 0, &child, NULL), HOOP_ABORTED);
    assert_null(child);
    destroy(comms, 2);
}

/* The name by which processes find this one may be held for a moment by a child that was forked
 * when the last comm ended; here the test holds it. The next comm takes another name. */
static void test_name_is_held(void **state)
{
    (void)state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    hoop_comm_t comms[N] = {NULL};
    assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
    destroy(comms, 2);
    const size_t bytes = strlen(hoop_peer_listener());
    memcpy(at.sun_path + 1, hoop_peer_listener(), bytes);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes)),
                     0);
    assert_int_equal(hoop_comm_init_all(comms, 2, NULL), HOOP_OK);
    close(fd);
    sum_in_group(comms, 1);
    destroy(comms, 2);
}

/* Two ranks grow to four: the old ranks keep their numbers, and the old comm is no longer
 * needed. */
static void test_grow(void **state)
{
    hoop_comm_t old[2], grown[N] = {NULL};
    hoop_unique_id_t id, other;
    (void)state;
    assert_int_equal(hoop_comm_init_all(old, 2, NULL), HOOP_OK);
    assert_int_equal(hoop_get_unique_id(&other), HOOP_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hoop_comm_get_unique_id(old[1], &id), HOOP_OK);
        hoop_group_start();
        for (int rank = 0; rank < 4; rank++) {
            assert_int_equal(hoop_comm_grow(rank < 2 ? old[rank] : NULL, 4, rank > 0 ? &id : NULL,
                                            rank < 2 ? -1 : rank, &grown[rank], NULL),
                             HOOP_OK);
        }
        assert_int_equal(hoop_group_end(), HOOP_OK);
        sum_in_group(grown, 6);
        for (int rank = 0; rank < 4; rank++) {
            int me = -1;
            assert_int_equal(hoop_comm_user_rank(grown[rank], &me), HOOP_OK);
            assert_int_equal(me, rank);
        }
        destroy(grown, 4);
    }
    assert_int_equal(hoop_comm_grow(old[0], 1, NULL, -1, grown, NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_grow(old[0], 3, NULL, 0, grown, NULL), HOOP_INVALID_ARGUMENT);
    assert_int_equal(hoop_comm_grow(old[0], 3, &other, -1, grown, NULL), HOOP_INVALID_ARGUMENT);
    hoop_group_start(); /* no rank has an id */
    for (int rank = 0; rank < 2; rank++) {
        (void)hoop_comm_grow(old[rank], 3, NULL, -1, &grown[rank], NULL);
    }
    assert_int_equal(hoop_group_end(), HOOP_INVALID_ARGUMENT);
    assert_non_null(strstr(hoop_get_last_error(NULL), "0 ranks gave an id"));
    hoop_group_start();
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(hoop_barrier(old[rank], NULL), HOOP_OK);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    destroy(old, 2);
}

/* ---- Not waited for ----------------------------------------------------------------------------
 */

static hoop_result_t await(hoop_comm_t comm)
{
    const uint64_t deadline = hoop_deadline_ns(PATIENCE_MS);
    const struct timespec nap = {.tv_nsec = 100000};
    hoop_result_t result = HOOP_IN_PROGRESS;
    while (result == HOOP_IN_PROGRESS && hoop_now_ns() < deadline) {
        nanosleep(&nap, NULL);
        assert_int_equal(hoop_comm_get_async_error(comm, &result), HOOP_OK);
    }
    return result;
}

static void assert_in_progress(hoop_comm_t comm)
{
    hoop_result_t async = HOOP_OK;
    int64_t got = 0;
    assert_int_equal(hoop_comm_get_async_error(comm, &async), HOOP_OK);
    assert_int_equal(async, HOOP_IN_PROGRESS);
    assert_int_equal(sum(comm, 1, &got), HOOP_INVALID_USAGE);
    assert_int_equal(hoop_barrier(comm, NULL), HOOP_INVALID_USAGE);
    assert_int_equal(hoop_comm_finalize(comm), HOOP_INVALID_USAGE);
    hoop_group_start();
    (void)hoop_barrier(comm, NULL); /* refused now, or at the end */
    assert_int_equal(hoop_group_end(), HOOP_INVALID_USAGE);
}

static void test_init_in_background(void **state)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_comm_t comms[2] = {NULL, NULL};
    hoop_unique_id_t id;
    int n = -1;
    (void)state;
    config.blocking = 0;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    assert_int_equal(hoop_comm_init_rank_config(&comms[0], 2, id, 0, &config), HOOP_IN_PROGRESS);
    assert_non_null(comms[0]);
    assert_in_progress(comms[0]);
    assert_int_equal(hoop_comm_count(comms[0], &n), HOOP_INVALID_USAGE);
    assert_int_equal(hoop_comm_init_rank_config(&comms[1], 2, id, 1, &config), HOOP_IN_PROGRESS);
    assert_int_equal(await(comms[0]), HOOP_OK);
    assert_int_equal(await(comms[1]), HOOP_OK);
    assert_int_equal(hoop_comm_count(comms[0], &n), HOOP_OK);
    assert_int_equal(n, 2);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(hoop_comm_finalize(comms[rank]), HOOP_IN_PROGRESS);
        assert_int_equal(await(comms[rank]), HOOP_OK);
        assert_int_equal(hoop_barrier(comms[rank], NULL), HOOP_INVALID_USAGE);
    }
    destroy(comms, 2);
}

/* Only one of two ranks comes: its birth fails, is aborted, or is given up. */
static void test_lonely_in_background(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        hoop_config_t config = HOOP_CONFIG_INITIALIZER;
        hoop_comm_t comm = NULL;
        hoop_unique_id_t id;
        config.blocking = 0;
        config.init_timeout_ms = how == 0 ? 200 : PATIENCE_MS * 10;
        assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
        assert_int_equal(hoop_comm_init_rank_config(&comm, 2, id, 0, &config), HOOP_IN_PROGRESS);
        if (how == 0) {
            assert_int_equal(await(comm), HOOP_TIMEOUT);
            assert_non_null(strstr(hoop_get_last_error(comm), "rank 1"));
        } else if (how == 1) {
            assert_int_equal(hoop_comm_abort(comm), HOOP_OK);
            assert_int_equal(await(comm), HOOP_ABORTED);
        }
        assert_int_equal(hoop_comm_destroy(comm), HOOP_OK);
    }
}

/* A failed birth is over when it is reported: no call finds the comm in progress. */
static void test_failure_is_the_end(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        hoop_config_t config = HOOP_CONFIG_INITIALIZER;
        hoop_result_t result = HOOP_IN_PROGRESS;
        hoop_comm_t comm = NULL;
        hoop_unique_id_t id;
        config.blocking = 0;
        config.init_timeout_ms = 20;
        assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
        assert_int_equal(hoop_comm_init_rank_config(&comm, 2, id, 0, &config), HOOP_IN_PROGRESS);
        while (result == HOOP_IN_PROGRESS) {
            assert_int_equal(hoop_comm_get_async_error(comm, &result), HOOP_OK);
        }
        assert_int_equal(result, HOOP_TIMEOUT);
        assert_int_equal(hoop_barrier(comm, NULL), HOOP_TIMEOUT);
        assert_int_equal(hoop_comm_destroy(comm), HOOP_OK);
    }
}

struct others {
    hoop_comm_t *comms, *children;
    const hoop_config_t *config;
};

/* By another thread, outside the caller's group. */
static void *split_others(void *arg)
{
    const struct others *others = arg;
    for (int rank = 1; rank < N; rank++) {
        (void)hoop_comm_split(others->comms[rank], 0, 0, &others->children[rank], others->config);
    }
    return NULL;
}

/* A comm whose number of ranks is not known yet refuses queued calls, although it may be born
 * before the end of the group. */
static void assert_refused_at_once(hoop_comm_t *comms, hoop_comm_t *children,
                                   const hoop_config_t *config)
{
    const size_t counts[N] = {1, 1, 1, 1, 1}, other_counts[N] = {0}, displs[N] = {0, 1, 2, 3, 4};
    struct others others = {comms, children, config};
    int64_t blocks[2 * N] = {0}, *out = blocks + N;
    pthread_t thread;
    assert_int_equal(hoop_comm_split(comms[0], 0, 0, &children[0], config), HOOP_IN_PROGRESS);
    hoop_group_start();
    assert_int_equal(hoop_all_gather(blocks, out, 1, HOOP_INT64, children[0], NULL),
                     HOOP_INVALID_USAGE);
    assert_int_equal(hoop_alltoall(blocks, out, 1, HOOP_INT64, children[0], NULL),
                     HOOP_INVALID_USAGE);
    assert_int_equal(hoop_reduce_scatter(blocks, out, 1, HOOP_INT64, HOOP_SUM, children[0], NULL),
                     HOOP_INVALID_USAGE);
    assert_int_equal(hoop_alltoallv(blocks, counts, displs, out, other_counts, displs, HOOP_INT64,
                                    children[0], NULL),
                     HOOP_INVALID_USAGE);
    assert_int_equal(pthread_create(&thread, NULL, split_others, &others), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int rank = 0; rank < N; rank++) {
        assert_int_equal(await(children[rank]), HOOP_OK);
        assert_int_equal(await(comms[rank]), HOOP_OK);
    }
    assert_int_equal(hoop_group_end(), HOOP_INVALID_USAGE);
    destroy(children, N);
}

/* A comm whose birth failed before its number of ranks was known says why to every call. */
static void assert_born_dead(hoop_comm_t comm, hoop_result_t why)
{
    const size_t counts[N] = {1}, displs[N] = {0};
    int64_t in = 0, out = 0;
    hoop_comm_t child = NULL;
    char text[256];
    size_t needed = 0;
    assert_int_equal(await(comm), why);
    assert_int_equal(sum(comm, 1, &out), why);
    assert_int_equal(hoop_barrier(comm, NULL), why);
    assert_int_equal(hoop_broadcast(&in, &out, 1, HOOP_INT64, 0, comm, NULL), why);
    assert_int_equal(hoop_send(&in, 1, HOOP_INT64, 0, comm, NULL), why);
    assert_int_equal(hoop_comm_split(comm, 0, 0, &child, NULL), why);
    assert_int_equal(
        hoop_explain_json(comm, "all_reduce", 1, HOOP_INT64, HOOP_SUM, text, sizeof(text), &needed),
        why);
    hoop_group_start();
    assert_int_equal(
        hoop_alltoallv(&in, counts, displs, &out, counts, displs, HOOP_INT64, comm, NULL), why);
    assert_int_equal(hoop_group_end(), why);
}

static void test_split_in_background(void **state)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_comm_t comms[N], children[N];
    (void)state;
    config.blocking = 0;
    assert_int_equal(hoop_comm_init_all(comms, N, NULL), HOOP_OK);
    assert_int_equal(hoop_comm_split(comms[0], 0, 0, &children[0], &config), HOOP_IN_PROGRESS);
    assert_in_progress(children[0]);
    assert_in_progress(comms[0]);
    for (int rank = 1; rank < N; rank++) {
        assert_int_equal(hoop_comm_split(comms[rank], 0, 0, &children[rank], &config),
                         HOOP_IN_PROGRESS);
    }
    for (int rank = 0; rank < N; rank++) {
        assert_int_equal(await(children[rank]), HOOP_OK);
        assert_int_equal(await(comms[rank]), HOOP_OK);
    }
    sum_in_group(children, 10);
    sum_in_group(comms, 10);
    destroy(children, N);
    split_in_group(comms, children, &config, HOOP_IN_PROGRESS);
    for (int rank = 0; rank < N; rank++) {
        assert_int_equal(await(comms[rank]), HOOP_OK);
        assert_int_equal(check_child(children[rank], rank), 0);
    }
    sum_in_group(children, -1);
    destroy(children, N);
    assert_refused_at_once(comms, children, &config);
    /* one rank ends the old comm instead of calling */
    assert_int_equal(hoop_comm_split(comms[0], 0, 0, &children[0], &config), HOOP_IN_PROGRESS);
    assert_int_equal(hoop_comm_abort(comms[1]), HOOP_OK);
    assert_born_dead(children[0], HOOP_ABORTED);
    destroy(children, 1);
    destroy(comms, N);
}

/* ---- Options -----------------------------------------------------------------------------------
 */

static hoop_result_t init_with(const hoop_config_t *config)
{
    hoop_unique_id_t id;
    hoop_comm_t comm = NULL;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    const hoop_result_t result = hoop_comm_init_rank_config(&comm, 1, id, 0, config);
    assert_int_equal(hoop_comm_destroy(comm), HOOP_OK);
    return result;
}

static void test_config(void **state)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    struct {
        hoop_config_t known;
        char more[32];
    } newer = {.known = HOOP_CONFIG_INITIALIZER, .more = "what this version does not know"};
    (void)state;
    config.algo = "no such algorithm";
    assert_int_equal(init_with(&config), HOOP_INVALID_ARGUMENT);
    /* from an older version that did not have this field, or only half of it, in its padding */
    config.size = offsetof(hoop_config_t, algo);
    assert_int_equal(init_with(&config), HOOP_OK);
    config.size = offsetof(hoop_config_t, algo) + 4;
    assert_int_equal(init_with(&config), HOOP_OK);
    config.dead_after_ms = 1;
    assert_int_equal(init_with(&config), HOOP_INVALID_ARGUMENT);
    config.size = offsetof(hoop_config_t, blocking);
    assert_int_equal(init_with(&config), HOOP_OK);
    config.size--;
    assert_int_equal(init_with(&config), HOOP_INVALID_ARGUMENT);
    newer.known.size = sizeof(newer);
    assert_int_equal(init_with(&newer.known), HOOP_INVALID_ARGUMENT);
    newer.known.version = HOOP_VERSION_CODE + 1;
    assert_int_equal(init_with(&newer.known), HOOP_OK);
    newer.known.magic++;
    assert_int_equal(init_with(&newer.known), HOOP_INVALID_ARGUMENT);
    newer.known = (hoop_config_t)HOOP_CONFIG_INITIALIZER;
    newer.known.version = 0;
    assert_int_equal(init_with(&newer.known), HOOP_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_by_threads),
        cmocka_unit_test(test_churn),
        cmocka_unit_test(test_many_in_a_group),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_name_is_held),
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_init_in_background),
        cmocka_unit_test(test_lonely_in_background),
        cmocka_unit_test(test_failure_is_the_end),
        cmocka_unit_test(test_split_in_background),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

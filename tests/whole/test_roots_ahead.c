/*
 * Ranks that are done with a collective before others have called it: roots that have sent, leaves
 * that have sent their part. Ranks are threads, whose links use HOOP_TRANSPORT. With shared memory
 * on one machine the same must hold, though it is done in another way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "hoop.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANKS 3
#define AHEAD 10 /* operations that a rank completes alone */
#define FAR 100  /* more than a rank may be ahead */
#define COUNT 8  /* elements */
#define PATIENCE_S 20

struct rank {
    pthread_t thread;
    const hoop_unique_id_t *id;
    int rank, n, first; /* first: the rank that is ahead */
    hoop_comm_t comm;
    hoop_result_t result;
    bool wrong, alone; /* alone: the waiting rank was not let go in time */
    char sentence[512];
    int32_t in[RANKS * COUNT], out[RANKS * COUNT];
};

static sem_t go;
static pthread_barrier_t together;

/* The rank that is ahead lets all others go. */
static void let_go(int n)
{
    for (int i = 1; i < n; i++) {
        sem_post(&go);
    }
}

static bool was_let_go(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    return sem_timedwait(&go, &until) == 0;
}

static void fill(int32_t *data, int32_t with, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        data[i] = with + (int32_t)i;
    }
}

static bool is_filled(const int32_t *data, int32_t with, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (data[i] != with + (int32_t)i) {
            return false;
        }
    }
    return true;
}

typedef void scene_fn(struct rank *me);

/* Joins, plays a scene, and leaves. */
struct play {
    scene_fn *scene;
    struct rank ranks[RANKS];
};
static struct play play;

static void *rank_main(void *arg)
{
    struct rank *me = arg;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.op_timeout_ms = 60000;
    me->result = hoop_comm_init_rank_config(&me->comm, me->n, *me->id, me->rank, &config);
    if (me->result == HOOP_OK) {
        play.scene(me);
    }
    (void)snprintf(me->sentence, sizeof(me->sentence), "%s", hoop_get_last_error(NULL));
    hoop_comm_destroy(me->comm);
    return NULL;
}

static void run(scene_fn *scene, int n, int first, hoop_result_t expected)
{
    hoop_unique_id_t id;
    play = (struct play){.scene = scene};
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    assert_int_equal(sem_init(&go, 0, 0), 0);
    assert_int_equal(pthread_barrier_init(&together, NULL, (unsigned)n), 0);
    for (int r = 0; r < n; r++) {
        struct rank *rank = &play.ranks[r];
        *rank = (struct rank){.id = &id, .rank = r, .n = n, .first = first};
        assert_int_equal(pthread_create(&rank->thread, NULL, rank_main, rank), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(play.ranks[r].thread, NULL);
    }
    for (int r = 0; r < n; r++) {
        const struct rank *rank = &play.ranks[r];
        if (rank->result != expected || rank->wrong || rank->alone) {
            fail_msg("rank %d of %d: %s%s%s: %s", r, n, hoop_get_error_name(rank->result),
                     rank->wrong ? ", wrong data" : "", rank->alone ? ", nobody was ahead" : "",
                     rank->sentence);
        }
    }
    pthread_barrier_destroy(&together);
    sem_destroy(&go);
}

/* ---- Scenes -------------------------------------------------------------------------------- */

/* Links are made at their first use, by both ranks. */
static void warm_up(struct rank *me, void (*call)(struct rank *me, int32_t with))
{
    call(me, 0);
    if (me->result == HOOP_OK) {
        me->result = hoop_barrier(me->comm, NULL);
    }
}

static void broadcast(struct rank *me, int32_t with)
{
    fill(me->in, me->rank == me->first ? with : -1, COUNT);
    me->result = hoop_broadcast(me->in, me->out, COUNT, HOOP_INT32, me->first, me->comm, NULL);
    memset(me->in, 0xff, sizeof(me->in));
    me->wrong = me->wrong || (me->result == HOOP_OK && !is_filled(me->out, with, COUNT));
}

static void scatter(struct rank *me, int32_t with)
{
    fill(me->in, me->rank == me->first ? with : -1, (size_t)me->n * COUNT);
    me->result = hoop_scatter(me->in, me->out, COUNT, HOOP_INT32, me->first, me->comm, NULL);
    memset(me->in, 0xff, sizeof(me->in));
    me->wrong =
        me->wrong || (me->result == HOOP_OK && !is_filled(me->out, with + me->rank * COUNT, COUNT));
}

/* The rank that is ahead sends; the root, the last rank, comes later. */
static void gather(struct rank *me, int32_t with)
{
    const int root = (me->first + 1) % me->n;
    fill(me->in, with + me->rank * COUNT, COUNT);
    me->result = hoop_gather(me->in, me->out, COUNT, HOOP_INT32, root, me->comm, NULL);
    memset(me->in, 0xff, sizeof(me->in));
    me->wrong = me->wrong || (me->rank == root && me->result == HOOP_OK &&
                              !is_filled(me->out, with, (size_t)me->n * COUNT));
}

static void reduce(struct rank *me, int32_t with)
{
    const int root = (me->first + 1) % me->n;
    int32_t sum[COUNT];
    for (int i = 0; i < COUNT; i++) {
        me->in[i] = with + me->rank;
        sum[i] = 0;
        for (int r = 0; r < me->n; r++) {
            sum[i] += with + r;
        }
    }
    me->result = hoop_reduce(me->in, me->out, COUNT, HOOP_INT32, HOOP_SUM, root, me->comm, NULL);
    memset(me->in, 0xff, sizeof(me->in));
    me->wrong = me->wrong || (me->rank == root && me->result == HOOP_OK &&
                              memcmp(me->out, sum, sizeof(sum)) != 0);
}

static void many(struct rank *me, void (*call)(struct rank *me, int32_t with))
{
    for (int32_t i = 1; i <= AHEAD && me->result == HOOP_OK; i++) {
        call(me, 1000 * i);
    }
}

/* Ten operations are over, and their buffers in use for something else, before the others begin. */
static void ahead(struct rank *me, void (*call)(struct rank *me, int32_t with))
{
    warm_up(me, call);
    if (me->rank == me->first) {
        many(me, call);
        let_go(me->n);
    } else {
        me->alone = !was_let_go();
        many(me, call);
    }
    if (me->result == HOOP_OK) {
        me->result = hoop_barrier(me->comm, NULL);
    }
}

static void broadcasts(struct rank *me)
{
    ahead(me, broadcast);
}

static void scatters(struct rank *me)
{
    ahead(me, scatter);
}

static void gathers(struct rank *me)
{
    ahead(me, gather);
}

static void reduces(struct rank *me)
{
    ahead(me, reduce);
}

static void test_ahead(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        for (int first = 0; first < n; first++) {
            run(broadcasts, n, first, HOOP_OK);
            run(scatters, n, first, HOOP_OK);
            run(gathers, n, first, HOOP_OK);
            run(reduces, n, first, HOOP_OK);
        }
    }
}

/* A rank so far ahead that it must wait goes on when the others come. */
static void far_ahead(struct rank *me)
{
    warm_up(me, broadcast);
    if (me->rank != me->first) {
        me->alone = !was_let_go();
    }
    for (int32_t i = 1; i <= FAR && me->result == HOOP_OK; i++) {
        broadcast(me, 1000 * i);
        if (i == AHEAD && me->rank == me->first) {
            let_go(me->n);
        }
    }
}

static void test_far_ahead(void **state)
{
    (void)state;
    for (int first = 0; first < RANKS; first++) {
        run(far_ahead, RANKS, first, HOOP_OK);
    }
}

/* The root destroys the communicator before the others have made the last call. */
static void leaves(struct rank *me)
{
    warm_up(me, broadcast);
    if (me->rank == me->first) {
        many(me, broadcast);
        let_go(me->n);
    } else {
        me->alone = !was_let_go();
        many(me, broadcast);
    }
}

static void test_leaves(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        for (int first = 0; first < n; first++) {
            run(leaves, n, first, HOOP_OK);
        }
    }
}

/* ---- Calls that differ ----------------------------------------------------------------------- */

/* How many lines in the log name both roots. */
static atomic_int told;

static void listen(void *arg, hoop_log_level_t level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)subsystem;
    if (level == HOOP_LOG_ERROR && strstr(line, "rank 0 called broadcast of 8 int32, root 0") &&
        strstr(line, "rank 1 called broadcast of 8 int32, root 1")) {
        atomic_fetch_add(&told, 1);
    }
}

/* Both ranks name themselves as root, so neither waits for data. Both calls have returned when the
 * mismatch is found: in another operation, or at the end. */
static void two_roots(struct rank *me)
{
    me->result = hoop_broadcast(me->in, me->out, COUNT, HOOP_INT32, me->rank, me->comm, NULL);
    pthread_barrier_wait(&together);
}

static void two_roots_then_more(struct rank *me)
{
    warm_up(me, broadcast);
    two_roots(me);
    if (me->result == HOOP_OK) {
        me->result = hoop_barrier(me->comm, NULL);
    }
}

static void two_roots_at_the_end(struct rank *me)
{
    warm_up(me, broadcast);
    two_roots(me);
    if (me->result == HOOP_OK) {
        me->result = hoop_comm_finalize(me->comm);
    }
}

static void two_roots_and_no_goodbye(struct rank *me)
{
    warm_up(me, broadcast);
    two_roots(me);
}

/* No call can return the mismatch any more: it is logged. */
static void test_mismatch_untold(void **state)
{
    (void)state;
    hoop_set_log_callback(listen, NULL);
    run(two_roots_and_no_goodbye, 2, 0, HOOP_OK);
    hoop_set_log_callback(NULL, NULL);
    assert_true(atomic_load(&told) > 0);
}

static void test_mismatch(void **state)
{
    (void)state;
    scene_fn *scenes[] = {two_roots_then_more, two_roots_at_the_end};
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        run(scenes[i], 2, 0, HOOP_MISMATCH);
        for (int r = 0; r < 2; r++) {
            assert_non_null(
                strstr(play.ranks[r].sentence, "rank 0 called broadcast of 8 int32, root 0"));
            assert_non_null(
                strstr(play.ranks[r].sentence, "rank 1 called broadcast of 8 int32, root 1"));
        }
    }
}

int main(void)
{
    const char *transport = getenv("HOOP_TRANSPORT");
    if (transport != NULL && strcmp(transport, "auto") != 0) {
        setenv("HOOP_ALGO", "binomial", 1); /* a reduce by pairwise is an exchange among all */
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ahead),           cmocka_unit_test(test_far_ahead),
        cmocka_unit_test(test_leaves),          cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_mismatch_untold),
    };
    return cmocka_run_group_tests_name("roots_ahead", tests, NULL, NULL);
}

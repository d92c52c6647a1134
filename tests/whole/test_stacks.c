/*
 * Threads with the smallest possible stacks: those that call hoop and, as with a low ulimit -s,
 * those that hoop starts. They run in forked processes, which would crash.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/family.h"
#include "harness/sanitizer.h"
#include "hoop.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RANKS 2
#define PATIENCE_MS 60000

/* How the ranks meet. */
struct way {
    const char *url;     /* NULL: hoop_comm_init_env() */
    const char *profile; /* HOOP_PROFILE, or NULL */
    bool apart;          /* as if on two machines */
    hoop_result_t joins;
};

struct caller {
    const struct way *way;
    int rank;
    hoop_result_t result;
};

static hoop_result_t join(const struct caller *me, hoop_comm_t *ret)
{
    return me->way->url == NULL ? hoop_comm_init_env(ret, NULL)
                                : hoop_comm_init_url(ret, me->way->url, RANKS, me->rank, NULL);
}

static void *call(void *arg)
{
    struct caller *me = arg;
    hoop_comm_t comm = NULL;
    me->result = join(me, &comm);
    if (me->result == HOOP_OK) {
        me->result = hoop_barrier(comm, NULL);
    }
    if (me->result == HOOP_OK) {
        me->result = hoop_comm_destroy(comm);
    }
    return NULL;
}

static void run_rank(const struct family_self *self, const void *arg)
{
    struct caller me = {.way = arg, .rank = self->rank};
    pthread_attr_t little;
    pthread_t thread;
    family_set_number("RANK", self->rank);
    family_set_number("WORLD_SIZE", RANKS);
    family_set_number("MASTER_PORT", 10000 + getppid() % 50000);
    setenv("HOOP_SECRET", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", 1);
    if (me.way->profile != NULL) {
        setenv("HOOP_PROFILE", me.way->profile, 1);
    }
    if (me.way->apart) {
        setenv("HOOP_HOSTID", self->rank == 0 ? "left" : "right", 1);
    } else {
        family_set_number("LOCAL_WORLD_SIZE", RANKS);
    }
    pthread_attr_init(&little);
    pthread_attr_setstacksize(&little, PTHREAD_STACK_MIN);
    pthread_setattr_default_np(&little); /* like ulimit -s before the program starts */
    if (pthread_create(&thread, NULL, call, &me) != 0 || pthread_join(thread, NULL) != 0 ||
        me.result != me.way->joins) {
        _exit(1);
    }
}

static void check(const struct way *way)
{
    struct family family;
    if (!MEMORY_IS_PLAIN) {
        skip(); /* sanitizers need more */
    }
    family_init(&family, RANKS);
    assert_true(family_fork_all(&family, run_rank, way));
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(family_reap(&family, rank, hoop_deadline_ns(PATIENCE_MS)));
    }
    family_finish(&family);
}

static void test_env(void **state)
{
    (void)state;
    check(&(struct way){.joins = HOOP_OK});
}

static void test_file(void **state)
{
    char folder[] = "/tmp/hoop-stacks-XXXXXX";
    char url[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(url, sizeof(url), "file://%s/meet", folder);
    check(&(struct way){.url = url, .apart = true, .joins = HOOP_OK});
    assert_int_equal(rmdir(folder), 0);
}

static void test_profile(void **state)
{
    (void)state;
    check(&(struct way){.profile = "/dev/null", .joins = HOOP_INVALID_USAGE});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_env), cmocka_unit_test(test_file),
                                       cmocka_unit_test(test_profile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

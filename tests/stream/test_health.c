/* The health thread asks about every device that is awaited (stream/health.h), over the fake driver
 * that HOOP_CUDA names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "stream/health.h"

#include "fakes/fake_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 8
#define WELL ((size_t)2 * DEVICES) /* contexts */

/* A context that the driver does not know, so that its device counts as failed. */
#define FAILED ((hoop_cu_context_t)(UINTPTR_MAX - 7))

static hoop_cu_context_t contexts[WELL + 1]; /* the last one has failed */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned broken[2]; /* for each asker */

static hoop_cu_context_t next(hoop_cu_context_t after, int asker)
{
    hoop_cu_context_t best = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < WELL + (broken[asker] == 0); i++) {
        best = hoop_health_better(best, after, contexts[i]);
    }
    pthread_mutex_unlock(&lock);
    return best;
}

static hoop_cu_context_t next_first(hoop_cu_context_t after)
{
    return next(after, 0);
}

static hoop_cu_context_t next_second(hoop_cu_context_t after)
{
    return next(after, 1);
}

static bool waits(hoop_cu_context_t context, uint64_t comm_id)
{
    return context == FAILED && comm_id != 0;
}

static void breaks(hoop_cu_context_t context, int asker)
{
    pthread_mutex_lock(&lock);
    assert_ptr_equal(context, FAILED);
    broken[asker]++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void breaks_first(hoop_cu_context_t context)
{
    breaks(context, 0);
}

static void breaks_second(hoop_cu_context_t context)
{
    breaks(context, 1);
}

static void contexts_make(void)
{
    fake_cuda_other_t *other = NULL;
    *(void **)&other = dlsym(dlopen(getenv("HOOP_CUDA"), RTLD_NOW), "fake_cuda_other");
    assert_non_null(other);
    assert_true(hoop_cuda_load());
    assert_int_equal(hoop_cuda.init(0), 0);
    for (int device = 0; device < DEVICES; device++) {
        assert_int_equal(hoop_cuda.primary_retain(&contexts[device], device), 0);
        contexts[DEVICES + device] = other(device);
    }
    contexts[WELL] = FAILED;
}

/* Of 17 contexts that are awaited the last has failed, and the others stay well. */
static void test_many(void **state)
{
    static struct hoop_health_asker first = {
        .next = next_first, .waits = waits, .broke = breaks_first};
    static struct hoop_health_asker second = {
        .next = next_second, .waits = waits, .broke = breaks_second};
    struct hoop_failure failure;
    hoop_comm_t comm = NULL;
    hoop_unique_id_t id;
    (void)state;
    contexts_make();
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    assert_int_equal(hoop_comm_init_rank(&comm, 1, id, 0), HOOP_OK);
    assert_true(hoop_health_start(&first));
    assert_true(hoop_health_start(&second));
    assert_true(hoop_health_start(&first)); /* again: is added once */
    hoop_health_notify();
    pthread_mutex_lock(&lock);
    while (broken[0] == 0 || broken[1] == 0) {
        pthread_cond_wait(&changed, &lock);
    }
    assert_int_equal(broken[0] + broken[1], 2);
    pthread_mutex_unlock(&lock);
    assert_int_equal(hoop_comm_state(comm, &failure), HOOP_CUDA_ERROR);
    assert_non_null(strstr(failure.text, "cuCtxPushCurrent"));
    assert_int_equal(hoop_comm_destroy(comm), HOOP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}

/* Whether devices have failed (see health.h). */
#include "stream/health.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "runtime/process.h"

#include <pthread.h>

#define HEALTH_ASK_NS (50 * HOOP_NS_PER_MS)
#define HEALTH_MOST 16u /* contexts */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const struct hoop_health_asker *asker; /* NULL: there is no thread */
    bool fresh, idle; /* notified since the thread last looked; the thread sleeps until notified */
} health = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Has the device failed? If so, the error is the thread's too (hoop_thread_error()). */
static hoop_result_t health_ask(hoop_cu_context_t context)
{
    hoop_stream_t own = NULL;
    hoop_result_t result = hoop_cuda_enter(context);
    if (result == HOOP_OK) {
        result = hoop_cuda_stream(context, &own);
        const int error = result == HOOP_OK ? hoop_cuda.stream_query(own) : HOOP_CU_NOT_READY;
        hoop_cuda_leave();
        if (error != HOOP_CU_NOT_READY) {
            result = hoop_cuda_check("cuStreamQuery: work on the device", error);
        }
    }
    return result;
}

/* For hoop_comm_each(). */
static void health_fail(void *arg, struct hoop_comm *comm)
{
    const hoop_cu_context_t *context = arg;
    if (health.asker->broke(*context, comm->id) && hoop_comm_state(comm, NULL) == HOOP_OK) {
        hoop_comm_raise(comm, HOOP_CUDA_ERROR, (int)comm->rank, "rank %u: %s", comm->rank,
                        hoop_thread_error());
    }
}

/* False: nothing is awaited. */
static bool health_ask_all(void)
{
    hoop_cu_context_t contexts[HEALTH_MOST];
    const size_t count = health.asker->list(contexts, HEALTH_MOST);
    for (size_t i = 0; i < count; i++) {
        if (health_ask(contexts[i]) != HOOP_OK) {
            hoop_comm_each(health_fail, &contexts[i]);
        }
    }
    return count > 0;
}

/* Asks every HEALTH_ASK_NS while anything is awaited, and sleeps otherwise. Between two looks a
 * notification only sets `fresh`: calls follow each other quickly, and need not each wake it. */
static void *health_main(void *arg)
{
    bool awaits = false;
    (void)arg;
    pthread_setname_np(pthread_self(), "hoop-health");
    for (;;) {
        pthread_mutex_lock(&health.lock);
        health.idle = !awaits && !health.fresh;
        while (health.idle) {
            (void)hoop_cond_wait(&health.changed, &health.lock, HOOP_NEVER);
        }
        health.fresh = false;
        const uint64_t asks_ns = hoop_now_ns() + HEALTH_ASK_NS;
        while (hoop_cond_wait(&health.changed, &health.lock, asks_ns)) {
        }
        pthread_mutex_unlock(&health.lock);
        awaits = health_ask_all();
    }
    return NULL;
}

bool hoop_health_start(const struct hoop_health_asker *asker)
{
    pthread_mutex_lock(&health.lock);
    if (health.asker == NULL) {
        hoop_cond_init(&health.changed);
        health.asker = asker; /* set before the thread reads it */
        health.asker = hoop_thread_spawn(health_main, NULL) == 0 ? asker : NULL;
    }
    const bool there = health.asker != NULL;
    pthread_mutex_unlock(&health.lock);
    return there;
}

void hoop_health_notify(void)
{
    pthread_mutex_lock(&health.lock);
    health.fresh = true;
    if (health.idle) { /* otherwise the thread looks again anyway */
        health.idle = false;
        pthread_cond_signal(&health.changed);
    }
    pthread_mutex_unlock(&health.lock);
}

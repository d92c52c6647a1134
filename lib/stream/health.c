/* Whether devices have failed (see health.h). */
#include "stream/health.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "runtime/process.h"

#include <pthread.h>

#define HEALTH_ASK_NS (50 * HOOP_NS_PER_MS)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct hoop_health_asker *_Atomic askers; /* only added to */
    bool runs;
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

struct health_broken {
    const struct hoop_health_asker *asker;
    hoop_cu_context_t context;
};

/* For hoop_comm_each(). */
static void health_fail(void *arg, struct hoop_comm *comm)
{
    const struct health_broken *broken = arg;
    if (broken->asker->waits(broken->context, comm->id) && hoop_comm_state(comm, NULL) == HOOP_OK) {
        hoop_comm_raise(comm, HOOP_CUDA_ERROR, (int)comm->rank, "rank %u: %s", comm->rank,
                        hoop_thread_error());
    }
}

/* False: nothing is awaited. */
static bool health_ask_for(const struct hoop_health_asker *asker)
{
    struct health_broken at = {.asker = asker, .context = NULL};
    bool awaits = false;
    while ((at.context = asker->next(at.context)) != NULL) {
        awaits = true;
        if (health_ask(at.context) != HOOP_OK) {
            hoop_comm_each(health_fail, &at);
            asker->broke(at.context);
        }
    }
    return awaits;
}

static bool health_ask_all(void)
{
    bool awaits = false;
    for (const struct hoop_health_asker *at = health.askers; at != NULL; at = at->next_asker) {
        awaits |= health_ask_for(at);
    }
    return awaits;
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

bool hoop_health_start(struct hoop_health_asker *asker)
{
    pthread_mutex_lock(&health.lock);
    const struct hoop_health_asker *at = health.askers;
    while (at != NULL && at != asker) {
        at = at->next_asker;
    }
    if (at == NULL) {
        asker->next_asker = health.askers;
        health.askers = asker;
    }
    if (!health.runs) {
        hoop_cond_init(&health.changed);
        health.runs = hoop_thread_spawn(health_main, NULL) == 0;
    }
    const bool there = health.runs;
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

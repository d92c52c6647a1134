/* Which calls may return before their stream has come to them (see ahead.h). */
#include "staging/ahead.h"

#include "base/clock.h"
#include "base/log.h"
#include "staging/kernels.h"

/* Hoop's stream passes in some 20 us. If it takes longer than this, AHEAD_TRIES times, it counts as
 * held up. */
#define AHEAD_PATIENCE_NS (50 * HOOP_NS_PER_MS)
#define AHEAD_TRIES 3u

/* The entry of a stream: its id times AHEAD_STEP, plus how often it has held up hoop's stream, or
 * AHEAD_BY if it does not. */
#define AHEAD_BY 7u
#define AHEAD_STEP 8u
#define AHEAD_STREAMS 1024u
static _Atomic uint64_t ahead_streams[AHEAD_STREAMS]; /* by id, which is unique in the process */

/* In the stream's context. 0: it has no id. */
static uint64_t ahead_stream_id(hoop_stream_t stream)
{
    unsigned long long id = 0;
    return hoop_cuda.stream_id(stream, &id) == HOOP_CU_SUCCESS ? (uint64_t)id + 1 : 0;
}

static uint64_t ahead_id_of(hoop_cu_context_t context, hoop_stream_t stream)
{
    uint64_t id = 0;
    if (hoop_cuda_enter(context) == HOOP_OK) {
        id = ahead_stream_id(stream);
        hoop_cuda_leave();
    }
    return id;
}

/* Puts a kernel, if there are kernels, and a mark on hoop's stream: a kernel may be held up where a
 * mark alone is not. */
static hoop_result_t ahead_mark(struct hoop_staging *staging)
{
    hoop_result_t result = HOOP_OK;
    if (staging->kernels != NULL && (result = hoop_staging_enter(staging)) == HOOP_OK) {
        staging->state = HOOP_STAGING_LAUNCHED;
        result = hoop_kernels_pass(staging->kernels, staging->work);
        hoop_staging_leave();
    }
    return result == HOOP_OK ? hoop_staging_mark(staging) : result;
}

/* Does hoop's stream get on while the other one is held? */
static bool ahead_gets_by(struct hoop_staging *staging, hoop_stream_t stream)
{
    struct hoop_hold hold;
    if (hoop_hold_take(staging->context, &hold) != HOOP_OK) {
        return false;
    }
    hoop_result_t result = hoop_hold_put(&hold, staging->context, stream);
    if (result == HOOP_OK) {
        result = ahead_mark(staging);
    }
    const uint64_t start = hoop_now_ns();
    while (result == HOOP_OK && hoop_staging_poll(staging) == HOOP_AGAIN) {
        hoop_wait_briefly();
        result = hoop_now_ns() - start < AHEAD_PATIENCE_NS ? HOOP_OK : HOOP_TIMEOUT;
    }
    hoop_hold_release(&hold);
    (void)hoop_staging_cancel(staging, 0);
    return result == HOOP_OK;
}

static void ahead_look(struct hoop_staging *staging, hoop_stream_t stream)
{
    const uint64_t id = ahead_id_of(staging->context, stream);
    _Atomic uint64_t *place = &ahead_streams[id % AHEAD_STREAMS];
    uint64_t known = atomic_load_explicit(place, memory_order_relaxed);
    known = known / AHEAD_STEP == id ? known : id * AHEAD_STEP;
    if (id == 0 || known % AHEAD_STEP >= AHEAD_TRIES || hoop_pin_is_under_way()) {
        return;
    }
    known = ahead_gets_by(staging, stream) ? id * AHEAD_STEP + AHEAD_BY : known + 1;
    atomic_store_explicit(place, known, memory_order_relaxed);
    if (known % AHEAD_STEP == AHEAD_TRIES) {
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_MEM,
                 "stream %p shares a queue of the device with hoop's own: calls on it wait for "
                 "their results (CUDA_DEVICE_MAX_CONNECTIONS is the number of queues)",
                 (void *)stream);
    }
}

static void ahead_forget(struct hoop_ahead *ahead, hoop_cu_context_t context)
{
    atomic_store_explicit(&ahead->device_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&ahead->context, context, memory_order_relaxed);
}

void hoop_ahead_learn(struct hoop_ahead *ahead, struct hoop_staging *staging, hoop_stream_t stream,
                      size_t bytes, bool on_device)
{
    /* Where devices reach each other an operation may open or pin memory that is new, which must
     * not happen while a stream is held. */
    if (staging->context == NULL || staging->state != HOOP_STAGING_IDLE || staging->n_peers > 0) {
        return;
    }
    if (atomic_load_explicit(&ahead->context, memory_order_relaxed) != staging->context) {
        ahead_forget(ahead, staging->context);
    }
    const size_t least = atomic_load_explicit(&ahead->device_bytes, memory_order_relaxed);
    if (on_device && (least == 0 || bytes < least)) {
        atomic_store_explicit(&ahead->device_bytes, bytes, memory_order_relaxed);
    }
    atomic_store_explicit(&ahead->host_bytes, staging->host_bytes, memory_order_relaxed);
    ahead_look(staging, stream);
}

bool hoop_ahead_may(const struct hoop_ahead *ahead, hoop_cu_context_t context, hoop_stream_t stream,
                    size_t bytes, bool may_stay)
{
    const size_t device_bytes = atomic_load_explicit(&ahead->device_bytes, memory_order_relaxed);
    if (context == NULL || context != atomic_load_explicit(&ahead->context, memory_order_relaxed) ||
        (bytes > atomic_load_explicit(&ahead->host_bytes, memory_order_relaxed) &&
         (!may_stay || device_bytes == 0 || bytes < device_bytes))) {
        return false;
    }
    const uint64_t id = ahead_id_of(context, stream);
    return id != 0 && atomic_load_explicit(&ahead_streams[id % AHEAD_STREAMS],
                                           memory_order_relaxed) == id * AHEAD_STEP + AHEAD_BY;
}

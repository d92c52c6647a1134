/* Buffers on devices (see staging.h). */
#include "staging/staging.h"

#include "base/clock.h"
#include "base/log.h"
#include "memory/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Places begin at cache lines. */
#define STAGING_ALIGN 64

/* What CUDA's thread touches: it may come when the comm is gone. */
struct hoop_staging_arrival {
    _Atomic uint32_t came, left; /* host functions: their copies are done; they are over */
    int wake_fd;                 /* its own */
    struct hoop_staging_arrival *next;
};

/* Those whose copies never ended. */
static _Atomic(struct hoop_staging_arrival *) staging_stuck;

struct hoop_staging_piece {
    void *device;
    size_t offset, bytes;
    bool deliver;
};

/* ---- What the comm keeps ---- */

static bool staging_enter(const struct hoop_staging *staging)
{
    return staging->context != NULL && hoop_cuda.context_push(staging->context) == HOOP_CU_SUCCESS;
}

static void staging_leave(void)
{
    hoop_cu_context_t popped;
    (void)hoop_cuda.context_pop(&popped);
}

static void staging_free_host(struct hoop_staging *staging)
{
    if (staging->host != NULL) {
        (void)hoop_cuda.host_unregister(staging->host);
        (void)hoop_region_free(staging->host);
    }
    staging->host = NULL;
    staging->host_bytes = 0;
}

/* The last host function that came may be about to leave. */
static void staging_free_arrival(struct hoop_staging *staging)
{
    struct hoop_staging_arrival *arrival = staging->arrival;
    while (arrival != NULL &&
           atomic_load_explicit(&arrival->left, memory_order_acquire) != staging->launched) {
        hoop_wait_briefly();
    }
    if (arrival != NULL) {
        close(arrival->wake_fd);
    }
    free(arrival);
    staging->arrival = NULL;
}

/* In the context. */
static void staging_close(struct hoop_staging *staging)
{
    staging_free_arrival(staging);
    staging_free_host(staging);
    if (staging->ready != NULL) {
        (void)hoop_cuda.event_destroy(staging->ready);
    }
    if (staging->copies != NULL) {
        (void)hoop_cuda.stream_destroy(staging->copies);
    }
    staging->ready = NULL;
    staging->copies = NULL;
}

static void staging_drop(struct hoop_staging *staging)
{
    if (staging->stuck) {
        staging->arrival->next = atomic_load(&staging_stuck);
        while (!atomic_compare_exchange_weak(&staging_stuck, &staging->arrival->next,
                                             staging->arrival)) {
        }
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_MEM,
                 "%zu bytes of staging memory stay: copies into them "
                 "have not ended",
                 staging->host_bytes);
    } else if (staging_enter(staging)) {
        staging_close(staging);
        staging_leave();
    }
    staging->context = NULL;
    staging->arrival = NULL;
    staging->launched = 0;
    staging->stuck = false;
    staging->host = NULL;
    staging->host_bytes = 0;
}

void hoop_staging_finish(struct hoop_staging *staging)
{
    staging_drop(staging);
    free(staging->pieces);
    *staging = (struct hoop_staging){.wake_fd = staging->wake_fd};
}

/* ---- Of an operation ---- */

void hoop_staging_reset(struct hoop_staging *staging)
{
    staging->count = 0;
    staging->bytes = 0;
    staging->delivers = false;
}

size_t hoop_staging_room(struct hoop_staging *staging, size_t bytes)
{
    const size_t at = staging->bytes;
    staging->bytes += (bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
    return at;
}

hoop_result_t hoop_staging_add(struct hoop_staging *staging, void *device, size_t offset,
                               size_t bytes, bool deliver)
{
    if (staging->count == staging->room) {
        const size_t room = staging->room == 0 ? 4 : staging->room * 2;
        struct hoop_staging_piece *grown =
            realloc(staging->pieces, room * sizeof(*staging->pieces));
        if (grown == NULL) {
            return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu buffers on devices", room);
        }
        staging->pieces = grown;
        staging->room = room;
    }
    staging->pieces[staging->count++] = (struct hoop_staging_piece){device, offset, bytes, deliver};
    staging->delivers |= deliver;
    return HOOP_OK;
}

static hoop_result_t staging_open_streams(struct hoop_staging *staging)
{
    staging->arrival = calloc(1, sizeof(*staging->arrival));
    if (staging->arrival == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for buffers on devices");
    }
    staging->arrival->wake_fd = fcntl(staging->wake_fd, F_DUPFD_CLOEXEC, 0);
    if (staging->arrival->wake_fd < 0) {
        return hoop_error(hoop_from_errno(errno), "cannot duplicate a descriptor: %s",
                          hoop_errno_name(errno));
    }
    hoop_result_t result = hoop_cuda_check(
        "cuStreamCreate", hoop_cuda.stream_create(&staging->copies, HOOP_CU_STREAM_NON_BLOCKING));
    if (result == HOOP_OK) {
        result = hoop_cuda_check(
            "cuEventCreate", hoop_cuda.event_create(&staging->ready, HOOP_CU_EVENT_DISABLE_TIMING));
    }
    return result;
}

/* Nothing is copied from or to it now: the operation before is over. */
static hoop_result_t staging_grow(struct hoop_staging *staging)
{
    if (staging->bytes <= staging->host_bytes) {
        return HOOP_OK;
    }
    void *host = NULL;
    staging_free_host(staging);
    hoop_result_t result = hoop_region_alloc(staging->bytes, HOOP_MEM_HOST, &host);
    if (result != HOOP_OK) {
        return result;
    }
    result = hoop_cuda_check(
        "cuMemHostRegister",
        hoop_cuda.host_register(host, staging->bytes, HOOP_CU_HOST_REGISTER_PORTABLE));
    if (result != HOOP_OK) {
        (void)hoop_region_free(host);
        return result;
    }
    staging->host = host;
    staging->host_bytes = staging->bytes;
    return HOOP_OK;
}

hoop_result_t hoop_staging_open(struct hoop_staging *staging, hoop_cu_context_t context)
{
    if (staging->context != context) {
        staging_drop(staging);
    }
    const bool fresh = staging->context == NULL;
    staging->context = context;
    if (!staging_enter(staging)) {
        staging->context = NULL;
        return hoop_error(HOOP_CUDA_ERROR, "the buffer's CUDA context does not exist any more");
    }
    hoop_result_t result = fresh ? staging_open_streams(staging) : HOOP_OK;
    if (result == HOOP_OK) {
        result = staging_grow(staging);
    }
    if (fresh && result != HOOP_OK) {
        staging_close(staging);
        staging->context = NULL;
    }
    staging_leave();
    return result;
}

hoop_result_t hoop_staging_follow(struct hoop_staging *staging, hoop_stream_t stream)
{
    if (!staging_enter(staging)) {
        return hoop_error(HOOP_CUDA_ERROR, "the buffer's CUDA context does not exist any more");
    }
    hoop_result_t result = hoop_cuda_check("cuEventRecord on the stream of the call",
                                           hoop_cuda.event_record(staging->ready, stream));
    if (result == HOOP_OK) {
        result = hoop_cuda_check("cuStreamWaitEvent",
                                 hoop_cuda.stream_wait(staging->copies, staging->ready, 0));
    }
    staging_leave();
    return result;
}

/* ---- Copies -------------------------------------------------------------------------------- */

/* CUDA's thread: may not call CUDA. */
static void staging_arrived(void *arg)
{
    struct hoop_staging_arrival *arrival = arg;
    atomic_fetch_add_explicit(&arrival->came, 1, memory_order_release);
    hoop_wake(arrival->wake_fd);
    atomic_fetch_add_explicit(&arrival->left, 1, memory_order_release);
}

static hoop_result_t staging_launch(struct hoop_staging *staging, bool deliver)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < staging->count && result == HOOP_OK; i++) {
        const struct hoop_staging_piece *piece = &staging->pieces[i];
        const hoop_cu_address_t host = (uintptr_t)(staging->host + piece->offset);
        const hoop_cu_address_t device = (uintptr_t)piece->device;
        if (piece->deliver == deliver) {
            result = hoop_cuda_check(
                "cuMemcpyAsync", hoop_cuda.copy(deliver ? device : host, deliver ? host : device,
                                                piece->bytes, staging->copies));
        }
    }
    if (result == HOOP_OK) {
        result = hoop_cuda_check(
            "cuLaunchHostFunc",
            hoop_cuda.host_function(staging->copies, staging_arrived, staging->arrival));
    }
    return result;
}

hoop_result_t hoop_staging_copy(struct hoop_staging *staging, bool deliver)
{
    if (!staging_enter(staging)) {
        return hoop_error(HOOP_CUDA_ERROR, "the buffer's CUDA context does not exist any more");
    }
    staging->stuck = true; /* until they are seen to be over */
    const hoop_result_t result = staging_launch(staging, deliver);
    staging->launched += result == HOOP_OK;
    staging_leave();
    return result;
}

hoop_result_t hoop_staging_poll(struct hoop_staging *staging)
{
    if (atomic_load_explicit(&staging->arrival->came, memory_order_acquire) != staging->launched) {
        /* In the event of an error no host function runs. */
        const int error = hoop_cuda.stream_query(staging->copies);
        return error == HOOP_CU_SUCCESS || error == HOOP_CU_NOT_READY
                   ? HOOP_AGAIN
                   : hoop_cuda_check("copies between device and host", error);
    }
    staging->stuck = false;
    return HOOP_OK;
}

hoop_result_t hoop_staging_cancel(struct hoop_staging *staging, uint64_t timeout_ms)
{
    const uint64_t start = hoop_now_ns();
    hoop_result_t result = staging->stuck ? hoop_staging_poll(staging) : HOOP_OK;
    while (result == HOOP_AGAIN &&
           (timeout_ms == 0 || hoop_now_ns() - start < timeout_ms * HOOP_NS_PER_MS)) {
        hoop_wait_briefly();
        result = hoop_staging_poll(staging);
    }
    return result == HOOP_AGAIN
               ? hoop_error(HOOP_TIMEOUT, "copies between device and host have not ended")
               : HOOP_OK;
}

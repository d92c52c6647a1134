/* Buffers on devices (see staging.h). */
#include "staging/staging.h"

#include "base/clock.h"
#include "base/log.h"
#include "memory/region.h"
#include "staging/kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Places in host memory begin at cache lines. */
#define STAGING_ALIGN 64
/* How often CUDA is asked whether the device has failed, while it is awaited. */
#define STAGING_ASK_NS HOOP_NS_PER_MS

/* What CUDA's thread accesses: it may run after the comm is gone. */
struct hoop_staging_arrival {
    _Atomic uint32_t came, left; /* host functions that have run; that touch this no more */
    int wake_fd;                 /* a duplicate */
};

/* Stagings of comms that are gone, whose device work had not ended. They are freed when it has, as
 * found at the end of a later comm. On a device that has failed no work ever ends. */
struct staging_stuck {
    struct hoop_staging staging;
    struct staging_stuck *next;
};
static pthread_mutex_t stuck_lock = PTHREAD_MUTEX_INITIALIZER;
static struct staging_stuck *stuck;

/* ---- What the comm keeps ---- */

hoop_result_t hoop_staging_enter(const struct hoop_staging *staging)
{
    return hoop_cuda_enter(staging->context);
}

void hoop_staging_leave(void)
{
    hoop_cuda_leave();
}

static void staging_put_away(struct hoop_staging *staging)
{
    if (staging->host != NULL) {
        staging->outgrown[staging->n_outgrown++] = staging->host;
    }
    staging->host = NULL;
    staging->host_bytes = 0;
}

static void staging_free_host(struct hoop_staging *staging)
{
    staging_put_away(staging);
    while (staging->n_outgrown > 0) {
        char *host = staging->outgrown[--staging->n_outgrown];
        (void)hoop_cuda.host_unregister(host);
        (void)hoop_region_free(host);
    }
}

/* Waits until the last host function has left. */
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
    hoop_mark_give(&staging->own);
    hoop_mark_give(&staging->theirs);
    staging->work = NULL;
}

static void staging_close_if_there(struct hoop_staging *staging)
{
    if (hoop_staging_enter(staging) == HOOP_OK) {
        staging_close(staging);
        hoop_staging_leave();
    }
}

/* False: no memory, so the staging is never freed. */
static bool staging_keep(const struct hoop_staging *staging)
{
    struct staging_stuck *kept = malloc(sizeof(*kept));
    if (kept != NULL) {
        kept->staging = *staging;
        kept->staging.naps = NULL;
        kept->next = stuck;
        stuck = kept;
    }
    return kept != NULL;
}

static void staging_free_stuck(void)
{
    for (struct staging_stuck **at = &stuck; *at != NULL;) {
        struct staging_stuck *first = *at;
        if (hoop_staging_poll(&first->staging) != HOOP_OK) {
            at = &first->next;
        } else {
            *at = first->next;
            staging_close_if_there(&first->staging);
            free(first);
        }
    }
}

static void staging_drop(struct hoop_staging *staging)
{
    staging->bell = NULL;
    staging->fetches = false;
    if (staging->context == NULL) {
        return;
    }
    pthread_mutex_lock(&stuck_lock);
    staging_free_stuck();
    if (staging->state == HOOP_STAGING_IDLE || hoop_staging_poll(staging) == HOOP_OK) {
        staging_close_if_there(staging);
    } else {
        const bool kept = staging_keep(staging);
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_MEM,
                 "work on a device has not ended: %zu bytes of staging memory stay %s",
                 staging->host_bytes, kept ? "until it has" : "for ever");
    }
    pthread_mutex_unlock(&stuck_lock);
    staging->context = NULL;
    staging->kernels = NULL;
    staging->device = 0;
    staging->n_peers = 0;
    staging->primary = false;
    staging->work = NULL;
    staging->arrival = NULL;
    staging->own.word = staging->theirs.word = 0;
    staging->launched = 0;
    staging->state = HOOP_STAGING_IDLE;
    staging->host = NULL;
    staging->host_bytes = 0;
    staging->n_outgrown = 0;
}

void hoop_staging_finish(struct hoop_staging *staging)
{
    staging_drop(staging);
    free(staging->pieces);
    free(staging->overlap.parts);
    *staging = (struct hoop_staging){.wake_fd = staging->wake_fd, .naps = staging->naps};
}

/* ---- Of an operation ---- */

void hoop_staging_reset(struct hoop_staging *staging)
{
    staging->count = 0;
    staging->overlap.count = 0;
    staging->bytes = 0;
    staging->delivers = false;
    staging->fetches = false;
    staging->bell = NULL;
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
        return hoop_errno_error(errno, "cannot duplicate a descriptor");
    }
    hoop_mark_take(&staging->own);
    hoop_mark_take(&staging->theirs);
    return hoop_cuda_stream(staging->context, &staging->work);
}

/* The earlier operation is over, so nothing is being copied from or to the old host memory. */
static hoop_result_t staging_grow(struct hoop_staging *staging)
{
    const size_t least = 2 * staging->host_bytes;
    const size_t bytes = staging->bytes > least ? staging->bytes : least;
    void *host = NULL;
    hoop_result_t result = hoop_region_alloc(bytes, HOOP_MEM_HOST, &host);
    if (result != HOOP_OK) {
        return result;
    }
    result = hoop_cuda_check(
        "cuMemHostRegister",
        hoop_cuda.host_register(host, bytes,
                                HOOP_CU_HOST_REGISTER_PORTABLE | HOOP_CU_HOST_REGISTER_MAPPED));
    if (result != HOOP_OK) {
        (void)hoop_region_free(host);
        return result;
    }
    staging_put_away(staging);
    staging->host = host;
    staging->host_bytes = bytes;
    return HOOP_OK;
}

/* In the context. */
static hoop_result_t staging_open_device(struct hoop_staging *staging)
{
    const hoop_result_t result =
        hoop_cuda_check("cuCtxGetDevice", hoop_cuda.context_device(&staging->number));
    if (result == HOOP_OK) {
        staging->device = hoop_cuda_device_id(staging->number);
        staging->n_peers = hoop_cuda_peers(staging->number, staging->peers);
        staging->primary =
            staging->n_peers > 0 && hoop_cuda_is_primary(staging->context, staging->number);
        staging->kernels = hoop_kernels_load(staging->context);
    }
    return result;
}

/* In the context. fresh: it was not open before. */
static hoop_result_t staging_open_all(struct hoop_staging *staging, bool fresh)
{
    hoop_result_t result = fresh ? staging_open_streams(staging) : HOOP_OK;
    if (fresh && result == HOOP_OK) {
        result = staging_open_device(staging);
    }
    if (result == HOOP_OK && staging->bytes > staging->host_bytes) {
        result = staging_grow(staging);
    }
    if (fresh && result != HOOP_OK) {
        staging_close(staging);
    }
    return result;
}

hoop_result_t hoop_staging_open(struct hoop_staging *staging, hoop_cu_context_t context)
{
    if (staging->context != context) {
        staging_drop(staging);
    }
    const bool fresh = staging->context == NULL;
    if (!fresh && staging->bytes <= staging->host_bytes) {
        return HOOP_OK; /* without a call to CUDA, as a launched call needs it */
    }
    staging->context = context;
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        result = staging_open_all(staging, fresh);
        hoop_staging_leave();
    }
    staging->context = fresh && result != HOOP_OK ? NULL : context;
    return result;
}

hoop_result_t hoop_staging_open_host(struct hoop_staging *staging, hoop_cu_context_t context,
                                     size_t bytes)
{
    staging->context = context;
    staging->bytes = bytes;
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        result = staging_grow(staging);
        hoop_staging_leave();
    }
    staging->context = result == HOOP_OK ? context : NULL;
    return result;
}

/* ---- Work ---- */

static hoop_result_t staging_copy_on(hoop_cu_address_t device, hoop_cu_address_t host, size_t bytes,
                                     bool deliver, hoop_stream_t stream)
{
    return deliver ? hoop_cuda_copy_to_device(device, host, bytes, stream)
                   : hoop_cuda_check("cuMemcpyAsync", hoop_cuda.copy(host, device, bytes, stream));
}

hoop_result_t hoop_staging_record(const struct hoop_staging *staging, hoop_stream_t stream,
                                  bool deliver)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < staging->count && result == HOOP_OK; i++) {
        const struct hoop_staging_piece *piece = &staging->pieces[i];
        const hoop_cu_address_t host = (uintptr_t)(staging->host + piece->offset);
        const hoop_cu_address_t device = (uintptr_t)piece->device;
        if (piece->deliver == deliver) {
            result = staging_copy_on(device, host, piece->bytes, deliver, stream);
        }
    }
    return result;
}

/* Parts that follow each other in both memories become one copy. */
hoop_result_t hoop_staging_record_piece(const struct hoop_staging *staging,
                                        struct hoop_overlap_piece piece, hoop_stream_t stream)
{
    const struct hoop_overlap_part *parts = staging->overlap.parts;
    const bool deliver = piece.from >= staging->overlap.fetches;
    hoop_result_t result = HOOP_OK;
    for (size_t at = piece.from, next = at; at < piece.to && result == HOOP_OK; at = next) {
        const hoop_cu_address_t host = (uintptr_t)parts[at].host;
        const hoop_cu_address_t device = (uintptr_t)parts[at].device;
        size_t bytes = 0;
        for (; next < piece.to && parts[next].host == parts[at].host + bytes &&
               parts[next].device == parts[at].device + bytes;
             next++) {
            bytes += parts[next].bytes;
        }
        result = staging_copy_on(device, host, bytes, deliver, stream);
    }
    return result;
}

void hoop_staging_spoil(const struct hoop_staging *staging)
{
    for (size_t i = 0; i < staging->count; i++) {
        const struct hoop_staging_piece *piece = &staging->pieces[i];
        if (piece->deliver) {
            memset(staging->host + piece->offset, 0xff, piece->bytes);
        }
    }
}

/* On CUDA's thread, which may not call CUDA. */
static void staging_arrived(void *arg)
{
    struct hoop_staging_arrival *arrival = arg;
    atomic_fetch_add_explicit(&arrival->came, 1, memory_order_release);
    hoop_wake(arrival->wake_fd);
    atomic_fetch_add_explicit(&arrival->left, 1, memory_order_release);
}

static void staging_nap(const struct hoop_staging *staging, bool awaits)
{
    if (staging->naps != NULL) {
        *staging->naps = awaits;
    }
}

/* In the context: puts the mark on the stream, or a host function if it can't be put there now. On
 * a stream of the caller's that may also be because CUDA refuses the mark: copies may be before it
 * there, and hoop can't ask whether that stream is past them. Its own stream it asks. */
static hoop_result_t staging_mark(struct hoop_staging *staging, struct hoop_mark *mark,
                                  hoop_stream_t stream)
{
    const bool own = mark == &staging->own;
    const bool word = mark->word != 0 && (own || hoop_mark_awaited(mark) == 0);
    hoop_result_t result = word ? hoop_mark_put(mark, stream) : HOOP_AGAIN;
    if (result == HOOP_OK) {
        staging_nap(staging, true); /* here too: the driver may sleep before it polls again */
    } else if (!word || !own) {
        result = hoop_cuda_check(
            "cuLaunchHostFunc", hoop_cuda.host_function(stream, staging_arrived, staging->arrival));
        staging->launched += result == HOOP_OK;
    }
    staging->state = result == HOOP_OK ? HOOP_STAGING_MARKED : staging->state;
    return result;
}

/* The number of the last mark on hoop's stream that has come. */
static uint32_t staging_came(const struct hoop_staging *staging)
{
    return staging->own.word != 0
               ? staging->own.put - hoop_mark_awaited(&staging->own)
               : atomic_load_explicit(&staging->arrival->came, memory_order_acquire);
}

static uint32_t staging_next_mark(const struct hoop_staging *staging)
{
    return (staging->own.word != 0 ? staging->own.put : staging->launched) + 1;
}

hoop_result_t hoop_staging_follow(struct hoop_staging *staging, hoop_stream_t stream)
{
    hoop_result_t result = hoop_cuda_enter(hoop_cuda_stream_context(stream, staging->context));
    if (result == HOOP_OK) {
        result = staging_mark(staging, &staging->theirs, stream);
        hoop_cuda_leave();
    }
    return result;
}

hoop_result_t hoop_staging_fetch_behind(struct hoop_staging *staging, hoop_stream_t stream)
{
    if (hoop_overlap_is_worth_it(staging->bytes) ||
        hoop_cuda_stream_context(stream, staging->context) != staging->context) {
        hoop_staging_fetch(staging);
        return hoop_staging_follow(staging, stream);
    }
    hoop_result_t result = hoop_staging_enter(staging);
    if (result != HOOP_OK) {
        return result;
    }
    result = hoop_staging_record(staging, stream, false);
    /* Also behind a copy that was refused: those before it may still run. */
    const hoop_result_t marked = staging_mark(staging, &staging->theirs, stream);
    if (marked != HOOP_OK) { /* no mark will tell when they end */
        staging->launched++;
        staging->state = HOOP_STAGING_MARKED;
    }
    result = result == HOOP_OK ? marked : result;
    hoop_staging_leave();
    return result;
}

void hoop_staging_await(struct hoop_staging *staging, const struct hoop_bell *bell)
{
    staging->bell = bell;
}

void hoop_staging_fetch(struct hoop_staging *staging)
{
    for (size_t i = 0; i < staging->count; i++) {
        staging->fetches |= !staging->pieces[i].deliver;
    }
}

hoop_result_t hoop_staging_mark(struct hoop_staging *staging)
{
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        result = staging_mark(staging, &staging->own, staging->work);
        hoop_staging_leave();
    }
    return result;
}

static hoop_result_t staging_launch(struct hoop_staging *staging, struct hoop_overlap_piece piece)
{
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        staging->state = HOOP_STAGING_LAUNCHED;
        result = hoop_staging_record_piece(staging, piece, staging->work);
        result = result == HOOP_OK ? staging_mark(staging, &staging->own, staging->work) : result;
        hoop_staging_leave();
    }
    return result;
}

void hoop_staging_cut(struct hoop_staging *staging, const struct hoop_plan *plan,
                      hoop_step_fn *steps, const void *in, const void *out)
{
    hoop_overlap_cut(&staging->overlap,
                     &(struct hoop_overlap_buffers){staging->pieces, staging->count, staging->host,
                                                    staging->bytes, in, out},
                     plan, steps);
}

hoop_result_t hoop_staging_move(struct hoop_staging *staging, uint64_t passed)
{
    struct hoop_overlap *overlap = &staging->overlap;
    struct hoop_overlap_piece piece;
    hoop_result_t result = HOOP_OK;
    hoop_overlap_arrive(overlap, staging_came(staging));
    while (result == HOOP_OK &&
           (piece = hoop_overlap_deliver(overlap, passed), piece.from < piece.to)) {
        result = staging_launch(staging, piece);
    }
    while (result == HOOP_OK && (piece = hoop_overlap_fetch(overlap, staging_next_mark(staging)),
                                 piece.from < piece.to)) {
        result = staging_launch(staging, piece);
    }
    return result;
}

hoop_result_t hoop_staging_copy(struct hoop_staging *staging, bool deliver)
{
    if (staging->overlap.count > 0) {
        return hoop_staging_move(staging, deliver ? UINT64_MAX : 0);
    }
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        staging->state = HOOP_STAGING_LAUNCHED;
        result = hoop_staging_record(staging, staging->work, deliver);
        result = result == HOOP_OK ? staging_mark(staging, &staging->own, staging->work) : result;
        hoop_staging_leave();
    }
    return result;
}

/* HOOP_OK: hoop's stream is empty. HOOP_AGAIN: it is not. Or an error: no more marks will come. */
static hoop_result_t staging_query(const struct hoop_staging *staging)
{
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        const int error = hoop_cuda.stream_query(staging->work);
        hoop_staging_leave();
        result = error == HOOP_CU_NOT_READY
                     ? HOOP_AGAIN
                     : hoop_cuda_check("cuStreamQuery: work on the device", error);
    }
    return result;
}

/* Only looks for an error, while a mark or a bell is awaited: an empty stream is HOOP_AGAIN too.
 * Asks CUDA only now and then, as that takes longer than a look at a word. */
static hoop_result_t staging_query_awaiting(struct hoop_staging *staging)
{
    const uint64_t now = hoop_now_ns();
    if (now - staging->asked_ns < STAGING_ASK_NS) {
        return HOOP_AGAIN;
    }
    staging->asked_ns = now;
    const hoop_result_t result = staging_query(staging);
    return result == HOOP_OK ? HOOP_AGAIN : result;
}

/* Is all over that was launched? */
static hoop_result_t staging_poll(struct hoop_staging *staging)
{
    const bool words =
        hoop_mark_awaited(&staging->own) != 0 || hoop_mark_awaited(&staging->theirs) != 0;
    const bool came = !words && atomic_load_explicit(&staging->arrival->came,
                                                     memory_order_acquire) == staging->launched;
    hoop_result_t result = HOOP_OK;
    staging_nap(staging, words);
    if (staging->state == HOOP_STAGING_MARKED && !came) {
        result = staging_query_awaiting(staging);
    } else if (staging->state == HOOP_STAGING_LAUNCHED || !came) {
        result = staging_query(staging);
    }
    staging->state = result == HOOP_OK ? HOOP_STAGING_IDLE : staging->state;
    return result;
}

hoop_result_t hoop_staging_poll(struct hoop_staging *staging)
{
    if (staging->bell != NULL && !hoop_bell_has_rung(staging->bell)) {
        return staging_query_awaiting(staging);
    }
    staging->bell = NULL;
    hoop_result_t result = staging_poll(staging);
    if (result == HOOP_OK && staging->fetches) {
        staging->fetches = false;
        result = hoop_staging_copy(staging, false);
        result = result == HOOP_OK ? HOOP_AGAIN : result;
    }
    return result;
}

hoop_result_t hoop_staging_cancel(struct hoop_staging *staging, uint64_t timeout_ms)
{
    const uint64_t start = hoop_now_ns();
    staging->bell = NULL;
    staging->fetches = false;
    hoop_result_t result =
        staging->state != HOOP_STAGING_IDLE ? hoop_staging_poll(staging) : HOOP_OK;
    while (result == HOOP_AGAIN &&
           (timeout_ms == 0 || hoop_now_ns() - start < timeout_ms * HOOP_NS_PER_MS)) {
        hoop_wait_briefly();
        result = hoop_staging_poll(staging);
    }
    return result == HOOP_AGAIN
               ? hoop_error(HOOP_TIMEOUT, "what was launched on the device has not ended")
               : HOOP_OK;
}

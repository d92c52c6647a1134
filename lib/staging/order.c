/* Order with CUDA streams (see order.h). */
#include "staging/order.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/sizes.h"
#include "runtime/wait.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ORDER_WORDS ((uint32_t)(HOOP_PAGE_BYTES / sizeof(uint32_t)))

static struct {
    pthread_mutex_t lock;
    /* under the lock */
    struct hoop_bell *bells;
    uint32_t free[ORDER_WORDS], n_free;
    uint32_t pinning; /* threads that pin memory; unless 0 no hold is given out */
    /* written once, before any hold is given out */
    _Atomic uint32_t *words; /* shared: no copy on write after a fork, which the device can't see */
    hoop_cu_address_t seen;  /* their address for devices */
} order = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- Bells ---------------------------------------------------------------------------------- */

/* In a list of all bells, so that a leak checker finds those whose stream never comes, because its
 * device has failed. */
struct hoop_bell {
    struct hoop_bell *next, **before;
    _Atomic uint32_t rung,
        holders;   /* streams that have come; that may still come, plus the owner */
    uint32_t hung; /* streams that it hangs on */
    int wake_fd;
};

bool hoop_bell_has_rung(const struct hoop_bell *bell)
{
    return atomic_load_explicit(&bell->rung, memory_order_acquire) == bell->hung;
}

static struct hoop_bell *bell_create(uint32_t hung, int wake_fd)
{
    struct hoop_bell *bell = calloc(1, sizeof(*bell));
    if (bell == NULL) {
        return NULL;
    }
    bell->hung = hung;
    bell->wake_fd = wake_fd;
    atomic_init(&bell->holders, 1);
    pthread_mutex_lock(&order.lock);
    bell->next = order.bells;
    bell->before = &order.bells;
    if (bell->next != NULL) {
        bell->next->before = &bell->next;
    }
    order.bells = bell;
    pthread_mutex_unlock(&order.lock);
    return bell;
}

void hoop_bell_release(struct hoop_bell *bell)
{
    if (bell == NULL || atomic_fetch_sub(&bell->holders, 1) != 1) {
        return;
    }
    pthread_mutex_lock(&order.lock);
    *bell->before = bell->next;
    if (bell->next != NULL) {
        bell->next->before = bell->before;
    }
    pthread_mutex_unlock(&order.lock);
    free(bell);
}

/* On CUDA's thread, which may not call CUDA. */
static void bell_ring(void *arg)
{
    struct hoop_bell *bell = arg;
    const int wake_fd = bell->wake_fd;
    atomic_fetch_add_explicit(&bell->rung, 1, memory_order_release);
    hoop_wake(wake_fd);
    hoop_bell_release(bell);
}

static hoop_result_t bell_hang(struct hoop_bell *bell, const struct hoop_order_part *part)
{
    hoop_result_t result = hoop_cuda_enter(hoop_cuda_stream_context(part->stream, part->context));
    if (result == HOOP_OK) {
        atomic_fetch_add(&bell->holders, 1);
        result = hoop_cuda_check("cuLaunchHostFunc on the stream of the call",
                                 hoop_cuda.host_function(part->stream, bell_ring, bell));
        hoop_cuda_leave();
        if (result != HOOP_OK) {
            hoop_bell_release(bell);
        }
    }
    return result;
}

hoop_result_t hoop_bell_hang(hoop_cu_context_t context, hoop_stream_t stream, int wake_fd,
                             struct hoop_bell **ret)
{
    struct hoop_bell *bell = bell_create(1, wake_fd);
    if (bell == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a call on a stream");
    }
    *ret = bell;
    return bell_hang(bell, &(struct hoop_order_part){context, stream});
}

/* ---- Holds ---------------------------------------------------------------------------------- */

bool hoop_hold_is_possible(void)
{
    return hoop_settings()->cuda_ahead == HOOP_AHEAD_ALL && hoop_cuda.stream_wait_value != NULL &&
           hoop_cuda.stream_id != NULL;
}

/* In a context: maps and pins pages for words. They stay until the process ends. */
static hoop_result_t words_map(size_t bytes, _Atomic uint32_t **ret, hoop_cu_address_t *ret_seen)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return hoop_errno_error(errno, "no page for words");
    }
    hoop_result_t result = hoop_cuda_check(
        "cuMemHostRegister",
        hoop_cuda.host_register(pages, bytes,
                                HOOP_CU_HOST_REGISTER_PORTABLE | HOOP_CU_HOST_REGISTER_MAPPED));
    if (result == HOOP_OK) {
        result = hoop_cuda_check("cuMemHostGetDevicePointer",
                                 hoop_cuda.host_pointer(ret_seen, pages, 0));
        if (result != HOOP_OK) {
            (void)hoop_cuda.host_unregister(pages);
        }
    }
    if (result != HOOP_OK) {
        (void)munmap(pages, bytes);
        return result;
    }
    *ret = pages;
    return HOOP_OK;
}

/* With the lock, in a context. */
static hoop_result_t words_make(void)
{
    const hoop_result_t result = words_map(HOOP_PAGE_BYTES, &order.words, &order.seen);
    if (result != HOOP_OK) {
        return result;
    }
    for (order.n_free = 0; order.n_free < ORDER_WORDS; order.n_free++) {
        order.free[order.n_free] = order.n_free;
    }
    return HOOP_OK;
}

hoop_result_t hoop_hold_take(hoop_cu_context_t context, struct hoop_hold *ret)
{
    hoop_result_t result = HOOP_OK;
    pthread_mutex_lock(&order.lock);
    if (order.pinning > 0) {
        result =
            hoop_error(HOOP_AGAIN, "memory is being pinned: no stream may be held until that ends");
    } else if (order.words == NULL) {
        result = hoop_cuda_enter(context);
        if (result == HOOP_OK) {
            result = words_make();
            hoop_cuda_leave();
        }
    }
    if (result == HOOP_OK && order.n_free == 0) {
        result = hoop_error(HOOP_OUT_OF_MEMORY, "%u calls hold streams, the most at a time",
                            ORDER_WORDS);
    }
    if (result == HOOP_OK) {
        const uint32_t word = order.free[--order.n_free];
        const uint32_t now = atomic_load_explicit(&order.words[word], memory_order_relaxed);
        /* Value 0 means no hold. Skipping it is fine, since the comparison wraps. */
        *ret = (struct hoop_hold){word, now + 1 != 0 ? now + 1 : 1};
    }
    pthread_mutex_unlock(&order.lock);
    return result;
}

/* With the lock: is no hold taken? */
static bool holds_are_over(void)
{
    return order.words == NULL || order.n_free == ORDER_WORDS;
}

bool hoop_pin_try(void)
{
    pthread_mutex_lock(&order.lock);
    const bool may = holds_are_over();
    order.pinning += may;
    pthread_mutex_unlock(&order.lock);
    return may;
}

hoop_result_t hoop_pin_begin(uint64_t timeout_ms)
{
    const uint64_t deadline_ns = hoop_deadline_ns(timeout_ms);
    pthread_mutex_lock(&order.lock);
    order.pinning++;
    while (!holds_are_over() && hoop_now_ns() < deadline_ns) {
        pthread_mutex_unlock(&order.lock);
        hoop_wait_briefly();
        pthread_mutex_lock(&order.lock);
    }
    const bool may = holds_are_over();
    order.pinning -= !may;
    pthread_mutex_unlock(&order.lock);
    return may ? HOOP_OK
               : hoop_error(
                     HOOP_TIMEOUT,
                     "calls have held streams for %llu ms, and no memory can be pinned meanwhile",
                     (unsigned long long)timeout_ms);
}

void hoop_pin_end(void)
{
    pthread_mutex_lock(&order.lock);
    order.pinning--;
    pthread_mutex_unlock(&order.lock);
}

bool hoop_pin_is_under_way(void)
{
    pthread_mutex_lock(&order.lock);
    const bool is = order.pinning > 0;
    pthread_mutex_unlock(&order.lock);
    return is;
}

hoop_result_t hoop_hold_put(const struct hoop_hold *hold, hoop_cu_context_t context,
                            hoop_stream_t stream)
{
    hoop_result_t result = hoop_cuda_enter(hoop_cuda_stream_context(stream, context));
    if (result == HOOP_OK) {
        result = hoop_cuda_check(
            "cuStreamWaitValue32 on the stream of the call",
            hoop_cuda.stream_wait_value(stream, order.seen + hold->word * sizeof(uint32_t),
                                        hold->value, HOOP_CU_WAIT_VALUE_GEQ));
        hoop_cuda_leave();
    }
    return result;
}

void hoop_hold_release(struct hoop_hold *hold)
{
    if (hold->value == 0) {
        return;
    }
    atomic_store_explicit(&order.words[hold->word], hold->value, memory_order_release);
    pthread_mutex_lock(&order.lock);
    order.free[order.n_free++] = hold->word;
    pthread_mutex_unlock(&order.lock);
    hold->value = 0;
}

/* ---- Marks ---------------------------------------------------------------------------------- */

/* Each mark has a cache line of its own. */
#define MARKS_MOST 1024u
#define MARKS_APART ((uint32_t)(HOOP_LINE_BYTES / sizeof(uint32_t)))

static struct {
    pthread_mutex_t lock;
    bool tried;
    uint32_t free[MARKS_MOST], n_free; /* under the lock */
    /* written once, before any mark is given out */
    _Atomic uint32_t *words;
    hoop_cu_address_t seen;
} marks = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic uint32_t *mark_word(const struct hoop_mark *mark)
{
    return &marks.words[(size_t)(mark->word - 1) * MARKS_APART];
}

/* With the lock, in a context. */
static void marks_make(void)
{
    marks.tried = true;
    if (hoop_cuda.stream_write_value != NULL &&
        words_map((size_t)MARKS_MOST * HOOP_LINE_BYTES, &marks.words, &marks.seen) == HOOP_OK) {
        for (marks.n_free = 0; marks.n_free < MARKS_MOST; marks.n_free++) {
            marks.free[marks.n_free] = marks.n_free + 1;
        }
    }
}

void hoop_mark_take(struct hoop_mark *ret)
{
    *ret = (struct hoop_mark){0, 0};
    pthread_mutex_lock(&marks.lock);
    if (!marks.tried) {
        marks_make();
    }
    if (marks.n_free > 0) {
        ret->word = marks.free[--marks.n_free];
        ret->put = atomic_load_explicit(mark_word(ret), memory_order_relaxed);
    }
    pthread_mutex_unlock(&marks.lock);
}

void hoop_mark_give(struct hoop_mark *mark)
{
    if (mark->word != 0) {
        pthread_mutex_lock(&marks.lock);
        marks.free[marks.n_free++] = mark->word;
        pthread_mutex_unlock(&marks.lock);
    }
    mark->word = 0;
}

hoop_result_t hoop_mark_put(struct hoop_mark *mark, hoop_stream_t stream)
{
    const hoop_cu_address_t at = marks.seen + (hoop_cu_address_t)(mark->word - 1) * HOOP_LINE_BYTES;
    const hoop_result_t result = hoop_cuda_check(
        "cuStreamWriteValue32", hoop_cuda.stream_write_value(stream, at, mark->put + 1, 0));
    mark->put += result == HOOP_OK;
    return result;
}

uint32_t hoop_mark_awaited(const struct hoop_mark *mark)
{
    return mark->word == 0
               ? 0
               : mark->put - atomic_load_explicit(mark_word(mark), memory_order_acquire);
}

/* ---- Both, on several streams --------------------------------------------------------------- */

struct hoop_stream_order *hoop_order_create(size_t most)
{
    struct hoop_stream_order *made = malloc(sizeof(*made) + most * sizeof(made->parts[0]));
    if (made != NULL) {
        made->bell = NULL;
        made->hold = (struct hoop_hold){0};
        made->count = 0;
    }
    return made;
}

void hoop_order_destroy(struct hoop_stream_order *of)
{
    if (of != NULL) {
        hoop_hold_release(&of->hold);
        hoop_bell_release(of->bell);
        free(of);
    }
}

void hoop_order_add(struct hoop_stream_order *of, hoop_cu_context_t context, hoop_stream_t stream)
{
    size_t i = 0;
    while (i < of->count && (of->parts[i].context != context || of->parts[i].stream != stream)) {
        i++;
    }
    if (i == of->count) {
        of->parts[of->count++] = (struct hoop_order_part){context, stream};
    }
}

hoop_result_t hoop_order_begin(struct hoop_stream_order *of, int wake_fd)
{
    hoop_result_t result = hoop_hold_take(of->parts[0].context, &of->hold);
    of->bell = result == HOOP_OK ? bell_create((uint32_t)of->count, wake_fd) : NULL;
    if (result == HOOP_OK && of->bell == NULL) {
        result = hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a call on a stream");
    }
    for (size_t i = 0; i < of->count && result == HOOP_OK; i++) {
        result = bell_hang(of->bell, &of->parts[i]);
    }
    return result;
}

hoop_result_t hoop_order_hold(const struct hoop_stream_order *of, const struct hoop_hold *hold)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < of->count && result == HOOP_OK; i++) {
        result = hoop_hold_put(hold, of->parts[i].context, of->parts[i].stream);
    }
    return result;
}

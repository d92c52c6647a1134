/* A CUDA driver for tests (see fake_cuda.h): memory, contexts, and what tests ask. */
#include "fakes/fake_cuda.h"

#include "fakes/fake_cuda_inside.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POOL_BYTES ((size_t)256 << 20)
#define MOST 4096 /* allocations, pinned ranges */

struct range {
    uintptr_t at;
    size_t bytes;
};

struct hoop_cu_context {
    int device;
};

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *front, *back; /* the device's addresses; where the device is */
static struct range allocations[MOST], pinned[MOST];
static size_t n_allocations, n_pinned, allocated;
static struct hoop_cu_context context;
static unsigned breaks_after; /* copies; 0: never */
static bool initialised;
static _Thread_local hoop_cu_context_t current[8];
static _Thread_local int depth;

/* ---- Memory, with the lock ---- */

static bool range_holds(const struct range *range, uintptr_t at, size_t bytes)
{
    return at >= range->at && at - range->at <= range->bytes &&
           bytes <= range->bytes - (at - range->at);
}

static bool ranges_hold(const struct range *ranges, size_t count, uintptr_t at, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (range_holds(&ranges[i], at, bytes)) {
            return true;
        }
    }
    return false;
}

static bool on_device(uintptr_t at)
{
    return at >= (uintptr_t)front && at - (uintptr_t)front < POOL_BYTES;
}

/* Where the device finds it; NULL: it may not. */
static unsigned char *resolve(hoop_cu_address_t at, size_t bytes)
{
    if (on_device(at)) {
        return ranges_hold(allocations, n_allocations, at, bytes) ? back + (at - (uintptr_t)front)
                                                                  : NULL;
    }
    return ranges_hold(pinned, n_pinned, at, bytes) ? (unsigned char *)(uintptr_t)at : NULL;
}

static void range_remove(struct range *ranges, size_t *count, size_t i)
{
    ranges[i] = ranges[--*count];
}

/* The first gap; 0: none. 256 bytes apart, as CUDA has it. */
static uintptr_t find_gap(size_t bytes)
{
    uintptr_t at = (uintptr_t)front;
    for (size_t i = 0; i < n_allocations; i++) {
        const struct range *range = &allocations[i];
        if (at < range->at + range->bytes && range->at < at + bytes) {
            at = (range->at + range->bytes + 511) / 256 * 256;
            i = (size_t)-1; /* look at all again */
        }
    }
    return at + bytes <= (uintptr_t)front + POOL_BYTES ? at : 0;
}

/* ---- The driver's functions ---- */

bool fake_has_context(void)
{
    return depth > 0;
}

static int pool_make(void)
{
    const int fd = memfd_create("fake_cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)POOL_BYTES) != 0) {
        return HOOP_CU_NO_DEVICE;
    }
    front = mmap(NULL, POOL_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    back = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return front != MAP_FAILED && back != MAP_FAILED ? HOOP_CU_SUCCESS : HOOP_CU_NO_DEVICE;
}

int fake_init(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&fake_lock);
    const int result = initialised ? HOOP_CU_SUCCESS : pool_make();
    initialised |= result == HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_error_name(int error, const char **ret)
{
    *ret = error == HOOP_CU_OUT_OF_MEMORY    ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == FAKE_ILLEGAL_ADDRESS   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : error == HOOP_CU_INVALID_HANDLE ? "CUDA_ERROR_INVALID_HANDLE"
                                             : "CUDA_ERROR_FAKE";
    return HOOP_CU_SUCCESS;
}

int fake_error_text(int error, const char **ret)
{
    *ret = error == HOOP_CU_OUT_OF_MEMORY ? "out of memory" : "as the test wants it";
    return HOOP_CU_SUCCESS;
}

int fake_primary_retain(hoop_cu_context_t *ret, int device)
{
    *ret = &context;
    return device == 0 ? HOOP_CU_SUCCESS : HOOP_CU_NO_DEVICE;
}

int fake_context_get(hoop_cu_context_t *ret)
{
    pthread_mutex_lock(&fake_lock);
    const int result = initialised ? HOOP_CU_SUCCESS : HOOP_CU_NOT_INITIALIZED;
    pthread_mutex_unlock(&fake_lock);
    *ret = depth > 0 ? current[depth - 1] : NULL;
    return result;
}

int fake_context_device(int *ret)
{
    *ret = 0;
    return depth > 0 ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_CONTEXT;
}

int fake_context_push(hoop_cu_context_t pushed)
{
    if (pushed != &context || depth == 8) {
        return HOOP_CU_INVALID_CONTEXT;
    }
    current[depth++] = pushed;
    return HOOP_CU_SUCCESS;
}

int fake_context_pop(hoop_cu_context_t *ret)
{
    if (depth == 0) {
        return HOOP_CU_INVALID_CONTEXT;
    }
    *ret = current[--depth];
    return HOOP_CU_SUCCESS;
}

int fake_pointer_get(void *ret, int attribute, hoop_cu_address_t ptr)
{
    pthread_mutex_lock(&fake_lock);
    const int result = !initialised                                      ? HOOP_CU_NOT_INITIALIZED
                       : ranges_hold(allocations, n_allocations, ptr, 1) ? HOOP_CU_SUCCESS
                                                                         : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    if (result != HOOP_CU_SUCCESS) {
        return result;
    }
    if (attribute == HOOP_CU_POINTER_CONTEXT) {
        *(hoop_cu_context_t *)ret = &context;
    } else {
        *(unsigned *)ret = HOOP_CU_MEMORY_DEVICE;
    }
    return HOOP_CU_SUCCESS;
}

int fake_alloc(hoop_cu_address_t *ret, size_t bytes)
{
    if (depth == 0) {
        return HOOP_CU_INVALID_CONTEXT;
    }
    pthread_mutex_lock(&fake_lock);
    const uintptr_t at = n_allocations < MOST ? find_gap(bytes) : 0;
    if (at != 0) {
        allocations[n_allocations++] = (struct range){at, bytes};
        allocated += bytes;
        memset(back + (at - (uintptr_t)front), 0xcd, bytes);
        *ret = at;
    }
    pthread_mutex_unlock(&fake_lock);
    return at != 0 ? HOOP_CU_SUCCESS : HOOP_CU_OUT_OF_MEMORY;
}

int fake_free(hoop_cu_address_t ptr)
{
    int result = HOOP_CU_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    fake_drain();
    for (size_t i = 0; i < n_allocations && result != HOOP_CU_SUCCESS; i++) {
        if (allocations[i].at == ptr) {
            memset(back + (ptr - (uintptr_t)front), 0xdd, allocations[i].bytes);
            allocated -= allocations[i].bytes;
            range_remove(allocations, &n_allocations, i);
            result = HOOP_CU_SUCCESS;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_set_bytes(hoop_cu_address_t ptr, unsigned char value, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    unsigned char *at = resolve(ptr, bytes);
    if (at != NULL) {
        memset(at, value, bytes);
    }
    pthread_mutex_unlock(&fake_lock);
    return at != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

int fake_host_register(void *ptr, size_t bytes, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&fake_lock);
    const bool room = n_pinned < MOST;
    if (room) {
        pinned[n_pinned++] = (struct range){(uintptr_t)ptr, bytes};
    }
    pthread_mutex_unlock(&fake_lock);
    return room ? HOOP_CU_SUCCESS : HOOP_CU_OUT_OF_MEMORY;
}

int fake_host_unregister(void *ptr)
{
    int result = HOOP_CU_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    for (size_t i = 0; i < n_pinned && result != HOOP_CU_SUCCESS; i++) {
        if (pinned[i].at == (uintptr_t)ptr) {
            range_remove(pinned, &n_pinned, i);
            result = HOOP_CU_SUCCESS;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_copy(hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes, hoop_stream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    if (breaks_after != 0 && --breaks_after == 0) {
        fake_broken = true;
        pthread_cond_broadcast(&fake_changed);
    }
    const struct fake_task task = {
        .kind = FAKE_COPY, .to = resolve(to, bytes), .from = resolve(from, bytes), .bytes = bytes};
    const int result = task.to != NULL && task.from != NULL && on_device(to) != on_device(from)
                           ? fake_push(stream, &task)
                           : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    /* It is accepted: the error shows later. */
    return result == FAKE_ILLEGAL_ADDRESS ? HOOP_CU_SUCCESS : result;
}

int fake_copy_to_host(void *to, hoop_cu_address_t from, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    const unsigned char *at = on_device(from) ? resolve(from, bytes) : NULL;
    pthread_mutex_unlock(&fake_lock);
    if (at != NULL) {
        memcpy(to, at, bytes);
    }
    return at != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

/* ---- What tests ask ---- */

EXPORT fake_cuda_view_t fake_cuda_view;
EXPORT fake_cuda_fill_t fake_cuda_fill;
EXPORT fake_cuda_capture_t fake_cuda_capture;
EXPORT fake_cuda_break_t fake_cuda_break;
EXPORT fake_cuda_use_t fake_cuda_use;

ptrdiff_t fake_cuda_view(void)
{
    (void)fake_init(0);
    return (ptrdiff_t)((uintptr_t)back - (uintptr_t)front);
}

void fake_cuda_fill(hoop_stream_t stream, void *at, int byte, size_t bytes, unsigned delay_us)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_task task = {.kind = FAKE_FILL,
                                   .to = resolve((uintptr_t)at, bytes),
                                   .value = byte,
                                   .bytes = bytes,
                                   .delay_us = delay_us};
    (void)fake_push(stream, &task);
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_capture(hoop_stream_t stream, int on)
{
    pthread_mutex_lock(&fake_lock);
    fake_stream_capture(stream, on != 0);
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_break(unsigned n)
{
    pthread_mutex_lock(&fake_lock);
    breaks_after = n;
    fake_broken &= n != 0;
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_use(size_t *ret_bytes, size_t *ret_pinned)
{
    pthread_mutex_lock(&fake_lock);
    *ret_bytes = allocated;
    *ret_pinned = n_pinned;
    pthread_mutex_unlock(&fake_lock);
}

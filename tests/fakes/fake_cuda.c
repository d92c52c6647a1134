/* A CUDA driver for tests (see fake_cuda.h): contexts, copies, and what tests ask. */
#include "fakes/fake_cuda.h"

#include "fakes/fake_cuda_inside.h"

#include <stdlib.h>
#include <string.h>

struct hoop_cu_context {
    int device;
};

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoop_cu_context context;
static unsigned breaks_after; /* copies and launches; 0: never */
static unsigned host_copies;
static bool initialised;
bool fake_forgot;
static _Thread_local hoop_cu_context_t current[8];
static _Thread_local int depth;

bool fake_has_context(void)
{
    return depth > 0;
}

struct hoop_cu_context *fake_context(void)
{
    return &context;
}

/* ---- The driver's functions ---- */

int fake_init(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&fake_lock);
    const int result = initialised ? HOOP_CU_SUCCESS : fake_pool_make();
    initialised |= result == HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_error_name(int error, const char **ret)
{
    *ret = error == HOOP_CU_OUT_OF_MEMORY      ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == FAKE_ILLEGAL_ADDRESS     ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : error == HOOP_CU_INVALID_HANDLE   ? "CUDA_ERROR_INVALID_HANDLE"
           : error == FAKE_OUT_OF_RESOURCES    ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
           : error == HOOP_CU_CAPTURE_IMPLICIT ? "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
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

int fake_context_synchronize(void)
{
    pthread_mutex_lock(&fake_lock);
    fake_drain();
    const int result = fake_broken ? FAKE_ILLEGAL_ADDRESS : HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_device_attribute(int *ret, int attribute, int device)
{
    *ret = attribute == HOOP_CU_MULTIPROCESSORS ? 2 : getenv("FAKE_CUDA_NO_MAPPING") == NULL;
    return device == 0 ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

/* One device on the machine, unless the test says which. */
int fake_device_uuid(void *ret, int device)
{
    const char *which = getenv("FAKE_CUDA_DEVICE");
    memset(ret, 0x5c, 16);
    memcpy(ret, which != NULL ? which : "0", 1);
    return device == 0 ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
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

void fake_count_work(bool to_or_from_host)
{
    host_copies += to_or_from_host;
    if (breaks_after != 0 && --breaks_after == 0) {
        fake_broken = true;
        pthread_cond_broadcast(&fake_changed);
    }
}

int fake_copy(hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes, hoop_stream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    const bool inside = fake_on_device(to) && fake_on_device(from);
    fake_count_work(!inside);
    const struct fake_task task = {.kind = FAKE_COPY,
                                   .to = fake_resolve(to, bytes),
                                   .from = fake_resolve(from, bytes),
                                   .bytes = bytes};
    const int result =
        task.to != NULL && task.from != NULL && (fake_on_device(to) || fake_on_device(from))
            ? fake_push(stream, &task)
            : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    /* It is accepted: the error shows later. */
    return result == FAKE_ILLEGAL_ADDRESS ? HOOP_CU_SUCCESS : result;
}

int fake_copy_to_host(void *to, hoop_cu_address_t from, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    const unsigned char *at = fake_on_device(from) ? fake_resolve(from, bytes) : NULL;
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
EXPORT fake_cuda_forget_t fake_cuda_forget;
EXPORT fake_cuda_host_copies_t fake_cuda_host_copies;

ptrdiff_t fake_cuda_view(void)
{
    (void)fake_init(0);
    return fake_view();
}

void fake_cuda_fill(hoop_stream_t stream, void *at, int byte, size_t bytes, unsigned delay_us)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_task task = {.kind = FAKE_FILL,
                                   .to = fake_resolve((uintptr_t)at, bytes),
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

void fake_cuda_forget(int on)
{
    pthread_mutex_lock(&fake_lock);
    fake_forgot = on != 0;
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_use(size_t *ret_bytes, size_t *ret_pinned)
{
    pthread_mutex_lock(&fake_lock);
    fake_memory_use(ret_bytes, ret_pinned);
    pthread_mutex_unlock(&fake_lock);
}

unsigned fake_cuda_host_copies(void)
{
    pthread_mutex_lock(&fake_lock);
    const unsigned ret = host_copies;
    pthread_mutex_unlock(&fake_lock);
    return ret;
}

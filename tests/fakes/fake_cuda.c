/* A CUDA driver for tests (see fake_cuda.h): contexts, copies, and functions that tests use. */
#include "fakes/fake_cuda.h"

#include "fakes/fake_cuda_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hoop_cu_context {
    unsigned peers; /* a bit for each context that may access this one's memory */
    bool retained;
};

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoop_cu_context contexts[FAKE_CONTEXTS]; /* device i has i and FAKE_DEVICES + i */
static unsigned breaks_after;                          /* copies and launches; 0: never */
static unsigned host_copies, fetches, copy_delay_us;
static bool holding;
static unsigned passing;
static hoop_stream_t held_stream; /* NULL: no stream is held yet */
atomic_bool fake_held;
static bool initialised;
bool fake_forgot;
static _Thread_local hoop_cu_context_t current[8];
static _Thread_local int depth;

/* ---- Devices and contexts ---- */

static int machine_devices(void)
{
    const char *count = getenv("FAKE_CUDA_DEVICES");
    return count != NULL ? atoi(count) : 1;
}

int fake_physical(int device)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    const size_t at = 2 * (size_t)device; /* a digit and a comma for each */
    int physical = device;
    if (list != NULL) {
        physical = device >= 0 && at < strlen(list) ? list[at] - '0' : -1;
    }
    return physical >= 0 && physical < machine_devices() ? physical : -1;
}

int fake_visible(void)
{
    int count = 0;
    while (count < FAKE_DEVICES && fake_physical(count) >= 0) {
        count++;
    }
    return count;
}

int fake_number(int physical)
{
    int device = fake_visible() - 1;
    while (device >= 0 && fake_physical(device) != physical) {
        device--;
    }
    return device;
}

bool fake_reaches(int device, int home)
{
    const char *apart = getenv("FAKE_CUDA_APART");
    const char a = (char)('0' + fake_physical(device)), b = (char)('0' + fake_physical(home));
    const char one[] = {a, b, 0}, other[] = {b, a, 0};
    return device == home || apart == NULL ||
           (strstr(apart, one) == NULL && strstr(apart, other) == NULL);
}

bool fake_has_context(void)
{
    return depth > 0;
}

struct hoop_cu_context *fake_context(void)
{
    return depth > 0 ? current[depth - 1] : &contexts[0];
}

unsigned fake_context_number(const struct hoop_cu_context *context)
{
    return (unsigned)(context - contexts);
}

int fake_device_of(const struct hoop_cu_context *context)
{
    return (int)(fake_context_number(context) % FAKE_DEVICES);
}

bool fake_is_let_in(const struct hoop_cu_context *context, const struct hoop_cu_context *to)
{
    return context == to || (context->peers & (1u << fake_context_number(to))) != 0;
}

static bool is_device(int device)
{
    return device >= 0 && device < fake_visible();
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

int fake_driver_version(int *ret)
{
    const char *version = getenv("FAKE_CUDA_VERSION");
    *ret = version != NULL ? atoi(version) : 12040;
    return HOOP_CU_SUCCESS;
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

int fake_device_count(int *ret)
{
    *ret = fake_visible();
    return HOOP_CU_SUCCESS;
}

int fake_can_access_peer(int *ret, int device, int peer)
{
    if (!is_device(device) || !is_device(peer)) {
        return HOOP_CU_INVALID_DEVICE;
    }
    *ret = device != peer && fake_reaches(device, peer);
    return HOOP_CU_SUCCESS;
}

int fake_primary_state(int device, unsigned *ret_flags, int *ret)
{
    if (!is_device(device)) {
        return HOOP_CU_INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake_lock);
    *ret_flags = 0;
    *ret = contexts[device].retained;
    pthread_mutex_unlock(&fake_lock);
    return HOOP_CU_SUCCESS;
}

int fake_primary_retain(hoop_cu_context_t *ret, int device)
{
    if (!is_device(device)) {
        return HOOP_CU_INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake_lock);
    contexts[device].retained = true;
    pthread_mutex_unlock(&fake_lock);
    *ret = &contexts[device];
    return HOOP_CU_SUCCESS;
}

int fake_peer_enable(hoop_cu_context_t peer, unsigned flags)
{
    const int home = fake_device_of(peer), device = fake_device_of(fake_context());
    if (depth == 0 || flags != 0 || home == device) {
        return HOOP_CU_INVALID_CONTEXT;
    }
    if (!fake_reaches(device, home) || getenv("FAKE_CUDA_NO_ACCESS") != NULL) {
        return FAKE_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&fake_lock);
    const bool before = fake_is_let_in(fake_context(), peer);
    fake_context()->peers |= 1u << fake_context_number(peer);
    pthread_mutex_unlock(&fake_lock);
    return before ? HOOP_CU_PEER_ACCESS_ALREADY_ENABLED : HOOP_CU_SUCCESS;
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
    *ret = fake_device_of(fake_context());
    return depth > 0 ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_CONTEXT;
}

int fake_context_synchronize(void)
{
    pthread_mutex_lock(&fake_lock);
    if (fake_end_captures()) {
        pthread_mutex_unlock(&fake_lock);
        return FAKE_CAPTURE_UNSUPPORTED;
    }
    fake_drain();
    const int result = fake_broken ? FAKE_ILLEGAL_ADDRESS : HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_device_attribute(int *ret, int attribute, int device)
{
    (void)attribute; /* always: can it map memory? */
    *ret = getenv("FAKE_CUDA_NO_MAPPING") == NULL;
    return is_device(device) ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_DEVICE;
}

int fake_device_uuid(void *ret, int device)
{
    memset(ret, 0x5c, 16);
    *(char *)ret = (char)('0' + fake_physical(device));
    return is_device(device) ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_DEVICE;
}

static _Thread_local bool in_callback;

void fake_call_back(hoop_cu_host_fn_t *fn, void *arg)
{
    in_callback = true;
    fn(arg);
    in_callback = false;
}

void fake_check_caller(void)
{
    if (in_callback) {
        (void)fputs("fake CUDA: called by a host function, where CUDA may deadlock\n", stderr);
        abort();
    }
}

int fake_context_push(hoop_cu_context_t pushed)
{
    fake_check_caller();
    if (pushed < contexts || pushed >= contexts + FAKE_CONTEXTS || depth == 8) {
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

/* Not used by hoop, but by programs. Pushed contexts stay below. */
EXPORT int fake_context_set(hoop_cu_context_t context) __asm__("cuCtxSetCurrent");
int fake_context_set(hoop_cu_context_t context)
{
    depth -= depth > 0;
    return fake_context_push(context);
}

/* Likewise used by programs: the name of a device, and a copy that is complete when it returns. */
EXPORT int fake_device_name(char *ret, int bytes, int device) __asm__("cuDeviceGetName");
int fake_device_name(char *ret, int bytes, int device)
{
    (void)snprintf(ret, (size_t)bytes, "Fake %d", fake_physical(device));
    return is_device(device) ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_DEVICE;
}

EXPORT int fake_device_bus(char *ret, int bytes, int device) __asm__("cuDeviceGetPCIBusId");
int fake_device_bus(char *ret, int bytes, int device)
{
    (void)snprintf(ret, (size_t)bytes, "0000:%02x:00.0", fake_physical(device));
    return is_device(device) ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_DEVICE;
}

EXPORT int fake_copy_now(hoop_cu_address_t to, hoop_cu_address_t from,
                         size_t bytes) __asm__("cuMemcpy");
int fake_copy_now(hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    fake_drain();
    unsigned char *there = fake_on_device(to) ? fake_resolve(to, bytes, fake_context())
                                              : (unsigned char *)(uintptr_t)to;
    const unsigned char *here = fake_on_device(from) ? fake_resolve(from, bytes, fake_context())
                                                     : (unsigned char *)(uintptr_t)from;
    pthread_mutex_unlock(&fake_lock);
    if (there != NULL && here != NULL) {
        memcpy(there, here, bytes);
    }
    return there != NULL && here != NULL && fake_has_context() ? HOOP_CU_SUCCESS
                                                               : HOOP_CU_INVALID_VALUE;
}

void fake_count_work(bool to_or_from_host)
{
    host_copies += to_or_from_host;
    if (breaks_after != 0 && --breaks_after == 0) {
        fake_broken = true;
        pthread_cond_broadcast(&fake_changed);
    }
}

/* How long a copy takes the bus. */
static unsigned copy_us(size_t bytes)
{
    const char *rate = getenv("FAKE_CUDA_COPY_RATE");
    return copy_delay_us + (rate != NULL ? (unsigned)(bytes / (size_t)atoi(rate)) : 0);
}

int fake_copy(hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes, hoop_stream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    const bool inside = fake_on_device(to) && fake_on_device(from);
    fake_count_work(!inside);
    fetches += !fake_on_device(to);
    const struct hoop_cu_context *context = fake_context_of(stream);
    const struct fake_task task = {.kind = FAKE_COPY,
                                   .to = fake_resolve(to, bytes, context),
                                   .from = fake_resolve(from, bytes, context),
                                   .delay_us = inside ? 0 : copy_us(bytes),
                                   .held =
                                       held_stream == stream && passing == 0 && !fake_on_device(to),
                                   .bytes = bytes};
    if (holding && held_stream == NULL && !fake_on_device(to)) {
        held_stream = stream;
        passing = 3;
    } else if (held_stream == stream && !fake_on_device(to)) {
        passing -= passing > 0;
    } else if (held_stream != stream && !fake_on_device(from)) {
        atomic_store(&fake_held, false);
    }
    const int result =
        task.to != NULL && task.from != NULL && (fake_on_device(to) || fake_on_device(from))
            ? fake_push(stream, &task)
            : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    /* Accepted: the error shows up later. */
    return result == FAKE_ILLEGAL_ADDRESS ? HOOP_CU_SUCCESS : result;
}

/* For rows without gaps between them. */
int fake_copy_rows(const struct hoop_cu_rows *rows, hoop_stream_t stream)
{
    const size_t width = rows->width;
    const bool plain = rows->from.type == HOOP_CU_MEMORY_ANY &&
                       rows->to.type == HOOP_CU_MEMORY_ANY && rows->from.pitch == width &&
                       rows->to.pitch == width;
    return plain ? fake_copy(rows->to.at, rows->from.at, width * rows->height, stream)
                 : HOOP_CU_INVALID_VALUE;
}

/* On the default stream of the calling thread's context. */
int fake_copy_to_host(void *to, hoop_cu_address_t from, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_task task = {
        .kind = FAKE_COPY, .to = to, .from = fake_resolve(from, bytes, NULL), .bytes = bytes};
    const int result = fake_on_device(from) && task.from != NULL && fake_has_context()
                           ? fake_push(NULL, &task)
                           : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    return result == HOOP_CU_SUCCESS ? fake_stream_synchronize(NULL) : result;
}

/* ---- What tests ask ---- */

EXPORT fake_cuda_view_t fake_cuda_view;
EXPORT fake_cuda_other_t fake_cuda_other;
EXPORT fake_cuda_fill_t fake_cuda_fill;
EXPORT fake_cuda_capture_t fake_cuda_capture;
EXPORT fake_cuda_drop_t fake_cuda_drop; /* in fake_cuda_graphs.c */
EXPORT fake_cuda_break_t fake_cuda_break;
EXPORT fake_cuda_use_t fake_cuda_use;
EXPORT fake_cuda_copy_delay_t fake_cuda_copy_delay;
EXPORT fake_cuda_hold_t fake_cuda_hold;
EXPORT fake_cuda_forget_t fake_cuda_forget;
EXPORT fake_cuda_host_copies_t fake_cuda_host_copies;
EXPORT fake_cuda_fetches_t fake_cuda_fetches;
EXPORT fake_cuda_opened_t fake_cuda_opened;
EXPORT fake_cuda_pool_t fake_cuda_pool;

ptrdiff_t fake_cuda_view(void)
{
    (void)fake_init(0);
    return fake_view();
}

hoop_cu_context_t fake_cuda_other(int device)
{
    return &contexts[FAKE_DEVICES + device];
}

void fake_cuda_fill(hoop_stream_t stream, void *at, int byte, size_t bytes, unsigned delay_us)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_task task = {.kind = FAKE_FILL,
                                   .to =
                                       fake_resolve((uintptr_t)at, bytes, fake_context_of(stream)),
                                   .value = byte,
                                   .bytes = bytes,
                                   .delay_us = delay_us};
    (void)fake_push(stream, &task);
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_capture(hoop_stream_t stream, int on)
{
    pthread_mutex_lock(&fake_lock);
    struct hoop_cu_graph *before = fake_stream_capture(stream, on != 0);
    pthread_mutex_unlock(&fake_lock);
    fake_cuda_drop(before);
}

void fake_cuda_break(unsigned n)
{
    pthread_mutex_lock(&fake_lock);
    breaks_after = n;
    fake_broken &= n != 0;
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_hold(void)
{
    pthread_mutex_lock(&fake_lock);
    holding = true;
    held_stream = NULL;
    atomic_store(&fake_held, true);
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_copy_delay(unsigned us)
{
    pthread_mutex_lock(&fake_lock);
    copy_delay_us = us;
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

unsigned fake_cuda_fetches(void)
{
    pthread_mutex_lock(&fake_lock);
    const unsigned ret = fetches;
    pthread_mutex_unlock(&fake_lock);
    return ret;
}

size_t fake_cuda_opened(void)
{
    pthread_mutex_lock(&fake_lock);
    const size_t ret = fake_memory_opened();
    pthread_mutex_unlock(&fake_lock);
    return ret;
}

void fake_cuda_pool(const void *at)
{
    pthread_mutex_lock(&fake_lock);
    fake_memory_pool((uintptr_t)at);
    pthread_mutex_unlock(&fake_lock);
}

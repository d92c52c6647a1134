/* The CUDA driver (see cuda.h). */
#include "memory/cuda.h"

#include "base/log.h"
#include "base/settings.h"
#include "base/sizes.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct hoop_cuda hoop_cuda;
_Atomic bool hoop_cuda_loaded;

static pthread_once_t cuda_once = PTHREAD_ONCE_INIT;
static struct hoop_failure cuda_absence; /* why there is no driver; HOOP_OK: there is one */

static void cuda_bind_new(void *library, struct hoop_cuda *ret)
{
#define HOOP_CUDA_BIND(field, symbol, arguments)                                                   \
    found = dlsym(library, symbol);                                                                \
    memcpy(&ret->field, &found, sizeof(found));
    void *found = NULL;
    HOOP_CUDA_NEW_CALLS(HOOP_CUDA_BIND)
#undef HOOP_CUDA_BIND
}

/* All symbols or none. dlsym() gives a void *, which POSIX lets be a function's address. */
static const char *cuda_bind(void *library, struct hoop_cuda *ret)
{
    const struct {
        const char *symbol;
        void *place;
    } calls[] = {
#define HOOP_CUDA_BIND(field, symbol, arguments) {(symbol), &ret->field},
        HOOP_CUDA_CALLS(HOOP_CUDA_BIND)
#undef HOOP_CUDA_BIND
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *found = dlsym(library, calls[i].symbol);
        if (found == NULL) {
            return calls[i].symbol;
        }
        memcpy(calls[i].place, &found, sizeof(found));
    }
    cuda_bind_new(library, ret);
    return NULL;
}

/* The library is never closed: its threads, and handles of the program, outlive hoop. */
static void cuda_open(void)
{
    const char *path = hoop_settings()->cuda;
    if (path != NULL && strcmp(path, "off") == 0) {
        hoop_failure_set(&cuda_absence, HOOP_UNSUPPORTED, -1, "HOOP_CUDA is off");
        return;
    }
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        hoop_failure_set(&cuda_absence, HOOP_UNSUPPORTED, -1, "no CUDA driver: %s",
                         why != NULL ? why : "cannot be loaded");
        hoop_log(path != NULL ? HOOP_LOG_WARN : HOOP_LOG_INFO, HOOP_LOG_MEM, "%s",
                 cuda_absence.text);
        return;
    }
    struct hoop_cuda found;
    const char *missing = cuda_bind(library, &found);
    if (missing != NULL) {
        /* A library of the default name may be a stand-in, for programs that link to the driver. */
        const bool stands_in = strcmp(missing, "cuInit") == 0 && path == NULL;
        hoop_failure_set(&cuda_absence, HOOP_UNSUPPORTED, -1, "the CUDA driver %s: it has no %s",
                         stands_in ? "is a stand-in" : "is too old", missing);
        hoop_log(stands_in ? HOOP_LOG_INFO : HOOP_LOG_WARN, HOOP_LOG_MEM, "%s", cuda_absence.text);
        return;
    }
    hoop_cuda = found;
    atomic_store_explicit(&hoop_cuda_loaded, true, memory_order_release);
}

bool hoop_cuda_load(void)
{
    (void)pthread_once(&cuda_once, cuda_open);
    return hoop_cuda_is_loaded();
}

hoop_result_t hoop_cuda_need(void)
{
    return hoop_cuda_load() ? HOOP_OK : hoop_error(HOOP_UNSUPPORTED, "%s", cuda_absence.text);
}

/* cuStreamWaitValue32_v2 exists since 11.7, and can be captured into a graph since 12.0. */
#define CUDA_WITH_GRAPHS 12000

hoop_result_t hoop_cuda_need_graphs(void)
{
    int version = 0;
    const bool has = hoop_cuda.stream_wait_value != NULL && hoop_cuda.stream_write_value != NULL &&
                     hoop_cuda.capture_info != NULL && hoop_cuda.object_create != NULL &&
                     hoop_cuda.object_release != NULL && hoop_cuda.graph_retain != NULL;
    (void)hoop_cuda.driver_version(&version);
    return has && version >= CUDA_WITH_GRAPHS
               ? HOOP_OK
               : hoop_error(HOOP_UNSUPPORTED,
                            "the CUDA driver has version %d.%d, expected 12.0 or later",
                            version / 1000, version % 1000 / 10);
}

hoop_result_t hoop_cuda_check(const char *call, int error)
{
    const char *name = "unknown", *text = "unknown error";
    if (error == HOOP_CU_SUCCESS) {
        return HOOP_OK;
    }
    (void)hoop_cuda.error_name(error, &name);
    (void)hoop_cuda.error_text(error, &text);
    return hoop_error(error == HOOP_CU_OUT_OF_MEMORY ? HOOP_OUT_OF_MEMORY : HOOP_CUDA_ERROR,
                      "%s: %s (%d): %s", call, name, error, text);
}

static _Thread_local int cuda_mode_before;

hoop_result_t hoop_cuda_enter(hoop_cu_context_t context)
{
    const hoop_result_t result =
        hoop_cuda_check("cuCtxPushCurrent", context != NULL ? hoop_cuda.context_push(context)
                                                            : HOOP_CU_INVALID_CONTEXT);
    if (result == HOOP_OK) {
        cuda_mode_before = HOOP_CU_CAPTURE_RELAXED;
        (void)hoop_cuda.capture_mode(&cuda_mode_before);
    }
    return result;
}

void hoop_cuda_leave(void)
{
    hoop_cu_context_t popped;
    (void)hoop_cuda.capture_mode(&cuda_mode_before);
    (void)hoop_cuda.context_pop(&popped);
}

/* The primary context of a device, which is retained once and never released; or CUDA's error. */
static int cuda_primary(int device, hoop_cu_context_t *ret)
{
    enum { MOST_DEVICES = 64 };
    static _Atomic(hoop_cu_context_t) kept[MOST_DEVICES];
    if (device < 0 || device >= MOST_DEVICES) {
        return HOOP_CU_INVALID_VALUE;
    }
    int error = HOOP_CU_SUCCESS;
    *ret = atomic_load(&kept[device]);
    if (*ret == NULL) {
        error = hoop_cuda.primary_retain(ret, device);
        atomic_store(&kept[device], *ret); /* two threads may both retain it: no harm */
    }
    return error;
}

/* The context to use for memory that belongs to none. */
static int cuda_context_of(hoop_cu_address_t at, hoop_cu_context_t *ret)
{
    int device = -1;
    const int error = hoop_cuda.pointer_get(&device, HOOP_CU_POINTER_DEVICE_ORDINAL, at);
    if (error != HOOP_CU_SUCCESS) {
        return error;
    }
    const int current = hoop_cuda_current_device();
    return current >= 0 && current == device ? hoop_cuda.context_get(ret)
                                             : cuda_primary(device, ret);
}

/* Errors that mean "not device memory": CUDA is not initialized, or has shut down. A thread without
 * a context may get INVALID_CONTEXT even for host memory, and versions differ on memory that CUDA
 * does not know. */
static bool cuda_is_unknown(int error)
{
    return error == HOOP_CU_INVALID_VALUE || error == HOOP_CU_NOT_INITIALIZED ||
           error == HOOP_CU_DEINITIALIZED || error == HOOP_CU_INVALID_CONTEXT;
}

hoop_result_t hoop_cuda_find(const void *ptr, hoop_cu_context_t *ret)
{
    unsigned type = 0;
    int wanted[] = {HOOP_CU_POINTER_MEMORY_TYPE, HOOP_CU_POINTER_CONTEXT};
    void *found[] = {&type, ret};
    const hoop_cu_address_t at = (uintptr_t)ptr;
    *ret = NULL;
    int error =
        ptr != NULL ? hoop_cuda.pointer_get_all(2, wanted, found, at) : HOOP_CU_INVALID_VALUE;
    if (cuda_is_unknown(error) || (error == HOOP_CU_SUCCESS && type != HOOP_CU_MEMORY_DEVICE)) {
        *ret = NULL; /* CUDA sets it for pinned host memory, too */
        return HOOP_OK;
    }
    if (error == HOOP_CU_SUCCESS && *ret == NULL) {
        error = cuda_context_of(at, ret);
    }
    if (error == HOOP_CU_SUCCESS && *ret == NULL) {
        error = HOOP_CU_INVALID_CONTEXT;
    }
    return hoop_cuda_check("cuPointerGetAttributes", error);
}

bool hoop_cuda_owns(const void *ptr, hoop_cu_context_t *ret)
{
    hoop_cu_context_t context = NULL;
    if (hoop_cuda_find(ptr, &context) != HOOP_OK || context == NULL) {
        return false;
    }
    *ret = context;
    return true;
}

uint64_t hoop_cuda_device_id(int device)
{
    uint64_t uuid[2] = {0, 0};
    return hoop_cuda.device_uuid(uuid, device) == HOOP_CU_SUCCESS ? uuid[0] ^ uuid[1] : 0;
}

/* hoop's own stream in a context; never freed. */
struct cuda_stream {
    struct cuda_stream *next;
    hoop_cu_context_t context;
    hoop_stream_t stream;
};

/* Makes the stream and adds it to the list. With the list's lock. */
static hoop_result_t cuda_stream_add(hoop_cu_context_t context, struct cuda_stream **first,
                                     hoop_stream_t *ret)
{
    struct cuda_stream *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a stream");
    }
    const hoop_result_t result = hoop_cuda_check(
        "cuStreamCreate", hoop_cuda.stream_create(&made->stream, HOOP_CU_STREAM_NON_BLOCKING));
    if (result != HOOP_OK) {
        free(made);
        return result;
    }
    made->context = context;
    made->next = *first;
    *first = made;
    *ret = made->stream;
    return HOOP_OK;
}

hoop_result_t hoop_cuda_stream(hoop_cu_context_t context, hoop_stream_t *ret)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct cuda_stream *first;
    hoop_result_t result = HOOP_OK;
    pthread_mutex_lock(&lock);
    const struct cuda_stream *at = first;
    while (at != NULL && at->context != context) {
        at = at->next;
    }
    if (at != NULL) {
        *ret = at->stream;
    } else {
        result = cuda_stream_add(context, &first, ret);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* The context must be current. A query does not invalidate a capture; the copy would. */
static hoop_result_t cuda_check_legacy(void)
{
    int capturing = 0;
    return hoop_cuda.stream_capturing(NULL, &capturing) != HOOP_CU_CAPTURE_IMPLICIT
               ? HOOP_OK
               : hoop_error(HOOP_INVALID_USAGE,
                            "device memory can't be read while a stream captures a graph: expected "
                            "before or after the capture");
}

hoop_result_t hoop_cuda_read(hoop_cu_context_t context, void *to, const void *from, size_t bytes)
{
    hoop_result_t result = hoop_cuda_enter(context);
    if (result != HOOP_OK) {
        return result;
    }
    result = cuda_check_legacy();
    if (result == HOOP_OK) {
        result =
            hoop_cuda_check("cuMemcpyDtoH", hoop_cuda.copy_to_host(to, (uintptr_t)from, bytes));
    }
    hoop_cuda_leave();
    return result;
}

hoop_result_t hoop_cuda_context(hoop_cu_context_t *ret)
{
    hoop_result_t result = hoop_cuda_need();
    if (result != HOOP_OK) {
        return result;
    }
    hoop_cu_context_t current = NULL;
    result = hoop_cuda_check("cuInit", hoop_cuda.init(0));
    if (result == HOOP_OK) {
        result = hoop_cuda_check("cuCtxGetCurrent", hoop_cuda.context_get(&current));
    }
    if (result == HOOP_OK && current == NULL) {
        result = hoop_cuda_check("cuDevicePrimaryCtxRetain", cuda_primary(0, &current));
    }
    if (result == HOOP_OK) {
        *ret = current;
    }
    return result;
}

hoop_cu_context_t hoop_cuda_stream_context(hoop_stream_t stream, hoop_cu_context_t of)
{
    hoop_cu_context_t its = NULL;
    const bool of_each = (uintptr_t)stream < HOOP_PAGE_BYTES; /* a name, and no address */
    return !of_each && hoop_cuda.stream_context(stream, &its) == HOOP_CU_SUCCESS && its != NULL
               ? its
               : of;
}

hoop_result_t hoop_cuda_stream_find(hoop_stream_t stream, hoop_cu_context_t *ret)
{
    hoop_cu_context_t its = hoop_cuda_stream_context(stream, NULL);
    const hoop_result_t result = its != NULL ? HOOP_OK : hoop_cuda_context(&its);
    *ret = its;
    return result;
}

int hoop_cuda_current_device(void)
{
    int device = -1;
    hoop_cu_context_t current = NULL;
    const bool has = hoop_cuda_is_loaded() && hoop_cuda.context_get(&current) == HOOP_CU_SUCCESS &&
                     current != NULL;
    return has && hoop_cuda.context_device(&device) == HOOP_CU_SUCCESS ? device : -1;
}

/* ---- Graphs --------------------------------------------------------------------------------- */

uintptr_t hoop_cuda_capturing_stream(hoop_stream_t stream)
{
    static _Thread_local char mine;
    const uintptr_t handle = (uintptr_t)stream;
    return handle < HOOP_PAGE_BYTES ? (uintptr_t)&mine : handle;
}

hoop_result_t hoop_cuda_find_graph(hoop_stream_t stream, hoop_cu_graph_t *ret,
                                   unsigned long long *ret_number)
{
    int status = 0;
    const int error = hoop_cuda.capture_info(stream, &status, ret_number, ret, NULL, NULL);
    const bool failed = error == HOOP_CU_SUCCESS && status != HOOP_CU_CAPTURE_ACTIVE;
    return hoop_cuda_check("cuStreamGetCaptureInfo", failed ? HOOP_CU_CAPTURE_INVALIDATED : error);
}

hoop_result_t hoop_cuda_watch_graph(hoop_cu_graph_t graph, hoop_cu_host_fn_t *gone, void *arg)
{
    hoop_cu_object_t object = NULL;
    hoop_result_t result =
        hoop_cuda_check("cuUserObjectCreate",
                        hoop_cuda.object_create(&object, arg, gone, 1, HOOP_CU_OBJECT_NOT_AWAITED));
    if (result != HOOP_OK) {
        gone(arg);
        return result;
    }
    result = hoop_cuda_check("cuGraphRetainUserObject",
                             hoop_cuda.graph_retain(graph, object, 1, HOOP_CU_OBJECT_MOVE));
    if (result != HOOP_OK) {
        (void)hoop_cuda.object_release(object, 1); /* calls gone() */
    }
    return result;
}

/* ---- Copies --------------------------------------------------------------------------------- */

/* From this size on plain copies, too, go to a copy engine and wait for no kernels' turn. */
#define CUDA_COPY_LARGE 32768u

/* Copies two rows that are contiguous on both sides. */
static hoop_result_t cuda_copy_rows(hoop_cu_address_t to, hoop_cu_address_t from, size_t row,
                                    hoop_stream_t stream)
{
    const struct hoop_cu_rows rows = {
        .from = {.type = HOOP_CU_MEMORY_ANY, .at = from, .pitch = row},
        .to = {.type = HOOP_CU_MEMORY_ANY, .at = to, .pitch = row},
        .width = row,
        .height = 2,
    };
    return hoop_cuda_check("cuMemcpy2DAsync", hoop_cuda.copy_rows(&rows, stream));
}

hoop_result_t hoop_cuda_copy_to_device(hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes,
                                       hoop_stream_t stream)
{
    if (bytes < 2 || bytes >= CUDA_COPY_LARGE) {
        return hoop_cuda_check("cuMemcpyAsync", hoop_cuda.copy(to, from, bytes, stream));
    }
    hoop_result_t result = cuda_copy_rows(to, from, bytes / 2, stream);
    if (result == HOOP_OK && bytes % 2 != 0) {
        result = cuda_copy_rows(to + bytes - 2, from + bytes - 2, 1, stream);
    }
    return result;
}

/* ---- Several devices ------------------------------------------------------------------------ */

uint32_t hoop_cuda_peers(int device, uint64_t ret[HOOP_CUDA_MOST_PEERS])
{
    int count = 0;
    uint32_t found = 0;
    if (hoop_settings()->cuda_peers == 0 || hoop_cuda.device_count(&count) != HOOP_CU_SUCCESS) {
        return 0;
    }
    for (int peer = 0; peer < count && found < HOOP_CUDA_MOST_PEERS; peer++) {
        int can = 0;
        if (peer != device && hoop_cuda.can_access_peer(&can, device, peer) == HOOP_CU_SUCCESS &&
            can != 0) {
            ret[found] = hoop_cuda_device_id(peer);
            found += ret[found] != 0;
        }
    }
    return found;
}

/* Asks first whether the primary context is active: retaining it would create it. */
bool hoop_cuda_is_primary(hoop_cu_context_t context, int device)
{
    hoop_cu_context_t primary = NULL;
    unsigned flags = 0;
    int active = 0;
    return hoop_cuda.primary_state(device, &flags, &active) == HOOP_CU_SUCCESS && active != 0 &&
           cuda_primary(device, &primary) == HOOP_CU_SUCCESS && primary == context;
}

bool hoop_cuda_is_plain(const void *ptr)
{
    int plain = 0;
    return hoop_cuda.pointer_get(&plain, HOOP_CU_POINTER_IS_PLAIN, (uintptr_t)ptr) ==
               HOOP_CU_SUCCESS &&
           plain != 0;
}

/* Contexts that were given access to another's memory. To enable that twice is an error, which
 * tools that check CUDA calls report. */
struct cuda_pair {
    hoop_cu_context_t from, to;
    struct cuda_pair *next;
};

hoop_result_t hoop_cuda_reach_context(hoop_cu_context_t from, hoop_cu_context_t to)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct cuda_pair *pairs;
    hoop_result_t result = HOOP_OK;
    pthread_mutex_lock(&lock);
    const struct cuda_pair *at = pairs;
    while (at != NULL && (at->from != from || at->to != to)) {
        at = at->next;
    }
    struct cuda_pair *made = at == NULL ? malloc(sizeof(*made)) : NULL;
    if (at == NULL) {
        const int error = hoop_cuda.peer_enable(to, 0);
        result = error == HOOP_CU_PEER_ACCESS_ALREADY_ENABLED
                     ? HOOP_OK
                     : hoop_cuda_check("cuCtxEnablePeerAccess", error);
    }
    if (made != NULL && result == HOOP_OK) {
        *made = (struct cuda_pair){from, to, pairs};
        pairs = made;
    } else {
        free(made);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

hoop_result_t hoop_cuda_reach(hoop_cu_context_t context, const void *ptr)
{
    hoop_cu_context_t of = NULL;
    const hoop_result_t result = hoop_cuda_find(ptr, &of);
    if (result != HOOP_OK || of == context) {
        return result;
    }
    return of != NULL ? hoop_cuda_reach_context(context, of)
                      : hoop_error(HOOP_INVALID_ARGUMENT, "%p is not device memory", ptr);
}

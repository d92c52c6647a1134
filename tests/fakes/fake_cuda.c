/* A CUDA driver for tests (see fake_cuda.h). */
#include "fakes/fake_cuda.h"

#include "memory/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define POOL_BYTES ((size_t)256 << 20)
#define MOST 4096 /* allocations, pinned ranges */
#define ILLEGAL_ADDRESS 700

struct range {
    uintptr_t at;
    size_t bytes;
};

struct task {
    struct task *next;
    enum { COPY, FILL, HOST, RECORD, WAIT } kind;
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    unsigned delay_us;
    int value;
    hoop_cu_host_fn_t *fn;
    void *arg;
    struct hoop_cu_event *event;
    uint64_t number;
};

struct CUstream_st {
    pthread_t thread;
    struct task *first, **last;
    bool busy, ending, capturing;
    uint64_t seed;
};

struct hoop_cu_event {
    uint64_t recorded, complete;
    unsigned waiting; /* tasks that refer to it */
    bool destroyed;
};

struct hoop_cu_context {
    int device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned char *front, *back; /* the device's addresses; where the device is */
static struct range allocations[MOST], pinned[MOST];
static size_t n_allocations, n_pinned, allocated;
static struct CUstream_st *streams[64];
static struct CUstream_st legacy;
static struct hoop_cu_context context;
static unsigned breaks_after; /* copies; 0: never */
static bool initialised, broken;
static _Thread_local hoop_cu_context_t current[8];
static _Thread_local int depth;

/* ---- Memory, with the lock ----------------------------------------------------------------------
 */

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

/* ---- Streams
 * ------------------------------------------------------------------------------------- */

static void task_run(struct task *task)
{
    if (task->delay_us != 0) {
        usleep(task->delay_us);
    }
    switch (task->kind) {
    case COPY:
        memcpy(task->to, task->from, task->bytes);
        break;
    case FILL:
        memset(task->to, task->value, task->bytes);
        break;
    case HOST:
        task->fn(task->arg);
        break;
    default:
        break;
    }
}

static bool task_may_begin(const struct task *task)
{
    return task->kind != WAIT || task->event->complete >= task->number;
}

static void event_free(struct hoop_cu_event *event)
{
    if (event->destroyed && event->waiting == 0) {
        free(event);
    }
}

/* With the lock. */
static void task_end(struct task *task)
{
    if (task->kind == RECORD && task->event->complete < task->number) {
        task->event->complete = task->number;
    }
    if (task->event != NULL) {
        task->event->waiting--;
        event_free(task->event);
    }
    free(task);
    pthread_cond_broadcast(&changed);
}

static void *stream_main(void *arg)
{
    struct CUstream_st *stream = arg;
    pthread_mutex_lock(&lock);
    while (true) {
        struct task *task = stream->first;
        if (task == NULL && stream->ending) {
            break;
        }
        if (task == NULL || (!broken && !task_may_begin(task))) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        stream->first = task->next;
        stream->last = stream->first == NULL ? &stream->first : stream->last;
        stream->busy = true;
        const bool runs = !broken;
        pthread_mutex_unlock(&lock);
        if (runs) {
            task_run(task);
        }
        pthread_mutex_lock(&lock);
        stream->busy = false;
        task_end(task);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static bool stream_start(struct CUstream_st *stream)
{
    stream->last = &stream->first;
    stream->seed = (uintptr_t)stream;
    return pthread_create(&stream->thread, NULL, stream_main, stream) == 0;
}

/* NULL: not a stream of this driver. With the lock. */
static struct CUstream_st *stream_find(hoop_stream_t handle)
{
    if (handle == NULL) {
        if (legacy.last == NULL && !stream_start(&legacy)) {
            return NULL;
        }
        return &legacy;
    }
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        if (streams[i] == handle) {
            return handle;
        }
    }
    return NULL;
}

/* A copy of *what at the end of the stream, with a delay of its own. With the lock. */
static int stream_push(hoop_stream_t handle, const struct task *what)
{
    struct CUstream_st *stream = stream_find(handle);
    if (stream == NULL) {
        return HOOP_CU_INVALID_HANDLE;
    }
    if (broken) {
        return ILLEGAL_ADDRESS;
    }
    struct task *task = malloc(sizeof(*task));
    if (task == NULL) {
        return HOOP_CU_OUT_OF_MEMORY;
    }
    *task = *what;
    task->next = NULL;
    stream->seed = stream->seed * 6364136223846793005ull + 1442695040888963407ull;
    task->delay_us += (stream->seed >> 60) == 0 ? (unsigned)(stream->seed >> 40) % 500 : 0;
    if (task->event != NULL) {
        task->event->waiting++;
    }
    *stream->last = task;
    stream->last = &task->next;
    pthread_cond_broadcast(&changed);
    return HOOP_CU_SUCCESS;
}

/* ---- The driver's functions
 * ------------------------------------------------------------------------ */

/* Their names are CUDA's: declared here alone. */
#define DECLARE(field, symbol, arguments) EXPORT int fake_##field arguments __asm__(symbol);
HOOP_CUDA_CALLS(DECLARE)
#undef DECLARE

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
    pthread_mutex_lock(&lock);
    const int result = initialised ? HOOP_CU_SUCCESS : pool_make();
    initialised |= result == HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

int fake_error_name(int error, const char **ret)
{
    *ret = error == HOOP_CU_OUT_OF_MEMORY    ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == ILLEGAL_ADDRESS        ? "CUDA_ERROR_ILLEGAL_ADDRESS"
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
    pthread_mutex_lock(&lock);
    const int result = initialised ? HOOP_CU_SUCCESS : HOOP_CU_NOT_INITIALIZED;
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    const int result = !initialised                                      ? HOOP_CU_NOT_INITIALIZED
                       : ranges_hold(allocations, n_allocations, ptr, 1) ? HOOP_CU_SUCCESS
                                                                         : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    const uintptr_t at = n_allocations < MOST ? find_gap(bytes) : 0;
    if (at != 0) {
        allocations[n_allocations++] = (struct range){at, bytes};
        allocated += bytes;
        memset(back + (at - (uintptr_t)front), 0xcd, bytes);
        *ret = at;
    }
    pthread_mutex_unlock(&lock);
    return at != 0 ? HOOP_CU_SUCCESS : HOOP_CU_OUT_OF_MEMORY;
}

static bool stream_is_idle(const struct CUstream_st *stream)
{
    return stream == NULL || (stream->first == NULL && !stream->busy);
}

/* As CUDA has it: what is on any stream comes first. With the lock. */
static void device_drain(void)
{
    size_t i = 0;
    while (i < sizeof(streams) / sizeof(streams[0])) {
        if (stream_is_idle(streams[i]) && stream_is_idle(&legacy)) {
            i++;
        } else {
            pthread_cond_wait(&changed, &lock);
            i = 0;
        }
    }
}

int fake_free(hoop_cu_address_t ptr)
{
    int result = HOOP_CU_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    device_drain();
    for (size_t i = 0; i < n_allocations && result != HOOP_CU_SUCCESS; i++) {
        if (allocations[i].at == ptr) {
            memset(back + (ptr - (uintptr_t)front), 0xdd, allocations[i].bytes);
            allocated -= allocations[i].bytes;
            range_remove(allocations, &n_allocations, i);
            result = HOOP_CU_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int fake_set_bytes(hoop_cu_address_t ptr, unsigned char value, size_t bytes)
{
    pthread_mutex_lock(&lock);
    unsigned char *at = resolve(ptr, bytes);
    if (at != NULL) {
        memset(at, value, bytes);
    }
    pthread_mutex_unlock(&lock);
    return at != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

int fake_host_register(void *ptr, size_t bytes, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    const bool room = n_pinned < MOST;
    if (room) {
        pinned[n_pinned++] = (struct range){(uintptr_t)ptr, bytes};
    }
    pthread_mutex_unlock(&lock);
    return room ? HOOP_CU_SUCCESS : HOOP_CU_OUT_OF_MEMORY;
}

int fake_host_unregister(void *ptr)
{
    int result = HOOP_CU_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_pinned && result != HOOP_CU_SUCCESS; i++) {
        if (pinned[i].at == (uintptr_t)ptr) {
            range_remove(pinned, &n_pinned, i);
            result = HOOP_CU_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int fake_copy(hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes, hoop_stream_t stream)
{
    pthread_mutex_lock(&lock);
    if (breaks_after != 0 && --breaks_after == 0) {
        broken = true;
        pthread_cond_broadcast(&changed);
    }
    const struct task task = {
        .kind = COPY, .to = resolve(to, bytes), .from = resolve(from, bytes), .bytes = bytes};
    const int result = task.to != NULL && task.from != NULL && on_device(to) != on_device(from)
                           ? stream_push(stream, &task)
                           : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    /* It is accepted: the error shows later. */
    return result == ILLEGAL_ADDRESS ? HOOP_CU_SUCCESS : result;
}

int fake_copy_to_host(void *to, hoop_cu_address_t from, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const unsigned char *at = on_device(from) ? resolve(from, bytes) : NULL;
    pthread_mutex_unlock(&lock);
    if (at != NULL) {
        memcpy(to, at, bytes);
    }
    return at != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

int fake_stream_create(hoop_stream_t *ret, unsigned flags)
{
    (void)flags;
    struct CUstream_st *stream = calloc(1, sizeof(*stream));
    size_t i = 0;
    pthread_mutex_lock(&lock);
    while (i < sizeof(streams) / sizeof(streams[0]) && streams[i] != NULL) {
        i++;
    }
    const bool room = stream != NULL && i < sizeof(streams) / sizeof(streams[0]) && depth > 0 &&
                      stream_start(stream);
    if (room) {
        streams[i] = stream;
        *ret = stream;
    } else {
        free(stream);
    }
    pthread_mutex_unlock(&lock);
    return room ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_CONTEXT;
}

int fake_stream_destroy(hoop_stream_t handle)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st *stream = handle != NULL ? stream_find(handle) : NULL;
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]) && stream != NULL; i++) {
        streams[i] = streams[i] == stream ? NULL : streams[i];
    }
    if (stream != NULL) {
        stream->ending = true;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    if (stream == NULL) {
        return HOOP_CU_INVALID_HANDLE;
    }
    pthread_join(stream->thread, NULL);
    free(stream);
    return HOOP_CU_SUCCESS;
}

int fake_stream_query(hoop_stream_t handle)
{
    pthread_mutex_lock(&lock);
    const struct CUstream_st *stream = stream_find(handle);
    const int result = broken                                  ? ILLEGAL_ADDRESS
                       : stream == NULL                        ? HOOP_CU_INVALID_HANDLE
                       : stream->first != NULL || stream->busy ? HOOP_CU_NOT_READY
                                                               : HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

int fake_stream_synchronize(hoop_stream_t handle)
{
    int result = HOOP_CU_NOT_READY;
    while ((result = fake_stream_query(handle)) == HOOP_CU_NOT_READY) {
        usleep(100);
    }
    return result;
}

int fake_stream_capturing(hoop_stream_t handle, int *ret)
{
    pthread_mutex_lock(&lock);
    const struct CUstream_st *stream = stream_find(handle);
    *ret = stream != NULL && stream->capturing;
    pthread_mutex_unlock(&lock);
    return stream != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_HANDLE;
}

int fake_stream_wait(hoop_stream_t stream, hoop_cu_event_t event, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    const struct task task = {.kind = WAIT, .event = event, .number = event->recorded};
    const int result = stream_push(stream, &task);
    pthread_mutex_unlock(&lock);
    return result;
}

int fake_event_create(hoop_cu_event_t *ret, unsigned flags)
{
    (void)flags;
    *ret = calloc(1, sizeof(**ret));
    return *ret != NULL ? HOOP_CU_SUCCESS : HOOP_CU_OUT_OF_MEMORY;
}

int fake_event_destroy(hoop_cu_event_t event)
{
    pthread_mutex_lock(&lock);
    event->destroyed = true;
    event_free(event);
    pthread_mutex_unlock(&lock);
    return HOOP_CU_SUCCESS;
}

int fake_event_record(hoop_cu_event_t event, hoop_stream_t stream)
{
    pthread_mutex_lock(&lock);
    const struct task task = {.kind = RECORD, .event = event, .number = event->recorded + 1};
    const int result = stream_push(stream, &task);
    event->recorded += result == HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

int fake_host_function(hoop_stream_t stream, hoop_cu_host_fn_t *fn, void *arg)
{
    pthread_mutex_lock(&lock);
    const struct task task = {.kind = HOST, .fn = fn, .arg = arg};
    const int result = stream_push(stream, &task);
    pthread_mutex_unlock(&lock);
    return result == ILLEGAL_ADDRESS ? HOOP_CU_SUCCESS : result;
}

/* ---- What tests ask ----------------------------------------------------------------------------
 */

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
    pthread_mutex_lock(&lock);
    const struct task task = {.kind = FILL,
                              .to = resolve((uintptr_t)at, bytes),
                              .value = byte,
                              .bytes = bytes,
                              .delay_us = delay_us};
    (void)stream_push(stream, &task);
    pthread_mutex_unlock(&lock);
}

void fake_cuda_capture(hoop_stream_t stream, int on)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st *found = stream_find(stream);
    if (found != NULL) {
        found->capturing = on != 0;
    }
    pthread_mutex_unlock(&lock);
}

void fake_cuda_break(unsigned n)
{
    pthread_mutex_lock(&lock);
    breaks_after = n;
    broken &= n != 0;
    pthread_mutex_unlock(&lock);
}

void fake_cuda_use(size_t *ret_bytes, size_t *ret_pinned)
{
    pthread_mutex_lock(&lock);
    *ret_bytes = allocated;
    *ret_pinned = n_pinned;
    pthread_mutex_unlock(&lock);
}

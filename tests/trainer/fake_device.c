#include "fake_device.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct CUstream_st *stream_t;
typedef struct fake_event *event_t;
typedef uint64_t address_t;

static struct {
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*stream_create)(stream_t *stream, unsigned flags);
    int (*stream_synchronize)(stream_t stream);
    int (*stream_wait)(stream_t stream, event_t event, unsigned flags);
    int (*event_create)(event_t *event, unsigned flags);
    int (*event_record)(event_t event, stream_t stream);
    int (*host_function)(stream_t stream, void (*fn)(void *arg), void *arg);
    int (*alloc)(address_t *ret, size_t bytes);
    int (*free)(address_t memory);
    ptrdiff_t (*view)(void);
} cu;

static stream_t computing, traveling;
static event_t marks[DEVICE_MARKS], traveled;

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "fake_device: %s\n", what);
        exit(1);
    }
}

/* Work of a stream on memory. */
struct task {
    enum { CLEAR, COMPRESS, EXPAND } what;
    const void *from;
    void *to;
    size_t count;
};

/* The tests' numbers are small integers, which compress without loss. */
static void task_run(void *arg)
{
    const struct task *task = arg;
    for (size_t i = 0; i < task->count; i++) {
        if (task->what == COMPRESS) {
            memcpy((uint16_t *)task->to + i, (const char *)task->from + i * 4 + 2, 2);
        } else {
            memset((char *)task->to + i * 4, 0, 4);
        }
        if (task->what == EXPAND) {
            memcpy((char *)task->to + i * 4 + 2, (const uint16_t *)task->from + i, 2);
        }
    }
    free(arg);
}

static void task_put(stream_t stream, struct task task)
{
    struct task *kept = malloc(sizeof(*kept));
    must(kept != NULL, "no memory");
    *kept = task;
    must(cu.host_function(stream, task_run, kept) == 0, "cuLaunchHostFunc");
}

static void device_mark(int i)
{
    must(cu.event_record(marks[i], computing) == 0, "cuEventRecord");
}

static void device_follow(int i)
{
    must(cu.stream_wait(traveling, marks[i], 0) == 0, "cuStreamWaitEvent");
}

static void device_clear(float *data, size_t count)
{
    task_put(computing, (struct task){CLEAR, NULL, fake_device_seen(data), count});
}

static void device_compress(const float *from, uint16_t *to, size_t count)
{
    task_put(traveling,
             (struct task){COMPRESS, fake_device_seen(from), fake_device_seen(to), count});
}

static void device_expand(const uint16_t *from, float *to, size_t count)
{
    task_put(traveling, (struct task){EXPAND, fake_device_seen(from), fake_device_seen(to), count});
}

static void device_end(void)
{
}

static double device_join(void)
{
    must(cu.event_record(traveled, traveling) == 0, "cuEventRecord");
    must(cu.stream_wait(computing, traveled, 0) == 0, "cuStreamWaitEvent");
    fake_device_settle();
    return 0;
}

static struct device device = {
    .mark = device_mark,
    .follow = device_follow,
    .clear = device_clear,
    .compress = device_compress,
    .expand = device_expand,
    .end = device_end,
    .join = device_join,
};

static void driver_load(void)
{
    static const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"cuInit", &cu.init},
        {"cuDevicePrimaryCtxRetain", &cu.retain},
        {"cuCtxPushCurrent_v2", &cu.push},
        {"cuStreamCreate", &cu.stream_create},
        {"cuStreamSynchronize", &cu.stream_synchronize},
        {"cuStreamWaitEvent", &cu.stream_wait},
        {"cuEventCreate", &cu.event_create},
        {"cuEventRecord", &cu.event_record},
        {"cuLaunchHostFunc", &cu.host_function},
        {"cuMemAlloc_v2", &cu.alloc},
        {"cuMemFree_v2", &cu.free},
        {"fake_cuda_view", &cu.view},
    };
    const char *path = getenv("HOOP_CUDA");
    void *driver = path == NULL ? NULL : dlopen(path, RTLD_NOW);
    must(driver != NULL, "HOOP_CUDA names no library");
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *found = dlsym(driver, symbols[i].name);
        must(found != NULL, symbols[i].name);
        memcpy(symbols[i].to, &found, sizeof(found));
    }
}

const struct device *fake_device_open(void)
{
    void *context = NULL;
    driver_load();
    must(cu.init(0) == 0 && cu.retain(&context, 0) == 0 && cu.push(context) == 0, "no context");
    must(cu.stream_create(&computing, 0) == 0 && cu.stream_create(&traveling, 0) == 0, "no stream");
    must(cu.event_create(&traveled, 2) == 0, "no event"); /* 2: without timing */
    for (int i = 0; i < DEVICE_MARKS; i++) {
        must(cu.event_create(&marks[i], 2) == 0, "no event");
    }
    device.stream = traveling;
    return &device;
}

void *fake_device_memory(size_t bytes)
{
    address_t address = 0;
    must(cu.alloc(&address, bytes) == 0, "no memory");
    return (void *)(uintptr_t)address;
}

void fake_device_free(void *memory)
{
    cu.free((uintptr_t)memory);
}

void *fake_device_seen(const void *memory)
{
    return (void *)((uintptr_t)memory + (uintptr_t)cu.view());
}

void fake_device_compute(void (*fn)(void *arg), void *arg)
{
    must(cu.host_function(computing, fn, arg) == 0, "cuLaunchHostFunc");
}

void fake_device_settle(void)
{
    must(cu.stream_synchronize(computing) == 0, "cuStreamSynchronize");
}

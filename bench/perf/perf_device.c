/* See perf_device.h. */
#include "perf/perf_device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/perf.h"
#include "perf/perf_failure.h"

/* X(field, symbol, arguments) */
#define DEVICE_CALLS(X)                                                                            \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(error_name, "cuGetErrorName", (int error, const char **ret))                                 \
    X(count, "cuDeviceGetCount", (int *ret))                                                       \
    X(name, "cuDeviceGetName", (char *ret, int bytes, int device))                                 \
    X(bus, "cuDeviceGetPCIBusId", (char *ret, int bytes, int device))                              \
    X(retain, "cuDevicePrimaryCtxRetain", (void **ret, int device))                                \
    X(use, "cuCtxSetCurrent", (void *context))                                                     \
    X(alloc, "cuMemAlloc_v2", (uint64_t * ret, size_t bytes))                                      \
    X(free, "cuMemFree_v2", (uint64_t memory))                                                     \
    X(copy, "cuMemcpy", (uint64_t to, uint64_t from, size_t bytes))                                \
    X(fill, "cuMemsetD8Async",                                                                     \
      (uint64_t at, unsigned char value, size_t bytes, hoop_stream_t stream))                      \
    X(module, "cuModuleLoadData", (void **ret, const void *image))                                 \
    X(function, "cuModuleGetFunction", (void **ret, void *module, const char *name))               \
    X(run, "cuLaunchKernel",                                                                       \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, hoop_stream_t stream,            \
       void **arguments, void **extra))                                                            \
    X(stream, "cuStreamCreate", (hoop_stream_t * ret, unsigned flags))                             \
    X(end_stream, "cuStreamDestroy_v2", (hoop_stream_t stream))                                    \
    X(wait, "cuStreamSynchronize", (hoop_stream_t stream))                                         \
    X(begin_capture, "cuStreamBeginCapture_v2", (hoop_stream_t stream, int mode))                  \
    X(end_capture, "cuStreamEndCapture", (hoop_stream_t stream, void **ret))                       \
    X(instantiate, "cuGraphInstantiateWithFlags",                                                  \
      (void **ret, void *graph, unsigned long long flags))                                         \
    X(launch, "cuGraphLaunch", (void *exec, hoop_stream_t stream))                                 \
    X(free_exec, "cuGraphExecDestroy", (void *exec))                                               \
    X(free_graph, "cuGraphDestroy", (void *graph))

static struct {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): these are a declaration's own */
#define DEVICE_FIELD(field, symbol, arguments) int(*field) arguments;
    DEVICE_CALLS(DEVICE_FIELD)
#undef DEVICE_FIELD
} driver;

/* NULL: the driver is older than CUDA 12.4. */
static int (*device_load_kernel)(void *kernel);

static pthread_once_t device_once = PTHREAD_ONCE_INIT;
static int devices;          /* how many; written once */
static char device_why[256]; /* why there are none */

/* dlsym() gives a void *, which POSIX lets be a function's address. */
static bool device_bind(void *library)
{
    const struct {
        const char *symbol;
        void *place;
    } calls[] = {
#define DEVICE_BIND(field, symbol, arguments) {(symbol), &driver.field},
        DEVICE_CALLS(DEVICE_BIND)
#undef DEVICE_BIND
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *found = dlsym(library, calls[i].symbol);
        if (!found) {
            snprintf(device_why, sizeof device_why, "the CUDA driver has no %s", calls[i].symbol);
            return false;
        }
        memcpy(calls[i].place, &found, sizeof found);
    }
    void *load = dlsym(library, "cuFuncLoad");
    memcpy(&device_load_kernel, &load, sizeof load);
    return true;
}

static void device_load(void)
{
    const char *path = getenv("HOOP_CUDA");
    if (path && strcmp(path, "off") == 0) {
        snprintf(device_why, sizeof device_why, "HOOP_CUDA is off");
        return;
    }
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(device_why, sizeof device_why, "%s", why ? why : "the CUDA driver was not found");
        return;
    }
    if (!device_bind(library)) {
        return;
    }
    const int error = driver.init(0);
    if (error != 0 || driver.count(&devices) != 0 || devices == 0) {
        snprintf(device_why, sizeof device_why, "CUDA finds none (cuInit gives %d)", error);
        devices = 0;
    }
}

int perf_device_count(const char **ret_why)
{
    pthread_once(&device_once, device_load);
    if (ret_why) {
        *ret_why = device_why;
    }
    return devices;
}

static int device_check(int error, const char *call)
{
    const char *name = "unknown";
    char text[128];
    if (error == 0) {
        return PERF_SUCCESS;
    }
    (void)driver.error_name(error, &name);
    snprintf(text, sizeof text, "%s: %s (%d)", call, name, error);
    return perf_failure_other(PERF_INTERNAL, text, __FILE__, __LINE__);
}

int perf_device_use(int device)
{
    void *context = NULL;
    int code = device_check(driver.retain(&context, device), "cuDevicePrimaryCtxRetain");
    return code == PERF_SUCCESS ? device_check(driver.use(context), "cuCtxSetCurrent") : code;
}

void perf_device_describe(int device, char ret_bus[16], char *ret_name, size_t name_bytes)
{
    if (driver.bus(ret_bus, 16, device) != 0) {
        snprintf(ret_bus, 16, "?");
    }
    if (driver.name(ret_name, (int)name_bytes, device) != 0) {
        snprintf(ret_name, name_bytes, "?");
    }
}

int perf_device_alloc(size_t bytes, char **ret)
{
    uint64_t memory = 0;
    int code = device_check(driver.alloc(&memory, bytes), "cuMemAlloc");
    *ret = (char *)(uintptr_t)memory;
    return code;
}

void perf_device_free(char *memory)
{
    (void)driver.free((uintptr_t)memory);
}

int perf_device_copy(char *to, const char *from, size_t bytes)
{
    return bytes > 0 ? device_check(driver.copy((uintptr_t)to, (uintptr_t)from, bytes), "cuMemcpy")
                     : PERF_SUCCESS;
}

int perf_device_fill(char *at, int byte, size_t bytes)
{
    return bytes > 0 ? device_check(driver.fill((uintptr_t)at, (unsigned char)byte, bytes, NULL),
                                    "cuMemsetD8Async")
                     : PERF_SUCCESS;
}

void *perf_device_module(const void *image)
{
    void *module = NULL;
    return driver.module(&module, image) == 0 ? module : NULL;
}

void *perf_device_kernel(void *module, const char *name)
{
    void *kernel = NULL;
    if (driver.function(&kernel, module, name) != 0) {
        return NULL;
    }
    /* Else it is loaded by its first launch, which may wait for all streams, and some of those may
     * wait for ranks of this very thread. */
    return device_load_kernel == NULL || device_load_kernel(kernel) == 0 ? kernel : NULL;
}

int perf_device_launch(void *kernel, unsigned blocks, unsigned threads, void *argument)
{
    void *arguments[] = {argument};
    return device_check(driver.run(kernel, blocks, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL),
                        "cuLaunchKernel");
}

int perf_device_stream(hoop_stream_t *ret)
{
    const unsigned non_blocking = 1;
    return device_check(driver.stream(ret, non_blocking), "cuStreamCreate");
}

void perf_device_end_stream(hoop_stream_t stream)
{
    (void)driver.end_stream(stream);
}

int perf_device_wait(hoop_stream_t stream)
{
    return device_check(driver.wait(stream), "cuStreamSynchronize");
}

int perf_graph_begin(hoop_stream_t stream)
{
    const int of_thread = 1; /* calls of other threads are not captured, and do not invalidate it */
    return device_check(driver.begin_capture(stream, of_thread), "cuStreamBeginCapture");
}

int perf_graph_end(hoop_stream_t stream, struct perf_graph *ret)
{
    *ret = (struct perf_graph){NULL, NULL};
    int code = device_check(driver.end_capture(stream, &ret->graph), "cuStreamEndCapture");
    return code == PERF_SUCCESS
               ? device_check(driver.instantiate(&ret->exec, ret->graph, 0), "cuGraphInstantiate")
               : code;
}

int perf_graph_launch(const struct perf_graph *graph, hoop_stream_t stream)
{
    return device_check(driver.launch(graph->exec, stream), "cuGraphLaunch");
}

void perf_graph_free(struct perf_graph *graph)
{
    (void)driver.free_exec(graph->exec);
    (void)driver.free_graph(graph->graph);
}

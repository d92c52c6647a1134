/* Streams and events (see fake_streams.h). */
#include "fake_streams.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nn/cuda/gpu.h"

struct CUstream_st {
    int unused;
};
struct CUevent_st {
    void *driver;       /* the driver's event, for streams that wait */
    atomic_uint comes;  /* how often it was recorded */
    atomic_uint passed; /* how often a stream has come to that */
};

static struct {
    int (*init)(unsigned flags);
    int (*retain)(void **ret, int device);
    int (*push)(void *context);
    int (*settle)(void);
    int (*stream)(cudaStream_t *ret, unsigned flags);
    int (*put)(cudaStream_t stream, fake_work *fn, void *args);
    int (*wait)(cudaStream_t stream, void *event, unsigned flags);
    int (*event)(void **ret, unsigned flags);
    int (*end_event)(void *event);
    int (*record)(void *event, cudaStream_t stream);
} driver; /* all NULL: there is no driver */

cudaError_t cudaSetDevice(int device)
{
    void *context = NULL;
    const char *path = getenv("HOOP_CUDA");
    void *library = path == NULL ? NULL : dlopen(path, RTLD_NOW);
    if (library == NULL) {
        return cudaSuccess;
    }
    *(void **)&driver.init = dlsym(library, "cuInit");
    *(void **)&driver.retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&driver.push = dlsym(library, "cuCtxPushCurrent_v2");
    *(void **)&driver.settle = dlsym(library, "cuCtxSynchronize");
    *(void **)&driver.stream = dlsym(library, "cuStreamCreate");
    *(void **)&driver.put = dlsym(library, "cuLaunchHostFunc");
    *(void **)&driver.wait = dlsym(library, "cuStreamWaitEvent");
    *(void **)&driver.event = dlsym(library, "cuEventCreate");
    *(void **)&driver.end_event = dlsym(library, "cuEventDestroy_v2");
    *(void **)&driver.record = dlsym(library, "cuEventRecord");
    return driver.init(0) == 0 && driver.retain(&context, device) == 0 && driver.push(context) == 0
               ? cudaSuccess
               : cudaErrorNoDevice;
}

static cudaError_t result_of(bool good)
{
    return good ? cudaSuccess : cudaErrorNoDevice;
}

/* ---- Streams ------------------------------------------------------------------------------- */

struct work {
    fake_work *fn;
    _Alignas(16) char args[];
};

static void work_run(void *arg)
{
    struct work *work = arg;
    work->fn(work->args);
    free(work);
}

void fake_put(cudaStream_t stream, fake_work *fn, const void *args, size_t bytes)
{
    struct work *work = malloc(sizeof(*work) + bytes);
    if (work == NULL) {
        abort();
    }
    work->fn = fn;
    memcpy(work->args, args, bytes);
    if (driver.put == NULL) {
        work_run(work);
    } else if (driver.put(stream, work_run, work) != 0) {
        abort();
    }
}

void fake_settle(void)
{
    if (driver.settle != NULL && driver.settle() != 0) {
        abort();
    }
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    static struct CUstream_st streams[8];
    static int count;
    if (driver.stream != NULL) {
        return result_of(driver.stream(stream, 0) == 0);
    }
    *stream = &streams[count++];
    return cudaSuccess;
}

/* ---- Events -------------------------------------------------------------------------------- */

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = calloc(1, sizeof(**event));
    return result_of(*event != NULL &&
                     (driver.event == NULL || driver.event(&(*event)->driver, 0) == 0));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    return cudaEventCreate(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    while (event != NULL && atomic_load(&event->passed) != atomic_load(&event->comes)) {
        usleep(50);
    }
    return result_of(event != NULL);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    (void)cudaEventSynchronize(event);
    if (driver.end_event != NULL) {
        driver.end_event(event->driver);
    }
    free(event);
    return cudaSuccess;
}

static void event_pass(void *args)
{
    cudaEvent_t event = *(cudaEvent_t *)args;
    atomic_fetch_add(&event->passed, 1);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (event == NULL || (driver.record != NULL && driver.record(event->driver, stream) != 0)) {
        return cudaErrorNoDevice;
    }
    atomic_fetch_add(&event->comes, 1);
    fake_put(stream, event_pass, &event, sizeof(cudaEvent_t));
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    return result_of(event != NULL &&
                     (driver.wait == NULL || driver.wait(stream, event->driver, flags) == 0));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    *ms = 0;
    return result_of(start != NULL && end != NULL);
}

/* Waits for all that is on the stream now. */
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    struct CUevent_st event = {.comes = 1};
    cudaEvent_t end = &event;
    fake_put(stream, event_pass, &end, sizeof(cudaEvent_t));
    return cudaEventSynchronize(end);
}

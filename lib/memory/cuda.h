/*
 * The CUDA driver, loaded at run time: nothing of CUDA is needed to build or to run without a GPU.
 * The few types and numbers of its interface that are used stand here; they never change. A test
 * compares them with cuda.h where there is one.
 *
 * Any thread. Nothing here creates a context of its own: a device has one, which all share.
 */
#ifndef HOOP_CUDA_H
#define HOOP_CUDA_H

#include "base/error.h"
#include <stdatomic.h>
#include <stdbool.h>

enum {
    HOOP_CU_SUCCESS = 0,
    HOOP_CU_INVALID_VALUE = 1,
    HOOP_CU_OUT_OF_MEMORY = 2,
    HOOP_CU_NOT_INITIALIZED = 3,
    HOOP_CU_NO_DEVICE = 100,
    HOOP_CU_INVALID_CONTEXT = 201,
    HOOP_CU_INVALID_HANDLE = 400,
    HOOP_CU_NOT_READY = 600,
};
enum {
    HOOP_CU_POINTER_CONTEXT = 1,
    HOOP_CU_POINTER_MEMORY_TYPE = 2,
    HOOP_CU_MEMORY_DEVICE = 2,
    HOOP_CU_STREAM_NON_BLOCKING = 1,
    HOOP_CU_EVENT_DISABLE_TIMING = 2,
    HOOP_CU_HOST_REGISTER_PORTABLE = 1,
};

typedef uint64_t hoop_cu_address_t;
typedef struct hoop_cu_context *hoop_cu_context_t;
typedef struct hoop_cu_event *hoop_cu_event_t;
typedef void hoop_cu_host_fn_t(void *arg);

/* X(field, symbol, arguments): all return a CUresult. */
#define HOOP_CUDA_CALLS(X)                                                                         \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(error_name, "cuGetErrorName", (int error, const char **ret))                                 \
    X(error_text, "cuGetErrorString", (int error, const char **ret))                               \
    X(primary_retain, "cuDevicePrimaryCtxRetain", (hoop_cu_context_t * ret, int device))           \
    X(context_get, "cuCtxGetCurrent", (hoop_cu_context_t * ret))                                   \
    X(context_device, "cuCtxGetDevice", (int *ret))                                                \
    X(context_push, "cuCtxPushCurrent_v2", (hoop_cu_context_t context))                            \
    X(context_pop, "cuCtxPopCurrent_v2", (hoop_cu_context_t * ret))                                \
    X(pointer_get, "cuPointerGetAttribute", (void *ret, int attribute, hoop_cu_address_t ptr))     \
    X(alloc, "cuMemAlloc_v2", (hoop_cu_address_t * ret, size_t bytes))                             \
    X(free, "cuMemFree_v2", (hoop_cu_address_t ptr))                                               \
    X(set_bytes, "cuMemsetD8_v2", (hoop_cu_address_t ptr, unsigned char value, size_t bytes))      \
    X(host_register, "cuMemHostRegister_v2", (void *ptr, size_t bytes, unsigned flags))            \
    X(host_unregister, "cuMemHostUnregister", (void *ptr))                                         \
    X(copy, "cuMemcpyAsync",                                                                       \
      (hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes, hoop_stream_t stream))          \
    X(copy_to_host, "cuMemcpyDtoH_v2", (void *to, hoop_cu_address_t from, size_t bytes))           \
    X(stream_create, "cuStreamCreate", (hoop_stream_t * ret, unsigned flags))                      \
    X(stream_destroy, "cuStreamDestroy_v2", (hoop_stream_t stream))                                \
    X(stream_query, "cuStreamQuery", (hoop_stream_t stream))                                       \
    X(stream_synchronize, "cuStreamSynchronize", (hoop_stream_t stream))                           \
    X(stream_capturing, "cuStreamIsCapturing", (hoop_stream_t stream, int *ret))                   \
    X(stream_wait, "cuStreamWaitEvent",                                                            \
      (hoop_stream_t stream, hoop_cu_event_t event, unsigned flags))                               \
    X(event_create, "cuEventCreate", (hoop_cu_event_t * ret, unsigned flags))                      \
    X(event_destroy, "cuEventDestroy_v2", (hoop_cu_event_t event))                                 \
    X(event_record, "cuEventRecord", (hoop_cu_event_t event, hoop_stream_t stream))                \
    X(host_function, "cuLaunchHostFunc", (hoop_stream_t stream, hoop_cu_host_fn_t * fn, void *arg))

struct hoop_cuda {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): these are a declaration's own */
#define HOOP_CUDA_CALL(field, symbol, arguments) int(*field) arguments;
    HOOP_CUDA_CALLS(HOOP_CUDA_CALL)
#undef HOOP_CUDA_CALL
};

/* What was loaded; all NULL before. */
extern struct hoop_cuda hoop_cuda;

/* Loads the driver once: HOOP_CUDA says which, or that there is none. */
bool hoop_cuda_load(void);

/* The same. HOOP_UNSUPPORTED, with the reason in the sentence: this process has no CUDA. */
hoop_result_t hoop_cuda_need(void);

/* Is the driver loaded? Until then no pointer can be one of a device. One load: every call asks. */
extern _Atomic bool hoop_cuda_loaded;
static inline bool hoop_cuda_is_loaded(void)
{
    return atomic_load_explicit(&hoop_cuda_loaded, memory_order_acquire);
}

/*
 * HOOP_OK for HOOP_CU_SUCCESS. Else HOOP_CUDA_ERROR (HOOP_OUT_OF_MEMORY), with a sentence: the
 * call, and CUDA's own name and text.
 */
hoop_result_t hoop_cuda_check(const char *call, int error);

/* Is ptr memory of a device? Then *ret is its context. The driver is loaded. */
bool hoop_cuda_owns(const void *ptr, hoop_cu_context_t *ret);

/* bytes of a device's memory. Waits for the device. */
hoop_result_t hoop_cuda_read(void *to, const void *from, size_t bytes);

/* The current context, or that of device 0 where there is none. Loads the driver. */
hoop_result_t hoop_cuda_context(hoop_cu_context_t *ret);

/* The device of the calling thread's current context; -1: none, or no CUDA. */
int hoop_cuda_current_device(void);

#endif

/*
 * The CUDA driver, loaded at run time: nothing of CUDA is needed to build, or to run without a GPU.
 * The few types and numbers of its interface that hoop uses are declared here; they never change,
 * and a test compares them with cuda.h where there is one.
 *
 * Any thread. hoop makes no contexts of its own: it uses those of the program and the devices'
 * primary ones.
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
    HOOP_CU_DEINITIALIZED = 4,
    HOOP_CU_NO_DEVICE = 100,
    HOOP_CU_INVALID_DEVICE = 101,
    HOOP_CU_INVALID_CONTEXT = 201,
    HOOP_CU_ALREADY_MAPPED = 208,
    HOOP_CU_INVALID_HANDLE = 400,
    HOOP_CU_NOT_FOUND = 500,
    HOOP_CU_NOT_READY = 600,
    HOOP_CU_PEER_ACCESS_ALREADY_ENABLED = 704,
    HOOP_CU_CAPTURE_INVALIDATED = 901,
    HOOP_CU_CAPTURE_IMPLICIT = 906,
};
enum {
    HOOP_CU_POINTER_CONTEXT = 1,
    HOOP_CU_POINTER_MEMORY_TYPE = 2,
    HOOP_CU_POINTER_BUFFER_ID = 7, /* of an allocation; unique in the process */
    HOOP_CU_POINTER_DEVICE_ORDINAL = 9,
    HOOP_CU_POINTER_IS_PLAIN = 10, /* allocated by cuMemAlloc(): can be shared by IPC handle */
    HOOP_CU_MEMORY_DEVICE = 2,
    HOOP_CU_MEMORY_ANY = 4, /* CUDA tells by the address */
    HOOP_CU_STREAM_NON_BLOCKING = 1,
    HOOP_CU_EVENT_DISABLE_TIMING = 2,
    HOOP_CU_HOST_REGISTER_PORTABLE = 1,
    HOOP_CU_HOST_REGISTER_MAPPED = 2,
    HOOP_CU_WAIT_VALUE_GEQ = 0, /* compares 32 bits, cyclically */
    HOOP_CU_CAPTURE_ACTIVE = 1,
    HOOP_CU_CAPTURE_RELAXED = 2,
    HOOP_CU_OBJECT_NOT_AWAITED = 1,
    HOOP_CU_OBJECT_MOVE = 1,
    HOOP_CU_VIRTUAL_MEMORY = 102,
    HOOP_CU_DESCRIPTORS = 103,
    HOOP_CU_MEMORY_PINNED = 1,
    HOOP_CU_MEMORY_DESCRIPTOR = 1,
    HOOP_CU_LOCATION_DEVICE = 1,
    HOOP_CU_GRANULARITY_MINIMUM = 0,
    HOOP_CU_ACCESS_READ_WRITE = 3,
    HOOP_CU_IPC_PEER_ACCESS = 1, /* lets other devices that can reach the memory open it */
};

typedef uint64_t hoop_cu_address_t;
typedef struct hoop_cu_context *hoop_cu_context_t;
typedef struct hoop_cu_event *hoop_cu_event_t;
typedef struct hoop_cu_module *hoop_cu_module_t;
typedef struct hoop_cu_function *hoop_cu_function_t;
typedef struct hoop_cu_graph *hoop_cu_graph_t;
typedef struct hoop_cu_object *hoop_cu_object_t; /* reference-counted; a graph can hold it */
typedef uint64_t hoop_cu_memory_t;               /* physical memory, which has no address */
typedef void hoop_cu_host_fn_t(void *arg);

struct hoop_cu_location {
    int type, id;
};
struct hoop_cu_properties { /* of physical memory */
    int type, handle_types;
    struct hoop_cu_location location;
    void *unused;
    unsigned char flags[8];
};
struct hoop_cu_access {
    struct hoop_cu_location location;
    int flags;
};
struct hoop_cu_ipc { /* IPC handle of plain memory */
    unsigned char bytes[64];
};
struct hoop_cu_rows { /* a two-dimensional copy */
    struct hoop_cu_rows_side {
        size_t x, y;
        int type;
        void *host;
        hoop_cu_address_t at;
        void *array;
        size_t pitch;
    } from, to;
    size_t width, height;
};

/* X(field, symbol, arguments): all return a CUresult. */
#define HOOP_CUDA_CALLS(X)                                                                         \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(driver_version, "cuDriverGetVersion", (int *ret))                                            \
    X(error_name, "cuGetErrorName", (int error, const char **ret))                                 \
    X(error_text, "cuGetErrorString", (int error, const char **ret))                               \
    X(device_count, "cuDeviceGetCount", (int *ret))                                                \
    X(can_access_peer, "cuDeviceCanAccessPeer", (int *ret, int device, int peer))                  \
    X(primary_state, "cuDevicePrimaryCtxGetState", (int device, unsigned *ret_flags, int *ret))    \
    X(primary_retain, "cuDevicePrimaryCtxRetain", (hoop_cu_context_t * ret, int device))           \
    X(context_get, "cuCtxGetCurrent", (hoop_cu_context_t * ret))                                   \
    X(context_device, "cuCtxGetDevice", (int *ret))                                                \
    X(peer_enable, "cuCtxEnablePeerAccess", (hoop_cu_context_t peer, unsigned flags))              \
    X(context_push, "cuCtxPushCurrent_v2", (hoop_cu_context_t context))                            \
    X(context_pop, "cuCtxPopCurrent_v2", (hoop_cu_context_t * ret))                                \
    X(pointer_get, "cuPointerGetAttribute", (void *ret, int attribute, hoop_cu_address_t ptr))     \
    X(pointer_get_all, "cuPointerGetAttributes",                                                   \
      (unsigned count, int *attributes, void **ret, hoop_cu_address_t ptr))                        \
    X(alloc, "cuMemAlloc_v2", (hoop_cu_address_t * ret, size_t bytes))                             \
    X(free, "cuMemFree_v2", (hoop_cu_address_t ptr))                                               \
    X(set_bytes, "cuMemsetD8Async",                                                                \
      (hoop_cu_address_t ptr, unsigned char value, size_t bytes, hoop_stream_t stream))            \
    X(device_attribute, "cuDeviceGetAttribute", (int *ret, int attribute, int device))             \
    X(device_uuid, "cuDeviceGetUuid_v2", (void *ret, int device))                                  \
    X(context_synchronize, "cuCtxSynchronize", (void))                                             \
    X(memory_granularity, "cuMemGetAllocationGranularity",                                         \
      (size_t * ret, const struct hoop_cu_properties *properties, int which))                      \
    X(memory_create, "cuMemCreate",                                                                \
      (hoop_cu_memory_t * ret, size_t bytes, const struct hoop_cu_properties *properties,          \
       unsigned long long flags))                                                                  \
    X(memory_release, "cuMemRelease", (hoop_cu_memory_t memory))                                   \
    X(memory_export, "cuMemExportToShareableHandle",                                               \
      (void *ret, hoop_cu_memory_t memory, int type, unsigned long long flags))                    \
    X(memory_import, "cuMemImportFromShareableHandle",                                             \
      (hoop_cu_memory_t * ret, void *handle, int type))                                            \
    X(address_reserve, "cuMemAddressReserve",                                                      \
      (hoop_cu_address_t * ret, size_t bytes, size_t alignment, hoop_cu_address_t at,              \
       unsigned long long flags))                                                                  \
    X(address_free, "cuMemAddressFree", (hoop_cu_address_t at, size_t bytes))                      \
    X(map, "cuMemMap",                                                                             \
      (hoop_cu_address_t at, size_t bytes, size_t offset, hoop_cu_memory_t memory,                 \
       unsigned long long flags))                                                                  \
    X(unmap, "cuMemUnmap", (hoop_cu_address_t at, size_t bytes))                                   \
    X(set_access, "cuMemSetAccess",                                                                \
      (hoop_cu_address_t at, size_t bytes, const struct hoop_cu_access *access, size_t count))     \
    X(address_range, "cuMemGetAddressRange_v2",                                                    \
      (hoop_cu_address_t * ret_base, size_t * ret_bytes, hoop_cu_address_t ptr))                   \
    X(ipc_show, "cuIpcGetMemHandle", (struct hoop_cu_ipc * ret, hoop_cu_address_t ptr))            \
    X(ipc_open, "cuIpcOpenMemHandle_v2",                                                           \
      (hoop_cu_address_t * ret, struct hoop_cu_ipc handle, unsigned flags))                        \
    X(ipc_close, "cuIpcCloseMemHandle", (hoop_cu_address_t ptr))                                   \
    X(host_register, "cuMemHostRegister_v2", (void *ptr, size_t bytes, unsigned flags))            \
    X(host_unregister, "cuMemHostUnregister", (void *ptr))                                         \
    X(host_pointer, "cuMemHostGetDevicePointer_v2",                                                \
      (hoop_cu_address_t * ret, void *ptr, unsigned flags))                                        \
    X(copy, "cuMemcpyAsync",                                                                       \
      (hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes, hoop_stream_t stream))          \
    X(copy_rows, "cuMemcpy2DAsync_v2", (const struct hoop_cu_rows *rows, hoop_stream_t stream))    \
    X(copy_to_host, "cuMemcpyDtoH_v2", (void *to, hoop_cu_address_t from, size_t bytes))           \
    X(stream_create, "cuStreamCreate", (hoop_stream_t * ret, unsigned flags))                      \
    X(stream_destroy, "cuStreamDestroy_v2", (hoop_stream_t stream))                                \
    X(stream_query, "cuStreamQuery", (hoop_stream_t stream))                                       \
    X(stream_synchronize, "cuStreamSynchronize", (hoop_stream_t stream))                           \
    X(stream_context, "cuStreamGetCtx", (hoop_stream_t stream, hoop_cu_context_t * ret))           \
    X(stream_capturing, "cuStreamIsCapturing", (hoop_stream_t stream, int *ret))                   \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                              \
    X(stream_wait, "cuStreamWaitEvent",                                                            \
      (hoop_stream_t stream, hoop_cu_event_t event, unsigned flags))                               \
    X(event_create, "cuEventCreate", (hoop_cu_event_t * ret, unsigned flags))                      \
    X(event_destroy, "cuEventDestroy_v2", (hoop_cu_event_t event))                                 \
    X(event_record, "cuEventRecord", (hoop_cu_event_t event, hoop_stream_t stream))                \
    X(host_function, "cuLaunchHostFunc",                                                           \
      (hoop_stream_t stream, hoop_cu_host_fn_t * fn, void *arg))                                   \
    X(module_load, "cuModuleLoadData", (hoop_cu_module_t * ret, const void *image))                \
    X(module_function, "cuModuleGetFunction",                                                      \
      (hoop_cu_function_t * ret, hoop_cu_module_t module, const char *name))                       \
    X(launch, "cuLaunchKernel",                                                                    \
      (hoop_cu_function_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       hoop_stream_t stream, void **arguments, void **extra))

/* NULL if the driver does not have them; those that identify streams are new in CUDA 12. */
#define HOOP_CUDA_NEW_CALLS(X)                                                                     \
    X(function_load, "cuFuncLoad", (hoop_cu_function_t function))                                  \
    X(stream_id, "cuStreamGetId", (hoop_stream_t stream, unsigned long long *ret))                 \
    X(stream_wait_value, "cuStreamWaitValue32_v2",                                                 \
      (hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags))                \
    X(stream_write_value, "cuStreamWriteValue32_v2",                                               \
      (hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags))                \
    X(capture_info, "cuStreamGetCaptureInfo_v2",                                                   \
      (hoop_stream_t stream, int *ret_status, unsigned long long *ret_id,                          \
       hoop_cu_graph_t *ret_graph, const void **ret_nodes, size_t *ret_count))                     \
    X(object_create, "cuUserObjectCreate",                                                         \
      (hoop_cu_object_t * ret, void *ptr, hoop_cu_host_fn_t *destroy, unsigned count,              \
       unsigned flags))                                                                            \
    X(object_release, "cuUserObjectRelease", (hoop_cu_object_t object, unsigned count))            \
    X(graph_retain, "cuGraphRetainUserObject",                                                     \
      (hoop_cu_graph_t graph, hoop_cu_object_t object, unsigned count, unsigned flags))

struct hoop_cuda {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): these are a declaration's own */
#define HOOP_CUDA_CALL(field, symbol, arguments) int(*field) arguments;
    HOOP_CUDA_CALLS(HOOP_CUDA_CALL)
    HOOP_CUDA_NEW_CALLS(HOOP_CUDA_CALL)
#undef HOOP_CUDA_CALL
};

/* The driver's functions; all NULL until it is loaded. */
extern struct hoop_cuda hoop_cuda;

/* Loads the driver, once, from where HOOP_CUDA says. False: there is none. */
bool hoop_cuda_load(void);

/* The same. HOOP_UNSUPPORTED: this process has no CUDA; the error text says why. */
hoop_result_t hoop_cuda_need(void);

/* Is the driver loaded? If not no pointer is device memory. One load, since every call asks. */
extern _Atomic bool hoop_cuda_loaded;
static inline bool hoop_cuda_is_loaded(void)
{
    return atomic_load_explicit(&hoop_cuda_loaded, memory_order_acquire);
}

/* HOOP_UNSUPPORTED, with the reason: the driver is too old to capture hoop's calls into graphs. The
 * driver must be loaded. */
hoop_result_t hoop_cuda_need_graphs(void);

/*
 * HOOP_OK for HOOP_CU_SUCCESS; else HOOP_OUT_OF_MEMORY or HOOP_CUDA_ERROR, with a sentence of the
 * call, and CUDA's own name and text of the error.
 */
hoop_result_t hoop_cuda_check(const char *call, int error);

/*
 * Makes a context the calling thread's current one until hoop_cuda_leave(). In between, what the
 * thread does neither becomes part of a graph that another thread captures nor invalidates it. Does
 * not nest.
 */
hoop_result_t hoop_cuda_enter(hoop_cu_context_t context);
void hoop_cuda_leave(void);

/*
 * Queues a copy from pinned host memory to a device, whose context is current. Where several
 * processes share a device, a small copy by cuMemcpyAsync() waits 0.1 to 0.3 ms for its process's
 * turn on the device; a copy of two rows does not (bench/gpu/gpu_facts.cu), so small copies are
 * made that way.
 */
hoop_result_t hoop_cuda_copy_to_device(hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes,
                                       hoop_stream_t stream);

/*
 * *ret: the context of ptr if that is device memory, else NULL. Memory that belongs to no context
 * is visible in all contexts of its device: then *ret is the calling thread's current one if that
 * is of the device, else the primary one. An error: CUDA could not say. The driver must be loaded.
 */
hoop_result_t hoop_cuda_find(const void *ptr, hoop_cu_context_t *ret);

/* True if ptr is device memory, with its context in *ret; false, too, if CUDA could not say. */
bool hoop_cuda_owns(const void *ptr, hoop_cu_context_t *ret);

/* An id of the device with this number, which is the same in all processes; 0: not known. */
uint64_t hoop_cuda_device_id(int device);

/* hoop's own stream in a context, which must be current. It is never destroyed, and nothing on it
 * ever waits. */
hoop_result_t hoop_cuda_stream(hoop_cu_context_t context, hoop_stream_t *ret);

/* Copies bytes of a context's device memory to the host, ordered behind its legacy default stream.
 * HOOP_INVALID_USAGE: another stream captures, so that stream can't be used. */
hoop_result_t hoop_cuda_read(hoop_cu_context_t context, void *to, const void *from, size_t bytes);

/*
 * The context that a stream was made in, which must be current for all that is put on the stream
 * except copies. Streams that each context has, as the default one (NULL), are those of `of`.
 */
hoop_cu_context_t hoop_cuda_stream_context(hoop_stream_t stream, hoop_cu_context_t of);
/* The same where no buffer tells what `of` is: the current context, or that of device 0, which is
 * made only then. */
hoop_result_t hoop_cuda_stream_find(hoop_stream_t stream, hoop_cu_context_t *ret);

/* Identifies a stream that captures among those of one graph, by its handle: CUDA gives no number
 * for it, but such a stream can't be destroyed either. Handles that are names, such as
 * cudaStreamPerThread, mean another stream in each thread. */
uintptr_t hoop_cuda_capturing_stream(hoop_stream_t stream);
/* Which graph the stream captures, and CUDA's number for it. It is an error if the capture has
 * failed: then there is none. */
hoop_result_t hoop_cuda_find_graph(hoop_stream_t stream, hoop_cu_graph_t *ret,
                                   unsigned long long *ret_number);
/* gone(arg) is called when the graph, and all that was made of it, is gone: on CUDA's thread, which
 * may not call CUDA. On failure it is called before this returns. */
hoop_result_t hoop_cuda_watch_graph(hoop_cu_graph_t graph, hoop_cu_host_fn_t *gone, void *arg);

/* ---- Several devices --------------------------------------------------------------------------
 *
 * Kernels of one device read and write another's memory where CUDA says that they can, over
 * whatever connects the two. Each mapped block is opened to a device by itself (device.h); plain
 * memory of a context to another context, all of it at once.
 */

#define HOOP_CUDA_MOST_PEERS 47u

/*
 * Fills in the ids of the devices, among those that this process sees, whose memory `device` can
 * reach, and returns how many there are. 0 with HOOP_CUDA_PEERS=0.
 */
uint32_t hoop_cuda_peers(int device, uint64_t ret[HOOP_CUDA_MOST_PEERS]);

/* Is it the device's primary context, the one of CUDA's runtime? */
bool hoop_cuda_is_primary(hoop_cu_context_t context, int device);

/* Is ptr plain memory of a context, which can be opened to other contexts? */
bool hoop_cuda_is_plain(const void *ptr);

/* Lets `context`, which must be current, reach plain memory of any context of this process. */
hoop_result_t hoop_cuda_reach(hoop_cu_context_t context, const void *ptr);
/* Lets `from`, which must be current, reach all plain memory of `to`. */
hoop_result_t hoop_cuda_reach_context(hoop_cu_context_t from, hoop_cu_context_t to);

/* The current context, or that of device 0 where there is none. Loads the driver. */
hoop_result_t hoop_cuda_context(hoop_cu_context_t *ret);

/* The device of the calling thread's current context; -1: none, or no CUDA. */
int hoop_cuda_current_device(void);

#endif

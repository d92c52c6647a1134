/* Compares what lib/memory/cuda.h declares of CUDA with CUDA's own header, if that is installed. */
#include <stdio.h>

#ifdef HOOP_HAVE_CUDA_H
#include "memory/cuda.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SAME(mine, theirs) _Static_assert((int)(mine) == (int)(theirs), #theirs)
SAME(HOOP_CU_SUCCESS, CUDA_SUCCESS);
SAME(HOOP_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(HOOP_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(HOOP_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(HOOP_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(HOOP_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(HOOP_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(HOOP_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(HOOP_CU_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED);
SAME(HOOP_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(HOOP_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(HOOP_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(HOOP_CU_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(HOOP_CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(HOOP_CU_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(HOOP_CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(HOOP_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(HOOP_CU_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(HOOP_CU_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(HOOP_CU_POINTER_IS_PLAIN, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME(HOOP_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(HOOP_CU_MEMORY_ANY, CU_MEMORYTYPE_UNIFIED);
SAME(HOOP_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(HOOP_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(HOOP_CU_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(HOOP_CU_HOST_REGISTER_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(HOOP_CU_WAIT_VALUE_GEQ, CU_STREAM_WAIT_VALUE_GEQ);
SAME(HOOP_CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(HOOP_CU_OBJECT_NOT_AWAITED, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
SAME(HOOP_CU_OBJECT_MOVE, CU_GRAPH_USER_OBJECT_MOVE);
SAME(HOOP_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(HOOP_CU_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(HOOP_CU_DESCRIPTORS, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(HOOP_CU_MEMORY_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(HOOP_CU_MEMORY_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(HOOP_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(HOOP_CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(HOOP_CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(HOOP_CU_IPC_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(sizeof(struct hoop_cu_ipc), sizeof(CUipcMemHandle));
SAME(_Alignof(struct hoop_cu_ipc), _Alignof(CUipcMemHandle));

SAME(sizeof(struct hoop_cu_properties), sizeof(CUmemAllocationProp));
SAME(offsetof(struct hoop_cu_properties, handle_types),
     offsetof(CUmemAllocationProp, requestedHandleTypes));
SAME(offsetof(struct hoop_cu_properties, location), offsetof(CUmemAllocationProp, location));
SAME(offsetof(struct hoop_cu_location, id), offsetof(CUmemLocation, id));
SAME(sizeof(struct hoop_cu_access), sizeof(CUmemAccessDesc));
SAME(offsetof(struct hoop_cu_access, flags), offsetof(CUmemAccessDesc, flags));
SAME(sizeof(struct hoop_cu_rows), sizeof(CUDA_MEMCPY2D));
SAME(offsetof(struct hoop_cu_rows, from.type), offsetof(CUDA_MEMCPY2D, srcMemoryType));
SAME(offsetof(struct hoop_cu_rows, from.at), offsetof(CUDA_MEMCPY2D, srcDevice));
SAME(offsetof(struct hoop_cu_rows, from.pitch), offsetof(CUDA_MEMCPY2D, srcPitch));
SAME(offsetof(struct hoop_cu_rows, to.at), offsetof(CUDA_MEMCPY2D, dstDevice));
SAME(offsetof(struct hoop_cu_rows, width), offsetof(CUDA_MEMCPY2D, WidthInBytes));
SAME(sizeof(hoop_cu_address_t), sizeof(CUdeviceptr));
SAME(sizeof(hoop_cu_memory_t), sizeof(CUmemGenericAllocationHandle));

/* Some calls have versions in their names: the header defines which one is meant. */
#define NAME_OF(call) #call
#define NAME(call) NAME_OF(call)
static const struct {
    const char *plain, *now;
} versions[] = {
    {"cuCtxPushCurrent", NAME(cuCtxPushCurrent)},
    {"cuCtxPopCurrent", NAME(cuCtxPopCurrent)},
    {"cuMemAlloc", NAME(cuMemAlloc)},
    {"cuMemFree", NAME(cuMemFree)},
    {"cuMemsetD8Async", NAME(cuMemsetD8Async)},
    {"cuMemGetAddressRange", NAME(cuMemGetAddressRange)},
    {"cuIpcGetMemHandle", NAME(cuIpcGetMemHandle)},
    {"cuIpcOpenMemHandle", NAME(cuIpcOpenMemHandle)},
    {"cuIpcCloseMemHandle", NAME(cuIpcCloseMemHandle)},
    {"cuMemHostRegister", NAME(cuMemHostRegister)},
    {"cuMemcpyDtoH", NAME(cuMemcpyDtoH)},
    {"cuStreamDestroy", NAME(cuStreamDestroy)},
    {"cuEventDestroy", NAME(cuEventDestroy)},
    {"cuDeviceGetUuid", NAME(cuDeviceGetUuid)},
    {"cuModuleLoadData", NAME(cuModuleLoadData)},
    {"cuMemCreate", NAME(cuMemCreate)},
    {"cuMemMap", NAME(cuMemMap)},
    {"cuLaunchKernel", NAME(cuLaunchKernel)},
    {"cuMemSetAccess", NAME(cuMemSetAccess)},
    {"cuMemUnmap", NAME(cuMemUnmap)},
    {"cuMemcpyAsync", NAME(cuMemcpyAsync)},
    {"cuMemcpy2DAsync", NAME(cuMemcpy2DAsync)},
    {"cuStreamQuery", NAME(cuStreamQuery)},
    {"cuLaunchHostFunc", NAME(cuLaunchHostFunc)},
    {"cuEventRecord", NAME(cuEventRecord)},
    {"cuStreamWaitEvent", NAME(cuStreamWaitEvent)},
    {"cuCtxGetDevice", NAME(cuCtxGetDevice)},
    {"cuDevicePrimaryCtxGetState", NAME(cuDevicePrimaryCtxGetState)},
    {"cuDeviceCanAccessPeer", NAME(cuDeviceCanAccessPeer)},
    {"cuCtxEnablePeerAccess", NAME(cuCtxEnablePeerAccess)},
    {"cuMemHostGetDevicePointer", NAME(cuMemHostGetDevicePointer)},
    {"cuThreadExchangeStreamCaptureMode", NAME(cuThreadExchangeStreamCaptureMode)},
    {"cuStreamIsCapturing", NAME(cuStreamIsCapturing)},
    {"cuStreamGetId", NAME(cuStreamGetId)},
    {"cuStreamGetCtx", NAME(cuStreamGetCtx)},
    {"cuStreamWaitValue32", NAME(cuStreamWaitValue32)},
    {"cuStreamWriteValue32", NAME(cuStreamWriteValue32)},
};

static bool is_declared(const char *symbol)
{
#define IS(field, name, arguments)                                                                 \
    if (strcmp(name, symbol) == 0) {                                                               \
        return true;                                                                               \
    }
    HOOP_CUDA_CALLS(IS)
    HOOP_CUDA_NEW_CALLS(IS)
#undef IS
    return false;
}

int main(void)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        if (!is_declared(versions[i].now)) {
            printf("FAILED: %s is %s now\n", versions[i].plain, versions[i].now);
            failed = 1;
        }
    }
    return failed;
}
#else
int main(void)
{
    puts("skipped: no cuda.h");
    return 77;
}
#endif

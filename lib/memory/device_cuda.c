/*
 * Memory of CUDA devices. A block is physical memory that travels as a descriptor and is mapped at
 * an address; CUDA keeps it alive as long as anybody has it mapped, whoever frees it. Where a
 * device has no such memory, or can't export it (such as a MIG part of a device), a block is plain
 * CUDA memory, which is not shown to other processes.
 */
#include "memory/cuda.h"
#include "memory/device.h"

#include <fcntl.h>
#include <unistd.h>

static struct hoop_cu_properties cuda_properties(int device)
{
    return (struct hoop_cu_properties){
        .type = HOOP_CU_MEMORY_PINNED,
        .handle_types = HOOP_CU_MEMORY_DESCRIPTOR,
        .location = {HOOP_CU_LOCATION_DEVICE, device},
    };
}

/* The unit of a block's size; 0: the device has no memory that other processes can map. */
static uint64_t cuda_granularity(int device)
{
    const struct hoop_cu_properties properties = cuda_properties(device);
    int maps = 0, exports = 0;
    size_t ret = 0;
    return hoop_cuda.device_attribute(&maps, HOOP_CU_VIRTUAL_MEMORY, device) == HOOP_CU_SUCCESS &&
                   hoop_cuda.device_attribute(&exports, HOOP_CU_DESCRIPTORS, device) ==
                       HOOP_CU_SUCCESS &&
                   maps != 0 && exports != 0 &&
                   hoop_cuda.memory_granularity(&ret, &properties, HOOP_CU_GRANULARITY_MINIMUM) ==
                       HOOP_CU_SUCCESS
               ? ret
               : 0;
}

/* ---- Mappings ---- */

static void cuda_unmap(void *ptr, uint64_t bytes)
{
    (void)hoop_cuda.unmap((uintptr_t)ptr, bytes);
    (void)hoop_cuda.address_free((uintptr_t)ptr, bytes);
}

/* May be called while other devices use the block: their access does not change. */
static hoop_result_t cuda_grant(void *ptr, uint64_t bytes, int device)
{
    const struct hoop_cu_access access = {{HOOP_CU_LOCATION_DEVICE, device},
                                          HOOP_CU_ACCESS_READ_WRITE};
    return hoop_cuda_check("cuMemSetAccess",
                           hoop_cuda.set_access((uintptr_t)ptr, bytes, &access, 1));
}

/* Maps all of the memory. CUDA refuses a size that differs from the memory's. */
static hoop_result_t cuda_map_memory(hoop_cu_memory_t memory, uint64_t bytes, void **ret_ptr)
{
    hoop_cu_address_t at = 0;
    hoop_result_t result =
        hoop_cuda_check("cuMemAddressReserve", hoop_cuda.address_reserve(&at, bytes, 0, 0, 0));
    if (result != HOOP_OK) {
        return result;
    }
    result = hoop_cuda_check("cuMemMap", hoop_cuda.map(at, bytes, 0, memory, 0));
    if (result != HOOP_OK) {
        (void)hoop_cuda.address_free(at, bytes);
        return result;
    }
    *ret_ptr = (void *)(uintptr_t)at;
    return HOOP_OK;
}

/* The handle can be released at once: the mapping keeps the memory alive. */
static hoop_result_t cuda_map(int fd, uint64_t bytes, void **ret_ptr)
{
    hoop_cu_memory_t memory = 0;
    hoop_result_t result = hoop_cuda_need();
    if (result == HOOP_OK) {
        result = hoop_cuda_check(
            "cuMemImportFromShareableHandle",
            hoop_cuda.memory_import(&memory, (void *)(intptr_t)fd, HOOP_CU_MEMORY_DESCRIPTOR));
    }
    if (result == HOOP_OK) {
        result = cuda_map_memory(memory, bytes, ret_ptr);
        (void)hoop_cuda.memory_release(memory);
    }
    return result == HOOP_OK ? HOOP_OK
                             : hoop_error(result, "%llu bytes of a peer's device memory: %s",
                                          (unsigned long long)bytes, hoop_thread_error());
}

/* ---- Own blocks ---- */

/* Allocates on the current context's device. *ret_fd -1: the memory can't be exported, and nothing
 * was allocated. */
static hoop_result_t cuda_alloc_mapped(int device, uint64_t bytes, void **ret_ptr, int *ret_fd)
{
    const struct hoop_cu_properties properties = cuda_properties(device);
    hoop_cu_memory_t memory = 0;
    hoop_result_t result =
        hoop_cuda_check("cuMemCreate", hoop_cuda.memory_create(&memory, bytes, &properties, 0));
    if (result != HOOP_OK) {
        return result;
    }
    *ret_fd = -1;
    if (hoop_cuda.memory_export(ret_fd, memory, HOOP_CU_MEMORY_DESCRIPTOR, 0) == HOOP_CU_SUCCESS) {
        (void)fcntl(*ret_fd, F_SETFD, FD_CLOEXEC);
        result = cuda_map_memory(memory, bytes, ret_ptr);
        if (result == HOOP_OK && (result = cuda_grant(*ret_ptr, bytes, device)) != HOOP_OK) {
            cuda_unmap(*ret_ptr, bytes);
        }
        if (result != HOOP_OK) {
            close(*ret_fd);
        }
    }
    (void)hoop_cuda.memory_release(memory);
    return result;
}

static hoop_result_t cuda_alloc_plain(uint64_t bytes, void **ret_ptr)
{
    hoop_cu_address_t at = 0;
    const hoop_result_t result = hoop_cuda_check("cuMemAlloc", hoop_cuda.alloc(&at, bytes));
    *ret_ptr = (void *)(uintptr_t)at;
    return result;
}

/* A context must be current. */
static void cuda_free_block(void *ptr, uint64_t bytes, int fd)
{
    if (fd >= 0) {
        if (hoop_cuda.context_synchronize() == 0) { /* as cuMemFree() does */
            cuda_unmap(ptr, bytes);
        } /* else kernels may still use the memory: leave it */
        close(fd);
    } else {
        (void)hoop_cuda.free((uintptr_t)ptr);
    }
}

/* Waits for the filling, since other streams are not ordered behind it. Only for this stream:
 * another may be held, or capture, which a wait for the whole context would invalidate. */
static hoop_result_t cuda_zero(hoop_cu_context_t context, void *ptr, uint64_t bytes)
{
    hoop_stream_t stream = NULL;
    hoop_result_t result = hoop_cuda_stream(context, &stream);
    if (result == HOOP_OK) {
        result = hoop_cuda_check("cuMemsetD8Async",
                                 hoop_cuda.set_bytes((uintptr_t)ptr, 0, bytes, stream));
    }
    return result == HOOP_OK
               ? hoop_cuda_check("cuStreamSynchronize", hoop_cuda.stream_synchronize(stream))
               : result;
}

/* The context must be current. */
static hoop_result_t cuda_alloc_block(hoop_cu_context_t context, uint64_t *bytes, void **ret_ptr,
                                      int *ret_fd)
{
    int device = -1;
    hoop_result_t result = hoop_cuda_check("cuCtxGetDevice", hoop_cuda.context_device(&device));
    if (result != HOOP_OK) {
        return result;
    }
    const uint64_t step = cuda_granularity(device);
    const uint64_t rounded = step > 0 ? (*bytes + step - 1) / step * step : *bytes;
    *ret_fd = -1;
    if (step > 0) {
        result = cuda_alloc_mapped(device, rounded, ret_ptr, ret_fd);
    }
    if (result == HOOP_OK && *ret_fd < 0) {
        result = cuda_alloc_plain(*bytes, ret_ptr);
    } else {
        *bytes = rounded;
    }
    if (result == HOOP_OK) {
        result = cuda_zero(context, *ret_ptr, *bytes);
        if (result != HOOP_OK) {
            cuda_free_block(*ret_ptr, *bytes, *ret_fd);
        }
    }
    return result;
}

static hoop_result_t cuda_alloc(uint64_t *bytes, void **ret_ptr, int *ret_fd)
{
    hoop_cu_context_t context = NULL;
    hoop_result_t result = hoop_cuda_context(&context);
    if (result != HOOP_OK) {
        return hoop_error(result, "no device memory: %s", hoop_thread_error());
    }
    result = hoop_cuda_enter(context);
    if (result == HOOP_OK) {
        result = cuda_alloc_block(context, bytes, ret_ptr, ret_fd);
        hoop_cuda_leave();
    }
    return result;
}

static void cuda_free(void *ptr, uint64_t bytes, int fd)
{
    hoop_cu_context_t context = NULL;
    /* If the context is gone, or in a forked child, there is no memory to free any more. */
    if (hoop_cuda_owns(ptr, &context) && hoop_cuda_enter(context) == HOOP_OK) {
        cuda_free_block(ptr, bytes, fd);
        hoop_cuda_leave();
    } else if (fd >= 0) {
        close(fd);
    }
}

const struct hoop_device hoop_device_cuda = {
    .alloc = cuda_alloc,
    .free = cuda_free,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .grant = cuda_grant,
    .replace = NULL,
};

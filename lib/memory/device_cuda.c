/*
 * Memory of CUDA devices. It is not shown to other processes in this version: nobody is given a
 * descriptor of it, and none is taken.
 */
#include "memory/cuda.h"
#include "memory/device.h"
#include "memory/device_kinds.h"

static hoop_result_t cuda_alloc(uint64_t bytes, void **ret_ptr, int *ret_fd)
{
    hoop_cu_context_t context = NULL, popped = NULL;
    hoop_result_t result = hoop_cuda_context(&context);
    if (result != HOOP_OK) {
        return hoop_error(result, "no device memory: %s", hoop_thread_error());
    }
    hoop_cu_address_t at = 0;
    result = hoop_cuda_check("cuCtxPushCurrent", hoop_cuda.context_push(context));
    if (result != HOOP_OK) {
        return result;
    }
    result = hoop_cuda_check("cuMemAlloc", hoop_cuda.alloc(&at, bytes));
    if (result == HOOP_OK) {
        result = hoop_cuda_check("cuMemsetD8", hoop_cuda.set_bytes(at, 0, bytes));
        if (result != HOOP_OK) {
            (void)hoop_cuda.free(at);
        }
    }
    (void)hoop_cuda.context_pop(&popped);
    if (result == HOOP_OK) {
        *ret_ptr = (void *)(uintptr_t)at;
        *ret_fd = -1;
    }
    return result;
}

static void cuda_free(void *ptr, uint64_t bytes, int fd)
{
    hoop_cu_context_t context = NULL, popped = NULL;
    (void)bytes;
    (void)fd;
    /* After the end of the context, or in a fork's child, there is nothing to be freed any more. */
    if (hoop_cuda_owns(ptr, &context) && hoop_cuda.context_push(context) == HOOP_CU_SUCCESS) {
        (void)hoop_cuda.free((uintptr_t)ptr);
        (void)hoop_cuda.context_pop(&popped);
    }
}

static hoop_result_t cuda_map(int fd, uint64_t bytes, void **ret_ptr)
{
    (void)fd;
    (void)bytes;
    (void)ret_ptr;
    return hoop_error(HOOP_UNSUPPORTED, "device memory of another process cannot be mapped");
}

static void cuda_unmap(void *ptr, uint64_t bytes)
{
    (void)ptr;
    (void)bytes;
}

static hoop_result_t cuda_replace(void *ptr, uint64_t bytes)
{
    (void)ptr;
    (void)bytes;
    return hoop_error(HOOP_UNSUPPORTED, "device memory has no pages that could be replaced");
}

const struct hoop_device hoop_device_cuda = {
    .name = "device",
    .alloc = cuda_alloc,
    .free = cuda_free,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .replace = cuda_replace,
};

/* Device memory in a build that has none: every request is refused with a sentence. */
#include "memory/device.h"
#include "memory/device_kinds.h"

static hoop_result_t nocuda_refuse(void)
{
    return hoop_error(HOOP_UNSUPPORTED, "this build of hoop has no device memory");
}

static hoop_result_t nocuda_alloc(uint64_t bytes, void **ret_ptr, int *ret_fd)
{
    (void)bytes;
    (void)ret_ptr;
    (void)ret_fd;
    return nocuda_refuse();
}

static void nocuda_free(void *ptr, uint64_t bytes, int fd)
{
    (void)ptr;
    (void)bytes;
    (void)fd;
}

static hoop_result_t nocuda_map(int fd, uint64_t bytes, void **ret_ptr)
{
    (void)fd;
    (void)bytes;
    (void)ret_ptr;
    return nocuda_refuse();
}

static void nocuda_unmap(void *ptr, uint64_t bytes)
{
    (void)ptr;
    (void)bytes;
}

static hoop_result_t nocuda_replace(void *ptr, uint64_t bytes)
{
    (void)ptr;
    (void)bytes;
    return nocuda_refuse();
}

const struct hoop_device hoop_device_cuda = {
    .name = "device",
    .alloc = nocuda_alloc,
    .free = nocuda_free,
    .map = nocuda_map,
    .unmap = nocuda_unmap,
    .replace = nocuda_replace,
};

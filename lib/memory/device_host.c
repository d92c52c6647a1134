/* Host pages that peers can map: a sealed memfd for each block. */
#include "memory/device.h"
#include "memory/memfd.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/*
 * Pages are allocated when they are touched, so a block may be larger than the free memory. But one
 * larger than all memory could never be filled: better an error now than a kill later.
 */
static hoop_result_t host_check_room(uint64_t bytes)
{
    struct sysinfo info;
    if (sysinfo(&info) != 0) {
        return HOOP_OK;
    }
    const uint64_t most = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
    return bytes <= most ? HOOP_OK
                         : hoop_error(HOOP_OUT_OF_MEMORY,
                                      "%llu bytes of shared memory are more than this machine has, "
                                      "which is %llu with swap",
                                      (unsigned long long)bytes, (unsigned long long)most);
}

static hoop_result_t host_alloc(uint64_t *bytes, void **ret_ptr, int *ret_fd)
{
    int fd = -1;
    hoop_result_t result = host_check_room(*bytes);
    if (result == HOOP_OK) {
        result = hoop_memfd_create("hoop", *bytes, &fd);
    }
    if (result != HOOP_OK) {
        return result;
    }
    result = hoop_memfd_map(fd, *bytes, ret_ptr);
    if (result != HOOP_OK) {
        close(fd);
        return result;
    }
    *ret_fd = fd;
    return HOOP_OK;
}

static void host_unmap(void *ptr, uint64_t bytes)
{
    munmap(ptr, bytes);
}

static void host_free(void *ptr, uint64_t bytes, int fd)
{
    host_unmap(ptr, bytes);
    close(fd);
}

/*
 * Uses anonymous pages, moved into place. That takes memory only, and no descriptor or file: it is
 * done when something has gone wrong already.
 */
static hoop_result_t host_replace(void *ptr, uint64_t bytes)
{
    void *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) {
        return hoop_memory_error(errno, "mmap", bytes);
    }
    memcpy(fresh, ptr, bytes);
    if (mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, ptr) == MAP_FAILED) {
        const hoop_result_t result = hoop_memory_error(errno, "mremap", bytes);
        host_unmap(fresh, bytes);
        return result;
    }
    return HOOP_OK;
}

const struct hoop_device hoop_device_host = {
    .alloc = host_alloc,
    .free = host_free,
    .map = hoop_memfd_map,
    .unmap = host_unmap,
    .grant = NULL,
    .replace = host_replace,
};

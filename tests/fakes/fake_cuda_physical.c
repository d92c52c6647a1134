/*
 * The physical memory of the fake device, which has no address of its own (see fake_cuda_memory.c):
 * each block is a memfd whose name tells the device.
 */
#include "fakes/fake_cuda_inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int fake_memory_granularity(size_t *ret, const struct hoop_cu_properties *properties, int which)
{
    *ret = FAKE_GRANULARITY;
    return fake_physical(properties->location.id) >= 0 && which == HOOP_CU_GRANULARITY_MINIMUM
               ? HOOP_CU_SUCCESS
               : HOOP_CU_INVALID_VALUE;
}

static int memory_add(int fd, int home, size_t bytes, hoop_cu_memory_t *ret)
{
    struct fake_memory *memory = malloc(sizeof(*memory));
    if (memory == NULL) {
        close(fd);
        return HOOP_CU_OUT_OF_MEMORY;
    }
    *memory = (struct fake_memory){.fd = fd, .home = home, .bytes = bytes};
    *ret = (uintptr_t)memory;
    return HOOP_CU_SUCCESS;
}

/* Fills a block with garbage. */
static bool memory_fill(int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) {
        memset(at, 0xcd, bytes);
        munmap(at, bytes);
    }
    return at != MAP_FAILED;
}

int fake_memory_create(hoop_cu_memory_t *ret, size_t bytes,
                       const struct hoop_cu_properties *properties, unsigned long long flags)
{
    if (bytes == 0 || bytes % FAKE_GRANULARITY != 0 || flags != 0 ||
        properties->type != HOOP_CU_MEMORY_PINNED || fake_physical(properties->location.id) < 0) {
        return HOOP_CU_INVALID_VALUE;
    }
    if (bytes > FAKE_POOL_BYTES) {
        return HOOP_CU_OUT_OF_MEMORY;
    }
    char name[32];
    (void)snprintf(name, sizeof(name), "fake_cuda%d", fake_physical(properties->location.id));
    const int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || !memory_fill(fd, bytes)) {
        close(fd);
        return HOOP_CU_OUT_OF_MEMORY;
    }
    return memory_add(fd, properties->location.id, bytes, ret);
}

int fake_memory_release(hoop_cu_memory_t handle)
{
    struct fake_memory *memory = (struct fake_memory *)(uintptr_t)handle;
    close(memory->fd);
    free(memory);
    return HOOP_CU_SUCCESS;
}

int fake_memory_export(void *ret, hoop_cu_memory_t handle, int type, unsigned long long flags)
{
    const struct fake_memory *memory = (const struct fake_memory *)(uintptr_t)handle;
    *(int *)ret = dup(memory->fd);
    return type == HOOP_CU_MEMORY_DESCRIPTOR && flags == 0 ? HOOP_CU_SUCCESS
                                                           : HOOP_CU_INVALID_VALUE;
}

/* Accepts a block of a device that this process sees; refuses all else. */
int fake_memory_import(hoop_cu_memory_t *ret, void *handle, int type)
{
    const int fd = fcntl((int)(intptr_t)handle, F_DUPFD_CLOEXEC, 0);
    char path[64], name[64] = "";
    int physical = -1;
    struct stat status;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd < 0 || type != HOOP_CU_MEMORY_DESCRIPTOR || fstat(fd, &status) != 0 ||
        readlink(path, name, sizeof(name) - 1) < 0 ||
        sscanf(name, "/memfd:fake_cuda%d", &physical) != 1) {
        close(fd);
        return HOOP_CU_INVALID_VALUE;
    }
    if (fake_number(physical) < 0) {
        close(fd);
        return FAKE_NOT_SUPPORTED;
    }
    return memory_add(fd, fake_number(physical), (size_t)status.st_size, ret);
}

/*
 * Host pages that peers can map: a memfd each, sealed against shrinking and growing, so that a
 * peer who maps it can rely on its size for ever. Nothing appears in the file system and nothing
 * is left behind; /dev/shm and its size limit play no part.
 */
#include "device_kinds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOST_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What the user can do about it; "" when nobody knows. */
static const char *host_hint(int err)
{
    switch (err) {
    case EMFILE:
        return "; close some files, or raise their limit (ulimit -n)";
    case ENFILE:
        return "; the machine has no more open files, raise fs.file-max";
    case ENOMEM:
        return "; use less memory, or raise its limits (ulimit -v, the cgroup's memory.max, "
               "vm.max_map_count)";
    case ENOSPC:
    case EDQUOT:
        return "; use less shared memory, or raise the limit on it";
    case EAGAIN:
        return "; too much memory is locked, raise the limit (ulimit -l)";
    case EFBIG:
        return "; raise the limit on the size of files (ulimit -f), it holds for shared memory too";
    default:
        return "";
    }
}

static hoop_result_t host_error(int err, const char *call, uint64_t bytes)
{
    const bool room = err == ENOSPC || err == EDQUOT || err == EAGAIN || err == EFBIG;
    return hoop_error(room ? HOOP_OUT_OF_MEMORY : hoop_from_errno(err),
                      "%s of %llu bytes of shared memory failed: %s%s", call,
                      (unsigned long long)bytes, hoop_errno_name(err), host_hint(err));
}

/* ftruncate() beyond this limit would not just fail but raise SIGXFSZ. */
static bool host_exceeds_limit(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           bytes > limit.rlim_cur;
}

static hoop_result_t host_create(uint64_t bytes, int *ret_fd)
{
    if (host_exceeds_limit(bytes)) {
        return host_error(EFBIG, "ftruncate", bytes);
    }
    const int fd = memfd_create("hoop", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return host_error(errno, "memfd_create", bytes);
    }
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, HOST_SEALS) != 0) {
        const hoop_result_t result = host_error(errno, "ftruncate", bytes);
        close(fd);
        return result;
    }
    *ret_fd = fd;
    return HOOP_OK;
}

static hoop_result_t host_mmap(int fd, uint64_t bytes, void *at, void **ret_ptr)
{
    const int fixed = at != NULL ? MAP_FIXED : 0;
    void *ptr = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | fixed, fd, 0);
    if (ptr == MAP_FAILED) {
        return host_error(errno, "mmap", bytes);
    }
    *ret_ptr = ptr;
    return HOOP_OK;
}

static hoop_result_t host_alloc(uint64_t bytes, void **ret_ptr, int *ret_fd)
{
    int fd = -1;
    hoop_result_t result = host_create(bytes, &fd);
    if (result != HOOP_OK) {
        return result;
    }
    result = host_mmap(fd, bytes, NULL, ret_ptr);
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

static hoop_result_t host_map(int fd, uint64_t bytes, void **ret_ptr)
{
    struct stat st;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) != 0) {
        return hoop_error(HOOP_REMOTE_ERROR,
                          "a peer sent a descriptor that is not memory sealed against shrinking");
    }
    if (bytes == 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes) {
        return hoop_error(HOOP_REMOTE_ERROR, "a peer sent memory of %lld bytes and called it %llu",
                          (long long)st.st_size, (unsigned long long)bytes);
    }
    return host_mmap(fd, bytes, NULL, ret_ptr);
}

static hoop_result_t host_replace(void *ptr, uint64_t bytes)
{
    int fd = -1;
    void *fresh = NULL;
    hoop_result_t result = host_create(bytes, &fd);
    if (result != HOOP_OK) {
        return result;
    }
    result = host_mmap(fd, bytes, NULL, &fresh);
    if (fresh != NULL) {
        memcpy(fresh, ptr, bytes);
        host_unmap(fresh, bytes);
        void *same = NULL;
        result = host_mmap(fd, bytes, ptr, &same);
    }
    close(fd); /* the mapping keeps the pages; nobody else is to have them */
    return result;
}

const struct hoop_device hoop_device_host = {
    .name = "host",
    .alloc = host_alloc,
    .free = host_free,
    .map = host_map,
    .unmap = host_unmap,
    .replace = host_replace,
};

/* Sealed memory that travels as a descriptor (see memfd.h). */
#include "memory/memfd.h"

#include "runtime/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMFD_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What the user can do about the error; "" if nothing is known. */
static const char *memory_hint(int err)
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

hoop_result_t hoop_memory_error(int err, const char *call, uint64_t bytes)
{
    const bool room = err == ENOSPC || err == EDQUOT || err == EAGAIN || err == EFBIG;
    return hoop_error(room ? HOOP_OUT_OF_MEMORY : hoop_from_errno(err),
                      "%s of %llu bytes of shared memory failed: %s%s", call,
                      (unsigned long long)bytes, hoop_errno_name(err), memory_hint(err));
}

/* Checked beforehand because ftruncate() beyond this limit not only fails, but raises SIGXFSZ. */
static bool memfd_exceeds_limit(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           bytes > limit.rlim_cur;
}

hoop_result_t hoop_memfd_create(const char *name, uint64_t bytes, int *ret_fd)
{
    if (memfd_exceeds_limit(bytes)) {
        return hoop_memory_error(EFBIG, "ftruncate", bytes);
    }
    hoop_process_hold_streams();
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return hoop_memory_error(errno, "memfd_create", bytes);
    }
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, MEMFD_SEALS) != 0) {
        const hoop_result_t result = hoop_memory_error(errno, "ftruncate", bytes);
        close(fd);
        return result;
    }
    *ret_fd = fd;
    return HOOP_OK;
}

hoop_result_t hoop_memfd_check(int fd, uint64_t bytes)
{
    struct stat st;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & MEMFD_SEALS) != MEMFD_SEALS || fstat(fd, &st) != 0) {
        return hoop_error(HOOP_REMOTE_ERROR,
                          "a peer sent a descriptor that is not memory with its size sealed");
    }
    if (bytes == 0 || st.st_size < 0 || (uint64_t)st.st_size != bytes) {
        return hoop_error(HOOP_REMOTE_ERROR, "a peer sent memory of %lld bytes, but announced %llu",
                          (long long)st.st_size, (unsigned long long)bytes);
    }
    return HOOP_OK;
}

hoop_result_t hoop_memfd_map(int fd, uint64_t bytes, void **ret_ptr)
{
    const hoop_result_t result = hoop_memfd_check(fd, bytes);
    if (result != HOOP_OK) {
        return result;
    }
    void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ptr == MAP_FAILED) {
        return hoop_memory_error(errno, "mmap", bytes);
    }
    *ret_ptr = ptr;
    return HOOP_OK;
}

/* See failing_calls.h. */
#include "fakes/failing_calls.h"
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static struct failing now;
static _Atomic bool armed;
static _Atomic unsigned calls;
static const void *_Atomic where;

void failing_start(const struct failing *failing)
{
    now = *failing;
    calls = 0;
    where = NULL;
    armed = true;
}

unsigned failing_stop(const void **ret_where)
{
    armed = false;
    *ret_where = where;
    return calls;
}

/* Is it this call's turn to fail? */
static bool fails(const char *call, bool moves, const void *from)
{
    if (!armed || strcmp(call, now.call) != 0 || moves != (now.error == 0)) {
        return false;
    }
    const unsigned number = ++calls;
    if (number < now.from || number - now.from >= now.most) {
        return false;
    }
    const void *none = NULL;
    (void)atomic_compare_exchange_strong(&where, &none, from);
    errno = now.error;
    return true;
}

#define FROM __builtin_return_address(0)

#define CALL(result, failed, name, parameters, arguments)                                          \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        return fails(#name, false, FROM) ? (failed) : __real_##name arguments;                     \
    }

/* Moves `bytes`, of which one is enough. */
#define MOVE(name, parameters, arguments)                                                          \
    ssize_t __real_##name parameters;                                                              \
    ssize_t __wrap_##name parameters;                                                              \
    ssize_t __wrap_##name parameters                                                               \
    {                                                                                              \
        if (fails(#name, false, FROM)) {                                                           \
            return -1;                                                                             \
        }                                                                                          \
        if (bytes > 1 && fails(#name, true, FROM)) {                                               \
            bytes = 1;                                                                             \
        }                                                                                          \
        return __real_##name arguments;                                                            \
    }

/* ---- Memory ------------------------------------------------------------------------------- */

CALL(void *, NULL, malloc, (size_t bytes), (bytes))
CALL(void *, NULL, calloc, (size_t count, size_t bytes), (count, bytes))
CALL(void *, NULL, realloc, (void *memory, size_t bytes), (memory, bytes))
CALL(void *, NULL, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
CALL(char *, NULL, strdup, (const char *text), (text))
CALL(void *, MAP_FAILED, mmap64,
     (void *at, size_t bytes, int access, int flags, int fd, off_t from),
     (at, bytes, access, flags, fd, from))
CALL(int, -1, madvise, (void *at, size_t bytes, int advice), (at, bytes, advice))

void *__real_mremap(void *at, size_t old, size_t bytes, int flags, void *to);
void *__wrap_mremap(void *at, size_t old, size_t bytes, int flags, void *to);
void *__wrap_mremap(void *at, size_t old, size_t bytes, int flags, void *to)
{
    return fails("mremap", false, FROM) ? MAP_FAILED : __real_mremap(at, old, bytes, flags, to);
}

/* ---- Descriptors -------------------------------------------------------------------------- */

CALL(int, -1, open64, (const char *path, int flags, mode_t mode), (path, flags, mode))
CALL(int, -1, openat64, (int at, const char *path, int flags, mode_t mode), (at, path, flags, mode))
CALL(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
CALL(int, -1, fcntl64, (int fd, int command, long argument), (fd, command, argument))
CALL(int, -1, fstat64, (int fd, struct stat64 *ret), (fd, ret))
CALL(int, -1, ftruncate64, (int fd, off_t bytes), (fd, bytes))
CALL(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
CALL(int, -1, eventfd, (unsigned value, int flags), (value, flags))
CALL(int, -1, epoll_create1, (int flags), (flags))
CALL(int, -1, epoll_ctl, (int set, int what, int fd, struct epoll_event *event),
     (set, what, fd, event))

/* ---- Sockets ------------------------------------------------------------------------------ */

CALL(int, -1, socket, (int family, int kind, int protocol), (family, kind, protocol))
CALL(int, -1, bind, (int fd, const struct sockaddr *to, socklen_t bytes), (fd, to, bytes))
CALL(int, -1, listen, (int fd, int most), (fd, most))
CALL(int, -1, accept4, (int fd, struct sockaddr *ret, socklen_t *bytes, int flags),
     (fd, ret, bytes, flags))
CALL(int, -1, connect, (int fd, const struct sockaddr *to, socklen_t bytes), (fd, to, bytes))
CALL(int, -1, getsockopt, (int fd, int level, int name, void *ret, socklen_t *bytes),
     (fd, level, name, ret, bytes))
CALL(int, -1, setsockopt, (int fd, int level, int name, const void *value, socklen_t bytes),
     (fd, level, name, value, bytes))
CALL(int, -1, getsockname, (int fd, struct sockaddr *ret, socklen_t *bytes), (fd, ret, bytes))
CALL(int, -1, getpeername, (int fd, struct sockaddr *ret, socklen_t *bytes), (fd, ret, bytes))
CALL(int, -1, getifaddrs, (struct ifaddrs * *ret), (ret))
CALL(int, EAI_MEMORY, getaddrinfo,
     (const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret),
     (host, port, hints, ret))

/* ---- What moves bytes --------------------------------------------------------------------- */

MOVE(read, (int fd, void *to, size_t bytes), (fd, to, bytes))
MOVE(write, (int fd, const void *from, size_t bytes), (fd, from, bytes))
MOVE(pread64, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at))
MOVE(recv, (int fd, void *to, size_t bytes, int flags), (fd, to, bytes, flags))
MOVE(send, (int fd, const void *from, size_t bytes, int flags), (fd, from, bytes, flags))
MOVE(getrandom, (void *to, size_t bytes, unsigned flags), (to, bytes, flags))

/* A message of a packet socket is whole or not at all. */
#define MESSAGE(name, qualifier)                                                                   \
    ssize_t __real_##name(int fd, qualifier struct msghdr *message, int flags);                    \
    ssize_t __wrap_##name(int fd, qualifier struct msghdr *message, int flags);                    \
    ssize_t __wrap_##name(int fd, qualifier struct msghdr *message, int flags)                     \
    {                                                                                              \
        int type = 0;                                                                              \
        socklen_t bytes = sizeof(type);                                                            \
        struct iovec one = {.iov_base = message->msg_iov[0].iov_base, .iov_len = 1};               \
        struct msghdr less = *message;                                                             \
        (void)__real_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes);                           \
        less.msg_iov = &one;                                                                       \
        less.msg_iovlen = 1;                                                                       \
        if (fails(#name, false, FROM)) {                                                           \
            return -1;                                                                             \
        }                                                                                          \
        return type == SOCK_STREAM && message->msg_iov[0].iov_len > 0 && fails(#name, true, FROM)  \
                   ? __real_##name(fd, &less, flags)                                               \
                   : __real_##name(fd, message, flags);                                            \
    }
MESSAGE(sendmsg, const)
MESSAGE(recvmsg, )

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long tos,
                                const struct iovec *from, unsigned long froms, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long tos,
                                const struct iovec *from, unsigned long froms, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long tos,
                                const struct iovec *from, unsigned long froms, unsigned long flags)
{
    const struct iovec one = {.iov_base = to[0].iov_base, .iov_len = 1};
    if (fails("process_vm_readv", false, FROM)) {
        return -1;
    }
    return to[0].iov_len > 1 && fails("process_vm_readv", true, FROM)
               ? __real_process_vm_readv(pid, &one, 1, from, froms, flags)
               : __real_process_vm_readv(pid, to, tos, from, froms, flags);
}

/* ---- The rest ----------------------------------------------------------------------------- */

CALL(int, -1, sched_getaffinity, (pid_t pid, size_t bytes, cpu_set_t *ret), (pid, bytes, ret))
CALL(int, now.error, pthread_create,
     (pthread_t * ret, const pthread_attr_t *attributes, void *(*body)(void *), void *argument),
     (ret, attributes, body, argument))
CALL(int, now.error, pthread_setspecific, (pthread_key_t key, const void *value), (key, value))

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    /* the others: test_limits.c */
    return number == SYS_pidfd_open && fails("syscall", false, FROM)
               ? -1
               : __real_syscall(number, a, b, c, d, e, f);
}

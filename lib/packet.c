/* Packets: the system calls of control connections. See packet.h. */
#include "packet.h"
#include "watch.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PACKET_BACKLOG 1024

static socklen_t packet_address(const char *name, struct sockaddr_un *ret_address)
{
    const size_t length = strlen(name);
    assert(length > 0 && length < HOOP_FRAME_NAME_BYTES);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

hoop_result_t hoop_packet_socket(int domain, int type, int *ret_fd)
{
    hoop_fork_hold();
    const int fd = socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int err = errno;
    const hoop_result_t kept = fd >= 0 ? hoop_fork_keep(fd) : HOOP_OK;
    hoop_fork_release();
    if (fd < 0) {
        return hoop_error(hoop_from_errno(err), "cannot make a socket: %s", hoop_errno_name(err));
    }
    if (kept == HOOP_OK) {
        *ret_fd = fd;
    }
    return kept;
}

hoop_result_t hoop_packet_connect(const char *name, int *ret_fd)
{
    struct sockaddr_un address;
    const socklen_t bytes = packet_address(name, &address);
    int fd = -1;
    const hoop_result_t result = hoop_packet_socket(AF_UNIX, SOCK_SEQPACKET, &fd);
    if (result != HOOP_OK) {
        return result;
    }
    if (connect(fd, (const struct sockaddr *)&address, bytes) != 0) {
        const int err = errno;
        hoop_fork_close(fd);
        if (err == ECONNREFUSED || err == EAGAIN || err == EINTR) {
            return HOOP_AGAIN;
        }
        return hoop_error(hoop_from_errno(err), "cannot connect to %s: %s", name,
                          hoop_errno_name(err));
    }
    *ret_fd = fd;
    return HOOP_OK;
}

hoop_result_t hoop_packet_listen(const char *name, int *ret_fd)
{
    struct sockaddr_un address;
    const socklen_t bytes = packet_address(name, &address);
    int fd = -1;
    const hoop_result_t result = hoop_packet_socket(AF_UNIX, SOCK_SEQPACKET, &fd);
    if (result != HOOP_OK) {
        return result;
    }
    if (bind(fd, (const struct sockaddr *)&address, bytes) != 0 ||
        listen(fd, PACKET_BACKLOG) != 0) {
        const int err = errno;
        hoop_fork_close(fd);
        if (err == EADDRINUSE) {
            return hoop_error(HOOP_INVALID_USAGE,
                              "the rendezvous %s is served by another process: is another job "
                              "running with the same MASTER_PORT or job id?",
                              name);
        }
        return hoop_error(hoop_from_errno(err), "cannot listen at %s: %s", name,
                          hoop_errno_name(err));
    }
    *ret_fd = fd;
    return HOOP_OK;
}

/* Nobody waits, or who did is gone: TCP reports what the network said of that connection. */
static bool packet_is_passing(int err)
{
    switch (err) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case ENONET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ETIMEDOUT:
        return true;
    default:
        return false;
    }
}

hoop_result_t hoop_packet_accept(int listen_fd, int *ret_fd)
{
    hoop_fork_hold();
    const int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int err = errno;
    const hoop_result_t kept = fd >= 0 ? hoop_fork_keep(fd) : HOOP_OK;
    hoop_fork_release();
    if (fd < 0 && packet_is_passing(err)) {
        return HOOP_AGAIN;
    }
    if (fd < 0) {
        return hoop_error(hoop_from_errno(err), "cannot accept a connection: %s%s",
                          hoop_errno_name(err), err == EMFILE ? " (raise ulimit -n)" : "");
    }
    if (kept == HOOP_OK) {
        *ret_fd = fd;
    }
    return kept;
}

hoop_result_t hoop_packet_peer(int fd, pid_t *ret_pid)
{
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
        const int err = errno;
        return hoop_error(hoop_from_errno(err), "SO_PEERCRED: %s", hoop_errno_name(err));
    }
    if (peer.uid != geteuid()) {
        return hoop_error(HOOP_NOT_AUTHENTICATED,
                          "the other end (pid %d) belongs to uid %u, this process to uid %u",
                          (int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
    }
    *ret_pid = peer.pid;
    return HOOP_OK;
}

/* Room for the descriptors of one message. */
union packet_ancillary {
    struct cmsghdr align;
    char space[CMSG_SPACE(HOOP_FRAME_MAX_FDS * sizeof(int))];
};

ssize_t hoop_packet_send(int fd, const void *data, size_t bytes, const int *fds, uint32_t fd_count)
{
    union packet_ancillary ancillary;
    struct iovec iov = {.iov_base = (void *)data, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count > 0) {
        memset(&ancillary, 0, sizeof(ancillary));
        message.msg_control = &ancillary;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

static void packet_take_fds(struct msghdr *message, struct hoop_packet *packet)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && packet->fd_count < HOOP_FRAME_MAX_FDS; i++) {
            memcpy(&packet->fds[packet->fd_count++], CMSG_DATA(header) + i * sizeof(int),
                   sizeof(int));
        }
    }
}

ssize_t hoop_packet_receive(int fd, bool take_fds, struct hoop_packet *ret_packet)
{
    union packet_ancillary ancillary;
    struct iovec iov = {.iov_base = &ret_packet->frame, .iov_len = sizeof(ret_packet->frame)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (take_fds) {
        message.msg_control = &ancillary;
        message.msg_controllen = sizeof(ancillary);
    }
    ssize_t got;
    do {
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    ret_packet->fd_count = 0;
    if (got < 0) {
        return -errno;
    }
    packet_take_fds(&message, ret_packet);
    const bool short_of_fds = (message.msg_flags & MSG_CTRUNC) != 0;
    ret_packet->fds_missing = short_of_fds && take_fds;
    ret_packet->truncated = (message.msg_flags & MSG_TRUNC) != 0 || (short_of_fds && !take_fds);
    return got;
}

/* See socket.h. */
#include "net/socket.h"
#include "base/settings.h"
#include "net/port_holder.h"
#include "runtime/watch.h"
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_BACKLOG 1024
#define SOCKET_DRAIN_READS 16

/* Probe after 10 s of silence, then every 5 s. Sent data must be acknowledged within 30 s. */
#define SOCKET_IDLE_S 10
#define SOCKET_PROBE_S 5
#define SOCKET_PROBES 4
#define SOCKET_USER_TIMEOUT_MS 30000

void hoop_place_format(const struct hoop_place *place, char *ret_text, size_t bytes)
{
    if (place->address.family == 0) {
        (void)snprintf(ret_text, bytes, "%s", place->name);
    } else {
        hoop_address_format(&place->address, ret_text, bytes);
    }
}

/* ---- Making one --------------------------------------------------------------------------- */

/* Failures are ignored: no option is essential, and some sandboxes refuse them. */
static void socket_set(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

static void socket_tune(int fd)
{
    socket_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    socket_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    socket_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, SOCKET_IDLE_S);
    socket_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, SOCKET_PROBE_S);
    socket_set(fd, IPPROTO_TCP, TCP_KEEPCNT, SOCKET_PROBES);
    socket_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SOCKET_USER_TIMEOUT_MS);
}

void hoop_socket_be_patient(int fd)
{
    socket_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

/* Registers the result of socket() or accept(), called under hoop_fork_hold(), and releases that.
 * If fd < 0, err says why. */
static hoop_result_t socket_keep(int fd, int err, const char *what, int *ret_fd)
{
    const hoop_result_t kept = fd >= 0 ? hoop_fork_keep(fd) : HOOP_OK;
    hoop_fork_release();
    if (fd < 0) {
        return hoop_errno_error(err, "cannot %s", what);
    }
    if (kept == HOOP_OK) {
        *ret_fd = fd;
    }
    return kept;
}

/* Makes a socket of the place's family. *ret_address gets the place's address. */
static hoop_result_t socket_create(const struct hoop_place *place,
                                   struct sockaddr_storage *ret_address, socklen_t *ret_bytes,
                                   int *ret_fd)
{
    const bool far = place->address.family != 0;
    if (far) {
        *ret_bytes = hoop_address_to_sockaddr(&place->address, ret_address);
    } else {
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        const size_t length = strlen(place->name);
        assert(length > 0 && length < HOOP_NAME_BYTES);
        memcpy(un.sun_path + 1, place->name, length);
        memcpy(ret_address, &un, sizeof(un));
        *ret_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    }
    const int type = far ? SOCK_STREAM : SOCK_SEQPACKET;
    hoop_fork_hold();
    const int fd = socket(ret_address->ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const hoop_result_t result = socket_keep(fd, errno, "make a socket", ret_fd);
    if (result == HOOP_OK && far) {
        socket_tune(*ret_fd);
    }
    return result;
}

/* ---- Connecting --------------------------------------------------------------------------- */

static const char *socket_not_mine(int err)
{
    return err == EADDRNOTAVAIL ? ": it is no address of this machine" : "";
}

static hoop_result_t socket_bind_from(int fd, const struct hoop_address *from)
{
    struct sockaddr_storage address;
    struct hoop_address any_port = *from;
    any_port.port = 0;
    const socklen_t bytes = hoop_address_to_sockaddr(&any_port, &address);
    /* connect() picks the port, so two sockets may share one if their other ends differ */
    socket_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (bind(fd, (const struct sockaddr *)&address, bytes) != 0) {
        const int err = errno;
        char text[HOOP_ADDRESS_TEXT_BYTES];
        hoop_address_format(&any_port, text, sizeof(text));
        return hoop_error(hoop_from_errno(err), "cannot connect from %s: %s%s", text,
                          hoop_errno_name(err), socket_not_mine(err));
    }
    return HOOP_OK;
}

/* Avoids BBR for connections within the machine: nothing is lost there, and BBR's pacing only adds
 * delay; other congestion controls do not pace. This must precede connect(), since a connection
 * that BBR has begun to pace remains paced. */
static void socket_pace_not(int fd, const struct hoop_place *to, const struct hoop_address *from)
{
    char control[16] = "";
    socklen_t bytes = sizeof(control) - 1;
    const bool here = hoop_address_is_loopback(&to->address) ||
                      (from != NULL && hoop_address_same_ip(from, &to->address));
    if (here && getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &bytes) == 0 &&
        strncmp(control, "bbr", 3) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", sizeof("reno") - 1);
    }
}

hoop_result_t hoop_socket_connect(const struct hoop_place *to, const struct hoop_address *from,
                                  int *ret_fd, int *ret_err)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    int fd = -1;
    hoop_result_t result = socket_create(to, &address, &bytes, &fd);
    if (result == HOOP_OK && from != NULL && from->family != 0) {
        result = socket_bind_from(fd, from);
    }
    if (result != HOOP_OK) {
        hoop_fork_close(fd);
        return result;
    }
    socket_pace_not(fd, to, from);
    int err;
    do { /* a call that was interrupted may have begun to connect, or not */
        err = connect(fd, (const struct sockaddr *)&address, bytes) == 0 ? 0 : errno;
    } while (err == EINTR);
    if (to->address.family != 0 && (err == 0 || err == EALREADY || err == EISCONN)) {
        err = hoop_socket_connected(fd);
    }
    *ret_fd = fd;
    *ret_err = err;
    return HOOP_OK;
}

hoop_result_t hoop_socket_unreached(int err)
{
    if (err == EAGAIN) {
        return HOOP_AGAIN;
    }
    return err == ECONNREFUSED ? hoop_error(HOOP_REMOTE_ERROR, "nobody is there")
                               : hoop_error(hoop_from_errno(err), "%s", hoop_errno_name(err));
}

int hoop_socket_connected(int fd)
{
    int err = 0;
    socklen_t bytes = sizeof(err);
    struct hoop_address local;
    struct hoop_address peer;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &bytes) != 0) {
        return errno;
    }
    if (err != 0) {
        return err;
    }
    if (!hoop_socket_peer(fd, &peer) || !hoop_socket_local(fd, &local)) {
        return EINPROGRESS;
    }
    /* if nobody listens and the kernel picks this very port, TCP connects to itself */
    const bool to_itself = hoop_address_same_ip(&local, &peer) && local.port == peer.port;
    return to_itself ? ECONNREFUSED : 0;
}

/* ---- Listening ---------------------------------------------------------------------------- */

static hoop_result_t socket_listen_near(const struct hoop_place *place, int *ret_fd)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    int fd = -1;
    const hoop_result_t result = socket_create(place, &address, &bytes, &fd);
    if (result != HOOP_OK) {
        return result;
    }
    if (bind(fd, (const struct sockaddr *)&address, bytes) == 0 &&
        listen(fd, SOCKET_BACKLOG) == 0) {
        *ret_fd = fd;
        return HOOP_OK;
    }
    const int err = errno;
    hoop_fork_close(fd);
    if (err == EADDRINUSE) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "the name %s is held by another process: is another job running with "
                          "the same MASTER_PORT or job id?",
                          place->name);
    }
    return hoop_errno_error(err, "cannot listen at %s", place->name);
}

/* Returns 0 or an errno. */
static int socket_try_port(int fd, const struct hoop_address *at,
                           const struct sockaddr_storage *address, socklen_t bytes)
{
    if (at->port != 0) {
        /* Old connections in TIME_WAIT must not block the port. Not set for port 0: two sockets
         * with SO_REUSEADDR could be given the same port, and only one of them could listen. */
        socket_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    }
    if (at->family == 6) {
        socket_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    }
    if (hoop_settings()->socket_buffer_bytes > 0) {
        /* Data connections inherit it. Set later, it would not make the window smaller that the
         * other end was told; what came would be dropped, as if the network lost it. */
        socket_set(fd, SOL_SOCKET, SO_RCVBUF, (int)hoop_settings()->socket_buffer_bytes);
    }
    const bool listens =
        bind(fd, (const struct sockaddr *)address, bytes) == 0 && listen(fd, SOCKET_BACKLOG) == 0;
    return listens ? 0 : errno;
}

static hoop_result_t socket_no_port(const struct hoop_address *at, const struct hoop_ports *tried,
                                    int err)
{
    struct hoop_address ip = *at;
    char text[HOOP_ADDRESS_TEXT_BYTES];
    ip.port = 0;
    hoop_address_format(&ip, text, sizeof(text));
    if (err != EADDRINUSE && err != EACCES) {
        return hoop_error(hoop_from_errno(err), "cannot listen at %s: %s%s", text,
                          hoop_errno_name(err), socket_not_mine(err));
    }
    if (tried->first == 0) {
        return hoop_error(HOOP_INVALID_USAGE, "every port of %s is taken: %s", text,
                          hoop_errno_name(err));
    }
    /* several processes of a job may compete for the ports of a range */
    const char *range = at->port == 0 ? " (HOOP_PORT_RANGE: a port for each process)" : "";
    if (tried->first == tried->last) {
        char holder[HOOP_PORT_HOLDER_BYTES];
        hoop_port_describe_holder(tried->first, holder, sizeof(holder));
        return hoop_error(HOOP_INVALID_USAGE, "cannot listen at port %u of %s: %s%s%s",
                          tried->first, text, hoop_errno_name(err), range, holder);
    }
    return hoop_error(HOOP_INVALID_USAGE, "cannot listen at any port from %u to %u of %s: %s%s",
                      tried->first, tried->last, text, hoop_errno_name(err), range);
}

/* Listens at the first free port of the range. */
static hoop_result_t socket_listen_far(struct hoop_place *place, const struct hoop_ports *tries,
                                       int *ret_fd)
{
    const struct hoop_address at = place->address;
    int err = 0;
    for (uint32_t port = tries->first; port <= tries->last; port++) {
        struct sockaddr_storage address;
        socklen_t bytes;
        int fd = -1;
        place->address.port = (uint16_t)port;
        const hoop_result_t result = socket_create(place, &address, &bytes, &fd);
        if (result != HOOP_OK) {
            return result;
        }
        err = socket_try_port(fd, &place->address, &address, bytes);
        if (err == 0 && !hoop_socket_local(fd, &place->address)) {
            err = errno;
        }
        if (err == 0) {
            *ret_fd = fd;
            return HOOP_OK;
        }
        hoop_fork_close(fd);
        if (err != EADDRINUSE && err != EACCES) {
            break;
        }
    }
    return socket_no_port(&at, tries, err);
}

hoop_result_t hoop_socket_listen(struct hoop_place *place, const struct hoop_ports *ports,
                                 int *ret_fd)
{
    const struct hoop_address *at = &place->address;
    if (at->family == 0) {
        return socket_listen_near(place, ret_fd);
    }
    if (hoop_address_is_any(at)) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "an endpoint needs one address of this machine, not all");
    }
    struct hoop_ports tries = {.first = at->port, .last = at->port};
    if (at->port == 0 && ports != NULL) {
        tries = *ports;
    }
    assert(tries.first <= tries.last);
    return socket_listen_far(place, &tries, ret_fd);
}

/* Did accept() fail only because nobody waits, or because a waiting connection is gone? TCP reports
 * that connection's network errors here. */
static bool socket_is_passing(int err)
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

hoop_result_t hoop_socket_accept(int listen_fd, int *ret_fd)
{
    hoop_fork_hold();
    const int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int err = errno;
    if (fd < 0 && socket_is_passing(err)) {
        hoop_fork_release();
        return HOOP_AGAIN;
    }
    return socket_keep(fd, err, "accept a connection", ret_fd);
}

/* ---- Who is there ------------------------------------------------------------------------- */

/*
 * Is uid the overflow uid, as which the kernel shows every uid that is not mapped into this user
 * namespace? Then it proves nothing. The initial namespace maps all.
 */
static bool socket_uid_is_everybody(uid_t uid)
{
    unsigned overflow = 65534;
    unsigned long long inside = 1;
    unsigned long long outside = 1;
    unsigned long long count = 0;
    FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
    if (file != NULL) {
        (void)!fscanf(file, "%u", &overflow);
        (void)fclose(file);
    }
    if (uid != overflow) {
        return false;
    }
    file = fopen("/proc/self/uid_map", "re");
    if (file != NULL) {
        (void)!fscanf(file, "%llu %llu %llu", &inside, &outside, &count);
        (void)fclose(file);
    }
    return inside != 0 || outside != 0 || count < UINT32_MAX;
}

static hoop_result_t socket_peer_credentials(int fd, struct ucred *ret)
{
    socklen_t bytes = sizeof(*ret);
    const bool told = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &bytes) == 0;
    return told ? HOOP_OK : hoop_errno_error(errno, "SO_PEERCRED");
}

hoop_result_t hoop_socket_vouch(int fd, pid_t *ret_pid)
{
    struct ucred peer = {.pid = 0};
    const hoop_result_t result = socket_peer_credentials(fd, &peer);
    if (result != HOOP_OK) {
        return result;
    }
    if (peer.uid != geteuid()) {
        return hoop_error(HOOP_NOT_AUTHENTICATED,
                          "the other end (pid %d) belongs to uid %u, this process to uid %u",
                          (int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
    }
    if (socket_uid_is_everybody(peer.uid)) {
        return hoop_error(HOOP_NOT_AUTHENTICATED,
                          "the other end belongs to uid %u, as which this user namespace shows "
                          "every uid that it does not know: run as another user",
                          (unsigned)peer.uid);
    }
    *ret_pid = peer.pid;
    return HOOP_OK;
}

hoop_result_t hoop_socket_vouch_reader(int fd)
{
    struct ucred peer = {.pid = 0};
    pid_t pid = 0;
    const hoop_result_t result = socket_peer_credentials(fd, &peer);
    return result == HOOP_OK && peer.uid != 0 ? hoop_socket_vouch(fd, &pid) : result;
}

bool hoop_socket_local(int fd, struct hoop_address *ret)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof(address);
    return getsockname(fd, (struct sockaddr *)&address, &bytes) == 0 &&
           hoop_address_from_sockaddr((const struct sockaddr *)&address, ret);
}

bool hoop_socket_peer(int fd, struct hoop_address *ret)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof(address);
    return getpeername(fd, (struct sockaddr *)&address, &bytes) == 0 &&
           hoop_address_from_sockaddr((const struct sockaddr *)&address, ret);
}

/* ---- Data --------------------------------------------------------------------------------- */

union socket_ancillary {
    struct cmsghdr align;
    char space[CMSG_SPACE(HOOP_MAX_FDS * sizeof(int))];
};

ssize_t hoop_socket_send(int fd, const void *data, size_t bytes, const int *fds, uint32_t fd_count)
{
    union socket_ancillary ancillary;
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

static void socket_take_fds(struct msghdr *message, struct hoop_socket_extras *extras)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && extras->fd_count < HOOP_MAX_FDS; i++) {
            memcpy(&extras->fds[extras->fd_count++], CMSG_DATA(header) + i * sizeof(int),
                   sizeof(int));
        }
    }
}

ssize_t hoop_socket_receive_packet(int fd, void *data, size_t bytes, bool take_fds,
                                   struct hoop_socket_extras *ret_extras)
{
    union socket_ancillary ancillary;
    struct iovec iov = {.iov_base = data, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (take_fds) {
        message.msg_control = &ancillary;
        message.msg_controllen = sizeof(ancillary);
    }
    ssize_t got;
    do {
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    ret_extras->fd_count = 0;
    if (got < 0) {
        return -errno;
    }
    socket_take_fds(&message, ret_extras);
    const bool short_of_fds = (message.msg_flags & MSG_CTRUNC) != 0;
    ret_extras->fds_missing = short_of_fds && take_fds;
    ret_extras->truncated = (message.msg_flags & MSG_TRUNC) != 0 || (short_of_fds && !take_fds);
    return got;
}

ssize_t hoop_socket_receive(int fd, void *data, size_t bytes)
{
    ssize_t got;
    do {
        got = recv(fd, data, bytes, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

void hoop_socket_drain(int fd)
{
    char sink[4096];
    ssize_t got = 1;
    for (int i = 0; i < SOCKET_DRAIN_READS && got > 0; i++) {
        got = hoop_socket_receive(fd, sink, sizeof(sink));
    }
}

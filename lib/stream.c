/* Streams: the system calls of TCP connections. See stream.h. */
#include "stream.h"
#include "packet.h"
#include "watch.h"
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define STREAM_BACKLOG 1024
#define STREAM_DRAIN_READS 16

/* A probe after 10 s of silence, then every 5 s; what was sent is acknowledged within 30 s. */
#define STREAM_IDLE_S 10
#define STREAM_PROBE_S 5
#define STREAM_PROBES 4
#define STREAM_USER_TIMEOUT_MS 30000

/* ---- Options ------------------------------------------------------------------------------ */

/* None is worth a failure: sandboxes refuse some. */
static void stream_set(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

static void stream_tune(int fd)
{
    stream_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    stream_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    stream_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, STREAM_IDLE_S);
    stream_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, STREAM_PROBE_S);
    stream_set(fd, IPPROTO_TCP, TCP_KEEPCNT, STREAM_PROBES);
    stream_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, STREAM_USER_TIMEOUT_MS);
}

void hoop_stream_be_patient(int fd)
{
    stream_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

static hoop_result_t stream_socket(const struct hoop_address *address, int *ret_fd)
{
    const hoop_result_t result =
        hoop_packet_socket(address->family == 4 ? AF_INET : AF_INET6, SOCK_STREAM, ret_fd);
    if (result == HOOP_OK) {
        stream_tune(*ret_fd);
    }
    return result;
}

/* ---- Connecting --------------------------------------------------------------------------- */

static hoop_result_t stream_bind_from(int fd, const struct hoop_address *from)
{
    struct sockaddr_storage address;
    struct hoop_address any_port = *from;
    any_port.port = 0;
    const socklen_t bytes = hoop_address_to_sockaddr(&any_port, &address);
    /* the port is chosen by connect(): so it need differ only where the other end is the same */
    stream_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (bind(fd, (const struct sockaddr *)&address, bytes) != 0) {
        const int err = errno;
        char text[HOOP_ADDRESS_TEXT_BYTES];
        hoop_address_format(&any_port, text, sizeof(text));
        return hoop_error(hoop_from_errno(err), "cannot connect from %s: %s%s", text,
                          hoop_errno_name(err),
                          err == EADDRNOTAVAIL ? ": it is no address of this machine" : "");
    }
    return HOOP_OK;
}

hoop_result_t hoop_stream_connect(const struct hoop_address *to, const struct hoop_address *from,
                                  int *ret_fd, int *ret_err)
{
    struct sockaddr_storage address;
    const socklen_t bytes = hoop_address_to_sockaddr(to, &address);
    int fd = -1;
    hoop_result_t result = stream_socket(to, &fd);
    if (result == HOOP_OK && from != NULL && from->family != 0) {
        result = stream_bind_from(fd, from);
    }
    if (result != HOOP_OK) {
        hoop_fork_close(fd);
        return result;
    }
    int err = connect(fd, (const struct sockaddr *)&address, bytes) == 0 ? 0 : errno;
    if (err == 0 || err == EINTR) {
        err = hoop_stream_connected(fd);
    }
    *ret_fd = fd;
    *ret_err = err;
    return HOOP_OK;
}

int hoop_stream_connected(int fd)
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
    if (!hoop_stream_peer(fd, &peer) || !hoop_stream_local(fd, &local)) {
        return EINPROGRESS;
    }
    /* the kernel chose the very port that nobody listens at: TCP lets a socket connect to itself */
    const bool to_itself = hoop_address_same_ip(&local, &peer) && local.port == peer.port;
    return to_itself ? ECONNREFUSED : 0;
}

/* ---- Listening ---------------------------------------------------------------------------- */

/* 0 or errno. */
static int stream_try_port(int fd, const struct hoop_address *at)
{
    struct sockaddr_storage address;
    const socklen_t bytes = hoop_address_to_sockaddr(at, &address);
    if (at->port != 0) {
        /* connections of the past that linger at the port are no obstacle. Not for any port: two
         * sockets that reuse addresses could be given the same one, and only one could listen */
        stream_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    }
    if (at->family == 6) {
        stream_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    }
    if (bind(fd, (const struct sockaddr *)&address, bytes) != 0 ||
        listen(fd, STREAM_BACKLOG) != 0) {
        return errno;
    }
    return 0;
}

static hoop_result_t stream_no_port(const struct hoop_address *at, const struct hoop_ports *tried,
                                    int err)
{
    struct hoop_address ip = *at;
    char text[HOOP_ADDRESS_TEXT_BYTES];
    ip.port = 0;
    hoop_address_format(&ip, text, sizeof(text));
    if (err != EADDRINUSE && err != EACCES) {
        return hoop_error(hoop_from_errno(err), "cannot listen at %s: %s%s", text,
                          hoop_errno_name(err),
                          err == EADDRNOTAVAIL ? ": it is no address of this machine" : "");
    }
    if (tried->first == 0) {
        return hoop_error(HOOP_INVALID_USAGE, "every port of %s is taken: %s", text,
                          hoop_errno_name(err));
    }
    /* of a range: several processes of a job may want one */
    const char *range = at->port == 0 ? " (HOOP_PORT_RANGE: a port for each process)" : "";
    if (tried->first == tried->last) {
        return hoop_error(HOOP_INVALID_USAGE, "cannot have port %u of %s: %s%s", tried->first, text,
                          hoop_errno_name(err), range);
    }
    return hoop_error(HOOP_INVALID_USAGE, "cannot have any port from %u to %u of %s: %s%s",
                      tried->first, tried->last, text, hoop_errno_name(err), range);
}

hoop_result_t hoop_stream_listen(const struct hoop_address *at, const struct hoop_ports *ports,
                                 int *ret_fd, struct hoop_address *ret_at)
{
    struct hoop_ports tries = {.first = at->port, .last = at->port};
    struct hoop_address here = *at;
    int err = 0;
    if (at->family == 0 || hoop_address_is_any(at)) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "a listener needs one address of this machine, not all or none");
    }
    if (at->port == 0 && ports != NULL) {
        tries = *ports;
    }
    assert(tries.first <= tries.last);
    for (uint32_t port = tries.first; port <= tries.last; port++) {
        int fd = -1;
        const hoop_result_t result = stream_socket(at, &fd);
        if (result != HOOP_OK) {
            return result;
        }
        here.port = (uint16_t)port;
        err = stream_try_port(fd, &here);
        if (err == 0) {
            (void)hoop_stream_local(fd, ret_at);
            *ret_fd = fd;
            return HOOP_OK;
        }
        hoop_fork_close(fd);
        if (err != EADDRINUSE && err != EACCES) {
            break;
        }
    }
    return stream_no_port(at, &tries, err);
}

/* ---- Afterwards --------------------------------------------------------------------------- */

bool hoop_stream_local(int fd, struct hoop_address *ret)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof(address);
    return getsockname(fd, (struct sockaddr *)&address, &bytes) == 0 &&
           hoop_address_from_sockaddr((const struct sockaddr *)&address, ret);
}

bool hoop_stream_peer(int fd, struct hoop_address *ret)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof(address);
    return getpeername(fd, (struct sockaddr *)&address, &bytes) == 0 &&
           hoop_address_from_sockaddr((const struct sockaddr *)&address, ret);
}

ssize_t hoop_stream_receive(int fd, void *data, size_t bytes)
{
    ssize_t got;
    do {
        got = recv(fd, data, bytes, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

void hoop_stream_drain(int fd)
{
    char sink[4096];
    ssize_t got = 1;
    for (int i = 0; i < STREAM_DRAIN_READS && got > 0; i++) {
        got = hoop_stream_receive(fd, sink, sizeof(sink));
    }
}

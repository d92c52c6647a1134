/*
 * Sockets, thin over the system calls: abstract SOCK_SEQPACKET sockets, which also carry
 * descriptors, within a machine, and TCP. They are non-blocking, close-on-exec, and kept by
 * hoop_fork_keep(): close them with hoop_fork_close(). TCP sends small messages at once
 * (TCP_NODELAY) and probes idle connections; one that the network no longer carries ends after 30
 * s.
 */
#ifndef HOOP_NET_SOCKET_H
#define HOOP_NET_SOCKET_H

#include "base/sizes.h"
#include "net/address.h"
#include <stddef.h>
#include <sys/types.h>

/* Where a process listens: an abstract name, or an address if address.family is not 0. */
struct hoop_place {
    char name[HOOP_NAME_BYTES];
    struct hoop_address address;
};

/* "name" or "10.0.0.1:29500", for sentences. */
void hoop_place_format(const struct hoop_place *place, char *ret_text, size_t bytes);

/*
 * Begins to connect. Over TCP the local address is `from`, unless that is NULL (its port is
 * ignored), and within the machine BBR is avoided. *ret_err is 0 if the socket is connected,
 * EINPROGRESS if hoop_socket_connected() will tell once it is writable, else why nobody can be
 * reached. The call itself fails only for local reasons, such as the limit of open files.
 */
hoop_result_t hoop_socket_connect(const struct hoop_place *to, const struct hoop_address *from,
                                  int *ret_fd, int *ret_err);
/* The result for an errno of connecting to a name: HOOP_AGAIN if the listener's queue is full,
 * HOOP_REMOTE_ERROR if nobody listens. */
hoop_result_t hoop_socket_unreached(int err);
/* 0 if the socket is connected, EINPROGRESS if not yet, else why it never will be. */
int hoop_socket_connected(int fd);

/*
 * Listens at a name, or at one address of this machine. If the address's port is 0, it takes the
 * first free port of `ports` (NULL or first 0: any port) and stores it in place->address.
 * HOOP_INVALID_USAGE: the name or every port is taken or not permitted. HOOP_INVALID_ARGUMENT: the
 * address is 0.0.0.0 or ::.
 */
hoop_result_t hoop_socket_listen(struct hoop_place *place, const struct hoop_ports *ports,
                                 int *ret_fd);
/* HOOP_AGAIN if no connection waits. */
hoop_result_t hoop_socket_accept(int listen_fd, int *ret_fd);

/*
 * Checks by SO_PEERCRED that the other end of a Unix socket has this process's uid.
 * HOOP_NOT_AUTHENTICATED: it has not, or that uid stands for others, too, in this user namespace.
 */
hoop_result_t hoop_socket_vouch(int fd, pid_t *ret_pid);

/* The same for a client that only reads information: root is allowed, too. */
hoop_result_t hoop_socket_vouch_reader(int fd);

/* The local address, also of a listener. False if it is not an IP socket. */
bool hoop_socket_local(int fd, struct hoop_address *ret);
/* The other end's address. False if it is not connected, or not any more. */
bool hoop_socket_peer(int fd, struct hoop_address *ret);

/* Returns the bytes sent, or -errno. fds, for Unix sockets only, remain the caller's. */
ssize_t hoop_socket_send(int fd, const void *data, size_t bytes, const int *fds, uint32_t fd_count);

/* What came with a packet besides its bytes. */
struct hoop_socket_extras {
    int fds[HOOP_MAX_FDS]; /* owned by the caller, who must close them */
    uint32_t fd_count;
    bool truncated;   /* longer than the buffer, or with descriptors although take_fds was false */
    bool fds_missing; /* take_fds was true, but not all could be received */
};

/* Returns the bytes received, 0 at the end, or -errno. take_fds false: drops descriptors. */
ssize_t hoop_socket_receive_packet(int fd, void *data, size_t bytes, bool take_fds,
                                   struct hoop_socket_extras *ret_extras);
/* The same for a stream. */
ssize_t hoop_socket_receive(int fd, void *data, size_t bytes);
/* Discards what has arrived, up to a limit: closing a socket with unread bytes resets the
 * connection, and could cut off what was sent. */
void hoop_socket_drain(int fd);
/* Lifts the 30 s limit for acknowledgements: a receiver that does not read for long is not dead. */
void hoop_socket_be_patient(int fd);

#endif

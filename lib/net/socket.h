/*
 * Sockets, system calls and no more: abstract SOCK_SEQPACKET sockets on one machine, which carry
 * descriptors too, and TCP. They are non-blocking, closed on exec, and kept by hoop_fork_keep():
 * close them with hoop_fork_close(). On TCP small messages go at once (TCP_NODELAY); a silent
 * connection is probed, and one that the network no longer carries ends after half a minute.
 */
#ifndef HOOP_NET_SOCKET_H
#define HOOP_NET_SOCKET_H

#include "base/sizes.h"
#include "net/address.h"
#include <stddef.h>
#include <sys/types.h>

/* Where somebody listens: an abstract name, or if address.family is not 0, an address. */
struct hoop_place {
    char name[HOOP_NAME_BYTES];
    struct hoop_address address;
};

/* "name" or "10.0.0.1:29500", for sentences. */
void hoop_place_format(const struct hoop_place *place, char *ret_text, size_t bytes);

/*
 * Begins to connect; over TCP from this machine's address `from` if it is not NULL (its port does
 * not matter), and within the machine not paced by BBR. *ret_err: 0: it is connected; EINPROGRESS:
 * hoop_socket_connected() tells, once the socket can be written; else why nobody can be reached.
 * What fails on this side makes the call itself fail; of the limit of open files the sentence says
 * so.
 */
hoop_result_t hoop_socket_connect(const struct hoop_place *to, const struct hoop_address *from,
                                  int *ret_fd, int *ret_err);
/* The failure of a name that *ret_err is about: HOOP_AGAIN: too much waits there;
 * HOOP_REMOTE_ERROR: nobody listens. */
hoop_result_t hoop_socket_unreached(const struct hoop_place *to, int err);
/* 0: it is; EINPROGRESS: not yet; else why it never will be. */
int hoop_socket_connected(int fd);

/*
 * Listens at a name; or at one address of this machine: at its port, or where that is 0 at the
 * first of ports that is free (NULL or first 0: at any), which place->address then says.
 * HOOP_INVALID_USAGE: the name, or every port, is taken or may not be had. HOOP_INVALID_ARGUMENT:
 * the address stands for all.
 */
hoop_result_t hoop_socket_listen(struct hoop_place *place, const struct hoop_ports *ports,
                                 int *ret_fd);
/* HOOP_AGAIN: nobody waits. */
hoop_result_t hoop_socket_accept(int listen_fd, int *ret_fd);

/*
 * Who the kernel says is at the other end of a Unix socket. HOOP_NOT_AUTHENTICATED: a process of
 * another uid, or of one that the kernel cannot tell from others here.
 */
hoop_result_t hoop_socket_vouch(int fd, pid_t *ret_pid);

/* The same for who may look and not take part: root may, too. */
hoop_result_t hoop_socket_vouch_reader(int fd);

/* This end's address, or where a listener is. False: it is no socket of the Internet's. */
bool hoop_socket_local(int fd, struct hoop_address *ret);
/* The other end's. False: not connected, or not any more. */
bool hoop_socket_peer(int fd, struct hoop_address *ret);

/* Bytes sent, or minus errno. fds, Unix sockets only, are borrowed. */
ssize_t hoop_socket_send(int fd, const void *data, size_t bytes, const int *fds, uint32_t fd_count);

/* What came along with a packet. */
struct hoop_socket_extras {
    int fds[HOOP_MAX_FDS]; /* the caller's to close */
    uint32_t fd_count;
    bool truncated;   /* longer than the buffer, or with descriptors that nobody asked for */
    bool fds_missing; /* descriptors were asked for, and not all could be received */
};

/* Bytes received, 0 at the end, or minus errno. take_fds false: the kernel drops descriptors. */
ssize_t hoop_socket_receive_packet(int fd, void *data, size_t bytes, bool take_fds,
                                   struct hoop_socket_extras *ret_extras);
/* Of a stream. The same. */
ssize_t hoop_socket_receive(int fd, void *data, size_t bytes);
/* Throws away what has come, up to a limit: a close with bytes unread would cut off what was sent.
 */
void hoop_socket_drain(int fd);
/* No more half a minute: a receiver that does not read for long is no dead one. */
void hoop_socket_be_patient(int fd);

#endif

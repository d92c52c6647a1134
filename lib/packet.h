/*
 * Packets: frames and descriptors through abstract SOCK_SEQPACKET sockets, system calls and no
 * more. Sockets are non-blocking, closed on exec, and kept by hoop_fork_keep(): close them with
 * hoop_fork_close().
 */
#ifndef HOOP_PACKET_H
#define HOOP_PACKET_H

#include "base/frame.h"
#include <stdbool.h>
#include <sys/types.h>

/* A socket of any kind with these properties. */
hoop_result_t hoop_packet_socket(int domain, int type, int *ret_fd);

/* HOOP_AGAIN: nobody listens there, or its queue is full. */
hoop_result_t hoop_packet_connect(const char *name, int *ret_fd);
/* HOOP_INVALID_USAGE: the name is taken. */
hoop_result_t hoop_packet_listen(const char *name, int *ret_fd);
/* From any listening socket. HOOP_AGAIN: nobody waits. */
hoop_result_t hoop_packet_accept(int listen_fd, int *ret_fd);

/* Who the kernel says is at the other end; HOOP_NOT_AUTHENTICATED: a process of another uid. */
hoop_result_t hoop_packet_peer(int fd, pid_t *ret_pid);

/* To any connected socket: bytes sent, or minus errno. fds, Unix sockets only, are borrowed. */
ssize_t hoop_packet_send(int fd, const void *data, size_t bytes, const int *fds, uint32_t fd_count);

struct hoop_packet {
    union hoop_frame frame;
    int fds[HOOP_FRAME_MAX_FDS]; /* the caller's to close */
    uint32_t fd_count;
    bool truncated;   /* longer than any frame, or with descriptors that nobody asked for */
    bool fds_missing; /* descriptors were asked for, and not all could be received */
};

/* Bytes received, 0 at the end, or minus errno. take_fds false: the kernel drops descriptors. */
ssize_t hoop_packet_receive(int fd, bool take_fds, struct hoop_packet *ret_packet);

#endif

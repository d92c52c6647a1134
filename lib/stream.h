/*
 * Streams: TCP sockets, system calls and no more. They are non-blocking, closed on exec, and kept
 * by hoop_fork_keep(): close them with hoop_fork_close(). Small messages go at once (TCP_NODELAY);
 * a silent connection is probed, and one that the network no longer carries ends after half a
 * minute.
 *
 * Accepted by hoop_packet_accept(), sent by hoop_packet_send().
 */
#ifndef HOOP_STREAM_H
#define HOOP_STREAM_H

#include "base/address.h"
#include <stddef.h>
#include <sys/types.h>

/*
 * Begins to connect, from this machine's address `from` if it is not NULL (its port does not
 * matter). *ret_err: 0: it is connected; EINPROGRESS: hoop_stream_connected() tells, once the
 * socket can be written; else why nobody can be reached. What fails here makes the call itself
 * fail.
 */
hoop_result_t hoop_stream_connect(const struct hoop_address *to, const struct hoop_address *from,
                                  int *ret_fd, int *ret_err);
/* 0: it is; EINPROGRESS: not yet; else why it never will be. */
int hoop_stream_connected(int fd);

/*
 * Listens at this one address of this machine: at its port, or where that is 0 at the first of
 * ports that is free (NULL or first 0: at any). *ret_at: with the port. HOOP_INVALID_USAGE: all are
 * taken, or may not be had. HOOP_INVALID_ARGUMENT: it stands for every address.
 */
hoop_result_t hoop_stream_listen(const struct hoop_address *at, const struct hoop_ports *ports,
                                 int *ret_fd, struct hoop_address *ret_at);

/* This end's address, or where a listener is. False: it is no socket of the Internet's. */
bool hoop_stream_local(int fd, struct hoop_address *ret);
/* The other end's. False: not connected, or not any more. */
bool hoop_stream_peer(int fd, struct hoop_address *ret);

/* Bytes received, 0 at the end, or minus errno. */
ssize_t hoop_stream_receive(int fd, void *data, size_t bytes);
/* Throws away what has come, up to a limit: a close with bytes unread would cut off what was sent.
 */
void hoop_stream_drain(int fd);
/* No more half a minute: a receiver that does not read for long is no dead one. */
void hoop_stream_be_patient(int fd);

#endif

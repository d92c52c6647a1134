/*
 * Sealed memory that travels as a descriptor: a memfd whose size nobody can change any more, so
 * that who maps it can rely on it for ever. Nothing appears in the file system and nothing is left
 * behind; /dev/shm and its size limit play no part. Pages appear when they are touched.
 */
#ifndef HOOP_MEMFD_H
#define HOOP_MEMFD_H

#include "base/error.h"

/* bytes of zeroed memory behind *ret_fd, which the caller owns (close-on-exec). */
hoop_result_t hoop_memfd_create(const char *name, uint64_t bytes, int *ret_fd);

/* HOOP_REMOTE_ERROR: what a peer sent is not sealed memory of this size. fd stays the caller's. */
hoop_result_t hoop_memfd_check(int fd, uint64_t bytes);

/* Maps all of it for reading and writing, shared. */
hoop_result_t hoop_memfd_map(int fd, uint64_t bytes, void **ret_ptr);

/* The sentence for a failed call about memory, with what the user can do about it. */
hoop_result_t hoop_memory_error(int err, const char *call, uint64_t bytes);

#endif

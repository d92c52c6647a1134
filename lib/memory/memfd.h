/*
 * Sealed memory that travels as a descriptor: a memfd whose size nobody can change any more, so
 * that a process that maps it can rely on it. It has no name in the file system, so nothing is left
 * behind, and it is not subject to /dev/shm and its size limit. Pages are allocated when they are
 * touched.
 */
#ifndef HOOP_MEMFD_H
#define HOOP_MEMFD_H

#include "base/error.h"

/* Makes a memfd of zeroed memory; the caller owns *ret_fd (close-on-exec). */
hoop_result_t hoop_memfd_create(const char *name, uint64_t bytes, int *ret_fd);

/* Checks a descriptor from a peer. HOOP_REMOTE_ERROR: it is not sealed memory of this size. fd
 * stays the caller's. */
hoop_result_t hoop_memfd_check(int fd, uint64_t bytes);

/* The same, and maps all of it for reading and writing, shared. */
hoop_result_t hoop_memfd_map(int fd, uint64_t bytes, void **ret_ptr);

/* The error of a failed system call about memory, with what the user can do about it. */
hoop_result_t hoop_memory_error(int err, const char *call, uint64_t bytes);

#endif

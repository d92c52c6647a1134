/* Sizes of the hardware that memory layouts follow, and limits that all modules share. */
#ifndef HOOP_BASE_SIZES_H
#define HOOP_BASE_SIZES_H

#include <stddef.h>
#include <unistd.h>

/* A cache line: two ranks should not write to the same one. */
#define HOOP_LINE_BYTES ((size_t)64)

/* The usual page size, at which memory is cut. */
#define HOOP_PAGE_BYTES ((size_t)4096)
/* The kernel's page size, the unit of mapping; 16 or 64 KiB on some kernels for ARM and POWER. */
static inline size_t hoop_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The largest number of ranks in a job. */
#define HOOP_MAX_RANKS 4096u
/* Names of hosts, sockets and rendezvous: C strings, with their 0. */
#define HOOP_NAME_BYTES 64
/* The name of a comm, likewise. */
#define HOOP_COMM_NAME_BYTES 128
/* Kinds of memory that processes share: those of hoop.h, and what a program got from CUDA. */
#define HOOP_MEM_PLAIN 2u
#define HOOP_MEM_KINDS 3u
/* The most descriptors that one message carries. */
#define HOOP_MAX_FDS 32u

#endif

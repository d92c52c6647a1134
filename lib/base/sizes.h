/* The sizes of the machine that layouts and cuts follow, and the limits that all share. */
#ifndef HOOP_BASE_SIZES_H
#define HOOP_BASE_SIZES_H

#include <stddef.h>
#include <unistd.h>

/* Two ranks should not write to one of these. */
#define HOOP_LINE_BYTES ((size_t)64)

/* A usual page: where memory is cut. */
#define HOOP_PAGE_BYTES ((size_t)4096)
/* What can be mapped, and replaced, by itself: on kernels for ARM and POWER 16 or 64 KiB, too. */
static inline size_t hoop_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Most ranks of a job. */
#define HOOP_MAX_RANKS 4096u
/* Names of hosts, sockets and rendezvous: C strings. */
#define HOOP_NAME_BYTES 64
/* The name of a comm: also a C string. */
#define HOOP_COMM_NAME_BYTES 128
/* Kinds of memory that processes show each other: those of hoop.h, and what a program got of CUDA
 * itself. */
#define HOOP_MEM_PLAIN 2u
#define HOOP_MEM_KINDS 3u
/* Descriptors that travel with one message. */
#define HOOP_MAX_FDS 32u

#endif

/*
 * Memory that a program got of CUDA itself (cudaMalloc), between processes: CUDA's older way, IPC.
 *
 * The exporter shows an allocation when an operation first touches it: it gets a handle, which
 * travels as a region does, in the descriptor's place a sealed memfd that holds it. Importers open
 * it in the context of their own device, once for each, and keep it open.
 *
 *     shown -- freed: its exporter finds out --> forgotten -- by a thread of its own --> closed
 *
 * Nobody tells when memory is freed. CUDA numbers allocations and never uses a number again, so an
 * allocation is known by its number, not by its address: what is allocated later at the same place
 * is shown, opened and confirmed anew. Each time that something is shown, the allocation that lay
 * there before and one other that was shown are checked; importers are told of those that are gone.
 *
 * CUDA calls it undefined to free memory that others have open. No operation touches it then, and
 * drivers keep it until the last has closed it; but the device has that memory back only then.
 *
 * An import is opened by who drives a comm, and closed by a thread that is there for nothing else,
 * never by the service thread: both may wait for what runs on the device.
 *
 * Any thread.
 */
#ifndef HOOP_IPC_H
#define HOOP_IPC_H

#include "base/error.h"
#include <stdbool.h>

/* The generation of all shown memory, where hoop_mem_alloc() has 1: the ids are different ones. */
#define HOOP_IPC_GENERATION 2u

struct hoop_ipc_place {
    uint64_t id;
    uint64_t offset; /* from the start of the allocation */
    uint64_t bytes;  /* of all of it */
};

/*
 * Can other processes have [ptr, ptr+bytes), memory of a device? Where it lies. Else why not is
 * logged, once in a process. died is told of what was shown, and asked for, and is no longer there.
 */
bool hoop_ipc_show(const void *ptr, uint64_t bytes, void (*died)(uint64_t id),
                   struct hoop_ipc_place *ret);

/* What was shown: for the ranks of this process, and what others get. HOOP_REMOTE_ERROR and
 * HOOP_INVALID_ARGUMENT: it is no longer there, as far as is known. */
hoop_result_t hoop_ipc_own(uint64_t id, void **ret_base, uint64_t *ret_bytes);
hoop_result_t hoop_ipc_export(uint64_t id, int *ret_fd, uint64_t *ret_bytes);

/* Closes what was forgotten, on a thread of its own. waits: for its end, a second at most, since
 * CUDA may wait for what runs on devices. */
void hoop_ipc_close_forgotten(bool waits);

#endif

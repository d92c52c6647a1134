/*
 * Memory that a program got from CUDA itself (cudaMalloc), shared between processes by CUDA IPC.
 *
 * The exporter shows an allocation when an operation first touches it: CUDA gives it a handle,
 * which travels like a region, except that the descriptor is that of a sealed memfd which holds the
 * handle. Importers open it in the contexts of their devices, once in each, and keep it open.
 *
 *     shown -- freed: its exporter finds out --> forgotten -- by a thread of its own --> closed
 *
 * CUDA does not tell when memory is freed. But it numbers allocations and never uses a number
 * again, so an allocation is identified by its number, not by its address: one that is made later
 * at the same address is shown, opened and confirmed anew. Each time that something is shown, the
 * allocation that lay there before and one other that was shown are checked; importers are told of
 * those that are gone.
 *
 * CUDA calls it undefined to free memory that other processes have open. In practice drivers keep
 * it until the last of them has closed it, and no operation touches it any more; but until then the
 * device has that much less memory.
 *
 * Imports are opened by drivers of comms, and closed by a separate thread; never by the service
 * thread, since both may wait for everything that runs on the device.
 *
 * Any thread.
 */
#ifndef HOOP_IPC_H
#define HOOP_IPC_H

#include "base/error.h"
#include <stdbool.h>

/* The generation of all shown memory. Regions of hoop_mem_alloc() have 1, and other ids. */
#define HOOP_IPC_GENERATION 2u

struct hoop_ipc_place {
    uint64_t id;
    uint64_t offset; /* from the start of the allocation */
    uint64_t bytes;  /* of the whole allocation */
};

/*
 * Can other processes open [ptr, ptr+bytes), which is device memory? Then *ret says where it lies.
 * If not the reason is logged, once in a process. died is called for each allocation that a peer
 * has asked for and that is found to be gone.
 */
bool hoop_ipc_show(const void *ptr, uint64_t bytes, void (*died)(uint64_t id),
                   struct hoop_ipc_place *ret);

/* Shown memory by id: its address, for ranks of this process, and the descriptor for others (owned
 * by the caller). HOOP_REMOTE_ERROR, HOOP_INVALID_ARGUMENT: it is known to be gone. */
hoop_result_t hoop_ipc_own(uint64_t id, void **ret_base, uint64_t *ret_bytes);
hoop_result_t hoop_ipc_export(uint64_t id, int *ret_fd, uint64_t *ret_bytes);

/* Lets a separate thread close imports that were forgotten. waits: waits for that, at most a
 * second, since CUDA may wait for what runs on devices. */
void hoop_ipc_close_forgotten(bool waits);

#endif

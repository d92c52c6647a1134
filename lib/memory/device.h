/*
 * Kinds of memory. All differences between host pages and device memory, in how they are allocated,
 * shown to another process and taken away from it, are behind this table. It has an entry for each
 * hoop_mem_kind_t, and one for memory that a program got from CUDA itself (ipc.h), which is only
 * imported. lib/memory/region.c is the only caller.
 *
 * An exported block travels as a file descriptor and its size. The importing side treats both as
 * hostile and refuses what this kind does not export (host: a memfd of that size, sealed against
 * changes; device: what CUDA accepts as memory of that size), so that no peer can make this process
 * fault.
 */
#ifndef HOOP_DEVICE_H
#define HOOP_DEVICE_H

#include "base/error.h"
#include "base/sizes.h"

struct hoop_device {
    /*
     * Allocates *bytes (> 0, a multiple of the page) of zeroed memory, mapped at *ret_ptr. *ret_fd
     * is the descriptor that exports it (owned by the caller, close-on-exec); -1: it can't be
     * exported. *bytes is rounded up to this kind's unit of allocation.
     */
    hoop_result_t (*alloc)(uint64_t *bytes, void **ret_ptr, int *ret_fd);
    void (*free)(void *ptr, uint64_t bytes, int fd);

    /* Maps a peer's block. fd stays the caller's. If the kind has grant, no device can access it
     * yet. */
    hoop_result_t (*map)(int fd, uint64_t bytes, void **ret_ptr);
    void (*unmap)(void *ptr, uint64_t bytes);

    /*
     * Opens the whole block [ptr, ptr+bytes), allocated or mapped, to the device with this number.
     * An own block is open to the device that it lies on from the start. NULL: everything in the
     * process can access it.
     */
    hoop_result_t (*grant)(void *ptr, uint64_t bytes, int device);

    /* The block's address for a device that it was opened to. NULL: it is ptr for all devices. */
    void *(*at)(void *ptr, int device);

    /*
     * Puts fresh pages with the same contents at [ptr, ptr+bytes) (whole pages): processes that
     * have mapped the old ones can no longer change what this process sees. NULL: not possible.
     */
    hoop_result_t (*replace)(void *ptr, uint64_t bytes);
};

/* Never NULL. If this process has no memory of the kind, alloc and map return HOOP_UNSUPPORTED with
 * a sentence. */
const struct hoop_device *hoop_device(uint32_t kind);

/* The entries; each has a file of its own. */
extern const struct hoop_device hoop_device_host;
extern const struct hoop_device hoop_device_cuda;
extern const struct hoop_device hoop_device_ipc;

#endif

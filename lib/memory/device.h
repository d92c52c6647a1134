/*
 * Kinds of memory. Everything that differs between host pages and device memory when it is
 * allocated, shown to another process or taken away from it is behind this table, one entry per
 * hoop_mem_kind_t, and one for what a program got of CUDA itself (ipc.h), which is only imported.
 * lib/memory/region.c is the only caller.
 *
 * An exported block travels as a file descriptor and its size; the importing side treats both as
 * hostile: a descriptor that is not what this kind exports (host: a memfd sealed against
 * shrinking, at least bytes long; device: what CUDA takes for memory of that size) is refused, so
 * that no peer can make this process fault.
 */
#ifndef HOOP_DEVICE_H
#define HOOP_DEVICE_H

#include "base/error.h"
#include "base/sizes.h"

struct hoop_device {
    /*
     * Allocates *bytes (> 0, a multiple of the page) of zeroed memory mapped at *ret_ptr, that can
     * be exported through *ret_fd (owned by the caller, close-on-exec); -1: it can't be. *bytes is
     * rounded up to what this kind is allocated in.
     */
    hoop_result_t (*alloc)(uint64_t *bytes, void **ret_ptr, int *ret_fd);
    void (*free)(void *ptr, uint64_t bytes, int fd);

    /* Maps a peer's block. fd stays the caller's. Where there is grant, nobody can touch it yet. */
    hoop_result_t (*map)(int fd, uint64_t bytes, void **ret_ptr);
    void (*unmap)(void *ptr, uint64_t bytes);

    /*
     * Opens [ptr, ptr+bytes), all of a block that was allocated or mapped, to a device, by its
     * number here. An own block is open to the one that it lies on. NULL: all who are in the
     * process can touch it.
     */
    hoop_result_t (*grant)(void *ptr, uint64_t bytes, int device);

    /* Where a device that it was opened to finds it. NULL: where all do, at ptr. */
    void *(*at)(void *ptr, int device);

    /*
     * Puts fresh pages with the same contents at [ptr, ptr+bytes) (whole pages): whoever mapped
     * the old ones can no longer change what this process sees. NULL: that can't be.
     */
    hoop_result_t (*replace)(void *ptr, uint64_t bytes);
};

/* Never NULL: of a kind that this process has none of, alloc and map return HOOP_UNSUPPORTED with
 * a sentence. */
const struct hoop_device *hoop_device(uint32_t kind);

/* The entries: each has a file. */
extern const struct hoop_device hoop_device_host;
extern const struct hoop_device hoop_device_cuda;
extern const struct hoop_device hoop_device_ipc;

#endif

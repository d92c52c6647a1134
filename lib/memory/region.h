/*
 * Regions: memory that peers may reach.
 *
 * A region is one block from hoop_mem_alloc(), of one kind (lib/memory/device.h), with an id that
 * is never used again in this process, and a generation. Peers know it by (process, id,
 * generation). They ask for its descriptor once, over the control connection, and keep the mapping
 * until they are told to forget it. The table is process-wide and shared by all comms.
 *
 * Memory that a program got from CUDA itself is shown to peers in the same way (ipc.h).
 *
 * An import lives as long as the connection over which it came, since the exporter reports over
 * this connection that it has freed the region. Whoever ends the connection must forget its
 * imports. That is always safe: uses keep the mapping, and a later user asks for it again.
 *
 * Torn: where hoop_region_fence() has replaced pages, the exported block and what this process sees
 * differ. Memory there is no longer found, so it counts as plain memory until the region is freed.
 * The rest of the region, and what was announced of it before, is not affected.
 *
 * All functions are thread-safe.
 */
#ifndef HOOP_MEMORY_H
#define HOOP_MEMORY_H

#include "base/error.h"
#include <stdbool.h>

/* Identifies memory inside a region. id 0: plain memory, which no other process can map. */
struct hoop_region_ref {
    uint64_t id;
    uint32_t generation;
    uint32_t kind;   /* hoop_mem_kind_t, or HOOP_MEM_PLAIN */
    uint64_t offset; /* bytes from the region's start */
    uint64_t bytes;  /* of the whole region */
};

/* hoop_mem_alloc() and hoop_mem_free(), for checked arguments. bytes > 0. */
hoop_result_t hoop_region_alloc(uint64_t bytes, hoop_mem_kind_t kind, void **ret_ptr);
/* Frees a region, and tells peers. HOOP_INVALID_ARGUMENT: ptr is not the start of a region. */
hoop_result_t hoop_region_free(void *ptr);

/* Finds the region around [ptr, ptr+bytes). False, with *ret all zero: none that can be mapped. */
bool hoop_region_find(const void *ptr, uint64_t bytes, struct hoop_region_ref *ret);

/* The same, but also finds memory from CUDA itself, if that can be shown (ipc.h). Not on the
 * service thread. */
bool hoop_region_show(const void *ptr, uint64_t bytes, struct hoop_region_ref *ret);

/*
 * The exporter's side, called by the service thread for a peer: a duplicate of the region's
 * descriptor (owned by the caller), the region's size and kind. HOOP_INVALID_ARGUMENT: no such id
 * and generation. Codes and sentences are for this process; the peer that asked gets
 * HOOP_REMOTE_ERROR for each of them.
 */
hoop_result_t hoop_region_export(uint64_t id, uint32_t generation, int *ret_fd, uint64_t *ret_bytes,
                                 uint32_t *ret_kind);

/*
 * Begins a use of a region of another process, or of this one. HOOP_OK: its base and size; the
 * mapping stays at least until hoop_region_unuse(). HOOP_AGAIN: it is not imported, or was
 * forgotten, and has to be asked for. HOOP_REMOTE_ERROR: it belongs to another rank of this very
 * process, which has freed it.
 */
hoop_result_t hoop_region_use(uint64_t process, uint64_t id, uint32_t generation, void **ret_base,
                              uint64_t *ret_bytes);
/* The kind of a region that is in use. */
uint32_t hoop_region_kind(uint64_t process, uint64_t id, uint32_t generation);
/* Opens a region that is in use to the device with this number, for as long as the region exists.
 * *ret_base: its address on that device, the only one that another process's HOOP_MEM_PLAIN has. A
 * context of the device must be current. */
hoop_result_t hoop_region_grant(uint64_t process, uint64_t id, uint32_t generation, int device,
                                void **ret_base);
/* Is it open to that device already? Then *ret_base is its address. Calls no CUDA function. */
bool hoop_region_is_granted(uint64_t process, uint64_t id, uint32_t generation, int device,
                            void **ret_base);
void hoop_region_unuse(uint64_t process, uint64_t id, uint32_t generation);

/* Maps what a peer sent and remembers it. fd is moved. A second import of the same region is fine;
 * if it was forgotten and is still in use, it is found again. */
hoop_result_t hoop_region_import(uint64_t process, uint64_t id, uint32_t generation, uint32_t kind,
                                 uint64_t bytes, int fd);

/* A peer has freed the region, or the connection to that process has ended: unmaps what is imported
 * as soon as it is unused. */
void hoop_region_forget(uint64_t process, uint64_t id, uint32_t generation);
void hoop_region_forget_process(uint64_t process);

/*
 * Takes the whole pages [ptr, ptr+bytes) of an own region away from all peers, because one is stuck
 * while it writes there: fresh pages with the same contents take their place, and the range is
 * torn. On failure the peers still have access.
 */
hoop_result_t hoop_region_fence(void *ptr, uint64_t bytes);

/*
 * Sets the function, of the service thread, that is told of each exported region that is freed, so
 * that it tells the peers. Called without locks held.
 */
void hoop_region_on_death(void (*fn)(uint64_t id, uint32_t generation));

/*
 * Sets the function that is told of every own region before it is freed, so that registrations of
 * its pages with a device can end. One function per process. Called without locks held.
 */
void hoop_region_before_free(void (*fn)(uint64_t id));

/* For hoop_info_json and tests. */
struct hoop_region_stats {
    uint64_t regions, region_bytes, imports, import_bytes;
};
void hoop_region_stats(struct hoop_region_stats *ret);

#endif

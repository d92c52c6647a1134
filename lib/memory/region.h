/*
 * Regions: memory that peers may reach.
 *
 * A region is one block from hoop_mem_alloc(), of one kind (lib/memory/device.h), with an id that
 * is never used again in this process and a generation. Peers know it by (process, id, generation),
 * ask for its descriptor over the control connection once, and keep the mapping until they are told
 * to forget it. The table is process-wide and shared by all comms.
 *
 * What a program got of CUDA itself is shown to peers in the same way, while it is there: ipc.h.
 *
 * An import lives as long as the connection that fetched it, which tells when its exporter frees
 * it: whoever ends that connection forgets what came over it. To forget is always safe. Uses keep
 * the mapping; who needs it later asks again.
 *
 * Torn: where hoop_region_fence() replaced pages, the exported block and what this process sees
 * differ. That part is no longer found (it counts as plain memory until the region is freed); the
 * rest, and what was announced of it before, is as it was.
 *
 * All functions are thread-safe.
 */
#ifndef HOOP_MEMORY_H
#define HOOP_MEMORY_H

#include "base/error.h"
#include <stdbool.h>

/* Names memory inside a region. id 0: plain memory, nobody else can map it. */
struct hoop_region_ref {
    uint64_t id;
    uint32_t generation;
    uint32_t kind;   /* hoop_mem_kind_t, or HOOP_MEM_PLAIN */
    uint64_t offset; /* bytes from the region's start */
    uint64_t bytes;  /* of the whole region */
};

/* hoop_mem_alloc() and hoop_mem_free(); checks are the caller's. bytes > 0. */
hoop_result_t hoop_region_alloc(uint64_t bytes, hoop_mem_kind_t kind, void **ret_ptr);
/* HOOP_INVALID_ARGUMENT: ptr is not the start of a region. Peers are told. */
hoop_result_t hoop_region_free(void *ptr);

/* False, and *ret is all zero, unless [ptr, ptr+bytes) lies inside one region that can be mapped.
 */
bool hoop_region_find(const void *ptr, uint64_t bytes, struct hoop_region_ref *ret);

/* The same; and memory of a device that CUDA itself gave becomes one, if it can (ipc.h). Not on the
 * service thread. */
bool hoop_region_show(const void *ptr, uint64_t bytes, struct hoop_region_ref *ret);

/*
 * The exporter's side, called by the service thread for a peer: a duplicate of the descriptor
 * (owned by the caller) and the size. HOOP_INVALID_ARGUMENT: no such id and generation. Codes and
 * sentences are for this process: to the peer that asked, all of them are HOOP_REMOTE_ERROR.
 */
hoop_result_t hoop_region_export(uint64_t id, uint32_t generation, int *ret_fd, uint64_t *ret_bytes,
                                 uint32_t *ret_kind);

/*
 * A peer's region in this process. Found (or, for this very process, the memory itself):
 * HOOP_OK, its base and size, and a use that hoop_region_unuse() ends; the mapping stays at
 * least that long. HOOP_AGAIN: not imported, or forgotten: to be asked for. HOOP_REMOTE_ERROR:
 * another rank of this very process freed it.
 */
hoop_result_t hoop_region_use(uint64_t process, uint64_t id, uint32_t generation, void **ret_base,
                              uint64_t *ret_bytes);
/* The kind of one that is in use. */
uint32_t hoop_region_kind(uint64_t process, uint64_t id, uint32_t generation);
/* Opens one that is in use to a device, by its number here, for as long as it is there. Where that
 * finds it: another process's HOOP_MEM_PLAIN has no other address. In a context of the device. */
hoop_result_t hoop_region_grant(uint64_t process, uint64_t id, uint32_t generation, int device,
                                void **ret_base);
/* Is it open to that device already? Then where it finds it; CUDA is not asked. */
bool hoop_region_is_granted(uint64_t process, uint64_t id, uint32_t generation, int device,
                            void **ret_base);
void hoop_region_unuse(uint64_t process, uint64_t id, uint32_t generation);

/* Maps what a peer sent and remembers it. fd is moved. A second import of the same is fine; one of
 * what is forgotten and still in use makes it known again. */
hoop_result_t hoop_region_import(uint64_t process, uint64_t id, uint32_t generation, uint32_t kind,
                                 uint64_t bytes, int fd);

/* The peer says that a generation is dead, or the connection with it has ended: unmaps as soon as
 * unused. */
void hoop_region_forget(uint64_t process, uint64_t id, uint32_t generation);
void hoop_region_forget_process(uint64_t process);

/*
 * Takes the whole pages [ptr, ptr+bytes) of an own region away from every peer: same contents,
 * same address, fresh pages; they are torn. Called when a peer is stuck writing there. On failure
 * the peers still have them.
 */
hoop_result_t hoop_region_fence(void *ptr, uint64_t bytes);

/*
 * Set by the service thread: told when an own region is freed that was exported, so that
 * peers can be.
 * Called without locks held.
 */
void hoop_region_on_death(void (*fn)(uint64_t id, uint32_t generation));

/*
 * Told of every own region that is freed, while it is still there: who has its pages registered
 * with a device lets go of them. One function for the process. Called without locks held.
 */
void hoop_region_before_free(void (*fn)(uint64_t id));

/* For hoop_info_json and tests. */
struct hoop_region_stats {
    uint64_t regions, region_bytes, imports, import_bytes;
};
void hoop_region_stats(struct hoop_region_stats *ret);

#endif

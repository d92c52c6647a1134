/*
 * Regions and imports (see region.h).
 *
 * One rwlock guards two lists: the regions of this process, in an array sorted by address, and the
 * mappings of other processes' regions. Small messages need neither. Mapping, copying and
 * unmapping, which may take long, happen outside the lock; the lists are consistent whenever it is
 * free.
 *
 * A region or import that is freed or forgotten in use is dead: it is no longer found, and is
 * unmapped when its last use ends. For an import that is gone the caller asks the exporter again,
 * which knows whether the region still exists.
 */
#include "memory/region.h"

#include "base/crypto.h"
#include "memory/device.h"
#include "memory/ipc.h"
#include "runtime/process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct region {
    uint8_t *base;
    uint64_t bytes, id;
    uint32_t generation;
    hoop_mem_kind_t kind;
    int fd;
    uint32_t users;   /* uses by ranks of this process */
    uint64_t granted; /* bit d: it was opened to device d */
    bool exported;    /* a peer may have mapped it */
    bool dead;
    uint64_t torn, torn_end; /* offsets between which pages were replaced; equal: nowhere */
};

struct import {
    uint64_t process, id, bytes;
    uint32_t generation, kind;
    void *base;
    uint32_t users;
    uint64_t granted;
    bool dead;
};

static pthread_rwlock_t memory_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct region *regions; /* sorted by base */
static size_t n_regions, room_regions;
static struct import *imports;
static size_t n_imports, room_imports;
static uint64_t last_id;
static void (*on_death)(uint64_t id, uint32_t generation);
static void (*before_free)(uint64_t id);

/* Makes room for one more element. False: no memory, and nothing changed. */
static bool memory_grow(void *list, size_t count, size_t *room, size_t element_bytes)
{
    void **array = list;
    if (count < *room) {
        return true;
    }
    const size_t larger = *room == 0 ? 16 : *room * 2;
    void *grown = realloc(*array, larger * element_bytes);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *room = larger;
    return true;
}

/* ---- Own regions ---------------------------------------------------------------------------- */

/* Index of the last region that starts at or before ptr; n_regions: none. Lock held. */
static size_t region_before(const void *ptr)
{
    size_t low = 0, high = n_regions;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((uintptr_t)regions[middle].base <= (uintptr_t)ptr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? n_regions : low - 1;
}

static struct region *region_around(const void *ptr, uint64_t bytes)
{
    const size_t i = region_before(ptr);
    if (i == n_regions) {
        return NULL;
    }
    const uint64_t offset = (uint64_t)((uintptr_t)ptr - (uintptr_t)regions[i].base);
    const bool inside = offset < regions[i].bytes && bytes <= regions[i].bytes - offset;
    return inside && !regions[i].dead ? &regions[i] : NULL;
}

/* Removes a region, which the caller unmaps when the lock is free. Lock held for writing. */
static struct region region_take(size_t i)
{
    const struct region region = regions[i];
    n_regions--;
    memmove(&regions[i], &regions[i + 1], (n_regions - i) * sizeof(*regions));
    return region;
}

static void region_unmap(const struct region *region)
{
    hoop_device(region->kind)->free(region->base, region->bytes, region->fd);
}

/* Finds dead regions, too. Lock held. */
static struct region *region_of_id(uint64_t id, uint32_t generation)
{
    for (size_t i = 0; i < n_regions; i++) {
        if (regions[i].id == id && regions[i].generation == generation) {
            return &regions[i];
        }
    }
    return NULL;
}

hoop_result_t hoop_region_alloc(uint64_t bytes, hoop_mem_kind_t kind, void **ret_ptr)
{
    struct region region = {.kind = kind, .generation = 1, .fd = -1};
    const uint64_t page = hoop_page_bytes();
    if (bytes > INT64_MAX - page) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "%llu bytes are more than can be allocated",
                          (unsigned long long)bytes);
    }
    region.bytes = (bytes + page - 1) / page * page;
    void *ptr = NULL;
    const hoop_result_t result = hoop_device(kind)->alloc(&region.bytes, &ptr, &region.fd);
    if (result != HOOP_OK) {
        return result;
    }
    region.base = ptr;
    pthread_rwlock_wrlock(&memory_lock);
    const bool room = memory_grow(&regions, n_regions, &room_regions, sizeof(*regions));
    if (room) {
        const size_t before = region_before(ptr);
        const size_t at = before == n_regions ? 0 : before + 1;
        memmove(&regions[at + 1], &regions[at], (n_regions - at) * sizeof(*regions));
        region.id = ++last_id;
        regions[at] = region;
        n_regions++;
    }
    pthread_rwlock_unlock(&memory_lock);
    if (!room) {
        region_unmap(&region);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to remember a region");
    }
    *ret_ptr = ptr;
    return HOOP_OK;
}

hoop_result_t hoop_region_free(void *ptr)
{
    pthread_rwlock_wrlock(&memory_lock);
    const size_t i = region_before(ptr);
    if (i == n_regions || regions[i].base != ptr || regions[i].dead) {
        pthread_rwlock_unlock(&memory_lock);
        return hoop_error(HOOP_INVALID_ARGUMENT, "%p is not an address that hoop_mem_alloc() gave",
                          ptr);
    }
    regions[i].dead = true;
    const struct region region = regions[i].users == 0 ? region_take(i) : regions[i];
    void (*tell)(uint64_t, uint32_t) = on_death;
    void (*let_go)(uint64_t) = before_free;
    pthread_rwlock_unlock(&memory_lock);
    if (let_go != NULL) {
        let_go(region.id);
    }
    if (tell != NULL && region.exported) {
        tell(region.id, region.generation);
    }
    if (region.users == 0) {
        region_unmap(&region);
    }
    return HOOP_OK;
}

bool hoop_region_find(const void *ptr, uint64_t bytes, struct hoop_region_ref *ret)
{
    *ret = (struct hoop_region_ref){0};
    pthread_rwlock_rdlock(&memory_lock);
    const struct region *region = region_around(ptr, bytes);
    const uint64_t offset =
        region != NULL ? (uint64_t)((uintptr_t)ptr - (uintptr_t)region->base) : 0;
    const bool found = region != NULL && region->fd >= 0 &&
                       (offset >= region->torn_end || offset + bytes <= region->torn);
    if (found) {
        ret->id = region->id;
        ret->generation = region->generation;
        ret->kind = region->kind;
        ret->offset = offset;
        ret->bytes = region->bytes;
    }
    pthread_rwlock_unlock(&memory_lock);
    return found;
}

static void region_shown_died(uint64_t id)
{
    pthread_rwlock_rdlock(&memory_lock);
    void (*tell)(uint64_t, uint32_t) = on_death;
    pthread_rwlock_unlock(&memory_lock);
    if (tell != NULL) {
        tell(id, HOOP_IPC_GENERATION);
    }
}

bool hoop_region_show(const void *ptr, uint64_t bytes, struct hoop_region_ref *ret)
{
    struct hoop_ipc_place place;
    if (hoop_region_find(ptr, bytes, ret)) {
        return true;
    }
    const bool shown = hoop_ipc_show(ptr, bytes, region_shown_died, &place);
    if (shown) {
        *ret = (struct hoop_region_ref){.id = place.id,
                                        .generation = HOOP_IPC_GENERATION,
                                        .kind = HOOP_MEM_PLAIN,
                                        .offset = place.offset,
                                        .bytes = place.bytes};
    }
    return shown;
}

hoop_result_t hoop_region_export(uint64_t id, uint32_t generation, int *ret_fd, uint64_t *ret_bytes,
                                 uint32_t *ret_kind)
{
    if (generation == HOOP_IPC_GENERATION) {
        *ret_kind = HOOP_MEM_PLAIN;
        return hoop_ipc_export(id, ret_fd, ret_bytes);
    }
    hoop_result_t result = HOOP_INVALID_ARGUMENT;
    int err = 0;
    pthread_rwlock_wrlock(&memory_lock);
    struct region *region = region_of_id(id, generation);
    if (region != NULL && !region->dead) {
        const int fd = fcntl(region->fd, F_DUPFD_CLOEXEC, 0);
        err = errno;
        if (fd >= 0) {
            region->exported = true;
            *ret_fd = fd;
            *ret_bytes = region->bytes;
            *ret_kind = region->kind;
            result = HOOP_OK;
        } else {
            result = hoop_from_errno(err);
        }
    }
    pthread_rwlock_unlock(&memory_lock);
    if (result == HOOP_INVALID_ARGUMENT) {
        hoop_error(result, "region %llu generation %u does not exist (any more)",
                   (unsigned long long)id, generation);
    } else if (result != HOOP_OK) {
        hoop_error(result, "cannot duplicate a region's descriptor: %s%s", hoop_errno_name(err),
                   err == EMFILE ? "; raise ulimit -n" : "");
    }
    return result;
}

static void region_unuse_own(uint64_t id, uint32_t generation)
{
    if (generation == HOOP_IPC_GENERATION) {
        return; /* the program's memory: uses do not keep it */
    }
    struct region last = {.users = 1};
    pthread_rwlock_wrlock(&memory_lock);
    struct region *region = region_of_id(id, generation);
    assert(region != NULL && region->users > 0);
    if (region != NULL && --region->users == 0 && region->dead) {
        last = region_take((size_t)(region - regions));
    }
    pthread_rwlock_unlock(&memory_lock);
    if (last.users == 0) {
        region_unmap(&last);
    }
}

/* Marks [ptr, ptr+bytes) as torn, and begins a use of its region, which *ret describes. */
static hoop_result_t region_tear(const void *ptr, uint64_t bytes, struct region *ret)
{
    hoop_result_t result = HOOP_INVALID_ARGUMENT;
    pthread_rwlock_wrlock(&memory_lock);
    struct region *region = region_around(ptr, bytes);
    if (region != NULL && hoop_device(region->kind)->replace != NULL) {
        const uint64_t from = (uint64_t)((uintptr_t)ptr - (uintptr_t)region->base);
        const bool first = region->torn == region->torn_end;
        region->torn = first || from < region->torn ? from : region->torn;
        region->torn_end = from + bytes > region->torn_end ? from + bytes : region->torn_end;
        region->users++;
        *ret = *region;
        result = HOOP_OK;
    } else if (region != NULL) {
        result = HOOP_UNSUPPORTED;
    }
    pthread_rwlock_unlock(&memory_lock);
    return result;
}

hoop_result_t hoop_region_fence(void *ptr, uint64_t bytes)
{
    struct region region;
    hoop_result_t result = region_tear(ptr, bytes, &region);
    if (result != HOOP_OK) {
        return hoop_error(result, "[%p, +%llu) %s", ptr, (unsigned long long)bytes,
                          result == HOOP_UNSUPPORTED
                              ? "is device memory, whose pages cannot be replaced"
                              : "is not inside a region");
    }
    result = hoop_device(region.kind)->replace(ptr, bytes);
    region_unuse_own(region.id, region.generation);
    return result;
}

void hoop_region_on_death(void (*fn)(uint64_t id, uint32_t generation))
{
    pthread_rwlock_wrlock(&memory_lock);
    on_death = fn;
    pthread_rwlock_unlock(&memory_lock);
}

void hoop_region_before_free(void (*fn)(uint64_t id))
{
    pthread_rwlock_wrlock(&memory_lock);
    before_free = fn;
    pthread_rwlock_unlock(&memory_lock);
}

/* ---- Other processes' regions --------------------------------------------------------------- */

static struct import *import_of(uint64_t process, uint64_t id, uint32_t generation)
{
    for (size_t i = 0; i < n_imports; i++) {
        if (imports[i].process == process && imports[i].id == id &&
            imports[i].generation == generation) {
            return &imports[i];
        }
    }
    return NULL;
}

/*
 * Removes an import that is dead and unused; the caller unmaps it when the lock is free. Otherwise,
 * and for NULL, the base of the result is NULL. Lock held for writing.
 */
static struct import import_take(struct import *import)
{
    struct import taken = {.base = NULL};
    if (import != NULL && import->dead && import->users == 0) {
        taken = *import;
        *import = imports[--n_imports];
    }
    return taken;
}

static void import_unmap(const struct import *import)
{
    if (import->base != NULL) {
        hoop_device(import->kind)->unmap(import->base, import->bytes);
    }
}

/* For ranks of this process torn memory is still the memory itself. */
static hoop_result_t region_use_own(uint64_t id, uint32_t generation, void **ret_base,
                                    uint64_t *ret_bytes)
{
    if (generation == HOOP_IPC_GENERATION) {
        return hoop_ipc_own(id, ret_base, ret_bytes);
    }
    pthread_rwlock_wrlock(&memory_lock);
    struct region *region = region_of_id(id, generation);
    const bool there = region != NULL && !region->dead;
    if (there) {
        region->users++;
        *ret_base = region->base;
        *ret_bytes = region->bytes;
    }
    pthread_rwlock_unlock(&memory_lock);
    return there ? HOOP_OK
                 : hoop_error(HOOP_REMOTE_ERROR, "region %llu of this process was freed",
                              (unsigned long long)id);
}

hoop_result_t hoop_region_use(uint64_t process, uint64_t id, uint32_t generation, void **ret_base,
                              uint64_t *ret_bytes)
{
    if (process == hoop_process_id()) {
        return region_use_own(id, generation, ret_base, ret_bytes);
    }
    pthread_rwlock_wrlock(&memory_lock);
    struct import *import = import_of(process, id, generation);
    const bool known = import != NULL && !import->dead;
    if (known) {
        import->users++;
        *ret_base = import->base;
        *ret_bytes = import->bytes;
    }
    pthread_rwlock_unlock(&memory_lock);
    return known ? HOOP_OK : HOOP_AGAIN;
}

/* A region that is in use, own or imported. */
struct used {
    void *base;
    uint64_t bytes;
    uint32_t kind;
    uint64_t *granted; /* valid while the lock is held */
};

/* Lock held. */
static struct used region_used(uint64_t process, uint64_t id, uint32_t generation)
{
    const bool own = process == hoop_process_id();
    if (own && generation == HOOP_IPC_GENERATION) {
        return (struct used){.kind = HOOP_MEM_PLAIN};
    }
    struct region *region = own ? region_of_id(id, generation) : NULL;
    struct import *import = own ? NULL : import_of(process, id, generation);
    assert(region != NULL || import != NULL);
    return region != NULL
               ? (struct used){region->base, region->bytes, region->kind, &region->granted}
           : import != NULL
               ? (struct used){import->base, import->bytes, import->kind, &import->granted}
               : (struct used){.kind = HOOP_MEM_HOST};
}

uint32_t hoop_region_kind(uint64_t process, uint64_t id, uint32_t generation)
{
    pthread_rwlock_rdlock(&memory_lock);
    const uint32_t kind = region_used(process, id, generation).kind;
    pthread_rwlock_unlock(&memory_lock);
    return kind;
}

static uint64_t granted_bit(int device)
{
    return device >= 0 && device < 64 ? UINT64_C(1) << device : 0;
}

static void *used_at(const struct used *used, int device)
{
    const struct hoop_device *kind = hoop_device(used->kind);
    return kind->at != NULL ? kind->at(used->base, device) : used->base;
}

bool hoop_region_is_granted(uint64_t process, uint64_t id, uint32_t generation, int device,
                            void **ret_base)
{
    pthread_rwlock_rdlock(&memory_lock);
    const struct used used = region_used(process, id, generation);
    const bool granted = used.granted == NULL || hoop_device(used.kind)->grant == NULL ||
                         (*used.granted & granted_bit(device)) != 0;
    pthread_rwlock_unlock(&memory_lock);
    *ret_base = granted ? used_at(&used, device) : NULL;
    return granted;
}

/* Two ranks may open it at the same time: that is harmless. */
hoop_result_t hoop_region_grant(uint64_t process, uint64_t id, uint32_t generation, int device,
                                void **ret_base)
{
    if (hoop_region_is_granted(process, id, generation, device, ret_base)) {
        return HOOP_OK;
    }
    pthread_rwlock_rdlock(&memory_lock);
    const struct used used = region_used(process, id, generation);
    pthread_rwlock_unlock(&memory_lock);
    const hoop_result_t result = hoop_device(used.kind)->grant(used.base, used.bytes, device);
    if (result == HOOP_OK) {
        pthread_rwlock_wrlock(&memory_lock);
        uint64_t *bits = region_used(process, id, generation).granted;
        if (bits != NULL) {
            *bits |= granted_bit(device);
        }
        pthread_rwlock_unlock(&memory_lock);
        *ret_base = used_at(&used, device);
    }
    return result;
}

void hoop_region_unuse(uint64_t process, uint64_t id, uint32_t generation)
{
    if (process == hoop_process_id()) {
        region_unuse_own(id, generation);
        return;
    }
    pthread_rwlock_wrlock(&memory_lock);
    struct import *import = import_of(process, id, generation);
    assert(import != NULL && import->users > 0);
    import->users--;
    const struct import last = import_take(import);
    pthread_rwlock_unlock(&memory_lock);
    import_unmap(&last);
}

/* Adds an import. If there is one already it stays, and is found again: ids are never reused, so it
 * is the same memory. False: no memory. */
static bool import_keep(struct import *import)
{
    pthread_rwlock_wrlock(&memory_lock);
    struct import *there = import_of(import->process, import->id, import->generation);
    const bool keep =
        there != NULL || memory_grow(&imports, n_imports, &room_imports, sizeof(*imports));
    if (there != NULL) {
        there->dead = false;
    } else if (keep) {
        imports[n_imports++] = *import;
    }
    pthread_rwlock_unlock(&memory_lock);
    if (there != NULL) {
        import_unmap(import);
    }
    return keep;
}

hoop_result_t hoop_region_import(uint64_t process, uint64_t id, uint32_t generation, uint32_t kind,
                                 uint64_t bytes, int fd)
{
    struct import import = {
        .process = process, .id = id, .generation = generation, .kind = kind, .bytes = bytes};
    const bool shown = generation == HOOP_IPC_GENERATION;
    hoop_result_t result = HOOP_REMOTE_ERROR;
    if (kind >= HOOP_MEM_KINDS || (kind == HOOP_MEM_PLAIN) != shown) {
        hoop_error(result, "a peer sent memory of kind %u, expected %s", kind,
                   shown ? "2" : "0 or 1");
    } else {
        result = hoop_device(import.kind)->map(fd, bytes, &import.base);
    }
    close(fd);
    if (result != HOOP_OK) {
        return result;
    }
    if (import_keep(&import)) {
        return HOOP_OK;
    }
    import_unmap(&import);
    return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to remember a peer's region");
}

void hoop_region_forget(uint64_t process, uint64_t id, uint32_t generation)
{
    pthread_rwlock_wrlock(&memory_lock);
    struct import *import = import_of(process, id, generation);
    if (import != NULL) {
        import->dead = true;
    }
    const struct import unused = import_take(import);
    pthread_rwlock_unlock(&memory_lock);
    import_unmap(&unused);
}

/* Forgets one import of the process that is not dead yet. False: there is none. */
static bool import_forget_one(uint64_t process)
{
    struct import unused = {.base = NULL};
    size_t i = 0;
    pthread_rwlock_wrlock(&memory_lock);
    while (i < n_imports && (imports[i].process != process || imports[i].dead)) {
        i++;
    }
    const bool found = i < n_imports;
    if (found) {
        imports[i].dead = true;
        unused = import_take(&imports[i]);
    }
    pthread_rwlock_unlock(&memory_lock);
    import_unmap(&unused);
    return found;
}

void hoop_region_forget_process(uint64_t process)
{
    while (import_forget_one(process)) {
    }
}

void hoop_region_stats(struct hoop_region_stats *ret)
{
    *ret = (struct hoop_region_stats){0};
    pthread_rwlock_rdlock(&memory_lock);
    ret->regions = n_regions;
    for (size_t i = 0; i < n_regions; i++) {
        ret->region_bytes += regions[i].bytes;
    }
    ret->imports = n_imports;
    for (size_t i = 0; i < n_imports; i++) {
        ret->import_bytes += imports[i].bytes;
    }
    pthread_rwlock_unlock(&memory_lock);
}

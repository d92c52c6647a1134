/*
 * CUDA IPC memory between processes (see ipc.h).
 *
 * What region.c takes for the address of an import is a struct ipc_import here, since the memory
 * has a different address for each device of the process.
 */
#include "memory/ipc.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "memory/cuda.h"
#include "memory/device.h"
#include "memory/memfd.h"
#include "runtime/process.h"
#include "runtime/wait.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t ipc_lock = PTHREAD_MUTEX_INITIALIZER; /* guards both lists; held briefly */

/* ---- What is shown ---- */

/* An allocation, as CUDA describes it. */
struct ipc_allocation {
    hoop_cu_address_t base;
    size_t bytes;
    unsigned long long number;
};

struct ipc_shown {
    struct ipc_allocation is;
    struct hoop_cu_ipc handle;
    uint64_t id;
    bool refused;  /* it can't be shown; remembered, so that CUDA is asked once */
    bool exported; /* a peer may have opened it */
};

static struct ipc_shown *ipc_shown;
static size_t n_shown, room_shown, next_looked;
static uint64_t last_shown = UINT64_C(1) << 63; /* beyond all ids of hoop_mem_alloc()'s regions */

static void ipc_tell(const char *why)
{
    static _Atomic bool told;
    if (!atomic_exchange_explicit(&told, true, memory_order_relaxed)) {
        hoop_log(
            HOOP_LOG_INFO, HOOP_LOG_MEM,
            "memory of cudaMalloc() goes through the host where other processes have ranks: %s",
            why);
    }
}

/* What CUDA says about an address; UNKNOWN: it could not say. */
enum ipc_is { IPC_UNKNOWN, IPC_NOTHING, IPC_ALLOCATED };

static enum ipc_is ipc_identify(hoop_cu_address_t at, struct ipc_allocation *ret)
{
    hoop_cu_context_t context = NULL;
    int error = hoop_cuda.address_range(&ret->base, &ret->bytes, at);
    if (error != HOOP_CU_SUCCESS) {
        /* CUDA looks in the current context only, which may be another device's, or none. */
        if (hoop_cuda_find((const void *)(uintptr_t)at, &context) != HOOP_OK) {
            return IPC_UNKNOWN;
        }
        if (context == NULL) {
            return IPC_NOTHING;
        }
        if (hoop_cuda_enter(context) == HOOP_OK) {
            error = hoop_cuda.address_range(&ret->base, &ret->bytes, at);
            hoop_cuda_leave();
        }
    }
    if (error == HOOP_CU_SUCCESS) {
        error = hoop_cuda.pointer_get(&ret->number, HOOP_CU_POINTER_BUFFER_ID, at);
    }
    return error == HOOP_CU_SUCCESS ? IPC_ALLOCATED : IPC_UNKNOWN;
}

static bool ipc_same(const struct ipc_allocation *a, const struct ipc_allocation *b)
{
    return a->number == b->number && a->base == b->base && a->bytes == b->bytes;
}

/* The entry of an allocation; NULL: none. With the lock. */
static struct ipc_shown *ipc_as_shown(const struct ipc_allocation *allocation)
{
    size_t i = 0;
    while (i < n_shown && !ipc_same(&ipc_shown[i].is, allocation)) {
        i++;
    }
    return i < n_shown ? &ipc_shown[i] : NULL;
}

static struct ipc_shown *ipc_by_id(uint64_t id)
{
    size_t i = 0;
    while (i < n_shown && (ipc_shown[i].id != id || ipc_shown[i].refused)) {
        i++;
    }
    return i < n_shown ? &ipc_shown[i] : NULL;
}

/* Removes an entry. Returns its id if peers have to be told; 0: none has it. With the lock. */
static uint64_t ipc_remove(struct ipc_shown *gone)
{
    const uint64_t id = gone->exported ? gone->id : 0;
    *gone = ipc_shown[--n_shown];
    return id;
}

/* Checks whether one shown allocation still exists; each call takes the next one. */
static void ipc_look_at_next(void (*died)(uint64_t id))
{
    struct ipc_allocation was = {.bytes = 0}, is;
    uint64_t gone = 0;
    pthread_mutex_lock(&ipc_lock);
    if (n_shown > 0) {
        next_looked = (next_looked + 1) % n_shown;
        was = ipc_shown[next_looked].is;
    }
    pthread_mutex_unlock(&ipc_lock);
    const enum ipc_is now = was.bytes == 0 ? IPC_UNKNOWN : ipc_identify(was.base, &is);
    if (now == IPC_UNKNOWN || (now == IPC_ALLOCATED && ipc_same(&is, &was))) {
        return;
    }
    pthread_mutex_lock(&ipc_lock);
    struct ipc_shown *there = ipc_as_shown(&was);
    gone = there != NULL ? ipc_remove(there) : 0;
    pthread_mutex_unlock(&ipc_lock);
    if (gone != 0) {
        died(gone);
    }
}

/* Removes shown allocations that overlap this new one: they no longer exist. */
static void ipc_bury(const struct ipc_allocation *now, void (*died)(uint64_t id))
{
    uint64_t gone = 0;
    bool more = true;
    while (more) {
        size_t i = 0;
        pthread_mutex_lock(&ipc_lock);
        while (i < n_shown &&
               (ipc_same(&ipc_shown[i].is, now) || ipc_shown[i].is.base >= now->base + now->bytes ||
                now->base >= ipc_shown[i].is.base + ipc_shown[i].is.bytes)) {
            i++;
        }
        more = i < n_shown;
        gone = more ? ipc_remove(&ipc_shown[i]) : 0;
        pthread_mutex_unlock(&ipc_lock);
        if (gone != 0) {
            died(gone);
        }
    }
}

/*
 * Only for memory of the device's primary context: an importer opens what a device shows in one
 * context for each of its own devices, which all of its comms share.
 */
static bool ipc_get_handle(const struct ipc_allocation *of, struct hoop_cu_ipc *ret)
{
    const void *ptr = (const void *)(uintptr_t)of->base;
    hoop_cu_context_t context = NULL;
    int device = -1, error = HOOP_CU_INVALID_CONTEXT;
    if (!hoop_cuda_is_plain(ptr)) {
        ipc_tell("it was allocated in stream order (cudaMallocAsync()), or mapped by the program");
        return false;
    }
    if (!hoop_cuda_owns(ptr, &context) || hoop_cuda_enter(context) != HOOP_OK) {
        return false;
    }
    const bool primary = hoop_cuda.context_device(&device) == HOOP_CU_SUCCESS &&
                         hoop_cuda_is_primary(context, device);
    if (primary) {
        error = hoop_cuda.ipc_show(ret, of->base);
    }
    hoop_cuda_leave();
    if (!primary) {
        ipc_tell("its context is not the primary one of its device");
    } else if (hoop_cuda_check("cuIpcGetMemHandle", error) != HOOP_OK) {
        ipc_tell(hoop_thread_error());
    }
    return primary && error == HOOP_CU_SUCCESS;
}

/* Adds an entry, unless another thread has done so. False: no memory. */
static bool ipc_add(const struct ipc_shown *added)
{
    pthread_mutex_lock(&ipc_lock);
    bool there = ipc_as_shown(&added->is) != NULL;
    if (!there && n_shown == room_shown) {
        const size_t room = room_shown == 0 ? 16 : 2 * room_shown;
        struct ipc_shown *grown = realloc(ipc_shown, room * sizeof(*grown));
        ipc_shown = grown != NULL ? grown : ipc_shown;
        room_shown = grown != NULL ? room : room_shown;
    }
    if (!there && n_shown < room_shown) {
        ipc_shown[n_shown] = *added;
        ipc_shown[n_shown++].id = ++last_shown;
        there = true;
    }
    pthread_mutex_unlock(&ipc_lock);
    return there;
}

/* Adds a new allocation to the list, with its handle or as refused. */
static void ipc_meet(const struct ipc_allocation *allocation, void (*died)(uint64_t id))
{
    struct ipc_shown added = {.is = *allocation};
    ipc_bury(allocation, died);
    added.refused = !ipc_get_handle(allocation, &added.handle);
    if (!ipc_add(&added)) {
        ipc_tell("no memory to remember it");
    }
}

/* False: the allocation is not in the list. *ret_id 0: it can't be shown. */
static bool ipc_find(const struct ipc_allocation *allocation, uint64_t *ret_id)
{
    pthread_mutex_lock(&ipc_lock);
    const struct ipc_shown *known = ipc_as_shown(allocation);
    *ret_id = known != NULL && !known->refused ? known->id : 0;
    pthread_mutex_unlock(&ipc_lock);
    return known != NULL;
}

bool hoop_ipc_show(const void *ptr, uint64_t bytes, void (*died)(uint64_t id),
                   struct hoop_ipc_place *ret)
{
    const hoop_cu_address_t at = (uintptr_t)ptr;
    struct ipc_allocation allocation = {.bytes = 0};
    hoop_cu_context_t context = NULL;
    uint64_t id = 0;
    /* With HOOP_CUDA_AHEAD=1 streams may be held, and opening memory may wait for all streams. */
    if (hoop_settings()->cuda_ipc == 0 || hoop_settings()->cuda_ahead == HOOP_AHEAD_ALL ||
        ipc_identify(at, &allocation) != IPC_ALLOCATED ||
        bytes > allocation.bytes - (at - allocation.base)) {
        return false;
    }
    ipc_look_at_next(died);
    if (!ipc_find(&allocation, &id)) {
        if (!hoop_cuda_owns(ptr, &context)) {
            return false; /* pinned host memory, which CUDA knows, too */
        }
        ipc_meet(&allocation, died);
        (void)ipc_find(&allocation, &id);
    }
    *ret = (struct hoop_ipc_place){id, at - allocation.base, allocation.bytes};
    return id != 0;
}

static hoop_result_t ipc_gone(hoop_result_t result, uint64_t id)
{
    return hoop_error(result, "memory %llu of cudaMalloc() does not exist (any more)",
                      (unsigned long long)id);
}

hoop_result_t hoop_ipc_own(uint64_t id, void **ret_base, uint64_t *ret_bytes)
{
    pthread_mutex_lock(&ipc_lock);
    const struct ipc_shown *shown = ipc_by_id(id);
    if (shown != NULL) {
        *ret_base = (void *)(uintptr_t)shown->is.base;
        *ret_bytes = shown->is.bytes;
    }
    pthread_mutex_unlock(&ipc_lock);
    return shown != NULL ? HOOP_OK : ipc_gone(HOOP_REMOTE_ERROR, id);
}

hoop_result_t hoop_ipc_export(uint64_t id, int *ret_fd, uint64_t *ret_bytes)
{
    struct hoop_cu_ipc handle = {.bytes = {0}};
    uint64_t bytes = 0;
    int fd = -1;
    pthread_mutex_lock(&ipc_lock);
    struct ipc_shown *shown = ipc_by_id(id);
    if (shown != NULL) {
        shown->exported = true;
        handle = shown->handle;
        bytes = shown->is.bytes;
    }
    pthread_mutex_unlock(&ipc_lock);
    hoop_result_t result = shown != NULL ? HOOP_OK : ipc_gone(HOOP_INVALID_ARGUMENT, id);
    if (result == HOOP_OK) {
        result = hoop_memfd_create("hoop_ipc", sizeof(handle), &fd);
    }
    if (result == HOOP_OK && pwrite(fd, &handle, sizeof(handle), 0) != sizeof(handle)) {
        result = hoop_memory_error(errno, "pwrite", sizeof(handle));
        close(fd);
    }
    if (result == HOOP_OK) {
        *ret_fd = fd;
        *ret_bytes = bytes;
    }
    return result;
}

/* ---- What others show ---- */

enum { IPC_DEVICES = 64 };

struct ipc_opened {
    hoop_cu_address_t at; /* 0: not opened there */
    hoop_cu_context_t context;
};

struct ipc_import {
    struct hoop_cu_ipc handle;
    struct ipc_opened opened[IPC_DEVICES]; /* under ipc_opening */
    struct ipc_import *next;               /* in the list of forgotten imports */
};

/* How long opening memory, or the end of a comm, waits for other memory to be closed. */
#define IPC_PATIENCE_NS HOOP_NS_PER_S

static struct {
    /* under ipc_lock */
    struct ipc_import *first;
    bool runs; /* the thread that closes them runs */
    /* written under ipc_lock */
    _Atomic size_t left; /* how many are still to be closed */
} ipc_forgotten;
static pthread_cond_t ipc_closed; /* signalled when none is left */
static pthread_once_t ipc_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t ipc_opening = PTHREAD_MUTEX_INITIALIZER; /* held while devices are awaited */

/* Only reads the handle. Whether it stands for `bytes` bytes is checked when it is opened. */
static hoop_result_t ipc_map(int fd, uint64_t bytes, void **ret_ptr)
{
    struct hoop_cu_ipc handle;
    (void)bytes;
    hoop_result_t result = hoop_cuda_need();
    if (result == HOOP_OK) {
        result = hoop_memfd_check(fd, sizeof(handle));
    }
    if (result != HOOP_OK) {
        return result;
    }
    struct ipc_import *import = calloc(1, sizeof(*import));
    if (import == NULL || pread(fd, &handle, sizeof(handle), 0) != sizeof(handle)) {
        free(import);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a peer's device memory");
    }
    import->handle = handle;
    *ret_ptr = import;
    return HOOP_OK;
}

/* Only queues the import for ipc_close_forgotten(), since the service thread calls this, too. */
static void ipc_unmap(void *ptr, uint64_t bytes)
{
    struct ipc_import *import = ptr;
    (void)bytes;
    pthread_mutex_lock(&ipc_lock);
    import->next = ipc_forgotten.first;
    ipc_forgotten.first = import;
    atomic_fetch_add(&ipc_forgotten.left, 1);
    pthread_mutex_unlock(&ipc_lock);
}

/* The import is in no list, and nobody uses it. */
static void ipc_close(struct ipc_import *import)
{
    for (int device = 0; device < IPC_DEVICES; device++) {
        const struct ipc_opened *opened = &import->opened[device];
        if (opened->at != 0 && hoop_cuda_enter(opened->context) == HOOP_OK) {
            (void)hoop_cuda.ipc_close(opened->at);
            hoop_cuda_leave();
        }
    }
    free(import);
}

/* Main function of a separate thread: closing may wait for everything that runs on the device. */
static void *ipc_close_main(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&ipc_lock);
    while (ipc_forgotten.first != NULL) {
        struct ipc_import *first = ipc_forgotten.first;
        ipc_forgotten.first = first->next;
        pthread_mutex_unlock(&ipc_lock);
        ipc_close(first);
        pthread_mutex_lock(&ipc_lock);
        atomic_fetch_sub(&ipc_forgotten.left, 1);
    }
    ipc_forgotten.runs = false;
    pthread_cond_broadcast(&ipc_closed);
    pthread_mutex_unlock(&ipc_lock);
    return NULL;
}

static void ipc_init_closed(void)
{
    hoop_cond_init(&ipc_closed);
}

static void ipc_close_forgotten(uint64_t deadline_ns)
{
    if (atomic_load_explicit(&ipc_forgotten.left, memory_order_acquire) == 0) {
        return;
    }
    pthread_once(&ipc_once, ipc_init_closed);
    pthread_mutex_lock(&ipc_lock);
    if (!ipc_forgotten.runs && ipc_forgotten.first != NULL) {
        ipc_forgotten.runs = hoop_thread_spawn(ipc_close_main, NULL) == 0;
    }
    while (ipc_forgotten.runs && deadline_ns != 0 &&
           hoop_cond_wait(&ipc_closed, &ipc_lock, deadline_ns)) {
    }
    pthread_mutex_unlock(&ipc_lock);
}

void hoop_ipc_close_forgotten(bool waits)
{
    ipc_close_forgotten(waits ? hoop_now_ns() + IPC_PATIENCE_NS : 0);
}

/* Does the memory that was opened at this address have the size that the peer said? CUDA may open
 * what surrounds it, too. */
static hoop_result_t ipc_check(hoop_cu_address_t at, uint64_t bytes)
{
    hoop_cu_address_t base = 0;
    size_t all = 0;
    const hoop_result_t result =
        hoop_cuda_check("cuMemGetAddressRange", hoop_cuda.address_range(&base, &all, at));
    if (result == HOOP_OK && (at < base || at - base > all || bytes > all - (at - base))) {
        return hoop_error(HOOP_REMOTE_ERROR,
                          "a peer announced %llu bytes of device memory, but only %llu are there",
                          (unsigned long long)bytes, (unsigned long long)all);
    }
    return result;
}

/* The context must be current. HOOP_AGAIN: the owner had other memory at this address before, which
 * is still open here. */
static hoop_result_t ipc_open(const struct ipc_import *import, uint64_t bytes, int device,
                              struct ipc_opened *ret)
{
    hoop_result_t result = hoop_cuda_check("cuCtxGetCurrent", hoop_cuda.context_get(&ret->context));
    if (result == HOOP_OK && !hoop_cuda_is_primary(ret->context, device)) {
        result = hoop_error(HOOP_UNSUPPORTED, "the context is not the primary one of its device");
    }
    if (result != HOOP_OK) {
        return result;
    }
    const int error = hoop_cuda.ipc_open(&ret->at, import->handle, HOOP_CU_IPC_PEER_ACCESS);
    result = hoop_cuda_check("cuIpcOpenMemHandle", error);
    if (error == HOOP_CU_ALREADY_MAPPED) {
        return HOOP_AGAIN;
    }
    if (result == HOOP_OK) {
        result = ipc_check(ret->at, bytes);
        if (result != HOOP_OK) {
            (void)hoop_cuda.ipc_close(ret->at);
        }
    }
    return result;
}

static bool ipc_waits_until(uint64_t deadline_ns)
{
    hoop_wait_briefly();
    return hoop_now_ns() < deadline_ns;
}

static hoop_result_t ipc_grant(void *ptr, uint64_t bytes, int device)
{
    struct ipc_import *import = ptr;
    struct ipc_opened opened = {.at = 0};
    hoop_result_t result = HOOP_OK;
    if (device < 0 || device >= IPC_DEVICES) {
        return hoop_error(HOOP_UNSUPPORTED,
                          "device %d: only the first %d devices can open memory of other processes",
                          device, IPC_DEVICES);
    }
    const uint64_t deadline_ns = hoop_now_ns() + IPC_PATIENCE_NS;
    do {
        pthread_mutex_lock(&ipc_opening);
        result = HOOP_OK; /* another thread may have opened it meanwhile */
        if (import->opened[device].at == 0) {
            result = ipc_open(import, bytes, device, &opened);
            import->opened[device] = result == HOOP_OK ? opened : import->opened[device];
        }
        pthread_mutex_unlock(&ipc_opening);
        /* AGAIN: the memory that was at this address before may be in the list of forgotten ones;
         * or its owner's message that it is gone, sent before this memory was shown, is on its way.
         */
        ipc_close_forgotten(result == HOOP_AGAIN ? deadline_ns : 0);
    } while (result == HOOP_AGAIN && ipc_waits_until(deadline_ns));
    return result == HOOP_AGAIN ? HOOP_CUDA_ERROR : result;
}

/* Valid after ipc_grant() for the device. */
static void *ipc_at(void *ptr, int device)
{
    const struct ipc_import *import = ptr;
    return (void *)(uintptr_t)import->opened[device].at;
}

const struct hoop_device hoop_device_ipc = {
    .map = ipc_map,
    .unmap = ipc_unmap,
    .grant = ipc_grant,
    .at = ipc_at,
};

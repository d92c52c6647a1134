/*
 * The memory of the fake device (see fake_cuda.h).
 *
 *     front   the device's addresses, which the process can't access
 *     back    where the memory is: at a constant distance from front
 *
 * Plain memory lies in the process's pool, a memfd. Other processes map its pages over a place in
 * their own back. They also see what lies around it, as with CUDA, and what is allocated there
 * after it was freed, which is worse than CUDA. Physical memory is a memfd of its own, so that it
 * can be sent as a descriptor, and is mapped over its place in back. Memory that is mapped but not
 * made accessible can't be used.
 */
#include "fakes/fake_cuda_inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOST_SEEN ((uintptr_t)1 << 60) /* offset of the host's memory as devices see it */
#define MOST 4096                      /* address ranges, and pinned ranges */

enum range_kind { PLAIN, RESERVED, MAPPED, ACCESSIBLE, OPENED };

struct range {
    uintptr_t at;
    size_t bytes;
    enum range_kind kind;
    int home;                            /* the device on which it lies */
    unsigned open;                       /* ACCESSIBLE: bits of the devices that may access it */
    const struct hoop_cu_context *owner; /* PLAIN, OPENED: its context */
    unsigned long long number;           /* of the allocation */
    bool pooled;                         /* PLAIN: allocated in the order of a stream */
    bool managed;                        /* PLAIN: the host can access it, too */
    int pid;                             /* OPENED: the owning process, where its number is `of` */
    unsigned long long of;
    uint64_t there; /* its address there */
    unsigned count; /* how often it is open */
};

/* The content of an IPC handle. */
struct shown {
    char magic[8];
    int pid, fd, home;
    unsigned long long number;
    uint64_t offset, bytes;
};
#define MAGIC "fakeIPC"
_Static_assert(sizeof(struct shown) <= sizeof(struct hoop_cu_ipc), "a handle has room for it");

static unsigned char *front, *back;
static struct range ranges[MOST], pinned[MOST];
static size_t n_ranges, n_pinned, allocated, n_opened;
static unsigned long long last_number;
static int pool = -1;

/* ---- Addresses, with the lock ---- */

int fake_pool_make(void)
{
    if (front == NULL) {
        front = mmap(NULL, FAKE_POOL_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0);
        pool = memfd_create("fake_cuda_pool", MFD_CLOEXEC);
        back = ftruncate(pool, (off_t)FAKE_POOL_BYTES) == 0
                   ? mmap(NULL, FAKE_POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, pool, 0)
                   : MAP_FAILED;
        if (getenv("FAKE_CUDA_SEEN") != NULL) {
            munmap(front, FAKE_POOL_BYTES);
            front = back;
        }
    }
    return front != MAP_FAILED && back != MAP_FAILED ? HOOP_CU_SUCCESS : HOOP_CU_NO_DEVICE;
}

ptrdiff_t fake_view(void)
{
    return (ptrdiff_t)((uintptr_t)back - (uintptr_t)front);
}

static unsigned char *seen(uintptr_t at)
{
    return back + (at - (uintptr_t)front);
}

static bool range_holds(const struct range *range, uintptr_t at, size_t bytes)
{
    return at >= range->at && at - range->at <= range->bytes &&
           bytes <= range->bytes - (at - range->at);
}

static bool range_may(const struct range *range, const struct hoop_cu_context *context)
{
    if (context == NULL || range->kind == RESERVED || range->kind == MAPPED) {
        return range->kind != RESERVED && range->kind != MAPPED;
    }
    return range->kind == PLAIN    ? fake_is_let_in(context, range->owner)
           : range->kind == OPENED ? context == range->owner
                                   : (range->open & (1u << fake_device_of(context))) != 0;
}

/* The range that holds all of these bytes, if context may access it. context NULL: any context. */
static const struct range *range_of(uintptr_t at, size_t bytes,
                                    const struct hoop_cu_context *context)
{
    for (size_t i = 0; i < n_ranges; i++) {
        if (range_holds(&ranges[i], at, bytes) && range_may(&ranges[i], context)) {
            return &ranges[i];
        }
    }
    return NULL;
}

/* The range with just this address, size and kind. */
static struct range *range_exactly(uintptr_t at, size_t bytes, enum range_kind kind)
{
    for (size_t i = 0; i < n_ranges; i++) {
        if (ranges[i].at == at && ranges[i].bytes == bytes && ranges[i].kind == kind) {
            return &ranges[i];
        }
    }
    return NULL;
}

static bool is_pinned(uintptr_t at, size_t bytes)
{
    for (size_t i = 0; i < n_pinned; i++) {
        if (range_holds(&pinned[i], at, bytes)) {
            return true;
        }
    }
    return false;
}

bool fake_on_device(uintptr_t at)
{
    return at >= (uintptr_t)front && at - (uintptr_t)front < FAKE_POOL_BYTES;
}

unsigned char *fake_resolve(hoop_cu_address_t at, size_t bytes,
                            const struct hoop_cu_context *context)
{
    if (fake_on_device(at)) {
        return range_of(at, bytes, context) != NULL ? seen(at) : NULL;
    }
    return is_pinned(at, bytes) ? (unsigned char *)(uintptr_t)at : NULL;
}

/* The first gap; 0: none. Allocations are aligned to 256 bytes, as in CUDA. */
static uintptr_t find_gap(size_t bytes, size_t align)
{
    uintptr_t at = (uintptr_t)front;
    for (size_t i = 0; i < n_ranges; i++) {
        const struct range *range = &ranges[i];
        if (at < range->at + range->bytes && range->at < at + bytes) {
            at = (range->at + range->bytes + 255 + align) / align * align;
            i = (size_t)-1; /* look at all again */
        }
    }
    return at + bytes <= (uintptr_t)front + FAKE_POOL_BYTES ? at : 0;
}

static int range_add(size_t bytes, size_t align, enum range_kind kind, hoop_cu_address_t *ret)
{
    const uintptr_t at = n_ranges < MOST ? find_gap(bytes, align) : 0;
    if (at == 0) {
        return HOOP_CU_OUT_OF_MEMORY;
    }
    ranges[n_ranges++] = (struct range){.at = at,
                                        .bytes = bytes,
                                        .kind = kind,
                                        .home = fake_device_of(fake_context()),
                                        .owner = fake_context(),
                                        .number = ++last_number};
    *ret = at;
    return HOOP_CU_SUCCESS;
}

static void range_remove(struct range *range)
{
    *range = ranges[--n_ranges];
}

/* Maps the pool's own pages again. Whoever still uses the others then has a bad address. */
static bool back_restore(uintptr_t at, size_t bytes)
{
    const bool done = mmap(seen(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pool,
                           (off_t)(at - (uintptr_t)front)) != MAP_FAILED;
    if (done && fake_in_use(seen(at), bytes)) {
        (void)fputs("fake_cuda: memory is unmapped that a stream uses\n", stderr);
        abort();
    }
    return done;
}

void fake_memory_use(size_t *ret_bytes, size_t *ret_pinned)
{
    *ret_bytes = allocated;
    *ret_pinned = n_pinned;
}

/* ---- Pointers and plain memory ---- */

/* All zero for memory that the driver does not know. */
int fake_pointer_get_all(unsigned count, int *attributes, void **ret, hoop_cu_address_t ptr)
{
    int result = HOOP_CU_SUCCESS;
    for (unsigned i = 0; i < count && result == HOOP_CU_SUCCESS; i++) {
        result = fake_pointer_get(ret[i], attributes[i], ptr);
    }
    return result == HOOP_CU_INVALID_VALUE ? HOOP_CU_SUCCESS : result;
}

int fake_pointer_get(void *ret, int attribute, hoop_cu_address_t ptr)
{
    pthread_mutex_lock(&fake_lock);
    const struct range *range = front != NULL ? range_of(ptr, 1, NULL) : NULL;
    const struct range found = range != NULL ? *range : (struct range){.kind = RESERVED};
    const int result = front == NULL                  ? HOOP_CU_NOT_INITIALIZED
                       : fake_broken                  ? FAKE_ILLEGAL_ADDRESS
                       : range == NULL || fake_forgot ? HOOP_CU_INVALID_VALUE
                                                      : HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&fake_lock);
    if (result != HOOP_CU_SUCCESS) {
        return result;
    }
    if (attribute == HOOP_CU_POINTER_CONTEXT) {
        const bool of_context = found.kind == PLAIN || found.kind == OPENED;
        *(const struct hoop_cu_context **)ret = of_context && !found.pooled ? found.owner : NULL;
    } else if (attribute == HOOP_CU_POINTER_BUFFER_ID) {
        *(unsigned long long *)ret = found.number;
    } else if (attribute == HOOP_CU_POINTER_DEVICE_ORDINAL) {
        *(int *)ret = found.home;
    } else if (attribute == HOOP_CU_POINTER_IS_PLAIN) {
        *(bool *)ret = found.kind == PLAIN && !found.pooled && !found.managed;
    } else {
        *(unsigned *)ret = HOOP_CU_MEMORY_DEVICE;
    }
    return HOOP_CU_SUCCESS;
}

void fake_memory_pool(hoop_cu_address_t at)
{
    for (size_t i = 0; i < n_ranges; i++) {
        ranges[i].pooled |= ranges[i].at == at;
    }
}

int fake_alloc(hoop_cu_address_t *ret, size_t bytes)
{
    fake_check_caller();
    if (!fake_has_context()) {
        return HOOP_CU_INVALID_CONTEXT;
    }
    pthread_mutex_lock(&fake_lock);
    const int result =
        fake_is_unsafe() ? FAKE_CAPTURE_UNSUPPORTED : range_add(bytes, 256, PLAIN, ret);
    if (result == HOOP_CU_SUCCESS) {
        allocated += bytes;
        memset(seen(*ret), 0xcd, bytes);
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* Used by programs: whole pages that the host can access at their addresses. */
EXPORT int fake_alloc_managed(hoop_cu_address_t *ret, size_t bytes,
                              unsigned flags) __asm__("cuMemAllocManaged");
int fake_alloc_managed(hoop_cu_address_t *ret, size_t bytes, unsigned flags)
{
    const size_t page = (size_t)getpagesize();
    bytes = (bytes + page - 1) / page * page;
    pthread_mutex_lock(&fake_lock);
    const int result = flags != 1 ? HOOP_CU_INVALID_VALUE : range_add(bytes, page, PLAIN, ret);
    if (result == HOOP_CU_SUCCESS) {
        allocated += bytes;
        range_exactly(*ret, bytes, PLAIN)->managed =
            mmap((void *)*ret, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pool,
                 (off_t)(*ret - (uintptr_t)front)) != MAP_FAILED;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_free(hoop_cu_address_t ptr)
{
    fake_check_caller();
    int result = HOOP_CU_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    fake_keep_out();
    fake_drain();
    for (size_t i = 0; i < n_ranges && result != HOOP_CU_SUCCESS; i++) {
        if (ranges[i].at == ptr && ranges[i].kind == PLAIN) {
            memset(seen(ptr), 0xdd, ranges[i].bytes);
            allocated -= ranges[i].bytes;
            if (ranges[i].managed) {
                (void)mprotect((void *)ptr, ranges[i].bytes, PROT_NONE);
            }
            range_remove(&ranges[i]);
            result = HOOP_CU_SUCCESS;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* Returns before it is done. */
int fake_set_bytes(hoop_cu_address_t ptr, unsigned char value, size_t bytes, hoop_stream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_task task = {.kind = FAKE_FILL,
                                   .to = fake_resolve(ptr, bytes, fake_context()),
                                   .value = value,
                                   .bytes = bytes};
    const int result = task.to != NULL ? fake_push(stream, &task) : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_host_register(void *ptr, size_t bytes, unsigned flags)
{
    const bool mapped = (flags & HOOP_CU_HOST_REGISTER_MAPPED) != 0;
    pthread_mutex_lock(&fake_lock);
    fake_keep_out();
    const int result = fake_is_unsafe()   ? FAKE_CAPTURE_UNSUPPORTED
                       : n_pinned == MOST ? HOOP_CU_OUT_OF_MEMORY
                                          : HOOP_CU_SUCCESS;
    if (result == HOOP_CU_SUCCESS) {
        pinned[n_pinned++] =
            (struct range){.at = (uintptr_t)ptr, .bytes = bytes, .kind = mapped ? MAPPED : PLAIN};
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* Devices see host memory at another address. With the lock. */
void *fake_host_of(hoop_cu_address_t at, size_t bytes)
{
    const uintptr_t host = at - HOST_SEEN;
    for (size_t i = 0; i < n_pinned; i++) {
        if (pinned[i].kind == MAPPED && range_holds(&pinned[i], host, bytes)) {
            return (void *)host;
        }
    }
    return NULL;
}

int fake_host_pointer(hoop_cu_address_t *ret, void *ptr, unsigned flags)
{
    pthread_mutex_lock(&fake_lock);
    *ret = (uintptr_t)ptr + HOST_SEEN;
    const bool mapped = flags == 0 && fake_host_of(*ret, 1) != NULL;
    pthread_mutex_unlock(&fake_lock);
    return mapped ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

int fake_host_unregister(void *ptr)
{
    int result = HOOP_CU_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    fake_keep_out();
    for (size_t i = 0; i < n_pinned && result != HOOP_CU_SUCCESS; i++) {
        if (pinned[i].at == (uintptr_t)ptr) {
            pinned[i] = pinned[--n_pinned];
            result = HOOP_CU_SUCCESS;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* ---- Plain memory between processes ---- */

int fake_address_range(hoop_cu_address_t *ret_base, size_t *ret_bytes, hoop_cu_address_t ptr)
{
    pthread_mutex_lock(&fake_lock);
    const bool looks = front != NULL && !fake_forgot && fake_has_context();
    const struct range *range = looks ? range_of(ptr, 1, fake_context()) : NULL;
    const int result = range != NULL ? HOOP_CU_SUCCESS : HOOP_CU_NOT_FOUND;
    if (range != NULL) {
        const bool lies = range->kind == OPENED && getenv("FAKE_CUDA_IPC_SHORT") != NULL;
        *ret_base = range->at;
        *ret_bytes = lies ? range->bytes / 2 : range->bytes;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_ipc_show(struct hoop_cu_ipc *ret, hoop_cu_address_t ptr)
{
    pthread_mutex_lock(&fake_lock);
    const struct range *range = range_of(ptr, 1, fake_context());
    int result = HOOP_CU_INVALID_VALUE;
    if (getenv("FAKE_CUDA_NO_IPC") != NULL || !fake_has_context()) {
        result = fake_has_context() ? FAKE_NOT_SUPPORTED : HOOP_CU_INVALID_CONTEXT;
    } else if (range != NULL && range->kind == PLAIN && !range->pooled && range->at == ptr) {
        const struct shown shown = {.magic = MAGIC,
                                    .pid = getpid(),
                                    .fd = pool,
                                    .home = fake_physical(range->home),
                                    .number = range->number,
                                    .offset = range->at - (uintptr_t)front,
                                    .bytes = range->bytes};
        memset(ret, 0, sizeof(*ret));
        memcpy(ret, &shown, sizeof(shown));
        result = HOOP_CU_SUCCESS;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* NULL: it is not open on the device. With the lock. */
static struct range *range_opened(const struct shown *shown, int device)
{
    for (size_t i = 0; i < n_ranges; i++) {
        if (ranges[i].kind == OPENED && ranges[i].pid == shown->pid &&
            ranges[i].of == shown->number && fake_device_of(ranges[i].owner) == device) {
            return &ranges[i];
        }
    }
    return NULL;
}

/* Is something else open on the device that had the address which this has now? With the lock. */
static bool range_is_taken(const struct shown *shown, int device)
{
    bool taken = false;
    for (size_t i = 0; i < n_ranges && !taken; i++) {
        taken = ranges[i].kind == OPENED && ranges[i].pid == shown->pid &&
                ranges[i].of != shown->number && ranges[i].there == shown->offset &&
                fake_device_of(ranges[i].owner) == device;
    }
    return taken;
}

/* Maps all of its pages. With the lock. */
static int range_open(const struct shown *shown, hoop_cu_address_t *ret)
{
    const size_t page = (size_t)getpagesize(), inside = shown->offset % page;
    const size_t bytes = (inside + shown->bytes + page - 1) / page * page;
    hoop_cu_address_t at = 0;
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", shown->pid, shown->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || range_add(bytes, page, OPENED, &at) != HOOP_CU_SUCCESS) {
        close(fd);
        return HOOP_CU_INVALID_VALUE;
    }
    const bool mapped = mmap(seen(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                             (off_t)(shown->offset - inside)) != MAP_FAILED;
    close(fd);
    struct range *range = range_exactly(at, bytes, OPENED);
    range->home = fake_number(shown->home);
    range->pid = shown->pid;
    range->of = shown->number;
    range->there = shown->offset;
    range->count = 1;
    n_opened++;
    *ret = at + inside;
    return mapped ? HOOP_CU_SUCCESS : HOOP_CU_OUT_OF_MEMORY;
}

/* Waits for all streams, as calls that change a device's address space may. */
int fake_ipc_open(hoop_cu_address_t *ret, struct hoop_cu_ipc handle, unsigned flags)
{
    struct shown shown;
    memcpy(&shown, &handle, sizeof(shown));
    if (memcmp(shown.magic, MAGIC, sizeof(MAGIC)) != 0 || flags != HOOP_CU_IPC_PEER_ACCESS ||
        getenv("FAKE_CUDA_IPC_REFUSED") != NULL) {
        return HOOP_CU_INVALID_VALUE;
    }
    const int home = fake_number(shown.home), device = fake_device_of(fake_context());
    if (!fake_has_context() || shown.pid == getpid()) {
        return HOOP_CU_INVALID_CONTEXT;
    }
    if (home < 0 || !fake_reaches(device, home) || getenv("FAKE_CUDA_NO_ACCESS") != NULL) {
        return FAKE_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&fake_lock);
    fake_drain();
    struct range *open = range_opened(&shown, device);
    int result = HOOP_CU_SUCCESS;
    if (open == NULL) {
        result = range_is_taken(&shown, device) ? HOOP_CU_ALREADY_MAPPED : range_open(&shown, ret);
    } else if (open->owner != fake_context()) {
        result = HOOP_CU_INVALID_CONTEXT;
    } else {
        open->count++;
        *ret = open->at + shown.offset % (size_t)getpagesize();
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_ipc_close(hoop_cu_address_t ptr)
{
    const char *slow = getenv("FAKE_CUDA_IPC_CLOSE_US");
    usleep(slow != NULL ? (unsigned)atoi(slow) : 0);
    pthread_mutex_lock(&fake_lock);
    fake_drain();
    struct range *range = (struct range *)(uintptr_t)range_of(ptr, 1, fake_context());
    const bool open = range != NULL && range->kind == OPENED;
    if (open && --range->count == 0) {
        (void)back_restore(range->at, range->bytes);
        range_remove(range);
        n_opened--;
    }
    pthread_mutex_unlock(&fake_lock);
    return open ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

size_t fake_memory_opened(void)
{
    return n_opened;
}

/* ---- Physical memory at addresses ---- */

int fake_address_reserve(hoop_cu_address_t *ret, size_t bytes, size_t alignment,
                         hoop_cu_address_t at, unsigned long long flags)
{
    if (bytes == 0 || bytes % FAKE_GRANULARITY != 0 || alignment != 0 || at != 0 || flags != 0) {
        return HOOP_CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    const int result =
        front == NULL ? HOOP_CU_NOT_INITIALIZED : range_add(bytes, FAKE_GRANULARITY, RESERVED, ret);
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_address_free(hoop_cu_address_t at, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct range *range = range_exactly(at, bytes, RESERVED);
    if (range != NULL) {
        range_remove(range);
    }
    pthread_mutex_unlock(&fake_lock);
    return range != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

int fake_map(hoop_cu_address_t at, size_t bytes, size_t offset, hoop_cu_memory_t handle,
             unsigned long long flags)
{
    const struct fake_memory *memory = (const struct fake_memory *)(uintptr_t)handle;
    pthread_mutex_lock(&fake_lock);
    struct range *range = range_exactly(at, bytes, RESERVED);
    const bool fits = range != NULL && offset == 0 && flags == 0 && bytes <= memory->bytes &&
                      mmap(seen(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                           memory->fd, 0) != MAP_FAILED;
    if (fits) {
        range->kind = MAPPED;
        range->home = memory->home;
        range->open = 0;
        allocated += bytes;
    }
    pthread_mutex_unlock(&fake_lock);
    return fits ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

int fake_unmap(hoop_cu_address_t at, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct range *range = range_exactly(at, bytes, ACCESSIBLE);
    range = range != NULL ? range : range_exactly(at, bytes, MAPPED);
    const bool done = range != NULL && back_restore(at, bytes);
    if (done) {
        range->kind = RESERVED;
        allocated -= bytes;
    }
    pthread_mutex_unlock(&fake_lock);
    return done ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

/* Devices that had access before keep it. */
int fake_set_access(hoop_cu_address_t at, size_t bytes, const struct hoop_cu_access *access,
                    size_t count)
{
    const int device = access->location.id;
    int result = HOOP_CU_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    struct range *range = range_exactly(at, bytes, MAPPED);
    range = range != NULL ? range : range_exactly(at, bytes, ACCESSIBLE);
    if (range != NULL && count == 1 && fake_physical(device) >= 0 &&
        access->location.type == HOOP_CU_LOCATION_DEVICE &&
        access->flags == HOOP_CU_ACCESS_READ_WRITE) {
        const bool may = device == range->home || (fake_reaches(device, range->home) &&
                                                   getenv("FAKE_CUDA_NO_ACCESS") == NULL);
        result = may ? HOOP_CU_SUCCESS : FAKE_NOT_SUPPORTED;
    }
    if (result == HOOP_CU_SUCCESS) {
        range->kind = ACCESSIBLE;
        range->open |= 1u << device;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

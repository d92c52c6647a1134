/*
 * The memory of the fake device (see fake_cuda.h).
 *
 *     front   the device's addresses: nobody may touch them
 *     back    where its memory is, as far from front everywhere
 *
 * Plain memory is anonymous. Physical memory is a memfd, so that it travels as a descriptor, mapped
 * over its place in back. What is mapped and not made accessible is as good as not there.
 */
#include "fakes/fake_cuda_inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define POOL_BYTES ((size_t)256 << 20)
#define GRANULARITY ((size_t)64 << 10)
#define HOST_SEEN ((uintptr_t)1 << 60) /* so far from its place a device sees the host's memory */
#define MOST 4096                      /* ranges of addresses, pinned ranges */

enum range_kind { PLAIN, RESERVED, MAPPED, ACCESSIBLE };

struct range {
    uintptr_t at;
    size_t bytes;
    enum range_kind kind;
    int home;                            /* the device that it lies on */
    unsigned open;                       /* ACCESSIBLE: bits of the devices that may touch it */
    const struct hoop_cu_context *owner; /* PLAIN: its context */
};

/* Physical memory. */
struct memory {
    int fd, home;
    size_t bytes;
};

static unsigned char *front, *back;
static struct range ranges[MOST], pinned[MOST];
static size_t n_ranges, n_pinned, allocated;

/* ---- Addresses, with the lock ---- */

int fake_pool_make(void)
{
    if (front == NULL) {
        front =
            mmap(NULL, POOL_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        back = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
    if (context == NULL || (range->kind != PLAIN && range->kind != ACCESSIBLE)) {
        return range->kind == PLAIN || range->kind == ACCESSIBLE;
    }
    return range->kind == PLAIN ? fake_is_let_in(context, range->owner)
                                : (range->open & (1u << fake_device_of(context))) != 0;
}

/* The one that holds all of it, and may be used; context NULL: by somebody. */
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

/* The one that is exactly this, and of this kind. */
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
    return at >= (uintptr_t)front && at - (uintptr_t)front < POOL_BYTES;
}

unsigned char *fake_resolve(hoop_cu_address_t at, size_t bytes,
                            const struct hoop_cu_context *context)
{
    if (fake_on_device(at)) {
        return range_of(at, bytes, context) != NULL ? seen(at) : NULL;
    }
    return is_pinned(at, bytes) ? (unsigned char *)(uintptr_t)at : NULL;
}

/* The first gap; 0: none. 256 bytes apart, as CUDA has it. */
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
    return at + bytes <= (uintptr_t)front + POOL_BYTES ? at : 0;
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
                                        .owner = fake_context()};
    *ret = at;
    return HOOP_CU_SUCCESS;
}

static void range_remove(struct range *range)
{
    *range = ranges[--n_ranges];
}

void fake_memory_use(size_t *ret_bytes, size_t *ret_pinned)
{
    *ret_bytes = allocated;
    *ret_pinned = n_pinned;
}

/* ---- Pointers and plain memory ---- */

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
        *(const struct hoop_cu_context **)ret = found.kind == PLAIN ? found.owner : NULL;
    } else if (attribute == HOOP_CU_POINTER_DEVICE_ORDINAL) {
        *(int *)ret = found.home;
    } else if (attribute == HOOP_CU_POINTER_IS_PLAIN) {
        *(bool *)ret = found.kind == PLAIN;
    } else {
        *(unsigned *)ret = HOOP_CU_MEMORY_DEVICE;
    }
    return HOOP_CU_SUCCESS;
}

int fake_alloc(hoop_cu_address_t *ret, size_t bytes)
{
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

int fake_free(hoop_cu_address_t ptr)
{
    int result = HOOP_CU_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    fake_drain();
    for (size_t i = 0; i < n_ranges && result != HOOP_CU_SUCCESS; i++) {
        if (ranges[i].at == ptr && ranges[i].kind == PLAIN) {
            memset(seen(ptr), 0xdd, ranges[i].bytes);
            allocated -= ranges[i].bytes;
            range_remove(&ranges[i]);
            result = HOOP_CU_SUCCESS;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* On the default stream: it is over later. */
int fake_set_bytes(hoop_cu_address_t ptr, unsigned char value, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_task task = {.kind = FAKE_FILL,
                                   .to = fake_resolve(ptr, bytes, fake_context()),
                                   .value = value,
                                   .bytes = bytes};
    const int result = task.to != NULL ? fake_push(NULL, &task) : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_host_register(void *ptr, size_t bytes, unsigned flags)
{
    const bool mapped = (flags & HOOP_CU_HOST_REGISTER_MAPPED) != 0;
    pthread_mutex_lock(&fake_lock);
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

/* As a device knows it: elsewhere. With the lock. */
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
    for (size_t i = 0; i < n_pinned && result != HOOP_CU_SUCCESS; i++) {
        if (pinned[i].at == (uintptr_t)ptr) {
            pinned[i] = pinned[--n_pinned];
            result = HOOP_CU_SUCCESS;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* ---- Physical memory ---- */

int fake_memory_granularity(size_t *ret, const struct hoop_cu_properties *properties, int which)
{
    *ret = GRANULARITY;
    return fake_physical(properties->location.id) >= 0 && which == HOOP_CU_GRANULARITY_MINIMUM
               ? HOOP_CU_SUCCESS
               : HOOP_CU_INVALID_VALUE;
}

static int memory_add(int fd, int home, size_t bytes, hoop_cu_memory_t *ret)
{
    struct memory *memory = malloc(sizeof(*memory));
    if (memory == NULL) {
        close(fd);
        return HOOP_CU_OUT_OF_MEMORY;
    }
    *memory = (struct memory){.fd = fd, .home = home, .bytes = bytes};
    *ret = (uintptr_t)memory;
    return HOOP_CU_SUCCESS;
}

/* With garbage. */
static bool memory_fill(int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) {
        memset(at, 0xcd, bytes);
        munmap(at, bytes);
    }
    return at != MAP_FAILED;
}

int fake_memory_create(hoop_cu_memory_t *ret, size_t bytes,
                       const struct hoop_cu_properties *properties, unsigned long long flags)
{
    if (bytes == 0 || bytes % GRANULARITY != 0 || flags != 0 ||
        properties->type != HOOP_CU_MEMORY_PINNED || fake_physical(properties->location.id) < 0) {
        return HOOP_CU_INVALID_VALUE;
    }
    if (bytes > POOL_BYTES) {
        return HOOP_CU_OUT_OF_MEMORY;
    }
    char name[32];
    (void)snprintf(name, sizeof(name), "fake_cuda%d", fake_physical(properties->location.id));
    const int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || !memory_fill(fd, bytes)) {
        close(fd);
        return HOOP_CU_OUT_OF_MEMORY;
    }
    return memory_add(fd, properties->location.id, bytes, ret);
}

int fake_memory_release(hoop_cu_memory_t handle)
{
    struct memory *memory = (struct memory *)(uintptr_t)handle;
    close(memory->fd);
    free(memory);
    return HOOP_CU_SUCCESS;
}

int fake_memory_export(void *ret, hoop_cu_memory_t handle, int type, unsigned long long flags)
{
    const struct memory *memory = (const struct memory *)(uintptr_t)handle;
    *(int *)ret = dup(memory->fd);
    return type == HOOP_CU_MEMORY_DESCRIPTOR && flags == 0 ? HOOP_CU_SUCCESS
                                                           : HOOP_CU_INVALID_VALUE;
}

/* Of a device that this process sees, or something else. */
int fake_memory_import(hoop_cu_memory_t *ret, void *handle, int type)
{
    const int fd = fcntl((int)(intptr_t)handle, F_DUPFD_CLOEXEC, 0);
    char path[64], name[64] = "";
    int physical = -1;
    struct stat status;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd < 0 || type != HOOP_CU_MEMORY_DESCRIPTOR || fstat(fd, &status) != 0 ||
        readlink(path, name, sizeof(name) - 1) < 0 ||
        sscanf(name, "/memfd:fake_cuda%d", &physical) != 1) {
        close(fd);
        return HOOP_CU_INVALID_VALUE;
    }
    if (fake_number(physical) < 0) {
        close(fd);
        return FAKE_NOT_SUPPORTED;
    }
    return memory_add(fd, fake_number(physical), (size_t)status.st_size, ret);
}

/* ---- Physical memory at addresses ---- */

int fake_address_reserve(hoop_cu_address_t *ret, size_t bytes, size_t alignment,
                         hoop_cu_address_t at, unsigned long long flags)
{
    if (bytes == 0 || bytes % GRANULARITY != 0 || alignment != 0 || at != 0 || flags != 0) {
        return HOOP_CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    const int result =
        front == NULL ? HOOP_CU_NOT_INITIALIZED : range_add(bytes, GRANULARITY, RESERVED, ret);
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
    const struct memory *memory = (const struct memory *)(uintptr_t)handle;
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

/* What still uses it has a bad address then. */
int fake_unmap(hoop_cu_address_t at, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct range *range = range_exactly(at, bytes, ACCESSIBLE);
    range = range != NULL ? range : range_exactly(at, bytes, MAPPED);
    const bool done =
        range != NULL && mmap(seen(at), bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    if (done) {
        range->kind = RESERVED;
        allocated -= bytes;
        if (fake_in_use(seen(at), bytes)) {
            (void)fputs("fake_cuda: memory is unmapped that a stream uses\n", stderr);
            abort();
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return done ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

/* Whoever had access keeps it. */
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

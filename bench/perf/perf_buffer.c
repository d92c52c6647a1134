/* See perf_buffer.h. */
#include "perf/perf_buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/perf.h"
#include "perf/perf_device.h"
#include "perf/perf_failure.h"
#include "perf/perf_options.h"

#define MARGIN 4096
#define GUARD ((size_t)256)
#define PAINT ((char)0x5c)

static int buffer_plain(size_t bytes, char **ret)
{
    void *base = NULL;
    if (posix_memalign(&base, MARGIN, bytes) != 0) {
        char text[80];
        snprintf(text, sizeof text, "cannot allocate %zu bytes of plain memory", bytes);
        return perf_failure_hoop(HOOP_OUT_OF_MEMORY, HOOP_COMM_NULL, text, __FILE__, __LINE__);
    }
    *ret = base;
    return PERF_SUCCESS;
}

static int buffer_alloc(struct perf_buffer *buffer)
{
    const hoop_mem_kind_t kind = buffer->device < 0 ? HOOP_MEM_HOST : HOOP_MEM_DEVICE;
    void *memory = NULL;
    if (buffer->kind == PERF_MEMORY_HOOP) {
        PERF_HOOP_TRY(hoop_mem_alloc(&memory, buffer->bytes, kind), HOOP_COMM_NULL);
        buffer->base = memory;
    } else if (buffer->device < 0) {
        PERF_TRY(buffer_plain(buffer->bytes, &buffer->base));
    } else {
        PERF_TRY(perf_device_alloc(buffer->bytes, &buffer->base));
    }
    return PERF_SUCCESS;
}

int perf_buffer_init(struct perf_buffer *buffer, hoop_comm_t comm, size_t bytes,
                     size_t unalign_bytes)
{
    buffer->bytes = bytes + unalign_bytes + 2 * (size_t)MARGIN;
    if (buffer->device >= 0) {
        PERF_TRY(perf_device_use(buffer->device));
    }
    PERF_TRY(buffer_alloc(buffer));
    PERF_TRY(perf_buffer_fill(buffer, buffer->base, 0, buffer->bytes));
    if (buffer->kind == PERF_MEMORY_REGISTERED) {
        PERF_HOOP_TRY(hoop_comm_register(comm, buffer->base, buffer->bytes, &buffer->handle), comm);
    }
    return PERF_SUCCESS;
}

void perf_buffer_finish(struct perf_buffer *buffer, hoop_comm_t comm)
{
    if (buffer->handle && comm) {
        hoop_comm_deregister(comm, buffer->handle);
    }
    if (buffer->base && buffer->kind == PERF_MEMORY_HOOP) {
        hoop_mem_free(buffer->base);
    } else if (buffer->base && buffer->device >= 0) {
        perf_device_free(buffer->base);
    } else {
        free(buffer->base);
    }
    *buffer = (struct perf_buffer){.kind = buffer->kind, .device = buffer->device};
}

int perf_buffer_fill(const struct perf_buffer *buffer, char *at, int byte, size_t bytes)
{
    if (buffer->device >= 0) {
        return perf_device_fill(at, byte, bytes);
    }
    memset(at, byte, bytes);
    return PERF_SUCCESS;
}

int perf_buffer_copy(const struct perf_buffer *buffer, char *to, const char *from, size_t bytes)
{
    if (buffer->device >= 0) {
        return perf_device_copy(to, from, bytes);
    }
    memcpy(to, from, bytes);
    return PERF_SUCCESS;
}

char *perf_buffer_at(const struct perf_buffer *buffer, size_t offset)
{
    return buffer->base + MARGIN + offset;
}

char *perf_buffer_spare(const struct perf_buffer *buffer)
{
    return buffer->base;
}

int perf_buffer_guard(const struct perf_buffer *buffer, char *window, size_t bytes)
{
    PERF_TRY(perf_buffer_fill(buffer, window - GUARD, PAINT, GUARD));
    PERF_TRY(perf_buffer_fill(buffer, window + bytes, PAINT, GUARD));
    return PERF_SUCCESS;
}

int perf_buffer_damage(const struct perf_buffer *buffer, const char *window, size_t bytes,
                       size_t *found)
{
    char around[2 * GUARD];
    PERF_TRY(perf_buffer_copy(buffer, around, window - GUARD, GUARD));
    PERF_TRY(perf_buffer_copy(buffer, around + GUARD, window + bytes, GUARD));
    for (size_t i = 0; i < sizeof around; i++) {
        *found += around[i] != PAINT;
    }
    return PERF_SUCCESS;
}

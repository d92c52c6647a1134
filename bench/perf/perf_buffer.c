/* See perf_buffer.h. */
#include "perf/perf_buffer.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "perf/perf.h"
#include "perf/perf_device.h"
#include "perf/perf_failure.h"
#include "perf/perf_options.h"

#define MARGIN 4096
#define GUARD 256
#define PAINT ((char)0x5c)

static hoop_result_t buffer_plain(size_t bytes, char **ret)
{
    void *base = NULL;
    if (posix_memalign(&base, MARGIN, bytes) != 0) {
        return HOOP_OUT_OF_MEMORY;
    }
    *ret = base;
    return HOOP_OK;
}

/* On its device. */
static int buffer_alloc_there(struct perf_buffer *buffer)
{
    void *memory = NULL;
    PERF_TRY(perf_device_use(buffer->device));
    if (buffer->kind != PERF_MEMORY_HOOP) {
        PERF_TRY(perf_device_alloc(buffer->bytes, &buffer->memory));
        return PERF_SUCCESS;
    }
    PERF_HOOP_TRY(hoop_mem_alloc(&memory, buffer->bytes, HOOP_MEM_DEVICE), HOOP_COMM_NULL);
    buffer->memory = memory;
    return PERF_SUCCESS;
}

static int buffer_alloc(struct perf_buffer *buffer)
{
    void *memory = NULL;
    if (buffer->device < 0 && buffer->kind == PERF_MEMORY_HOOP) {
        PERF_HOOP_TRY(hoop_mem_alloc(&memory, buffer->bytes, HOOP_MEM_HOST), HOOP_COMM_NULL);
        buffer->base = memory;
    } else {
        PERF_HOOP_TRY(buffer_plain(buffer->bytes, &buffer->base), HOOP_COMM_NULL);
    }
    buffer->memory = buffer->device < 0 ? buffer->base : NULL;
    return PERF_SUCCESS;
}

int perf_buffer_init(struct perf_buffer *buffer, hoop_comm_t comm, size_t bytes,
                     size_t unalign_bytes)
{
    buffer->bytes = bytes + unalign_bytes + 2 * (size_t)MARGIN;
    PERF_TRY(buffer_alloc(buffer));
    memset(buffer->base, 0, buffer->bytes);
    if (buffer->device >= 0) {
        PERF_TRY(buffer_alloc_there(buffer));
        PERF_TRY(perf_device_copy(buffer->memory, buffer->base, buffer->bytes));
    }
    if (buffer->kind == PERF_MEMORY_REGISTERED) {
        PERF_HOOP_TRY(hoop_comm_register(comm, buffer->memory, buffer->bytes, &buffer->handle),
                      comm);
    }
    return PERF_SUCCESS;
}

void perf_buffer_finish(struct perf_buffer *buffer, hoop_comm_t comm)
{
    const bool there = buffer->memory != buffer->base;
    if (buffer->handle && comm) {
        hoop_comm_deregister(comm, buffer->handle);
    }
    if (buffer->memory && buffer->kind == PERF_MEMORY_HOOP) {
        hoop_mem_free(buffer->memory);
    } else if (buffer->memory && there) {
        perf_device_free(buffer->memory);
    }
    if (there || buffer->kind != PERF_MEMORY_HOOP) {
        free(buffer->base);
    }
    *buffer = (struct perf_buffer){.kind = buffer->kind, .device = buffer->device};
}

char *perf_buffer_there(const struct perf_buffer *buffer, const char *at)
{
    const size_t offset = (uintptr_t)at - (uintptr_t)buffer->base;
    return offset < buffer->bytes ? buffer->memory + offset : NULL;
}

int perf_buffer_put(const struct perf_buffer *buffer, const char *window, size_t bytes)
{
    const char *from = window - GUARD;
    return buffer->device < 0
               ? PERF_SUCCESS
               : perf_device_copy(perf_buffer_there(buffer, from), from, bytes + 2 * (size_t)GUARD);
}

int perf_buffer_get(const struct perf_buffer *buffer, char *window, size_t bytes)
{
    char *to = window - GUARD;
    return buffer->device < 0
               ? PERF_SUCCESS
               : perf_device_copy(to, perf_buffer_there(buffer, to), bytes + 2 * (size_t)GUARD);
}

char *perf_buffer_at(const struct perf_buffer *buffer, size_t offset)
{
    return buffer->base + MARGIN + offset;
}

void perf_buffer_guard(char *window, size_t bytes)
{
    memset(window - GUARD, PAINT, GUARD);
    memset(window + bytes, PAINT, GUARD);
}

size_t perf_buffer_damage(const char *window, size_t bytes)
{
    size_t damage = 0;
    for (size_t i = 0; i < GUARD; i++) {
        damage += window[-1 - (ptrdiff_t)i] != PAINT;
        damage += window[bytes + i] != PAINT;
    }
    return damage;
}

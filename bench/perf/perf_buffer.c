/* See perf_buffer.h. */
#include "perf/perf_buffer.h"

#include <stdlib.h>
#include <string.h>

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

hoop_result_t perf_buffer_init(struct perf_buffer *buffer, hoop_comm_t comm, int kind, size_t bytes,
                               size_t unalign_bytes)
{
    *buffer =
        (struct perf_buffer){.kind = kind, .bytes = bytes + unalign_bytes + 2 * (size_t)MARGIN};
    hoop_result_t result;
    if (kind == PERF_MEMORY_HOOP) {
        void *base = NULL;
        result = hoop_mem_alloc(&base, buffer->bytes, HOOP_MEM_HOST);
        buffer->base = base;
    } else {
        result = buffer_plain(buffer->bytes, &buffer->base);
    }
    if (result != HOOP_OK) {
        buffer->base = NULL;
        return result;
    }
    memset(buffer->base, 0, buffer->bytes);
    if (kind == PERF_MEMORY_REGISTERED) {
        return hoop_comm_register(comm, buffer->base, buffer->bytes, &buffer->handle);
    }
    return HOOP_OK;
}

void perf_buffer_finish(struct perf_buffer *buffer, hoop_comm_t comm)
{
    if (buffer->handle && comm) {
        hoop_comm_deregister(comm, buffer->handle);
    }
    if (buffer->kind == PERF_MEMORY_HOOP) {
        hoop_mem_free(buffer->base);
    } else {
        free(buffer->base);
    }
    *buffer = (struct perf_buffer){.kind = buffer->kind};
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

/* See perf_elements.h. */
#include "perf/perf_elements.h"

#include <pthread.h>
#include <string.h>

#include "perf/perf.h"
#include "perf/perf_device.h"
#include "perf/perf_failure.h"
#include "perf/perf_kernels.h"

#define PIECE_BYTES ((size_t)32 << 10) /* two fit the second-level cache */
#define MOST_DEVICES 64
#define MOST_BLOCKS 8192 /* several times as many as a device runs at once */

/* ---- By kernels ------------------------------------------------------------------------------ */

/* The kernels of each device; under the lock. */
static struct {
    bool known;
    void *write, *compare; /* NULL: not available */
} kernels[MOST_DEVICES];
static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;

bool perf_elements_have_kernels(int device)
{
    if (device < 0 || perf_device_use(device) != PERF_SUCCESS || device >= MOST_DEVICES) {
        return false;
    }
    pthread_mutex_lock(&kernels_lock);
    if (!kernels[device].known) {
        void *module = perf_device_module(perf_kernels_image);
        kernels[device].known = true;
        kernels[device].write = module ? perf_device_kernel(module, PERF_KERNEL_WRITE) : NULL;
        kernels[device].compare = module ? perf_device_kernel(module, PERF_KERNEL_COMPARE) : NULL;
    }
    const bool there = kernels[device].write && kernels[device].compare;
    pthread_mutex_unlock(&kernels_lock);
    return there;
}

static int kernel_run(void *kernel, struct perf_work *work)
{
    const uint64_t blocks = (work->span.count + PERF_KERNEL_THREADS - 1) / PERF_KERNEL_THREADS;
    return perf_device_launch(kernel, blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS,
                              PERF_KERNEL_THREADS, work);
}

static int kernel_compare(const struct perf_buffer *buffer, const struct perf_span *span,
                          const char *at, bool bytes, size_t *found)
{
    char *place = perf_buffer_spare(buffer);
    uint64_t here = 0;
    struct perf_work work = {
        .span = *span, .at = (void *)(uintptr_t)at, .found = place, .bytes = bytes};
    PERF_TRY(perf_device_fill(place, 0, sizeof here));
    PERF_TRY(kernel_run(kernels[buffer->device].compare, &work));
    PERF_TRY(perf_device_copy((char *)&here, place, sizeof here));
    *found += here;
    return PERF_SUCCESS;
}

/* ---- By the host ----------------------------------------------------------------------------- */

static size_t span_bytes(const struct perf_span *span)
{
    return span->count * (size_t)(span->rules.bits / 8);
}

/* Takes the next piece off the rest of a span. */
static struct perf_span span_cut(struct perf_span *rest)
{
    const size_t most = PIECE_BYTES / (size_t)(rest->rules.bits / 8);
    struct perf_span piece = *rest;
    piece.count = rest->count < most ? rest->count : most;
    rest->first += piece.count;
    rest->count -= piece.count;
    return piece;
}

static int host_make(const struct perf_span *span, char *at)
{
    char made[PIECE_BYTES];
    for (struct perf_span rest = *span; rest.count > 0;) {
        const struct perf_span piece = span_cut(&rest);
        perf_data_make(&piece, made);
        PERF_TRY(perf_device_copy(at, made, span_bytes(&piece)));
        at += span_bytes(&piece);
    }
    return PERF_SUCCESS;
}

static size_t host_changed(const char *got, const char *want, size_t bytes)
{
    if (memcmp(got, want, bytes) == 0) {
        return 0;
    }
    size_t changed = 0;
    for (size_t i = 0; i < bytes; i++) {
        changed += got[i] != want[i];
    }
    return changed;
}

/* Where the host can read the bytes: in place, or in `copy`, to which they were copied. */
static int host_look(const struct perf_buffer *buffer, const char *at, size_t bytes, char *copy,
                     const char **ret)
{
    *ret = buffer->device < 0 ? at : copy;
    return buffer->device < 0 ? PERF_SUCCESS : perf_device_copy(copy, at, bytes);
}

static int host_compare(const struct perf_buffer *buffer, const struct perf_span *span,
                        const char *at, bool bytes, size_t *found)
{
    char want[PIECE_BYTES];
    char copy[PIECE_BYTES];
    for (struct perf_span rest = *span; rest.count > 0;) {
        const struct perf_span piece = span_cut(&rest);
        const char *got = NULL;
        PERF_TRY(host_look(buffer, at, span_bytes(&piece), copy, &got));
        perf_data_make(&piece, want);
        *found += bytes ? host_changed(got, want, span_bytes(&piece))
                        : perf_data_wrong(&piece.rules, got, want, piece.count);
        at += span_bytes(&piece);
    }
    return PERF_SUCCESS;
}

/* ---- By kernels or by the host --------------------------------------------------------------- */

int perf_elements_make(const struct perf_buffer *buffer, const struct perf_span *span, char *at)
{
    if (buffer->device < 0) {
        perf_data_make(span, at);
        return PERF_SUCCESS;
    }
    if (!perf_elements_have_kernels(buffer->device) || span->count == 0) {
        return host_make(span, at);
    }
    struct perf_work work = {.span = *span, .at = at};
    return kernel_run(kernels[buffer->device].write, &work);
}

static int elements_compare(const struct perf_buffer *buffer, const struct perf_span *span,
                            const char *at, bool bytes, size_t *found)
{
    return perf_elements_have_kernels(buffer->device) && span->count > 0
               ? kernel_compare(buffer, span, at, bytes, found)
               : host_compare(buffer, span, at, bytes, found);
}

int perf_elements_wrong(const struct perf_buffer *buffer, const struct perf_span *span,
                        const char *at, size_t *found)
{
    return elements_compare(buffer, span, at, false, found);
}

int perf_elements_changed(const struct perf_buffer *buffer, const struct perf_span *span,
                          const char *at, size_t *found)
{
    return elements_compare(buffer, span, at, true, found);
}

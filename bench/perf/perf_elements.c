/* See perf_elements.h. */
#include "perf/perf_elements.h"

#include <string.h>

#include "perf/perf.h"
#include "perf/perf_device.h"
#include "perf/perf_failure.h"

#define PIECE_BYTES ((size_t)32 << 10) /* two fit the second-level cache */

static size_t span_bytes(const struct perf_span *span)
{
    return span->count * (size_t)(span->rules.bits / 8);
}

/* The next piece of what is left of a span, which gets shorter. */
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

/* Where the host finds them: there, or in the copy. */
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

int perf_elements_make(const struct perf_buffer *buffer, const struct perf_span *span, char *at)
{
    if (buffer->device < 0) {
        perf_data_make(span, at);
        return PERF_SUCCESS;
    }
    return host_make(span, at);
}

int perf_elements_wrong(const struct perf_buffer *buffer, const struct perf_span *span,
                        const char *at, size_t *found)
{
    return host_compare(buffer, span, at, false, found);
}

int perf_elements_changed(const struct perf_buffer *buffer, const struct perf_span *span,
                          const char *at, size_t *found)
{
    return host_compare(buffer, span, at, true, found);
}

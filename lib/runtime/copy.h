/* Copies that bypass the caches, for memory that others read next; worth it: cost/copies.h. */
#ifndef HOOP_RUNTIME_COPY_H
#define HOOP_RUNTIME_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#define HOOP_COPY_PAST 1 /* hoop_copy_past() differs from memcpy() */
#include <emmintrin.h>
#else
#define HOOP_COPY_PAST 0
#endif

/* memcpy() with non-temporal stores, visible before any later store of the thread. */
static inline void hoop_copy_past(void *to, const void *from, size_t bytes)
{
    char *dst = to;
    const char *src = from;
#if HOOP_COPY_PAST
    const size_t before = -(uintptr_t)dst % 64, head = before < bytes ? before : bytes;
    memcpy(dst, src, head);
    for (dst += head, src += head, bytes -= head; bytes >= 64; dst += 64, src += 64, bytes -= 64) {
        const __m128i *line = (const __m128i *)(const void *)src;
        const __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
        const __m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
        __m128i *out = (__m128i *)(void *)dst;
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    memcpy(dst, src, bytes);
    _mm_sfence(); /* non-temporal stores are weakly ordered */
#else
    memcpy(dst, src, bytes);
#endif
}

static inline void hoop_copy(void *to, const void *from, size_t bytes, bool past)
{
    if (past) {
        hoop_copy_past(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

#endif

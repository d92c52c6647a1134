/* Copies to memory that others read next. Past the caches: worth it as cost/copies.h says. */
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

/* Intel CPUs since Ice Lake store a line that another CPU has read without fetching it first if
 * they are told the length beforehand, by `rep movsb`: in half the time. C libraries do so from 2
 * KiB on. */
static inline bool hoop_copies_by_string(size_t bytes)
{
#if defined(__x86_64__)
    return bytes >= 256 && __builtin_cpu_is("intel") && __builtin_cpu_supports("vpclmulqdq");
#else
    return (void)bytes, false;
#endif
}

static inline void hoop_copy_string(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
    memcpy(to, from, bytes);
#endif
}

static inline void hoop_copy(void *to, const void *from, size_t bytes, bool past)
{
    if (past) {
        hoop_copy_past(to, from, bytes);
    } else if (hoop_copies_by_string(bytes)) {
        hoop_copy_string(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

#endif

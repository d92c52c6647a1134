/* See usage.h. These functions are called in place of the C library's allocator, and call that. */
#include "harness/usage.h"
#include "harness/fds.h"
#include "harness/sanitizer.h"
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic long usage_bytes, usage_blocks;

#if MEMORY_IS_PLAIN && defined(__GLIBC__)

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

static void usage_add(void *memory, long sign)
{
    if (memory != NULL) {
        usage_bytes += sign * (long)malloc_usable_size(memory);
        usage_blocks += sign;
    }
}

void *malloc(size_t bytes)
{
    void *memory = __libc_malloc(bytes);
    usage_add(memory, 1);
    return memory;
}

void *calloc(size_t count, size_t bytes)
{
    void *memory = __libc_calloc(count, bytes);
    usage_add(memory, 1);
    return memory;
}

void *realloc(void *memory, size_t bytes)
{
    usage_add(memory, -1);
    void *other = __libc_realloc(memory, bytes);
    usage_add(other == NULL && bytes > 0 ? memory : other, 1);
    return other;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    void *memory = __libc_memalign(alignment, bytes);
    usage_add(memory, 1);
    return memory;
}

int posix_memalign(void **ret, size_t alignment, size_t bytes)
{
    void *memory = aligned_alloc(alignment, bytes);
    *ret = memory != NULL ? memory : *ret;
    return memory != NULL ? 0 : ENOMEM;
}

void free(void *memory)
{
    usage_add(memory, -1);
    __libc_free(memory);
}

bool usage_counts_memory(void)
{
    return true;
}

#else

bool usage_counts_memory(void)
{
    return false;
}

#endif

static long usage_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    long lines = 0;
    for (int c = 0; maps != NULL && (c = getc(maps)) != EOF;) {
        lines += c == '\n';
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return lines;
}

static long usage_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    long threads = -2; /* not counted: "." and ".." */
    while (folder != NULL && readdir(folder) != NULL) {
        threads++;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return threads;
}

struct usage usage_now(void)
{
    struct usage usage = {.fds = fds_count(0), .threads = usage_threads()};
    usage.mappings = usage_mappings();
    usage.bytes = usage_bytes;
    usage.blocks = usage_blocks;
    return usage;
}

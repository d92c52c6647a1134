/* What this process has in use: what was allocated, mapped, opened or started, and not given
 * back. */
#ifndef HOOP_TESTS_USAGE_H
#define HOOP_TESTS_USAGE_H

#include <stdbool.h>

struct usage {
    long bytes, blocks; /* from malloc(), by all libraries; 0 if they can't be counted */
    long mappings;      /* lines of /proc/self/maps */
    long fds, threads;
};

/* Can memory from malloc() be counted? Not with a sanitizer, which has its own allocator and keeps
 * memory that was freed. */
bool usage_counts_memory(void);

struct usage usage_now(void);

#endif

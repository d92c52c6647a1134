/* What this process has in use: what was allocated, mapped, opened or started, and not given back.
 */
#ifndef HOOP_TESTS_USAGE_H
#define HOOP_TESTS_USAGE_H

#include <stdbool.h>

struct usage {
    long bytes, blocks; /* of malloc(), all libraries'; 0 where that cannot be counted */
    long mappings;      /* lines of /proc/self/maps */
    long fds, threads;
};

/* Is what malloc() gives counted? Not with a sanitizer, which has its own, and keeps what was
 * freed. */
bool usage_counts_memory(void);

struct usage usage_now(void);

#endif

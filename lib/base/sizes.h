/* The two sizes of the machine that layouts and cuts follow. */
#ifndef HOOP_BASE_SIZES_H
#define HOOP_BASE_SIZES_H

#include <stddef.h>

/* Two ranks should not write to one of these. */
#define HOOP_LINE_BYTES ((size_t)64)

/* What can be mapped, and replaced, by itself. */
#define HOOP_PAGE_BYTES ((size_t)4096)

#endif

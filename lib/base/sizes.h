/* The two sizes of the machine that layouts and cuts follow. */
#ifndef HOOP_BASE_SIZES_H
#define HOOP_BASE_SIZES_H

/* Two ranks should not write to one of these. */
#define HOOP_LINE_BYTES 64u

/* What can be mapped, and replaced, by itself. */
#define HOOP_PAGE_BYTES 4096u

#endif

/* What the parts of hoopinfo share. */
#ifndef HOOPINFO_HOOPINFO_H
#define HOOPINFO_HOOPINFO_H

#include "hoop.h"

#define RANKS_USUAL 4 /* of --explain and --test, without --ranks */

/* Reports an error of the library. Returns the exit code, 1. */
int library_failed(const char *what, hoop_result_t result);

#endif

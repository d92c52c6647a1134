/* hoopinfo --explain: how the ranks of this machine would carry out a collective. */
#ifndef HOOPINFO_EXPLAIN_H
#define HOOPINFO_EXPLAIN_H

#include "hoopinfo/facts.h"

/* Adds the plan, and alternatives, for this many bytes of float. Returns an exit code. */
int explain_add(struct facts *facts, const char *collective, size_t bytes, int ranks);

#endif

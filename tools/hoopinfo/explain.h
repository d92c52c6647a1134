/* hoopinfo --explain: how a collective would be done between ranks of this machine. */
#ifndef HOOPINFO_EXPLAIN_H
#define HOOPINFO_EXPLAIN_H

#include "hoopinfo/facts.h"

/* Adds the plan and what else there was, for a vector of so many bytes of float. An exit code. */
int explain_add(struct facts *facts, const char *collective, size_t bytes, int ranks);

#endif
